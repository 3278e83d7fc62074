"""What a task is: its columns and labels, the model's inputs and outputs, and its metrics.
`FinetuningTrainer` does the rest.

The settings and methods that every task must have come first. Then the methods stand in the order
in which they are called: `read`, which learns the labels; `encode`, the model's inputs; `decode`
and `score`, from outputs to metrics. What results are worth is in `judging.py`, and how they are
shown in `display.py`.
"""

import abc
import copy
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import datasets
import torch
from transformers import (
    DataCollatorWithPadding,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
)

from ....modeling_minibert import MiniBertPreTrainedModel
from ..reading.columns import check_column, check_text_columns, find_column, with_column
from ..thresholds import ChosenThresholds
from .display import DisplayMixin
from .judging import JudgingMixin
from .predictions import LABEL, Labels, Predictions, Scores


@dataclasses.dataclass
class Learned:
    """What a task has learned from examples, or from a model that was trained for it before."""

    text_columns: list[str] = dataclasses.field(default_factory=list)
    label_column: str | None = None
    # By id, where labels have names.
    label_names: Sequence[str] = ()
    # Of the loss, one for each label.
    label_weights: Sequence[float] | None = None
    # Of a model that was trained before, which decides by them, see `Predictions`.
    thresholds: Sequence[float] | None = None


