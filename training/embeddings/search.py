"""`minibert search`: the passages that are nearest to queries; `minibert rerank`: given passages in
order."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from huggingface_hub import try_to_load_from_cache
from huggingface_hub.errors import HFValidationError

from ...option_checks import checked_keywords
from ..common.locks import lock_folder
from ..common.paths import check_folder
from ..common.printable import printable
from ..common.printing import print_next_step
from ..data.tables import Rows, sources_of
from .encoders import DtypeName, open_encoder, open_reranker
from .index import INDEX_FILE, Index
from .inference import score_pairs, warn_cut
from .reading.passages import Passage, read_passages
from .reading.texts import read_lines

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder, SentenceTransformer

MAX_PASSAGE_WORDS = 150
DEPTH = 50  # passages that a reranker reads for a query, at least


@checked_keywords
def search(
    index: str | PathLike,
    queries: str | Iterable[str] = (),
    *,
    data: str | list[str] | Rows = (),
    model: str | None = None,
    max_length: int | None = None,
    dtype: DtypeName | None = None,
    top_k: int = 5,
    reranker: str | None = None,
) -> list[list[tuple[Passage, float]]]:
    """Build an index over text, or find the passages that are nearest to queries, or both.

    Args:
        index: The folder of the index.
        queries: The queries.
        data: Files and folders to build the index from (txt, md, JSON lines, csv, tsv, parquet); an
            existing index is replaced. Text files are cut into passages of 150 words, or fewer if
            the model reads less.
        model: The embedding model; by default that of the index, for a new index runs/embed.
        max_length: Longest text in a new index, in tokens; longer ones are cut. By default as the
            model was saved.
        dtype: The number format to compute in; by default as the model was saved, but float32 on
            processors that are slow at 16 bits.
        top_k: Number of passages to find for each query.
        reranker: A reranker that orders the 50 nearest passages.

    Returns:
        For each query the passages found (`id`, `text`), each with its cosine, or the reranker's
        score; best first.
    """
    queries = [queries] if isinstance(queries, str) else list(queries)
    sources = sources_of(data)
    if not (queries or sources):
        raise ValueError("queries: none given; to build an index, say from what by --data")
    folder = Path(index).expanduser()
    opened_reranker = open_reranker(reranker) if reranker else None
    if sources:
        check_folder(folder, "index")
        with lock_folder(folder):
            opened_index, encoder = _build_index(folder, sources, model, max_length, dtype)
    else:
        opened_index, encoder = _open_index(folder, model, max_length, dtype)
    if not queries:
        print_next_step("minibert", "search", folder, "QUERY")
        return []
    if opened_reranker is None:
        nearest = opened_index.search(queries, encoder, top_k)
        results = nearest
    else:
        nearest = opened_index.search(queries, encoder, max(DEPTH, top_k))
        results = _reorder_hits(opened_reranker, queries, nearest, top_k)
    for query, hits, hits_by_cosine in zip(queries, results, nearest):
        _print_hits(query, hits, opened_index, fits=opened_index.fits(hits_by_cosine))
    return results


def _build_index(
    folder: Path, sources: list[str], model: str | None, max_length: int | None, dtype: str | None
) -> tuple[Index, SentenceTransformer]:
    """Build an index of files and folders, and save it in `folder`. Returns the index and the model
    that made its vectors."""
    # an index that is built again keeps its model
    if model is None and (folder / INDEX_FILE).is_file():
        model = _model_of_index(folder, Index.load(folder))
    elif model is None:
        model = "runs/embed"
    encoder = open_encoder(model, "dense", max_length=max_length, dtype=dtype)
    fitting_words = max(1, encoder.max_seq_length // 2)
    passages = read_passages(sources, min(MAX_PASSAGE_WORDS, fitting_words))
    # a path that holds wherever the index is used; a Hub name stays
    if Path(model).exists():
        model = str(Path(model).resolve())
    index = Index.build(passages, encoder, model, "Embedding")
    index.save(folder)
    print(f"{folder}: {len(passages):,} passages, {index.vectors.shape[1]} numbers each")
    warn_cut(encoder, [passage.text for passage in passages], "document")
    return index, encoder


def _open_index(
    folder: Path, model: str | None, max_length: int | None, dtype: str | None
) -> tuple[Index, SentenceTransformer]:
    """A saved index, and the model that its queries are read by: by default that of the index."""
    index = Index.load(folder)
    if model is None:
        model = _model_of_index(folder, index)
    encoder = open_encoder(model, "dense", max_length=max_length or index.max_length, dtype=dtype)
    index.check_model(encoder)
    return index, encoder


def _model_of_index(folder: Path, index: Index) -> str:
    """The model that an index names: a folder, or a model of the Hub that is in the cache. A
    ValueError for others: whoever made the index may have named any repository."""
    model = index.model
    if not Path(model).is_dir() and not _is_in_cache(model):
        raise ValueError(
            f"model: the index {printable(folder)} was made by {printable(repr(model))}, which is"
            " not on this machine; give --model with a folder, or with this name if you trust it"
        )
    return model


def _is_in_cache(model: str) -> bool:
    """Whether the cache of the Hub has a model."""
    try:
        return isinstance(try_to_load_from_cache(model, "config.json"), str)
    except HFValidationError:  # it can be no name of the Hub
        return False


def _reorder_hits(
    reranker: CrossEncoder,
    queries: Sequence[str],
    nearest: Sequence[Sequence[tuple[Passage, float]]],
    top_k: int,
) -> list[list[tuple[Passage, float]]]:
    """The `top_k` of the passages found for each query that the reranker scores highest, with these
    scores, best first."""
    results = []
    for query, hits in zip(queries, nearest):
        passages = [passage for passage, _ in hits]
        ranking = rank(reranker, query, [passage.text for passage in passages], top_k)
        results.append([(passages[index], score) for index, score in ranking])
    return results


def _print_hits(
    query: str, hits: Sequence[tuple[Passage, float]], index: Index, fits: bool
) -> None:
    """Print the passages that were found for a query. `fits`: whether any of them does."""
    print(printable(query))
    if not fits:
        print(
            "  Nothing fits: 1 of 20 random pairs of passages is as near"
            f" (cosine {index.random_cosine:.3f})"
        )
    for passage, score in hits:
        print(f"  {score:6.3f}  {printable(passage.id)}\n{_shorten(passage.text)}\n")


@checked_keywords
def rerank(
    query: str,
    passages: str | Iterable[str] = (),
    *,
    file: str | None = None,
    model: str = "runs/rerank",
    top_k: int | None = None,
) -> list[tuple[str, float]]:
    """Order passages by how well they answer a query.

    Args:
        query: The query.
        passages: The passages.
        file: A text file with further passages, one in each line ("-": stdin).
        model: The reranker: a folder or a Hub name.
        top_k: Number of passages to show; by default all.

    Returns:
        (passage, score), best first.
    """
    texts = [passages] if isinstance(passages, str) else list(passages)
    if file is not None:
        texts += read_lines(file)
    texts = [text for text in texts if text.strip()]
    if not texts or not query.strip():
        raise ValueError("passages: give a query, and then passages, or a --file of them")
    ranking = rank(open_reranker(model), query, texts, top_k)
    results = [(texts[index], score) for index, score in ranking]
    print(printable(query))
    for passage, score in results:
        print(f"  {score:6.3f}  {_shorten(passage)}")
    return results


def rank(
    reranker: CrossEncoder, query: str, texts: Sequence[str], top_k: int | None
) -> list[tuple[int, float]]:
    """The indices in `texts` of the `top_k` that answer the query best, the best first, with their
    scores."""
    scores = score_pairs(reranker, [(query, text) for text in texts])
    order = np.argsort(-scores, kind="stable")[:top_k].tolist()
    return [(index, float(scores[index])) for index in order]


def _shorten(text: str) -> str:
    return printable(textwrap.shorten(text, 240, placeholder=" …"))
