"""The optimizer, the schedule, growing batches and averaged weights in a `Trainer`."""

import dataclasses
from contextlib import nullcontext

import torch
from transformers import TrainingArguments
from transformers.optimization import get_wsd_schedule

from ..arguments import decide
from ..arguments import pretraining as arguments
from ..processes import shares_weights
from .averaging import WeightAverage
from .clock import TimeBudget
from .muon import muon_optimizer
from .schedule import decay_of, rows_in_batch, schedule_arguments

WARMUP_STABLE_DECAY = "warmup_stable_decay"
ADAMW = ("adamw_torch_fused", "adamw_torch")  # what Muon can stand beside


def resolve_optimization(
    optimization: arguments.OptimizationArguments,
    training: TrainingArguments,
    prefers_muon: bool = False,
    checkpoint: str | None = None,
) -> tuple[arguments.OptimizationArguments, TrainingArguments, TimeBudget | None]:
    """Decide the optimizer, its learning rates and how long the training is, where the user left them open; a
    ValueError, before any work, for what does not go together.

    Args:
        training: `learning_rate`, `weight_decay`, `num_train_epochs` and `per_device_train_batch_size` are None where
            the user gave none. With `--minutes` the batch size stays open (`throughput.plan_training`).
        prefers_muon: take Muon, where nothing is said and nothing stands in its way.
        checkpoint: the one that is resumed.

    Returns:
        both with what was decided, and the budget that `--minutes` means, its clock started, or gone on with from the
        checkpoint; None without.
    """
    by_clock, optim, whole = optimization.minutes is not None, training.optim.value, not shares_weights(training)
    name = optimization.optimizer or ("muon" if prefers_muon and whole and optim in ADAMW else "adamw")
    muon, muon_rate = name == "muon", optimization.muon_learning_rate
    if muon and muon_rate is None:  # and if both are, what the width of the model says (`create_optimizer`)
        muon_rate = training.learning_rate
    optimization = dataclasses.replace(optimization, optimizer=name, muon_learning_rate=muon_rate)
    rates, decays = arguments.LEARNING_RATES, arguments.WEIGHT_DECAYS
    training = decide(training, learning_rate=rates[name], weight_decay=decays[name])
    warmup, average, scheduler = optimization.batch_warmup, optimization.weight_average, training.lr_scheduler_type
    other_clock = checkpoint is not None and not by_clock and TimeBudget.saved_in(checkpoint)
    refused = {
        "weight_average: needs whole matrices; leave it out beside fsdp, deepspeed": average and not whole,
        "optimizer: muon needs whole matrices; use adamw beside fsdp, deepspeed": muon and not whole,
        f"optimizer: muon and --optim {optim} are two optimizers; give one": muon and optim not in ADAMW,
        "muon_learning_rate: needs --optimizer muon": muon_rate is not None and not muon,
        f"weight_average: {average} is no decay; use 0 to 1, e.g. 0.999": average is not None and not 0 < average < 1,
        f"batch_warmup: {warmup} is negative; use 0 (none), a share below 1, or steps": not warmup >= 0,
        f"batch_warmup: {warmup:g} is more than max_steps={training.max_steps}": warmup > training.max_steps > 0,
        "batch_warmup: a batch of one row cannot grow": warmup and training.per_device_train_batch_size == 1,
        f"resume_from_checkpoint: {checkpoint!r} is of a training by the clock; give its --minutes too": other_clock,
    }
    if by_clock:
        clash, given = "does not go with --minutes", training.lr_scheduler_kwargs
        shares = scheduler == WARMUP_STABLE_DECAY and set(given or {}) <= {"num_decay_steps"} and decay_of(training) < 1
        other_schedule = scheduler not in ("linear", WARMUP_STABLE_DECAY)
        refused |= {
            f"minutes: --max_steps {clash}: both say how long to train": training.max_steps > 0,
            f"minutes: --num_train_epochs {clash}: both say how long to train": training.num_train_epochs is not None,
            f"batch_warmup: {warmup:g} {clash}; use a share below 1": warmup >= 1,
            f"restore_callback_states_from_checkpoint: {clash}, which restores its own": (
                training.restore_callback_states_from_checkpoint
            ),
            f"warmup_steps: {training.warmup_steps} {clash}; use a share below 1": training.warmup_steps >= 1,
            f"lr_scheduler_type: {scheduler.value} {clash}; use linear or {WARMUP_STABLE_DECAY}": other_schedule,
            f"lr_scheduler_kwargs: {given} {clash}; use num_decay_steps, a share below 1, with --lr_scheduler_type"
            f" {WARMUP_STABLE_DECAY}": given and not shares,
        }
    for message, wrong in refused.items():
        if wrong:
            raise ValueError(message)
    if scheduler == WARMUP_STABLE_DECAY:
        schedule_arguments(training, training.max_steps)
    if not by_clock:
        return optimization, decide(training, **arguments.UNLESS_MINUTES), None
    decay = decay_of(training) if scheduler == WARMUP_STABLE_DECAY else None
    budget = TimeBudget(optimization.minutes, training.warmup_steps, decay)
    if checkpoint is not None:
        budget.resume(checkpoint)
    # `Trainer` needs a number of steps; it never comes so far.
    endless = dict(max_steps=10**9, num_train_epochs=arguments.UNLESS_MINUTES["num_train_epochs"])
    return optimization, dataclasses.replace(training, **endless), budget


