"""The metrics of classifiers: of one class a row, of several labels a row, of values, and by class.

A task names them in `score` of its class; the three kinds of labels are in
`finetuning/tasks/problem_types.py`. A metric that is added here also needs its 95 % interval in
`intervals.py`: `intervals_of_classes`, `intervals_of_labels` or `intervals_of_values`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .value_metrics import correlations


def score_classes(predictions: Sequence[Any], references: Sequence[Any]) -> dict[str, float | None]:
    """The metrics of rows with one class each. Macro F1 is the mean over the classes that occur in
    `references`; the correlation is None if that is only one."""
    from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

    classes = np.unique(references).tolist()
    f1_macro = f1_score(references, predictions, average="macro", labels=classes, zero_division=0)
    matthews = None
    if len(classes) > 1:
        matthews = float(matthews_corrcoef(references, predictions))
    return {
        "accuracy": float(accuracy_score(references, predictions)),
        "f1_macro": float(f1_macro),
        "matthews_correlation": matthews,
    }


def score_labels(
    predictions: Sequence[Sequence[float]], references: Sequence[Sequence[float]]
) -> dict[str, float | None]:
    """The metrics of rows with any number of labels. Macro F1 is the mean over the labels that
    occur in `references`; F1 is None if none does. Accuracy is the share of rows of which all
    labels are right.

    Args:
        predictions, references: 0 or 1 for each label, [rows, labels].
    """
    from sklearn.metrics import accuracy_score

    predictions = np.asarray(predictions, np.int32)
    references = np.asarray(references, np.int32)
    labels_in_references = np.flatnonzero(np.any(references, axis=0)).tolist()
    f1_micro = None
    f1_macro = None
    if labels_in_references:
        all_labels = list(range(references.shape[1]))
        f1_micro = _f1_of_labels(predictions, references, "micro", all_labels)
        f1_macro = _f1_of_labels(predictions, references, "macro", labels_in_references)
    accuracy = float(accuracy_score(references, predictions))
    return {"f1_micro": f1_micro, "f1_macro": f1_macro, "accuracy": accuracy}


def _f1_of_labels(
    predictions: np.ndarray, references: np.ndarray, average: str, label_ids: list[int]
) -> float:
    from sklearn.metrics import f1_score

    if references.shape[1] == 1:
        label_ids = [1]  # scikit-learn takes a single label for classes 0 and 1
    f1 = f1_score(references, predictions, average=average, labels=label_ids, zero_division=0)
    return float(f1)


def score_values(
    predictions: Sequence[float], references: Sequence[float]
) -> dict[str, float | None]:
    """The metrics of rows with a value each. Correlations are None where all references are the
    same."""
    predictions = np.asarray(predictions, np.float32)
    scores: dict[str, float | None] = dict(correlations(predictions, references))
    if len(set(references)) < 2:
        scores = dict.fromkeys(scores)
    errors = predictions - np.asarray(references)
    scores["mse"] = float(np.mean(errors**2))
    return scores


def scores_by_class(
    predictions: Any, references: Any, names: Mapping[Any, str]
) -> dict[str, dict[str, float]]:
    """`precision`, `recall`, `f1` and `support` of the classes in `names`, by those names."""
    from sklearn.metrics import precision_recall_fscore_support

    if not names:
        return {}
    precision, recall, f1, support = precision_recall_fscore_support(
        references, predictions, labels=list(names), zero_division=0
    )
    scores = {}
    for row, name in enumerate(names.values()):
        scores[name] = {
            "precision": precision[row].item(),
            "recall": recall[row].item(),
            "f1": f1[row].item(),
            "support": support[row].item(),
        }
    return scores
