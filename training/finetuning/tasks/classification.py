"""Classify a text or a pair of texts: one class, several labels, or a value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import datasets
import numpy as np
import sklearn.metrics
import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    EvalPrediction,
    PreTrainedConfig,
    pipeline,
)

from ....modeling_minibert import MiniBertForSequenceClassification
from ...metrics import F1, Accuracy, MatthewsCorrelation, Pearson, Spearman
from ...report import plot_confusion, plot_scores, plot_values
from ..data import FILE, check_columns, check_texts, find_column, string_columns, where
from .base import Task, check_same_labels, label_fields, map_rows, saved_labels, shortened

PAIRS = (
    ("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"), ("text_a", "text_b"),
    ("text", "text_pair"), ("text1", "text2"), ("question", "sentence"), ("question", "passage"),
)  # fmt: skip
TEXTS = ("text", "sentence", "content", "review", "document", "tweet", "sentence1", "premise", "question")
LABELS = ("label", "labels", "class", "target", "category", "score", "similarity", "sentiment")

SINGLE, MULTI, REGRESSION = "single_label_classification", "multi_label_classification", "regression"
METRICS = {
    SINGLE: ("accuracy", "f1_macro", "matthews_correlation"),
    MULTI: ("f1_micro", "f1_macro", "accuracy"),
    REGRESSION: ("spearman", "pearson", "mse"),
}  # the first one chooses the best model
LABEL = "_label"  # the column that `read` adds: a class number, a list of 0 and 1, or a value


class Classify(Task):
    """A sequence classifier. What kind it is (`problem_type`) follows from the labels, unless it is given."""

    name = "classify"
    model_class = MiniBertForSequenceClassification
    pairs_only: ClassVar[bool] = False

    def read(self, splits: datasets.DatasetDict, config: PreTrainedConfig | None = None) -> datasets.DatasetDict:
        first = next(iter(splits.values()))
        self.label_column = self.find_labels(first)
        self.text_columns = self._find_texts(first)
        for split in splits.values():
            check_columns(split, [self.label_column], "label_column")
            check_columns(split, self.text_columns, "text_column")
            check_texts(split, self.text_columns)
        values = {name: _plain(split, self.label_column) for name, split in splits.items()}
        splits = self._drop_unlabelled(splits, values)
        for name, split in splits.items():
            for index, value in enumerate(values[name]):
                if value is None:
                    raise ValueError(f"{where(split[index])}: {self.label_column!r} is empty; every row needs a label")
                if isinstance(value, list) and not _are_names(value):
                    raise ValueError(
                        f"{where(split[index])}: {self.label_column}={value!r} is not legal: a list of names (or of"
                        " their numbers), each of them once; not of 0 and 1"
                    )

        known = saved_labels(config) if config is not None else None
        if config is not None and (config.problem_type is not None or config.num_labels == 1):
            self.problem_type = config.problem_type or REGRESSION  # as Transformers reads a model of one label
            if self.arguments.problem_type not in (None, self.problem_type):
                raise ValueError(
                    f"problem_type: {self.arguments.problem_type!r} is asked for, but the model was fine-tuned for "
                    f"{self.problem_type!r}"
                )
        else:
            self.problem_type = self.arguments.problem_type or _problem_type(next(iter(values.values())))
        self.metric_for_best_model = METRICS[self.problem_type][0]
        if self.problem_type == REGRESSION:
            if self.arguments.labels:
                raise ValueError(
                    f"labels: {', '.join(self.arguments.labels)} cannot name the values of {self.label_column!r};"
                    " where they are classes, say so with --problem_type single_label_classification"
                )
            self.labels = ["score"]
        else:
            self.labels = self._learn_labels(splits, values, config, known)
        read = {}
        for name, split in splits.items():
            encoded = [self._encode_label(value, split, index) for index, value in enumerate(values[name])]
            read[name] = self._with_labels(split, encoded)
        return datasets.DatasetDict(read)

    def find_labels(self, split: datasets.Dataset) -> str:
        return find_column(split, self.arguments.label_column, LABELS, "label_column", "the label")

    def read_unlabelled(self, split: datasets.Dataset) -> datasets.Dataset:
        check_columns(split, self.text_columns, "text_column")
        check_texts(split, self.text_columns)
        nothing = {SINGLE: 0, MULTI: [0.0] * len(self.labels), REGRESSION: 0.0}[self.problem_type]
        return self._with_labels(split, [nothing] * len(split))

    def group_columns(self, split: datasets.Dataset) -> list[str]:
        return self._find_texts(split)

    def classes(self, split: datasets.Dataset) -> list[set[str]]:
        column = self.find_labels(split)
        check_columns(split, [column], "label_column")
        values = _plain(split, column)
        kind = self.arguments.problem_type or _problem_type(values)
        return super().classes(split) if kind == REGRESSION else [set(map(str, _items(value))) for value in values]

    def config_fields(self) -> dict[str, Any]:
        return {**label_fields(self.labels), "problem_type": self.problem_type}

    def encode(self, split: datasets.Dataset, training: bool) -> datasets.Dataset:
        # only what it needs: other columns must not make it encode again
        needed = split.select_columns([*self.text_columns, LABEL])
        return map_rows(needed, encode_texts, self.tokenizer, columns=self.text_columns, desc="Tokenizing")

    def collator(self) -> Callable[[list[dict[str, Any]]], dict[str, torch.Tensor]]:
        return DataCollatorWithPadding(self.tokenizer)

    def preprocess_logits(self, logits: torch.Tensor, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The class, [batch]; 0 or 1 for every label, [batch, labels]; or the value, [batch]."""
        if self.problem_type == SINGLE:
            return logits.argmax(-1)
        if self.problem_type == MULTI:
            return (logits > 0).to(torch.uint8)  # a probability above one half
        return logits.float().squeeze(-1)

    def compute_metrics(self, prediction: EvalPrediction, examples: datasets.Dataset) -> dict[str, float]:
        given = {"predictions": prediction.predictions, "references": prediction.label_ids}
        if self.problem_type == REGRESSION:
            mse = sklearn.metrics.mean_squared_error(prediction.label_ids, prediction.predictions)
            return Pearson().compute(**given) | Spearman().compute(**given) | {"mse": float(mse)}
        if self.problem_type == MULTI:
            given = {name: np.asarray(value).astype(np.int32) for name, value in given.items()}
            f1 = {f"f1_{average}": F1().compute(**given, average=average)["f1"] for average in ("micro", "macro")}
            return f1 | Accuracy().compute(**given)
        f1 = F1().compute(**given, average="macro")["f1"]
        return Accuracy().compute(**given) | {"f1_macro": f1} | MatthewsCorrelation().compute(**given)

    def metric_names(self, examples: datasets.Dataset) -> list[str]:
        return list(METRICS[self.problem_type])

    def predicted(self, prediction: EvalPrediction, examples: datasets.Dataset) -> list[str | list[str] | float]:
        if self.problem_type == REGRESSION:
            return [float(value) for value in prediction.predictions]
        if self.problem_type == SINGLE:
            return [self.labels[label] for label in prediction.predictions]
        return [[name for name, there in zip(self.labels, row) if there] for row in prediction.predictions]

    def draw(self, prediction: EvalPrediction, examples: datasets.Dataset, path: Path) -> None:
        predictions, references = prediction.predictions, prediction.label_ids
        if self.problem_type == REGRESSION:
            plot_values(predictions, references, path)
        elif self.problem_type == SINGLE:
            plot_confusion(predictions, references, self.labels, path)
        else:
            scores = {
                label: F1().compute(
                    predictions=np.asarray(predictions)[:, i].astype(np.int32),
                    references=np.asarray(references)[:, i].astype(np.int32),
                    average="binary",
                )["f1"]
                for i, label in enumerate(self.labels)
            }
            plot_scores(scores, "F1", path)

    def show(self, folder: Path, examples: datasets.Dataset) -> list[str]:
        model = AutoModelForSequenceClassification.from_pretrained(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        classifier = pipeline("text-classification", model=model, tokenizer=tokenizer)
        lines = []
        for row in examples.select(range(min(4, len(examples)))):
            texts = [row[column] for column in self.text_columns]
            given = dict(zip(("text", "text_pair"), texts))
            said = classifier(given, top_k=None, truncation=True)
            said = said if isinstance(said, list) else [said]
            lines += [
                f"  {' | '.join(map(shortened, texts))}",
                f"    {self._describe(said)}; in the data: {self._true(row[LABEL])}",
            ]
        return lines

    # --- columns and labels ---

    def _find_texts(self, split: datasets.Dataset) -> list[str]:
        text, pair = self.arguments.text_column, self.arguments.pair_column
        if text is None and pair is not None:
            raise ValueError("pair_column: it is the second text; name the first one with --text_column")
        if text is not None:
            check_columns(split, [text], "text_column")
            check_columns(split, [] if pair is None else [pair], "pair_column")
            columns = [text] if pair is None else [text, pair]
        else:
            columns = self._guess_texts(split)
        if self.pairs_only and len(columns) != 2:
            raise ValueError(
                f"pair_column: the two texts of {split[0][FILE]!r} are not clear; name them with --text_column and "
                f"--pair_column (columns of text: {', '.join(string_columns(split))})"
            )
        return columns

    def _guess_texts(self, split: datasets.Dataset) -> list[str]:
        label = self.find_labels(split)
        strings = [column for column in string_columns(split) if column != label]
        for pair in PAIRS:
            if set(pair) <= set(strings):
                return list(pair)
        if not set(TEXTS) & set(strings) and len(strings) == 1:
            return strings
        return [find_column(split, None, [name for name in TEXTS if name in strings], "text_column", "the text")]

    def _drop_unlabelled(self, splits: datasets.DatasetDict, values: dict[str, list]) -> datasets.DatasetDict:
        """`splits` and `values` without the rows that no label is meant to be learned from: none here."""
        return splits

    def _learn_labels(
        self,
        splits: datasets.DatasetDict,
        values: dict[str, list],
        config: PreTrainedConfig | None,
        known: list[str] | None,
    ) -> list[str]:
        """The names of all labels, in the order of their ids."""
        given = self.arguments.labels
        if len(set(given)) != len(given):
            raise ValueError(f"labels: {', '.join(given)} names one label twice")
        if known is not None and given and given != known:
            raise ValueError(f"labels: {', '.join(given)}, but the model knows {', '.join(known)}")
        known = known or given
        if "train" not in values:
            return known or [str(i) for i in range(config.num_labels)]  # a model that never named its labels
        seen = {item for value in values["train"] for item in _items(value)}
        if not all(isinstance(item, int) for item in seen):
            seen = {str(item) for item in seen}
        labels = [str(item) for item in sorted(seen)]
        if config is not None and known:
            unknown = [str(item) for item in sorted(seen) if _find_label(item, known) is None]
            check_same_labels(known, labels if unknown else known, splits["train"][0][FILE])
        if known:
            return known
        if len(labels) < 2:
            raise ValueError(
                f"{self.label_column}: {splits['train'][0][FILE]!r} has one label only ({', '.join(labels)}); there is "
                "nothing to learn"
            )
        return labels

    def _with_labels(self, split: datasets.Dataset, labels: list) -> datasets.Dataset:
        feature = datasets.Value("int64" if self.problem_type == SINGLE else "float32")
        feature = datasets.List(feature) if self.problem_type == MULTI else feature
        split = split.remove_columns([LABEL] if LABEL in split.column_names else [])
        return split.add_column(LABEL, labels, feature=feature)

    def _encode_label(self, value: Any, split: datasets.Dataset, index: int) -> int | float | list[float]:
        if self.problem_type == REGRESSION:
            try:
                number = float(value)
            except (TypeError, ValueError):
                number = float("nan")
            if not np.isfinite(number):
                raise ValueError(f"{where(split[index])}: {self.label_column}={value!r} is not legal: a number")
            return number
        if isinstance(value, list) != (self.problem_type == MULTI):
            raise ValueError(
                f"{where(split[index])}: {self.label_column}={value!r} is not legal for {self.problem_type}: "
                f"{'a list of labels' if self.problem_type == MULTI else 'one label'}"
            )
        ids = [self._label_id(item, split, index) for item in _items(value)]
        if self.problem_type == SINGLE:
            return ids[0]
        return [float(i in ids) for i in range(len(self.labels))]

    def _label_id(self, label: int | str, split: datasets.Dataset, index: int) -> int:
        found = _find_label(label, self.labels)
        if found is None:
            why = "is none of --labels" if self.arguments.labels else "was never seen in training"
            raise ValueError(
                f"{where(split[index])}: the label {label!r} in {self.label_column!r} {why}; "
                f"legal: {', '.join(self.labels)}"
            )
        return found

    def _describe(self, said: list[dict[str, Any]]) -> str:
        if self.problem_type == REGRESSION:
            return f"{said[0]['score']:.2f}"
        if self.problem_type == SINGLE:
            best = max(said, key=lambda label: label["score"])
            return f"{best['label']} {best['score']:.0%}"
        chosen = [f"{label['label']} {label['score']:.0%}" for label in said if label["score"] > 0.5]
        return ", ".join(chosen) or "none"

    def _true(self, label: int | float | list[float]) -> str:
        if self.problem_type == REGRESSION:
            return f"{label:.2f}"
        if self.problem_type == SINGLE:
            return self.labels[label]
        return ", ".join(name for name, there in zip(self.labels, label) if there) or "none"


def _plain(split: datasets.Dataset, column: str) -> list[Any]:
    """The labels of a column: names instead of the numbers of a ClassLabel, whole numbers as int, None where there is
    none."""
    feature = split.features[column]
    inner = getattr(feature, "feature", feature)

    def plain(value):
        if isinstance(value, list):
            return [plain(item) for item in value]
        if isinstance(inner, datasets.ClassLabel) and value is not None and value >= 0:
            return inner.int2str(value)
        if value == "" or (isinstance(value, float) and np.isnan(value)):  # an empty cell
            return None
        if isinstance(value, float) and value.is_integer():
            return int(value)
        return str(value) if isinstance(value, bool) else value

    return [plain(value) for value in split[column]]


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _are_names(items: list[Any]) -> bool:
    return all(isinstance(item, (str, int)) for item in items) and len(set(items)) == len(items)


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


def encode_texts(batch: dict[str, list], tokenizer, columns: list[str]) -> dict[str, list]:
    """Token ids of one text or two, cut to `tokenizer.model_max_length` (the longer one first), and `labels`."""
    return {**tokenizer(*(batch[column] for column in columns), truncation=True), "labels": batch[LABEL]}
