# Copyright 2026 The MiniBERT authors. Licensed under the Apache License, Version 2.0.
"""Which tokens of a batch are real, and which tokens see each other.

`BatchDocuments` turns what a caller passes (a padding mask, position ids that restart, `seq_idx`,
`cu_seq_lens_q`) into one description of the padded batch. A *document* is one sequence of a packed
row; a row that is not packed is one document. From the description come

- `UnpaddedTokens`: the real tokens of all rows, one after the other, [tokens, ...]. The heads work
  on these. In a graph that cannot drop padding, `AllColumns` stands for them;
- what the layers run over: these tokens as one `UnpaddedRow`; or `PaddedRows`, with a mask, for
  attention functions that need them (eager, flex, a user's own, export).

Which classes a call leads to depends on how attention is computed. Whether its rows are plain,
padded or packed changes what is in them.

    attention, call                                       tokens            layers run over
    sdpa, or flash attention where it is exact            UnpaddedTokens    UnpaddedRow
    with a 4D mask, or outputs of every layer             UnpaddedTokens    PaddedRows
    eager, flex, a user's own                             UnpaddedTokens    PaddedRows
    captured in a graph                                   AllColumns        PaddedRows
    captured, one row without padding, cu_seq_lens_q      UnpaddedTokens    PaddedRows

(`choose_layer_input` of `attention_minibert.py` chooses. "Captured" is explained in
`compat_minibert.py`.)

One rule holds for every attention function. Token i sees token j if both belong to the same
document, |position_i - position_j| <= reach (local layers, whose window has the reach on either
side), and position_j <= position_i (causal models).

The checks of what a caller passes stand at the end. Shape suffixes are those of
`modeling_minibert.py`.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F
from transformers.configuration_utils import PreTrainedConfig
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, create_bidirectional_mask

from .compat_minibert import at_least_fp32, needs_static_shapes

# --- which tokens see each other ---


def apply_reach_and_causality(
    visible: torch.Tensor, distance: torch.Tensor, reach: int | None, causal: bool
) -> torch.Tensor:
    """Hide from `visible` the keys out of reach or after the query.

    Args:
        visible: boolean, True where a query sees a key so far.
        distance: the position of the query minus that of the key.
        reach: the largest distance at which tokens see each other; None: any.
        causal: tokens see only what comes before them.
    """
    if reach is not None:
        visible = visible & (distance.abs() <= reach)
    if causal:
        visible = visible & (distance >= 0)
    return visible


def build_attention_mask(
    document_ids: torch.Tensor | None, positions: torch.Tensor, reach: int | None, causal: bool
) -> torch.Tensor:
    """The rule of this module for tokens with these documents and positions.

    Args:
        document_ids, positions: [..., tokens]; without `document_ids` all are of one document.
        reach, causal: see `apply_reach_and_causality`.

    Returns:
        [..., tokens, tokens], True where a query (second to last) sees a key (last).
    """
    distance = positions.unsqueeze(-1) - positions.unsqueeze(-2)
    if document_ids is None:
        visible = torch.ones_like(distance, dtype=torch.bool)
    else:
        visible = document_ids.unsqueeze(-1) == document_ids.unsqueeze(-2)
    return apply_reach_and_causality(visible, distance, reach, causal)


def to_bias(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A boolean mask as the number that is added to each score: 0 or -inf."""
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, float("-inf"))


