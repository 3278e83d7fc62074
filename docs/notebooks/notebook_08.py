"""Notebook 8, all that is none of its ideas: the data, the checks of its exercises (which give the
answers away), its three seeds, the memory of a call, long printed lines, and its pictures.
"""

import ctypes
import json
import logging
import math
import os
import re
import shutil
import sys
import time
from pathlib import Path
from typing import NamedTuple

import datasets
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from course import exercise, interval
from datasets import Dataset, load_dataset
from scipy.stats import norm
from scipy.stats import t as student
from sklearn.feature_extraction.text import TfidfVectorizer
from torch.nn import functional as F
from transformers.utils import logging as transformers_logging

import minibert

STATUS = Path("/proc/self/status")  # of Linux
SAVED_RUNS = Path(__file__).with_name("08_search.json")  # by `benchmarks/search.py`
COMPARISONS = 18  # differences with an interval, in the whole notebook


class Collection(NamedTuple):
    """A search to measure, and pairs to train on."""

    train: Dataset  # the columns query and positive
    questions: list
    passages: list
    grades: list  # of each question, {number of a right passage: its grade}


def set_style():
    """Small pictures, and no bars and notes of libraries between the outputs."""
    plt.rcParams |= {"figure.dpi": 72, "figure.constrained_layout.use": True, "font.size": 9}
    datasets.disable_progress_bars()
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)


def load_collection(folder, num_questions, num_passages):
    """Some test questions, their right passages and other ones at random; all pairs to train on."""
    folder = Path(folder, "retrieval")

    def rows(name, file_format="json"):
        return load_dataset(file_format, data_files=str(folder / name), split="train")

    rng = np.random.default_rng(0)
    all_passages = {row["_id"]: row["text"] for row in rows("corpus.jsonl")}
    all_questions = {row["_id"]: row["text"] for row in rows("queries_test.jsonl")}
    chosen = rng.permutation(sorted(all_questions))[:num_questions]
    questions = {str(name): all_questions[name] for name in chosen}
    grades = {name: {} for name in questions}
    for row in rows("qrels_test.csv", "csv"):
        if row["query-id"] in questions:
            grades[row["query-id"]][row["corpus-id"]] = row["score"]
    right = {name for of_question in grades.values() for name in of_question}
    others = [name for name in rng.permutation(sorted(all_passages)) if name not in right]
    names = [*sorted(right), *others[: num_passages - len(right)]]
    numbers = {name: number for number, name in enumerate(names)}
    return Collection(
        rows("train.jsonl").shuffle(seed=0),
        list(questions.values()),
        [all_passages[name] for name in names],
        [{numbers[name]: grade for name, grade in row.items()} for row in grades.values()],
    )


def load_other_collection(folder):
    """What `benchmarks/search.py` searches: other questions, more passages, and the grades, in the
    form of `Collection`."""
    sys.path.append("../../benchmarks")
    from search import Arguments, draw_collection

    drawn = draw_collection(Arguments(data=f"{folder}/retrieval"))
    numbers = {name: number for number, name in enumerate(drawn.passages)}
    grades = []
    for of_question in drawn.judgements.values():
        grades.append({numbers[name]: grade for name, grade in of_question.items()})
    return list(drawn.questions.values()), list(drawn.passages.values()), grades


def made_up_collection():
    """For the quick mode of the tests."""
    things = ("river", "bridge", "tower", "engine", "garden", "school", "market", "island")
    rows = []
    for town in ("rome", "york", "bern", "oslo"):
        for thing in things:
            question = f"who built the {thing} of {town}"
            rows.append({"query": question, "positive": f"the {thing} of {town} was a king's"})
    train = Dataset.from_list(rows)
    passages = train["positive"][:]
    return Collection(train, train["query"][:8], passages, [{number: 1} for number in range(8)])


