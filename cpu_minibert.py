# Copyright 2026 The MiniBERT authors. Licensed under the Apache License, Version 2.0.
"""What only CPUs need. On any other device the functions here do what `nn.Linear`, `nn.Dropout` and `F.cross_entropy`
do, and the kernels are not used: skip this file unless you run on a CPU.

Shape suffixes: t tokens, d width, q queries, k keys.
"""

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from transformers.activations import ACT2FN

from .sequences_minibert import at_least_fp32, is_captured, is_traced

# --- what this processor does well ---

FEATURES = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
# Without AMX, SDPA computes bf16 products at the speed of fp32; a plain matrix product is faster.
BF16_WITHOUT_AMX = FEATURES.get("avx512_bf16", False) and not FEATURES.get("amx_bf16", False)
# The fused operator that torch.compile uses for a linear and the activation after it: oneDNN adds the bias and applies
# the activation while a block of the product is still in the cache. It has no backward.
FUSED_LINEAR, FUSED_DTYPES = getattr(torch.ops.mkldnn, "_linear_pointwise", None), set()
# In inference it replaces `nn.Linear` for these types: bf16, and fp32 on AMD processors with AVX-512, where MKL, which
# torch uses otherwise, runs at half speed.
if (
    FUSED_LINEAR
    and torch.backends.mkldnn.is_available()
    and torch.ops.mkldnn._is_mkldnn_bf16_supported()
):
    FUSED_DTYPES.add(torch.bfloat16)
    if FEATURES.get("avx512_f", False) and "AMD" in FEATURES.get("cpu_name", ""):
        FUSED_DTYPES.add(torch.float32)

# --- attention kernels: softmax(q kᵀ / √d + bias) v for [..., heads, queries, head width] ---

# Documents shorter than this share kernel calls.
SHORT = 128
# The length of a packed row is a multiple of ROW_STEP. The number of rows of one length is a multiple of
# ROW_COUNT, if there are more than ROW_COUNT.
ROW_STEP, ROW_COUNT = 64, 4
# In inference, documents of the same length, rounded up to a multiple of this, share a call.
LENGTH_STEP = 16
# Without dropout, unfused attention is used for up to this many queries, and chunked attention computes half as many at
# a time, so that the scores stay in the cache. In training, longer documents use SDPA: unfused attention would keep all
# scores for the backward.
UNFUSED_QUERIES = 512


def unfused_attention(
    q, k, v, bias: torch.Tensor | None, is_causal: bool, dropout: float
) -> torch.Tensor:
    """Two matrix products with a softmax between them."""
    scores = torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(-2, -1))
    if is_causal:
        bias = torch.full(
            scores.shape[-2:], float("-inf"), dtype=scores.dtype, device=q.device
        ).triu(1)
    if bias is not None:
        scores += bias
    probs = F.softmax(scores, dim=-1)
    if dropout:
        probs, v = probs * random_keep(probs, dropout), v / (1 - dropout)
    return torch.matmul(probs, v)


def chunked_attention(
    q, k, v, bias: torch.Tensor | None, is_causal: bool, dropout: float
) -> torch.Tensor:
    """The same for [n, heads, queries, head width] without gradients or dropout, one head and a few queries at a time,
    so that their scores stay in the cache."""
    out, length = torch.empty_like(q, memory_format=torch.contiguous_format), q.shape[2]
    q, chunk = q * q.shape[-1] ** -0.5, UNFUSED_QUERIES // 2
    for n in range(len(q)):
        for h in range(q.shape[1]):
            k_kd, v_dk = k[n, h].contiguous(), v[n, h].t().contiguous()
            for start in range(0, length, chunk):
                stop = min(start + chunk, length)
                keys = stop if is_causal else length
                scores_qk = _product(q[n, h, start:stop], k_kd[:keys])
                if is_causal:
                    scores_qk += torch.full_like(scores_qk, float("-inf")).triu(1 + start)
                if bias is not None:  # a bias that only hides padding is one row for all queries
                    scores_qk += bias[n if len(bias) > 1 else 0, 0].expand(length, -1)[
                        start:stop, :keys
                    ]
                out[n, h, start:stop] = _product(F.softmax(scores_qk, dim=-1), v_dk[:, :keys])
    return out


