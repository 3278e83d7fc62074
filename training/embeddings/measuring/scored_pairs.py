"""Scored pairs: how well the similarities that a model finds follow the scores of pairs of texts.

Its metrics are Spearman's and Pearson's correlation (as the leader boards of STS have it, but from
0 to 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from datasets import Dataset

from ...evaluation.intervals import Interval, intervals_of_values
from ...evaluation.value_metrics import correlations
from ...hub.example import Example
from .held_out import HeldOut
from .similarity import similarities


@dataclass
class ScoredPairs(HeldOut):
    """Pairs of texts, and how much they belong together: from 0 to 1."""

    first: list[str]
    second: list[str]
    scores: list[float]

    @classmethod
    def from_rows(cls, rows: Dataset) -> ScoredPairs:
        """Of rows with the columns first, second and label, as `read_pairs` returns them."""
        return cls(rows["first"][:], rows["second"][:], rows["label"][:])

    def __len__(self) -> int:
        return len(self.scores)

    def all_texts(self) -> list[str]:
        return [*self.first, *self.second]

    def first_texts(self, count: int) -> list[str]:
        return self.first[:count]

    def predict(self, model: Any, bar_title: str | None = None) -> list[float]:
        return similarities(model, self.first, self.second, bar_title)

    def score(self, predicted: list[float]) -> dict[str, float]:
        return correlations(predicted, self.scores)

    def intervals(self, predicted: list[float]) -> dict[str, Interval]:
        intervals = intervals_of_values(predicted, self.scores)
        del intervals["mse"]  # a cosine is on another scale than a score
        return intervals

    def example(self, max_characters: int) -> Example | None:
        """A pair with its score."""
        for first, second, score in zip(self.first, self.second, self.scores):
            if len(first) + len(second) <= max_characters:
                return Example(
                    {"first": first, "second": second},
                    f"The pair is held out; its score in the data: {score:.4g}.",
                )
        return None
