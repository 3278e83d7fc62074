"""`Trainer` for a task: frozen parts that rest, layer-wise learning rates, metrics of any split."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import datasets
import torch
from torch import nn
from tqdm.auto import tqdm
from transformers import (
    EarlyStoppingCallback,
    EvalPrediction,
    PreTrainedModel,
    PrinterCallback,
    ProgressCallback,
    Trainer,
    TrainerCallback,
    TrainerState,
    TrainingArguments,
    set_seed,
)
from transformers.utils import logging

from ..arguments.finetuning import EvaluateArguments, FinetuneArguments
from ..callbacks import CheckpointManifest
from ..hub.card import COSTS
from ..precision import resolve_precision
from .freezing import add_lora, freeze, parameter_groups
from .models import load_model
from .tasks.base import Task
from .vocabulary import restore_embedding, train_seen_rows

Scores = dict[str, float]


@dataclass
class Run:
    """A task with its data, ready to be trained with any seed, or to be measured."""

    task: Task
    splits: datasets.DatasetDict  # as `Task.read` returned them
    encoded: dict[str, datasets.Dataset]  # the model inputs of each
    arguments: FinetuneArguments | EvaluateArguments
    training: TrainingArguments
    settings: dict[str, Any]  # what its results depend on
    unlabelled: datasets.Dataset | None = None  # the test split as it was given, if it has no labels

    def initial_model(self, seed: int) -> PreTrainedModel:
        """The model before training: the same for the same seed."""
        set_seed(seed)
        return load_model(self.arguments.model, type(self.task), self.task.config_fields())


class Trained(NamedTuple):
    """What a training comes to: `report` has the metrics of every split but the training split, steps and time."""

    model: PreTrainedModel
    report: dict[str, Any]
    predictions: dict[str, EvalPrediction]
    state: TrainerState


class TaskTrainer(Trainer):
    """Trains and evaluates a task; without splits, only predicts.

    Args:
        splits: as `Task.read` returned them; `encoded`: the model inputs of each.
        resting: modules that are kept in evaluation mode: without dropout.
        options: of `Trainer`.
    """

    def __init__(
        self,
        model: nn.Module,
        training: TrainingArguments,
        task: Task,
        splits: Mapping[str, datasets.Dataset] | None = None,
        encoded: Mapping[str, datasets.Dataset] | None = None,
        resting: Sequence[nn.Module] = (),
        **options: Any,
    ):
        if splits is not None:
            options |= {"train_dataset": encoded["train"], "eval_dataset": encoded["validation"]}
            options["compute_metrics"] = partial(task.compute_metrics, examples=splits["validation"])
        # What is pushed is the finished model, by the command; `Trainer` would create a repository right here.
        training = dataclasses.replace(training, push_to_hub=False)
        super().__init__(model, training, task.collator(), processing_class=task.tokenizer, **options)
        for printer in (PrinterCallback, ProgressCallback):
            self.remove_callback(printer)
        self.add_callback(CheckpointManifest())
        self.task, self.resting = task, resting

    def compute_loss(self, model, inputs, *args, **kwargs):
        for module in self.resting:
            module.eval()
        return super().compute_loss(model, inputs, *args, **kwargs)

    def prediction_step(self, model, inputs, *args, **kwargs):
        # Here, as `preprocess_logits_for_metrics` does not see the inputs.
        loss, logits, labels = super().prediction_step(model, inputs, *args, **kwargs)
        return loss, None if logits is None else self.task.preprocess_logits(logits, inputs), labels


class OneLineAnEvaluation(TrainerCallback):
    """Prints the losses and the task's metrics at each evaluation (without any: at the end of each epoch); in a
    terminal, a bar stands below."""

    def on_train_begin(self, args, state, control, **kwargs):
        self.losses: list[float] = []
        hidden = args.disable_tqdm or not state.is_world_process_zero or None  # None: unless this is a terminal
        self.bar = tqdm(total=state.max_steps, initial=state.global_step, disable=hidden, leave=False)

    def on_step_end(self, args, state, control, **kwargs):
        self.bar.update()

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.losses += [logs["loss"]] if "loss" in logs else []

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        found = {name.removeprefix("eval_"): value for name, value in (metrics or {}).items()}
        losses = {"training loss": sum(self.losses) / len(self.losses)} if self.losses else {}
        losses |= {"validation loss": found.pop("loss")} if "loss" in found else {}
        shown = losses | {name: value for name, value in headlines(found).items() if name not in {*COSTS, "epoch"}}
        self.losses = []
        if state.is_world_process_zero:
            figures = [f"{name} {value:.4f}" for name, value in shown.items()]
            tqdm.write(", ".join([f"epoch {state.epoch:.2f}: step {state.global_step} of {state.max_steps}", *figures]))

    def on_epoch_end(self, args, state, control, **kwargs):
        if args.eval_strategy == "no":
            self.on_evaluate(args, state, control)

    def on_train_end(self, args, state, control, **kwargs):
        self.bar.close()


def headlines(scores: Mapping[str, float]) -> Scores:
    """The metrics without parts of another one: beside f1, no f1_PER."""
    return {name: value for name, value in scores.items() if not any(name.startswith(f"{whole}_") for whole in scores)}


@contextmanager
def without_loading_bars():
    """While data sets and models are loaded: bars that are over at once would bury what is printed."""
    of_datasets, of_models = not datasets.are_progress_bars_disabled(), logging.is_progress_bar_enabled()
    datasets.disable_progress_bars()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if of_datasets:
            datasets.enable_progress_bars()
        if of_models:
            logging.enable_progress_bar()


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
    metric, known = training.metric_for_best_model, ["loss", *task.metric_names(splits["validation"])]
    if metric != "auto" and metric.removeprefix("eval_") not in known:
        listed = f"{', '.join(known)}, with or without eval_ before it"
        raise ValueError(f"metric_for_best_model: {metric!r} is no metric of {task.name}; use one of {listed}")
    if metric == "auto" and training.greater_is_better is False:  # where nothing is said, it is true
        own = task.metric_for_best_model
        raise ValueError(f"greater_is_better: false contradicts {own}; name another --metric_for_best_model")
    labels = encoded["train"].features.get("labels")
    labels, smoothing = getattr(labels, "feature", labels), training.label_smoothing_factor  # the feature of a list
    if smoothing and (labels is None or not labels.dtype.startswith("int")):
        raise ValueError(f"label_smoothing_factor: {smoothing} needs labels of classes; leave it out")


def resolve_training(training: TrainingArguments, task: Task) -> TrainingArguments:
    """The arguments with what the user left open: the metric to choose by, the number format."""
    if training.metric_for_best_model == "auto":
        training = dataclasses.replace(
            training, metric_for_best_model=task.metric_for_best_model, greater_is_better=task.greater_is_better
        )
    elif training.metric_for_best_model in ("mse", "eval_mse"):  # Transformers knows this of "loss" only
        training = dataclasses.replace(training, greater_is_better=False)
    # Counting tokens is for pretraining, unless it is asked for.
    counted = training.include_num_input_tokens_seen
    return dataclasses.replace(resolve_precision(training), include_num_input_tokens_seen=counted)


def make_trainer(run: Run, model: PreTrainedModel, training: TrainingArguments) -> TaskTrainer:
    """A trainer of what the arguments leave to be trained of `model`."""
    arguments, callbacks, optimizer = run.arguments, [OneLineAnEvaluation()], None
    resting = freeze(model, arguments.freeze)
    if arguments.lora is not None:
        model = add_lora(model, arguments.lora)
    else:
        train_seen_rows(model, run.encoded["train"])
    if arguments.layerwise_lr_decay < 1:
        decayed = Trainer.get_decay_parameter_names(None, model)
        rates = training.learning_rate, training.weight_decay, arguments.layerwise_lr_decay
        kind, options = Trainer.get_optimizer_cls_and_kwargs(training, model)
        optimizer = kind, {**options, "params": parameter_groups(model, decayed, *rates)}
    if arguments.patience and training.eval_strategy != "no" and training.load_best_model_at_end:
        callbacks.append(EarlyStoppingCallback(arguments.patience))
    options = {"optimizer_cls_and_kwargs": optimizer, "callbacks": callbacks}
    return TaskTrainer(model, training, run.task, run.splits, run.encoded, resting, **options)


def train(run: Run, model: PreTrainedModel, training: TrainingArguments, checkpoint: str | None = None) -> Trained:
    """Train `model` (in place, or merged back into it), and measure it."""
    counts = {"parameters": model.num_parameters()}
    trainer = make_trainer(run, model, training)
    counts["trained_parameters"] = trainer.model.num_parameters(only_trainable=True)
    seconds = trainer.train(resume_from_checkpoint=checkpoint).metrics["train_runtime"]
    trained = trainer.model if run.arguments.lora is None else trainer.model.merge_and_unload()
    restore_embedding(trained)
    scored, state = score(trained, training, run.task, run.splits, run.encoded), trainer.state
    report = {name: scores for name, (_, scores) in scored.items()} | {
        "best_step": state.best_global_step if state.best_model_checkpoint else state.global_step,
        "steps": state.global_step,
        "epochs": state.epoch,
        "training_seconds": seconds,
        **counts,
    }
    return Trained(trained, report, {name: prediction for name, (prediction, _) in scored.items()}, state)


def score(
    model: PreTrainedModel,
    training: TrainingArguments,
    task: Task,
    splits: Mapping[str, datasets.Dataset],
    encoded: Mapping[str, datasets.Dataset],
) -> dict[str, tuple[EvalPrediction, Scores]]:
    """Predictions, and metrics with the loss, of `model` for every split that is not trained on."""
    scored = {}
    for name in encoded:
        if name != "train":
            prediction, loss = _predict(model, training, task, encoded[name])
            scored[name] = prediction, {**task.compute_metrics(prediction, splits[name]), "loss": loss}
    return scored


def predict(model: PreTrainedModel, training: TrainingArguments, task: Task, unlabelled: datasets.Dataset) -> list[Any]:
    """What `model` predicts for rows without labels, see `Task.predicted`."""
    examples = task.read_unlabelled(unlabelled)
    return task.predicted(_predict(model, training, task, task.encode(examples, training=False))[0], examples)


def _predict(
    model: PreTrainedModel, training: TrainingArguments, task: Task, encoded: datasets.Dataset
) -> tuple[EvalPrediction, float]:
    quiet = dataclasses.replace(training, eval_strategy="no", save_strategy="no", load_best_model_at_end=False)
    output = TaskTrainer(model, quiet, task).predict(encoded)
    return EvalPrediction(output.predictions, output.label_ids), output.metrics["test_loss"]


def precision_of(training: TrainingArguments) -> torch.dtype | None:
    """What matrices are multiplied in, if not in fp32."""
    return torch.bfloat16 if training.bf16 else torch.float16 if training.fp16 else None


def training_batches(trainer: TaskTrainer, number: int) -> list[dict[str, torch.Tensor]]:
    """The first batches of the training data, over as many epochs as it takes, on the device."""
    set_seed(trainer.args.seed)
    found: list[dict[str, torch.Tensor]] = []
    loader = trainer.get_train_dataloader()
    while len(found) < number:
        for batch, _ in zip(loader, range(number - len(found))):
            found.append({name: value.to(trainer.args.device) for name, value in batch.items()})
    return found


def seconds_of_steps(trainer: TaskTrainer, batches: Sequence[dict[str, torch.Tensor]]) -> float:
    """Seconds for a training step (forward, backward, clipping, optimizer) with each batch."""
    model, device, dtype = trainer.model, trainer.args.device, precision_of(trainer.args)
    synchronize = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    if trainer.optimizer is None:
        trainer.create_optimizer()
    model.train()
    synchronize()
    start = time.perf_counter()
    for batch in batches:
        with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
            loss = trainer.compute_loss(model, dict(batch))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), trainer.args.max_grad_norm)
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()
    synchronize()
    return time.perf_counter() - start
