"""The checks of the exercises of notebooks 4 and 6 take right answers and refuse wrong ones."""

import copy
import importlib
import itertools
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import binomtest, rankdata
from scipy.stats import t as student
from torch import nn
from transformers import get_constant_schedule, get_linear_schedule_with_warmup

ROOT = Path(__file__).parents[2]


@pytest.fixture
def module(monkeypatch):
    """A function that imports a module beside the notebooks, or of the benchmarks."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "notebooks"))
    return importlib.import_module


def answers_of(check, answers, capsys):
    """What a check prints of each answer."""
    lines = []
    for answer in answers:
        check(answer)
        lines.append(capsys.readouterr().out.strip())
    return lines


def assert_checked(check, right, wrong, capsys):
    """The right answers are right, the wrong ones are refused, and none of them by an exception."""
    assert answers_of(check, right, capsys) == ["right"] * len(right)
    for line in answers_of(check, wrong, capsys):
        assert line not in ("right", "not yet", "") and "cannot be checked" not in line


def test_interval(module, capsys):
    def half(x, quantile=0.975, freedom=1, ddof=1):
        return student.ppf(quantile, len(x) - freedom) * x.std(ddof=ddof) / len(x) ** 0.5

    wrong = [
        lambda x: (x.mean(), 1.96 * x.std(ddof=1) / len(x) ** 0.5),
        lambda x: (x.mean(), half(x, ddof=0)),
        lambda x: (x.mean(), half(x, quantile=0.95)),
        lambda x: (x.mean(), half(x, freedom=0)),
        lambda x: (x.mean(), half(x) * len(x) ** 0.5),
        lambda x: (x.mean(), 2 * half(x)),
        lambda x: (np.median(x), half(x)),
        lambda x: (x.mean(), student.ppf(0.975, 3) * x.std(ddof=1) / len(x) ** 0.5),
    ]
    right = [lambda x: (x.mean(), half(x))]
    check = module("notebook_04").check_interval
    assert_checked(check, right, wrong, capsys)
    (line,) = answers_of(check, [lambda x: (x.mean() - half(x), x.mean() + half(x))], capsys)
    assert "two ends" in line


def test_first_below(module):
    """The tokens at which a loss is reached lie between the measurements around it."""
    curve = np.array([[1, 1000, 0.1, 5.0], [2, 2000, 0.2, 4.0], [3, 4000, 0.3, 3.0]])
    first_below = module("notebook_04").first_below
    assert first_below(curve, 3.5) == "3"
    assert first_below(curve, 5.5) == "before 1"
    assert first_below(curve, 3.0) == first_below(curve, 2.0) == "never"


def all_means(x):
    signs = np.array(list(itertools.product((-1, 1), repeat=len(x))))
    return (signs * x).mean(axis=1)


def sign_test(x):
    """Counts signs, and ignores how large the differences are."""
    return binomtest(int((x > 0).sum()), len(x)).pvalue


def rank_test(x):
    """All signs of the ranks, and not of the differences."""
    ranks = rankdata(abs(x))
    measured = abs((np.sign(x) * ranks).mean())
    return np.mean(abs(all_means(ranks)) >= measured - 1e-12)


def test_signs(module, capsys):
    right = [lambda x: np.mean(abs(all_means(x)) >= abs(x.mean()) - 1e-12)]
    wrong = [
        lambda x: np.mean(abs(all_means(x)) >= x.mean() - 1e-12),
        lambda x: np.mean(all_means(x) >= abs(x.mean()) - 1e-12),
        lambda x: np.mean(abs(all_means(x)) > abs(x.mean()) + 1e-12),
        lambda x: 2 / 2 ** len(x),
        lambda x: 10 / 16,
        sign_test,
        rank_test,
    ]
    check = module("notebook_04").check_signs
    assert_checked(check, right, wrong, capsys)
    (line,) = answers_of(check, [lambda x: np.sum(abs(all_means(x)) >= abs(x.mean()))], capsys)
    assert "number of combinations" in line


def test_chance(module, capsys):
    right = [lambda n: 1 - 0.95**n]
    wrong = [
        lambda n: 0.05 * n,
        lambda n: 0.95**n,
        lambda n: 100 * (1 - 0.95**n),
        lambda n: 1 - 0.95**18,
        lambda n: 1 - 0.05**n,
    ]
    assert_checked(module("notebook_04").check_chance, right, wrong, capsys)


class Shared(nn.Module):
    def __init__(self, layer, times):
        super().__init__()
        self.layer = layer
        self.times = times

    def forward(self, x):
        for _ in range(self.times):
            x = self.layer(x)
        return x


class SharedThreeTimes(Shared):
    def forward(self, x):
        return self.layer(self.layer(self.layer(x)))


class SharedCopies(Shared):
    def __init__(self, layer, times):
        super().__init__(layer, times)
        self.layers = nn.ModuleList(copy.deepcopy(layer) for _ in range(times - 1))


class SharedHidden(nn.Module):
    def __init__(self, layer, times):
        super().__init__()
        self.layers = [layer] * times  # a list: the module does not find its parameters

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class SharedCopy(Shared):
    def __init__(self, layer, times):
        super().__init__(copy.deepcopy(layer), times)


class SharedLastPassLearns(Shared):
    def forward(self, x):
        with torch.no_grad():
            for _ in range(self.times - 1):
                x = self.layer(x)
        return self.layer(x)


def test_shared(module, capsys):
    wrong = [SharedThreeTimes, SharedCopies, SharedHidden, SharedCopy, SharedLastPassLearns]
    assert_checked(module("notebook_04").check_shared, [Shared], wrong, capsys)


def loss_of(seed, effect=0.0, noise=0.1):
    """Stands for a training: chance by the seed, and a change whose effect is not the same at each seed."""
    if effect == 0:
        return np.sin(seed)
    return np.sin(seed) + effect + noise * np.cos(seed)


def planned(seeds, verdict, seeds_without=None, sign=1, **change):
    """An answer to exercise 4. `seeds_without` are those of the models without the change."""
    change = change or {"effect": 2.0}
    differences = []
    for seed, seed_without in zip(seeds, seeds_without or seeds, strict=True):
        differences.append(sign * (loss_of(seed, **change) - loss_of(seed_without)))
    return change, seeds, np.array(differences), verdict


def test_planned(module, capsys):
    check = module("notebook_04").planned_check(loss_of, seeds_seen={0, 1, 2})
    seeds = [3, 4, 5, 6, 7]
    right = [
        planned(seeds, "higher"),
        planned(range(10, 16), "lower", effect=-2.0),
        planned(seeds, "not told apart", effect=0.1, noise=3.0),
    ]
    change, _, differences, _ = planned(seeds, "higher")
    wrong = [
        planned(seeds, "lower"),
        planned(seeds, "not told apart"),
        planned([0, 1, 2, 3, 4], "higher"),
        planned([3, 4, 5], "higher"),
        planned([3, 3, 3, 3, 3], "higher"),
        planned(seeds, "higher", seeds_without=[8, 9, 10, 11, 12]),
        planned(seeds, "lower", sign=-1),
        (change, seeds, differences[:4], "higher"),
        ({}, seeds, np.zeros(5), "not told apart"),
        planned(seeds, "not told apart", effect=0.0),
    ]
    assert_checked(check, right, wrong, capsys)


def make_pairs(texts, draw):
    pairs = []
    for text in texts:
        first, second = cut(text, draw)
        is_next = draw.random() < 0.5
        if not is_next:
            second = draw.choice(cut(draw.choice(texts), draw))
        pairs.append((first, second, is_next))
    return pairs


def cut(text, draw):
    sentences = re.split(r"(?<=\.) ", text)
    end = draw.randint(1, len(sentences) - 1)
    return " ".join(sentences[:end]), " ".join(sentences[end:])


@pytest.fixture
def rules(module):
    """Rules that tell next from random, by name."""
    toy_world = module("toy_world")
    facts_by_type = list(zip(*toy_world.FACTS.values(), strict=True))

    def kinds(part):
        return {i for i, facts in enumerate(facts_by_type) if any(fact in part for fact in facts)}

    def verbs(part):
        return set(re.findall(r"(?:It|The \w+ \w+) (\w+)", part))

    def knows_facts(first, second):
        sentences = re.split(r"(?<=\.) ", f"{first} {second}")
        animals = toy_world.FACTS.values()
        return any(all(any(fact in s for fact in facts) for s in sentences) for facts in animals)

    return {
        "no name": lambda first, second: "The" not in second,
        "no kind twice": lambda first, second: kinds(first).isdisjoint(kinds(second)),
        "no verb twice": lambda first, second: verbs(first).isdisjoint(verbs(second)),
        "knows facts": knows_facts,
        "always": lambda first, second: True,
        "a name": lambda first, second: "The" in second,
        "a kind twice": lambda first, second: not kinds(first).isdisjoint(kinds(second)),
        "length": lambda first, second: len(first) > len(second),
    }


@pytest.mark.parametrize(
    ("check_name", "right_name"),
    [("rule_check", "no name"), ("kind_check", "no kind twice")],
)
def test_rule(module, rules, capsys, check_name, right_name):
    make_check = getattr(module("notebook_04"), check_name)
    check = make_check(module("toy_world"), make_pairs)
    right = [rules.pop(right_name)]
    assert_checked(check, right, list(rules.values()), capsys)


def test_facts_are_struck(module):
    toy_world = module("toy_world")
    struck = module("notebook_04").strike_facts(
        toy_world, ["The old cat drinks milk now. It lives in the house often."]
    )
    assert struck == ["The old cat does this now. It does this often."]


def test_worlds_are_exchanged(module):
    """A text of the other world has the same length, and facts of several animals."""
    toy_world = module("toy_world")
    texts = toy_world.texts(50, seed=0, named="first")
    exchanged = module("notebook_04").exchange_animals(toy_world, texts)
    facts = {fact: animal for animal, facts in toy_world.FACTS.items() for fact in facts}
    for text, other in zip(texts, exchanged, strict=True):
        animals = [animal for fact, animal in facts.items() if fact in other]
        assert len(animals) == len(set(animals)) == text.count(".") == other.count(".")


def test_rows(module, capsys):
    right = [lambda p, half: p * (1 - p) * (1.96 / half) ** 2]
    wrong = [
        lambda p, half: 0.25 * (1.96 / half) ** 2,
        lambda p, half: p * (1 - p) / half**2,
        lambda p, half: p * (1 - p) * 1.96 / half**2,
        lambda p, half: 1537,
    ]
    assert_checked(module("notebook_06").check_rows, right, wrong, capsys)


def test_labels(module, capsys):
    def first(word_ids, labels):
        result = []
        previous = None
        for word in word_ids:
            result.append(-100 if word in (None, previous) else labels[word])
            previous = word
        return result

    def by_set(word_ids, labels):
        """Wrong in a pair of texts."""
        result = []
        for position, word in enumerate(word_ids):
            is_new = word is not None and word not in word_ids[:position]
            result.append(labels[word] if is_new else -100)
        return result

    def all_subwords(word_ids, labels):
        return [-100 if word is None else labels[word] for word in word_ids]

    def by_label(word_ids, labels):
        """Wrong where two words have the same label."""
        result = all_subwords(word_ids, labels)
        pairs = zip(result, [None, *result], strict=False)
        return [label if label != before else -100 for label, before in pairs]

    def without_special(word_ids, labels):
        return [label for label in first(word_ids, labels) if label != -100]

    wrong = [by_set, all_subwords, by_label, without_special]
    assert_checked(module("notebook_06").check_labels, [first], wrong, capsys)


def entities_of(tags):
    from seqeval.metrics.sequence_labeling import get_entities

    return set(get_entities(tags))


def three_scores(right, num_true, num_predicted):
    precision = right / max(num_predicted, 1)
    recall = right / max(num_true, 1)
    return precision, recall, 2 * precision * recall / max(precision + recall, 1e-9)


def test_scores(module, capsys):
    def scores(true, predicted):
        right = sum(
            len(entities_of(a) & entities_of(b)) for a, b in zip(true, predicted, strict=True)
        )
        counts = [sum(len(entities_of(tags)) for tags in rows) for rows in (true, predicted)]
        return three_scores(right, *counts)

    def swapped(true, predicted):
        return scores(predicted, true)

    def arithmetic(true, predicted):
        precision, recall, _ = scores(true, predicted)
        return precision, recall, (precision + recall) / 2

    def one_set(true, predicted):
        """Entities of all sentences in one set: a hit in another sentence counts."""
        a = set().union(*(entities_of(tags) for tags in true))
        b = set().union(*(entities_of(tags) for tags in predicted))
        return three_scores(len(a & b), len(a), len(b))

    def words(true, predicted):
        a = [tag for tags in true for tag in tags]
        b = [tag for tags in predicted for tag in tags]
        right = sum(x == y != "O" for x, y in zip(a, b, strict=True))
        return three_scores(right, sum(x != "O" for x in a), sum(y != "O" for y in b))

    def divides(true, predicted):
        right = sum(
            len(entities_of(a) & entities_of(b)) for a, b in zip(true, predicted, strict=True)
        )
        precision = right / sum(len(entities_of(tags)) for tags in predicted)
        recall = right / sum(len(entities_of(tags)) for tags in true)
        return precision, recall, 2 * precision * recall / (precision + recall)

    wrong = [swapped, arithmetic, one_set, words, divides]
    assert_checked(module("notebook_06").check_scores, [scores], wrong, capsys)


class Lora(nn.Module):
    def __init__(self, linear, r, alpha):
        super().__init__()
        self.linear = linear.requires_grad_(False)
        self.A = nn.Parameter(torch.randn(r, linear.in_features))
        self.B = nn.Parameter(torch.zeros(linear.out_features, r))
        self.scale = alpha / r

    def forward(self, x):
        return self.linear(x) + self.scale * x @ self.A.T @ self.B.T

    @torch.no_grad()
    def merge(self):
        merged = copy.deepcopy(self.linear)
        merged.weight += self.scale * self.B @ self.A
        return merged


class LoraTransposed(Lora):
    """Right, too: both factors the other way round."""

    def __init__(self, linear, r, alpha):
        super().__init__(linear, r, alpha)
        self.A = nn.Parameter(self.A.detach().T)
        self.B = nn.Parameter(self.B.detach().T)

    def forward(self, x):
        return self.linear(x) + self.scale * x @ self.A @ self.B

    @torch.no_grad()
    def merge(self):
        merged = copy.deepcopy(self.linear)
        merged.weight += self.scale * (self.A @ self.B).T
        return merged


class LoraRandomB(Lora):
    def __init__(self, linear, r, alpha):
        super().__init__(linear, r, alpha)
        nn.init.normal_(self.B)


class LoraZeroA(Lora):
    def __init__(self, linear, r, alpha):
        super().__init__(linear, r, alpha)
        nn.init.zeros_(self.A)


class LoraNotFrozen(Lora):
    def __init__(self, linear, r, alpha):
        super().__init__(linear, r, alpha)
        self.linear.requires_grad_(True)


class LoraWithoutScale(Lora):
    def __init__(self, linear, r, alpha):
        super().__init__(linear, r, alpha)
        self.scale = 1


class LoraMergesItself(Lora):
    @torch.no_grad()
    def merge(self):
        self.linear.weight += self.scale * self.B @ self.A
        return self.linear


class LoraMergesNothing(Lora):
    def merge(self):
        return copy.deepcopy(self.linear)


class LoraMergesWithoutBias(Lora):
    @torch.no_grad()
    def merge(self):
        merged = nn.Linear(self.linear.in_features, self.linear.out_features, bias=False)
        merged.weight.copy_(self.linear.weight + self.scale * self.B @ self.A)
        return merged


class LoraEqualRows(Lora):
    def __init__(self, linear, r, alpha):
        super().__init__(linear, r, alpha)
        nn.init.ones_(self.A)


class LoraNeedsBias(Lora):
    def forward(self, x):
        product = x @ self.linear.weight.T + self.scale * x @ self.A.T @ self.B.T
        return product + self.linear.bias


def test_lora(module, capsys):
    wrong = [
        LoraRandomB,
        LoraZeroA,
        LoraEqualRows,
        LoraNeedsBias,
        LoraNotFrozen,
        LoraWithoutScale,
        LoraMergesItself,
        LoraMergesNothing,
        LoraMergesWithoutBias,
    ]
    assert_checked(module("notebook_06").check_lora, [Lora, LoraTransposed], wrong, capsys)


def loop_with(fault):
    """The loop of notebook 6 without one of its parts; None: with all."""

    def fine_tune(model, batches, learning_rate):
        if fault == "thaws":
            model.requires_grad_(True)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=learning_rate)
        if fault == "SGD":
            optimizer = torch.optim.SGD(trained, lr=learning_rate)
        warmup_steps = 0 if fault == "warm-up" else 3
        schedule = get_linear_schedule_with_warmup(optimizer, warmup_steps, len(batches))
        if fault == "schedule":
            schedule = get_constant_schedule(optimizer)
        if fault != "train mode in each step":
            model.train()
        for inputs, labels in batches:
            if fault not in ("train mode", "train mode in each step"):
                model.train()
            logits = model(**inputs)
            loss = nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())
            loss.backward()
            if fault != "cut":
                nn.utils.clip_grad_norm_(trained, 1.0)
            if fault == "yield before the step":
                yield loss.item()
            optimizer.step()
            if fault != "step of the schedule":
                schedule.step()
            if fault != "zeros":
                optimizer.zero_grad()
            if fault == "graph":
                yield loss
            elif fault != "yield before the step":
                yield 0.5 if fault == "loss" else loss.item()

    return fine_tune


def zeros_first(model, batches, learning_rate):
    """Right, too: other orders of the lines, and the loss as a tensor."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=learning_rate)
    schedule = get_linear_schedule_with_warmup(optimizer, 3, len(batches))
    for inputs, labels in batches:
        optimizer.zero_grad()
        model.train()
        logits = model(**inputs)
        loss = nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        schedule.step()
        yield loss.detach()


