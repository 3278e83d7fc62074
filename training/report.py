"""Every table and every picture of the project is drawn here.

`format_table` aligns text, `picture` opens one matplotlib figure and saves it; what is drawn stands below them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
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
