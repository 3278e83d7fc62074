# Copyright 2026 The MiniBERT authors. Licensed under the Apache License, Version 2.0.
"""What only CPUs need: skip this file unless you compute on a CPU.

On any other device `project`, `MiniBertDropout` and `sum_cross_entropy` do what `nn.Linear`,
`nn.Dropout` and `F.cross_entropy` do, `append_filler_tokens` and `append_filler_targets` append
nothing, and nothing else here is used.

Shape suffixes are those of `modeling_minibert.py`.
"""

import torch
from torch import nn
from torch.nn import functional as F
from transformers.activations import ACT2FN

from .compat_minibert import (
    FUSED_LINEAR,
    HAS_FUSED_BF16,
    at_least_fp32,
    is_watched,
    needs_static_shapes,
    needs_traceable_ops,
)
from .dispatch_minibert import (
    AttentionDispatch,
    AttentionKernel,
    BlocksDispatch,
    RowsDispatch,
    sdpa,
)
from .sequences_minibert import UnpaddedTokens, build_attention_mask, to_bias

# --- what this processor does well ---

FEATURES = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
# Without AMX, SDPA computes bf16 products at the speed of fp32; a plain matrix product is faster.
BF16_WITHOUT_AMX = FEATURES.get("avx512_bf16", False) and not FEATURES.get("amx_bf16", False)


def fused_dtypes() -> set[torch.dtype]:
    """The types for which a fused linear replaces `nn.Linear` in inference.

    These are bf16, and fp32 on AMD processors with AVX-512, where MKL, which torch uses otherwise,
    runs at half speed.
    """
    if FUSED_LINEAR is None or HAS_FUSED_BF16 is None:
        return set()
    if not torch.backends.mkldnn.is_available() or not HAS_FUSED_BF16():
        return set()
    dtypes = {torch.bfloat16}
    if FEATURES.get("avx512_f", False) and "AMD" in FEATURES.get("cpu_name", ""):
        dtypes.add(torch.float32)
    return dtypes


FUSED_DTYPES = fused_dtypes()

# --- attention kernels: softmax(q kᵀ / √d + bias) v for [..., heads, queries, head width] ---

# Without dropout, unfused attention is used for up to this many queries, and chunked attention
# computes half as many at a time, so that the scores stay in the cache. In training, longer
# documents use SDPA: unfused attention would keep all scores for the backward.
UNFUSED_QUERIES = 512


def unfused_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    bias: torch.Tensor | None,
    is_causal: bool,
    dropout: float,
) -> torch.Tensor:
    """Two matrix products with a softmax between them."""
    scores = torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(-2, -1))
    if is_causal:
        shape = scores.shape[-2:]
        future_bias = torch.full(shape, float("-inf"), dtype=scores.dtype, device=q.device)
        bias = future_bias.triu(1)
    if bias is not None:
        scores += bias
    probs = F.softmax(scores, dim=-1)
    if dropout:
        probs = probs * random_keep(probs, dropout)
        v = v / (1 - dropout)
    return torch.matmul(probs, v)


def chunked_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    bias: torch.Tensor | None,
    is_causal: bool,
    dropout: float,
) -> torch.Tensor:
    """The same for [rows, heads, queries, head width] without gradients or dropout, one head and a
    few queries at a time, so that their scores stay in the cache."""
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    num_rows, num_heads, length = q.shape[:3]
    q = q * q.shape[-1] ** -0.5
    for row in range(num_rows):
        bias_qk = None
        if bias is not None:
            row_bias = bias[row] if len(bias) > 1 else bias[0]  # it may be the same for all rows
            bias_qk = row_bias[0].expand(length, -1)  # and for all queries
        for head in range(num_heads):
            q_qd = q[row, head]
            k_kd = k[row, head]
            v_kd = v[row, head]
            _attend_in_chunks(q_qd, k_kd, v_kd, bias_qk, is_causal, out[row, head])
    return out


