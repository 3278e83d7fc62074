"""`minibert rerank`: passages in the order of how well they answer a query."""

from __future__ import annotations

import textwrap
from pathlib import Path

from ..arguments.embeddings import RerankArguments
from .data import read_lines, read_text
from .encoders import Reranker


def rerank(arguments: RerankArguments) -> None:
    """Print the passages with their scores, best first.

    Raises:
        ValueError: no query, no passage, a model that is no reranker.
    """
    if not arguments.words or not arguments.words[0].strip():
        raise ValueError("words: no query given; legal: the query, then passages")
    if arguments.top_k is not None and arguments.top_k < 1:
        raise ValueError(f"top_k: {arguments.top_k} is not legal; at least 1")
    query, *passages = arguments.words
    if arguments.file is not None:
        path = Path(arguments.file).expanduser()
        if not path.is_file():
            raise ValueError(f"file: there is no file {arguments.file!r}")
        passages += read_lines(read_text(path), repr(arguments.file))
    passages = [passage for passage in passages if passage.strip()]
    if not passages:
        raise ValueError("words: no passage given; legal: the query, then passages, or a --file of them")
    ranked = Reranker.from_pretrained(arguments.model).rank(query, passages, progress="Reranking")
    print(query)
    for i, score in ranked[: arguments.top_k]:
        print(f"  {score:6.3f}  {textwrap.shorten(passages[i], 240, placeholder=' …')}")
