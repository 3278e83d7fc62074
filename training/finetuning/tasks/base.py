"""What every task that is trained under `Trainer` says about itself; `command.finetune` and `command.evaluate` do the
rest.

A task is made, reads the data, and is then asked for model inputs, metrics, a picture and a few lines of output:

    task = task_class(arguments, tokenizer)
    splits = task.read(splits, config)          # checks every row; after this the labels are known
    model = task.model_class(config with task.config_fields())
    Trainer(model, train_dataset=task.encode(splits["train"], training=True), data_collator=task.collator(),
            compute_metrics=task.compute_metrics, …)          # of what `task.preprocess_logits` keeps
"""

from __future__ import annotations

import abc
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import datasets
import torch
from datasets.fingerprint import Hasher
from transformers import EvalPrediction, PreTrainedConfig, PreTrainedTokenizerBase

from ....modeling_minibert import MiniBertPreTrainedModel
from ...arguments.finetuning import TaskArguments
from ..data import FILE

# What stands for a label that is not there: benchmarks publish their test rows so.
NO_LABEL = (None, "", -1, "-1")


class Task(abc.ABC):
    """One kind of fine-tuning.

    Args:
        arguments: the task's own dataclass.
        tokenizer: its `model_max_length` is the longest input: `truncation=True` is all that a task need say.
    """

    name: ClassVar[str]
    model_class: ClassVar[type[MiniBertPreTrainedModel]]
    metric_for_best_model: str  # a key of what `compute_metrics` returns; may be settled in `read`
    greater_is_better: bool = True
    shortest_input: int = 16  # tokens: what `--plan` proposes at least

    def __init__(self, arguments: TaskArguments, tokenizer: PreTrainedTokenizerBase):
        self.arguments = arguments
        self.tokenizer = tokenizer

    @abc.abstractmethod
    def read(self, splits: datasets.DatasetDict, config: PreTrainedConfig | None = None) -> datasets.DatasetDict:
        """Find the columns, check every row, learn the labels; the rows that are trained and evaluated on.

        Args:
            splits: from `data.load_splits`: "train", "validation", "test", as far as there are any; `data.where(row)`
                names file and row.
            config: of a model trained for this task already: its labels are the legal ones, in its order. None: the
                labels are those of splits["train"].

        Raises:
            ValueError: a column that is missing or not clear; a bad row, naming file and row.
        """

    @abc.abstractmethod
    def find_labels(self, split: datasets.Dataset) -> str:
        """The column of the labels, named by the user or guessed; a ValueError where it is not clear."""

    @abc.abstractmethod
    def group_columns(self, split: datasets.Dataset) -> list[str]:
        """The columns that make rows copies of each other: rows with the same values there are held out together."""

    def classes(self, split: datasets.Dataset) -> list[set[str]]:
        """The labels of each row that cannot be read where training has none of them, as far as there are such."""
        return [set() for _ in range(len(split))]

    def no_labels(self, split: datasets.Dataset) -> list[Any]:
        """Values of that column that are no labels: those of `NO_LABEL` that do not occur in `split`."""
        values = split[self.find_labels(split)][:]
        return [value for value in NO_LABEL if value not in values]

    @abc.abstractmethod
    def read_unlabelled(self, split: datasets.Dataset) -> datasets.Dataset:
        """Check rows that have no labels, once `read` was called: as `read` returns them, with labels that mean
        nothing (an encoded row has some)."""

    @abc.abstractmethod
    def config_fields(self) -> dict[str, Any]:
        """Fields of the model's config that follow from the data: `id2label`, `label2id`, `problem_type`."""

    @abc.abstractmethod
    def encode(self, split: datasets.Dataset, training: bool) -> datasets.Dataset:
        """Model inputs of a split that `read` returned, with labels; through `map_rows`."""

    @abc.abstractmethod
    def collator(self) -> Callable[[list[dict[str, Any]]], dict[str, torch.Tensor]]:
        """Makes a batch of encoded rows."""

    @abc.abstractmethod
    def preprocess_logits(self, logits: Any, inputs: Mapping[str, torch.Tensor]) -> Any:
        """What evaluation keeps of a batch's logits: little.

        Args:
            inputs: the batch, as `collator` made it.
        """

    @abc.abstractmethod
    def compute_metrics(self, prediction: EvalPrediction, examples: datasets.Dataset) -> dict[str, float]:
        """Metrics of a whole split.

        Args:
            prediction: `predictions`: what `preprocess_logits` kept; `label_ids`: the labels.
            examples: the split that was encoded, as `read` returned it.
        """

    @abc.abstractmethod
    def metric_names(self, examples: datasets.Dataset) -> list[str]:
        """The keys of what `compute_metrics` returns for these examples."""

    @abc.abstractmethod
    def predicted(self, prediction: EvalPrediction, examples: datasets.Dataset) -> list[Any]:
        """What is predicted for each example, as a person reads it: names of labels, a value, a text."""

    @abc.abstractmethod
    def draw(self, prediction: EvalPrediction, examples: datasets.Dataset, path: Path) -> None:
        """Draw what was predicted against what is true: a confusion matrix, a table per type, … as PNG."""

    @abc.abstractmethod
    def show(self, folder: Path, examples: datasets.Dataset) -> list[str]:
        """Lines that show the model saved in `folder` at work on some of `examples`, through the pipeline that
        Transformers has for it."""


