"""Classify a text or a pair of texts (one class, several labels, or a value), and natural language inference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import datasets
import numpy as np
import sklearn.metrics
import torch
from transformers import EvalPrediction, PreTrainedConfig, pipeline

from ....modeling_minibert import MiniBertForSequenceClassification
from ...metrics import F1, Accuracy, MatthewsCorrelation, Pearson, Spearman
from ...report import plot_confusion, plot_scores, plot_values
from ..data import FILE, bad_value, check_columns, each_row, find_column, string_columns
from .base import LABEL, Labels, Pairs, Task, map_rows, saved_labels, shortened

PAIRS = (
    ("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"), ("text_a", "text_b"),
    ("text", "text_pair"), ("text1", "text2"), ("question", "sentence"), ("question", "passage"),
)  # fmt: skip
TEXTS = ("text", "sentence", "content", "review", "document", "tweet", "sentence1", "premise", "question")

SINGLE, MULTI, REGRESSION = "single_label_classification", "multi_label_classification", "regression"
FLOAT = datasets.Value("float32")
# Of each problem type the metric that chooses the best model, and the type of `LABEL`: a class number, 0 or 1 for each
# label, or a value.
KINDS = {
    SINGLE: ("accuracy", datasets.Value("int64")),
    MULTI: ("f1_micro", datasets.List(FLOAT)),
    REGRESSION: ("spearman", FLOAT),
}


class Classify(Task):
    """A sequence classifier. What kind it is (`problem_type`) follows from the labels, unless it is given."""

    name = "classify"
    model_class = MiniBertForSequenceClassification
    text_arguments = "text_column, pair_column"
    label_columns = ("label", "labels", "class", "target", "category", "score", "similarity", "sentiment")
    pairs_only: ClassVar[bool] = False

    # --- columns and rows ---

    def find_texts(self, split: datasets.Dataset) -> list[str]:
        text, pair = self.arguments.text_column, self.arguments.pair_column
        if text is None and pair is not None:
            raise ValueError("pair_column: it is the second text; name the first one with --text_column")
        columns = self._guess_texts(split) if text is None else [text] if pair is None else [text, pair]
        check_columns(split, columns, self.text_arguments)
        if self.pairs_only and len(columns) != 2:
            raise ValueError(
                f"pair_column: the two texts of {split[0][FILE]!r} are not clear; name them with --text_column and "
                f"--pair_column (columns of text: {', '.join(string_columns(split))})"
            )
        return columns

    def _guess_texts(self, split: datasets.Dataset) -> list[str]:
        strings = [column for column in string_columns(split) if column != self.find_labels(split)]
        for pair in PAIRS:
            if set(pair) <= set(strings):
                return list(pair)
        if not set(TEXTS) & set(strings) and len(strings) == 1:
            return strings
        return [find_column(split, None, [name for name in TEXTS if name in strings], "text_column", "the text")]

    def read_labels(self, split: datasets.Dataset) -> list[Any]:
        return each_row(split, self._checked, _plain(split, self.label_column))

    def _checked(self, value: Any) -> Any:
        """A label, or a list of different ones."""
        bad = value is None
        if isinstance(value, list):
            bad = not all(isinstance(item, (str, int)) for item in value) or len(set(value)) < len(value)
        if bad:
            use = "a list of names (or of their numbers), each of them once; not of 0 and 1" if value else "a label"
            raise bad_value(self.label_column, value, use)
        return value

    def classes(self, split: datasets.Dataset) -> list[set[str]]:
        values = _plain(split, self.find_labels(split))
        kind = self.arguments.problem_type or _problem_type(values)
        return super().classes(split) if kind == REGRESSION else [set(map(str, _items(value))) for value in values]

    def blank_label(self, row: dict[str, Any]) -> int | list[int]:
        return [0] * len(self.labels) if self.problem_type == MULTI else 0

    # --- labels ---

    def learn_labels(self, splits: datasets.DatasetDict, labels: Labels, config: PreTrainedConfig | None) -> Labels:
        asked, trained = self.arguments.problem_type, config and config.problem_type
        if config and config.num_labels == 1:
            trained = trained or REGRESSION  # as Transformers reads a model of one label
        if trained and asked not in (None, trained):
            raise ValueError(f"problem_type: {asked!r} is asked for, but the model was fine-tuned for {trained!r}")
        self.problem_type = trained or asked or _problem_type(next(iter(labels.values())))
        self.metric_for_best_model, self.label_feature = KINDS[self.problem_type]
        self.labels = self._names(splits, labels, config)
        return {name: each_row(splits[name], self._encoded, values) for name, values in labels.items()}

    def _names(self, splits: datasets.DatasetDict, values: Labels, config: PreTrainedConfig | None) -> list[str]:
        """The names of all labels, in the order of their ids."""
        given, saved = self.arguments.labels, saved_labels(config)
        listed = ", ".join(given)
        if self.problem_type == REGRESSION:
            if given:
                use = "where they are classes, say so with --problem_type single_label_classification"
                raise ValueError(f"labels: {listed} cannot name the values of {self.label_column!r}; {use}")
            return ["score"]
        if len(set(given)) != len(given):
            raise ValueError(f"labels: {listed} names one label twice")
        if saved and given and given != saved:
            raise ValueError(f"labels: {listed}, but the model knows {', '.join(saved)}")
        known = saved or given
        if "train" not in values:
            return known or [str(i) for i in range(config.num_labels)]  # a model that never named its labels
        seen = {item for value in values["train"] for item in _items(value)}
        if not all(isinstance(item, int) for item in seen):
            seen = {str(item) for item in seen}
        names, file = [str(item) for item in sorted(seen)], splits["train"][0][FILE]
        if config and known and any(_find_label(item, known) is None for item in seen):
            there = f"{', '.join(known)}, and {file!r} has {', '.join(names)}"
            raise ValueError(f"model: it was fine-tuned for the labels {there}; start from a model without such a head")
        if len(names) < 2 and not known:
            only = f"{file!r} has one label only ({', '.join(names)})"
            raise ValueError(f"{self.label_column}: {only}; there is nothing to learn")
        return known or names

    def _encoded(self, value: Any) -> int | float | list[float]:
        """What the model learns: a class number, 0 or 1 for each label, or a value."""
        if self.problem_type == REGRESSION:
            try:
                if np.isfinite(number := float(value)):
                    return number
            except (TypeError, ValueError):
                pass
            raise bad_value(self.label_column, value, "a number")
        if isinstance(value, list) != (self.problem_type == MULTI):
            use = "a list of labels" if self.problem_type == MULTI else "one label"
            raise bad_value(self.label_column, value, f"{use} ({self.problem_type})")
        ids = [_find_label(item, self.labels) for item in _items(value)]
        if None in ids:
            why = " is none of --labels" if self.arguments.labels else " was never seen in training"
            unknown = _items(value)[ids.index(None)]
            raise bad_value(self.label_column, unknown, f"one of {', '.join(self.labels)}", why)
        return ids[0] if self.problem_type == SINGLE else [float(i in ids) for i in range(len(self.labels))]

    def config_fields(self) -> dict[str, Any]:
        return {**super().config_fields(), "problem_type": self.problem_type}

    # --- the model's inputs and outputs ---

    def encode(self, split: datasets.Dataset, training: bool) -> datasets.Dataset:
        return map_rows(split, [*self.text_columns, LABEL], encode_texts, self.tokenizer)

    def preprocess_logits(self, logits: torch.Tensor, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The class, [batch]; 0 or 1 for every label, [batch, labels]; or the value, [batch]."""
        if self.problem_type == SINGLE:
            return logits.argmax(-1)
        if self.problem_type == MULTI:
            return (logits > 0).to(torch.uint8)  # a probability above one half
        return logits.float().squeeze(-1)

    def score(self, predictions: Sequence[Any], references: Sequence[Any]) -> dict[str, float]:
        if self.problem_type == REGRESSION:
            given = {"predictions": predictions, "references": references}
            mse = sklearn.metrics.mean_squared_error(references, predictions)
            return Pearson().compute(**given) | Spearman().compute(**given) | {"mse": float(mse)}
        given = {"predictions": np.asarray(predictions, np.int32), "references": np.asarray(references, np.int32)}
        f1 = {"f1_macro": F1().compute(**given)["f1"]}
        if self.problem_type == MULTI:
            return {"f1_micro": F1().compute(**given, average="micro")["f1"]} | f1 | Accuracy().compute(**given)
        return Accuracy().compute(**given) | f1 | MatthewsCorrelation().compute(**given)

    def draw(self, prediction: EvalPrediction, examples: datasets.Dataset, path: Path) -> None:
        predictions, references = prediction.predictions, examples[LABEL][:]
        if self.problem_type == REGRESSION:
            plot_values(predictions, references, path)
        elif self.problem_type == SINGLE:
            plot_confusion(predictions, references, self.labels, path)
        else:
            f1 = F1().compute(predictions=predictions, references=np.asarray(references, np.int32), average=None)["f1"]
            plot_scores(dict(zip(self.labels, f1)), "F1", path)

    def demonstrate(self, folder: Path, prediction: EvalPrediction, examples: datasets.Dataset) -> Pairs:
        classifier = pipeline("text-classification", str(folder))
        for row in examples:
            texts = [row[column] for column in self.text_columns]
            # one answer a label, the best one first
            (said,) = classifier([dict(zip(("text", "text_pair"), texts))], top_k=None, truncation=True)
            if self.problem_type == REGRESSION:
                answer, true = f"{said[0]['score']:.2f}", f"{row[LABEL]:.2f}"
            else:
                said = said[:1] if self.problem_type == SINGLE else [each for each in said if each["score"] > 0.5]
                answer = ", ".join(f"{each['label']} {each['score']:.0%}" for each in said)
                true = ", ".join(_items(self.readable(row[LABEL])))
            yield " | ".join(map(shortened, texts)), f"{answer or 'none'}; in the data: {true or 'none'}"

    def readable(self, label: Any) -> str | list[str] | float:
        if self.problem_type == REGRESSION:
            return float(label)
        if self.problem_type == SINGLE:
            return self.labels[label]
        return [name for name, there in zip(self.labels, label) if there]


