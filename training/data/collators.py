"""The data collator of masked language modelling."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import DataCollatorForLanguageModeling
from transformers.utils import logging

from ...option_checks import checked_class
from ...tokenization import regular_tokens, word_start_table
from .masking import (
    ACTION,
    IGNORE_INDEX,
    MASKING_KINDS,
    REPLACEMENT,
    choose_targets,
    draw_row_samples,
)
from .masking_progress import SharedProgress, TrainingProgress

logger = logging.get_logger(__name__)

EVALUATION_RATE = 0.15

# Columns with one value for each token; all others have one number for each row.
TOKEN_COLUMNS = (
    "input_ids",
    "labels",
    "attention_mask",
    "token_type_ids",
    "position_ids",
    "special_tokens_mask",
)


@checked_class
@dataclass
class MaskedLMCollator(DataCollatorForLanguageModeling):
    """Mask tokens, whole words or spans: `DataCollatorForLanguageModeling` with more options, for
    packed rows too.

    A row is a mapping with `input_ids` and optionally `attention_mask`, `token_type_ids`,
    `special_tokens_mask` and `position_ids` (in packed rows, positions restart at every document).
    Numbers such as `next_sentence_label` are stacked. Rows with `labels` are not masked again. The
    batch has `input_ids`, `labels` (-100 where nothing is predicted), `attention_mask` and the
    other columns, [batch, length] each.

    With a `seed`, the masks of a row are a function of the seed, the epoch and the row's token ids
    (in a stream, of the number of the batch too): the same with any number of ranks or workers, in
    any batch, and after a resumption. A plain `Trainer` does not tell a collator the epoch;
    `MaskingProgress` does:

        collator = MaskedLMCollator(tokenizer, seed=0)
        Trainer(..., data_collator=collator, callbacks=[MaskingProgress(collator)])

    For fixed masks of an evaluation set, mask it once with `for_evaluation()`.

    Args (in addition to those of the parent):
        mlm: False makes labels of all tokens, except padding and (in packed rows, or if `unpadded`)
            the first token of each document.
        mlm_probability: the expected share of tokens, without special ones and padding, that become
            targets.
        masking: "token"; "whole_word" (all tokens of a word or none); "span" (words, with geometric
            lengths, as in SpanBERT, arXiv 1907.10529); or "ngram" (one to three words, as in
            ALBERT, arXiv 1909.11942). A word or a span is masked, replaced or kept as a whole.
        last_mlm_probability: the share at the end of the training, reached in a straight line. It
            needs `MaskingProgress`.
        at_least_one_target: give every document a target, also if chance gives it none, which
            raises the rate of short documents. By default for rows with `position_ids` only.
        unpadded: make one row of the real tokens of all rows, as `DataCollatorWithFlattening` does:
            `input_ids`, `labels` (and `token_type_ids`), [1, tokens]; `cu_seq_lens_q` and
            `cu_seq_lens_k`, int32 [documents + 1]; `max_length_q` and `max_length_k`, the tokens of
            the longest document; and, with `mlm`, `masked_lm_positions`, [targets], the indices of
            the targets. The masks are those of the padded batch. A row without `position_ids` is
            one document. Not for several GPUs in one process, which split a batch by rows.
        target_draws: add `target_draws`, [batch, length]: a number from 0 to 2⁵³ - 1 for each
            token, by which a model can choose a replacement. They are as reproducible as the masks.

    Attributes:
        num_batches: the batches that this process has made since the last `set_progress`. Set it
            back after batches that are not of the training.
    """

    masking: str = "token"
    last_mlm_probability: float | None = None
    at_least_one_target: bool | None = None
    unpadded: bool = False
    target_draws: bool = False

    def __post_init__(self):
        if self.whole_word_mask:
            self.masking = "whole_word"
            self.whole_word_mask = False  # the parent would mask with [MASK] only
        check_masking(self)
        super().__post_init__()
        self.regular = regular_tokens(self.tokenizer)  # [V]
        self._word_starts = self.regular  # [V]
        if self.masking != "token":
            self._word_starts = word_start_table(self.tokenizer)
        # The number of regular tokens with a smaller id, [V + 1].
        self._num_regular_below = np.concatenate([[0], np.cumsum(self.regular.astype(np.int64))])
        self._shared_progress = SharedProgress()

    def for_evaluation(
        self, mlm_probability: float = EVALUATION_RATE, seed: int = 0
    ) -> MaskedLMCollator:
        """A collator with the same options, a constant rate, and the same masks in every pass:
        losses compare."""
        collator = dataclasses.replace(
            self, mlm_probability=mlm_probability, seed=seed, last_mlm_probability=None
        )
        collator.set_progress(epoch=0)
        return collator

    def torch_call(self, examples: Sequence[Any]) -> dict[str, Any]:
        batch = self.numpy_call(examples)
        for name, value in batch.items():
            if isinstance(value, np.ndarray):
                batch[name] = torch.from_numpy(value)
        return batch

    def numpy_call(self, examples: Sequence[Any]) -> dict[str, Any]:
        """The batch as NumPy arrays, int64 (`cu_seq_lens_q` and `cu_seq_lens_k` int32)."""
        token_columns, lengths, row_columns = _read_columns(examples)
        input_ids = token_columns["input_ids"]
        row_of_token = np.repeat(np.arange(len(lengths)), lengths)
        # A document begins with its row, and where a position is not the previous one plus 1.
        is_document_start = np.diff(row_of_token, prepend=-1) > 0
        if "position_ids" in token_columns:
            is_document_start |= np.diff(token_columns["position_ids"], prepend=-1) != 1

        if "labels" in token_columns:
            if self.mlm and np.array_equal(token_columns["labels"], input_ids):
                raise ValueError(
                    "labels: they repeat input_ids, so nothing is masked; remove the column"
                )
        elif self.mlm:
            self._mask(token_columns, row_of_token, is_document_start)
        else:  # padding is known by the attention mask: the id of padding may also be that of [SEP]
            ignored = token_columns["attention_mask"] == 0
            if self.unpadded or "position_ids" in token_columns:
                ignored |= is_document_start
            token_columns["labels"] = np.where(ignored, IGNORE_INDEX, input_ids)
        token_columns.pop("special_tokens_mask", None)
        if self.unpadded:
            return self._unpad(token_columns, is_document_start, row_columns)
        return self._pad(token_columns, lengths) | row_columns

    def _mask(
        self,
        token_columns: dict[str, np.ndarray],
        row_of_token: np.ndarray,
        is_document_start: np.ndarray,
    ) -> None:
        """Mask `input_ids` and add `labels`, in place. `token_columns` are those of all rows, one
        after the other, [T] each; the other arguments are the row of each token, and whether it is
        the first of its document."""
        input_ids = token_columns["input_ids"]
        candidates = self.regular[input_ids] & (token_columns["attention_mask"] != 0)
        if "special_tokens_mask" in token_columns:
            candidates &= token_columns["special_tokens_mask"] == 0
        at_least_one = self.at_least_one_target
        if at_least_one is None:
            at_least_one = "position_ids" in token_columns
        progress, batch_number = self._shared_progress.count_batch()
        self._warn_of_unknown_epoch(progress)
        rows = np.split(input_ids, np.flatnonzero(np.diff(row_of_token)) + 1)
        uniform_samples = self._draw_samples(rows, progress, batch_number)
        targets, span_first_token = choose_targets(
            self.masking,
            self._masking_rate(progress, batch_number),
            candidates,
            self._word_starts[input_ids],
            row_of_token,
            is_document_start,
            uniform_samples,
            at_least_one,
        )
        if self.target_draws:
            target_draws = uniform_samples[REPLACEMENT] * 2.0**53
            token_columns["target_draws"] = target_draws.astype(np.int64)
        token_columns["input_ids"] = self._replace(
            input_ids,
            targets,
            uniform_samples[ACTION, span_first_token],
            uniform_samples[REPLACEMENT],
        )
        token_columns["labels"] = np.where(targets, input_ids, IGNORE_INDEX)

    def _replace(
        self,
        input_ids: np.ndarray,
        targets: np.ndarray,
        action: np.ndarray,
        uniform_samples: np.ndarray,
    ) -> np.ndarray:
        """Replace targets by [MASK], by another token, or not at all: int64 [T]. `action`, the same
        for all tokens of a word or a span, decides which of the three; each token has a random
        token of its own, never itself."""
        replaced = input_ids.copy()
        masked = action < self.mask_replace_prob
        replaced[targets & masked] = self.tokenizer.mask_token_id
        others = np.flatnonzero(
            targets & ~masked & (action < self.mask_replace_prob + self.random_replace_prob)
        )
        # Number the regular tokens without the token itself, draw one of the numbers, and find its
        # id: numbers from that of the token on are of the next token.
        own_number = self._num_regular_below[input_ids[others]]
        is_regular = self._num_regular_below[input_ids[others] + 1] - own_number  # 0 or 1
        number = uniform_samples[others] * (self._num_regular_below[-1] - is_regular)
        number = number.astype(np.int64)
        number += np.where(number >= own_number, is_regular, 0)
        replaced[others] = np.searchsorted(self._num_regular_below, number, side="right") - 1
        return replaced

    def _pad(
        self, token_columns: Mapping[str, np.ndarray], lengths: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Flat columns, [T] → [rows, width]."""
        multiple = self.pad_to_multiple_of or 1
        pad = self.tokenizer.pad_token_id
        width = math.ceil(lengths.max() / multiple) * multiple
        real = np.arange(width) < lengths[:, None]
        if pad is None and not real.all():
            raise ValueError(
                "tokenizer: rows of different lengths need a padding token; set tokenizer.pad_token"
            )
        if self.tokenizer.padding_side == "left":
            real = real[:, ::-1]
        padding = {
            "input_ids": pad or 0,
            "token_type_ids": self.tokenizer.pad_token_type_id,
            "labels": IGNORE_INDEX,
        }
        batch = {}
        for name, column in token_columns.items():
            batch[name] = np.full(real.shape, padding.get(name, 0))
            batch[name][real] = column
        return batch

    def _unpad(
        self,
        token_columns: dict[str, np.ndarray],
        is_document_start: np.ndarray,
        row_columns: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Flat columns, [T] → [1, real tokens], and the bounds of the documents, which begin where
        `is_document_start`."""
        if row_columns:
            raise ValueError(
                f"{next(iter(row_columns))}: one number a row does not fit unpadded=True; remove"
                " the column"
            )
        real = token_columns.pop("attention_mask") != 0
        lengths = np.unique(np.cumsum(is_document_start)[real], return_counts=True)[1]
        bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        batch: dict[str, Any] = {}
        for name, column in token_columns.items():
            if name != "position_ids":
                batch[name] = column[None, real]
        if self.mlm:
            batch["masked_lm_positions"] = np.flatnonzero(batch["labels"][0] != IGNORE_INDEX)
        longest = int(lengths.max(initial=0))
        batch["cu_seq_lens_q"] = bounds
        batch["cu_seq_lens_k"] = bounds
        batch["max_length_q"] = longest
        batch["max_length_k"] = longest
        return batch

    # --- how far the training is, which decides the masks ---

    def set_progress(
        self,
        epoch: int,
        step: int = 0,
        total_steps: int = 0,
        batches_per_step: int = 1,
        streamed: bool = False,
    ) -> None:
        """Say which epoch begins, before its batches are made. Under a `Trainer`,
        `MaskingProgress` calls this.

        Args:
            epoch: the number of the epoch, from 0.
            step, total_steps: optimizer steps done, and in the whole training, for
                `last_mlm_probability`.
            batches_per_step: batches collated for one optimizer step.
            streamed: the rows come from a stream; the same row gets other masks in another batch.
        """
        num_calls = self._shared_progress.read().num_calls + 1
        self._shared_progress.write(
            TrainingProgress(epoch, step, total_steps, batches_per_step, streamed, num_calls)
        )

    def set_total_steps(self, total_steps: int) -> None:
        """Correct the number of steps in the whole training, within an epoch."""
        progress = self._shared_progress.read()
        self._shared_progress.write(progress._replace(total_steps=total_steps))

    @property
    def num_batches(self) -> int:
        return self._shared_progress.num_batches

    @num_batches.setter
    def num_batches(self, count: int) -> None:
        self._shared_progress.num_batches = count

    def _masking_rate(self, progress: TrainingProgress, batch_number: int) -> float:
        """The masking rate of this batch, the same for all batches of an optimizer step."""
        if self.last_mlm_probability is None or not progress.total_steps:
            return self.mlm_probability
        share_done = batch_number // progress.batches_per_step / progress.total_steps
        rates = (self.mlm_probability, self.last_mlm_probability)
        return float(np.interp(share_done, (0.0, 1.0), rates))

    def _draw_samples(
        self, rows: Sequence[np.ndarray], progress: TrainingProgress, batch_number: int
    ) -> np.ndarray:
        """Uniform numbers for the tokens of these rows, float64 [4, T]."""
        if self.seed is None:
            key = int(torch.randint(2**63 - 1, ()))
            return np.random.Generator(np.random.Philox(key)).random((4, sum(map(len, rows))))
        batch_in_key = None
        if progress.streamed:
            batch_in_key = batch_number
        samples = [draw_row_samples(self.seed, progress.epoch, row, batch_in_key) for row in rows]
        return np.concatenate(samples, axis=1)

    def _warn_of_unknown_epoch(self, progress: TrainingProgress) -> None:
        """Warn once of masks that depend on the epoch, if `set_progress` was never called."""
        depends_on_epoch = self.last_mlm_probability is not None or self.seed is not None
        if depends_on_epoch and not progress.num_calls:
            logger.warning_once(
                "MaskedLMCollator does not know the epoch: a row gets the same masks in every"
                " epoch, and the share of masked tokens stays. Give the Trainer"
                " callbacks=[MaskingProgress(collator)], or call collator.set_progress(epoch)"
                " before each epoch."
            )


def check_masking(collator: MaskedLMCollator) -> None:
    """Refuse (a ValueError) wrong options."""
    if collator.masking not in MASKING_KINDS:
        raise ValueError(
            f"masking: {collator.masking!r} is unknown; use one of {', '.join(MASKING_KINDS)}"
        )
    names = ("mlm_probability", "last_mlm_probability", "mask_replace_prob", "random_replace_prob")
    rates = {name: getattr(collator, name) for name in names}
    rates["mask_replace_prob + random_replace_prob"] = (
        collator.mask_replace_prob + collator.random_replace_prob - 1e-9
    )
    for name, rate in rates.items():
        if rate is not None and not -1e-9 <= rate <= 1:
            raise ValueError(f"{name} must be from 0 to 1, got {rate:g}")


def _read_columns(
    examples: Sequence[Any],
) -> tuple[dict[str, np.ndarray], np.ndarray, dict[str, np.ndarray]]:
    """The columns with one value for each token, [T] each, with an `attention_mask`; the length of
    each row, [rows]; and the columns with one number for each row, [rows] each."""
    rows = []
    for example in examples:
        if not isinstance(example, Mapping):
            example = {"input_ids": example}
        rows.append(example)
    column_names = dict.fromkeys(name for row in rows for name in row)
    input_ids, lengths = _concatenate(rows, "input_ids")
    token_columns = {}
    for name in TOKEN_COLUMNS:
        if name in column_names:
            token_columns[name], _ = _concatenate(rows, name, lengths)
    token_columns.setdefault("attention_mask", np.ones_like(input_ids))
    row_columns = {}
    for name in column_names:
        if name not in TOKEN_COLUMNS and name != "offset_mapping":
            row_columns[name] = _stack(rows, name)
    return token_columns, lengths, row_columns


def _concatenate(
    rows: Sequence[Mapping], name: str, lengths: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """A column of all rows, int64 [T], and its length in each row, int64 [rows], which must be
    `lengths`."""
    if any(name not in row for row in rows):
        raise ValueError(f"{name}: some rows of the batch have it and others do not")
    parts = [np.atleast_1d(np.asarray(row[name], dtype=np.int64)) for row in rows]
    part_lengths = np.array([len(part) for part in parts])
    if lengths is not None and not np.array_equal(part_lengths, lengths):
        raise ValueError(
            f"{name}: a row has more or fewer values than input_ids; use one for each token"
        )
    return np.concatenate(parts), part_lengths


def _stack(rows: Sequence[Mapping], name: str) -> np.ndarray:
    """A column with one number for each row: [rows], int64 or float32."""
    column = np.asarray([row.get(name) for row in rows])
    if column.ndim != 1 or column.dtype.kind not in "biuf":
        raise ValueError(
            f"{name}: the collator cannot batch this column; remove it, or use one number for each"
            " row"
        )
    return column.astype(np.float32 if column.dtype.kind == "f" else np.int64)
