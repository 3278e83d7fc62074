"""Every table and every picture of the project is drawn here.

`format_table` aligns text, `picture` opens one matplotlib figure and saves it; what is drawn stands below them.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
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


def plot_losses(log_history: Sequence[dict], path: str | Path, metric: str, report: Mapping[str, Any]) -> None:
    """Draw training and validation loss over optimizer steps; nothing where neither has two points.

    Args:
        log_history: `Trainer`'s (`state.log_history`).
        path: the PNG.
        metric: the loss that evaluations log as `eval_…`, and training as itself where it logs it apart.
        report: its `unigram_loss` or `constant_loss` is drawn as a horizontal line.
    """
    curves = {}
    for key, label in ((metric, "training"), (f"eval_{metric}", "validation")):
        curves[label] = [(entry["step"], entry[key]) for entry in log_history if key in entry]
        if not curves[label] and key == metric:
            curves[label] = [(entry["step"], entry["loss"]) for entry in log_history if "loss" in entry]
    if max(map(len, curves.values())) < 2:
        return
    with picture(path, "Loss in training") as axes:
        for label, points in curves.items():
            if points:
                axes.plot(*zip(*points), marker="o" if label == "validation" else None, label=label)
        for key, label in (("unigram_loss", "unigram baseline"), ("constant_loss", "the same answer for every token")):
            if key in report:
                axes.axhline(report[key], color="gray", linestyle="--", linewidth=1, label=label)
        axes.set(xlabel="optimizer step", ylabel=f"{metric.replace('_', ' ')} (nats)")
        axes.grid(alpha=0.3)
        axes.legend()


# --- pretraining ---


def describe_pretraining(report: Mapping[str, Any]) -> str:
    """The figures of a pretraining (`report.json`), beside those of something simple: unigram frequencies, or the
    answer "original" for every token."""
    detects = "generator" in report
    prefix, baseline = ("constant_", "always original") if detects else ("unigram_", "unigram")
    losses = {"": report["validation_loss"], prefix: report[f"{prefix}loss"]}
    columns = ("accuracy", "replaced_precision", "replaced_recall", "replaced_f1") if detects else ("accuracy",)
    rows = [
        (
            name,
            f"{losses[of]:.3f}",
            f"{math.exp(losses[of]):.1f}",
            *(f"{report[of + column]:.1%}" if of + column in report else "" for column in columns),
        )
        for name, of in (("MiniBERT", ""), (baseline, prefix))
    ]
    of = {"clm": "next tokens", "rtd": "tokens"}.get(report["objective"], "masked positions")
    lines = [
        f"At {report['targets']:,} {of} of the held-out documents:",
        format_table(("", "loss", "perplexity", *(column.replace("_", " ") for column in columns)), rows),
    ]
    if "nsp_loss" in report:
        guessing = f"(guessing {math.log(2):.3f})"
        lines.append(f"next sentence: loss {report['nsp_loss']:.3f} {guessing}, accuracy {report['nsp_accuracy']:.1%}")
    if detects:
        generator = report["generator"]
        lines.append(
            f"The generator at {generator['targets']:,} masked positions: loss {generator['loss']:.3f} (unigram"
            f" {generator['unigram_loss']:.3f}), accuracy {generator['accuracy']:.1%} (unigram"
            f" {generator['unigram_accuracy']:.1%})"
        )
    return "\n".join(lines)


# --- data ---


def plot_rates(measured: Mapping[tuple[str, int], Mapping[str, Any]], path: str | Path) -> None:
    """Masking rates as `mask_stats.Rate`s by their name, of every (what was observed, over how many tokens): a panel
    for each rate, with 95 % intervals against the expected value."""
    labels, sizes = (list(dict.fromkeys(column)) for column in zip(*measured))
    names = list(next(iter(measured.values())))
    height = 1.8 + 0.3 * len(labels)
    with picture(path, "Observed masking rates", len(names), (12, height), sharey=True, squeeze=False) as panels:
        for name, panel in zip(names, panels[0]):
            for place, size in enumerate(sizes):
                shown = [(label, measured[label, size][name]) for label in labels]
                panel.errorbar(
                    [100 * rate.observed for _, rate in shown],
                    [labels.index(label) + 0.3 * (place / len(sizes) - 0.25) for label, _ in shown],
                    xerr=[100 * rate.half_interval for _, rate in shown],
                    fmt="o",
                    markersize=3,
                    capsize=2,
                    label=f"{size:,} tokens",
                )
            panel.axvline(100 * shown[0][1].expected, color="0.6", linewidth=1, zorder=0)
            panel.set_title(f"{name}: expected {shown[0][1].expected:.1%}", fontsize=10)
            panel.set_xlabel("% of tokens" if name == names[0] else "% of chosen tokens")
            panel.locator_params(axis="x", nbins=5)
        panel.set_yticks(range(len(labels)), labels)
        panel.invert_yaxis()
        handles = panel.get_legend_handles_labels()
        panel.figure.legend(*handles, loc="outside lower center", ncols=len(sizes), frameon=False)


def plot_tokens(figures: Mapping[str, Mapping[str, Mapping[str, float]]], path: str | Path) -> None:
    """The figures of `minibert fertility` as bars: a group for every language, a bar for every tokenizer."""
    languages = list(next(iter(figures.values())))
    width = 0.8 / len(figures)
    with picture(path, "Tokens of the same text, by tokenizer", size=(max(6, 0.8 * len(languages)), 4.5)) as axes:
        for i, (name, counts) in enumerate(figures.items()):
            places = [place + (i - (len(figures) - 1) / 2) * width for place in range(len(languages))]
            axes.bar(places, [counts[language]["tokens_per_passage"] for language in languages], width, label=name)
        axes.set_xticks(range(len(languages)), languages)
        axes.set(xlabel="language", ylabel="tokens per passage")
        axes.grid(axis="y", alpha=0.3)
        axes.legend()