def test_loop(module, capsys):
    faults = (
        "thaws",
        "SGD",
        "warm-up",
        "schedule",
        "step of the schedule",
        "train mode",
        "train mode in each step",
        "cut",
        "zeros",
        "loss",
        "graph",
        "yield before the step",
    )
    wrong = [loop_with(fault) for fault in faults]
    wrong.append(lambda *arguments: list(loop_with(None)(*arguments)))
    wrong.append(lambda model, batches, rate: loop_with(None)(model, batches[:-1], rate))
    right = [loop_with(None), zeros_first]
    assert_checked(module("notebook_06").check_loop, right, wrong, capsys)


def test_mistakes(module, capsys):
    def rates(has_word, is_wrong):
        has_word = np.array(has_word)
        return is_wrong[has_word].mean(), is_wrong[~has_word].mean()

    def right(texts, is_wrong, words):
        return rates([bool(words & set(text.split())) for text in texts], is_wrong)

    def letters(texts, is_wrong, words):
        return rates([any(word in text for word in words) for text in texts], is_wrong)

    def words_of_mistakes(texts, is_wrong, words):
        has_word = np.array([bool(words & set(text.split())) for text in texts])
        return has_word[is_wrong].mean(), has_word[~is_wrong].mean()

    def exchanged(texts, is_wrong, words):
        return right(texts, is_wrong, words)[::-1]

    def without_words(texts, is_wrong, words):
        return is_wrong.mean(), is_wrong.mean()

    wrong = [letters, words_of_mistakes, exchanged, without_words]
    assert_checked(module("notebook_06").check_mistakes, [right], wrong, capsys)


