"""Notebook 6, all that is none of its ideas: the checks of its exercises (which give the answers
away), made-up data for its quick mode, the reading of its files, what is
asked of them, and a picture.
"""

import copy
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from statistics import NormalDist

import minibert
import numpy as np
import pandas as pd
import torch
from course import draw_seeds, exercise, interval, verdict
from datasets import Dataset, load_dataset
from torch import nn
from transformers import get_linear_schedule_with_warmup

FEW_LABELS = 100  # of these, all of benchmarks/fine_tuning.py has three seeds
GRID_TASKS = ("sentiment", "inference", "entities")
# The words of benchmarks/pooling.py, and those of the notebook.
POOLING_TASKS = {"sst2": "sentiment", "nli": "inference"}
POOLING_VECTORS = {"cls": "[CLS]", "mean": "mean"}
POOLING_WAYS = {"head only": "head", "all layers": "all"}


@exercise
def check_rows(rows):
    result = rows(0.8, 0.02)
    if abs(result - 2401) <= 1:
        return "this is for an accuracy of 0.5, the worst case; use the accuracy"
    if abs(result - 400) <= 1:
        return "this is for one standard error: 95 % takes 1.96 of them"
    if abs(result - 0.8 * 0.2 * 1.96 / 0.02**2) < 2:
        return "1.96 stands before the root: it is squared, too"
    for accuracy, half in ((0.8, 0.02), (0.5, 0.02), (0.9, 0.01), (0.95, 0.05)):
        right = accuracy * (1 - accuracy) * (1.96 / half) ** 2
        if abs(rows(accuracy, half) - right) > 1:
            return (
                f"an accuracy of {accuracy} is known to ± {half} from {right:,.0f} rows,"
                f" and not {rows(accuracy, half):,.0f}"
            )


@exercise
def check_labels(align):
    word_ids = [None, 0, 1, 1, 2, 2, 2, None]
    word_labels = [3, 4, 0]
    result = list(align(word_ids, word_labels))
    if len(result) != len(word_ids):
        return f"{len(word_ids)} tokens gave {len(result)} labels"
    if result == [-100, 3, 4, 4, 0, 0, 0, -100]:
        return "only the first subword of a word has its label"
    if result != [-100, 3, 4, -100, 0, -100, -100, -100]:
        return f"{word_ids} with the labels {word_labels} gave {result}"
    if list(align([None, 0, 1, None], [7, 7])) != [-100, 7, 7, -100]:
        return "two words with the same label: each has it at its first subword"
    pair = [None, 0, 0, None, 0, 1, 1, None]
    if list(align(pair, [5, 6])) != [-100, 5, -100, -100, 5, 6, -100, -100]:
        return "in a pair of texts the words are counted anew: the first word of each has number 0"


@exercise
def check_scores(scores):
    true = ["B-PER", "I-PER", "O", "O", "B-LOC"]
    predicted = ["B-PER", "O", "O", "B-ORG", "B-LOC"]
    precision, recall, f1 = scores([true], [predicted])
    if abs(precision - 1 / 2) < 1e-6 and abs(recall - 1 / 3) < 1e-6:
        return "precision is the share of the predicted ones, recall that of the true ones"
    if abs(f1 - 5 / 12) < 1e-6:
        return "this F1 is the arithmetic mean of precision and recall: it is the harmonic one"
    cases = [
        ([true], [predicted], (1 / 3, 1 / 2, 0.4)),
        # The same entity in another sentence is another entity.
        ([["B-PER"], ["O"]], [["O"], ["B-PER"]], (0, 0, 0)),
        ([["B-PER"], ["B-PER"]], [["B-PER"], ["O"]], (1, 1 / 2, 2 / 3)),
        ([["B-PER", "O"]], [["B-LOC", "O"]], (0, 0, 0)),
        ([["B-PER", "O"]], [["O", "O"]], (0, 0, 0)),
    ]
    for true_sentences, predicted_sentences, right in cases:
        try:
            result = scores(true_sentences, predicted_sentences)
        except ZeroDivisionError:
            return f"{predicted_sentences}: where there is nothing to divide by, the score is 0"
        if not np.allclose(result, right, atol=1e-6):
            right = np.round(right, 3)
            return f"true {true_sentences}, predicted {predicted_sentences}: {right}, not {result}"


