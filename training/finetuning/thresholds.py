"""Thresholds of a classifier: chosen on the validation examples, kept where they are better than ½
by more than chance, and then moved into the bias of the model's last layer."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import expit, logit
from torch import nn
from transformers import PreTrainedModel

from ..common.printable import printable

# A threshold is kept if it beats ½ in this share of the resamplings of the validation examples.
MIN_SHARE_BETTER = 0.95
NUM_RESAMPLINGS = 1_000
RESAMPLING_SEED = 0
# The 95th percentile of the normal distribution.
Z_95 = 1.645
# A threshold of exactly 0 or 1 would be an infinite bias.
MIN_THRESHOLD = 1e-12
MAX_PRINTED_LABELS = 10


@dataclass(frozen=True)
class ThresholdChoice:
    """What the validation examples say about the threshold of a label."""

    best_threshold: float
    best_f1: float  # with it; of two classes, macro F1
    f1_at_half: float
    share_better: float  # of the resamplings in which it beats ½
    num_positives: int
    num_negatives: int
    num_rare_needed: int  # examples of the rarer class with which it would probably be kept

    @property
    def is_kept(self) -> bool:
        """Whether it is better than ½ by more than chance."""
        return self.share_better >= MIN_SHARE_BETTER

    @property
    def threshold(self) -> float:
        """The threshold to decide by."""
        return self.best_threshold if self.is_kept else 0.5


@dataclass(frozen=True)
class ChosenThresholds:
    """The thresholds of all labels, chosen on the validation examples."""

    values: list[float] | None  # a probability for each label; None: 0.5 for each of them
    choices: list[ThresholdChoice]  # of each label; of two classes, of the second one

    def describe(self, label_names: Sequence[str]) -> list[str]:
        """The choices in sentences, for the console and the card."""
        return describe_choices(self.choices, label_names)


# --- choosing a threshold ---


def choose_threshold(log_odds: np.ndarray, is_positive: np.ndarray, macro: bool) -> ThresholdChoice:
    """Find the `best_threshold` for these examples, and whether it is better than ½ by more than
    chance: in 95 % of 1,000 resamplings of them. Arguments as of `best_threshold`."""
    is_positive = np.asarray(is_positive, bool)
    best = best_threshold(log_odds, is_positive, macro)
    counts = count_outcomes(is_positive, log_odds > to_log_odds(best), log_odds > 0)
    best_f1 = float(f1_of_best(counts, macro))
    f1_at_half = float(f1_of_half(counts, macro))
    gains = resample_gains(counts, macro)
    num_positives = int(is_positive.sum())
    num_negatives = len(is_positive) - num_positives
    return ThresholdChoice(
        best_threshold=best,
        best_f1=best_f1,
        f1_at_half=f1_at_half,
        share_better=float((gains > 0).mean()),
        num_positives=num_positives,
        num_negatives=num_negatives,
        num_rare_needed=estimate_rare_needed(
            min(num_positives, num_negatives), best_f1 - f1_at_half, float(gains.std())
        ),
    )


def best_threshold(log_odds: np.ndarray, is_positive: np.ndarray, macro: bool) -> float:
    """The probability from which on an example should be called positive: the one with the best F1
    on these examples, of several the one nearest to ½; ½ if all examples are alike.

    Args:
        log_odds: Of being positive, as the model says, [examples].
        is_positive: Whether they are, [examples].
        macro: Whether F1 is the mean of the F1 of both classes, and not that of the positive one.
    """
    num_rows = len(is_positive)
    num_positives = int(is_positive.sum())
    if num_positives in (0, num_rows):
        return 0.5
    probabilities = expit(log_odds.astype(np.float64))
    # Between neighbouring probabilities: examples with the same probability are called the same.
    edges = np.unique([0.0, *probabilities, 1.0])
    thresholds = (edges[:-1] + edges[1:]) / 2
    num_predicted = count_above(probabilities, thresholds)
    num_hits = count_above(probabilities[is_positive == 1], thresholds)
    f1 = 2 * num_hits / (num_predicted + num_positives)
    if macro:
        num_negatives = num_rows - num_positives
        num_predicted_negatives = num_rows - num_predicted
        num_negative_hits = num_negatives - num_predicted + num_hits
        f1 = f1 + 2 * num_negative_hits / (num_predicted_negatives + num_negatives)
    best = thresholds[f1 >= f1.max() - 1e-12]
    return float(min(best, key=lambda threshold: abs(threshold - 0.5)))


def count_above(values: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """How many of the values lie above each threshold."""
    return len(values) - np.searchsorted(np.sort(values), thresholds)


def to_log_odds(thresholds: float | Sequence[float]) -> np.ndarray:
    """The log-odds of probabilities, which stay finite."""
    clipped = np.clip(np.asarray(thresholds, np.float64), MIN_THRESHOLD, 1 - MIN_THRESHOLD)
    return logit(clipped)


# --- whether it is better than ½ ---


def count_outcomes(is_positive: np.ndarray, by_best: np.ndarray, by_half: np.ndarray) -> np.ndarray:
    """How many examples there are of each sort: [truth, prediction by the best threshold,
    prediction by ½], each 0 or 1."""
    sorts = 4 * is_positive.astype(int) + 2 * by_best.astype(int) + by_half.astype(int)
    return np.bincount(sorts, minlength=8).reshape(2, 2, 2)


def resample_gains(counts: np.ndarray, macro: bool) -> np.ndarray:
    """By how much the best threshold has a better F1 than ½ in each resampling of the examples,
    [resamplings]. Examples of one sort are alike, so it is enough to draw how many there are of
    each sort.

    Args:
        counts: What `count_outcomes` returned.
    """
    num_rows = counts.sum()
    generator = np.random.default_rng(RESAMPLING_SEED)
    drawn = generator.multinomial(num_rows, counts.ravel() / num_rows, NUM_RESAMPLINGS)
    drawn_counts = drawn.reshape(NUM_RESAMPLINGS, *counts.shape)
    return f1_of_best(drawn_counts, macro) - f1_of_half(drawn_counts, macro)


def f1_of_best(counts: np.ndarray, macro: bool) -> np.ndarray:
    """The F1 by the best threshold, of counts [..., truth, by the best, by ½]."""
    return f1_of_counts(counts.sum(axis=-1), macro)


def f1_of_half(counts: np.ndarray, macro: bool) -> np.ndarray:
    """The F1 by ½, of counts [..., truth, by the best, by ½]."""
    return f1_of_counts(counts.sum(axis=-2), macro)


def f1_of_counts(counts: np.ndarray, macro: bool) -> np.ndarray:
    """The F1 of counts [..., truth, prediction]. A class that is neither true nor predicted
    anywhere has the F1 0."""
    hits = 2 * counts[..., 1, 1]
    f1 = hits / np.maximum(counts[..., 1, :].sum(-1) + counts[..., :, 1].sum(-1), 1)
    if not macro:
        return f1
    return (f1 + f1_of_counts(counts[..., ::-1, ::-1], macro=False)) / 2


def estimate_rare_needed(num_rare: int, gain: float, gain_error: float) -> int:
    """How many examples of the rarer class it would take for the threshold to be kept.

    Args:
        num_rare: How many there are.
        gain: By how much the threshold is better than ½.
        gain_error: The standard deviation of that gain in resamplings.
    """
    if gain <= 0:
        return num_rare + 1
    # The error of a gain falls with the square root of the number of examples.
    factor = (Z_95 * gain_error / gain) ** 2
    return max(num_rare + 1, math.ceil(num_rare * factor))


# --- in words ---


def describe_choice(choice: ThresholdChoice, label: str, other: str | None) -> str:
    """A line about the threshold of a label.

    Args:
        other: Of two classes, the other class.
    """
    is_rare = choice.num_positives <= choice.num_negatives
    num_rare = min(choice.num_positives, choice.num_negatives)
    share = num_rare / max(choice.num_positives + choice.num_negatives, 1)
    metric = "F1"
    best = choice.best_threshold
    rare_rows = f"rows of {label!r}"
    if other is not None:
        metric = "macro F1"
    if other is not None and not is_rare:
        # Of two classes, the line is about the rarer one.
        label = other
        best = 1 - best
        rare_rows = f"rows of {label!r}"
    elif not is_rare:
        rare_rows = f"rows without {label!r}"
    rare_rows = printable(rare_rows)
    label = printable(repr(label))
    if choice.best_f1 <= choice.f1_at_half:
        return f"{label} is predicted from a probability of 0.5 on, the best on the validation rows"
    if choice.is_kept:
        return (
            f"{label} is predicted from a probability of {best:.3f} on ({metric} of the validation"
            f" rows {choice.best_f1:.3f}, with 0.5 {choice.f1_at_half:.3f});"
            f" this assumes a share of {share:.1%} {rare_rows}, as in the validation rows"
        )
    return (
        f"{label} is predicted from a probability of 0.5 on: {best:.3f} is better"
        f" in only {choice.share_better:.0%} of {NUM_RESAMPLINGS:,} resamplings of the validation"
        f" rows, less than {MIN_SHARE_BETTER:.0%}; this needs some {choice.num_rare_needed:,}"
        f" {rare_rows} in the validation rows, which have {num_rare:,}"
    )


def describe_choices(choices: Sequence[ThresholdChoice], labels: Sequence[str]) -> list[str]:
    """A line for each label (for two classes, of which one is chosen, one line)."""
    if len(choices) < len(labels):
        return [describe_choice(choices[0], labels[1], labels[0])]
    lines = []
    for choice, label in list(zip(choices, labels))[:MAX_PRINTED_LABELS]:
        lines.append(describe_choice(choice, label, None))
    if len(labels) > MAX_PRINTED_LABELS:
        num_kept = sum(choice.is_kept for choice in choices)
        lines.append(f"thresholds other than 0.5: {num_kept:,} of {len(labels):,} labels")
    return lines


# --- in the model ---


def shift_bias(model: PreTrainedModel, thresholds: Sequence[float]) -> None:
    """Shift the bias of a classifier so that it decides by `thresholds` where one takes the class
    with the highest logit, or the labels with a probability above ½.

    `config.threshold_shift` says what was taken from each logit; added again, the logits are those
    of the training. A head without a bias gets one.

    Args:
        thresholds: One for each label; of two classes, that of the second one counts.
    """
    shift = to_log_odds(thresholds)
    if model.config.problem_type == "single_label_classification":
        shift[0] = 0.0
    _subtract_from_bias(model, shift)
    earlier_shift = model.config.threshold_shift or np.zeros(len(shift))
    model.config.threshold_shift = [float(value) for value in shift + earlier_shift]
    model.config.thresholds = None


def undo_shift(model: PreTrainedModel) -> None:
    """Give a classifier the logits that it had before `shift_bias`."""
    shift = getattr(model.config, "threshold_shift", None)
    if shift:
        _subtract_from_bias(model, -np.asarray(shift))
        model.config.threshold_shift = None


def _subtract_from_bias(model: PreTrainedModel, shift: np.ndarray) -> None:
    """Subtract a number for each label from the bias of the head, which gets one if it has none."""
    classifier = model.classifier
    if classifier.bias is None:
        classifier.bias = nn.Parameter(classifier.weight.new_zeros(len(shift)))
        model.config.classifier_bias = True
    with torch.no_grad():
        classifier.bias -= torch.as_tensor(shift).to(classifier.bias)
