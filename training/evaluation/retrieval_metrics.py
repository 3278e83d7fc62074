"""The metrics of retrieval, from 0 to 1."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np


def _gain(grades: Sequence[float]) -> float:
    """Σ gradeᵢ / log2(i + 1) over ranks i = 1, 2, … (Järvelin and Kekäläinen 2002), with grades as
    they are."""
    gain = 0.0
    for rank, grade in enumerate(grades, start=1):
        gain += grade / math.log2(rank + 1)
    return gain


def retrieval_scores(
    predictions: Sequence[Sequence[str]],
    references: Sequence[Mapping[str, float]],
    ks: Sequence[int] = (10,),
) -> dict[str, float]:
    """`query_scores` as means over queries."""
    means = {}
    for name, scores_of_queries in query_scores(predictions, references, ks).items():
        means[name] = float(np.mean(scores_of_queries))
    return means


def query_scores(
    predictions: Sequence[Sequence[str]],
    references: Sequence[Mapping[str, float]],
    ks: Sequence[int] = (10,),
) -> dict[str, list[float]]:
    """`mrr@k`, `ndcg@k`, `recall@k` and `hit@k` of each query, for every k. (Those of
    sentence-transformers know no grades, and scikit-learn's nDCG no list that breaks off.)

    A prediction is the list of document ids found for a query, best first; a reference is the
    relevance of documents by id, grades of 0 and below as if not named. nDCG takes the grades as
    gains, and as ideal the best order of all relevant documents; MRR is 1 over the rank of the
    first relevant one, 0 below rank k. A query without a relevant document scores 0.
    """
    scores: dict[str, list[float]] = defaultdict(list)
    for document_ids, relevance in zip(predictions, references):
        grades = [max(relevance.get(document_id, 0.0), 0.0) for document_id in document_ids]
        ideal_grades = sorted((grade for grade in relevance.values() if grade > 0), reverse=True)
        for k in ks:
            for name, score in _scores_at(k, grades, ideal_grades).items():
                scores[f"{name}@{k}"].append(score)
    return dict(scores)


def _scores_at(k: int, grades: Sequence[float], ideal_grades: Sequence[float]) -> dict[str, float]:
    """The scores of one query over its first `k` documents.

    Args:
        grades: Those of the documents that were found, best first.
        ideal_grades: Those of all relevant documents, the highest first.
    """
    relevant_ranks = 1 + np.flatnonzero(grades[:k])
    if not len(relevant_ranks):
        return {"mrr": 0.0, "ndcg": 0.0, "recall": 0.0, "hit": 0.0}
    return {
        "mrr": 1 / int(relevant_ranks[0]),
        "ndcg": _gain(grades[:k]) / _gain(ideal_grades[:k]),
        "recall": len(relevant_ranks) / len(ideal_grades),
        "hit": 1.0,
    }
