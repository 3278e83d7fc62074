"""Classes of unequal size: weights of the loss."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from ..common.printable import printable

# Labels that an error lists.
MAX_LISTED_LABELS = 20


def class_weights(
    option: str | Sequence[str | float],
    labels: Sequence[str],
    counts: Counter[str],
    num_examples: int | None = None,
) -> list[float]:
    """The weights of `labels` in the loss; a ValueError for others than numbers above 0, one for
    each.

    Args:
        option: "balanced" (n / (classes · count), as scikit-learn has it), numbers in the order of
            the labels, or texts "label=number", where other labels have the weight 1.
        counts: how often each label occurs in training.
        num_examples: of several labels, the number of examples: there, the weight is that of a
            label's positives, and balanced is the number of negatives for each positive.
    """
    words = [option] if isinstance(option, str) else list(map(str, option))
    if words == ["balanced"]:
        return balanced_weights(labels, counts, num_examples)
    listed_labels = ", ".join(labels[:MAX_LISTED_LABELS])
    if len(labels) > MAX_LISTED_LABELS:
        listed_labels += " …"
    numbers = words
    if "=" in "".join(words):
        number_of: dict[str, str | float] = dict.fromkeys(labels, 1.0)
        for word in words:
            label, _, number = word.rpartition("=")
            if label not in number_of:
                raise ValueError(
                    f"class_weights: {label!r} is not a label; the labels are {listed_labels}"
                )
            number_of[label] = number
        numbers = list(number_of.values())
    weights = []
    with suppress(ValueError):
        weights = [float(number) for number in numbers]
    if len(weights) == len(labels) and all(0 < weight < np.inf for weight in weights):
        return weights
    raise ValueError(
        f"class_weights: {' '.join(words)}; use balanced, a number above 0 for each of"
        f" {len(labels)} labels ({listed_labels}), or label=number"
    )


def balanced_weights(
    labels: Sequence[str], counts: Counter[str], num_examples: int | None
) -> list[float]:
    """The weights with which all classes count alike; see `class_weights`."""
    weights = []
    if num_examples is not None:
        for label in labels:
            num_negatives = max(num_examples - counts[label], 1)
            weights.append(num_negatives / max(counts[label], 1))
        return weights
    num_classes = int(np.count_nonzero(list(counts.values())))
    for label in labels:
        if counts[label]:
            weights.append(counts.total() / (num_classes * counts[label]))
        else:
            weights.append(1.0)
    return weights


def describe_weights(labels: Sequence[str], weights: Sequence[float]) -> str:
    """Which label has which weight."""
    parts = []
    for label, weight in zip(labels[:MAX_LISTED_LABELS], weights):
        parts.append(f"{printable(label)} {weight:.4g}")
    if len(labels) > MAX_LISTED_LABELS:
        parts.append("…")
    return f"class_weights: {', '.join(parts)}"


def weighted_loss(weights: Sequence[float]) -> Callable[..., torch.Tensor]:
    """`compute_loss_func` of a `Trainer`: torch's weighted cross-entropy, Σ wᵢ · lossᵢ / Σ wᵢ, or,
    where the labels are 0 and 1 for each of several, binary cross-entropy with these weights of the
    positives.

    `num_items_in_batch` is what to divide by: of classes, see `sum_of_weights`."""

    def loss(
        outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor | None = None
    ) -> torch.Tensor:
        logits = outputs.logits
        if logits.dtype != torch.float64:
            logits = logits.float()
        labels = labels.to(logits.device)
        weight = logits.new_tensor(weights)
        if labels.is_floating_point():
            total = F.binary_cross_entropy_with_logits(
                logits, labels.to(logits), pos_weight=weight, reduction="sum"
            )
            divisor = labels.numel()
        else:
            flat_logits = logits.flatten(0, -2)
            total = F.cross_entropy(flat_logits, labels.flatten(), weight, reduction="sum")
            divisor = sum_of_weights(weights, labels)
        if num_items_in_batch is not None:
            divisor = num_items_in_batch.to(total)
        return total / divisor

    return loss


def sum_of_weights(weights: Sequence[float], labels: torch.Tensor) -> torch.Tensor:
    """Σ wᵢ over the labels that are not ignored."""
    # Apple's GPUs have no float64
    dtype = torch.float32 if labels.device.type == "mps" else torch.float64
    weight_of = torch.tensor(weights, dtype=dtype, device=labels.device)
    return weight_of[labels[labels >= 0]].sum()
