"""What a classifier learns about an example: one class of two or of several, several labels, or a
value.

`Classify` chooses one of these classes by `choose_problem`, once it has read the labels. Each class
reads from top to bottom: what the model learns, what is kept of its outputs, what is predicted, how
predictions are scored, and how they are shown.
"""

import abc
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import datasets
import numpy as np
import torch
from scipy.special import expit

from ...common.printable import printable
from ...data.cell_types import to_number
from ...evaluation.classification_metrics import (
    score_classes,
    score_labels,
    score_values,
    scores_by_class,
)
from ...evaluation.intervals import (
    Interval,
    intervals_of_classes,
    intervals_of_labels,
    intervals_of_values,
)
from ...evaluation.plots import plot_confusion, plot_values
from ..reading.columns import as_list, bad_value
from ..thresholds import ChosenThresholds, choose_threshold, to_log_odds
from .display import plot_f1_by_class
from .predictions import SCORE_FEATURE, STRING_FEATURE, Scores

# Values of `problem_type` in a model's config, as Transformers has them.
SINGLE_LABEL = "single_label_classification"
MULTI_LABEL = "multi_label_classification"
REGRESSION = "regression"
FLOAT_FEATURE = datasets.Value("float32")


class ClassificationProblem(abc.ABC):
    """What is learned about an example, and how predictions of it are made, scored and shown.

    Args:
        labels: The names of the labels, in the order of their ids.
    """

    problem_type: ClassVar[str]
    # The type of the column `LABEL`.
    label_feature: ClassVar[Any]
    metric_for_best_model: ClassVar[str]
    has_classes: ClassVar[bool] = True
    # Whether `LABEL` is the id of one class.
    has_class_ids: ClassVar[bool] = False
    # Whether `decode` decides by thresholds, which can be chosen.
    has_thresholds: ClassVar[bool] = False

    def __init__(self, labels: Sequence[str]):
        self.labels = labels

    @abc.abstractmethod
    def encode_label(self, label: Any, column: str, find_id: Callable[[Any], int]) -> Any:
        """What the model learns, in the form of `LABEL`.

        Args:
            label: The label as `Classify.read_labels` returned it.
            column: The name of its column, for errors.
            find_id: The id of a label; a ValueError for an unknown one.
        """

    @abc.abstractmethod
    def placeholder(self) -> Any:
        """Something in the form of `LABEL`, for an example without a label."""

    @abc.abstractmethod
    def preprocess_logits(self, logits: torch.Tensor) -> torch.Tensor:
        """What evaluation keeps of the logits, [batch, labels]."""

    @abc.abstractmethod
    def confidence(self, logits: torch.Tensor) -> torch.Tensor:
        """How sure the model is of each prediction, [batch], up to 1."""

    def choose_thresholds(self, outputs: np.ndarray, references: Sequence[Any]) -> ChosenThresholds:
        """The thresholds that are best on the validation examples; only where `has_thresholds`."""
        raise NotImplementedError(f"{type(self).__name__} has no thresholds")

    def decode(self, outputs: np.ndarray, thresholds: Sequence[float] | None = None) -> list[Any]:
        """What is predicted for each example, in the form of `LABEL`, from what
        `preprocess_logits` returned.

        Args:
            thresholds: A probability for each label, where `has_thresholds`; by default 0.5.
        """
        return outputs.tolist()

    @abc.abstractmethod
    def score(self, predictions: Sequence[Any], references: Sequence[Any]) -> Scores:
        """The metrics of what `decode` returned."""

    def scores_by_class(
        self, predictions: Sequence[Any], references: Sequence[Any]
    ) -> dict[str, dict[str, float]]:
        """precision, recall, f1 and support of each class that occurs in `references`."""
        names = {label_id: self.labels[label_id] for label_id in self.labels_in(references)}
        return scores_by_class(predictions, references, names)

    @abc.abstractmethod
    def intervals(
        self, predictions: Sequence[Any], references: Sequence[Any]
    ) -> dict[str, Interval]:
        """The 95 % intervals of the metrics."""

    @abc.abstractmethod
    def guesses(self, training_labels: Sequence[Any], num_examples: int) -> list[Sequence[Any]]:
        """Simple guesses from the labels of training, in one way or several."""

    def labels_in(self, references: Sequence[Any]) -> list[int]:
        """The ids of the labels that some example has."""
        return []

    def label_ids(self, label: Any) -> Sequence[int]:
        """The ids of the labels of one example."""
        return []

    # The types of the columns that `describe_predictions` returns.
    prediction_features: ClassVar[datasets.Features]

    @abc.abstractmethod
    def describe_predictions(
        self, decoded: Sequence[Any], outputs: np.ndarray, confidence: Sequence[float]
    ) -> dict[str, list[Any]]:
        """The predictions as a person reads them, by column.

        Args:
            decoded: What `decode` returned.
            outputs: What `preprocess_logits` returned.
            confidence: What `confidence` returned.
        """

    def mistake(self, predicted: Any, true: Any, confidence: float) -> float:
        """How much of a mistake a prediction is; 0 for none."""
        return 0.0 if predicted == true else confidence

    def show_label(self, label: Any) -> str:
        names = [self.labels[label_id] for label_id in self.label_ids(label)]
        return printable(", ".join(names)) or "none"

    @abc.abstractmethod
    def draw(
        self, predictions: Sequence[Any], references: Sequence[Any], path: Path, note: str
    ) -> None:
        """Draw what was predicted against what is true as PNG, with `note` in the title."""


