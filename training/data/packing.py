"""Rows for training out of tokenized documents.

A row is `input_ids` and `position_ids` (lists of integers of one length, at most `seq_length`). A document stands in
it as `[CLS] … [SEP]`, and `position_ids` restart at 0 with every document: that is how the model knows where documents
begin, and nothing else has to travel with the row. Padding is the collator's.
"""

from __future__ import annotations

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from transformers import PreTrainedTokenizerBase

from .documents import list_array, map_tables, smallest_dtype
from .masking import IGNORE_INDEX

MODES = ("packed", "padded", "concatenated")

# Documents packed together. Each window ends in a few rows that are not full: the larger it is, the fewer there are.
WINDOW = 4096


def pack_documents(
    tokenized: datasets.Dataset,
    tokenizer: PreTrainedTokenizerBase,
    seq_length: int,
    mode: str = "packed",
    num_proc: int | None = None,
) -> datasets.Dataset:
    """Rows of `input_ids` and `position_ids`, at most `seq_length` tokens each; and `labels`, if the documents are
    masked already.

    Args:
        tokenized: token ids of whole documents without special tokens, in a column `input_ids`
            (what `tokenize_documents` returns), and `labels` as `MaskedLMCollator.mask_rows` makes them, if wanted.
            Empty documents are dropped.
        tokenizer: gives the ids of [CLS] and [SEP].
        mode: "packed": several documents a row, best-fit decreasing over a window of documents (Johnson 1974). A
            document is cut only when it is longer than a row; then every piece is a document `[CLS] … [SEP]` of its
            own. Rows and the documents in them keep the order of the corpus as far as the packing allows.
            "padded": one document, or piece of one, a row.
            "concatenated": what Transformers' run_mlm does, for comparison: all documents in one stream, cut every
            `seq_length` tokens; positions run through the row, so documents see each other. The rest at the end of a
            window, which run_mlm drops, is a shorter row.
        num_proc: processes, each packing its share of the documents.

    Raises:
        ValueError: an unknown mode, a tokenizer without [CLS] or [SEP], or a `seq_length` with no room for a token.
    """
    check_packing(mode, seq_length)
    for name in ("cls_token_id", "sep_token_id"):
        if getattr(tokenizer, name) is None:
            raise ValueError(f"{name}: the tokenizer has none, but rows need [CLS] and [SEP]")
    return map_tables(
        tokenized,
        _pack,
        desc="Packing",
        batch_size=WINDOW,
        num_proc=num_proc,
        mode=mode,
        seq_length=seq_length,
        cls_token_id=tokenizer.cls_token_id,
        sep_token_id=tokenizer.sep_token_id,
    )


def check_packing(mode: str, seq_length: int) -> None:
    """
    Raises:
        ValueError: an unknown mode, or a `seq_length` with no room for a token.
    """
    if mode not in MODES:
        raise ValueError(f"packing: {mode!r} is not one of {', '.join(MODES)}")
    if seq_length < 3:
        raise ValueError(f"seq_length: {seq_length} is too short; legal: 3 ([CLS], one token, [SEP]) and more")


def fill_rate(rows: datasets.Dataset, seq_length: int) -> float:
    """The share of `len(rows)` × `seq_length` places that hold a token rather than padding, between 0 and 1."""
    batches = rows.with_format("arrow").select_columns("input_ids").iter(batch_size=10_000)
    tokens = sum(pc.sum(pc.list_value_length(batch["input_ids"])).as_py() for batch in batches)
    return tokens / (len(rows) * seq_length)


