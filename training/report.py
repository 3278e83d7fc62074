"""Every table and every picture of the project is drawn here.

`format_table` aligns text, `picture` opens one matplotlib figure and saves it; what is drawn stands below them.
"""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import numpy as np
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


# --- fine-tuning ---

MOST_BARS = 60  # labels: a picture of more cannot be read


def format_scores(rows: Mapping[str, Mapping[str, float | str]]) -> str:
    """Metrics (columns) of splits or models (rows) as a table; where there are many metrics, one a row."""
    metrics = list(dict.fromkeys(metric for row in rows.values() for metric in row))
    if len(metrics) > 8:
        return format_table(["", *rows], [[metric, *(row.get(metric) for row in rows.values())] for metric in metrics])
    return format_table(["", *metrics], [[name, *map(row.get, metrics)] for name, row in rows.items()])


def plot_confusion(
    predictions: Sequence[int], references: Sequence[int], labels: Sequence[str], path: str | Path
) -> None:
    """Draw how often each true class (row) was taken for each class (column); colours are shares of the row."""
    counts = np.zeros((len(labels), len(labels)), dtype=np.int64)
    np.add.at(counts, (np.asarray(references), np.asarray(predictions)), 1)
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    side = min(14.0, 2.5 + 0.8 * len(labels))
    with picture(path, "Predicted and true classes", size=(side + 1, side)) as axes:
        image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        axes.figure.colorbar(image, label="share of the true class")
        axes.set(xlabel="predicted class", ylabel="true class")
        if len(labels) <= MOST_BARS:
            axes.set_xticks(range(len(labels)), map(_one_line, labels), rotation=45, ha="right")
            axes.set_yticks(range(len(labels)), map(_one_line, labels))
        for (row, column), count in np.ndenumerate(counts) if len(labels) <= 20 else ():
            is_dark = np.dot(image.cmap(shares[row, column])[:3], (0.299, 0.587, 0.114)) < 0.55
            color = "white" if is_dark else "black"
            axes.text(column, row, f"{count:,}", ha="center", va="center", color=color)


def plot_values(predictions: Sequence[float], references: Sequence[float], path: str | Path) -> None:
    """Draw predicted values over true ones."""
    with picture(path, "Predicted and true values", size=(5.5, 5)) as axes:
        axes.scatter(references, predictions, s=6, alpha=0.4)
        ends = [min(np.min(references), np.min(predictions)), max(np.max(references), np.max(predictions))]
        axes.plot(ends, ends, color="gray", linestyle="--", linewidth=1)
        axes.set(xlabel="true value", ylabel="predicted value")
        axes.grid(alpha=0.3)


def plot_scores(scores: Mapping[str, float], name: str, path: str | Path) -> None:
    """Draw the score `name`, between 0 and 1, of every label."""
    _plot_bars(list(scores), {name: list(scores.values())}, path, f"{name} by label", name)


def plot_per_type(scores: Mapping[str, Mapping[str, float]], path: str | Path) -> None:
    """Draw precision, recall and F1 of every type of entity, the most frequent one first.

    Args:
        scores: for each type {precision, recall, f1, support}.
    """
    types = sorted(scores, key=lambda kind: -scores[kind]["support"])
    bars = {name: [scores[kind][name] for kind in types] for name in ("precision", "recall", "f1")}
    labels = [f"{kind} ({scores[kind]['support']:,})" for kind in types]
    _plot_bars(labels, bars, path, "Scores by type of entity", "score (number of true entities in brackets)")


def _plot_bars(labels: list[str], bars: dict[str, list[float]], path: str | Path, title: str, xlabel: str) -> None:
    """Draw bars of values from 0 to 1, those of one label together."""
    if len(labels) > MOST_BARS:
        title = f"{title}, {MOST_BARS} of {len(labels):,}"
        labels, bars = labels[:MOST_BARS], {name: values[:MOST_BARS] for name, values in bars.items()}
    places, height = np.arange(len(labels)), 0.8 / len(bars)
    with picture(path, title, size=(7, 1.7 + (0.1 + 0.2 * len(bars)) * len(labels))) as axes:
        for i, (name, values) in enumerate(bars.items()):
            drawn = axes.barh(places + height * (i - (len(bars) - 1) / 2), values, height=0.9 * height, label=name)
            axes.bar_label(drawn, fmt="%.2f", padding=3, fontsize=8)
        axes.set_yticks(places, map(_one_line, labels))
        axes.set(xlabel=xlabel, xlim=(0, 1.1))
        axes.invert_yaxis()
        if len(bars) > 1:
            axes.legend(loc="upper left", bbox_to_anchor=(1, 1))


def _one_line(label: str) -> str:
    return textwrap.shorten(label, 40, placeholder="…") or " "
