"""What a model is measured on: `HeldOut`, which is either `Retrieval` or `ScoredPairs`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from datasets import Dataset

from ...evaluation.intervals import Interval
from ...hub.example import Example
from .similarity import TEXTS_AT_ONCE

MAX_COUNTED_TEXTS = 200  # of which the numbers of sparse vectors that are not zero are counted


class HeldOut(ABC):
    """Texts that a model is measured on. What a model predicts of them is, of retrieval, the
    passages of each query, best first; of scored pairs, the score of each pair."""

    @classmethod
    @abstractmethod
    def from_rows(cls, rows: Dataset) -> HeldOut:
        """Of rows as `read_pairs` returns them."""

    @abstractmethod
    def __len__(self) -> int:
        """The number of queries, or of pairs."""

    @abstractmethod
    def all_texts(self) -> list[str]:
        """All passages, or both texts of all pairs."""

    @abstractmethod
    def first_texts(self, count: int) -> list[str]:
        """Up to `count` passages, or first texts of pairs."""

    @abstractmethod
    def predict(self, model: Any, bar_title: str | None = None) -> Any:
        """What an embedding model predicts. `bar_title`: what progress bars are called, if there
        are to be any."""

    @abstractmethod
    def score(self, predicted: Any) -> dict[str, float]:
        """The metrics of what a model predicts, by name."""

    @abstractmethod
    def intervals(self, predicted: Any) -> dict[str, Interval]:
        """The 95 % intervals of the metrics by name, from resampling queries or pairs."""

    @abstractmethod
    def example(self, max_characters: int) -> Example | None:
        """What a card shows: the first one whose texts are no longer than that together."""


def score_embeddings(model: Any, held_out: HeldOut, predicted: Any) -> dict[str, float]:
    """The metrics by name of an embedding model and of what `HeldOut.predict` returned of it. Of
    sparse vectors also `active_dims`: how many numbers of a vector are not zero, in the mean over
    the first texts."""
    from sentence_transformers import SparseEncoder

    scores = held_out.score(predicted)
    if isinstance(model, SparseEncoder):
        texts = held_out.first_texts(MAX_COUNTED_TEXTS)
        vectors = model.encode_document(texts, batch_size=TEXTS_AT_ONCE, show_progress_bar=False)
        scores["active_dims"] = float(model.sparsity(vectors)["active_dims"])
    return scores