class BatchDocuments:
    """The documents of one padded batch, as the caller described them.

    For example, two rows of six columns with the documents a, b and c, and padding (-):

        row 0             a  a  a  b  b  -      row 1   c  c  -  -  -  -
        document_ids_bs   0  0  0  1  1 -1              2  2 -1 -1 -1 -1
        positions_bs      0  1  2  0  1                 0  1
        starts_bs         ^        ^                    ^

    The model and its heads work on the tokens that `find_tokens` or `keep_columns` makes of it.

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
        shape: (batch, length).
        max_length: an upper bound on the tokens of a document.
        has_document_numbers: whether `seq_idx` or `cu_seq_lens` say which document a token is of,
            so that a row may hold several. Position ids that restart say so too, but that is known
            only when their values are read; most callers pass such that do not restart.
        counts_positions: whether positions are counted here, because the caller passed none.
        mask_4d: a caller's own mask over pairs of tokens, boolean or added to the scores.
        real_bs: [batch, length], True at real tokens; None without an `attention_mask`.
        cu_seq_lens: int32 [documents + 1], the bounds of documents that the caller passed for a
            single row without padding; else None.
        starts_bs: [batch, length], True at the first token of each document; None if documents did
            not have to be found.
        document_ids_bs: [batch, length], documents numbered over the batch, -1 at padding; None if
            every row is one document without padding.
        positions_bs: [batch, length], the position of each token.

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
        self.max_length = length if max_length is None else max_length
        self.has_document_numbers = seq_idx is not None or cu_seq_lens is not None
        self.counts_positions = position_ids is None
        self.mask_4d: torch.Tensor | None = None
        if attention_mask is not None and attention_mask.dim() == 4:
            self.mask_4d = attention_mask
            attention_mask = None
        self.real_bs: torch.Tensor | None = None
        self.cu_seq_lens: torch.Tensor | None = None
        self.starts_bs: torch.Tensor | None = None
        self.document_ids_bs: torch.Tensor | None = None
        self.positions_bs: torch.Tensor

        has_neither_mask_nor_seq_idx = attention_mask is None and seq_idx is None
        if has_neither_mask_nor_seq_idx and position_ids is None and cu_seq_lens is None:
            # Every row is one document without padding.
            self.positions_bs = torch.arange(length, device=device).expand(batch_size, length)
        elif has_neither_mask_nor_seq_idx and batch_size == 1 and cu_seq_lens is not None:
            self._use_bounds(cu_seq_lens, position_ids)
        else:
            self._find_documents(attention_mask, position_ids, seq_idx, cu_seq_lens)

    def _use_bounds(self, cu_seq_lens: torch.Tensor, position_ids: torch.Tensor | None):
        """One row without padding whose bounds are passed, as packing collators pass them: nothing
        has to be found."""
        length = self.shape[1]
        columns = torch.arange(length, device=self.device)
        bounds = cu_seq_lens.to(self.device, torch.int32)
        # Only on CPU: reading values on other devices means waiting for them.
        if self.device.type == "cpu" and not needs_static_shapes(columns):
            lengths = bounds.diff().tolist()
            covers = sum(lengths) == length and bounds[0] == 0
            if not covers or min(lengths) < 1:
                raise ValueError(
                    f"cu_seq_lens_q={cu_seq_lens.tolist()} does not cover the {length} tokens of "
                    f"the row: use increasing numbers from 0 to {length}"
                )
        document_ids = torch.bucketize(columns, bounds[1:-1].contiguous(), right=True)
        self.cu_seq_lens = bounds
        self.document_ids_bs = document_ids.unsqueeze(0)
        if position_ids is None:
            self.positions_bs = (columns - bounds[document_ids]).unsqueeze(0)
        else:
            self.positions_bs = self._expand(position_ids)

    def _find_documents(
        self,
        attention_mask: torch.Tensor | None,
        position_ids: torch.Tensor | None,
        seq_idx: torch.Tensor | None,
        cu_seq_lens: torch.Tensor | None,
    ):
        """Find where documents start; then number the documents, and the tokens of each."""
        if attention_mask is None:
            real_bs = torch.ones(self.shape, dtype=torch.bool, device=self.device)
        else:
            real_bs = self._expand(attention_mask) != 0
            self.real_bs = real_bs
        starts_bs = self._find_starts(real_bs, position_ids, seq_idx, cu_seq_lens)
        self.starts_bs = starts_bs
        document_ids_bs = starts_bs.flatten().long().cumsum(0).view_as(real_bs) - 1
        # Padding is a document of its own, so that no row of a mask is empty.
        self.document_ids_bs = torch.where(real_bs, document_ids_bs, -1)
        if position_ids is None:
            self.positions_bs = _count_positions(real_bs, starts_bs)
        else:
            self.positions_bs = self._expand(position_ids)

    def _find_starts(
        self,
        real_bs: torch.Tensor,
        position_ids: torch.Tensor | None,
        seq_idx: torch.Tensor | None,
        cu_seq_lens: torch.Tensor | None,
    ) -> torch.Tensor:
        """[batch, length], True at the first token of each document: the first real token of a row,
        and every real token that does not continue the document of the real token before it."""
        columns = torch.arange(self.shape[1], device=self.device)
        # The column of the real token before each column; -1 if there is none.
        previous_bs = _last_marked(real_bs, columns.expand(*self.shape), -1)
        starts_bs = previous_bs < 0
        previous_bs = previous_bs.clamp(min=0)
        if seq_idx is None and cu_seq_lens is not None:
            flat_columns = torch.arange(real_bs.numel(), device=self.device)
            seq_idx = torch.bucketize(flat_columns, cu_seq_lens.to(self.device), right=True)
        if seq_idx is not None:
            numbers_bs = self._expand(seq_idx)
            starts_bs = starts_bs | (numbers_bs != numbers_bs.gather(1, previous_bs))
        elif position_ids is not None:
            positions_bs = self._expand(position_ids)
            step_bs = positions_bs - positions_bs.gather(1, previous_bs)
            # Positions may or may not count the padding of a hole; in both cases the document
            # continues after it.
            starts_bs = starts_bs | ((step_bs != 1) & (step_bs != columns - previous_bs))
        return starts_bs & real_bs

    def _expand(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(self.device).view(-1, self.shape[1]).expand(*self.shape)

    def check_positions(self, table_size: int):
        """Refuse positions that a table of learned positions does not have.

        If positions are counted, values are read only where documents may be too long. If a caller
        passed them, they are always read, which waits for a GPU: it would answer an index that is
        too high by an error that stops the process.
        """
        if needs_static_shapes(self.positions_bs):
            return
        if self.counts_positions and self.max_length <= table_size:
            return
        highest = int(self.positions_bs.max())
        if highest >= table_size:
            raise ValueError(
                f"position {highest} is beyond max_position_embeddings={table_size}: truncate to "
                f"{table_size} tokens (tokenizer(..., truncation=True, max_length={table_size}))"
            )

    # --- its tokens ---

    def find_tokens(self) -> "UnpaddedTokens":
        """The real tokens of all rows.

        This reads values: it cannot be captured in a graph, and it waits for the device, unless
        every row is one document without padding, or a single row comes with `cu_seq_lens`.
        """
        if self.cu_seq_lens is not None:
            is_packed = len(self.cu_seq_lens) > 2
            return UnpaddedTokens(self, None, self.cu_seq_lens, is_packed)
        if self.document_ids_bs is None:
            batch_size, length = self.shape
            end = batch_size * length + 1
            bounds = torch.arange(0, end, length, dtype=torch.int32, device=self.device)
            return UnpaddedTokens(self, None, bounds, False, [length] * batch_size)
        return self._drop_padding()

    # Sizes depend on the data; the layers after it are compiled as one graph.
    @torch.compiler.disable
    def _drop_padding(self) -> "UnpaddedTokens":
        starts = self.starts_bs.flatten()
        token_indices = self._index_tokens()
        if token_indices is not None:
            starts = starts[token_indices]
        first_tokens = starts.nonzero().squeeze(1)
        bounds = F.pad(first_tokens, (0, 1), value=len(starts)).int()
        first_columns = first_tokens if token_indices is None else token_indices[first_tokens]
        row_of_document = first_columns // self.shape[1]
        is_packed = bool((row_of_document[1:] == row_of_document[:-1]).any())
        return UnpaddedTokens(self, token_indices, bounds, is_packed)

    def _index_tokens(self) -> torch.Tensor | None:
        """Where the real tokens are in the flattened batch; None if there is no padding."""
        if self.real_bs is None:
            return None
        token_indices = self.real_bs.flatten().nonzero().squeeze(1)
        return token_indices if len(token_indices) < self.real_bs.numel() else None

    def keep_columns(self) -> "BatchTokens":
        """Every column as a token, for a graph whose shapes may not depend on values."""
        if self.cu_seq_lens is not None:  # every column is a token, whose document is known
            return self.find_tokens()
        return AllColumns(self)

    # --- masks of padded rows ---

    def mask_function(self, reach: int | None, causal: bool) -> Callable[..., torch.Tensor]:
        """The rule as a function (batch, head, query, key) → bool, as Transformers' mask functions
        are."""
        document_ids_bs = self.document_ids_bs
        positions_bs = self.positions_bs

        def is_visible(b, h, q, k):
            distance = positions_bs[b, q] - positions_bs[b, k]
            if document_ids_bs is None:
                same_document = distance == distance  # True, in the shape that flex attention uses
            else:
                same_document = document_ids_bs[b, q] == document_ids_bs[b, k]
            return apply_reach_and_causality(same_document, distance, reach, causal)

        return is_visible

    def dense_mask(self, reach: int | None, causal: bool) -> torch.Tensor | None:
        """[batch, 1, length, length], True where a query (second to last) sees a key; None if it
        always does."""
        if self.document_ids_bs is None and reach is None and not causal:
            return None
        mask = build_attention_mask(self.document_ids_bs, self.positions_bs, reach, causal)
        return mask.unsqueeze(1)

    def restrict_4d_mask(self, reach: int | None, causal: bool) -> torch.Tensor:
        """The caller's mask, from which the rule hides what it hides."""
        visible = self.dense_mask(reach, causal)
        if visible is None:
            return self.mask_4d
        if self.mask_4d.dtype == torch.bool:
            return self.mask_4d & visible
        return self.mask_4d.masked_fill(~visible, torch.finfo(self.mask_4d.dtype).min)

    @property
    def needs_mask(self) -> bool:
        """Whether more than the reach and the direction decides which tokens see each other:
        documents, padding, or the caller's own mask."""
        return self.mask_4d is not None or self.document_ids_bs is not None

    def mask_for_backend(
        self,
        backend: str,
        config: PreTrainedConfig,
        hidden_bsd: torch.Tensor,
        reach: int | None,
        causal: bool,
    ) -> Any:
        """The mask over pairs of tokens, in the form that an attention function of Transformers
        takes; None if every token sees all of its row.

        Args:
            backend: the name of that function, which takes such a mask (flash attention does not).
            config: the config of the model.
            hidden_bsd: the padded rows.
            reach, causal: see `apply_reach_and_causality`.
        """
        if self.mask_4d is not None:
            return self.restrict_4d_mask(reach, causal)
        if self.document_ids_bs is None and reach is None and not causal:
            return None
        if backend in ("eager", "sdpa") or backend not in ALL_MASK_ATTENTION_FUNCTIONS:
            return self.dense_mask(reach, causal)
        is_visible = self.mask_function(reach, causal)
        return create_bidirectional_mask(
            config, hidden_bsd, attention_mask=None, and_mask_function=is_visible
        )


