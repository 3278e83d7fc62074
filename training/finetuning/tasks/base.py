"""What a task says about itself: how its examples become model inputs, and its metrics.
`FinetuningTrainer` does the rest.

A task reads in this order: its options and columns; `read`, which learns the labels; `encode`, the
model's inputs; `decode` and `score`, from outputs to metrics; and how results are shown. The
options stay as they were given: what `read` learns is in `learned`.
"""

import abc
import copy
import dataclasses
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import datasets
import numpy as np
import torch
from transformers import (
    DataCollatorWithPadding,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
)

from ....modeling_minibert import MiniBertPreTrainedModel
from ...common.printable import printable
from ...evaluation.baselines import is_better, random_scores
from ...evaluation.intervals import Interval, intervals_of_means
from ...evaluation.plots import plot_scores
from ..reading.columns import check_column, check_text_columns, find_column, with_column
from ..thresholds import ChosenThresholds

# The column that `read` adds: what is to be predicted, as metrics take it.
LABEL = "_label"
# The column of encoded examples that says whether a text lost its end.
IS_CUT = "cut"
MAX_SHOWN_CHARACTERS = 200
# Types of the columns that `predict` adds.
STRING_FEATURE = datasets.Value("string")
SCORE_FEATURE = datasets.Value("float64")

# The labels of all examples, by split.
Labels = dict[str, list[Any]]
# By metric; None: not defined for these examples.
Scores = dict[str, float | None]


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


class Predictions(NamedTuple):
    """The predictions for a split: its examples as `Task.read` and as `Task.encode` returned them,
    and of each encoded example what `Task.preprocess_logits` and `Task.confidence` returned. With
    `thresholds`, labels are predicted from these probabilities on, one for each label, instead of
    ½. `decoded` is what `Task.decode` returned of all this, once it was called."""

    examples: datasets.Dataset
    encoded: datasets.Dataset
    outputs: np.ndarray
    confidence: np.ndarray | None = None
    thresholds: Sequence[float] | None = None
    decoded: list[Any] | None = None


