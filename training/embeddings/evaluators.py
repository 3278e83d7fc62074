"""What measures a model during its training, on the rows that are held out."""

from collections.abc import Callable
from itertools import chain
from typing import Any

import sentence_transformers as st
from datasets import Dataset
from sentence_transformers.base.evaluation import BaseEvaluator

from ..common.precision import AUTOCAST_ATTRIBUTES, without_autocast
from ..evaluation import metrics
from ..evaluation.intervals import Interval
from .encoders import score_pairs
from .measures import intervals_of, measure, predict_held_out, reorder, score
from .retrieval import Retrieval, as_reranking


class FunctionEvaluator(BaseEvaluator):
    """An evaluator by functions, which returns metrics by name. The model is measured as it is
    saved, also during a training: with texts of full length, and without autocast.

    Args:
        held_out: The rows that are held out.
        predict: What a model predicts for them.
        score: The metrics of a model and of what it predicts.
    """

    def __init__(
        self,
        held_out: Retrieval | Dataset,
        predict: Callable[[Any], Any],
        score: Callable[[Any, Any], dict[str, float]],
    ):
        super().__init__()
        self.held_out = held_out
        self.predict = predict
        self.score = score
        self.metrics: list[str] = []
        self.last_prediction: Any = None
        # Longest text in tokens; None is the model's own.
        self.max_length: int | None = None

    def __call__(self, model: Any, *_: Any, **__: Any) -> dict[str, float]:
        training_length = model.max_seq_length
        training_forward = vars(model).copy()
        without_autocast(model)
        model.max_seq_length = self.max_length or training_length
        try:
            self.last_prediction = self.predict(model)
            scores = self.score(model, self.last_prediction)
        finally:
            model.max_seq_length = training_length
            for name in AUTOCAST_ATTRIBUTES:
                if name in training_forward:
                    setattr(model, name, training_forward[name])
        self.metrics = list(scores)
        return scores

    def intervals(self) -> dict[str, Interval]:
        """The 95 % intervals of the metrics of the last call."""
        intervals = intervals_of(self.held_out, self.last_prediction)
        return {name: intervals[name] for name in self.metrics if name in intervals}


def embedding_evaluator(held_out: Retrieval | Dataset, bar_title: str | None) -> FunctionEvaluator:
    """The measures of an embedding model: of retrieval, or of pairs with scores."""
    return FunctionEvaluator(
        held_out,
        lambda model: predict_held_out(model, held_out, bar_title),
        lambda model, predicted: measure(model, held_out, predicted=predicted),
    )


def score_evaluator(held_out: Dataset, bar_title: str | None) -> FunctionEvaluator:
    """Spearman's correlation of the scores of a reranker with those of the pairs."""
    pairs = list(zip(held_out["first"], held_out["second"]))
    references = held_out["label"][:]

    def predict_scores(model: st.CrossEncoder) -> list[float]:
        return score_pairs(model, pairs, bar_title).tolist()

    def correlate(_: st.CrossEncoder, scores: list[float]) -> dict[str, float]:
        return {"spearman": metrics.correlations(scores, references)["spearman"]}

    return FunctionEvaluator(held_out, predict_scores, correlate)


def ranking_evaluator(held_out_rows: Dataset, bar_title: str | None) -> FunctionEvaluator:
    """How a reranker ranks the passages of a query among their negatives."""
    held_out, candidates = as_reranking(held_out_rows)
    held_out.passages = list(dict.fromkeys(chain.from_iterable(candidates)))
    return FunctionEvaluator(
        held_out,
        lambda model: reorder(model, held_out, candidates, bar_title),
        lambda _, ranked: score(held_out, ranked),
    )
