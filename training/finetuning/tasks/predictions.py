"""What a task and its callers hand to each other: the columns of examples, predictions, scores."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import datasets
import numpy as np

# The column that `Task.read` adds: what is to be predicted, as metrics take it.
LABEL = "_label"
# The column of encoded examples that says whether a text lost its end.
IS_CUT = "cut"
# Types of the columns that `predict` adds.
STRING_FEATURE = datasets.Value("string")
SCORE_FEATURE = datasets.Value("float64")

# The labels of all examples, by split.
Labels = dict[str, list[Any]]
# By metric; None: not defined for these examples.
Scores = dict[str, float | None]


class Predictions(NamedTuple):
    """The predictions for a split.

    Attributes:
        examples: The examples as `Task.read` returned them.
        encoded: The examples as `Task.encode` returned them.
        outputs: Of each encoded example, what `Task.preprocess_logits` returned.
        confidence: Of each encoded example, what `Task.confidence` returned.
        thresholds: The probabilities from which on labels are predicted, one for each label; None:
            ½ for all.
        decoded: What `Task.decode` returned of all this, once it was called.
    """

    examples: datasets.Dataset
    encoded: datasets.Dataset
    outputs: np.ndarray
    confidence: np.ndarray | None = None
    thresholds: Sequence[float] | None = None
    decoded: list[Any] | None = None
