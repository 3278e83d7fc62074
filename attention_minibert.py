# Copyright 2026 The MiniBERT authors. Licensed under the Apache License, Version 2.0.
"""How tokens attend to each other: a plan for every kind of layer, and the attention layer.

With `attn_implementation="sdpa"`, the default, padding is dropped. Once a forward, for each kind of layer,
`plan_attention` chooses how the unpadded tokens attend: which kernel runs (flash attention on CUDA too), on which
pieces, with which masks. Its `AttentionPlan` records the reason, and all layers of the kind call it. Any other
implementation runs as Transformers defines it (`InterfacePlan`).

Shape suffixes: t unpadded tokens, n rows of packed documents, b batch, s columns of the padded batch, h heads, d head
width, q queries, k keys, c blocks of a local layer, p places in all packed rows.
"""

import copy
from bisect import bisect_left, insort
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .configuration_minibert import MiniBertConfig
from .cpu_minibert import LENGTH_STEP, ROW_COUNT, ROW_STEP, SHORT, choose_cpu_kernel, project
from .embeddings_minibert import build_linear, rotate
from .sequences_minibert import PackedSequences, restrict, to_bias, visibility

# Local layers are cut into blocks of at least this many queries.
LOCAL_BLOCK = 32


def sdpa(q, k, v, bias: torch.Tensor | None, is_causal: bool, dropout: float) -> torch.Tensor:
    """softmax(q kᵀ / √d + bias) v for [..., heads, queries, head width], as every kernel of a plan computes it."""
    return F.scaled_dot_product_attention(q, k, v, bias, dropout_p=dropout, is_causal=is_causal)


# --- plans ---


class Plan:
    """How layers attend: through the attention function registered as `backend`, or, if there is none, by calling the
    plan with the same arguments. With `device_map`, accelerate moves a plan to the device of each layer, as it moves
    tensors."""

    backend: str = "eager"  # no function is registered under this name
    mask: torch.Tensor | None = None
    keywords: dict[str, Any] = {}

    def to(self, device: torch.device | str | int, non_blocking: bool = False) -> "Plan":
        """A copy of the plan with its tensors on another device."""
        moved = copy.copy(self)
        moved.__dict__ = torch.utils._pytree.tree_map(
            lambda x: x.to(device) if hasattr(x, "to") else x, self.__dict__
        )
        return moved


class AttentionPlan(Plan):
    """How the layers of one kind attend over the unpadded tokens, in one forward.

    Args:
        sequences: the documents of the batch.
        window: the largest distance at which tokens see each other; None: the whole document.
        causal: tokens see only what comes before them.
        dropout: rate on the attention probabilities (0 outside training).
        dtype: of the queries, keys and values.
        reason: why this plan was chosen.
    """

    name: str  # what runs, in a few words

    def __init__(
        self,
        sequences: PackedSequences,
        window: int | None,
        causal: bool,
        dropout: float,
        dtype: torch.dtype,
        reason: str,
    ):
        self.sequences, self.window, self.causal, self.dropout = sequences, window, causal, dropout
        self.dtype, self.reasons = dtype, {self.name: reason}
        self.tokens = len(sequences.id_t)
        self.prepare()

    @property
    def reason(self) -> str:
        """What runs and why: the plan, then the kernels of its pieces."""
        return ", ".join(f"{name} ({why})" for name, why in self.reasons.items())

    def prepare(self):
        """Make the pieces and masks that all layers of the kind share."""

    def attend(self, q_thd: torch.Tensor, k_thd: torch.Tensor, v_thd: torch.Tensor) -> torch.Tensor:
        """Attend: queries, keys and values, [tokens, heads, head width] each → [tokens, heads, head width]."""
        raise NotImplementedError

    def __call__(
        self, module: nn.Module, q_bhsd, k_bhsd, v_bhsd, *_, **__
    ) -> tuple[torch.Tensor, None]:
        """Call `attend` as Transformers calls attention functions: [1, heads, rows, head width] each → [1, rows, heads,
        head width]. Rows after the tokens (see `bucket_rows`) get zeros."""
        out = self.attend(*(x[0].transpose(0, 1)[: self.tokens] for x in (q_bhsd, k_bhsd, v_bhsd)))
        extra = q_bhsd.shape[2] - self.tokens
        if extra:
            out = F.pad(out, (0, 0, 0, 0, 0, extra))
        return out.unsqueeze(0), None

    def kernel_for(self, queries: int, keys: int) -> Any:
        """The kernel for one piece of the plan."""
        kernel, reason = None, "no flash attention"
        if self.sequences.device.type == "cpu":
            kernel, reason = choose_cpu_kernel(self.dtype, self.dropout, queries, keys)
        kernel = kernel or sdpa
        self.reasons[kernel.__name__] = reason
        return kernel


