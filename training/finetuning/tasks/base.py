"""What a task says about itself; `finetuning.run` does the rest. It reads the rows, which tells it the labels, and then
gives the fields of the config, model inputs, metrics, a picture and a few lines of output."""

from __future__ import annotations

import abc
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import datasets
import torch
from datasets.fingerprint import Hasher
from transformers import DataCollatorWithPadding, EvalPrediction, PreTrainedConfig, PreTrainedTokenizerBase

from ....modeling_minibert import MiniBertPreTrainedModel
from ...arguments.finetuning import TaskArguments
from ..data import FILE, check_columns, check_texts, find_column, with_column

# What stands for a label that is not there: benchmarks publish their test rows so.
NO_LABEL = (None, "", -1, "-1")
Labels = dict[str, list[Any]]  # those of the rows of each split
Pairs = Iterator[tuple[str, str]]  # a text, and what is said of it
LABEL = "_label"  # the column that `read` adds: what is to be predicted, as metrics take it


class Task(abc.ABC):
    """One kind of fine-tuning.

    Args:
        arguments: the task's own dataclass.
        tokenizer: its `model_max_length` is the longest input: `truncation=True` is all that a task need say.
    """

    name: ClassVar[str]
    model_class: ClassVar[type[MiniBertPreTrainedModel]]
    collator_class: ClassVar[type] = DataCollatorWithPadding
    metric_for_best_model: str  # a key of what `compute_metrics` returns; may be known only after `read`
    shortest_input: int = 16  # tokens: what `--plan` proposes at least

    # The arguments that name the columns of texts and labels, and the names that the column of labels is guessed by.
    text_arguments: ClassVar[str] = "text_column"
    label_argument: ClassVar[str] = "label_column"
    label_columns: ClassVar[Sequence[str]]
    no_gold: ClassVar[Sequence[Any]] = ()  # labels that say that there is none, in training too

    text_columns: list[str]  # since `read`
    label_column: str
    label_feature: Any = None  # the type of `LABEL`
    labels: Sequence[str] = ()  # their names by id, where they have any

    def __init__(self, arguments: TaskArguments, tokenizer: PreTrainedTokenizerBase):
        self.arguments = arguments
        self.tokenizer = tokenizer

    def read(self, splits: datasets.DatasetDict, config: PreTrainedConfig | None = None) -> datasets.DatasetDict:
        """Find the columns, check every row, learn the labels; the rows that are trained and evaluated on.

        Args:
            splits: from `data.load_splits`, as far as there are any.
            config: of a model trained for this task already: its labels are the only ones, in its order. None: the
                labels are those of splits["train"].

        Raises:
            ValueError: a column that is missing or not clear; a bad row (`BadRow`).
        """
        first = next(iter(splits.values()))
        self.label_column, self.text_columns = self.find_labels(first), self.find_texts(first)
        for split in splits.values():
            check_columns(split, [self.label_column], self.label_argument)
            self.check_inputs(split)
        labels = {name: self.read_labels(split) for name, split in splits.items()}
        labels = self.learn_labels(splits, labels, config)
        return datasets.DatasetDict({name: self.with_labels(split, labels[name]) for name, split in splits.items()})

    def read_unlabelled(self, split: datasets.Dataset) -> datasets.Dataset:
        """Check rows that have no labels, once `read` was called: as that returns them, with labels that mean nothing
        (an encoded row has some)."""
        self.check_inputs(split)
        return self.with_labels(split, [self.blank_label(row) for row in split])

    # --- columns and rows ---

    def find_labels(self, split: datasets.Dataset) -> str:
        """The column of the labels, named by the user or guessed; a ValueError where it is not clear."""
        given = getattr(self.arguments, self.label_argument)
        return find_column(split, given, self.label_columns, self.label_argument, "the label")

    @abc.abstractmethod
    def find_texts(self, split: datasets.Dataset) -> list[str]:
        """The columns that the model's inputs are made of."""

    def group_columns(self, split: datasets.Dataset) -> list[str]:
        """The columns that make rows copies of each other: rows with the same values there are held out together."""
        return self.find_texts(split)

    def check_inputs(self, split: datasets.Dataset) -> None:
        """Refuse a split that lacks one of the texts, or has a row without it."""
        check_columns(split, self.text_columns, self.text_arguments)
        check_texts(split, self.text_columns)

    @abc.abstractmethod
    def read_labels(self, split: datasets.Dataset) -> list[Any]:
        """The labels of all rows in one form, each checked by itself."""

    def learn_labels(self, splits: datasets.DatasetDict, labels: Labels, config: PreTrainedConfig | None) -> Labels:
        """Learn from what `read_labels` returned for each split what labels there are; the labels for `with_labels`."""
        return labels

    def with_labels(self, split: datasets.Dataset, labels: list[Any]) -> datasets.Dataset:
        """`split` with the column `LABEL`, and others that `encode` needs."""
        return with_column(split, LABEL, labels, self.label_feature)

    def blank_label(self, row: dict[str, Any]) -> Any:
        """A label that means nothing, for `with_labels`."""
        return 0

    def classes(self, split: datasets.Dataset) -> list[set[str]]:
        """The labels of each row that cannot be read where training has none of them, as far as there are such."""
        return [set() for _ in range(len(split))]

    # --- the model's inputs and outputs ---

    def config_fields(self) -> dict[str, Any]:
        """Fields of the model's config that follow from the data: `id2label`, `label2id`, `problem_type`."""
        id2label = dict(enumerate(self.labels))
        return {"id2label": id2label, "label2id": {label: i for i, label in id2label.items()}} if id2label else {}

    @abc.abstractmethod
    def encode(self, split: datasets.Dataset, training: bool) -> datasets.Dataset:
        """Model inputs of a split that `read` returned, with labels; through `map_rows`."""

    def preprocess_logits(self, logits: Any, inputs: Mapping[str, torch.Tensor]) -> Any:
        """What evaluation keeps of the logits of a collated batch: the number of the best class, [batch]."""
        return logits.argmax(-1)

    # Below, `prediction` is what evaluation kept of `examples`, a split that `read` returned.

    def decode(self, prediction: EvalPrediction, examples: datasets.Dataset) -> Sequence[Any]:
        """What is predicted for each example, in the form of `LABEL`."""
        return prediction.predictions

    @abc.abstractmethod
    def score(self, predictions: Sequence[Any], references: Sequence[Any]) -> dict[str, float]:
        """Metrics of what `decode` returned against the column `LABEL`."""

    def compute_metrics(self, prediction: EvalPrediction, examples: datasets.Dataset) -> dict[str, float]:
        """Metrics of a whole split."""
        return self.score(self.decode(prediction, examples), examples[LABEL][:])

    def metric_names(self, examples: datasets.Dataset) -> list[str]:
        """The keys of what `compute_metrics` returns for these examples."""
        return list(self.score(examples[LABEL][:], examples[LABEL][:]))

    def predicted(self, prediction: EvalPrediction, examples: datasets.Dataset) -> list[Any]:
        """What is predicted for each example, as a person reads it: names of labels, a value, a text."""
        return [self.readable(label) for label in self.decode(prediction, examples)]

    def readable(self, label: Any) -> Any:
        return label

    @abc.abstractmethod
    def draw(self, prediction: EvalPrediction, examples: datasets.Dataset, path: Path) -> None:
        """Draw what was predicted against what is true: a confusion matrix, a table per type, … as PNG."""

    def show(self, folder: Path, prediction: EvalPrediction, examples: datasets.Dataset) -> list[str]:
        """Lines that show what the model saved in `folder` says of a few examples."""
        pairs = islice(self.demonstrate(folder, prediction, examples), 3)
        return [line for given, said in pairs for line in (f"  {given}", f"    {said}")]

    @abc.abstractmethod
    def demonstrate(self, folder: Path, prediction: EvalPrediction, examples: datasets.Dataset) -> Pairs:
        """For each example its text and what the model says of it: through the pipeline that Transformers has for the
        task, or else in `prediction`."""


