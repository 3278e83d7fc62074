"""Classify a text or a pair of texts: one class, several labels, or a value."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

import datasets
import numpy as np
import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    EvalPrediction,
    PreTrainedConfig,
    pipeline,
)

from ...modeling_minibert import MiniBertForSequenceClassification
from ..metrics import F1, Accuracy, MatthewsCorrelation, Pearson, Spearman
from .base import Task, label_fields, map_rows, saved_labels
from .data import check_columns, check_texts, find_column, string_columns, where
from .pictures import plot_confusion, plot_scores, plot_values

PAIRS = (
    ("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"), ("text_a", "text_b"),
    ("text", "text_pair"), ("text1", "text2"), ("question", "sentence"), ("question", "passage"),
)  # fmt: skip
TEXTS = ("text", "sentence", "content", "review", "document", "tweet", "sentence1", "premise", "question")
LABELS = ("label", "labels", "class", "target", "category", "score", "similarity", "sentiment")

SINGLE, MULTI, REGRESSION = "single_label_classification", "multi_label_classification", "regression"
LABEL = "_label"  # the column that `read` adds: a class number, a list of 0 and 1, or a value


class Classify(Task):
    """A sequence classifier. What kind it is (`problem_type`) follows from the labels, unless it is given."""

    name = "classify"
    model_class = MiniBertForSequenceClassification
    pairs_only: ClassVar[bool] = False

    def read(self, splits: datasets.DatasetDict, config: PreTrainedConfig | None = None) -> datasets.DatasetDict:
        first = next(iter(splits.values()))
        self.label_column = find_column(first, self.arguments.label_column, LABELS, "label_column", "the label")
        self.text_columns = self._find_texts(first)
        for split in splits.values():
            check_columns(split, [self.label_column], "label_column")
            check_columns(split, self.text_columns, "text_column")
            check_texts(split, self.text_columns)
        values = {name: [_plain(split, value) for value in split[self.label_column]] for name, split in splits.items()}
        splits = self._drop_unlabelled(splits, values)
        for name, split in splits.items():
            for index, value in enumerate(values[name]):
                if value is None:
                    raise ValueError(f"{where(split[index])}: {self.label_column!r} is empty; every row needs a label")

        known = saved_labels(config) if config is not None else None
        if config is not None and config.problem_type is not None:
            self.problem_type = config.problem_type
        else:
            self.problem_type = self.arguments.problem_type or _problem_type(values.get("train", values[next(iter(values))]))
        best = {SINGLE: "accuracy", MULTI: "f1_micro", REGRESSION: "spearman"}
        self.metric_for_best_model = best[self.problem_type]
        if self.problem_type == REGRESSION:
            self.labels = ["score"]
            feature = datasets.Value("float32")
        else:
            self.labels = self._learn_labels(splits, values, config, known)
            feature = datasets.Value("int64")
            if self.problem_type == MULTI:
                feature = datasets.List(datasets.Value("float32"))
        read = {}
        for name, split in splits.items():
            encoded = [self._encode_label(value, split, index) for index, value in enumerate(values[name])]
            split = split.remove_columns([LABEL] if LABEL in split.column_names else [])
            read[name] = split.add_column(LABEL, encoded, feature=feature)
        return datasets.DatasetDict(read)

    def config_fields(self) -> dict[str, Any]:
        return {**label_fields(self.labels), "problem_type": self.problem_type}

    def encode(self, split: datasets.Dataset, training: bool) -> datasets.Dataset:
        # only what it needs: other columns must not make it encode again
        needed = split.select_columns([*self.text_columns, LABEL])
        return map_rows(needed, encode_texts, self.tokenizer, columns=self.text_columns, desc="Tokenizing")

    def collator(self) -> Callable[[list[dict[str, Any]]], dict[str, torch.Tensor]]:
        return DataCollatorWithPadding(self.tokenizer)

    def preprocess_logits(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The class, [batch]; 0 or 1 for every label, [batch, labels]; or the value, [batch]."""
        if self.problem_type == SINGLE:
            return logits.argmax(-1)
        if self.problem_type == MULTI:
            return (logits > 0).to(torch.uint8)  # a probability above one half
        return logits.float().squeeze(-1)

    def compute_metrics(self, prediction: EvalPrediction, examples: datasets.Dataset) -> dict[str, float]:
        given = {"predictions": prediction.predictions, "references": prediction.label_ids}
        if self.problem_type == REGRESSION:
            error = np.asarray(given["predictions"], dtype=np.float64) - np.asarray(given["references"], dtype=np.float64)
            return Pearson().compute(**given) | Spearman().compute(**given) | {"mse": float(np.mean(error**2))}
        if self.problem_type == MULTI:
            given = {name: np.asarray(value).astype(np.int32) for name, value in given.items()}
            f1 = {f"f1_{average}": F1().compute(**given, average=average)["f1"] for average in ("micro", "macro")}
            return f1 | Accuracy().compute(**given)
        f1 = F1().compute(**given, average="macro")["f1"]
        return Accuracy().compute(**given) | {"f1_macro": f1} | MatthewsCorrelation().compute(**given)

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
            lines += [f"  {' | '.join(texts)}", f"    {self._describe(said)}; in the data: {self._true(row[LABEL])}"]
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
                f"pair_column: the two texts of {split[0]['_file']!r} are not clear; name them with --text_column and "
                f"--pair_column (columns of text: {', '.join(string_columns(split))})"
            )
        return columns

    def _guess_texts(self, split: datasets.Dataset) -> list[str]:
        strings = [column for column in string_columns(split) if column != self.label_column]
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
        given = self.arguments.label_names
        if len(set(given)) != len(given):
            raise ValueError(f"label_names: {', '.join(given)} names one label twice")
        if known is not None:
            if given and given != known:
                raise ValueError(f"label_names: {', '.join(given)}, but the model knows {', '.join(known)}")
            return known
        if given:
            return given
        if "train" not in values:  # a model that never named its labels
            return [str(i) for i in range(config.num_labels)]
        seen = {item for value in values["train"] for item in (value if isinstance(value, list) else [value])}
        if not all(isinstance(item, int) for item in seen):
            seen = {str(item) for item in seen}
        labels = [str(item) for item in sorted(seen)]
        if len(labels) < 2:
            raise ValueError(
                f"{self.label_column}: {splits['train'][0]['_file']!r} has one label only ({', '.join(labels)}); there is "
                "nothing to learn"
            )
        return labels

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
        ids = [self._label_id(item, split, index) for item in (value if isinstance(value, list) else [value])]
        if self.problem_type == SINGLE:
            return ids[0]
        return [float(i in ids) for i in range(len(self.labels))]

    def _label_id(self, label: int | str, split: datasets.Dataset, index: int) -> int:
        if str(label) in self.labels:
            return self.labels.index(str(label))
        if isinstance(label, int) and 0 <= label < len(self.labels) and not any(name.isdigit() for name in self.labels):
            return label
        raise ValueError(
            f"{where(split[index])}: the label {label!r} in {self.label_column!r} was never seen in training; legal: "
            f"{', '.join(self.labels)}"
        )

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


def encode_texts(batch: dict[str, list], tokenizer, columns: list[str]) -> dict[str, list]:
    """Token ids of one text or two, cut to `tokenizer.model_max_length` (the longer one first), and `labels`."""
    return {**tokenizer(*(batch[column] for column in columns), truncation=True), "labels": batch[LABEL]}
