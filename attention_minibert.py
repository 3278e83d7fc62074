# Copyright 2026 The MiniBERT authors. Licensed under the Apache License, Version 2.0.
"""Where the real tokens of a batch lie, and how they attend to each other.

`Documents` turns whatever a caller hands over (a padding mask, position ids that restart, `seq_idx`, `cu_seq_lens_q`)
into one description: which tokens are real, which document each belongs to, and its position there. From it come
- the *unpadded tokens*: the real tokens of the whole batch one after the other, [tokens, …], on which the model works;
- a dense boolean mask for everything that wants padded rows (eager, flex, functions a user registered, export).

`attn_implementation="sdpa"`, the default, means more here than a call of torch's function: padding is dropped, and
`plan_attention` decides, once a forward for each kind of layer, which kernel runs (flash attention on CUDA too), on
what pieces, with which masks, and says why: an `AttentionPlan`, which the layers call. Every other implementation runs
as Transformers defines it (`InterfacePlan`). One definition for all: token i sees token j if both belong to one
document, |position_i - position_j| <= window in local layers, and position_j <= position_i in a causal model. (A
document is what other libraries call a segment or a sequence of a packed row; a row that is not packed is one.)

Shape suffixes: b batch, s columns of the padded batch, t unpadded tokens, n documents, h heads, d head width,
q queries, k keys, c blocks of a local layer, p places in padded groups of documents.
"""

import copy
import inspect
from bisect import bisect_left, insort
from functools import cached_property
from typing import Any

import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn import functional as F
from transformers.activations import ACT2FN
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils import is_flash_attn_2_available
from transformers.utils.import_utils import is_torchdynamo_exporting, is_tracing

from .configuration_minibert import MiniBertConfig

try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:  # torch < 2.10
    varlen_attn = None
if is_flash_attn_2_available():
    from flash_attn import flash_attn_varlen_func
else:
    flash_attn_varlen_func = None

# Early versions of `varlen_attn` know no window.
VARLEN_HAS_WINDOW = varlen_attn is not None and "window_size" in inspect.signature(varlen_attn).parameters

# Documents that are shorter than this share kernel calls on CPU.
CPU_SHORT = 128
# Where unfused attention runs there, documents are packed into rows whose lengths are multiples of this many tokens; of
# one length there are a multiple of this many, if more.
CPU_ROW, CPU_ROWS = 64, 4
# In inference, documents whose lengths, in steps of this many tokens, are equal share a call.
CPU_STEP = 16
# Without dropout, unfused attention takes up to this many queries, and chunked attention half as many at a time: their
# scores stay in the cache. Longer documents go to SDPA in training, which would have to keep the scores of all pairs.
CPU_UNFUSED = 512
# Local layers are cut into blocks of at least this many queries.
LOCAL_BLOCK = 32
# With these instructions but no AMX, SDPA's CPU kernel does bf16 products at the rate of fp32; a matmul is faster.
CPU_FEATURES = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
BF16_WITHOUT_AMX = CPU_FEATURES.get("avx512_bf16", False) and not CPU_FEATURES.get("amx_bf16", False)
# What torch's compiler makes of a linear and the activation behind it: oneDNN adds the bias and applies the activation
# while a block of the product is still in the cache. It knows no gradients.
FUSED_LINEAR, FUSED_DTYPES = getattr(torch.ops.mkldnn, "_linear_pointwise", None), set()
# In inference it multiplies instead of `nn.Linear` (`project`): in bf16, and in fp32 on AMD's processors with AVX-512,
# where torch's own library, MKL, runs at half its rate.
if FUSED_LINEAR and torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported():
    FUSED_DTYPES.add(torch.bfloat16)
    if CPU_FEATURES.get("avx512_f", False) and "AMD" in CPU_FEATURES.get("cpu_name", ""):
        FUSED_DTYPES.add(torch.float32)


