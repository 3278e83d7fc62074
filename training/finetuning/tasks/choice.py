"""Choose the right one of several continuations or answers (SWAG, COPA, RACE, …)."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import datasets
import torch
from transformers import (
    AutoModelForMultipleChoice,
    AutoTokenizer,
    DataCollatorForMultipleChoice,
    EvalPrediction,
    PreTrainedConfig,
)

from ....modeling_minibert import MiniBertForMultipleChoice
from ...metrics import Accuracy
from ...report import plot_confusion
from ..data import FILE, ROW, check_columns, check_texts, find_column, string_columns, where
from .base import Task, map_rows, shortened

TEXTS = ("sent1", "context", "premise", "text", "question", "startphrase", "article")
PREFIXES = ("sent2",)
CHOICES = ("choices", "endings", "options", "answers")
LABELS = ("label", "labels", "answer", "answerKey", "gold", "target")
NUMBERED = re.compile(r"(ending|choice|option|solution|answer|sol)_?\d+")
TEXT, CHOICE_TEXTS, LABEL = "_text", "_choices", "_label"  # the columns that `read` adds


class Choose(Task):
    """A model that scores each choice after the text; every row has equally many choices."""

    name = "choose"
    model_class = MiniBertForMultipleChoice
    metric_for_best_model = "accuracy"

    def read(self, splits: datasets.DatasetDict, config: PreTrainedConfig | None = None) -> datasets.DatasetDict:
        first = next(iter(splits.values()))
        self.text_columns, self.choice_columns = self._find_texts(first)
        label = self.find_labels(first)
        read = {}
        for name, split in splits.items():
            check_columns(split, [label], "label_column")
            choices = self._read_choices(split)
            read[name] = self._read_texts(split, choices)
            labels = [_label_id(value, choices[i], split, i, label) for i, value in enumerate(split[label])]
            read[name] = read[name].add_column(LABEL, labels)
        return datasets.DatasetDict(read)

    def find_labels(self, split: datasets.Dataset) -> str:
        return find_column(split, self.arguments.label_column, LABELS, "label_column", "the right choice")

    def read_unlabelled(self, split: datasets.Dataset) -> datasets.Dataset:
        return self._read_texts(split, self._read_choices(split)).add_column(LABEL, [0] * len(split))

    def group_columns(self, split: datasets.Dataset) -> list[str]:
        texts, choices = self._find_texts(split)
        return [*texts, *choices]

    def config_fields(self) -> dict[str, Any]:
        return {}

    def encode(self, split: datasets.Dataset, training: bool) -> datasets.Dataset:
        return map_rows(split, encode_choices, self.tokenizer, desc="Tokenizing")

    def collator(self) -> Callable[[list[dict[str, Any]]], dict[str, torch.Tensor]]:
        return DataCollatorForMultipleChoice(self.tokenizer)

    def preprocess_logits(self, logits: torch.Tensor, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The number of the best choice, [batch]."""
        return logits.argmax(-1)

    def compute_metrics(self, prediction: EvalPrediction, examples: datasets.Dataset) -> dict[str, float]:
        return Accuracy().compute(predictions=prediction.predictions, references=prediction.label_ids)

    def metric_names(self, examples: datasets.Dataset) -> list[str]:
        return ["accuracy"]

    def predicted(self, prediction: EvalPrediction, examples: datasets.Dataset) -> list[int]:
        """The number of the choice, from 0."""
        return [int(choice) for choice in prediction.predictions]

    def draw(self, prediction: EvalPrediction, examples: datasets.Dataset, path: Path) -> None:
        labels = [f"choice {i + 1}" for i in range(len(examples[0][CHOICE_TEXTS]))]
        plot_confusion(prediction.predictions, prediction.label_ids, labels, path)

    def show(self, folder: Path, examples: datasets.Dataset) -> list[str]:
        """Transformers has no pipeline for this: the model itself is asked."""
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForMultipleChoice.from_pretrained(folder).eval()
        lines = []
        for row in examples.select(range(min(3, len(examples)))):
            choices = row[CHOICE_TEXTS]
            given = tokenizer([row[TEXT]] * len(choices), choices, truncation=True, padding=True, return_tensors="pt")
            with torch.no_grad():
                scores = model(**{name: value.unsqueeze(0) for name, value in given.items()}).logits[0].softmax(-1)
            best = int(scores.argmax())
            lines += [
                f"  {shortened(row[TEXT])}",
                f"    {shortened(choices[best])} {scores[best]:.0%}; in the data: {shortened(choices[row[LABEL]])}",
            ]
        return lines

    def _find_texts(self, split: datasets.Dataset) -> tuple[list[str], list[str]]:
        """The columns of the text and, if there is one, of what choices begin with; and those of the choices."""
        given = self.arguments
        text = find_column(split, given.text_column, TEXTS, "text_column", "the text before the choices")
        prefix = given.prefix_column or next((name for name in PREFIXES if name in split.column_names), None)
        texts = [text] if prefix is None else [text, prefix]
        choices = given.choice_columns or self._guess_choices(split)
        check_columns(split, texts, "text_column, prefix_column")
        check_columns(split, choices, "choice_columns")
        return texts, choices

    def _guess_choices(self, split: datasets.Dataset) -> list[str]:
        numbered = [name for name in string_columns(split) if NUMBERED.fullmatch(name)]
        if len(numbered) > 1:
            return sorted(numbered, key=lambda name: int(re.search(r"\d+", name)[0]))
        return [find_column(split, None, CHOICES, "choice_columns", "the choices")]

    def _read_texts(self, split: datasets.Dataset, choices: list[list[str]]) -> datasets.Dataset:
        """The rows with their text and their choices."""
        check_columns(split, self.text_columns, "text_column, prefix_column")
        text, *prefix = self.text_columns
        check_texts(split, [text])
        check_texts(split, prefix, blank=True)
        begins = [f"{begin} " for begin in split[prefix[0]]] if prefix else [""] * len(split)
        return (
            split.select_columns([FILE, ROW])
            .add_column(TEXT, list(split[text]))
            .add_column(CHOICE_TEXTS, [[begin + c for c in row] for begin, row in zip(begins, choices)])
        )

    def _read_choices(self, split: datasets.Dataset) -> list[list[str]]:
        """The choices of every row: at least two, and as many as in the row before."""
        columns = self.choice_columns
        check_columns(split, columns, "choice_columns")
        if len(columns) > 1:
            check_texts(split, columns)
            rows = [list(row) for row in zip(*(split[column] for column in columns))]
        else:
            rows = list(split[columns[0]])
        for index, row in enumerate(rows):
            strings = isinstance(row, list) and len(row) > 1 and all(isinstance(choice, str) for choice in row)
            if not strings or len(row) != len(rows[0]):
                wanted = (
                    f"a list of {len(rows[0])} texts" if index and isinstance(rows[0], list) else "two texts or more"
                )
                raise ValueError(f"{where(split[index])}: {columns[0]}={row!r} is not legal: {wanted}, as in every row")
        return rows