class TrainedHead(nn.Module):
    """A frozen matrix and a head that learns. It notes whether it is in train mode."""

    def __init__(self):
        super().__init__()
        self.frozen = nn.Linear(3, 4).requires_grad_(False)
        self.head = nn.Linear(4, 2)
        self.modes = []

    def forward(self, x):
        self.modes.append(self.training)
        return self.head(self.frozen(x))


def train_head(model, batches, learning_rate, fault=None):
    """The loop of the exercise, right or with a fault. Returns the loss of each batch."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=learning_rate)
    warmup_steps = round(0.06 * len(batches))
    if fault == "no warm-up":
        warmup_steps = 0
    schedule = get_linear_schedule_with_warmup(optimizer, warmup_steps, len(batches))
    if fault == "no schedule":
        optimizer = torch.optim.AdamW(trained, lr=learning_rate)
    losses = []
    for inputs, labels in batches:
        logits = model(**inputs)
        loss = nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())
        loss.backward()
        if fault != "no cut":
            nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        if fault != "no schedule":
            schedule.step()
        if fault != "no zeros":
            optimizer.zero_grad()
        losses.append(loss.item())
    return losses


LOOP_FAULTS = {
    "no zeros": "the gradients of earlier batches are still there: zero_grad() after each step",
    "no cut": "the gradients are not cut at norm 1.0, between backward() and the step",
    "no schedule": "the learning rate is constant: it rises and falls by the schedule",
    "no warm-up": "the learning rate does not rise first, over 6 % of the batches",
}


@exercise
def check_loop(fine_tune):
    torch.manual_seed(0)
    start = TrainedHead()
    batches = []
    for number in range(50):
        shape = (4, 5) if number % 2 else (4,)  # labels of tokens, or of sentences
        labels = torch.randint(2, shape)
        if number % 2:
            labels[0] = -100
        batches.append(({"x": (1 + number % 7) * torch.randn(*shape, 3)}, labels))
    model = copy.deepcopy(start).eval()
    steps = fine_tune(model, batches, 0.05)
    if not isinstance(steps, Iterator):
        return f"it returns a {type(steps).__name__}: yield the loss of each batch, after its step"
    losses = []
    for loss in steps:
        if getattr(loss, "requires_grad", False):
            return "it yields a tensor, which keeps the graph of its gradients: yield loss.item()"
        losses.append(float(loss))
        at_last_yield = model.head.weight.detach().clone()
        model.eval()  # as a caller does that measures between two steps
    if len(losses) != len(batches):
        return f"{len(batches)} batches gave {len(losses)} losses"
    if not torch.equal(at_last_yield, model.head.weight):
        return "the last step comes after the last yield: yield the loss after the step"
    if not all(model.modes):
        return "call model.train() before each batch: the caller may have left it in eval mode"
    if not torch.equal(model.frozen.weight, start.frozen.weight):
        return "a frozen weight has changed: leave requires_grad as it is"
    if torch.equal(model.head.weight, start.head.weight):
        return "the weights of the head have not changed: do optimizer and schedule make steps?"
    for fault in (None, *LOOP_FAULTS):
        reference = copy.deepcopy(start)
        right_losses = train_head(reference, batches, 0.05, fault)
        if torch.allclose(reference.head.weight, model.head.weight, atol=1e-5):
            if not np.allclose(losses, right_losses, atol=1e-4):
                return "it trains as it should, but what it yields is not the loss of each batch"
            return LOOP_FAULTS.get(fault)
    return "the weights after 50 batches are not those of the loop that is described"


@exercise
def check_mistakes(mistake_rates):
    texts = [
        "it is not good",
        "nothing new",
        "a fine film",
        "no",
        "not bad",
        "knows how",
        "a dull film",
    ]
    is_wrong = np.array([True, False, False, True, True, True, False])
    with_words, without = mistake_rates(texts, is_wrong, {"no", "not"})
    if np.allclose((with_words, without), (4 / 5, 0)):
        return "'nothing' and 'knows' have the letters of 'no', but are other words: split the text"
    if np.allclose((with_words, without), (3 / 4, 0)):
        return "this is how many mistakes have such a word, not how many such texts are wrong"
    if np.allclose((with_words, without), (1 / 4, 1)):
        return "first the share among the texts with such a word, then among the others"
    if not np.allclose((with_words, without), (1, 1 / 4)):
        return f"{texts}, wrong {is_wrong.tolist()}: 3 of 3 with 'no' or 'not', 1 of 4 without"


def paired_scores(grid, way, other, groups):
    """The scores of both ways in the groups that have both, two tables [groups, seeds]."""
    both = [grid[group] for group in groups if {way, other} <= set(grid[group])]
    scores = pd.DataFrame(both)
    return pd.DataFrame(scores[way].tolist()), pd.DataFrame(scores[other].tolist())


def lead(grid, way, other, groups):
    """By seed, how far a way is ahead of another, on average over the groups that have both."""
    of_way, of_other = paired_scores(grid, way, other, groups)
    return (of_way - of_other).mean()


def example_grid():
    """A grid like that of the notebook, with scores that differ more by seed than by way."""
    generator = np.random.default_rng(0)
    grid = {}
    for task, vector in itertools.product(("sentiment", "inference"), ("[CLS]", "mean")):
        of_seeds = 0.1 * generator.normal(size=3)
        ways = {}
        for way in ("head", "LoRA", "all"):
            scores = generator.uniform(0.5, 0.8) + of_seeds + 0.02 * generator.normal(size=3)
            ways[way] = pd.Series(scores, index=[0, 1, 2])
        grid[task, 100, "A", vector] = ways
    del grid["sentiment", 100, "A", "mean"]["all"]
    return grid


def problem_of_lead(mean, grid, way, other, groups):
    """What is wrong with an average lead, in words, or None."""
    right = lead(grid, way, other, groups).mean()
    if np.isclose(mean, right):
        return None
    if np.isclose(mean, -right):
        return "the sign is wrong: `way` less `other`"
    if np.isclose(mean, lead(grid, way, other, grid).mean()):
        return "this averages all groups of the grid: only those in `groups` count"
    by_way = {}
    for name in (way, other):
        by_way[name] = np.mean([grid[group][name] for group in groups if name in grid[group]])
    if np.isclose(mean, by_way[way] - by_way[other]):
        return (
            "leave out a group that lacks one of the two ways:"
            " else one way is measured on a vector that the other did not read"
        )
    of_way, _ = paired_scores(grid, way, other, groups)
    if np.isclose(mean, right * len(of_way)):
        return "this is the sum over the groups: divide by their number"
    return f"{way} − {other} is {right:+.4f} on average over {groups}, and not {mean:+.4f}"


def problem_of_half(half, grid, way, other, groups, comparisons):
    """What is wrong with half of an interval, in words, or None."""
    of_way, of_other = paired_scores(grid, way, other, groups)
    differences = (of_way - of_other).to_numpy()
    by_seed = differences.mean(0)
    _, right = interval(by_seed, comparisons)
    if np.isclose(half, right):
        return None
    if np.isclose(half, interval(by_seed)[1]):
        return f"this interval stands alone: widen it for {comparisons} comparisons"
    if np.isclose(half, 2 * right):
        return "this is the whole interval: return half of it"
    for number in (1, comparisons):
        if np.isclose(half, interval(differences.mean(1), number)[1]):
            return "this interval is that of the groups: average them by seed, and keep the seeds"
        if np.isclose(half, interval(differences.ravel(), number)[1]):
            return "this counts each group as more seeds: average the groups first, seed by seed"
        _, half_of_way = interval(of_way.mean(), number)
        _, half_of_other = interval(of_other.mean(), number)
        if np.isclose(half, np.hypot(half_of_way, half_of_other)):
            return (
                "this averages each way before the seeds are paired:"
                " subtract first, the scores of the same seed"
            )
    return f"half of the interval is {right:.4f} for {comparisons} comparisons, and not {half:.4f}"


@exercise
def check_lead(lead_and_half):
    grid = example_grid()
    groups = [group for group in grid if group != ("inference", 100, "A", "mean")]
    cases = [
        ("all", "head", groups, 4),
        ("LoRA", "head", groups, 2),
        ("head", "all", groups[:1], 1),
    ]
    for way, other, some_groups, comparisons in cases:
        try:
            result = lead_and_half(grid, way, other, some_groups, comparisons)
        except KeyError as error:
            return f"a group lacks {error}: leave out groups that lack one of the two ways"
        if np.shape(result) != (2,):
            return "it returns two numbers: the average lead, and half of its interval"
        mean, half = result
        problem = problem_of_lead(mean, grid, way, other, some_groups)
        if problem is None:
            problem = problem_of_half(half, grid, way, other, some_groups, comparisons)
        if problem is not None:
            return problem


def check_without_bias(lora_class):
    """What is wrong with LoRA of a matrix that has no bias, or None."""
    linear = nn.Linear(6, 4, bias=False)
    x = torch.randn(3, 6)
    try:
        module = lora_class(linear, 2, 5)
        is_same = torch.allclose(module(x), linear(x), atol=1e-6)
        is_same = is_same and torch.allclose(module.merge()(x), linear(x), atol=1e-6)
    except (AttributeError, TypeError) as error:
        return f"a matrix without a bias (linear.bias is None) gave {type(error).__name__}: {error}"
    if not is_same:
        return "of a matrix without a bias (linear.bias is None) the output is another one"


@exercise
def check_lora(lora_class):
    torch.manual_seed(0)
    linear = torch.nn.Linear(6, 4)
    weight = linear.weight.detach().clone()
    bias = linear.bias.detach().clone()
    x = torch.randn(3, 6)
    module = lora_class(linear, 2, 5)
    if not torch.allclose(module(x), x @ weight.T + bias, atol=1e-6):
        return "before it has learned, its output is that of the matrix: B begins as zeros"
    count = 0
    factors = {}  # by shape; B may be stored as it is or transposed, and A, too
    for parameter in module.parameters():
        if parameter.requires_grad:
            count += parameter.numel()
            factors[tuple(sorted(parameter.shape))] = parameter
    if count != 2 * (6 + 4):
        return f"{count} parameters learn; of a matrix 4 × 6 with r = 2 it is 2 · (6 + 4) = 20"
    if set(factors) != {(2, 6), (2, 4)}:
        return f"the matrices that learn have the shapes {[*factors]}, and not 2 × 6 and 4 × 2"
    module(x).square().sum().backward()
    if not factors[2, 4].grad.abs().sum():
        return "B gets no gradient: A must not begin as zeros"
    if torch.linalg.matrix_rank(factors[2, 6].detach()) < 2:
        return "the r rows of A are alike: so are their gradients, and B A has rank 1 for ever"
    with torch.no_grad():
        for parameter in factors.values():
            parameter.normal_()
    A = factors[2, 6].detach()
    B = factors[2, 4].detach()
    if A.shape[0] != 2:
        A = A.T
    if B.shape[1] != 2:
        B = B.T
    expected = x @ (weight + 5 / 2 * B @ A).T + bias
    without_scale = x @ (weight + B @ A).T + bias
    if torch.allclose(module(x), without_scale, atol=1e-5):
        return "the factor α / r is missing"
    if not torch.allclose(module(x), expected, atol=1e-5):
        return "its output is not W x + b + α / r · B A x"
    merged = module.merge()
    if not isinstance(merged, torch.nn.Linear):
        return f"merge() returns a {type(merged).__name__}, and not an nn.Linear"
    if not torch.allclose(merged(x), expected, atol=1e-5):
        return "the output of the merged layer is not W x + b + α / r · B A x"
    if not torch.allclose(module(x), expected, atol=1e-5):
        return "after merge() the module itself adds the product twice: merge a copy of the matrix"
    return check_without_bias(lora_class)


def made_up_rows(name):
    """A few rows for the quick mode of the tests, in the columns of the data set `name`."""
    rows = []
    for word, label in [("good", 1), ("bad", 0), ("great", 1), ("dull", 0)] * 6:
        for person in ("Ada Lovelace", "Bo Diddley"):
            claims_good = len(rows) % 3 == 0
            if name == "sst2":
                row = {"text": f"a {word} film by {person}", "label": label}
            elif name == "nli":
                hypothesis = "it is good" if claims_good else "it is bad"
                agrees = str(claims_good == bool(label))
                row = {"premise": f"a {word} film", "hypothesis": hypothesis, "label": agrees}
            else:
                words = [*person.split(), "saw", "it"]
                row = {"tokens": words, "ner_tags": ["B-PER", "I-PER", "O", "O"]}
            rows.append(row)
    return Dataset.from_list(rows)


def load_rows(folder, name, split, count):
    """`count` random rows of a data set; made-up ones, if there is no folder."""
    if folder is None:
        rows = made_up_rows(name)
    else:
        files = {split: f"{folder}/{name}/{split}.jsonl"}
        rows = load_dataset("json", data_files=files, split=split)
    return rows.shuffle(seed=0).select(range(min(count, len(rows))))


def save_tiny_model(folder):
    """A tiny random model for the quick mode of the tests."""
    texts = made_up_rows("sst2")["text"][:] + made_up_rows("nli")["premise"][:]
    tokenizer = minibert.train_tokenizer(texts, vocab_size=300, show_progress=False)
    config = minibert.MiniBertConfig.from_tokenizer(tokenizer, size="tiny", num_hidden_layers=3)
    minibert.MiniBertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def read_file(path):
    """The figures of a file, and its runs as a table; prints the day and the machine."""
    figures = json.loads(Path(path).read_text())
    print(figures["command"], "|", figures["date"], "|", figures["machine"]["device"])
    return figures, pd.DataFrame(figures["runs"])


def by_seed(runs, score):
    return runs.set_index("seed")[score].sort_index()


def make_grid(training_runs, pooling_runs, probes):
    """One grid of three scripts, of what was run with three seeds.

    Args:
        training_runs: those of benchmarks/fine_tuning.py, here script A.
        pooling_runs: those of benchmarks/pooling.py, here script B.
        probes: {(task, labels, script, what is read): scores by seed}.

    Returns:
        {(task, labels, script, what is read): {way: scores by seed}}
    """
    grid = {}
    few_labels = training_runs[training_runs["rows"] == FEW_LABELS]
    for (task, way), runs in few_labels.groupby(["task", "method"], sort=False):
        vector = "last state" if task == "entities" else "[CLS]"
        grid.setdefault((task, FEW_LABELS, "A", vector), {})[way] = by_seed(runs, "score")
    columns = ["data", "rows", "pooling", "trained"]
    for (data, rows, pooling, trained), runs in pooling_runs.groupby(columns, sort=False):
        group = (POOLING_TASKS[data], rows, "B", POOLING_VECTORS[pooling])
        grid.setdefault(group, {})[POOLING_WAYS[trained]] = by_seed(runs, "accuracy")
    for group, scores in probes.items():
        grid.setdefault(group, {})["probe"] = scores
    groups = sorted(grid, key=lambda group: (GRID_TASKS.index(group[0]), group[2], *group[1:]))
    return {group: grid[group] for group in groups}


def lead_of_mean(grid, way):
    """By seed, how far the mean is ahead of [CLS], on average over the groups that have both."""
    differences = []
    for (task, labels, script, vector), by_way in grid.items():
        on_cls = grid.get((task, labels, script, "[CLS]"))
        if vector == "mean" and on_cls is not None:
            differences.append(by_way[way] - on_cls[way])
    return sum(differences) / len(differences)


def describe(values):
    """A mean with its interval, of seeds."""
    mean, half = interval(values)
    return f"{mean:.3f} ± {half:.3f}"


def grid_table(grid, ways):
    """A row for each group of the grid, a column for each way: means with their intervals."""
    lines = {group: pd.Series(by_way).map(describe) for group, by_way in grid.items()}
    table = pd.DataFrame(lines).T.reindex(columns=ways).fillna("")
    table.index.names = ["task", "labels", "script", "reads"]
    return table


def summary_table(lines):
    """Questions with their answers: the mean difference, half of its 95 % interval alone and
    widened for all lines, and what the widened one says.

    Args:
        lines: {(question, what is compared): differences by seed}.
    """
    rows = []
    for (question, comparison), differences in lines.items():
        mean, alone = interval(differences)
        _, widened = interval(differences, len(lines))
        answer = verdict(mean, widened, above="yes", below="no")
        halves = [f"{alone:.3f}", f"{widened:.3f}"]
        rows.append([question, comparison, f"{mean:+.3f}", *halves, answer])
    columns = ["question", "compared", "difference", "± alone", f"± for {len(lines)}", "answer"]
    return pd.DataFrame(rows, columns=columns).set_index("question")


def resampled_difference(score, true, one, other, groups, draws=500):
    """The difference of the scores of two predictions on the same rows, and its standard error by
    the bootstrap: it draws groups of rows anew, the words of a sentence together.

    Args:
        score: a function of the true and the predicted labels.
        groups: the number of the sentence of each row.
    """
    members = [np.flatnonzero(groups == group) for group in np.unique(groups)]
    generator = np.random.default_rng(0)
    differences = []
    for _ in range(draws):
        drawn = generator.integers(len(members), size=len(members))
        rows = np.concatenate([members[group] for group in drawn])
        differences.append(score(true[rows], one[rows]) - score(true[rows], other[rows]))
    return score(true, one) - score(true, other), np.std(differences)


def print_differences(lines):
    """Print differences with their 95 % intervals, alone and widened for all (in brackets).

    Args:
        lines: {name: (difference, its standard error)}.
    """
    alone = NormalDist().inv_cdf(0.975)
    widened = NormalDist().inv_cdf(1 - 0.025 / len(lines))
    for name, (difference, error) in lines.items():
        figures = f"{difference:+.3f} ± {alone * error:.3f} (± {widened * error:.3f})"
        print(f"{name:45}{figures}  {verdict(difference, widened * error)}")


def grid_questions(grid):
    """The questions of section 4 with the differences that answer them.

    Returns:
        {(question, what is compared): differences by seed}
    """
    of_100 = [group for group in grid if group[1] == FEW_LABELS]
    sentiment = [group for group in grid if group[0] == "sentiment" and group[1] > FEW_LABELS]
    inference = [group for group in grid if group[0] == "inference" and group[1] > FEW_LABELS]
    on_cls = grid["sentiment", FEW_LABELS, "B", "[CLS]"]
    on_mean = grid["sentiment", FEW_LABELS, "B", "mean"]
    last = grid["entities", FEW_LABELS, "A", "last state"]
    chosen = grid["entities", FEW_LABELS, "A", "chosen state"]

    lines = {}
    question = "100 labels: do all layers beat the head alone?"
    lines[question, "all − head, 5 groups"] = lead(grid, "all", "head", of_100)
    question = "100 labels: do all layers beat the top 2 layers?"
    lines[question, "all − top 2 layers, 3 groups"] = lead(grid, "all", "top 2 layers", of_100)
    question = "100 labels: do all layers beat LoRA?"
    lines[question, "all − LoRA, 3 groups"] = lead(grid, "all", "LoRA", of_100)
    question = "Sentiment, 1,000 and 8,000 labels: do all layers beat the head alone?"
    lines[question, "all − head, 4 groups"] = lead(grid, "all", "head", sentiment)
    question = "Inference, 1,000 and 8,000 labels: do all layers beat the head alone?"
    lines[question, "all − head, 4 groups"] = lead(grid, "all", "head", inference)
    question = "Head alone: is the mean better than [CLS]?"
    lines[question, "mean − [CLS], 5 groups"] = lead_of_mean(grid, "head")
    question = "All layers: is the mean better than [CLS]?"
    lines[question, "mean − [CLS], 5 groups"] = lead_of_mean(grid, "all")
    question = "Sentiment, 100 labels: do all layers on [CLS] beat the head alone on the mean?"
    lines[question, "all − head"] = on_cls["all"] - on_mean["head"]
    question = "Entities, last state: does a probe beat the head alone?"
    lines[question, "probe − head"] = last["probe"] - last["head"]
    question = "Entities, probe: is the chosen state better than the last?"
    lines[question, "chosen − last"] = chosen["probe"] - last["probe"]
    question = "Entities: do all layers on the last state beat a probe of the chosen state?"
    lines[question, "all − probe"] = last["all"] - chosen["probe"]
    return lines


def draw_answers(axes, lines):
    """A row for each question: the differences by seed with the 95 % interval of their mean, and
    behind it the longer one that is widened for all lines. Red: the longer one excludes 0.

    Args:
        lines: {(question, what is compared): differences by seed}.
    """
    for row, differences in enumerate(lines.values()):
        mean, widened = interval(differences, len(lines))
        color = "0.5"
        if abs(mean) > widened:
            color = "C3"
        axes.errorbar(mean, row, xerr=widened, color=color, linewidth=0.7)
        draw_seeds(axes, row, differences, color, horizontal=True)
    axes.axvline(0, color="0.3", linewidth=0.8)
    axes.set_yticks(range(len(lines)), [question for question, _ in lines])
    axes.invert_yaxis()
    axes.grid(alpha=0.3, axis="x")
