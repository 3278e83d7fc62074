"""Every table and every picture of the project is drawn here.

`format_table` aligns text, `picture` opens one matplotlib figure and saves it; what is drawn stands below them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt


def format_table(header: Sequence[str], rows: Sequence[Sequence[Any]], digits: int = 4) -> str:
    """Rows under their header as aligned text: words on the left, numbers on the right, None as a blank.

    Args:
        digits: decimals of floating-point cells; format a cell yourself (as a string) where it needs other ones.
    """

    def show(cell: Any) -> str:
        if cell is None:
            return ""
        return f"{cell:,.{digits}f}" if isinstance(cell, float) else f"{cell:,}" if isinstance(cell, int) else str(cell)

    lines = [list(map(str, header)), *([show(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines)]
    words = [all(isinstance(cell, str) for cell in column) for column in zip(*rows)] or [True] * len(widths)
    words[0] = True
    return "\n".join(
        "  ".join(
            cell.ljust(width) if left else cell.rjust(width) for cell, width, left in zip(line, widths, words)
        ).rstrip()
        for line in lines
    )


@contextlib.contextmanager
def picture(
    path: str | Path, title: str, panels: int = 1, size: tuple[float, float] = (8, 4.5), **options: Any
) -> Iterator[Any]:
    """One figure with a title, saved as PNG at the end: `with picture(path, "Loss") as axes: axes.plot(…)`.

    Args:
        panels: axes beside each other; with more than one, a list of them is handed over.
        size: width and height in inches.
        options: for `plt.subplots`, such as `sharey=True`.
    """
    with plt.rc_context({"text.parse_math": False}):  # a label such as "$a_$" is no formula
        figure, axes = plt.subplots(1, panels, figsize=size, layout="constrained", **options)
        figure.suptitle(title)
        try:
            yield axes
            figure.savefig(path, dpi=120)
        finally:
            plt.close(figure)


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
    with picture(path, "Loss in training") as axes:
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


# --- embeddings ---


def plot_embedding_training(log_history: Sequence[dict], path: str | Path, metric: str, before: float) -> None:
    """Draw the training loss and, beside it, the metric on the held-out data from its value before training on. What
    was measured once is no curve and is not drawn.

    Args:
        log_history: `Trainer`'s (`state.log_history`).
    """
    losses = [(entry["step"], entry["loss"]) for entry in log_history if "loss" in entry]
    scores = [(entry["step"], entry[f"eval_{metric}"]) for entry in log_history if f"eval_{metric}" in entry]
    drawn = [("training loss", losses, None), (f"{metric}, held out", [(0, before), *scores], "o")]
    drawn = [(label, points, marker) for label, points, marker in drawn if len(points) > 1]
    if not drawn:
        return
    with picture(path, "Training loss and quality", len(drawn), (5.5 * len(drawn), 4)) as panels:
        for axes, (label, points, marker) in zip(panels if len(drawn) > 1 else [panels], drawn):
            axes.plot(*zip(*points), marker=marker)
            axes.set(xlabel="optimizer step", ylabel=label)
            axes.grid(alpha=0.3)
