"""Which documents are held out: those with the smallest hashes of their text.

`held_out_mask` decides for a data set, `split_stream` for a stream, whose documents cannot be
counted.
"""

import hashlib
import math
from collections.abc import Iterable

import datasets
import numpy as np
import pyarrow as pa

from .dataset_calls import map_tables


def held_out_mask(
    documents: datasets.Dataset, validation_size: float | int, seed: int = 0
) -> np.ndarray:
    """Choose the documents (column `text`, or else `input_ids`) to validate on: bool [documents].

    The choice depends on the content of a document and the seed only, so that equal documents are
    never on both sides. `validation_size` is a share (below 1) or a number of documents; at least
    one is held out.
    """
    if not 0 < validation_size < math.inf:
        raise ValueError(
            f"validation_size must be positive, got {validation_size}; use a share below 1, or a"
            " number of documents"
        )
    target = validation_size
    if validation_size < 1:
        target = validation_size * len(documents)
    target = max(1, round(target))
    digests = _digests_of(documents, seed)
    # Digests in ascending order are a random order of the different documents.
    distinct, counts = np.unique(digests, return_counts=True)
    held_out = distinct[: np.searchsorted(np.cumsum(counts), target) + 1]
    if len(held_out) == len(distinct):
        raise ValueError(
            f"validation_size: {validation_size} of {len(documents)} documents ({len(distinct)}"
            " different ones) leaves none to train on; use less, or more data"
        )
    return np.isin(digests, held_out)


def _digests_of(documents: datasets.Dataset, seed: int) -> np.ndarray:
    """The digests of all documents, by their text or, without it, by their token ids."""
    column = "input_ids"
    if "text" in documents.column_names:
        column = "text"
    digests = []
    for batch in documents.with_format("arrow").select_columns(column).iter(batch_size=1000):
        digests.append(text_digests(map(str, batch[column].to_pylist()), seed))
    return np.concatenate(digests)


def text_digests(texts: Iterable[str], seed: int) -> np.ndarray:
    """A 64-bit hash of every text, keyed by the seed: uint64 [texts]."""
    key = str(seed).encode()
    digests = bytearray()
    for text in texts:
        digests += hashlib.blake2b(text.encode(), digest_size=8, key=key).digest()
    return np.frombuffer(bytes(digests), dtype="<u8")


def split_stream(
    stream: datasets.IterableDataset, validation_size: float, seed: int
) -> tuple[datasets.IterableDataset, datasets.IterableDataset]:
    """Split a stream into the documents to train on and those held out, each in the order of
    `stream`.

    A document is held out if the hash of its text (and the seed) is below the share
    `validation_size`. These are the documents that `held_out_mask` takes, except for a few at the
    border, since a stream cannot be counted.
    """
    if not 0 < validation_size < 1:
        raise ValueError(
            f"validation_size of a stream must be a share between 0 and 1, got {validation_size}"
        )
    options = dict(desc="Splitting", batch_size=1000, share=validation_size, seed=seed)
    train = map_tables(stream, _one_side, held_out=False, **options)
    validation = map_tables(stream, _one_side, held_out=True, **options)
    return train, validation


def _one_side(table: pa.Table, share: float, seed: int, held_out: bool) -> pa.Table:
    is_held_out = text_digests(table["text"].to_pylist(), seed) < np.uint64(share * 2.0**64)
    return table.filter(pa.array(is_held_out == held_out))
