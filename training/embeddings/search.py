"""`minibert search`: an index over text, and what is found in it; `minibert rerank`: given passages
in order.

An index is a folder with one file: "vectors" (of length 1, one a passage), "passages" (JSON: the id
and the text of each, in the same order), and in its metadata the model that made them and the
cosine that random passages reach. A query is compared with all vectors by one matrix product.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from ...option_checks import checked_keywords
from ..common.files import atomic_write, printable
from ..common.locks import lock_folder
from ..common.paths import check_folder
from ..common.printing import print_next_step
from ..data.tables import Rows, sources_of
from ..loading.load_errors import wrap_load_errors
from .encoders import DtypeName, encode, open_encoder, open_reranker, score_pairs, warn_cut
from .reading.passages import Passage, read_passages
from .reading.texts import read_lines

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder, SentenceTransformer

INDEX_FILE = "index.safetensors"
NUM_CHECKED = 8  # passages by whose vectors a model is known to be that of an index
MIN_COSINE = 0.999  # of their vectors with those of the index; in 16 bits it is above
MAX_PASSAGE_WORDS = 150
# Random pairs of passages, of which the index keeps the cosine that the nearest 5 % reach. A query
# whose best passage is no nearer fits none.
NUM_RANDOM_PAIRS = 4000
RANDOM_QUANTILE = 0.95
MIN_PASSAGES = 20  # with fewer, hardly any pair is of two subjects
DEPTH = 50  # passages that a reranker reads for a query, at least


@dataclass
class Index:
    """Passages, their vectors, and the model that made these."""

    passages: list[Passage]
    vectors: np.ndarray  # [passages, width], each of length 1
    model: str  # where it was
    max_length: int  # where it cut texts off, in tokens
    random_cosine: float | None = None  # see `cosine_of_random_pairs`; None in old or small indexes

    @classmethod
    def build(
        cls,
        passages: list[Passage],
        encoder: SentenceTransformer,
        model: str,
        bar_title: str | None = None,
    ) -> Index:
        vectors = encode(encoder, _texts_of(passages), "document", bar_title)
        lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
        if not lengths.all():
            first = passages[int(lengths.argmin())]
            raise ValueError(
                f"model: its vector of the passage {first.id!r} is zero, which no query can be near"
                " to"
            )
        vectors = vectors / lengths
        random_cosine = cosine_of_random_pairs(vectors)
        return cls(passages, vectors, model, encoder.max_seq_length, random_cosine)

    @classmethod
    def load(cls, folder: str | Path) -> Index:
        """Read an index; a ValueError if there is none, or its file is damaged."""
        file = Path(folder, INDEX_FILE)
        if not file.is_file():
            raise ValueError(
                f"index: {str(folder)!r} has no {INDEX_FILE}; build one in a new folder by --data"
            )
        with wrap_load_errors(file), safe_open(file, "np") as saved:
            rows = json.loads(saved.get_tensor("passages").tobytes())
            passages = [Passage(*row) for row in rows]
            vectors = saved.get_tensor("vectors")
            metadata = saved.metadata()
            index = cls(passages, vectors, metadata["model"], int(metadata["max_length"]))
            if "random_cosine" in metadata:
                index.random_cosine = float(metadata["random_cosine"])
        damage = index.find_damage()
        if damage:
            raise ValueError(f"index: {str(file)!r} is damaged: {damage}; build it again by --data")
        return index

    def find_damage(self) -> str | None:
        """Say why this cannot be an index that `build` made; None if it can. Another check of the
        file goes here; whether a model fits an index, `check_model` says."""
        if self.vectors.ndim != 2 or self.vectors.dtype != np.float32:
            return f"its vectors are {self.vectors.dtype} of the shape {self.vectors.shape}"
        if len(self.vectors) != len(self.passages):
            return f"it has {len(self.vectors):,} vectors for {len(self.passages):,} passages"
        lengths = np.linalg.norm(self.vectors, axis=-1)
        is_wrong = ~(np.abs(lengths - 1) < 1e-3)  # of NaN, too
        if is_wrong.any():
            first = int(is_wrong.argmax())
            return f"vector {first + 1} has the length {lengths[first]:.4g} instead of 1"
        for number, passage in enumerate(self.passages, 1):
            if not isinstance(passage.id, str) or not isinstance(passage.text, str):
                return f"passage {number} is not text"
        return None

    def save(self, folder: str | Path) -> None:
        """Write the index, in the place of the one that is there, if any."""
        rows = [(passage.id, passage.text) for passage in self.passages]
        passages = np.frombuffer(json.dumps(rows).encode(), np.uint8)
        tensors = {"vectors": self.vectors, "passages": passages}
        with atomic_write(Path(folder, INDEX_FILE)) as unfinished:
            metadata = {"model": self.model, "max_length": str(self.max_length)}
            if self.random_cosine is not None:
                metadata["random_cosine"] = str(self.random_cosine)
            save_file(tensors, unfinished, metadata)

    def check_model(self, encoder: SentenceTransformer) -> None:
        """Refuse (a ValueError) a model that gives the first passages other vectors than the index
        has."""
        saved_vectors = self.vectors[:NUM_CHECKED]
        vectors = Index.build(self.passages[:NUM_CHECKED], encoder, "").vectors
        is_same = False
        if vectors.shape == saved_vectors.shape:
            cosines = (vectors * saved_vectors).sum(axis=1)
            is_same = cosines.min() > MIN_COSINE
        if not is_same:
            raise ValueError(
                f"index: its vectors were made by {self.model!r} (with"
                f" max_length={self.max_length}), as it was then; build it again for another model"
                " by --data"
            )

    def search(
        self, queries: Sequence[str], encoder: SentenceTransformer, k: int
    ) -> list[list[tuple[Passage, float]]]:
        """The `k` passages of highest cosine for every query, with the cosines, best first."""
        from sentence_transformers.util import semantic_search

        query_vectors = encode(encoder, queries, "query")
        results = []
        for hits in semantic_search(query_vectors, self.vectors, top_k=k):
            passages = []
            for hit in hits:
                passages.append((self.passages[hit["corpus_id"]], hit["score"]))
            results.append(passages)
        return results

    def fits(self, hits: Sequence[tuple[Passage, float]]) -> bool:
        """Whether the passages found for a query are nearer to it than random passages are to each
        other; true if nothing is known of those."""
        if self.random_cosine is None or not hits:
            return True
        return max(cosine for _, cosine in hits) > self.random_cosine


def cosine_of_random_pairs(vectors: np.ndarray) -> float | None:
    """The cosine that 5 % of random pairs of passages reach; None for a few passages.

    Args:
        vectors: [passages, width], each of length 1.
    """
    count = len(vectors)
    if count < MIN_PASSAGES:
        return None
    generator = np.random.default_rng(0)
    first = generator.integers(count, size=NUM_RANDOM_PAIRS)
    distance = generator.integers(1, count, size=NUM_RANDOM_PAIRS)
    second = (first + distance) % count  # another one
    cosines = (vectors[first] * vectors[second]).sum(axis=1)
    return float(np.quantile(cosines, RANDOM_QUANTILE))


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
    root = Path(index).expanduser()
    opened_reranker = open_reranker(reranker) if reranker else None
    if sources:
        check_folder(root, "index")
        with lock_folder(root):
            opened_index, encoder = _build_index(root, sources, model, max_length, dtype)
    else:
        opened_index = Index.load(root)
        path = model or opened_index.model
        max_length = max_length or opened_index.max_length
        encoder = open_encoder(path, "dense", max_length=max_length, dtype=dtype)
        opened_index.check_model(encoder)
    if not queries:
        print_next_step("minibert", "search", root, "QUERY")
        return []
    depth = top_k
    if opened_reranker is not None:
        depth = max(DEPTH, top_k)
    nearest = opened_index.search(queries, encoder, depth)
    results = nearest
    if opened_reranker is not None:
        results = _reorder_hits(opened_reranker, queries, nearest, top_k)
    for query, hits, hits_by_cosine in zip(queries, results, nearest):
        print(printable(query))
        if not opened_index.fits(hits_by_cosine):
            print(
                "  Nothing fits: 1 of 20 random pairs of passages is as near"
                f" (cosine {opened_index.random_cosine:.3f})"
            )
        for passage, score in hits:
            print(f"  {score:6.3f}  {printable(passage.id)}\n{_shorten(passage.text)}\n")
    return results


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
        ranking = rank(reranker, query, _texts_of(passages), top_k)
        results.append([(passages[index], score) for index, score in ranking])
    return results


def _build_index(
    root: Path, sources: list[str], model: str | None, max_length: int | None, dtype: str | None
) -> tuple[Index, SentenceTransformer]:
    """Build an index of files and folders, and save it in the folder `root`. Returns the index and
    the model that made its vectors."""
    # an index that is built again keeps its model
    if model is None and (root / INDEX_FILE).is_file():
        model = Index.load(root).model
    elif model is None:
        model = "runs/embed"
    encoder = open_encoder(model, "dense", max_length=max_length, dtype=dtype)
    fitting_words = max(1, encoder.max_seq_length // 2)
    passages = read_passages(sources, min(MAX_PASSAGE_WORDS, fitting_words))
    # a path that holds wherever the index is used; a Hub name stays
    if Path(model).exists():
        model = str(Path(model).resolve())
    index = Index.build(passages, encoder, model, "Embedding")
    index.save(root)
    print(f"{root}: {len(passages):,} passages, {index.vectors.shape[1]} numbers each")
    warn_cut(encoder, _texts_of(passages))
    return index, encoder


def _texts_of(passages: Iterable[Passage]) -> list[str]:
    return [passage.text for passage in passages]


def rank(
    reranker: CrossEncoder, query: str, texts: Sequence[str], top_k: int | None
) -> list[tuple[int, float]]:
    """The indices in `texts` of the `top_k` that answer the query best, the best first, with their
    scores."""
    scores = score_pairs(reranker, [(query, text) for text in texts])
    order = np.argsort(-scores, kind="stable")[:top_k].tolist()
    return [(index, float(scores[index])) for index in order]


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


def _shorten(text: str) -> str:
    return printable(textwrap.shorten(text, 240, placeholder=" …"))
