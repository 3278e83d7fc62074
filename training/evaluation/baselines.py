"""Scores of guessing, and whether a result is better than something simple."""

import math
from collections.abc import Sequence

import numpy as np

# A larger error of a score gives a warning.
MAX_ERROR_OF_SCORE = 0.05


def is_better(metric: str, value: float | None, baseline_value: float | None) -> bool:
    """Whether a value of a metric is better than a baseline's; a missing one is worse than any."""
    if value is None or baseline_value is None:
        return value is not None
    if metric.endswith(("loss", "mse", "perplexity")):
        return value < baseline_value
    return value > baseline_value


def is_perfect(metric: str, value: float | None) -> bool:
    """Whether a value is the best that a score can have; an error or a loss of 1 is none."""
    return value == 1 and is_better(metric, 1, 0)


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


def margin_of_macro_f1(class_counts: Sequence[int]) -> float:
    """`margin` of the mean over classes of what is measured on so many rows of each."""
    variance = sum(0.25 / count for count in class_counts) / len(class_counts) ** 2
    return 1.96 * math.sqrt(variance)


def describe_few_rows(rows: int, class_counts: Sequence[int] = ()) -> str | None:
    """A warning if a score on so few held-out rows is uncertain; else None.

    Args:
        class_counts: Of classes that macro F1 is measured for, how many rows each has.
    """
    if class_counts:
        error = margin_of_macro_f1(class_counts)
        message = (
            f"{rows:,} rows ({min(class_counts):,} of a class) measure macro F1 only to ±"
            f" {error:.2f} (95 % interval); hold out more (--validation, --validation_size) to"
            " compare models"
        )
    else:
        error = margin(rows)
        message = (
            f"{rows:,} rows measure a score only to ± {error:.2f} (95 % interval); hold out more"
            " (--validation, --validation_size) to compare models"
        )
    if error <= MAX_ERROR_OF_SCORE:
        return None
    return message


def judge(
    metric: str,
    value: float | None,
    baseline_value: float | None,
    baseline_name: str,
    interval: tuple[float, float] | None = None,
) -> str | None:
    """A warning if a result is not better than a baseline, or if the difference may be chance; else
    None.

    Args:
        metric: The name of the score, such as "f1_macro".
        value: The model's score.
        baseline_value: The score of something simple, such as guessing.
        baseline_name: What that is, as it stands in the warning.
        interval: The 95 % interval of the model's score.
    """
    if value is None or baseline_value is None:
        return None
    figures = f"{baseline_name} ({metric} {value:.4g}, against {baseline_value:.4g})"
    if is_perfect(metric, value) and baseline_value == 1:
        return (
            f"these rows are too easy to compare this model with {figures}; measure both on others,"
            " or hold out more of the training rows (--validation_size)"
        )
    if not is_better(metric, value, baseline_value):
        comparison = "no better" if value == baseline_value else "worse"
        advice = "train longer, on more data, or at another learning rate"
        if metric == "f1_macro":
            advice += ", or with --class_weights balanced"
        return f"{comparison} than {figures}: do not use this model; {advice}"
    if interval is not None and interval[0] <= baseline_value <= interval[1]:
        low, high = interval
        return (
            f"hardly better than {figures}: the 95 % interval is {low:.2f} to {high:.2f},"
            " so that may be chance; measure on more rows"
        )
    return None


def judge_simple(
    metric: str,
    value: float | None,
    simple_value: float | None,
    simple_name: str,
    interval: tuple[float, float] | None,
) -> str | None:
    """A warning if a simple model is as good, or may be; else None. Arguments as of `judge`."""
    if value is None or simple_value is None:
        return None
    figures = f"{simple_name} ({metric} {simple_value:.4g}, against {value:.4g})"
    if is_perfect(metric, value) and simple_value == 1:
        return (
            f"these rows are too easy to compare this model with {figures}; measure on others, or"
            " hold out more of the training rows (--validation_size)"
        )
    if not is_better(metric, value, simple_value):
        return (
            f"{figures} is as good or better, and smaller: use that, or train longer, or on more"
            " data"
        )
    if interval is not None and interval[0] <= simple_value <= interval[1]:
        low, high = interval
        return (
            f"{figures} may be as good: the 95 % interval is {low:.2f} to {high:.2f};"
            " measure on more rows, or use the simple model, which is smaller"
        )
    return None
