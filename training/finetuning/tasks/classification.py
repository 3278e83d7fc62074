"""Classify texts or pairs of texts: one class, several labels, or a value; and entailment."""

import ast
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import datasets
import numpy as np
import torch
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from ....modeling_minibert import MiniBertForSequenceClassification
from ...data.tables import to_number
from ...files import printable
from ...metrics import class_scores, correlations
from ...report import plot_confusion, plot_scores, plot_values
from ..data import FILE, as_list, bad_value, each_row, find_column, string_columns
from ..imbalance import Weights, best_threshold, class_weights
from .base import CUT, LABEL, Labels, Predictions, Scores, Task, saved_labels

PAIRS = (
    ("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"), ("text_a", "text_b"),
    ("text", "text_pair"), ("text1", "text2"), ("question", "sentence"), ("question", "passage"),
)  # fmt: skip
SINGLE, MULTI, REGRESSION = "single_label_classification", "multi_label_classification", "regression"
LIST = 'a list of names (or of their numbers), each of them once, such as ["joy", "sad"]; not of 0 and 1'
MOST_LABELS = 100_000
FEW_LABELS = 1_000  # of more, there must be several rows for each
ProblemType = Literal["single_label_classification", "multi_label_classification", "regression"]
FLOAT = datasets.Value("float32")
# Of each problem type the metric that chooses the best model, and the type of `LABEL`.
KINDS = {
    SINGLE: ("accuracy", datasets.Value("int64")),  # the number of a class
    MULTI: ("f1_micro", datasets.List(FLOAT)),  # 0 or 1 for each label
    REGRESSION: ("spearman", FLOAT),  # a value
}


