"""Training that ends on time: the linear schedule is laid by the clock, not by steps."""

import math
import statistics
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState, TrainerState
from transformers.trainer_utils import has_length

from ..processes import of_first_rank

# The share of the time that is kept for the evaluation at the end, until one was measured.
EVALUATION_SHARE = 0.05
RECENT_STEPS = 5


class TimeBudget(TrainerCallback, ExportableState):
    """A training of so many minutes, whose learning rate follows the clock: up over the share `warmup`, then down to 0.

    How far the schedule has come is its `progress`, 0 to 1. Before every step the time that is left, less what the
    evaluation at the end will take, is divided by the median time of recent steps: n steps will fit, and the next one
    takes the schedule 1/n of the way that remains. So progress is the share of time that has passed while steps have
    one length; after a stall, what remains of the schedule is spread over the time that remains; and n = 1 is the last
    step, with the learning rate at 0. A wrong estimate moves the end by at most a step. The first step, in which much
    is made once, is not timed, and does not move the schedule.

    Time counts from when this object is made, and goes on from where it stood when training is resumed.
    `TrainerState.max_steps` and `num_train_epochs` are kept at what is expected as things stand, and of a stream, which
    has no epochs, `epoch` at the progress.

    Args:
        minutes: all the time there is, above 0 (else a ValueError).
        warmup: share of the time.
        clock: seconds since any moment.
    """

    def __init__(self, minutes: float, warmup: float = 0.0, clock: Callable[[], float] = time.monotonic):
        if not 0 < minutes < math.inf:
            raise ValueError(f"minutes must be positive, got {minutes}")
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
        return middle / self.warmup if middle < self.warmup else max(1 - middle, 0.0) / (1 - self.warmup)

    def scheduler(self, optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LambdaLR:
        """What sets the learning rates; a `Trainer` gets it as `optimizers=(optimizer, scheduler)`, the budget as a
        callback, and more `max_steps` than it will reach."""
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: self.factor)

    def look_ahead(self) -> int | None:
        """Steps that will fit from now on, at least 1, None as long as none was timed; decides where the next one takes
        the schedule."""
        if not self.durations:
            return None
        remaining = self.seconds - self.reserve - self.elapsed
        steps = of_first_rank(max(1, round(remaining / statistics.median(self.durations))))
        self.following = self.progress + (1 - self.progress) / steps
        return steps

    def begin(self) -> int | None:
        """The first step, or the first after a resumption, comes next: how many will fit."""
        self.last = None
        return self.look_ahead()

    def step(self) -> int | None:
        """A step was done: how many more will fit, 0 after the last, None where that is not known yet."""
        now, before = self.elapsed, self.last
        self.last, self.progress = now, self.following
        if before is not None:
            self.durations.append(now - before)
        return self.look_ahead() if self.progress < 1 else 0

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps, in trainer_state.json."""
        kept = dict(reserve=self.reserve, progress=self.progress, before=self.elapsed, durations=list(self.durations))
        return {"attributes": kept}

    @staticmethod
    def saved_in(checkpoint: str | Path) -> dict[str, Any] | None:
        """What a checkpoint keeps of the budget of its training; None if that had none."""
        state = TrainerState.load_from_json(str(Path(checkpoint) / "trainer_state.json"))
        return state.stateful_callbacks.get(TimeBudget.__name__, {}).get("attributes")

    def resume(self, checkpoint: str | Path) -> None:
        """Go on from where the time of a checkpoint's training stood; a ValueError if that had no budget."""
        saved = self.saved_in(checkpoint)
        if saved is None:
            raise ValueError(f"minutes: the checkpoint {str(checkpoint)!r} is of a training in steps; leave them out")
        self.durations.extend(saved.pop("durations"))
        vars(self).update(saved)

    def on_train_begin(self, args, state, control, **kwargs):
        self._expect(self.begin(), state.global_step, args, state)

    def on_optimizer_step(self, args, state, control, **kwargs):
        known = bool(self.durations)
        self._expect(self.step(), state.global_step + 1, None if known else args, state)

    def _expect(self, more: int | None, done: int, args: Any, state: TrainerState) -> None:
        if more is not None:
            state.max_steps = done + more
            if args is not None:  # the intervals that are given as shares of the training
                state.compute_steps(args, state.max_steps)

    def on_step_end(self, args, state, control, train_dataloader=None, **kwargs):
        if not has_length(train_dataloader):
            state.epoch, state.num_train_epochs = self.progress, 1
        elif self.durations:
            state.num_train_epochs = math.ceil(state.epoch * state.max_steps / state.global_step)
        self.on_epoch_end(args, state, control)

    def on_epoch_end(self, args, state, control, **kwargs):
        if control.should_evaluate and self.progress < 1:  # no evaluation that leaves no time for the last one
            control.should_evaluate = of_first_rank(self.elapsed + 2 * self.reserve <= self.seconds)

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        self.reserve = metrics.get("eval_runtime", self.reserve)
