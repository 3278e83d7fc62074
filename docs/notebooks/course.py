"""What several notebooks need and none of them is about: the check of an exercise, the interval of
a few figures with its verdict, and their points in a picture.
"""

import numpy as np
from scipy.stats import t as student


def exercise(judge):
    """Make `check(answer)` from a function that returns what is wrong with an answer, or None."""

    def check(answer):
        if answer is None:
            print("not yet")
            return
        try:
            problem = judge(answer)
        except Exception as error:  # an answer of another type, say
            problem = f"this answer cannot be checked: {type(error).__name__}: {error}"
        print(problem or "right")

    return check


def interval(values, comparisons=1):
    """Mean, and half of its 95 % interval by Student's t.

    With several comparisons, each interval may be wrong in 5 % / `comparisons` of the cases
    (Bonferroni). A single value has no interval: its half is NaN.
    """
    count = len(values)
    if count == 1:
        return np.mean(values), np.nan
    quantile = student.ppf(1 - 0.025 / comparisons, count - 1)
    return np.mean(values), quantile * np.std(values, ddof=1) / np.sqrt(count)


def verdict(difference, half, above="higher", below="lower"):
    """What a difference and half of its interval show."""
    if abs(difference) <= half:
        return "not told apart"
    if difference > 0:
        return above
    return below


def compare(differences_by_name, comparisons=None, width=30, digits=3, **words):
    """Print differences at the same seed, with two intervals: of a comparison that stands alone
    (±), and widened for all comparisons (in brackets). The verdict is by the second.

    Args:
        differences_by_name: arrays of figures by seed.
        comparisons: their number, by default that of the lines.
        width: characters of the names.
        digits: decimals of the figures.
        words: `above` and `below`, the verdicts of `verdict`.
    """
    if comparisons is None:
        comparisons = len(differences_by_name)
    for name, differences in differences_by_name.items():
        mean, alone = interval(differences)
        _, widened = interval(differences, comparisons)
        result = verdict(mean, widened, **words)
        figures = f"{mean:+.{digits}f} ± {alone:.{digits}f} (± {widened:.{digits}f})"
        print(f"{name:{width}}{figures}  {result}")


def draw_seeds(axes, position, values, color="C0", marker="o", horizontal=False, label=None):
    """Draw figures by seed as points, with the 95 % interval of their mean as a bar."""
    mean, half = interval(values)
    bar = {"color": color, "capsize": 3, "linewidth": 1, "alpha": 0.6}
    points = {"color": color, "markersize": 3.5, "label": label}
    positions = [position] * len(values)
    if np.isnan(half):
        half = 0
    if horizontal:
        axes.errorbar(mean, position, xerr=half, **bar)
        axes.plot(values, positions, marker, **points)
    else:
        axes.errorbar(position, mean, yerr=half, **bar)
        axes.plot(positions, values, marker, **points)