def _attend_in_chunks(
    q_qd: torch.Tensor,
    k_kd: torch.Tensor,
    v_kd: torch.Tensor,
    bias_qk: torch.Tensor | None,
    is_causal: bool,
    out_qd: torch.Tensor,
):
    """Write the output of one head to `out_qd`; the queries are scaled."""
    length = len(q_qd)
    chunk = UNFUSED_QUERIES // 2
    k_kd = k_kd.contiguous()
    v_dk = v_kd.t().contiguous()
    for start in range(0, length, chunk):
        stop = min(start + chunk, length)
        keys = stop if is_causal else length  # later keys are not computed
        scores_qk = _product(q_qd[start:stop], k_kd[:keys])
        if is_causal:
            scores_qk += torch.full_like(scores_qk, float("-inf")).triu(1 + start)
        if bias_qk is not None:
            scores_qk += bias_qk[start:stop, :keys]
        out_qd[start:stop] = _product(F.softmax(scores_qk, dim=-1), v_dk[:, :keys])


def _product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x yᵀ"""
    if x.dtype in FUSED_DTYPES:
        return FUSED_LINEAR(x, y, None, *_NO_ACTIVATION)
    return F.linear(x, y)


# Which kernel computes attention, and which documents share a call of it (the classes below). What
# costs least depends on both:
#
#                                     kernel for             dispatch if most tokens are
#                                     512 queries   more     in short documents   in others
#     dropout     any type            unfused       unfused  Packed               Documents
#     gradients   bf16                unfused       SDPA     Packed               Documents
#     gradients   others              SDPA          SDPA     Documents            Documents
#     neither     bf16 without AMX    unfused       chunked  Groups               Documents
#     neither     fp32, fused (AMD)   SDPA          chunked  Groups               Groups
#     neither     others              SDPA          SDPA     Groups               Groups
#
# Unfused attention holds the scores of a whole call: short documents share calls, and each long one
# has its own, so that its scores stay in the cache. The other kernels do not; chunked attention
# takes the rows of a group one by one itself.


def choose_cpu_kernel(
    dtype: torch.dtype, dropout: float, queries: int, keys: int
) -> AttentionKernel:
    """The kernel for this many queries and keys, as the table says."""
    if dropout:  # SDPA would spend most of its time drawing random numbers one by one
        return unfused_attention
    is_short = queries <= UNFUSED_QUERIES
    if torch.is_grad_enabled():
        # SDPA's backward in bf16 is slower than plain products for short rows.
        return unfused_attention if dtype == torch.bfloat16 and is_short else sdpa
    if queries != keys:
        # The blocks of local layers: plain products are slower there, and chunked attention takes
        # as many keys as queries.
        return sdpa
    if dtype == torch.bfloat16 and BF16_WITHOUT_AMX:
        return unfused_attention if is_short else chunked_attention
    if dtype == torch.float32 and dtype in FUSED_DTYPES and not is_short:
        return chunked_attention
    return sdpa


# --- attention over the unpadded tokens: which pieces a kernel gets ---

# Documents shorter than this share kernel calls.
SHORT_LENGTH = 128
# In training, the length of a packed row is a multiple of ROW_STEP. The number of rows of one
# length is a multiple of ROW_COUNT, if there are more than ROW_COUNT.
ROW_STEP = 64
ROW_COUNT = 4
# In inference, documents of the same length, rounded up to a multiple of this, share a call.
LENGTH_STEP = 16


def round_up(number: int, step: int) -> int:
    """The smallest multiple of `step` that is not below `number`."""
    return -(-number // step) * step


class CpuDispatch(AttentionDispatch):
    """Mixin: the kernels of this file compute the pieces, and filler tokens after the real ones get
    zeros (see `num_filler_tokens`)."""

    def choose_kernel(self, queries: int, keys: int) -> AttentionKernel:
        return choose_cpu_kernel(self.dtype, self.dropout, queries, keys)

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        num_filler = len(q) - self.num_tokens
        if not num_filler:
            return self.attend_tokens(q, k, v)
        real = slice(self.num_tokens)
        out = self.attend_tokens(q[real], k[real], v[real])
        return F.pad(out, (0, 0, 0, 0, 0, num_filler))

    def attend_tokens(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """`attend` without filler tokens."""
        return super().attend(q, k, v)


class DocumentsDispatch(CpuDispatch):
    """One call for each document; neighbouring short documents share a call under a block-diagonal
    mask."""

    name = "one call a document"

    def prepare(self):
        tokens = self.tokens
        self.sizes, is_shared = self._join_short_documents()
        self.biases: list[torch.Tensor | None] = []
        needs_mask = self.reach is not None or (self.causal and tokens.order == "any")
        id_parts = tokens.document_ids.split(self.sizes)
        position_parts = tokens.positions.split(self.sizes)
        for size, shared, ids, positions in zip(self.sizes, is_shared, id_parts, position_parts):
            bias = None
            if shared or needs_mask:
                mask = build_attention_mask(ids, positions, self.reach, self.causal)
                bias = to_bias(mask[None, None], self.dtype)
            self.kernels.append(self.choose_kernel(size, size))
            self.biases.append(bias)

    def _join_short_documents(self) -> tuple[list[int], list[bool]]:
        """The tokens of each call, and whether it has several documents."""
        sizes: list[int] = []
        is_shared: list[bool] = []
        for length in self.tokens.lengths:
            if sizes and sizes[-1] + length <= SHORT_LENGTH:
                sizes[-1] += length
                is_shared[-1] = True
            else:
                sizes.append(length)
                is_shared.append(False)
        return sizes, is_shared

    def attend_tokens(self, q, k, v):
        outs = []
        q_parts = self._split(q)
        k_parts = self._split(k)
        v_parts = self._split(v)
        calls = zip(self.kernels, self.biases, q_parts, k_parts, v_parts)
        for kernel, bias, q_1htd, k_1htd, v_1htd in calls:
            is_causal = self.causal and bias is None  # a bias hides what comes later itself
            out_1htd = kernel(q_1htd, k_1htd, v_1htd, bias, is_causal, self.dropout)
            outs.append(out_1htd.squeeze(0).transpose(0, 1))
        return torch.cat(outs) if len(outs) > 1 else outs[0]  # `cat` would copy a single tensor

    def _split(self, x: torch.Tensor) -> list[torch.Tensor]:
        """[tokens, heads, head width] → [1, heads, tokens of a call, head width] for each call."""
        return [part.transpose(0, 1).unsqueeze(0) for part in x.split(self.sizes)]


class PackedDispatch(CpuDispatch, RowsDispatch):
    """Rows of few shapes, for training: oneDNN builds a kernel for each shape in half precision,
    which takes ten times as long as running it. Documents of 50, 100, 20 and 60 tokens, for
    example:

        call 0   two rows of 64    [60 tokens, 4 empty slots] [50 tokens, 14 empty slots]
        call 1   one row of 128    [100 tokens, 20 tokens, 8 empty slots]
    """

    name = "documents packed into rows"

    def row_length(self, length: int) -> int:
        return round_up(length, ROW_STEP)

    def num_rows(self, filled: int) -> int:
        return filled if filled <= ROW_COUNT else round_up(filled, ROW_COUNT)


class GroupsDispatch(CpuDispatch, RowsDispatch):
    """One row for each document, documents of similar length in one call, for inference: SDPA's
    kernel is fastest for lengths that are multiples of `LENGTH_STEP`, and takes up to twice as long
    for others."""

    name = "documents of similar length together"
    allow_packing = False

    def row_length(self, length: int) -> int:
        return round_up(length, LENGTH_STEP)


class CpuBlocksDispatch(CpuDispatch, BlocksDispatch):
    """Local attention in blocks of queries."""


def choose_cpu_dispatch(
    tokens: UnpaddedTokens,
    reach: int | None,
    causal: bool,
    dropout: float,
    dtype: torch.dtype,
) -> AttentionDispatch:
    """Choose how layers with the same `AttentionSettings` attend over the unpadded tokens, of which
    there is at least one. Arguments are those of `AttentionDispatch`."""
    if reach is not None and tokens.order == "contiguous" and max(tokens.lengths) <= reach + 1:
        reach = None  # every token sees its whole document
    if tokens.order == "any" and (reach is not None or causal):
        # Positions fall or repeat within documents: only explicit masks know who sees whom.
        dispatch_class = DocumentsDispatch
    else:
        dispatch_class = _choose_by_lengths(tokens, reach, dropout, dtype)
    return dispatch_class(tokens, reach, causal, dropout, dtype)


def _choose_by_lengths(
    tokens: UnpaddedTokens, reach: int | None, dropout: float, dtype: torch.dtype
) -> type[AttentionDispatch]:
    """Choose by the lengths of the documents, since no kernel takes documents of any length here.
    The table above `choose_cpu_kernel` shows what is chosen."""
    lengths = tokens.lengths
    # Before the table counts: in long documents, most keys are out of reach of a local layer.
    if reach is not None and max(lengths) > 4 * max(reach, BlocksDispatch.MIN_BLOCK):
        return CpuBlocksDispatch
    if len(lengths) == 1:
        return DocumentsDispatch
    # With dropout, gradients change nothing: GradCache embeds without them, and again with them,
    # from the same random numbers.
    is_inference = not torch.is_grad_enabled() and not dropout
    uses_sdpa = choose_cpu_kernel(dtype, dropout, SHORT_LENGTH, SHORT_LENGTH) is sdpa
    if uses_sdpa:
        return GroupsDispatch if is_inference else DocumentsDispatch
    tokens_in_short = sum(length for length in lengths if length < SHORT_LENGTH)
    if 2 * tokens_in_short <= sum(lengths):
        return DocumentsDispatch
    return GroupsDispatch if is_inference else PackedDispatch


# --- linears fused with their activation, in inference ---

# What the fused operator takes for an activation: its name, its scalars, its algorithm.
_NO_ACTIVATION = ("none", [], None)
_FUSED_BY_NAME = {
    "gelu": ("gelu", [], "none"),
    "gelu_new": ("gelu", [], "tanh"),
    "gelu_pytorch_tanh": ("gelu", [], "tanh"),
    "relu": ("relu", [], None),
    "silu": ("swish", [], None),
    "swish": ("swish", [], None),
}
# By the class of the activation. A name that Transformers lacks is left out.
_FUSED_ACTIVATIONS = {
    type(ACT2FN[name]): operator for name, operator in _FUSED_BY_NAME.items() if name in ACT2FN
}


def project(
    linear: nn.Module, x: torch.Tensor, act: nn.Module | None = None, gated: bool = False
) -> torch.Tensor:
    """Compute linear(x), or act(linear(x)), or, if gated, act(a) · b with a and b the halves of
    linear(x).

    In inference on CPU this is one fused operation where oneDNN has it.
    """
    if _can_fuse(linear, x, act):
        return _project_fused(linear, x, act, gated)
    x = linear(x)
    if gated:
        x, gate = x.chunk(2, dim=-1)
        return act(x) * gate
    return x if act is None else act(x)


def _project_fused(
    linear: nn.Linear, x: torch.Tensor, act: nn.Module | None, gated: bool
) -> torch.Tensor:
    activation = _NO_ACTIVATION if act is None else _FUSED_ACTIVATIONS[type(act)]
    if not gated:
        return FUSED_LINEAR(x, linear.weight, linear.bias, *activation)
    weight, gate_weight = linear.weight.chunk(2)
    bias = gate_bias = None
    if linear.bias is not None:
        bias, gate_bias = linear.bias.chunk(2)
    gate = FUSED_LINEAR(x, gate_weight, gate_bias, *_NO_ACTIVATION)
    return FUSED_LINEAR(x, weight, bias, *activation).mul_(gate)


def _can_fuse(linear: nn.Module, x: torch.Tensor, act: nn.Module | None) -> bool:
    """Whether the fused operation exists, is faster, and bypasses nothing that must see the
    modules: hooks, replaced methods, quantized weights, dispatch modes such as one that counts
    operations."""
    if x.dtype not in FUSED_DTYPES or x.device.type != "cpu" or torch.is_grad_enabled():
        return False
    if x.dtype == torch.float32 and torch.is_autocast_enabled("cpu"):
        return False
    if type(linear) is not nn.Linear or type(linear.weight) is not nn.Parameter:
        return False
    if linear.weight.dtype != x.dtype:
        return False
    if act is not None and type(act) not in _FUSED_ACTIVATIONS:
        return False
    modules = [linear] if act is None else [linear, act]
    if any("forward" in module.__dict__ for module in modules):
        return False
    return not needs_traceable_ops(x) and not is_watched(*modules)


# --- few shapes ---


def num_filler_tokens(x_td: torch.Tensor, training: bool = False) -> int:
    """How many filler tokens to append to the unpadded tokens, [tokens, width], so that few lengths
    occur: 16 between a power of two and the next. From 512 to 1,023 tokens, for example, these are
    multiples of 32: 24 filler tokens are appended to 1,000 tokens.

    oneDNN builds a kernel for every shape that it meets (in half precision, and wherever `project`
    fuses). The work on filler tokens, 2 % on average, takes less time than that.
    """
    if x_td.device.type != "cpu":
        return 0
    is_half = x_td.dtype in (torch.bfloat16, torch.float16) or torch.is_autocast_enabled("cpu")
    has_gradients = training or torch.is_grad_enabled()
    is_fused = x_td.dtype in FUSED_DTYPES and not has_gradients
    if not (is_half or is_fused) or needs_static_shapes(x_td):
        return 0
    step = 1 << max(0, len(x_td).bit_length() - 5)
    return -len(x_td) % max(16, step)


def append_filler_tokens(
    hidden_1td: torch.Tensor, positions_1t: torch.Tensor, training: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """The embeddings of the unpadded tokens and their positions, with `num_filler_tokens` at the
    end."""
    num_filler = num_filler_tokens(hidden_1td[0], training)
    if not num_filler:
        return hidden_1td, positions_1t
    return _repeat_last(hidden_1td, num_filler, 1), F.pad(positions_1t, (0, num_filler))


def append_filler_targets(
    hidden_td: torch.Tensor, labels_t: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The tokens that a head predicts for, with `num_filler_tokens` at the end, and their labels.
    Filler tokens have none."""
    num_filler = num_filler_tokens(hidden_td)
    if not num_filler:
        return hidden_td, labels_t
    if labels_t is not None:
        labels_t = F.pad(labels_t, (0, num_filler), value=-100)
    return _repeat_last(hidden_td, num_filler, 0), labels_t


