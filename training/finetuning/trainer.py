"""`Trainer` for a task: frozen parts that rest, layer-wise learning rates, metrics of any split."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import datasets
import torch
from torch import nn
from transformers import (
    EarlyStoppingCallback,
    EvalPrediction,
    PreTrainedModel,
    Trainer,
    TrainerState,
    TrainingArguments,
    set_seed,
)

from ..arguments.finetuning import FinetuneArguments
from ..hub.card import COSTS
from .freezing import add_lora, freeze, parameter_groups
from .models import load_model
from .tasks.base import Task
from .vocabulary import restore_embedding, train_seen_rows

Scores = dict[str, float]


class TaskTrainer(Trainer):
    """Trains and evaluates a task.

    Args:
        splits: as `Task.read` returned them; `encoded`: the model inputs of each.
        resting: modules that are kept in evaluation mode: without dropout.
        layer_decay: see `parameter_groups`; 1: all parts at the same rate.
    """

    def __init__(
        self,
        model: nn.Module,
        training: TrainingArguments,
        task: Task,
        splits: Mapping[str, datasets.Dataset],
        encoded: Mapping[str, datasets.Dataset],
        resting: Sequence[nn.Module] = (),
        layer_decay: float = 1.0,
        patience: int = 0,
    ):
        evaluates = "validation" in encoded and training.eval_strategy != "no"
        stops = patience and evaluates and training.load_best_model_at_end
        super().__init__(
            model,
            # What is pushed is the finished model, by the command; `Trainer` would create a repository right here.
            dataclasses.replace(training, push_to_hub=False),
            data_collator=task.collator(),
            train_dataset=encoded.get("train"),
            eval_dataset=encoded.get("validation"),
            processing_class=task.tokenizer,
            compute_metrics=partial(task.compute_metrics, examples=splits.get("validation")),
            callbacks=[EarlyStoppingCallback(patience)] if stops else [],
        )
        self.task, self.splits, self.encoded = task, splits, encoded
        self.resting, self.layer_decay = resting, layer_decay

    def compute_loss(self, model, inputs, *args, **kwargs):
        for module in self.resting:
            module.eval()
        return super().compute_loss(model, inputs, *args, **kwargs)

    def prediction_step(self, model, inputs, *args, **kwargs):
        # Here, as `preprocess_logits_for_metrics` does not see the inputs.
        loss, logits, labels = super().prediction_step(model, inputs, *args, **kwargs)
        return loss, None if logits is None else self.task.preprocess_logits(logits, inputs), labels

    def create_optimizer(self, *args):
        if self.optimizer is None and self.layer_decay < 1:
            decayed = self.get_decay_parameter_names(self.model)
            groups = parameter_groups(
                self.model, decayed, self.args.learning_rate, self.args.weight_decay, self.layer_decay
            )
            optimizer, options = self.get_optimizer_cls_and_kwargs(self.args, self.model)
            self.optimizer = optimizer(groups, **options)
        return super().create_optimizer(*args)

    def score(self, name: str) -> tuple[EvalPrediction, Scores]:
        """Predictions for the split `name`, and its loss and the task's metrics."""
        self.compute_metrics = partial(self.task.compute_metrics, examples=self.splits[name])
        output = self.predict(self.encoded[name], metric_key_prefix=name)
        prefix = f"{name}_"
        scores = {
            metric: float(value)
            for key, value in output.metrics.items()
            if key.startswith(prefix) and (metric := key.removeprefix(prefix)) not in COSTS
        }
        return EvalPrediction(predictions=output.predictions, label_ids=output.label_ids), scores


def make_trainer(
    model: PreTrainedModel,
    training: TrainingArguments,
    task: Task,
    splits: Mapping[str, datasets.Dataset],
    encoded: Mapping[str, datasets.Dataset],
    arguments: FinetuneArguments,
) -> TaskTrainer:
    """A trainer of what `arguments` leaves to be trained of `model`."""
    resting = freeze(model, arguments.freeze)
    if arguments.lora is None:
        train_seen_rows(model, encoded["train"])
        adapted = model
    else:
        adapted = add_lora(model, arguments.lora)
    return TaskTrainer(
        adapted, training, task, splits, encoded, resting, arguments.layerwise_lr_decay, arguments.patience
    )


def score(
    model: PreTrainedModel,
    training: TrainingArguments,
    task: Task,
    splits: Mapping[str, datasets.Dataset],
    encoded: Mapping[str, datasets.Dataset],
) -> dict[str, tuple[EvalPrediction, Scores]]:
    """Predictions and metrics of `model` for every split that is not trained on."""
    trainer = TaskTrainer(model, _quiet(training), task, splits, encoded)
    return {name: trainer.score(name) for name in encoded if name != "train"}


