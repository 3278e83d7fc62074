"""The metrics of retrieval, of answers and of values. Those of classifiers are in
`classification_metrics.py`.

Correlations are from -1 to 1, other scores from 0 to 1.
"""

import math
import re
import string
import warnings
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np


def correlations(predictions: Sequence[float], references: Sequence[float]) -> dict[str, float]:
    """`pearson`, the linear correlation, and `spearman`, that of ranks, where equal values share a
    rank. Both are 0 where they are not defined: one side is constant, or there is one row only."""
    import scipy.stats

    if len(references) < 2:
        return {"pearson": 0.0, "spearman": 0.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", scipy.stats.ConstantInputWarning)
        pearson = scipy.stats.pearsonr(predictions, references).statistic
        spearman = scipy.stats.spearmanr(predictions, references).statistic
    # NaN where a correlation is not defined
    return {
        "pearson": float(np.nan_to_num(pearson)),
        "spearman": float(np.nan_to_num(spearman)),
    }


def normalize_answer(text: str) -> str:
    """As the SQuAD v1.1 script does: lower case, no ASCII punctuation, no English articles, single
    spaces."""
    text = text.lower().translate(dict.fromkeys(map(ord, string.punctuation)))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def compare_answers(predicted: str, true: str) -> tuple[bool, float]:
    """Whether two answers are the same once normalized, and the F1 of the words they share, counted
    with repeats."""
    words = normalize_answer(predicted).split()
    true_words = normalize_answer(true).split()
    is_same = words == true_words
    if not words or not true_words:
        return is_same, float(is_same)
    shared = Counter(words) & Counter(true_words)
    f1 = 2 * shared.total() / (len(words) + len(true_words))
    return is_same, f1


def answer_scores(
    predictions: Sequence[str], references: Sequence[Sequence[str]]
) -> tuple[np.ndarray, np.ndarray]:
    """`exact_match` and `f1` of each answer, [rows] each, see `SquadScores` in `squad_metrics`."""
    exact = []
    f1 = []
    for predicted, answers in zip(predictions, references):
        # As the official script has it: an answer of nothing but articles and marks is none.
        true_answers = list(filter(normalize_answer, answers)) or [""]
        scores = [compare_answers(predicted, answer) for answer in true_answers]
        best_exact, best_f1 = np.max(scores, axis=0)
        exact.append(best_exact)
        f1.append(best_f1)
    return np.array(exact, np.float64), np.array(f1, np.float64)


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
