"""The scores of entities: which spans of words are found with the right type, as seqeval counts."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from seqeval.metrics.sequence_labeling import get_entities

from .metric_base import STRING_LIST_FEATURE, Metric


class EntityScores(Metric):
    """The scores of seqeval for sequences of tags such as B-PER: `precision`, `recall` and `f1`
    over all entities (None where the references have none), `accuracy` over tokens (None without a
    token), and `per_type`, for each type {precision, recall, f1, support}."""

    prediction = STRING_LIST_FEATURE

    def _compute(
        self, predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]]
    ) -> dict[str, Any]:
        import seqeval.metrics

        scores = {"precision": None, "recall": None, "f1": None, "accuracy": None, "per_type": {}}
        if any(references):
            accuracy = seqeval.metrics.accuracy_score(references, predictions)
            scores["accuracy"] = float(accuracy)
        tags = set().union(*predictions, *references)
        if tags <= {"O"}:  # no entity on either side: seqeval fails
            return scores
        report = seqeval.metrics.classification_report(
            references, predictions, output_dict=True, zero_division=0
        )
        for entity_type, row in report.items():
            if entity_type in ("macro avg", "weighted avg"):
                continue
            values = {}
            for name, value in row.items():
                values[name.removesuffix("-score")] = np.asarray(value).tolist()
            scores["per_type"][entity_type] = values
        overall = scores["per_type"].pop("micro avg")
        num_entities = overall.pop("support")
        if num_entities:
            scores |= overall
        return scores


def count_entities(
    predictions: Sequence[list[str]], references: Sequence[list[str]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How many entities of each sentence are found, predicted, and true: [sentences] each."""
    counts = []
    for predicted_tags, true_tags in zip(predictions, references):
        predicted = set(get_entities(predicted_tags))
        true = set(get_entities(true_tags))
        counts.append((len(predicted & true), len(predicted), len(true)))
    hits, num_predicted, num_true = np.array(counts).T
    return hits, num_predicted, num_true
