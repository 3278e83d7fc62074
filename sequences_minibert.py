# Copyright 2026 The MiniBERT authors. Licensed under the Apache License, Version 2.0.
"""Which tokens of a batch are real, which tokens see each other, and when values cannot be read.

`PackedSequences` turns what a caller passes (a padding mask, position ids that restart, `seq_idx`, `cu_seq_lens_q`)
into one description of the batch. A *document* is one sequence of a packed row; a row that is not packed is one
document. From the description come

- the *unpadded tokens*: the real tokens of all rows, one after the other, [tokens, ...]. The model works on these;
- a dense boolean mask for attention functions that need padded rows (eager, flex, a user's own, export).

One rule holds for every attention function. Token i sees token j if both belong to the same document,
|position_i - position_j| <= window (local layers), and position_j <= position_i (causal models).

Shape suffixes: b batch, s columns of the padded batch, t unpadded tokens, n documents, q queries, k keys.
"""

from functools import cached_property
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.nn import functional as F
from transformers.utils.import_utils import is_torchdynamo_exporting, is_tracing

# --- when values cannot be read ---


def is_traced(x: torch.Tensor) -> bool:
    """Whether the values of `x` cannot be read, or an operator chosen here would lose derivatives: while a graph is
    traced, under `torch.func`, and in forward-mode differentiation."""
    return (
        is_tracing(x)
        or torch._C._functorch.maybe_current_level() is not None
        or forward_ad._current_level >= 0
    )


def is_captured(x: torch.Tensor) -> bool:
    """Whether a graph is being captured whose shapes may not depend on values: torch.export, ONNX, tracing, the meta
    device, and torch.compile on CPU, which has no attention kernel for documents of any length (CUDA does)."""
    if torch.compiler.is_compiling() and not is_torchdynamo_exporting():
        return x.device.type == "cpu"
    return is_traced(x) or x.device.type == "meta"


def at_least_fp32(x: torch.Tensor) -> torch.Tensor:
    """Convert half precision to fp32; return anything else as it is."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


# --- which tokens see each other ---


def restrict(
    seen: torch.Tensor, distance: torch.Tensor, window: int | None, causal: bool
) -> torch.Tensor:
    """Apply the window and the causal direction to `seen`, given `distance`, query position minus key position."""
    if window is not None:
        seen = seen & (distance.abs() <= window)
    return seen & (distance >= 0) if causal else seen


def visibility(
    id_s: torch.Tensor | None, position_s: torch.Tensor, window: int | None, causal: bool
) -> torch.Tensor:
    """The rule of this module for tokens with these documents and positions: [..., s] → [..., s queries, s keys]."""
    distance = position_s.unsqueeze(-1) - position_s.unsqueeze(-2)
    seen = (
        torch.ones_like(distance, dtype=torch.bool)
        if id_s is None
        else id_s.unsqueeze(-1) == id_s.unsqueeze(-2)
    )
    return restrict(seen, distance, window, causal)


def to_bias(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A boolean mask as the number that is added to each score: 0 or -inf."""
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, float("-inf"))


