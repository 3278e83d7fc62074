"""Every table and every picture of the project is drawn here.

`format_table` aligns text, `picture` opens one matplotlib figure and saves it; what is drawn stands below them.
"""

import contextlib
import itertools
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from sklearn.metrics import confusion_matrix
from tqdm.auto import tqdm

from .files import printable
from .metrics import is_better, margin


def format_table(header: Sequence[str], rows: Sequence[Sequence[Any]], digits: int = 4) -> str:
    """Rows under their header as aligned text: words on the left, numbers on the right, None as a blank.

    Args:
        digits: decimals of floating-point cells; format a cell yourself (as a string) where it needs other ones.
    """

    def show(cell: Any) -> str:
        if cell is None:
            return ""
        text = f"{cell:,.{digits}f}" if isinstance(cell, float) else f"{cell:,}" if isinstance(cell, int) else str(cell)
        return printable(text)

    lines = [list(map(printable, header)), *([show(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines)]
    words = [all(isinstance(cell, str) for cell in column) for column in zip(*rows)] or [True] * len(widths)
    words[0] = True
    aligned = [f"{'<' if left else '>'}{width}" for left, width in zip(words, widths)]
    return "\n".join("  ".join(map(format, line, aligned)).rstrip() for line in lines)


def warn(text: str) -> None:
    """Print a warning, above the progress bar if there is one."""
    tqdm.write(f"WARNING: {printable(text)}")


def judge(metric: str, value: float | None, baseline: float | None, what: str, rows: int | None = None) -> str | None:
    """A warning if a result is not better than `what`, or if the difference may be chance on so few `rows`; else
    None."""
    if value is None or baseline is None:
        return None
    figures = f"{what} ({metric} {value:.4g}, against {baseline:.4g})"
    if not is_better(metric, value, baseline):
        how = "no better" if value == baseline else "worse"
        use = "train longer, on more data, or at another learning rate"
        use += ", or with --class_weights balanced" * (metric == "f1_macro")
        return f"{how} than {figures}: do not use this model; {use}"
    if rows is not None and abs(value - baseline) < margin(rows, min(max(baseline, 0.0), 1.0)):
        return f"hardly better than {figures}: on {rows:,} rows that may be chance; measure on more"
    return None


@contextlib.contextmanager
def picture(
    path: str | Path,
    title: str,
    panels: int | None = None,
    size: tuple[float, float] = (8, 4.5),
    grid: str | None = "both",
    **options: Any,
) -> Iterator[Any]:
    """One figure with a title, saved as PNG at the end, with a legend wherever something is labelled: the axes of its
    `panels` as a list, or the only ones. `size` is in inches, `grid` the axis whose ticks have lines ("x", "y", "both",
    None), `options` are those of `Figure.subplots`."""
    style = {"axes.grid": grid is not None, "axes.grid.axis": grid or "both", "grid.alpha": 0.3}
    style |= {"legend.fontsize": 8, "axes.titlesize": 10, "text.parse_math": False}  # "$a_$" is no formula
    with rc_context(style):
        figure = Figure(size, layout="constrained")  # without pyplot, which would choose how a notebook shows figures
        axes = figure.subplots(1, panels or 1, squeeze=False, **options)
        figure.suptitle(title)
        yield list(axes[0]) if panels else axes[0, 0]
        for each in axes[0]:
            if each.get_legend_handles_labels()[0] and not each.get_legend() and not figure.legends:
                each.legend()
        figure.savefig(path, dpi=120)


def _plot_bars(
    path: str | Path, title: str, bars: Mapping[str, Sequence[float]], groups: Sequence[str], xlabel: str
) -> None:
    """Draw bars with their values, beside each other in groups: of every name one in each of the first groups."""
    if len(groups) > MOST_NAMES:
        title = f"{title}, {MOST_NAMES} of {len(groups):,}"
        groups, bars = groups[:MOST_NAMES], {name: values[:MOST_NAMES] for name, values in bars.items()}
    with picture(path, title, size=(7, 1.7 + (0.1 + 0.2 * len(bars)) * len(groups)), grid=None) as axes:
        for i, (name, values) in enumerate(bars.items()):
            places = np.arange(len(groups)) + 0.8 * (i - (len(bars) - 1) / 2) / len(bars)
            drawn = axes.barh(places, values, 0.8 / len(bars), label=name)
            axes.bar_label(drawn, fmt="%.2f", padding=3, fontsize=8)
        axes.set_yticks(range(len(groups)), _one_line(groups))
        longest = max([1.0, *itertools.chain(*bars.values())])  # scores are seen on the scale of 1
        axes.set(xlabel=xlabel, xlim=(0, 1.1 * longest))
        axes.invert_yaxis()
        if len(bars) > 1:
            axes.legend(loc="upper left", bbox_to_anchor=(1, 1))


def _draw_cells(axes: Any, shares: np.ndarray, texts: np.ndarray | None, **options: Any) -> Any:
    """A table whose cells are the darker the larger their share, with texts that can be read on these colours."""
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, **options)
    for (row, column), text in np.ndenumerate(texts) if texts is not None else ():
        is_dark = np.dot(image.cmap(shares[row, column])[:3], (0.299, 0.587, 0.114)) < 0.55
        colour = "white" if is_dark else "black"
        axes.text(column, row, f"{text:,}", ha="center", va="center", fontsize=8, color=colour)
    return image


def logged(log_history: Sequence[dict], name: str) -> list[tuple[int, float]]:
    """The steps and values of a figure in a `Trainer`'s log (`state.log_history`)."""
    return [(entry["step"], entry[name]) for entry in log_history if name in entry]


def plot_losses(
    log_history: Sequence[dict], path: str | Path, metric: str, report: Mapping[str, Any] | None = None
) -> None:
    """Draw training and validation loss over optimizer steps (nothing where neither has two points), with those in the
    report of something simple as lines. Evaluations log `metric` as `eval_…`, training as itself or `loss`."""
    training = logged(log_history, metric) or logged(log_history, "loss")
    validation = logged(log_history, f"eval_{metric}")
    if max(len(training), len(validation)) < 2:
        return
    with picture(path, "Loss in training") as axes:
        for label, points, marker in (("training", training, None), ("validation", validation, "o")):
            if points:
                axes.plot(*zip(*points), marker=marker, label=label)
        lines = {"unigram_loss": "unigram baseline", "constant_loss": "the same answer for every token"}
        for key, label in (lines | {"start_loss": "before this training"}).items():
            if report and report.get(key) is not None:
                axes.axhline(report[key], color="gray", linestyle="--", linewidth=1, label=label)
        axes.set(xlabel="optimizer step", ylabel=f"{metric.replace('_', ' ')} (nats)")


# --- pretraining ---

# Accuracies at masked positions that trainings of ours reached.
KNOWN = (
    (0.297, "size tiny after 200 steps"), (0.395, "the first command of the README"),
    (0.473, "7,500 steps on books"), (0.521, "an hour on books"),
)  # fmt: skip


def describe_pretraining(report: Mapping[str, Any]) -> str:
    """The metrics of a pretraining (`report.json`), beside those of something simple: unigram frequencies, or the
    answer "original" for every token."""
    if report["validation_loss"] is None:
        return "The held-out documents have no position to predict: there is no score (--validation_size, --seq_length)"
    detects = "generator" in report
    prefix, baseline = ("constant_", "always original") if detects else ("unigram_", "unigram")
    shares = ("accuracy", "replaced_precision", "replaced_recall", "replaced_f1") if detects else ("accuracy",)
    rows = []
    for name, of in (("MiniBERT", ""), (baseline, prefix), ("before this training", "start_")):
        if report.get(f"{of or 'validation_'}loss") is None:
            continue
        loss = report[f"{of or 'validation_'}loss"]
        percent = ["" if report.get(of + share) is None else f"{report[of + share]:.1%}" for share in shares]
        rows.append((name, f"{loss:.3f}", f"{math.exp(min(loss, 700)):.1f}", *percent))
    targets = {"clm": "next tokens", "rtd": "tokens"}.get(report["objective"], "masked positions")
    lines = [
        f"At {report['targets']:,} {targets} of the held-out documents:",
        format_table(("", "loss", "perplexity", *(share.replace("_", " ") for share in shares)), rows),
    ]
    if report["objective"] == "mlm":
        reached, known = min(KNOWN, key=lambda row: abs(row[0] - report["accuracy"]))
        how = "about that" if report["accuracy"] > 0.8 * reached else "below that"
        lines.append(f"That accuracy is {how} of {known} (docs/troubleshooting.md)")
    if report.get("nsp_loss") is not None:
        guessing = f"(guessing {math.log(2):.3f})"
        lines.append(f"next sentence: loss {report['nsp_loss']:.3f} {guessing}, accuracy {report['nsp_accuracy']:.1%}")
    if detects and report["generator"]["targets"]:
        lines.append(
            "The generator at {targets:,} masked positions: loss {loss:.3f} (unigram {unigram_loss:.3f}), accuracy"
            " {accuracy:.1%} (unigram {unigram_accuracy:.1%})".format(**report["generator"])
        )
    return "\n".join(lines)


def judge_pretraining(report: Mapping[str, Any]) -> str | None:
    """What to say of a model that is not better than something simple, or than the model it started from."""
    loss, simple = report["validation_loss"], report.get("unigram_loss", report.get("constant_loss"))
    worse = judge("loss", loss, simple, "guessing by frequency")
    return worse or judge("loss", loss, report.get("start_loss"), "the model that it started from")


MOST_CLASSES = 1000  # in a picture of which was taken for which
MOST_NAMES = 60  # words or labels: a picture of more cannot be read


def _one_line(labels: Sequence[str]) -> list[str]:
    return [textwrap.shorten(label, 40, placeholder="…") or " " for label in labels]


# --- embeddings ---


def plot_embedding_training(log_history: Sequence[dict], path: str | Path, metric: str, before: float) -> None:
    """Draw the training loss of `Trainer`'s log and, beside it, the metric on the held-out data from its value before
    training on. What was measured once is no curve and is not drawn."""
    held_out = [(0, before), *logged(log_history, f"eval_{metric}")]
    curves = {"training loss": logged(log_history, "loss"), f"{metric}, held out": held_out}
    curves = {label: points for label, points in curves.items() if len(points) > 1}
    if not curves:
        return
    with picture(path, "Training loss and quality", len(curves), (5.5 * len(curves), 4)) as panels:
        for axes, (label, points) in zip(panels, curves.items()):
            axes.plot(*zip(*points), marker="" if label == "training loss" else "o")
            axes.set(xlabel="optimizer step", ylabel=label)


# --- fine-tuning ---


def format_scores(rows: Mapping[str, Mapping[str, float | str]]) -> str:
    """Metrics (columns) of splits or models (rows) as a table."""
    metrics = list(dict.fromkeys(metric for row in rows.values() for metric in row))
    return format_table(["", *metrics], [[name, *map(row.get, metrics)] for name, row in rows.items()])


def plot_confusion(
    predictions: Sequence[int], references: Sequence[int], labels: Sequence[str], path: str | Path, note: str = ""
) -> None:
    """Draw how often each true class (row) was taken for each class (column); colours are shares of the row. Of more
    than `MOST_CLASSES`, those that are true most often."""
    kept, title = np.arange(len(labels)), "Predicted and true classes"
    if len(labels) > MOST_CLASSES:
        title += f", {MOST_CLASSES:,} of {len(labels):,}"
        kept = np.sort(np.argsort(-np.bincount(references, minlength=len(labels)), kind="stable")[:MOST_CLASSES])
    counts, labels = confusion_matrix(references, predictions, labels=kept), [labels[i] for i in kept]
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    side = min(14.0, 2.5 + 0.8 * len(labels))
    with picture(path, title + note, size=(side + 1, side), grid=None) as axes:
        image = _draw_cells(axes, shares, counts if len(labels) <= 20 else None)
        axes.figure.colorbar(image, label="share of the true class")
        axes.set(xlabel="predicted class", ylabel="true class")
        if len(labels) <= MOST_NAMES:
            axes.set_xticks(range(len(labels)), _one_line(labels), rotation=45, ha="right")
            axes.set_yticks(range(len(labels)), _one_line(labels))


def plot_values(predictions: Sequence[float], references: Sequence[float], path: str | Path, note: str = "") -> None:
    with picture(path, "Predicted and true values" + note, size=(5.5, 5)) as axes:
        axes.scatter(references, predictions, s=6, alpha=0.4)
        ends = [min(np.min(references), np.min(predictions)), max(np.max(references), np.max(predictions))]
        axes.plot(ends, ends, color="gray", linestyle="--", linewidth=1)
        axes.set(xlabel="true value", ylabel="predicted value")


def plot_scores(scores: Mapping[str, float], name: str, path: str | Path, note: str = "") -> None:
    """Draw the score `name`, between 0 and 1, of every label."""
    _plot_bars(path, f"{name} by label{note}", {"": list(scores.values())}, list(scores), name)


def plot_per_type(scores: Mapping[str, Mapping[str, float]], path: str | Path, note: str = "") -> None:
    """Draw precision, recall and F1 of every type of entity, given with its support; the most frequent one first."""
    types = sorted(scores, key=lambda kind: -scores[kind]["support"])
    bars = {name: [scores[kind][name] for kind in types] for name in ("precision", "recall", "f1")}
    labels = [f"{kind} ({scores[kind]['support']:,})" for kind in types]
    _plot_bars(path, f"Scores by type of entity{note}", bars, labels, "score (number of true entities in brackets)")
