"""95 % intervals of metrics: how far a score may be chance, because other rows were measured.

They are percentiles over resamplings of the measured rows (the bootstrap, Efron 1979), the same at
every call. Rows that are alike, such as those of the same class and prediction, are drawn together.
A metric is computed for many samples at once, from how often each row is in each sample.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

NUM_RESAMPLINGS = 1_000
RESAMPLING_SEED = 0
CONFIDENCE_LEVEL = 0.95
MAX_NUMBERS_AT_ONCE = 10_000_000

# From how often each row is in each sample, [samples, rows], to metrics by name, [samples].
ScoreSamples = Callable[[np.ndarray], Mapping[str, np.ndarray]]


class Interval(NamedTuple):
    low: float
    high: float


def bootstrap_intervals(
    score: ScoreSamples, row_counts: Sequence[int], num_rows: Mapping[str, int] | None = None
) -> dict[str, Interval]:
    """The interval of each metric. One that is not defined for a sample is left out of its own.

    Args:
        score: The metrics of samples.
        row_counts: How many measured rows there are of each row that `score` knows.
        num_rows: By metric, how many rows a perfect score stands for; by default all rows.
    """
    row_counts = np.asarray(row_counts)
    total = int(row_counts.sum())
    if not total:
        return {}
    generator = np.random.default_rng(RESAMPLING_SEED)
    num_at_once = max(1, MAX_NUMBERS_AT_ONCE // len(row_counts))
    parts: dict[str, list[np.ndarray]] = {}
    for start in range(0, NUM_RESAMPLINGS, num_at_once):
        num_samples = min(num_at_once, NUM_RESAMPLINGS - start)
        samples = generator.multinomial(total, row_counts / total, num_samples)
        with np.errstate(divide="ignore", invalid="ignore"):
            scores = score(samples.astype(np.float64))
        for name, values in scores.items():
            parts.setdefault(name, []).append(values)
    interval_of = {}
    for name, values in parts.items():
        num_rows_of_metric = (num_rows or {}).get(name, total)
        interval = _interval(np.concatenate(values), num_rows_of_metric)
        if interval is not None:
            interval_of[name] = interval
    return interval_of


def _interval(values: np.ndarray, num_rows: int) -> Interval | None:
    values = values[np.isfinite(values)]
    if not len(values):
        return None
    tail = (1 - CONFIDENCE_LEVEL) / 2
    low, high = np.quantile(values, [tail, 1 - tail]).tolist()
    # If each of n rows is right, samples of them say nothing of errors that are rarer than 1 / n:
    # Clopper and Pearson's bound does.
    max_unseen_share = 1 - tail ** (1 / num_rows)
    if low == high == 1:
        low = 1 - max_unseen_share
    elif low == high == 0:
        high = max_unseen_share
    return Interval(low, high)


# --- scores of samples ---


def intervals_of_means(scores: Mapping[str, Sequence[float]]) -> dict[str, Interval]:
    """The intervals of metrics that are means of the `scores` of rows."""
    names = list(scores)
    matrix = np.array([scores[name] for name in names], np.float64).T  # [rows, metrics]
    different_rows, row_counts = np.unique(matrix, axis=0, return_counts=True)

    def score(samples: np.ndarray) -> dict[str, np.ndarray]:
        means = samples @ different_rows / samples.sum(1, keepdims=True)
        return dict(zip(names, means.T))

    return bootstrap_intervals(score, row_counts)


def intervals_of_classes(
    predictions: Sequence[int], references: Sequence[int]
) -> dict[str, Interval]:
    """The intervals of `accuracy`, of `f1_macro` over the classes that a sample has, and of
    `matthews_correlation`."""
    pairs = np.stack([np.asarray(predictions), np.asarray(references)], 1)
    pairs, row_counts = np.unique(pairs, axis=0, return_counts=True)
    classes = np.unique(pairs)
    is_predicted = pairs[:, :1] == classes  # [different pairs, classes]
    is_true = pairs[:, 1:] == classes
    is_hit = is_predicted & is_true

    def score(samples: np.ndarray) -> dict[str, np.ndarray]:
        num_predicted = samples @ is_predicted
        num_true = samples @ is_true
        hits = samples @ is_hit
        num_rows = samples.sum(1)
        num_right = hits.sum(1)
        # Gorodkin (2004), as scikit-learn has it
        covariance = num_right * num_rows - (num_predicted * num_true).sum(1)
        spread_of_predicted = num_rows**2 - (num_predicted**2).sum(1)
        spread_of_true = num_rows**2 - (num_true**2).sum(1)
        correlation = covariance / np.sqrt(spread_of_predicted * spread_of_true)
        return {
            "accuracy": num_right / num_rows,
            "f1_macro": _macro_f1(hits, num_predicted, num_true),
            "matthews_correlation": np.where(spread_of_predicted == 0, 0.0, correlation),
        }

    num_rows_of_class = row_counts @ is_true
    num_rows_of_class = num_rows_of_class[num_rows_of_class > 0]
    # A perfect macro F1 stands for as many rows as the rarest class has, for each class.
    num_rows = int(num_rows_of_class.min() * len(num_rows_of_class))
    return bootstrap_intervals(score, row_counts, {"f1_macro": num_rows})


def intervals_of_labels(predictions: np.ndarray, references: np.ndarray) -> dict[str, Interval]:
    """The intervals of `accuracy` (all labels of a row are right), `f1_micro`, and `f1_macro` over
    the labels that a sample has.

    Args:
        predictions, references: 0 or 1 for each label, [rows, labels].
    """
    is_predicted = np.asarray(predictions, bool)
    is_true = np.asarray(references, bool)
    num_labels = is_true.shape[1]
    rows = np.concatenate([is_predicted, is_true], 1)
    rows, row_counts = np.unique(rows, axis=0, return_counts=True)
    is_predicted = rows[:, :num_labels]
    is_true = rows[:, num_labels:]
    is_hit = is_predicted & is_true
    is_right = (is_predicted == is_true).all(1)

    def score(samples: np.ndarray) -> dict[str, np.ndarray]:
        num_predicted = samples @ is_predicted
        num_true = samples @ is_true
        hits = samples @ is_hit
        return {
            "f1_micro": _f1(hits.sum(1), num_predicted.sum(1), num_true.sum(1)),
            "f1_macro": _macro_f1(hits, num_predicted, num_true),
            "accuracy": samples @ is_right / samples.sum(1),
        }

    return bootstrap_intervals(score, row_counts)


def intervals_of_values(
    predictions: Sequence[float], references: Sequence[float]
) -> dict[str, Interval]:
    """The intervals of `pearson`, `spearman` and `mse`."""
    predicted = np.asarray(predictions, np.float64)
    true = np.asarray(references, np.float64)
    squared_errors = (predicted - true) ** 2

    def score(samples: np.ndarray) -> dict[str, np.ndarray]:
        predicted_ranks = _ranks(predicted, samples)
        true_ranks = _ranks(true, samples)
        return {
            "pearson": _correlation(predicted[None], true[None], samples),
            "spearman": _correlation(predicted_ranks, true_ranks, samples),
            "mse": samples @ squared_errors / samples.sum(1),
        }

    return bootstrap_intervals(score, np.ones(len(true), int))


def intervals_of_counts(
    hits: np.ndarray, num_predicted: np.ndarray, num_true: np.ndarray
) -> dict[str, Interval]:
    """The intervals of `precision`, `recall` and `f1` over all things that rows have several of,
    such as entities.

    Args:
        hits, num_predicted, num_true: How many each row has, [rows].
    """
    counts = np.stack([hits, num_predicted, num_true], 1)
    counts, row_counts = np.unique(counts, axis=0, return_counts=True)

    def score(samples: np.ndarray) -> dict[str, np.ndarray]:
        hits, num_predicted, num_true = (samples @ counts).T
        return {
            "precision": np.where(num_predicted == 0, 0.0, hits / num_predicted),
            "recall": hits / num_true,
            "f1": np.where(num_true == 0, np.nan, _f1(hits, num_predicted, num_true)),
        }

    return bootstrap_intervals(score, row_counts)


def intervals_of_class_counts(
    hits: np.ndarray, num_predicted: np.ndarray, num_true: np.ndarray
) -> dict[str, Interval]:
    """The intervals of `accuracy`, and of `f1_macro` over the classes that a sample has, of words
    of which each has one class, while whole sentences are drawn.

    Args:
        hits, num_predicted, num_true: How many each sentence has of each class,
            [sentences, classes].
    """

    def score(samples: np.ndarray) -> dict[str, np.ndarray]:
        hits_of_class = samples @ hits
        num_true_of_class = samples @ num_true
        return {
            "accuracy": hits_of_class.sum(1) / num_true_of_class.sum(1),
            "f1_macro": _macro_f1(hits_of_class, samples @ num_predicted, num_true_of_class),
        }

    return bootstrap_intervals(score, np.ones(len(hits), int))


def _f1(hits: np.ndarray, num_predicted: np.ndarray, num_true: np.ndarray) -> np.ndarray:
    return 2 * hits / (num_predicted + num_true)


def _macro_f1(hits: np.ndarray, num_predicted: np.ndarray, num_true: np.ndarray) -> np.ndarray:
    """The mean F1 of the classes that are true of some row, [samples], of counts [samples,
    classes]."""
    f1 = np.where(num_true > 0, _f1(hits, num_predicted, num_true), 0.0)
    return f1.sum(1) / (num_true > 0).sum(1)


def _ranks(values: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """The rank of each row's value in each sample, [samples, rows]; equal values share the mean of
    their ranks."""
    _, group = np.unique(values, return_inverse=True)
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(group.max() + 1))
    group_sizes = np.add.reduceat(samples[:, order], starts, axis=1)
    ends = np.cumsum(group_sizes, 1)
    mean_ranks = ends - (group_sizes - 1) / 2
    return mean_ranks[:, group]


def _correlation(first: np.ndarray, second: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """Pearson's correlation in each sample, [samples], of values [samples or 1, rows]."""
    num_rows = samples.sum(1, keepdims=True)
    first = first - (samples * first).sum(1, keepdims=True) / num_rows
    second = second - (samples * second).sum(1, keepdims=True) / num_rows
    covariance = (samples * first * second).sum(1)
    spread = (samples * first**2).sum(1) * (samples * second**2).sum(1)
    return covariance / np.sqrt(spread)
