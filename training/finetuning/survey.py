"""Count what the examples of each split are like, and warn of what is wrong with them before a
training: cut texts, missing classes, contradictions, examples that are in two splits."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import datasets
import numpy as np

from ...tokenization.coverage import MAX_LOST_SHARE, Coverage, measure_coverage
from ..evaluation.baselines import describe_few_rows
from .tasks.base import Task
from .tasks.label_cells import UNREAD_SEPARATORS
from .tasks.predictions import IS_CUT

# The share of cut texts that gives a warning.
MIN_CUT_SHARE = 0.01
MAX_LISTED_NAMES = 20
# Examples whose texts are compared with what comes back from their tokens.
NUM_SAMPLED_EXAMPLES = 1000


@dataclass
class Survey:
    """A split in numbers. Two inputs are the same if all their token ids are, so case counts only
    if it does for the tokenizer."""

    num_examples: int
    lengths: np.ndarray  # tokens of every input, [inputs]
    num_cut: int  # inputs that lost their end
    labels: Counter[str]  # how often each occurs
    num_labelled: int  # examples, or words, that have them
    labels_of_inputs: dict[int, set[str]]  # by the hash of an input: the labels it occurs with
    num_repeated: int  # inputs that occurred before
    coverage: Coverage  # what the tokenizer loses of the first examples

    @property
    def contradictions(self) -> int:
        """Inputs that occur with different labels."""
        return sum(len(labels) > 1 for labels in self.labels_of_inputs.values())

    def shared_with(self, other: Survey) -> int:
        """Different inputs that are in both."""
        return len(self.labels_of_inputs.keys() & other.labels_of_inputs.keys())


# --- Counting ---


def survey(task: Task, examples: datasets.Dataset, encoded: datasets.Dataset) -> Survey:
    """Count the labels of a split as `Task.read` returned it, lengths and repeated inputs as
    `Task.encode` did."""
    inputs = list(map(_sequences_of, encoded["input_ids"]))
    lengths = []
    for sequences in inputs:
        lengths += map(len, sequences)
    num_cut = 0
    if IS_CUT in encoded.column_names:
        num_cut = sum(encoded[IS_CUT])
    labels_of_inputs = _group_labels(task, inputs, encoded)
    return Survey(
        num_examples=len(examples),
        lengths=np.array(lengths),
        num_cut=num_cut,
        labels=task.count_labels(examples),
        num_labelled=task.count_labelled(examples),
        labels_of_inputs=labels_of_inputs,
        num_repeated=len(inputs) - len(labels_of_inputs),
        coverage=measure_coverage(task.tokenizer, _sample_texts(task, examples)),
    )


def _sequences_of(ids: list) -> list[list[int]]:
    """The sequences of token ids that the model reads for an example: one for each choice, or
    one."""
    has_choices = bool(ids) and isinstance(ids[0], list)
    return ids if has_choices else [ids]


def _group_labels(
    task: Task, inputs: Sequence[list[list[int]]], encoded: datasets.Dataset
) -> dict[int, set[str]]:
    """The labels that each different input occurs with. Values may well differ."""
    labels = [None] * len(inputs)
    if "labels" in encoded.column_names and not task.has_values:
        labels = encoded["labels"]
    labels_of_inputs: dict[int, set[str]] = defaultdict(set)
    for sequences, label in zip(inputs, labels):
        labels_of_inputs[hash(tuple(map(tuple, sequences)))].add(json.dumps(label))
    return labels_of_inputs


def _sample_texts(task: Task, examples: datasets.Dataset) -> Iterator[str]:
    """The texts of the first examples; lists of words as texts."""
    sample = examples[:NUM_SAMPLED_EXAMPLES]
    for column in task.text_columns:
        for text in sample[column]:
            if isinstance(text, str):
                yield text
            else:  # words
                yield " ".join(text)


# --- Warnings ---


def find_warnings(task: Task, surveys: Mapping[str, Survey]) -> list[str]:
    """What is wrong with the splits, a line each: labels that may be one, or several in one; text
    that the tokenizer does not know, texts that are cut, classes that a split lacks, inputs with
    different labels, too few examples to validate on, inputs that are in the training split too,
    test inputs that are in the validation split too."""
    lines = []
    if "train" in surveys:
        lines += _suspicious_labels(_class_names(task))
    for name in surveys:
        for line in _split_warnings(task, name, surveys):
            lines.append(f"{name}: {line}")
    return lines


def _split_warnings(task: Task, name: str, surveys: Mapping[str, Survey]) -> Iterator[str]:
    """The warnings about one split."""
    split = surveys[name]
    yield from _text_warnings(task, split)
    yield from _label_warnings(task, split, name == "train")
    if name == "validation":
        yield from _size_warnings(split)
    if "train" in surveys:  # else nothing is learned or chosen
        yield from _overlap_warnings(name, surveys)


def _text_warnings(task: Task, split: Survey) -> Iterator[str]:
    """Text that the tokenizer loses, and texts that are cut."""
    if split.coverage.lost_share > MAX_LOST_SHARE:
        yield (
            f"{split.coverage.describe()}; the model reads only the rest; use a model whose "
            "tokenizer knows this text"
        )
    if split.num_cut >= max(1, MIN_CUT_SHARE * split.num_examples):
        count = f"{split.num_cut:,} of"
        if split.num_cut == split.num_examples:
            count = "all"
        yield (
            f"{count} {split.num_examples:,} rows are longer than"
            f" {task.tokenizer.model_max_length:,} tokens and are cut; use a larger --max_length,"
            " a model that reads more, or shorter texts"
        )


def _label_warnings(task: Task, split: Survey, is_train: bool) -> Iterator[str]:
    """Classes that no example has, and inputs with different labels."""
    missing = _missing_classes(task, split)
    if missing and split.labels:
        effect = "they have no score, and are not in the means"
        if is_train:
            effect = "they cannot be learned"
        yield f"no row has the labels {_quote_names(missing)}; {effect}"
    if split.contradictions:
        yield (
            f"{split.contradictions:,} inputs occur with different labels, of which one at most can"
            " be predicted; correct them, or give each row all its labels"
        )


def _size_warnings(validation: Survey) -> Iterator[str]:
    """Too few examples to validate on."""
    class_counts: list[int] = []
    has_classes = validation.num_labelled == validation.num_examples  # each example, not each word
    if has_classes:
        class_counts = list(validation.labels.values())
    too_few = describe_few_rows(validation.num_examples, class_counts)
    if too_few:
        yield too_few


def _overlap_warnings(name: str, surveys: Mapping[str, Survey]) -> Iterator[str]:
    """Inputs of a split that are in a split which is learned from, or by which a model is
    chosen."""
    split = surveys[name]
    if name != "train":
        shared = split.shared_with(surveys["train"])
        if shared:
            yield f"{shared:,} inputs also occur in the training rows, so the scores are too high"
    if name == "test" and "validation" in surveys:
        shared = split.shared_with(surveys["validation"])
        if shared:
            yield (
                f"{shared:,} inputs also occur in the validation rows, by which the model is"
                " chosen, so the scores may be too high"
            )


def _missing_classes(task: Task, split: Survey) -> list[str]:
    """The classes (of entities: their types) that the task knows and no example of the split
    has."""
    present = {task.class_of_label(label) for label in split.labels}
    return [name for name in _class_names(task) if name not in present]


def _class_names(task: Task) -> list[str]:
    """The classes (of entities: their types) that the task knows, each once."""
    return list(dict.fromkeys(map(task.class_of_label, task.label_names)))


def _suspicious_labels(labels: Sequence[str]) -> Iterator[str]:
    """Labels that differ in case or spaces only, and labels that look like several in one cell."""
    alike: dict[str, list[str]] = defaultdict(list)
    for label in labels:
        alike[" ".join(label.split()).casefold()].append(label)
    for names in alike.values():
        if len(names) > 1:
            yield (
                f"labels: {_quote_names(names)} differ in case or spaces only, and are learned as "
                f"{len(names)} classes; write them alike if they are one"
            )
    for separator in UNREAD_SEPARATORS:
        joined, shared_part = _find_joined(labels, separator)
        if shared_part is not None:
            yield (
                f"labels: {_quote_names(joined)} are learned as one class each, though "
                f"{shared_part!r} is in several; if a cell has several labels, write it as joy|sad "
                'or ["joy", "sad"]'
            )


def _find_joined(labels: Sequence[str], separator: str) -> tuple[list[str], str | None]:
    """The labels with several parts, and a part of them that is in another label too; None if there
    is none."""
    joined = []
    labels_with_part: Counter[str] = Counter()
    for label in labels:
        parts = {part.strip() for part in label.split(separator)}
        if "" in parts:  # as in C#
            parts = {label}
        if len(parts) > 1:
            joined.append(label)
        labels_with_part.update(parts)
    for label in joined:
        for part in map(str.strip, label.split(separator)):
            if labels_with_part[part] > 1:
                return joined, part
    return joined, None


def _quote_names(names: Iterable[str]) -> str:
    """The first names, quoted, on one line."""
    quoted = [repr(name[:100]) for name in names]
    if len(quoted) > MAX_LISTED_NAMES:
        return f"{', '.join(quoted[:MAX_LISTED_NAMES])} …"
    return ", ".join(quoted)