class Documents:
    """The documents of one batch.

    Args:
        batch_size, length: rows and columns of the padded batch.
        attention_mask: [batch, length], non-zero where a token is real; padding may be left, right or in holes.
        position_ids: [batch or 1, length]; a document starts where a position is not the previous one plus 1.
        seq_idx: [batch or 1, length], the number of the document of each token; wins over `position_ids`.
        cu_seq_lens: [documents + 1], where documents start in the flattened batch; wins over `position_ids` too.
        max_length: tokens of the longest document at most, `length` where it is not known.

    Without `position_ids`, positions count the real tokens of a document from 0.

    Raises:
        ValueError: on CPU, `cu_seq_lens` for one row that leave tokens out.

    `real_bs` is None where no `attention_mask` was given; `id_bs` (documents numbered over the batch, -1 at padding)
    where nothing was given, so that every row is one document. `unpad` sets `index_t`, the places of the unpadded
    tokens in the flattened batch (None: all of it), `id_t` (before: of each place), `position_t`, `cu_seqlens` and
    `is_packed` (a row holds several documents); one row without padding that comes with `cu_seq_lens` has them at once.
    """

    def __init__(
        self,
        batch_size: int,
        length: int,
        device: torch.device,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        seq_idx: torch.Tensor | None = None,
        cu_seq_lens: torch.Tensor | None = None,
        max_length: int | None = None,
    ):
        self.shape, self.device = (batch_size, length), device
        self.longest = length if max_length is None else max_length
        self.index_t = self.cu_seqlens = self.real_bs = self.id_bs = None
        self.is_packed, self.may_pack = False, seq_idx is not None or cu_seq_lens is not None
        if position_ids is None:
            self.order = "contiguous"

        def rows(x):
            return x.to(device).view(-1, length).expand(batch_size, length)

        columns = torch.arange(length, device=device)
        if attention_mask is None and position_ids is None and seq_idx is None and cu_seq_lens is None:
            self.position_bs = columns.expand(batch_size, length)
            self.id_t = torch.arange(batch_size, device=device).unsqueeze(1).expand(batch_size, length).flatten()
            return
        if batch_size == 1 and cu_seq_lens is not None and attention_mask is None and seq_idx is None:
            self.cu_seqlens, self.is_packed = cu_seq_lens.to(device, torch.int32), len(cu_seq_lens) > 2
            on_cpu = device.type == "cpu" and not is_captured(columns)  # elsewhere it would mean to wait for the device
            if on_cpu and (sum(self.lengths) != length or self.cu_seqlens[0] != 0 or min(self.lengths) < 1):
                raise ValueError(
                    f"cu_seq_lens_q: {cu_seq_lens.tolist()} do not lead through the {length} tokens of the row; use "
                    f"rising numbers from 0 to {length}"
                )
            self.id_t = torch.bucketize(columns, self.cu_seqlens[1:-1].contiguous(), right=True)
            self.position_t = columns - self.cu_seqlens[self.id_t] if position_ids is None else rows(position_ids)[0]
            self.id_bs, self.position_bs = self.id_t.unsqueeze(0), self.position_t.unsqueeze(0)
            return

        if attention_mask is None:
            real = torch.ones(batch_size, length, dtype=torch.bool, device=device)
        else:
            real = rows(attention_mask) != 0
        before = _forward_fill(real, columns.expand(batch_size, length), -1)  # column of the real token before this one
        starts = before < 0
        if seq_idx is None and cu_seq_lens is not None:
            seq_idx = torch.bucketize(torch.arange(real.numel(), device=device), cu_seq_lens.to(device), right=True)
        if seq_idx is not None:
            number = rows(seq_idx)
            starts = starts | (number != number.gather(1, before.clamp(min=0)))
        elif position_ids is not None:
            number = rows(position_ids)
            # A hole may or may not have been counted: either way the document goes on behind it.
            step = number - number.gather(1, before.clamp(min=0))
            starts = starts | ((step != 1) & (step != columns - before))
        self.starts_bs = starts & real
        self.real_bs = None if attention_mask is None else real
        # padding is its own document, so that no row of a mask is empty
        self.id_bs = torch.where(real, self.starts_bs.flatten().long().cumsum(0).view_as(real) - 1, -1)
        self.id_t = self.id_bs.flatten()
        if position_ids is not None:
            self.position_bs = rows(position_ids)
        else:
            count = real.long().cumsum(1)
            first = torch.where(self.starts_bs, count, _forward_fill(self.starts_bs, count, 1))
            self.position_bs = (count - first).clamp(min=0)

    # --- the unpadded tokens ---

    def unpad(self) -> "Documents":
        """Find the unpadded tokens, in row order. Looks at values, so that it cannot be captured in a graph and waits
        for the device, unless every row is one document without padding or one row comes with `cu_seq_lens`."""
        if self.cu_seqlens is not None:
            return self
        batch_size, length = self.shape
        if self.id_bs is None:
            self.cu_seqlens = torch.arange(0, batch_size * length + 1, length, dtype=torch.int32, device=self.device)
            self.position_t, self.lengths = self.position_bs.flatten(), [length] * batch_size
        else:
            self._find()
        return self

    @torch.compiler.disable  # sizes depend on the data; the layers behind it are compiled as one graph
    def _find(self):
        length = self.shape[1]
        if self.real_bs is not None:
            self.index_t = self.real_bs.flatten().nonzero().squeeze(1)
            if len(self.index_t) == self.real_bs.numel():
                self.index_t = None
        self.id_t, self.position_t = self.select(self.id_bs), self.select(self.position_bs)
        first_t = self.select(self.starts_bs).nonzero().squeeze(1)
        self.cu_seqlens = F.pad(first_t, (0, 1), value=len(self.id_t)).int()
        first_row = (first_t if self.index_t is None else self.index_t[first_t]) // length
        self.is_packed = bool((first_row[1:] == first_row[:-1]).any())

    @cached_property
    @torch.compiler.disable
    def order(self) -> str:
        """How positions go on within documents: "contiguous" (by 1), "rising" or "any"."""
        step = torch.where(self.id_t.diff() == 0, self.position_t.diff(), 1)
        lowest, highest = (int(x) for x in step.aminmax()) if len(step) else (1, 1)
        return "any" if lowest < 1 else "contiguous" if highest == 1 else "rising"

    @cached_property
    def lengths(self) -> list[int]:
        """Tokens of each document."""
        return self.cu_seqlens.diff().tolist()

    def select(self, x_bs: torch.Tensor) -> torch.Tensor:
        """Unpads a tensor: [batch, length, …] → [tokens, …]"""
        x = x_bs.flatten(0, 1)
        return x if self.index_t is None else x[self.index_t]

    def select_labels(
        self, labels_bs: torch.Tensor | None, num_items: int | torch.Tensor | None = None, shift: bool = False
    ) -> tuple[torch.Tensor | None, int | torch.Tensor | None]:
        """[batch, length] → [tokens]; nothing is predicted at padding. With `shift` a token gets the label of the next
        one of its document. With them `num_items`, the labels that `Trainer` counted over all steps of gradient
        accumulation (with `shift`: but for the first of each row), without the share of them that is not predicted."""
        if labels_bs is None:
            return None, num_items
        if tuple(labels_bs.shape) != tuple(self.shape):
            raise ValueError(f"labels have the shape {tuple(labels_bs.shape)}: give {tuple(self.shape)}, one a token")
        labels_t = self.select(labels_bs if self.real_bs is None else labels_bs.masked_fill(~self.real_bs, -100))
        if shift:
            labels_bs = labels_bs[:, 1:]
            labels_t = F.pad(labels_t, (0, 1), value=-100)[1:].masked_fill(~self.has_next(), -100)
        if num_items is not None and (shift or self.real_bs is not None):
            given, left = ((x != -100).sum() for x in (labels_bs, labels_t))
            num_items = torch.as_tensor(num_items, device=given.device)
            num_items = num_items - (given - left) * num_items // given.clamp(min=1)
        return labels_t, num_items

    def restore(self, x_t: torch.Tensor, fill: float = 0.0) -> torch.Tensor:
        """Pads again: [tokens, width] → [batch, length, width], `fill` at padding."""
        if self.index_t is not None:
            batch_size, length = self.shape
            padded = x_t.new_full((batch_size * length, *x_t.shape[1:]), fill)
            x_t = padded.index_copy(0, self.index_t.to(x_t.device), x_t)
        elif self.cu_seqlens is None and self.real_bs is not None:  # padding was never dropped
            x_t = x_t.masked_fill(~self.real_bs.to(x_t.device).flatten().unsqueeze(1), fill)
        return self._rows(x_t)

    def _rows(self, x_t: torch.Tensor) -> torch.Tensor:
        """[batch · length, width] → [batch, length, width]; by one flat dimension, which torch.export follows for every
        length."""
        return x_t.flatten().view(*self.shape, x_t.shape[-1])

    def has_next(self) -> torch.Tensor:
        """[tokens], whether the token is followed by another one of its document."""
        return F.pad(self.id_t, (0, 1), value=-2)[1:] == self.id_t

    def pool(self, hidden_t: torch.Tensor, pooling: str) -> torch.Tensor:
        """The `cls` (first), `last` or `mean` vector of each row, [batch, width]; of each document, [documents, width],
        if a row holds several. A row without real tokens gives zeros."""
        wide = torch.promote_types(hidden_t.dtype, torch.float32)
        if self.cu_seqlens is None:
            return self._pool_rows(self._rows(hidden_t), pooling)
        first, last = self.cu_seqlens[:-1].long(), self.cu_seqlens[1:].long() - 1
        if pooling == "mean":
            sums = hidden_t.new_zeros(len(first), hidden_t.shape[-1], dtype=wide)
            sums = sums.index_add(0, self.id_t, hidden_t.to(wide))
            pooled = (sums / (last - first + 1).unsqueeze(1)).to(hidden_t.dtype)
        else:
            pooled = hidden_t[first if pooling == "cls" else last]
        if self.is_packed or len(first) == self.shape[0]:
            return pooled
        row = self.index_t[first] // self.shape[1]
        return pooled.new_zeros(self.shape[0], pooled.shape[1]).index_copy(0, row, pooled)

    def _pool_rows(self, hidden_bsd: torch.Tensor, pooling: str) -> torch.Tensor:
        """The same without looking at values: every row is one document (which position ids may contradict unseen)."""
        if self.may_pack:
            raise ValueError("seq_idx: a captured graph has a vector a row; use one row with cu_seq_lens_q")
        chosen_bs = hidden_bsd.new_ones(self.shape, dtype=torch.bool) if self.real_bs is None else self.real_bs
        if pooling != "mean":
            count_bs = chosen_bs.long().cumsum(1)
            chosen_bs = chosen_bs & (count_bs == (1 if pooling == "cls" else count_bs[:, -1:]))
        weight_bs = chosen_bs.to(hidden_bsd.dtype)
        summed = torch.bmm(weight_bs.unsqueeze(1), hidden_bsd).squeeze(1)
        return summed / weight_bs.sum(1, keepdim=True).clamp(min=1)

    # --- padded rows ---

    def visible(self, window: int | None, causal: bool) -> Any:
        """The rule as a function (batch, head, query, key) → bool, in the form of Transformers' mask functions."""
        id_bs, position_bs = self.id_bs, self.position_bs

        def rule(b, h, q, k):
            distance = position_bs[b, q] - position_bs[b, k]
            seen = distance == distance if id_bs is None else id_bs[b, q] == id_bs[b, k]
            return _within(seen, distance, window, causal)

        return rule

    def dense_mask(self, window: int | None, causal: bool) -> torch.Tensor | None:
        """[batch, 1, length, length], True where a query (second to last) sees a key; None if it always does."""
        if self.id_bs is None and window is None and not causal:
            return None
        return _visible(self.id_bs, self.position_bs, window, causal).unsqueeze(1)