class FlashPlan(AttentionPlan):
    """One call of torch's flash attention for all documents (Dao 2023, arXiv 2307.08691).

    The operator is that of `torch.nn.attention.varlen`, which starts it from Python, more slowly, and has no dropout.
    """

    name = "flash attention"

    def prepare(self):
        left = -1 if self.window is None else self.window  # -1: all
        self.sides = dict(window_size_left=left, window_size_right=0 if self.causal else left)
        self.bounds = (self.sequences.cu_seq_lens,) * 2 + (self.sequences.longest,) * 2

    def attend(self, q_thd, k_thd, v_thd):
        flash = torch.ops.aten._flash_attention_forward
        return flash(
            q_thd, k_thd, v_thd, *self.bounds, self.dropout, self.causal, False, **self.sides
        )[0]


class DocumentsPlan(AttentionPlan):
    """One call for each document; neighbouring short documents share a call under a block-diagonal mask."""

    name = "one call a document"

    def prepare(self):
        sequences = self.sequences
        self.sizes, is_shared = [], []
        for length in sequences.lengths:
            if self.sizes and self.sizes[-1] + length <= SHORT:
                self.sizes[-1] += length
                is_shared[-1] = True
            else:
                self.sizes.append(length)
                is_shared.append(False)
        needs_mask = self.window is not None or (self.causal and sequences.order == "any")
        self.biases = [
            to_bias(visibility(i, p, self.window, self.causal)[None, None], self.dtype)
            if shared or needs_mask
            else None
            for i, p, shared in zip(
                sequences.id_t.split(self.sizes), sequences.position_t.split(self.sizes), is_shared
            )
        ]
        self.causal_calls = [self.causal and not (shared or needs_mask) for shared in is_shared]
        self.kernels = [self.kernel_for(size, size) for size in self.sizes]

    def attend(self, q_thd, k_thd, v_thd):
        pieces = zip(*(x.split(self.sizes) for x in (q_thd, k_thd, v_thd)))
        outs = [
            kernel(*(x.transpose(0, 1).unsqueeze(0) for x in piece), bias, is_causal, self.dropout)
            for piece, kernel, bias, is_causal in zip(
                pieces, self.kernels, self.biases, self.causal_calls
            )
        ]
        outs = [out.squeeze(0).transpose(0, 1) for out in outs] or [v_thd]  # nothing but padding
        return torch.cat(outs) if len(outs) > 1 else outs[0]  # `cat` would copy a single tensor