# --- the tokens that the model and its heads work on ---


class BatchTokens:
    """The tokens of a batch, one after the other.

    Args:
        batch: the padded batch.
        token_indices: [tokens], where they are in the flattened batch; None: every column is a
            token.

    Attributes:
        batch, token_indices: as above.
        document_ids, positions: [tokens], the document and the position of each.
    """

    def __init__(self, batch: BatchDocuments, token_indices: torch.Tensor | None = None):
        self.batch = batch
        self.token_indices = token_indices
        document_ids_bs = batch.document_ids_bs
        if document_ids_bs is None:
            row_numbers = torch.arange(batch.shape[0], device=batch.device)
            document_ids_bs = row_numbers.unsqueeze(1).expand(batch.shape)
        self.document_ids = self.unpad(document_ids_bs)
        self.positions = self.unpad(batch.positions_bs)

    def unpad(self, x_bs: torch.Tensor) -> torch.Tensor:
        """[batch, length, ...] → [tokens, ...]."""
        x = x_bs.flatten(0, 1)
        return x if self.token_indices is None else x[self.token_indices]

    def pad(self, x_t: torch.Tensor, fill: float = 0.0) -> torch.Tensor:
        """Undo `unpad`: [tokens, width] → [batch, length, width], with `fill` at padding."""
        raise NotImplementedError

    def pool(self, hidden_td: torch.Tensor, pooling: str) -> torch.Tensor:
        """Pool the `cls` (first), `last` or `mean` vector of each row, [batch, width], or of each
        document, [documents, width], if a row holds several. A row without real tokens gives
        zeros."""
        raise NotImplementedError

    def _to_rows(self, x_t: torch.Tensor) -> torch.Tensor:
        """[batch · length, width] → [batch, length, width], as torch.export can follow it for every
        length."""
        return x_t.flatten().view(*self.batch.shape, x_t.shape[-1])

    def unpad_labels(
        self, labels_bs: torch.Tensor | None, shift: bool = False
    ) -> torch.Tensor | None:
        """Return the labels of the tokens, [tokens]; None if there are none.

        Args:
            labels_bs: [batch, length]. Those at padding are left out, or become -100.
            shift: give each token the label of the next token of its document.

        Raises:
            ValueError: the labels have another shape than the batch.
        """
        if labels_bs is None:
            return None
        shape = tuple(self.batch.shape)
        if tuple(labels_bs.shape) != shape:
            raise ValueError(
                f"labels have the shape {tuple(labels_bs.shape)}: use {shape}, one a token"
            )
        if self.batch.real_bs is not None:
            labels_bs = labels_bs.masked_fill(~self.batch.real_bs, -100)
        labels_t = self.unpad(labels_bs)
        if not shift:
            return labels_t
        # The last token of each document has no next one.
        next_labels = F.pad(labels_t, (0, 1), value=-100)[1:]
        next_ids = F.pad(self.document_ids, (0, 1), value=-2)[1:]
        return next_labels.masked_fill(next_ids != self.document_ids, -100)