def bucket_rows(x_td: torch.Tensor, training: bool = False) -> int:
    """Rows to append to the unpadded tokens, [tokens, width], so that few lengths occur, 16 between a power of two and
    the next. In half precision on CPU, and wherever oneDNN multiplies, kernels are built for each shape that is met;
    the work on these rows, 2 % on average, takes less time."""
    by_shape = x_td.dtype in (torch.bfloat16, torch.float16) or torch.is_autocast_enabled("cpu")
    by_shape = by_shape or (x_td.dtype in FUSED_DTYPES and not (training or torch.is_grad_enabled()))
    if not by_shape or x_td.device.type != "cpu" or is_captured(x_td):
        return 0
    return -len(x_td) % max(16, 1 << max(0, len(x_td).bit_length() - 5))


def repeat_last(x: torch.Tensor, count: int, dim: int) -> torch.Tensor:
    """`x` with its last row `count` times more. (The norm of a row of zeros has a gradient that fp16 cannot hold.)"""
    last = x.narrow(dim, -1, 1)
    return torch.cat((x, last.expand(*(count if i == dim else -1 for i in range(x.dim())))), dim)


def is_captured(x: torch.Tensor) -> bool:
    """Whether one graph is being captured that may not depend on values: torch.export, ONNX, tracing, the meta device;
    and torch.compile on CPU, where no kernel takes documents of any length (on CUDA some do)."""
    if torch.compiler.is_compiling() and not is_torchdynamo_exporting():
        return x.device.type == "cpu"
    return is_traced(x) or x.device.type == "meta"


