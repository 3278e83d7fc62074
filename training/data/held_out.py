"""Which documents are held out: those with the smallest hashes of their text."""

import hashlib
import math
from collections.abc import Iterable

import datasets
import numpy as np
import pyarrow as pa

from .tables import map_tables


def hold_out(
    documents: datasets.Dataset, validation_size: float | int, seed: int = 0
) -> np.ndarray:
    """Choose the documents (column `text`, or else `input_ids`) to validate on: bool [documents].

    The choice depends on the content of a document and the seed only, so that equal documents are
    never on both sides. `validation_size` is a share (below 1) or a number of documents; at least
    one is held out.
    """
    if not 0 < validation_size < math.inf:
        use = "use a share below 1, or a number of documents"
        raise ValueError(f"validation_size must be positive, got {validation_size}; {use}")
    target = max(
        1, round(validation_size * len(documents) if validation_size < 1 else validation_size)
    )
    column = "text" if "text" in documents.column_names else "input_ids"
    batches = documents.with_format("arrow").select_columns(column).iter(batch_size=1000)
    digests = np.concatenate(
        [text_digests(map(str, batch[column].to_pylist()), seed) for batch in batches]
    )
    # ascending: a random order of the distinct documents
    values, counts = np.unique(digests, return_counts=True)
    held_out = values[: np.searchsorted(np.cumsum(counts), target) + 1]
    if len(held_out) == len(values):
        texts = f"{len(documents)} documents ({len(values)} different ones)"
        raise ValueError(
            f"validation_size: {validation_size} of {texts} leaves none to train on; use less, or"
            " more data"
        )
    return np.isin(digests, held_out)


def text_digests(texts: Iterable[str], seed: int) -> np.ndarray:
    """A 64-bit hash of every text, keyed by the seed: uint64 [texts]."""
    key = str(seed).encode()
    digests = (hashlib.blake2b(text.encode(), digest_size=8, key=key).digest() for text in texts)
    return np.frombuffer(b"".join(digests), dtype="<u8")


def split_stream(
    stream: datasets.IterableDataset, validation_size: float, seed: int
) -> tuple[datasets.IterableDataset, datasets.IterableDataset]:
    """Split a stream into the documents to train on and those held out, each in the order of
    `stream`.

    A document is held out if the hash of its text (and the seed) is below the share
    `validation_size`. These are the documents that `documents.hold_out` takes, except for a few at
    the border, since a stream cannot be counted.
    """
    if not 0 < validation_size < 1:
        raise ValueError(
            f"validation_size of a stream must be a share between 0 and 1, got {validation_size}"
        )
    options = dict(desc="Splitting", batch_size=1000, share=validation_size, seed=seed)
    return tuple(
        map_tables(stream, _one_side, held_out=held_out, **options) for held_out in (False, True)
    )


def _one_side(table: pa.Table, share: float, seed: int, held_out: bool) -> pa.Table:
    is_held_out = text_digests(table["text"].to_pylist(), seed) < np.uint64(share * 2.0**64)
    return table.filter(pa.array(is_held_out == held_out))