def encode_choices(batch: dict[str, list], tokenizer) -> dict[str, list]:
    """Token ids of the text with each of its choices, [choices] lists a row, and `labels`."""
    texts = [text for text, choices in zip(batch[TEXT], batch[CHOICE_TEXTS]) for _ in choices]
    flat = tokenizer(texts, [choice for choices in batch[CHOICE_TEXTS] for choice in choices], truncation=True)
    ends, start = [], 0
    for choices in batch[CHOICE_TEXTS]:
        ends.append((start, start := start + len(choices)))
    return {name: [values[a:b] for a, b in ends] for name, values in flat.items()} | {"labels": batch[LABEL]}


def _label_id(value: Any, choices: list[str], split: datasets.Dataset, index: int, column: str) -> int:
    """The number of the right choice, which may be given as a number, a letter or the choice itself."""
    if isinstance(value, str) and value in choices:
        return choices.index(value)
    number = value
    if isinstance(value, str) and len(value) == 1 and value in string.ascii_uppercase:
        number = string.ascii_uppercase.index(value)
    elif isinstance(value, str) and value.isdigit():
        number = int(value)
    if not isinstance(number, int) or not 0 <= number < len(choices):
        raise ValueError(
            f"{where(split[index])}: {column}={value!r} is not legal: a number from 0 to {len(choices) - 1}, its "
            "letter, or one of the choices"
        )
    return number