def is_traced(x: torch.Tensor) -> bool:
    """Whether values cannot be looked at, or operators chosen here would lose derivatives: while a graph is traced,
    under `torch.func`, and in forward-mode differentiation."""
    return is_tracing(x) or torch._C._functorch.maybe_current_level() is not None or forward_ad._current_level >= 0


def _forward_fill(marked_bs: torch.Tensor, value_bs: torch.Tensor, start: int) -> torch.Tensor:
    """[batch, length], the value at the last marked column before each column, `start` where there is none. By scatter
    and gather: ONNX has no running maximum."""
    batch_size, length = marked_bs.shape
    rank = marked_bs.long().cumsum(1)
    held = value_bs.new_full((batch_size, length + 2), start)
    held = held.scatter(1, torch.where(marked_bs, rank, length + 1), value_bs)  # the last slot takes the unmarked
    return held.gather(1, rank - marked_bs.long())


def _within(seen: torch.Tensor, distance: torch.Tensor, window: int | None, causal: bool) -> torch.Tensor:
    if window is not None:
        seen = seen & (distance.abs() <= window)
    return seen & (distance >= 0) if causal else seen


def _visible(id_s: torch.Tensor | None, position_s: torch.Tensor, window: int | None, causal: bool) -> torch.Tensor:
    """Documents and positions […, s] → who sees whom, […, s queries, s keys]."""
    distance = position_s.unsqueeze(-1) - position_s.unsqueeze(-2)
    seen = torch.ones_like(distance, dtype=torch.bool) if id_s is None else id_s.unsqueeze(-1) == id_s.unsqueeze(-2)
    return _within(seen, distance, window, causal)


