"""`minibert search`: an index over text, and what is found in it; `minibert rerank`: given passages in order.

An index is a folder with one file: "vectors" (of length 1, one a passage), "passages" (JSON: the id and the
text of each, in the same order), and in its metadata the model that made them. A query is compared with all vectors by
one matrix product.
"""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file
from sentence_transformers import CrossEncoder
from sentence_transformers.util import semantic_search

from ..arguments import check_least
from ..arguments.embeddings import RerankArguments, SearchArguments
from ..files import check_folder, holds_something, lock_folder, whole
from ..loading import reading
from .data import Passage, read_lines, read_passages
from .encoders import Embedder, loading_options, open_reranker, score_pairs

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
            advice = "build one in a new folder by --data"
            raise ValueError(f"index: {str(folder)!r} has no {FILE} (older versions had others); {advice}")
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


def search(arguments: SearchArguments) -> list[list[tuple[Passage, float]]]:
    """Build an index, if there is data for it (in the place of the one that is there, if any); then answer the queries:
    for each the passages found with their scores, best first, `top_k` of them. A ValueError for no index, nothing to
    do, an index of another model, or a folder that holds something else."""
    if not arguments.words:
        raise ValueError("index: none given; give the index (a folder), then queries")
    folder, *queries = arguments.words
    if not (queries or arguments.data):
        raise ValueError("queries: none given; to build an index, say from what by --data")
    check_least(arguments, top_k=1, depth=1, passage_words=1)
    if not all(query.strip() for query in queries):
        raise ValueError("queries: one is empty; give some words")
    root = Path(folder).expanduser()
    reranker = open_reranker(arguments.reranker) if arguments.reranker else None
    if arguments.data:
        index, embedder = _build(root, arguments)
    else:
        index = Index.load(root)
        embedder = _open_embedder(arguments.model or index.model, arguments, index.max_length)
        if (fingerprint := embedder.fingerprint()) != index.fingerprint:
            given = f"{arguments.model or index.model!r} ({fingerprint[:8]})"
            makers = f"{index.model!r} ({index.fingerprint[:8]}) with max_length={index.max_length}, not by {given}"
            raise ValueError(
                f"index: its vectors were made by {makers}; build a new index for another model, or version"
            )
    depth = max(arguments.depth, arguments.top_k) if reranker else arguments.top_k
    results = index.search(queries, embedder, depth) if queries else []
    for number, (query, found) in enumerate(zip(queries, results)):
        if reranker:
            ranked = rank(reranker, query, [passage.text for passage, _ in found], arguments.top_k)
            results[number] = [(found[place][0], score) for place, score in ranked]
        print(query)
        for passage, score in results[number]:
            print(f"  {score:6.3f}  {passage.id}\n{textwrap.shorten(passage.text, 240, placeholder=' …')}\n")
    return results


def _build(root: Path, arguments: SearchArguments) -> tuple[Index, Embedder]:
    """Build and save an index in a new folder, or one that holds an index."""
    check_folder(root, "index")
    if root.exists() and not (root / FILE).is_file() and holds_something(root):
        raise ValueError(f"index: {str(root)!r} exists and is no index; give a new folder")
    passages = read_passages(arguments.data, arguments.passage_words)
    model = arguments.model or (Index.load(root).model if (root / FILE).is_file() else "runs/embed")
    embedder = _open_embedder(model, arguments)
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


def _open_embedder(model: str, arguments: SearchArguments, max_length: int | None = None) -> Embedder:
    length = arguments.max_length or max_length
    return Embedder.from_pretrained(model, None, None, length, **loading_options(arguments.dtype))


def rank(reranker: CrossEncoder, query: str, texts: Sequence[str], top_k: int | None) -> list[tuple[int, float]]:
    """The places in `texts` of the `top_k` that answer the query best, the best first, with their scores."""
    scores = score_pairs(reranker, [(query, text) for text in texts])
    return [(int(place), float(scores[place])) for place in np.argsort(-scores, kind="stable")[:top_k]]


def rerank(arguments: RerankArguments) -> list[tuple[str, float]]:
    """Print passages in the order of how well they answer a query: (passage, score), best first, `top_k` of them; a
    ValueError for no query, no passage, or a model that is no reranker."""
    if not arguments.words or not arguments.words[0].strip():
        raise ValueError("query: none given; give the query, then passages")
    check_least(arguments, top_k=1)
    query, *passages = arguments.words
    passages += read_lines(arguments.file) if arguments.file is not None else []
    passages = [passage for passage in passages if passage.strip()]
    if not passages:
        raise ValueError("passages: none given; give the query, then passages, or a --file of them")
    ranked = rank(open_reranker(arguments.model), query, passages, arguments.top_k)
    results = [(passages[place], score) for place, score in ranked]
    print(query)
    for passage, score in results:
        print(f"  {score:6.3f}  {textwrap.shorten(passage, 240, placeholder=' …')}")
    return results
