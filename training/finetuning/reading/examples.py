"""The examples of a fine-tuning: read, checked, and in the form that the task wants.

A training, an evaluation and a plan call `read_and_learn`, after `check_before_reading`.
"""

import copy
from collections.abc import Mapping, Sequence
from contextlib import suppress

from datasets import Dataset, DatasetDict

from ..config import FinetuningConfig
from ..start_model import StartModel, fit_tokenizer
from ..tasks.base import Task
from .columns import FILE
from .splits import VALIDATION_SIZE, FilesOrRows, load_splits

# How benchmarks write the labels of test examples that they keep to themselves.
MISSING_LABELS = {"None", "", "-1", "-1.0"}


def read_and_learn(
    task: Task,
    start: StartModel,
    args: FinetuningConfig,
    sources: Mapping[str, FilesOrRows],
    columns: Sequence[str] | None,
    validation_size: float | None,
    do_train: bool,
) -> DatasetDict:
    """Load the splits, hold out validation examples if there are none, check all examples and learn
    the labels. The task and its tokenizer are then ready to encode them.

    Args:
        sources: Where the splits are from: "data", "train", "validation" and "test".
        columns: Names of the columns of csv files without a header row.
        validation_size: The training examples to hold out: a share below 1, or a number; by default
            `VALIDATION_SIZE`.
        do_train: Whether the model is trained. For one that is measured only, nothing is held out,
            and "train" is for the baseline.
    """
    # A size that the user chose would do nothing beside validation rows.
    allow_validation = validation_size is None
    if validation_size is None:
        validation_size = VALIDATION_SIZE
    fit_tokenizer(task.tokenizer, start.config, task.max_length)
    splits = load_splits(
        task,
        **sources,
        columns=columns,
        validation_size=validation_size if do_train else None,
        allow_validation=allow_validation,
        seed=args.seed,
    )
    drop_unlabelled_test(task, splits)
    return learn_from_splits(task, splits, start, do_train)


def drop_unlabelled_test(task: Task, splits: DatasetDict) -> None:
    """Remove the test split, and say so, if none of its examples has a label."""
    first = next(iter(splits.values()))
    test = splits.get("test")
    if test is None or test is first:
        return
    column = task.find_label_column(first)
    test_labels = _labels_as_text(test, column)
    # What other examples have as a label, such as -1, is one.
    missing_labels = {*MISSING_LABELS, *task.no_gold} - _labels_as_text(first, column)
    if test_labels and test_labels <= missing_labels:
        print(f"test: no row of {test[0][FILE]!r} has a label ({column}); they are left out")
        del splits["test"]


def _labels_as_text(split: Dataset, column: str) -> set[str]:
    """The different labels of a column, of lists their items; "None" for a column that is
    missing."""
    if column not in split.column_names:
        return {"None"}
    labels = set()
    for cell in split[column]:
        items = cell if isinstance(cell, list) else [cell]
        labels.update(map(str, items))
    return labels


def learn_from_splits(
    task: Task, splits: DatasetDict, start: StartModel, do_train: bool
) -> DatasetDict:
    """Check all examples, and learn the labels, from the training examples or from a model that was
    trained for the task before: the splits as `Task.read` returns them. Of a model that is measured
    only, the training examples are for the baseline; they are left out if they do not fit the
    model."""
    if do_train and "train" not in splits:
        raise ValueError(
            "train: there is no training split; give train_dataset (--train FILE), or a folder"
            " that has one"
        )
    baseline_examples = None if do_train else splits.pop("train", None)
    if not splits:
        raise ValueError(
            "data: no validation or test split is given; give test_dataset (--test FILE), or a"
            " folder that has one"
        )
    config = start.config
    splits = task.read(splits, config if start.has_trained_head else None)
    has_head = start.has_trained_head or start.is_loaded
    if has_head and task.label_names and len(task.label_names) != config.num_labels:
        model_labels = ", ".join(map(str, config.id2label.values()))
        row_labels = ", ".join(map(str, task.label_names))
        raise ValueError(
            f"model: {start.name!r} was fine-tuned for {config.num_labels} labels"
            f" ({model_labels}),"
            f" not for {len(task.label_names)} ({row_labels}); give all of them in its order,"
            " or start from another model"
        )
    if baseline_examples is not None:
        with suppress(ValueError):
            baseline_splits = copy.copy(task).read(DatasetDict(train=baseline_examples), config)
            splits["train"] = baseline_splits["train"]
    return splits