def test_lead(module, capsys):
    notebook_06 = module("notebook_06")
    interval = module("course").interval

    def both_ways(grid, way, other, groups):
        both = [group for group in groups if {way, other} <= set(grid[group])]
        return np.array([[grid[group][name] for group in both] for name in (way, other)])

    def right(grid, way, other, groups, comparisons):
        scores = both_ways(grid, way, other, groups)  # [2, groups, seeds]
        return interval((scores[0] - scores[1]).mean(0), comparisons)

    def alone(grid, way, other, groups, comparisons):
        return right(grid, way, other, groups, 1)

    def unpaired(grid, way, other, groups, comparisons):
        ways = both_ways(grid, way, other, groups).mean(1)
        halves = [interval(by_seed, comparisons)[1] for by_seed in ways]
        return ways[0].mean() - ways[1].mean(), np.hypot(*halves)

    def welch(grid, way, other, groups, comparisons):
        ways = both_ways(grid, way, other, groups).mean(1)
        error = np.sqrt(ways.var(axis=1, ddof=1).sum() / 3)
        return ways[0].mean() - ways[1].mean(), student.ppf(1 - 0.025 / comparisons, 4) * error

    def of_groups(grid, way, other, groups, comparisons):
        scores = both_ways(grid, way, other, groups)
        return interval((scores[0] - scores[1]).mean(1), comparisons)

    def more_seeds(grid, way, other, groups, comparisons):
        scores = both_ways(grid, way, other, groups)
        return interval((scores[0] - scores[1]).ravel(), comparisons)

    def mixed(grid, way, other, groups, comparisons):
        ways = []
        for name in (way, other):
            scores = [grid[group][name] for group in groups if name in grid[group]]
            ways.append(np.mean(scores, axis=0))
        return interval(ways[0] - ways[1], comparisons)

    def whole(grid, way, other, groups, comparisons):
        mean, half = right(grid, way, other, groups, comparisons)
        return mean, 2 * half

    def ends(grid, way, other, groups, comparisons):
        mean, half = right(grid, way, other, groups, comparisons)
        return mean - half, mean + half

    def exchanged(grid, way, other, groups, comparisons):
        return right(grid, other, way, groups, comparisons)

    def whole_grid(grid, way, other, groups, comparisons):
        return right(grid, way, other, list(grid), comparisons)

    def summed(grid, way, other, groups, comparisons):
        scores = both_ways(grid, way, other, groups)
        return interval((scores[0] - scores[1]).sum(0), comparisons)

    def by_seed(grid, way, other, groups, comparisons):
        scores = both_ways(grid, way, other, groups)
        return (scores[0] - scores[1]).mean(0)

    def without_leaving_out(grid, way, other, groups, comparisons):
        return interval(sum(grid[group][way] - grid[group][other] for group in groups), comparisons)

    hints = {
        without_leaving_out: "leave out",
        alone: "stands alone",
        unpaired: "before the seeds are paired",
        of_groups: "that of the groups",
        more_seeds: "as more seeds",
        mixed: "lacks one of the two ways",
        whole: "the whole interval",
        exchanged: "the sign",
        whole_grid: "only those in `groups` count",
        summed: "the sum over the groups",
        by_seed: "two numbers",
    }
    check = notebook_06.check_lead
    assert_checked(check, [right], [*hints, welch, ends], capsys)
    for hint, line in zip(hints.values(), answers_of(check, hints, capsys), strict=True):
        assert hint in line


