"""Choose the right one of several continuations or answers (SWAG, COPA, RACE, …)."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import datasets
from transformers import (
    DataCollatorForMultipleChoice,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
)

from ....modeling_minibert import MiniBertForMultipleChoice
from ....option_checks import checked_class
from ...evaluation.plots import plot_confusion
from ..reading.columns import (
    as_list,
    bad_value,
    check_text_columns,
    find_column,
    map_examples,
    with_column,
)
from .base import Task
from .display import shortened
from .predictions import (
    IS_CUT,
    LABEL,
    SCORE_FEATURE,
    STRING_FEATURE,
    Labels,
    Predictions,
    Scores,
)

CHOICE_TEXTS = "_choices"  # a column that `read` adds


@checked_class
@dataclass(eq=False)
class Choose(Task):
    """A model that chooses one of several continuations or answers; every row has equally many.

    Args:
        text_column: The column of the text before the choices; by default guessed by its name.
        prefix_column: The column of a text that every choice begins with (sent2 of SWAG); by
            default guessed by its name.
        choice_columns: The columns of the choices, one for each; by default one column of lists (or
            of texts and their keys, as ARC has it), guessed by its name.
        label_column: The column of the right choice, a number from 0 (from 1, if others are
            letters) or a letter (A, B, …); by default guessed by its name.
        max_length: Longest input, in tokens; longer ones are cut. By default that of the model.
        pooling: What a new head reads: mean, the mean of the last states, or cls, the state of the
            first token. By default the mean; a trained head keeps what it reads.
    """

    name = "choose"
    model_class = MiniBertForMultipleChoice
    metric_for_best_model = "accuracy"
    collator_class = DataCollatorForMultipleChoice
    has_pooled_head = True
    has_class_ids = True
    columns = {
        "text_column": (
            "sent1",
            "article",
            "context",
            "premise",
            "text",
            "startphrase",
            "question",
        ),
        "prefix_column": ("sent2", "question"),
        "choice_columns": ("choices", "endings", "options", "answers"),
        "label_column": ("label", "labels", "answer", "answerKey", "gold", "target"),
    }

    tokenizer: PreTrainedTokenizerBase
    _: KW_ONLY
    text_column: str | None = None
    prefix_column: str | None = None
    choice_columns: Sequence[str] = ()
    label_column: str | None = None
    max_length: int | None = None
    pooling: Literal["mean", "cls"] | None = None

    # --- columns ---

    def find_text_columns(self, split: datasets.Dataset) -> list[str]:
        """The columns of the text, then of what choices begin with if there is one, then of the
        choices."""
        guesses = self.columns["choice_columns"]
        choices = []
        for name in self.choice_columns or [None]:
            choices.append(find_column(split, "choice_columns", name, guesses))
        text = self.find_column_of(split, "text_column")
        prefix = self.prefix_column
        for name in self.columns["prefix_column"]:
            if prefix is None and name != text and name in split.column_names:
                prefix = name
        if prefix:
            return [text, prefix, *choices]
        return [text, *choices]

    @property
    def _choice_columns(self) -> list[str]:
        """The columns of the choices, one for each, or one with the lists of all."""
        num_columns = max(1, len(self.choice_columns))
        return self.text_columns[-num_columns:]

    @property
    def _prefix_columns(self) -> list[str]:
        """The column of what choices begin with, if there is one."""
        num_columns = max(1, len(self.choice_columns))
        return self.text_columns[1:-num_columns]

    def check_inputs(self, split: datasets.Dataset) -> None:
        check_text_columns(split, [self.text_columns[0]])
        if len(self._choice_columns) > 1:
            check_text_columns(split, self._choice_columns)
        check_text_columns(split, self._prefix_columns, blank=True)
        choices = self._choices(split)
        map_examples(split, partial(self._check_choices, choices[0]), choices)

    def _check_choices(self, first: Any, choices: Any) -> None:
        """Refuse an example whose choices are no list of texts, or not as many as in the first
        one."""
        if not is_list_of_texts(choices) or len(choices) < 2:
            raise bad_value(self._choice_columns[0], choices, "a list of two texts or more")
        if len(choices) != len(first):
            raise bad_value(
                self._choice_columns[0], choices, f"a list of {len(first)} texts, as in every row"
            )

    def _choices(self, split: datasets.Dataset) -> list[list[str]]:
        """The texts of the choices of each example."""
        if len(self._choice_columns) > 1:
            columns = [split[column] for column in self._choice_columns]
            return list(map(list, zip(*columns)))
        choices = []
        for cell in split[self._choice_columns[0]]:
            texts, _ = texts_and_keys(cell)
            choices.append(texts)
        return choices

    def _keys(self, split: datasets.Dataset) -> list[list[Any] | None]:
        """How each example calls its choices, where it says so."""
        if len(self._choice_columns) > 1:
            return [None] * len(split)
        keys_of_examples = []
        for cell in split[self._choice_columns[0]]:
            _, keys = texts_and_keys(cell)
            keys_of_examples.append(keys)
        return keys_of_examples

    # --- labelled examples ---

    def read_labels(self, split: datasets.Dataset) -> list[Any]:
        return split[self.learned.label_column][:]

    def learn_labels(
        self, splits: datasets.DatasetDict, labels: Labels, config: PreTrainedConfig | None
    ) -> Labels:
        """The numbers of the right choices, which are counted alike in all splits."""
        counts_from = self._first_number(splits, labels)
        numbers = {}
        for name, split in splits.items():
            numbers[name] = map_examples(
                split,
                partial(self._number, counts_from),
                labels[name],
                self._choices(split),
                self._keys(split),
            )
        return numbers

    def _first_number(self, splits: datasets.DatasetDict, labels: Labels) -> int:
        """What numbers of choices count from: 1 where there are letters among them (ARC has both),
        or one is as high as there are choices; else 0. A ValueError if they count from both."""
        names = set()
        for split_labels in labels.values():
            names.update(map(str, split_labels))
        first_split = next(iter(splits.values()))
        num_choices = len(self._choices(first_split)[0])
        letters = {letter_of(index) for index in range(num_choices)}
        has_letters = not letters.isdisjoint(names)
        if not has_letters and str(num_choices) not in names:
            return 0
        if "0" in names:
            other = "letters" if has_letters else str(num_choices)
            raise ValueError(
                f"{self.learned.label_column}: it has 0 and {other}, so it is not clear what its"
                f" numbers count from; use numbers from 0 to {num_choices - 1}, or letters"
            )
        return 1

    def _number(
        self, counts_from: int, value: Any, choices: list[str], keys: list[Any] | None
    ) -> int:
        """The number of the right choice, from 0 on."""
        column = self.learned.label_column
        if keys is not None:
            key_names = list(map(str, keys))
            if key_names.count(str(value)) != 1:
                raise bad_value(column, value, f"one of {', '.join(key_names)}, as in {keys!r}")
            return key_names.index(str(value))
        numbers = {}
        for index in range(len(choices)):
            numbers[index + counts_from] = index
            numbers[str(index + counts_from)] = index
            numbers[letter_of(index)] = index
        # a value that is also the text of a choice would be unclear
        if not isinstance(value, (int, str)) or value not in numbers or value in choices:
            last = len(choices) - 1 + counts_from
            raise bad_value(column, value, f"a number from {counts_from} to {last}, or its letter")
        return numbers[value]

    def with_labels(self, split: datasets.Dataset, labels: list[int]) -> datasets.Dataset:
        choices = self._choices(split)
        for column in self._prefix_columns:
            with_prefix = []
            for prefix, choices_of_example in zip(split[column], choices):
                with_prefix.append([f"{prefix} {choice}" for choice in choices_of_example])
            choices = with_prefix
        return super().with_labels(with_column(split, CHOICE_TEXTS, choices), labels)

    # --- examples without labels, for `predict` ---

    @property
    def required_columns(self) -> list[str]:
        return [self.text_columns[0], *self._choice_columns]

    def placeholders(self, split: datasets.Dataset) -> list[int]:
        return [0] * len(split)

    # --- the model's inputs and outputs ---

    def encode(self, split: datasets.Dataset) -> datasets.Dataset:
        return self.map_columns(split, [self.text_columns[0], CHOICE_TEXTS, LABEL], encode_choices)

    # --- metrics ---

    def score(self, predictions: Sequence[int], references: Sequence[int]) -> Scores:
        from sklearn.metrics import accuracy_score

        return {"accuracy": float(accuracy_score(references, predictions))}

    # --- how they are shown ---

    @property
    def prediction_features(self) -> datasets.Features:
        number = datasets.Value("int64")
        return datasets.Features(
            {"label": number, "choice": STRING_FEATURE, "score": SCORE_FEATURE}
        )

    def describe_predictions(self, predictions: Predictions) -> dict[str, list[Any]]:
        """The number of a choice, from 0, its text and its probability."""
        numbers = self.decode(predictions)
        choices = self._choices(predictions.examples)
        texts = [texts[number] for texts, number in zip(choices, numbers)]
        return {
            "label": numbers,
            "choice": texts,
            "score": self.confidence_of_examples(predictions),
        }

    def show_input(self, example: Mapping[str, Any]) -> str:
        return shortened(example[self.text_columns[0]])

    def show_label(self, example: Mapping[str, Any], label: int) -> str:
        return shortened(example[CHOICE_TEXTS][label])

    def draw(self, predictions: Predictions, path: Path, note: str = "") -> None:
        num_choices = len(predictions.examples[0][CHOICE_TEXTS])
        names = [f"choice {number}" for number in range(1, num_choices + 1)]
        plot_confusion(predictions.outputs, predictions.examples[LABEL][:], names, path, note)

    def example_inputs(self, example: Mapping[str, Any]) -> dict[str, Any]:
        return {"text": example[self.text_columns[0]], "choices": example[CHOICE_TEXTS]}


def letter_of(index: int) -> str:
    return chr(ord("A") + index)


def texts_and_keys(cell: Any) -> tuple[Any, list[Any] | None]:
    """The texts of choices and, where the cell says how they are called, these keys: a list of
    texts, or as ARC has it {"text": […], "label": ["A", …]} or [{"text": …, "label": "A"}, …]."""
    if isinstance(cell, dict):
        texts = cell.get("text")
        keys = cell.get("label")
        if isinstance(texts, list) and isinstance(keys, list) and len(texts) == len(keys):
            return texts, keys
    choices = as_list(cell)
    if choices and all(has_key(choice) for choice in choices):
        texts = [choice["text"] for choice in choices]
        keys = [choice["label"] for choice in choices]
        return texts, keys
    return cell, None


def is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def has_key(choice: Any) -> bool:
    """Whether a choice is {"text": …, "label": …}."""
    return isinstance(choice, dict) and {"text", "label"} <= choice.keys()


def encode_choices(
    tokenizer, texts: list[str], choices: list[list[str]], labels: list[int]
) -> dict[str, list]:
    """Token ids of the text with each of its choices, [choices] lists for each text, `labels`, and
    whether any was `cut`."""
    num_choices = len(choices[0])  # as many in every example
    repeated_texts = []
    all_choices = []
    for text, choices_of_text in zip(texts, choices):
        repeated_texts += [text] * num_choices
        all_choices += choices_of_text
    encoded = tokenizer(repeated_texts, all_choices, truncation=True)
    inputs: dict[str, list] = {}
    for name, values in encoded.items():
        inputs[name] = group(values, num_choices)
    inputs["labels"] = labels
    inputs[IS_CUT] = []
    for encodings in group(encoded.encodings, num_choices):
        inputs[IS_CUT].append(any(encoding.overflowing for encoding in encodings))
    return inputs


def group(values: list[Any], size: int) -> list[list[Any]]:
    """A list cut into lists of `size` values."""
    starts = range(0, len(values), size)
    return [values[start : start + size] for start in starts]
