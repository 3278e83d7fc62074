"""Every table and every picture of the project is drawn here.

`format_table` aligns text, `picture` opens one matplotlib figure and saves it; what is drawn stands below them.
"""

from __future__ import annotations

import contextlib
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.ticker import LogFormatter


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
    log_history: Sequence[dict], path: str | Path, metric: str, report: Mapping[str, Any] | None = None
) -> None:
    """Draw training and validation loss over optimizer steps; nothing where neither has two points.

    Args:
        log_history: `Trainer`'s (`state.log_history`).
        path: the PNG.
        metric: the loss that evaluations log as `eval_…`, and training as itself where it logs it apart.
        report: if given, its `unigram_loss` or `constant_loss` is drawn as a horizontal line.
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
            if report and key in report:
                axes.axhline(report[key], color="gray", linestyle="--", linewidth=1, label=label)
        axes.set(xlabel="optimizer step", ylabel=f"{metric.replace('_', ' ')} (nats)")
        axes.grid(alpha=0.3)
        axes.legend()


# --- bench ---

BENCH_HEADER = ("benchmark", "model", "median", "minimum", "tokens/s", "MFU", "ratio of medians (minima)", "target")


def bench_table(results: Sequence[dict]) -> str:
    """The results of `minibert bench`, a line a model. A ratio stands beside its numerator."""

    def amount(value: float, measure: str) -> str:
        if measure == "bytes":
            return f"{value / 2**20:,.0f} MiB"
        return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.2f} ms"

    rows = []
    for result in results:
        name, ratios = result["benchmark"], {ratio["numerator"]: ratio for ratio in result.get("ratios", ())}
        for model, entry in result.get("measured", {}).items():
            ratio, compared, target = ratios.get(model), None, None
            if ratio:
                compared = f"{ratio['median']:.2f}× ({ratio['min']:.2f}×) {ratio['denominator']}"
            if ratio and ratio["target"]:
                bound = f"{'≤' if ratio['at_most'] else '≥'} {ratio['target']:g}×"
                target = f"{bound} {'reached' if ratio['reached'] else 'MISSED'}"
            speed = f"{entry['tokens_per_second']:,.0f}" if "tokens_per_second" in entry else None
            share = f"{entry['mfu']:.1%}" if "mfu" in entry else None
            amounts = (amount(entry[key], result["measure"]) for key in ("median", "min"))
            rows.append((name, model, *amounts, speed, share, compared, target))
        failed = [f"{model}: FAILED: {reason}" for model, reason in result.get("failed", {}).items()]
        failed += [f"FAILED: {result['error']}"] if "error" in result else []
        rows += [(name, reason, *[None] * 6) for reason in failed]
    return format_table(BENCH_HEADER, rows)


def plot_bench_lengths(results: Sequence[dict], path: Path) -> bool:
    """Draw the time of one text against its length, one panel a precision; False: fewer than two lengths are there."""
    results = [result for result in results if result["benchmark"].startswith("infer-length-") and "measured" in result]
    precisions = list(dict.fromkeys(result["dtype"] for result in results))
    if len({result["tokens"] for result in results}) < 2:
        return False
    title = f"Inference of one text, {results[0]['benchmark'].split('/')[1]}"
    size = (5.5 * len(precisions), 4.5)
    with picture(path, title, len(precisions), size, sharey=True, squeeze=False) as panels:
        for precision, axes in zip(precisions, panels[0]):
            chosen = sorted((each for each in results if each["dtype"] == precision), key=lambda each: each["tokens"])
            for name in dict.fromkeys(name for result in chosen for name in result["measured"]):
                points = [(each["tokens"], each["measured"][name]) for each in chosen if name in each["measured"]]
                lengths, entries = zip(*points)
                axes.plot(lengths, [entry["median"] for entry in entries], marker="o", markersize=4, label=name)
                low, high = ([pick(entry["samples"]) for entry in entries] for pick in (min, max))
                axes.fill_between(lengths, low, high, alpha=0.2)
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.set_xticks(lengths, lengths)
            axes.yaxis.set_major_formatter(LogFormatter())  # labels without formulas
            axes.yaxis.set_minor_formatter(LogFormatter())
            axes.set(xlabel="tokens of the text", ylabel="seconds a forward pass (median; band: all rounds)")
            axes.set_title(precision)
            axes.grid(alpha=0.3)
            axes.label_outer()
        panels[0][0].legend(frameon=False)
    return True


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


# --- probes ----------------------------------------------------------------------------------------------------------

# Words that a picture names at most.
NAMED_WORDS = 60


def _frequency_axis(axes, frequency: Sequence[int]) -> None:
    """A logarithmic axis with a handful of round numbers, however short it is."""
    axes.set(xscale="log", xlabel="times in the corpus")
    ticks = sorted({float(f"{tick:.2g}") for tick in np.geomspace(min(frequency), max(frequency), 5)})
    axes.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
    axes.minorticks_off()


def plot_wsd(
    path: str | Path,
    file: str,
    words: dict[str, int],
    accuracy: dict[str, dict[str, float]],
    curves: dict[str, dict[int, float]],
) -> None:
    """Accuracy by word and method in %, and that of the states on the validation file.

    Args:
        words: the rows of each word; of many, those with most are shown.
        accuracy: of each method the accuracy by word, 0 to 1.
        curves: for each kind of vectors the micro accuracy (%) by state; drawn from two states on.
    """
    shown = sorted(words, key=lambda word: -words[word])[:NAMED_WORDS]
    shown.sort(key=accuracy["bag of words"].get, reverse=True)
    values = 100 * np.array([[of_method[word] for of_method in accuracy.values()] for word in shown])
    panels = 2 if any(len(curve) > 1 for curve in curves.values()) else 1
    width = 3.5 + 0.7 * len(accuracy)
    size = (width + 6 * (panels - 1), max(5.0, 2.5 + 0.27 * len(shown)))
    title = f"Word senses on {file}: accuracy (%)"
    with picture(path, title, panels, size, width_ratios=[width, 6][:panels], squeeze=False) as axes:
        first = axes[0, 0]
        first.imshow(values, cmap="Blues", vmin=0, vmax=100, aspect="auto")
        for (row, column), value in np.ndenumerate(values):
            color = "white" if value > 60 else "black"
            first.text(column, row, f"{value:.0f}", ha="center", va="center", fontsize=8, color=color)
        first.set_yticks(range(len(shown)), [f"{word} ({words[word]})" for word in shown])
        first.set_xticks(range(len(accuracy)), accuracy, rotation=35, ha="right", fontsize=8)
        most = "" if len(shown) == len(words) else f", the {len(shown)} with most rows"
        first.set_title(f"by word (rows){most}", fontsize=10)
        if panels == 2:
            second = axes[0, 1]
            for name, curve in curves.items():
                second.plot(*zip(*curve.items()), "o--" if "z-scored" in name else "o-", label=name)
            second.set_title("sense means, on the validation file", fontsize=10)
            second.set(xlabel="state (layer)", ylabel="micro accuracy (%)", xticks=sorted(next(iter(curves.values()))))
            second.grid(alpha=0.3)
            second.legend(fontsize=8)


def plot_uses(
    path: str | Path, places: np.ndarray, shares: Sequence[float], words: Sequence[str], shown: dict[int, str]
) -> None:
    """Uses of words on the two directions in which their vectors differ most.

    Args:
        places: of every use, [uses, 2].
        shares: of the variance, the two directions'.
        words: the word of every use.
        shown: the uses that are numbered, and what they read.
    """
    first, second = shares
    with picture(path, f"Uses of {', '.join(dict.fromkeys(words))}", size=(9, 6.5)) as axes:
        for word in dict.fromkeys(words):
            chosen = [number for number, of_use in enumerate(words) if of_use == word]
            axes.scatter(*places[chosen].T, s=14, alpha=0.6, label=f"{word} ({len(chosen)})")
        for number, use in enumerate(shown, 1):
            axes.annotate(str(number), places[use], fontsize=10, fontweight="bold")
        texts = "\n".join(f"{number}  {text}" for number, text in list(enumerate(shown.values(), 1))[:8])
        axes.set_xlabel(f"first direction ({first:.0%} of the variance)\n\n{texts}", fontsize=8)
        axes.set_ylabel(f"second direction ({second:.0%})", fontsize=8)
        axes.grid(alpha=0.3)
        axes.legend()


def plot_recall(path: str | Path, found: dict[str, Any], at: Sequence[int]) -> None:
    """The recall of masked tokens that each way of looking up has, `found` as `probe neighbours` makes it."""
    bars = {
        f"{name}, last state" if len(of_states) > 1 else name: of_states[-1]
        for name, of_states in found["recall"].items()
    }
    places = np.arange(len(at))
    with picture(path, f"{found['count']:,} masked tokens, looked up in the embedding matrix", size=(9, 5)) as axes:
        for number, (name, entry) in enumerate(bars.items()):
            heights = [100 * entry[str(k)] for k in at]
            axes.bar(places + 0.8 * (number / len(bars) - 0.4), heights, width=0.8 / len(bars), label=name)
        axes.set(xticks=places, xticklabels=[f"recall@{k}" for k in at], ylabel="% of the masked tokens")
        axes.grid(alpha=0.3, axis="y")
        axes.legend(fontsize=8)


def plot_senses(path: str | Path, senses: dict[str, Any], same: np.ndarray, different: np.ndarray) -> None:
    """How well cosines tell senses apart: by state, at the last state by pair, and by the word's frequency.

    Args:
        senses: as `probe similarity` makes it; vectors that cannot tell are not drawn.
        same: the last state's cosines of pairs of the same sense; different: of the others.
    """
    *_, last = senses["vectors"].values()
    telling = {name: found for name, found in senses["vectors"].items() if not found["all_alike"]}
    errors = last["errors"]
    panels = 3 if len(errors) > 1 else 2
    with picture(path, "Do cosines tell the senses of a word apart?", panels, (4.7 * panels, 5)) as axes:
        for key, label in (("auc", "AUC"), ("auc_of_words", "AUC, mean of words"), ("accuracy", "accuracy")):
            axes[0].plot(list(telling), [found[key] for found in telling.values()], "o-", label=label)
        axes[0].axhline(0.5, color="gray", linestyle="--", linewidth=1, label="chance")
        axes[0].tick_params(axis="x", rotation=45)
        axes[0].set_title("same sense or another?", fontsize=10)
        edges = np.linspace(min(same.min(), different.min()), max(same.max(), different.max()), 40)
        for cosines, label in ((same, "same sense"), (different, "different senses")):
            axes[1].hist(cosines, edges, alpha=0.5, label=label)
        axes[1].set(xlabel="cosine", ylabel="pairs")
        axes[1].set_title("two uses of a word, last state", fontsize=10)
        for panel in axes[:2]:
            panel.grid(alpha=0.3)
            panel.legend(fontsize=8)
        if panels == 3:
            frequency = [senses["words"][word] for word in errors]
            axes[2].scatter(frequency, errors.values(), s=16)
            for word, error in errors.items() if len(errors) <= NAMED_WORDS else ():
                axes[2].annotate(word, (senses["words"][word], error), fontsize=7)
            axes[2].axhline(0, color="gray", linewidth=1)
            _frequency_axis(axes[2], frequency)
            axes[2].set_ylabel("error (above 0: seen as too different)")
            axes[2].set_title("the cosine's error by frequency, last state", fontsize=10)
            axes[2].grid(alpha=0.3)


def plot_frequency(path: str | Path, frequency: np.ndarray, alike: np.ndarray, slopes: Sequence[float]) -> None:
    """How alike a word's uses are, by the word's frequency.

    Args:
        frequency: how often the words stand in the corpus, [words].
        alike: the mean cosine of each word's uses, [words, states].
        slopes: its change for a word ten times as frequent, by state.
    """
    with picture(path, "Are the uses of a frequent word less alike?", 2, (11, 4.8)) as axes:
        for state, name in {1: "state 1", alike.shape[1] - 1: "last state"}.items():
            axes[0].plot(frequency, alike[:, state], ".", alpha=0.6, label=name)
        axes[0].set_ylabel("mean cosine of the word's uses")
        _frequency_axis(axes[0], frequency)
        axes[0].legend()
        axes[1].bar(range(len(slopes)), slopes)
        axes[1].axhline(0, color="black", linewidth=0.8)
        axes[1].set(xlabel="state (0: embeddings)", ylabel="change for a word ten times as frequent")
        for panel in axes:
            panel.grid(alpha=0.3)


def plot_isotropy(path: str | Path, states: Sequence[dict[str, Any]], rogue: int) -> None:
    """The mean cosine of random tokens, what the `rogue` top dimensions give to it, and the correlation on STS where
    it was measured; by state, as `probe isotropy` finds them."""
    panels = 2 if "sts_spearman" in states[0]["raw"] else 1
    numbers = np.array([found["state"] for found in states])
    with picture(path, "How alike the vectors are", panels, (4 + 4 * panels, 4.8), squeeze=False) as axes:
        bars = axes[0, 0]
        for shift, key, label, color in ((-0.2, "raw", "raw", "C0"), (0.2, "z_scored", "z-scored", "C1")):
            bars.bar(numbers + shift, [found[key]["mean_cosine"] for found in states], 0.38, color=color, label=label)
            given = [found[key]["contribution"] for found in states]
            hatched = f"of this the top {rogue} dimensions" if key == "z_scored" else None
            bars.bar(numbers + shift, given, 0.38, fill=False, hatch="////", linewidth=0, label=hatched)
            if panels == 2:
                axes[0, 1].plot(numbers, [found[key]["sts_spearman"] for found in states], "o-", label=label)
        bars.axhline(0, color="black", linewidth=0.8)
        bars.set_ylabel("mean cosine of random tokens")
        if panels == 2:
            axes[0, 1].set_ylabel("Spearman correlation on STS")
        for panel in axes[0]:
            panel.set(xlabel="state (0: embeddings)", xticks=numbers)
            panel.grid(alpha=0.3, axis="y")
            panel.legend(fontsize=8)


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
