"""`minibert search`: an index over text, and what is found in it; `minibert rerank`: given passages in order.

An index is a folder with one file: "vectors" (of length 1, one a passage), "passages" (JSON: the id and the
text of each, in the same order), and in its metadata the model that made them. A query is compared with all vectors by
one matrix product.
"""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file
from sentence_transformers import CrossEncoder
from sentence_transformers.util import semantic_search

from ..files import check_folder, holds_something, lock_folder, printable, whole
from ..loading import reading
from .data import Passage, read_lines, read_passages
from .encoders import DtypeName, Embedder, as_texts, open_reranker, score_pairs

FILE = "index.safetensors"


@dataclasses.dataclass
class Index:
    """Passages, their vectors, and the model that made these."""

    passages: list[Passage]
    vectors: np.ndarray  # [passages, width], each of length 1
    model: str  # where it was
    fingerprint: str  # what it is known by
    max_length: int  # where it cut texts off, in tokens

    @classmethod
    def build(cls, passages: list[Passage], embedder: Embedder, model: str, progress: str | None = None) -> Index:
        """Embed passages, each text once."""
        row_of = {text: row for row, text in enumerate(dict.fromkeys(passage.text for passage in passages))}
        vectors = embedder.embed(list(row_of), progress=progress, task="document")
        vectors /= np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
        vectors = vectors[[row_of[passage.text] for passage in passages]]
        return cls(passages, vectors, model, embedder.fingerprint(), embedder.model.max_seq_length)

    @classmethod
    def load(cls, folder: str | Path) -> Index:
        """Read an index; a ValueError if there is none, or its file is damaged."""
        file = Path(folder, FILE)
        if not file.is_file():
            raise ValueError(f"index: {str(folder)!r} has no {FILE}; build one in a new folder by --data")
        with reading(file), safe_open(file, "np") as saved:
            passages = [Passage(*row) for row in json.loads(saved.get_tensor("passages").tobytes())]
            made_by = saved.metadata()
            vectors, length = saved.get_tensor("vectors"), int(made_by["max_length"])
            index = cls(passages, vectors, made_by["model"], made_by["fingerprint"], length)
        if index.vectors.shape[:-1] != (len(passages),) or not np.isfinite(index.vectors).all():
            shape = f"vectors of shape {list(index.vectors.shape)} for {len(passages):,} passages"
            raise ValueError(f"index: {str(file)!r} is damaged ({shape}, or NaN among them); build it again")
        return index

    def save(self, folder: str | Path) -> None:
        """Write the index, in the place of the one that is there, if any."""
        passages = json.dumps([(passage.id, passage.text) for passage in self.passages]).encode()
        tensors = {"vectors": self.vectors, "passages": np.frombuffer(passages, np.uint8)}
        with whole(Path(folder, FILE)) as unfinished:
            made_by = {"model": self.model, "fingerprint": self.fingerprint, "max_length": str(self.max_length)}
            save_file(tensors, unfinished, metadata=made_by)

    def search(self, queries: Sequence[str], embedder: Embedder, k: int = 10) -> list[list[tuple[Passage, float]]]:
        """The `k` passages of highest cosine for every query, with the cosines, best first."""
        vectors = embedder.embed(queries, task="query")
        if vectors.shape[1] != self.vectors.shape[1]:
            widths = f"{self.vectors.shape[1]} numbers, the model gives {vectors.shape[1]}"
            raise ValueError(f"index: it is damaged: its vectors have {widths}; build it again")
        found = semantic_search(vectors, self.vectors, top_k=k)
        return [[(self.passages[hit["corpus_id"]], hit["score"]) for hit in hits] for hits in found]


