"""Retrieval: which passages a model finds for queries.

Its metrics are hit, recall, MRR and nDCG at ranks 1 and 10, nDCG with the grades as gains
(sentence-transformers' evaluator knows no grades), means over the queries that have a relevant
passage. A passage is its title, a space and its text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from datasets import Dataset

from ...evaluation.intervals import Interval, intervals_of_means
from ...evaluation.retrieval_metrics import query_scores, retrieval_scores
from ...hub.example import Example
from ..inference import score_pairs
from ..reading.pairs import passages_of
from ..reading.passages import Passage
from ..reading.retrieval_folders import read_retrieval
from .held_out import HeldOut
from .similarity import find_nearest

# Importing sentence-transformers takes seconds, which the help of a command need not take.
if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

    from .similarity import Encoder

RANKS = (1, 10)
RETRIEVAL_METRICS = tuple(f"{name}@{k}" for k in RANKS for name in ("hit", "recall", "mrr", "ndcg"))


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
    def from_folder(cls, folder: str | Path, split: str) -> Retrieval:
        """Of a folder that `read_retrieval` reads."""
        return cls(*read_retrieval(folder, split))

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
        return retrieval_scores(_ids_of(predicted), self._grades(), RANKS)

    def intervals(self, predicted: list[list[Passage]]) -> dict[str, Interval]:
        return intervals_of_means(query_scores(_ids_of(predicted), self._grades(), RANKS))

    def _grades(self) -> list[dict[str, float]]:
        """The grades of each query's passages, in the order of the queries."""
        return [self.relevant[query_id] for query_id in self.queries]

    def example(self, max_characters: int) -> Example | None:
        """A query, its passage and another one."""
        for query_id, query in self.queries.items():
            relevant_text = None
            other_text = None
            for passage in self.passages:
                if self.relevant[query_id].get(passage.id, 0) > 0:
                    relevant_text = relevant_text or passage.text
                elif passage.id != query_id:
                    other_text = other_text or passage.text
            if not relevant_text or not other_text:
                continue
            if len(query) + len(relevant_text) + len(other_text) <= max_characters:
                return Example(
                    {"query": query, "passages": [relevant_text, other_text]},
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
