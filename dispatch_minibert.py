# Copyright 2026 The MiniBERT authors. Licensed under the Apache License, Version 2.0.
"""Attention over the unpadded tokens: an `AttentionDispatch` for each way to compute it.

`choose_dispatch` (`attention_minibert.py`) makes one for the global layers and one for the local
layers in every forward, and the layers call its `attend`. Each computes softmax(q kᵀ / √d) v within
documents, up to rounding and random numbers. A reader who wants to understand the model may skip
this file. What only CPUs need is in `cpu_minibert.py`.

Shape suffixes are those of `modeling_minibert.py`, and:

    r   rows of one call                p   slots of the rows of all calls
    g   blocks of a local layer
"""

import copy
import math
from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional as F

from .compat_minibert import FLASH_ATTENTION
from .sequences_minibert import (
    UnpaddedTokens,
    apply_reach_and_causality,
    build_attention_mask,
    to_bias,
)

# It takes what `sdpa` takes, and returns the same.
AttentionKernel = Callable[..., torch.Tensor]


def sdpa(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    bias: torch.Tensor | None,
    is_causal: bool,
    dropout: float,
) -> torch.Tensor:
    """softmax(q kᵀ / √d + bias) v for [..., heads, queries, head width], as every kernel computes
    it."""
    return F.scaled_dot_product_attention(q, k, v, bias, dropout_p=dropout, is_causal=is_causal)


def move_to(value: Any, device: torch.device | str | int) -> Any:
    """`value` with all tensors in it, and in lists and tuples in it, on another device."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if not isinstance(value, (list, tuple)):
        return value
    parts = [move_to(part, device) for part in value]
    if type(value) in (list, tuple):
        return type(value)(parts)
    return type(value)(*parts)  # a NamedTuple


class AttentionDispatch:
    """How layers with the same `AttentionSettings` attend over the unpadded tokens, in one forward.

    With `device_map`, accelerate moves it to the device of each layer, as it moves tensors.

    Args:
        tokens: the real tokens of the batch.
        reach: the largest distance at which tokens see each other; None: the whole document.
        causal: tokens see only what comes before them.
        dropout: rate on the attention probabilities (0 outside training).
        dtype: of the queries, keys and values.

    Attributes:
        name: what runs, in a few words.
        kernels: what computes each piece; empty if one operator computes everything.
        num_tokens: the number of real tokens.
    """

    name: str

    def __init__(
        self,
        tokens: UnpaddedTokens,
        reach: int | None,
        causal: bool,
        dropout: float,
        dtype: torch.dtype,
    ):
        self.tokens = tokens
        self.reach = reach
        self.causal = causal
        self.dropout = dropout
        self.dtype = dtype
        self.num_tokens = len(tokens.document_ids)
        self.kernels: list[AttentionKernel] = []
        self.prepare()

    @property
    def description(self) -> str:
        """What runs: the name, then the kernels of its pieces."""
        if not self.kernels:
            return self.name
        kernel_names = dict.fromkeys(kernel.__name__ for kernel in self.kernels)
        return f"{self.name} ({', '.join(kernel_names)})"

    def to(
        self, device: torch.device | str | int, non_blocking: bool = False
    ) -> "AttentionDispatch":
        """A copy with its tensors on another device."""
        moved = copy.copy(self)
        for name, value in self.__dict__.items():
            setattr(moved, name, move_to(value, device))
        return moved

    def prepare(self):
        """Make the pieces and masks that these layers share."""

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Attend: queries, keys and values, [tokens, heads, head width] each → the same shape."""
        raise NotImplementedError

    def choose_kernel(self, queries: int, keys: int) -> AttentionKernel:
        """The kernel for a piece of this many queries and keys. (CPUs have several.)"""
        return sdpa


class NoTokensDispatch(AttentionDispatch):
    """For a batch of nothing but padding."""

    name = "no tokens"

    def attend(self, q, k, v):
        return v


