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
from .encoders import Embedder, open_reranker, score_pairs

FILE = "index.safetensors"


@dataclasses.dataclass
class Index:
    """Passages, their vectors, and the model that made these."""

    passages: list[Passage]
    vectors: np.ndarray  # [passages, width], each of length 1
    model: str  # where it was
    fingerprint: str  # what it is known by

    @classmethod
    def build(
        cls, passages: list[Passage], embedder: Embedder, model: str, known: Index | None = None, bar: str | None = None
    ) -> Index:
        """The index of `passages`; those whose text `known`, of the same model, has are not embedded again."""
        old = dict(zip((passage.text for passage in known.passages), known.vectors)) if known else {}
        new = list(dict.fromkeys(passage.text for passage in passages if passage.text not in old))
        if new:
            vectors = embedder.embed(new, progress=bar, task="document")
            old |= dict(zip(new, vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)))
        return cls(passages, np.stack([old[passage.text] for passage in passages]), model, embedder.fingerprint())

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
            return cls(passages, saved.get_tensor("vectors"), made_by["model"], made_by["fingerprint"])

    def save(self, folder: str | Path) -> None:
        """Write the index, in the place of the one that is there, if any."""
        passages = json.dumps([(passage.id, passage.text) for passage in self.passages]).encode()
        tensors = {"vectors": self.vectors, "passages": np.frombuffer(passages, np.uint8)}
        with whole(Path(folder, FILE)) as unfinished:
            save_file(tensors, unfinished, metadata={"model": self.model, "fingerprint": self.fingerprint})

    def search(self, queries: Sequence[str], embedder: Embedder, k: int = 10) -> list[list[tuple[Passage, float]]]:
        """The `k` passages of highest cosine for every query, with the cosines, best first."""
        found = semantic_search(embedder.embed(queries, task="query"), self.vectors, top_k=k)
        return [[(self.passages[hit["corpus_id"]], hit["score"]) for hit in hits] for hits in found]


def search(arguments: SearchArguments) -> list[list[tuple[Passage, float]]]:
    """Build an index or bring it up to date, if there is data for it; then answer the queries: for each the passages
    found with their scores, best first, `top_k` of them. A ValueError for no index, nothing to do, an index of another
    model, or a folder that holds something else."""
    if not arguments.words:
        raise ValueError("index: none given; give the index (a folder), then queries")
    folder, *queries = arguments.words
    if not (queries or arguments.data):
        raise ValueError("queries: none given; to build an index, say from what by --data")
    check_least(arguments, top_k=1, depth=1, passage_words=1)
    if not all(query.strip() for query in queries):
        raise ValueError("queries: one is empty; give some words")
    root = Path(folder).expanduser()
    there = (root / FILE).is_file()
    if arguments.data:
        check_folder(root, "index")
        if not there and root.exists() and holds_something(root):
            raise ValueError(f"index: {folder!r} exists and is no index; give a new folder")
    index = Index.load(root) if there or not arguments.data else None
    model = arguments.model or (index.model if index else "runs/embed")
    passages = read_passages(arguments.data, arguments.passage_words) if arguments.data else None
    reranker = open_reranker(arguments.reranker) if arguments.reranker else None
    embedder = Embedder.from_pretrained(model)
    fingerprint = embedder.fingerprint()
    if index and fingerprint != index.fingerprint:
        makers = f"{index.model!r} ({index.fingerprint[:8]}), not by {model!r} ({fingerprint[:8]})"
        raise ValueError(f"index: its vectors were made by {makers}; build a new index for another model, or version")

    if passages is not None:
        before = {passage.text for passage in index.passages} if index else set()
        # a path that holds wherever the index is used; a Hub name stays
        place = str(Path(model).resolve()) if Path(model).exists() else model
        with lock_folder(root):
            index = Index.build(passages, embedder, place, index, "Embedding")
            index.save(root)
        new = [passage.text for passage in passages if passage.text not in before]
        print(f"{folder}: {len(passages):,} passages, {len(new):,} of them new, {index.vectors.shape[1]} numbers each")
        if cut := embedder.count_cut(new):
            read = f"the {embedder.model.max_seq_length} tokens that the model reads of a text"
            print(f"{cut:,} of the new ones are longer than {read}; use shorter rows, or a smaller --passage_words")
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
