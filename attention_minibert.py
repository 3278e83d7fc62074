# Copyright 2026 The MiniBERT authors. Licensed under the Apache License, Version 2.0.
"""Where the real tokens of a batch lie, and how they attend to each other without touching padding.

`Documents` turns whatever a caller hands over (a padding mask, position ids that restart, `seq_idx`, `cu_seq_lens_q`)
into one description: which tokens are real, which document each belongs to, and its position there. From it come
- the *stream*: the real tokens of the whole batch one after the other, [tokens, …], on which the model works;
- a dense boolean mask for everything that wants padded rows (eager, flex, functions a user registered, export).

Then the kernels over the stream, and the attention layer. One definition for all: token i sees token j if both belong
to one document, |position_i - position_j| <= window in local layers, and position_j <= position_i in a causal model.

Shape suffixes: b batch, s columns of the padded batch, t tokens of the stream, n documents, h heads, d head width,
q queries, k keys, c blocks of a local layer.
"""

import inspect

import torch
from torch import nn
from torch.nn import functional as F
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils import is_flash_attn_2_available
from transformers.utils.import_utils import is_tracing

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

# Neighbouring documents that are shorter than this together share one kernel call on CPU, under a block-diagonal mask.
CPU_CHUNK = 128
# Where plain products do the attention there, documents share a padded call if their lengths, in steps of this many
# tokens, are equal.
CPU_STEP = 16
# Plain products take up to this many queries at a time, so that their scores stay in the cache; in training, where the
# scores of all pairs would have to be kept, longer documents go to SDPA.
CPU_PLAIN = 512
# Local layers are cut into blocks of at least this many queries.
LOCAL_BLOCK = 32
# With these instructions but no AMX, SDPA's CPU kernel does bf16 products at the rate of fp32; a matmul is faster.
CPU_FEATURES = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
BF16_WITHOUT_AMX = CPU_FEATURES.get("avx512_bf16", False) and not CPU_FEATURES.get("amx_bf16", False)