class FlashDispatch(AttentionDispatch):
    """One call of torch's flash attention for all documents (Dao 2023, arXiv 2307.08691)."""

    name = "flash attention"

    def prepare(self):
        left = -1 if self.reach is None else self.reach  # -1: all
        right = 0 if self.causal else left
        self.window_sizes = {"window_size_left": left, "window_size_right": right}
        self.cu_seq_lens = self.tokens.cu_seq_lens
        self.max_length = self.tokens.max_length

    def attend(self, q, k, v):
        returns_probs = False
        results = FLASH_ATTENTION(
            q,
            k,
            v,
            self.cu_seq_lens,  # of the queries
            self.cu_seq_lens,  # of the keys
            self.max_length,
            self.max_length,
            self.dropout,
            self.causal,
            returns_probs,
            **self.window_sizes,
        )
        return results[0]


@dataclass
class PackedRow:
    """A row of slots, which documents fill one after the other.

    Args:
        length: its slots.
        documents: the numbers of the documents in it, in their order.
        num_tokens: the slots that they fill.
    """

    length: int
    documents: list[int] = field(default_factory=list)
    num_tokens: int = 0


class RowsDispatch(AttentionDispatch):
    """Documents in rows of slots, under a block-diagonal mask. Every row is as long as the longest
    document and takes as many as fit, so that one call computes all rows. Documents of 50, 100, 20
    and 60 tokens, for example, fill three rows of 100:

        [100 tokens] [60 tokens, 20 tokens, 20 empty slots] [50 tokens, 50 empty slots]

    Subclasses (`cpu_minibert.py`) have rows of several lengths: those of one length share a call.
    """

    name = "one packed call"
    allow_packing = True  # whether a row may hold several documents

    def row_length(self, length: int) -> int:
        """The length of the row that is started for a document of this length."""
        return max(self.tokens.lengths)

    def num_rows(self, filled: int) -> int:
        """The number of rows in a call where this many hold documents; the others are empty."""
        return filled

    def prepare(self):
        calls = self._plan_calls()
        # of each call: (rows, slots of a row), and rows · slots
        self.shapes = [(self.num_rows(len(rows)), rows[0].length) for rows in calls]
        self.sizes = [math.prod(shape) for shape in self.shapes]
        self._map_tokens(calls)
        self._plan_kernels(calls)

    def _plan_calls(self) -> list[list[PackedRow]]:
        """Decide which documents are in which row, and which rows share a call: those of each
        call."""
        rows_by_length: dict[int, list[PackedRow]] = {}
        for row in sorted(self._fill_rows(), key=lambda row: row.length):
            rows_by_length.setdefault(row.length, []).append(row)
        return list(rows_by_length.values())

    def _fill_rows(self) -> list[PackedRow]:
        """Best fit, longest first: each document goes into the row that it fills best."""
        lengths = self.tokens.lengths
        rows: list[PackedRow] = []
        free_slots: list[tuple[int, int]] = []  # of a row, with its number; sorted
        for document in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
            length = lengths[document]
            best = bisect_left(free_slots, (length, 0))
            if best < len(free_slots):
                _, number = free_slots.pop(best)
            else:
                number = len(rows)
                rows.append(PackedRow(self.row_length(length)))
            row = rows[number]
            row.documents.append(document)
            row.num_tokens += length
            if self.allow_packing:
                insort(free_slots, (row.length - row.num_tokens, number))
        return rows

    def _map_tokens(self, calls: list[list[PackedRow]]):
        """Number the slots of all calls, one row after the other, and set `slot_of_token`,
        [tokens], and `token_of_slot`, [slots].

        A slot without a token repeats the token before it, and masks hide it. So `attend` gathers
        the rows, which is ten times as fast as scattering the tokens into them.
        """
        tokens = self.tokens
        device = tokens.device
        # The tokens of a document move together.
        start_n = tokens.cu_seq_lens[:-1].long()
        length_n = tokens.cu_seq_lens.diff().long()
        shift_n = torch.tensor(self._start_documents(calls), device=device) - start_n
        shift_t = shift_n.repeat_interleave(length_n, output_size=self.num_tokens)
        self.slot_of_token = torch.arange(self.num_tokens, device=device) + shift_t
        # The other way round: the last token at or before each slot. There is one, since rows are
        # filled from their first slot on.
        slots_p = torch.arange(sum(self.sizes), device=device)
        tokens_by_slot = self.slot_of_token.argsort()
        filled_slots = self.slot_of_token[tokens_by_slot]
        last_filled_p = torch.searchsorted(filled_slots, slots_p, right=True) - 1
        self.token_of_slot = tokens_by_slot[last_filled_p]

    def _start_documents(self, calls: list[list[PackedRow]]) -> list[int]:
        """The slot of the first token of each document, counted over the rows of all calls."""
        lengths = self.tokens.lengths
        start_of_document = [0] * len(lengths)
        start_of_call = 0
        for call_rows, size in zip(calls, self.sizes):
            for number, row in enumerate(call_rows):
                slot = start_of_call + number * row.length
                for document in row.documents:
                    start_of_document[document] = slot
                    slot += lengths[document]
            start_of_call += size
        return start_of_document

    def _plan_kernels(self, calls: list[list[PackedRow]]):
        """Set the kernel and the bias of each call."""
        # What is in each slot: the document (-1 without a token), and the position.
        slots_p = torch.arange(sum(self.sizes), device=self.tokens.device)
        has_token_p = self.slot_of_token[self.token_of_slot] == slots_p
        ids_p = torch.where(has_token_p, self.tokens.document_ids[self.token_of_slot], -1)
        positions_p = self.tokens.positions[self.token_of_slot].long()

        # `sees_all` and `is_full` are known without reading tensors: lengths are Python numbers.
        num_rows = sum(len(call_rows) for call_rows in calls)
        has_one_document_each = num_rows == len(self.tokens.lengths)
        sees_all = has_one_document_each and self.reach is None and not self.causal
        self.biases: list[torch.Tensor | None] = []
        id_parts = ids_p.split(self.sizes)
        position_parts = positions_p.split(self.sizes)
        for call_rows, shape, ids, positions in zip(calls, self.shapes, id_parts, position_parts):
            is_full = sum(row.num_tokens for row in call_rows) == math.prod(shape)
            bias = None
            if not (sees_all and is_full):
                bias = self._build_bias(ids.view(shape), positions.view(shape), sees_all)
            self.kernels.append(self.choose_kernel(shape[1], shape[1]))
            self.biases.append(bias)

    def _build_bias(
        self, document_ids: torch.Tensor, positions: torch.Tensor, sees_all: bool
    ) -> torch.Tensor:
        """The bias of one call.

        Args:
            document_ids, positions: [rows, length], -1 for the document where no token is.
            sees_all: every row is one document whose tokens all see each other, so that a mask need
                only hide the slots without a token.
        """
        if sees_all:
            is_empty_row = document_ids[:, :1] < 0  # its slots see each other; nobody reads them
            mask = (document_ids >= 0) | is_empty_row
            return to_bias(mask[:, None, None], self.dtype)
        # Slots without a token see each other, so that no row of a mask is empty.
        mask = build_attention_mask(document_ids, positions, self.reach, self.causal)
        return to_bias(mask.unsqueeze(1), self.dtype)

    def attend(self, q, k, v):
        outs = []
        q_parts = self._gather_rows(q)
        k_parts = self._gather_rows(k)
        v_parts = self._gather_rows(v)
        calls = zip(self.kernels, self.biases, q_parts, k_parts, v_parts)
        for kernel, bias, q_rhqd, k_rhkd, v_rhkd in calls:
            out_rhqd = kernel(q_rhqd, k_rhkd, v_rhkd, bias, is_causal=False, dropout=self.dropout)
            outs.append(out_rhqd.transpose(1, 2).flatten(0, 1))
        return torch.cat(outs).index_select(0, self.slot_of_token)

    def _gather_rows(self, x: torch.Tensor) -> list[torch.Tensor]:
        """[tokens, heads, head width] → [rows, heads, slots, head width] for each call."""
        parts = x.index_select(0, self.token_of_slot).split(self.sizes)
        return [part.unflatten(0, shape).transpose(1, 2) for part, shape in zip(parts, self.shapes)]


