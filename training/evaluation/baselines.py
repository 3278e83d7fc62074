"""Scores of guessing, and whether a result is better than something simple."""

import math
from collections.abc import Sequence

import numpy as np

from .metrics import is_better

UNSURE = 0.05  # a larger error of a score gives a warning


def random_scores(known: Sequence[int], references: Sequence[int]) -> list[dict[str, float]]:
    """`accuracy` and `f1_macro` to expect of classes drawn as often as they are `known`, and of those drawn evenly."""
    size = 1 + max(max(known), max(references))
    shares, true = (np.bincount(each, minlength=size) / len(each) for each in (known, references))
    scores, there = [], true > 0
    for drawn in (shares, (shares > 0) / np.count_nonzero(shares)):
        f1 = 2 * (drawn * true)[there] / (drawn + true)[there]
        scores.append({"accuracy": float(drawn @ true), "f1_macro": float(f1.mean())})
    return scores


def margin(rows: int, share: float = 0.5) -> float:
    """How far a share that is measured on so many rows lies from the true one, at most in 95 of 100 cases."""
    return 1.96 * math.sqrt(max(share * (1 - share), 0.05) / max(rows, 1))


def few_to_measure(rows: int) -> str | None:
    """A warning if a score on so few held-out rows is uncertain; else None."""
    if (error := margin(rows)) <= UNSURE:
        return None
    use = "hold out more (--validation, --validation_size) to compare models"
    return f"{rows:,} rows measure a score only to ± {error:.2f} (95 % interval); {use}"


def judge(
    metric: str, value: float | None, baseline: float | None, what: str, rows: int | None = None
) -> str | None:
    """A warning if a result is not better than `what`, or if the difference may be chance on so few `rows`; else
    None."""
    if value is None or baseline is None:
        return None
    figures = f"{what} ({metric} {value:.4g}, against {baseline:.4g})"
    if value == baseline == 1 and is_better(metric, 1, 0):  # the highest score
        return (
            f"these rows are too easy to compare this model with {figures}; measure both on others"
        )
    if not is_better(metric, value, baseline):
        how = "no better" if value == baseline else "worse"
        use = "train longer, on more data, or at another learning rate"
        use += ", or with --class_weights balanced" * (metric == "f1_macro")
        return f"{how} than {figures}: do not use this model; {use}"
    if rows is not None and abs(value - baseline) < margin(rows, min(max(baseline, 0.0), 1.0)):
        return f"hardly better than {figures}: on {rows:,} rows that may be chance; measure on more"
    return None
