"""Training that ends on time: the linear schedule is laid by the clock, not by steps."""

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
    """A training of so many minutes, whose learning rate follows the clock: up over the share `warmup`, then down to 0.

    Before every step the time that is left, less what the evaluation at the end will take, is divided by the median
    time of recent steps: n steps will fit, and the next one takes the schedule 1/n of the way that remains. After a
    stall, the rest of the schedule is spread over the rest of the time. The first step, in which much is made once, is
    not timed, and does not move the schedule. Time counts from when this object is made, and goes on when training is
    resumed.

    A `Trainer` gets it as a callback, its `scheduler` in `optimizers`, and more `max_steps` than it will reach.

    Args:
        minutes: all the time there is.
        warmup: share of the time.
        clock: seconds since any moment.
    """

    def __init__(
        self, minutes: float, warmup: float = 0.0, clock: Callable[[], float] = time.monotonic
    ):
        self.seconds = 60.0 * minutes
        self.warmup, self.clock, self.start, self.before = warmup, clock, clock(), 0.0
        self.durations: deque[float] = deque(maxlen=RECENT_STEPS)
        self.last: float | None = None  # when the last step ended; none was timed yet
        self.reserve = EVALUATION_SHARE * self.seconds
        self.progress = self.following = 0.0  # before and after the next step

    @property
    def elapsed(self) -> float:
        """Seconds used up, over all runs that were resumed."""
        return self.before + self.clock() - self.start

    @property
    def factor(self) -> float:
        """On the learning rate of the next step: the schedule's in the middle of it."""
        middle = (self.progress + self.following) / 2
        return (
            middle / self.warmup
            if middle < self.warmup
            else max(1 - middle, 0.0) / (1 - self.warmup)
        )

    def scheduler(self, optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LambdaLR:
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: self.factor)

    def look_ahead(self) -> int | None:
        """Steps that will fit from now on, 0 after the last one, None as long as none was timed; decides where the next
        one takes the schedule."""
        if self.progress >= 1 or not self.durations:
            return 0 if self.progress >= 1 else None
        remaining = self.seconds - self.reserve - self.elapsed
        steps = of_first_rank(max(1, round(remaining / statistics.median(self.durations))))
        self.following = self.progress + (1 - self.progress) / steps
        return steps

    def step(self) -> int | None:
        """A step was done: how many more will fit, as in `look_ahead`."""
        now, before = self.elapsed, self.last
        self.last, self.progress = now, self.following
        if before is not None:
            self.durations.append(now - before)
        return self.look_ahead()

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps, in trainer_state.json."""
        kept = dict(
            reserve=self.reserve,
            progress=self.progress,
            before=self.elapsed,
            durations=list(self.durations),
        )
        return {"attributes": kept}

    def resume(self, saved: dict[str, Any]) -> None:
        """Go on from where the time stood; `saved`: the attributes of `state`."""
        vars(self).update(saved, durations=deque(saved["durations"], maxlen=RECENT_STEPS))

    def on_train_begin(self, args, state, control, **kwargs):
        if state.global_step and (saved := state.stateful_callbacks.get(type(self).__name__)):
            self.resume(saved["attributes"])
        self.last = None
        self._expect(self.look_ahead(), state.global_step, args, state)

    def on_optimizer_step(self, args, state, control, **kwargs):
        known = bool(self.durations)
        self._expect(self.step(), state.global_step + 1, None if known else args, state)

    def _expect(self, more: int | None, done: int, args: Any, state: Any) -> None:
        if more is not None:
            state.max_steps = done + more
        if (
            more is not None and args is not None
        ):  # the intervals that are given as shares of the training
            state.compute_steps(args, state.max_steps)

    def on_epoch_end(self, args, state, control, **kwargs):
        if (
            control.should_evaluate and self.progress < 1
        ):  # no evaluation that leaves no time for the last one
            control.should_evaluate = of_first_rank(self.elapsed + 2 * self.reserve <= self.seconds)

    on_step_end = on_epoch_end

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        self.reserve = metrics.get("eval_runtime", self.reserve)
