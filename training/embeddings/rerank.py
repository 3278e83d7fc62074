"""`minibert rerank`: passages in the order of how well they answer a query."""

from __future__ import annotations

import textwrap

from ..arguments.embeddings import RerankArguments
from .data import read_lines
from .encoders import open_reranker


def rerank(arguments: RerankArguments) -> list[tuple[str, float]]:
    """Print the passages with their scores.

    Returns:
        (passage, score), best first, `top_k` of them.

    Raises:
        ValueError: no query, no passage, a model that is no reranker.
    """
    if not arguments.words or not arguments.words[0].strip():
        raise ValueError("words: no query given; give the query, then passages")
    if arguments.top_k is not None and arguments.top_k < 1:
        raise ValueError(f"top_k: {arguments.top_k} is too few; use at least 1")
    query, *passages = arguments.words
    passages += read_lines(arguments.file) if arguments.file is not None else []
    passages = [passage for passage in passages if passage.strip()]
    if not passages:
        raise ValueError("words: no passage given; give the query, then passages, or a --file of them")
    ranked = open_reranker(arguments.model).rank(query, passages, top_k=arguments.top_k)
    print(query)
    for row in ranked:
        print(f"  {row['score']:6.3f}  {textwrap.shorten(passages[row['corpus_id']], 240, placeholder=' …')}")
    return [(passages[row["corpus_id"]], row["score"]) for row in ranked]
