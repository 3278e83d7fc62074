"""Tell whether a premise entails a hypothesis (inference): a classifier of pairs, whose labels
Transformers' zero-shot classification understands."""

import re
from collections.abc import Sequence

import datasets
import numpy as np
from transformers import PreTrainedConfig

from ...common.printable import printable
from .classification import Classify
from .label_names import saved_labels
from .predictions import Labels

# Names of the labels of inference in other data sets, such as supports, refutes, not enough info.
ENTAILMENT_NAME = re.compile(r"supports?|supported|supporting|implie[sd]|follows|yes|true")
CONTRADICTION_NAME = re.compile(
    r"contradict|refut|denie[sd]|unsupported|not?$|false$|not[ _-]?(support|true)"
)
# How SNLI marks pairs that its annotators did not agree on; in numbers it is -1.
NO_GOLD_LABELS = ("-", "-1")


class Nli(Classify):  # (its docstring, which has the help of the options, is that of `Classify`)
    name = "nli"
    pairs_only = True
    # Zero-shot classification reads the probabilities of a model as they were trained.
    thresholds_go_into_bias = False
    no_gold = NO_GOLD_LABELS[:1]

    def __post_init__(self):
        super().__post_init__()
        if self.regression:
            raise ValueError("regression: inference has classes; use `classify` for values")

    def read(
        self, splits: datasets.DatasetDict, config: PreTrainedConfig | None = None
    ) -> datasets.DatasetDict:
        """As `Classify.read`, without the pairs that have no gold label. A ValueError for labels
        without names, since nobody could tell entailment from contradiction."""
        splits = datasets.DatasetDict(splits)
        column = self.find_label_column(next(iter(splits.values())))
        for name, split in splits.items():
            if column not in split.column_names:
                continue
            has_gold = [str(value) not in NO_GOLD_LABELS for value in split[column]]
            num_left_out = has_gold.count(False)
            if num_left_out:
                print(f"{name}: {num_left_out:,} pairs without a gold label are left out")
                splits[name] = split.select(np.flatnonzero(has_gold))
        labelled_splits = super().read(splits, config)
        label_names = self.label_names
        if all(label.lstrip("-").isdigit() for label in label_names):
            raise ValueError(
                f"labels: {self.learned.label_column!r} has no names for its labels; give them in"
                " the order of their numbers, as --labels entailment neutral contradiction"
            )
        if "train" in splits and not _name_entailment(label_names):
            print(
                "labels: none begins with 'entail', so that zero-shot classification takes the last"
                f" one, {printable(label_names[-1])!r}, for entailment, and the first,"
                f" {printable(label_names[0])!r}, for contradiction;"
                " if that is wrong, give them in another order by --labels"
            )
        return labelled_splits

    def _label_names(
        self,
        problem_type: str,
        splits: datasets.DatasetDict,
        labels: Labels,
        config: PreTrainedConfig | None,
    ) -> list[str]:
        """In the order that Transformers' zero-shot classification expects where no name begins
        with "entail": what contradicts comes first, and what entails last."""
        names = super()._label_names(problem_type, splits, labels, config)
        if saved_labels(config) or self.labels or _name_entailment(names):
            return names
        return sorted(names, key=_entailment_rank)


def _name_entailment(labels: Sequence[str]) -> bool:
    """Whether `ZeroShotClassificationPipeline` finds the label of entailment by its name."""
    return any(label.lower().startswith("entail") for label in labels)


def _entailment_rank(label: str) -> int:
    """0 for a name that contradicts, 2 for one that entails, 1 for others."""
    if CONTRADICTION_NAME.match(label.lower()):
        return 0
    if ENTAILMENT_NAME.fullmatch(label.lower()):
        return 2
    return 1
