"""The metrics of all tasks, as `evaluate.Metric`: nothing is fetched, so they need no network.

Used like any metric of `evaluate`: `Accuracy().compute(predictions=…, references=…)`, or `add_batch` and then
`compute`. Across processes each one is given the same `experiment_id`, the number of processes and its own number
(`Accuracy(num_process=2, process_id=0, experiment_id="run")`); process 0 gets the result of all rows, the others None.
Every score is a share between 0 and 1, or a correlation between -1 and 1.
"""

from __future__ import annotations

import math
import re
import string
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

import datasets
import evaluate
import numpy as np
import scipy.stats
import seqeval.metrics
import seqeval.scheme
import sklearn.metrics

LABEL, NUMBER, TEXT = datasets.Value("int32"), datasets.Value("float64"), datasets.Value("string")


def _pairs(value: Any) -> datasets.Features:
    return datasets.Features({"predictions": value, "references": value})


class _Metric(evaluate.Metric):
    """A metric whose predictions and references are described by `features`."""

    features_of_rows: datasets.Features | list[datasets.Features]

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=self.__doc__, citation="", inputs_description="", features=self.features_of_rows
        )


class Accuracy(_Metric):
    """Share of rows whose class is right (`accuracy`). A row is a class number, or for several labels a list of 0 and
    1, which is right if all of it is."""

    features_of_rows = [_pairs(LABEL), _pairs(datasets.List(LABEL))]

    def _compute(self, predictions, references) -> dict[str, float]:
        return {"accuracy": float(sklearn.metrics.accuracy_score(references, predictions))}


class F1(_Metric):
    """Harmonic mean of precision and recall (`f1`).

    `average`: binary (of class 1), micro, macro, weighted; for rows with several labels (lists of 0 and 1) micro,
    macro, weighted or samples. `labels`: the classes that count, by default those that occur.
    """

    features_of_rows = [_pairs(LABEL), _pairs(datasets.List(LABEL))]

    def _compute(self, predictions, references, average: str = "macro", labels=None) -> dict[str, float]:
        score = sklearn.metrics.f1_score(references, predictions, average=average, labels=labels, zero_division=0)
        return {"f1": float(score)}


class MatthewsCorrelation(_Metric):
    """Correlation of predicted and true classes (`matthews_correlation`), Matthews 1975; of CoLA in GLUE."""

    features_of_rows = _pairs(LABEL)

    def _compute(self, predictions, references) -> dict[str, float]:
        return {"matthews_correlation": float(sklearn.metrics.matthews_corrcoef(references, predictions))}


def _correlation(function, predictions, references) -> float:
    """0 where a correlation is not defined: one side is constant, or there are fewer than two rows."""
    if len(references) < 2:
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", scipy.stats.ConstantInputWarning)
        value = float(function(predictions, references).statistic)
    return 0.0 if math.isnan(value) else value


class Pearson(_Metric):
    """Linear correlation (`pearson`); 0 where one side is constant or there is one row only."""

    features_of_rows = _pairs(NUMBER)

    def _compute(self, predictions, references) -> dict[str, float]:
        return {"pearson": _correlation(scipy.stats.pearsonr, predictions, references)}


class Spearman(_Metric):
    """Correlation of ranks, equal values sharing a rank (`spearman`); 0 where one side is constant or there is one row
    only."""

    features_of_rows = _pairs(NUMBER)

    def _compute(self, predictions, references) -> dict[str, float]:
        return {"spearman": _correlation(scipy.stats.spearmanr, predictions, references)}


# --- Spans -----------------------------------------------------------------------------------------------------------


class Seqeval(_Metric):
    """Entity scores of sequences of tags such as B-PER, computed by seqeval.

    `mode`: None counts as conlleval does and repairs what is not legal; "strict" counts legal entities of `scheme`
    (IOB1, IOB2, IOE1, IOE2, IOBES or BILOU) only. Returns `precision`, `recall` and `f1` over all entities, `accuracy`
    over tokens, and under `per_type` for each type the dictionary {precision, recall, f1, support}.
    """

    features_of_rows = _pairs(datasets.List(TEXT))

    def _compute(self, predictions, references, mode: str | None = None, scheme: str = "IOB2") -> dict[str, Any]:
        predictions, references = [list(row) for row in predictions], [list(row) for row in references]
        lengths = [(len(predicted), len(true)) for predicted, true in zip(predictions, references)]
        for row, (predicted, true) in enumerate(lengths):
            if predicted != true:
                raise ValueError(f"sequence {row} has {predicted} predicted tags and {true} true ones")
        tokens = [pair for rows in zip(predictions, references) for pair in zip(*rows)]
        accuracy = sum(predicted == true for predicted, true in tokens) / max(len(tokens), 1)
        if all(tag == "O" for pair in tokens for tag in pair):  # seqeval fails where there is no entity at all
            return {"precision": 0.0, "recall": 0.0, "f1": 0.0, "accuracy": accuracy, "per_type": {}}
        report = seqeval.metrics.classification_report(
            references,
            predictions,
            output_dict=True,
            zero_division=0,
            mode=mode,
            scheme=getattr(seqeval.scheme, scheme) if mode == "strict" else None,
        )
        rows = {
            name: {
                "precision": float(row["precision"]),
                "recall": float(row["recall"]),
                "f1": float(row["f1-score"]),
                "support": int(row["support"]),
            }
            for name, row in report.items()
        }
        overall = rows.pop("micro avg")
        del rows["macro avg"], rows["weighted avg"], overall["support"]
        return {**overall, "accuracy": accuracy, "per_type": rows}


