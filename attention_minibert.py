# Copyright 2026 The MiniBERT authors. Licensed under the Apache License, Version 2.0.
"""How the unpadded tokens attend to each other: which kernel runs on which pieces, with which
masks.

Once a forward, `choose_dispatch` makes an `AttentionDispatch` for the local layers and one for the
global ones; every layer calls its `attend` with queries, keys and values. Nothing here knows the
config or a layer. A reader who wants to understand the model may skip this file: all of it computes
softmax(q kᵀ / √d) v within documents.

Shape suffixes: t unpadded tokens, n documents, s tokens of a packed row, h heads, d head width,
q queries, k keys, c blocks of a local layer, p slots in all packed rows.
"""

import copy
from bisect import bisect_left, insort
from typing import Any

import torch
from torch.nn import functional as F

from .compat_minibert import FLASH_ATTENTION
from .cpu_minibert import (
    LENGTH_STEP,
    ROW_COUNT,
    ROW_STEP,
    SHORT,
    AttentionKernel,
    choose_cpu_kernel,
)
from .sequences_minibert import (
    PackedSequences,
    apply_window_and_causality,
    build_attention_mask,
    to_bias,
)

# Local layers are cut into blocks of at least this many queries.
LOCAL_BLOCK = 32


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
    if isinstance(value, (list, tuple)):
        return type(value)([move_to(part, device) for part in value])
    return value


class AttentionDispatch:
    """How the layers of one kind attend over the unpadded tokens, in one forward.

    With `device_map`, accelerate moves it to the device of each layer, as it moves tensors.

    Args:
        sequences: the documents of the batch.
        window: the largest distance at which tokens see each other; None: the whole document.
        causal: tokens see only what comes before them.
        dropout: rate on the attention probabilities (0 outside training).
        dtype: of the queries, keys and values.
    """

    name: str  # what runs, in a few words

    def __init__(
        self,
        sequences: PackedSequences,
        window: int | None,
        causal: bool,
        dropout: float,
        dtype: torch.dtype,
    ):
        self.sequences = sequences
        self.window = window
        self.causal = causal
        self.dropout = dropout
        self.dtype = dtype
        self.num_tokens = len(sequences.document_ids)
        self.kernel_names: list[str] = []
        self.prepare()

    @property
    def description(self) -> str:
        """What runs: the name, then the kernels of its pieces."""
        if not self.kernel_names:
            return self.name
        return f"{self.name} ({', '.join(dict.fromkeys(self.kernel_names))})"

    def to(
        self, device: torch.device | str | int, non_blocking: bool = False
    ) -> "AttentionDispatch":
        """A copy with its tensors on another device."""
        moved = copy.copy(self)
        for name, value in self.__dict__.items():
            setattr(moved, name, move_to(value, device))
        return moved

    def prepare(self):
        """Make the pieces and masks that all layers of the kind share."""

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Attend: queries, keys and values, [tokens, heads, head width] each → the same shape.

        Rows after the tokens (see `num_padding_rows`) get zeros.
        """
        padding_rows = len(q) - self.num_tokens
        if not padding_rows:
            return self.attend_tokens(q, k, v)
        tokens = slice(self.num_tokens)
        out = self.attend_tokens(q[tokens], k[tokens], v[tokens])
        return F.pad(out, (0, 0, 0, 0, 0, padding_rows))

    def attend_tokens(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """`attend` without rows after the tokens; [tokens, heads, head width] each."""
        raise NotImplementedError

    def choose_kernel(self, queries: int, keys: int) -> AttentionKernel:
        """The kernel for one piece."""
        kernel = None
        if self.sequences.device.type == "cpu":
            kernel = choose_cpu_kernel(self.dtype, self.dropout, queries, keys)
        if kernel is None:
            kernel = sdpa
        self.kernel_names.append(kernel.__name__)
        return kernel


class FlashDispatch(AttentionDispatch):
    """One call of torch's flash attention for all documents (Dao 2023, arXiv 2307.08691)."""

    name = "flash attention"

    def prepare(self):
        left = -1 if self.window is None else self.window  # -1: all
        right = 0 if self.causal else left
        self.window_sizes = {"window_size_left": left, "window_size_right": right}
        bounds = self.sequences.cu_seq_lens
        longest = self.sequences.longest
        self.bounds = (bounds, bounds, longest, longest)  # of queries and of keys

    def attend_tokens(self, q, k, v):
        returns_probs = False
        results = FLASH_ATTENTION(
            q, k, v, *self.bounds, self.dropout, self.causal, returns_probs, **self.window_sizes
        )
        return results[0]


