"""Training that ends on time: the schedule is laid by the clock, not by steps."""

import math
import statistics
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState, TrainerState
from transformers.trainer_utils import has_length

from ..processes import of_first_rank
from .schedule import DECAY_SHARE, rate_factor

# Time is granted once more, this share of all of it, where a stall ate it before the end (the decay, if there is one).
GRACE = 0.025
RECENT_STEPS = 5


class TimeBudget(TrainerCallback, ExportableState):
    """A training of so many minutes, whose learning rate follows the clock.

    How far the schedule has come is its `progress`, 0 to 1. Before every step the time that is left, less what the
    evaluation at the end will take, is divided by the median time of recent steps: n steps will fit, and the next one
    takes the schedule 1/n of the way that remains. So progress is the share of time that has passed while steps have
    one length; after a stall, what remains of the schedule is spread over the time that remains; and n = 1 is the last
    step, with the learning rate at 0. A wrong estimate moves the end by at most a step.

    Time counts from when this object is made, so reading the data is in it, and goes on from where it stood when
    training is resumed. `TrainerState.max_steps` and `num_train_epochs` are kept at what is expected as things stand,
    and of a stream, which has no epochs, `epoch` at the progress.

    Args:
        minutes: all the time there is, above 0 (else a ValueError).
        warmup, decay: see `rate_factor`.
        clock: seconds since any moment.
    """

    def __init__(
        self, minutes: float, warmup: float = 0.0, decay: float | None = None, clock: Callable = time.monotonic
    ):
        if not 0 < minutes < math.inf:
            raise ValueError(f"minutes: {minutes} is no time to train in; give a number above 0")
        self.seconds = 60.0 * minutes
        self.deadline = self.seconds  # of the training itself, on the scale of `elapsed`, with the reserve
        self.warmup, self.decay = warmup, decay
        self.clock, self.start, self.before = clock, clock(), 0.0
        self.durations: deque[float] = deque(maxlen=RECENT_STEPS)
        self.reserve = 0.0
        self.progress = self.following = 0.0  # before and after the next step
        self.plan: dict[str, Any] = {}

    @property
    def elapsed(self) -> float:
        """Seconds used up, over all runs that were resumed."""
        return self.before + self.clock() - self.start

    @property
    def left(self) -> float:
        """Seconds that are left, with the evaluation at the end."""
        return max(self.seconds - self.elapsed, 0.0)

    @property
    def factor(self) -> float:
        """On the learning rate of the next step: the schedule's in the middle of it."""
        return rate_factor((self.progress + self.following) / 2, self.warmup, self.decay)

    def expect(self, seconds_per_step: float, reserve: float) -> None:
        """Say, before the first step, how long a step will take, and the evaluation at the end."""
        self.durations.append(seconds_per_step)
        self.reserve = reserve

    def look_ahead(self) -> int:
        """Steps that will fit from now on, at least 1; decides where the next one takes the schedule."""
        elapsed = self.elapsed
        if self.progress < 1 - (DECAY_SHARE if self.decay is None else self.decay):
            self.deadline = max(self.deadline, elapsed + self.reserve + GRACE * self.seconds)
        remaining = self.deadline - self.reserve - elapsed
        steps = of_first_rank(max(1, round(remaining / statistics.median(self.durations))))
        self.following = self.progress + (1 - self.progress) / steps
        return steps

    def begin(self) -> int:
        """The first step, or the first after a resumption, comes next: how many will fit."""
        self.last = self.elapsed
        return self.look_ahead()

    def step(self) -> int:
        """A step was done: how many more will fit, 0 after the last."""
        before, self.last = self.last, self.elapsed
        self.durations.append(self.last - before)
        self.progress = self.following
        return self.look_ahead() if self.progress < 1 else 0

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps, in trainer_state.json."""
        kept = dict(reserve=self.reserve, progress=self.progress, plan=self.plan)
        kept |= dict(before=self.elapsed, durations=list(self.durations))
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
        state.max_steps = state.global_step + self.begin()
        state.compute_steps(args, state.max_steps)

    def on_optimizer_step(self, args, state, control, **kwargs):
        state.max_steps = state.global_step + 1 + self.step()

    def on_step_end(self, args, state, control, train_dataloader=None, **kwargs):
        if has_length(train_dataloader):
            state.num_train_epochs = math.ceil(state.epoch * state.max_steps / state.global_step)
        else:
            state.epoch, state.num_train_epochs = self.progress, 1
        self.on_epoch_end(args, state, control)

    def on_epoch_end(self, args, state, control, **kwargs):
        if control.should_evaluate and self.progress < 1:  # no evaluation that leaves no time for the last one
            control.should_evaluate = of_first_rank(self.elapsed + 2 * self.reserve <= self.deadline)

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        self.reserve = metrics.get("eval_runtime", self.reserve)
