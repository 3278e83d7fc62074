"""What an objective has to say, and the `Trainer` that trains any of them."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import datasets
import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer

from ....configuration_minibert import MiniBertConfig
from ...arguments.pretraining import MaskingArguments, ObjectiveArguments, RowArguments
from ...data.collators import MaskedLMCollator
from ...data.documents import tokenize_documents
from ...data.masking import IGNORE_INDEX, unigram_counts
from ...data.packing import fill_rate, pack_documents
from ...hub.trainer import HubReady
from ...optimization import OptimizationMixin


class Objective(abc.ABC):
    """One way to pretrain: the road from documents to a loss, and the figures that say how well it went.

    A batch of evaluation is kept as a few sums (`score`), added up over all batches and ranks, and turned into means at
    the end (`figures`): evaluation needs no more memory for more data.
    """

    name: ClassVar[str]
    model_class: ClassVar[type[PreTrainedModel]]
    metric: ClassVar[str] = "mlm_loss"  # the loss that is drawn, compared and reported
    parts: ClassVar[tuple[str, ...]] = ()  # outputs of the model that are logged beside the loss
    streams: ClassVar[bool] = True  # whether its rows can be made while documents are read
    # of the targets, unless the user says otherwise
    replacement: ClassVar[dict[str, float]] = {"mask_replace_prob": 0.8, "random_replace_prob": 0.1}

    def __init__(self, arguments: ObjectiveArguments, masking: MaskingArguments, seed: int):
        self.arguments, self.seed = arguments, seed
        unsaid = {name: share for name, share in self.replacement.items() if getattr(masking, name) is None}
        self.masking = dataclasses.replace(masking, **unsaid)

    def config_fields(self) -> dict[str, Any]:
        """Fields of the config that the objective settles."""
        return {}

    def check(self, config: MiniBertConfig) -> None:
        """Refuse, before any work, a config that cannot serve the objective.

        Raises:
            ValueError: naming the field.
        """
        if config.is_causal:
            raise ValueError(
                f"is_causal: True does not go with --objective {self.name}; legal: False, or objective clm"
            )

    def check_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Refuse, before rows are made, a tokenizer that cannot serve the objective.

        Raises:
            ValueError: naming what it lacks.
        """
        for name in ("cls_token", "sep_token"):
            if getattr(tokenizer, name) is None:
                raise ValueError(f"tokenizer: {tokenizer.name_or_path!r} has no {name}, but rows need [CLS] and [SEP]")

    def check_rows(self, rows: RowArguments) -> None:
        """Refuse, before any work, ways of making rows that the objective cannot use."""
        return

    def check_documents(self, train: datasets.Dataset, validation: datasets.Dataset) -> None:
        """Refuse, before a tokenizer is trained, documents that the objective can make no rows of."""
        return

    def rows(
        self, documents: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, rows: RowArguments, training: bool
    ) -> datasets.Dataset:
        """Rows for the collator out of documents (column `text`)."""
        return pack_documents(
            tokenize_documents(documents, tokenizer, rows.num_proc),
            tokenizer,
            rows.seq_length,
            rows.packing,
            rows.num_proc,
        )

    def describe_rows(self, rows: datasets.Dataset, seq_length: int) -> str:
        """A few words about the training rows, to print."""
        return f"{len(rows):,} rows of up to {seq_length} tokens, filled to {fill_rate(rows, seq_length):.1%}"

    def model(self, config: MiniBertConfig, checkpoint: str | None) -> PreTrainedModel:
        """The model, its weights new, or those of a checkpoint."""
        if checkpoint is None:
            return self.model_class(config)
        return self.model_class.from_pretrained(checkpoint, config=config, dtype=torch.float32)

    @abc.abstractmethod
    def collator(self, tokenizer: PreTrainedTokenizerBase, train: datasets.Dataset) -> MaskedLMCollator:
        """The collator of the training; its `for_evaluation()` is that of the evaluation."""

    def counts(self, batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """How many terms losses of a micro-batch have, beside those at `labels` (which `Trainer` counts): keywords of
        the model's `forward`, which gets their sums over all micro-batches and ranks of an optimizer step."""
        return {}

    def score(self, outputs: Any, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Sums over a batch of evaluation, float64 [k]; `outputs` are the model's with `sparse_prediction`."""
        return token_score(outputs["logits"], batch["labels"])

    def figures(self, sums: np.ndarray) -> dict[str, float]:
        """Means for the log, out of the sums of all batches, [k]."""
        loss, right, targets = sums
        return {self.metric: loss / max(targets, 1), "accuracy": right / max(targets, 1), "targets": targets}

    def report(self, figures: Mapping[str, float], baseline: tuple[float, float]) -> dict[str, Any]:
        """The final figures, out of those of the last evaluation (`eval_…`) and `baseline`."""
        loss = figures[f"eval_{self.metric}"]
        return {
            "validation_loss": loss,
            "perplexity": math.exp(loss),
            "accuracy": figures["eval_accuracy"],
            "targets": int(figures["eval_targets"]),
            "unigram_loss": baseline[0],
            "unigram_perplexity": math.exp(baseline[0]),
            "unigram_accuracy": baseline[1],
        }

    def baseline(
        self, train: datasets.Dataset, batches: Any, tokenizer: PreTrainedTokenizerBase
    ) -> tuple[float, float]:
        """Loss and accuracy of what knows nothing but token frequencies, at the same positions."""
        return unigram_baseline(train, batches, len(tokenizer), tokenizer.all_special_ids)

    def baselines(self, report: Mapping[str, Any]) -> dict[str, float]:
        """Losses to draw beside the curve, by name."""
        return {"unigram baseline": report["unigram_loss"]}

    @abc.abstractmethod
    def lines(self, report: Mapping[str, Any]) -> list[str]:
        """The report in words, to print."""

    def save(self, trainer: Trainer) -> None:
        """Save what the training was for, into the output folder; `trainer.model` is then what was saved."""
        trainer.save_model()

    @abc.abstractmethod
    def examples(self, folder: Path, documents: datasets.Dataset, tokenizer: PreTrainedTokenizerBase) -> list[str]:
        """Lines that show the saved model at work on held-out documents."""


def token_score(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Summed loss, right guesses and number of targets, float64 [3].

    Args:
        logits: [targets, vocabulary], in the order of the targets in the flattened batch.
        labels: [batch, length], -100 where there is no target.
    """
    labels = labels[labels != IGNORE_INDEX]
    loss = torch.nn.functional.cross_entropy(logits.float(), labels, reduction="sum")
    right = (logits.argmax(-1) == labels).sum()
    return torch.stack([loss.double(), right.double(), labels.new_tensor(len(labels)).double()])


def token_lines(report: Mapping[str, Any], positions: str) -> list[str]:
    """The table of the objectives that predict tokens: the model beside the unigram baseline."""
    lines = [
        f"At {report['targets']:,} {positions} of the held-out documents:",
        f"{'':10}{'loss':>8}{'perplexity':>12}{'accuracy':>10}",
    ]
    for name, prefix, loss in (("MiniBERT", "", "validation_loss"), ("unigram", "unigram_", "unigram_loss")):
        lines.append(
            f"{name:10}{report[loss]:8.3f}{report[prefix + 'perplexity']:12.1f}{report[prefix + 'accuracy']:10.1%}"
        )
    return lines


def unigram_baseline(
    train: datasets.Dataset, batches: Any, vocab_size: int, special_ids: Sequence[int] = ()
) -> tuple[float, float]:
    """What knowing nothing but token frequencies gives at the same targets.

    Args:
        special_ids: tokens that do not count, unless they are targets (as [SEP] is for a decoder).

    Returns:
        the mean loss of the add-one-smoothed frequencies of the training rows, and the accuracy of always guessing the
        most frequent token that is ever a target.
    """
    counts = unigram_counts(map(_unmasked, train), vocab_size).astype(np.float64)
    labels = np.concatenate([batch["labels"][batch["labels"] != IGNORE_INDEX].cpu().numpy() for batch in batches])
    never = np.setdiff1d(np.arange(vocab_size), labels)
    counts[np.intersect1d(never, special_ids).astype(np.int64)] = 0
    frequent = np.where(np.isin(np.arange(vocab_size), never), -1, counts).argmax()
    log_probabilities = np.log((counts + 1) / (counts + 1).sum())
    return float(-log_probabilities[labels].mean()), float((labels == frequent).mean())


def _unmasked(row: Mapping[str, Any]) -> np.ndarray:
    """The token ids of a row before static masking, if it was masked."""
    ids = np.asarray(row["input_ids"])
    if "labels" not in row:
        return ids
    labels = np.asarray(row["labels"])
    return np.where(labels == IGNORE_INDEX, ids, labels)


class PretrainingTrainer(OptimizationMixin, HubReady, Trainer):
    """`Trainer` for an `Objective`: evaluation with a collator of its own that keeps a few sums of every batch, the
    terms of the loss logged apart, and each of them a mean that does not depend on gradient accumulation."""

    def __init__(self, model: PreTrainedModel, *args, objective: Objective, data_collator: MaskedLMCollator, **kwargs):
        super().__init__(model, *args, data_collator=data_collator, compute_metrics=self._compute_metrics, **kwargs)
        self.objective = objective
        self.evaluation_collator = data_collator.for_evaluation()
        self._parts: dict[str, torch.Tensor] = {}  # sums since the last log
        self._parts_since = 0

    def get_eval_dataloader(self, eval_dataset=None):
        training_collator, self.data_collator = self.data_collator, self.evaluation_collator
        try:
            return super().get_eval_dataloader(eval_dataset)
        finally:
            self.data_collator = training_collator

    def get_batch_samples(self, epoch_iterator, num_batches, device):
        batches, num_items = super().get_batch_samples(epoch_iterator, num_batches, device)
        if num_items is not None:
            counts = [self.objective.counts(batch) for batch in batches]
            sums = {name: sum(count[name] for count in counts).to(device) for name in counts[0]}
            if self.args.average_tokens_across_devices and self.args.world_size > 1:
                sums = {name: self.accelerator.gather(total).sum() for name, total in sums.items()}
            batches = [{**batch, **sums} for batch in batches]
        return batches, num_items

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        if not self._parts:
            self._parts_since = self.state.global_step
        for part in self.objective.parts:
            self._parts[part] = self._parts.get(part, 0) + outputs[part].detach()
        return (loss, outputs) if return_outputs else loss

    def log(self, logs, *args, **kwargs):
        if self._parts and "loss" in logs:
            steps = max(self.state.global_step - self._parts_since, 1)
            how = "sum" if self.args.average_tokens_across_devices else "mean"
            for part, total in self._parts.items():
                logs[part] = round(float(self.accelerator.reduce(total, how)) / steps, 4)
            self._parts = {}
        super().log(logs, *args, **kwargs)

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        inputs = self._prepare_inputs(inputs)
        with torch.no_grad(), self.compute_loss_context_manager():
            outputs = model(**inputs, sparse_prediction=True)
        sums = self.objective.score(outputs, inputs).unsqueeze(0)
        return outputs["loss"].detach(), sums, sums

    def _compute_metrics(self, prediction) -> dict[str, float]:
        return self.objective.figures(prediction.predictions.sum(0))