class DocumentsDispatch(AttentionDispatch):
    """One call for each document; neighbouring short documents share a call under a block-diagonal
    mask."""

    name = "one call a document"

    def prepare(self):
        sequences = self.sequences
        self.sizes, is_shared = self._join_short_documents()
        needs_mask = self.window is not None or (self.causal and sequences.order == "any")
        id_parts = sequences.document_ids.split(self.sizes)
        position_parts = sequences.positions.split(self.sizes)
        self.calls: list[tuple[AttentionKernel, torch.Tensor | None, bool]] = []
        for size, shared, ids, positions in zip(self.sizes, is_shared, id_parts, position_parts):
            bias = None
            is_causal = self.causal
            if shared or needs_mask:
                mask = build_attention_mask(ids, positions, self.window, self.causal)
                bias = to_bias(mask[None, None], self.dtype)
                is_causal = False
            self.calls.append((self.choose_kernel(size, size), bias, is_causal))

    def _join_short_documents(self) -> tuple[list[int], list[bool]]:
        """The tokens of each call, and whether it has several documents."""
        sizes: list[int] = []
        is_shared: list[bool] = []
        for length in self.sequences.lengths:
            if sizes and sizes[-1] + length <= SHORT:
                sizes[-1] += length
                is_shared[-1] = True
            else:
                sizes.append(length)
                is_shared.append(False)
        return sizes, is_shared

    def attend_tokens(self, q, k, v):
        if not self.calls:  # nothing but padding
            return v
        outs = []
        parts = zip(q.split(self.sizes), k.split(self.sizes), v.split(self.sizes))
        for (kernel, bias, is_causal), (q_thd, k_thd, v_thd) in zip(self.calls, parts):
            out = kernel(
                q_thd.transpose(0, 1).unsqueeze(0),
                k_thd.transpose(0, 1).unsqueeze(0),
                v_thd.transpose(0, 1).unsqueeze(0),
                bias,
                is_causal,
                self.dropout,
            )
            outs.append(out.squeeze(0).transpose(0, 1))
        return torch.cat(outs) if len(outs) > 1 else outs[0]  # `cat` would copy a single tensor