class BlocksDispatch(AttentionDispatch):
    """Local attention in O(tokens · reach). A block of queries is compared only with the keys that
    it may see: its own and `reach` more on either side (the chunks of Beltagy et al. 2020, over
    the unpadded tokens). With blocks of 4 tokens and a reach of 2:

        tokens                0  1  2  3 |  4  5  6  7 |  8
        keys of block 0  .  . 0  1  2  3    4  5
        keys of block 1             2  3    4  5  6  7    8  .
        keys of block 2                           6  7    8  .  .  .  .  .
    """

    name = "blocks of queries"
    MIN_BLOCK = 32  # queries of a block

    def prepare(self):
        reach = self.reach
        # Small blocks waste less on keys out of reach; large blocks have fewer gradients of shared
        # keys to add up.
        has_gradients = torch.is_grad_enabled() or bool(self.dropout)
        self.queries_per_block = max(self.MIN_BLOCK, 2 * reach if has_gradients else reach // 2)
        self.num_blocks = -(-self.num_tokens // self.queries_per_block)
        self.num_empty_slots = self.num_blocks * self.queries_per_block - self.num_tokens
        self.keys_per_block = self.queries_per_block + 2 * reach
        # The slots after the tokens (-1) see each other, so that no row of a mask is empty. Those
        # before the first token (-2) are keys only, and seen by no query.
        query_ids = F.pad(self.tokens.document_ids.int(), (0, self.num_empty_slots), value=-1)
        key_ids = F.pad(query_ids, (0, reach), value=-1)
        key_ids = F.pad(key_ids, (reach, 0), value=-2)
        ids_gq = query_ids.view(self.num_blocks, self.queries_per_block)
        ids_gk = key_ids.unfold(0, self.keys_per_block, self.queries_per_block)
        visible = ids_gq.unsqueeze(2) == ids_gk.unsqueeze(1)
        mask = apply_reach_and_causality(visible, self._distances(), reach, self.causal)
        self.bias = to_bias(mask.unsqueeze(1), self.dtype)
        self.kernels = [
            self.choose_kernel(self.queries_per_block, self.keys_per_block)
        ]  # all blocks are one call

    def _distances(self) -> torch.Tensor:
        """The position of each query of a block minus those of its keys: [queries, keys] if they
        are the same in every block, else [blocks, queries, keys]."""
        tokens = self.tokens
        if tokens.order == "contiguous":
            positions_q = torch.arange(self.queries_per_block, device=tokens.device)
            first = -self.reach
            positions_k = torch.arange(first, first + self.keys_per_block, device=tokens.device)
            return positions_q.unsqueeze(-1) - positions_k.unsqueeze(-2)
        positions = F.pad(tokens.positions.int(), (0, self.num_empty_slots))
        positions_gq = positions.view(self.num_blocks, self.queries_per_block)
        around = (self.reach, self.reach)
        positions_gk = F.pad(positions, around).unfold(
            0, self.keys_per_block, self.queries_per_block
        )
        return positions_gq.unsqueeze(-1) - positions_gk.unsqueeze(-2)

    def attend(self, q, k, v):
        if self.num_empty_slots:
            q = F.pad(q, (0, 0, 0, 0, 0, self.num_empty_slots))
        q_ghqd = q.unflatten(0, (self.num_blocks, self.queries_per_block)).transpose(1, 2)
        k_ghkd = self._with_neighbours(k)
        v_ghkd = self._with_neighbours(v)
        kernel = self.kernels[0]
        out_ghqd = kernel(q_ghqd, k_ghkd, v_ghkd, self.bias, is_causal=False, dropout=self.dropout)
        return out_ghqd.transpose(1, 2).flatten(0, 1)[: self.num_tokens]

    def _with_neighbours(self, x: torch.Tensor) -> torch.Tensor:
        """The keys or values that each block sees: [tokens, heads, head width] → [blocks, heads,
        keys, head width]."""
        around = (0, 0, 0, 0, self.reach, self.reach + self.num_empty_slots)
        return (
            F.pad(x, around).unfold(0, self.keys_per_block, self.queries_per_block).transpose(2, 3)
        )
