"""What is measured of embedding models and rerankers, and `SharedWords`, what it is compared with.

Similarity: Spearman's and Pearson's correlation of the cosine with the score (as the leader boards
of STS have it, but from 0 to 1). Retrieval: hit@1, hit@10, MRR@10 and nDCG@10 with the grades as
gains (sentence-transformers' evaluator knows no grades), means over the queries that have a
relevant passage; a passage is its title, a space and its text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from datasets import Dataset

from ..evaluation import metrics
from ..evaluation.intervals import Interval, intervals_of_means, intervals_of_values
from .encoders import encode, score_pairs
from .passages import Passage
from .retrieval import Retrieval

# Importing sentence-transformers takes seconds, which the help of a command need not take.
if TYPE_CHECKING:
    from sentence_transformers import (
        CrossEncoder,
        MultiVectorEncoder,
        SentenceTransformer,
        SparseEncoder,
    )

    Encoder = SentenceTransformer | SparseEncoder | MultiVectorEncoder

RANKS = (1, 10)
RETRIEVAL_METRICS = tuple(f"{name}@{k}" for k in RANKS for name in ("hit", "recall", "mrr", "ndcg"))
TEXTS_AT_ONCE = 8  # encoded at once, where each token has a score for every word of the vocabulary
MAX_COUNTED_TEXTS = 200  # of which the numbers of sparse vectors that are not zero are counted
QUERIES_AT_ONCE = 64  # compared with all passages at once


class SharedWords:
    """The baseline, with the methods of a model: texts are as similar as the words that they share,
    rare ones first."""

    def __init__(self, held_out: Retrieval | Dataset):
        from sklearn.feature_extraction.text import TfidfVectorizer

        if isinstance(held_out, Retrieval):
            texts = [passage.text for passage in held_out.passages]
        else:
            texts = [*held_out["first"], *held_out["second"]]
        self.words = TfidfVectorizer(token_pattern=r"\w+|\S").fit(texts)

    def encode(self, texts: Sequence[str], **_: Any) -> Any:
        return self.words.transform(texts)

    encode_query = encode_document = encode

    def similarity(self, first: Any, second: Any) -> torch.Tensor:
        return torch.from_numpy((first @ second.T).toarray())

    def similarity_pairwise(self, first: Any, second: Any) -> np.ndarray:
        return np.asarray(first.multiply(second).sum(axis=1)).ravel()


def is_dense(model: Any) -> bool:
    """Whether a model has one vector of a text, whose numbers are hardly ever zero."""
    from sentence_transformers import MultiVectorEncoder, SparseEncoder

    return not isinstance(model, (SparseEncoder, MultiVectorEncoder, SharedWords))


def predict_held_out(
    model: Any, held_out: Retrieval | Dataset, bar_title: str | None = None
) -> list[list[Passage]] | list[float]:
    """The passages that are nearest to each query, or how similar the texts of each pair are."""
    if isinstance(held_out, Retrieval):
        return find_passages(model, held_out, max(RANKS), bar_title)
    return similarities(model, held_out["first"][:], held_out["second"][:], bar_title)


def measure(
    model: Any,
    held_out: Retrieval | Dataset,
    bar_title: str | None = None,
    predicted: list[list[Passage]] | list[float] | None = None,
) -> dict[str, float]:
    """The scores of a model by name: `RETRIEVAL_METRICS` of retrieval; of scored pairs the
    correlations of the cosine (if vectors are not dense, of the model's own similarity) with the
    score. Of sparse vectors also `active_dims`: how many numbers of a vector are not zero, in the
    mean over the first passages or texts.

    Args:
        predicted: What `predict_held_out` returned, if that was called before.
    """
    from sentence_transformers import SparseEncoder

    if predicted is None:
        predicted = predict_held_out(model, held_out, bar_title)
    if isinstance(held_out, Retrieval):
        scores = score_ranking(held_out, predicted)
        texts = [passage.text for passage in held_out.passages[:MAX_COUNTED_TEXTS]]
    else:
        texts = held_out["first"][:MAX_COUNTED_TEXTS]
        scores = metrics.correlations(predicted, held_out["label"])
    if isinstance(model, SparseEncoder):
        vectors = model.encode_document(texts, batch_size=TEXTS_AT_ONCE, show_progress_bar=False)
        scores["active_dims"] = float(model.sparsity(vectors)["active_dims"])
    return scores


def similarities(
    model: Any, first: Sequence[str], second: Sequence[str], bar_title: str | None = None
) -> list[float]:
    """How similar each text is to the one at the same index: [texts]."""
    from sentence_transformers.util import pairwise_cos_sim

    if not is_dense(model):
        first_vectors = model.encode(first, batch_size=TEXTS_AT_ONCE)
        second_vectors = model.encode(second, batch_size=TEXTS_AT_ONCE)
        return model.similarity_pairwise(first_vectors, second_vectors).tolist()
    first_vectors = encode(model, first, bar_title=bar_title)
    second_vectors = encode(model, second, bar_title=bar_title)
    return pairwise_cos_sim(first_vectors, second_vectors).tolist()


def find_passages(
    model: Encoder, held_out: Retrieval, depth: int, bar_title: str | None = None
) -> list[list[Passage]]:
    """The `depth` passages that are nearest to each query, best first."""
    # one more, where the query itself may be among them
    count = depth + 1 if held_out.ignore_identical_ids else depth
    nearest_passages = []
    nearest_indices = _nearest(model, held_out, count, bar_title)
    for query_id, indices in zip(held_out.queries, nearest_indices):
        is_relevant_to_itself = query_id in held_out.relevant[query_id]
        leaves_query_out = held_out.ignore_identical_ids and not is_relevant_to_itself
        passages = []
        for index in indices:
            passage = held_out.passages[index]
            if not (leaves_query_out and passage.id == query_id):
                passages.append(passage)
        nearest_passages.append(passages[:depth])
    return nearest_passages


def _nearest(
    model: Encoder, held_out: Retrieval, count: int, bar_title: str | None
) -> list[list[int]]:
    """The indices of the passages nearest to each query, best first: [queries, count]."""
    from sentence_transformers.util import semantic_search

    texts = [passage.text for passage in held_out.passages]
    queries = list(held_out.queries.values())
    indices = []
    if is_dense(model):
        vectors = encode(model, texts, "document", bar_title)
        query_vectors = encode(model, queries, "query", bar_title)
        for hits in semantic_search(query_vectors, vectors, top_k=count):
            indices.append([hit["corpus_id"] for hit in hits])
        return indices
    has_bar = bar_title is not None
    vectors = model.encode_document(texts, batch_size=TEXTS_AT_ONCE, show_progress_bar=has_bar)
    for start in range(0, len(queries), QUERIES_AT_ONCE):
        batch = model.encode_query(
            queries[start : start + QUERIES_AT_ONCE], batch_size=TEXTS_AT_ONCE
        )
        similarity = model.similarity(batch, vectors)
        indices += similarity.topk(min(count, len(texts))).indices.tolist()
    return indices


def reorder(
    reranker: CrossEncoder,
    held_out: Retrieval,
    candidates: list[list[Passage]],
    bar_title: str | None = None,
) -> list[list[Passage]]:
    """The candidates of each query in the order of the reranker's scores."""
    pairs = []
    ends = []
    for query, passages in zip(held_out.queries.values(), candidates):
        for passage in passages:
            pairs.append((query, passage.text))
        ends.append(len(pairs))
    scores = np.split(score_pairs(reranker, pairs, bar_title), ends[:-1])
    reordered = []
    for passages, scores_of_query in zip(candidates, scores):
        order = np.argsort(-scores_of_query, kind="stable")
        reordered.append([passages[index] for index in order])
    return reordered


def score_ranking(held_out: Retrieval, ranked: list[list[Passage]]) -> dict[str, float]:
    """hit, recall, MRR and nDCG at `RANKS` of the passages found for each query, best first."""
    return metrics.retrieval_scores(ids_of(ranked), relevance_of(held_out), RANKS)


def intervals_of(
    held_out: Retrieval | Dataset, predicted: list[list[Passage]] | list[float]
) -> dict[str, Interval]:
    """The 95 % intervals of the metrics of what `predict_held_out` returned, by resampling queries
    or pairs."""
    if isinstance(held_out, Retrieval):
        scores = metrics.query_scores(ids_of(predicted), relevance_of(held_out), RANKS)
        return intervals_of_means(scores)
    intervals = intervals_of_values(predicted, held_out["label"][:])
    del intervals["mse"]  # a cosine is on another scale than a score
    return intervals


def ids_of(ranked: list[list[Passage]]) -> list[list[str]]:
    """The ids of the passages found for each query."""
    ids = []
    for passages in ranked:
        ids.append([passage.id for passage in passages])
    return ids


def relevance_of(held_out: Retrieval) -> list[dict[str, float]]:
    """The grades of each query's passages, in the order of the queries."""
    return [held_out.relevant[query_id] for query_id in held_out.queries]