class PackedDispatch(AttentionDispatch):
    """Documents packed into rows of few lengths. A row has a block-diagonal mask; rows of one
    length share a call.

    It serves CPUs, where oneDNN builds a kernel for each shape in half precision, which takes ten
    times as long as running it; and, as `OneCallDispatch`, devices without flash attention.
    """

    name = "documents packed into rows"
    allow_packing = True  # whether a row may hold several documents
    length_step = ROW_STEP  # row lengths are multiples of this
    count_step = ROW_COUNT  # and so are the numbers of rows of one length

    def row_length(self, tokens: int) -> int:
        """The length of the row that is started for a document of this many tokens."""
        return -(-tokens // self.length_step) * self.length_step

    def prepare(self):
        lengths = self.sequences.lengths
        row_lengths, row_of_document, offsets = self._fill_rows(lengths)
        shapes, start_of_row, num_slots = self._group_rows(row_lengths)
        start_of_document = []
        for row, offset in zip(row_of_document, offsets):
            start_of_document.append(start_of_row[row] + offset)
        document_ids_p, positions_p = self._map_tokens(start_of_document, num_slots)
        # Lengths are Python numbers, so that the two shortcuts of `_bias` read no tensor.
        is_one_document_each = len(row_lengths) == len(lengths)
        sees_all = is_one_document_each and self.window is None and not self.causal
        tokens_by_length = dict.fromkeys(row_lengths, 0)
        for row, length in zip(row_of_document, lengths):
            tokens_by_length[row_lengths[row]] += length
        self.sizes = [count * length for count, length in shapes]
        self.groups: list[tuple[tuple[int, int], AttentionKernel, torch.Tensor | None]] = []
        id_parts = document_ids_p.split(self.sizes)
        position_parts = positions_p.split(self.sizes)
        for shape, size, ids, positions in zip(shapes, self.sizes, id_parts, position_parts):
            is_full = tokens_by_length[shape[1]] == size
            bias = self._bias(ids.view(shape), positions.view(shape), sees_all, is_full)
            self.groups.append((shape, self.choose_kernel(shape[1], shape[1]), bias))

    def _bias(
        self, document_ids: torch.Tensor, positions: torch.Tensor, sees_all: bool, is_full: bool
    ) -> torch.Tensor | None:
        """The bias of the rows of one length.

        Args:
            document_ids, positions: [rows, length], -1 for the document where no token is.
            sees_all: every row is one document whose tokens all see each other, so that a mask need
                only hide padding.
            is_full: there is no padding in the rows.
        """
        if sees_all and is_full:
            return None
        if sees_all:
            mask = (document_ids >= 0) | (document_ids[:, :1] < 0)
            return to_bias(mask[:, None, None], self.dtype)
        # Padding sees padding, so that no row of a mask is empty.
        mask = build_attention_mask(document_ids, positions, self.window, self.causal)
        return to_bias(mask.unsqueeze(1), self.dtype)

    def _fill_rows(self, lengths: list[int]) -> tuple[list[int], list[int], list[int]]:
        """Best fit, longest first: each document goes into the row that it fills best. Returns the
        length of each row, and the row and the offset in it of each document."""
        free: list[tuple[int, int]] = []  # the slots left in a row, and its number; sorted
        row_lengths: list[int] = []
        row_of_document = [0] * len(lengths)
        offsets = [0] * len(lengths)
        for document in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
            length = lengths[document]
            best = bisect_left(free, (length, 0))
            if best == len(free):
                row_length = self.row_length(length)
                free.append((row_length, len(row_lengths)))
                row_lengths.append(row_length)
            slots_left, row = free.pop(best)
            row_of_document[document] = row
            offsets[document] = row_lengths[row] - slots_left
            if self.allow_packing:
                insort(free, (slots_left - length, row))
        return row_lengths, row_of_document, offsets

    def _group_rows(self, row_lengths: list[int]) -> tuple[list[tuple[int, int]], list[int], int]:
        """Put rows of one length together. Returns (rows, length) of each group, the first slot of
        each row (with groups one after the other), and the number of slots."""
        shapes: list[tuple[int, int]] = []
        start_of_row = [0] * len(row_lengths)
        num_slots = 0
        for group_length in sorted(set(row_lengths)):
            num_rows = 0
            for row, row_length in enumerate(row_lengths):
                if row_length == group_length:
                    start_of_row[row] = num_slots + num_rows * group_length
                    num_rows += 1
            if num_rows > self.count_step:
                num_rows += -num_rows % self.count_step
            num_slots += num_rows * group_length
            shapes.append((num_rows, group_length))
        return shapes, start_of_row, num_slots

    def _map_tokens(
        self, start_of_document: list[int], num_slots: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Set `packed_indices`, the slot of each token, and `token_of_slot`, the token in each
        slot. Return the document (-1 where no token is) and the position in each slot.

        A slot without a token repeats the token before it, and masks hide it. So `attend_tokens`
        gathers the rows, which is ten times as fast as scattering the tokens into them.
        """
        sequences = self.sequences
        device = sequences.device
        start_n = sequences.cu_seq_lens[:-1].long()
        length_n = sequences.cu_seq_lens.diff().long()
        shift_n = torch.tensor(start_of_document, device=device) - start_n
        shift_t = shift_n.repeat_interleave(length_n, output_size=self.num_tokens)
        self.packed_indices = torch.arange(self.num_tokens, device=device) + shift_t
        slots = torch.arange(num_slots, device=device)
        order = self.packed_indices.argsort()
        last_token = torch.searchsorted(self.packed_indices[order], slots, right=True) - 1
        self.token_of_slot = order[last_token]
        has_token = self.packed_indices[self.token_of_slot] == slots
        document_ids_p = torch.where(has_token, sequences.document_ids[self.token_of_slot], -1)
        return document_ids_p, sequences.positions[self.token_of_slot].long()

    def attend_tokens(self, q, k, v):
        q_parts = q.index_select(0, self.token_of_slot).split(self.sizes)
        k_parts = k.index_select(0, self.token_of_slot).split(self.sizes)
        v_parts = v.index_select(0, self.token_of_slot).split(self.sizes)
        outs = []
        for (shape, kernel, bias), q_phd, k_phd, v_phd in zip(
            self.groups, q_parts, k_parts, v_parts
        ):
            out = kernel(
                q_phd.unflatten(0, shape).transpose(1, 2),
                k_phd.unflatten(0, shape).transpose(1, 2),
                v_phd.unflatten(0, shape).transpose(1, 2),
                bias,
                False,
                self.dropout,
            )
            outs.append(out.transpose(1, 2).flatten(0, 1))
        return torch.cat(outs).index_select(0, self.packed_indices)


class OneCallDispatch(PackedDispatch):
    """Packed rows that are all as long as the longest document, in one call, for devices without
    flash attention."""

    name = "one packed call"
    count_step = 1

    def row_length(self, tokens: int) -> int:
        return max(self.sequences.lengths)


class GroupsDispatch(PackedDispatch):
    """One row for each document, documents of similar length in one call, for inference on CPU:
    SDPA's kernel there is fastest for lengths that are multiples of `LENGTH_STEP`, and takes up to
    twice as long for others."""

    name = "documents of similar length together"
    allow_packing = False
    length_step = LENGTH_STEP
    count_step = 1


class BlocksDispatch(AttentionDispatch):
    """Local attention in O(tokens · window). A block of queries is compared only with the keys that
    it may see: its own and `window` more on either side (the chunks of Beltagy et al. 2020, over
    the unpadded tokens)."""

    name = "blocks of queries"

    def prepare(self):
        sequences = self.sequences
        window = self.window
        # Small blocks waste less on keys out of reach; large blocks have fewer gradients of shared
        # keys to add up.
        has_gradients = torch.is_grad_enabled() or self.dropout
        self.block = max(LOCAL_BLOCK, 2 * window if has_gradients else window // 2)
        self.num_blocks = -(-self.num_tokens // self.block)
        self.tail = self.num_blocks * self.block - self.num_tokens
        self.span = self.block + 2 * window
        # The padding after the tokens (-1) sees itself, so that no row of a mask is empty. The
        # padding before the keys of the first block (-2) is seen by no query.
        ids = F.pad(sequences.document_ids.int(), (0, self.tail), value=-1)
        key_ids = F.pad(F.pad(ids, (0, window), value=-1), (window, 0), value=-2)
        id_ck = key_ids.unfold(0, self.span, self.block)
        id_cq = ids.view(self.num_blocks, self.block)
        visible = id_cq.unsqueeze(2) == id_ck.unsqueeze(1)
        mask = apply_window_and_causality(visible, self._distances(), window, self.causal)
        self.bias = to_bias(mask.unsqueeze(1), self.dtype)
        self.kernel = self.choose_kernel(self.block, self.span)

    def _distances(self) -> torch.Tensor:
        """The distance of every query of a block to its keys, [queries, keys], or, for each block,
        [blocks, queries, keys]."""
        sequences = self.sequences
        if sequences.order == "contiguous":  # they are the same in every block
            position_q = torch.arange(self.block, device=sequences.device)
            first = -self.window
            position_k = torch.arange(first, first + self.span, device=sequences.device)
        else:
            positions = F.pad(sequences.positions.int(), (0, self.tail))
            position_q = positions.view(self.num_blocks, self.block)
            around = (self.window, self.window)
            position_k = F.pad(positions, around).unfold(0, self.span, self.block)
        return position_q.unsqueeze(-1) - position_k.unsqueeze(-2)

    def attend_tokens(self, q, k, v):
        if self.tail:
            q = F.pad(q, (0, 0, 0, 0, 0, self.tail))
        q_chqd = q.unflatten(0, (self.num_blocks, self.block)).transpose(1, 2)
        around = (0, 0, 0, 0, self.window, self.window + self.tail)
        k_chkd = F.pad(k, around).unfold(0, self.span, self.block).transpose(2, 3)
        v_chkd = F.pad(v, around).unfold(0, self.span, self.block).transpose(2, 3)
        out_chqd = self.kernel(q_chqd, k_chkd, v_chkd, self.bias, False, self.dropout)
        return out_chqd.transpose(1, 2).flatten(0, 1)[: self.num_tokens]


# --- which dispatch ---


def choose_dispatch(
    sequences: PackedSequences,
    window: int | None,
    causal: bool,
    dropout: float,
    dtype: torch.dtype,
    head_width: int,
) -> AttentionDispatch:
    """Choose how the layers of one kind attend over the unpadded tokens, from the batch at hand.
    Arguments are those of `AttentionDispatch`, and the width of a head."""
    device = sequences.device
    is_cpu = device.type == "cpu"
    if not len(sequences.document_ids):  # nothing but padding
        dispatch_class = DocumentsDispatch
    elif sequences.order == "any" and (window is not None or causal):
        # Positions fall or repeat within documents: only explicit masks know who sees whom.
        dispatch_class = DocumentsDispatch if is_cpu else OneCallDispatch
    elif is_cpu:
        window = _effective_window(sequences, window)
        dispatch_class = _choose_on_cpu(sequences, window, dropout, dtype)
    elif window is not None and sequences.order != "contiguous":
        dispatch_class = BlocksDispatch  # flash attention would measure the window in tokens
    else:
        dispatch_class = _choose_on_device(device, dtype, head_width, window)
    return dispatch_class(sequences, window, causal, dropout, dtype)


def _choose_on_device(
    device: torch.device, dtype: torch.dtype, head_width: int, window: int | None
) -> type[AttentionDispatch]:
    """Flash attention, if it takes the inputs."""
    if (
        FLASH_ATTENTION is not None
        and device.type == "cuda"
        and dtype in (torch.float16, torch.bfloat16)
        and _has_flash_attention(device)
        and head_width % 8 == 0
        and head_width <= 256
    ):
        return FlashDispatch
    return OneCallDispatch if window is None else BlocksDispatch


@torch.compiler.assume_constant_result  # torch.compile cannot trace the question
def _has_flash_attention(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device)[0] >= 8


def _effective_window(sequences: PackedSequences, window: int | None) -> int | None:
    """The window, or None if it hides nothing. It reads the lengths of documents, which other
    devices than CPUs would have to be waited for."""
    longest = max(sequences.lengths, default=0)
    if window is not None and sequences.order == "contiguous" and longest <= window + 1:
        return None
    return window


def _choose_on_cpu(
    sequences: PackedSequences, window: int | None, dropout: float, dtype: torch.dtype
) -> type[AttentionDispatch]:
    """On CPU, no kernel takes documents of any length."""
    lengths = sequences.lengths
    if window is not None and max(lengths, default=0) > 4 * max(window, LOCAL_BLOCK):
        return BlocksDispatch
    uses_sdpa = choose_cpu_kernel(dtype, dropout, SHORT, SHORT) is None
    tokens_in_short = sum(length for length in lengths if length < SHORT)
    mostly_short = 2 * tokens_in_short > sum(lengths)
    if len(lengths) == 1 or not (uses_sdpa or mostly_short):
        return DocumentsDispatch
    # Not with dropout: GradCache repeats with gradients what it computed without, and needs the
    # same random numbers.
    if not torch.is_grad_enabled() and not dropout:
        return GroupsDispatch
    return DocumentsDispatch if uses_sdpa else PackedDispatch
