"""An index over passages: their vectors, which a query is compared with by one matrix product.

It is a folder with one file: "vectors" (of length 1, one a passage), "passages" (JSON: the id and
the text of each, in the same order), and in its metadata the model that made them and the cosine
that random passages reach.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from ..common.files import atomic_write
from ..loading.load_errors import wrap_load_errors
from .inference import encode
from .reading.passages import Passage

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

INDEX_FILE = "index.safetensors"
NUM_CHECKED = 8  # passages by whose vectors a model is known to be that of an index
MIN_COSINE = 0.999  # of their vectors with those of the index; in 16 bits it is above
# Random pairs of passages, of which the index keeps the cosine that the nearest 5 % reach. A query
# whose best passage is no nearer fits none.
NUM_RANDOM_PAIRS = 4000
RANDOM_QUANTILE = 0.95
MIN_PASSAGES = 20  # with fewer, hardly any pair is of two subjects


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
        vectors = encode(encoder, [passage.text for passage in passages], "document", bar_title)
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
