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
from matplotlib.ticker import LogFormatter
from sklearn.metrics import confusion_matrix


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
    aligned = [f"{'<' if left else '>'}{width}" for left, width in zip(words, widths)]
    return "\n".join("  ".join(map(format, line, aligned)).rstrip() for line in lines)


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
    """Draw training and validation loss over optimizer steps (nothing where neither has two points), with the report's
    `unigram_loss` or `constant_loss` as a line. Evaluations log `metric` as `eval_…`, training as itself or `loss`."""
    training = logged(log_history, metric) or logged(log_history, "loss")
    validation = logged(log_history, f"eval_{metric}")
    if max(len(training), len(validation)) < 2:
        return
    with picture(path, "Loss in training") as axes:
        for label, points, marker in (("training", training, None), ("validation", validation, "o")):
            if points:
                axes.plot(*zip(*points), marker=marker, label=label)
        for key, label in (("unigram_loss", "unigram baseline"), ("constant_loss", "the same answer for every token")):
            if report and key in report:
                axes.axhline(report[key], color="gray", linestyle="--", linewidth=1, label=label)
        axes.set(xlabel="optimizer step", ylabel=f"{metric.replace('_', ' ')} (nats)")


# --- bench ---


def bench_table(results: Sequence[dict]) -> str:
    """The results of `minibert bench`, a line a model. A ratio stands beside its numerator."""

    def amount(value: float, measure: str) -> str:
        if measure == "bytes":
            return f"{value / 2**20:,.0f} MiB"
        return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.2f} ms"

    rows = []
    for result in results:
        name, ratios = result["benchmark"], {ratio["numerator"]: ratio for ratio in result.get("ratios", ())}
        for model, entry in result["measured"].items():
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
        rows += [(name, f"{model}: FAILED: {reason}", *[None] * 6) for model, reason in result["failed"].items()]
    header = ("benchmark", "model", "median", "minimum", "tokens/s", "MFU", "ratio of medians (minima)", "target")
    return format_table(header, rows)


def plot_bench_lengths(results: Sequence[dict], path: Path) -> bool:
    """Draw the time of one text against its length, one panel a precision; False: fewer than two lengths are there."""
    results = [result for result in results if result["benchmark"].startswith("infer-length-") and result["measured"]]
    precisions = list(dict.fromkeys(result["dtype"] for result in results))
    if len({result["tokens"] for result in results}) < 2:
        return False
    title = f"Inference of one text, {results[0]['benchmark'].split('/')[1]}"
    with picture(path, title, len(precisions), (5.5 * len(precisions), 4.5), sharey=True) as panels:
        for precision, axes in zip(precisions, panels):
            chosen = sorted((each for each in results if each["dtype"] == precision), key=lambda each: each["tokens"])
            for name in dict.fromkeys(name for result in chosen for name in result["measured"]):
                points = [(each["tokens"], each["measured"][name]) for each in chosen if name in each["measured"]]
                lengths, entries = zip(*points)
                axes.plot(lengths, [entry["median"] for entry in entries], marker="o", markersize=4, label=name)
                low, high = ([pick(entry["samples"]) for entry in entries] for pick in (min, max))
                axes.fill_between(lengths, low, high, alpha=0.2)
            ylabel = "seconds a forward pass (median; band: all rounds)"
            axes.set(title=precision, xlabel="tokens of the text", ylabel=ylabel, yscale="log")
            axes.set_xscale("log", base=2)
            axes.set_xticks(lengths, lengths)
            axes.yaxis.set_major_formatter(LogFormatter())  # labels without formulas
            axes.yaxis.set_minor_formatter(LogFormatter())
            axes.label_outer()
    return True


# --- pretraining ---


def describe_pretraining(report: Mapping[str, Any]) -> str:
    """The figures of a pretraining (`report.json`), beside those of something simple: unigram frequencies, or the
    answer "original" for every token."""
    detects = "generator" in report
    prefix, baseline = ("constant_", "always original") if detects else ("unigram_", "unigram")
    shares = ("accuracy", "replaced_precision", "replaced_recall", "replaced_f1") if detects else ("accuracy",)
    rows = []
    for name, of in (("MiniBERT", ""), (baseline, prefix)):
        loss = report[f"{of or 'validation_'}loss"]
        percent = [f"{report[of + share]:.1%}" if of + share in report else "" for share in shares]
        rows.append((name, f"{loss:.3f}", f"{math.exp(min(loss, 700)):.1f}", *percent))
    targets = {"clm": "next tokens", "rtd": "tokens"}.get(report["objective"], "masked positions")
    lines = [
        f"At {report['targets']:,} {targets} of the held-out documents:",
        format_table(("", "loss", "perplexity", *(share.replace("_", " ") for share in shares)), rows),
    ]
    if "nsp_loss" in report:
        guessing = f"(guessing {math.log(2):.3f})"
        lines.append(f"next sentence: loss {report['nsp_loss']:.3f} {guessing}, accuracy {report['nsp_accuracy']:.1%}")
    if detects:
        lines.append(
            "The generator at {targets:,} masked positions: loss {loss:.3f} (unigram {unigram_loss:.3f}), accuracy"
            " {accuracy:.1%} (unigram {unigram_accuracy:.1%})".format(**report["generator"])
        )
    return "\n".join(lines)


