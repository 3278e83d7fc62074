"""`Trainer` for a task: frozen parts that rest, layer-wise learning rates, metrics of any split."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
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
    Trainer,
    TrainerState,
    TrainingArguments,
    set_seed,
)

from ..arguments.finetuning import EvaluateArguments, FinetuneArguments
from ..callbacks import ConsoleLog, add_callbacks
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

    def initial_model(self) -> PreTrainedModel:
        """The model before training: the same for the same seed."""
        set_seed(self.training.seed)
        return load_model(self.arguments.model, type(self.task), self.task.config_fields())

    def replace(self, **training: Any) -> Run:
        """The same with other training arguments."""
        return dataclasses.replace(self, training=dataclasses.replace(self.training, **training))


class Trained(NamedTuple):
    """What a training comes to: `report` has the metrics of every split but the training split, steps and time."""

    model: PreTrainedModel
    report: dict[str, Any]
    predictions: dict[str, EvalPrediction]
    state: TrainerState


class TaskTrainer(Trainer):
    """Trains and evaluates the task of a run.

    Args:
        resting: modules that are kept in evaluation mode: without dropout.
        options: of `Trainer`.
    """

    def __init__(self, run: Run, model: nn.Module, resting: Sequence[nn.Module] = (), **options: Any):
        # What is pushed is the finished model, by the command; `Trainer` would create a repository right here.
        training = dataclasses.replace(run.training, push_to_hub=False)
        options["train_dataset"] = run.encoded.get("train")
        options["eval_dataset"] = run.encoded.get("validation", run.encoded.get("test"))
        collator = run.task.collator_class(run.task.tokenizer)
        super().__init__(model, training, collator, processing_class=run.task.tokenizer, **options)
        add_callbacks(self, EvaluationLog())
        self.task, self.resting = run.task, resting

    def compute_loss(self, model, inputs, *args, **kwargs):
        for module in self.resting:
            module.eval()
        return super().compute_loss(model, inputs, *args, **kwargs)

    def prediction_step(self, model, inputs, *args, **kwargs):
        # Here, as `preprocess_logits_for_metrics` does not see the inputs.
        loss, logits, labels = super().prediction_step(model, inputs, *args, **kwargs)
        return loss, None if logits is None else self.task.preprocess_logits(logits, inputs), labels


class EvaluationLog(ConsoleLog):
    """Prints the losses and the task's metrics at each evaluation (without any: at the end of each epoch)."""

    def on_train_begin(self, args, state, control, **kwargs):
        super().on_train_begin(args, state, control, **kwargs)
        self.losses: list[float] = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.losses += [logs["loss"]] if "loss" in logs else []

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        super().on_evaluate(args, state, control, **kwargs)
        found = {name.removeprefix("eval_"): value for name, value in (metrics or {}).items()}
        losses = {"training loss": sum(self.losses) / len(self.losses)} if self.losses else {}
        losses |= {"validation loss": found.pop("loss")} if "loss" in found else {}
        shown = losses | {  # without parts of another one: beside f1, no f1_PER
            name: value
            for name, value in found.items()
            if name not in {*COSTS, "epoch"} and not any(name.startswith(f"{whole}_") for whole in found)
        }
        self.losses = []
        if state.is_world_process_zero:
            figures = [f"{name} {value:.4f}" for name, value in shown.items()]
            tqdm.write(", ".join([f"epoch {state.epoch:.2f}: step {state.global_step} of {state.max_steps}", *figures]))

    def on_epoch_end(self, args, state, control, **kwargs):
        if args.eval_strategy == "no":
            self.on_evaluate(args, state, control)


def check_for_task(run: Run) -> None:
    """Refuse (a ValueError) training arguments that the task has no use for: a metric that it does not compute, or the
    wrong way round; smoothing of labels that are no classes."""
    task, training = run.task, run.training
    metric, known = training.metric_for_best_model, ["loss", *task.metric_names(run.splits["validation"])]
    if metric != "auto" and metric.removeprefix("eval_") not in known:
        listed = f"{', '.join(known)}, with or without eval_ before it"
        raise ValueError(f"metric_for_best_model: {metric!r} is no metric of {task.name}; use one of {listed}")
    if metric == "auto" and training.greater_is_better is False:  # where nothing is said, it is true
        own = task.metric_for_best_model
        raise ValueError(f"greater_is_better: false contradicts {own}; name another --metric_for_best_model")
    labels = run.encoded["train"].features.get("labels")
    labels, smoothing = getattr(labels, "feature", labels), training.label_smoothing_factor  # the feature of a list
    if smoothing and (labels is None or not labels.dtype.startswith("int")):
        raise ValueError(f"label_smoothing_factor: {smoothing} needs labels of classes; leave it out")


