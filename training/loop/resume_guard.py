"""What must be equal when a training is resumed: its settings and its rows."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch.optim.lr_scheduler import LambdaLR
from transformers import TrainerCallback, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from ..common.config_fields import check_same_settings


class ResumeGuardCallback(TrainerCallback, ExportableState):
    """Save in the trainer_state.json of each checkpoint the settings that must be the same when it
    is resumed."""

    # in the checkpoints of older versions
    former_name = "SettingsState"
    former_settings = ("embedding_init",)  # without effect on a training that is resumed

    def __init__(self, settings: dict[str, Any], former_defaults: Mapping[str, Any] | None = None):
        """`former_defaults`: what a setting was where older versions saved None."""
        self.former_defaults = former_defaults or {}
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
        for name, value in self.former_defaults.items():
            if name in saved and saved[name] is None:
                saved[name] = value
        # older versions saved fewer
        now = {name: value for name, value in self.settings.items() if name in saved}
        check_same_settings(
            saved,
            now,
            f"the checkpoint {str(checkpoint)!r} was trained with",
            "give the arguments of that run",
        )


def settings_of_steps(args: TrainingArguments) -> dict[str, Any]:
    """The arguments that decide which rows a step has, how it changes the weights, and which step
    is the best. They must be the same when a training is resumed."""
    size = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
    batch = "per_device_train_batch_size · gradient_accumulation_steps · processes"
    settings = {batch: size, "optim": args.optim.value.removesuffix("_fused")}
    settings["lr_scheduler_type"] = "one by steps"
    if args.lr_scheduler_type.value in ("reduce_lr_on_plateau", "greedy"):
        settings["lr_scheduler_type"] = args.lr_scheduler_type.value
    for name in (
        "learning_rate",
        "weight_decay",
        "adam_beta1",
        "adam_beta2",
        "adam_epsilon",
        "max_grad_norm",
        "label_smoothing_factor",
        "seed",
        "data_seed",
        "train_sampling_strategy",
        "metric_for_best_model",
    ):
        settings[name] = getattr(args, name)
    return settings


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
    # private: `get_last_lr`, which is logged, has no public setter
    scheduler.load_state_dict(scheduler.state_dict() | {"_last_lr": rates})


def rows_checksum(rows: Sequence[Mapping[str, Any]]) -> str:
    """The number of rows, and a checksum of 16 of them, to notice that a training has other
    rows."""
    sample = [rows[number * (len(rows) - 1) // 15] for number in range(16)]
    text = json.dumps(sample, sort_keys=True, default=lambda array: array.tolist())
    return f"{len(rows)}, sha256 {hashlib.sha256(text.encode()).hexdigest()[:12]}…"