# --- data ---


def plot_rates(measured: Mapping[tuple[str, int], Mapping[str, Any]], path: str | Path) -> None:
    """Masking rates as `mask_stats.Rate`s by their name, of every (what was observed, over how many tokens): a panel
    for each rate, with 95 % intervals against the expected value."""
    labels, sizes = (list(dict.fromkeys(column)) for column in zip(*measured))
    names = list(next(iter(measured.values())))
    size = (12, 1.8 + 0.3 * len(labels))
    with picture(path, "Observed masking rates", len(names), size, grid=None, sharey=True) as panels:
        for name, panel in zip(names, panels):
            for place, size in enumerate(sizes):
                rates = [measured[label, size][name] for label in labels]
                observed = [100 * rate.observed for rate in rates]
                halves = [100 * rate.half_interval for rate in rates]
                rows = np.arange(len(labels)) + 0.3 * (place / len(sizes) - 0.25)
                panel.errorbar(observed, rows, xerr=halves, fmt="o", markersize=3, capsize=2, label=f"{size:,} tokens")
            expected = rates[0].expected
            panel.axvline(100 * expected, color="0.6", linewidth=1, zorder=0)
            xlabel = "% of tokens" if name == names[0] else "% of chosen tokens"
            panel.set(title=f"{name}: expected {expected:.1%}", xlabel=xlabel)
            panel.locator_params(axis="x", nbins=5)
        panel.set_yticks(range(len(labels)), labels)
        panel.invert_yaxis()
        handles = panel.get_legend_handles_labels()
        panel.figure.legend(*handles, loc="outside lower center", ncols=len(sizes), frameon=False)


def plot_tokens(figures: Mapping[str, Mapping[str, Mapping[str, float]]], path: str | Path) -> None:
    """The figures of `minibert fertility` as bars: a group for every language, a bar for every tokenizer."""
    languages = list(next(iter(figures.values())))
    bars = {name: [counts[each]["tokens_per_passage"] for each in languages] for name, counts in figures.items()}
    _plot_bars(path, "Tokens of the same text, by tokenizer", bars, languages, "tokens per passage")


# --- probes ---

MOST_CLASSES = 1000  # in a picture of which was taken for which
MOST_NAMES = 60  # words or labels: a picture of more cannot be read


def _one_line(labels: Sequence[str]) -> list[str]:
    return [textwrap.shorten(label, 40, placeholder="…") or " " for label in labels]


def _frequency_axis(axes, frequency: Sequence[int]) -> None:
    """A logarithmic axis with a handful of round numbers, however short it is."""
    axes.set(xscale="log", xlabel="times in the corpus")
    ticks = sorted({float(f"{tick:.2g}") for tick in np.geomspace(min(frequency), max(frequency), 5)})
    axes.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
    axes.minorticks_off()


def plot_wsd(path: str | Path, file: str, words: dict[str, int], accuracy: dict[str, dict], curves: dict) -> None:
    """Each method's accuracy (0 to 1) by word, shown in % with the word's rows; of many words, those with most rows.
    Beside it the micro accuracy (%) of each kind of vectors by state, where there are two states or more."""
    shown = sorted(words, key=lambda word: -words[word])[:MOST_NAMES]
    shown.sort(key=accuracy["bag of words"].get, reverse=True)
    shares = np.array([[of_method[word] for of_method in accuracy.values()] for word in shown])
    panels = 2 if any(len(curve) > 1 for curve in curves.values()) else 1
    widths = [3.5 + 0.7 * len(accuracy), 6][:panels]
    size = (sum(widths), max(5.0, 2.5 + 0.27 * len(shown)))
    with picture(path, f"Word senses on {file}: accuracy (%)", panels, size, width_ratios=widths) as (first, *others):
        first.grid(False)
        _draw_cells(first, shares, np.rint(100 * shares).astype(int), aspect="auto")
        first.set_yticks(range(len(shown)), [f"{word} ({words[word]})" for word in shown])
        first.set_xticks(range(len(accuracy)), accuracy, rotation=35, ha="right", fontsize=8)
        most = "" if len(shown) == len(words) else f", the {len(shown)} with most rows"
        first.set_title(f"by word (rows){most}")
        for second in others:
            for name, curve in curves.items():
                second.plot(*zip(*curve.items()), "o--" if "z-scored" in name else "o-", label=name)
            second.set(title="sense means, on the validation file", xlabel="state (layer)", ylabel="micro accuracy (%)")
            second.set_xticks(sorted(next(iter(curves.values()))))