def drop_filler(filled_tv: torch.Tensor, hidden_td: torch.Tensor) -> torch.Tensor:
    """What a head computed, without the filler tokens that were appended to `hidden_td`."""
    num_tokens = hidden_td.shape[0]
    return filled_tv if filled_tv.shape[0] == num_tokens else filled_tv[:num_tokens]


def _repeat_last(x: torch.Tensor, num_copies: int, dim: int) -> torch.Tensor:
    """Append the last token `num_copies` times. (Tokens of zeros would not do: in fp16 the gradient
    of their norm overflows.)"""
    shape = list(x.shape)
    shape[dim] = num_copies
    return torch.cat((x, x.narrow(dim, -1, 1).expand(shape)), dim)


# --- dropout with fewer random numbers ---


def random_keep(like: torch.Tensor, rate: float) -> torch.Tensor:
    """A factor for each element of `like`: 1 with probability 1 - rate (to 1/65536), else 0.

    One draw of the generator makes four decisions of 16 bits; `bernoulli_` draws once for each. The
    factors have the dtype of `like`, since multiplying by booleans is slower.
    """
    num_draws = -(-like.numel() // 4)
    lowest = torch.iinfo(torch.int64).min
    uniform_samples = torch.empty(num_draws, dtype=torch.int64).random_(lowest, None)
    uniform_samples = uniform_samples.view(torch.int16)[: like.numel()].view(like.shape)
    threshold = round(rate * 65536) - 32768  # samples lie between -32768 and 32767
    return torch.ge(uniform_samples, threshold, out=torch.empty(like.shape, dtype=like.dtype))


class MiniBertDropout(nn.Dropout):
    """`nn.Dropout` with cheaper random numbers on CPU."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training or self.p == 0 or x.device.type != "cpu" or needs_traceable_ops(x):
            return super().forward(x)
        return (x * random_keep(x, self.p)).mul_(1 / (1 - self.p))


# --- cross-entropy, a few rows at a time ---


def sum_cross_entropy(
    logits: torch.Tensor, labels: torch.Tensor, ignore_index: int
) -> torch.Tensor:
    """The sum of the cross-entropies of [targets, classes], in fp32 (or fp64), without the labels
    `ignore_index`."""
    if needs_traceable_ops(logits) or logits.device.type != "cpu" or not len(logits):
        return F.cross_entropy(
            at_least_fp32(logits), labels, ignore_index=ignore_index, reduction="sum"
        )
    loss_sum, _ = CrossEntropyByRows.apply(logits, labels.masked_fill(labels == ignore_index, -1))
    return loss_sum


class CrossEntropyByRows(torch.autograd.Function):
    """The sum of the cross-entropies of [targets, classes], in fp32; targets with a negative label
    are ignored.

    It computes `ROWS_AT_ONCE` rows at a time: what they need besides the logits stays in the cache.
    Separate operators write four tensors of the size of the logits and read them back.
    """

    ROWS_AT_ONCE = 64

    @staticmethod
    def forward(logits, labels):
        chunks = logits.split(CrossEntropyByRows.ROWS_AT_ONCE)
        log_sums = torch.cat([at_least_fp32(chunk).logsumexp(-1) for chunk in chunks])
        at_labels = at_least_fp32(logits.gather(1, labels.clamp(min=0).unsqueeze(1)).squeeze(1))
        return (log_sums - at_labels).masked_fill(labels < 0, 0).sum(), log_sums

    @staticmethod
    def setup_context(ctx, inputs, output):
        log_sums = output[1]
        ctx.save_for_backward(*inputs, log_sums)
        ctx.mark_non_differentiable(log_sums)

    @staticmethod
    def backward(ctx, grad, _):
        """softmax(logits) - one_hot(labels), [targets, classes], times `grad`."""
        logits, labels, log_sums = ctx.saved_tensors
        scale = grad * (labels >= 0)
        labels = labels.clamp(min=0)
        if torch.is_grad_enabled():  # this gradient will be differentiated again
            probs = at_least_fp32(logits).softmax(-1)
            hits = F.one_hot(labels, logits.shape[1])
            return ((probs - hits) * scale.unsqueeze(1)).to(logits.dtype), None
        out = torch.empty_like(logits)
        for start in range(0, len(logits), CrossEntropyByRows.ROWS_AT_ONCE):
            chunk = slice(start, start + CrossEntropyByRows.ROWS_AT_ONCE)
            labels_t1 = labels[chunk].unsqueeze(1)
            probs = (at_least_fp32(logits[chunk]) - log_sums[chunk].unsqueeze(1)).exp_()
            probs.scatter_add_(1, labels_t1, probs.new_full(labels_t1.shape, -1))
            out[chunk].copy_(probs.mul_(scale[chunk].unsqueeze(1)))
        return out, None