def predict(model: PreTrainedModel, training: TrainingArguments, task: Task, unlabelled: datasets.Dataset) -> list[Any]:
    """What `model` predicts for rows without labels, see `Task.predicted`."""
    examples = task.read_unlabelled(unlabelled)
    trainer = TaskTrainer(model, _quiet(training), task, {}, {})
    trainer.compute_metrics = None  # the labels mean nothing
    output = trainer.predict(task.encode(examples, training=False))
    return task.predicted(EvalPrediction(predictions=output.predictions, label_ids=output.label_ids), examples)


def _quiet(training: TrainingArguments) -> TrainingArguments:
    """Nothing is loaded, saved or stopped with these."""
    return dataclasses.replace(training, eval_strategy="no", save_strategy="no", load_best_model_at_end=False)


def check_for_task(
    training: TrainingArguments,
    task: Task,
    splits: Mapping[str, datasets.Dataset],
    encoded: Mapping[str, datasets.Dataset],
) -> None:
    """Refuse training arguments that this task has no use for.

    Raises:
        ValueError: a metric that the task does not compute, or the wrong way round; smoothing of labels that are no
            classes.
    """
    metric, legal = training.metric_for_best_model, ["loss", *task.metric_names(splits["validation"])]
    if metric != "auto" and metric.removeprefix("eval_") not in legal:
        raise ValueError(
            f"metric_for_best_model: {metric!r} is not legal for {task.name}: {', '.join(legal)}, with or without eval_"
            " before it"
        )
    if metric == "auto" and training.greater_is_better is False:  # where nothing is said, it is true
        raise ValueError(
            f"greater_is_better: false is not legal for the task's own metric, {task.metric_for_best_model}; name"
            " another one with --metric_for_best_model"
        )
    labels = encoded["train"].features.get("labels")
    labels = getattr(labels, "feature", labels)  # of a list
    if training.label_smoothing_factor and (labels is None or not labels.dtype.startswith("int")):
        raise ValueError(
            f"label_smoothing_factor: {training.label_smoothing_factor} is not legal here: only the labels of classes"
            " can be smoothed"
        )


def precision_of(training: TrainingArguments) -> torch.dtype | None:
    """What matrices are multiplied in, if not in fp32."""
    return torch.bfloat16 if training.bf16 else torch.float16 if training.fp16 else None


@dataclass
class Run:
    """A task with its data, ready to be trained with any seed."""

    task: Task
    splits: datasets.DatasetDict
    encoded: dict[str, datasets.Dataset]
    arguments: FinetuneArguments
    training: TrainingArguments
    settings: dict[str, Any]  # what its results depend on
    unlabelled: datasets.Dataset | None = None  # the test split as it was given, if it has no labels

    def initial_model(self, seed: int) -> PreTrainedModel:
        """The model before training: the same for the same seed."""
        set_seed(seed)
        return load_model(self.arguments.model, type(self.task), self.task.config_fields())


def train(
    run: Run, model: PreTrainedModel, training: TrainingArguments, checkpoint: str | None = None
) -> tuple[PreTrainedModel, dict[str, Any], dict[str, EvalPrediction], TrainerState]:
    """Train `model` (in place, or merged back into it).

    Returns:
        the trained model; its report: metrics of every split but the training split, steps, time; and the predictions.
    """
    parameters = model.num_parameters()
    trainer = make_trainer(model, training, run.task, run.splits, run.encoded, run.arguments)
    counted = {"parameters": parameters, "trained_parameters": trainer.model.num_parameters(only_trainable=True)}
    result = trainer.train(resume_from_checkpoint=checkpoint)
    trained = trainer.model if run.arguments.lora is None else trainer.model.merge_and_unload()
    restore_embedding(trained)
    scored = score(trained, training, run.task, run.splits, run.encoded)
    report = {name: scores for name, (_, scores) in scored.items()} | {
        "best_step": _best_step(trainer.state.best_model_checkpoint) or trainer.state.global_step,
        "steps": trainer.state.global_step,
        "epochs": trainer.state.epoch,
        "training_seconds": result.metrics["train_runtime"],
        **counted,
    }
    return trained, report, {name: prediction for name, (prediction, _) in scored.items()}, trainer.state


def _best_step(checkpoint: str | None) -> int | None:
    return None if checkpoint is None else int(checkpoint.rsplit("-", 1)[1])
