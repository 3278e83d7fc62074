"""Classify texts or pairs of texts: one class, several labels, or a value.

`Classify` finds the columns, reads the labels and chooses what is learned from them: one of the
classes in `problem_types`, which has the metrics.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal

import datasets
import numpy as np
import torch
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from ....modeling_minibert import MiniBertForSequenceClassification
from ....option_checks import checked_class
from ...common.printable import printable
from ...data.cell_types import to_number
from ...evaluation import word_classifier
from ...evaluation.intervals import Interval
from ..class_weights import class_weights, describe_weights
from ..reading.columns import (
    FILE,
    as_list,
    bad_value,
    find_column,
    map_examples,
    plain_text_columns,
)
from ..thresholds import ChosenThresholds
from .base import Learned, Task
from .label_cells import (
    LIST_EXAMPLE,
    are_classes_with_gaps,
    is_list_of_one,
    plain_label,
)
from .label_names import (
    all_label_names,
    find_label,
    learn_label_names,
    names_of_feature,
    saved_labels,
)
from .predictions import IS_CUT, LABEL, Labels, Predictions, Scores
from .problem_types import (
    MULTI_LABEL,
    REGRESSION,
    SINGLE_LABEL,
    ClassificationProblem,
    MultiLabel,
    choose_problem,
)

# Names of the columns of two texts, best first.
PAIR_COLUMNS = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("text_a", "text_b"),
    ("text", "text_pair"),
    ("text1", "text2"),
    ("question", "sentence"),
    ("question", "passage"),
)
MAX_LISTED_LABELS = 20
# Of more whole numbers, it is said that they may be values.
MAX_NUMBERED_CLASSES = 20


@dataclass
class LearnedClasses(Learned):
    """What `Classify` has learned: `problem` says what is predicted, and how it is scored."""

    problem: ClassificationProblem | None = None
    metric_for_best_model: str = ""


@checked_class
@dataclass(eq=False)
class Classify(Task):
    """A classifier of texts or pairs of texts. Lists of labels are several labels, numbers of which
    some have a fraction are values, the rest are classes.

    Args:
        text_column: The column of the text (or of the first of two); by default guessed by its
            name.
        pair_column: The column of the second text; by default guessed by its name, if there is one.
        label_column: The column of the label; by default guessed by its name.
        labels: Names of the classes, if the data do not make them clear; labels that are numbers
            count them from 0.
        max_length: Longest input, in tokens; longer ones are cut. By default that of the model.
        class_weights: Weights of the classes in the loss: balanced, a number for each class, or
            CLASS=NUMBER.
        tune_threshold: With two classes or several labels a row, decide by thresholds chosen on the
            validation rows, where they are better than 0.5 by more than chance. They are saved in
            the bias of the model, so that every program decides by them.
        regression: Learn whole numbers as values, such as ratings from 0 to 100, and not as
            classes.
        pooling: What a new head reads: mean, the mean of the last states, or cls, the state of the
            first token. By default the mean; a trained head keeps what it reads.
    """

    name = "classify"
    simple_model_name = word_classifier.CLASSIFIER_NAME
    model_class = MiniBertForSequenceClassification
    learned_class = LearnedClasses
    has_pooled_head = True
    columns = {
        "text_column": (
            "text",
            "sentence",
            "content",
            "review",
            "document",
            "tweet",
            "sentence1",
            "premise",
            "question",
        ),
        "pair_column": (),  # see PAIR_COLUMNS
        "label_column": (
            "label",
            "labels",
            "class",
            "target",
            "category",
            "score",
            "similarity",
            "sentiment",
        ),
    }
    pairs_only: ClassVar[bool] = False

    tokenizer: PreTrainedTokenizerBase
    _: KW_ONLY
    text_column: str | None = None
    pair_column: str | None = None
    label_column: str | None = None
    labels: Sequence[str] = ()
    max_length: int | None = None
    class_weights: Sequence[str] | None = None
    tune_threshold: bool = False
    regression: bool = False
    pooling: Literal["mean", "cls"] | None = None

    def __post_init__(self):
        super().__post_init__()
        if self.regression and self.labels:
            raise ValueError("regression: values have no names; leave labels out")

    @property
    def problem(self) -> ClassificationProblem:
        """What is learned of each example; since `read`."""
        return self.learned.problem

    @property
    def problem_type(self) -> str:
        """As in the model's config; since `read`."""
        return self.problem.problem_type

    @property
    def has_class_ids(self) -> bool:
        return self.problem.has_class_ids

    @property
    def has_values(self) -> bool:
        return not self.problem.has_classes

    @property
    def label_feature(self) -> Any:
        return self.problem.label_feature

    @property
    def metric_for_best_model(self) -> str:
        return self.learned.metric_for_best_model

    # --- columns ---

    def find_text_columns(self, split: datasets.Dataset) -> list[str]:
        columns = []
        if self.text_column:
            columns.append(self.find_column_of(split, "text_column"))
        if self.pair_column:
            columns.append(self.find_column_of(split, "pair_column"))
        if not columns:
            columns = self._guess_texts(split)
        lacks_first = self.pair_column and not self.text_column
        if lacks_first or (self.pairs_only and len(columns) != 2):
            raise ValueError(
                f"pair_column: the two texts of {split[0][FILE]!r} are not clear; name them with"
                f" --text_column and --pair_column ({', '.join(plain_text_columns(split))})"
            )
        return columns

    def _guess_texts(self, split: datasets.Dataset) -> list[str]:
        label_column = None
        with suppress(ValueError):  # examples to predict for have no label
            label_column = self.find_label_column(split)
        candidates = [column for column in plain_text_columns(split) if column != label_column]
        for pair in PAIR_COLUMNS:
            if set(pair) <= set(candidates):
                return list(pair)
        usual_names = [name for name in self.columns["text_column"] if name in candidates]
        if len(candidates) == 1 and not usual_names:
            return candidates
        return [find_column(split, "text_column", None, usual_names)]

    # --- labelled examples ---

    def read(
        self, splits: datasets.DatasetDict, config: PreTrainedConfig | None = None
    ) -> datasets.DatasetDict:
        """As `Task.read`, without the examples that nobody has labelled yet, where each of the
        others has one class: doccano exports an empty list for them."""
        column = self.find_label_column(next(iter(splits.values())))
        labels = {}
        for name, split in splits.items():
            if column in split.column_names:
                labels[name] = self._plain_labels(split, column)
        has_several_labels = config is not None and config.problem_type == MULTI_LABEL
        if not has_several_labels and are_classes_with_gaps(list(labels.values())):
            splits = datasets.DatasetDict(splits)
            for name, split_labels in labels.items():
                splits[name] = _drop_unlabelled(name, splits[name], split_labels)
        return super().read(splits, config)

    def _plain_labels(self, split: datasets.Dataset, column: str) -> list[Any]:
        """The labels as they stand there, see `plain_label`."""
        names = names_of_feature(split.features[column])

        def read_label(value: Any) -> Any:
            return value if value in self.labels else plain_label(value, names)

        return map_examples(split, read_label, split[column])

    def read_labels(self, split: datasets.Dataset) -> list[Any]:
        labels = self._plain_labels(split, self.learned.label_column)
        return map_examples(split, self._check_label, labels)

    def _check_label(self, label: Any) -> Any:
        """A label, or a list of different ones."""
        if label is None or isinstance(label, dict):
            raise bad_value(self.learned.label_column, label, "a label")
        if isinstance(label, list):
            are_names = all(isinstance(item, (str, int)) for item in label)
            if not are_names or len(set(label)) < len(label):
                raise bad_value(self.learned.label_column, label, LIST_EXAMPLE)
        return label

    def classes_by_example(self, split: datasets.Dataset) -> list[set[str]]:
        labels = self._plain_labels(split, self.find_label_column(split))
        if self._guess_problem_type(labels) == REGRESSION:
            return [set()] * len(split)
        return [set(map(str, as_list(label))) for label in labels]

    def _guess_problem_type(self, labels: Iterable[Any]) -> str:
        """Several labels if some are lists, values if all are numbers of which some have a
        fraction, else classes."""
        if self.regression:
            return REGRESSION
        if any(isinstance(label, list) for label in labels):
            return MULTI_LABEL
        if self.labels:
            return SINGLE_LABEL
        numbers = [to_number(label) for label in labels]
        if not np.isfinite(numbers).all() or all(map(float.is_integer, numbers)):
            return SINGLE_LABEL
        return REGRESSION

    def learn_labels(
        self, splits: datasets.DatasetDict, labels: Labels, config: PreTrainedConfig | None
    ) -> Labels:
        model_type = None if config is None else problem_type_of(config)
        all_labels = list(chain.from_iterable(labels.values()))
        if model_type != MULTI_LABEL and all(is_list_of_one(label) for label in all_labels):
            # As doccano writes classes.
            labels = {name: list(chain.from_iterable(lists)) for name, lists in labels.items()}
        if self.regression and model_type not in (None, REGRESSION):
            raise ValueError(
                "regression: the model was trained for classes; start from another one"
            )
        problem_type = model_type or self._guess_problem_type(next(iter(labels.values())))
        if "train" in labels and problem_type == SINGLE_LABEL and not self.labels:
            self._mention_numbers(splits["train"], labels["train"])
        if {tuple(as_list(label)) for label in all_labels} == {(0, 1), (1, 0)}:
            raise ValueError(
                f"label_column: {self.learned.label_column!r} has [0, 1] and [1, 0] only,"
                f" which name the same labels; use {LIST_EXAMPLE}"
            )
        label_names = self._label_names(problem_type, splits, labels, config)
        self._choose_problem(problem_type, label_names)
        encoded = self._encode_labels(splits, labels)
        if "train" not in encoded:
            self.learned.thresholds = getattr(config, "thresholds", None)
        elif self.class_weights or self.tune_threshold:
            self._balance(encoded["train"])
        return encoded

    def _choose_problem(self, problem_type: str, label_names: Sequence[str]) -> None:
        """Choose what is learned: all that depends on it is in `self.problem` from here on."""
        self.learned.label_names = label_names
        self.learned.problem = choose_problem(problem_type, label_names)
        self.learned.metric_for_best_model = self.problem.metric_for_best_model

    def _mention_numbers(self, split: datasets.Dataset, labels: Sequence[Any]) -> None:
        """Say how many whole numbers could be learned as values, if they are that many."""
        column = self.learned.label_column
        has_names = isinstance(split.features[column], datasets.ClassLabel)
        if has_names or not all(isinstance(label, int) for label in labels):
            return
        num_classes = len(set(labels))
        if num_classes > MAX_NUMBERED_CLASSES:
            print(
                f"{printable(column)}: {num_classes:,} different whole numbers are"
                " learned as classes; if they are values, such as ratings, give --regression true"
            )

    def _balance(self, training_labels: list[Any]) -> None:
        """Choose the weights of the loss; refuse weights and thresholds that these labels cannot
        have."""
        column = self.learned.label_column
        if not self.problem.has_classes:
            raise ValueError(f"class_weights, tune_threshold: {column!r} has values, not classes")
        if self.tune_threshold and not self.problem.has_thresholds:
            raise ValueError(
                f"tune_threshold: {column!r} has {len(self.label_names)} classes;"
                " it needs two classes, or several labels a row"
            )
        self.learned.metric_for_best_model = "f1_macro"
        if not self.class_weights:
            return
        counts = self._count_label_names(training_labels)
        num_examples = None
        if isinstance(self.problem, MultiLabel):
            num_examples = len(training_labels)
        weights = class_weights(self.class_weights, self.label_names, counts, num_examples)
        self.learned.label_weights = weights
        print(describe_weights(self.label_names, weights))

    def _count_label_names(self, labels: Iterable[Any]) -> Counter[str]:
        """How often each label occurs, by name."""
        counts: Counter[str] = Counter()
        for label in labels:
            for label_id in self.problem.label_ids(label):
                counts[self.label_names[label_id]] += 1
        return counts

    # --- the names and ids of the labels ---

    def _label_names(
        self,
        problem_type: str,
        splits: datasets.DatasetDict,
        labels: Labels,
        config: PreTrainedConfig | None,
    ) -> list[str]:
        """The names of all labels, in the order of their ids: those of the model, those of
        `--labels`, those of the column, or else what occurs in training."""
        model_labels = saved_labels(config)
        option_labels = list(self.labels)
        if model_labels and option_labels and option_labels != model_labels:
            raise ValueError(
                f"labels: {', '.join(option_labels)}, but the model knows {', '.join(model_labels)}"
            )
        if problem_type == REGRESSION:
            return ["score"]
        if "train" in labels:
            column = self.learned.label_column
            return learn_label_names(
                splits["train"], labels["train"], column, model_labels, option_labels
            )
        if model_labels or option_labels:
            return model_labels or option_labels
        return all_label_names(config)  # LABEL_0, …

    def _encode_labels(self, splits: datasets.DatasetDict, labels: Labels) -> Labels:
        """What the model learns of each label; a ValueError for a label that has no id."""
        different_labels = set()
        for label in chain.from_iterable(labels.values()):
            different_labels.update(as_list(label))
        id_of = {label: find_label(self.label_names, label) for label in different_labels}

        def find_id(label: Any) -> int:
            label_id = id_of[label]
            if label_id is None:
                raise self._unknown_label(label)
            return label_id

        def encode(label: Any) -> Any:
            return self.problem.encode_label(label, self.learned.label_column, find_id)

        return {name: map_examples(splits[name], encode, labels[name]) for name in labels}

    def _unknown_label(self, label: Any) -> ValueError:
        reason = " was never seen in training"
        if self.labels:
            reason = " is none of --labels"
        listed = ", ".join(self.label_names[:MAX_LISTED_LABELS])
        if len(self.label_names) > MAX_LISTED_LABELS:
            listed += " …"
        return bad_value(self.learned.label_column, label, f"one of {listed}", reason)

    # --- examples without labels, for `predict` ---

    def use_labels_of(self, config: PreTrainedConfig) -> None:
        problem_type = problem_type_of(config) or SINGLE_LABEL
        self._choose_problem(problem_type, all_label_names(config))
        self.learned.thresholds = getattr(config, "thresholds", None)

    def placeholders(self, split: datasets.Dataset) -> list[Any]:
        return [self.problem.placeholder()] * len(split)

    # --- the model's inputs and outputs ---

    def config_fields(self) -> dict[str, Any]:
        return {
            **super().config_fields(),
            "problem_type": self.problem_type,
            "thresholds": self.learned.thresholds,
        }

    def encode(self, split: datasets.Dataset) -> datasets.Dataset:
        return self.map_columns(split, [*self.text_columns, LABEL], encode_texts)

    def preprocess_logits(
        self, logits: torch.Tensor, inputs: Mapping[str, torch.Tensor]
    ) -> torch.Tensor:
        return self.problem.preprocess_logits(logits)

    def confidence(self, logits: torch.Tensor, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return self.problem.confidence(logits)

    def choose_thresholds(self, predictions: Predictions) -> ChosenThresholds:
        references = predictions.examples[LABEL][:]
        return self.problem.choose_thresholds(predictions.outputs, references)

    def decode(self, predictions: Predictions) -> list[Any]:
        return self.problem.decode(predictions.outputs, predictions.thresholds)

    # --- metrics ---

    def score(self, predictions: Sequence[Any], references: Sequence[Any]) -> Scores:
        return self.problem.score(predictions, references)

    # --- what the predictions are worth ---

    def guesses(
        self, training_examples: datasets.Dataset, examples: datasets.Dataset
    ) -> list[Sequence[Any]]:
        return self.problem.guesses(training_examples[LABEL][:], len(examples))

    def simple_predictions(
        self, training_examples: datasets.Dataset, splits: Sequence[datasets.Dataset]
    ) -> list[Sequence[Any]] | None:
        if not self.problem.has_classes or len(self.label_names) > word_classifier.MAX_CLASSES:
            return None
        return word_classifier.learn_and_predict(
            self._texts(training_examples),
            training_examples[LABEL][:],
            [self._texts(split) for split in splits],
            balanced=self.learned.label_weights is not None,
        )

    def _texts(self, split: datasets.Dataset) -> list[list[str]]:
        """The columns of the texts, of pairs two."""
        return [split[column][:] for column in self.text_columns]

    def intervals(
        self, predictions: Sequence[Any], references: Sequence[Any]
    ) -> dict[str, Interval]:
        return self.problem.intervals(predictions, references)

    def scores_by_class(
        self, predictions: Sequence[Any], references: Sequence[Any]
    ) -> dict[str, dict[str, float]]:
        return self.problem.scores_by_class(predictions, references)

    def count_labels(self, examples: datasets.Dataset) -> Counter[str]:
        if len(self.label_names) < 2:
            return Counter()
        return self._count_label_names(examples[LABEL])

    def total_of_shares(self, class_counts: Mapping[str, int], num_examples: int) -> int:
        if self.problem_type == MULTI_LABEL:
            return num_examples
        return super().total_of_shares(class_counts, num_examples)

    # --- how they are shown ---

    @property
    def prediction_features(self) -> datasets.Features:
        return self.problem.prediction_features

    def describe_predictions(self, predictions: Predictions) -> dict[str, list[Any]]:
        confidence = self.confidence_of_examples(predictions)
        decoded = self.decode(predictions)
        return self.problem.describe_predictions(decoded, predictions.outputs, confidence)

    def mistake(self, predicted: Any, true: Any, confidence: float) -> float:
        return self.problem.mistake(predicted, true, confidence)

    def show_label(self, example: Mapping[str, Any], label: Any) -> str:
        return self.problem.show_label(label)

    def draw(self, predictions: Predictions, path: Path, note: str = "") -> None:
        decoded = self.decode_once(predictions)
        self.problem.draw(decoded, predictions.examples[LABEL][:], path, note)

    def example_inputs(self, example: Mapping[str, Any]) -> dict[str, Any]:
        texts = [example[column] for column in self.text_columns]
        return dict(zip(("text", "text_pair"), texts))


def problem_type_of(config: PreTrainedConfig) -> str | None:
    """What a trained model predicts; None: it is a classifier that does not say so."""
    if config.problem_type:
        return config.problem_type
    return REGRESSION if config.num_labels == 1 else None


def _drop_unlabelled(name: str, split: datasets.Dataset, labels: Sequence[Any]) -> datasets.Dataset:
    """The examples of a split without those whose label is an empty list, if there are others."""
    labelled = [index for index, label in enumerate(labels) if label != []]
    num_left_out = len(labels) - len(labelled)
    if not num_left_out or not labelled:
        return split
    print(
        f"{name}: {num_left_out:,} of {len(labels):,} rows have no label and are"
        " left out; if that is a class of its own, give it a name, such as none"
    )
    return split.select(labelled)


def encode_texts(tokenizer, *columns: list) -> dict[str, list]:
    """Token ids of one text or two, cut to `tokenizer.model_max_length` (the longer one first),
    `labels`, and whether anything was `cut`."""
    *texts, labels = columns
    encoded = tokenizer(*texts, truncation=True)
    return {
        **encoded,
        "labels": labels,
        IS_CUT: [bool(encoding.overflowing) for encoding in encoded.encodings],
    }


def __getattr__(name: str) -> Any:
    """`Nli` was in this file."""
    if name == "Nli":
        from .nli import Nli

        return Nli
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
