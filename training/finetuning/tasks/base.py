"""What a task says about itself; `finetuning.run` does the rest. It reads the rows, which tells it the labels, and then
gives the fields of the config, model inputs, metrics, a picture and a few lines of output."""

import abc
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import datasets
import numpy as np
import torch
from datasets.fingerprint import Hasher
from transformers import DataCollatorWithPadding, PreTrainedConfig, PreTrainedTokenizerBase

from ....modeling_minibert import MiniBertPreTrainedModel
from ...arguments.finetuning import TaskArguments
from ...data.documents import tokenizer_backend
from ...data.tables import to_number
from ..data import FILE, check_column, check_texts, find_column, with_column

# What stands for a label that is not there: benchmarks publish their test rows so.
NO_LABEL = (None, "", -1, "-1", {"text": [], "answer_start": []})
LABEL = "_label"  # the column that `read` adds: what is to be predicted, as metrics take it
CUT = "cut"  # the column of encoded rows that says whether a text lost its end
Labels = dict[str, list[Any]]  # those of the rows of each split
Pairs = Iterator[tuple[str, str]]  # a text, and what is said of it


class Predictions(NamedTuple):
    """What evaluation kept of a split: its rows as `Task.read` and as `Task.encode` returned them, and of each encoded
    one what `Task.preprocess_logits` returned."""

    examples: datasets.Dataset
    encoded: datasets.Dataset
    kept: np.ndarray


class Task(abc.ABC):
    """One kind of fine-tuning, with its own dataclass of arguments, and a tokenizer whose `model_max_length` is the
    longest input."""

    name: ClassVar[str]
    model_class: ClassVar[type[MiniBertPreTrainedModel]]
    collator_class: ClassVar[type] = DataCollatorWithPadding
    metric_for_best_model: str  # a key of what `score` returns; may be known only after `read`
    shortest_input: int = 16  # tokens: what `--plan` proposes at least

    # The arguments that name columns, with the names that these are guessed by; the last one is that of the label.
    columns: ClassVar[Mapping[str, Sequence[str]]]
    copied: ClassVar[slice] = slice(None)  # of the texts: rows with the same ones there are held out together
    has_classes: ClassVar[bool] = False  # a label can be read only where training has it
    no_gold: ClassVar[Sequence[Any]] = ()  # labels that say that there is none, in training too

    text_columns: list[str]  # since `read`
    label_column: str
    any_label: Any  # of some row, likewise
    label_feature: Any = None  # the type of `LABEL`
    labels: Sequence[str] = ()  # their names by id, where they have any

    def __init__(self, arguments: TaskArguments, tokenizer: PreTrainedTokenizerBase):
        self.arguments = arguments
        self.tokenizer = tokenizer

    def read(self, splits: datasets.DatasetDict, config: PreTrainedConfig | None = None) -> datasets.DatasetDict:
        """The rows that are trained and evaluated on, all checked; the labels are those of the training split, or of a
        model trained for this task already (its `config`), in its order. A ValueError for a column that is missing or
        not clear; a `BadRow`."""
        first = next(iter(splits.values()))
        self.label_column, self.text_columns = self.find_labels(first), self.find_texts(first)
        for split in splits.values():
            self._check(split)
            check_column(split, self.label_column, list(self.columns)[-1])
        labels = {name: self.read_labels(split) for name, split in splits.items()}
        labels = self.learn_labels(splits, labels, config)
        self.any_label = next(iter(labels.values()))[0]
        return datasets.DatasetDict({name: self.with_labels(split, labels[name]) for name, split in splits.items()})

    def read_unlabelled(self, split: datasets.Dataset) -> datasets.Dataset:
        """Check rows that have no labels, once `read` was called: as that returns them, with labels that mean nothing
        (an encoded row has some)."""
        self._check(split)
        return self.with_labels(split, [self.blank_label(row) for row in split])

    def _check(self, split: datasets.Dataset) -> None:
        for column, argument in zip(self.text_columns, self.text_arguments()):
            check_column(split, column, argument)
        self.check_inputs(split)

    # --- columns and rows ---

    def check_file(self, path: Path) -> None:  # noqa: B027
        """Refuse (a ValueError) a file in a format of this task that is not read, with how to convert it."""

    def find(self, split: datasets.Dataset, argument: str) -> str:
        return find_column(split, argument, getattr(self.arguments, argument), self.columns[argument])

    def find_labels(self, split: datasets.Dataset) -> str:
        return self.find(split, list(self.columns)[-1])

    def find_texts(self, split: datasets.Dataset) -> list[str]:
        """The columns that the model's inputs are made of."""
        return [self.find(split, argument) for argument in list(self.columns)[:-1]]

    def text_arguments(self) -> list[str]:
        """The arguments that name `text_columns`."""
        return list(self.columns)[: len(self.text_columns)]

    def check_inputs(self, split: datasets.Dataset) -> None:
        """Refuse a split that has a row without one of the texts."""
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
        """A label for `with_labels`, whichever: nothing is learned from it, nor scored by it."""
        return self.any_label

    def classes(self, split: datasets.Dataset) -> list[set[str]]:
        """The labels of each row that cannot be read where training has none of them, as far as there are such."""
        values = split[self.find_labels(split)] if self.has_classes else [[]] * len(split)
        return [set(map(str, value)) if isinstance(value, list) else {str(value)} for value in values]

    def class_of(self, label: str) -> str:
        """What metrics are given for, of a label: the label, or the type of entity that it stands for."""
        return label

    # --- the model's inputs and outputs ---

    def config_fields(self) -> dict[str, Any]:
        """Fields of the model's config that follow from the data: `id2label`, `label2id`, `problem_type`."""
        id2label = dict(enumerate(self.labels))
        return {"id2label": id2label, "label2id": {label: i for i, label in id2label.items()}} if id2label else {}

    @abc.abstractmethod
    def encode(self, split: datasets.Dataset, training: bool) -> datasets.Dataset:
        """Model inputs of a split that `read` returned, with labels."""

    def map_columns(
        self, split: datasets.Dataset, columns: list[str], function: Callable[..., dict[str, list]], **options: Any
    ) -> datasets.Dataset:
        """The rows, more or fewer, that `function(tokenizer, *columns, **options)` makes of batches of columns; cached
        by all of these, and by the code of the tasks."""
        split, tokenizer = split.select_columns(columns), self.tokenizer
        # `datasets` would know the function by its name, whatever its code, and a tokenizer not again after its use.
        state = [getattr(tokenizer, name) for name in ("model_max_length", "truncation_side", "model_input_names")]
        code = [path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))]
        key = [split._fingerprint, function.__name__, options, tokenizer_backend(tokenizer), *state, code]
        cached = {"new_fingerprint": Hasher.hash(key), "fn_kwargs": options, "desc": "Tokenizing"}
        if not split.cache_files:  # rows that were made in memory, as those of nested files are
            file = f"tokenized-{cached['new_fingerprint']}.arrow"
            cached["cache_file_name"] = str(Path(datasets.config.HF_DATASETS_CACHE) / file)
        options = {"input_columns": columns, "remove_columns": columns, **cached}
        return split.map(partial(function, tokenizer), batched=True, **options)

    def preprocess_logits(self, logits: Any, inputs: Mapping[str, torch.Tensor]) -> Any:
        """What evaluation keeps of the logits of a collated batch: the number of the best class, [batch]."""
        return logits.argmax(-1)

    def decode(self, said: Predictions) -> Iterable[Any]:
        """What is predicted for each example, in the form of `LABEL`."""
        return said.kept.tolist()

    @abc.abstractmethod
    def score(self, predictions: Iterable[Any], references: Sequence[Any]) -> dict[str, float]:
        """Metrics of what `decode` returned against the column `LABEL`."""

    def compute_metrics(self, said: Predictions) -> dict[str, float]:
        return self.score(self.decode(said), said.examples[LABEL][:])

    def metric_names(self, examples: datasets.Dataset) -> list[str]:
        """The metrics that are defined for these examples."""
        scores = self.score(examples[LABEL][:], examples[LABEL][:])
        return [name for name, score in scores.items() if score is not None]

    def readable(self, label: Any) -> Any:
        """A predicted label as a person reads it: names of labels, a value, a text."""
        return label

    @abc.abstractmethod
    def draw(self, said: Predictions, path: Path) -> None:
        """Draw what was predicted against what is true: a confusion matrix, a table per type, … as PNG."""

    @abc.abstractmethod
    def demonstrate(self, folder: Path, said: Predictions) -> Pairs:
        """For each example its text and what the model saved in `folder` says of it: through the pipeline that
        Transformers has for the task, or else in `said`."""


