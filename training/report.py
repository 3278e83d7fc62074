"""What a training gives back, and how it is shown: its result, warnings, tables and pictures."""

import contextlib
import dataclasses
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from sklearn.metrics import ConfusionMatrixDisplay
from tqdm.auto import tqdm

from .files import printable
from .metrics import is_better, margin

SIMPLE = ("unigram_loss", "constant_loss", "start_loss")  # in the report of a pretraining, to compare its loss with
UNSURE = 0.05  # a larger error of a score gives a warning
MOST_NAMES = 60  # classes or labels: a picture of more cannot be read
# Accuracies at masked positions that trainings of ours reached.
KNOWN = {
    0.297: "size tiny after 200 steps",
    0.395: "the first command of the README",
    0.473: "7,500 steps on books",
    0.521: "an hour on books",
}


@dataclasses.dataclass
class TrainingResult:
    """The result of `minibert.pretrain` and `minibert.finetune`."""

    model: Any  # as it was saved (None in a process of several that saves nothing)
    tokenizer: Any
    report: dict[str, Any] = dataclasses.field(default_factory=dict)  # the final metrics, as they stand in the folder
    output_dir: Path = Path()  # the folder of the model, the tokenizer, the card and the pictures


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


def format_scores(rows: Mapping[str, Mapping[str, float | str]]) -> str:
    """Metrics (columns) of splits or models (rows) as a table."""
    metrics = list(dict.fromkeys(metric for row in rows.values() for metric in row))
    return format_table(["", *metrics], [[name, *map(row.get, metrics)] for name, row in rows.items()])


def warn(text: str | None) -> None:
    """Print a warning (if there is one to print), above the progress bar if there is one."""
    if text:
        tqdm.write(f"WARNING: {printable(text)}")


def few_to_measure(rows: int) -> str | None:
    """A warning if a score on so few held-out rows is uncertain; else None."""
    if (error := margin(rows)) <= UNSURE:
        return None
    use = "hold out more (--validation, --validation_size) to compare models"
    return f"{rows:,} rows measure a score only to ± {error:.2f} (95 % interval); {use}"


def judge(metric: str, value: float | None, baseline: float | None, what: str, rows: int | None = None) -> str | None:
    """A warning if a result is not better than `what`, or if the difference may be chance on so few `rows`; else
    None."""
    if value is None or baseline is None:
        return None
    figures = f"{what} ({metric} {value:.4g}, against {baseline:.4g})"
    if value == baseline == 1 and is_better(metric, 1, 0):  # the highest score
        return f"these rows are too easy to compare this model with {figures}; measure both on others"
    if not is_better(metric, value, baseline):
        how = "no better" if value == baseline else "worse"
        use = "train longer, on more data, or at another learning rate"
        use += ", or with --class_weights balanced" * (metric == "f1_macro")
        return f"{how} than {figures}: do not use this model; {use}"
    if rows is not None and abs(value - baseline) < margin(rows, min(max(baseline, 0.0), 1.0)):
        return f"hardly better than {figures}: on {rows:,} rows that may be chance; measure on more"
    return None


# --- pretraining ---


def describe_pretraining(report: Mapping[str, Any]) -> str:
    """The metrics of a pretraining (`report.json`), beside those of something simple: unigram frequencies, or the
    answer "original" for every token."""
    if report["validation_loss"] is None:
        return "The held-out documents have no position to predict: there is no score (--validation_size, --seq_length)"
    rows = []
    compared = {"MiniBERT": "", "unigram": "unigram_", "always original": "constant_", "before this training": "start_"}
    for name, prefix in compared.items():
        loss, accuracy = report.get(f"{prefix or 'validation_'}loss"), report.get(f"{prefix}accuracy")
        if loss is not None:
            share = "" if accuracy is None else f"{accuracy:.1%}"
            rows.append((name, f"{loss:.3f}", f"{math.exp(min(loss, 700)):.1f}", share))
    targets = {"clm": "next tokens", "rtd": "tokens"}.get(report["objective"], "masked positions")
    lines = [f"At {report['targets']:,} {targets} of the held-out documents:"]
    lines.append(format_table(("", "loss", "perplexity", "accuracy"), rows))
    if report["objective"] == "mlm":
        known = min(KNOWN, key=lambda reached: abs(reached - report["accuracy"]))
        how = "about as high as" if report["accuracy"] > 0.8 * known else "lower than"
        lines.append(f"The accuracy is {how} that of {KNOWN[known]} (docs/troubleshooting.md)")
    if report.get("nsp_loss") is not None:
        guessing = f"(guessing {math.log(2):.3f})"
        lines.append(f"next sentence: loss {report['nsp_loss']:.3f} {guessing}, accuracy {report['nsp_accuracy']:.1%}")
    return "\n".join(lines)