def plot_uses(
    path: str | Path, places: np.ndarray, shares: Sequence[float], words: Sequence[str], shown: dict[int, str]
) -> None:
    """Uses of words on the two directions in which their vectors differ most, which have `shares` of the variance: of
    every use its place ([uses, 2]) and its word; those `shown` are numbered, beside what they read."""
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


def plot_recall(path: str | Path, found: dict[str, Any], at: Sequence[int]) -> None:
    """The recall of masked tokens that each way of looking up has, `found` as `probe neighbours` makes it."""
    ways = found["recall"].items()
    bars = {f"{name}, last state" if len(states) > 1 else name: states[-1] for name, states in ways}
    bars = {name: [100 * entry[str(k)] for k in at] for name, entry in bars.items()}
    title = f"{found['count']:,} masked tokens, looked up in the embedding matrix"
    _plot_bars(path, title, bars, [f"recall@{k}" for k in at], "% of the masked tokens")


def plot_senses(path: str | Path, senses: dict[str, Any], same: np.ndarray, different: np.ndarray) -> None:
    """How well cosines tell senses apart (`senses` of `probe similarity`): by state, where they can; at the last state
    by pair, of the `same` sense or `different` ones; and by the word's frequency."""
    *_, last = senses["vectors"].values()
    telling = {name: found for name, found in senses["vectors"].items() if not found["all_alike"]}
    errors = last["errors"]
    panels = 3 if len(errors) > 1 else 2
    with picture(path, "Do cosines tell the senses of a word apart?", panels, (4.7 * panels, 5)) as axes:
        for key, label in (("auc", "AUC"), ("auc_of_words", "AUC, mean of words"), ("accuracy", "accuracy")):
            axes[0].plot(list(telling), [found[key] for found in telling.values()], "o-", label=label)
        axes[0].axhline(0.5, color="gray", linestyle="--", linewidth=1, label="chance")
        axes[0].tick_params(axis="x", rotation=45)
        axes[0].set_title("same sense or another?")
        edges = np.linspace(min(same.min(), different.min()), max(same.max(), different.max()), 40)
        for cosines, label in ((same, "same sense"), (different, "different senses")):
            axes[1].hist(cosines, edges, alpha=0.5, label=label)
        axes[1].set(title="two uses of a word, last state", xlabel="cosine", ylabel="pairs")
        if panels == 3:
            frequency = [senses["words"][word] for word in errors]
            axes[2].scatter(frequency, errors.values(), s=16)
            for word, error in errors.items() if len(errors) <= MOST_NAMES else ():
                axes[2].annotate(word, (senses["words"][word], error), fontsize=7)
            axes[2].axhline(0, color="gray", linewidth=1)
            _frequency_axis(axes[2], frequency)
            title = "the cosine's error by frequency, last state"
            axes[2].set(title=title, ylabel="error (above 0: seen as too different)")


def plot_frequency(path: str | Path, frequency: np.ndarray, alike: np.ndarray, slopes: Sequence[float]) -> None:
    """How alike a word's uses are, by the word's frequency ([words]): the mean cosine of its uses ([words, states]),
    and by state its change for a word ten times as frequent."""
    with picture(path, "Are the uses of a frequent word less alike?", 2, (11, 4.8)) as axes:
        for state, name in {1: "state 1", alike.shape[1] - 1: "last state"}.items():
            axes[0].plot(frequency, alike[:, state], ".", alpha=0.6, label=name)
        axes[0].set_ylabel("mean cosine of the word's uses")
        _frequency_axis(axes[0], frequency)
        axes[1].bar(range(len(slopes)), slopes)
        axes[1].axhline(0, color="black", linewidth=0.8)
        axes[1].set(xlabel="state (0: embeddings)", ylabel="change for a word ten times as frequent")