def best_fit_decreasing(lengths: np.ndarray, capacity: int) -> np.ndarray:
    """The row of every piece: longest first, each into the fullest row that still has room for it.

    Args:
        lengths: int [pieces], each between 1 and `capacity`.
        capacity: the length of a row.

    Returns:
        int [pieces], rows numbered from 0 by their first piece.
    """
    rows = np.empty(len(lengths), dtype=np.int64)
    count = 0
    # rows_with[r]: rows with r places left. Bit r of `spaces` is set when there is one, so that the tightest fit is
    # the lowest bit from `length` up: the search costs a few machine words, not a walk over the rows.
    rows_with: list[list[int]] = [[] for _ in range(capacity)]
    spaces = 0
    pieces = np.argsort(-lengths, kind="stable")
    for piece, length in zip(pieces.tolist(), lengths[pieces].tolist()):
        fitting = spaces >> length
        if fitting:
            space = length + (fitting & -fitting).bit_length() - 1
            row = rows_with[space].pop()
            if not rows_with[space]:
                spaces ^= 1 << space
        else:
            space, row, count = capacity, count, count + 1
        left = space - length
        if left:
            rows_with[left].append(row)
            spaces |= 1 << left
        rows[piece] = row

    _, first_piece = np.unique(rows, return_index=True)
    number = np.empty(count, dtype=np.int64)
    number[np.argsort(first_piece)] = np.arange(count)
    return number[rows]


def _pack(table: pa.Table, mode: str, seq_length: int, cls_token_id: int, sep_token_id: int) -> pa.Table:
    """One window of documents to rows, on flat buffers: no Python object per token."""
    documents = table["input_ids"].combine_chunks()
    tokens = documents.flatten().to_numpy()
    labels = table["labels"].combine_chunks().flatten().to_numpy() if "labels" in table.column_names else None
    lengths = pc.list_value_length(documents).to_numpy().astype(np.int64)
    starts = np.cumsum(lengths) - lengths
    if mode == "concatenated":
        starts, lengths = starts[lengths > 0], lengths[lengths > 0]
        stream, _ = _frame(tokens, starts, lengths, cls_token_id, sep_token_id)
        row_lengths = np.diff(np.append(np.arange(0, len(stream), seq_length), len(stream)))
        positions = np.arange(len(stream)) % seq_length
    else:
        starts, lengths = _cut(starts, lengths, seq_length - 2)
        row_lengths = lengths + 2
        if mode == "packed":
            rows = best_fit_decreasing(lengths + 2, seq_length)
            order = np.argsort(rows, kind="stable")
            row_lengths = np.add.reduceat(row_lengths[order], np.unique(rows[order], return_index=True)[1])
            starts, lengths = starts[order], lengths[order]
        stream, positions = _frame(tokens, starts, lengths, cls_token_id, sep_token_id)
    columns = {
        "input_ids": list_array(stream, row_lengths),
        "position_ids": list_array(positions.astype(smallest_dtype(seq_length)), row_lengths),
    }
    if labels is not None:
        labels, _ = _frame(labels.astype(np.int32), starts, lengths, IGNORE_INDEX, IGNORE_INDEX)
        columns["labels"] = list_array(labels, row_lengths)
    return pa.table(columns)


def _cut(starts: np.ndarray, lengths: np.ndarray, capacity: int) -> tuple[np.ndarray, np.ndarray]:
    """Starts and lengths of the pieces: documents whole, or in pieces of `capacity` tokens and a rest if longer."""
    counts = -(-lengths // capacity)
    offsets = (np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)) * capacity
    return np.repeat(starts, counts) + offsets, np.minimum(np.repeat(lengths, counts) - offsets, capacity)


def _frame(
    tokens: np.ndarray, starts: np.ndarray, lengths: np.ndarray, cls_token_id: int, sep_token_id: int
) -> tuple[np.ndarray, np.ndarray]:
    """The pieces one after the other, each as [CLS] … [SEP]: the ids, and positions that restart with every piece."""
    framed = lengths + 2
    ends = np.cumsum(framed)
    begins = ends - framed
    places = np.arange(framed.sum())
    # Every place but those of [CLS] and [SEP] takes the token at the same distance from the piece's beginning.
    stream = tokens.take(places + np.repeat(starts - begins - 1, framed), mode="clip")
    stream[begins] = cls_token_id
    stream[ends - 1] = sep_token_id
    return stream, places - np.repeat(begins, framed)
