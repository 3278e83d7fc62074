"""Make rows for training from tokenized documents.

A row has `input_ids` and `position_ids`, lists of integers of the same length, at most `seq_length`. Each document in
it is framed as `[CLS] … [SEP]`, and `position_ids` restart at 0 with every document: they are the only record of where
documents begin. Batches carry the same bounds as `cu_seq_lens_q`.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import AddedToken, Tokenizer, processors
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from .documents import map_tables, smallest_dtype, tokenizer_backend

MODES = ("packed", "padded", "concatenated")

# The number of documents packed together. The last rows of a window are not full: larger windows have fewer of those.
WINDOW = 4096


def pack_documents(
    tokenized: datasets.Dataset,
    tokenizer: PreTrainedTokenizerBase,
    seq_length: int,
    mode: str = "packed",
) -> datasets.Dataset:
    """Pack documents into rows of `input_ids` and `position_ids`.

    Args:
        tokenized: whole documents without special tokens, from `tokenize_documents`. Empty ones are dropped.
        tokenizer: a fast tokenizer with [CLS] and [SEP].
        seq_length: the largest number of tokens of a row.
        mode: "packed": several documents a row, by best-fit decreasing over a window of documents (Johnson 1974), in
            the order of the corpus as far as that allows. Only documents longer than a row are cut; each piece is then
            framed as a document.
            "padded": one document, or one piece, a row.
            "concatenated": all documents one after the other, cut every `seq_length` tokens, as in Transformers'
            run_mlm. Positions run through the row, so that its documents see each other. The last row of a window,
            which run_mlm drops, may be shorter.

    Raises:
        ValueError: an unknown mode, a tokenizer without [CLS] or [SEP], or a `seq_length` with no room for a token.
    """
    check_packing(mode, seq_length)
    options = dict(desc="Packing", batch_size=WINDOW)  # in one process: each of several would start its own windows
    return map_tables(tokenized, pack_table, **options, mode=mode, seq_length=seq_length, **special_ids(tokenizer))


def special_ids(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """The ids of [CLS] and [SEP], which frame documents. A ValueError if the tokenizer has none, or is not fast."""
    check_fast(tokenizer)
    for name in ("cls_token", "sep_token"):
        if getattr(tokenizer, name) is None:
            raise ValueError(f"tokenizer: {tokenizer.name_or_path!r} has no {name}, but rows need [CLS] and [SEP]")
    return {name: getattr(tokenizer, name) for name in ("cls_token_id", "sep_token_id")}


def adapt_tokenizer(tokenizer: PreTrainedTokenizerBase, pairs: bool = False) -> PreTrainedTokenizerBase:
    """A tokenizer with the same vocabulary that encodes texts as rows are made: framed by [CLS] and [SEP], with BERT's
    two segments (`pairs`), and with the space before [MASK] as part of the masked word if words carry their spaces. It
    is the tokenizer itself if that does so already.

    Raises:
        ValueError: the tokenizer is not fast, or has no [CLS], [SEP] or padding token.
    """
    cls, sep = special_ids(tokenizer).values()
    if tokenizer.pad_token is None:  # rows need none, but batches of texts do
        call = "tokenizer.add_special_tokens({'pad_token': '[PAD]'})"
        raise ValueError(f"tokenizer: {tokenizer.name_or_path!r} has no padding token; add one with {call}")
    mask, length = tokenizer.mask_token, len(tokenizer.tokenize("a"))
    framed = tokenizer("")["input_ids"] == [cls, sep]
    if pairs:
        pair = tokenizer("", "", return_token_type_ids=True)
        framed &= [pair["input_ids"], pair["token_type_ids"]] == [[cls, sep, sep], [0, 0, 1]]
        framed &= "token_type_ids" in tokenizer.model_input_names
    spaces = [] if mask is None else tokenizer.tokenize(f"a {mask}")[length:-1]
    if spaces == tokenizer.tokenize("a the")[length:][: len(spaces)]:  # also where every space is a token
        spaces = []
    if framed and not spaces:
        return tokenizer
    adapted = plain_tokenizer(tokenizer)
    if pairs:
        adapted.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    if not framed:
        around = processors.BertProcessing((tokenizer.sep_token, sep), (tokenizer.cls_token, cls))
        # Without the first, the offsets of byte-level tokens include the space before them.
        adapted.backend_tokenizer.post_processor = processors.Sequence(
            [processors.ByteLevel(trim_offsets=True), around]
        )
    if spaces:
        adapted.add_special_tokens({"mask_token": AddedToken(mask, lstrip=True, normalized=False, special=True)})
    return adapted


def plain_tokenizer(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerFast:
    """The same tokenizer as a `PreTrainedTokenizerFast`: some classes (T5's) frame texts in their own way."""
    kept = ("model_max_length", "padding_side", "truncation_side", "model_input_names", "chat_template", "name_or_path")
    kept = {name: getattr(tokenizer, name) for name in kept} | dict(tokenizer.special_tokens_map)
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(tokenizer_backend(tokenizer)), **kept)


