# Copyright 2026 The MiniBERT authors. Licensed under the Apache License, Version 2.0.
"""Which tokens of a batch are real, and which tokens see each other.

`PackedSequences` turns what a caller passes (a padding mask, position ids that restart, `seq_idx`,
`cu_seq_lens_q`) into one description of the batch. A *document* is one sequence of a packed row; a
row that is not packed is one document. From the description come

- the *unpadded tokens*: the real tokens of all rows, one after the other, [tokens, ...]. The model
  works on these;
- a dense boolean mask for attention functions that need padded rows (eager, flex, a user's own,
  export).

One rule holds for every attention function. Token i sees token j if both belong to the same
document, |position_i - position_j| <= window (local layers), and position_j <= position_i (causal
models).

Shape suffixes: b batch, s columns of the padded batch, t unpadded tokens, q queries, k keys. Names
without a suffix that have one value for each token refer to the unpadded tokens.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch.nn import functional as F
from transformers.configuration_utils import PreTrainedConfig
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, create_bidirectional_mask

from .compat_minibert import at_least_fp32, attention_backend, is_captured

# --- what callers may pass ---


def check_inputs(
    input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None, width: int
) -> torch.Tensor:
    """Return `input_ids` or `inputs_embeds`; a ValueError if there is not one of them, or if it has
    another shape than [batch, length] or [batch, length, width]."""
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("pass exactly one of input_ids and inputs_embeds")
    if inputs_embeds is None:
        inputs = input_ids
        name = "input_ids"
        form = "[batch, length]"
        fits = inputs.dim() == 2
    else:
        inputs = inputs_embeds
        name = "inputs_embeds"
        form = f"[batch, length, {width}]"
        fits = inputs.dim() == 3 and inputs.shape[2] == width
    if not fits or 0 in tuple(inputs.shape[:2]):
        raise ValueError(
            f"{name} has the shape {tuple(inputs.shape)}: use {form}, with at least one token"
        )
    return inputs


def check_shapes(
    inputs: torch.Tensor,
    attention_mask: torch.Tensor | None,
    token_type_ids: torch.Tensor | None,
    position_ids: torch.Tensor | None,
    seq_idx: torch.Tensor | None,
):
    """Refuse a mask that is neither [batch, length] nor a 4D mask of booleans or floats, and other
    arguments that do not have one number for each token."""
    shape = tuple(inputs.shape[:2])
    if attention_mask is not None:
        is_4d = attention_mask.dim() == 4
        fits_4d = attention_mask.dtype == torch.bool or attention_mask.is_floating_point()
        if not is_4d and tuple(attention_mask.shape) != shape:
            raise ValueError(
                f"attention_mask has the shape {tuple(attention_mask.shape)}, the inputs {shape}: "
                "use [batch, length] or [batch, 1, length, length]"
            )
        if is_4d and not fits_4d:
            raise ValueError(
                f"attention_mask is {attention_mask.dtype}: a 4D mask holds booleans, or floats "
                "to add"
            )
    columns = {"token_type_ids": token_type_ids, "position_ids": position_ids, "seq_idx": seq_idx}
    for name, x in columns.items():
        if x is not None and (x.shape not in (shape, (1, shape[1])) or x.dtype == torch.bool):
            raise ValueError(
                f"{name} is {x.dtype} of the shape {tuple(x.shape)}: use numbers, {list(shape)}"
            )


# --- which tokens see each other ---


def apply_window_and_causality(
    visible: torch.Tensor, distance: torch.Tensor, window: int | None, causal: bool
) -> torch.Tensor:
    """Hide from `visible` the keys outside of the window or after the query.

    Args:
        visible: boolean, True where a query sees a key so far.
        distance: the position of the query minus that of the key.
        window: the largest distance at which tokens see each other; None: any.
        causal: tokens see only what comes before them.
    """
    if window is not None:
        visible = visible & (distance.abs() <= window)
    if causal:
        visible = visible & (distance >= 0)
    return visible


def build_attention_mask(
    document_ids: torch.Tensor | None, positions: torch.Tensor, window: int | None, causal: bool
) -> torch.Tensor:
    """The rule of this module for tokens with these documents and positions.

    Args:
        document_ids, positions: [..., tokens]; without `document_ids` all are of one document.
        window, causal: see `apply_window_and_causality`.

    Returns:
        [..., tokens, tokens], True where a query (second to last) sees a key (last).
    """
    distance = positions.unsqueeze(-1) - positions.unsqueeze(-2)
    if document_ids is None:
        visible = torch.ones_like(distance, dtype=torch.bool)
    else:
        visible = document_ids.unsqueeze(-1) == document_ids.unsqueeze(-2)
    return apply_window_and_causality(visible, distance, window, causal)


def to_bias(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A boolean mask as the number that is added to each score: 0 or -inf."""
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, float("-inf"))


