"""The scores of answers to questions, as SQuAD defines them."""

from collections.abc import Sequence

import datasets
import numpy as np

from .answer_metrics import answer_scores
from .metric_base import Metric


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
