"""Training that ends on time: the linear schedule is laid by the clock, not by steps."""

import math
import statistics
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from ..common.processes import of_first_rank

# The share of the time that is kept for the evaluation at the end, until one was measured.
EVALUATION_SHARE = 0.05
RECENT_STEPS = 5


class TimeBudget(TrainerCallback, ExportableState):
    """A training of so many minutes, whose learning rate follows the clock: up over the share
    `warmup`, then down to 0.

    Before every step the time that is left, less what the evaluation at the end will take, is
    divided by the median time of recent steps: n steps will fit, and the next one takes the
    schedule 1/n of the way that remains. After a stall, the rest of the schedule is spread over the
    rest of the time. The first step, in which much is made once, is not timed, and does not move
    the schedule. Time counts from when this object is made, and goes on when training is resumed. A
    further training (`begin_training`) that is not resumed has all of the time again.

    A `Trainer` gets it as a callback, its `scheduler` in `optimizers`, and more `max_steps` than it
    will reach.

    Args:
        minutes: all the time there is.
        warmup: share of the time.
        clock: seconds since any moment.
    """

    def __init__(
        self, minutes: float, warmup: float = 0.0, clock: Callable[[], float] = time.monotonic
    ):
        self.seconds = 60.0 * minutes
        self.warmup = warmup
        self.clock = clock
        # kept for the evaluation at the end
        self.evaluation_seconds = EVALUATION_SHARE * self.seconds
        self.has_begun = False
        self.restart()

    def begin_training(self) -> None:
        """Each call but the first one begins a further training, with all of the time."""
        if self.has_begun:
            self.restart()
        self.has_begun = True

    def restart(self) -> None:
        """Begin with all of the time, from now on."""
        self.started_at = self.clock()
        self.earlier_seconds = 0.0  # used up by earlier runs, which this one goes on from
        self.durations: deque[float] = deque(maxlen=RECENT_STEPS)  # seconds of recent steps
        self.last_step_end: float | None = None  # in seconds of `elapsed`
        # The share of the schedule before and after the next step.
        self.progress = 0.0
        self.next_progress = 0.0

    @property
    def elapsed(self) -> float:
        """Seconds used up, over all runs that were resumed."""
        return self.earlier_seconds + self.clock() - self.started_at

    @property
    def rate_factor(self) -> float:
        """On the learning rate of the next step: the schedule's in the middle of it."""
        middle = (self.progress + self.next_progress) / 2
        if middle < self.warmup:
            return middle / self.warmup
        return max(1 - middle, 0.0) / (1 - self.warmup)

    def scheduler(self, optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LambdaLR:
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: self.rate_factor)

    def look_ahead(self) -> int | None:
        """Steps that will fit from now on, 0 after the last one, None as long as none was timed;
        decides where the next one takes the schedule."""
        if self.progress >= 1:
            return 0
        if not self.durations:
            return None
        seconds_left = self.seconds - self.evaluation_seconds - self.elapsed
        seconds_per_step = statistics.median(self.durations)
        steps_left = of_first_rank(max(1, round(seconds_left / seconds_per_step)))
        self.next_progress = self.progress + (1 - self.progress) / steps_left
        return steps_left

    def step(self) -> int | None:
        """A step was done: how many more will fit, as in `look_ahead`."""
        step_end = self.elapsed
        if self.last_step_end is not None:
            self.durations.append(step_end - self.last_step_end)
        self.last_step_end = step_end
        self.progress = self.next_progress
        return self.look_ahead()

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps, in trainer_state.json, under the names of all versions."""
        attributes = {
            "reserve": self.evaluation_seconds,
            "progress": self.progress,
            "before": self.elapsed,
            "durations": list(self.durations),
        }
        return {"attributes": attributes}

    def resume(self, attributes: dict[str, Any]) -> None:
        """Go on from where the time stood; `attributes` are those of `state`."""
        self.evaluation_seconds = attributes["reserve"]
        self.progress = attributes["progress"]
        self.earlier_seconds = attributes["before"]
        self.durations = deque(attributes["durations"], maxlen=RECENT_STEPS)

    def on_train_begin(self, args, state, control, **kwargs):
        # More than once in a training, if `auto_find_batch_size` begins it again.
        saved_state = state.stateful_callbacks.get(type(self).__name__)
        if state.global_step and saved_state:
            self.resume(saved_state["attributes"])
        self.last_step_end = None
        self._set_max_steps(self.look_ahead(), state.global_step, state)
        self._set_intervals(args, state)

    def on_optimizer_step(self, args, state, control, **kwargs):
        is_first_estimate = not self.durations
        self._set_max_steps(self.step(), state.global_step + 1, state)
        if is_first_estimate:
            self._set_intervals(args, state)

    def _set_max_steps(self, steps_left: int | None, steps_done: int, state: Any) -> None:
        if steps_left is not None:
            state.max_steps = steps_done + steps_left

    def _set_intervals(self, args: Any, state: Any) -> None:
        """Count anew the intervals of logs and evaluations that are given as shares of the
        training."""
        if self.durations or self.progress >= 1:
            state.compute_steps(args, state.max_steps)

    def on_epoch_end(self, args, state, control, **kwargs):
        # No evaluation that leaves no time for the last one.
        if control.should_evaluate and self.progress < 1:
            time_after_it = self.elapsed + 2 * self.evaluation_seconds
            control.should_evaluate = of_first_rank(time_after_it <= self.seconds)

    on_step_end = on_epoch_end

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        self.evaluation_seconds = metrics.get("eval_runtime", self.evaluation_seconds)


class TimeBudgetMixin:
    """A mixin that stands before `Trainer`: with a `budget`, the learning rate follows the clock.
    The budget must also be a callback of the trainer, and its `max_steps` be
    `loop.arguments.UNREACHABLE_STEPS`."""

    budget: TimeBudget | None = None

    def train(self, *args, **kwargs):
        if self.budget is not None:
            self.budget.begin_training()
        return super().train(*args, **kwargs)

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ):
        if self.budget is None:
            return super().create_scheduler(num_training_steps, optimizer)
        self.lr_scheduler = self.budget.scheduler(optimizer or self.optimizer)
        return self.lr_scheduler


def start_budget(args: Any) -> TimeBudget | None:
    """The clock of `args.minutes`, which counts from here; None without them.

    Args:
        args: A `TrainingArguments` with a field `minutes`.
    """
    if args.minutes is None:
        return None
    return TimeBudget(args.minutes, args.warmup_steps)


def check_minutes(args: Any, default_epochs: float | None) -> None:
    """Refuse (a ValueError) `args.minutes` that are no time, and settings by steps beside them.

    Args:
        args: A `TrainingArguments` with a field `minutes`.
        default_epochs: What `num_train_epochs` is where nobody sets it.
    """
    if args.minutes is None:
        return
    if not 0 < args.minutes < math.inf:
        raise ValueError(f"minutes must be positive, got {args.minutes}")
    by_steps = {
        "max_steps": args.max_steps > 0,
        "num_train_epochs": args.num_train_epochs != default_epochs,
        "warmup_steps": args.warmup_steps >= 1,
        "lr_scheduler_type": args.lr_scheduler_type != "linear",
    }
    for name, is_set in by_steps.items():
        if is_set:
            raise ValueError(f"minutes: the linear schedule follows the clock; leave --{name} out")