def test_questions_of_the_grid(module):
    """Each line compares what reads the same, on average over the groups that its label counts."""
    notebook_06 = module("notebook_06")
    numbers = itertools.count()

    def scores(*ways):
        return {way: pd.Series([100.0 * next(numbers)] * 3) for way in ways}

    trained = ("head", "top 2 layers", "LoRA", "all")
    grid = {
        ("sentiment", 100, "A", "[CLS]"): scores(*trained),
        ("sentiment", 100, "B", "[CLS]"): scores("probe", "head", "all"),
        ("sentiment", 100, "B", "mean"): scores("probe", "head", "all"),
        ("sentiment", 1000, "B", "[CLS]"): scores("head", "all"),
        ("sentiment", 1000, "B", "mean"): scores("head", "all"),
        ("inference", 100, "A", "[CLS]"): scores(*trained),
        ("inference", 1000, "B", "[CLS]"): scores("head", "all"),
        ("inference", 1000, "B", "mean"): scores("head", "all"),
        ("entities", 100, "A", "chosen state"): scores("probe"),
        ("entities", 100, "A", "last state"): scores("probe", *trained),
    }
    lines = notebook_06.grid_questions(grid)
    means = [differences.mean() for differences in lines.values()]
    # hundreds; all − head with 100 labels: the mean of 3, 1, 1, 3, 3; mean − [CLS]: of 3, 2, 2
    expected = [220, 200, 100, 100, 100, 700 / 3, 700 / 3, -200, -100, -100, 500]
    assert np.allclose(means, expected)
    assert all(question.endswith("?") for question, _ in lines)


