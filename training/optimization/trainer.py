"""The optimizer, the schedule, growing batches and averaged weights in a `Trainer`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
from transformers import ProgressCallback, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from ..arguments.pretraining import OptimizationArguments
from .averaging import WeightAverage
from .clock import ExpectedSteps, TimeBudget
from .muon import muon_optimizer, require_muon
from .schedule import check_shares, decay_of, is_warmup_stable_decay, rows_in_batch, schedule_arguments

# With a budget of time `Trainer` needs a number of steps that it never reaches.
ENDLESS = 10**9


def check_optimization(
    optimization: OptimizationArguments,
    training: TrainingArguments,
    defaults: Mapping[str, Any],
    checkpoint: str | None = None,
) -> TrainingArguments:
    """Refuse, before any work, what does not go together, and settle how long the training is.

    Args:
        training: `num_train_epochs` and `per_device_train_batch_size` are None where the user gave none.
        defaults: what they are then; with `--minutes` the batch size stays open (`throughput.plan_training`).
        checkpoint: the one that is resumed.

    Raises:
        ValueError: naming the argument.
    """
    if optimization.optimizer == "muon":
        require_muon()
        if training.fsdp or training.deepspeed:
            raise ValueError("optimizer: muon needs whole matrices, which fsdp and deepspeed cut up; legal: adamw")
        if training.optim not in ("adamw_torch_fused", "adamw_torch"):
            raise ValueError(f"optimizer: muon and --optim {training.optim.value} are two optimizers; give one of them")
    elif optimization.muon_learning_rate is not None:
        raise ValueError("muon_learning_rate: needs --optimizer muon")
    if optimization.muon_learning_rate is not None and not optimization.muon_learning_rate > 0:
        raise ValueError(f"muon_learning_rate: {optimization.muon_learning_rate} is not legal: above 0")
    if optimization.weight_average is not None and not 0 < optimization.weight_average < 1:
        raise ValueError(f"weight_average: {optimization.weight_average} is no decay; legal: above 0, below 1")
    _check_batch_warmup(optimization, training)
    if optimization.minutes is not None or is_warmup_stable_decay(training):
        check_shares(training)

    if checkpoint is not None and optimization.minutes is None and TimeBudget.saved_in(checkpoint):
        raise ValueError(
            f"resume_from_checkpoint: {checkpoint!r} is of a training by the clock; give its --minutes too"
        )
    if optimization.minutes is None:
        unsaid = {name: default for name, default in defaults.items() if getattr(training, name) is None}
        return dataclasses.replace(training, **unsaid)

    _check_minutes(optimization, training)
    return dataclasses.replace(
        training,
        max_steps=ENDLESS,
        num_train_epochs=defaults["num_train_epochs"],
        lr_scheduler_type="warmup_stable_decay",
    )


def _check_batch_warmup(optimization: OptimizationArguments, training: TrainingArguments) -> None:
    warmup = optimization.batch_warmup
    if not warmup >= 0:
        raise ValueError(f"batch_warmup: {warmup} is not legal: 0 (none), a share below 1, or steps")
    if warmup >= 1 and optimization.minutes is not None:
        raise ValueError(f"batch_warmup: {warmup:g} steps do not go with --minutes; legal: a share below 1")
    if warmup > training.max_steps > 0:
        raise ValueError(
            f"batch_warmup: {warmup:g} steps are more than the training has, max_steps={training.max_steps}"
        )
    if warmup and training.per_device_train_batch_size == 1:
        raise ValueError("batch_warmup: a batch of one row cannot grow; raise --per_device_train_batch_size")


def _check_minutes(optimization: OptimizationArguments, training: TrainingArguments) -> None:
    if not 0 < optimization.minutes < math.inf:
        raise ValueError(f"minutes: {optimization.minutes} is no time to train in; legal: above 0")
    for name, given in (
        ("max_steps", training.max_steps > 0),
        ("num_train_epochs", training.num_train_epochs is not None),
    ):
        if given:
            raise ValueError(f"minutes: --{name} says how long the training is, too; give one of them")
    if training.lr_scheduler_type != "linear" and not is_warmup_stable_decay(training):
        raise ValueError(
            f"minutes: they come with a warmup_stable_decay of their own; lr_scheduler_type"
            f" {training.lr_scheduler_type.value} does not go with them, leave it out"
        )
    if training.warmup_steps >= 1:
        raise ValueError(f"warmup_steps: {training.warmup_steps} does not go with --minutes; legal: a share below 1")
    others = set(training.lr_scheduler_kwargs or {}) - {"num_decay_steps"}
    if others or decay_of(training) >= 1:
        raise ValueError(
            f"lr_scheduler_kwargs: {training.lr_scheduler_kwargs} does not go with --minutes; legal: num_decay_steps, a"
            " share below 1"
        )


def time_budget(
    optimization: OptimizationArguments, training: TrainingArguments, checkpoint: str | None = None
) -> TimeBudget | None:
    """The budget that `--minutes` means, its clock started (or gone on with, from a checkpoint); None without."""
    if optimization.minutes is None:
        return None
    budget = TimeBudget(optimization.minutes, training.warmup_steps, decay_of(training))
    if checkpoint is not None:
        budget.resume(checkpoint)
    return budget


class OptimizationMixin:
    """For a `Trainer`: `class MyTrainer(OptimizationMixin, Trainer)`.

    - `optimizer="muon"`; everything else is `Trainer`'s own (`--optim`).
    - `lr_scheduler_type="warmup_stable_decay"` with a 1-sqrt tail over a share of the steps, or, with a budget, the
      schedule that the clock lays.
    - Batch warmup: the first steps take only some rows of each batch. The number of steps and the order of the rows
      stay as they are, and how many rows a step takes depends on nothing but how far training is: whatever the number
      of workers and ranks, and after a resumption.
    - Averaged weights: they are in the model whenever it is evaluated or saved, and for good once training is over
      (unless `load_best_model_at_end` put others there, an average as well). A checkpoint has the weights that are
      trained beside them.

    Args:
        optimization: what the user asked for.
        budget: of `--minutes`, see `time_budget`.
    """

    def __init__(
        self,
        *args,
        optimization: OptimizationArguments | None = None,
        budget: TimeBudget | None = None,
        **kwargs,
    ):
        if budget is not None:  # `Trainer` adds the progress bar, which reads what the budget says, behind these
            kwargs["callbacks"] = [*(kwargs.get("callbacks") or []), budget]
        super().__init__(*args, **kwargs)
        self.optimization = optimization or OptimizationArguments()
        self.budget = budget
        self.weight_average: WeightAverage | None = None  # while training
        if budget is not None and self.pop_callback(ProgressCallback):
            self.add_callback(ExpectedSteps)
        if self.optimization.weight_average is not None:
            self.add_callback(_Averaging(self))

    def train(self, resume_from_checkpoint=None, *args, **kwargs):
        self._resumed = (
            get_last_checkpoint(self.args.output_dir) if resume_from_checkpoint is True else resume_from_checkpoint
        )
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def create_optimizer(self, *args, **kwargs) -> torch.optim.Optimizer:
        if self.optimizer is None and self.optimization.optimizer == "muon":
            self.optimizer = muon_optimizer(
                self.model,
                self.get_decay_parameter_names(self.model),
                learning_rate=self.args.learning_rate,
                muon_learning_rate=self.optimization.muon_learning_rate,
                weight_decay=self.args.weight_decay,
                betas=(self.args.adam_beta1, self.args.adam_beta2),
                eps=self.args.adam_epsilon,
            )
        return super().create_optimizer(*args, **kwargs)

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None):
        if self.optimization.batch_warmup > num_training_steps:
            raise ValueError(
                f"batch_warmup: {self.optimization.batch_warmup:g} steps are more than the {num_training_steps} of this"
                " training; legal: at most as many, or a share below 1"
            )
        if self.budget is not None:
            self.budget.begin()
            self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
                optimizer or self.optimizer, lambda step: self.budget.factor
            )
            return self.lr_scheduler
        if not is_warmup_stable_decay(self.args):
            return super().create_scheduler(num_training_steps, optimizer)
        given = self.args.lr_scheduler_kwargs
        self.args.lr_scheduler_kwargs = schedule_arguments(self.args, num_training_steps)
        try:
            return super().create_scheduler(num_training_steps, optimizer)
        finally:
            self.args.lr_scheduler_kwargs = given

    def get_batch_samples(self, epoch_iterator, *args, **kwargs):
        warmed = self._batch_warmed()
        if warmed < 1:
            full = self.args.train_batch_size
            rows = rows_in_batch(full, warmed)
            epoch_iterator = ({name: column[:rows] for name, column in batch.items()} for batch in epoch_iterator)
        return super().get_batch_samples(epoch_iterator, *args, **kwargs)

    def _batch_warmed(self) -> float:
        """How much of the batch warmup is over, before the next step."""
        warmup = self.optimization.batch_warmup
        if not warmup:
            return 1.0
        if warmup >= 1:
            return self.state.global_step / warmup
        done = self.budget.progress if self.budget else self.state.global_step / self.state.max_steps
        return done / warmup

    def log(self, logs, *args, **kwargs):
        if self.budget is not None:
            logs.pop("train_samples_per_second", None)  # reckoned from a number of steps that is never reached
        super().log(logs, *args, **kwargs)

    def evaluate(self, *args, **kwargs):
        with self._averaged():
            return super().evaluate(*args, **kwargs)

    def save_model(self, output_dir: str | None = None, *args, **kwargs):
        with self._averaged():
            super().save_model(output_dir, *args, **kwargs)
        if self.weight_average is not None and self.args.should_save:
            self.weight_average.save(output_dir or self.args.output_dir)

    def _averaged(self):
        return nullcontext() if self.weight_average is None else self.weight_average.in_model()


class _Averaging(TrainerCallback):
    """Keeps the `weight_average` of a trainer."""

    def __init__(self, trainer: OptimizationMixin):
        self.trainer = trainer

    def on_train_begin(self, args, state, control, **kwargs):
        trainer = self.trainer
        trainer.weight_average = WeightAverage(trainer.model, trainer.optimization.weight_average)
        if trainer._resumed:
            trainer.weight_average.resume(trainer._resumed)

    def on_step_end(self, args, state, control, **kwargs):
        self.trainer.weight_average.update(state.global_step)

    def on_train_end(self, args, state, control, **kwargs):
        average, self.trainer.weight_average = self.trainer.weight_average, None
        if not (args.load_best_model_at_end and state.best_model_checkpoint is not None):
            average.copy_to_model()


__all__ = ["OptimizationMixin", "check_optimization", "time_budget"]
