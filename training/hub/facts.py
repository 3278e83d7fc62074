"""What is known of a model and its training, for its card."""

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import TrainingArguments

from ..common.precision import precision_name
from ..loop.checkpoints import kept_step
from .example import Example
from .origin import REPOSITORY_NAME, OriginFacts

# What an evaluation by `Trainer` reports besides its metrics.
COST_METRICS = (
    "runtime",
    "samples_per_second",
    "steps_per_second",
    "model_preparation_time",
    "targets",
)


@dataclass
class CardMetric:
    """A metric on rows that the training did not learn from."""

    metric: str  # as `evaluate` calls it
    value: float
    dataset: str  # in words
    split: str | None = None
    baseline_value: float | None = None  # the same metric of something simple
    interval: tuple[float, float] | None = None  # in which it is in 95 of 100 cases
    simple_model_value: float | None = None  # the same metric of a simple model


@dataclass
class SplitFacts:
    """What is known of the rows of a split."""

    rows: int
    source: str  # in words
    class_counts: dict[str, int] = field(default_factory=dict)  # how often each class occurs
    labelled: int = 1  # rows, or entities, that these counts are a share of


@dataclass
class CardFacts:
    """What is known of a model beside its files. Nothing is required."""

    data: str | None = None  # what it was trained on, in words or as names of Hub data sets
    # recipe, hardware, time: what and how much
    training: dict[str, str] = field(default_factory=dict)
    results: list[CardMetric] = field(default_factory=list)
    results_note: str | None = None  # what the results are of
    baseline_name: str | None = None  # what `CardMetric.baseline_value` is of
    simple_model_name: str | None = None  # what `CardMetric.simple_model_value` is of
    are_comparable: bool = True  # whether the results go into the metadata, for leader boards
    by_class: dict[str, dict[str, float]] = field(default_factory=dict)  # scores of each class
    by_class_split: str | None = None
    splits: dict[str, SplitFacts] = field(default_factory=dict)  # the rows of a fine-tuning
    decisions: list[str] = field(default_factory=list)  # thresholds, in sentences
    warning: str | None = None  # why the model should not be used
    notes: list[str] = field(default_factory=list)  # other warnings that bear on its use
    example: Example | None = None  # what the snippet reads, by default something made up
    base_model: str | None = None  # the Hub name of the model that it was made from
    base_license: str | None = None
    base_languages: list[str] = field(default_factory=list)
    origin: str = "Fine-tuned from"  # `base_model`
    license: str | None = None  # of the weights, as the Hub names it
    language: str | list[str] | None = None
    datasets: list[str] = field(default_factory=list)  # of the Hub, beside those of `data`
    tags: list[str] = field(default_factory=list)
    max_length: int | None = None  # the longest text of training, in tokens
    max_answer_length: int = 30  # of answers to questions, in tokens
    # The metrics in a pipeline of Transformers, where it decides otherwise than `minibert predict`.
    pipeline_scores: dict[str, float] = field(default_factory=dict)


def add_source(facts: CardFacts, source: OriginFacts) -> None:
    """Add what is known of the model that a training started from. Its licence and languages are
    its own: what it became may have others."""
    facts.base_model = source.base_model
    facts.base_license = source.license
    facts.base_languages = source.languages


def facts_from_trainer(
    state: Mapping[str, Any], args: TrainingArguments, data: str | None = None
) -> CardFacts:
    """What is known of a training on this machine: steps, time, recipe, and the metrics of the
    model it ended with.

    Args:
        state: its `TrainerState`, by field.
        data: in words, what it was trained and evaluated on.
    """
    history = state["log_history"]
    step = state["global_step"]
    last_end = None  # the entry in which the training ended
    for number, entry in enumerate(history):
        if "train_runtime" in entry and entry["step"] == step:
            last_end = number
    saved_step = step
    if last_end is not None:  # the best model takes the last one's place, if so asked
        saved_step = kept_step(state, args.load_best_model_at_end)
    metrics: dict[str, Any] = {}
    for number, entry in enumerate(history):
        is_after_the_end = last_end is not None and number > last_end
        if entry["step"] == saved_step or is_after_the_end:
            metrics |= entry  # each data set has its own
    facts = CardFacts(data=data)
    if args.load_best_model_at_end:
        facts.results_note = (
            "The best checkpoint on these rows was kept, so the scores are a little too high for"
            " other rows."
        )
    if history:
        facts.training["steps"] = f"{step:,} ({history[-1].get('epoch', 0):.2f} epochs)"
    if last_end is not None:
        minutes = history[last_end]["train_runtime"] / 60
        facts.training["time"] = f"{minutes:.1f} minutes"
    facts.training |= describe_training(args)
    for key, value in metrics.items():
        is_number = isinstance(value, (int, float))
        if key.startswith("eval_") and is_number and not key.endswith(COST_METRICS):
            metric = key.removeprefix("eval_")
            facts.results.append(CardMetric(metric, value, data or "held-out data", "validation"))
    return facts


def describe_training(args: TrainingArguments) -> dict[str, str]:
    """Recipe and machine of a training, for its card."""
    batch = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
    hardware = f"{args.device.type} ({platform.machine()}, {os.cpu_count()} cores)"
    if args.device.type == "cuda":
        hardware = f"{args.world_size} × {torch.cuda.get_device_name(args.device)}"
    optimizer = getattr(args.optim, "value", args.optim)
    schedule = getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type)
    rate = f"learning rate {args.learning_rate:g}"
    decay = f"weight decay {args.weight_decay:g}"
    described = {}
    if not args.auto_find_batch_size:  # else `args` does not know it
        described["batch"] = f"{batch} sequences"
    described["optimizer"] = f"{optimizer}, {rate}, {schedule} schedule, {decay}"
    described["precision"] = precision_name(args)
    described["seed"] = str(args.seed)
    described["hardware"] = hardware
    described["software"] = f"torch {torch.__version__}, transformers {transformers.__version__}"
    return described


def hub_name(name: str | None) -> str | None:
    """`name` if it can be a model on the Hub (old ones have no owner) and is no path here."""
    if not name or not REPOSITORY_NAME.fullmatch(name) or Path(name).exists():
        return None
    return name


def published_name(name: str | None) -> str | None:
    """`hub_name` of what has an owner, as all that is published today."""
    name = hub_name(name)
    return name if name and "/" in name else None
