"""What our trainers do at every log and every checkpoint."""

import functools
import json
import math
import os
import signal
import statistics
import threading
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

import torch
from accelerate import PartialState
from torch.optim.lr_scheduler import LambdaLR
from transformers import (
    EarlyStoppingCallback,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer import DEFAULT_PROGRESS_CALLBACK, TRAINING_ARGS_NAME
from transformers.trainer_callback import ExportableState
from transformers.trainer_pt_utils import LengthGroupedSampler
from transformers.trainer_utils import SaveStrategy, rotate_checkpoints

from .checkpoints import check_same, write_manifest
from .printing import warn
from .processes import StepwiseLoader, check_batches, on_any_rank

MIN_STEPS_FOR_NEW_WEIGHTS = 50  # new weights learn little in fewer steps
MIN_LOGS_TO_COMPARE = 4  # logs that a norm or a loss is compared with
EXPLODING = 50  # a gradient explodes if its norm is so many times the median
FIRST_SHARE = 0.05  # the share of --minutes after which the number of steps is estimated
# A launcher and the system may both send a signal for the same stop: within these seconds, they
# count as one.
STOP_SECONDS = 5.0
RESUME = "resume with --resume_from_checkpoint true"
# Entries of the log that a line does not show (by the ends of their names), and other names for
# those that it shows.
NOT_SHOWN = (
    "runtime",
    "per_second",
    "preparation_time",
    "targets",
    "grad_norm",
    "epoch",
    "input_tokens_seen",
)
NAMES = {"learning_rate": "rate"}


def add_callbacks(trainer: Trainer) -> None:
    """Print a line for each log instead of what `Trainer` prints, save a checkpoint at SIGTERM and
    Ctrl-C, and stop if a number is no longer finite."""
    trainer.pop_callback(PrinterCallback)
    trainer.pop_callback(DEFAULT_PROGRESS_CALLBACK)  # it prints a table in notebooks
    budget = getattr(trainer, "budget", None)

    # called when the training begins: what is new may be known after the trainer is made
    def has_new_weights() -> bool:
        return bool(getattr(trainer, "new_weights", False) or getattr(trainer, "is_new", False))

    describe_smaller_size = getattr(trainer, "describe_smaller_size", None)
    trainer.add_callback(DivergenceCallback(has_new_weights, budget, describe_smaller_size))
    trainer.add_callback(ConsoleLog(budget))
    trainer.add_callback(SaveAndStop())


class ConsoleLog(TrainerCallback):
    """Print every log of a training as one line: the step, losses, learning rate and speed, or the
    metrics of an evaluation."""

    def __init__(self, budget: Any = None):
        """`budget`: the `TimeBudget` of a training by the clock, whose number of steps is not known
        before."""
        self.budget = budget
        self.tokens_seen = 0  # at the last log
        self.logged_at = 0.0

    def on_train_begin(self, args, state, control, **kwargs):
        self.tokens_seen = state.num_input_tokens_seen
        self.logged_at = time.perf_counter()

    def on_log(self, args, state, control, logs=None, **kwargs):
        tokens = state.num_input_tokens_seen - self.tokens_seen
        self.tokens_seen = state.num_input_tokens_seen
        seconds = time.perf_counter() - self.logged_at
        self.logged_at += seconds
        entries = {name: value for name, value in logs.items() if not name.endswith(NOT_SHOWN)}
        is_summary = "train_loss" in logs  # at the end
        if not entries or not state.is_world_process_zero or is_summary:
            return
        losses = {name for name in entries if name.startswith("eval_") and name.endswith("_loss")}
        if losses - {"eval_loss"}:
            # a mean over batches, less exact than the loss over all targets
            entries.pop("eval_loss", None)
        words = []
        for name, value in entries.items():
            words.append(f"{NAMES.get(name, name.removeprefix('eval_'))} {value:.4g}")
        text = "  ".join(words)
        if "loss" not in logs:
            text = f"evaluation: {text}"
        elif tokens > 0:
            text += f"  {tokens / seconds:,.0f} tokens/s"
        done = f"{state.global_step:>{len(str(state.max_steps))}}/{state.max_steps}"
        if self.budget is not None:
            done = f"{state.global_step} ({self.budget.progress:.0%})"
        print(f"step {done}  {text}", flush=True)


def few_steps(steps: int) -> str | None:
    """A warning of too few steps for new weights; else None."""
    if steps >= MIN_STEPS_FOR_NEW_WEIGHTS:
        return None
    return (
        f"new weights learn little in {steps} steps; give them {MIN_STEPS_FOR_NEW_WEIGHTS}"
        " or more by --num_train_epochs, --max_steps, --minutes or a smaller batch"
    )


class DivergenceCallback(TrainerCallback):
    """Stop a training with a ValueError if its weights or its evaluation loss are no longer finite;
    warn of too few steps for new weights, exploding gradients, and a loss that does not fall."""

    def __init__(
        self,
        has_new_weights: Callable[[], bool],
        budget: Any = None,
        describe_smaller_size: Callable[[int], str | None] | None = None,
    ):
        """`has_new_weights` tells it when the training begins, for example of a head. `budget`: the
        `TimeBudget` of the training. `describe_smaller_size` says which model has enough steps in
        the time that is enough for so many steps of this one."""
        self.has_new_weights = has_new_weights
        self.describe_smaller_size = describe_smaller_size
        self.is_new = False
        self.budget = budget
        self.losses: list[float] = []
        self.norms: list[float] = []

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        trained = [
            parameter
            for parameter in model.parameters()
            if parameter.requires_grad and parameter.numel()
        ]
        # NaN spreads to all weights within a step: it is enough to check the smallest tensor.
        self.watched = min(trained, key=torch.Tensor.numel, default=torch.zeros(1))
        self.is_new = self.has_new_weights()
        if self.budget is None:
            self.check_steps(state.max_steps)

    def on_step_end(self, args, state, control, **kwargs):
        if not self.watched.detach().isfinite().all():
            self.stop(args, state, "the weights are no longer finite")
        if self.budget is not None and self.budget.progress >= FIRST_SHARE:
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
        warning = None
        if self.is_new:
            warning = few_steps(steps)
        if warning is not None and self.budget is not None and self.describe_smaller_size:
            smaller_size = self.describe_smaller_size(steps)
            if smaller_size is not None:
                warning += f"; {smaller_size}"
        warn(warning)
        self.is_new = False

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" not in logs:
            return
        self.check_norm(state.global_step, logs.get("grad_norm", 0.0))
        self.check_loss(state.global_step, logs["loss"], args.learning_rate)

    def check_norm(self, step: int, norm: float) -> None:
        usual_norm = math.inf
        if len(self.norms) >= MIN_LOGS_TO_COMPARE:
            usual_norm = statistics.median(self.norms)
        if norm > EXPLODING * usual_norm:
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


class EarlyStopping(EarlyStoppingCallback):
    """Stop after `patience` evaluations without a better one. Evaluations count only once the
    metric is above `floor`, the score of a simple baseline. A resumed training continues the count
    of its checkpoint."""

    def __init__(self, patience: int, floor: float | None = None):
        super().__init__(patience)
        self.floor = floor

    def check_metric_value(self, args, state, control, metric_value):
        super().check_metric_value(args, state, control, metric_value)
        if (
            self.floor is not None
            and max(metric_value, state.best_metric or -math.inf) <= self.floor
        ):
            self.early_stopping_patience_counter = 0

    def on_train_begin(self, args, state, control, **kwargs):
        super().on_train_begin(args, state, control, **kwargs)
        # a checkpoint that was trained without patience has no such state
        saved = state.stateful_callbacks.setdefault(type(self).__name__, self.state())
        self.early_stopping_patience_counter = saved["attributes"][
            "early_stopping_patience_counter"
        ]
        control.should_training_stop |= (
            self.early_stopping_patience_counter >= self.early_stopping_patience
        )


def settings_of_steps(training: TrainingArguments) -> dict[str, Any]:
    """The arguments that decide which rows a step has, how it changes the weights, and which step
    is the best. They must be the same when a training is resumed."""
    size = training.train_batch_size * training.gradient_accumulation_steps * training.world_size
    batch = "per_device_train_batch_size · gradient_accumulation_steps · processes"
    settings = {batch: size, "optim": training.optim.value.removesuffix("_fused")}
    settings["lr_scheduler_type"] = "one by steps"
    if training.lr_scheduler_type.value in ("reduce_lr_on_plateau", "greedy"):
        settings["lr_scheduler_type"] = training.lr_scheduler_type.value
    for name in (
        "learning_rate",
        "weight_decay",
        "adam_beta1",
        "adam_beta2",
        "adam_epsilon",
        "seed",
        "data_seed",
        "train_sampling_strategy",
        "metric_for_best_model",
    ):
        settings[name] = getattr(training, name)
    return settings


class ResumeGuardCallback(TrainerCallback, ExportableState):
    """Save in the trainer_state.json of each checkpoint the settings that must be the same when it
    is resumed."""

    # in the checkpoints of older versions
    former_name = "SettingsState"
    former_settings = ("embedding_init",)  # without effect on a training that is resumed

    def __init__(self, settings: dict[str, Any]):
        self.settings = json.loads(json.dumps(settings))

    def on_train_begin(self, args, state, control, lr_scheduler=None, **kwargs):
        state.stateful_callbacks.pop(self.former_name, None)
        # the state of a plain `Trainer` has none
        state.stateful_callbacks.setdefault(type(self).__name__, self.state())
        if state.global_step > 0:  # a checkpoint was loaded, with the intervals and rates of then
            state.compute_steps(args, state.max_steps)
            restore_learning_rates(lr_scheduler)

    def state(self) -> dict[str, Any]:
        return {"args": {"settings": self.settings}, "attributes": {}}

    def check(self, checkpoint: str) -> None:
        """Refuse (a ValueError) to resume a checkpoint that was trained with other settings."""
        state = TrainerState.load_from_json(str(Path(checkpoint) / "trainer_state.json"))
        callbacks = state.stateful_callbacks
        exported = callbacks.get(type(self).__name__) or callbacks.get(self.former_name)
        saved = dict((exported or self.state())["args"]["settings"])
        for name in self.former_settings:
            saved.pop(name, None)
        # older versions saved fewer
        now = {name: value for name, value in self.settings.items() if name in saved}
        check_same(
            saved,
            now,
            f"the checkpoint {str(checkpoint)!r} was trained with",
            "give the arguments of that run",
        )


def restore_learning_rates(scheduler: Any) -> None:
    """Set the rates of the next step to those of the schedule. A checkpoint keeps the rates, which
    are others if the training has become longer."""
    scheduler = getattr(scheduler, "scheduler", scheduler)  # out of accelerate's wrapper
    if not isinstance(scheduler, LambdaLR):
        return
    rates = []
    for base_rate, factor in zip(scheduler.base_lrs, scheduler.lr_lambdas):
        rates.append(base_rate * factor(scheduler.last_epoch))
    for group, rate in zip(scheduler.optimizer.param_groups, rates):
        group["lr"] = rate
    scheduler.load_state_dict(scheduler.state_dict() | {"_last_lr": rates})  # which is logged


class CheckpointMixin:
    """A mixin that stands before `Trainer`. Every checkpoint gets a manifest before an older one is
    removed. If a checkpoint cannot be written, an OSError names it; if rows cannot be read, one is
    saved before the error."""

    def train(self, *args, **kwargs):
        try:
            return super().train(*args, **kwargs)
        finally:  # after an exception too: in a notebook the process goes on
            for callback in self.callback_handler.callbacks:
                if isinstance(callback, SaveAndStop):
                    callback.restore()

    def get_batch_samples(self, epoch_iterator, num_batches, device):
        batches = []
        error = None
        try:
            for batch in islice(epoch_iterator, num_batches):
                batches.append(batch)
        except Exception as raised:
            error = raised
        try:
            check_batches(len(batches), error)  # before `Trainer` gathers the number of targets
        except Exception as raised:
            self._stop_with_checkpoint(raised)
        return super().get_batch_samples(iter(batches), num_batches, device)

    def evaluation_loop(self, dataloader, *args, **kwargs):
        loader = StepwiseLoader(dataloader)
        try:
            return super().evaluation_loop(loader, *args, **kwargs)
        except Exception as error:
            if error is loader.error and self.is_in_train:
                self._stop_with_checkpoint(error)
            raise

    def _stop_with_checkpoint(self, error: Exception) -> NoReturn:
        """Save a checkpoint, unless there is nothing to save, and raise the error of the rows."""
        step = self.state.global_step
        if step == 0:
            raise error
        if not (Path(self.args.output_dir) / f"checkpoint-{step}").exists():
            self.args.save_only_model = False
            self._save_checkpoint(self.model_wrapped, None)
            self.control = self.callback_handler.on_save(self.args, self.state, self.control)
        # the traceback of a worker ends with the reason
        reason = (str(error).strip() or type(error).__name__).splitlines()[-1]
        raise ValueError(
            f"{reason} (step {step} is saved; repair the data and {RESUME})"
        ) from error

    def _save(self, output_dir=None, *args, **kwargs):
        super()._save(output_dir, *args, **kwargs)
        pickled = Path(output_dir or self.args.output_dir, TRAINING_ARGS_NAME)
        pickled.unlink(missing_ok=True)  # nothing reads it

    def _run_epoch(self, *args, **kwargs):
        # A training that was killed after its last step does no further one when it is resumed.
        self.control.should_training_stop |= self.state.global_step >= self.state.max_steps
        if not self.control.should_training_stop:
            super()._run_epoch(*args, **kwargs)

    def _load_optimizer_and_scheduler(self, checkpoint):
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        # Transformers silently forgets the best checkpoint if the folder was moved
        state = TrainerState.load_from_json(str(Path(checkpoint) / "trainer_state.json"))
        if state.best_model_checkpoint is None:
            self.state.best_model_checkpoint = None
            return
        best = Path(checkpoint).with_name(Path(state.best_model_checkpoint).name)
        self.state.best_model_checkpoint = str(best)
        if self.args.load_best_model_at_end and not best.is_dir():
            raise ValueError(
                f"resume_from_checkpoint: the best one, {best.name}, is missing; restore it, or"
                " train in another folder"
            )

    def _get_train_sampler(self, *args, **kwargs):
        sampler = super()._get_train_sampler(*args, **kwargs)
        if isinstance(sampler, LengthGroupedSampler):
            # it has no seed: a resumed training would see another order
            seed = self.args.data_seed
            if seed is None:
                seed = self.args.seed
            sampler.generator = torch.Generator()
            sampler.set_epoch = lambda epoch: sampler.generator.manual_seed(seed + epoch)
        return sampler

    def _save_checkpoint(self, *args, **kwargs):
        folder = Path(self.args.output_dir)
        name = f"checkpoint-{self.state.global_step}"
        limit = self.args.save_total_limit
        self.args.save_total_limit = None  # older ones are removed once this one is whole
        try:
            super()._save_checkpoint(*args, **kwargs)
            PartialState().wait_for_everyone()  # every rank writes its random state
            if self.state.is_world_process_zero:
                write_manifest(folder / name)
        except Exception as error:
            # torch, `safetensors` and `tokenizers` raise errors of their own for a full disk
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise OSError(
                f"{name} could not be written to {str(folder)!r} ({reason}); earlier checkpoints"
                f" are whole: make room and {RESUME}"
            ) from error
        finally:
            self.args.save_total_limit = limit
        if self.args.should_save:
            best = self.state.best_model_checkpoint
            rotate_checkpoints(self.args.output_dir, limit, best, use_mtime=True)


def leave_group(worker_init_fn: Callable[[int], None] | None, worker: int) -> None:
    """For `DataLoader(worker_init_fn=…)`: put a worker into its own process group, and then do what
    the loader's own function does. Launchers stop a whole group, but a rank needs its workers for
    the last step."""
    if hasattr(os, "setpgrp"):  # not on Windows
        os.setpgrp()
    if worker_init_fn is not None:
        worker_init_fn(worker)


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

    def on_train_begin(self, args, state, control, train_dataloader=None, **kwargs):
        # the loader of accelerate wraps the one that has workers
        loader = getattr(train_dataloader, "base_dataloader", train_dataloader)
        if loader is not None and args.dataloader_num_workers:
            loader.worker_init_fn = functools.partial(leave_group, loader.worker_init_fn)
        # other threads cannot handle signals
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
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
                print(f"Stopped by a signal: step {state.global_step} is saved; {RESUME}")
            if self.received == signal.SIGINT:
                raise KeyboardInterrupt
            raise SystemExit(128 + signal.SIGTERM)