# --- Answers ---------------------------------------------------------------------------------------------------------


def normalize_answer(text: str) -> str:
    """As the SQuAD v1.1 script does: lower case, no ASCII punctuation, no English articles, single spaces."""
    text = "".join(character for character in text.lower() if character not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def answer_f1(predicted: str, true: str) -> float:
    """F1 of the words two normalized answers share, counted with repeats; if one is empty, whether both are."""
    predicted_words, true_words = normalize_answer(predicted).split(), normalize_answer(true).split()
    if not predicted_words or not true_words:
        return float(predicted_words == true_words)
    shared = (Counter(predicted_words) & Counter(true_words)).total()
    return 2 * shared / (len(predicted_words) + len(true_words))


class SquadScores(_Metric):
    """`exact_match` and `f1` of answers (Rajpurkar et al. 2016), each the best over a question's true answers.

    A prediction is a text, a reference the list of its true answers. The empty text predicts that there is no answer,
    and an empty list says so (SQuAD v2, Rajpurkar et al. 2018). Where there are both kinds of questions,
    `f1_answerable` and `f1_unanswerable` are there as well.
    """

    features_of_rows = datasets.Features({"predictions": TEXT, "references": datasets.List(TEXT)})

    def _compute(self, predictions, references) -> dict[str, float]:
        exact, f1, possible = [], [], []
        for predicted, answers in zip(predictions, references):
            possible.append(bool(answers))
            answers = answers or [""]
            exact.append(max(normalize_answer(predicted) == normalize_answer(answer) for answer in answers))
            f1.append(max(answer_f1(predicted, answer) for answer in answers))
        scores = {"exact_match": float(np.mean(exact)), "f1": float(np.mean(f1))}
        if len(set(possible)) == 2:
            scores["f1_answerable"] = float(np.mean([score for score, has in zip(f1, possible) if has]))
            scores["f1_unanswerable"] = float(np.mean([score for score, has in zip(f1, possible) if not has]))
        return scores


# --- Retrieval -------------------------------------------------------------------------------------------------------


def discounted_gain(grades: Sequence[float]) -> float:
    """Σ gradeᵢ / log2(i + 1) over ranks i = 1, 2, … (Järvelin and Kekäläinen 2002), with grades as they are."""
    return float(np.sum(np.asarray(grades, dtype=float) / np.log2(np.arange(2, len(grades) + 2))))


class Retrieval(_Metric):
    """`mrr@k`, `ndcg@k`, `recall@k` and `hit@k` for every k asked for, as means over queries.

    A prediction is the list of document ids found for a query, best first; a reference is {"ids": documents, "grades":
    their relevance}. A document of grade 0 or below is as good as one that is not named. nDCG takes the grades as gains
    and as ideal the best order of all relevant documents; MRR is 1 over the rank of the first relevant one, 0 below
    rank k; recall is the share of the relevant documents among the first k, hit whether there is any. A query without
    a relevant document scores 0 (BEIR's way is to leave such queries out before).
    """

    features_of_rows = datasets.Features(
        {
            "predictions": datasets.List(TEXT),
            "references": {"ids": datasets.List(TEXT), "grades": datasets.List(NUMBER)},
        }
    )

    def _compute(self, predictions, references, ks: Sequence[int] = (10,)) -> dict[str, float]:
        scores: dict[str, list[float]] = {f"{name}@{k}": [] for k in ks for name in ("mrr", "ndcg", "recall", "hit")}
        for found, reference in zip(predictions, references):
            if len(set(found)) < len(found):
                raise ValueError(f"a document is found twice for one query: {found}")
            grade_of = {name: g for name, g in zip(reference["ids"], reference["grades"]) if g > 0}
            grades = [grade_of.get(name, 0.0) for name in found]
            ideal = sorted(grade_of.values(), reverse=True)
            for k in ks:
                relevant = [rank for rank, grade in enumerate(grades[:k], start=1) if grade > 0]
                scores[f"mrr@{k}"].append(1 / relevant[0] if relevant else 0.0)
                scores[f"ndcg@{k}"].append(discounted_gain(grades[:k]) / discounted_gain(ideal[:k]) if ideal else 0.0)
                scores[f"recall@{k}"].append(len(relevant) / max(len(ideal), 1))
                scores[f"hit@{k}"].append(float(bool(relevant)))
        return {name: float(np.mean(values)) for name, values in scores.items()}