class PackedSequences:
    """The documents of one batch.

    Args:
        batch_size, length: rows and columns of the padded batch.
        attention_mask: [batch, length], non-zero at real tokens. Padding may be left, right or in
            holes. Or [batch, 1, length, length], which says nothing about padding: see `mask_4d`.
        position_ids: [batch or 1, length]. A document starts where a position is not the previous
            one plus 1. Without them, positions count the real tokens of each document from 0.
        seq_idx: [batch or 1, length], the document number of each token. Takes precedence over
            `position_ids`.
        cu_seq_lens: [documents + 1], where documents start in the flattened batch. Takes precedence
            too.
        max_length: an upper bound on the tokens of a document; `length` if unknown.

    Attributes:
        real_bs: [batch, length], True at real tokens; None without an `attention_mask`.
        document_ids_bs: [batch, length], documents numbered over the batch, -1 at padding; None if
            every row is one document without padding.
        positions_bs: [batch, length], the position of each token.
        starts_bs: [batch, length], True at the first token of each document, if documents had to be
            found.
        longest: an upper bound on the tokens of a document.
        mask_4d: a caller's own mask over pairs of tokens, boolean or added to the scores.
        may_pack: whether the caller said where documents begin, so that a row may hold several.
            Unlike `is_packed`, it is known without reading values.
        token_indices, document_ids, positions, cu_seq_lens, is_packed: there after `find_tokens`,
            which describes them.

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
        self.shape = (batch_size, length)
        self.device = device
        self.longest = length if max_length is None else max_length
        self.may_pack = seq_idx is not None or cu_seq_lens is not None
        self.is_packed = False
        self.mask_4d = None
        if attention_mask is not None and attention_mask.dim() == 4:
            self.mask_4d = attention_mask
            attention_mask = None
        self.counts_positions = position_ids is None
        self.real_bs = None
        self.document_ids_bs = None
        self.token_indices = None
        self.cu_seq_lens = None
        if self.counts_positions:
            self.order = "contiguous"  # in place of the cached property, which reads positions

        columns = torch.arange(length, device=device)
        is_bare = attention_mask is None and seq_idx is None
        if is_bare and position_ids is None and cu_seq_lens is None:
            self._use_rows(columns)
        elif is_bare and batch_size == 1 and cu_seq_lens is not None:
            self._use_bounds(columns, cu_seq_lens, position_ids)
        else:
            self._find_documents(columns, attention_mask, position_ids, seq_idx, cu_seq_lens)

    def _use_rows(self, columns: torch.Tensor):
        """Every row is one document without padding."""
        batch_size, length = self.shape
        self.positions_bs = columns.expand(batch_size, length)
        rows = torch.arange(batch_size, device=self.device)
        self.document_ids = rows.unsqueeze(1).expand(batch_size, length).flatten()

    def _use_bounds(self, columns, cu_seq_lens, position_ids):
        """One row without padding whose bounds are given, as packing collators give them: nothing
        has to be found."""
        length = self.shape[1]
        self.cu_seq_lens = cu_seq_lens.to(self.device, torch.int32)
        self.is_packed = len(cu_seq_lens) > 2
        # only on CPU: reading values on other devices means waiting for them
        if self.device.type == "cpu" and not is_captured(columns):
            covers = sum(self.lengths) == length and self.cu_seq_lens[0] == 0
            if not covers or min(self.lengths) < 1:
                raise ValueError(
                    f"cu_seq_lens_q={cu_seq_lens.tolist()} does not cover the {length} tokens of "
                    f"the row: use increasing numbers from 0 to {length}"
                )
        inner_bounds = self.cu_seq_lens[1:-1].contiguous()
        self.document_ids = torch.bucketize(columns, inner_bounds, right=True)
        if position_ids is None:
            self.positions = columns - self.cu_seq_lens[self.document_ids]
        else:
            self.positions = self._expand(position_ids)[0]
        self.document_ids_bs = self.document_ids.unsqueeze(0)
        self.positions_bs = self.positions.unsqueeze(0)

    def _find_documents(self, columns, attention_mask, position_ids, seq_idx, cu_seq_lens):
        """Find where documents start, from whatever says it, and count positions."""
        batch_size, length = self.shape
        if attention_mask is None:
            real = torch.ones(batch_size, length, dtype=torch.bool, device=self.device)
        else:
            real = self._expand(attention_mask) != 0
            self.real_bs = real
        # the column of the real token before this one, -1 if there is none
        previous = _forward_fill(real, columns.expand(batch_size, length), -1)
        starts = previous < 0
        if seq_idx is None and cu_seq_lens is not None:
            flat = torch.arange(real.numel(), device=self.device)
            seq_idx = torch.bucketize(flat, cu_seq_lens.to(self.device), right=True)
        if seq_idx is not None:
            number = self._expand(seq_idx)
            starts = starts | (number != number.gather(1, previous.clamp(min=0)))
        elif position_ids is not None:
            position = self._expand(position_ids)
            # Positions may or may not count the padding of a hole; in both cases the document
            # continues after it.
            step = position - position.gather(1, previous.clamp(min=0))
            starts = starts | ((step != 1) & (step != columns - previous))
        self.starts_bs = starts & real
        # Padding is a document of its own, so that no row of a mask is empty.
        number_of_start = self.starts_bs.flatten().long().cumsum(0).view_as(real) - 1
        self.document_ids_bs = torch.where(real, number_of_start, -1)
        self.document_ids = self.document_ids_bs.flatten()
        if position_ids is not None:
            self.positions_bs = self._expand(position_ids)
        else:
            count = real.long().cumsum(1)
            first = torch.where(self.starts_bs, count, _forward_fill(self.starts_bs, count, 1))
            self.positions_bs = (count - first).clamp(min=0)

    def _expand(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(self.device).view(-1, self.shape[1]).expand(*self.shape)

    def check_positions(self, table_size: int):
        """Refuse positions that a table of learned positions does not have. If positions are
        counted, values are read only where documents may be too long."""
        if is_captured(self.positions_bs):
            return
        if self.counts_positions and self.longest <= table_size:
            return
        highest = int(self.positions_bs.max())
        if highest >= table_size:
            raise ValueError(
                f"position {highest} is beyond max_position_embeddings={table_size}: truncate to "
                f"{table_size} tokens (tokenizer(..., truncation=True, max_length={table_size}))"
            )

    # --- the unpadded tokens ---

    def find_tokens(self) -> "PackedSequences":
        """Find the unpadded tokens, in row order. It sets

        - `token_indices`, [tokens]: where they are in the flattened batch; None if no token is
          padding;
        - `document_ids` and `positions`, [tokens]: the document and the position of each;
        - `cu_seq_lens`, int32 [documents + 1]: where documents start among these tokens (not in the
          padded batch);
        - `is_packed`: whether a row holds several documents.

        This reads values: it cannot be captured in a graph, and it waits for the device, unless
        every row is one document without padding, or a single row comes with `cu_seq_lens`.
        """
        if self.cu_seq_lens is not None:
            return self
        if self.document_ids_bs is None:
            batch_size, length = self.shape
            end = batch_size * length + 1
            self.cu_seq_lens = torch.arange(0, end, length, dtype=torch.int32, device=self.device)
            self.positions = self.positions_bs.flatten()
            self.lengths = [length] * batch_size  # in place of the cached property
        else:
            self._find_tokens()
        return self

    # Sizes depend on the data; the layers after it are compiled as one graph.
    @torch.compiler.disable
    def _find_tokens(self):
        if self.real_bs is not None:
            token_indices = self.real_bs.flatten().nonzero().squeeze(1)
            has_padding = len(token_indices) < self.real_bs.numel()
            self.token_indices = token_indices if has_padding else None
        self.document_ids = self.unpad(self.document_ids_bs)
        self.positions = self.unpad(self.positions_bs)
        first_tokens = self.unpad(self.starts_bs).nonzero().squeeze(1)
        self.cu_seq_lens = F.pad(first_tokens, (0, 1), value=len(self.document_ids)).int()
        rows = self._padded_index(first_tokens) // self.shape[1]
        self.is_packed = bool((rows[1:] == rows[:-1]).any())

    def _padded_index(self, tokens: torch.Tensor) -> torch.Tensor:
        """Where these unpadded tokens are in the flattened batch."""
        return tokens if self.token_indices is None else self.token_indices[tokens]

    @cached_property
    @torch.compiler.disable
    def order(self) -> str:
        """How positions advance within documents: "contiguous" (by 1), "rising" (by 1 or more) or
        "any"."""
        step = torch.where(self.document_ids.diff() == 0, self.positions.diff(), 1)
        if not len(step):
            return "contiguous"
        lowest, highest = step.aminmax()
        if int(lowest) < 1:
            return "any"
        return "contiguous" if int(highest) == 1 else "rising"

    @cached_property
    def lengths(self) -> list[int]:
        """The number of tokens of each document."""
        return self.cu_seq_lens.diff().tolist()

    def unpad(self, x_bs: torch.Tensor) -> torch.Tensor:
        """Drop padding: [batch, length, ...] → [tokens, ...]."""
        x = x_bs.flatten(0, 1)
        return x if self.token_indices is None else x[self.token_indices]

    def unpad_to_row(self, x_bs: torch.Tensor | None) -> torch.Tensor | None:
        """All unpadded tokens as one row, [1, tokens, ...]. None stays None."""
        return None if x_bs is None else self.unpad(x_bs).unsqueeze(0)

    def pad(self, x_t: torch.Tensor, fill: float = 0.0) -> torch.Tensor:
        """Undo `unpad`: [tokens, width] → [batch, length, width], with `fill` at padding."""
        if self.token_indices is not None:
            batch_size, length = self.shape
            padded = x_t.new_full((batch_size * length, *x_t.shape[1:]), fill)
            x_t = padded.index_copy(0, self.token_indices.to(x_t.device), x_t)
        elif self.cu_seq_lens is None and self.real_bs is not None:  # padding was never dropped
            x_t = x_t.masked_fill(~self.real_bs.to(x_t.device).flatten().unsqueeze(1), fill)
        return self._to_rows(x_t)

    def _to_rows(self, x_t: torch.Tensor) -> torch.Tensor:
        """[batch · length, width] → [batch, length, width], as torch.export can follow it for every
        length."""
        return x_t.flatten().view(*self.shape, x_t.shape[-1])

    # --- labels ---

    def unpad_labels(
        self,
        labels_bs: torch.Tensor | None,
        num_items: int | torch.Tensor | None = None,
        shift: bool = False,
    ) -> tuple[torch.Tensor | None, int | torch.Tensor | None]:
        """Return the labels of the unpadded tokens, [tokens], and the number of targets to average
        the loss over.

        Args:
            labels_bs: [batch, length]. Labels at padding are ignored.
            num_items: the targets that `Trainer` counted over all steps of gradient accumulation
                (with `shift`, without the first column). The share of them whose labels are ignored
                here is subtracted.
            shift: give each token the label of the next token of its document.

        Raises:
            ValueError: the labels have another shape than the batch.
        """
        if labels_bs is None:
            return None, num_items
        if tuple(labels_bs.shape) != tuple(self.shape):
            raise ValueError(
                f"labels have the shape {tuple(labels_bs.shape)}: use {tuple(self.shape)}, "
                "one a token"
            )
        if self.real_bs is None:
            labels = self.unpad(labels_bs)
        else:
            labels = self.unpad(labels_bs.masked_fill(~self.real_bs, -100))
        if shift:
            labels_bs = labels_bs[:, 1:]
            next_ids = F.pad(self.document_ids, (0, 1), value=-2)[1:]
            has_next = next_ids == self.document_ids  # another token of the same document
            labels = F.pad(labels, (0, 1), value=-100)[1:].masked_fill(~has_next, -100)
        if num_items is not None and (shift or self.real_bs is not None):
            counted = (labels_bs != -100).sum()
            used = (labels != -100).sum()
            num_items = torch.as_tensor(num_items, device=counted.device)
            num_items = num_items - (counted - used) * num_items // counted.clamp(min=1)
        return labels, num_items

    # --- pooling ---

    def pool(self, hidden_td: torch.Tensor, pooling: str) -> torch.Tensor:
        """Pool the `cls` (first), `last` or `mean` vector of each row, [batch, width], or of each
        document, [documents, width], if a row holds several. A row without real tokens gives
        zeros."""
        if self.cu_seq_lens is None:
            return self._pool_rows(self._to_rows(hidden_td), pooling)
        first = self.cu_seq_lens[:-1].long()
        last = self.cu_seq_lens[1:].long() - 1
        if pooling == "mean":
            wide_td = at_least_fp32(hidden_td)
            zeros = wide_td.new_zeros(len(first), hidden_td.shape[-1])
            sums = zeros.index_add(0, self.document_ids, wide_td)
            pooled = (sums / (last - first + 1).unsqueeze(1)).to(hidden_td.dtype)
        else:
            pooled = hidden_td[first if pooling == "cls" else last]
        if self.is_packed or len(first) == self.shape[0]:
            return pooled
        rows = self._padded_index(first) // self.shape[1]
        return pooled.new_zeros(self.shape[0], pooled.shape[1]).index_copy(0, rows, pooled)

    def _pool_rows(self, hidden_bsd: torch.Tensor, pooling: str) -> torch.Tensor:
        """`pool` without reading values. It assumes that every row is one document, which it cannot
        verify."""
        if self.may_pack:
            raise ValueError(
                "seq_idx: a captured graph pools one vector a row; use one row with cu_seq_lens_q"
            )
        if self.real_bs is None:
            pooled_bs = hidden_bsd.new_ones(self.shape, dtype=torch.bool)
        else:
            pooled_bs = self.real_bs
        if pooling != "mean":
            count_bs = pooled_bs.long().cumsum(1)
            chosen = 1 if pooling == "cls" else count_bs[:, -1:]
            pooled_bs = pooled_bs & (count_bs == chosen)
        weight_bs = pooled_bs.to(hidden_bsd.dtype)
        summed = torch.bmm(weight_bs.unsqueeze(1), hidden_bsd).squeeze(1)
        return summed / weight_bs.sum(1, keepdim=True).clamp(min=1)

    # --- masks of padded rows ---

    def mask_function(self, window: int | None, causal: bool) -> Callable[..., torch.Tensor]:
        """The rule as a function (batch, head, query, key) → bool, as Transformers' mask functions
        are."""
        document_ids_bs = self.document_ids_bs
        positions_bs = self.positions_bs

        def is_visible(b, h, q, k):
            distance = positions_bs[b, q] - positions_bs[b, k]
            if document_ids_bs is None:
                same_document = distance == distance
            else:
                same_document = document_ids_bs[b, q] == document_ids_bs[b, k]
            return apply_window_and_causality(same_document, distance, window, causal)

        return is_visible

    def dense_mask(self, window: int | None, causal: bool) -> torch.Tensor | None:
        """[batch, 1, length, length], True where a query (second to last) sees a key; None if it
        always does."""
        if self.document_ids_bs is None and window is None and not causal:
            return None
        mask = build_attention_mask(self.document_ids_bs, self.positions_bs, window, causal)
        return mask.unsqueeze(1)

    def restrict_4d_mask(self, window: int | None, causal: bool) -> torch.Tensor:
        """The caller's mask, from which the rule hides what it hides."""
        visible = self.dense_mask(window, causal)
        if visible is None:
            return self.mask_4d
        if self.mask_4d.dtype == torch.bool:
            return self.mask_4d & visible
        return self.mask_4d.masked_fill(~visible, torch.finfo(self.mask_4d.dtype).min)

    def interface_mask(
        self, config: PreTrainedConfig, hidden: torch.Tensor, window: int | None, causal: bool
    ) -> Any:
        """The mask in the form that Transformers' attention function of the config takes. `hidden`
        are the padded rows, [batch, length, width]."""
        if self.mask_4d is not None:
            return self.restrict_4d_mask(window, causal)
        backend = attention_backend(config)
        is_flash = "flash" in backend
        sees_all = window is None and not causal
        if self.document_ids_bs is None and (is_flash or sees_all):
            return None  # flash attention takes window and direction as arguments
        takes_dense_mask = is_flash or backend in ("eager", "sdpa")
        if takes_dense_mask or backend not in ALL_MASK_ATTENTION_FUNCTIONS:
            return self.dense_mask(window, causal)
        is_visible = self.mask_function(window, causal)
        return create_bidirectional_mask(
            config, hidden, attention_mask=None, and_mask_function=is_visible
        )


def _forward_fill(marked_bs: torch.Tensor, value_bs: torch.Tensor, start: int) -> torch.Tensor:
    """[batch, length], the value at the last marked column before each column, or `start` if there
    is none. It uses scatter and gather because ONNX has no running maximum."""
    batch_size, length = marked_bs.shape
    rank = marked_bs.long().cumsum(1)
    # The last slot takes the values of unmarked columns.
    slot = torch.where(marked_bs, rank, length + 1)
    filled = value_bs.new_full((batch_size, length + 2), start).scatter(1, slot, value_bs)
    return filled.gather(1, rank - marked_bs.long())