def test_resampled_difference(module):
    """Groups of one row each give the standard error of paired rows; larger groups a larger one."""
    notebook_06 = module("notebook_06")
    generator = np.random.default_rng(0)
    true = generator.integers(2, size=400)
    one = np.where(generator.random(400) < 0.8, true, 1 - true)
    other = np.where(generator.random(400) < 0.6, true, 1 - true)

    def accuracy(labels, predicted):
        return (labels == predicted).mean()

    paired = (one == true).astype(int) - (other == true)
    arguments = (accuracy, true, one, other)
    difference, error = notebook_06.resampled_difference(*arguments, np.arange(400))
    assert difference == pytest.approx(paired.mean())
    assert error == pytest.approx(paired.std() / 400**0.5, rel=0.15)
    halves = np.arange(400) % 2
    sums = [paired[halves == half].mean() for half in (0, 1)]
    _, by_halves = notebook_06.resampled_difference(*arguments, halves)
    assert by_halves == pytest.approx(abs(sums[0] - sums[1]) / 2 / 2**0.5, rel=0.15)


def test_grid(module):
    """A row of each file is found under its task, labels, script and vector."""
    notebook_06 = module("notebook_06")
    rows = [("entities", 100, "LoRA", 1, 0.2), ("entities", 100, "LoRA", 0, 0.1)]
    rows.append(("sentiment", 1000, "LoRA", 0, 0.3))  # one seed: left out
    training_runs = pd.DataFrame(rows, columns=["task", "rows", "method", "seed", "score"])
    rows = [("nli", 8000, "mean", "head only", seed, 0.5) for seed in (0, 1)]
    columns = ["data", "rows", "pooling", "trained", "seed", "accuracy"]
    pooling_runs = pd.DataFrame(rows, columns=columns)
    probes = {("entities", 100, "A", "last state"): pd.Series([0.3, 0.4])}
    grid = notebook_06.make_grid(training_runs, pooling_runs, probes)
    assert list(grid) == [("inference", 8000, "B", "mean"), ("entities", 100, "A", "last state")]
    assert grid["inference", 8000, "B", "mean"]["head"].tolist() == [0.5, 0.5]
    entities = grid["entities", 100, "A", "last state"]
    assert {way: scores.tolist() for way, scores in entities.items()} == {
        "LoRA": [0.1, 0.2],
        "probe": [0.3, 0.4],
    }
    table = notebook_06.grid_table(grid, ["probe", "head", "LoRA"])
    assert table["probe"].tolist()[0] == ""
    assert table["LoRA"].tolist()[1].startswith("0.150 ± ")


def test_summary(module):
    """The answer goes by the interval that is widened for all lines."""
    narrow = np.array([0.10, 0.11, 0.12])
    lines = {("better?", "a − b"): narrow}
    table = module("notebook_06").summary_table(lines)
    assert table["answer"].tolist() == ["yes"]
    for number in range(9):
        lines[f"question {number}", "b − a"] = -narrow
    table = module("notebook_06").summary_table(lines)
    assert table["± alone"].tolist() == ["0.025"] * 10
    assert table["± for 10"].tolist() == ["0.081"] * 10
    assert table["answer"].tolist() == ["yes", *["no"] * 9]
    lines["wide?", "c − d"] = np.array([0.05, 0.10, 0.15])
    table = module("notebook_06").summary_table(lines)
    assert table["answer"].tolist()[-1] == "not told apart"
    assert table["± alone"].tolist()[-1] == "0.124"
