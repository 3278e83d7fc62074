"""What a model is measured on: `HeldOut`, which is either `Retrieval` or `ScoredPairs`.

Retrieval: hit@1, hit@10, MRR@10 and nDCG@10 with the grades as gains (sentence-transformers'
evaluator knows no grades), means over the queries that have a relevant passage; a passage is its
title, a space and its text. Scored pairs: Spearman's and Pearson's correlation of the similarity
with the score (as the leader boards of STS have it, but from 0 to 1).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from datasets import Dataset

from ...evaluation import metrics
from ...evaluation.intervals import Interval, intervals_of_means, intervals_of_values
from ...hub.example import Example
from ..encoders import score_pairs
from ..reading.pairs import passages_of
from ..reading.passages import Passage
from .similarity import TEXTS_AT_ONCE, find_nearest, similarities

# Importing sentence-transformers takes seconds, which the help of a command need not take.
if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

    from .similarity import Encoder

RANKS = (1, 10)
RETRIEVAL_METRICS = tuple(f"{name}@{k}" for k in RANKS for name in ("hit", "recall", "mrr", "ndcg"))
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


@dataclass
class Retrieval(HeldOut):
    """Queries, passages, and which of them belong together: `relevant[query id][passage id]` is the
    grade."""

    passages: list[Passage]
    queries: dict[str, str]  # id: text
    relevant: dict[str, dict[str, float]]
    # a query is not found as a passage (that is not relevant to itself)
    ignore_identical_ids: bool = False

    @classmethod
    def from_rows(cls, rows: Dataset) -> Retrieval:
        """Of rows with the columns first, second and perhaps third: the queries are the first
        texts, the passages all others. Each text is its own id. A text is often both (of adjacent
        passages, all but the first and the last): it does not find itself."""
        texts = list(rows["second"])
        if "third" in rows.column_names:
            texts += rows["third"]
        passages = [Passage(text, text) for text in dict.fromkeys(texts)]
        queries = {}
        relevant = {}
        for query, relevant_texts in passages_of(rows).items():
            queries[query] = query
            relevant[query] = dict.fromkeys(relevant_texts, 1.0)
        return cls(passages, queries, relevant, ignore_identical_ids=True)

    def __len__(self) -> int:
        return len(self.queries)

    def all_texts(self) -> list[str]:
        return [passage.text for passage in self.passages]

    def first_texts(self, count: int) -> list[str]:
        return [passage.text for passage in self.passages[:count]]

    def predict(self, model: Any, bar_title: str | None = None) -> list[list[Passage]]:
        return self.find_passages(model, max(RANKS), bar_title)

    def find_passages(
        self, model: Encoder, depth: int, bar_title: str | None = None
    ) -> list[list[Passage]]:
        """The `depth` passages that are nearest to each query, best first."""
        # one more, where the query itself may be among them
        count = depth + 1 if self.ignore_identical_ids else depth
        queries = list(self.queries.values())
        nearest_passages = []
        nearest_indices = find_nearest(model, queries, self.all_texts(), count, bar_title)
        for query_id, indices in zip(self.queries, nearest_indices):
            is_relevant_to_itself = query_id in self.relevant[query_id]
            leaves_query_out = self.ignore_identical_ids and not is_relevant_to_itself
            passages = []
            for index in indices:
                passage = self.passages[index]
                if not (leaves_query_out and passage.id == query_id):
                    passages.append(passage)
            nearest_passages.append(passages[:depth])
        return nearest_passages

    def reorder(
        self,
        reranker: CrossEncoder,
        candidates: Sequence[list[Passage]],
        bar_title: str | None = None,
    ) -> list[list[Passage]]:
        """The candidates of each query in the order of the reranker's scores."""
        pairs = []
        ends = []
        for query, passages in zip(self.queries.values(), candidates):
            for passage in passages:
                pairs.append((query, passage.text))
            ends.append(len(pairs))
        scores = np.split(score_pairs(reranker, pairs, bar_title), ends[:-1])
        reordered = []
        for passages, scores_of_query in zip(candidates, scores):
            order = np.argsort(-scores_of_query, kind="stable")
            reordered.append([passages[index] for index in order])
        return reordered

    def score(self, predicted: list[list[Passage]]) -> dict[str, float]:
        """hit, recall, MRR and nDCG at `RANKS` of the passages of each query, best first."""
        return metrics.retrieval_scores(_ids_of(predicted), self._grades(), RANKS)

    def intervals(self, predicted: list[list[Passage]]) -> dict[str, Interval]:
        return intervals_of_means(metrics.query_scores(_ids_of(predicted), self._grades(), RANKS))

    def _grades(self) -> list[dict[str, float]]:
        """The grades of each query's passages, in the order of the queries."""
        return [self.relevant[query_id] for query_id in self.queries]

    def example(self, max_characters: int) -> Example | None:
        """A query, its passage and another one."""
        text_of = {passage.id: passage.text for passage in self.passages}
        for query_id, query in self.queries.items():
            relevant_ids = []
            for passage_id in self.relevant[query_id]:
                if passage_id in text_of:
                    relevant_ids.append(passage_id)
            other_ids = []
            for passage_id in text_of:
                if passage_id not in (*relevant_ids, query_id):
                    other_ids.append(passage_id)
            if not relevant_ids or not other_ids:
                continue
            passages = [text_of[relevant_ids[0]], text_of[other_ids[0]]]
            if sum(map(len, [query, *passages])) <= max_characters:
                return Example(
                    {"query": query, "passages": passages},
                    "The query is held out; the first passage is relevant to it in the data.",
                )
        return None


def _ids_of(ranked: list[list[Passage]]) -> list[list[str]]:
    """The ids of the passages of each query."""
    ids = []
    for passages in ranked:
        ids.append([passage.id for passage in passages])
    return ids


def as_reranking(rows: Dataset) -> tuple[Retrieval, list[list[Passage]]]:
    """Labelled rows as `Retrieval.reorder` takes them: the queries with all passages, and the
    candidates of each query, which are put in order. Negatives come first, so that a model that
    scores all alike is not taken for a good one."""
    positives: dict[str, list[str]] = {}
    negatives: dict[str, list[str]] = {}
    for query, text, label in zip(rows["first"], rows["second"], rows["label"]):
        positives.setdefault(query, [])
        negatives.setdefault(query, [])
        side = positives if label else negatives
        side[query].append(text)
    queries = {}
    relevant = {}
    candidates = []
    for query, texts in positives.items():
        queries[query] = query
        relevant[query] = dict.fromkeys(texts, 1.0)
        distinct_texts = dict.fromkeys(negatives[query] + texts)
        candidates.append([Passage(text, text) for text in distinct_texts])
    passages = list(dict.fromkeys(chain.from_iterable(candidates)))
    return Retrieval(passages, queries, relevant), candidates


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
        return metrics.correlations(predicted, self.scores)

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