def take_unlabelled(task: Task, splits: datasets.DatasetDict) -> datasets.Dataset | None:
    """The test split, taken out of `splits` and said so, if it has no labels: no such column, or no label in any row.
    It can be predicted, but not scored."""
    first, test = next(iter(splits.values())), splits.get("test")
    if test is None:
        return None
    try:
        column = task.find_labels(first)
    except ValueError as error:
        beside = "; rows without labels are predicted beside labelled ones (--validation)"
        raise ValueError(f"{error}{beside * (test is first)}") from None
    if test is first:
        return None
    known = first[column][:]
    missing = [*task.no_gold, *(value for value in NO_LABEL if value not in known)]

    def is_missing(label):
        if isinstance(label, list):
            return all(map(is_missing, label))
        return label in missing or (isinstance(label, str) and to_number(label) in missing)

    labels = test[column][:] if column in test.column_names else [None]
    if not all(map(is_missing, labels)) or all(label == [] for label in labels):  # one may be []: no words, no tags
        return None
    print(f"test: no row of {test[0][FILE]!r} has a label ({column}); they are predicted, not scored")
    return splits.pop("test")


def shortened(text: str) -> str:
    """A text as it is shown among others: on one line that is not too long."""
    return textwrap.shorten(text, 200, placeholder=" …")


def saved_labels(config: PreTrainedConfig | None) -> list[str] | None:
    """The label names of a saved model in the order of their ids; None where they were never named (LABEL_0, …)."""
    labels = [config.id2label[i] for i in sorted(config.id2label)] if config else []
    return None if all(label == f"LABEL_{i}" for i, label in enumerate(labels)) else labels