class UnpaddedTokens(BatchTokens):
    """The real tokens of all rows, in row order. `BatchDocuments.find_tokens` makes them; nothing
    about them changes afterwards. Those of its example:

        tokens            a  a  a  b  b  c  c
        token_indices     0  1  2  3  4  6  7
        document_ids      0  0  0  1  1  2  2
        positions         0  1  2  0  1  0  1
        cu_seq_lens       0        3     5     7

    Attributes:
        device: where they are.
        max_length: an upper bound on the tokens of a document.
        cu_seq_lens: int32 [documents + 1], where documents start among these tokens.
        is_packed: whether a row holds several documents.
    """

    def __init__(
        self,
        batch: BatchDocuments,
        token_indices: torch.Tensor | None,
        cu_seq_lens: torch.Tensor,
        is_packed: bool,
        lengths: list[int] | None = None,
    ):
        super().__init__(batch, token_indices)
        self.device = batch.device
        self.max_length = batch.max_length
        self.cu_seq_lens = cu_seq_lens
        self.is_packed = is_packed
        # What the properties `order` and `lengths` return; None: not read yet.
        self._order: str | None = "contiguous" if batch.counts_positions else None
        self._lengths = lengths

    @property
    def order(self) -> str:
        """How positions advance within documents: "contiguous" (by 1), "rising" (by 1 or more) or
        "any". Positions that a caller passed are read once, when this is first asked for."""
        if self._order is None:
            self._order = self._read_order()
        return self._order

    @torch.compiler.disable
    def _read_order(self) -> str:
        step = torch.where(self.document_ids.diff() == 0, self.positions.diff(), 1)
        if not len(step):
            return "contiguous"
        lowest, highest = step.aminmax()
        if int(lowest) < 1:
            return "any"
        return "contiguous" if int(highest) == 1 else "rising"

    @property
    def lengths(self) -> list[int]:
        """The number of tokens of each document. Unless every row is one document, `cu_seq_lens` is
        read once, when this is first asked for."""
        if self._lengths is None:
            self._lengths = self.cu_seq_lens.diff().tolist()
        return self._lengths

    def pad(self, x_t: torch.Tensor, fill: float = 0.0) -> torch.Tensor:
        """Undo `unpad`: [tokens, width] → [batch, length, width], with `fill` at padding."""
        if self.token_indices is not None:
            batch_size, length = self.batch.shape
            padded = x_t.new_full((batch_size * length, *x_t.shape[1:]), fill)
            x_t = padded.index_copy(0, self.token_indices.to(x_t.device), x_t)
        return self._to_rows(x_t)

    def pool(self, hidden_td: torch.Tensor, pooling: str) -> torch.Tensor:
        """See `BatchTokens.pool`."""
        first_n = self.cu_seq_lens[:-1].long()
        end_n = self.cu_seq_lens[1:].long()
        if pooling == "mean":
            wide_td = at_least_fp32(hidden_td)
            zeros_nd = wide_td.new_zeros(len(first_n), hidden_td.shape[-1])
            sum_nd = zeros_nd.index_add(0, self.document_ids, wide_td)
            pooled_nd = (sum_nd / (end_n - first_n).unsqueeze(1)).to(hidden_td.dtype)
        elif pooling == "cls":
            pooled_nd = hidden_td[first_n]
        else:
            pooled_nd = hidden_td[end_n - 1]
        batch_size, length = self.batch.shape
        if self.is_packed or len(pooled_nd) == batch_size:
            return pooled_nd
        # Rows without real tokens have no document.
        zeros_bd = pooled_nd.new_zeros(batch_size, pooled_nd.shape[1])
        row_of_document = self.token_indices[first_n] // length
        return zeros_bd.index_copy(0, row_of_document, pooled_nd)


