"""The masked language modelling objective as a Transformers data collator."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate.data_loader import DataLoaderDispatcher
from torch.utils.data import IterableDataset, get_worker_info
from transformers import DataCollatorForLanguageModeling, TrainerCallback
from transformers.trainer_utils import has_length
from transformers.utils import logging

from ...tokenization.words import word_start_table
from .masking import ACTION, IGNORE_INDEX, MASKING_KINDS, REPLACEMENT, choose_targets, row_draws

logger = logging.get_logger(__name__)

CHOICES = {
    "masking": MASKING_KINDS,
    "random_replacement": ("uniform", "unigram"),
    "rate_schedule": ("constant", "linear", "steps"),
}
EVALUATION_RATE = 0.15

# Columns with one value a token; any other has one number a row.
TOKEN_COLUMNS = ("input_ids", "labels", "attention_mask", "token_type_ids", "position_ids", "special_tokens_mask")


class _Progress(NamedTuple):
    """How far training is, see `MaskedLMCollator.set_progress`; in shared memory, for workers that live for several
    epochs."""

    epoch: int = 0
    step: int = 0
    total_steps: int = 0
    batches_per_step: int = 1
    streamed: bool = False
    told: int = 0  # calls of `set_progress`
    warned: bool = False  # that nobody calls it


@dataclass
class MaskedLMCollator(DataCollatorForLanguageModeling):
    """Masks tokens, whole words or spans: `DataCollatorForLanguageModeling` with more to choose, for packed rows too.

    A row is a mapping with `input_ids`, and if it has them `attention_mask`, `token_type_ids`, `special_tokens_mask`
    and `position_ids` (packed rows: positions restart at every document); numbers such as `next_sentence_label` are
    stacked. Rows that already have `labels` are not masked again. The batch has `input_ids`, `labels` (-100 where
    nothing is predicted), `attention_mask` (always: accelerate wants the same keys in all batches) and the other
    columns of the rows, each [batch, sequence].

    **Reproducible masks.** With a `seed`, what becomes of a row is a pure function of the seed, the epoch and the row's
    token ids (of a stream, or with `rows_repeat`, the number of the batch too): the same with any number of
    ranks, in any batch, after a resumption, and, but for a stream, with any number of workers. Without a seed the masks
    come from torch's global generator. A plain `Trainer` does not tell a collator the epoch, `MaskingProgress` does:

        collator = MaskedLMCollator(tokenizer, seed=0)
        Trainer(..., data_collator=collator, callbacks=[MaskingProgress(collator)])

    **Evaluation.** A `Trainer` evaluates with the same collator. For fixed masks at a fixed rate, mask that set once:

        evaluation = collator.for_evaluation()
        dataset.map(lambda row: {name: column[0] for name, column in evaluation([row], return_tensors="np").items()})

    Args (beyond those of the parent, whose meaning stands unless said here):
        mlm: False leaves the masking out: labels are the tokens, but for padding and (in packed rows, and with
            `unpadded`) the first token of each document, which no other predicts.
        whole_word_mask: the parent's name for `masking="whole_word"`.
        mlm_probability: expected share of the tokens, special ones and padding left out, that become targets.
        masking: "token"; "whole_word" (all tokens of a word or none); or "span" (of whole words, with geometric
            lengths, as in SpanBERT, arXiv 1907.10529). A word, or a span, is masked, replaced or kept as a whole.
        random_replacement: random tokens are drawn "uniform" or by `unigram_counts` ("unigram"), never a special token
            and never the token they replace.
        unigram_counts: occurrences of every token id in the corpus, [vocabulary] (see `masking.unigram_counts`).
        rate_schedule: how the rate moves over training from `mlm_probability` through `rate_points`: not at all
            ("constant"), in straight lines between the points ("linear"), or in jumps at the points ("steps"). It is
            the same for all batches of an optimizer step, and needs `MaskingProgress`.
        rate_points: rates by share of the training done, such as {0.5: 0.2, 0.9: 0.15}; the last one holds on.
        at_least_one_target: every document gets a target, also where chance gives it none (in short documents this
            lifts the rate). By default for rows with `position_ids` only.
        static_masking: the masks of epoch 0 in all epochs (BERT's; RoBERTa, arXiv 1907.11692, has "dynamic" ones).
        unpadded: the batch is one row, the real tokens of all rows one after the other, with the bounds of their
            documents, as `DataCollatorWithFlattening(return_flash_attn_kwargs=True)` makes it: `input_ids`, `labels`
            (and `token_type_ids`), [1, tokens]; `cu_seq_lens_q` and `cu_seq_lens_k`, int32 [documents + 1];
            `max_length_q` and `max_length_k`, the longest document as an int; no `attention_mask` or `position_ids`.
            With `mlm` also `masked_lm_positions`, [targets], their places, for which `MiniBertForMaskedLM` would look
            otherwise. The masks are those of the padded batch. A row without `position_ids` is one document. Not for
            several GPUs in one process, among which a batch is split by rows.
        target_draws: the batch has `target_draws` too, like `labels`: a number drawn for every token from 0 to 2⁵³ - 1,
            by which a model can choose what to put in a target's place. They are as reproducible as the masks.
        rows_repeat: an epoch may have the same row many times, with other masks in every batch.

    Raises:
        ValueError: for a tokenizer without mask token, and settings that are wrong or contradict each other.
    """

    masking: str = "token"
    random_replacement: str = "uniform"
    unigram_counts: Sequence[int] | None = None
    rate_schedule: str = "constant"
    rate_points: Mapping[float, float] = dataclasses.field(default_factory=dict)
    at_least_one_target: bool | None = None
    static_masking: bool = False
    unpadded: bool = False
    target_draws: bool = False
    rows_repeat: bool = False

    def __post_init__(self):
        if self.whole_word_mask:
            if self.masking == "span":
                raise ValueError("whole_word_mask: True contradicts masking='span'; leave one of them out")
            self.masking = "whole_word"
            self.whole_word_mask = False  # the parent would warn and mask with [MASK] alone
        check_masking(self)
        if (self.random_replacement == "unigram") != (self.unigram_counts is not None):
            raise ValueError("unigram_counts: needed with random_replacement='unigram', and only there")
        if self.static_masking and self.seed is None:
            raise ValueError("static_masking: True needs a seed; give one")
        if self.unpadded and self.pad_to_multiple_of:
            raise ValueError(f"pad_to_multiple_of: {self.pad_to_multiple_of} has no effect with unpadded=True")
        super().__post_init__()

        vocabulary = list(self.tokenizer.get_vocab().values())
        added = self.tokenizer.added_tokens_decoder.items()
        special = self.tokenizer.all_special_ids + [token_id for token_id, token in added if token.special]
        self.regular = np.zeros(max(vocabulary) + 1, dtype=bool)  # [V]: may be a target, or a random token
        self.regular[vocabulary] = True
        self.regular[special] = False
        self._word_starts = self.regular if self.masking == "token" else word_start_table(self.tokenizer)  # [V]
        self._cumulative = np.concatenate([[0], np.cumsum(self._random_weights())])  # [V + 1]
        self._shared = torch.tensor(_Progress()).share_memory_()
        self._told, self._batches = 0, 0  # of this process: `told` when it last looked, and the batches made since then

    def _random_weights(self) -> np.ndarray:
        """int64 [V]: relative frequency of every id as a random token."""
        weights = self.regular.astype(np.int64)
        if self.unigram_counts is not None:
            given = np.asarray(self.unigram_counts, dtype=np.int64)[: len(weights)]
            if (given < 0).any():
                raise ValueError(f"unigram_counts: {given.min()} is no count; use 0 and above")
            weights *= np.pad(given, (0, len(weights) - len(given)))
        if self.mlm and self.random_replace_prob > 0 and np.count_nonzero(weights) < 2:
            few = "two tokens or more to draw from, neither special nor of count 0; the tokenizer has fewer"
            raise ValueError(f"random_replace_prob: {self.random_replace_prob} needs {few}")
        return weights

    def set_progress(
        self, epoch: int, step: int = 0, total_steps: int = 0, batches_per_step: int = 1, streamed: bool = False
    ) -> None:
        """Say which epoch begins, before its batches are asked for: what `MaskingProgress` does under a `Trainer`.

        Args:
            step, total_steps: optimizer steps done before, and in the whole training (a rate schedule's clock).
            batches_per_step: batches collated for one optimizer step.
            streamed: the rows are of a stream, or repeat; the same row gets other masks in another batch.
        """
        told = self._progress.told + 1
        self._write(_Progress(epoch, step, total_steps, batches_per_step, streamed, told))

    @property
    def _progress(self) -> _Progress:
        return _Progress(*self._shared.tolist())

    def _write(self, progress: _Progress) -> None:
        self._shared.copy_(torch.tensor(progress))

    def for_evaluation(self, mlm_probability: float = EVALUATION_RATE, seed: int = 0) -> MaskedLMCollator:
        """A collator of the same kind with a constant rate and the same masks on every pass, for comparable losses."""
        constant = dict(rate_schedule="constant", rate_points={}, static_masking=True)
        return dataclasses.replace(self, mlm_probability=mlm_probability, seed=seed, **constant)

    def numpy_call(self, examples: Sequence[Any]) -> dict[str, Any]:
        """The batch as NumPy arrays, int64 (`cu_seq_lens_…` int32)."""
        rows = [example if isinstance(example, Mapping) else {"input_ids": example} for example in examples]
        columns = dict.fromkeys(name for row in rows for name in row)
        input_ids, lengths = _flatten(rows, "input_ids")
        tokens = {name: _flatten(rows, name, lengths)[0] for name in TOKEN_COLUMNS if name in columns}
        numbers = {name: _stack(rows, name) for name in columns if name not in (*TOKEN_COLUMNS, "offset_mapping")}
        tokens.setdefault("attention_mask", np.ones_like(input_ids))
        row_numbers = np.repeat(np.arange(len(lengths)), lengths)
        begins = np.diff(row_numbers, prepend=-1) > 0  # a document begins with its row …
        if "position_ids" in tokens:  # … and where a position does not follow the one before
            begins |= np.diff(tokens["position_ids"], prepend=-1) != 1

        if "labels" not in tokens:
            tokens["input_ids"], tokens["labels"] = self._mask(tokens, row_numbers, begins)
        elif self.mlm and np.array_equal(tokens["labels"], input_ids):
            raise ValueError("labels: they repeat input_ids, so nothing is masked; leave them to the collator")
        tokens.pop("special_tokens_mask", None)
        return self._unpad(tokens, begins, numbers) if self.unpadded else self._pad(tokens, lengths) | numbers

    def torch_call(self, examples: Sequence[Any]) -> dict[str, Any]:
        batch = self.numpy_call(examples).items()
        return {name: torch.from_numpy(x) if isinstance(x, np.ndarray) else x for name, x in batch}

    def _pad(self, tokens: Mapping[str, np.ndarray], lengths: np.ndarray) -> dict[str, np.ndarray]:
        """The flat columns as [rows, width]."""
        multiple, pad = self.pad_to_multiple_of or 1, self.tokenizer.pad_token_id
        width = math.ceil(lengths.max() / multiple) * multiple
        if pad is None and (lengths < width).any():
            raise ValueError("tokenizer: it has no pad token, which rows of unequal length need")
        real = np.arange(width) < lengths[:, None]
        if self.tokenizer.padding_side == "left":
            real = real[:, ::-1]
        padding = dict(input_ids=pad or 0, token_type_ids=self.tokenizer.pad_token_type_id, labels=IGNORE_INDEX)
        batch = {name: np.full(real.shape, padding.get(name, 0)) for name in tokens}
        for name, column in tokens.items():
            batch[name][real] = column
        return batch

    def _unpad(self, tokens: dict[str, np.ndarray], begins: np.ndarray, numbers: Mapping[str, Any]) -> dict[str, Any]:
        """The flat columns as [1, T], without padding, and the bounds of the documents, which begin where `begins`."""
        if numbers:
            raise ValueError(f"{next(iter(numbers))}: a number a row does not go with unpadded=True; remove the column")
        real = tokens.pop("attention_mask") != 0
        lengths = np.unique(np.cumsum(begins)[real], return_counts=True)[1]
        bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        positions = tokens.pop("position_ids", None)
        if positions is not None and (positions[real] != np.arange(bounds[-1]) - np.repeat(bounds[:-1], lengths)).any():
            raise ValueError("position_ids: with unpadded=True they must restart at 0 with every document")
        batch: dict[str, Any] = {name: column[None, real] for name, column in tokens.items()}
        if self.mlm:
            batch["masked_lm_positions"] = np.flatnonzero(batch["labels"][0] != IGNORE_INDEX)
        longest = int(lengths.max(initial=0))
        return batch | dict(cu_seq_lens_q=bounds, cu_seq_lens_k=bounds, max_length_q=longest, max_length_k=longest)

    def _mask(
        self, tokens: dict[str, np.ndarray], row_numbers: np.ndarray, begins: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """What the model reads, and the labels, int64 [T], of T tokens: the columns of the rows one after the other,
        the row of every token, and whether it is the first of its document."""
        input_ids, packed = tokens["input_ids"], "position_ids" in tokens
        if len(input_ids) and not 0 <= input_ids.min() <= input_ids.max() < len(self.regular):
            found, last = f"{input_ids.min()} to {input_ids.max()}", len(self.regular) - 1
            raise ValueError(f"input_ids: {found} do not fit the tokenizer; use ids from 0 to {last}")
        if not self.mlm:
            # not where the id is that of padding, which may be that of [SEP] too
            ignored = (tokens["attention_mask"] == 0) | (begins & (packed or self.unpadded))
            return input_ids, np.where(ignored, IGNORE_INDEX, input_ids)
        candidates = self.regular[input_ids] & (tokens["attention_mask"] != 0)
        if "special_tokens_mask" in tokens:
            candidates &= tokens["special_tokens_mask"] == 0
        one_each = packed if self.at_least_one_target is None else self.at_least_one_target
        draws, rate = self._draws(np.split(input_ids, np.flatnonzero(np.diff(row_numbers)) + 1))
        targets, leaders = choose_targets(
            self.masking, rate, candidates, self._word_starts[input_ids], row_numbers, begins, draws, one_each
        )
        if self.target_draws:
            tokens["target_draws"] = (draws[REPLACEMENT] * 2.0**53).astype(np.int64)
        read = self._replace_targets(input_ids, targets, draws[ACTION, leaders], draws[REPLACEMENT])
        return read, np.where(targets, input_ids, IGNORE_INDEX)

    def _replace_targets(
        self, input_ids: np.ndarray, targets: np.ndarray, action: np.ndarray, draws: np.ndarray
    ) -> np.ndarray:
        """What the model reads, int64 [T]: [MASK], another token or the token itself where `targets` is true. `action`,
        one draw for a word or span, decides which; each token has a random token of its own, never the one it was."""
        replaced, masked = input_ids.copy(), action < self.mask_replace_prob
        replaced[targets & masked] = self.tokenizer.mask_token_id
        others = np.flatnonzero(targets & ~masked & (action < self.mask_replace_prob + self.random_replace_prob))
        # by weight among all but the original: in whole numbers, so that no rounding lets the original in
        before = self._cumulative[input_ids[others]]
        own = self._cumulative[input_ids[others] + 1] - before
        ticket = (draws[others] * (self._cumulative[-1] - own)).astype(np.int64)
        ticket += np.where(ticket >= before, own, 0)
        replaced[others] = np.searchsorted(self._cumulative, ticket, side="right") - 1
        return replaced

    def _draws(self, rows: Sequence[np.ndarray]) -> tuple[np.ndarray, float]:
        """Uniform numbers for the tokens of the batch now at hand, float64 [4, T], and its rate."""
        progress, worker = self._progress, get_worker_info()
        moving = self.rate_schedule != "constant" or (self.seed is not None and not self.static_masking)
        if moving and not (progress.told or progress.warned):
            self._write(progress._replace(warned=True))
            logger.warning(
                "MaskedLMCollator: it was not told of an epoch; until it is, rows that come again are masked as before,"
                " and the rate stays. Give the Trainer callbacks=[MaskingProgress(collator)], or call"
                " collator.set_progress(epoch) when one begins."
            )
        if progress.told != self._told:
            self._told, self._batches = progress.told, 0
        # a data loader hands its batches to its workers in turn (but not with `dataloader_in_order=False`)
        batch = self._batches if worker is None else self._batches * worker.num_workers + worker.id
        self._batches += 1
        batch += progress.step * progress.batches_per_step  # … and now counted from the beginning of the training

        done = batch // progress.batches_per_step / progress.total_steps if progress.total_steps else 0.0
        shares, rates = zip(*sorted({0.0: self.mlm_probability, **self.rate_points}.items()))
        if self.rate_schedule == "linear":
            rate = float(np.interp(done, shares, rates))
        else:
            rate = rates[np.searchsorted(shares, done, side="right") - 1]

        if self.seed is None:
            key = int(torch.randint(2**63 - 1, ()))
            return np.random.Generator(np.random.Philox(key)).random((4, sum(map(len, rows)))), rate
        epoch, batch = (0, None) if self.static_masking else (progress.epoch, batch if progress.streamed else None)
        return np.concatenate([row_draws(self.seed, epoch, row, batch) for row in rows], axis=1), rate


def halve(batch: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Two batches out of one of `MaskedLMCollator(unpadded=True)`, cut between documents; that one itself where one of
    them would have more than two thirds of the tokens, or where it is padded."""
    bounds, tokens = batch.get("cu_seq_lens_q", torch.zeros(1)), batch["input_ids"].shape
    cut = int((2 * bounds - tokens[1]).abs().argmin())
    if not tokens[1] <= 3 * bounds[cut] <= 2 * tokens[1]:
        return [batch]
    halves = []
    for documents in (bounds[: cut + 1], bounds[cut:]):
        first, last = int(documents[0]), int(documents[-1])
        half = {name: x[:, first:last] if getattr(x, "shape", None) == tokens else x for name, x in batch.items()}
        longest = int(documents.diff().max())
        half |= dict.fromkeys(("cu_seq_lens_q", "cu_seq_lens_k"), documents - first)
        half |= dict.fromkeys(("max_length_q", "max_length_k"), longest)
        if "masked_lm_positions" in batch:
            half["masked_lm_positions"] = (half["labels"][0] != IGNORE_INDEX).nonzero().squeeze(1)
        halves.append(half)
    return halves


def check_mask_token(tokenizer: Any) -> None:
    if tokenizer.mask_token is None:
        give = "give it one with tokenizer.add_special_tokens({'mask_token': AddedToken('[MASK]', lstrip=True)})"
        raise ValueError(f"tokenizer: {tokenizer.name_or_path!r} has no mask token; {give}")


def check_masking(masking: Any) -> None:
    """Refuse (ValueError) wrong settings of a `MaskedLMCollator`, or of anything with attributes of its names."""
    rates = {name: getattr(masking, name) for name in ("mlm_probability", "mask_replace_prob", "random_replace_prob")}
    rates |= {f"rate_points[{share}]": rate for share, rate in masking.rate_points.items()}
    for name, rate in rates.items():
        if not isinstance(rate, Real) or not 0 <= rate <= 1:
            raise ValueError(f"{name}: {rate!r} is no rate; use a number from 0 to 1")
    if masking.mask_replace_prob + masking.random_replace_prob > 1 + 1e-9:
        both = f"{masking.mask_replace_prob} and {masking.random_replace_prob}"
        raise ValueError(f"mask_replace_prob, random_replace_prob: {both} sum to more than 1; use at most 1 together")
    for name, known in CHOICES.items():
        if getattr(masking, name) not in known:
            raise ValueError(f"{name}: {getattr(masking, name)!r} is not known; use one of {', '.join(known)}")
    if (masking.rate_schedule == "constant") != (not masking.rate_points):
        wrong = f"{dict(masking.rate_points)} does not go with rate_schedule={masking.rate_schedule!r}"
        raise ValueError(f"rate_points: {wrong}; use points with linear and steps, none with constant")
    for share in masking.rate_points:
        if not isinstance(share, Real) or not 0 < share <= 1:
            raise ValueError(f"rate_points: {share!r} is no share of the training; use one above 0, at most 1")


class MaskingProgress(TrainerCallback):
    """Tells a `MaskedLMCollator` under a `Trainer` the epoch and the steps done, also after a resumption: before the
    epoch's batches are asked for, and when all batches of the one before are made, however far ahead workers are."""

    def __init__(self, collator: MaskedLMCollator):
        self.collator, self.batches = collator, 0
        collator._write(collator._progress._replace(warned=True))  # there is nothing to warn of

    def on_train_begin(self, args, state, control, **kwargs):
        self.epoch = self.first_epoch = int(state.epoch or 0)
        self.batches = self.collator._batches

    def on_step_end(self, args, state, control, **kwargs):
        self.batches, progress = self.collator._batches, self.collator._progress
        if progress.total_steps != state.max_steps:  # which training by the clock corrects
            self.collator._write(progress._replace(total_steps=state.max_steps))

    def on_evaluate(self, args, state, control, **kwargs):
        self.collator._batches = self.batches  # those of an evaluation by the same collator do not count

    def on_epoch_begin(self, args, state, control, train_dataloader=None, **kwargs):
        step, batches_per_step = state.global_step, args.gradient_accumulation_steps
        streamed = isinstance(train_dataloader.dataset, IterableDataset)
        if streamed:
            if self.epoch == self.first_epoch and not args.ignore_data_skip:
                # What was trained on before the resumption is collated again, and skipped then.
                known = has_length(train_dataloader)
                step %= math.ceil(len(train_dataloader) / batches_per_step) if known else state.max_steps
                step = state.global_step - step
            if isinstance(train_dataloader, DataLoaderDispatcher) and not train_dataloader.split_batches:
                batches_per_step *= args.world_size  # the first rank collates for all
        streamed |= self.collator.rows_repeat
        self.collator.set_progress(self.epoch, step, state.max_steps, batches_per_step, streamed)
        self.epoch += 1


def _flatten(rows: Sequence[Mapping], name: str, lengths: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """A column of all rows, int64 [T], and its length in each row, int64 [rows]: `lengths`, where those are given."""
    try:
        parts = [np.atleast_1d(np.asarray(row[name], dtype=np.int64)) for row in rows]
    except KeyError:
        raise ValueError(f"{name}: some rows of the batch have it and others do not") from None
    found = np.array([len(part) for part in parts])
    if lengths is not None and not np.array_equal(found, lengths):
        row = int(np.flatnonzero(found != lengths)[0])
        raise ValueError(f"{name}: {found[row]} values for {lengths[row]} input_ids; use one for each")
    return np.concatenate(parts), found


def _stack(rows: Sequence[Mapping], name: str) -> np.ndarray:
    """A column of numbers, one per row: [rows], int64 or float32."""
    try:
        column = np.asarray([row.get(name) for row in rows])
    except ValueError:  # lists of several lengths
        column = np.empty(0, dtype=object)
    if column.ndim != 1 or column.dtype.kind not in "biuf":
        raise ValueError(f"{name}: the collator cannot batch this column; remove it, or give it one number a row")
    return column.astype(np.float32 if column.dtype.kind == "f" else np.int64)
