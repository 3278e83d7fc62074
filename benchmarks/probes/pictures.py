"""The pictures of the probes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minibert.training.report import MOST_NAMES, _draw_cells, _plot_bars, picture


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