def judge_pretraining(report: Mapping[str, Any]) -> str | None:
    """What to say of a model that is not better than something simple, or than the model it started from."""
    loss, simple = report["validation_loss"], report.get("unigram_loss", report.get("constant_loss"))
    worse = judge("loss", loss, simple, "guessing by frequency")
    return worse or judge("loss", loss, report.get("start_loss"), "the model that it started from")


# --- pictures ---


@contextlib.contextmanager
def picture(
    path: str | Path, title: str, panels: int | None = None, size: tuple[float, float] = (8, 4.5), **options: Any
) -> Iterator[Any]:
    """One figure with a title, saved as PNG at the end, with a legend wherever something is labelled: the axes of its
    `panels` as a list, or the only ones. `size` is in inches, `options` are those of `Figure.subplots`."""
    # `parse_math`: a label such as "$a_$" is no formula.
    style = {"axes.grid": True, "grid.alpha": 0.3, "legend.fontsize": 8, "text.parse_math": False}
    with rc_context(style):
        figure = Figure(size, layout="constrained")  # without pyplot, which would choose how a notebook shows figures
        axes = figure.subplots(1, panels or 1, squeeze=False, **options)
        figure.suptitle(title)
        yield list(axes[0]) if panels else axes[0, 0]
        for each in axes[0]:
            if each.get_legend_handles_labels()[0] and not figure.legends:
                each.legend()
        figure.savefig(path, dpi=120)


def plot_training(log_history: Sequence[dict], path: str | Path, metric: str, lines: Mapping[str, float] = {}) -> None:
    """Draw the training loss and, beside it, the held-out `metric` over optimizer steps, from a `Trainer`'s log
    (`state.log_history`), with horizontal `lines` by label. What was measured once is no curve and is not drawn."""
    names = {"loss": "training loss", f"eval_{metric}": f"held-out {metric}"}
    points = {label: [(log["step"], log[name]) for log in log_history if name in log] for name, label in names.items()}
    curves = {label: drawn for label, drawn in points.items() if len(drawn) > 1}
    if not curves:
        return
    size, same = (5.5 * len(curves), 4.5), metric.endswith("loss")
    with picture(path, "Training", len(curves), size, sharey=same) as panels:
        for axes, (name, drawn) in zip(panels, curves.items()):
            axes.plot(*zip(*drawn), marker="o" if len(drawn) < 30 else "")
            axes.set(xlabel="optimizer step", ylabel=name)
        for label, value in lines.items():
            axes.axhline(value, color="gray", linestyle="--", linewidth=1, label=label.replace("_", " "))


def _one_line(labels: Sequence[str]) -> list[str]:
    return [textwrap.shorten(label, 40, placeholder="…") or " " for label in labels]


def plot_confusion(
    predictions: Sequence[int], references: Sequence[int], labels: Sequence[str], path: str | Path, note: str = ""
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
        options = dict(include_values=len(kept) <= 20, values_format=".2f", cmap="Blues", xticks_rotation=45, ax=axes)
        ConfusionMatrixDisplay.from_predictions(
            references, predictions, labels=kept, display_labels=names, normalize="true", **options
        )


def plot_values(predictions: Sequence[float], references: Sequence[float], path: str | Path, note: str = "") -> None:
    with picture(path, "Predicted and true values" + note, size=(5.5, 5)) as axes:
        axes.scatter(references, predictions, s=6, alpha=0.4)
        ends = [min(np.min(references), np.min(predictions)), max(np.max(references), np.max(predictions))]
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