class PackedSequences:
    """The documents of one batch.

    Args:
        batch_size, length: rows and columns of the padded batch.
        attention_mask: [batch, length], non-zero at real tokens. Padding may be left, right or in holes.
        position_ids: [batch or 1, length]. A document starts where a position is not the previous one plus 1. Without
            them, positions count the real tokens of each document from 0.
        seq_idx: [batch or 1, length], the document number of each token. Takes precedence over `position_ids`.
        cu_seq_lens: [documents + 1], where documents start in the flattened batch. Takes precedence too.
        max_length: an upper bound on the tokens of a document; `length` if unknown.

    Attributes:
        real_bs: [batch, length], True at real tokens; None without an `attention_mask`.
        id_bs: [batch, length], documents numbered over the batch, -1 at padding; None if every row is one document
            without padding.
        position_bs: [batch, length], the position of each token.
        longest: an upper bound on the tokens of a document.
        starts_bs: [batch, length], True at the first token of each document, if documents had to be found.
        index_t, id_t, position_t, cu_seq_lens, is_packed: known after `find_tokens`, which describes them.

    Raises:
        ValueError: on CPU, if the `cu_seq_lens` of a single row do not cover it.
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
        self.index_t = self.cu_seq_lens = self.real_bs = self.id_bs = None
        # `may_pack` is known without reading values, `is_packed` is not
        self.is_packed, self.may_pack = False, seq_idx is not None or cu_seq_lens is not None
        if position_ids is None:
            self.order = "contiguous"  # in place of the cached property, which reads positions

        columns = torch.arange(length, device=device)
        if attention_mask is None and position_ids is None and not self.may_pack:
            self.position_bs = columns.expand(batch_size, length)
            self.id_t = (
                torch.arange(batch_size, device=device)
                .unsqueeze(1)
                .expand(batch_size, length)
                .flatten()
            )
        elif (
            batch_size == 1
            and cu_seq_lens is not None
            and attention_mask is None
            and seq_idx is None
        ):
            self._use_bounds(columns, cu_seq_lens, position_ids)
        else:
            self._find_documents(columns, attention_mask, position_ids, seq_idx, cu_seq_lens)

    def _use_bounds(self, columns, cu_seq_lens, position_ids):
        """One row without padding whose bounds are given, as packing collators give them: nothing has to be found."""
        length = self.shape[1]
        self.cu_seq_lens, self.is_packed = (
            cu_seq_lens.to(self.device, torch.int32),
            len(cu_seq_lens) > 2,
        )
        # only on CPU: reading values on other devices means waiting for them
        can_read = self.device.type == "cpu" and not is_captured(columns)
        if can_read and (
            sum(self.lengths) != length or self.cu_seq_lens[0] != 0 or min(self.lengths) < 1
        ):
            raise ValueError(
                f"cu_seq_lens_q={cu_seq_lens.tolist()} does not cover the {length} tokens of the row: use increasing "
                f"numbers from 0 to {length}"
            )
        self.id_t = torch.bucketize(columns, self.cu_seq_lens[1:-1].contiguous(), right=True)
        if position_ids is None:
            self.position_t = columns - self.cu_seq_lens[self.id_t]
        else:
            self.position_t = self._expand(position_ids)[0]
        self.id_bs, self.position_bs = self.id_t.unsqueeze(0), self.position_t.unsqueeze(0)

    def _find_documents(self, columns, attention_mask, position_ids, seq_idx, cu_seq_lens):
        batch_size, length = self.shape
        if attention_mask is None:
            real = torch.ones(batch_size, length, dtype=torch.bool, device=self.device)
        else:
            real = self._expand(attention_mask) != 0
        # the column of the real token before this one, -1 if there is none
        before = _forward_fill(real, columns.expand(batch_size, length), -1)
        starts = before < 0
        if seq_idx is None and cu_seq_lens is not None:
            flat = torch.arange(real.numel(), device=self.device)
            seq_idx = torch.bucketize(flat, cu_seq_lens.to(self.device), right=True)
        if seq_idx is not None:
            number = self._expand(seq_idx)
            starts = starts | (number != number.gather(1, before.clamp(min=0)))
        elif position_ids is not None:
            position = self._expand(position_ids)
            # Positions may or may not count the padding of a hole; in both cases the document continues after it.
            step = position - position.gather(1, before.clamp(min=0))
            starts = starts | ((step != 1) & (step != columns - before))
        self.starts_bs = starts & real
        self.real_bs = None if attention_mask is None else real
        # Padding is a document of its own, so that no row of a mask is empty.
        self.id_bs = torch.where(
            real, self.starts_bs.flatten().long().cumsum(0).view_as(real) - 1, -1
        )
        self.id_t = self.id_bs.flatten()
        if position_ids is not None:
            self.position_bs = self._expand(position_ids)
        else:
            count = real.long().cumsum(1)
            first = torch.where(self.starts_bs, count, _forward_fill(self.starts_bs, count, 1))
            self.position_bs = (count - first).clamp(min=0)

    def _expand(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(self.device).view(-1, self.shape[1]).expand(*self.shape)

    # --- the unpadded tokens ---

    def find_tokens(self) -> "PackedSequences":
        """Find the unpadded tokens, in row order. It sets

        - `index_t`, [tokens]: where they are in the flattened batch; None if no token is padding;
        - `id_t` and `position_t`, [tokens]: the document and the position of each;
        - `cu_seq_lens`, int32 [documents + 1]: where documents start among these tokens (not in the padded batch);
        - `is_packed`: whether a row holds several documents.

        This reads values: it cannot be captured in a graph, and it waits for the device, unless every row is one
        document without padding, or a single row comes with `cu_seq_lens`.
        """
        if self.cu_seq_lens is not None:
            return self
        batch_size, length = self.shape
        if self.id_bs is None:
            self.cu_seq_lens = torch.arange(
                0, batch_size * length + 1, length, dtype=torch.int32, device=self.device
            )
            self.position_t, self.lengths = self.position_bs.flatten(), [length] * batch_size
        else:
            self._find_tokens()
        return self

    @torch.compiler.disable  # sizes depend on the data; the layers that follow are compiled as one graph
    def _find_tokens(self):
        length = self.shape[1]
        if self.real_bs is not None:
            self.index_t = self.real_bs.flatten().nonzero().squeeze(1)
            if len(self.index_t) == self.real_bs.numel():
                self.index_t = None
        self.id_t, self.position_t = self.unpad(self.id_bs), self.unpad(self.position_bs)
        first_t = self.unpad(self.starts_bs).nonzero().squeeze(1)
        self.cu_seq_lens = F.pad(first_t, (0, 1), value=len(self.id_t)).int()
        first_row = (first_t if self.index_t is None else self.index_t[first_t]) // length
        self.is_packed = bool((first_row[1:] == first_row[:-1]).any())

    @cached_property
    @torch.compiler.disable
    def order(self) -> str:
        """How positions advance within documents: "contiguous" (by 1), "rising" (by 1 or more) or "any"."""
        step = torch.where(self.id_t.diff() == 0, self.position_t.diff(), 1)
        lowest, highest = (int(x) for x in step.aminmax()) if len(step) else (1, 1)
        return "any" if lowest < 1 else "contiguous" if highest == 1 else "rising"

    @cached_property
    def lengths(self) -> list[int]:
        """The number of tokens of each document."""
        return self.cu_seq_lens.diff().tolist()

    def unpad(self, x_bs: torch.Tensor) -> torch.Tensor:
        """Drop padding: [batch, length, ...] → [tokens, ...]."""
        x = x_bs.flatten(0, 1)
        return x if self.index_t is None else x[self.index_t]

    def pad(self, x_t: torch.Tensor, fill: float = 0.0) -> torch.Tensor:
        """Undo `unpad`: [tokens, width] → [batch, length, width], with `fill` at padding."""
        if self.index_t is not None:
            batch_size, length = self.shape
            padded = x_t.new_full((batch_size * length, *x_t.shape[1:]), fill)
            x_t = padded.index_copy(0, self.index_t.to(x_t.device), x_t)
        elif self.cu_seq_lens is None and self.real_bs is not None:  # padding was never dropped
            x_t = x_t.masked_fill(~self.real_bs.to(x_t.device).flatten().unsqueeze(1), fill)
        return self._to_rows(x_t)

    def _to_rows(self, x_t: torch.Tensor) -> torch.Tensor:
        """[batch · length, width] → [batch, length, width], as torch.export can follow it for every length."""
        return x_t.flatten().view(*self.shape, x_t.shape[-1])

    def unpad_labels(
        self,
        labels_bs: torch.Tensor | None,
        num_items: int | torch.Tensor | None = None,
        shift: bool = False,
    ) -> tuple[torch.Tensor | None, int | torch.Tensor | None]:
        """Return the labels of the unpadded tokens, [tokens], and the number of targets to average the loss over.

        Args:
            labels_bs: [batch, length]. Labels at padding are ignored.
            num_items: the targets that `Trainer` counted over all steps of gradient accumulation (with `shift`, without
                the first column). The share of them whose labels are ignored here is subtracted.
            shift: give each token the label of the next token of its document.

        Raises:
            ValueError: the labels have another shape than the batch.
        """
        if labels_bs is None:
            return None, num_items
        if tuple(labels_bs.shape) != tuple(self.shape):
            raise ValueError(
                f"labels have the shape {tuple(labels_bs.shape)}: use {tuple(self.shape)}, one a token"
            )
        labels_t = self.unpad(
            labels_bs if self.real_bs is None else labels_bs.masked_fill(~self.real_bs, -100)
        )
        if shift:
            labels_bs = labels_bs[:, 1:]
            has_next = (
                F.pad(self.id_t, (0, 1), value=-2)[1:] == self.id_t
            )  # another token of the same document
            labels_t = F.pad(labels_t, (0, 1), value=-100)[1:].masked_fill(~has_next, -100)
        if num_items is not None and (shift or self.real_bs is not None):
            counted, used = ((x != -100).sum() for x in (labels_bs, labels_t))
            num_items = torch.as_tensor(num_items, device=counted.device)
            num_items = num_items - (counted - used) * num_items // counted.clamp(min=1)
        return labels_t, num_items

    def pool(self, hidden_t: torch.Tensor, pooling: str) -> torch.Tensor:
        """Pool the `cls` (first), `last` or `mean` vector of each row, [batch, width], or of each document,
        [documents, width], if a row holds several. A row without real tokens gives zeros."""
        if self.cu_seq_lens is None:
            return self._pool_rows(self._to_rows(hidden_t), pooling)
        first, last = self.cu_seq_lens[:-1].long(), self.cu_seq_lens[1:].long() - 1
        if pooling == "mean":
            wide_t = at_least_fp32(hidden_t)
            sums = wide_t.new_zeros(len(first), hidden_t.shape[-1]).index_add(0, self.id_t, wide_t)
            pooled = (sums / (last - first + 1).unsqueeze(1)).to(hidden_t.dtype)
        else:
            pooled = hidden_t[first if pooling == "cls" else last]
        if self.is_packed or len(first) == self.shape[0]:
            return pooled
        row = self.index_t[first] // self.shape[1]
        return pooled.new_zeros(self.shape[0], pooled.shape[1]).index_copy(0, row, pooled)

    def _pool_rows(self, hidden_bsd: torch.Tensor, pooling: str) -> torch.Tensor:
        """`pool` without reading values. It assumes that every row is one document, which it cannot verify."""
        if self.may_pack:
            raise ValueError(
                "seq_idx: a captured graph pools one vector a row; use one row with cu_seq_lens_q"
            )
        chosen_bs = (
            hidden_bsd.new_ones(self.shape, dtype=torch.bool)
            if self.real_bs is None
            else self.real_bs
        )
        if pooling != "mean":
            count_bs = chosen_bs.long().cumsum(1)
            chosen_bs = chosen_bs & (count_bs == (1 if pooling == "cls" else count_bs[:, -1:]))
        weight_bs = chosen_bs.to(hidden_bsd.dtype)
        summed = torch.bmm(weight_bs.unsqueeze(1), hidden_bsd).squeeze(1)
        return summed / weight_bs.sum(1, keepdim=True).clamp(min=1)

    # --- padded rows ---

    def mask_function(self, window: int | None, causal: bool) -> Any:
        """The rule as a function (batch, head, query, key) → bool, as Transformers' mask functions are."""
        id_bs, position_bs = self.id_bs, self.position_bs

        def sees(b, h, q, k):
            distance = position_bs[b, q] - position_bs[b, k]
            same = distance == distance if id_bs is None else id_bs[b, q] == id_bs[b, k]
            return restrict(same, distance, window, causal)

        return sees

    def dense_mask(self, window: int | None, causal: bool) -> torch.Tensor | None:
        """[batch, 1, length, length], True where a query (second to last) sees a key; None if it always does."""
        if self.id_bs is None and window is None and not causal:
            return None
        return visibility(self.id_bs, self.position_bs, window, causal).unsqueeze(1)


def _forward_fill(marked_bs: torch.Tensor, value_bs: torch.Tensor, start: int) -> torch.Tensor:
    """[batch, length], the value at the last marked column before each column, or `start` if there is none. It uses
    scatter and gather because ONNX has no running maximum."""
    batch_size, length = marked_bs.shape
    rank = marked_bs.long().cumsum(1)
    held = value_bs.new_full((batch_size, length + 2), start)
    held = held.scatter(
        1, torch.where(marked_bs, rank, length + 1), value_bs
    )  # the last slot takes the unmarked
    return held.gather(1, rank - marked_bs.long())