def check_fast(tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuse a slow tokenizer, which does not know which text its tokens come from."""
    if not tokenizer.is_fast:
        kind = type(tokenizer).__name__
        raise ValueError(f"tokenizer: {tokenizer.name_or_path!r} is a slow {kind}; use a fast tokenizer")


def check_packing(mode: str, seq_length: int) -> None:
    """Refuse an unknown mode, and a `seq_length` with no room for a token."""
    if mode not in MODES:
        raise ValueError(f"packing: {mode!r} is unknown; use one of {', '.join(MODES)}")
    if seq_length < 3:
        raise ValueError(f"seq_length: {seq_length} is too short; use 3 ([CLS], one token, [SEP]) or more")


def fill_rate(rows: datasets.Dataset, seq_length: int) -> float:
    """The share of the `len(rows)` × `seq_length` places that hold a token, between 0 and 1."""
    batches = rows.with_format("arrow").select_columns("input_ids").iter(batch_size=10_000)
    tokens = sum(pc.sum(pc.list_value_length(batch["input_ids"])).as_py() for batch in batches)
    return tokens / (len(rows) * seq_length)


def best_fit_decreasing(lengths: np.ndarray, capacity: int) -> np.ndarray:
    """Put pieces into rows, the longest first, each into the fullest row with room for it.

    Args:
        lengths: int [pieces], from 1 to `capacity`.
        capacity: the length of a row.

    Returns:
        The row of each piece, int [pieces]. Rows are numbered from 0 in the order of their first pieces.
    """
    rows, count = np.empty(len(lengths), dtype=np.int64), 0
    free: list[tuple[int, int, int]] = []  # sorted: places left in a row, minus the time of its last piece, its number
    pieces = np.argsort(-lengths, kind="stable")
    for number, (piece, length) in enumerate(zip(pieces.tolist(), lengths[pieces].tolist())):
        fullest = bisect_left(free, (length,))
        if fullest == len(free):
            free.append((capacity, 0, count))
            count += 1
        left, _, rows[piece] = free.pop(fullest)
        if left > length:
            insort(free, (left - length, -number, int(rows[piece])))

    _, first_piece = np.unique(rows, return_index=True)
    return np.argsort(np.argsort(first_piece))[rows]  # a row is numbered by the rank of its first piece


def pack_table(table: pa.Table, mode: str, seq_length: int, cls_token_id: int, sep_token_id: int) -> pa.Table:
    """Pack one window of documents, on flat buffers: there is no Python object for each token."""
    documents = table["input_ids"].combine_chunks()
    lengths = pc.list_value_length(documents).to_numpy().astype(np.int64)
    # Starts and lengths of the pieces: whole documents, or pieces that fill a row, and a rest.
    capacity = seq_length - 2 if mode != "concatenated" else max(lengths.max(initial=0), 1)
    counts = -(-lengths // capacity)
    offsets = (np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)) * capacity
    starts = np.repeat(np.cumsum(lengths) - lengths, counts) + offsets
    framed = np.minimum(np.repeat(lengths, counts) - offsets, capacity) + 2  # with [CLS] and [SEP]
    row_lengths = framed
    if mode == "packed":
        rows = best_fit_decreasing(framed, seq_length)
        order = np.argsort(rows, kind="stable")
        starts, framed, row_lengths = starts[order], framed[order], np.bincount(rows, weights=framed).astype(np.int64)

    ends = np.cumsum(framed)
    begins = ends - framed
    places = np.arange(framed.sum())
    # Each place takes the token at the same distance from the start of its piece, except those of [CLS] and [SEP].
    tokens = documents.flatten().to_numpy().take(places + np.repeat(starts - begins - 1, framed), mode="clip")
    tokens[begins] = cls_token_id
    tokens[ends - 1] = sep_token_id
    positions = places - np.repeat(begins, framed)
    if mode == "concatenated":
        row_lengths = np.diff(np.append(places[::seq_length], len(places)))
        positions = places % seq_length
    bounds = np.concatenate([[0], np.cumsum(row_lengths)]).astype(np.int32)
    columns = {"input_ids": tokens, "position_ids": positions.astype(smallest_dtype(seq_length))}
    return pa.table({name: pa.ListArray.from_arrays(bounds, column) for name, column in columns.items()})


def group_by_length(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Batches of row numbers, similar lengths together and the longest first, with up to `batch_tokens` tokens in each,
    padding included, and at least one row."""
    order, start = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True), 0
    while start < len(order):
        stop = start + max(1, batch_tokens // lengths[order[start]])
        yield order[start:stop]
        start = stop
