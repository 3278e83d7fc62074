"""The masked language modelling objective as a Transformers data collator."""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import torch
from accelerate.data_loader import DataLoaderDispatcher
from torch.utils.data import IterableDataset, get_worker_info
from transformers import DataCollatorForLanguageModeling, TrainerCallback
from transformers.utils import logging

from ...tokenization.words import word_start_table
from .masking import IGNORE_INDEX, MASKING_KINDS, choose_targets, replace_targets, row_draws

logger = logging.get_logger(__name__)

RANDOM_REPLACEMENTS = ("uniform", "unigram")
RATE_SCHEDULES = ("constant", "linear", "steps")
EVALUATION_RATE = 0.15

# What the shared progress tensor holds, see `MaskedLMCollator.set_progress`.
_VERSION, _EPOCH, _STEP, _TOTAL_STEPS, _BATCHES_PER_STEP, _STREAMED, _WITNESS = range(7)

# Columns that tokenizers add, which say something to the collator at most.
_NOT_FOR_THE_MODEL = ("special_tokens_mask", "offset_mapping")


@dataclass
class MaskedLMCollator(DataCollatorForLanguageModeling):
    """Masks tokens, whole words or spans: `DataCollatorForLanguageModeling` with more to choose, for packed rows too.

    A row is a mapping with `input_ids`, and if it has them `attention_mask`, `token_type_ids`, `special_tokens_mask`
    and `position_ids` (packed rows: positions restart at every document); numbers such as `next_sentence_label` are
    stacked. Rows that already have `labels` (see `mask_rows`) are only padded.

    The batch has `input_ids`, `labels` (-100 where nothing is predicted), `attention_mask` and the other columns of
    the rows, each [batch, sequence]. `attention_mask` is there also when nothing is padded, so that all batches have
    the same keys (accelerate, handing batches to several ranks, needs that).

    **Reproducible masks.** With a `seed`, what becomes of a row is a pure function of the seed, the epoch and the
    row's token ids: the same with any number of workers and ranks, in any batch, and after a resumption. A plain
    `Trainer` does not tell a collator which epoch it is in, `MaskingProgress` does:

        collator = MaskedLMCollator(tokenizer, seed=0)
        Trainer(..., data_collator=collator, callbacks=[MaskingProgress(collator)])

    A stream may have a row many times in one epoch, when it begins again above all. Of a stream, then, the number of
    the batch counts too: it is the same after a resumption, and where ranks share the same batches out. Several workers
    read other files each, which makes other batches and so other masks.

    Without a seed the masks come from torch's global generator, new ones on every call, as in the parent class.

    **Evaluation.** A `Trainer` evaluates with the same collator. For fixed masks at a fixed rate, mask the evaluation
    set once: `dataset.map(collator.for_evaluation().mask_rows, batched=True)`.

    Args (beyond those of the parent, whose meaning stands unless said here):
        whole_word_mask: the parent's way to ask for `masking="whole_word"`.
        mlm_probability: expected share of the tokens, special ones and padding left out, that become targets.
        masking: "token"; "whole_word" (all tokens of a word or none); or "span" (of whole words, with geometric
            lengths, as in SpanBERT, arXiv 1907.10529). A word, or a span, is masked, replaced or kept as a whole.
        random_replacement: random tokens are drawn "uniform" or by `unigram_counts` ("unigram"), never a special token
            and never the token they replace.
        unigram_counts: occurrences of every token id in the corpus, [vocabulary] (`masking.unigram_counts` counts
            them).
        rate_schedule: how the rate moves over training from `mlm_probability` through `rate_points`: not at all
            ("constant"), in straight lines between the points ("linear"), or in jumps at the points ("steps"). It is
            settled for each optimizer step, and needs `MaskingProgress`.
        rate_points: rates by share of the training done, such as {1.0: 0.15} or {0.5: 0.2, 0.9: 0.15}; the last one
            holds from there on.
        at_least_one_target: every document gets a target, also where chance gives it none (in short documents this
            lifts the rate). By default for rows with `position_ids` only.

    Raises:
        ValueError: for a tokenizer without mask token, a rate outside [0, 1], replacement rates that sum to more than
            1, or an unknown name.
    """

    masking: str = "token"
    random_replacement: str = "uniform"
    unigram_counts: Sequence[int] | None = None
    rate_schedule: str = "constant"
    rate_points: Mapping[float, float] = dataclasses.field(default_factory=dict)
    at_least_one_target: bool | None = None

    def __post_init__(self):
        if self.whole_word_mask:
            if self.masking == "span":
                raise ValueError("whole_word_mask: True contradicts masking='span'")
            self.masking = "whole_word"
            self.whole_word_mask = False  # the parent would warn and mask with [MASK] alone
        self._check()
        super().__post_init__()

        vocabulary = list(self.tokenizer.get_vocab().values())
        added = self.tokenizer.added_tokens_decoder.items()
        special = self.tokenizer.all_special_ids + [token_id for token_id, token in added if token.special]
        self._regular = np.zeros(max(vocabulary) + 1, dtype=bool)  # [V]: may be a target, or a random token
        self._regular[vocabulary] = True
        self._regular[special] = False
        self._word_starts = np.zeros_like(self._regular)  # [V]
        if self.masking != "token":
            table = np.asarray(word_start_table(self.tokenizer), dtype=bool)[: len(self._regular)]
            self._word_starts[: len(table)] = table
        self._cumulative = np.concatenate([[0], np.cumsum(self._random_weights())])  # [V + 1]

        # Shared memory: workers that stay alive from epoch to epoch read what the main process writes.
        self._progress = torch.zeros(7, dtype=torch.int64).share_memory_()
        self._progress[_BATCHES_PER_STEP] = 1
        self._seen_version, self._calls = 0, 0

    def _check(self) -> None:
        if self.mlm and self.tokenizer.mask_token is None:
            raise ValueError(
                "tokenizer: it has no mask token, which masked language modelling needs; give it one with"
                " tokenizer.add_special_tokens({'mask_token': '[MASK]'})"
            )
        check_masking(self)
        if (self.random_replacement == "unigram") != (self.unigram_counts is not None):
            raise ValueError("unigram_counts: needed with random_replacement='unigram', and only there")

    def _random_weights(self) -> np.ndarray:
        """int64 [V]: relative frequency of every id as a random token."""
        weights = self._regular.astype(np.int64)
        if self.unigram_counts is not None:
            counts = np.zeros_like(weights)
            given = np.asarray(self.unigram_counts, dtype=np.int64)
            counts[: len(given)] = given[: len(counts)]
            if (counts < 0).any():
                raise ValueError(f"unigram_counts: {counts.min()} is no count; legal: 0 and above")
            weights *= counts
        if self.mlm and self.random_replace_prob > 0 and np.count_nonzero(weights) < 2:
            raise ValueError(
                f"random_replace_prob: {self.random_replace_prob} needs two tokens or more to draw from, and"
                f" {np.count_nonzero(weights)} of the tokenizer's are neither special nor of count 0"
            )
        return weights

    def set_progress(
        self, epoch: int, step: int = 0, total_steps: int = 0, batches_per_step: int = 1, streamed: bool = False
    ) -> None:
        """Say which epoch begins, before its batches are asked for: what `MaskingProgress` does under a `Trainer`.

        Args:
            epoch: number of the epoch; another one brings other masks.
            step, total_steps: optimizer steps done before the epoch's next batch, and in the whole training (a rate
                schedule's clock).
            batches_per_step: batches collated for one optimizer step.
            streamed: the rows are of a stream; the same row gets other masks in another batch.
        """
        version = int(self._progress[_VERSION]) + 1
        said = torch.tensor([version, epoch, step, total_steps, batches_per_step, streamed])
        self._progress[: len(said)] = said

    def for_evaluation(self, mlm_probability: float = EVALUATION_RATE, seed: int = 0) -> MaskedLMCollator:
        """A collator of the same kind with a constant rate and the same masks on every pass, for comparable losses."""
        twin = dataclasses.replace(
            self, mlm_probability=mlm_probability, seed=seed, rate_schedule="constant", rate_points={}
        )
        twin.set_progress(epoch=0)
        return twin

    def mask_rows(self, batch: Mapping[str, Sequence]) -> dict[str, list[np.ndarray]]:
        """Static masking: `dataset.map(collator.mask_rows, batched=True)` draws the masks once and keeps them.

        They are those of epoch 0 at the rate `mlm_probability`.

        Args:
            batch: columns of several rows, as `datasets` passes them.

        Returns:
            The columns `input_ids` (masked) and `labels`.
        """
        rows = [dict(zip(batch, values)) for values in zip(*batch.values())]
        input_ids, lengths = _flatten(rows, "input_ids")
        masked, labels = self._mask(rows, input_ids, lengths, epoch=0, rate=self.mlm_probability)
        ends = np.cumsum(lengths)[:-1]
        return {"input_ids": np.split(masked, ends), "labels": np.split(labels, ends)}

    def numpy_call(self, examples: Sequence[Any]) -> dict[str, np.ndarray]:
        """The batch as NumPy arrays, int64."""
        rows = [example if isinstance(example, Mapping) else {"input_ids": example} for example in examples]
        input_ids, lengths = _flatten(rows, "input_ids")
        padding = self._token_columns()
        columns = {
            name: _flatten(rows, name, lengths)[0] if name in padding else _stack(rows, name)
            for name in rows[0]
            if name not in ("input_ids", *_NOT_FOR_THE_MODEL)
        }
        if "labels" not in columns:
            self._notice_repetition(rows)
            batch, rate = self._next_batch()
            epoch, streamed = int(self._progress[_EPOCH]), bool(self._progress[_STREAMED])
            input_ids, columns["labels"] = self._mask(
                rows, input_ids, lengths, epoch, rate, batch if streamed else None
            )
        elif self.mlm and np.array_equal(columns["labels"], input_ids):
            raise ValueError(
                "labels: they repeat input_ids, so nothing is masked; remove the column, the collator makes it"
            )
        columns.setdefault("attention_mask", np.ones_like(input_ids))

        width = int(lengths.max())
        if self.pad_to_multiple_of:
            width = math.ceil(width / self.pad_to_multiple_of) * self.pad_to_multiple_of
        if self.tokenizer.pad_token_id is None and (lengths < width).any():
            raise ValueError("tokenizer: it has no pad token, which rows of unequal length need")
        real = np.arange(width) < lengths[:, None]
        if self.tokenizer.padding_side == "left":
            real = real[:, ::-1]
        batch = {"input_ids": _pad(input_ids, real, self.tokenizer.pad_token_id or 0)}
        for name, column in columns.items():
            batch[name] = _pad(column, real, padding[name]) if name in padding else column
        return batch

    def torch_call(self, examples: Sequence[Any]) -> dict[str, torch.Tensor]:
        """The batch as torch tensors."""
        return {name: torch.from_numpy(column) for name, column in self.numpy_call(examples).items()}

    def _token_columns(self) -> dict[str, int]:
        """Columns with one value per token, and what they are padded with."""
        return {
            "attention_mask": 0,
            "token_type_ids": self.tokenizer.pad_token_type_id,
            "position_ids": 0,
            "labels": IGNORE_INDEX,
        }

    def _mask(
        self,
        rows: Sequence[Mapping],
        input_ids: np.ndarray,
        lengths: np.ndarray,
        epoch: int,
        rate: float,
        batch: int | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Masked token ids and labels, int64 [T], of the rows' T tokens one after the other."""
        if len(input_ids) and not 0 <= input_ids.min() <= input_ids.max() < len(self._regular):
            raise ValueError(
                f"input_ids: {input_ids.min()} to {input_ids.max()} do not fit the tokenizer;"
                f" legal: 0 to {len(self._regular) - 1}"
            )
        if not self.mlm:
            return input_ids, np.where(input_ids == self.tokenizer.pad_token_id, IGNORE_INDEX, input_ids)
        candidates = self._regular[input_ids]
        if "attention_mask" in rows[0]:
            candidates &= _flatten(rows, "attention_mask", lengths)[0] != 0
        if "special_tokens_mask" in rows[0]:
            candidates &= _flatten(rows, "special_tokens_mask", lengths)[0] == 0

        row_numbers = np.repeat(np.arange(len(lengths)), lengths)
        begins = np.diff(row_numbers, prepend=-1) > 0
        packed = "position_ids" in rows[0]
        if packed:  # a document begins where a position does not follow the one before
            begins |= np.diff(_flatten(rows, "position_ids", lengths)[0], prepend=-1) != 1

        draws = self._draws(input_ids, lengths, epoch, batch)
        targets, leaders = choose_targets(
            self.masking,
            rate,
            candidates,
            self._word_starts[input_ids],
            row_numbers,
            np.cumsum(begins),
            draws,
            packed if self.at_least_one_target is None else self.at_least_one_target,
        )
        masked = replace_targets(
            input_ids,
            targets,
            leaders,
            draws,
            mask_token_id=self.tokenizer.mask_token_id,
            mask_replace_prob=self.mask_replace_prob,
            random_replace_prob=self.random_replace_prob,
            cumulative=self._cumulative,
        )
        return masked, np.where(targets, input_ids, IGNORE_INDEX)

    def _draws(self, input_ids: np.ndarray, lengths: np.ndarray, epoch: int, batch: int | None) -> np.ndarray:
        """Uniform numbers, float64 [4, T]."""
        if self.seed is None:
            key = int(torch.randint(2**63 - 1, ()))
            return np.random.Generator(np.random.Philox(key)).random((4, len(input_ids)))
        rows = np.split(input_ids, np.cumsum(lengths)[:-1])
        return np.concatenate([row_draws(self.seed, epoch, row, batch) for row in rows], axis=1)

    def _notice_repetition(self, rows: Sequence[Mapping]) -> None:
        """Warn once, over all processes, when rows come again and nobody has ever said that an epoch is over."""
        witness = int(self._progress[_WITNESS])
        if self.seed is None or self._progress[_VERSION] > 0 or witness < 0:
            return
        checksums = [1 + zlib.crc32(np.asarray(row["input_ids"])) for row in rows]
        if witness == 0:
            self._progress[_WITNESS] = checksums[0]
        elif witness in checksums:
            self._progress[_WITNESS] = -1
            logger.warning(
                "MaskedLMCollator: a row came again and was masked as before, since the collator was not told of a new"
                " epoch. Give the Trainer callbacks=[MaskingProgress(collator)], or call collator.set_progress(epoch)."
            )

    def _next_batch(self) -> tuple[int, float]:
        """The number of the batch now at hand, counted from the beginning of the training, and its rate, by the number
        of batches that this process has seen in the epoch.

        A data loader hands its batches to its workers in turn, so that a worker's n-th batch is the epoch's batch
        n · workers + its own number, however far ahead it works (but not with `dataloader_in_order=False`).
        """
        version, _, step, total_steps, batches_per_step, *_ = self._progress.tolist()
        if version != self._seen_version:
            self._seen_version, self._calls = version, 0
        worker = get_worker_info()
        batch = self._calls if worker is None else self._calls * worker.num_workers + worker.id
        self._calls += 1
        batch += step * batches_per_step
        done = batch // batches_per_step / total_steps if total_steps else 0.0

        shares, rates = zip(*sorted({0.0: self.mlm_probability, **self.rate_points}.items()))
        if self.rate_schedule == "linear":
            return batch, float(np.interp(done, shares, rates))
        return batch, rates[np.searchsorted(shares, done, side="right") - 1]


def check_masking(masking: Any) -> None:
    """Refuse illegal settings of masking: those of a `MaskedLMCollator`, or anything with attributes of its names.

    Raises:
        ValueError: naming the setting, its value and what is legal.
    """
    rates = {name: getattr(masking, name) for name in ("mlm_probability", "mask_replace_prob", "random_replace_prob")}
    rates |= {f"rate_points[{share}]": rate for share, rate in masking.rate_points.items()}
    for name, rate in rates.items():
        if not isinstance(rate, Real) or not 0 <= rate <= 1:
            raise ValueError(f"{name}: {rate!r} is no rate; legal: 0 to 1")
    if masking.mask_replace_prob + masking.random_replace_prob > 1 + 1e-9:
        raise ValueError(
            f"mask_replace_prob, random_replace_prob: {masking.mask_replace_prob} and {masking.random_replace_prob}"
            " sum to more than 1; legal: at most 1 together, the rest stays as it is"
        )
    for name, legal in (
        ("masking", MASKING_KINDS),
        ("random_replacement", RANDOM_REPLACEMENTS),
        ("rate_schedule", RATE_SCHEDULES),
    ):
        if getattr(masking, name) not in legal:
            raise ValueError(f"{name}: {getattr(masking, name)!r} is not known; legal: {', '.join(legal)}")
    if (masking.rate_schedule == "constant") != (not masking.rate_points):
        raise ValueError(
            f"rate_points: {dict(masking.rate_points)} does not go with rate_schedule={masking.rate_schedule!r};"
            " legal: points for linear and steps, none for constant"
        )
    for share in masking.rate_points:
        if not isinstance(share, Real) or not 0 < share <= 1:
            raise ValueError(f"rate_points: {share!r} is no share of the training; legal: above 0, at most 1")


class MaskingProgress(TrainerCallback):
    """Tells a `MaskedLMCollator` under a `Trainer` the epoch and the steps done, also after a resumption.

    Each epoch's number is written before the epoch's batches are asked for, and all batches of an epoch are made
    before the next one begins: no worker, however far ahead, can read the wrong one.
    """

    def __init__(self, collator: MaskedLMCollator):
        self.collator = collator

    def on_train_begin(self, args, state, control, **kwargs):
        self.epoch = self.first_epoch = int(state.epoch or 0)

    def on_epoch_begin(self, args, state, control, train_dataloader=None, **kwargs):
        step, batches_per_step = state.global_step, args.gradient_accumulation_steps
        streamed = isinstance(train_dataloader.dataset, IterableDataset)
        if streamed:
            if self.epoch == self.first_epoch and not args.ignore_data_skip:
                # What was trained on before the resumption is collated again, and skipped then.
                step -= step % _steps_in_epoch(train_dataloader, args.gradient_accumulation_steps, state.max_steps)
            if isinstance(train_dataloader, DataLoaderDispatcher) and not train_dataloader.split_batches:
                batches_per_step *= args.world_size  # the first rank collates for all
        self.collator.set_progress(self.epoch, step, state.max_steps, batches_per_step, streamed)
        self.epoch += 1


def _steps_in_epoch(dataloader: Any, batches_per_step: int, max_steps: int) -> int:
    """As `Trainer` counts them: all steps, where the stream does not know its length."""
    try:
        return math.ceil(len(dataloader) / batches_per_step)
    except TypeError:
        return max_steps


def _flatten(rows: Sequence[Mapping], name: str, lengths: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """A column of all rows, int64 [T], and its length in each row, int64 [rows]: `lengths`, where those are given."""
    try:
        parts = [np.atleast_1d(np.asarray(row[name], dtype=np.int64)) for row in rows]
    except KeyError:
        raise ValueError(f"{name}: some rows of the batch have it and others do not") from None
    found = np.array([len(part) for part in parts])
    if lengths is not None and not np.array_equal(found, lengths):
        row = int(np.flatnonzero(found != lengths)[0])
        raise ValueError(f"{name}: {found[row]} values for {lengths[row]} input_ids; legal: one for each")
    return np.concatenate(parts), found


def _stack(rows: Sequence[Mapping], name: str) -> np.ndarray:
    """A column of numbers, one per row: [rows], int64 or float32."""
    try:
        column = np.asarray([row.get(name) for row in rows])
        batchable = column.ndim == 1 and column.dtype.kind in "biuf"
    except ValueError:  # lists of several lengths
        batchable = False
    if not batchable:
        raise ValueError(
            f"{name}: the collator cannot batch this column; legal beside the token columns: one number a row"
        )
    return column.astype(np.float32 if column.dtype.kind == "f" else np.int64)


def _pad(flat: np.ndarray, real: np.ndarray, value: int) -> np.ndarray:
    """The flat column laid out as [rows, width]: its values where `real`, elsewhere `value`."""
    padded = np.full(real.shape, value, dtype=np.int64)
    padded[real] = flat
    return padded