class SingleLabel(ClassificationProblem):
    """One class of three or more. `LABEL` is its id."""

    problem_type = SINGLE_LABEL
    label_feature = datasets.Value("int64")
    metric_for_best_model = "accuracy"
    has_class_ids = True

    def encode_label(self, label: Any, column: str, find_id: Callable[[Any], int]) -> int:
        if isinstance(label, list):
            raise bad_value(column, label, f"one label ({SINGLE_LABEL})")
        return find_id(label)

    def placeholder(self) -> int:
        return 0

    def preprocess_logits(self, logits: torch.Tensor) -> torch.Tensor:
        """The id of the likeliest class, [batch]."""
        return logits.argmax(-1)

    def confidence(self, logits: torch.Tensor) -> torch.Tensor:
        """The probability of the likeliest class."""
        return logits.float().softmax(-1).amax(-1)

    def score(self, predictions: Sequence[int], references: Sequence[int]) -> Scores:
        return score_classes(predictions, references)

    def intervals(
        self, predictions: Sequence[int], references: Sequence[int]
    ) -> dict[str, Interval]:
        return intervals_of_classes(predictions, references)

    def guesses(self, training_labels: Sequence[int], num_examples: int) -> list[list[int]]:
        """The most frequent class."""
        [(most_frequent, _)] = Counter(training_labels).most_common(1)
        return [[most_frequent] * num_examples]

    def labels_in(self, references: Sequence[int]) -> list[int]:
        return np.unique(references).tolist()

    def label_ids(self, label: int) -> list[int]:
        return [label]

    prediction_features = datasets.Features({"label": STRING_FEATURE, "score": SCORE_FEATURE})

    def describe_predictions(
        self, decoded: Sequence[Any], outputs: np.ndarray, confidence: Sequence[float]
    ) -> dict[str, list[Any]]:
        """A class and its probability."""
        labels = [self.labels[label_id] for label_id in decoded]
        return {"label": labels, "score": list(confidence)}

    def draw(
        self, predictions: Sequence[int], references: Sequence[int], path: Path, note: str
    ) -> None:
        plot_confusion(predictions, references, self.labels, path, note)


