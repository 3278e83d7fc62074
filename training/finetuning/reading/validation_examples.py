"""Which training examples are held out to validate on, where no validation examples are given: each
class in proportion."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import datasets
import numpy as np

from ...data.validation_documents import text_digests

if TYPE_CHECKING:
    from ..tasks.base import Task

# A class of so many examples is validated on, however small the share.
MIN_EXAMPLES_OF_CLASS = 5


def hold_out(
    examples: datasets.Dataset, validation_size: float, seed: int, task: Task
) -> tuple[datasets.Dataset, datasets.Dataset]:
    """Split the examples into those to train on and those to validate on. Examples whose texts are
    copies of each other stay together."""
    target = validation_size
    if validation_size < 1:
        target = validation_size * len(examples)
    target = round(target)
    columns = [examples[column] for column in task.find_text_columns(examples)[task.group_columns]]
    keys = [json.dumps(texts, default=str) for texts in zip(*columns)]
    groups: dict[str, Counter] = defaultdict(Counter)
    for key, classes in zip(keys, task.classes_by_example(examples)):
        groups[key].update([None, *classes])
    order = np.argsort(text_digests(groups, seed))
    is_held_out = stratify(list(groups.values()), max(1, target), order)
    if validation_size <= 0 or target >= len(examples) or not is_held_out.any():
        raise ValueError(
            f"validation_size: {validation_size} of {len(examples)} rows ({len(groups)} different"
            " ones) cannot be held out with all labels left to train on;"
            " give eval_dataset (--validation)"
        )
    is_group_held_out = dict(zip(groups, is_held_out))
    is_validation = np.array([is_group_held_out[key] for key in keys])
    train = examples.select(np.flatnonzero(~is_validation))
    validation = examples.select(np.flatnonzero(is_validation))
    return train, validation


def stratify(groups: Sequence[Counter], target: int, order: Iterable[int]) -> np.ndarray:
    """Hold out about `target` examples with each class in proportion, the rarest class first
    (iterative stratification, Sechidis et al. 2011). No class loses its last group, and of a class
    of `MIN_EXAMPLES_OF_CLASS` examples or more at least one is held out.

    Args:
        groups: Examples that stay together: for each group, how many it has of each class, and
            under None how many in all.
        order: The numbers of all groups in the order in which they are drawn.

    Returns:
        Which groups are held out: bool [groups].
    """
    class_sizes: Counter = Counter()
    groups_left: Counter = Counter()  # by class
    num_held_out: Counter = Counter()  # examples by class
    for group in groups:
        class_sizes.update(group)
        groups_left.update(group.keys())
    share = target / class_sizes[None]
    targets = _targets_of_classes(class_sizes, target)
    is_held_out = np.zeros(len(groups), dtype=bool)

    def draw(index: int, class_name: str | None, max_share: float) -> None:
        """Hold out a group for a class, unless the class has enough or another one would have too
        many."""
        if is_held_out[index] or num_held_out[class_name] >= targets[class_name]:
            return
        for other in groups[index]:
            is_last_group = groups_left[other] <= 1
            if is_last_group or num_held_out[other] > max_share * class_sizes[other]:
                return
        is_held_out[index] = True
        num_held_out.update(groups[index])
        groups_left.subtract(groups[index].keys())

    order = list(order)
    rarest_classes = {}
    for index in order:
        class_names = groups[index].keys() - {None}
        if class_names:
            rarest_classes[index] = min(class_names, key=lambda name: (class_sizes[name], name))

    def rarity(index: int) -> tuple[int, str]:
        class_name = rarest_classes[index]
        return class_sizes[class_name], class_name

    for index in sorted(rarest_classes, key=rarity):
        draw(index, rarest_classes[index], max_share=1)
    for index in order:  # examples without a class, and more of classes with few examples each
        draw(index, None, max_share=share)
    return is_held_out


def _targets_of_classes(class_sizes: Counter, target: int) -> dict[str | None, int]:
    """How many examples of each class should be held out; None: of all classes together."""
    share = target / class_sizes[None]
    targets: dict[str | None, int] = {None: target}
    for name, size in class_sizes.items():
        if name is None:
            continue
        targets[name] = int(share * size)
        if size >= MIN_EXAMPLES_OF_CLASS:
            targets[name] = max(targets[name], 1)
    return targets
