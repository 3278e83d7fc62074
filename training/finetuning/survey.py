"""What the rows of each split are like, and what one should know of them before training."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import datasets
import numpy as np

from ...tokenization.coverage import MAX_LOST_SHARE, Coverage, measure_coverage
from ..evaluation.baselines import few_to_measure
from .tasks.base import CUT, LABEL, Task

MANY = 0.01  # the share of cut texts that gives a warning
MOST_NAMES = 20  # that are listed
SAMPLE = 1000  # rows whose texts are compared with what comes back from their tokens


@dataclass
class Survey:
    """A split in numbers. Two inputs are the same if all their token ids are, so case counts only if it does for the
    tokenizer."""

    rows: int
    lengths: np.ndarray  # tokens of every input, [inputs]
    cut: int  # inputs that lost their end
    labels: Counter[str]  # how often each occurs
    labelled: int  # rows, or words, that may have them
    answers: dict[int, set[str]]  # the labels that each different input (its hash) occurs with
    repeated: int  # inputs that were there before
    coverage: Coverage  # what the tokenizer loses of the first rows

    @property
    def contradictions(self) -> int:
        """Inputs that occur with different labels."""
        return sum(len(labels) > 1 for labels in self.answers.values())

    def shared_with(self, other: Survey) -> int:
        """Different inputs that are in both."""
        return len(self.answers.keys() & other.answers.keys())


def survey(task: Task, examples: datasets.Dataset, encoded: datasets.Dataset) -> Survey:
    """Count the labels of a split as `Task.read` returned it, lengths and repeated inputs as `Task.encode` did."""
    # What the model reads as one text each: the choices of a row, or the row.
    parts = [ids if ids and isinstance(ids[0], list) else [ids] for ids in encoded["input_ids"]]
    labels = encoded["labels"][:] if "labels" in encoded.column_names else [None] * len(parts)
    answers: dict[int, set[str]] = defaultdict(set)
    for row, label in zip(parts, labels):
        answers[hash(tuple(map(tuple, row)))].add(json.dumps(label))
    counts, labelled = Counter(), 0
    for label in examples[LABEL] if len(task.labels) > 1 else []:
        several = (
            isinstance(label, list) and label and isinstance(label[0], float)
        )  # labels: 0 or 1 for each
        of_row = np.flatnonzero(label) if several else label if isinstance(label, list) else [label]
        counts.update(each if isinstance(each, str) else task.labels[each] for each in of_row)
        labelled += 1 if several else len(of_row)
    lengths = np.array([len(ids) for row in parts for ids in row])
    cut = sum(encoded[CUT]) if CUT in encoded.column_names else 0
    texts = (text for name in task.text_columns for text in examples[:SAMPLE][name])
    coverage = measure_coverage(
        task.tokenizer, (text if isinstance(text, str) else " ".join(text) for text in texts)
    )
    return Survey(
        len(examples), lengths, cut, counts, labelled, answers, len(parts) - len(answers), coverage
    )


def warnings(task: Task, surveys: Mapping[str, Survey]) -> list[str]:
    """What is wrong with the splits, a line each: text that the tokenizer does not know, texts that are cut, classes
    that a split lacks, too few rows to validate on, inputs that are in the training split too."""
    lines = []
    for name, split in surveys.items():
        if split.coverage.lost_share > MAX_LOST_SHARE:
            use = "the model reads only the rest; use a model whose tokenizer knows this text"
            lines.append(f"{name}: {split.coverage.describe()}; {use}")
        if split.cut >= max(1, MANY * split.rows):
            share = "all" if split.cut == split.rows else f"{split.cut:,} of"
            use = "use a larger --max_length, a model that reads more, or shorter texts"
            length = f"{task.tokenizer.model_max_length:,} tokens and are cut; {use}"
            lines.append(f"{name}: {share} {split.rows:,} rows are longer than {length}")
        missing = missing_classes(task, split)
        if missing and split.labels:
            names = ", ".join(map(repr, missing[:MOST_NAMES])) + " …" * (len(missing) > MOST_NAMES)
            effect = (
                "they cannot be learned"
                if name == "train"
                else "they have no score, and are not in the means"
            )
            lines.append(f"{name}: no row has the labels {names}; {effect}")
        if name == "train":
            continue
        if name == "validation" and (few := few_to_measure(split.rows)):
            lines.append(f"{name}: {few}")
        if "train" in surveys and (shared := split.shared_with(surveys["train"])):
            lines.append(
                f"{name}: {shared:,} inputs also occur in the training rows, so the scores are too high"
            )
    return lines


def missing_classes(task: Task, split: Survey) -> list[str]:
    """The classes (of entities: their types) that the task knows and no row of the split has."""
    there = {task.class_of(label) for label in split.labels}
    return [name for name in dict.fromkeys(map(task.class_of, task.labels)) if name not in there]
