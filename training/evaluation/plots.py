"""Pictures of trainings and of their scores."""

import contextlib
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..common.files import atomic_write
from ..common.printable import printable

# Classes or labels: a picture of more cannot be read.
MAX_NAMES_IN_PICTURE = 60
MAX_POINTS_WITH_MARKERS = 30
MAX_CLASSES_WITH_VALUES = 20


@contextlib.contextmanager
def picture(
    path: str | Path,
    title: str,
    panels: int | None = None,
    size: tuple[float, float] = (8, 4.5),
    **options: Any,
) -> Iterator[Any]:
    """One figure with a title, saved as PNG at the end, with a legend wherever something is
    labelled: the axes of its `panels` as a list, or the only ones. `size` is in inches, `options`
    are those of `Figure.subplots`."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure  # not pyplot, which would choose how a notebook shows it

    style = {
        "axes.grid": True,
        "grid.alpha": 0.3,
        "legend.fontsize": 8,
        "text.parse_math": False,  # a label such as "$a_$" is no formula
    }
    with rc_context(style):
        figure = Figure(size, layout="constrained")
        all_axes = list(figure.subplots(1, panels or 1, squeeze=False, **options)[0])
        figure.suptitle(title)
        yield all_axes if panels else all_axes[0]
        for axes in all_axes:
            has_labels = bool(axes.get_legend_handles_labels()[0])
            if has_labels and not figure.legends:
                axes.legend()
        with atomic_write(Path(path)) as unfinished:
            figure.savefig(unfinished, dpi=120)


def plot_training(
    log_history: Sequence[dict], path: str | Path, metric: str, lines: Mapping[str, float] = {}
) -> None:
    """Draw the training loss and, beside it, the held-out `metric` over optimizer steps, from a
    `Trainer`'s log (`state.log_history`), with horizontal `lines` by label. What was measured once
    is no curve and is not drawn."""
    curves = {}
    for log_key, label in (("loss", "training loss"), (f"eval_{metric}", f"held-out {metric}")):
        points = [(log["step"], log[log_key]) for log in log_history if log_key in log]
        if len(points) > 1:
            curves[label] = points
    if not curves:
        return
    size = (5.5 * len(curves), 4.5)
    both_are_losses = metric.endswith("loss")
    with picture(path, "Training", len(curves), size, sharey=both_are_losses) as panels:
        for axes, (label, points) in zip(panels, curves.items()):
            steps, values = zip(*points)
            marker = "o" if len(points) < MAX_POINTS_WITH_MARKERS else ""
            axes.plot(steps, values, marker=marker)
            axes.set(xlabel="optimizer step", ylabel=label)
        for label, value in lines.items():
            label = label.replace("_", " ")
            axes.axhline(value, color="gray", linestyle="--", linewidth=1, label=label)


def _one_line(labels: Sequence[str]) -> list[str]:
    return [printable(textwrap.shorten(label, 40, placeholder="…")) or " " for label in labels]


def plot_confusion(
    predictions: Sequence[int],
    references: Sequence[int],
    labels: Sequence[str],
    path: str | Path,
    note: str = "",
) -> None:
    """Draw the share of each true class (row) that was taken for each class (column), of the
    classes that are true most often, `MAX_NAMES_IN_PICTURE` at most."""
    from sklearn.metrics import ConfusionMatrixDisplay

    rows_per_class = np.bincount(references, minlength=len(labels))
    most_frequent = np.argsort(-rows_per_class, kind="stable")
    drawn_classes = np.sort(most_frequent[:MAX_NAMES_IN_PICTURE])
    title = "Predicted and true classes"
    if len(drawn_classes) < len(labels):
        title += f", {MAX_NAMES_IN_PICTURE} of {len(labels):,}"
    side = min(14.0, 2.5 + 0.8 * len(drawn_classes))  # inches
    with picture(path, title + note, size=(side + 1, side)) as axes:
        axes.grid(False)
        ConfusionMatrixDisplay.from_predictions(
            references,
            predictions,
            labels=drawn_classes,
            display_labels=_one_line([labels[index] for index in drawn_classes]),
            normalize="true",
            include_values=len(drawn_classes) <= MAX_CLASSES_WITH_VALUES,
            values_format=".2f",
            cmap="Blues",
            xticks_rotation=45,
            ax=axes,
        )


def plot_values(
    predictions: Sequence[float], references: Sequence[float], path: str | Path, note: str = ""
) -> None:
    """Draw a point for each row, and the line where predicted and true value are equal."""
    with picture(path, "Predicted and true values" + note, size=(5.5, 5)) as axes:
        axes.scatter(references, predictions, s=6, alpha=0.4)
        lowest = min(np.min(references), np.min(predictions))
        highest = max(np.max(references), np.max(predictions))
        axes.plot([lowest, highest], [lowest, highest], color="gray", linestyle="--", linewidth=1)
        axes.set(xlabel="true value", ylabel="predicted value")


def plot_scores(scores: Mapping[str, float], name: str, path: str | Path, note: str = "") -> None:
    """Draw the score `name`, between 0 and 1, of every label (of many, of the first)."""
    drawn_scores = dict(list(scores.items())[:MAX_NAMES_IN_PICTURE])
    height = 1.7 + 0.3 * len(drawn_scores)
    with picture(path, f"{name} by label{note}", size=(7, height)) as axes:
        bars = axes.barh(range(len(drawn_scores)), list(drawn_scores.values()))
        axes.bar_label(bars, fmt="%.2f", padding=3, fontsize=8)
        axes.set_yticks(range(len(drawn_scores)), _one_line(list(drawn_scores)))
        axes.set(xlabel=name, xlim=(0, 1.1))
        axes.invert_yaxis()
