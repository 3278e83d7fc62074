"""What measures a model before, during and after its training, on the rows that are held out."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

import sentence_transformers as st
from datasets import Dataset
from sentence_transformers.base.evaluation import BaseEvaluator

from ...common.precision import AUTOCAST_ATTRIBUTES, without_autocast
from ...evaluation.intervals import Interval
from ..inference import score_pairs
from ..reading.passages import Passage
from .held_out import HeldOut, score_embeddings
from .retrieval import as_reranking
from .scored_pairs import ScoredPairs


class Measured(NamedTuple):
    """What a model reaches on the rows that are held out."""

    scores: dict[str, float]  # by the name of the metric
    intervals: dict[str, Interval]  # of 95 %, of those metrics that have one


class HeldOutEvaluator(BaseEvaluator):
    """An evaluator of sentence-transformers, which returns metrics by name. Called during a
    training, it measures the model as it will be saved: with texts of full length, and without
    autocast.

    Args:
        held_out: What is held out.
        max_length: The longest text that the trained model reads, in tokens.
        has_bar: Whether to show progress bars.
    """

    bar_name: ClassVar[str]  # what progress bars are called

    def __init__(self, held_out: HeldOut, max_length: int, has_bar: bool):
        super().__init__()
        self.held_out = held_out
        self.max_length = max_length
        self.bar_title = self.bar_name if has_bar else None

    def predict(self, model: Any) -> Any:
        """What a model predicts for what is held out, as `HeldOut.predict` returns it."""
        raise NotImplementedError

    def score(self, model: Any, predicted: Any) -> dict[str, float]:
        """The metrics of a model and of what it predicts, by name."""
        raise NotImplementedError

    def __call__(self, model: Any, *_: Any, **__: Any) -> dict[str, float]:
        """The metrics by name of a model as it will be saved."""
        with self._as_it_will_be_saved(model):
            return self.measure_scores(model)

    def measure(self, model: Any) -> Measured:
        """The metrics of a model as it will be saved, with their intervals."""
        with self._as_it_will_be_saved(model):
            predicted = self.predict(model)
            scores = self.score(model, predicted)
        all_intervals = self.held_out.intervals(predicted)
        intervals = {name: all_intervals[name] for name in scores if name in all_intervals}
        return Measured(scores, intervals)

    def measure_scores(self, model: Any) -> dict[str, float]:
        """The metrics by name of a model as it is, such as a teacher."""
        return self.score(model, self.predict(model))

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

    bar_name = "Embedding"

    def predict(self, model: Any) -> Any:
        return self.held_out.predict(model, self.bar_title)

    def score(self, model: Any, predicted: Any) -> dict[str, float]:
        return score_embeddings(model, self.held_out, predicted)


class ScoreEvaluator(HeldOutEvaluator):
    """Spearman's correlation of the scores of a reranker with those of the rows."""

    bar_name = "Reranking"

    def __init__(self, held_out_rows: Dataset, max_length: int, has_bar: bool):
        super().__init__(ScoredPairs.from_rows(held_out_rows), max_length, has_bar)

    def predict(self, model: st.CrossEncoder) -> list[float]:
        pairs = list(zip(self.held_out.first, self.held_out.second))
        return score_pairs(model, pairs, self.bar_title).tolist()

    def score(self, model: st.CrossEncoder, predicted: list[float]) -> dict[str, float]:
        return {"spearman": self.held_out.score(predicted)["spearman"]}


class RankingEvaluator(HeldOutEvaluator):
    """How a reranker ranks the passages of a query among their negatives, in rows with labels."""

    bar_name = "Reranking"

    def __init__(self, held_out_rows: Dataset, max_length: int, has_bar: bool):
        held_out, self.candidates = as_reranking(held_out_rows)
        super().__init__(held_out, max_length, has_bar)

    def predict(self, model: st.CrossEncoder) -> list[list[Passage]]:
        return self.held_out.reorder(model, self.candidates, self.bar_title)

    def score(self, model: st.CrossEncoder, predicted: list[list[Passage]]) -> dict[str, float]:
        return self.held_out.score(predicted)
