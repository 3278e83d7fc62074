"""SIGTERM and Ctrl-C: a checkpoint before a training ends."""

import functools
import os
import signal
import threading
import time
from typing import Any

from accelerate import PartialState
from transformers import TrainerCallback, TrainingArguments
from transformers.trainer_utils import SaveStrategy

from ..common.processes import leave_group, on_any_rank
from .checkpoints import RESUME_ADVICE

# A launcher and the system may both send a signal for the same stop: within these seconds, they
# count as one.
STOP_SECONDS = 5.0


class SaveAndStop(TrainerCallback):
    """Save a checkpoint before a signal ends the training.

    SIGTERM, which schedulers send before they kill, and Ctrl-C (SIGINT) end the training after its
    current step or evaluation. The process then exits with status 143, or raises KeyboardInterrupt.
    A second signal ends it at once.
    """

    received = 0  # the signal
    received_at = 0.0  # when it came

    def __init__(self):
        self.previous_handlers: dict[int, Any] = {}  # by signal
        self.previous_settings: dict[str, Any] = {}  # fields of `args` before the last checkpoint

    def on_train_begin(self, args, state, control, train_dataloader=None, **kwargs):
        # the loader of accelerate wraps the one that has workers
        loader = getattr(train_dataloader, "base_dataloader", train_dataloader)
        if loader is not None and args.dataloader_num_workers:
            loader.worker_init_fn = functools.partial(leave_group, loader.worker_init_fn)
        # other threads cannot handle signals
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                if number in self.previous_handlers:
                    continue  # `auto_find_batch_size` begins a training again
                # `nohup` and background jobs ignore signals
                if signal.getsignal(number) != signal.SIG_IGN:
                    self.previous_handlers[number] = signal.signal(number, self.receive)

    def receive(self, number, *_):
        if self.received and time.monotonic() - self.received_at > STOP_SECONDS:
            self.restore()
            return os.kill(os.getpid(), number)
        if not self.received:
            self.received = number
            self.received_at = time.monotonic()
            os.write(
                2, b"\nStopping after this step, with a checkpoint; a second signal stops at once\n"
            )

    def restore(self):
        """Give the signals back to their previous handlers."""
        while self.previous_handlers:
            signal.signal(*self.previous_handlers.popitem())

    def end_training(self, args: TrainingArguments) -> None:
        """After a training: give the signals and the settings back, and forget a signal."""
        self.restore()
        self.received = 0
        for name, value in self.previous_settings.items():
            setattr(args, name, value)
        self.previous_settings = {}

    def is_stopping(self) -> bool:
        """Whether any of the processes was asked to stop; all must call it at the same point."""
        if on_any_rank(bool(self.received)) and not self.received:
            self.received = signal.SIGTERM
        return bool(self.received)

    def on_evaluate(self, args, state, control, **kwargs):
        self._request_checkpoint(args, control)

    def _request_checkpoint(self, args: TrainingArguments, control: Any) -> None:
        if self.is_stopping():
            control.should_save = True
            for name in ("save_only_model", "save_strategy"):
                self.previous_settings.setdefault(name, getattr(args, name))
            args.save_only_model = False  # this checkpoint can be resumed
            if args.save_strategy == SaveStrategy.BEST:
                # with it, `Trainer` would decide again whether to save
                args.save_strategy = SaveStrategy.STEPS

    def on_step_end(self, args, state, control, **kwargs):
        self._request_checkpoint(args, control)
        epoch_ends = float(state.epoch).is_integer() or control.should_training_stop
        if self.received and args.eval_strategy == "epoch" and epoch_ends:
            # save after the evaluation of this epoch, which resuming would skip
            control.should_save = False

    def on_save(self, args, state, control, **kwargs):
        if self.is_stopping() and not args.save_only_model:  # otherwise the next step is saved
            # when one process ends, the launcher ends the others
            PartialState().wait_for_everyone()
            if state.is_world_process_zero:
                print(f"Stopped by a signal: step {state.global_step} is saved; {RESUME_ADVICE}")
            if self.received == signal.SIGINT:
                raise KeyboardInterrupt
            raise SystemExit(128 + signal.SIGTERM)