def make_start(folder, model, passages):
    """The model that the notebook starts from: MODEL converted, or a random one if that is None."""
    if model is None:
        tokenizer = minibert.train_tokenizer(passages, vocab_size=150, show_progress=False)
        config = minibert.MiniBertConfig.from_tokenizer(tokenizer, size="tiny")
        minibert.MiniBertModel(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    elif not os.path.exists(folder):
        minibert.convert(model, folder)
    return folder


def save_collection(folder, collection):
    """Write questions, passages and grades in BEIR's form, for `minibert.evaluate`."""
    shutil.rmtree(folder, ignore_errors=True)
    Path(folder).mkdir(parents=True)
    files = {"corpus": collection.passages, "queries_test": collection.questions}
    for name, texts in files.items():
        rows = [{"_id": f"{name[0]}{number}", "text": text} for number, text in enumerate(texts)]
        Dataset.from_list(rows).to_json(f"{folder}/{name}.jsonl")
    judgements = []
    for question, row in enumerate(collection.grades):
        for passage, grade in row.items():
            judgements.append((f"q{question}", f"c{passage}", grade))
    table = pd.DataFrame(judgements, columns=["query-id", "corpus-id", "score"])
    table.to_csv(f"{folder}/qrels_test.csv", index=False)


def print_shared_words(vectorizer, question, name, passage):
    """What the words that a question and a passage share add to their TF-IDF similarity: the three
    largest.

    Args:
        name: what the printed line calls the passage.
    """
    of_question, of_passage = vectorizer.transform([question, passage]).toarray()
    added = pd.Series(of_question * of_passage, vectorizer.get_feature_names_out())
    largest = added[added > 0].nlargest(3).round(3)
    print(f"   {name} passage, similarity {added.sum():.3f}: {largest.to_dict()}")


def print_marked(way, ranking, passages):
    """For how many questions a passage with a question mark comes first."""
    marked = [number for number, text in enumerate(passages) if "?" in text]
    first = np.isin(ranking[:, 0], marked).sum()
    print(
        f"{way}: one of the {len(marked)} passages with a question mark is first for {first} of"
        f" {len(ranking)} questions"
    )


def print_rarity(word, passages):
    """The logarithm by which BM25 counts a rare word more, and that of scikit-learn's TF-IDF."""
    pattern = r"\w+"
    vectorizer = TfidfVectorizer(token_pattern=pattern).fit(passages)
    by_tfidf = vectorizer.idf_[vectorizer.vocabulary_[word]]
    num_passages = len(passages)
    having = sum(word in re.findall(pattern, text.lower()) for text in passages)
    by_bm25 = math.log(1 + (num_passages - having + 0.5) / (having + 0.5))
    print(
        f"{word}: in {having} of {num_passages:,} passages, rarity {by_bm25:.2f} in BM25 and"
        f" {by_tfidf:.2f} in TF-IDF"
    )


def print_move(order_before, order_after, scores, grades, passages):
    """The first right passage of a question, and those that stood first, with their ranks.

    Args:
        order_before: numbers of the passages found, the best first.
        order_after: the same numbers as the reranker orders them.
        scores: those of the reranker, in the order of `order_before`.
    """
    order_before = list(order_before)
    order_after = list(order_after)
    right = next(number for number in order_after if number in grades)
    printed = []
    names = {"right": right, "first before": order_before[0], "first after": order_after[0]}
    for name, number in names.items():
        if number in printed:
            continue
        printed.append(number)
        rank_before = order_before.index(number) + 1
        rank_after = order_after.index(number) + 1
        score = scores[rank_before - 1]
        print(
            f"   {name}, from rank {rank_before} to {rank_after}, score {score:.2f}:"
            f" {passages[number]}"
        )


def compare_seeds(compared):
    """What the saved trainings with several seeds show.

    Args:
        compared: pairs of a way to search and the way that it is compared with.

    Returns a list with a row for each pair: (the mean difference of each training, half of the
    interval of questions, half of that of seeds or NaN), and the contents of the file. The
    intervals are widened for all comparisons of the notebook.
    """
    contents = json.loads(SAVED_RUNS.read_text())
    by_way = {}  # [trainings, questions]; what is not trained has one row
    for run in contents["runs"]:
        by_way.setdefault(run["search"], []).append(run["ndcg"])
    results = []
    for way, start in compared:
        differences = np.array(by_way[way]) - np.array(by_way[start])
        by_question = differences.mean(0)
        quantile = norm.ppf(1 - 0.025 / COMPARISONS)
        of_questions = quantile * by_question.std(ddof=1) / len(by_question) ** 0.5
        _, of_seeds = interval(differences.mean(1), COMPARISONS)
        results.append((differences.mean(1), of_questions, of_seeds))
    return results, contents


def join_saved(by_words, contents):
    """Scores of searches by words, with those of the vectors from the saved file.

    Args:
        by_words: the nDCG of every question, a column for each way to search.
        contents: of the file, as `compare_seeds` returns them.

    Returns None, and says so, if the questions are not those of the file.
    """
    untrained = [run for run in contents["runs"] if run["seed"] is None]
    saved = {run["search"]: np.array(run["ndcg"]) for run in untrained}
    for column, way in (("TF-IDF, signs", "TF-IDF"), ("BM25, signs", "BM25")):
        computed = by_words[column].to_numpy()
        is_same = len(computed) == len(saved[way]) and np.allclose(computed, saved[way], atol=1e-4)
        if not is_same:
            print("your data have other questions than the saved rows: they cannot be compared")
            return None
    return by_words.assign(embeddings=saved["embeddings"])


def draw_differences(results, title, xlabel):
    """Draw points with bars around their mean, a row for each way to search.

    Args:
        results: {name: (array of values, half of the interval of their mean)}.
    """
    _, axes = plt.subplots(figsize=(6.5, 0.8 + 0.5 * len(results)))
    for position, (values, half) in enumerate(results.values()):
        middle = np.mean(values)
        axes.errorbar(middle, position, xerr=half, capsize=3, color="C0", alpha=0.6)
        axes.plot(values, [position] * len(values), "o", color="C0", markersize=5)
    axes.axvline(0, color="0.5", linestyle=":")
    axes.set_yticks(range(len(results)), results)
    axes.set_ylim(len(results) - 0.5, -0.5)
    axes.set(xlabel=xlabel, ylabel="way to search", title=title)
    axes.grid(alpha=0.3, axis="x")
    plt.show()


def draw_hits(ranks, file_name):
    """Draw the share of questions with a right passage among the first k, for k up to 100.

    Args:
        ranks: {way to search: the rank of the first right passage of each question}.
    """
    figure, axes = plt.subplots(figsize=(6.5, 3.6))
    depths = np.arange(1, 101)
    for (way, ranks_of_way), style in zip(ranks.items(), ("-.", "--", "-", ":")):
        shares = [(ranks_of_way <= depth).mean() for depth in depths]
        axes.plot(depths, shares, style, label=way)
    axes.set(xscale="log", xlabel="k (logarithmic)", ylabel="share of the questions")
    axes.set(title=f"A right passage among the first k: {len(ranks_of_way)} questions")
    axes.set_xticks([1, 2, 5, 10, 20, 50, 100], [1, 2, 5, 10, 20, 50, 100])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(file_name)
    plt.show()


def megabytes(name):
    """A line of STATUS."""
    lines = STATUS.read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def measure(function, repeats):
    """Medians of several calls: seconds of computing, and the most memory that a call takes, in
    megabytes (NaN if this is not Linux)."""
    calls = [measure_once(function) for _ in range(repeats)]
    return np.median(calls, axis=0)


def measure_once(function):
    resting = float("nan")
    if STATUS.exists():
        ctypes.CDLL(None).malloc_trim(0)  # give back what is free: else it is used again unseen
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak of memory
        resting = megabytes("VmRSS")
    started = time.process_time()
    function()
    seconds = time.process_time() - started
    if not STATUS.exists():
        return seconds, resting
    return seconds, megabytes("VmHWM") - resting


def draw_costs(costs, tokens):
    """Draw seconds and memory by the length of the texts.

    Args:
        costs: a table with the columns attention, tokens, seconds and MB.
        tokens: how many each measurement reads.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4))
    for (name, rows), marker in zip(costs.groupby("attention", sort=False), "os^"):
        left.plot(rows["tokens"], rows["seconds"], marker=marker, label=name)
        right.plot(rows["tokens"], rows["MB"], marker=marker, label=name)
    lengths = sorted(set(costs["tokens"]))
    first = costs.iloc[0]
    by_pairs = [first["seconds"] * length / first["tokens"] for length in lengths]
    left.plot(
        lengths, by_pairs, ":", color="0.5", label="as the pairs grow, if all layers are global"
    )
    for panel, unit in ((left, "seconds"), (right, "megabytes")):
        panel.set(xscale="log", xlabel="tokens of a text", ylabel=f"{unit} for {tokens:,} tokens")
        panel.set_xticks(lengths, [f"{length:,}" for length in lengths])
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    left.set_yscale("log", base=2)
    left.yaxis.set_major_formatter("{x:g}")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    plt.show()


def is_near(value, expected, tolerance=1e-3):
    return abs(value - expected) < tolerance


@exercise
def check_ndcg(value):
    """nDCG@10 with right passages in the places 1 and 3."""
    gain = 1 + 1 / 2
    best = 1 + 1 / np.log2(3)
    if is_near(value, gain):
        return "this is the sum of the ranking: divide it by that of the best possible order"
    if is_near(value, gain / 2):
        return "in the best possible order, the places 1 and 2 are right: what is its sum?"
    if is_near(value, (1 + 1 / 3) / (1 + 1 / 2)) or is_near(value, (1 + 1 / 3) / 2):
        return "you divide by the rank: nDCG divides by the logarithm of 1 + rank"
    if is_near(value, best):
        return "this is the sum of the best possible order: what is that of the ranking?"
    if not is_near(value, gain / best):
        return (
            "no: the ranking has 1/log₂(2) + 1/log₂(4), and the best possible order has"
            " 1/log₂(2) + 1/log₂(3)"
        )


@exercise
def check_reciprocal_rank(reciprocal_rank):
    """The reciprocal rank of the first right passage among ten."""
    ranking = list(range(100, 120))
    if reciprocal_rank(ranking, {103: 1, 101: 1}) == 0.25:
        return "103 and 101 are right, and 101 comes first: its rank counts"
    if reciprocal_rank(ranking, {100: 1}) != 1:
        return "100 is right and stands in the first place: the reciprocal rank is 1"
    if reciprocal_rank(ranking, {103: 1, 101: 1}) != 0.5:
        return (
            "103 and 101 are right, and 101 stands in the second place: the reciprocal rank is 1/2"
        )
    if reciprocal_rank(ranking, {109: 1}) != 0.1:
        return "109 is the last of the first ten: the reciprocal rank is 1/10"
    if reciprocal_rank(ranking, {110: 1}) != 0:
        return "110 is not among the first ten: return 0"
    if reciprocal_rank(ranking, {100: 0, 104: 2}) != 0.2:
        return "100 has the grade 0, so it is not right; 104 is: the reciprocal rank is 1/5"
    if reciprocal_rank(ranking, {101: 0.5}) != 0.5:
        return "101 has the grade 0.5, and a passage is right if its grade is above 0"


def bm25_by_loops(counts, k, b, **changes):
    """BM25 without a library: a list of values for each passage.

    Args:
        changes: True for what is done wrong, one of `WRONG_BM25`.
    """
    lengths = [sum(row) for row in counts]
    if changes.get("different_words"):
        lengths = [sum(count > 0 for count in row) for row in counts]
    mean_length = sum(lengths) / len(lengths)
    weights = []
    for row, length in zip(counts, lengths):
        if changes.get("no_length"):
            length = mean_length
        of_passage = []
        for word, count in enumerate(row):
            having = sum(other[word] > 0 for other in counts)
            if changes.get("all_counts"):
                having = sum(other[word] for other in counts)
            rarity = math.log(1 + (len(counts) - having + 0.5) / (having + 0.5))
            saturated = count * (k + 1) / (count + k * (1 - b + b * length / mean_length))
            if changes.get("no_saturation"):
                saturated = count
            if changes.get("no_rarity"):
                rarity = 1
            if changes.get("no_numerator"):
                saturated /= k + 1
            of_passage.append(rarity * saturated)
        weights.append(of_passage)
    return weights


WRONG_BM25 = {
    "no_length": "the length of a passage does not count: is it in the denominator, with b?",
    "different_words": "the length of a passage is the sum of its counts, with all repetitions",
    "all_counts": "n is the number of passages that have the word, however often they have it",
    "no_saturation": "the counts do not saturate: what is the second factor?",
    "no_rarity": "the logarithm is missing: rare words must count more",
    "no_numerator": "the factor (k + 1) is missing",
}


@exercise
def check_bm25(weigh):
    """The values that BM25 gives the words of passages."""
    counts = [[3, 0, 1, 1], [1, 1, 0, 0], [0, 2, 4, 0], [1, 0, 2, 0], [1, 0, 0, 0]]
    argument = np.array(counts)
    for k, b in ((1.2, 0.75), (2.0, 0.3)):
        weights = np.asarray(weigh(argument, k, b))
        if argument.tolist() != counts:
            return "your function changes the counts that it is given: work on a copy"
        if weights.shape != argument.shape:
            return f"counts of the shape {argument.shape} became values of {weights.shape}"
        for change, hint in WRONG_BM25.items():
            if np.allclose(weights, bm25_by_loops(counts, k, b, **{change: True})):
                return hint
        expected = bm25_by_loops(counts, k, b)
        if not np.allclose(weights, expected):
            return (
                f"with k = {k} and b = {b}, the counts {counts} became"
                f" {weights.round(3).tolist()}; they should be {np.round(expected, 3).tolist()}"
            )


def judge_loss(loss_of, num_parts, problem_of):
    """A hint, or None if a function computes a loss from NUM_PARTS tensors `[n, width]`.

    Args:
        problem_of: takes the loss and the tensors, and returns a hint or None.
    """
    for count in (4, 3):
        generator = torch.Generator().manual_seed(0)
        # all near one direction: with cosines far apart, a few scores would be the whole loss
        vectors = torch.randn(num_parts, count, 8, generator=generator) * 3 + 3
        vectors.requires_grad_()
        loss = loss_of(*(part.clone() for part in vectors))
        if not torch.is_tensor(loss):
            return f"your function returns {loss!r}: a model can only learn from a tensor"
        if loss.dim() > 0:
            return f"the loss has the shape {tuple(loss.shape)}: take the mean over the questions"
        if not loss.requires_grad:
            return "`loss.backward()` finds no gradient: compute with the tensors themselves"
        loss.backward()
        problem = problem_of(loss.item(), *vectors.detach())
        if problem:
            return problem


@exercise
def check_contrastive_loss(loss_of):
    """The contrastive loss over n questions and their passages."""
    return judge_loss(loss_of, 2, problem_of_contrastive_loss)


def problem_of_contrastive_loss(loss, questions, passages):
    """A hint, or None if the loss is right."""
    count = len(questions)
    labels = torch.arange(count)
    cosines = F.normalize(questions) @ F.normalize(passages).T
    shares = (20 * cosines).softmax(dim=1).diagonal()
    wrong_passages = (20 * cosines).masked_fill(torch.eye(count, dtype=torch.bool), -torch.inf)
    without_right = wrong_passages.logsumexp(dim=1) - 20 * cosines.diagonal()
    expected = F.cross_entropy(20 * cosines, labels)
    hints = {
        "the cosines are multiplied by 20": F.cross_entropy(cosines, labels),
        "these are products of vectors that are not normalized: a cosine is that of vectors of"
        " length 1": F.cross_entropy(20 * questions @ passages.T, labels),
        "the sum in the denominator goes over the passages j of one question i; yours goes over"
        " the questions of one passage": F.cross_entropy(20 * cosines.T, labels),
        "this is the sum of the losses: take the mean over the questions": expected * count,
        "the minus is missing": -expected,
        "these are the shares: the loss is minus the logarithm of each": shares.mean(),
        "take the logarithm of each share first, and then the mean": -shares.mean().log(),
        "the sum in the denominator has the right passage, too": without_right.mean(),
    }
    for hint, value in hints.items():
        if is_near(loss, value):
            return hint
    if not math.isfinite(loss):
        return f"the loss is {loss}: normalize the vectors first, for e¹⁰⁰ is too large a number"
    if not is_near(loss, expected):
        return (
            f"the loss of {count} random questions became {loss:.3f}; it should be"
            f" {expected:.3f}. Does the function work for any n?"
        )


@exercise
def check_loss_with_negatives(loss_of):
    """The contrastive loss over n passages and n hard negatives."""
    return judge_loss(loss_of, 3, problem_of_loss_with_negatives)


def problem_of_loss_with_negatives(loss, questions, passages, negatives):
    """A hint, or None if the loss is right."""
    count = len(questions)
    questions = F.normalize(questions)
    to_passages = questions @ F.normalize(passages).T
    to_negatives = questions @ F.normalize(negatives).T
    both = torch.cat([to_passages, to_negatives], dim=1)
    to_own_negative = torch.cat([to_passages, to_negatives.diagonal()[:, None]], dim=1)
    labels = torch.arange(count)
    hints = {
        "this is the loss without the hard negatives": 20 * to_passages,
        "this is the loss of the hard negatives: their column is not the right one": 20
        * to_negatives,
        "this has only a question's own hard negative: those of the other questions are wrong"
        " passages, too": 20 * to_own_negative,
        "the cosines are multiplied by 20": both,
    }
    for hint, scores in hints.items():
        if is_near(loss, F.cross_entropy(scores, labels)):
            return hint
    expected = F.cross_entropy(20 * both, labels)
    if is_near(loss, expected * count):
        return "this is the sum of the losses: take the mean over the questions"
    negatives_first = torch.cat([to_negatives, to_passages], dim=1)
    if is_near(loss, F.cross_entropy(20 * negatives_first, labels)):
        return "the right passages must stay in the first n columns"
    if not is_near(loss, expected):
        return (
            f"the loss of {count} random questions became {loss:.3f}; it should be"
            f" {expected:.3f}. Are all vectors normalized, has each question 2n scores, and does"
            " the function work for any n?"
        )


@exercise
def check_miner(mine):
    """The most similar passages that are not the right ones."""
    similarity = torch.tensor([[0.9, 0.1, 0.8, 0.3], [0.2, 0.5, 0.7, 0.4], [0.6, 0.3, 0.1, -0.2]])
    right = torch.tensor([0, 1, 3])
    expected = [[2, 3], [2, 3], [0, 1]]
    argument = similarity.clone()
    result = mine(argument, right.clone(), 2)
    if not torch.equal(argument, similarity):
        return "your function changes the similarities that it is given: work on a copy (`clone`)"
    mined = torch.as_tensor(result).tolist()
    if mined == similarity.topk(2).indices.tolist():
        return "these are the nearest passages, the right ones among them: leave those out"
    if mined == [[1, 3], [0, 3], [2, 1]]:
        return "these are the passages farthest from the question: hard negatives are near to it"
    if mined == [[3, 2], [3, 2], [1, 0]]:
        return "the most similar one comes first"
    if mined != expected:
        return (
            f"of the similarities {similarity.tolist()} with the right passages [0, 1, 3], you"
            f" chose {mined}; it should be {expected}"
        )
    if torch.as_tensor(mine(similarity.clone(), right.clone(), 1)).tolist() != [[2], [2], [0]]:
        return "`count` says how many passages to return for each question"
    negative = torch.tensor([[-0.5, -0.1, -0.9]])
    if torch.as_tensor(mine(negative, torch.tensor([1]), 2)).tolist() != [[0, 2]]:
        return "cosines can be below 0: a right passage that is set to 0 is then still the nearest"


NO_ANSWERS = {  # of the five passages that the saved output prints
    0: "0 is about the US, and the question asks about Japan",
    2: "2 says to whom Nasser ceded his leadership, and the question asks for a treaty",
    3: "3 says how large HHC is, and not how many nursing homes it has",
}


@exercise
def check_false_negatives(numbers):
    """The mined passages that are answers. Passage 1 is half of one, so it may be among them."""
    chosen = set(np.atleast_1d(numbers).tolist())
    if not chosen <= set(range(5)):
        return "the passages have the numbers 0 to 4: give a list of some of them, such as [0, 3]"
    for number, hint in NO_ANSWERS.items():
        if number in chosen:
            return hint
    if 4 not in chosen:
        return "one is missing: it answers its question as well as the labelled passage does"


def half_of_seeds(by_seed, count, comparisons=1):
    """Half of the interval that COUNT seeds would have with the same standard deviation."""
    quantile = student.ppf(1 - 0.025 / comparisons, count - 1)
    return quantile * by_seed.std(ddof=1) / count**0.5


@exercise
def check_num_seeds(count):
    """The smallest number of seeds that would tell *half and half* apart, in a comparison alone."""
    results, _ = compare_seeds([("reranked, half and half", "embeddings, trained")])
    by_seed = results[0][0]
    mean = by_seed.mean()
    if count != int(count):
        return "a number of seeds is a whole number"
    if count < 2:
        return "one seed has no spread, so it has no interval"
    half = half_of_seeds(by_seed, count)
    if half >= mean:
        return f"with {count} seeds the interval is ± {half:.4f}, and the difference is {mean:.4f}"
    if half_of_seeds(by_seed, count - 1) >= mean:
        return None
    widened = half_of_seeds(by_seed, count, COMPARISONS)
    fewer_widened = half_of_seeds(by_seed, count - 1, COMPARISONS)
    if widened < mean <= fewer_widened:
        return (
            f"{count} seeds would be needed if this were one of {COMPARISONS} comparisons; a"
            " planned one stands alone"
        )
    return f"with {count} seeds the interval is ± {half:.4f}: fewer seeds would do, too"


@exercise
def check_local_pairs(count_pairs):
    """The pairs of tokens of a local layer."""
    hints = {
        100: "these are the pairs of a global layer: a window limits how far a token sees",
        50: "the tokens at both ends of a text see fewer: beside them the text ends",
        40: "a token sees itself, too, and those at both ends see fewer others",
        34: "a token sees itself, too",
        27: "a token sees its window to both sides: each pair (i, j) counts, and (j, i) as well",
        28: "`window` is the number of tokens to each side, not to both together",
    }
    count = count_pairs(10, 2)
    if count in hints:
        return hints[count]
    for length, window in ((10, 2), (300, 64), (3, 7), (1, 4)):
        positions = np.arange(length)
        expected = (abs(positions[:, None] - positions) <= window).sum()
        count = count_pairs(length, window)
        if count != expected:
            return (
                f"{length} tokens with a window of {window} became {count} pairs; there are"
                f" {expected}. (A window may be wider than the text.)"
            )