class Documents:
    """The documents of one batch.

    Args:
        batch_size, length: rows and columns of the padded batch.
        attention_mask: [batch, length], non-zero where a token is real; padding may be left, right or in holes.
        position_ids: [batch or 1, length]; a document starts where a position is not the previous one plus 1.
        seq_idx: [batch or 1, length], the number of the document of each token; wins over `position_ids`.
        cu_seq_lens: [documents + 1], where documents start in the flattened batch; second in rank.

    Without `position_ids`, positions count the real tokens of a document from 0.
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
    ):
        self.shape, self.device = (batch_size, length), device
        self.index_t = self.cu_seqlens = None  # of the stream: set by `pack`
        self.is_packed = False  # more than one document in some row
        self.counted = position_ids is None  # positions count tokens, so that distances in the stream are distances
        self.masks: dict = {}  # what layers share

        def rows(x):
            return x.to(device).view(-1, length).expand(batch_size, length)

        columns = torch.arange(length, device=device)
        self.real_bs = self.id_bs = None
        if attention_mask is None and position_ids is None and seq_idx is None and cu_seq_lens is None:
            self.position_bs = columns.expand(batch_size, length)
            return

        if attention_mask is None:
            real = torch.ones(batch_size, length, dtype=torch.bool, device=device)
        else:
            real = rows(attention_mask) != 0
        before = _carry(real, columns.expand(batch_size, length), -1)  # column of the real token before this one
        starts = before < 0
        if seq_idx is not None or cu_seq_lens is not None:
            if seq_idx is not None:
                number = rows(seq_idx)
            else:
                flat = torch.arange(batch_size * length, device=device)
                number = torch.bucketize(flat, cu_seq_lens.to(device), right=True).view(batch_size, length)
            starts = starts | (number != number.gather(1, before.clamp(min=0)))
        elif position_ids is not None:
            number = rows(position_ids)
            # A hole may or may not have been counted: either way the document goes on behind it.
            step = number - number.gather(1, before.clamp(min=0))
            starts = starts | ((step != 1) & (step != columns - before))
        self.starts_bs = starts & real
        self.real_bs = None if attention_mask is None else real
        # padding is its own document, so that no row of a mask is empty
        self.id_bs = torch.where(real, self.starts_bs.flatten().cumsum(0).view_as(real) - 1, -1)
        if position_ids is not None:
            self.position_bs = rows(position_ids)
        else:
            count = real.cumsum(1)
            first = torch.where(self.starts_bs, count, _carry(self.starts_bs, count, 1))
            self.position_bs = (count - first).clamp(min=0)

    # --- the stream ---

    def pack(self) -> "Documents":
        """Find the stream: the real tokens in row order. Unless every row is one document, this looks at values, so
        that it cannot be captured in a graph."""
        if self.id_bs is not None:
            return self._find()
        batch_size, length = self.shape
        self.cu_seqlens = torch.arange(0, batch_size * length + 1, length, dtype=torch.int32, device=self.device)
        self.id_t = torch.arange(batch_size, device=self.device).unsqueeze(1).expand(self.shape).flatten()
        self.position_t = self.position_bs.flatten()
        return self

    @torch.compiler.disable  # sizes depend on the data; the blocks behind it are compiled as one graph
    def _find(self) -> "Documents":
        batch_size, length = self.shape
        if self.real_bs is not None:
            self.index_t = self.real_bs.flatten().nonzero().squeeze(1)
            if len(self.index_t) == batch_size * length:
                self.index_t = None
            elif len(self.index_t) == 0:  # nothing but padding: keep one token, so that no kernel meets an empty tensor
                anything = torch.zeros(self.shape, dtype=torch.bool, device=self.device)
                anything[0, 0] = True
                self.__init__(batch_size, length, self.device, anything)
                return self.pack()
        self.id_t, self.position_t = self.select(self.id_bs), self.select(self.position_bs)
        first_t = self.select(self.starts_bs).nonzero().squeeze(1)
        self.cu_seqlens = F.pad(first_t, (0, 1), value=len(self.id_t)).int()
        first_row = (first_t if self.index_t is None else self.index_t[first_t]) // length
        self.is_packed = bool((first_row[1:] == first_row[:-1]).any())
        if not self.counted:
            self.counted = bool(((self.position_t.diff() == 1) | (self.id_t.diff() != 0)).all())
        return self

    @classmethod
    def of_stream(cls, cu_seqlens: torch.Tensor, id_t: torch.Tensor, position_t: torch.Tensor) -> "Documents":
        """Documents known by their stream alone."""
        self = cls(1, len(id_t), id_t.device)
        self.cu_seqlens, self.id_t, self.position_t, self.counted = cu_seqlens, id_t, position_t, False
        return self

    def lengths(self) -> list[int]:
        """Tokens of each document."""
        if "lengths" not in self.masks:
            self.masks["lengths"] = self.cu_seqlens.diff().tolist()
        return self.masks["lengths"]

    def idle_rows(self, dtype: torch.dtype) -> int:
        """Rows to append to the stream so that few lengths occur, 16 between a power of two and the next. In half
        precision on CPU, kernels are built for each shape that is met; the work on the idle rows, 2% on average, takes
        less time."""
        half = dtype in (torch.bfloat16, torch.float16) or torch.is_autocast_enabled("cpu")
        if not half or self.device.type != "cpu" or is_tracing():
            return 0
        tokens = len(self.id_t)
        return -tokens % max(16, 1 << max(0, tokens.bit_length() - 5))

    def select(self, x_bs: torch.Tensor) -> torch.Tensor:
        """[batch, length, …] → [tokens, …]"""
        x = x_bs.flatten(0, 1)
        return x if self.index_t is None else x[self.index_t]

    def restore(self, x_t: torch.Tensor, fill: float = 0.0) -> torch.Tensor:
        """[tokens, width] → [batch, length, width], `fill` at padding."""
        if self.index_t is not None:
            batch_size, length = self.shape
            padded = x_t.new_full((batch_size * length, *x_t.shape[1:]), fill)
            x_t = padded.index_copy(0, self.index_t, x_t)
        elif self.cu_seqlens is None and self.real_bs is not None:  # padding was never dropped
            x_t = x_t.masked_fill(~self.real_bs.flatten().unsqueeze(1), fill)
        return self._rows(x_t)

    def _rows(self, x_t: torch.Tensor) -> torch.Tensor:
        """[batch · length, width] → [batch, length, width]; by one flat dimension, which torch.export follows for every
        length."""
        return x_t.flatten().view(*self.shape, x_t.shape[-1])

    def has_next(self) -> torch.Tensor:
        """[tokens], whether the token is followed by another one of its document."""
        id_t = self.id_t if self.cu_seqlens is not None else None if self.id_bs is None else self.id_bs.flatten()
        if id_t is None:
            id_t = torch.arange(self.shape[0], device=self.device).unsqueeze(1).expand(self.shape).flatten()
        return F.pad(id_t[1:] == id_t[:-1], (0, 1), value=False)

    def pool(self, hidden_t: torch.Tensor, pooling: str) -> torch.Tensor:
        """The `cls` (first), `last` or `mean` vector of each row, [batch, width]; of each document, [documents, width],
        if a row holds several. A row without real tokens gives zeros."""
        if self.cu_seqlens is None:
            return self._pool_rows(self._rows(hidden_t), pooling)
        first, last = self.cu_seqlens[:-1].long(), self.cu_seqlens[1:].long() - 1
        if pooling == "mean":
            sums = hidden_t.new_zeros(len(first), hidden_t.shape[-1], dtype=torch.float32)
            sums = sums.index_add(0, self.id_t, hidden_t.float())
            pooled = (sums / (last - first + 1).unsqueeze(1)).to(hidden_t.dtype)
        else:
            pooled = hidden_t[first if pooling == "cls" else last]
        if self.is_packed or len(first) == self.shape[0]:
            return pooled
        row = self.index_t[first] // self.shape[1]
        return pooled.new_zeros(self.shape[0], pooled.shape[1]).index_copy(0, row, pooled)

    def _pool_rows(self, hidden_bsd: torch.Tensor, pooling: str) -> torch.Tensor:
        """The same without looking at values: every row is one document."""
        if self.real_bs is None:
            chosen_bs = torch.ones(self.shape, dtype=torch.bool, device=self.device)
        else:
            chosen_bs = self.real_bs
        if pooling != "mean":
            count_bs = chosen_bs.cumsum(1)
            wanted = 1 if pooling == "cls" else count_bs[:, -1:]
            chosen_bs = chosen_bs & (count_bs == wanted)
        weight_bs = chosen_bs.to(hidden_bsd.dtype)
        summed = torch.bmm(weight_bs.unsqueeze(1), hidden_bsd).squeeze(1)
        return summed / weight_bs.sum(1, keepdim=True).clamp(min=1)

    # --- padded rows ---

    def visible(self, window: int | None, causal: bool):
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
        return _visible(self.id_bs, self.position_bs, self.id_bs, self.position_bs, window, causal).unsqueeze(1)


def _carry(marked_bs: torch.Tensor, value_bs: torch.Tensor, start: int) -> torch.Tensor:
    """[batch, length], the value at the last marked column before each column, `start` where there is none. By scatter
    and gather: ONNX has no running maximum."""
    batch_size, length = marked_bs.shape
    rank = marked_bs.cumsum(1)
    held = value_bs.new_full((batch_size, length + 2), start)
    held = held.scatter(1, torch.where(marked_bs, rank, length + 1), value_bs)  # the last slot takes the unmarked
    return held.gather(1, rank - marked_bs.long())


def _within(seen: torch.Tensor, distance: torch.Tensor, window: int | None, causal: bool) -> torch.Tensor:
    if window is not None:
        seen = seen & (distance.abs() <= window)
    return seen & (distance >= 0) if causal else seen


def _as_bias(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What a boolean mask adds to the scores. Made once for all layers; SDPA would do it in each."""
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, float("-inf"))


