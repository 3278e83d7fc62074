"""What a fine-tuned model is worth: its scores beside those of something simple, by class, and its
worst mistakes; as a report, as files and as text."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import datasets
import numpy as np

from ..common.files import atomic_write, write_json
from ..common.printing import format_intervals, format_scores, format_table
from ..evaluation.baselines import is_better, is_perfect, judge, judge_simple
from .reading.columns import ROW
from .tasks.base import Task
from .tasks.display import most_frequent_first
from .tasks.predictions import LABEL, Predictions, Scores

REPORT_FILE = "metrics.json"
PICTURE_FILE = "predictions.png"
MISTAKES_FILE = "errors.jsonl"
FILES_DESCRIPTION = (
    f"{REPORT_FILE}, {PICTURE_FILE} and {MISTAKES_FILE}"
    " (it has texts of your data and is never uploaded)"
)
MAX_SAVED_MISTAKES = 1000
MAX_PRINTED_MISTAKES = 10
MAX_PRINTED_CLASSES = 30
MAX_LINE_LENGTH = 150


def name_baseline(task: Task, training_examples: datasets.Dataset | None) -> str:
    """What the guesses of `score_baseline` are called in tables."""
    if training_examples is None:
        return f"{task.baseline_name} from these rows"
    return task.baseline_name


def score_baseline(
    task: Task,
    training_examples: datasets.Dataset | None,
    splits: Mapping[str, datasets.Dataset],
) -> dict[str, Scores]:
    """The scores of simple guesses on every split but "train". The guesses know the training
    examples. If there are none, they know the measured examples, and a split with a single label
    has no scores."""
    scores = {}
    for name, split in measured_splits(splits).items():
        if training_examples is not None:
            scores[name] = task.score_guesses(training_examples, split)
        elif len(set(map(str, split[LABEL]))) > 1:
            scores[name] = task.score_guesses(split, split)
    return scores


def score_simple_model(
    task: Task,
    training_examples: datasets.Dataset | None,
    splits: Mapping[str, datasets.Dataset],
) -> dict[str, Scores]:
    """The scores of a simple model on every split but "train", where the task has one and there are
    training examples."""
    if training_examples is None:
        return {}
    measured = measured_splits(splits)
    predictions = task.simple_predictions(training_examples, list(measured.values()))
    if predictions is None:
        return {}
    scores = {}
    for (name, split), predicted in zip(measured.items(), predictions):
        scores[name] = task.score(predicted, split[LABEL][:])
    return scores


def measured_splits(splits: Mapping[str, datasets.Dataset]) -> dict[str, datasets.Dataset]:
    """The splits without "train"."""
    return {name: split for name, split in splits.items() if name != "train"}


class Results:
    """The scores of a model on every split, and what they are worth.

    Args:
        predictions: Those of every split, the one to judge the model by last.
        scores: The metrics with the loss, by split.
        baseline_scores: The scores of guesses, by split.
        simple_scores: The scores of a simple model, by split.
        baseline_name: What the guesses are called in tables.
        training_warning: What was wrong with the training: the `warning` if the scores give none.

    Attributes:
        last: The split that the model is judged by: the test examples if there are any.
        metric: The metric that it is judged by.
        decoded: What is predicted for each example, by split.
        by_class: The scores of each class, by split.
        intervals: The 95 % intervals of metrics, by split.
        pipeline_scores: What a pipeline of Transformers would reach, by split, where it decides
            otherwise.
        mistakes: The worst ones of the last split, see `find_mistakes`.
        warning: Why the model should not be used as it is, or None.
        is_too_easy: Whether something simple is as perfect as the model, so that a comparison with
            other models says nothing.
    """

    def __init__(
        self,
        task: Task,
        predictions: Mapping[str, Predictions],
        scores: Mapping[str, Scores],
        baseline_scores: Mapping[str, Scores],
        simple_scores: Mapping[str, Scores],
        baseline_name: str,
        training_warning: str | None = None,
    ):
        self.task = task
        self.predictions = predictions
        self.scores = {name: scores[name] for name in predictions}
        self.baseline_scores = baseline_scores
        self.baseline_name = baseline_name
        self.simple_scores = simple_scores

        self.decoded = {}
        self.by_class = {}
        self.intervals = {}
        self.pipeline_scores = {}
        for name in predictions:
            self._analyse_split(name)

        self.last = list(predictions)[-1]
        self.mistakes = find_mistakes(task, predictions[self.last], self.decoded[self.last])
        self.metric = task.metric_for_best_model
        if "f1_macro" in self.scores[self.last]:
            # Accuracy can be high although a rare class is never predicted.
            self.metric = "f1_macro"
        self.model_value = self.scores[self.last].get(self.metric)
        self.baseline_value = baseline_scores.get(self.last, {}).get(self.metric)
        self.simple_model_value = simple_scores.get(self.last, {}).get(self.metric)
        self.warning = self._judge_scores() or training_warning
        simple_values = (self.baseline_value, self.simple_model_value)
        self.is_too_easy = is_perfect(self.metric, self.model_value) and 1 in simple_values

    def _analyse_split(self, name: str) -> None:
        """Compute what stands beside the scores of a split."""
        predictions = self.predictions[name]
        references = predictions.examples[LABEL][:]
        decoded = self.task.decode_once(predictions)
        self.decoded[name] = decoded
        self.by_class[name] = self.task.scores_by_class(decoded, references)
        self.intervals[name] = self.task.intervals(decoded, references)
        pipeline_scores = self.task.pipeline_scores(predictions)
        if pipeline_scores:
            self.pipeline_scores[name] = pipeline_scores

    def _judge_scores(self) -> str | None:
        """A warning if the model is not better than the baseline, or than the simple model."""
        interval = self.intervals[self.last].get(self.metric)
        warning = judge(
            self.metric, self.model_value, self.baseline_value, self.baseline_name, interval
        )
        if warning is not None:
            return warning
        return judge_simple(
            self.metric,
            self.model_value,
            self.simple_model_value,
            self.task.simple_model_name,
            interval,
        )

    def make_report(self) -> dict[str, Any]:
        """What `metrics.json` says beside the scores."""
        report: dict[str, Any] = {"baseline": {"name": self.baseline_name, **self.baseline_scores}}
        if self.simple_scores:
            report["simple_model"] = {"name": self.task.simple_model_name, **self.simple_scores}
        if self.pipeline_scores:
            report["pipeline"] = self.pipeline_scores
        report["by_class"] = self.by_class
        report["intervals"] = {}
        for name, intervals in self.intervals.items():
            bounds = {metric: list(interval) for metric, interval in intervals.items()}
            report["intervals"][name] = bounds
        report["warning"] = self.warning
        return report

    def save(self, report: Mapping[str, Any], output: Path) -> None:
        """Write the picture, the mistakes, and the report."""
        output.mkdir(parents=True, exist_ok=True)
        note = ""
        if self.model_value is not None:
            note += f"\n{self.last}: {self.metric} {self.model_value:.3f}"
        if self.baseline_value is not None:
            note += f" ({self.baseline_name}: {self.baseline_value:.3f})"
        self.task.draw(self.predictions[self.last], output / PICTURE_FILE, note)
        mistake_lines = []
        for mistake in self.mistakes:
            row = {"split": self.last, **mistake}
            mistake_lines.append(json.dumps(row, ensure_ascii=False) + "\n")
        with atomic_write(output / MISTAKES_FILE) as unfinished:
            unfinished.write_text("".join(mistake_lines), encoding="utf-8")
        write_json(output / REPORT_FILE, report)  # last, since it says that all is there

    def describe(self) -> str:
        """The tables and the worst mistakes as text."""
        parts = [self._describe_scores()]
        if self.by_class[self.last]:
            parts.append(self._describe_classes())
        if self.mistakes:
            parts.append(self._describe_mistakes())
        return "\n\n".join(parts)

    def _describe_scores(self) -> str:
        """The scores of every split with what stands beside them, as a table."""
        metrics = self._ordered_metrics()
        rows: dict[str, Scores] = {}
        for name, scores in self.scores.items():
            rows[name] = {metric: scores.get(metric) for metric in metrics}
            rows[f"  95 % interval ({name})"] = format_intervals(self.intervals[name])
            if name in self.pipeline_scores:
                rows[f"  in a pipeline ({name})"] = self.pipeline_scores[name]
            if name in self.baseline_scores:
                rows[f"  {self.baseline_name} ({name})"] = self.baseline_scores[name]
            if name in self.simple_scores:
                rows[f"  {self.task.simple_model_name} ({name})"] = self.simple_scores[name]
        return format_scores(rows)

    def _ordered_metrics(self) -> list[str]:
        """The metrics that are better than the baseline's, then the others, then the loss."""
        scores_of_guesses = self.baseline_scores.get(self.last, {})
        better = []
        others = []
        loss = []
        for metric, value in self.scores[self.last].items():
            if metric == "loss":
                loss.append(metric)
            elif is_better(metric, value, scores_of_guesses.get(metric)):
                better.append(metric)
            else:
                others.append(metric)
        return better + others + loss

    def _describe_classes(self) -> str:
        """The scores of the classes as a table, the most frequent first."""
        by_class = most_frequent_first(self.by_class[self.last])
        heading = self.last
        if len(by_class) > MAX_PRINTED_CLASSES:
            heading += f", the {MAX_PRINTED_CLASSES} most frequent of {len(by_class):,}"
        score_names = list(next(iter(by_class.values())))
        rows = []
        for name, scores in list(by_class.items())[:MAX_PRINTED_CLASSES]:
            rows.append((name, *scores.values()))
        return format_table((heading, *score_names), rows)

    def _describe_mistakes(self) -> str:
        """The worst mistakes, a line each."""
        lines = [f"The worst mistakes of {self.last} (more in {MISTAKES_FILE}):"]
        for mistake in self.mistakes[:MAX_PRINTED_MISTAKES]:
            size = mistake[self.task.mistake_unit]
            line = f"  {size:.2f}  {mistake['predicted']}, not {mistake['true']}: {mistake['text']}"
            lines.append(line[:MAX_LINE_LENGTH])
        return "\n".join(lines)


def find_mistakes(task: Task, predictions: Predictions, decoded: list[Any]) -> list[dict[str, Any]]:
    """The wrong predictions as a person reads them, the most confident first, of values the
    farthest off."""
    examples = predictions.examples
    confidences = task.confidence_of_examples(predictions)
    sizes = []
    for label, true_label, confidence in zip(decoded, examples[LABEL], confidences):
        sizes.append(task.mistake(label, true_label, confidence))
    largest_first = np.argsort(-np.array(sizes), kind="stable")
    mistakes = []
    for index in largest_first[:MAX_SAVED_MISTAKES].tolist():
        if sizes[index] <= 0:
            break
        example = examples[index]
        mistake = {
            "row": example.get(ROW, index + 1),  # in its file
            task.mistake_unit: round(float(sizes[index]), 4),
            "predicted": task.show_label(example, decoded[index]),
            "true": task.show_label(example, example[LABEL]),
            "text": task.show_input(example),
        }
        mistakes.append(mistake)
    return mistakes
