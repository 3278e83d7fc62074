"""Whether a premise entails a hypothesis: a pair with named labels."""

from __future__ import annotations

from typing import Any

import datasets

from ..data import FILE
from .base import NO_LABEL
from .classification import SINGLE, Classify

NO_GOLD = ("-", "-1", -1)  # how SNLI marks pairs that its annotators did not agree on


class Nli(Classify):
    """A classifier of pairs whose labels have names, since `zero-shot` looks for the one of entailment."""

    name = "nli"
    pairs_only = True

    def read(self, splits, config=None) -> datasets.DatasetDict:
        column = self.find_labels(next(iter(splits.values())))
        with_gold = {name: _with_gold(name, split, column) for name, split in splits.items()}
        splits = super().read(datasets.DatasetDict(with_gold), config)
        if self.problem_type != SINGLE or all(label.lstrip("-").isdigit() for label in self.labels):
            raise ValueError(
                f"labels: {self.label_column!r} has no names for its labels; give them in the order of their "
                "numbers, as --labels entailment neutral contradiction"
            )
        return splits

    def no_labels(self, split) -> list[Any]:
        return [*NO_LABEL, *NO_GOLD]


def _with_gold(name: str, split: datasets.Dataset, column: str) -> datasets.Dataset:
    values = split[column] if column in split.column_names else []  # `read` refuses the latter
    without = {i for i, value in enumerate(values) if value in NO_GOLD}
    if without:
        print(f"{name}: {len(without):,} pairs without a gold label are left out")
        if len(without) == len(split):
            raise ValueError(f"label_column: no pair of {split[0][FILE]!r} ({name}) has a gold label")
        split = split.select([i for i in range(len(split)) if i not in without])
    return split