class Classify(Task):
    """A classifier of texts or pairs of texts: one class, several labels or a value.

    Args:
        text_column: The column of the text (or of the first of two); guessed by its name.
        pair_column: The column of the second text; guessed by its name where there is one.
        label_column: The column of the label; guessed by its name.
        labels: Names of the labels; a label that is a number counts them from 0.
        problem_type: By default lists are several labels, numbers with a fraction are values, the rest are classes.
        max_length: Longest input, in tokens, the rest is cut; by default the model's.
        class_weights: Weights of the classes in the loss: balanced, a number for each, or CLASS=NUMBER.
        tune_threshold: Predict two classes or several labels by thresholds chosen on the validation rows.
    """

    name = "classify"
    model_class = MiniBertForSequenceClassification
    columns = {
        "text_column": (
            "text", "sentence", "content", "review", "document", "tweet", "sentence1", "premise", "question"
        ),
        "pair_column": (),  # see PAIRS
        "label_column": ("label", "labels", "class", "target", "category", "score", "similarity", "sentiment"),
    }  # fmt: skip
    pairs_only: ClassVar[bool] = False

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        text_column: str | None = None,
        pair_column: str | None = None,
        label_column: str | None = None,
        labels: Sequence[str] = (),
        problem_type: ProblemType | None = None,
        max_length: int | None = None,
        class_weights: Weights = None,
        tune_threshold: bool = False,
    ):
        super().__init__(tokenizer, text_column=text_column, pair_column=pair_column, label_column=label_column)
        self.named_labels, self.asked_type = list(labels), problem_type
        self.asked_weights, self.tunes = class_weights, tune_threshold
        self.thresholds: list[float] | None = None

    def find_texts(self, split: datasets.Dataset) -> list[str]:
        given = [option for option in ("text_column", "pair_column") if self.named_columns[option]]
        if given == ["pair_column"]:
            raise ValueError("pair_column: it is the second text; name the first one with --text_column")
        columns = [self.find(split, option) for option in given] or self._guess_texts(split)
        if self.pairs_only and len(columns) != 2:
            unclear = f"not clear; name them with --text_column and --pair_column ({', '.join(string_columns(split))})"
            raise ValueError(f"pair_column: the two texts of {split[0][FILE]!r} are {unclear}")
        return columns

    def _guess_texts(self, split: datasets.Dataset) -> list[str]:
        strings = [column for column in string_columns(split) if column != self.find_labels(split)]
        if pair := next((pair for pair in PAIRS if set(pair) <= set(strings)), None):
            return list(pair)
        known = [name for name in self.columns["text_column"] if name in strings]
        return strings if len(strings) == 1 and not known else [find_column(split, "text_column", None, known)]

    def read_labels(self, split: datasets.Dataset) -> list[Any]:
        return each_row(split, self._checked, self._values(split, self.label_column))

    def _checked(self, value: Any) -> Any:
        """A label, or a list of different ones."""
        if value is None or isinstance(value, dict):
            raise bad_value(self.label_column, value, "a label")
        if isinstance(value, list):
            named = all(isinstance(item, (str, int)) for item in value)
            if not named or len(set(value)) < len(value):
                raise bad_value(self.label_column, value, LIST)
        return value

    def classes(self, split: datasets.Dataset) -> list[set[str]]:
        values = self._values(split, self.find_labels(split))
        if (self.asked_type or _problem_type(split, values)) == REGRESSION:
            return [set()] * len(split)
        return [set(map(str, as_list(value))) for value in values]

    def _values(self, split: datasets.Dataset, column: str) -> list[Any]:
        """The labels as they stand there, lists that are written as text as lists; a ValueError for several labels in
        one text."""
        values = _plain(split, column)
        if self.asked_type not in (REGRESSION, SINGLE):
            values = each_row(split, _parse_list, values)
        if self.asked_type is None and (mark := _separator(values)):
            cell = next(value for value in values if isinstance(value, str) and mark in value)
            several = json.dumps([part.strip() for part in cell.split(mark)], ensure_ascii=False)
            use = f"write a list in the cell, as {several}; or give --problem_type {SINGLE} where it is one class"
            raise ValueError(f"label_column: {column!r} has cells of several labels, such as {cell!r}; {use}")
        return values

    def learn_labels(self, splits: datasets.DatasetDict, labels: Labels, config: PreTrainedConfig | None) -> Labels:
        asked, trained = self.asked_type, config and config.problem_type
        if config and config.num_labels == 1:
            trained = trained or REGRESSION  # as Transformers reads a model of one label
        if trained and asked not in (None, trained):
            raise ValueError(f"problem_type: {asked!r} is asked for, but the model was fine-tuned for {trained!r}")
        every = [value for rows in labels.values() for value in rows]
        if MULTI not in (asked, trained) and all(isinstance(value, list) and len(value) == 1 for value in every):
            labels = {name: [value[0] for value in rows] for name, rows in labels.items()}  # as doccano writes classes
        first = next(iter(labels))
        self.problem_type = trained or asked or _problem_type(splits[first], labels[first])
        self.metric_for_best_model, self.label_feature = KINDS[self.problem_type]
        if {tuple(as_list(value)) for rows in labels.values() for value in rows} == {(0, 1), (1, 0)}:
            said = "has [0, 1] and [1, 0] only, which name the same labels"
            raise ValueError(f"label_column: {self.label_column!r} {said}; use {LIST}")
        self.labels = self._names(splits, labels, config)
        self._find_label = label_finder(self.labels)
        encoded = {name: each_row(splits[name], self._encoded, values) for name, values in labels.items()}
        if "train" in encoded:
            self._balance(encoded["train"])
        else:
            self.thresholds = getattr(config, "thresholds", None)
            if self.thresholds and len(self.thresholds) != len(self.labels):
                raise ValueError(
                    f"model: its config has {len(self.thresholds)} thresholds for {len(self.labels)} labels"
                )
        return encoded

    def _balance(self, train: list[Any]) -> None:
        """Settle the weights of the loss; refuse weights and thresholds that these labels cannot have."""
        if not self.asked_weights and not self.tunes:
            return
        if self.problem_type == REGRESSION:
            option = "class_weights" if self.asked_weights else "tune_threshold"
            raise ValueError(f"{option}: {self.label_column!r} has values, not classes; leave it out")
        if self.tunes and self.problem_type == SINGLE and len(self.labels) != 2:
            has = f"{self.label_column!r} has {len(self.labels)} classes"
            raise ValueError(f"tune_threshold: {has}; it needs two classes, or several labels a row")
        self.metric_for_best_model = "f1_macro"
        if self.asked_weights:
            several = self.problem_type == MULTI
            counts = Counter(self.labels[i] for row in train for i in (np.flatnonzero(row) if several else [row]))
            self.label_weights = class_weights(self.asked_weights, self.labels, counts, len(train) if several else None)

    def _names(self, splits: datasets.DatasetDict, values: Labels, config: PreTrainedConfig | None) -> list[str]:
        """The names of all labels, in the order of their ids."""
        given, saved = self.named_labels, saved_labels(config)
        listed = ", ".join(given)
        if self.problem_type == REGRESSION:
            if given:
                use = "where they are classes, say so with --problem_type single_label_classification"
                raise ValueError(f"labels: {listed} cannot name the values of {self.label_column!r}; {use}")
            return ["score"]
        if len(set(given)) != len(given):
            raise ValueError(f"labels: {listed} names one label twice")
        if self.problem_type == SINGLE and len(given) == 1:
            raise ValueError(f"labels: {listed} is one class only, with nothing to learn; name all of them")
        if saved and given and given != saved:
            raise ValueError(f"labels: {listed}, but the model knows {', '.join(saved)}")
        known = saved or given
        if "train" not in values:
            return known or [config.id2label[i] for i in sorted(config.id2label)]  # LABEL_0, …
        seen = {item for value in values["train"] for item in as_list(value)}
        if not all(isinstance(item, int) for item in seen):
            seen = {str(item) for item in seen}
        names, file = [str(item) for item in sorted(seen)], splits["train"][0][FILE]
        find = label_finder(known or names)
        if config and known and any(find(item) is None for item in seen):
            there = f"{', '.join(known)}, and {file!r} has {', '.join(names[:9])}{' …' * (len(names) > 9)}"
            raise ValueError(f"model: it was fine-tuned for the labels {there}; start from a model without such a head")
        used = {*map(find, seen)}
        unused = {*range(len(given))} - used
        if unused and not saved and None not in used:  # (else a row is wrong, and named)
            absent = ", ".join(repr(given[i]) for i in sorted(unused))
            use = f"leave them out, or correct them; it has {', '.join(names[:9])}{' …' * (len(names) > 9)}"
            raise ValueError(f"labels: no row of {file!r} has the label {absent}; {use}")
        if len(names) > MOST_LABELS or len(names) > max(FEW_LABELS, len(splits["train"]) // 2):
            many = f"{self.label_column!r} of {file!r} has {len(names):,} labels in {len(splits['train']):,} rows"
            raise ValueError(f"label_column: {many}, too many to learn; is it a column of numbers or names of rows?")
        can_lack_it = names and [] in values["train"]  # a list of labels, where some rows have none
        if len(names) < 2 and not known and not can_lack_it:
            only = f"{file!r} has one label only ({', '.join(names)})"
            raise ValueError(f"{self.label_column}: {only}; there is nothing to learn")
        feature = splits["train"].features[self.label_column]
        return known or getattr(getattr(feature, "feature", feature), "names", None) or names

    def _encoded(self, value: Any) -> int | float | list[float]:
        """What the model learns: a class number, 0 or 1 for each label, or a value."""
        if self.problem_type == REGRESSION:
            if not np.isfinite(to_number(value)):
                raise bad_value(self.label_column, value, f"a number ({REGRESSION})")
            return to_number(value)
        if isinstance(value, list) != (self.problem_type == MULTI):
            use = 'a list of labels, such as ["joy", "sad"]' if self.problem_type == MULTI else "one label"
            raise bad_value(self.label_column, value, f"{use} ({self.problem_type})")
        ids = [self._find_label(item) for item in as_list(value)]
        if None in ids:
            why = " is none of --labels" if self.named_labels else " was never seen in training"
            unknown = as_list(value)[ids.index(None)]
            known = ", ".join(self.labels[:20]) + " …" * (len(self.labels) > 20)
            raise bad_value(self.label_column, unknown, f"one of {known}", why)
        if self.problem_type == SINGLE:
            return ids[0]
        row = [0.0] * len(self.labels)
        for i in ids:
            row[i] = 1.0
        return row

    def config_fields(self) -> dict[str, Any]:
        return {**super().config_fields(), "problem_type": self.problem_type, "thresholds": self.thresholds}

    def encode(self, split: datasets.Dataset, training: bool) -> datasets.Dataset:
        return self.map_columns(split, [*self.text_columns, LABEL], encode_texts)

    def preprocess_logits(self, logits: torch.Tensor, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The class, [batch]; of two classes, the log-odds of the second one, [batch]; the log-odds of every label,
        [batch, labels]; or the value, [batch]."""
        if self.problem_type == SINGLE:
            return logits[:, 1].float() - logits[:, 0].float() if len(self.labels) == 2 else logits.argmax(-1)
        return logits.float() if self.problem_type == MULTI else logits.float().squeeze(-1)

    def tune(self, predictions: Predictions) -> None:
        """The thresholds are those with the best F1 of each label (of two classes: with the best macro F1)."""
        if self.tunes:
            outputs, references = predictions.outputs, np.asarray(predictions.examples[LABEL][:], np.int32)
            if self.problem_type == MULTI:
                self.thresholds = [best_threshold(*columns, both=False) for columns in zip(outputs.T, references.T)]
            else:
                second = best_threshold(outputs, references, both=True)
                self.thresholds = [1 - second, second]

    def decode(self, predictions: Predictions) -> list[Any]:
        outputs = predictions.outputs
        if self.problem_type == MULTI or (self.problem_type == SINGLE and len(self.labels) == 2):
            thresholds = np.array(self.thresholds or [0.5] * len(self.labels))
            outputs = outputs > np.log(thresholds / (1 - thresholds))[slice(None) if self.problem_type == MULTI else 1]
        return outputs.astype(np.int32).tolist() if outputs.dtype == bool else outputs.tolist()

    def score(self, predictions: Sequence[Any], references: Sequence[Any]) -> Scores:
        """Macro F1 is the mean over the labels that occur in `references`."""
        if self.problem_type == REGRESSION:
            predictions = np.asarray(predictions, np.float32)
            scores = correlations(predictions, references)
            if len(set(references)) < 2:
                scores = dict.fromkeys(scores)
            return scores | {"mse": float(np.mean((predictions - np.asarray(references)) ** 2))}
        predictions, references = np.asarray(predictions, np.int32), np.asarray(references, np.int32)
        there = self.labels_in(references)
        accuracy = {"accuracy": float(accuracy_score(references, predictions))}
        f1 = {"f1_macro": float(self._f1(predictions, references, "macro", there)) if there else None}
        if self.problem_type == MULTI:
            everything = range(len(self.labels))
            return (
                {"f1_micro": float(self._f1(predictions, references, "micro", everything)) if there else None}
                | f1
                | accuracy
            )
        matthews = float(matthews_corrcoef(references, predictions)) if len(there) > 1 else None
        return accuracy | f1 | {"matthews_correlation": matthews}

    def guess(self, train: datasets.Dataset, examples: datasets.Dataset) -> Sequence[Any]:
        """The most frequent class, the most frequent one of several labels, or the mean value."""
        if self.problem_type == SINGLE:
            return super().guess(train, examples)
        means = np.mean(train[LABEL][:], axis=0)
        return [means if self.problem_type == REGRESSION else np.eye(len(means))[means.argmax()]] * len(examples)

    def baseline_scores(self, train: datasets.Dataset, examples: datasets.Dataset) -> Scores:
        """Macro F1 is that of guessing each class as often as it occurs, where that is better."""
        scores = super().baseline_scores(train, examples)
        if self.problem_type == SINGLE and scores["f1_macro"] is not None:
            counts = (np.bincount(split[LABEL], minlength=len(self.labels)) for split in (train, examples))
            before, here = (count / count.sum() for count in counts)
            there = here > 0
            guessed = np.mean(2 * before[there] * here[there] / (before + here)[there])
            scores["f1_macro"] = max(scores["f1_macro"], float(guessed))
        return scores

    def by_class(self, predictions: Sequence[Any], references: Sequence[Any]) -> dict[str, dict[str, float]]:
        there = {i: self.labels[i] for i in self.labels_in(references)}
        return (
            class_scores(predictions, references, there) if self.problem_type == SINGLE or len(self.labels) > 1 else {}
        )

    def confidence(self, logits: torch.Tensor, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        if self.problem_type == SINGLE:
            return super().confidence(logits, inputs)
        return logits.float().abs().sigmoid().amin(-1)  # of the label that is least sure

    def mistake(self, predicted: Any, true: Any, confidence: float) -> float:
        """Of a value, how far off it is."""
        return (
            abs(predicted - true) if self.problem_type == REGRESSION else super().mistake(predicted, true, confidence)
        )

    def labels_in(self, references: Sequence[Any]) -> list[int]:
        """The ids of the labels that some row has."""
        if self.problem_type == MULTI:
            return np.flatnonzero(np.any(references, axis=0)).tolist()
        return np.unique(references).tolist() if self.problem_type == SINGLE else []

    def _f1(self, predictions: np.ndarray, references: np.ndarray, average: str | None, labels: Sequence[int]) -> Any:
        if self.problem_type == MULTI and len(self.labels) == 1:  # which scikit-learn takes for a single class
            labels = [1]
        return f1_score(references, predictions, average=average, labels=[*labels], zero_division=0)

    def draw(self, predictions: Predictions, path: Path, note: str = "") -> None:
        outputs, references = np.asarray(self.decode(predictions)), predictions.examples[LABEL][:]
        if self.problem_type == REGRESSION:
            plot_values(outputs, references, path, note)
        elif self.problem_type == SINGLE:
            plot_confusion(outputs, references, self.labels, path, note)
        else:
            there = self.labels_in(references)
            f1 = self._f1(outputs, np.asarray(references, np.int32), None, there) if there else []
            plot_scores({self.labels[i]: score for i, score in zip(there, f1)}, "F1", path, note)

    def show_label(self, row: Mapping[str, Any], label: Any) -> str:
        if self.problem_type == REGRESSION:
            return f"{label:.2f}"
        names = (
            [self.labels[label]]
            if self.problem_type == SINGLE
            else [n for n, there in zip(self.labels, label) if there]
        )
        return printable(", ".join(names)) or "none"


class Nli(Classify):  # (its docstring, which has the help of the options, is that of `Classify`)
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
    inner = getattr(feature, "feature", feature)

    def plain(value: Any) -> Any:
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


def _problem_type(split: datasets.Dataset, values: Iterable[Any]) -> str:
    """The kind of the labels `values` of a split."""
    values = [value for value in values if value is not None]
    if any(isinstance(value, list) for value in values):
        return MULTI
    if not split[0][FILE].lower().endswith((".csv", ".tsv")) and any(isinstance(value, str) for value in values):
        return SINGLE  # (in a csv, numbers of which one is written as 3.10 are text too)
    numbers = [to_number(value) for value in values]
    return SINGLE if not np.isfinite(numbers).all() or all(map(float.is_integer, numbers)) else REGRESSION


def _parse_list(value: Any) -> Any:
    """The list that a text writes as JSON or as Python does; other values as they are. A ValueError for a text that
    looks like a list and is none."""
    if not isinstance(value, str) or not re.fullmatch(r"\s*\[.*\]\s*", value, re.DOTALL):
        return value
    for parse in (json.loads, ast.literal_eval):
        try:
            found = parse(value)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        # NumPy writes lists without commas, which Python would run together.
        if isinstance(found, list) and not re.search(r"""['"]\s+['"]""", value):
            return found
    raise ValueError(f"the label {value[:100]!r} is no list; write it as " + '["joy", "sad"]')


def _separator(values: Iterable[Any]) -> str | None:
    """The mark that separates several labels in one text, if some mark does: parts of texts with it are labels of other
    rows, too; None otherwise."""
    texts = {value for value in values if isinstance(value, str)}
    for mark in ("|", ";", ","):
        combined = [{part.strip() for part in text.split(mark)} for text in texts if mark in text]
        seen = Counter(part for parts in [*combined, texts] for part in parts)
        known = [sum(seen[part] > 1 for part in parts) for parts in combined]
        # a comma is common in names of classes
        if known and (all(known) if mark != "," else all(map(int.__eq__, known, map(len, combined)))):
            return mark
    return None


def label_finder(labels: Sequence[str]) -> Callable[[int | str], int | None]:
    """A function that gives the id of a label: by its name; by the one name that is the same number, or the same of
    true and false (csv and other files write them otherwise); by its own number, where no name is one (a text, where
    nothing was named)."""
    ids, same = {name: i for i, name in enumerate(labels)}, defaultdict(list)
    for i, name in enumerate(labels):
        same[name.lower() if name.lower() in ("true", "false") else to_number(name)].append(i)
    named = not all(name == f"LABEL_{i}" for i, name in enumerate(labels))
    counts = all(np.isnan(to_number(name)) for name in labels)

    def find(label: int | str) -> int | None:
        text = str(label)
        if text in ids:
            return ids[text]
        alike = same.get(text.lower() if text.lower() in ("true", "false") else to_number(text), ())
        if len(alike) == 1:
            return alike[0]
        number = to_number(text)
        return int(number) if counts and (isinstance(label, int) or not named) and number in range(len(ids)) else None

    return find


def encode_texts(tokenizer, *columns: list) -> dict[str, list]:
    """Token ids of one text or two, cut to `tokenizer.model_max_length` (the longer one first), `labels`, and whether
    anything was `cut`."""
    *texts, labels = columns
    encoded = tokenizer(*texts, truncation=True)
    return {**encoded, "labels": labels, CUT: [bool(each.overflowing) for each in encoded.encodings]}