def search(
    index: str | PathLike,
    queries: str | Iterable[str] = (),
    *,
    data: str | list[str] = (),
    model: str | None = None,
    passage_words: int = 150,
    max_length: int | None = None,
    dtype: DtypeName | None = None,
    top_k: int = 5,
    reranker: str | None = None,
    depth: int = 50,
) -> list[list[tuple[Passage, float]]]:
    """Build an index over text, or find the passages that are nearest to queries, or both.

    Args:
        index: The folder of the index.
        queries: The queries.
        data: Folders and files to build the index of (txt, md, JSON lines, csv, tsv, parquet). It replaces one that is
            there.
        model: The embedding model; by default the one that the index was built with, for a new one runs/embed.
        passage_words: Longest passage cut from a text file, in words; of Chinese, Thai and the like, two letters count
            as one.
        max_length: Cut texts off after this many tokens, in a new index; by default as the model was saved.
        dtype: What to compute in; by default as the model was saved, float32 where the processor is slow in 16 bits.
        top_k: Passages found for a query.
        reranker: A reranker that puts the passages found in order.
        depth: Passages that the reranker reads for a query.

    Returns:
        For each query the passages found (`id`, `text`), each with its cosine, or the reranker's score; best first.

    Raises:
        ValueError: there is no index, nothing to do, an index of another model, or a folder that holds something else.
    """
    queries = as_texts(queries, "queries")
    data = [data] if isinstance(data, (str, Path)) else list(data)
    if not (queries or data):
        raise ValueError("queries: none given; to build an index, say from what by --data")
    if not all(map(str.strip, queries)):
        raise ValueError("queries: one is empty; give some words")
    root = Path(index).expanduser()
    opened = open_reranker(reranker) if reranker else None
    if data:
        found, embedder = _build(root, data, passage_words, model, max_length, dtype)
    else:
        found = Index.load(root)
        embedder = Embedder.from_pretrained(
            model or found.model, max_length=max_length or found.max_length, dtype=dtype
        )
        if (fingerprint := embedder.fingerprint()) != found.fingerprint:
            makers = f"{found.model!r} ({found.fingerprint[:8]}) with max_length={found.max_length}"
            given = f"{model or found.model!r} ({fingerprint[:8]})"
            raise ValueError(
                f"index: its vectors were made by {makers}, not by {given}; build a new index for another model, or"
                " version"
            )
    if not queries:
        return []
    results = found.search(queries, embedder, max(depth, top_k) if opened else top_k)
    for number, (query, hits) in enumerate(zip(queries, results)):
        if opened:
            ranked = rank(opened, query, [passage.text for passage, _ in hits], top_k)
            results[number] = [(hits[place][0], score) for place, score in ranked]
        print(printable(query))
        for passage, score in results[number]:
            print(f"  {score:6.3f}  {printable(passage.id)}\n{_shorten(passage.text)}\n")
    return results


def _build(
    root: Path, data: list[str], passage_words: int, model: str | None, max_length: int | None, dtype: str | None
) -> tuple[Index, Embedder]:
    """Build and save an index in a new folder, or one that holds an index."""
    check_folder(root, "index")
    there = (root / FILE).is_file()
    if root.exists() and not there and holds_something(root):
        raise ValueError(f"index: {str(root)!r} exists and is no index; give a new folder")
    passages = read_passages(data, passage_words)
    model = model or (Index.load(root).model if there else "runs/embed")
    embedder = Embedder.from_pretrained(model, max_length=max_length, dtype=dtype)
    # a path that holds wherever the index is used; a Hub name stays
    place = str(Path(model).resolve()) if Path(model).exists() else model
    with lock_folder(root):
        index = Index.build(passages, embedder, place, "Embedding")
        index.save(root)
    print(f"{root}: {len(passages):,} passages, {index.vectors.shape[1]} numbers each")
    if cut := embedder.count_cut([passage.text for passage in passages]):
        read = f"the {embedder.model.max_seq_length} tokens that the model reads of a text"
        print(f"{cut:,} of them are longer than {read}; use shorter rows, or a smaller --passage_words")
    return index, embedder


def rank(reranker: CrossEncoder, query: str, texts: Sequence[str], top_k: int | None) -> list[tuple[int, float]]:
    """The places in `texts` of the `top_k` that answer the query best, the best first, with their scores."""
    scores = score_pairs(reranker, [(query, text) for text in texts])
    return [(int(place), float(scores[place])) for place in np.argsort(-scores, kind="stable")[:top_k]]


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
        file: Text file of further passages, one a line ("-": stdin).
        model: The reranker: a folder or a Hub name.
        top_k: Passages shown; by default all.

    Returns:
        (passage, score), best first.

    Raises:
        ValueError: no query, no passage, or a model that is no reranker.
    """
    if not query.strip():
        raise ValueError("query: it is empty")
    texts = as_texts(passages, "passages") + (read_lines(file) if file is not None else [])
    texts = [passage for passage in texts if passage.strip()]
    if not texts:
        raise ValueError("passages: none given; give the query, then passages, or a --file of them")
    results = [(texts[place], score) for place, score in rank(open_reranker(model), query, texts, top_k)]
    print(printable(query))
    for passage, score in results:
        print(f"  {score:6.3f}  {_shorten(passage)}")
    return results


def _shorten(text: str) -> str:
    return printable(textwrap.shorten(text, 240, placeholder=" …"))