def resolve_training(training: TrainingArguments, task: Task) -> TrainingArguments:
    """The arguments with what the user left open: the metric to choose by, the number format."""
    # Counting tokens is for pretraining, unless it is asked for.
    decided: dict[str, Any] = {"include_num_input_tokens_seen": training.include_num_input_tokens_seen}
    if training.metric_for_best_model == "auto":
        decided |= {"metric_for_best_model": task.metric_for_best_model, "greater_is_better": True}
    elif training.metric_for_best_model in ("mse", "eval_mse"):  # Transformers knows this of "loss" only
        decided["greater_is_better"] = False
    return dataclasses.replace(resolve_precision(training), **decided)


def make_trainer(run: Run, model: PreTrainedModel) -> TaskTrainer:
    """A trainer of what the arguments leave to be trained of `model`."""
    arguments, training = run.arguments, run.training
    options: dict[str, Any] = {"compute_metrics": partial(run.task.compute_metrics, examples=run.splits["validation"])}
    resting = freeze(model, arguments.freeze)
    if arguments.lora is not None:
        model = add_lora(model, arguments.lora)
    else:
        train_seen_rows(model, run.encoded["train"])
    if arguments.layerwise_lr_decay < 1:
        kind, keywords = Trainer.get_optimizer_cls_and_kwargs(training, model)
        groups = parameter_groups(model, training.learning_rate, training.weight_decay, arguments.layerwise_lr_decay)
        options["optimizer_cls_and_kwargs"] = kind, {**keywords, "params": groups}
    if arguments.patience and training.eval_strategy != "no" and training.load_best_model_at_end:
        options["callbacks"] = [EarlyStoppingCallback(arguments.patience)]
    return TaskTrainer(run, model, resting, **options)


def train(run: Run, model: PreTrainedModel, checkpoint: str | None = None) -> Trained:
    """Train `model` (in place, or merged back into it), and measure it."""
    parameters = model.num_parameters()
    trainer = make_trainer(run, model)
    trained_parameters = trainer.model.num_parameters(only_trainable=True)
    seconds = trainer.train(resume_from_checkpoint=checkpoint).metrics["train_runtime"]
    trained = trainer.model if run.arguments.lora is None else trainer.model.merge_and_unload()
    restore_embedding(trained)
    scored, state = score(run, trained), trainer.state
    report = {name: scores for name, (_, scores) in scored.items()} | {
        "best_step": state.best_global_step if state.best_model_checkpoint else state.global_step,
        "steps": state.global_step,
        "epochs": state.epoch,
        "training_seconds": seconds,
        "parameters": parameters,
        "trained_parameters": trained_parameters,
    }
    return Trained(trained, report, {name: prediction for name, (prediction, _) in scored.items()}, state)


def score(run: Run, model: PreTrainedModel) -> dict[str, tuple[EvalPrediction, Scores]]:
    """Predictions, and metrics with the loss, of `model` for every split that is not trained on."""
    scored = {}
    for name in (name for name in run.encoded if name != "train"):
        output = TaskTrainer(run, model).predict(run.encoded[name])
        prediction = EvalPrediction(output.predictions, output.label_ids)
        scores = run.task.compute_metrics(prediction, run.splits[name])
        scored[name] = prediction, {**scores, "loss": output.metrics["test_loss"]}
    return scored


def predict(run: Run, model: PreTrainedModel) -> list[Any] | None:
    """What `model` predicts for the test rows without labels, see `Task.predicted`; None if there are none."""
    if run.unlabelled is None:
        return None
    examples = run.task.read_unlabelled(run.unlabelled)
    output = TaskTrainer(run, model).predict(run.task.encode(examples, training=False))
    return run.task.predicted(EvalPrediction(output.predictions, output.label_ids), examples)


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
    model = trainer.model
    synchronize = torch.cuda.synchronize if trainer.args.device.type == "cuda" else lambda: None
    if trainer.optimizer is None:
        trainer.create_optimizer()
    model.train()
    synchronize()
    start = time.perf_counter()
    for batch in batches:
        with trainer.accelerator.autocast():
            loss = trainer.compute_loss(model, dict(batch))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), trainer.args.max_grad_norm)
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()
    synchronize()
    return time.perf_counter() - start
