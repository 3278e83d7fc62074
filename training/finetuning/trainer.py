"""`Trainer` for a task: frozen parts that rest, layer-wise learning rates, metrics of any split."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import Any, NamedTuple

import datasets
import torch
from torch.utils.data import SequentialSampler
from transformers import PreTrainedModel, Trainer, TrainerState, TrainingArguments, set_seed

from ..arguments.finetuning import DataArguments, EvaluateArguments, FinetuneArguments
from ..callbacks import AGAIN, CheckpointErrors, EarlyStopping, SettingsState, add_callbacks, steps_of
from ..checkpoints import best_by, kept_step
from ..precision import now, resolve_precision
from .freezing import add_lora, freeze, parameter_groups, restore_embedding, train_seen_rows
from .models import load_model
from .tasks.base import Predictions, Task

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
    blank: datasets.Dataset | None = None  # the same as `Task.read_unlabelled` returned it

    @property
    def resume_settings(self) -> dict[str, Any]:
        """What may not be another when a training is resumed: rows, labels, the model and its parts."""
        kinds = type(self.task.arguments), DataArguments
        names = {field.name for kind in kinds for field in dataclasses.fields(kind)}
        names |= {"model", "freeze", "lora", "layerwise_lr_decay", "text"}
        kept = {name: value for name, value in self.settings.items() if name in names}
        rows = {name: len(split) for name, split in self.splits.items()}
        return steps_of(self.training) | kept | {"labels": list(self.task.labels), "rows": rows}

    def initial_model(self) -> PreTrainedModel:
        """The model before training: the same for the same seed."""
        set_seed(self.training.seed)
        return load_model(self.arguments.model, type(self.task), self.task.config_fields())

    def replace(self, **training: Any) -> Run:
        return dataclasses.replace(self, training=dataclasses.replace(self.training, **training))


class Trained(NamedTuple):
    """What a training comes to; `report` has the metrics of every split but the training split, steps and time."""

    model: PreTrainedModel
    report: dict[str, Any]
    predictions: dict[str, Predictions]
    state: TrainerState


class TaskTrainer(CheckpointErrors, Trainer):
    """Trains, where it `trains`, what the arguments of a run leave to be trained of `model`; and evaluates the task."""

    def __init__(self, run: Run, model: PreTrainedModel, trains: bool = False):
        # What is pushed is the finished model, by the command; `Trainer` would create a repository right here.
        training = dataclasses.replace(run.training, push_to_hub=False)
        arguments, task, options = run.arguments, run.task, {}
        self.task, self.resting = task, freeze(model, arguments.freeze) if trains else []
        if trains:
            rows = run.splits["validation"], run.encoded["validation"]

            def measured(output: Any) -> Scores:
                """Without metrics that are not defined for these rows, which nothing can be chosen by."""
                scores = task.compute_metrics(Predictions(*rows, output.predictions))
                return {name: score for name, score in scores.items() if score is not None}

            options["compute_metrics"] = measured
            if arguments.lora is not None:
                model = add_lora(model, arguments.lora)
            else:
                train_seen_rows(model, run.encoded["train"].select_columns("input_ids"))
            if arguments.layerwise_lr_decay < 1:
                kind, keywords = self.get_optimizer_cls_and_kwargs(training, model)
                keywords["params"] = parameter_groups(model, training, arguments.layerwise_lr_decay)
                options["optimizer_cls_and_kwargs"] = kind, keywords
            if arguments.seeds and arguments.seeds > 1:
                self.advice = f"{AGAIN} (several seeds cannot be resumed)"
            options["callbacks"] = [SettingsState(run.resume_settings)]
            if arguments.patience and training.eval_strategy != "no" and training.load_best_model_at_end:
                options["callbacks"].append(EarlyStopping(arguments.patience))
        options["train_dataset"] = run.encoded.get("train")
        options["eval_dataset"] = run.encoded.get("validation", run.encoded.get("test"))
        collator = task.collator_class(task.tokenizer)
        super().__init__(model, training, collator, processing_class=task.tokenizer, **options)
        add_callbacks(self)

    def _get_eval_sampler(self, eval_dataset):
        # Predictions are known by their place; `train_sampling_strategy` would order these rows as well.
        return SequentialSampler(eval_dataset)

    def _get_num_items_in_batch(self, batch_samples, device):
        labels = [batch.get("labels") for batch in batch_samples]
        if labels and labels[0] is not None and labels[0].is_floating_point():
            # `Trainer` leaves out labels of -100, which of values is one like any other.
            batch_samples = [{"labels": torch.zeros_like(values)} for values in labels]
        return super()._get_num_items_in_batch(batch_samples, device)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        for module in self.resting:
            module.eval()
        smoother = self.label_smoother
        if not model.training:
            # `Trainer` weighs the losses of ranks by rows: what it counts is not to be of other ranks. And it smooths
            # what is held out as well, whose loss would then not be the one of `minibert evaluate`.
            num_items_in_batch = self.label_smoother = None
        try:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        finally:
            self.label_smoother = smoother

    def prediction_step(self, model, inputs, *args, **kwargs):
        loss, logits, labels = super().prediction_step(model, inputs, *args, **kwargs)
        ending = self.accelerator.gradient_state  # where in its batches the evaluation is
        if loss is not None and self.args.world_size > 1 and ending.end_of_dataloader and ending.remainder > 0:
            # The last batches of all ranks are filled up with rows of the first: `Trainer` drops their predictions, and
            # as many copies of the loss, which must not be of them. (Models that are split among ranks go in step.)
            count = max(ending.remainder - self.args.process_index * self.args.eval_batch_size, 1)
            own = {name: column[:count] for name, column in inputs.items()}
            loss = super().prediction_step(model, own, True)[0]
        for part in logits if isinstance(logits, tuple) else () if logits is None else (logits,):
            if not part.isfinite().all():  # the best class of such numbers would still be one
                where = "its weights may be NaN; use another one" if self.state.global_step == 0 else "it diverged"
                raise ValueError(f"model: its outputs are not finite numbers (NaN or infinite): {where}")
        # Here, as `preprocess_logits_for_metrics` does not see the inputs.
        return loss, None if logits is None else self.task.preprocess_logits(logits, inputs), labels


def resolve_training(run: Run) -> None:
    """Decide what the training arguments leave open: the metric to choose by, the number format. A ValueError if the
    task has no use for one: a metric that it does not compute; smoothing of labels that are no classes."""
    task, training = run.task, run.training
    decided: dict[str, Any] = {}
    if "train" in run.encoded:
        known = ["loss", *task.metric_names(run.splits["validation"])]
        decided = best_by(training, task.metric_for_best_model, known)
        labels = run.encoded["train"].features.get("labels")
        labels, smoothing = getattr(labels, "feature", labels), training.label_smoothing_factor  # the feature of a list
        if smoothing and (labels is None or not labels.dtype.startswith("int")):
            raise ValueError(f"label_smoothing_factor: {smoothing} needs labels of classes; leave it out")
    run.training = dataclasses.replace(resolve_precision(training), **decided)


def train(run: Run, model: PreTrainedModel, checkpoint: str | None = None) -> Trained:
    """Train `model` (in place, or merged back into it), and measure it."""
    if checkpoint is not None:
        SettingsState(run.resume_settings).check(checkpoint)
    parameters = model.num_parameters()
    trainer = TaskTrainer(run, model, trains=True)
    trained_parameters = trainer.model.num_parameters(only_trainable=True)
    result = trainer.train(resume_from_checkpoint=checkpoint)
    seconds = result.metrics["train_runtime"] if checkpoint is None else None  # it counts from the resumption
    trained = trainer.model if run.arguments.lora is None else trainer.model.merge_and_unload()
    restore_embedding(trained)
    trained.requires_grad_(True)  # as the saved one is
    (predictions, scores), state = score(run, trained), trainer.state
    report = scores | {
        "best_step": kept_step(vars(state), run.training.load_best_model_at_end),
        "steps": state.global_step,
        "epochs": state.epoch,
        "training_seconds": seconds,
        "parameters": parameters,
        "trained_parameters": trained_parameters,
    }
    return Trained(trained, report, predictions, state)


def score(run: Run, model: PreTrainedModel) -> tuple[dict[str, Predictions], dict[str, Scores]]:
    """Predictions, and metrics with the loss, of `model` for every split that is not trained on."""
    predictions, scores = {}, {}
    for name in run.encoded:
        if name != "train":
            output = TaskTrainer(run, model).predict(run.encoded[name])
            predictions[name] = Predictions(run.splits[name], run.encoded[name], output.predictions)
            scores[name] = {**run.task.compute_metrics(predictions[name]), "loss": output.metrics["test_loss"]}
    return predictions, scores


def predict(run: Run, model: PreTrainedModel) -> list[Any] | None:
    """What `model` predicts for the test rows without labels, as a person reads it; None if there are none."""
    if run.blank is None:
        return None
    encoded = run.task.encode(run.blank, training=False)
    said = Predictions(run.blank, encoded, TaskTrainer(run, model).predict(encoded).predictions)
    return [run.task.readable(label) for label in run.task.decode(said)]


def training_batches(trainer: TaskTrainer, number: int) -> list[dict[str, torch.Tensor]]:
    """The first batches of the training data, over as many epochs as it takes, on the device."""
    set_seed(trainer.args.seed)
    return list(islice(chain.from_iterable(repeat(trainer.get_train_dataloader())), number))


def seconds_of_steps(trainer: TaskTrainer, batches: Sequence[dict[str, torch.Tensor]]) -> float:
    """Seconds for a training step (forward, backward, clipping, optimizer) with each batch."""
    model = trainer.model
    if trainer.optimizer is None:
        trainer.create_optimizer()
    model.train()
    start = now(trainer.args.device)
    for batch in batches:
        with trainer.accelerator.autocast():
            loss = trainer.compute_loss(model, dict(batch))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), trainer.args.max_grad_norm)
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()
    return now(trainer.args.device) - start