def _visible(id_q, position_q, id_k, position_k, window, causal) -> torch.Tensor:
    """[…, queries], […, keys] → […, queries, keys]"""
    distance = position_q.unsqueeze(-1) - position_k.unsqueeze(-2)
    seen = torch.ones_like(distance, dtype=torch.bool) if id_q is None else id_q.unsqueeze(-1) == id_k.unsqueeze(-2)
    return _within(seen, distance, window, causal)


# --- kernels ---


def choose_kernel(
    device: torch.device, dtype: torch.dtype, head_width: int, window: bool, counted: bool, dropout: float
) -> tuple[str, str]:
    """The kernel for one attention call over the stream, and why.

    Decided anew for every call from the tensors it meets, never from what happens to be installed alone.
    """
    if device.type == "cpu":
        if window:
            return "blocks", "a window on any device"
        if dropout or (dtype == torch.bfloat16 and BF16_WITHOUT_AMX):
            return "documents", f"plain products: {'attention dropout' if dropout else 'bf16 without AMX'}"
        return "documents", "SDPA's CPU kernel"
    if device.type == "cuda":
        if window and not counted:
            return "blocks", "window distances follow explicit position ids"
        if dtype not in (torch.float16, torch.bfloat16):
            reason = f"flash attention has no {str(dtype).removeprefix('torch.')}"
        elif torch.cuda.get_device_capability(device)[0] < 8:
            reason = "flash attention needs compute capability 8.0"
        elif head_width % 8 or head_width > 256:
            reason = f"flash attention has no head width {head_width}"
        elif not dropout and VARLEN_HAS_WINDOW:
            return "varlen", "torch.nn.attention.varlen"
        elif flash_attn_varlen_func is not None:
            return "flash_attn", "attention dropout" if dropout else "this torch has no windowed varlen_attn"
        else:
            reason = "attention dropout without flash-attn" if dropout else "neither varlen_attn nor flash-attn"
    else:
        reason = f"no variable-length kernel on {device.type}"
    return ("blocks" if window else "dense"), reason


