"""The metrics beside those of scikit-learn. Correlations are from -1 to 1, other scores from 0 to 1.

Those of a task are modules of `evaluate`, which need no network: `EntityScores().compute(predictions=…, references=…)`.
"""

import math
import re
import string
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import datasets
import evaluate
import numpy as np
import scipy.stats
import seqeval.metrics
from sklearn.metrics import precision_recall_fscore_support


def correlations(predictions: Sequence[float], references: Sequence[float]) -> dict[str, float]:
    """`pearson`, the linear correlation, and `spearman`, that of ranks, where equal values share a rank. Both are 0
    where they are not defined: one side is constant, or there is one row only."""
    if len(references) < 2:
        return {"pearson": 0.0, "spearman": 0.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", scipy.stats.ConstantInputWarning)
        found = {"pearson": scipy.stats.pearsonr, "spearman": scipy.stats.spearmanr}
        return {
            name: float(np.nan_to_num(f(predictions, references).statistic))
            for name, f in found.items()
        }


TEXTS = datasets.List(datasets.Value("string"))


class Metric(evaluate.Metric):
    """A metric of rows with a prediction of type `prediction` and a reference of type `reference`."""

    prediction: Any
    reference: Any = TEXTS

    def __init__(self):
        super().__init__(
            keep_in_memory=True
        )  # else it writes, and locks, files in the user's cache

    def _info(self) -> evaluate.MetricInfo:
        features = datasets.Features(predictions=self.prediction, references=self.reference)
        return evaluate.MetricInfo(
            description=self.__doc__, citation="", inputs_description="", features=features
        )


class EntityScores(Metric):
    """The scores of seqeval for sequences of tags such as B-PER: `precision`, `recall` and `f1` over all entities (None
    where the references have none), `accuracy` over tokens (None without a token), and `per_type`, for each type
    {precision, recall, f1, support}."""

    prediction = TEXTS

    def _compute(
        self, predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]]
    ) -> dict[str, Any]:
        accuracy = (
            float(seqeval.metrics.accuracy_score(references, predictions))
            if any(references)
            else None
        )
        undefined = {"precision": None, "recall": None, "f1": None}
        if all(
            tag == "O" for side in (predictions, references) for tags in side for tag in tags
        ):  # seqeval fails
            return undefined | {"accuracy": accuracy, "per_type": {}}
        report = seqeval.metrics.classification_report(
            references, predictions, output_dict=True, zero_division=0
        )
        scores = {
            kind: {
                name.removesuffix("-score"): np.asarray(value).tolist()
                for name, value in row.items()
            }
            for kind, row in report.items()
            if kind not in ("macro avg", "weighted avg")
        }
        overall = scores.pop("micro avg")
        overall = overall if overall.pop("support") else undefined
        return {**overall, "accuracy": accuracy, "per_type": scores}


def is_better(metric: str, value: float | None, baseline: float | None) -> bool:
    """Whether a value of a metric is better than a baseline; a missing one is worse than any."""
    if value is None or baseline is None:
        return value is not None
    return value < baseline if metric.endswith(("loss", "mse", "perplexity")) else value > baseline


def class_scores(
    predictions: Any, references: Any, names: Mapping[Any, str]
) -> dict[str, dict[str, float]]:
    """`precision`, `recall`, `f1` and `support` of the classes in `names`, by those names."""
    scores = (
        precision_recall_fscore_support(references, predictions, labels=[*names], zero_division=0)
        if names
        else ()
    )
    parts = ("precision", "recall", "f1", "support")
    return {
        name: dict(zip(parts, row))
        for name, *row in zip(names.values(), *(part.tolist() for part in scores))
    }


def normalize_answer(text: str) -> str:
    """As the SQuAD v1.1 script does: lower case, no ASCII punctuation, no English articles, single spaces."""
    text = text.lower().translate(dict.fromkeys(map(ord, string.punctuation)))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def compare_answers(predicted: str, true: str) -> tuple[bool, float]:
    """Whether two answers are the same once normalized, and the F1 of the words they share, counted with repeats."""
    words, true_words = normalize_answer(predicted).split(), normalize_answer(true).split()
    if not words or not true_words:
        return words == true_words, float(words == true_words)
    return words == true_words, 2 * (Counter(words) & Counter(true_words)).total() / (
        len(words) + len(true_words)
    )


class SquadScores(Metric):
    """`exact_match` and `f1` of texts (Rajpurkar et al. 2016), each the best over a question's list of true answers.
    No answer is an empty text, and an empty list (SQuAD v2, Rajpurkar et al. 2018); where there are both kinds of
    questions, `f1_answerable` and `f1_unanswerable` are there as well."""

    prediction = datasets.Value("string")

    def _compute(
        self, predictions: Sequence[str], references: Sequence[Sequence[str]]
    ) -> dict[str, float]:
        # As the official script has it: an answer of nothing but articles and marks is none.
        known = [
            [true for true in answers if normalize_answer(true)] or [""] for answers in references
        ]
        rows = zip(predictions, known)
        best = [
            np.max([compare_answers(predicted, true) for true in answers], axis=0)
            for predicted, answers in rows
        ]
        exact, f1 = np.array(best).T
        scores = {"exact_match": float(exact.mean()), "f1": float(f1.mean())}
        answerable = np.array([bool(answers) for answers in references])
        if 0 < answerable.sum() < len(f1):
            scores["f1_answerable"] = float(f1[answerable].mean())
            scores["f1_unanswerable"] = float(f1[~answerable].mean())
        return scores


def _gain(grades: Sequence[float]) -> float:
    """Σ gradeᵢ / log2(i + 1) over ranks i = 1, 2, … (Järvelin and Kekäläinen 2002), with grades as they are."""
    return sum(grade / math.log2(rank + 1) for rank, grade in enumerate(grades, start=1))


def retrieval_scores(
    predictions: Sequence[Sequence[str]],
    references: Sequence[Mapping[str, float]],
    ks: Sequence[int] = (10,),
) -> dict[str, float]:
    """`mrr@k`, `ndcg@k`, `recall@k` and `hit@k` for every k, as means over queries. (Those of sentence-transformers
    know no grades, and scikit-learn's nDCG no list that breaks off.)

    A prediction is the list of document ids found for a query, best first; a reference is the relevance of documents by
    id, grades of 0 and below as if not named. nDCG takes the grades as gains, and as ideal the best order of all
    relevant documents; MRR is 1 over the rank of the first relevant one, 0 below rank k. A query without a relevant
    document scores 0.
    """
    scores: dict[str, list[float]] = {
        f"{name}@{k}": [] for k in ks for name in ("mrr", "ndcg", "recall", "hit")
    }
    for found, graded in zip(predictions, references):
        grades = [max(graded.get(name, 0.0), 0.0) for name in found]
        ideal = sorted((grade for grade in graded.values() if grade > 0), reverse=True)
        for k in ks:
            relevant = [rank for rank, grade in enumerate(grades[:k], start=1) if grade > 0]
            scores[f"mrr@{k}"].append(1 / relevant[0] if relevant else 0.0)
            scores[f"ndcg@{k}"].append(_gain(grades[:k]) / _gain(ideal[:k]) if ideal else 0.0)
            scores[f"recall@{k}"].append(len(relevant) / max(len(ideal), 1))
            scores[f"hit@{k}"].append(float(bool(relevant)))
    return {name: float(np.mean(values)) for name, values in scores.items()}