class Nli(Classify):
    """Whether a premise entails a hypothesis. Labels have names, since `zero-shot` looks for the one of entailment."""

    name = "nli"
    pairs_only = True
    no_gold = ("-", "-1", -1)  # how SNLI marks pairs that its annotators did not agree on

    def read(self, splits: datasets.DatasetDict, config: PreTrainedConfig | None = None) -> datasets.DatasetDict:
        column, splits = self.find_labels(next(iter(splits.values()))), datasets.DatasetDict(splits)
        for name, split in splits.items():
            values = split[column][:] if column in split.column_names else []
            gold = [i for i, value in enumerate(values) if value not in self.no_gold]
            if len(gold) < len(values):
                print(f"{name}: {len(values) - len(gold):,} pairs without a gold label are left out")
                if not gold:
                    raise ValueError(f"label_column: no pair of {split[0][FILE]!r} ({name}) has a gold label")
                splits[name] = split.select(gold)
        read = super().read(splits, config)
        if self.problem_type != SINGLE or all(label.lstrip("-").isdigit() for label in self.labels):
            use = "give them in the order of their numbers, as --labels entailment neutral contradiction"
            raise ValueError(f"labels: {self.label_column!r} has no names for its labels; {use}")
        return read


def _plain(split: datasets.Dataset, column: str) -> list[Any]:
    """The labels of a column: names instead of the numbers of a ClassLabel, whole numbers as int, None where there is
    none."""
    feature = split.features[column]
    return [_plain_value(value, getattr(feature, "feature", feature)) for value in split[column]]