def stream_attention(
    q_thd: torch.Tensor,
    k_thd: torch.Tensor,
    v_thd: torch.Tensor,
    documents: Documents,
    window: int | None = None,
    causal: bool = False,
    dropout: float = 0.0,
) -> torch.Tensor:
    """Attention over the stream, [tokens, heads, head width] → the same.

    Args:
        window: a token sees those at a distance of at most this; None: its whole document.
        dropout: rate on the attention probabilities (0 outside training).
    """
    if q_thd.device.type == "cpu" and torch.compiler.is_compiling():
        seed = torch.randint(2**62, (1,)) if dropout else torch.zeros(1, dtype=torch.long)
        return cpu_attention_op(
            q_thd, k_thd, v_thd, documents.cu_seqlens, documents.id_t, documents.position_t,
            -1 if window is None else window, causal, dropout, seed,
        )  # fmt: skip
    if q_thd.device.type == "cpu":
        return _cpu_attention(q_thd, k_thd, v_thd, documents, window, causal, dropout)
    kernel, _ = choose_kernel(
        q_thd.device, q_thd.dtype, q_thd.shape[-1], window is not None, documents.counted, dropout
    )
    if kernel == "blocks":
        return _block_attention(q_thd, k_thd, v_thd, documents, window, causal, dropout)
    if kernel == "dense":
        return _grouped_attention(q_thd, k_thd, v_thd, documents, None, causal, dropout, documents.shape[1])
    cu_seqlens, longest = documents.cu_seqlens, documents.shape[1]  # a bound that does not change from batch to batch
    sides = (-1 if window is None else window, 0 if causal else -1 if window is None else window)
    if kernel == "varlen":
        return varlen_attn(q_thd, k_thd, v_thd, cu_seqlens, cu_seqlens, longest, longest, window_size=sides)
    return flash_attn_varlen_func(
        q_thd, k_thd, v_thd, cu_seqlens, cu_seqlens, longest, longest,
        dropout_p=dropout, causal=causal, window_size=sides,
    )  # fmt: skip


def _cpu_attention(q_thd, k_thd, v_thd, documents, window, causal, dropout) -> torch.Tensor:
    """One call a document; short ones share some. Long local layers go by blocks."""
    if window is not None:
        longest = max(documents.lengths())
        if longest > 4 * max(window, LOCAL_BLOCK):
            return _block_attention(q_thd, k_thd, v_thd, documents, window, causal, dropout)
        if longest <= window + 1 and documents.counted:
            window = None
    if _plain_products(q_thd, dropout) and _mostly_short(documents):
        return _grouped_attention(q_thd, k_thd, v_thd, documents, window, causal, dropout, CPU_STEP)
    sizes, masks = _cpu_chunks(documents, window, causal, q_thd.dtype)
    parts = [
        _softmax_attention(*(x.transpose(0, 1).unsqueeze(0) for x in qkv), mask, causal and mask is None, dropout)
        for *qkv, mask in zip(q_thd.split(sizes), k_thd.split(sizes), v_thd.split(sizes), masks)
    ]
    outs = [part.squeeze(0).transpose(0, 1) for part in parts]
    return torch.cat(outs) if len(outs) > 1 else outs[0]  # of one tensor `cat` would be a copy


