"""The pictures of the probes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minibert.training.report import MOST_NAMES, _draw_cells, picture


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
