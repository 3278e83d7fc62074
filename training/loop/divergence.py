"""Warnings of a training that learns little, and an end to one that has failed."""

import math
import statistics
from collections.abc import Callable
from typing import Any

import torch
from transformers import TrainerCallback, TrainerState, TrainingArguments

from ..common.printing import warn

MIN_STEPS_FOR_NEW_WEIGHTS = 50  # new weights learn little in fewer steps
MIN_LOGS_TO_COMPARE = 4  # logs that a norm or a loss is compared with
MAX_NORM_RATIO = 50  # a gradient explodes if its norm is so many times the median
SHARE_BEFORE_ESTIMATE = 0.05  # the share of --minutes after which the number of steps is estimated


class DivergenceCallback(TrainerCallback):
    """Stop a training with a ValueError if its weights or its evaluation loss are no longer finite;
    warn of too few steps for new weights, exploding gradients, and a loss that does not fall."""

    def __init__(
        self,
        has_new_weights: bool,
        budget: Any = None,
        suggest_size: Callable[[int], tuple[str, int] | None] | None = None,
    ):
        """The arguments are those of `common_callbacks`."""
        self.has_new_weights = has_new_weights
        self.budget = budget
        self.suggest_size = suggest_size
        self.may_warn_of_few_steps = False  # once, of new weights
        self.watched_weights: torch.Tensor | None = None  # since the training begins
        self.losses: list[float] = []
        self.norms: list[float] = []

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        trained = [
            parameter
            for parameter in model.parameters()
            if parameter.requires_grad and parameter.numel()
        ]
        # NaN spreads to all weights within a step: it is enough to check the smallest tensor.
        self.watched_weights = min(trained, key=torch.Tensor.numel, default=torch.zeros(1))
        self.may_warn_of_few_steps = self.has_new_weights
        self.losses = []
        self.norms = []
        if self.budget is None:
            self.check_steps(state.max_steps)

    def on_step_end(self, args, state, control, **kwargs):
        if not self.watched_weights.detach().isfinite().all():
            self.stop(args, state, "the weights are no longer finite")
        if self.budget is not None and self.budget.progress >= SHARE_BEFORE_ESTIMATE:
            self.check_steps(state.max_steps)  # as the budget expects

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        for name, value in (metrics or {}).items():
            if name.endswith("loss") and isinstance(value, float) and not math.isfinite(value):
                self.stop(args, state, f"{name} is {value}")

    def stop(self, args: TrainingArguments, state: TrainerState, problem: str) -> None:
        raise ValueError(
            f"step {state.global_step}: {problem}, and the model is not saved; start again with a"
            f" lower --learning_rate (it was {args.learning_rate:g}), more --warmup_steps or bf16"
        )

    def check_steps(self, steps: int) -> None:
        """Warn once of too few steps for new weights; by the clock, name a smaller size that has
        enough of them."""
        warning = None
        if self.may_warn_of_few_steps:
            warning = few_steps_warning(steps)
        self.may_warn_of_few_steps = False
        suggestion = None
        if warning is not None and self.budget is not None and self.suggest_size is not None:
            suggestion = self.suggest_size(steps)
        if suggestion is not None:
            size, smaller_steps = suggestion
            warning += f"; --size {size}: about {smaller_steps:,} steps in the same time"
        warn(warning)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" not in logs:
            return
        self.check_norm(state.global_step, logs.get("grad_norm", 0.0))
        self.check_loss(state.global_step, logs["loss"], args.learning_rate)

    def check_norm(self, step: int, norm: float) -> None:
        usual_norm = math.inf
        if len(self.norms) >= MIN_LOGS_TO_COMPARE:
            usual_norm = statistics.median(self.norms)
        if norm > MAX_NORM_RATIO * usual_norm:
            warn(
                f"step {step}: the gradient's norm is {norm:.3g}, usually {usual_norm:.3g}; if the"
                " loss rises, use a lower --learning_rate or more --warmup_steps"
            )
            self.norms.clear()
        self.norms.append(norm)

    def check_loss(self, step: int, loss: float, learning_rate: float) -> None:
        self.losses.append(loss)
        if len(self.losses) != 2 * MIN_LOGS_TO_COMPARE:
            return
        if min(self.losses[MIN_LOGS_TO_COMPARE:]) >= 0.99 * self.losses[0]:
            warn(
                f"step {step}: the loss does not fall ({self.losses[0]:.4g}, now {loss:.4g}); try"
                f" a third of --learning_rate (it is {learning_rate:g}), and three times as much"
            )


def few_steps_warning(steps: int) -> str | None:
    """A warning of too few steps for new weights; else None."""
    if steps >= MIN_STEPS_FOR_NEW_WEIGHTS:
        return None
    return (
        f"new weights learn little in {steps} steps; give them {MIN_STEPS_FOR_NEW_WEIGHTS}"
        " or more by --num_train_epochs, --max_steps, --minutes or a smaller batch"
    )
