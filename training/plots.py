"""Pictures of a training run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt


def plot_losses(
    log_history: Sequence[dict], path: str | Path, metric: str, baselines: dict[str, float] | None = None
) -> None:
    """Draw training and validation loss over optimizer steps.

    Args:
        log_history: `Trainer`'s (`state.log_history`).
        path: the PNG.
        metric: the loss that evaluations log as `eval_…`, and training as itself where it logs it apart.
        baselines: losses drawn as horizontal lines, by name.
    """
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for key, label, marker in ((metric, "training", None), (f"eval_{metric}", "validation", "o")):
        points = [(entry["step"], entry[key]) for entry in log_history if key in entry]
        if not points and key == metric:
            points = [(entry["step"], entry["loss"]) for entry in log_history if "loss" in entry]
        if points:
            axes.plot(*zip(*points), marker=marker, label=label)
    for name, value in (baselines or {}).items():
        axes.axhline(value, color="gray", linestyle="--", linewidth=1, label=name)
    axes.set(xlabel="optimizer step", ylabel=f"{metric.replace('_', ' ')} (nats)")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)