def _product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x yᵀ"""
    return FUSED_LINEAR(x, y, None, "none", [], None) if x.dtype in FUSED_DTYPES else F.linear(x, y)


def choose_cpu_kernel(
    dtype: torch.dtype, dropout: float, queries: int, keys: int
) -> tuple[Any, str]:
    """The kernel that replaces SDPA for this many queries and keys (None: SDPA itself), and the reason."""
    if dropout:  # SDPA would spend most of its time drawing random numbers one by one
        return unfused_attention, "attention dropout"
    if dtype == torch.bfloat16 and torch.is_grad_enabled() and queries <= UNFUSED_QUERIES:
        return (
            unfused_attention,
            "SDPA's backward in bf16 is slower than plain products for short rows",
        )
    if not torch.is_grad_enabled() and queries == keys:
        if dtype == torch.bfloat16 and BF16_WITHOUT_AMX:
            return (
                unfused_attention if queries <= UNFUSED_QUERIES else chunked_attention
            ), "bf16 without AMX"
        if dtype == torch.float32 and dtype in FUSED_DTYPES and queries > UNFUSED_QUERIES:
            return chunked_attention, "fp32 on AMD"
    return None, "plain products are slower here"


# --- linears fused with their activation, in inference ---

_NO_ACTIVATION = ("none", [], None)
_FUSED_ACTIVATIONS = {
    type(ACT2FN["gelu"]): ("gelu", [], "none"),
    type(ACT2FN["gelu_new"]): ("gelu", [], "tanh"),
    type(ACT2FN["gelu_pytorch_tanh"]): ("gelu", [], "tanh"),
    type(ACT2FN["relu"]): ("relu", [], None),
    type(ACT2FN["silu"]): ("swish", [], None),
    type(ACT2FN["swish"]): ("swish", [], None),
}


def project(
    linear: nn.Module, x: torch.Tensor, act: nn.Module | None = None, gated: bool = False
) -> torch.Tensor:
    """Compute linear(x), or act(linear(x)), or, if gated, act(a) · b with a and b the halves of linear(x).

    In inference on CPU this is one fused operation where oneDNN has it.
    """
    if not _can_fuse(linear, x, act):
        x, gate = linear(x).chunk(2, dim=-1) if gated else (linear(x), None)
        x = x if act is None else act(x)
        return x * gate if gated else x
    activation = _NO_ACTIVATION if act is None else _FUSED_ACTIVATIONS[type(act)]
    if not gated:
        return FUSED_LINEAR(x, linear.weight, linear.bias, *activation)
    weight, gate_weight = linear.weight.chunk(2)
    bias, gate_bias = (None, None) if linear.bias is None else linear.bias.chunk(2)
    gate = FUSED_LINEAR(x, gate_weight, gate_bias, *_NO_ACTIVATION)
    return FUSED_LINEAR(x, weight, bias, *activation).mul_(gate)


def _can_fuse(linear: nn.Module, x: torch.Tensor, act: nn.Module | None) -> bool:
    """Whether the fused operation exists, is faster, and bypasses nothing that must see the modules: hooks, replaced
    methods, quantized weights, dispatch modes such as one that counts operations."""
    modules = [linear] if act is None else [linear, act]
    return (
        (act is None or type(act) in _FUSED_ACTIVATIONS)
        and x.dtype in FUSED_DTYPES
        and not (x.dtype == torch.float32 and torch.is_autocast_enabled("cpu"))
        and x.device.type == "cpu"
        and not torch.is_grad_enabled()
        and type(linear) is nn.Linear
        and type(linear.weight) is nn.Parameter
        and linear.weight.dtype == x.dtype
        and not any(
            m._forward_hooks or m._forward_pre_hooks or "forward" in m.__dict__ for m in modules
        )
        and not is_traced(x)
        and not (
            torch.nn.modules.module._has_any_global_hook() or torch._C._len_torch_dispatch_stack()
        )
    )


# --- few shapes ---


def bucket_rows(x_td: torch.Tensor, training: bool = False) -> int:
    """How many rows to append to the unpadded tokens, [tokens, width], so that few lengths occur: 16 between a power of
    two and the next.

    oneDNN builds a kernel for every shape that it meets (in half precision, and wherever `project` fuses). The work on
    the appended rows, 2 % on average, takes less time than that.
    """
    by_shape = x_td.dtype in (torch.bfloat16, torch.float16) or torch.is_autocast_enabled("cpu")
    by_shape = by_shape or (
        x_td.dtype in FUSED_DTYPES and not (training or torch.is_grad_enabled())
    )
    if not by_shape or x_td.device.type != "cpu" or is_captured(x_td):
        return 0
    return -len(x_td) % max(16, 1 << max(0, len(x_td).bit_length() - 5))


def repeat_last(x: torch.Tensor, count: int, dim: int) -> torch.Tensor:
    """Append the last row `count` times. (Rows of zeros would not do: in fp16 the gradient of their norm overflows.)"""
    last = x.narrow(dim, -1, 1)
    return torch.cat((x, last.expand(*(count if i == dim else -1 for i in range(x.dim())))), dim)


# --- dropout with fewer random numbers ---


def random_keep(like: torch.Tensor, rate: float) -> torch.Tensor:
    """A factor for each element of `like`: 1 with probability 1 - rate (to 1/65536), else 0.

    One draw of the generator makes four decisions of 16 bits; `bernoulli_` draws once for each. The factors have the
    dtype of `like`, since multiplying by booleans is slower.
    """
    draws = torch.empty(-(-like.numel() // 4), dtype=torch.int64).random_(
        torch.iinfo(torch.int64).min, None
    )
    draws = draws.view(torch.int16)[: like.numel()].view(like.shape)
    return torch.ge(
        draws, round(rate * 65536) - 32768, out=torch.empty(like.shape, dtype=like.dtype)
    )


class MiniBertDropout(nn.Dropout):
    """`nn.Dropout` with cheaper random numbers on CPU."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training or self.p == 0 or x.device.type != "cpu" or is_traced(x):
            return super().forward(x)
        return (x * random_keep(x, self.p)).mul_(1 / (1 - self.p))


