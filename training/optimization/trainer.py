"""The optimizer and the schedule in a `Trainer`."""

import dataclasses

import torch
from transformers import TrainingArguments

from ..arguments import decide
from ..arguments import pretraining as arguments
from ..processes import shares_weights
from .clock import TimeBudget
from .muon import muon_optimizer

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
            the user gave none.
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
    other_clock = checkpoint is not None and not by_clock and TimeBudget.saved_in(checkpoint)
    refused = {
        "optimizer: muon needs whole matrices; use adamw beside fsdp, deepspeed": muon and not whole,
        f"optimizer: muon and --optim {optim} are two optimizers; give one": muon and optim not in ADAMW,
        "muon_learning_rate: needs --optimizer muon": muon_rate is not None and not muon,
        f"resume_from_checkpoint: {checkpoint!r} is of a training by the clock; give its --minutes too": other_clock,
    }
    if by_clock:
        clash, scheduler = "does not go with --minutes", training.lr_scheduler_type
        refused |= {
            f"minutes: --max_steps {clash}: both say how long to train": training.max_steps > 0,
            f"minutes: --num_train_epochs {clash}: both say how long to train": training.num_train_epochs is not None,
            f"restore_callback_states_from_checkpoint: {clash}, which restores its own": (
                training.restore_callback_states_from_checkpoint
            ),
            f"warmup_steps: {training.warmup_steps} {clash}; use a share below 1": training.warmup_steps >= 1,
            f"lr_scheduler_type: {scheduler.value} {clash}; use linear": scheduler != "linear",
            f"lr_scheduler_kwargs: {training.lr_scheduler_kwargs} {clash}": training.lr_scheduler_kwargs,
        }
    for message, wrong in refused.items():
        if wrong:
            raise ValueError(message)
    defaults = arguments.UNLESS_GIVEN
    if not by_clock:
        return optimization, decide(training, **defaults), None
    budget = TimeBudget(optimization.minutes, training.warmup_steps)
    if checkpoint is not None:
        budget.resume(checkpoint)
    # `Trainer` needs a number of steps; it never comes so far.
    return optimization, dataclasses.replace(decide(training, **defaults), max_steps=10**9), budget


class OptimizationMixin:
    """For a `Trainer`: `class MyTrainer(OptimizationMixin, Trainer)`, with `optimizer="muon"` (everything else is
    `Trainer`'s own, `--optim`) and, with a budget, the schedule that the clock lays.

    Args:
        budget: of `--minutes`, see `resolve_optimization`.
    """

    def __init__(self, *args, optimization: arguments.OptimizationArguments | None = None, budget=None, **kwargs):
        if budget is not None:  # `Trainer` adds the progress bar, which reads what the budget says, behind these
            kwargs["callbacks"] = [*(kwargs.get("callbacks") or []), budget]
        super().__init__(*args, **kwargs)
        self.optimization, self.budget = optimization or arguments.OptimizationArguments(), budget

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
        if self.budget is None:
            return super().create_scheduler(num_training_steps, optimizer)
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
            optimizer or self.optimizer, lambda step: self.budget.factor
        )
        return self.lr_scheduler

    def log(self, logs, *args, **kwargs):
        if self.budget is not None:
            logs.pop("train_samples_per_second", None)  # computed from a number of steps that is never reached
        super().log(logs, *args, **kwargs)