class AllColumns(BatchTokens):
    """Every column of the batch; padding is the document -1. Nothing here reads values, so that a
    graph can be captured for every batch of a shape."""

    def pad(self, x_t: torch.Tensor, fill: float = 0.0) -> torch.Tensor:
        """[batch · length, width] → [batch, length, width], with `fill` at padding."""
        real_bs = self.batch.real_bs
        if real_bs is not None:
            x_t = x_t.masked_fill(~real_bs.to(x_t.device).flatten().unsqueeze(1), fill)
        return self._to_rows(x_t)

    def pool(self, hidden_td: torch.Tensor, pooling: str) -> torch.Tensor:
        """See `BatchTokens.pool`. This assumes that every row is one document, which it cannot
        verify."""
        if self.batch.has_document_numbers:
            raise ValueError(
                "seq_idx or cu_seq_lens_q with several documents: a captured graph pools one "
                "vector a row; use one row without padding, with cu_seq_lens_q alone"
            )
        hidden_bsd = self._to_rows(hidden_td)
        if self.batch.real_bs is None:
            is_pooled_bs = hidden_bsd.new_ones(self.batch.shape, dtype=torch.bool)
        else:
            is_pooled_bs = self.batch.real_bs
        if pooling != "mean":  # the first real token, or the last
            rank_bs = is_pooled_bs.long().cumsum(1)
            chosen_rank = 1 if pooling == "cls" else rank_bs[:, -1:]
            is_pooled_bs = is_pooled_bs & (rank_bs == chosen_rank)
        # A sum of many states may overflow in fp16, and is coarse in bf16. This is no matrix
        # product, since autocast would compute one in these types again.
        wide_bsd = at_least_fp32(hidden_bsd)
        weight_bs = is_pooled_bs.to(wide_bsd.dtype)
        sum_bd = (wide_bsd * weight_bs.unsqueeze(2)).sum(1)
        mean_bd = sum_bd / weight_bs.sum(1, keepdim=True).clamp(min=1)
        return mean_bd.to(hidden_td.dtype)


