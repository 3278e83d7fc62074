"""Classify texts or pairs of texts: one class, several labels, or a value; and entailment."""

import re
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
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ....keywords import checked_class
from ....modeling_minibert import MiniBertForSequenceClassification
from ...common.files import printable
from ...data.tables import to_number
from ...evaluation import intervals, word_classifier
from ...evaluation.intervals import Interval
from ...evaluation.metrics import class_scores, correlations
from ...evaluation.plots import plot_confusion, plot_values
from ...evaluation.word_classifier import WordClassifier
from ..data import FILE, as_list, bad_value, find_column, map_rows, plain_text_columns
from ..imbalance import class_weights, describe_weights
from ..thresholds import choose_threshold, describe_thresholds, shift_bias, to_log_odds
from .base import (
    CUT,
    LABEL,
    SCORE,
    STRING,
    Labels,
    Predictions,
    Scores,
    Task,
    pooling_fields,
    saved_labels,
)
from .label_cells import LIST_EXAMPLE, plain_label

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
# Names of the labels of inference in other data sets, such as supports, refutes, not enough info.
ENTAILS = re.compile(r"supports?|supported|supporting|implie[sd]|follows|yes|true")
CONTRADICTS = re.compile(
    r"contradict|refut|denie[sd]|unsupported|not?$|false$|not[ _-]?(support|true)"
)
SINGLE = "single_label_classification"
MULTI = "multi_label_classification"
REGRESSION = "regression"
FLOAT = datasets.Value("float32")
# Of each problem type the metric that chooses the best model, and the type of `LABEL`.
METRIC_AND_FEATURE = {
    SINGLE: ("accuracy", datasets.Value("int64")),  # the number of a class
    MULTI: ("f1_micro", datasets.List(FLOAT)),  # 0 or 1 for each label
    REGRESSION: ("spearman", FLOAT),  # a value
}
# Of more, there must be several rows for each.
MAX_LABELS_OF_FEW_ROWS = 1_000
MAX_LISTED_LABELS = 20
# Of more whole numbers, it is said that they may be values.
MAX_NUMBERED_CLASSES = 20
# How SNLI marks pairs that its annotators did not agree on; in numbers it is -1.
NO_GOLD_LABELS = ("-", "-1")


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
    simple_model = word_classifier.NAME
    model_class = MiniBertForSequenceClassification
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
    # Whether the saved model decides by its thresholds itself.
    thresholds_go_into_bias: ClassVar[bool] = True

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
        self.named_labels = list(self.labels)
        self.thresholds = None
        self.threshold_choices = []  # of each label; of two classes, of the second one

    # --- columns ---

    def find_texts(self, split: datasets.Dataset) -> list[str]:
        columns = []
        if self.text_column:
            columns.append(self.find(split, "text_column"))
        if self.pair_column:
            columns.append(self.find(split, "pair_column"))
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
        with suppress(ValueError):  # Rows to predict for have no label.
            label_column = self.find_labels(split)
        candidates = [column for column in plain_text_columns(split) if column != label_column]
        for pair in PAIR_COLUMNS:
            if set(pair) <= set(candidates):
                return list(pair)
        usual_names = [name for name in self.columns["text_column"] if name in candidates]
        if len(candidates) == 1 and not usual_names:
            return candidates
        return [find_column(split, "text_column", None, usual_names)]

    # --- labels ---

    def read(
        self, splits: datasets.DatasetDict, config: PreTrainedConfig | None = None
    ) -> datasets.DatasetDict:
        """As `Task.read`, without the rows that nobody has labelled yet, where each of the others
        has one class: doccano exports an empty list for them."""
        column = self.find_labels(next(iter(splits.values())))
        labels = {}
        for name, split in splits.items():
            if column in split.column_names:
                labels[name] = self._values(split, column)
        is_several = config is not None and config.problem_type == MULTI
        if not is_several and _are_classes_with_gaps(list(labels.values())):
            splits = datasets.DatasetDict(splits)
            for name, values in labels.items():
                labelled = [i for i, value in enumerate(values) if value != []]
                num_left_out = len(values) - len(labelled)
                if num_left_out and labelled:
                    print(
                        f"{name}: {num_left_out:,} of {len(values):,} rows have no label and are"
                        " left out; if that is a class of its own, give it a name, such as none"
                    )
                    splits[name] = splits[name].select(labelled)
        return super().read(splits, config)

    def read_labels(self, split: datasets.Dataset) -> list[Any]:
        return map_rows(split, self._checked, self._values(split, self.label_column))

    def _checked(self, value: Any) -> Any:
        """A label, or a list of different ones."""
        if value is None or isinstance(value, dict):
            raise bad_value(self.label_column, value, "a label")
        if isinstance(value, list):
            are_names = all(isinstance(item, (str, int)) for item in value)
            if not are_names or len(set(value)) < len(value):
                raise bad_value(self.label_column, value, LIST_EXAMPLE)
        return value

    def classes(self, split: datasets.Dataset) -> list[set[str]]:
        values = self._values(split, self.find_labels(split))
        if self._guess_type(values) == REGRESSION:
            return [set()] * len(split)
        return [set(map(str, as_list(value))) for value in values]

    def _values(self, split: datasets.Dataset, column: str) -> list[Any]:
        """The labels as they stand there, see `plain_label`."""
        names = names_of_feature(split.features[column])

        def read_value(value: Any) -> Any:
            return value if value in self.named_labels else plain_label(value, names)

        return map_rows(split, read_value, split[column])

    def _guess_type(self, values: Iterable[Any]) -> str:
        """The problem type: several labels if some are lists, values if all are numbers of which
        some have a fraction, else classes."""
        if self.regression:
            return REGRESSION
        if any(isinstance(value, list) for value in values):
            return MULTI
        if self.named_labels:
            return SINGLE
        numbers = [to_number(value) for value in values]
        if not np.isfinite(numbers).all() or all(map(float.is_integer, numbers)):
            return SINGLE
        return REGRESSION

    def learn_labels(
        self, splits: datasets.DatasetDict, labels: Labels, config: PreTrainedConfig | None
    ) -> Labels:
        model_type = None if config is None else problem_type_of(config)
        all_values = list(chain.from_iterable(labels.values()))
        if model_type != MULTI and all(is_list_of_one(value) for value in all_values):
            # As doccano writes classes.
            labels = {name: [value[0] for value in rows] for name, rows in labels.items()}
        if self.regression and model_type not in (None, REGRESSION):
            raise ValueError(
                "regression: the model was trained for classes; start from another one"
            )
        self.problem_type = model_type or self._guess_type(next(iter(labels.values())))
        if "train" in labels and self.problem_type == SINGLE and not self.named_labels:
            self._mention_numbers(splits["train"], labels["train"])
        self.metric_for_best_model, self.label_feature = METRIC_AND_FEATURE[self.problem_type]
        if {tuple(as_list(value)) for value in all_values} == {(0, 1), (1, 0)}:
            raise ValueError(
                f"label_column: {self.label_column!r} has [0, 1] and [1, 0] only, which name the"
                f" same labels; use {LIST_EXAMPLE}"
            )
        self.labels = self._names(splits, labels, config)
        self._id_of = {}
        for value in chain.from_iterable(labels.values()):
            for item in as_list(value):
                if item not in self._id_of:
                    self._id_of[item] = find_label(self.labels, item)
        encoded = {name: map_rows(splits[name], self._encoded, labels[name]) for name in labels}
        if "train" not in encoded:
            self.thresholds = getattr(config, "thresholds", None)
        elif self.class_weights or self.tune_threshold:
            self._balance(encoded["train"])
        return encoded

    def use_labels_of(self, config: PreTrainedConfig) -> None:
        self.problem_type = problem_type_of(config) or SINGLE
        _, self.label_feature = METRIC_AND_FEATURE[self.problem_type]
        self.labels = [config.id2label[label_id] for label_id in sorted(config.id2label)]
        self.thresholds = getattr(config, "thresholds", None)

    def placeholders(self, split: datasets.Dataset) -> list[Any]:
        if self.problem_type == MULTI:
            return [[0.0] * len(self.labels)] * len(split)
        return [0] * len(split)

    def _mention_numbers(self, split: datasets.Dataset, labels: Sequence[Any]) -> None:
        """Say how many whole numbers could be learned as values, if they are that many."""
        has_names = isinstance(split.features[self.label_column], datasets.ClassLabel)
        if has_names or not all(isinstance(label, int) for label in labels):
            return
        num_classes = len(set(labels))
        if num_classes > MAX_NUMBERED_CLASSES:
            print(
                f"{printable(self.label_column)}: {num_classes:,} different whole numbers are"
                " learned as classes; if they are values, such as ratings, give --regression true"
            )

    def _balance(self, training_labels: list[Any]) -> None:
        """Settle the weights of the loss; refuse weights and thresholds that these labels cannot
        have."""
        if self.problem_type == REGRESSION:
            raise ValueError(
                f"class_weights, tune_threshold: {self.label_column!r} has values, not classes"
            )
        if self.tune_threshold and not self._has_threshold:
            raise ValueError(
                f"tune_threshold: {self.label_column!r} has {len(self.labels)} classes;"
                " it needs two classes, or several labels a row"
            )
        self.metric_for_best_model = "f1_macro"
        if not self.class_weights:
            return
        counts: Counter[str] = Counter()
        for label in training_labels:
            counts.update(self.labels[label_id] for label_id in self._label_ids(label))
        num_rows = len(training_labels) if self.problem_type == MULTI else None
        self.label_weights = class_weights(self.class_weights, self.labels, counts, num_rows)
        print(describe_weights(self.labels, self.label_weights))

    def _label_ids(self, label: Any) -> Iterable[int]:
        """The ids of a row's labels, of what `_encoded` returned."""
        return np.flatnonzero(label) if self.problem_type == MULTI else [label]

    def _names(
        self, splits: datasets.DatasetDict, values: Labels, config: PreTrainedConfig | None
    ) -> list[str]:
        """The names of all labels, in the order of their ids: those of the model, those of
        `--labels`, those of the column, or else what occurs in training."""
        model_labels = saved_labels(config)
        if model_labels and self.named_labels and self.named_labels != model_labels:
            raise ValueError(
                f"labels: {', '.join(self.named_labels)}, but the model knows"
                f" {', '.join(model_labels)}"
            )
        if self.problem_type == REGRESSION:
            return ["score"]
        label_names = model_labels or self.named_labels
        if "train" not in values:
            # Without names, LABEL_0, …
            return label_names or [config.id2label[i] for i in sorted(config.id2label)]
        train = splits["train"]
        different_values = set()
        for value in values["train"]:
            different_values.update(as_list(value))
        if all(isinstance(value, int) for value in different_values):
            names_in_training = list(map(str, sorted(different_values)))
        else:
            names_in_training = sorted(map(str, different_values))
        if len(names_in_training) > max(MAX_LABELS_OF_FEW_ROWS, len(train) // 2):
            raise ValueError(
                f"label_column: {len(names_in_training):,} labels are too many to learn"
                f" ({self._describe_labels(splits, names_in_training)}); name another column"
            )
        if not label_names:
            label_names = names_of_feature(train.features[self.label_column]) or names_in_training
        label_ids = {find_label(label_names, value) for value in different_values}
        description = self._describe_labels(splits, names_in_training)
        self._check_names(label_names, label_ids, model_labels, values["train"], description)
        return label_names

    def _describe_labels(self, splits: datasets.DatasetDict, names: Sequence[str]) -> str:
        """Which labels a file has, for messages."""
        first_split = next(iter(splits.values()))
        listed = ", ".join(names[:9])
        if len(names) > 9:
            listed += " …"
        return f"{first_split[0][FILE]!r} has {listed}"

    def _check_names(
        self,
        label_names: Sequence[str],
        label_ids: set[int | None],
        model_labels: Sequence[str] | None,
        training_values: Sequence[Any],
        description: str,
    ) -> None:
        """Refuse labels that the model has not, names that no row has, and rows that all have the
        same label.

        Args:
            label_ids: Those that occur in training; None: some label is none of `label_names`.
            description: Which labels the file has.
        """
        if model_labels:
            if None in label_ids:
                raise ValueError(
                    "model: it was fine-tuned for the labels"
                    f" {', '.join(model_labels)}, and {description};"
                    " start from a model without such a head"
                )
            return
        # (Where a label is none of --labels, its row is named later.)
        if self.named_labels and None not in label_ids and len(label_ids) < len(label_names):
            absent = []
            for label_id, name in enumerate(label_names):
                if label_id not in label_ids:
                    absent.append(repr(name))
            raise ValueError(
                f"labels: no row has the label {', '.join(absent)};"
                f" leave them out, or correct them; {description}"
            )
        some_rows_lack_it = [] in training_values  # a single label can be learned then
        if len(label_ids) < 2 and not some_rows_lack_it:
            raise ValueError(f"{self.label_column}: {description} only; there is nothing to learn")

    def _encoded(self, value: Any) -> int | float | list[float]:
        """What the model learns: a class number, 0 or 1 for each label, or a value."""
        if self.problem_type == REGRESSION:
            number = to_number(value)
            if not np.isfinite(number):
                raise bad_value(self.label_column, value, f"a number ({REGRESSION})")
            return number
        if isinstance(value, list) and self.problem_type == SINGLE:
            raise bad_value(self.label_column, value, f"one label ({SINGLE})")
        label_ids = []
        for item in as_list(value):
            if self._id_of[item] is None:
                raise self._unknown_label(item)
            label_ids.append(self._id_of[item])
        if self.problem_type == SINGLE:
            return label_ids[0]
        return [float(label_id in label_ids) for label_id in range(len(self.labels))]

    def _unknown_label(self, label: Any) -> ValueError:
        reason = " is none of --labels" if self.named_labels else " was never seen in training"
        listed = ", ".join(self.labels[:MAX_LISTED_LABELS])
        if len(self.labels) > MAX_LISTED_LABELS:
            listed += " …"
        return bad_value(self.label_column, label, f"one of {listed}", reason)

    def config_fields(self) -> dict[str, Any]:
        return {
            **super().config_fields(),
            **pooling_fields(self.pooling),
            "problem_type": self.problem_type,
            "thresholds": self.thresholds,
        }

    # --- inputs, predictions, scores ---

    def encode(self, split: datasets.Dataset) -> datasets.Dataset:
        return self.map_columns(split, [*self.text_columns, LABEL], encode_texts)

    @property
    def _has_threshold(self) -> bool:
        return self.problem_type == MULTI or (self.problem_type == SINGLE and len(self.labels) == 2)

    def preprocess_logits(
        self, logits: torch.Tensor, inputs: Mapping[str, torch.Tensor]
    ) -> torch.Tensor:
        """The class, [batch]; of two classes, the log-odds of the second one, [batch]; the log-odds
        of every label, [batch, labels]; or the value, [batch]."""
        if self.problem_type == SINGLE and self._has_threshold:
            return logits[:, 1].float() - logits[:, 0].float()
        if self.problem_type == SINGLE:
            return logits.argmax(-1)
        if self.problem_type == MULTI:
            return logits.float()
        return logits.float().squeeze(-1)

    def tune(self, predictions: Predictions) -> None:
        """The thresholds are those with the best F1 of each label (of two classes: with the best
        macro F1), where they are better than ½ by more than chance."""
        if not self.tune_threshold:
            return
        log_odds = predictions.outputs
        references = np.asarray(predictions.examples[LABEL][:], np.int32)
        if self.problem_type == MULTI:
            self.threshold_choices = []
            for label_id in range(len(self.labels)):
                choice = choose_threshold(
                    log_odds[:, label_id], references[:, label_id], both=False
                )
                self.threshold_choices.append(choice)
            self.thresholds = [choice.threshold for choice in self.threshold_choices]
        else:
            choice = choose_threshold(log_odds, references, both=True)
            self.threshold_choices = [choice]
            self.thresholds = [1 - choice.threshold, choice.threshold]
        if not any(choice.is_kept for choice in self.threshold_choices):
            self.thresholds = None

    def settle(self, model: PreTrainedModel) -> bool:
        for line in self.describe_decision():
            print(f"tune_threshold: {line}")
        if self.thresholds is None or not self.thresholds_go_into_bias:
            return False
        shift_bias(model, self.thresholds)
        self.thresholds = None
        return True

    def describe_decision(self) -> list[str]:
        if not self.threshold_choices:
            return []
        return describe_thresholds(self.threshold_choices, self.labels)

    def decode(self, predictions: Predictions) -> list[Any]:
        outputs = predictions.outputs
        if self._has_threshold:
            thresholds = np.array(self.thresholds or [0.5] * len(self.labels))
            if self.problem_type == SINGLE:
                thresholds = thresholds[1]  # that of the second class
            outputs = (outputs > to_log_odds(thresholds)).astype(np.int32)
        return outputs.tolist()

    @property
    def prediction_features(self) -> datasets.Features:
        if self.problem_type == REGRESSION:
            return datasets.Features({"score": SCORE})
        if self.problem_type == MULTI:
            return datasets.Features(
                {"label": datasets.List(STRING), "score": datasets.List(SCORE)}
            )
        return super().prediction_features

    def describe_predictions(self, predictions: Predictions) -> dict[str, list[Any]]:
        """A class and its probability; of several labels, those of the row and theirs; or a
        value."""
        decoded = self.decode(predictions)
        if self.problem_type == REGRESSION:
            return {"score": decoded}
        if not self._has_threshold:
            return super().describe_predictions(predictions)
        is_positive = np.asarray(decoded, bool)
        probabilities = 1 / (1 + np.exp(-predictions.outputs.astype(np.float64)))
        labels = []
        scores = []
        for row, has_label in zip(probabilities, is_positive):
            if self.problem_type == MULTI:
                labels.append([self.labels[label_id] for label_id in np.flatnonzero(has_label)])
                scores.append(row[has_label].tolist())
            else:
                labels.append(self.labels[int(has_label)])
                scores.append(float(row if has_label else 1 - row))
        return {"label": labels, "score": scores}

    def score(self, predictions: Sequence[Any], references: Sequence[Any]) -> Scores:
        """Macro F1 is the mean over the labels that occur in `references`."""
        from sklearn.metrics import accuracy_score, matthews_corrcoef

        if self.problem_type == REGRESSION:
            return self._score_values(predictions, references)
        predictions = np.asarray(predictions, np.int32)
        references = np.asarray(references, np.int32)
        label_ids = self.labels_in(references)
        accuracy = float(accuracy_score(references, predictions))
        f1_macro = None
        if label_ids:
            f1_macro = self._f1(predictions, references, "macro", label_ids)
        if self.problem_type == MULTI:
            f1_micro = None
            if label_ids:
                f1_micro = self._f1(predictions, references, "micro", range(len(self.labels)))
            return {"f1_micro": f1_micro, "f1_macro": f1_macro, "accuracy": accuracy}
        matthews = None
        if len(label_ids) > 1:
            matthews = float(matthews_corrcoef(references, predictions))
        return {"accuracy": accuracy, "f1_macro": f1_macro, "matthews_correlation": matthews}

    def _score_values(self, predictions: Sequence[float], references: Sequence[float]) -> Scores:
        predictions = np.asarray(predictions, np.float32)
        scores: Scores = dict(correlations(predictions, references))
        if len(set(references)) < 2:
            scores = dict.fromkeys(scores)
        errors = predictions - np.asarray(references)
        scores["mse"] = float(np.mean(errors**2))
        return scores

    def guesses(
        self, training_rows: datasets.Dataset, examples: datasets.Dataset
    ) -> list[Sequence[Any]]:
        """The most frequent class; the most frequent one of several labels, or all of them; or the
        mean value."""
        if self.problem_type == SINGLE:
            return super().guesses(training_rows, examples)
        means = np.mean(training_rows[LABEL][:], axis=0)
        if self.problem_type == REGRESSION:
            return [[means] * len(examples)]
        most_frequent_label = np.zeros(len(means))
        most_frequent_label[means.argmax()] = 1
        all_labels = np.ones(len(means))
        return [[most_frequent_label] * len(examples), [all_labels] * len(examples)]

    def simple_predictions(
        self, training_rows: datasets.Dataset, splits: Sequence[datasets.Dataset]
    ) -> list[Sequence[Any]] | None:
        if self.problem_type == REGRESSION or len(self.labels) > word_classifier.MAX_CLASSES:
            return None
        classifier = WordClassifier(balanced=self.label_weights is not None)
        columns = [training_rows[column][:] for column in self.text_columns]
        try:
            classifier.fit(columns, training_rows[LABEL][:])
        except ValueError:  # texts without words
            return None
        predictions = []
        for split in splits:
            columns = [split[column][:] for column in self.text_columns]
            predictions.append(classifier.predict(columns))
        return predictions

    def by_class(
        self, predictions: Sequence[Any], references: Sequence[Any]
    ) -> dict[str, dict[str, float]]:
        if self.problem_type != SINGLE and len(self.labels) < 2:
            return {}  # a value, or one label, which scikit-learn would take for classes
        names = {label_id: self.labels[label_id] for label_id in self.labels_in(references)}
        return class_scores(predictions, references, names)

    def confidence(self, logits: torch.Tensor, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        if self.problem_type == SINGLE:
            return super().confidence(logits, inputs)
        return logits.float().abs().sigmoid().amin(-1)  # of the label that is least sure

    def intervals(
        self, predictions: Sequence[Any], references: Sequence[Any]
    ) -> dict[str, Interval]:
        if self.problem_type == REGRESSION:
            return intervals.of_values(predictions, references)
        if self.problem_type == MULTI:
            return intervals.of_labels(np.array(predictions), np.array(references))
        return intervals.of_classes(predictions, references)

    def mistake(self, predicted: Any, true: Any, confidence: float) -> float:
        """Of a value, how far off it is."""
        if self.problem_type == REGRESSION:
            return abs(predicted - true)
        return super().mistake(predicted, true, confidence)

    def labels_in(self, references: Sequence[Any]) -> list[int]:
        """The ids of the labels that some row has."""
        if self.problem_type == MULTI:
            return np.flatnonzero(np.any(references, axis=0)).tolist()
        if self.problem_type == SINGLE:
            return np.unique(references).tolist()
        return []

    def _f1(
        self, predictions: np.ndarray, references: np.ndarray, average: str, labels: Sequence[int]
    ) -> float:
        from sklearn.metrics import f1_score

        labels = list(labels)
        if self.problem_type == MULTI and len(self.labels) == 1:
            labels = [1]  # scikit-learn takes a single label for classes 0 and 1
        f1 = f1_score(references, predictions, average=average, labels=labels, zero_division=0)
        return float(f1)

    def example_inputs(self, row: Mapping[str, Any]) -> dict[str, Any]:
        texts = [row[column] for column in self.text_columns]
        return dict(zip(("text", "text_pair"), texts))

    def draw(self, predictions: Predictions, path: Path, note: str = "") -> None:
        decoded = self.decode(predictions)
        references = predictions.examples[LABEL][:]
        if self.problem_type == REGRESSION:
            plot_values(decoded, references, path, note)
        elif self.problem_type == SINGLE:
            plot_confusion(decoded, references, self.labels, path, note)
        else:
            super().draw(predictions, path, note)

    def show_label(self, row: Mapping[str, Any], label: Any) -> str:
        if self.problem_type == REGRESSION:
            return f"{label:.2f}"
        names = [self.labels[label_id] for label_id in self._label_ids(label)]
        return printable(", ".join(names)) or "none"


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
        splits = datasets.DatasetDict(splits)
        column = self.find_labels(next(iter(splits.values())))
        for name, split in splits.items():
            if column not in split.column_names:
                continue
            has_gold = [str(value) not in NO_GOLD_LABELS for value in split[column]]
            num_left_out = has_gold.count(False)
            if num_left_out:
                print(f"{name}: {num_left_out:,} pairs without a gold label are left out")
                splits[name] = split.select(np.flatnonzero(has_gold))
        read_splits = super().read(splits, config)
        if all(label.lstrip("-").isdigit() for label in self.labels):
            raise ValueError(
                f"labels: {self.label_column!r} has no names for its labels; give them in the order"
                " of their numbers, as --labels entailment neutral contradiction"
            )
        if "train" in splits and not _name_entailment(self.labels):
            print(
                "labels: none begins with 'entail', so that zero-shot classification takes the last"
                f" one, {printable(self.labels[-1])!r}, for entailment, and the first,"
                f" {printable(self.labels[0])!r}, for contradiction;"
                " if that is wrong, give them in another order by --labels"
            )
        return read_splits

    def _names(
        self, splits: datasets.DatasetDict, values: Labels, config: PreTrainedConfig | None
    ) -> list[str]:
        """In the order that Transformers' zero-shot classification expects where no name begins
        with "entail": what contradicts comes first, and what entails last."""
        names = super()._names(splits, values, config)
        if saved_labels(config) or self.named_labels or _name_entailment(names):
            return names
        return sorted(names, key=_entailment_rank)


def _name_entailment(labels: Sequence[str]) -> bool:
    """Whether `ZeroShotClassificationPipeline` finds the label of entailment by its name."""
    return any(label.lower().startswith("entail") for label in labels)


def _entailment_rank(label: str) -> int:
    """0 for a name that contradicts, 2 for one that entails, 1 for others."""
    if CONTRADICTS.match(label.lower()):
        return 0
    if ENTAILS.fullmatch(label.lower()):
        return 2
    return 1


def names_of_feature(feature: Any) -> Sequence[str] | None:
    """The names of the classes of a column, or of a column of lists; None where it has none."""
    item_feature = getattr(feature, "feature", feature)
    return getattr(item_feature, "names", None)


def problem_type_of(config: PreTrainedConfig) -> str | None:
    """What a trained model predicts; None: it is a classifier that does not say so."""
    if config.problem_type:
        return config.problem_type
    return REGRESSION if config.num_labels == 1 else None


def is_list_of_one(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 1


def _are_classes_with_gaps(columns: Sequence[list[Any]]) -> bool:
    """Whether labels (columns of all splits) are lists of one class each, of two or more classes,
    beside empty ones. With a single label, an empty list says that a row lacks it."""
    classes = set()
    has_gaps = False
    for value in chain.from_iterable(columns):
        if value == []:
            has_gaps = True
        elif is_list_of_one(value):
            classes.add(str(value[0]))
        else:
            return False
    return has_gaps and len(classes) > 1


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


def encode_texts(tokenizer, *columns: list) -> dict[str, list]:
    """Token ids of one text or two, cut to `tokenizer.model_max_length` (the longer one first),
    `labels`, and whether anything was `cut`."""
    *texts, labels = columns
    encoded = tokenizer(*texts, truncation=True)
    return {
        **encoded,
        "labels": labels,
        CUT: [bool(encoding.overflowing) for encoding in encoded.encodings],
    }
