"""Make rows for training from tokenized documents.

A row has `input_ids` and `position_ids`, lists of integers of the same length, at most
`seq_length`. Each document in it is framed as `[CLS] … [SEP]`, and `position_ids` restart at 0 with
every document: they are the only record of where documents begin. Batches carry the same bounds as
`cu_seq_lens_q`.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from transformers import PreTrainedTokenizerBase

from ...tokenization import special_ids
from .tables import map_tables
from .tokenized import smallest_dtype

MODES = ("packed", "padded")

# The number of documents packed together. The last rows of a window are not full; larger windows
# have fewer of these.
WINDOW = 4096


def pack_documents(
    tokenized: datasets.Dataset,
    tokenizer: PreTrainedTokenizerBase,
    seq_length: int,
    mode: str = "packed",
) -> datasets.Dataset:
    """Pack documents into rows of `input_ids` and `position_ids`.

    Args:
        tokenized: whole documents without special tokens, from `tokenize_documents`. Empty ones are
            dropped.
        tokenizer: a fast tokenizer with [CLS] and [SEP].
        seq_length: the largest number of tokens of a row. Only longer documents are cut; each piece
            is then framed as a document.
        mode: "packed": several documents a row, by best-fit decreasing over a window of documents
            (Johnson 1974), in the order of the corpus as far as that allows. "padded": one
            document, or one piece, a row.
    """
    check_packing(mode, seq_length)
    # in one process: each of several would start its own windows
    return map_tables(
        tokenized,
        pack_table,
        desc="Packing",
        batch_size=WINDOW,
        mode=mode,
        seq_length=seq_length,
        **special_ids(tokenizer),
    )


def check_packing(mode: str, seq_length: int) -> None:
    """Refuse (a ValueError) an unknown mode, and a `seq_length` with no room for a token."""
    if mode not in MODES:
        raise ValueError(f"packing: {mode!r} is unknown; use one of {', '.join(MODES)}")
    if seq_length < 3:
        raise ValueError(
            f"seq_length must be at least 3 ([CLS], one token, [SEP]), got {seq_length}"
        )


def fill_rate(rows: datasets.Dataset, seq_length: int) -> float:
    """The share of the `len(rows)` × `seq_length` places that hold a token, between 0 and 1."""
    batches = rows.with_format("arrow").select_columns("input_ids").iter(batch_size=10_000)
    tokens = sum(pc.sum(pc.list_value_length(batch["input_ids"])).as_py() for batch in batches)
    return tokens / (len(rows) * seq_length)


def unigram_counts(rows: datasets.Dataset, vocab_size: int) -> np.ndarray:
    """Count each id in the column `input_ids` of `rows`: int64 [vocab_size]."""
    counts = np.zeros(vocab_size, dtype=np.int64)
    for table in rows.select_columns("input_ids").with_format("arrow").iter(1000):
        ids = table["input_ids"].combine_chunks().flatten().to_numpy()
        counts += np.bincount(ids, minlength=vocab_size)
    return counts


def best_fit_decreasing(lengths: np.ndarray, capacity: int) -> np.ndarray:
    """Put pieces of these lengths, int [pieces], into rows of `capacity`: the longest first, each
    into the fullest row with room for it. Returns the row of each piece, int [pieces]; rows are
    numbered in the order of their first pieces.
    """
    rows = np.empty(len(lengths), dtype=np.int64)
    num_rows = 0
    # rows with room, sorted: places left, minus the step of the last piece, row number
    free_rows: list[tuple[int, int, int]] = []
    pieces = np.argsort(-lengths, kind="stable")
    for step, (piece, length) in enumerate(zip(pieces.tolist(), lengths[pieces].tolist())):
        fullest = bisect_left(free_rows, (length,))
        if fullest == len(free_rows):
            free_rows.append((capacity, 0, num_rows))
            num_rows += 1
        num_places, _, row = free_rows.pop(fullest)
        rows[piece] = row
        if num_places > length:
            insort(free_rows, (num_places - length, -step, row))

    # a row is numbered by the rank of its first piece
    _, first_piece = np.unique(rows, return_index=True)
    return np.argsort(np.argsort(first_piece))[rows]


def pack_table(
    table: pa.Table, mode: str, seq_length: int, cls_token_id: int, sep_token_id: int
) -> pa.Table:
    """Pack one window of documents, on flat arrays: there is no Python object for each token."""
    documents = table["input_ids"].combine_chunks()
    lengths = pc.list_value_length(documents).to_numpy().astype(np.int64)
    # The starts and lengths of the pieces. A piece is a whole document, or a part of a long one:
    # parts that fill a row, and the rest.
    capacity = seq_length - 2
    counts = -(-lengths // capacity)
    offsets = (np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)) * capacity
    starts = np.repeat(np.cumsum(lengths) - lengths, counts) + offsets
    framed = np.minimum(np.repeat(lengths, counts) - offsets, capacity) + 2  # with [CLS] and [SEP]
    row_lengths = framed
    if mode == "packed":
        rows = best_fit_decreasing(framed, seq_length)
        order = np.argsort(rows, kind="stable")
        row_lengths = np.bincount(rows, weights=framed).astype(np.int64)
        starts = starts[order]
        framed = framed[order]

    ends = np.cumsum(framed)
    begins = ends - framed
    places = np.arange(framed.sum())
    # Each place takes the token at the same distance from the start of its piece, except those of
    # [CLS] and [SEP].
    sources = places + np.repeat(starts - begins - 1, framed)
    tokens = documents.flatten().to_numpy().take(sources, mode="clip")
    tokens[begins] = cls_token_id
    tokens[ends - 1] = sep_token_id
    positions = (places - np.repeat(begins, framed)).astype(smallest_dtype(seq_length))
    bounds = np.concatenate([[0], np.cumsum(row_lengths)]).astype(np.int32)
    return pa.table(
        {
            "input_ids": pa.ListArray.from_arrays(bounds, tokens),
            "position_ids": pa.ListArray.from_arrays(bounds, positions),
        }
    )


def group_by_length(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Yield batches of row numbers: similar lengths together, the longest first, at least one row
    each and, if there are more, up to `batch_tokens` tokens with padding."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    start = 0
    while start < len(order):
        stop = start + max(1, batch_tokens // lengths[order[start]])
        yield order[start:stop]
        start = stop
