"""Classes of unequal size: weights of the loss, and thresholds of the predictions."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F


def class_weights(
    given: str | Sequence[str | float],
    labels: Sequence[str],
    counts: Counter[str],
    rows: int | None = None,
) -> list[float]:
    """The weights of `labels` in the loss; a ValueError for others than numbers above 0, one for each.

    Args:
        given: "balanced" (n / (classes · count), as scikit-learn has it), numbers in the order of the labels, or texts
            "label=number", where other labels have the weight 1.
        counts: how often each label occurs in training.
        rows: of several labels a row, the number of rows: there, the weight is that of a label's positives, and
            balanced is the number of negatives for each positive.
    """
    given = [given] if isinstance(given, str) else list(map(str, given))
    if given == ["balanced"]:
        if rows is not None:
            return [max(rows - counts[label], 1) / max(counts[label], 1) for label in labels]
        total, there = counts.total(), sum(count > 0 for count in counts.values())
        return [total / (there * counts[label]) if counts[label] else 1.0 for label in labels]
    shown = f"{', '.join(labels[:20])}{' …' * (len(labels) > 20)}"
    if any("=" in each for each in given):
        named = {label: number for label, _, number in (each.rpartition("=") for each in given)}
        if unknown := [label for label in named if label not in labels]:
            raise ValueError(
                f"class_weights: {unknown[0]!r} is not a label; the labels are {shown}"
            )
        given = [named.get(label, 1.0) for label in labels]
    try:
        weights = [float(number) for number in given]
        if len(weights) == len(labels) and all(0 < weight < np.inf for weight in weights):
            return weights
    except ValueError:
        pass
    use = f"balanced, a number above 0 for each of {len(labels)} labels ({shown}), or label=number"
    raise ValueError(f"class_weights: {' '.join(map(str, given))}; use {use}")


def weighted_loss(weights: Sequence[float]) -> Callable[..., torch.Tensor]:
    """`compute_loss_func` of a `Trainer`: torch's weighted cross-entropy, Σ wᵢ · lossᵢ / Σ wᵢ, or, where the labels are
    0 and 1 for each of several, binary cross-entropy with these weights of the positives.

    `num_items_in_batch` is what to divide by: of classes, see `sum_of_weights`."""

    def loss(
        outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor | None = None
    ) -> torch.Tensor:
        logits = outputs.logits if outputs.logits.dtype == torch.float64 else outputs.logits.float()
        weight, labels = logits.new_tensor(weights), labels.to(logits.device)
        if labels.is_floating_point():
            options, count = {"pos_weight": weight, "reduction": "sum"}, labels.numel()
            total = F.binary_cross_entropy_with_logits(logits, labels.to(logits), **options)
        else:
            total = F.cross_entropy(
                logits.flatten(0, -2), labels.flatten(), weight, reduction="sum"
            )
            count = sum_of_weights(weights, labels)
        return total / (count if num_items_in_batch is None else num_items_in_batch.to(total))

    return loss


def sum_of_weights(weights: Sequence[float], labels: torch.Tensor) -> torch.Tensor:
    """Σ wᵢ over the labels that are not ignored."""
    return torch.tensor(weights, dtype=torch.float64, device=labels.device)[
        labels[labels >= 0]
    ].sum()


def best_threshold(log_odds: np.ndarray, is_positive: np.ndarray, both: bool) -> float:
    """The probability from which on a row should be called positive: with the best F1 on rows with these `log_odds` of
    it (with `both`, the mean of the F1 of both classes), of several the one nearest to ½; ½ if all rows are alike."""
    rows, positives = len(is_positive), int(is_positive.sum())
    if positives in (0, rows):
        return 0.5
    chance = 1 / (1 + np.exp(-log_odds.astype(np.float64)))
    edges = np.unique([0.0, *chance, 1.0])
    middles = (edges[:-1] + edges[1:]) / 2  # rows with the same probability are called the same
    found, hits = (
        len(x) - np.searchsorted(np.sort(x), middles) for x in (chance, chance[is_positive == 1])
    )
    f1 = 2 * hits / (found + positives)
    if both:
        f1 = f1 + 2 * (rows - positives - found + hits) / (2 * rows - positives - found)
    return float(min(middles[f1 >= f1.max() - 1e-12], key=lambda middle: abs(middle - 0.5)))
