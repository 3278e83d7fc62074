"""`TrainingArguments` of every training: what is refused, and how the best model is chosen."""

import math
from collections.abc import Sequence
from typing import Any, TypeVar

from transformers import TrainingArguments
from transformers.integrations import get_available_reporting_integrations

from ..common.precision import resolve_precision

Settings = TypeVar("Settings", bound=TrainingArguments)  # with a field `minutes`

# `Trainer` needs a number of steps: with `minutes`, one that the clock never lets it reach.
UNREACHABLE_STEPS = 10**9
# Values of `report_to` that need a package, and what installs it.
TRACKER_PACKAGES = {
    "clearml": "clearml",
    "codecarbon": "codecarbon",
    "comet_ml": "comet-ml",
    "dvclive": "dvclive",
    "mlflow": "mlflow",
    "swanlab": "swanlab",
    "tensorboard": "tensorboard",
    "trackio": "trackio",
    "wandb": "wandb",
}


def check_training(args: TrainingArguments) -> None:
    """Refuse (ValueError) what would end a training only after all data is read, or compute
    otherwise than asked."""
    for name in ("learning_rate", "weight_decay", "muon_learning_rate"):
        value = getattr(args, name, None)
        if value is not None and not 0 <= value < math.inf:
            raise ValueError(f"{name} must be a finite number, 0 or above, got {value}")
    if args.n_gpu > 1:  # `DataParallel` computes in fp32 whatever was asked for
        raise ValueError(
            f"{args.n_gpu} GPUs need a process each: `torchrun --nproc_per_node"
            f" {args.n_gpu} -m minibert.training.cli …`; or set CUDA_VISIBLE_DEVICES=0"
        )
    installed = get_available_reporting_integrations()
    for name in args.report_to:
        if name in TRACKER_PACKAGES and name not in installed:
            raise ValueError(
                f"report_to: {name} is not installed; pip install {TRACKER_PACKAGES[name]}, or"
                " leave report_to out"
            )


def trainer_settings(args: Settings) -> Settings:
    """A copy of the settings as `Trainer` takes them: with a number format, and steps that the
    clock can end."""
    args = resolve_precision(args)
    if args.minutes is not None:
        args.max_steps = UNREACHABLE_STEPS
    return args


def choose_best_metric(
    args: TrainingArguments, default_metric: str, metrics: Sequence[str]
) -> dict[str, Any]:
    """The fields of `TrainingArguments` by which the best checkpoint is chosen: the
    `default_metric` unless the user names another one of the `metrics`."""
    metric = (args.metric_for_best_model or "auto").removeprefix("eval_")
    if metric == "auto":
        return {"metric_for_best_model": default_metric, "greater_is_better": True}
    if metric not in metrics:
        raise ValueError(
            f"metric_for_best_model: {metric!r} is not measured; use one of {', '.join(metrics)}"
        )
    if metric == "mse":  # Transformers knows that smaller is better for "loss" only
        return {"greater_is_better": False}
    return {}