def take_unlabelled(task: Task, splits: datasets.DatasetDict) -> datasets.Dataset | None:
    """The test split, taken out of `splits` and said so, if it has no labels: no such column, or no label in any row.
    It can be predicted, but not scored."""
    first, test = next(iter(splits.values())), splits.get("test")
    if test is None or test is first:
        return None
    column = task.find_labels(first)
    if column in test.column_names:
        missing = task.no_labels(first)
        if not all(_is_missing(value, missing) for value in test[column]):
            return None
    print(f"test: no row of {test[0][FILE]!r} has a label ({column}); they are predicted, not scored")
    return splits.pop("test")


def _is_missing(label: Any, missing: list[Any]) -> bool:
    if isinstance(label, list):
        return bool(label) and all(_is_missing(part, missing) for part in label)
    return label in missing


def map_rows(
    dataset: datasets.Dataset,
    function: Callable[..., dict[str, list]],
    tokenizer: PreTrainedTokenizerBase,
    *,
    desc: str,
    **kwargs,
) -> datasets.Dataset:
    """`dataset.map` in batches, replacing all columns; cached by `datasets`.

    Args:
        function: a function of a module (no method, no closure), called as `function(batch, tokenizer, **kwargs)` with
            a dictionary of columns. It may return more or fewer rows than it was given.
        kwargs: what else it needs: plain values, which name the cache as well.
    """
    # The state that a tokenizer is left in by its last call must not change the name of the cache.
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    return dataset.map(
        _call,
        batched=True,
        remove_columns=dataset.column_names,
        # `datasets` knows an imported function by its name only: rows made by an older version would be served.
        fn_kwargs={
            "function": function,
            "revision": Hasher.hash(inspect.getsource(inspect.getmodule(function))),
            "tokenizer": tokenizer,
            **kwargs,
        },
        desc=desc,
    )


def _call(batch, function, revision, tokenizer, **kwargs):
    # A plain dictionary: a lazy batch would format every column at each look.
    return function(dict(batch), tokenizer, **kwargs)


def shortened(text: str) -> str:
    """A text as it is shown among others: on one line that is not too long."""
    return textwrap.shorten(text, 200, placeholder=" …")


def label_fields(labels: Sequence[str]) -> dict[str, Any]:
    """`id2label` and `label2id` of a config, whose `num_labels` follows from them."""
    return {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}


def saved_labels(config: PreTrainedConfig) -> list[str] | None:
    """The label names of a saved model in the order of their ids; None where they were never named (LABEL_0, …)."""
    labels = [config.id2label[i] for i in sorted(config.id2label)]
    return None if all(label == f"LABEL_{i}" for i, label in enumerate(labels)) else labels


def check_same_labels(known: Sequence[str], seen: Sequence[str], file: str) -> None:
    """Refuse to train a model that has a head for other labels than those of the data.

    Raises:
        ValueError: a label of the data that the model does not know; names both sets.
    """
    if set(seen) - set(known):
        raise ValueError(
            f"model: it was fine-tuned for the labels {', '.join(known)}, and {file!r} has {', '.join(seen)}; start "
            "from a model without such a head"
        )
