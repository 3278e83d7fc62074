"""What a fine-tuning is worth: its scores beside those of something simple, by class, and its worst mistakes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import datasets
import numpy as np

from ..common.files import atomic_write, write_json
from ..common.printing import format_scores, format_table
from ..evaluation.baselines import is_better, judge
from .tasks.base import LABEL, Predictions, Scores, Task

REPORT, PICTURE, ERRORS = "metrics.json", "predictions.png", "errors.jsonl"
FILES = f"{REPORT}, {PICTURE} and {ERRORS} (it has texts of your data and is never uploaded)"
MOST_ERRORS, SHOWN_ERRORS, SHOWN_CLASSES, LINE = 1000, 10, 30, 150


def baseline(task: Task, splits: Mapping[str, datasets.Dataset]) -> dict[str, Scores]:
    """The scores of simple guesses on every measured split. The guesses know the training rows. If there are none, they
    know the measured rows, `task.baseline` says so, and a split with a single label has no scores."""
    train = splits.get("train")
    if train is None:
        task.baseline = f"{type(task).baseline} from these rows"
        splits = {
            name: split for name, split in splits.items() if len({*map(str, split[LABEL])}) > 1
        }
    return {
        name: task.baseline_scores(train or split, split)
        for name, split in splits.items()
        if name != "train"
    }


class Results:
    """The scores of every split, beside the `baseline` and `by_class`. For the `last` split also the worst mistakes,
    and a `warning` if the model is not better than the baseline."""

    def __init__(
        self, task: Task, predictions: Mapping[str, Predictions], scores: Mapping[str, Scores],
        baseline: Mapping[str, Scores],
    ):  # fmt: skip
        self.task, self.predictions, self.baseline = task, predictions, baseline
        self.scores = {name: scores[name] for name in predictions}
        decoded = {name: list(task.decode(each)) for name, each in predictions.items()}
        self.by_class = {
            name: task.by_class(decoded[name], each.examples[LABEL][:])
            for name, each in predictions.items()
        }
        self.last = list(predictions)[-1]
        # accuracy can be high although a rare class is never predicted
        self.metric = metric = (
            "f1_macro" if "f1_macro" in self.scores[self.last] else task.metric_for_best_model
        )
        self.value, self.simple = (
            of.get(self.last, {}).get(metric) for of in (self.scores, baseline)
        )
        rows = len(predictions[self.last].examples)
        supports = [
            each["support"] for each in self.by_class[self.last].values() if each["support"]
        ]
        if metric == "f1_macro" and supports:  # the rarest class says as much in it as any other
            rows = min(rows, min(supports) * len(supports))
        self.warning = judge(metric, self.value, self.simple, task.baseline, rows)
        self.mistakes = find_mistakes(task, predictions[self.last], decoded[self.last])

    def save(self, report: dict[str, Any], output: Path) -> None:
        """Write the picture, the mistakes and the report with what is said here."""
        output.mkdir(parents=True, exist_ok=True)
        note = "" if self.value is None else f"\n{self.last}: {self.metric} {self.value:.3f}"
        note += "" if self.simple is None else f" ({self.task.baseline}: {self.simple:.3f})"
        self.task.draw(self.predictions[self.last], output / PICTURE, note)
        with atomic_write(output / ERRORS) as unfinished:
            lines = (
                json.dumps({"split": self.last, **each}, ensure_ascii=False) + "\n"
                for each in self.mistakes
            )
            unfinished.write_text("".join(lines), encoding="utf-8")
        report |= {
            "baseline": {"name": self.task.baseline, **self.baseline},
            "by_class": self.by_class,
        }
        report["warning"] = self.warning
        write_json(output / REPORT, report)  # last, since it says that all is there

    def describe(self) -> str:
        """The tables and the worst mistakes as text; metrics that the baseline reaches come behind the others."""
        rows, simple = {}, self.baseline.get(self.last, {})

        def place(item: tuple[str, float | None]) -> tuple[bool, bool]:
            return item[0] == "loss", not is_better(*item, simple.get(item[0]))

        order = sorted(self.scores[self.last].items(), key=place)
        for name, scores in self.scores.items():
            rows[name] = {metric: scores.get(metric) for metric, _ in order}
            if name in self.baseline:
                rows[f"  {self.task.baseline} ({name})"] = self.baseline[name]
        lines = [format_scores(rows)]
        if by_class := self.by_class[self.last]:
            classes = sorted(by_class, key=lambda name: -by_class[name]["support"])
            few = f", the {SHOWN_CLASSES} most frequent of {len(classes):,}" * (
                len(classes) > SHOWN_CLASSES
            )
            cells = [(name, *by_class[name].values()) for name in classes[:SHOWN_CLASSES]]
            lines += ["", format_table((f"{self.last}{few}", *by_class[classes[0]]), cells)]
        if self.mistakes:
            lines += ["", f"The worst mistakes of {self.last} (more in {ERRORS}):"]
        for each in self.mistakes[:SHOWN_ERRORS]:
            size = each.get("confidence", each.get("off_by"))
            lines += [
                f"  {size:.2f}  {each['predicted']}, not {each['true']}: {each['text']}"[:LINE]
            ]
        return "\n".join(lines)


def find_mistakes(task: Task, predictions: Predictions, decoded: list[Any]) -> list[dict[str, Any]]:
    """The wrong predictions as a person reads them, the most confident first, of values the farthest off."""
    examples, encoded, _, confidence = predictions
    if (
        "is_last" in encoded.column_names
    ):  # of a long text, the surest part; a sentence without words has none
        ends = np.flatnonzero(encoded["is_last"])
        parts = iter(np.maximum.reduceat(confidence, [0, *ends[:-1] + 1]))
        confidence = [next(parts) if text else 0.0 for text in examples[task.text_columns[0]]]
    sizes = [task.mistake(*each) for each in zip(decoded, examples[LABEL], confidence)]
    found = []
    for place in np.argsort(-np.array(sizes), kind="stable")[:MOST_ERRORS].tolist():
        if sizes[place] > 0:
            row = examples[place]
            predicted, true = (
                task.show_label(row, label) for label in (decoded[place], row[LABEL])
            )
            key = "off_by" if isinstance(row[LABEL], float) else "confidence"
            size = {key: round(float(sizes[place]), 4)}
            found.append(
                {
                    "row": place + 1,
                    **size,
                    "predicted": predicted,
                    "true": true,
                    "text": task.show_input(row),
                }
            )
    return found
