"""How near texts are to each other, by a model or by the words that they share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..inference import encode

# Importing sentence-transformers takes seconds, which the help of a command need not take.
if TYPE_CHECKING:
    from sentence_transformers import MultiVectorEncoder, SentenceTransformer, SparseEncoder

    Encoder = SentenceTransformer | SparseEncoder | MultiVectorEncoder

TEXTS_AT_ONCE = 8  # encoded at once, where each token has a score for every word of the vocabulary
QUERIES_AT_ONCE = 64  # compared with all passages at once


class SharedWords:
    """A baseline with the methods of a model: texts are as similar as the words that they share,
    rare ones first.

    Args:
        texts: Texts that say which words are rare. Signs are no words, unless the texts have
            nothing else: nearly all questions have a "?", but few passages, so it would count as
            very rare.
    """

    def __init__(self, texts: Sequence[str]):
        from sklearn.feature_extraction.text import TfidfVectorizer

        has_words = any(re.search(r"\w", text) for text in texts)
        self.words = TfidfVectorizer(token_pattern=r"\w+" if has_words else r"\S").fit(texts)

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


def similarities(
    model: Any, first: Sequence[str], second: Sequence[str], bar_title: str | None = None
) -> list[float]:
    """How similar each text is to the one at the same index: [texts]. Of dense vectors it is the
    cosine, of others what the model calls similar."""
    from sentence_transformers.util import pairwise_cos_sim

    if not is_dense(model):
        first_vectors = model.encode(first, batch_size=TEXTS_AT_ONCE)
        second_vectors = model.encode(second, batch_size=TEXTS_AT_ONCE)
        return model.similarity_pairwise(first_vectors, second_vectors).tolist()
    first_vectors = encode(model, first, bar_title=bar_title)
    second_vectors = encode(model, second, bar_title=bar_title)
    return pairwise_cos_sim(first_vectors, second_vectors).tolist()


def find_nearest(
    model: Encoder | SharedWords,
    queries: Sequence[str],
    texts: Sequence[str],
    count: int,
    bar_title: str | None,
) -> list[list[int]]:
    """The indices of the texts nearest to each query, best first: [queries, count]."""
    from sentence_transformers.util import semantic_search

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
