"""The base of the objectives: which rows and batches a model is trained on, its loss and its
metrics."""

import abc
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ....configuration_minibert import MiniBertConfig
from ....tokenization import adapt_tokenizer
from ...common.processes import shares_weights
from ...data.collators import MaskedLMCollator
from ...data.masking import IGNORE_INDEX
from ...data.packing import check_packing, unigram_counts
from ...hub.example import Example
from ...loading.models import load_pretrained
from ..config import (
    MASKING_FIELDS,
    PretrainingConfig,
    check_overrides,
    config_path,
    saved_model_config,
)


class UnigramBaseline(NamedTuple):
    """The metrics of a model that knows only token frequencies; None without targets."""

    loss: float | None
    accuracy: float | None


class Objective(abc.ABC):
    """One way to pretrain: what becomes a row, a batch and a loss, and the metrics of an
    evaluation.

    An evaluation reduces each batch to a few sums (`batch_sums`), adds these up over all batches
    and ranks, and turns them into means at the end (`metrics`). To add an objective, write a
    subclass with `name`, `model_class` and `make_collator`, add it to `OBJECTIVES` in
    `objectives/__init__.py`, and its name to `PretrainingConfig.objective`.
    """

    name: str
    model_class: type[PreTrainedModel]
    metric = "mlm_loss"  # the loss that is plotted, compared and reported
    targets_name = "masked positions"  # what is predicted, in the report
    baseline_name = "unigram frequencies"  # what the metrics are compared with, on the card
    baseline_prefix = "unigram_"  # of the baseline's metrics in the report
    pair_task: str | None = None  # what is learned of pairs: the prefix of its loss and accuracy
    pair_task_name = ""  # in words
    # rows are packed documents, which can be streamed, prepared once, and batched unpadded; else
    # they are pairs of segments, see `make_pairs`
    packs_documents = True
    config_fields: Mapping[str, Any] = {}  # fields of the model's config that the objective decides
    masking_defaults: Mapping[str, float] = {}  # options of the collator, where the user gives none
    supports_label_smoothing = False
    # its loss has no terms that are logged, and draws no random numbers: two threads may compute it
    can_halve_batches = False
    needs_whole_matrices = False  # weights may not be split among processes

    def __init__(self, args: PretrainingConfig):
        self.args = args
        self.masking_options: dict[str, Any] = dict(self.masking_defaults)
        if self.masking_defaults:
            for name in MASKING_FIELDS:
                value = getattr(args, name)
                if value is not None:
                    self.masking_options[name] = value

    def check(self, config: MiniBertConfig, streaming: bool = False) -> None:
        """Refuse (a ValueError) settings that contradict each other, before any work; `args` have
        their defaults."""
        causal = self.config_fields.get("is_causal", False)
        length = self.args.seq_length
        longest = config.max_position_embeddings
        if config.is_causal != causal:
            raise ValueError(
                f"is_causal: objective {self.name} needs {causal}, got {config.is_causal}"
            )
        if self.needs_whole_matrices and shares_weights(self.args):
            raise ValueError(
                "fsdp, deepspeed: muon and rtd need whole matrices; use adamw and another objective"
            )
        if self.args.label_smoothing_factor and not self.supports_label_smoothing:
            raise ValueError(
                f"label_smoothing_factor: objective {self.name} has no smoothed loss; leave it out"
            )
        if streaming and not self.packs_documents:
            raise ValueError(f"streaming: objective {self.name} cannot read a stream; leave it out")
        check_packing(self.args.packing, length)
        if length > longest:
            raise ValueError(
                f"seq_length: {length} is beyond max_position_embeddings={longest} of the model;"
                " use at most that, or raise max_position_embeddings (--config_overrides)"
            )

    def prepare_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
        """Adapt the tokenizer to rows, or refuse it (ValueError) before any rows are made."""
        return adapt_tokenizer(tokenizer, pairs=not self.packs_documents)

    def make_pairs(
        self, documents: datasets.Dataset, tokenizer: PreTrainedTokenizerBase
    ) -> datasets.Dataset:
        """Make rows of pairs of segments from documents (column `text`; with several languages also
        `source`). Objectives that pack documents have none."""
        raise NotImplementedError(f"objective {self.name} packs documents")

    @abc.abstractmethod
    def make_collator(self, tokenizer: PreTrainedTokenizerBase, **options: Any) -> MaskedLMCollator:
        """Make the collator of the training, with further `options` of `MaskedLMCollator`. The
        evaluation uses its `for_evaluation()`."""

    def model_config(
        self, source: MiniBertConfig | PreTrainedModel | str, overrides: Mapping[str, Any]
    ) -> MiniBertConfig:
        """The config of the model to train, with the fields that the objective decides and the
        `overrides`. A ValueError for overrides of a model that is loaded already, for fields that
        a config does not have, and for those that the tokenizer decides."""
        check_overrides(overrides)
        fields = {**self.config_fields, **overrides}
        path = config_path(source)
        if path is not None:
            return saved_model_config(path, fields)
        if isinstance(source, MiniBertConfig):
            return MiniBertConfig.from_dict(source.to_dict() | fields)
        if overrides:
            raise ValueError(
                "config_overrides: the model is loaded already; give its path, or leave them out"
            )
        return source.config

    def make_model(
        self,
        source: MiniBertConfig | PreTrainedModel,
        config: MiniBertConfig,
        tokenizer: PreTrainedTokenizerBase,
    ) -> PreTrainedModel:
        """Make the model to train: a new one of a config, or `source` itself. (A saved model is
        loaded by `load` before.)"""
        if isinstance(source, MiniBertConfig):
            return self.model_class(config)
        if not isinstance(source, self.model_class):
            raise ValueError(
                f"model: objective {self.name} trains a {self.model_class.__name__},"
                f" got a {type(source).__name__}"
            )
        return source

    def load(self, path: str, config: MiniBertConfig) -> tuple[PreTrainedModel, list[str]]:
        """Load a saved model in fp32; returns it with the names of the weights that it lacked."""
        return load_pretrained(
            self.model_class, path, head=False, config=config, dtype=torch.float32
        )

    def count_targets(self, batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Count the targets of a micro-batch other than its `labels`, which `Trainer` counts. The
        keys are keywords of the model's `forward`, which gets the sums over all micro-batches and
        ranks of an optimizer step."""
        return {}

    def loss_name(self, output_name: str) -> str:
        """The name in the log of one of the losses that the model returns beside their sum."""
        return output_name

    def batch_sums(
        self, outputs: Any, batch: Mapping[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        """Reduce a batch of an evaluation to sums by name, fp32 scalars; `outputs` are made with
        `sparse_prediction=True`."""
        return token_sums(outputs["logits"], batch["labels"])

    def metrics(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Turn the sums over all batches, by the names of `batch_sums`, into the means for the log.
        A mean over nothing is left out."""
        means = {self.metric: sums["loss"], "accuracy": sums["right"]}
        metrics = mean_metrics(sums["targets"], **means)
        return metrics | {"targets": sums["targets"]}

    def total_loss(self, metrics: Mapping[str, float]) -> float | None:
        """The loss of an evaluation, from the means of `metrics`: the sum of all terms, weighted as
        in training. None without any target."""
        return metrics.get(self.metric)

    def make_report(self, metrics: Mapping[str, float], unigram: UnigramBaseline) -> dict[str, Any]:
        """Make the report from the metrics of the last evaluation (`eval_…`) and the
        `unigram_baseline`; None for what was not measured."""
        loss = metrics.get(f"eval_{self.metric}")
        return {
            "validation_loss": loss,
            "perplexity": perplexity(loss),
            "accuracy": metrics.get("eval_accuracy"),
            "targets": int(metrics["eval_targets"]),
            "unigram_loss": unigram.loss,
            "unigram_perplexity": perplexity(unigram.loss),
            "unigram_accuracy": unigram.accuracy,
        }

    def tokenizer_to_save(self, tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
        """The tokenizer as it goes with the finished model; a copy if it is another one."""
        return tokenizer

    def model_to_save(self, model: PreTrainedModel) -> PreTrainedModel:
        """The part of the trainer's model that is saved."""
        return model

    def card_example(
        self, texts: Iterable[str], tokenizer: PreTrainedTokenizerBase
    ) -> Example | None:
        """A held-out text for the snippet of the card; without one, the card makes something up."""
        return None

    def demo_lines(
        self, folder: Path, texts: Iterable[str], tokenizer: PreTrainedTokenizerBase
    ) -> list[str]:
        """Lines that show the saved model at work on held-out texts."""
        return []

    def next_command(self, output: Path) -> tuple[Any, ...]:
        """The words of the command that usually follows this pretraining."""
        return ("minibert", "finetune", "classify", "--model", output, "--data", "FOLDER")


def mean_metrics(count: float, **sums: float) -> dict[str, float]:
    """The sums divided by the count; empty if the count is 0, since a score over nothing is not
    perfect."""
    if not count:
        return {}
    return {name: total / count for name, total in sums.items()}


def perplexity(loss: float | None) -> float | None:
    return None if loss is None else math.exp(min(loss, 700))  # e^710 is too large for a float


def token_sums(logits: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
    """The summed `loss`, the number of `right` guesses and of `targets`: fp32 scalars (not every
    device has float64).

    Args:
        logits: [targets, classes], in the order of the targets in the flattened batch.
        labels: [batch, …], -100 where there is no target.
    """
    labels = labels[labels != IGNORE_INDEX]
    loss = torch.nn.functional.cross_entropy(logits.float(), labels, reduction="sum")
    right = (logits.argmax(-1) == labels).sum()
    return {"loss": loss, "right": right.float(), "targets": loss.new_tensor(len(labels))}


def unigram_baseline(
    train: datasets.Dataset, batches: Any, vocab_size: int, special_ids: Sequence[int] = ()
) -> UnigramBaseline:
    """Measure a model that knows only token frequencies: the loss of the add-one-smoothed
    frequencies of the training rows at the targets of the evaluation, and the accuracy of the most
    frequent target. Special tokens count only if they are targets (as [SEP] is for a decoder)."""
    counts = unigram_counts(train, vocab_size).astype(np.float64)
    label_parts = []
    for batch in batches:
        labels = batch["labels"]
        label_parts.append(labels[labels != IGNORE_INDEX].cpu().numpy())
    labels = np.concatenate(label_parts)
    if not len(labels):
        return UnigramBaseline(loss=None, accuracy=None)
    is_target = np.bincount(labels, minlength=vocab_size) > 0
    special = np.asarray(special_ids, dtype=np.int64)
    counts[special[~is_target[special]]] = 0
    log_probabilities = np.log((counts + 1) / (counts + 1).sum())
    frequent = np.where(is_target, counts, -1).argmax()
    return UnigramBaseline(
        loss=float(-log_probabilities[labels].mean()),
        accuracy=float((labels == frequent).mean()),
    )
