"""Choose the right one of several continuations or answers (SWAG, COPA, RACE, …)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import datasets
import torch
from transformers import AutoModelForMultipleChoice, AutoTokenizer, DataCollatorForMultipleChoice, EvalPrediction

from ....modeling_minibert import MiniBertForMultipleChoice
from ...metrics import Accuracy
from ...report import plot_confusion
from ..data import check_columns, check_texts, find_column, string_columns
from .base import LABEL, Task, bad_value, map_rows, shortened, with_column

TEXTS = ("sent1", "context", "premise", "text", "question", "startphrase", "article")
PREFIX = "sent2"
CHOICES = ("choices", "endings", "options", "answers")
NUMBERED = re.compile(r"(ending|choice|option|solution|answer|sol)_?(\d+)")
CHOICE_TEXTS = "_choices"  # a column that `read` adds


class Choose(Task):
    """A model that scores each choice after the text; every row has equally many choices."""

    name = "choose"
    model_class = MiniBertForMultipleChoice
    metric_for_best_model = "accuracy"
    collator_class = DataCollatorForMultipleChoice
    text_arguments = "text_column, prefix_column, choice_columns"
    label_columns = ("label", "labels", "answer", "answerKey", "gold", "target")

    # --- columns and rows ---

    def find_texts(self, split: datasets.Dataset) -> list[str]:
        """The columns of the text, then of what choices begin with if there is one, then of the choices."""
        given = self.arguments
        text = find_column(split, given.text_column, TEXTS, "text_column", "the text before the choices")
        prefix = given.prefix_column or (PREFIX if PREFIX in split.column_names else None)
        check_columns(split, [prefix] if prefix else [], "prefix_column")
        choices = given.choice_columns
        if not choices:
            numbered = {name: NUMBERED.fullmatch(name) for name in string_columns(split)}
            choices = sorted(filter(numbered.get, numbered), key=lambda name: int(numbered[name][2]))
            if len(choices) < 2:
                choices = [find_column(split, None, CHOICES, "choice_columns", "the choices")]
        self.choice_columns, self.prefix_column = choices, prefix
        return [text, *([prefix] if prefix else []), *choices]

    def check_inputs(self, split: datasets.Dataset) -> None:
        check_columns(split, self.text_columns, self.text_arguments)
        check_texts(split, [self.text_columns[0]])
        check_texts(split, [self.prefix_column] if self.prefix_column else [], blank=True)
        if len(self.choice_columns) > 1:
            check_texts(split, self.choice_columns)
        rows = self._choices(split)
        for index, row in enumerate(rows):
            strings = isinstance(row, list) and len(row) > 1 and all(isinstance(choice, str) for choice in row)
            if not strings or len(row) != len(rows[0]):
                use = f"a list of {len(rows[0])} texts" if index and isinstance(rows[0], list) else "two texts or more"
                raise bad_value(split[index], self.choice_columns[0], row, f"{use}, as in every row")

    def _choices(self, split: datasets.Dataset) -> list[list[str]]:
        columns = [split[column] for column in self.choice_columns]
        return list(map(list, zip(*columns))) if len(columns) > 1 else list(columns[0])

    def read_labels(self, split: datasets.Dataset) -> list[int]:
        """The numbers of the right choices, each given as a number, a letter or the choice itself."""
        ids = []
        for index, (value, choices) in enumerate(zip(split[self.label_column], self._choices(split))):
            numbers = {name: i for i in range(len(choices)) for name in (i, str(i), chr(ord("A") + i))}
            numbers |= {choice: i for i, choice in reversed(list(enumerate(choices)))}
            if not isinstance(value, (int, str)) or value not in numbers:
                use = f"a number from 0 to {len(choices) - 1}, its letter, or one of the choices"
                raise bad_value(split[index], self.label_column, value, use)
            ids.append(numbers[value])
        return ids

    def with_labels(self, split: datasets.Dataset, labels: list[int]) -> datasets.Dataset:
        choices = self._choices(split)
        if self.prefix_column:
            choices = [
                [f"{begin} {choice}" for choice in row] for begin, row in zip(split[self.prefix_column], choices)
            ]
        return super().with_labels(with_column(split, CHOICE_TEXTS, choices), labels)

    # --- the model's inputs and outputs ---

    def encode(self, split: datasets.Dataset, training: bool) -> datasets.Dataset:
        return map_rows(split, [self.text_columns[0], CHOICE_TEXTS, LABEL], encode_choices, self.tokenizer)

    def score(self, predictions: Sequence[int], references: Sequence[int]) -> dict[str, float]:
        return Accuracy().compute(predictions=predictions, references=references)

    def readable(self, label: int) -> int:
        """The number of the choice, from 0."""
        return int(label)

    def draw(self, prediction: EvalPrediction, examples: datasets.Dataset, path: Path) -> None:
        labels = [f"choice {i + 1}" for i in range(len(examples[0][CHOICE_TEXTS]))]
        plot_confusion(self.decode(prediction, examples), examples[LABEL][:], labels, path)

    def demonstrate(self, folder: Path, examples: datasets.Dataset) -> Iterator[tuple[str, str]]:
        """Transformers has no pipeline for this: the model itself is asked."""
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForMultipleChoice.from_pretrained(folder).eval()
        for row in examples:
            text, choices = row[self.text_columns[0]], row[CHOICE_TEXTS]
            given = tokenizer([text] * len(choices), choices, truncation=True, padding=True, return_tensors="pt")
            with torch.no_grad():
                scores = model(**{name: value.unsqueeze(0) for name, value in given.items()}).logits[0].softmax(-1)
            best = int(scores.argmax())
            said = f"{shortened(choices[best])} {scores[best]:.0%}; in the data: {shortened(choices[row[LABEL]])}"
            yield shortened(text), said


def encode_choices(tokenizer, texts: list[str], choices: list[list[str]], labels: list[int]) -> dict[str, list]:
    """Token ids of the text with each of its choices, [choices] lists a row, and `labels`."""
    count = len(choices[0])  # as many in every row
    texts = [text for text in texts for _ in range(count)]
    flat = tokenizer(texts, [choice for of_row in choices for choice in of_row], truncation=True)
    rows = {name: [values[i : i + count] for i in range(0, len(values), count)] for name, values in flat.items()}
    return rows | {"labels": labels}
