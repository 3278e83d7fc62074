"""Rows to validate on, where none are given: drawn from the training rows, each class in
proportion."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import datasets
import numpy as np

from ..data.held_out import text_digests

if TYPE_CHECKING:
    from .tasks.base import Task

MIN_ROWS = 5  # a class of so many rows is validated on, however small the share


def hold_out(
    rows: datasets.Dataset, validation_size: float, seed: int, task: Task
) -> tuple[datasets.Dataset, datasets.Dataset]:
    """Part the rows into those to train on and those to validate on. Rows whose texts are copies of
    each other stay together."""
    target = round(validation_size * len(rows) if validation_size < 1 else validation_size)
    columns = [rows[column] for column in task.find_texts(rows)[task.group_columns]]
    keys = [json.dumps(texts, default=str) for texts in zip(*columns)]
    groups = {key: Counter() for key in keys}
    for key, classes in zip(keys, task.classes(rows)):
        groups[key].update([None, *classes])
    order = np.argsort(text_digests(groups, seed))
    is_held_out = stratify(list(groups.values()), max(1, target), order)
    if validation_size <= 0 or target >= len(rows) or not is_held_out.any():
        raise ValueError(
            f"validation_size: {validation_size} of {len(rows)} rows ({len(groups)} different ones)"
            " cannot be held out with all labels left to train on; give eval_dataset (--validation)"
        )
    held_out_keys = {key for key, is_held in zip(groups, is_held_out) if is_held}
    is_validation = np.array([key in held_out_keys for key in keys])
    train = rows.select(np.flatnonzero(~is_validation))
    return train, rows.select(np.flatnonzero(is_validation))


def stratify(groups: Sequence[Counter], target: int, order: Iterable[int]) -> np.ndarray:
    """Hold out about `target` rows with each class in proportion, the rarest class first (iterative
    stratification, Sechidis et al. 2011). No class loses its last group, and of a class of
    `MIN_ROWS` rows or more at least one is held out.

    Args:
        groups: rows that stay together; of each the number of its rows by class, and of all its
            rows under None.
        order: the numbers of all groups in the order in which they are drawn.

    Returns:
        Which groups are held out: bool [groups].
    """
    rows: Counter = Counter()  # by class
    groups_left: Counter = Counter()
    held_out: Counter = Counter()  # rows
    for group in groups:
        rows.update(group)
        groups_left.update(group.keys())
    share = target / rows[None]
    wanted = {None: target}
    for name, count in rows.items():
        if name is not None:
            wanted[name] = max(int(share * count), int(count >= MIN_ROWS))
    is_held_out = np.zeros(len(groups), dtype=bool)

    def draw(group: int, name: str | None, max_share: float) -> None:
        """Hold out a group for a class, unless it has enough or another class would have too
        many."""
        if is_held_out[group] or held_out[name] >= wanted[name]:
            return
        for other in groups[group]:
            if groups_left[other] <= 1 or held_out[other] > max_share * rows[other]:
                return
        is_held_out[group] = True
        held_out.update(groups[group])
        groups_left.subtract(groups[group].keys())

    order = list(order)
    rarest_class = {}
    for group in order:
        classes = groups[group].keys() - {None}
        if classes:
            rarest_class[group] = min(classes, key=lambda name: (rows[name], name))
    by_rarity = sorted(
        rarest_class, key=lambda group: (rows[rarest_class[group]], rarest_class[group])
    )
    for group in by_rarity:
        draw(group, rarest_class[group], max_share=1)
    for group in order:  # rows without a class, and more of classes with few rows each
        draw(group, None, max_share=share)
    return is_held_out