# --- what the layers run over ---


def restore_shape(x: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
    """The output of an embedding in the shape of `position_ids`, [b, s, d], whatever a hook made of
    it.

    Libraries that explain models (integrated gradients) run the model on several copies of a text,
    and replace the output of an embedding by a hook, which returns [copies, tokens, d]. Where the
    tokens are unpadded, [1, copies · tokens, d] is needed in its place.
    """
    return x.reshape(*position_ids.shape, x.shape[-1])


class UnpaddedRow:
    """The real tokens of all rows, as one row: the usual case.

    Attributes:
        tokens: the same tokens, for heads.
        positions_bs: [1, tokens], the position of each token.
    """

    def __init__(self, tokens: UnpaddedTokens):
        self.tokens = tokens
        self.positions_bs = tokens.positions.unsqueeze(0)

    def arrange(self, x_bs: torch.Tensor | None) -> torch.Tensor | None:
        """Bring an input into this form: [batch, length, ...] → [1, tokens, ...]. None stays
        None."""
        return None if x_bs is None else self.tokens.unpad(x_bs).unsqueeze(0)

    def to_tokens(self, hidden_bsd: torch.Tensor) -> torch.Tensor:
        """What the layers return → [tokens, width], without filler tokens."""
        return hidden_bsd.flatten(0, 1)[: len(self.tokens.document_ids)]


class PaddedRows:
    """The rows of the batch with their padding: for attention functions that take a mask, for
    outputs of every layer, and for captured graphs.

    Attributes:
        tokens: the tokens of these rows, for heads.
        positions_bs: [batch, length], the position of each token.
    """

    def __init__(self, tokens: BatchTokens):
        self.tokens = tokens
        self.positions_bs = tokens.batch.positions_bs

    def arrange(self, x_bs: torch.Tensor | None) -> torch.Tensor | None:
        """Bring an input into this form, which it has."""
        return x_bs

    def to_tokens(self, hidden_bsd: torch.Tensor) -> torch.Tensor:
        """What the layers return → [tokens, width]."""
        return self.tokens.unpad(hidden_bsd)


LayerInput = UnpaddedRow | PaddedRows


# --- counting along rows, with operators that torch.export and ONNX have ---


def _last_marked(marked_bs: torch.Tensor, value_bs: torch.Tensor, default: int) -> torch.Tensor:
    """For each column the value at the last marked column before it, or `default` if there is none:
    [batch, length].

    ONNX has no running maximum. So the values of marked columns are put one after the other, the
    k-th at k, and each column takes the value at the number of marked columns before it.
    """
    batch_size, length = marked_bs.shape
    rank_bs = marked_bs.long().cumsum(1)
    unused = length + 1  # where the values of other columns go
    slot_bs = torch.where(marked_bs, rank_bs, unused)
    slots = value_bs.new_full((batch_size, length + 2), default)
    num_before_bs = rank_bs - marked_bs.long()
    return slots.scatter(1, slot_bs, value_bs).gather(1, num_before_bs)


def _count_positions(real_bs: torch.Tensor, starts_bs: torch.Tensor) -> torch.Tensor:
    """Count the real tokens of each document from 0: [batch, length]."""
    rank_bs = real_bs.long().cumsum(1)
    rank_at_start_bs = torch.where(starts_bs, rank_bs, _last_marked(starts_bs, rank_bs, 1))
    return (rank_bs - rank_at_start_bs).clamp(min=0)


# --- what callers may pass ---


def check_inputs(
    input_ids: torch.Tensor | None,
    inputs_embeds: torch.Tensor | None,
    width: int,
    dimensions: tuple[str, ...] = ("batch", "length"),
) -> torch.Tensor:
    """Return `input_ids` or `inputs_embeds`; a ValueError if there is not one of them, or if it has
    another shape than `dimensions`, after which `inputs_embeds` has `width`."""
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("pass exactly one of input_ids and inputs_embeds")
    num_dimensions = len(dimensions)
    form = ", ".join(dimensions)
    if inputs_embeds is None:
        inputs = input_ids
        name = "input_ids"
        fits = inputs.dim() == num_dimensions
    else:
        inputs = inputs_embeds
        name = "inputs_embeds"
        form = f"{form}, {width}"
        fits = inputs.dim() == num_dimensions + 1 and inputs.shape[-1] == width
    if not fits or 0 in tuple(inputs.shape[:num_dimensions]):
        raise ValueError(
            f"{name} has the shape {tuple(inputs.shape)}: use [{form}], with at least one token"
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
    arguments that do not have one number for each token.

    A 4D mask may be the same for all rows, heads or queries: it then has a 1 in that place.
    """
    shape = tuple(inputs.shape[:2])
    if attention_mask is not None:
        mask_shape = tuple(attention_mask.shape)
        is_4d = attention_mask.dim() == 4
        fits = mask_shape == shape
        if is_4d:
            batch_size, length = shape
            fits_rows = mask_shape[0] in (batch_size, 1)
            fits_pairs = mask_shape[2] in (length, 1) and mask_shape[3] == length
            fits = fits_rows and fits_pairs
        if not fits:
            raise ValueError(
                f"attention_mask has the shape {mask_shape}, the inputs {shape}: "
                "use [batch, length] or [batch, 1, length, length]"
            )
        is_usable = attention_mask.dtype == torch.bool or attention_mask.is_floating_point()
        if is_4d and not is_usable:
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


def refuse_cache(kwargs: dict[str, Any]):
    """Refuse what a decoder with a cache, or with cross-attention, would be passed."""
    for name in ("past_key_values", "cache", "encoder_hidden_states"):
        if kwargs.get(name) is not None:
            raise ValueError(
                f"{name}: there is no cache and no cross-attention; pass the whole text at every "
                "step"
            )


def layers_to_keep(
    kwargs: dict[str, Any], config: Any, num_layers: int
) -> tuple[set[int] | None, bool]:
    """Take `output_hidden_states` and `output_attentions` out of a caller's `kwargs`. Where one is
    None or missing, the field of the config decides.

    Returns:
        The indices of the hidden states to keep, None if no hidden states are returned; and whether
        the attention probabilities are.
    """
    wanted_states = kwargs.pop("output_hidden_states", None)
    if wanted_states is None:
        wanted_states = config.output_hidden_states
    wants_attentions = kwargs.pop("output_attentions", None)
    if wants_attentions is None:
        wants_attentions = config.output_attentions
    kept_states = None
    is_index = isinstance(wanted_states, int) and not isinstance(wanted_states, bool)
    if wanted_states or is_index:  # an index may be 0
        kept_states = state_indices(wanted_states, num_layers + 1)
    return kept_states, bool(wants_attentions)


def state_indices(wanted: bool | int | list[int], num_states: int) -> set[int]:
    """The indices of the hidden states that `output_hidden_states` asks for: True for all of them;
    or, as in newer versions of Transformers, one index or several, where -1 is the last state.
    Indices out of range select nothing."""
    if wanted is True:
        return set(range(num_states))
    indices = [wanted] if isinstance(wanted, int) else wanted
    return {index % num_states for index in indices if -num_states <= index < num_states}


def find_out_of_range(numbers: torch.Tensor, size: int) -> int | None:
    """A number that is below 0, or not below `size`; None if there is none. On other devices than
    CPUs, and in a graph, they are not looked at: reading values would mean waiting."""
    if numbers.device.type != "cpu" or not numbers.numel() or needs_static_shapes(numbers):
        return None
    low, high = map(int, numbers.aminmax())
    if low < 0:
        return low
    if high >= size:
        return high
    return None