class Binary(SingleLabel):
    """One class of two. The second class is predicted from its threshold on."""

    has_thresholds = True

    def preprocess_logits(self, logits: torch.Tensor) -> torch.Tensor:
        """The log-odds of the second class, [batch]."""
        return logits[:, 1].float() - logits[:, 0].float()

    def choose_thresholds(self, outputs: np.ndarray, references: Sequence[int]) -> ChosenThresholds:
        """The threshold is the one with the best macro F1, if it is better than ½ by more than
        chance."""
        choice = choose_threshold(outputs, np.asarray(references, np.int32), macro=True)
        thresholds = None
        if choice.is_kept:
            thresholds = [1 - choice.threshold, choice.threshold]
        return ChosenThresholds(thresholds, [choice])

    def decode(self, outputs: np.ndarray, thresholds: Sequence[float] | None = None) -> list[int]:
        threshold = 0.5
        if thresholds is not None:
            threshold = thresholds[1]
        is_second = outputs > to_log_odds(threshold)
        return is_second.astype(np.int32).tolist()

    def describe_predictions(
        self, decoded: Sequence[Any], outputs: np.ndarray, confidence: Sequence[float]
    ) -> dict[str, list[Any]]:
        """The class that is predicted by the threshold, and its probability."""
        labels = []
        scores = []
        for label_id, probability in zip(decoded, expit(outputs.astype(np.float64))):
            labels.append(self.labels[label_id])
            scores.append(float(probability if label_id == 1 else 1 - probability))
        return {"label": labels, "score": scores}


class MultiLabel(ClassificationProblem):
    """Any number of labels, each from its threshold on. `LABEL` has 0 or 1 for each label."""

    problem_type = MULTI_LABEL
    label_feature = datasets.List(FLOAT_FEATURE)
    metric_for_best_model = "f1_micro"
    has_thresholds = True

    def encode_label(self, label: Any, column: str, find_id: Callable[[Any], int]) -> list[float]:
        encoded = [0.0] * len(self.labels)
        for item in as_list(label):
            encoded[find_id(item)] = 1.0
        return encoded

    def placeholder(self) -> list[float]:
        return [0.0] * len(self.labels)

    def preprocess_logits(self, logits: torch.Tensor) -> torch.Tensor:
        """The log-odds of every label, [batch, labels]."""
        return logits.float()

    def confidence(self, logits: torch.Tensor) -> torch.Tensor:
        """Of the label that is least sure."""
        return logits.float().abs().sigmoid().amin(-1)

    def choose_thresholds(
        self, outputs: np.ndarray, references: Sequence[list[float]]
    ) -> ChosenThresholds:
        """The threshold of a label is the one with its best F1, if it is better than ½ by more than
        chance."""
        has_label = np.asarray(references, np.int32)
        choices = []
        for label_id in range(len(self.labels)):
            choice = choose_threshold(outputs[:, label_id], has_label[:, label_id], macro=False)
            choices.append(choice)
        thresholds = None
        if any(choice.is_kept for choice in choices):
            thresholds = [choice.threshold for choice in choices]
        return ChosenThresholds(thresholds, choices)

    def decode(
        self, outputs: np.ndarray, thresholds: Sequence[float] | None = None
    ) -> list[list[int]]:
        has_label = outputs > to_log_odds(thresholds or [0.5] * len(self.labels))
        return has_label.astype(np.int32).tolist()

    def score(
        self, predictions: Sequence[Sequence[int]], references: Sequence[Sequence[float]]
    ) -> Scores:
        return score_labels(predictions, references)

    def scores_by_class(
        self, predictions: Sequence[Any], references: Sequence[Any]
    ) -> dict[str, dict[str, float]]:
        if len(self.labels) == 1:
            return {}  # scikit-learn would take the label for classes 0 and 1
        return super().scores_by_class(predictions, references)

    def intervals(
        self, predictions: Sequence[Any], references: Sequence[Any]
    ) -> dict[str, Interval]:
        return intervals_of_labels(np.array(predictions), np.array(references))

    def guesses(
        self, training_labels: Sequence[Sequence[float]], num_examples: int
    ) -> list[Sequence[Any]]:
        """The most frequent label; or all labels."""
        shares = np.mean(training_labels, axis=0)
        most_frequent_label = np.zeros(len(shares))
        most_frequent_label[shares.argmax()] = 1
        all_labels = np.ones(len(shares))
        return [[most_frequent_label] * num_examples, [all_labels] * num_examples]

    def labels_in(self, references: Sequence[Sequence[float]]) -> list[int]:
        return np.flatnonzero(np.any(references, axis=0)).tolist()

    def label_ids(self, label: Sequence[float]) -> Sequence[int]:
        return np.flatnonzero(label)

    prediction_features = datasets.Features(
        {"label": datasets.List(STRING_FEATURE), "score": datasets.List(SCORE_FEATURE)}
    )

    def describe_predictions(
        self, decoded: Sequence[Any], outputs: np.ndarray, confidence: Sequence[float]
    ) -> dict[str, list[Any]]:
        """The labels of each example, and their probabilities."""
        labels = []
        scores = []
        for has_label, probabilities in zip(decoded, expit(outputs.astype(np.float64))):
            label_ids = np.flatnonzero(has_label)
            labels.append([self.labels[label_id] for label_id in label_ids])
            scores.append(probabilities[label_ids].tolist())
        return {"label": labels, "score": scores}

    def draw(
        self, predictions: Sequence[Any], references: Sequence[Any], path: Path, note: str
    ) -> None:
        plot_f1_by_class(self.scores_by_class(predictions, references), path, note)