def take_unlabelled(task: Task, splits: datasets.DatasetDict) -> datasets.Dataset | None:
    """The test split, taken out of `splits` and said so, if it has no labels: no such column, or no label in any row.
    It can be predicted, but not scored."""
    first, test = next(iter(splits.values())), splits.get("test")
    if test is None or test is first:
        return None
    column = task.find_labels(first)
    known = first[column][:]
    missing = [*task.no_gold, *(value for value in NO_LABEL if value not in known)]

    def is_missing(label):
        return label != [] and all(map(is_missing, label)) if isinstance(label, list) else label in missing

    if column in test.column_names and not all(map(is_missing, test[column])):
        return None
    print(f"test: no row of {test[0][FILE]!r} has a label ({column}); they are predicted, not scored")
    return splits.pop("test")


def map_rows(
    split: datasets.Dataset,
    columns: Sequence[str],
    function: Callable[..., dict[str, list]],
    tokenizer: PreTrainedTokenizerBase,
    **options,
) -> datasets.Dataset:
    """The rows that `function` makes of some columns, in batches; cached by `datasets`.

    Args:
        columns: all that it needs: others must not make it run again.
        function: of a module (no method, no closure), called as `function(tokenizer, *columns, **options)` with lists
            of values. It may return more or fewer rows than it was given.
        options: plain values, which name the cache as well.
    """
    # The state that a tokenizer is left in by its last call must not change the name of the cache.
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    # `datasets` knows an imported function by its name only: rows made by an older version would be served.
    revision = Hasher.hash(inspect.getsource(inspect.getmodule(function)))
    return split.select_columns(columns).map(
        _call,
        batched=True,
        remove_columns=columns,
        input_columns=columns,
        fn_kwargs={"function": function, "revision": revision, "tokenizer": tokenizer, "options": options},
        desc="Tokenizing",
    )


def _call(*columns, function, revision, tokenizer, options):
    return function(tokenizer, *columns, **options)


def shortened(text: str) -> str:
    """A text as it is shown among others: on one line that is not too long."""
    return textwrap.shorten(text, 200, placeholder=" …")


def saved_labels(config: PreTrainedConfig | None) -> list[str] | None:
    """The label names of a saved model in the order of their ids; None where they were never named (LABEL_0, …)."""
    labels = [config.id2label[i] for i in sorted(config.id2label)] if config else []
    return None if all(label == f"LABEL_{i}" for i, label in enumerate(labels)) else labels