# --- cross-entropy, a few rows at a time ---


class CrossEntropyByRows(torch.autograd.Function):
    """The sum of the cross-entropies of [targets, classes], in fp32; targets with a negative label are ignored.

    It computes `ROWS` rows at a time: what they need besides the logits stays in the cache. Separate operators write
    four tensors of the size of the logits and read them back.
    """

    ROWS = 64

    @staticmethod
    def forward(logits, labels):
        log_sums = torch.cat(
            [at_least_fp32(rows).logsumexp(-1) for rows in logits.split(CrossEntropyByRows.ROWS)]
        )
        at_labels = at_least_fp32(logits.gather(1, labels.clamp(min=0).unsqueeze(1)).squeeze(1))
        return (log_sums - at_labels).masked_fill(labels < 0, 0).sum(), log_sums

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output[1])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, grad, _):
        logits, labels, log_sums = ctx.saved_tensors
        if torch.is_grad_enabled():  # this gradient will be differentiated again
            probs = at_least_fp32(logits).softmax(-1)
            hits = F.one_hot(labels.clamp(min=0), logits.shape[1])
            return ((probs - hits) * (grad * (labels >= 0)).unsqueeze(1)).to(logits.dtype), None
        out = torch.empty_like(logits)
        parts = (x.split(CrossEntropyByRows.ROWS) for x in (out, logits, labels, log_sums))
        for out_rows, rows, label, log_sum in zip(*parts):
            probs = (at_least_fp32(rows) - log_sum.unsqueeze(1)).exp_()
            probs.scatter_add_(
                1, label.clamp(min=0).unsqueeze(1), probs.new_full((len(label), 1), -1)
            )
            out_rows.copy_(probs.mul_((grad * (label >= 0)).unsqueeze(1)))
        return out, None