class Task(JudgingMixin, DisplayMixin, abc.ABC):
    """One kind of fine-tuning. A subclass is a dataclass, whose fields are its options but for the
    tokenizer. The options stay as they were given: what `read` learns is in `learned`.

    A subclass must have `name`, `model_class`, `columns`, `metric_for_best_model`, and the
    methods `read_labels`, `placeholders`, `encode` and `score`. All else has a default.

    Attributes:
        tokenizer: A copy of the caller's. Its `model_max_length` is the longest input.
        learned: What `read` has learned (or, to predict, `use_labels_of` and `use_columns_of`).
    """

    tokenizer: PreTrainedTokenizerBase
    max_length: int | None = None  # the longest input, in tokens; by default that of the model
    pooling: str | None = None  # what a new head reads; only where `has_pooled_head`
    tune_threshold: bool = False  # whether to decide by thresholds of the validation examples

    # --- what every task must have ---

    name: ClassVar[str]
    model_class: ClassVar[type[MiniBertPreTrainedModel]]
    # The options that name columns, with the names that these are guessed by; the last one is that
    # of the label.
    columns: ClassVar[Mapping[str, Sequence[str]]]
    # A key of what `score` returns; may be known only after `read`.
    metric_for_best_model: str

    @abc.abstractmethod
    def read_labels(self, split: datasets.Dataset) -> list[Any]:
        """The labels of all examples in one form, each checked by itself."""

    @abc.abstractmethod
    def placeholders(self, split: datasets.Dataset) -> list[Any]:
        """Something that could be the labels of the examples, in the form of `LABEL`, for examples
        without labels."""

    @abc.abstractmethod
    def encode(self, split: datasets.Dataset) -> datasets.Dataset:
        """Model inputs of a split that `read` returned, with labels."""

    @abc.abstractmethod
    def score(self, predictions: Iterable[Any], references: Sequence[Any]) -> Scores:
        """Metrics of what `decode` returned against the column `LABEL`."""

    # --- what a task may set otherwise ---

    collator_class: ClassVar[type] = DataCollatorWithPadding
    learned_class: ClassVar[type[Learned]] = Learned
    # The type of the column `LABEL`; may be known only after `read`.
    label_feature: Any = None
    # Which of the text columns make examples copies of each other, which are held out together.
    group_columns: ClassVar[slice] = slice(None)
    # Labels that say that there is none, in training too.
    no_gold: ClassVar[Sequence[str]] = ()
    # Whether the head reads one vector for the whole input, see `pooling`.
    has_pooled_head: ClassVar[bool] = False
    # Whether a trained model gets its thresholds into its bias, so that every program decides by
    # them; else they stand in its config.
    thresholds_go_into_bias: ClassVar[bool] = True
    # Whether a saved model reads inputs as long as in training, and not all that it could read.
    keeps_max_length: ClassVar[bool] = False
    # Whether `LABEL` is a value, which inputs that are the same may well differ in.
    has_values: bool = False
    # In tokens: what `--plan` proposes at least.
    shortest_input: ClassVar[int] = 16

    def __post_init__(self):
        self.tokenizer = copy.deepcopy(self.tokenizer)
        self.learned = self.learned_class()

    @property
    def text_columns(self) -> list[str]:
        """The columns that the model's inputs are made of."""
        return self.learned.text_columns

    @property
    def label_names(self) -> Sequence[str]:
        """The names of the labels by their ids, where they have any."""
        return self.learned.label_names

    def options(self) -> dict[str, Any]:
        """The options that differ from their defaults, by name."""
        changed = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name != "tokenizer" and value not in (None, [], field.default):
                changed[field.name] = value
        return changed

    # --- columns ---

    def find_column_of(self, split: datasets.Dataset, option: str) -> str:
        """The column of a split that an option of `columns` names."""
        return find_column(split, option, getattr(self, option), self.columns[option])

    def find_label_column(self, split: datasets.Dataset) -> str:
        """The column of the labels."""
        return self.find_column_of(split, list(self.columns)[-1])

    def find_text_columns(self, split: datasets.Dataset) -> list[str]:
        """The columns that the model's inputs are made of."""
        return [self.find_column_of(split, option) for option in list(self.columns)[:-1]]

    def check_inputs(self, split: datasets.Dataset) -> None:
        """Refuse a split that has an example without one of the texts."""
        check_text_columns(split, self.text_columns)

    # --- labelled examples ---

    def read(
        self, splits: datasets.DatasetDict, config: PreTrainedConfig | None = None
    ) -> datasets.DatasetDict:
        """Check all examples and learn the labels: those of the training split, or of a model that
        was trained for this task already (its `config`). Return the examples with the column
        `LABEL`; a ValueError for a bad column or example."""
        first = next(iter(splits.values()))
        self.learned = self.learned_class(
            label_column=self.find_label_column(first), text_columns=self.find_text_columns(first)
        )
        for split in splits.values():
            for column in (*self.text_columns, self.learned.label_column):
                check_column(split, column)
            self.check_inputs(split)
        labels = {name: self.read_labels(split) for name, split in splits.items()}
        labels = self.learn_labels(splits, labels, config)
        with_labels = {name: self.with_labels(splits[name], labels[name]) for name in splits}
        return datasets.DatasetDict(with_labels)

    def learn_labels(
        self, splits: datasets.DatasetDict, labels: Labels, config: PreTrainedConfig | None
    ) -> Labels:
        """Learn from what `read_labels` returned for each split what labels there are, into
        `learned`; the labels for `with_labels`."""
        return labels

    def with_labels(self, split: datasets.Dataset, labels: list[Any]) -> datasets.Dataset:
        """`split` with the column `LABEL`, and others that `encode` needs."""
        return with_column(split, LABEL, labels, self.label_feature)

    def classes_by_example(self, split: datasets.Dataset) -> list[set[str]]:
        """The classes of each example, which are held out in proportion, and of which training
        needs one of each."""
        return [set()] * len(split)

    # --- examples without labels, for `predict` ---

    def use_labels_of(self, config: PreTrainedConfig) -> None:
        """Take what `decode` needs from the config of a trained model, as `learn_labels` does."""

    def use_columns_of(self, split: datasets.Dataset) -> None:
        """Find the columns of the texts among those of a split without labels."""
        self.learned.text_columns = self.find_text_columns(split)

    @property
    def required_columns(self) -> list[str]:
        """The columns without whose texts nothing can be predicted for an example."""
        return self.text_columns

    def read_unlabelled(self, split: datasets.Dataset) -> datasets.Dataset:
        """Check examples whose `text_columns` are known. Their column `LABEL` has a placeholder,
        which `encode` wants and `decode` does not look at."""
        self.check_inputs(split)
        return self.with_labels(split, self.placeholders(split))

    # --- the model's inputs and outputs ---

    def config_fields(self) -> dict[str, Any]:
        """Fields of the model's config that follow from the data: `id2label`, `label2id`,
        `problem_type`."""
        if not self.label_names:
            return {}
        id2label = dict(enumerate(self.label_names))
        label2id = {label: label_id for label_id, label in id2label.items()}
        return {"id2label": id2label, "label2id": label2id}

    def map_columns(
        self,
        split: datasets.Dataset,
        columns: list[str],
        function: Callable[..., dict[str, list]],
        **options: Any,
    ) -> datasets.Dataset:
        """For `encode`: the examples that `function(tokenizer, *columns, **options)` makes of
        batches of columns. They are not cached: `datasets` would know the function by its name,
        whatever its code."""
        return split.map(
            partial(function, self.tokenizer),
            batched=True,
            input_columns=columns,
            remove_columns=split.column_names,
            fn_kwargs=options,
            keep_in_memory=True,
            load_from_cache_file=False,
            desc="Tokenizing",
        )

    def preprocess_logits(self, logits: Any, inputs: Mapping[str, torch.Tensor]) -> Any:
        """What evaluation keeps of the logits of a collated batch: the number of the best class,
        [batch]."""
        return logits.argmax(-1)

    def confidence(self, logits: Any, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """How sure the model is of what it predicts for each example, [batch], up to 1."""
        return logits.float().softmax(-1).amax(-1)

    def confidence_of_examples(self, predictions: Predictions) -> list[float]:
        """The `confidence` in what is predicted for each example."""
        return predictions.confidence.tolist()

    def choose_thresholds(self, predictions: Predictions) -> ChosenThresholds:
        """The thresholds that are best on predictions for the validation examples; only with
        `tune_threshold`."""
        raise NotImplementedError(f"{self.name} has no thresholds")

    def decode(self, predictions: Predictions) -> Iterable[Any]:
        """What is predicted for each example, in the form of `LABEL`."""
        return predictions.outputs.tolist()

    def decode_once(self, predictions: Predictions) -> list[Any]:
        """What `decode` returns, which takes time, as a list."""
        if predictions.decoded is not None:
            return predictions.decoded
        return list(self.decode(predictions))

    # --- metrics ---

    def compute_metrics(self, predictions: Predictions) -> Scores:
        """The `score` of predictions."""
        return self.score(self.decode_once(predictions), predictions.examples[LABEL][:])

    def metric_names(self, examples: datasets.Dataset) -> list[str]:
        """The metrics that are defined for these examples."""
        scores = self.score(examples[LABEL][:], examples[LABEL][:])
        return [name for name, score in scores.items() if score is not None]
