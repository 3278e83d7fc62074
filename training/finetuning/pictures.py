"""Pictures of what a fine-tuned model predicts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import numpy as np
from matplotlib import pyplot as plt
from sklearn.metrics import ConfusionMatrixDisplay

AS_WRITTEN = plt.rc_context({"text.parse_math": False})  # a label such as "$a_$" is no formula


@AS_WRITTEN
def plot_confusion(predictions: Sequence[int], references: Sequence[int], labels: Sequence[str], path: Path) -> None:
    """Draw how often each true class (row) was taken for each class (column); colours are shares of the row."""
    counts = np.zeros((len(labels), len(labels)), dtype=np.int64)
    np.add.at(counts, (np.asarray(references), np.asarray(predictions)), 1)
    side = min(14, 2.5 + 0.8 * len(labels))
    figure, axes = plt.subplots(figsize=(side + 1, side), layout="constrained")
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    display = ConfusionMatrixDisplay(shares, display_labels=labels)
    few = len(labels) <= 20
    display.plot(ax=axes, cmap="Blues", xticks_rotation=45, include_values=few, im_kw={"vmin": 0, "vmax": 1})
    if few:
        for text, count in zip(display.text_.ravel(), counts.ravel()):
            text.set_text(f"{count:,}")
    figure.savefig(path, dpi=120)
    plt.close(figure)


@AS_WRITTEN
def plot_values(predictions: Sequence[float], references: Sequence[float], path: Path) -> None:
    """Draw predicted values over true ones."""
    figure, axes = plt.subplots(figsize=(5.5, 5), layout="constrained")
    axes.scatter(references, predictions, s=6, alpha=0.4)
    ends = [min(np.min(references), np.min(predictions)), max(np.max(references), np.max(predictions))]
    axes.plot(ends, ends, color="gray", linestyle="--", linewidth=1)
    axes.set(xlabel="true value", ylabel="predicted value")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    plt.close(figure)


@AS_WRITTEN
def plot_scores(scores: dict[str, float], name: str, path: Path) -> None:
    """Draw one score between 0 and 1 for every label, as bars."""
    figure, axes = plt.subplots(figsize=(7, 1.5 + 0.3 * len(scores)), layout="constrained")
    bars = axes.barh(list(scores), list(scores.values()))
    axes.bar_label(bars, fmt="%.2f", padding=3)
    axes.set(xlabel=name, xlim=(0, 1.1))
    axes.invert_yaxis()
    figure.savefig(path, dpi=120)
    plt.close(figure)


@AS_WRITTEN
def plot_per_type(scores: dict[str, dict[str, float]], path: Path) -> None:
    """Draw precision, recall and F1 of every type of entity, the most frequent one first.

    Args:
        scores: for each type {precision, recall, f1, support}.
    """
    types = sorted(scores, key=lambda kind: -scores[kind]["support"])
    figure, axes = plt.subplots(figsize=(7, 1.7 + 0.7 * max(len(types), 1)), layout="constrained")
    for place, name in enumerate(("precision", "recall", "f1")):
        heights = np.arange(len(types)) + 0.27 * (place - 1)
        bars = axes.barh(heights, [scores[kind][name] for kind in types], height=0.25, label=name)
        axes.bar_label(bars, fmt="%.2f", padding=3, fontsize=8)
    axes.set_yticks(range(len(types)), [f"{kind} ({scores[kind]['support']:,})" for kind in types])
    axes.set(xlabel="score (number of true entities in brackets)", xlim=(0, 1.1))
    axes.invert_yaxis()
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    figure.savefig(path, dpi=120)
    plt.close(figure)