class Regression(ClassificationProblem):
    """A value. `LABEL` is a number."""

    problem_type = REGRESSION
    label_feature = FLOAT_FEATURE
    metric_for_best_model = "spearman"
    has_classes = False

    def encode_label(self, label: Any, column: str, find_id: Callable[[Any], int]) -> float:
        number = to_number(label)
        if not np.isfinite(number):
            raise bad_value(column, label, f"a number ({REGRESSION})")
        return number

    def placeholder(self) -> float:
        return 0.0

    def preprocess_logits(self, logits: torch.Tensor) -> torch.Tensor:
        """The value, [batch]."""
        return logits.float().squeeze(-1)

    def confidence(self, logits: torch.Tensor) -> torch.Tensor:
        """1 for each value: the model says nothing of how sure it is."""
        return logits.new_ones(len(logits))

    def score(self, predictions: Sequence[float], references: Sequence[float]) -> Scores:
        return score_values(predictions, references)

    def intervals(
        self, predictions: Sequence[float], references: Sequence[float]
    ) -> dict[str, Interval]:
        return intervals_of_values(predictions, references)

    def guesses(self, training_labels: Sequence[float], num_examples: int) -> list[Sequence[Any]]:
        """The mean value."""
        return [[np.mean(training_labels)] * num_examples]

    prediction_features = datasets.Features({"score": SCORE_FEATURE})

    def describe_predictions(
        self, decoded: Sequence[Any], outputs: np.ndarray, confidence: Sequence[float]
    ) -> dict[str, list[Any]]:
        """The value."""
        return {"score": decoded}

    def mistake(self, predicted: float, true: float, confidence: float) -> float:
        """How far off the value is."""
        return abs(predicted - true)

    def show_label(self, label: float) -> str:
        return f"{label:.2f}"

    def draw(
        self, predictions: Sequence[float], references: Sequence[float], path: Path, note: str
    ) -> None:
        plot_values(predictions, references, path, note)


def choose_problem(problem_type: str, labels: Sequence[str]) -> ClassificationProblem:
    """The problem of a `problem_type` with these labels."""
    if problem_type == REGRESSION:
        return Regression(labels)
    if problem_type == MULTI_LABEL:
        return MultiLabel(labels)
    if len(labels) == 2:
        return Binary(labels)
    return SingleLabel(labels)
