"""Intervals of scores, against scipy's bootstrap with the metrics of scikit-learn and scipy."""

import numpy as np
import pytest
import scipy.stats
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from minibert.training.evaluation import intervals
from minibert.training.evaluation.intervals import (
    intervals_of_class_counts,
    intervals_of_classes,
    intervals_of_counts,
    intervals_of_labels,
    intervals_of_means,
    intervals_of_values,
)

CLASSES = {
    "accuracy": accuracy_score,
    "f1_macro": lambda true, predicted: f1_score(
        true, predicted, average="macro", labels=np.unique(true), zero_division=0
    ),
    "matthews_correlation": matthews_corrcoef,
}
VALUES = {
    "pearson": lambda true, predicted: scipy.stats.pearsonr(true, predicted).statistic,
    "spearman": lambda true, predicted: scipy.stats.spearmanr(true, predicted).statistic,
    "mse": lambda true, predicted: np.mean((true - predicted) ** 2),
}


def reference(metric, true, predicted):
    """By scipy, which calls the metric of scikit-learn for each sample."""
    result = scipy.stats.bootstrap(
        (np.arange(len(true)),),
        lambda rows: metric(true[rows], predicted[rows]),
        vectorized=False,
        n_resamples=300,
        method="percentile",
        rng=1,
    )
    return result.confidence_interval


def check(interval_of, metrics, true, predicted):
    assert interval_of.keys() == metrics.keys()
    for name, metric in metrics.items():
        low, high = reference(metric, true, predicted)
        width = high - low
        assert interval_of[name].low == pytest.approx(low, abs=0.25 * width), name
        assert interval_of[name].high == pytest.approx(high, abs=0.25 * width), name


def test_of_classes():
    generator = np.random.default_rng(0)
    true = generator.choice(3, 120, p=[0.8, 0.12, 0.08])
    predicted = np.where(generator.random(120) < 0.7, true, generator.integers(3, size=120))
    check(intervals_of_classes(predicted, true), CLASSES, true, predicted)


def test_of_several_labels():
    generator = np.random.default_rng(0)
    true = (generator.random((150, 3)) < [0.5, 0.2, 0.1]).astype(int)
    predicted = np.where(generator.random((150, 3)) < 0.8, true, 1 - true)
    metrics = {"accuracy": accuracy_score}
    for average in ("micro", "macro"):
        metrics[f"f1_{average}"] = lambda true, predicted, average=average: f1_score(
            true, predicted, average=average, zero_division=0
        )
    check(intervals_of_labels(predicted, true), metrics, true, predicted)


def test_of_values_with_equal_ones():
    generator = np.random.default_rng(0)
    true = generator.integers(6, size=150).astype(float)
    predicted = np.round(true + generator.normal(scale=2, size=150))
    check(intervals_of_values(predicted, true), VALUES, true, predicted)


def test_of_counts():
    generator = np.random.default_rng(0)
    num_true = generator.integers(0, 4, 100)
    hits = generator.binomial(num_true, 0.7)
    num_predicted = hits + generator.integers(0, 2, 100)

    def f1(rows, _):
        return 2 * hits[rows].sum() / (num_true[rows].sum() + num_predicted[rows].sum())

    interval_of = intervals_of_counts(hits, num_predicted, num_true)
    check({"f1": interval_of["f1"]}, {"f1": f1}, np.arange(100), np.arange(100))
    recall = hits.sum() / num_true.sum()
    assert (
        recall - 0.1
        < interval_of["recall"].low
        < recall
        < interval_of["recall"].high
        < recall + 0.1
    )


def test_of_words():
    """Whole sentences are drawn: words of one sentence are right or wrong together."""
    num_true = np.full((40, 2), 10)
    hits = np.where(np.arange(40)[:, None] % 4 == 0, 0, num_true)
    interval_of = intervals_of_class_counts(hits, num_true, num_true)
    width = interval_of["accuracy"].high - interval_of["accuracy"].low
    assert width == pytest.approx(2 * 1.96 * np.sqrt(0.75 * 0.25 / 40), rel=0.15)


def test_macro_f1_is_less_certain_than_accuracy():
    """The rare class says as much as the other one, and has ten rows."""
    true = np.array([0] * 190 + [1] * 10)
    predicted = true.copy()
    predicted[[0, 1, 2, 3, 190, 191, 192, 193]] ^= 1
    interval_of = intervals_of_classes(predicted, true)
    widths = {name: interval.high - interval.low for name, interval in interval_of.items()}
    assert widths["f1_macro"] > 3 * widths["accuracy"]


@pytest.mark.parametrize("num_rare", [3, 30])
def test_of_a_perfect_score(num_rare):
    """No sample has an error, but other rows may."""
    true = np.array([0] * 100 + [1] * num_rare)
    interval_of = intervals_of_classes(true, true)
    assert interval_of["accuracy"].low == pytest.approx(0.025 ** (1 / len(true)))
    assert interval_of["f1_macro"].low == pytest.approx(0.025 ** (1 / (2 * num_rare)))
    assert interval_of["f1_macro"].high == 1


def test_the_same_at_every_call_and_in_parts(monkeypatch):
    scores = {"hit@1": [0, 1, 1, 1, 0], "mrr@10": [0.5, 1, 1, 0.1, 0.2]}
    interval_of = intervals_of_means(scores)
    assert interval_of == intervals_of_means(scores)
    monkeypatch.setattr(intervals, "MAX_NUMBERS_AT_ONCE", 10)
    in_parts = intervals_of_means(scores)
    for name in interval_of:
        assert interval_of[name] == pytest.approx(in_parts[name])
    assert interval_of["hit@1"].low < 0.6 < interval_of["hit@1"].high


def test_of_no_rows():
    assert intervals_of_means({"x": []}) == {}