def _cpu_chunks(documents, window, causal, dtype) -> tuple[list[int], list[torch.Tensor | None]]:
    """Sizes of the pieces of the stream that share a call, and what their masks add."""
    key = ("chunks", window, causal, dtype)
    if key not in documents.masks:
        sizes, several = [], []
        for length in documents.lengths():
            if sizes and sizes[-1] + length <= CPU_CHUNK:
                sizes[-1] += length
                several[-1] = True
            else:
                sizes.append(length)
                several.append(False)
        masks = [
            _as_bias(_visible(i, p, i, p, window, causal)[None, None], dtype) if many or window is not None else None
            for i, p, many in zip(documents.id_t.split(sizes), documents.position_t.split(sizes), several)
        ]
        documents.masks[key] = sizes, masks
    return documents.masks[key]


def _mostly_short(documents) -> bool:
    if "mostly short" not in documents.masks:
        lengths = documents.lengths()
        short = sum(n for n in lengths if n < CPU_CHUNK)
        documents.masks["mostly short"] = len(lengths) > 1 and 2 * short > sum(lengths)
    return documents.masks["mostly short"]


def _grouped_attention(q_thd, k_thd, v_thd, documents, window, causal, dropout, step) -> torch.Tensor:
    """Documents whose lengths, in steps of `step` tokens, are equal, as rows of one padded call. Plain products cost as
    much for pairs of tokens that do not see each other as for others, so that a few padded columns are cheaper than
    block-diagonal masks; where there is no variable-length kernel, one large step makes one call of all documents."""
    slot_t, places, groups = _groups(documents, window, causal, q_thd.dtype, step)
    sizes = [count * longest for count, longest, _ in groups]
    padded = (x.new_zeros(places, *x.shape[1:]).index_copy(0, slot_t, x).split(sizes) for x in (q_thd, k_thd, v_thd))
    parts = [
        _softmax_attention(*(x.unflatten(0, group[:2]).transpose(1, 2) for x in qkv), group[2], False, dropout)
        for *qkv, group in zip(*padded, groups)
    ]
    return torch.cat([part.transpose(1, 2).flatten(0, 1) for part in parts]).index_select(0, slot_t)