def _as_bias(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What a boolean mask adds to the scores. Made once for all layers; SDPA would do it in each."""
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, float("-inf"))


# --- kernels: softmax(q kᵀ / √d + bias) v for […, heads, queries, head width] ---


def sdpa(q, k, v, bias: torch.Tensor | None, is_causal: bool, dropout: float) -> torch.Tensor:
    """One call of SDPA."""
    return F.scaled_dot_product_attention(q, k, v, bias, dropout_p=dropout, is_causal=is_causal)


def unfused_attention(q, k, v, bias: torch.Tensor | None, is_causal: bool, dropout: float) -> torch.Tensor:
    """Two matrix products with a softmax between them."""
    scores = torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(-2, -1))
    if is_causal:
        bias = torch.full(scores.shape[-2:], float("-inf"), dtype=scores.dtype, device=q.device).triu(1)
    if bias is not None:
        scores += bias
    probs = F.softmax(scores, dim=-1)
    if dropout:
        probs, v = probs * random_keep(probs, dropout), v / (1 - dropout)
    return torch.matmul(probs, v)


def chunked_attention(q, k, v, bias: torch.Tensor | None, is_causal: bool, dropout: float) -> torch.Tensor:
    """The same for [n, heads, queries, head width] without gradients or dropout, a head and some queries at a time,
    whose scores stay in the cache."""
    out, length = torch.empty_like(q, memory_format=torch.contiguous_format), q.shape[2]
    q, chunk = q * q.shape[-1] ** -0.5, CPU_UNFUSED // 2
    for n in range(len(q)):
        for h in range(q.shape[1]):
            k_sd, v_ds = k[n, h].contiguous(), v[n, h].t().contiguous()
            for start in range(0, length, chunk):
                stop = min(start + chunk, length)
                keys = stop if is_causal else length
                scores = _product(q[n, h, start:stop], k_sd[:keys])
                if is_causal:
                    scores += torch.full_like(scores, float("-inf")).triu(1 + start)
                if bias is not None:  # of padding alone it is one row for all queries
                    scores += bias[n if len(bias) > 1 else 0, 0].expand(length, -1)[start:stop, :keys]
                out[n, h, start:stop] = _product(F.softmax(scores, dim=-1), v_ds[:, :keys])
    return out


def _product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x yᵀ"""
    return FUSED_LINEAR(x, y, None, "none", [], None) if x.dtype in FUSED_DTYPES else F.linear(x, y)


def choose_kernel(device: torch.device, dtype: torch.dtype, dropout: float, queries: int, keys: int) -> tuple[Any, str]:
    """The kernel for one piece of a plan, and why."""
    if device.type != "cpu":
        return sdpa, "no variable-length kernel"
    if dropout:  # SDPA falls back to a path that spends most of its time drawing random numbers one by one
        return unfused_attention, "attention dropout"
    if dtype == torch.bfloat16 and torch.is_grad_enabled() and queries <= CPU_UNFUSED:
        return unfused_attention, "SDPA's backward in bf16 loses to plain products for short rows"
    if not torch.is_grad_enabled() and queries == keys:
        if dtype == torch.bfloat16 and BF16_WITHOUT_AMX:
            return (unfused_attention if queries <= CPU_UNFUSED else chunked_attention), "bf16 without AMX"
        if dtype == torch.float32 and dtype in FUSED_DTYPES and queries > CPU_UNFUSED:
            return chunked_attention, "fp32 on AMD"
    return sdpa, "plain products are slower here"


# --- plans ---


class Plan:
    """How layers attend: by the function registered for its `backend`, or if there is none by the plan itself, called
    alike. With `device_map`, accelerate moves it to the device of each layer as it does tensors."""

    backend: str = "eager"  # which none is registered for
    mask: torch.Tensor | None = None
    keywords: dict[str, Any] = {}

    def to(self, device: torch.device | str | int, non_blocking: bool = False) -> "Plan":
        """The plan with its tensors on another device."""
        moved = copy.copy(self)
        moved.__dict__ = torch.utils._pytree.tree_map(lambda x: x.to(device) if hasattr(x, "to") else x, self.__dict__)
        return moved


class AttentionPlan(Plan):
    """How the layers of one kind attend in this forward, over the unpadded tokens.

    Args:
        window: a token sees those at a distance of at most this; None: its whole document.
        dropout: rate on the attention probabilities (0 outside training).
        dtype: of the queries, keys and values.
        reason: why this plan was taken.
    """

    name: str  # what runs, in a few words

    def __init__(
        self, documents: Documents, window: int | None, causal: bool, dropout: float, dtype: torch.dtype, reason: str
    ):
        self.documents, self.window, self.causal, self.dropout = documents, window, causal, dropout
        self.dtype, self.reasons = dtype, {self.name: reason}
        self.tokens = len(documents.id_t)
        self.prepare()

    @property
    def reason(self) -> str:
        """What runs and why: the plan, then the kernels of its pieces."""
        return ", ".join(f"{name} ({why})" for name, why in self.reasons.items())

    def prepare(self):
        """What all layers share: pieces and masks."""

    def attend(self, q_thd: torch.Tensor, k_thd: torch.Tensor, v_thd: torch.Tensor) -> torch.Tensor:
        """[tokens, heads, head width] three times → [tokens, heads, head width]"""
        raise NotImplementedError

    def __call__(self, module: nn.Module, q_bhsd, k_bhsd, v_bhsd, *_, **__) -> tuple[torch.Tensor, None]:
        """The same with a leading dimension of 1. Rows behind the tokens (shape bucketing) are left alone."""
        out = self.attend(*(x[0].transpose(0, 1)[: self.tokens] for x in (q_bhsd, k_bhsd, v_bhsd)))
        behind = q_bhsd.shape[2] - self.tokens
        if behind:
            out = F.pad(out, (0, 0, 0, 0, 0, behind))
        return out.unsqueeze(0), None

    def kernel_for(self, queries: int, keys: int) -> Any:
        kernel, why = choose_kernel(self.documents.device, self.dtype, self.dropout, queries, keys)
        self.reasons[kernel.__name__] = why
        return kernel


class VarlenPlan(AttentionPlan):
    """One call of a variable-length kernel of CUDA for all documents."""

    name = "varlen_attn"

    def prepare(self):
        left = -1 if self.window is None else self.window
        self.sides = left, 0 if self.causal else left
        self.bounds = (self.documents.cu_seqlens,) * 2 + (self.documents.longest,) * 2

    def attend(self, q_thd, k_thd, v_thd):
        return varlen_attn(q_thd, k_thd, v_thd, *self.bounds, window_size=self.sides)


class FlashPlan(VarlenPlan):
    """The same by the package flash-attn."""

    name = "flash_attn_varlen_func"

    def attend(self, q_thd, k_thd, v_thd):
        switches = dict(dropout_p=self.dropout, causal=self.causal, window_size=self.sides)
        return flash_attn_varlen_func(q_thd, k_thd, v_thd, *self.bounds, **switches)


class DocumentsPlan(AttentionPlan):
    """One call a document; short neighbours share one under a block-diagonal mask."""

    name = "one call a document"

    def prepare(self):
        documents = self.documents
        self.sizes, several = [], []
        for length in documents.lengths:
            if self.sizes and self.sizes[-1] + length <= CPU_SHORT:
                self.sizes[-1] += length
                several[-1] = True
            else:
                self.sizes.append(length)
                several.append(False)
        needs_mask = self.window is not None or (self.causal and documents.order == "any")
        self.biases = [
            _as_bias(_visible(i, p, self.window, self.causal)[None, None], self.dtype) if many or needs_mask else None
            for i, p, many in zip(documents.id_t.split(self.sizes), documents.position_t.split(self.sizes), several)
        ]
        self.causal_calls = [self.causal and not (many or needs_mask) for many in several]
        self.kernels = [self.kernel_for(size, size) for size in self.sizes]

    def attend(self, q_thd, k_thd, v_thd):
        pieces = zip(*(x.split(self.sizes) for x in (q_thd, k_thd, v_thd)))
        outs = [
            kernel(*(x.transpose(0, 1).unsqueeze(0) for x in piece), bias, is_causal, self.dropout)
            for piece, kernel, bias, is_causal in zip(pieces, self.kernels, self.biases, self.causal_calls)
        ]
        outs = [out.squeeze(0).transpose(0, 1) for out in outs] or [v_thd]  # nothing but padding
        return torch.cat(outs) if len(outs) > 1 else outs[0]  # of one tensor `cat` would be a copy


class PackedPlan(AttentionPlan):
    """Documents packed into rows of few lengths, each row a block-diagonal mask, rows of one length in one call: the
    kernels that oneDNN builds for half precision on CPU serve one shape each, and building one takes ten times as long
    as running it."""

    name = "documents packed into rows"
    several, step, multiple = True, CPU_ROW, CPU_ROWS  # may a row hold several; steps of its length; of their number

    def row_length(self, tokens: int) -> int:
        """Length of the row that is begun for a document of so many tokens."""
        return -(-tokens // self.step) * self.step

    def prepare(self):
        documents, device = self.documents, self.documents.device
        lengths = documents.lengths
        # Best fit, longest first: each document goes into the row that it fills best.
        free: list[tuple[int, int]] = []  # places that are left in a row, and its number; in rising order
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
        # each row is one document whose tokens all see each other; known without a look at a tensor
        masks_padding_only = len(row_lengths) == len(lengths) and self.window is None and not self.causal
        shapes, first_row, self.places, tokens = [], [0] * len(row_lengths), 0, dict.fromkeys(row_lengths, 0)
        for row, length in zip(row_n, lengths):
            tokens[row_lengths[row]] += length
        for length in sorted(set(row_lengths)):
            rows = [row for row, own in enumerate(row_lengths) if own == length]
            for row in rows:
                first_row[row], self.places = self.places, self.places + length
            idle = -len(rows) % self.multiple if len(rows) > self.multiple else 0
            self.places += idle * length
            shapes.append((len(rows) + idle, length))
        first_n = torch.tensor([first_row[row] + offset for row, offset in zip(row_n, offset_n)], device=device)
        starts_n, lengths_n = documents.cu_seqlens[:-1].long(), documents.cu_seqlens.diff().long()
        # the place of each token in the packed rows one after the other
        moved_t = (first_n - starts_n).repeat_interleave(lengths_n, output_size=self.tokens)
        self.slot_t = torch.arange(self.tokens, device=device) + moved_t
        # … and the token at each place; where there is none, the one before it, which masks hide there. (Whole rows are
        # read in a tenth of the time in which they are written to their places.)
        place_p, order_t = torch.arange(self.places, device=device), self.slot_t.argsort()
        self.token_p = order_t[torch.searchsorted(self.slot_t[order_t], place_p, right=True) - 1]
        id_p = torch.where(self.slot_t[self.token_p] == place_p, documents.id_t[self.token_p], -1)
        position_p = documents.position_t[self.token_p].long()
        self.sizes = [count * length for count, length in shapes]
        self.groups = []
        for shape, *row in zip(shapes, id_p.split(self.sizes), position_p.split(self.sizes)):
            id_ns, position_ns = (x.view(shape) for x in row)
            if masks_padding_only and tokens[shape[1]] == shape[0] * shape[1]:  # and there is none
                bias = None
            elif masks_padding_only:
                bias = _as_bias(((id_ns >= 0) | (id_ns[:, :1] < 0))[:, None, None], self.dtype)
            else:  # padding sees padding, so that no row of a mask is empty
                bias = _as_bias(_visible(id_ns, position_ns, self.window, self.causal).unsqueeze(1), self.dtype)
            self.groups.append((shape, self.kernel_for(shape[1], shape[1]), bias))

    def attend(self, q_thd, k_thd, v_thd):
        packed = (x.index_select(0, self.token_p).split(self.sizes) for x in (q_thd, k_thd, v_thd))
        outs = [
            kernel(*(x.unflatten(0, shape).transpose(1, 2) for x in qkv), bias, False, self.dropout)
            for *qkv, (shape, kernel, bias) in zip(*packed, self.groups)
        ]
        return torch.cat([out.transpose(1, 2).flatten(0, 1) for out in outs]).index_select(0, self.slot_t)


class OneCallPlan(PackedPlan):
    """All rows as long as the longest document, in one call, where there is no variable-length kernel."""

    name, multiple = "one packed call", 1

    def row_length(self, tokens: int) -> int:
        return max(self.documents.lengths)


class GroupsPlan(PackedPlan):
    """A row for each document, those of like length in one call, for inference on CPU: SDPA's kernel there is at its
    best for rows whose length is a multiple of `CPU_STEP`, and takes up to twice as long for others."""

    name, several, step, multiple = "documents of like length together", False, CPU_STEP, 1


class BlocksPlan(AttentionPlan):
    """Local attention in O(tokens · window): a block of queries meets only the keys that any of them may see, those of
    its own places and `window` more on either side (the chunks of Beltagy et al. 2020, over the unpadded tokens)."""

    name = "blocks of queries"

    def prepare(self):
        documents, window = self.documents, self.window
        # Small blocks waste less on keys out of reach; large ones leave fewer gradients of shared keys to add up.
        self.block = block = max(LOCAL_BLOCK, 2 * window if torch.is_grad_enabled() or self.dropout else window // 2)
        self.blocks = blocks = -(-self.tokens // block)
        self.tail, span = blocks * block - self.tokens, block + 2 * window
        id_t = F.pad(documents.id_t.int(), (0, self.tail), value=-1)  # padding sees padding behind the tokens …
        id_k = F.pad(F.pad(id_t, (0, window), value=-1), (window, 0), value=-2).unfold(0, span, block)  # … not before
        if documents.order == "contiguous":  # distances are the same in every block
            position_q = torch.arange(block, device=documents.device)
            position_k = torch.arange(-window, block + window, device=documents.device)
        else:
            position_t = F.pad(documents.position_t.int(), (0, self.tail))
            position_q = position_t.view(blocks, block)
            position_k = F.pad(position_t, (window, window)).unfold(0, span, block)
        distance = position_q.unsqueeze(-1) - position_k.unsqueeze(-2)
        seen = _within(id_t.view(blocks, block, 1) == id_k.unsqueeze(1), distance, window, self.causal)
        self.bias = _as_bias(seen.unsqueeze(1), self.dtype)
        self.kernel_of_blocks = self.kernel_for(block, span)

    def attend(self, q_thd, k_thd, v_thd):
        if self.tail:
            q_thd = F.pad(q_thd, (0, 0, 0, 0, 0, self.tail))
        q_chqd = q_thd.unflatten(0, (self.blocks, self.block)).transpose(1, 2)
        around, span = (0, 0, 0, 0, self.window, self.window + self.tail), self.block + 2 * self.window
        k_chkd, v_chkd = (F.pad(x, around).unfold(0, span, self.block).transpose(2, 3) for x in (k_thd, v_thd))
        out_chqd = self.kernel_of_blocks(q_chqd, k_chkd, v_chkd, self.bias, False, self.dropout)
        return out_chqd.transpose(1, 2).flatten(0, 1)[: self.tokens]


class InterfacePlan(Plan):
    """Transformers' own attention interface: for eager attention, flex attention and functions that a user registered,
    for outputs of every layer, and for whatever is captured in one graph, on padded rows under a mask; for its flash
    attention on the unpadded tokens.

    Args:
        mask: in the form that the backend takes.
        keywords: handed on to the backend.
    """

    def __init__(self, backend: str, mask=None, window: int | None = None, dropout: float = 0.0, **keywords):
        if "flash" in backend and mask is not None:
            backend = "sdpa"  # flash attention takes no mask of pairs
        self.backend, self.mask, self.dropout = backend, mask, dropout
        # flash attention in Transformers takes the number of tokens seen on one side, the token itself included
        self.keywords = dict(sliding_window=None if window is None else window + 1, **keywords)
        rows = "unpadded tokens" if "cu_seq_lens_q" in keywords else "padded rows"
        self.reason = f"attn_implementation={backend!r} on {rows}"

    def __call__(self, *args, **kwargs) -> tuple[torch.Tensor, torch.Tensor]:
        return eager_attention_forward(*args, **kwargs)


def plan_attention(
    documents: Documents, window: int | None, causal: bool, dropout: float, dtype: torch.dtype, head_width: int
) -> AttentionPlan:
    """The plan for one kind of layer over the unpadded tokens: decided from the batch at hand, never from what happens
    to be installed alone.

    Args:
        dtype, head_width: of the queries, keys and values.
    """
    device, order = documents.device, documents.order
    if not len(documents.id_t):
        plan_class, reason = DocumentsPlan, "nothing but padding"
    elif order == "any" and (window is not None or causal):
        plan_class = DocumentsPlan if device.type == "cpu" else OneCallPlan
        reason = "explicit masks, for position ids that fall or repeat within documents"
    elif device.type == "cpu":
        window, plan_class, reason = _choose_cpu_plan(documents, window, dropout, dtype)
    elif window is not None and order != "contiguous":
        plan_class, reason = BlocksPlan, "explicit position ids"
    else:
        plan_class, reason = _choose_device_plan(device, dtype, head_width, dropout, window)
    return plan_class(documents, window, causal, dropout, dtype, reason)


def _choose_cpu_plan(documents, window, dropout, dtype) -> tuple[int | None, type[AttentionPlan], str]:
    """With the window, or None if it hides nothing. No kernel there takes documents of any length."""
    lengths = documents.lengths
    longest, short = max(lengths, default=0), sum(n for n in lengths if n < CPU_SHORT)
    if window is not None and longest <= window + 1 and documents.order == "contiguous":
        window = None
    if window is not None and longest > 4 * max(window, LOCAL_BLOCK):
        return window, BlocksPlan, "a window, and long documents"
    unfused = choose_kernel(documents.device, dtype, dropout, CPU_SHORT, CPU_SHORT)[0] is not sdpa
    if len(lengths) > 1 and (not unfused or 2 * short > sum(lengths)):
        if not (torch.is_grad_enabled() or dropout):  # GradCache draws again, with gradients, what it drew without
            return window, GroupsPlan, "inference on cpu"
        if unfused:
            return window, PackedPlan, "mostly short documents on CPU"
    return window, DocumentsPlan, "no variable-length kernel on cpu"


def _choose_device_plan(device, dtype, head_width, dropout, window) -> tuple[type[AttentionPlan], str]:
    """A variable-length kernel if there is one that can do it."""
    if device.type != "cuda":
        reason = f"no variable-length kernel on {device.type}"
    elif dtype not in (torch.float16, torch.bfloat16):
        reason = f"flash attention has no {str(dtype).removeprefix('torch.')}"
    elif torch.cuda.get_device_capability(device)[0] < 8:
        reason = "flash attention needs compute capability 8.0"
    elif head_width % 8 or head_width > 256:
        reason = f"flash attention has no head width {head_width}"
    elif not dropout and VARLEN_HAS_WINDOW:
        return VarlenPlan, "torch.nn.attention.varlen"
    elif flash_attn_varlen_func is not None:
        return FlashPlan, "attention dropout" if dropout else "this torch has no windowed varlen_attn"
    else:
        reason = "attention dropout without flash-attn" if dropout else "neither varlen_attn nor flash-attn"
    return (OneCallPlan if window is None else BlocksPlan), reason


# --- dropout ---


def random_keep(like: torch.Tensor, rate: float) -> torch.Tensor:
    """A factor for each number of `like`, 1 with probability 1 - rate (to 1/65536), else 0, on CPU.

    One draw of the generator gives four decisions of 16 bits; `bernoulli_` makes one draw a decision. Factors are of
    the dtype of `like`: to multiply by booleans takes longer.
    """
    draws = torch.empty(-(-like.numel() // 4), dtype=torch.int64).random_(torch.iinfo(torch.int64).min, None)
    draws = draws.view(torch.int16)[: like.numel()].view(like.shape)
    return torch.ge(draws, round(rate * 65536) - 32768, out=torch.empty(like.shape, dtype=like.dtype))


class MiniBertDropout(nn.Dropout):
    """`nn.Dropout` with cheap random numbers on CPU."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training or self.p == 0 or x.device.type != "cpu" or is_traced(x):
            return super().forward(x)
        return (x * random_keep(x, self.p)).mul_(1 / (1 - self.p))


# --- the layer ---


def build_linear(inputs: int, outputs: int, bias: bool, std: float) -> nn.Linear:
    """A linear that carries the standard deviation of its initialisation: Transformers initialises a model from outside
    its tree at the leaves only, so nothing written for a container would ever run."""
    linear = nn.Linear(inputs, outputs, bias=bias)
    linear.init_std = std
    return linear


FUSED_ACTIVATIONS = {
    type(ACT2FN["gelu"]): ("gelu", [], "none"),
    type(ACT2FN["gelu_new"]): ("gelu", [], "tanh"),
    type(ACT2FN["gelu_pytorch_tanh"]): ("gelu", [], "tanh"),
    type(ACT2FN["relu"]): ("relu", [], None),
    type(ACT2FN["silu"]): ("swish", [], None),
    type(ACT2FN["swish"]): ("swish", [], None),
}


def project(linear: nn.Module, x: torch.Tensor, act: nn.Module | None = None, gated: bool = False) -> torch.Tensor:
    """linear(x); or act(linear(x)); or gated, act(a) · b with a, b the halves of linear(x): by oneDNN where that pays
    and can be (in inference on CPU, if the modules are torch's and Transformers' own, and no hook or mode, such as one
    that counts operations, has to see them)."""
    modules, plain = [linear] if act is None else [linear, act], ("none", [], None)
    fused = plain if act is None else FUSED_ACTIVATIONS.get(type(act))
    if (
        fused
        and x.dtype in FUSED_DTYPES
        and not (x.dtype == torch.float32 and torch.is_autocast_enabled("cpu"))
        and x.device.type == "cpu"
        and not torch.is_grad_enabled()
        and type(linear) is nn.Linear  # nor a tensor of a quantisation
        and type(linear.weight) is nn.Parameter
        and linear.weight.dtype == x.dtype
        and not any(m._forward_hooks or m._forward_pre_hooks or "forward" in m.__dict__ for m in modules)
        and not is_traced(x)
        and not (torch.nn.modules.module._has_any_global_hook() or torch._C._len_torch_dispatch_stack())
    ):
        if not gated:
            return FUSED_LINEAR(x, linear.weight, linear.bias, *fused)
        (weight, of_gate), bias = linear.weight.chunk(2), linear.bias
        bias, bias_of_gate = (None, None) if bias is None else bias.chunk(2)
        return FUSED_LINEAR(x, weight, bias, *fused).mul_(FUSED_LINEAR(x, of_gate, bias_of_gate, *plain))
    x, gate = linear(x).chunk(2, dim=-1) if gated else (linear(x), None)
    x = x if act is None else act(x)
    return x * gate if gated else x


def output_std(config: MiniBertConfig) -> float:
    """Standard deviation of the projections into the residual stream (Radford et al. 2019; Shoeybi et al. 2019)."""
    depth = 2 * config.num_hidden_layers if config.scaled_output_init else 1
    return config.initializer_range / depth**0.5


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate the pairs (x_i, x_{i + width / 2}) of the first `width` numbers of each head of [b, s, h, head width].

    Args:
        cos, sin: [b, s, 1, width], of both numbers of the pairs; the sines of the first ones negative.
    """
    width = int(cos.shape[-1])  # to roll by: a traced size is no number
    if width < x.shape[-1]:
        return torch.cat((rotate(x[..., :width], cos, sin), x[..., width:]), dim=-1)
    return torch.addcmul(x * cos.to(x.dtype), x.roll(width // 2, -1), sin.to(x.dtype))


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
    """softmax(q kᵀ · scaling) v (Vaswani et al. 2017, eq. 1) for [b, h, s, head width].

    Args:
        attention_mask: boolean, True where a query sees a key; or floating, added to the scores.

    Returns:
        the output, [b, s, h, head width], and the probabilities, [b, h, s, s].
    """
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = torch.matmul(query, key.transpose(-2, -1)) * scaling
    # not -inf: a caller's mask may have rows that see nothing, and one NaN would reach every token
    lowest = torch.finfo(scores.dtype).min
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attention_mask, lowest)
    elif attention_mask is not None:
        scores = (scores + attention_mask).clamp(min=lowest)
    probs = F.softmax(scores, dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(query.dtype)
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
        self.is_causal = False  # masks say what is seen; SDPA must not guess when there is none
        self.window = config.sliding_window if config.layer_types[layer_idx] == "sliding_attention" else None
        width, bias = config.hidden_size, config.attention_bias
        self.Wqkv = build_linear(width, 3 * width, bias, config.initializer_range)
        self.Wo = build_linear(width, width, bias, output_std(config))
        self.dropout = nn.Dropout(config.attention_dropout)  # its rate, for kernels that drop by themselves

    def forward(
        self,
        hidden_states: torch.Tensor,
        plan: AttentionPlan | InterfacePlan,
        rotary: tuple[torch.Tensor, torch.Tensor] | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """[b, s, d] → [b, s, d] and the probabilities, if the backend has them. With an `AttentionPlan` b is 1 and s
        are the unpadded tokens."""
        shape, heads, width = hidden_states.shape[:2], self.config.num_attention_heads, hidden_states.shape[-1]
        qk, v = project(self.Wqkv, hidden_states).split((2 * width, width), dim=-1)
        qk, v = qk.view(*shape, 2 * heads, self.head_width), v.view(*shape, heads, self.head_width)
        qk = qk if rotary is None else rotate(qk, *rotary)
        q, k, v = (x.transpose(1, 2) for x in (*qk.split(heads, dim=2), v))
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(plan.backend, plan)  # vLLM reads the source for this call
        out, probs = attend(self, q, k, v, plan.mask, dropout=plan.dropout, scaling=self.scaling, **plan.keywords)
        return project(self.Wo, out.reshape(hidden_states.shape)), probs
