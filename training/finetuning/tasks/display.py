"""How examples and predictions of a task are shown: in `predict`, in the results, on the card."""

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import datasets

from ...common.printable import printable
from ...evaluation.plots import plot_scores
from .predictions import LABEL, SCORE_FEATURE, STRING_FEATURE, Predictions

MAX_SHOWN_CHARACTERS = 200


class DisplayMixin:
    """What a `Task` says of its examples and predictions where people read them. The defaults are
    those of a task that reads texts and predicts one label for each example."""

    # --- what `predict` returns ---

    @property
    def prediction_features(self) -> datasets.Features:
        """The columns that `describe_predictions` gives."""
        return datasets.Features({"label": STRING_FEATURE, "score": SCORE_FEATURE})

    def describe_predictions(self, predictions: Predictions) -> dict[str, list[Any]]:
        """What `decode` returns as a person reads it, by column, with a score up to 1: how sure the
        model is."""
        labels = [self.label_names[label_id] for label_id in self.decode_once(predictions)]
        return {"label": labels, "score": self.confidence_of_examples(predictions)}

    # --- the worst mistakes, and the picture ---

    def mistake(self, predicted: Any, true: Any, confidence: float) -> float:
        """How much of a mistake a prediction is; 0 for none."""
        return 0.0 if predicted == true else confidence

    @property
    def mistake_unit(self) -> str:
        """What `mistake` returns, as a person reads it: a confidence, or how far off a value is."""
        return "off_by" if self.has_values else "confidence"

    def show_input(self, example: Mapping[str, Any]) -> str:
        """The texts of an example on one line."""
        return " | ".join(shortened(example[column]) for column in self.text_columns)

    def show_label(self, example: Mapping[str, Any], label: Any) -> str:
        """A label of an example (true or predicted) as a person reads it."""
        return str(label)

    def draw(self, predictions: Predictions, path: Path, note: str = "") -> None:
        """Draw what was predicted against what is true as PNG, with `note` in the title."""
        decoded = self.decode_once(predictions)
        plot_f1_by_class(self.scores_by_class(decoded, predictions.examples[LABEL][:]), path, note)

    # --- the model card ---

    def example_inputs(self, example: Mapping[str, Any]) -> dict[str, Any]:
        """The texts of an example, by the names that the template of the model card has for
        them."""
        return {"text": example[self.text_columns[0]]}

    def card_fields(self) -> dict[str, Any]:
        """Fields of `CardFacts` that this task alone knows."""
        return {}


def plot_f1_by_class(scores: Mapping[str, Mapping[str, float]], path: Path, note: str) -> None:
    """Draw the F1 of each class, the most frequent class first.

    Args:
        scores: What `Task.scores_by_class` returns.
    """
    f1_by_label = {}
    for name, class_scores in most_frequent_first(scores).items():
        f1_by_label[f"{name} ({class_scores['support']:,})"] = class_scores["f1"]
    plot_scores(f1_by_label, "F1", path, note)


def most_frequent_first(
    scores: Mapping[str, Mapping[str, float]],
) -> dict[str, Mapping[str, float]]:
    """What `Task.scores_by_class` returns, the most frequent class first."""
    class_names = sorted(scores, key=lambda name: -scores[name]["support"])
    return {name: scores[name] for name in class_names}


def shortened(text: str) -> str:
    """A text as it is shown among others: on one line that is not too long, without control
    characters."""
    return printable(textwrap.shorten(text, MAX_SHOWN_CHARACTERS, placeholder=" …"))