def _groups(
    documents, window, causal, dtype, step
) -> tuple[torch.Tensor, int, list[tuple[int, int, torch.Tensor | None]]]:
    """The place of each token of the stream in the padded groups one after the other, [tokens]; the number of places;
    and of each group the documents, their places and what its mask adds."""
    key = ("groups", window, causal, dtype, step)
    if key not in documents.masks:
        device, lengths = documents.device, documents.lengths()
        lengths_n, starts_n = documents.cu_seqlens.diff().long(), documents.cu_seqlens[:-1].long()
        alike: dict[int, list[int]] = {}
        for i, length in enumerate(lengths):
            alike.setdefault(-(-length // step), []).append(i)
        first_n, places, members = torch.empty_like(starts_n), 0, []
        for chosen in alike.values():
            longest = max(lengths[i] for i in chosen)
            first_n[chosen] = places + longest * torch.arange(len(chosen), device=device)
            members.append((places, len(chosen), longest))
            places += len(chosen) * longest
        slot_t = torch.arange(len(documents.id_t), device=device) + (first_n - starts_n).repeat_interleave(lengths_n)
        id_p = torch.full((places,), -1, device=device).index_copy(0, slot_t, documents.id_t.long())
        position_p = torch.zeros_like(id_p).index_copy(0, slot_t, documents.position_t.long())
        groups = []
        for start, count, longest in members:
            id_nl, position_nl = (x[start : start + count * longest].view(count, longest) for x in (id_p, position_p))
            if window is not None or causal:
                mask = _visible(id_nl, position_nl, id_nl, position_nl, window, causal).unsqueeze(1)
            else:
                mask = (id_nl >= 0)[:, None, None]
            groups.append((count, longest, None if mask.all() else _as_bias(mask, dtype)))
        documents.masks[key] = slot_t, places, groups
    return documents.masks[key]


class _Windows(torch.autograd.Function):
    """Overlapping windows of a padded stream: [tokens, …] → [blocks, block + 2 · window, …], a view without copies. The
    gradient adds the windows up in a few passes (that of `Tensor.unfold` adds number by number)."""

    @staticmethod
    def forward(x_t, window: int, block: int):
        blocks = -(-len(x_t) // block)
        padding = [0, 0] * (x_t.dim() - 1) + [window, window + blocks * block - len(x_t)]
        return F.pad(x_t, padding).unfold(0, block + 2 * window, block).movedim(-1, 1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.tokens, ctx.window, ctx.block = len(inputs[0]), *inputs[1:]

    @staticmethod
    def backward(ctx, grad_c):
        blocks, span, *rest = grad_c.shape
        total = grad_c.new_zeros(blocks * ctx.block + span, *rest)
        for start in range(0, span, ctx.block):
            piece = grad_c[:, start : start + ctx.block]
            behind = total[start : start + blocks * ctx.block].unflatten(0, (blocks, ctx.block))
            behind[:, : piece.shape[1]].add_(piece)
        return total[ctx.window : ctx.window + ctx.tokens], None, None


def _block_attention(q_thd, k_thd, v_thd, documents, window, causal, dropout) -> torch.Tensor:
    """Local attention in O(tokens · window): a block of queries meets only the keys that any of them may see, those of
    its own places and `window` more on either side (the chunks of Beltagy et al. 2020, over one stream)."""
    # Small blocks waste less on keys out of reach; large ones leave fewer gradients of shared keys to add up.
    tokens, block = len(q_thd), max(LOCAL_BLOCK, 2 * window if _trains(q_thd) else window // 2)
    blocks = -(-tokens // block)
    tail, span = blocks * block - tokens, block + 2 * window

    key = ("blocks", window, causal, q_thd.dtype, block)
    if key not in documents.masks:
        id_t = F.pad(documents.id_t.int(), (0, tail), value=-1)  # padding queries see padding keys behind the stream …
        id_k = F.pad(F.pad(id_t, (0, window), value=-1), (window, 0), value=-2).unfold(0, span, block)  # … not before
        if documents.counted:  # distances are the same in every block
            position_q = torch.arange(block, device=id_t.device)
            position_k = torch.arange(-window, block + window, device=id_t.device)
        else:
            position_t = F.pad(documents.position_t.int(), (0, tail))
            position_q = position_t.view(blocks, block)
            position_k = F.pad(position_t, (window, window)).unfold(0, span, block)
        near = _visible(None, position_q, None, position_k, window, causal)
        mask = ((id_t.view(blocks, block, 1) == id_k.unsqueeze(1)) & near).unsqueeze(1)
        documents.masks[key] = _as_bias(mask, q_thd.dtype)

    if tail:
        q_thd = F.pad(q_thd, (0, 0, 0, 0, 0, tail))
    q_chbd = q_thd.unflatten(0, (blocks, block)).transpose(1, 2)
    k_chkd, v_chkd = (_Windows.apply(x, window, block).transpose(1, 2) for x in (k_thd, v_thd))
    out_chbd = _softmax_attention(q_chbd, k_chkd, v_chkd, documents.masks[key], False, dropout)
    return out_chbd.transpose(1, 2).flatten(0, 1)[:tokens]


def _trains(q: torch.Tensor) -> bool:
    return q.requires_grad and torch.is_grad_enabled()


def _plain_products(q: torch.Tensor, dropout: float) -> bool:
    """Whether three plain products beat SDPA. On CPU they do with dropout, where SDPA falls back to a path that spends
    most of its time drawing random numbers one by one; in bf16 in training, where the backward of its kernel loses to
    them for short rows; and in bf16 on some processors."""
    if q.device.type != "cpu":
        return False
    return dropout > 0 or (q.dtype == torch.bfloat16 and (_trains(q) or BF16_WITHOUT_AMX))


def _softmax_attention(q, k, v, mask, is_causal: bool, dropout: float) -> torch.Tensor:
    """softmax(q kᵀ / √d + mask) v for […, heads, queries, head width]."""
    plain, queries = _plain_products(q, dropout), q.shape[-2]
    if plain and not dropout:
        trains = _trains(q)
        if not trains and queries == k.shape[-2] > CPU_PLAIN:
            return _attention_by_parts(q, k, v, mask, is_causal)
        plain = queries <= CPU_PLAIN if trains else queries == k.shape[-2]  # not the blocks of local layers
    if not plain:
        return F.scaled_dot_product_attention(q, k, v, mask, dropout_p=dropout, is_causal=is_causal)
    scores = torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(-2, -1))
    if is_causal:
        mask = torch.full(scores.shape[-2:], float("-inf"), dtype=scores.dtype).triu(1)
    if mask is not None:
        scores = scores.add_(mask)
    probs = F.softmax(scores, dim=-1)
    if dropout:
        probs, v = probs * random_keep(probs, dropout), v / (1 - dropout)
    return torch.matmul(probs, v)


def _attention_by_parts(q, k, v, mask, is_causal: bool) -> torch.Tensor:
    """The same for [n, heads, queries, head width] without gradients, a head and `CPU_PLAIN` queries at a time."""
    out, length = torch.empty_like(q, memory_format=torch.contiguous_format), q.shape[2]
    q = q * q.shape[-1] ** -0.5
    heads = q.shape[1]
    for i in range(len(q) * heads):
        n, h = divmod(i, heads)
        k_sd, v_sd = k[n, h].contiguous(), v[n, h].contiguous()
        bias = None if mask is None else mask.expand(len(q), 1, length, length)[n, 0]
        for start in range(0, length, CPU_PLAIN):
            stop = min(start + CPU_PLAIN, length)
            keys = stop if is_causal else length
            scores = torch.mm(q[n, h, start:stop], k_sd[:keys].t())
            if is_causal:
                scores += torch.full_like(scores, float("-inf")).triu(1 + start)
            if bias is not None:
                scores += bias[start:stop, :keys]
            torch.mm(F.softmax(scores, dim=-1), v_sd[:keys], out=out[n, h, start:stop])
    return out


@torch.library.custom_op("minibert::cpu_attention", mutates_args=())
def cpu_attention_op(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens: torch.Tensor, id_t: torch.Tensor,
    position_t: torch.Tensor, window: int, causal: bool, dropout: float, seed: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    """`_cpu_attention` as one opaque operator: compiled graphs neither break on it nor depend on document lengths."""
    documents = Documents.of_stream(cu_seqlens, id_t, position_t)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(seed))
        return _cpu_attention(q, k, v, documents, None if window < 0 else window, causal, dropout).contiguous()


@cpu_attention_op.register_fake
def _(q, k, v, cu_seqlens, id_t, position_t, window, causal, dropout, seed):
    return torch.empty_like(q, memory_format=torch.contiguous_format)


@torch.library.custom_op("minibert::cpu_attention_backward", mutates_args=())
def cpu_attention_backward_op(
    grad: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens: torch.Tensor,
    id_t: torch.Tensor, position_t: torch.Tensor, window: int, causal: bool, dropout: float, seed: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Runs the forward again (an operator can keep no graph) and differentiates it. Autograd records nothing inside an
    operator, but a functional transformation does."""
    documents = Documents.of_stream(cu_seqlens, id_t, position_t)

    def attend(q, k, v):
        return _cpu_attention(q, k, v, documents, None if window < 0 else window, causal, dropout)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(seed))
        _, backward = torch.func.vjp(attend, q, k, v)
        return tuple(x.contiguous() for x in backward(grad))


@cpu_attention_backward_op.register_fake
def _(grad, q, k, v, cu_seqlens, id_t, position_t, window, causal, dropout, seed):
    return tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))


def _save_for_backward(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:6], inputs[9])
    ctx.switches = inputs[6:9]


def _cpu_attention_backward(ctx, grad):
    *tensors, seed = ctx.saved_tensors
    return *cpu_attention_backward_op(grad, *tensors, *ctx.switches, seed), *[None] * 7


cpu_attention_op.register_autograd(_cpu_attention_backward, setup_context=_save_for_backward)


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
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return F.dropout(x, self.p)
        return (x * random_keep(x, self.p)).mul_(1 / (1 - self.p))


# --- the layer ---


def build_linear(inputs: int, outputs: int, bias: bool, std: float) -> nn.Linear:
    """A linear that carries the standard deviation of its initialisation: Transformers initialises a model from outside
    its tree at the leaves only, so nothing written for a container would ever run."""
    linear = nn.Linear(inputs, outputs, bias=bias)
    linear.init_std = std
    return linear


def output_std(config: MiniBertConfig) -> float:
    """Standard deviation of the projections into the residual stream (Radford et al. 2019; Shoeybi et al. 2019)."""
    depth = 2 * config.num_hidden_layers if config.scaled_output_init else 1
    return config.initializer_range / depth**0.5


def rotary_angles(position_bs: torch.Tensor, head_width: int, theta: float) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin of the rotary angles (Su et al. 2021, eq. 34), [b, s, 1, 1, head width / 2], always in fp32."""
    exponent = torch.arange(0, head_width, 2, device=position_bs.device, dtype=torch.float32) / head_width
    angles = position_bs.to(torch.float32)[..., None, None, None] * theta**-exponent
    return angles.cos(), angles.sin()


class _Rotation(torch.autograd.Function):
    """The rotation in four passes over half of the data, and its gradient, the rotation back, in four more."""

    @staticmethod
    def forward(x, cos, sin):
        out = torch.empty_like(x)
        (first, second), (out_first, out_second) = x.chunk(2, dim=-1), out.chunk(2, dim=-1)
        torch.mul(first, cos, out=out_first).addcmul_(second, sin, value=-1)
        torch.mul(second, cos, out=out_second).addcmul_(first, sin)
        return out

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx, grad):
        cos, sin = ctx.saved_tensors
        return _Rotation.apply(grad, cos, -sin), None, None


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate the pairs (x_i, x_{i + width / 2}) of [b, s, …, h, head width]."""
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    if not is_tracing(x):
        return _Rotation.apply(x, cos, sin)
    first, second = x.chunk(2, dim=-1)  # a compiler makes one pass of this
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


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
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        # not -inf: a caller's mask may have rows that see nothing, and one NaN would reach every token
        scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
    elif attention_mask is not None:
        scores = scores + attention_mask
    probs = F.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    probs = F.dropout(probs, dropout, module.training)
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
        self.attention_dropout = config.attention_dropout
        width, bias = config.hidden_size, config.attention_bias
        self.Wqkv = build_linear(width, 3 * width, bias, config.initializer_range)
        self.Wo = build_linear(width, width, bias, output_std(config))

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        rotary: tuple[torch.Tensor, torch.Tensor] | None = None,
        documents: Documents | None = None,
        is_causal: bool = False,
        **kwargs,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """[b, s, d] → [b, s, d] and the probabilities, if the backend has them. With `documents`, b is 1 and s are the
        tokens of the stream."""
        shape = hidden_states.shape
        qkv = self.Wqkv(hidden_states).unflatten(-1, (3, -1, self.head_width))
        if rotary is None:
            q, k, v = qkv.unbind(2)
        else:
            qk, v = qkv.split((2, 1), dim=2)
            (q, k), v = rotate(qk, *rotary).unbind(2), v.squeeze(2)
        dropout = self.attention_dropout if self.training else 0.0
        if documents is not None:
            tokens = len(documents.id_t)  # rows behind them are idle
            q_thd, k_thd, v_thd = (x[0, :tokens] for x in (q, k, v))
            out = stream_attention(q_thd, k_thd, v_thd, documents, self.window, is_causal, dropout)
            if tokens < shape[1]:
                out = F.pad(out, (0, 0, 0, 0, 0, shape[1] - tokens))
            return self.Wo(out.reshape(shape)), None
        backend = self.config._attn_implementation
        if "flash" in backend and attention_mask is not None:
            backend = "sdpa"  # flash attention takes no mask of pairs
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(backend, eager_attention_forward)
        out, probs = attend(
            self,
            *(x.transpose(1, 2) for x in (q, k, v)),
            attention_mask,
            dropout=dropout,
            scaling=self.scaling,
            # flash attention in Transformers takes the number of tokens seen on one side, the token itself included
            sliding_window=None if self.window is None else self.window + 1,
            is_causal=is_causal,
            **kwargs,
        )
        return self.Wo(out.reshape(shape)), probs
