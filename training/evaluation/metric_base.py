"""The base of metrics as modules of `evaluate`, which need no network:
`EntityScores().compute(predictions=…, references=…)`.

Importing `evaluate` takes a second: these modules are imported where a metric is computed.
"""

from typing import Any

import datasets
import evaluate

STRING_LIST_FEATURE = datasets.List(datasets.Value("string"))


class Metric(evaluate.Metric):
    """A metric of rows with a prediction of type `prediction` and a reference of type
    `reference`."""

    prediction: Any
    reference: Any = STRING_LIST_FEATURE

    def __init__(self):
        # In memory: it would else write, and lock, files in the user's cache.
        super().__init__(keep_in_memory=True)

    def _info(self) -> evaluate.MetricInfo:
        features = datasets.Features(predictions=self.prediction, references=self.reference)
        return evaluate.MetricInfo(
            description=self.__doc__, citation="", inputs_description="", features=features
        )
