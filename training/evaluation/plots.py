"""Pictures of trainings and of their scores."""

import contextlib
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from sklearn.metrics import ConfusionMatrixDisplay

MOST_NAMES = 60  # classes or labels: a picture of more cannot be read


@contextlib.contextmanager
def picture(
    path: str | Path,
    title: str,
    panels: int | None = None,
    size: tuple[float, float] = (8, 4.5),
    **options: Any,
) -> Iterator[Any]:
    """One figure with a title, saved as PNG at the end, with a legend wherever something is labelled: the axes of its
    `panels` as a list, or the only ones. `size` is in inches, `options` are those of `Figure.subplots`."""
    # `parse_math`: a label such as "$a_$" is no formula.
    style = {"axes.grid": True, "grid.alpha": 0.3, "legend.fontsize": 8, "text.parse_math": False}
    with rc_context(style):
        figure = Figure(
            size, layout="constrained"
        )  # without pyplot, which would choose how a notebook shows figures
        axes = figure.subplots(1, panels or 1, squeeze=False, **options)
        figure.suptitle(title)
        yield list(axes[0]) if panels else axes[0, 0]
        for each in axes[0]:
            if each.get_legend_handles_labels()[0] and not figure.legends:
                each.legend()
        figure.savefig(path, dpi=120)


def plot_training(
    log_history: Sequence[dict], path: str | Path, metric: str, lines: Mapping[str, float] = {}
) -> None:
    """Draw the training loss and, beside it, the held-out `metric` over optimizer steps, from a `Trainer`'s log
    (`state.log_history`), with horizontal `lines` by label. What was measured once is no curve and is not drawn."""
    names = {"loss": "training loss", f"eval_{metric}": f"held-out {metric}"}
    points = {
        label: [(log["step"], log[name]) for log in log_history if name in log]
        for name, label in names.items()
    }
    curves = {label: drawn for label, drawn in points.items() if len(drawn) > 1}
    if not curves:
        return
    size, same = (5.5 * len(curves), 4.5), metric.endswith("loss")
    with picture(path, "Training", len(curves), size, sharey=same) as panels:
        for axes, (name, drawn) in zip(panels, curves.items()):
            axes.plot(*zip(*drawn), marker="o" if len(drawn) < 30 else "")
            axes.set(xlabel="optimizer step", ylabel=name)
        for label, value in lines.items():
            axes.axhline(
                value, color="gray", linestyle="--", linewidth=1, label=label.replace("_", " ")
            )


def _one_line(labels: Sequence[str]) -> list[str]:
    return [textwrap.shorten(label, 40, placeholder="…") or " " for label in labels]


def plot_confusion(
    predictions: Sequence[int],
    references: Sequence[int],
    labels: Sequence[str],
    path: str | Path,
    note: str = "",
) -> None:
    """Draw the share of each true class (row) that was taken for each class (column), of the `MOST_NAMES` that are true
    most often."""
    often = np.argsort(-np.bincount(references, minlength=len(labels)), kind="stable")
    kept, title = np.sort(often[:MOST_NAMES]), "Predicted and true classes"
    if len(kept) < len(labels):
        title += f", {MOST_NAMES} of {len(labels):,}"
    side = min(14.0, 2.5 + 0.8 * len(kept))
    with picture(path, title + note, size=(side + 1, side)) as axes:
        axes.grid(False)
        names = _one_line([labels[i] for i in kept])
        options = dict(
            include_values=len(kept) <= 20,
            values_format=".2f",
            cmap="Blues",
            xticks_rotation=45,
            ax=axes,
        )
        ConfusionMatrixDisplay.from_predictions(
            references, predictions, labels=kept, display_labels=names, normalize="true", **options
        )


def plot_values(
    predictions: Sequence[float], references: Sequence[float], path: str | Path, note: str = ""
) -> None:
    with picture(path, "Predicted and true values" + note, size=(5.5, 5)) as axes:
        axes.scatter(references, predictions, s=6, alpha=0.4)
        ends = [
            min(np.min(references), np.min(predictions)),
            max(np.max(references), np.max(predictions)),
        ]
        axes.plot(ends, ends, color="gray", linestyle="--", linewidth=1)
        axes.set(xlabel="true value", ylabel="predicted value")


def plot_scores(scores: Mapping[str, float], name: str, path: str | Path, note: str = "") -> None:
    """Draw the score `name`, between 0 and 1, of every label (of many, of the first)."""
    shown = dict(list(scores.items())[:MOST_NAMES])
    with picture(path, f"{name} by label{note}", size=(7, 1.7 + 0.3 * len(shown))) as axes:
        drawn = axes.barh(range(len(shown)), [*shown.values()])
        axes.bar_label(drawn, fmt="%.2f", padding=3, fontsize=8)
        axes.set_yticks(range(len(shown)), _one_line([*shown]))
        axes.set(xlabel=name, xlim=(0, 1.1))
        axes.invert_yaxis()
