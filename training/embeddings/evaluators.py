"""What measures a model before, during and after its training, on the rows that are held out."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import sentence_transformers as st
from datasets import Dataset
from sentence_transformers.base.evaluation import BaseEvaluator

from ..common.precision import AUTOCAST_ATTRIBUTES, without_autocast
from ..evaluation import metrics
from ..evaluation.intervals import Interval
from .encoders import score_pairs
from .measures import intervals_of, measure, predict_held_out, reorder, score_ranking
from .passages import Passage
from .retrieval import Retrieval, as_reranking


class Measured(NamedTuple):
    """What a model reaches on the rows that are held out."""

    scores: dict[str, float]  # by the name of the metric
    intervals: dict[str, Interval]  # of 95 %, of those metrics that have one


class HeldOutEvaluator(BaseEvaluator):
    """An evaluator of sentence-transformers, which returns metrics by name. Called during a
    training, it measures the model as it will be saved: with texts of full length, and without
    autocast.

    Args:
        held_out: The rows that are held out.
        max_length: The longest text that the trained model reads, in tokens.
        bar_title: What progress bars are called, if there are to be any.
    """

    def __init__(self, held_out: Retrieval | Dataset, max_length: int, bar_title: str | None):
        super().__init__()
        self.held_out = held_out
        self.max_length = max_length
        self.bar_title = bar_title

    def predict(self, model: Any) -> list[list[Passage]] | list[float]:
        """What a model predicts for the rows: the passages of each query, best first, or the score
        of each pair."""
        raise NotImplementedError

    def compute_metrics(self, model: Any, predicted: Any) -> dict[str, float]:
        """The metrics of a model and of what it predicts, by name."""
        raise NotImplementedError

    def __call__(self, model: Any, *_: Any, **__: Any) -> dict[str, float]:
        with self._as_it_will_be_saved(model):
            return self.score(model)

    def measure(self, model: Any) -> Measured:
        """The metrics of a model as it will be saved, with their intervals."""
        with self._as_it_will_be_saved(model):
            predicted = self.predict(model)
            scores = self.compute_metrics(model, predicted)
        intervals = intervals_of(self.held_out, predicted)
        return Measured(scores, {name: intervals[name] for name in scores if name in intervals})

    def score(self, model: Any) -> dict[str, float]:
        """The metrics by name of a model as it is, such as a teacher."""
        return self.compute_metrics(model, self.predict(model))

    @contextmanager
    def _as_it_will_be_saved(self, model: Any) -> Iterator[None]:
        """Let a model that is in training read texts of full length, and compute without
        autocast."""
        training_length = model.max_seq_length
        training_forward = vars(model).copy()
        without_autocast(model)
        model.max_seq_length = self.max_length
        try:
            yield
        finally:
            model.max_seq_length = training_length
            for name in AUTOCAST_ATTRIBUTES:
                if name in training_forward:
                    setattr(model, name, training_forward[name])


class EmbeddingEvaluator(HeldOutEvaluator):
    """The measures of an embedding model: of retrieval, or of pairs with scores."""

    def predict(self, model: Any) -> list[list[Passage]] | list[float]:
        return predict_held_out(model, self.held_out, self.bar_title)

    def compute_metrics(self, model: Any, predicted: Any) -> dict[str, float]:
        return measure(model, self.held_out, predicted=predicted)


class ScoreEvaluator(HeldOutEvaluator):
    """Spearman's correlation of the scores of a reranker with those of the pairs."""

    def predict(self, model: st.CrossEncoder) -> list[float]:
        pairs = list(zip(self.held_out["first"], self.held_out["second"]))
        return score_pairs(model, pairs, self.bar_title).tolist()

    def compute_metrics(self, model: st.CrossEncoder, predicted: list[float]) -> dict[str, float]:
        correlations = metrics.correlations(predicted, self.held_out["label"][:])
        return {"spearman": correlations["spearman"]}


class RankingEvaluator(HeldOutEvaluator):
    """How a reranker ranks the passages of a query among their negatives, in rows with labels."""

    def __init__(self, held_out_rows: Dataset, max_length: int, bar_title: str | None):
        held_out, self.candidates = as_reranking(held_out_rows)
        super().__init__(held_out, max_length, bar_title)

    def predict(self, model: st.CrossEncoder) -> list[list[Passage]]:
        return reorder(model, self.held_out, self.candidates, self.bar_title)

    def compute_metrics(
        self, model: st.CrossEncoder, predicted: list[list[Passage]]
    ) -> dict[str, float]:
        return score_ranking(self.held_out, predicted)
