"""The names of labels in the order of their ids, and which of them a label means."""

from collections.abc import Sequence
from typing import Any

import datasets
import numpy as np
from transformers import PreTrainedConfig

from ...data.cell_types import to_number
from ..reading.columns import FILE, as_list

# Of more labels, there must be two training examples for each.
MAX_LABELS_OF_FEW_EXAMPLES = 1_000
MAX_LISTED_NAMES = 9


def learn_label_names(
    train: datasets.Dataset,
    training_labels: Sequence[Any],
    column: str,
    model_labels: Sequence[str] | None,
    option_labels: Sequence[str],
) -> list[str]:
    """The names of all labels: those of the model, those of `--labels`, those of the column, or
    else what occurs in training. A ValueError if the labels of training do not fit them.

    Args:
        training_labels: The labels of the training examples, or lists of several.
        column: The name of their column.
        model_labels: The names of a model that was trained before.
        option_labels: Those of `--labels`.
    """
    different_labels = set()
    for label in training_labels:
        different_labels.update(as_list(label))
    names_in_training = sorted_names(different_labels)
    description = f"{train[0][FILE]!r} has {', '.join(names_in_training[:MAX_LISTED_NAMES])}"
    if len(names_in_training) > MAX_LISTED_NAMES:
        description += " …"
    if len(names_in_training) > max(MAX_LABELS_OF_FEW_EXAMPLES, len(train) // 2):
        raise ValueError(
            f"label_column: {len(names_in_training):,} labels are too many to learn"
            f" ({description}); name another column"
        )
    names_of_column = names_of_feature(train.features[column])
    label_names = model_labels or option_labels or names_of_column or names_in_training
    label_ids = {find_label(label_names, label) for label in different_labels}
    if model_labels:
        if None in label_ids:
            raise ValueError(
                f"model: it was fine-tuned for the labels {', '.join(model_labels)}, and"
                f" {description}; start from a model without such a head"
            )
        return label_names
    # (Where a label is none of --labels, `Classify` names its row.)
    if option_labels and None not in label_ids and len(label_ids) < len(label_names):
        absent = []
        for label_id, name in enumerate(label_names):
            if label_id not in label_ids:
                absent.append(repr(name))
        raise ValueError(
            f"labels: no row has the label {', '.join(absent)};"
            f" leave them out, or correct them; {description}"
        )
    # A single label can be learned where some examples lack it.
    if len(label_ids) < 2 and [] not in training_labels:
        raise ValueError(f"{column}: {description} only; there is nothing to learn")
    return label_names


def sorted_names(labels: set[Any]) -> list[str]:
    """The names of labels in their order, which for numbers is that of the numbers."""
    if all(isinstance(label, int) for label in labels):
        return list(map(str, sorted(labels)))
    return sorted(map(str, labels))


def names_of_feature(feature: Any) -> Sequence[str] | None:
    """The names of the classes of a column, or of a column of lists; None where it has none."""
    item_feature = getattr(feature, "feature", feature)
    return getattr(item_feature, "names", None)


def find_label(labels: Sequence[str], label: int | str) -> int | None:
    """The id of a label: by its name; by the one name that is the same number, or the same but for
    its case (files write 1, 1.0 and 01, true and True); by its own number, where no name is one."""
    text = str(label)
    if text in labels:
        return labels.index(text)
    number = to_number(label)
    matching_ids = []
    for label_id, name in enumerate(labels):
        if name.lower() == text.lower() or to_number(name) == number:
            matching_ids.append(label_id)
    if len(matching_ids) == 1:
        return matching_ids[0]
    has_numbers = not np.isnan([to_number(name) for name in labels]).all()
    if number in range(len(labels)) and not has_numbers:
        return int(number)
    return None


def saved_labels(config: PreTrainedConfig | None) -> list[str] | None:
    """The label names of a saved model in the order of their ids; None where they were never named
    (LABEL_0, …)."""
    if config is None:
        return None
    labels = all_label_names(config)
    default_names = [f"LABEL_{label_id}" for label_id in range(len(labels))]
    return None if labels == default_names else labels


def all_label_names(config: PreTrainedConfig) -> list[str]:
    """The label names of a saved model in the order of their ids, also LABEL_0, …"""
    return [config.id2label[label_id] for label_id in sorted(config.id2label)]