class OptimizationMixin:
    """For a `Trainer`: `class MyTrainer(OptimizationMixin, Trainer)`.

    - `optimizer="muon"`; everything else is `Trainer`'s own (`--optim`).
    - `lr_scheduler_type="warmup_stable_decay"` with a 1-sqrt tail over a share of the steps, or, with a budget, the
      schedule that the clock lays.
    - Batch warmup: the first steps take only some rows of each batch: how many depends on nothing but how far training
      is. The number of steps and the order of the rows stay as they are.
    - Averaged weights are in the model whenever it is evaluated or saved; a checkpoint has those that are trained
      beside them.

    Args:
        budget: of `--minutes`, see `resolve_optimization`.
    """

    def __init__(self, *args, optimization: arguments.OptimizationArguments | None = None, budget=None, **kwargs):
        if budget is not None:  # `Trainer` adds the progress bar, which reads what the budget says, behind these
            kwargs["callbacks"] = [*(kwargs.get("callbacks") or []), budget]
        super().__init__(*args, **kwargs)
        self.optimization, self.budget = optimization or arguments.OptimizationArguments(), budget
        self.weight_average = None
        if self.optimization.weight_average is not None:
            self.weight_average = WeightAverage(self.optimization.weight_average)
            self.add_callback(self.weight_average)

    def train(self, resume_from_checkpoint=None, *args, **kwargs):
        if self.weight_average is not None:
            self.weight_average.checkpoint = resume_from_checkpoint
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def create_optimizer(self, *args, **kwargs) -> torch.optim.Optimizer:
        if self.optimizer is None and self.optimization.optimizer == "muon":
            if self.optimization.muon_learning_rate is None:
                rate = arguments.MUON_LEARNING_RATE * max(1, arguments.MUON_WIDTH / self.model.config.hidden_size)
                self.optimization = dataclasses.replace(self.optimization, muon_learning_rate=rate)
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
        warmup = self.optimization.batch_warmup
        if warmup > num_training_steps:
            raise ValueError(f"batch_warmup: {warmup:g} is more than {num_training_steps} steps; use fewer")
        optimizer = optimizer or self.optimizer
        if self.budget is not None:
            self.budget.begin()
            self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: self.budget.factor)
        elif self.args.lr_scheduler_type == WARMUP_STABLE_DECAY:
            self.lr_scheduler = get_wsd_schedule(optimizer, **schedule_arguments(self.args, num_training_steps))
        else:
            super().create_scheduler(num_training_steps, optimizer)
        return self.lr_scheduler

    def get_batch_samples(self, epoch_iterator, *args, **kwargs):
        warmup = self.optimization.batch_warmup
        if warmup:
            share_done = self.budget.progress if self.budget else self.state.global_step / self.state.max_steps
            warmed = (self.state.global_step if warmup >= 1 else share_done) / warmup
            if warmed < 1:
                rows = rows_in_batch(self._train_batch_size, warmed)
                epoch_iterator = ({name: column[:rows] for name, column in batch.items()} for batch in epoch_iterator)
        return super().get_batch_samples(epoch_iterator, *args, **kwargs)

    def log(self, logs, *args, **kwargs):
        if self.budget is not None:
            logs.pop("train_samples_per_second", None)  # computed from a number of steps that is never reached
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