def _plain_value(value: Any, feature: Any) -> Any:
    if isinstance(value, list):
        return [_plain_value(item, feature) for item in value]
    if isinstance(feature, datasets.ClassLabel) and value is not None and value >= 0:
        return feature.int2str(value)
    if value == "" or (isinstance(value, float) and np.isnan(value)):  # an empty cell
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return str(value) if isinstance(value, bool) else value


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _problem_type(values: Iterable[Any]) -> str:
    values = [value for value in values if value is not None]
    if any(isinstance(value, list) for value in values):
        return MULTI
    try:  # numbers may be text: a table has text only in a column with an empty cell
        return SINGLE if all(float(value).is_integer() for value in values) else REGRESSION
    except (TypeError, ValueError):
        return SINGLE


def _find_label(label: int | str, labels: list[str]) -> int | None:
    """The id of a label: its name, or a number where the names are none."""
    if str(label) in labels:
        return labels.index(str(label))
    if isinstance(label, int) and 0 <= label < len(labels) and not any(name.isdigit() for name in labels):
        return label
    return None


def encode_texts(tokenizer, *columns: list) -> dict[str, list]:
    """Token ids of one text or two, cut to `tokenizer.model_max_length` (the longer one first), and `labels`."""
    *texts, labels = columns
    return {**tokenizer(*texts, truncation=True), "labels": labels}
