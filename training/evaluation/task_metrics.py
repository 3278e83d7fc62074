"""The metrics of tagging and of answering as modules of `evaluate`, which need no network:
`EntityScores().compute(predictions=…, references=…)`.

Importing `evaluate` takes a second: this module is imported where a metric is computed.
"""

from collections.abc import Sequence
from typing import Any

import datasets
import evaluate
import numpy as np

from .metrics import answer_scores

TEXTS = datasets.List(datasets.Value("string"))


class Metric(evaluate.Metric):
    """A metric of rows with a prediction of type `prediction` and a reference of type
    `reference`."""

    prediction: Any
    reference: Any = TEXTS

    def __init__(self):
        # In memory: it would else write, and lock, files in the user's cache.
        super().__init__(keep_in_memory=True)

    def _info(self) -> evaluate.MetricInfo:
        features = datasets.Features(predictions=self.prediction, references=self.reference)
        return evaluate.MetricInfo(
            description=self.__doc__, citation="", inputs_description="", features=features
        )


class EntityScores(Metric):
    """The scores of seqeval for sequences of tags such as B-PER: `precision`, `recall` and `f1`
    over all entities (None where the references have none), `accuracy` over tokens (None without a
    token), and `per_type`, for each type {precision, recall, f1, support}."""

    prediction = TEXTS

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


class SquadScores(Metric):
    """`exact_match` and `f1` of texts (Rajpurkar et al. 2016), each the best over a question's list
    of true answers. No answer is an empty text, and an empty list (SQuAD v2, Rajpurkar et al.
    2018); where there are both kinds of questions, `f1_answerable` and `f1_unanswerable` are there
    as well."""

    prediction = datasets.Value("string")

    def _compute(
        self, predictions: Sequence[str], references: Sequence[Sequence[str]]
    ) -> dict[str, float]:
        exact, f1 = answer_scores(predictions, references)
        scores = {"exact_match": float(exact.mean()), "f1": float(f1.mean())}
        answerable = np.array([bool(answers) for answers in references])
        if 0 < answerable.sum() < len(f1):
            scores["f1_answerable"] = float(f1[answerable].mean())
            scores["f1_unanswerable"] = float(f1[~answerable].mean())
        return scores
