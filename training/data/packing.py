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
from .dataset_calls import DatasetOrStream, map_tables
from .tokenized import smallest_dtype, tokenize_documents

PACKING_MODES = ("packed", "padded")

# The number of documents packed together. The last rows of a window are not full; larger windows
# have fewer of these.
DOCUMENTS_PER_WINDOW = 4096


def tokenize_and_pack(
    documents: DatasetOrStream,
    tokenizer: PreTrainedTokenizerBase,
    *,
    seq_length: int,
    packing: str,
    num_proc: int | None = None,
) -> DatasetOrStream:
    """Make rows from documents (column `text`), in `pretrain` and `prepare` alike:
    `tokenize_documents` and then `pack_documents`."""
    tokenized = tokenize_documents(documents, tokenizer, num_proc)
    return pack_documents(tokenized, tokenizer, seq_length, packing)


def pack_documents(
    tokenized: DatasetOrStream,
    tokenizer: PreTrainedTokenizerBase,
    seq_length: int,
    packing: str = "packed",
) -> DatasetOrStream:
    """Pack documents into rows of `input_ids` and `position_ids`.

    Args:
        tokenized: whole documents without special tokens, from `tokenize_documents`. Empty ones are
            dropped.
        tokenizer: a fast tokenizer with [CLS] and [SEP].
        seq_length: the largest number of tokens of a row. Only longer documents are cut; each piece
            is then framed as a document.
        packing: "packed": several documents a row, by best-fit decreasing over a window of
            documents (Johnson 1974), in the order of the corpus as far as that allows. "padded":
            one document, or one piece, a row.
    """
    check_packing(packing, seq_length)
    # in one process: each of several would start its own windows
    return map_tables(
        tokenized,
        pack_table,
        desc="Packing",
        batch_size=DOCUMENTS_PER_WINDOW,
        mode=packing,
        seq_length=seq_length,
        **special_ids(tokenizer),
    )


def check_packing(packing: str, seq_length: int) -> None:
    """Refuse (a ValueError) an unknown packing, and a `seq_length` with no room for a token."""
    if packing not in PACKING_MODES:
        raise ValueError(f"packing: {packing!r} is unknown; use one of {', '.join(PACKING_MODES)}")
    if seq_length < 3:
        raise ValueError(
            f"seq_length must be at least 3 ([CLS], one token, [SEP]), got {seq_length}"
        )


def fill_rate(rows: datasets.Dataset, seq_length: int) -> float:
    """The share of the `len(rows)` × `seq_length` places that hold a token, between 0 and 1."""
    tokens = 0
    for table in rows.with_format("arrow").select_columns("input_ids").iter(batch_size=10_000):
        tokens += pc.sum(pc.list_value_length(table["input_ids"])).as_py()
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
    into the fullest row with room for it; of several, into the one that was filled last. Returns
    the row of each piece, int [pieces]; rows are numbered in the order of their first pieces.
    """
    row_of_piece = np.empty(len(lengths), dtype=np.int64)
    num_rows = 0
    # The rows that are not full, sorted: the places left, minus the step of the last piece, and the
    # number of the row.
    free: list[tuple[int, int, int]] = []
    longest_first = np.argsort(-lengths, kind="stable")
    for step, piece in enumerate(longest_first.tolist()):
        length = int(lengths[piece])
        fullest = bisect_left(free, (length,))
        if fullest == len(free):
            free.append((capacity, 0, num_rows))
            num_rows += 1
        places_left, _, row = free.pop(fullest)
        row_of_piece[piece] = row
        if places_left > length:
            insort(free, (places_left - length, -step, row))

    # A row is numbered by the rank of its first piece.
    _, first_piece = np.unique(row_of_piece, return_index=True)
    rank_of_row = np.argsort(np.argsort(first_piece))
    return rank_of_row[row_of_piece]


def pack_table(
    table: pa.Table, mode: str, seq_length: int, cls_token_id: int, sep_token_id: int
) -> pa.Table:
    """Pack one window of documents, on flat arrays: there is no Python object for each token. Cut
    long documents into pieces, choose the row of each piece, and gather the tokens of the rows."""
    documents = table["input_ids"].combine_chunks()
    lengths = pc.list_value_length(documents).to_numpy().astype(np.int64)
    source_starts, piece_lengths = cut_into_pieces(lengths, seq_length - 2)
    framed_lengths = piece_lengths + 2  # with [CLS] and [SEP]
    row_lengths = framed_lengths
    if mode == "packed":
        rows = best_fit_decreasing(framed_lengths, seq_length)
        row_lengths = np.bincount(rows, weights=framed_lengths).astype(np.int64)
        by_row = np.argsort(rows, kind="stable")
        source_starts = source_starts[by_row]
        framed_lengths = framed_lengths[by_row]

    # Where each framed piece begins and ends among the tokens of all rows.
    piece_ends = np.cumsum(framed_lengths)
    piece_starts = piece_ends - framed_lengths
    slots = np.arange(framed_lengths.sum())
    # A slot takes the token at the same distance from the start of its piece; [CLS] and [SEP]
    # replace those before the piece and after it.
    token_of_slot = slots + np.repeat(source_starts - piece_starts - 1, framed_lengths)
    tokens = documents.flatten().to_numpy().take(token_of_slot, mode="clip")
    tokens[piece_starts] = cls_token_id
    tokens[piece_ends - 1] = sep_token_id
    positions = (slots - np.repeat(piece_starts, framed_lengths)).astype(smallest_dtype(seq_length))
    bounds = np.concatenate([[0], np.cumsum(row_lengths)]).astype(np.int32)
    return pa.table(
        {
            "input_ids": pa.ListArray.from_arrays(bounds, tokens),
            "position_ids": pa.ListArray.from_arrays(bounds, positions),
        }
    )


def cut_into_pieces(lengths: np.ndarray, capacity: int) -> tuple[np.ndarray, np.ndarray]:
    """Cut documents of these lengths, int [documents], into pieces of at most `capacity` tokens: a
    whole document, or parts of a long one, of which all but the last are full. Returns the first
    token of each piece among the tokens of all documents, and its length: int [pieces] each."""
    num_pieces = -(-lengths // capacity)
    first_pieces = np.cumsum(num_pieces) - num_pieces
    number_in_document = np.arange(num_pieces.sum()) - np.repeat(first_pieces, num_pieces)
    offsets = number_in_document * capacity
    first_tokens = np.cumsum(lengths) - lengths
    starts = np.repeat(first_tokens, num_pieces) + offsets
    tokens_left = np.repeat(lengths, num_pieces) - offsets
    return starts, np.minimum(tokens_left, capacity)


def group_by_length(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Yield batches of row numbers: similar lengths together, the longest first, at least one row
    each and, if there are more, up to `batch_tokens` tokens with padding."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    start = 0
    while start < len(order):
        stop = start + max(1, batch_tokens // lengths[order[start]])
        yield order[start:stop]
        start = stop