def plot_isotropy(path: str | Path, states: Sequence[dict[str, Any]], rogue: int) -> None:
    """By state, as `probe isotropy` finds them: the mean cosine of random tokens, what the `rogue` top dimensions give
    to it, and the correlation on STS where it was measured."""
    panels = 2 if "sts_spearman" in states[0]["raw"] else 1
    numbers = np.array([found["state"] for found in states])
    with picture(path, "How alike the vectors are", panels, (4 + 4 * panels, 4.8), grid="y") as (bars, *others):
        for shift, key, label, color in ((-0.2, "raw", "raw", "C0"), (0.2, "z_scored", "z-scored", "C1")):
            bars.bar(numbers + shift, [found[key]["mean_cosine"] for found in states], 0.38, color=color, label=label)
            given = [found[key]["contribution"] for found in states]
            hatched = f"of this the top {rogue} dimensions" if key == "z_scored" else None
            bars.bar(numbers + shift, given, 0.38, fill=False, hatch="////", linewidth=0, label=hatched)
            for axes in others:
                axes.plot(numbers, [found[key]["sts_spearman"] for found in states], "o-", label=label)
                axes.set_ylabel("Spearman correlation on STS")
        bars.axhline(0, color="black", linewidth=0.8)
        bars.set_ylabel("mean cosine of random tokens")
        for axes in (bars, *others):
            axes.set(xlabel="state (0: embeddings)", xticks=numbers)


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
    """Metrics (columns) of splits or models (rows) as a table; where there are many metrics, one a row."""
    metrics = list(dict.fromkeys(metric for row in rows.values() for metric in row))
    if len(metrics) > 8:
        return format_table(["", *rows], [[metric, *(row.get(metric) for row in rows.values())] for metric in metrics])
    return format_table(["", *metrics], [[name, *map(row.get, metrics)] for name, row in rows.items()])


def plot_confusion(
    predictions: Sequence[int], references: Sequence[int], labels: Sequence[str], path: str | Path
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
    with picture(path, title, size=(side + 1, side), grid=None) as axes:
        image = _draw_cells(axes, shares, counts if len(labels) <= 20 else None)
        axes.figure.colorbar(image, label="share of the true class")
        axes.set(xlabel="predicted class", ylabel="true class")
        if len(labels) <= MOST_NAMES:
            axes.set_xticks(range(len(labels)), _one_line(labels), rotation=45, ha="right")
            axes.set_yticks(range(len(labels)), _one_line(labels))


def plot_values(predictions: Sequence[float], references: Sequence[float], path: str | Path) -> None:
    with picture(path, "Predicted and true values", size=(5.5, 5)) as axes:
        axes.scatter(references, predictions, s=6, alpha=0.4)
        ends = [min(np.min(references), np.min(predictions)), max(np.max(references), np.max(predictions))]
        axes.plot(ends, ends, color="gray", linestyle="--", linewidth=1)
        axes.set(xlabel="true value", ylabel="predicted value")


def plot_scores(scores: Mapping[str, float], name: str, path: str | Path) -> None:
    """Draw the score `name`, between 0 and 1, of every label."""
    _plot_bars(path, f"{name} by label", {"": list(scores.values())}, list(scores), name)


def plot_per_type(scores: Mapping[str, Mapping[str, float]], path: str | Path) -> None:
    """Draw precision, recall and F1 of every type of entity, given with its support; the most frequent one first."""
    types = sorted(scores, key=lambda kind: -scores[kind]["support"])
    bars = {name: [scores[kind][name] for kind in types] for name in ("precision", "recall", "f1")}
    labels = [f"{kind} ({scores[kind]['support']:,})" for kind in types]
    _plot_bars(path, "Scores by type of entity", bars, labels, "score (number of true entities in brackets)")


def plot_grammar(path: str | Path, results: Mapping[str, Any]) -> None:
    """The accuracy of each phenomenon as a bar, beside chance and the mean over all pairs."""
    names, values = zip(*sorted(results["phenomena"].items(), key=lambda item: item[1]))
    with picture(path, "Grammatical against ungrammatical sentences", size=(8, 1.5 + 0.3 * len(names))) as axes:
        axes.barh(names, values)
        axes.axvline(0.5, color="grey", linestyle=":", label="chance")
        label = f"all {results['pairs']:,} pairs: {results['accuracy']:.1%}"
        axes.axvline(results["accuracy"], color="black", label=label)
        axes.set(xlim=(0, 1), xlabel="accuracy")


def plot_race(path: str | Path, results: Mapping[str, Mapping[str, Any]]) -> None:
    """Held-out loss over seconds of training and over tokens, a curve a run."""
    with picture(path, "Held-out loss at 15 % masks", panels=2, size=(11, 4.5), sharey=True) as panels:
        for axes, axis in zip(panels, ("seconds", "tokens")):
            for name, run in results.items():
                x, y = ([point[key] for point in run["curve"]] for key in (axis, "loss"))
                label = f"{name}: {run['loss']:.2f}" if axis == "seconds" else None
                axes.plot(x, y, "--" if run["peer"] else "-", marker=".", label=label)
            axes.set_xlabel(f"{axis} of training")
        panels[0].set_ylabel("loss")