class PackedPlan(AttentionPlan):
    """Documents packed into rows of few lengths. A row has a block-diagonal mask; rows of one length share a call.

    It serves CPUs, where oneDNN builds a kernel for each shape in half precision, which takes ten times as long as
    running it; and, as `OneCallPlan`, devices without flash attention.
    """

    name = "documents packed into rows"
    several = True  # whether a row may hold several documents
    length_step, count_step = (
        ROW_STEP,
        ROW_COUNT,
    )  # row lengths, and the number of rows of a length, are multiples

    def row_length(self, tokens: int) -> int:
        """The length of the row that is started for a document of this many tokens."""
        return -(-tokens // self.length_step) * self.length_step

    def prepare(self):
        lengths = self.sequences.lengths
        row_lengths, row_n, offset_n = self._fill_rows(lengths)
        shapes, start_of_row, self.places = self._group_rows(row_lengths)
        self._map_tokens([start_of_row[row] + offset for row, offset in zip(row_n, offset_n)])
        # Lengths are Python numbers, so that the two shortcuts below read no tensor. If every row is one document whose
        # tokens all see each other, a mask need only hide padding; if the rows of a length are full, there is no mask.
        one_document_each = (
            len(row_lengths) == len(lengths) and self.window is None and not self.causal
        )
        tokens = dict.fromkeys(row_lengths, 0)  # the tokens in all rows of a length
        for row, length in zip(row_n, lengths):
            tokens[row_lengths[row]] += length
        self.sizes = [count * length for count, length in shapes]
        self.groups = []
        for shape, id_p, position_p in zip(
            shapes, self.id_p.split(self.sizes), self.position_p.split(self.sizes)
        ):
            id_ns, position_ns = id_p.view(shape), position_p.view(shape)
            if one_document_each and tokens[shape[1]] == shape[0] * shape[1]:
                bias = None
            elif one_document_each:
                bias = to_bias(((id_ns >= 0) | (id_ns[:, :1] < 0))[:, None, None], self.dtype)
            else:  # padding sees padding, so that no row of a mask is empty
                bias = to_bias(
                    visibility(id_ns, position_ns, self.window, self.causal).unsqueeze(1),
                    self.dtype,
                )
            self.groups.append((shape, self.kernel_for(shape[1], shape[1]), bias))

    def _fill_rows(self, lengths: list[int]) -> tuple[list[int], list[int], list[int]]:
        """Best fit, longest first: each document goes into the row that it fills best. Returns the length of each row,
        and the row and the offset in it of each document."""
        free: list[tuple[int, int]] = []  # the places left in a row, and its number; sorted
        row_lengths, row_n, offset_n = [], [0] * len(lengths), [0] * len(lengths)
        for i in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
            at = bisect_left(free, (lengths[i], 0))
            if at == len(free):
                free.append((self.row_length(lengths[i]), len(row_lengths)))
                row_lengths.append(free[-1][0])
            left, row_n[i] = free.pop(at)
            offset_n[i] = row_lengths[row_n[i]] - left
            if self.several:
                insort(free, (left - lengths[i], row_n[i]))
        return row_lengths, row_n, offset_n

    def _group_rows(self, row_lengths: list[int]) -> tuple[list[tuple[int, int]], list[int], int]:
        """Put rows of one length together. Returns (rows, length) of each group, the first place of each row (with
        groups one after the other), and the number of places."""
        shapes, start_of_row, places = [], [0] * len(row_lengths), 0
        for length in sorted(set(row_lengths)):
            rows = [row for row, own in enumerate(row_lengths) if own == length]
            for row in rows:
                start_of_row[row], places = places, places + length
            empty = -len(rows) % self.count_step if len(rows) > self.count_step else 0
            places += empty * length
            shapes.append((len(rows) + empty, length))
        return shapes, start_of_row, places

    def _map_tokens(self, start_of_document: list[int]):
        """Set `place_t`, the place of each token; `token_p`, the token at each place; and the document and the position
        at each place, `id_p` and `position_p`.

        A place without a token repeats the token before it, and masks hide it. So `attend` gathers the rows, which is
        ten times as fast as scattering the tokens into them.
        """
        sequences, device = self.sequences, self.sequences.device
        start_n, length_n = sequences.cu_seq_lens[:-1].long(), sequences.cu_seq_lens.diff().long()
        shift_n = torch.tensor(start_of_document, device=device) - start_n
        self.place_t = torch.arange(self.tokens, device=device)
        self.place_t = self.place_t + shift_n.repeat_interleave(length_n, output_size=self.tokens)
        place_p, order_t = torch.arange(self.places, device=device), self.place_t.argsort()
        self.token_p = order_t[torch.searchsorted(self.place_t[order_t], place_p, right=True) - 1]
        self.id_p = torch.where(
            self.place_t[self.token_p] == place_p, sequences.id_t[self.token_p], -1
        )
        self.position_p = sequences.position_t[self.token_p].long()

    def attend(self, q_thd, k_thd, v_thd):
        packed = (x.index_select(0, self.token_p).split(self.sizes) for x in (q_thd, k_thd, v_thd))
        outs = [
            kernel(*(x.unflatten(0, shape).transpose(1, 2) for x in qkv), bias, False, self.dropout)
            for *qkv, (shape, kernel, bias) in zip(*packed, self.groups)
        ]
        return torch.cat([out.transpose(1, 2).flatten(0, 1) for out in outs]).index_select(
            0, self.place_t
        )


class OneCallPlan(PackedPlan):
    """Packed rows that are all as long as the longest document, in one call, for devices without flash attention."""

    name, count_step = "one packed call", 1

    def row_length(self, tokens: int) -> int:
        return max(self.sequences.lengths)


class GroupsPlan(PackedPlan):
    """One row for each document, documents of similar length in one call, for inference on CPU: SDPA's kernel there is
    fastest for lengths that are multiples of `LENGTH_STEP`, and takes up to twice as long for others."""

    name, several, length_step, count_step = (
        "documents of similar length together",
        False,
        LENGTH_STEP,
        1,
    )


class BlocksPlan(AttentionPlan):
    """Local attention in O(tokens · window). A block of queries is compared only with the keys that it may see: its own
    and `window` more on either side (the chunks of Beltagy et al. 2020, over the unpadded tokens)."""

    name = "blocks of queries"

    def prepare(self):
        sequences, window = self.sequences, self.window
        # Small blocks waste less on keys out of reach; large blocks have fewer gradients of shared keys to add up.
        self.block = block = max(
            LOCAL_BLOCK, 2 * window if torch.is_grad_enabled() or self.dropout else window // 2
        )
        self.blocks = blocks = -(-self.tokens // block)
        self.tail, span = blocks * block - self.tokens, block + 2 * window
        # The padding after the tokens (-1) sees itself, so that no row of a mask is empty. The padding before the keys
        # of the first block (-2) is seen by no query.
        id_t = F.pad(sequences.id_t.int(), (0, self.tail), value=-1)
        id_k = F.pad(F.pad(id_t, (0, window), value=-1), (window, 0), value=-2).unfold(
            0, span, block
        )
        if sequences.order == "contiguous":  # distances are the same in every block
            position_q = torch.arange(block, device=sequences.device)
            position_k = torch.arange(-window, block + window, device=sequences.device)
        else:
            position_t = F.pad(sequences.position_t.int(), (0, self.tail))
            position_q = position_t.view(blocks, block)
            position_k = F.pad(position_t, (window, window)).unfold(0, span, block)
        distance = position_q.unsqueeze(-1) - position_k.unsqueeze(-2)
        seen = restrict(
            id_t.view(blocks, block, 1) == id_k.unsqueeze(1), distance, window, self.causal
        )
        self.bias = to_bias(seen.unsqueeze(1), self.dtype)
        self.kernel = self.kernel_for(block, span)

    def attend(self, q_thd, k_thd, v_thd):
        if self.tail:
            q_thd = F.pad(q_thd, (0, 0, 0, 0, 0, self.tail))
        q_chqd = q_thd.unflatten(0, (self.blocks, self.block)).transpose(1, 2)
        around, span = (
            (0, 0, 0, 0, self.window, self.window + self.tail),
            self.block + 2 * self.window,
        )
        k_chkd, v_chkd = (
            F.pad(x, around).unfold(0, span, self.block).transpose(2, 3) for x in (k_thd, v_thd)
        )
        out_chqd = self.kernel(q_chqd, k_chkd, v_chkd, self.bias, False, self.dropout)
        return out_chqd.transpose(1, 2).flatten(0, 1)[: self.tokens]


class InterfacePlan(Plan):
    """Transformers' own attention interface. On padded rows with a mask it serves eager attention, flex attention,
    functions that a user registered, outputs of every layer, and graphs that are captured; on the unpadded tokens,
    Transformers' flash attention.

    Args:
        backend: the name of the attention function.
        mask: the mask, in the form that the backend takes.
        window: the largest distance at which tokens see each other; None: the whole document.
        dropout: rate on the attention probabilities (0 outside training).
        keywords: passed on to the backend.
    """

    def __init__(
        self, backend: str, mask=None, window: int | None = None, dropout: float = 0.0, **keywords
    ):
        if "flash" in backend and mask is not None:
            backend = "sdpa"  # flash attention takes no mask over pairs of tokens
        self.backend, self.mask, self.dropout = backend, mask, dropout
        # Transformers' flash attention counts the tokens seen on one side, including the token itself.
        self.keywords = dict(sliding_window=None if window is None else window + 1, **keywords)
        rows = "unpadded tokens" if "cu_seq_lens_q" in keywords else "padded rows"
        self.reason = f"attn_implementation={backend!r} on {rows}"

    def __call__(self, *args, **kwargs) -> tuple[torch.Tensor, torch.Tensor]:
        return eager_attention_forward(*args, **kwargs)


def plan_attention(
    sequences: PackedSequences,
    window: int | None,
    causal: bool,
    dropout: float,
    dtype: torch.dtype,
    head_width: int,
) -> AttentionPlan:
    """Choose the plan for one kind of layer over the unpadded tokens, from the batch at hand. Arguments are those of
    `AttentionPlan`, and the width of a head."""
    device, order = sequences.device, sequences.order
    if not len(sequences.id_t):
        plan_class, reason = DocumentsPlan, "nothing but padding"
    elif order == "any" and (window is not None or causal):
        plan_class = DocumentsPlan if device.type == "cpu" else OneCallPlan
        reason = "explicit masks, since position ids fall or repeat within documents"
    elif device.type == "cpu":
        window, plan_class, reason = _choose_cpu_plan(sequences, window, dropout, dtype)
    elif window is not None and order != "contiguous":
        plan_class, reason = BlocksPlan, "explicit position ids"
    else:
        plan_class, reason = _choose_device_plan(device, dtype, head_width, window)
    return plan_class(sequences, window, causal, dropout, dtype, reason)


def _choose_device_plan(device, dtype, head_width, window) -> tuple[type[AttentionPlan], str]:
    """Flash attention, if it takes the inputs."""
    if device.type != "cuda":
        reason = f"no flash attention on {device.type}"
    elif dtype not in (torch.float16, torch.bfloat16):
        reason = f"flash attention has no {str(dtype).removeprefix('torch.')}"
    elif not _has_flash_attention(device):
        reason = "flash attention needs compute capability 8.0"
    elif head_width % 8 or head_width > 256:
        reason = f"flash attention has no head width {head_width}"
    else:
        return FlashPlan, "documents of any length on CUDA"
    return (OneCallPlan if window is None else BlocksPlan), reason


@torch.compiler.assume_constant_result  # torch.compile cannot trace the question
def _has_flash_attention(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device)[0] >= 8


def _choose_cpu_plan(
    sequences, window, dropout, dtype
) -> tuple[int | None, type[AttentionPlan], str]:
    """The plan on CPU, where no kernel takes documents of any length; and the window, or None if it hides nothing."""
    lengths = sequences.lengths
    longest, short = max(lengths, default=0), sum(n for n in lengths if n < SHORT)
    if window is not None and longest <= window + 1 and sequences.order == "contiguous":
        window = None
    if window is not None and longest > 4 * max(window, LOCAL_BLOCK):
        return window, BlocksPlan, "a window, and long documents"
    unfused = choose_cpu_kernel(dtype, dropout, SHORT, SHORT)[0] is not None
    if len(lengths) > 1 and (not unfused or 2 * short > sum(lengths)):
        # Not with dropout: GradCache repeats with gradients what it computed without, and needs the same draws.
        if not (torch.is_grad_enabled() or dropout):
            return window, GroupsPlan, "inference on cpu"
        if unfused:
            return window, PackedPlan, "mostly short documents on CPU"
    return window, DocumentsPlan, "no kernel on cpu takes documents of any length"


# --- the layer ---


def output_std(config: MiniBertConfig) -> float:
    """The initial standard deviation of projections into the residual stream (Radford et al. 2019; Shoeybi et al.
    2019)."""
    depth = 2 * config.num_hidden_layers if config.scaled_output_init else 1
    return config.initializer_range / depth**0.5


def eager_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs,
) -> tuple[torch.Tensor, torch.Tensor]:
    """softmax(q kᵀ · scaling) v (Vaswani et al. 2017, eq. 1) for [b, h, s, d].

    Args:
        attention_mask: boolean, True where a query sees a key; or floating, added to the scores.

    Returns:
        The output, [b, s, h, d], and the probabilities, [b, h, s, s].
    """
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = torch.matmul(query, key.transpose(-2, -1)) * scaling
    # Not -inf: a row of a caller's mask may hide everything, and its NaN would reach every token.
    lowest = torch.finfo(scores.dtype).min
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attention_mask, lowest)
    elif attention_mask is not None:
        scores = (scores + attention_mask).clamp(min=lowest)
    probs = F.softmax(scores, dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(
        query.dtype
    )
    probs = F.dropout(probs, dropout)
    return torch.matmul(probs, value).transpose(1, 2).contiguous(), probs


class MiniBertAttention(nn.Module):
    """Multi-head self-attention with one projection for queries, keys and values."""

    def __init__(self, config: MiniBertConfig, layer_idx: int):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.head_width = config.hidden_size // config.num_attention_heads
        self.scaling = self.head_width**-0.5
        self.is_causal = False  # without a mask, SDPA must not assume a causal one
        self.window = (
            config.sliding_window if config.layer_types[layer_idx] == "sliding_attention" else None
        )
        width, bias = config.hidden_size, config.attention_bias
        self.Wqkv = build_linear(width, 3 * width, bias, config.initializer_range)
        self.Wo = build_linear(width, width, bias, output_std(config))
        self.dropout = nn.Dropout(
            config.attention_dropout
        )  # holds the rate and the mode; kernels do the dropping

    def forward(
        self,
        hidden_states: torch.Tensor,
        plan: AttentionPlan | InterfacePlan,
        rotary: tuple[torch.Tensor, torch.Tensor] | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend as the plan says.

        Args:
            hidden_states: [b, s, width]; with an `AttentionPlan`, b is 1 and s counts the unpadded tokens.
            plan: how the layers of this kind attend in this forward.
            rotary: the cosines and sines that `rotate` takes.

        Returns:
            The output, [b, s, width], and the probabilities, [b, h, s, s], if the backend returns them.
        """
        shape, heads, width = (
            hidden_states.shape[:2],
            self.config.num_attention_heads,
            hidden_states.shape[-1],
        )
        qk, v = project(self.Wqkv, hidden_states).split((2 * width, width), dim=-1)
        qk, v = qk.view(*shape, 2 * heads, self.head_width), v.view(*shape, heads, self.head_width)
        qk = qk if rotary is None else rotate(qk, *rotary)
        q, k, v = (x.transpose(1, 2) for x in (*qk.split(heads, dim=2), v))
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(
            plan.backend, plan
        )  # vLLM reads the source for this call
        out, probs = attend(
            self, q, k, v, plan.mask, dropout=plan.dropout, scaling=self.scaling, **plan.keywords
        )
        return project(self.Wo, out.reshape(hidden_states.shape)), probs
