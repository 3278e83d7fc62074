"""What the predictions of a task are worth: beside something simple, and class by class."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import datasets

from ...evaluation.baselines import is_better, random_scores
from ...evaluation.intervals import Interval, intervals_of_means
from .predictions import LABEL, Predictions, Scores


class JudgingMixin:
    """What a `Task` says for the comparison of its scores (`results.py`) and for the counts of its
    labels (`survey.py`). The defaults are those of a task that predicts one label for each example,
    without scores by class."""

    # The name of `guesses` in tables.
    baseline_name: ClassVar[str] = "guessing"
    # The name of the model of `simple_predictions` in tables.
    simple_model_name: ClassVar[str] = ""
    # Whether `LABEL` is the id of a class, so that classes can be drawn at random.
    has_class_ids: bool = False

    # --- beside something simple ---

    def guesses(
        self, training_examples: datasets.Dataset, examples: datasets.Dataset
    ) -> list[Sequence[Any]]:
        """Simple guesses for `examples` from the labels of the training examples, in one way or
        several: the most frequent label."""
        [(most_frequent, _)] = Counter(training_examples[LABEL]).most_common(1)
        return [[most_frequent] * len(examples)]

    def score_guesses(
        self, training_examples: datasets.Dataset, examples: datasets.Dataset
    ) -> Scores:
        """For each metric, the best score of the `guesses` and of classes drawn at random."""
        references = examples[LABEL][:]
        guesses = self.guesses(training_examples, examples)
        candidates = [self.score(guess, references) for guess in guesses]
        best_scores = dict(candidates[0])
        if self.has_class_ids:
            candidates += random_scores(training_examples[LABEL][:], references)
        for scores in candidates:
            for metric in best_scores:
                if metric in scores and is_better(metric, scores[metric], best_scores[metric]):
                    best_scores[metric] = scores[metric]
        return best_scores

    def simple_predictions(
        self, training_examples: datasets.Dataset, splits: Sequence[datasets.Dataset]
    ) -> list[Sequence[Any]] | None:
        """What a simple model, which is named by `simple_model_name`, predicts for each of the
        splits once it has learned from the training examples; None for a task without one."""
        return None

    def pipeline_scores(self, predictions: Predictions) -> Scores:
        """The metrics of what a pipeline of Transformers would predict, where it does not decide as
        `decode` does."""
        return {}

    def intervals(
        self, predictions: Sequence[Any], references: Sequence[Any]
    ) -> dict[str, Interval]:
        """The 95 % intervals of metrics of `score`."""
        is_right = [predicted == true for predicted, true in zip(predictions, references)]
        return intervals_of_means({"accuracy": is_right})

    # --- class by class ---

    def class_of_label(self, label: str) -> str:
        """What metrics are given for, of a label: the label, or the type of entity that it stands
        for."""
        return label

    def scores_by_class(
        self, predictions: Sequence[Any], references: Sequence[Any]
    ) -> dict[str, dict[str, float]]:
        """precision, recall, f1 and support of every class (or type of entity); empty for a task
        without classes."""
        return {}

    def count_labels(self, examples: datasets.Dataset) -> Counter[str]:
        """How often each label occurs; empty for a task whose labels are no choice between
        names."""
        return Counter()

    def count_labelled(self, examples: datasets.Dataset) -> int:
        """How many things have a label of `count_labels`: the examples, or their words."""
        return len(examples)

    def counts_by_class(self, label_counts: Mapping[str, int]) -> dict[str, int]:
        """How often each class occurs, from the numbers of `count_labels`."""
        return dict(label_counts)

    def total_of_shares(self, class_counts: Mapping[str, int], num_examples: int) -> int:
        """The number that the shares of the classes are of, from those of `counts_by_class`."""
        return sum(class_counts.values())