class Task(abc.ABC):
    """One kind of fine-tuning. Subclasses are dataclasses, whose fields are options but for the
    tokenizer: its `model_max_length` is the longest input. A task copies it, so that its settings
    do not change those of the caller.

    Attributes:
        learned: What `read` has learned (or, to predict, `use_labels_of` and `use_columns_of`).
    """

    tokenizer: PreTrainedTokenizerBase
    max_length: int | None = None  # the longest input, in tokens; by default that of the model
    pooling: str | None = None  # what a new head reads; only where `has_pooled_head`
    tune_threshold: bool = False  # whether to decide by thresholds of the validation examples

    # --- what a subclass says ---
    name: ClassVar[str]
    model_class: ClassVar[type[MiniBertPreTrainedModel]]
    collator_class: ClassVar[type] = DataCollatorWithPadding
    learned_class: ClassVar[type[Learned]] = Learned
    # The options that name columns, with the names that these are guessed by; the last one is that
    # of the label.
    columns: ClassVar[Mapping[str, Sequence[str]]]
    # Which of the text columns make examples copies of each other, which are held out together.
    group_columns: ClassVar[slice] = slice(None)
    # Labels that say that there is none, in training too.
    no_gold: ClassVar[Sequence[str]] = ()
    # A key of what `score` returns; may be known only after `read`.
    metric_for_best_model: str
    # The type of the column `LABEL`; may be known only after `read`.
    label_feature: Any = None
    # The name of `guesses` in tables.
    baseline: ClassVar[str] = "guessing"
    # The name of the model of `simple_predictions` in tables.
    simple_model: ClassVar[str] = ""
    # Whether the head reads one vector for the whole input, see `pooling`.
    has_pooled_head: ClassVar[bool] = False
    # Whether a trained model gets its thresholds into its bias, so that every program decides by
    # them; else they stand in its config.
    thresholds_go_into_bias: ClassVar[bool] = True
    # Whether a saved model reads inputs as long as in training, and not all that it could read.
    keeps_max_length: ClassVar[bool] = False
    # Whether `LABEL` is the id of a class.
    has_class_ids: bool = False
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

    def read(
        self, splits: datasets.DatasetDict, config: PreTrainedConfig | None = None
    ) -> datasets.DatasetDict:
        """Check all examples and learn the labels: those of the training split, or of a model that
        was trained for this task already (its `config`). Return the examples with the column
        `LABEL`; a ValueError for a bad column or example."""
        first = next(iter(splits.values()))
        self.learned = self.learned_class(
            label_column=self.find_labels(first), text_columns=self.find_texts(first)
        )
        for split in splits.values():
            for column in (*self.text_columns, self.learned.label_column):
                check_column(split, column)
            self.check_inputs(split)
        labels = {name: self.read_labels(split) for name, split in splits.items()}
        labels = self.learn_labels(splits, labels, config)
        with_labels = {name: self.with_labels(splits[name], labels[name]) for name in splits}
        return datasets.DatasetDict(with_labels)

    def options(self) -> dict[str, Any]:
        """The options that differ from their defaults, by name."""
        changed = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name != "tokenizer" and value not in (None, [], field.default):
                changed[field.name] = value
        return changed

    # --- columns and examples ---

    def find(self, split: datasets.Dataset, option: str) -> str:
        return find_column(split, option, getattr(self, option), self.columns[option])

    def find_labels(self, split: datasets.Dataset) -> str:
        return self.find(split, list(self.columns)[-1])

    def find_texts(self, split: datasets.Dataset) -> list[str]:
        """The columns that the model's inputs are made of."""
        return [self.find(split, option) for option in list(self.columns)[:-1]]

    def check_inputs(self, split: datasets.Dataset) -> None:
        """Refuse a split that has an example without one of the texts."""
        check_text_columns(split, self.text_columns)

    @abc.abstractmethod
    def read_labels(self, split: datasets.Dataset) -> list[Any]:
        """The labels of all examples in one form, each checked by itself."""

    def learn_labels(
        self, splits: datasets.DatasetDict, labels: Labels, config: PreTrainedConfig | None
    ) -> Labels:
        """Learn from what `read_labels` returned for each split what labels there are, into
        `learned`; the labels for `with_labels`."""
        return labels

    def with_labels(self, split: datasets.Dataset, labels: list[Any]) -> datasets.Dataset:
        """`split` with the column `LABEL`, and others that `encode` needs."""
        return with_column(split, LABEL, labels, self.label_feature)

    def classes(self, split: datasets.Dataset) -> list[set[str]]:
        """The classes of each example, which are held out in proportion, and of which training
        needs one of each."""
        return [set()] * len(split)

    def class_of(self, label: str) -> str:
        """What metrics are given for, of a label: the label, or the type of entity that it stands
        for."""
        return label

    # --- examples without labels, for `predict` ---

    def use_labels_of(self, config: PreTrainedConfig) -> None:  # noqa: B027
        """Take what `decode` needs from the config of a trained model, as `learn_labels` does."""

    def use_columns_of(self, split: datasets.Dataset) -> None:
        """Find the columns of the texts among those of a split without labels."""
        self.learned.text_columns = self.find_texts(split)

    @property
    def required_columns(self) -> list[str]:
        """The columns without whose texts nothing can be predicted for an example."""
        return self.text_columns

    def read_unlabelled(self, split: datasets.Dataset) -> datasets.Dataset:
        """Check examples whose `text_columns` are known. Their column `LABEL` has a placeholder,
        which `encode` wants and `decode` does not look at."""
        self.check_inputs(split)
        return self.with_labels(split, self.placeholders(split))

    @abc.abstractmethod
    def placeholders(self, split: datasets.Dataset) -> list[Any]:
        """Something that could be the labels of the examples, in the form of `LABEL`."""

    @property
    def prediction_features(self) -> datasets.Features:
        """The columns that `describe_predictions` gives."""
        return datasets.Features({"label": STRING_FEATURE, "score": SCORE_FEATURE})

    def describe_predictions(self, predictions: Predictions) -> dict[str, list[Any]]:
        """What `decode` returns as a person reads it, by column, with a score up to 1: how sure the
        model is."""
        decoded = list(self.decode(predictions))
        labels = [self.label_names[label_id] for label_id in decoded]
        return {"label": labels, "score": self.confidence_of_examples(predictions)}

    # --- the model's inputs and outputs ---

    def config_fields(self) -> dict[str, Any]:
        """Fields of the model's config that follow from the data: `id2label`, `label2id`,
        `problem_type`."""
        if not self.label_names:
            return {}
        id2label = dict(enumerate(self.label_names))
        label2id = {label: label_id for label_id, label in id2label.items()}
        return {"id2label": id2label, "label2id": label2id}

    @abc.abstractmethod
    def encode(self, split: datasets.Dataset) -> datasets.Dataset:
        """Model inputs of a split that `read` returned, with labels."""

    def map_columns(
        self,
        split: datasets.Dataset,
        columns: list[str],
        function: Callable[..., dict[str, list]],
        **options: Any,
    ) -> datasets.Dataset:
        """The examples that `function(tokenizer, *columns, **options)` makes of batches of columns.
        They are not cached: `datasets` would know the function by its name, whatever its code."""
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

    def choose_thresholds(self, predictions: Predictions) -> ChosenThresholds:
        """The thresholds that are best on predictions for the validation examples; only with
        `tune_threshold`."""
        raise NotImplementedError(f"{self.name} has no thresholds")

    def decode(self, predictions: Predictions) -> Iterable[Any]:
        """What is predicted for each example, in the form of `LABEL`."""
        return predictions.outputs.tolist()

    @abc.abstractmethod
    def score(self, predictions: Iterable[Any], references: Sequence[Any]) -> Scores:
        """Metrics of what `decode` returned against the column `LABEL`."""

    def decode_once(self, predictions: Predictions) -> list[Any]:
        """What `decode` returns, which takes time, as a list."""
        if predictions.decoded is not None:
            return predictions.decoded
        return list(self.decode(predictions))

    def compute_metrics(self, predictions: Predictions) -> Scores:
        return self.score(self.decode_once(predictions), predictions.examples[LABEL][:])

    def pipeline_scores(self, predictions: Predictions) -> Scores:
        """The metrics of what a pipeline of Transformers would predict, where it does not decide as
        `decode` does."""
        return {}

    def metric_names(self, examples: datasets.Dataset) -> list[str]:
        """The metrics that are defined for these examples."""
        scores = self.score(examples[LABEL][:], examples[LABEL][:])
        return [name for name, score in scores.items() if score is not None]

    # --- what a result is worth ---

    def guesses(
        self, training_examples: datasets.Dataset, examples: datasets.Dataset
    ) -> list[Sequence[Any]]:
        """Simple guesses for `examples` from the labels of the training examples, in one way or
        several: the most frequent label."""
        [(most_frequent, _)] = Counter(training_examples[LABEL]).most_common(1)
        return [[most_frequent] * len(examples)]

    def baseline_scores(
        self, training_examples: datasets.Dataset, examples: datasets.Dataset
    ) -> Scores:
        """For each metric, the best score of the `guesses` and of classes drawn at random."""
        references = examples[LABEL][:]
        guesses = self.guesses(training_examples, examples)
        candidates = [self.score(guess, references) for guess in guesses]
        best_scores = dict(candidates[0])
        if self.has_class_ids:
            candidates += random_scores(training_examples[LABEL][:], references)
        for scores in candidates:
            for metric in best_scores:
                if metric in scores and is_better(metric, scores[metric], best_scores[metric]):
                    best_scores[metric] = scores[metric]
        return best_scores

    def simple_predictions(
        self, training_examples: datasets.Dataset, splits: Sequence[datasets.Dataset]
    ) -> list[Sequence[Any]] | None:
        """What a simple model, which is named by `simple_model`, predicts for each of the splits
        once it has learned from the training examples; None for a task without one."""
        return None

    def scores_by_class(
        self, predictions: Sequence[Any], references: Sequence[Any]
    ) -> dict[str, dict[str, float]]:
        """precision, recall, f1 and support of every class (or type of entity); empty for a task
        without classes."""
        return {}

    def intervals(
        self, predictions: Sequence[Any], references: Sequence[Any]
    ) -> dict[str, Interval]:
        """The 95 % intervals of metrics of `score`."""
        is_right = [predicted == true for predicted, true in zip(predictions, references)]
        return intervals_of_means({"accuracy": is_right})

    def confidence(self, logits: Any, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """How sure the model is of what it predicts for each example, [batch], up to 1."""
        return logits.float().softmax(-1).amax(-1)

    def confidence_of_examples(self, predictions: Predictions) -> list[float]:
        """The `confidence` in what is predicted for each example."""
        return predictions.confidence.tolist()

    def mistake(self, predicted: Any, true: Any, confidence: float) -> float:
        """How much of a mistake a prediction is; 0 for none."""
        return 0.0 if predicted == true else confidence

    @property
    def mistake_unit(self) -> str:
        """What `mistake` returns, as a person reads it: a confidence, or how far off a value is."""
        return "off_by" if self.has_values else "confidence"

    def draw(self, predictions: Predictions, path: Path, note: str = "") -> None:
        """Draw what was predicted against what is true as PNG, with `note` in the title."""
        decoded = self.decode_once(predictions)
        plot_f1_by_class(self.scores_by_class(decoded, predictions.examples[LABEL][:]), path, note)

    def example_inputs(self, example: Mapping[str, Any]) -> dict[str, Any]:
        """The texts of an example, by the names that the template of the model card has for
        them."""
        return {"text": example[self.text_columns[0]]}

    def count_labels(self, examples: datasets.Dataset) -> tuple[Counter[str], int]:
        """How often each label occurs, and how many examples (or words) may have it; none for a
        task whose labels are no choice between names."""
        return Counter(), 0

    def class_counts(self, label_counts: Mapping[str, int]) -> dict[str, int]:
        """How often each class occurs, of how often each label does."""
        return dict(label_counts)

    def count_labelled(self, class_counts: Mapping[str, int], num_examples: int) -> int:
        """What the shares of the classes are of, which `class_counts` returned."""
        return sum(class_counts.values())

    def card_fields(self) -> dict[str, Any]:
        """Fields of `CardFacts` that this task alone knows."""
        return {}

    def show_input(self, example: Mapping[str, Any]) -> str:
        return " | ".join(shortened(example[column]) for column in self.text_columns)

    def show_label(self, example: Mapping[str, Any], label: Any) -> str:
        """A label of an example (true or predicted) as a person reads it."""
        return str(label)


def plot_f1_by_class(scores: Mapping[str, Mapping[str, float]], path: Path, note: str) -> None:
    """Draw the F1 of each class, the most frequent class first.

    Args:
        scores: What `Task.scores_by_class` returns.
    """
    most_frequent_first = sorted(scores, key=lambda name: -scores[name]["support"])
    f1_by_label = {}
    for name in most_frequent_first:
        label = f"{name} ({scores[name]['support']:,})"
        f1_by_label[label] = scores[name]["f1"]
    plot_scores(f1_by_label, "F1", path, note)


def shortened(text: str) -> str:
    """A text as it is shown among others: on one line that is not too long, without control
    characters."""
    return printable(textwrap.shorten(text, MAX_SHOWN_CHARACTERS, placeholder=" …"))


def saved_labels(config: PreTrainedConfig | None) -> list[str] | None:
    """The label names of a saved model in the order of their ids; None where they were never named
    (LABEL_0, …)."""
    if config is None:
        return None
    labels = [config.id2label[label_id] for label_id in sorted(config.id2label)]
    default_names = [f"LABEL_{label_id}" for label_id in range(len(labels))]
    return None if labels == default_names else labels
