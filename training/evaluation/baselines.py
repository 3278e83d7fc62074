"""Scores of guessing, and whether a result is better than something simple."""

import math
from collections.abc import Sequence

import numpy as np

# A larger error of a score gives a warning.
MAX_ERROR_OF_SCORE = 0.05


def is_better(metric: str, value: float | None, baseline: float | None) -> bool:
    """Whether a value of a metric is better than a baseline; a missing one is worse than any."""
    if value is None or baseline is None:
        return value is not None
    if metric.endswith(("loss", "mse", "perplexity")):
        return value < baseline
    return value > baseline


def random_scores(
    training_labels: Sequence[int], references: Sequence[int]
) -> list[dict[str, float]]:
    """`accuracy` and `f1_macro` to expect of classes drawn as often as they are in training, and of
    those drawn evenly.

    Args:
        training_labels: The class of each row of training.
        references: The class of each row that is measured.
    """
    num_classes = 1 + max(max(training_labels), max(references))
    training_shares = np.bincount(training_labels, minlength=num_classes) / len(training_labels)
    true_shares = np.bincount(references, minlength=num_classes) / len(references)
    seen_in_training = training_shares > 0
    even_shares = seen_in_training / np.count_nonzero(seen_in_training)
    has_rows = true_shares > 0  # scikit-learn's mean is over these classes
    scores = []
    for drawn_shares in (training_shares, even_shares):
        # precision is the true share, and recall the drawn one
        f1 = 2 * (drawn_shares * true_shares)[has_rows] / (drawn_shares + true_shares)[has_rows]
        accuracy = drawn_shares @ true_shares
        scores.append({"accuracy": float(accuracy), "f1_macro": float(f1.mean())})
    return scores


def margin(rows: int, share: float = 0.5) -> float:
    """How far a share that is measured on so many rows lies from the true one, at most in 95 of 100
    cases."""
    variance = max(share * (1 - share), 0.05)
    return 1.96 * math.sqrt(variance / max(rows, 1))


def few_to_measure(rows: int) -> str | None:
    """A warning if a score on so few held-out rows is uncertain; else None."""
    error = margin(rows)
    if error <= MAX_ERROR_OF_SCORE:
        return None
    return (
        f"{rows:,} rows measure a score only to ± {error:.2f} (95 % interval);"
        " hold out more (--validation, --validation_size) to compare models"
    )


def judge(
    metric: str,
    value: float | None,
    baseline: float | None,
    baseline_name: str,
    rows: int | None = None,
) -> str | None:
    """A warning if a result is not better than a baseline, or if the difference may be chance on so
    few rows; else None.

    Args:
        metric: The name of the score, such as "f1_macro".
        value: The model's score.
        baseline: That of something simple, such as guessing.
        baseline_name: What that is, as it stands in the warning.
        rows: How many rows were measured.
    """
    if value is None or baseline is None:
        return None
    figures = f"{baseline_name} ({metric} {value:.4g}, against {baseline:.4g})"
    is_perfect = value == 1 and is_better(metric, 1, 0)
    if is_perfect and baseline == 1:
        return (
            f"these rows are too easy to compare this model with {figures}; measure both on others"
        )
    if not is_better(metric, value, baseline):
        comparison = "no better" if value == baseline else "worse"
        advice = "train longer, on more data, or at another learning rate"
        if metric == "f1_macro":
            advice += ", or with --class_weights balanced"
        return f"{comparison} than {figures}: do not use this model; {advice}"
    baseline_share = min(max(baseline, 0.0), 1.0)
    if rows is not None and abs(value - baseline) < margin(rows, baseline_share):
        return f"hardly better than {figures}: on {rows:,} rows that may be chance; measure on more"
    return None
