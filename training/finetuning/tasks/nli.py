"""Whether a premise entails a hypothesis: a pair with named labels."""

from __future__ import annotations

from typing import Any

import datasets

from ..data import FILE
from .base import NO_LABEL
from .classification import SINGLE, Classify

NO_GOLD = ["-", "-1", -1]  # how SNLI marks pairs that its annotators did not agree on


class Nli(Classify):
    """A classifier of pairs whose labels have names, since `zero-shot` looks for the one of entailment."""

    name = "nli"
    pairs_only = True

    def read(self, splits, config=None) -> datasets.DatasetDict:
        splits = super().read(splits, config)
        if self.problem_type != SINGLE or all(label.lstrip("-").isdigit() for label in self.labels):
            raise ValueError(
                f"labels: {self.label_column!r} has no names for its labels; give them in the order of their "
                "numbers, as --labels entailment neutral contradiction"
            )
        return splits

    def no_labels(self, split) -> list[Any]:
        return [*NO_LABEL, *NO_GOLD]

    def _drop_unlabelled(self, splits, values) -> datasets.DatasetDict:
        kept = {}
        for name, split in splits.items():
            rows = [i for i, value in enumerate(values[name]) if value not in NO_GOLD]
            if len(rows) < len(split):
                print(f"{name}: {len(split) - len(rows):,} pairs without a gold label are left out")
                if not rows:
                    raise ValueError(f"label_column: no pair of {split[0][FILE]!r} ({name}) has a gold label")
                split, values[name] = split.select(rows), [values[name][i] for i in rows]
            kept[name] = split
        return datasets.DatasetDict(kept)
