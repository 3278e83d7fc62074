"""Classify texts or pairs of texts: one class, several labels, or a value; and entailment."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import datasets
import numpy as np
import torch
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from ....modeling_minibert import MiniBertForSequenceClassification
from ...common.files import printable
from ...data.tables import to_number
from ...evaluation.metrics import class_scores, correlations
from ...evaluation.plots import plot_confusion, plot_values
from ..data import FILE, as_list, bad_value, each_row, find_column, string_columns
from ..imbalance import best_threshold, class_weights, describe_weights
from .base import CUT, LABEL, Labels, Predictions, Scores, Task, saved_labels

PAIRS = (
    ("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"), ("text_a", "text_b"),
    ("text", "text_pair"), ("text1", "text2"), ("question", "sentence"), ("question", "passage"),
)  # fmt: skip
# Names of the labels of inference in other data sets, such as supports, refutes, not enough info.
ENTAILS = re.compile(r"supports?|supported|supporting|implie[sd]|follows|yes|true")
CONTRADICTS = re.compile(r"contradict|refut|denie[sd]|unsupported|not?$|false$|not[ _-]?(support|true)")
SINGLE, MULTI, REGRESSION = (
    "single_label_classification",
    "multi_label_classification",
    "regression",
)
LIST = 'a list of names (or of their numbers), each of them once, such as ["joy", "sad"]; not of 0 and 1'
MAX_NUMBERED_CLASSES = 20  # of more whole numbers, it is said that they may be values
MOST_LABELS = 1_000  # of more, there must be several rows for each
FLOAT = datasets.Value("float32")
# Of each problem type the metric that chooses the best model, and the type of `LABEL`.
KINDS = {
    SINGLE: ("accuracy", datasets.Value("int64")),  # the number of a class
    MULTI: ("f1_micro", datasets.List(FLOAT)),  # 0 or 1 for each label
    REGRESSION: ("spearman", FLOAT),  # a value
}


@dataclass(eq=False)
class Classify(Task):
    """A classifier of texts or pairs of texts. Lists of labels are several labels, numbers of which some have a
    fraction are values, the rest are classes.

    Args:
        text_column: The column of the text (or of the first of two); by default guessed by its name.
        pair_column: The column of the second text; by default guessed by its name, if there is one.
        label_column: The column of the label; by default guessed by its name.
        labels: Names of the classes, if the data do not make them clear; labels that are numbers count them from 0.
        max_length: Longest input, in tokens; longer ones are cut. By default that of the model.
        class_weights: Weights of the classes in the loss: balanced, a number for each class, or CLASS=NUMBER.
        tune_threshold: With two classes or several labels a row, predict by thresholds chosen on the validation rows.
        regression: Learn whole numbers as values, such as ratings from 0 to 100, and not as classes.
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

    def __post_init__(self):
        if self.regression and self.labels:
            raise ValueError("regression: values have no names; leave labels out")
        self.named_labels = list(self.labels)
        self.thresholds = None

    def find_texts(self, split: datasets.Dataset) -> list[str]:
        given = [option for option in ("text_column", "pair_column") if getattr(self, option)]
        columns = [self.find(split, option) for option in given] or self._guess_texts(split)
        if given == ["pair_column"] or (self.pairs_only and len(columns) != 2):
            unclear = f"not clear; name them with --text_column and --pair_column ({', '.join(string_columns(split))})"
            raise ValueError(f"pair_column: the two texts of {split[0][FILE]!r} are {unclear}")
        return columns

    def _guess_texts(self, split: datasets.Dataset) -> list[str]:
        strings = [column for column in string_columns(split) if column != self.find_labels(split)]
        if pair := next((pair for pair in PAIRS if set(pair) <= set(strings)), None):
            return list(pair)
        known = [name for name in self.columns["text_column"] if name in strings]
        return (
            strings
            if len(strings) == 1 and not known
            else [find_column(split, "text_column", None, known)]
        )

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
                        f"{name}: {num_left_out:,} of {len(values):,} rows have no label and are left "
                        "out; if that is a class of its own, give it a name, such as none"
                    )
                    splits[name] = splits[name].select(labelled)
        return super().read(splits, config)

    def read_labels(self, split: datasets.Dataset) -> list[Any]:
        return each_row(split, self._checked, self._values(split, self.label_column))

    def _checked(self, value: Any) -> Any:
        """A label, or a list of different ones."""
        if value is None or isinstance(value, dict):
            raise bad_value(self.label_column, value, "a label")
        named = all(isinstance(item, (str, int)) for item in as_list(value)) or not isinstance(
            value, list
        )
        if not named or len(set(as_list(value))) < len(as_list(value)):
            raise bad_value(self.label_column, value, LIST)
        return value

    def classes(self, split: datasets.Dataset) -> list[set[str]]:
        values = self._values(split, self.find_labels(split))
        if self._guess_type(values) == REGRESSION:
            return [set()] * len(split)
        return [set(map(str, as_list(value))) for value in values]

    def _values(self, split: datasets.Dataset, column: str) -> list[Any]:
        """The labels as they stand there, see `plain_label`."""
        feature, known = split.features[column], self.named_labels
        names = getattr(getattr(feature, "feature", feature), "names", None)
        return each_row(split, lambda x: x if x in known else plain_label(x, names), split[column])

    def _guess_type(self, values: Iterable[Any]) -> str:
        if self.regression:
            return REGRESSION
        if any(isinstance(value, list) for value in values):
            return MULTI
        numbers = [to_number(value) for value in values]
        no_values = (
            self.named_labels
            or not np.isfinite(numbers).all()
            or all(map(float.is_integer, numbers))
        )
        return SINGLE if no_values else REGRESSION

    def learn_labels(
        self, splits: datasets.DatasetDict, labels: Labels, config: PreTrainedConfig | None
    ) -> Labels:
        trained = config and (
            config.problem_type or (REGRESSION if config.num_labels == 1 else None)
        )
        every = [value for rows in labels.values() for value in rows]
        if trained != MULTI and all(isinstance(value, list) and len(value) == 1 for value in every):
            labels = {
                name: [value[0] for value in rows] for name, rows in labels.items()
            }  # as doccano writes classes
        if self.regression and trained not in (None, REGRESSION):
            raise ValueError("regression: the model was trained for classes; start from another one")
        self.problem_type = trained or self._guess_type(next(iter(labels.values())))
        if "train" in labels and self.problem_type == SINGLE and not self.named_labels:
            self._mention_numbers(splits["train"], set(labels["train"]))
        self.metric_for_best_model, self.label_feature = KINDS[self.problem_type]
        if {tuple(as_list(value)) for value in every} == {(0, 1), (1, 0)}:
            said = "has [0, 1] and [1, 0] only, which name the same labels"
            raise ValueError(f"label_column: {self.label_column!r} {said}; use {LIST}")
        self.labels = self._names(splits, labels, config)
        different = {item for rows in labels.values() for value in rows for item in as_list(value)}
        self._id_of = {item: find_label(self.labels, item) for item in different}
        encoded = {
            name: each_row(splits[name], self._encoded, values) for name, values in labels.items()
        }
        if "train" not in encoded:
            self.thresholds = getattr(config, "thresholds", None)
        elif self.class_weights or self.tune_threshold:
            self._balance(encoded["train"])
        return encoded

    def _mention_numbers(self, split: datasets.Dataset, labels: set[Any]) -> None:
        """Say how many whole numbers could be learned as values, if they are that many."""
        has_names = isinstance(split.features[self.label_column], datasets.ClassLabel)
        are_numbers = all(isinstance(label, int) for label in labels)
        if are_numbers and not has_names and len(labels) > MAX_NUMBERED_CLASSES:
            print(
                f"{printable(self.label_column)}: {len(labels):,} different whole numbers are learned as classes; "
                "if they are values, such as ratings, give --regression true"
            )

    def _balance(self, train: list[Any]) -> None:
        """Settle the weights of the loss; refuse weights and thresholds that these labels cannot have."""
        if self.problem_type == REGRESSION:
            raise ValueError(
                f"class_weights, tune_threshold: {self.label_column!r} has values, not classes"
            )
        if self.tune_threshold and self.problem_type == SINGLE and len(self.labels) != 2:
            has = f"{self.label_column!r} has {len(self.labels)} classes"
            raise ValueError(
                f"tune_threshold: {has}; it needs two classes, or several labels a row"
            )
        self.metric_for_best_model = "f1_macro"
        if self.class_weights:
            several = self.problem_type == MULTI
            counts = Counter(
                self.labels[i] for row in train for i in (np.flatnonzero(row) if several else [row])
            )
            self.label_weights = class_weights(
                self.class_weights, self.labels, counts, len(train) if several else None
            )
            print(describe_weights(self.labels, self.label_weights))

    def _names(
        self, splits: datasets.DatasetDict, values: Labels, config: PreTrainedConfig | None
    ) -> list[str]:
        """The names of all labels, in the order of their ids."""
        given, saved, file = (
            self.named_labels,
            saved_labels(config),
            next(iter(splits.values()))[0][FILE],
        )
        if saved and given and given != saved:
            raise ValueError(f"labels: {', '.join(given)}, but the model knows {', '.join(saved)}")
        if self.problem_type == REGRESSION:
            return ["score"]
        known = saved or given
        if "train" not in values:
            return known or [config.id2label[i] for i in sorted(config.id2label)]  # LABEL_0, …
        seen = {item for value in values["train"] for item in as_list(value)}
        names = (
            list(map(str, sorted(seen)))
            if all(isinstance(x, int) for x in seen)
            else sorted(map(str, seen))
        )
        feature = splits["train"].features[self.label_column]
        known = known or getattr(getattr(feature, "feature", feature), "names", None) or names
        has = f"{file!r} has {', '.join(names[:9])}{' …' * (len(names) > 9)}"
        if len(names) > max(MOST_LABELS, len(splits["train"]) // 2):
            raise ValueError(
                f"label_column: {len(names):,} labels are too many to learn ({has}); name another column"
            )
        found = {find_label(known, item) for item in seen}
        if saved and None in found:
            there = f"{', '.join(saved)}, and {has}"
            raise ValueError(
                f"model: it was fine-tuned for the labels {there}; start from a model without such a head"
            )
        if (
            given and not saved and None not in found and len(found) < len(given)
        ):  # (else a row is wrong, and named)
            absent = ", ".join(repr(name) for i, name in enumerate(given) if i not in found)
            raise ValueError(
                f"labels: no row has the label {absent}; leave them out, or correct them; {has}"
            )
        if (
            len(found) < 2 and not saved and [] not in values["train"]
        ):  # (a label that some rows lack can be learned)
            raise ValueError(f"{self.label_column}: {has} only; there is nothing to learn")
        return known

    def _encoded(self, value: Any) -> int | float | list[float]:
        """What the model learns: a class number, 0 or 1 for each label, or a value."""
        if self.problem_type == REGRESSION:
            if not np.isfinite(to_number(value)):
                raise bad_value(self.label_column, value, f"a number ({REGRESSION})")
            return to_number(value)
        if isinstance(value, list) and self.problem_type == SINGLE:
            raise bad_value(self.label_column, value, f"one label ({SINGLE})")
        ids = [self._id_of[item] for item in as_list(value)]
        if None in ids:
            why = " is none of --labels" if self.named_labels else " was never seen in training"
            known = ", ".join(self.labels[:20]) + " …" * (len(self.labels) > 20)
            raise bad_value(
                self.label_column, as_list(value)[ids.index(None)], f"one of {known}", why
            )
        return (
            ids[0]
            if self.problem_type == SINGLE
            else [float(i in ids) for i in range(len(self.labels))]
        )

    def config_fields(self) -> dict[str, Any]:
        return {
            **super().config_fields(),
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
        """The class, [batch]; of two classes, the log-odds of the second one, [batch]; the log-odds of every label,
        [batch, labels]; or the value, [batch]."""
        if self.problem_type == SINGLE:
            return (
                logits[:, 1].float() - logits[:, 0].float()
                if self._has_threshold
                else logits.argmax(-1)
            )
        return logits.float() if self.problem_type == MULTI else logits.float().squeeze(-1)

    def tune(self, predictions: Predictions) -> None:
        """The thresholds are those with the best F1 of each label (of two classes: with the best macro F1)."""
        if self.tune_threshold:
            outputs, references = (
                predictions.outputs,
                np.asarray(predictions.examples[LABEL][:], np.int32),
            )
            if self.problem_type == MULTI:
                self.thresholds = [
                    best_threshold(*columns, both=False) for columns in zip(outputs.T, references.T)
                ]
            else:
                second = best_threshold(outputs, references, both=True)
                self.thresholds = [1 - second, second]

    def decode(self, predictions: Predictions) -> list[Any]:
        outputs = predictions.outputs
        if self._has_threshold:
            thresholds = np.array(self.thresholds or [0.5] * len(self.labels))
            log_odds = np.log(thresholds / (1 - thresholds))
            outputs = (outputs > (log_odds if self.problem_type == MULTI else log_odds[1])).astype(
                np.int32
            )
        return outputs.tolist()

    def score(self, predictions: Sequence[Any], references: Sequence[Any]) -> Scores:
        """Macro F1 is the mean over the labels that occur in `references`."""
        if self.problem_type == REGRESSION:
            predictions = np.asarray(predictions, np.float32)
            scores = correlations(predictions, references)
            if len(set(references)) < 2:
                scores = dict.fromkeys(scores)
            return scores | {"mse": float(np.mean((predictions - np.asarray(references)) ** 2))}
        predictions, references = (
            np.asarray(predictions, np.int32),
            np.asarray(references, np.int32),
        )
        there = self.labels_in(references)
        accuracy = {"accuracy": float(accuracy_score(references, predictions))}
        macro = {"f1_macro": self._f1(predictions, references, "macro", there) if there else None}
        if self.problem_type == MULTI:
            micro = (
                self._f1(predictions, references, "micro", range(len(self.labels)))
                if there
                else None
            )
            return {"f1_micro": micro} | macro | accuracy
        matthews = float(matthews_corrcoef(references, predictions)) if len(there) > 1 else None
        return accuracy | macro | {"matthews_correlation": matthews}

    def guesses(self, known: datasets.Dataset, examples: datasets.Dataset) -> list[Sequence[Any]]:
        """The most frequent class; the most frequent one of several labels, or all of them; or the mean value."""
        if self.problem_type == SINGLE:
            return super().guesses(known, examples)
        means = np.mean(known[LABEL][:], axis=0)
        several = (
            [np.eye(len(means))[means.argmax()], np.ones(len(means))]
            if self.problem_type == MULTI
            else [means]
        )
        return [[guess] * len(examples) for guess in several]

    def by_class(
        self, predictions: Sequence[Any], references: Sequence[Any]
    ) -> dict[str, dict[str, float]]:
        there = {i: self.labels[i] for i in self.labels_in(references)}
        is_clear = self.problem_type == SINGLE or len(self.labels) > 1
        return class_scores(predictions, references, there) if is_clear else {}

    def confidence(self, logits: torch.Tensor, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        if self.problem_type == SINGLE:
            return super().confidence(logits, inputs)
        return logits.float().abs().sigmoid().amin(-1)  # of the label that is least sure

    def mistake(self, predicted: Any, true: Any, confidence: float) -> float:
        """Of a value, how far off it is."""
        is_value = self.problem_type == REGRESSION
        return abs(predicted - true) if is_value else super().mistake(predicted, true, confidence)

    def labels_in(self, references: Sequence[Any]) -> list[int]:
        """The ids of the labels that some row has."""
        if self.problem_type == MULTI:
            return np.flatnonzero(np.any(references, axis=0)).tolist()
        return np.unique(references).tolist() if self.problem_type == SINGLE else []

    def _f1(
        self, predictions: np.ndarray, references: np.ndarray, average: str, labels: Sequence[int]
    ) -> float:
        if (
            self.problem_type == MULTI and len(self.labels) == 1
        ):  # which scikit-learn takes for a single class
            labels = [1]
        return float(
            f1_score(references, predictions, average=average, labels=[*labels], zero_division=0)
        )

    def draw(self, predictions: Predictions, path: Path, note: str = "") -> None:
        outputs, references = self.decode(predictions), predictions.examples[LABEL][:]
        if self.problem_type == REGRESSION:
            plot_values(outputs, references, path, note)
        elif self.problem_type == SINGLE:
            plot_confusion(outputs, references, self.labels, path, note)
        else:
            super().draw(predictions, path, note)

    def show_label(self, row: Mapping[str, Any], label: Any) -> str:
        if self.problem_type == REGRESSION:
            return f"{label:.2f}"
        ids = [label] if self.problem_type == SINGLE else np.flatnonzero(label)
        return printable(", ".join(self.labels[i] for i in ids)) or "none"


class Nli(Classify):  # (its docstring, which has the help of the options, is that of `Classify`)
    name = "nli"
    pairs_only = True
    no_gold = (
        "-",
    )  # how SNLI marks pairs that its annotators did not agree on; of numbers it is -1

    def __post_init__(self):
        super().__post_init__()
        if self.regression:
            raise ValueError("regression: inference has classes; use `classify` for values")

    def read(
        self, splits: datasets.DatasetDict, config: PreTrainedConfig | None = None
    ) -> datasets.DatasetDict:
        column, splits = self.find_labels(next(iter(splits.values()))), datasets.DatasetDict(splits)
        for name, split in splits.items():
            values = split[column][:] if column in split.column_names else []
            gold = [i for i, value in enumerate(values) if str(value) not in ("-", "-1")]
            if len(gold) < len(values):
                print(
                    f"{name}: {len(values) - len(gold):,} pairs without a gold label are left out"
                )
                splits[name] = split.select(gold)
        read = super().read(splits, config)
        if all(label.lstrip("-").isdigit() for label in self.labels):
            use = "give them in the order of their numbers, as --labels entailment neutral contradiction"
            raise ValueError(f"labels: {self.label_column!r} has no names for its labels; {use}")
        if "train" in splits and not _name_entailment(self.labels):
            print(
                f"labels: none begins with 'entail', so that zero-shot classification takes the last one, "
                f"{printable(self.labels[-1])!r}, for entailment, and the first, {printable(self.labels[0])!r}, for "
                "contradiction; if that is wrong, give them in another order by --labels"
            )
        return read

    def _names(
        self, splits: datasets.DatasetDict, values: Labels, config: PreTrainedConfig | None
    ) -> list[str]:
        """In the order that Transformers' zero-shot classification expects where no name begins with "entail": what
        contradicts comes first, and what entails last."""
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
    return 2 if ENTAILS.fullmatch(label.lower()) else 1


def plain_label(value: Any, names: Sequence[str] | None) -> Any:
    """A label as it is compared: its name where its column has `names` for numbers, a whole number
    as int, the list that a text writes (["joy", "sad"], joy|sad or Label Studio's {"choices": ["joy",
    "sad"]}), None for an empty cell."""
    if isinstance(value, str) and value.lstrip().startswith('{"choices"'):
        with suppress(json.JSONDecodeError):
            value = json.loads(value)
    if isinstance(value, dict) and isinstance(value.get("choices"), list):
        value = value["choices"]
    if isinstance(value, list):
        return [plain_label(item, names) for item in value]
    if isinstance(value, str) and value.strip()[:1] == "[" and value.strip()[-1] == "]":
        for text in (value, value.replace("'", '"')):  # as JSON and as Python write it
            with suppress(json.JSONDecodeError):
                return json.loads(text)
        raise ValueError(
            f"the label {value[:100]!r} is not a list; write it as " + '["joy", "sad"]'
        )
    if isinstance(value, str) and "|" in value:
        return [part.strip() for part in value.split("|")]
    if isinstance(value, float) and (value.is_integer() or np.isnan(value)):
        return None if np.isnan(value) else int(value)
    if names and isinstance(value, int) and value >= 0:
        return names[value]
    return str(value) if isinstance(value, bool) else None if value == "" else value


def _are_classes_with_gaps(columns: Sequence[list[Any]]) -> bool:
    """Whether labels (columns of all splits) are lists of one class each, of two or more classes,
    beside empty ones. With a single label, an empty list says that a row lacks it."""
    classes = set()
    has_gaps = False
    for value in chain.from_iterable(columns):
        if value == []:
            has_gaps = True
        elif isinstance(value, list) and len(value) == 1:
            classes.add(str(value[0]))
        else:
            return False
    return has_gaps and len(classes) > 1


def find_label(labels: Sequence[str], label: int | str) -> int | None:
    """The id of a label: by its name; by the one name that is the same number, or the same but for its case (files
    write 1, 1.0 and 01, true and True); by its own number, where no name is one."""
    text, number = str(label), to_number(label)
    if text in labels:
        return labels.index(text)
    alike = [
        i
        for i, name in enumerate(labels)
        if name.lower() == text.lower() or to_number(name) == number
    ]
    if len(alike) == 1:
        return alike[0]
    counts = number in range(len(labels)) and np.isnan([*map(to_number, labels)]).all()
    return int(number) if counts else None


def encode_texts(tokenizer, *columns: list) -> dict[str, list]:
    """Token ids of one text or two, cut to `tokenizer.model_max_length` (the longer one first), `labels`, and whether
    anything was `cut`."""
    *texts, labels = columns
    encoded = tokenizer(*texts, truncation=True)
    return {
        **encoded,
        "labels": labels,
        CUT: [bool(each.overflowing) for each in encoded.encodings],
    }
