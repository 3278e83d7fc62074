"""`minibert evaluate embed`, `minibert evaluate rerank`: the measures of retrieval and of semantic similarity.

Similarity: Spearman's and Pearson's correlation of the cosine with the score (as the leader boards of STS have it, but
from 0 to 1). Retrieval: hit@1, hit@10, MRR@10 and nDCG@10 with the grades as gains (sentence-transformers' evaluator
knows no grades), means over the queries that have a relevant passage; a passage is its title, a space and its text.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.util import pairwise_cos_sim, semantic_search
from sklearn.preprocessing import scale

from .. import metrics
from ..arguments import check_least
from ..arguments.embeddings import (
    EvaluateArguments,
    EvaluateRerankArguments,
    PoolingArguments,
    ReferenceArguments,
    has_splits,
)
from ..files import prepare_result, write_result
from ..report import format_scores
from .data import Passage, Retrieval, read_retrieval, read_task
from .encoders import Embedder, open_reranker, score_pairs

SHOWN = ("hit@1", "hit@10", "mrr@10", "ndcg@10", "spearman", "pearson")
KS = (1, 10)
RETRIEVAL = tuple(f"{name}@{k}" for k in KS for name in ("hit", "recall", "mrr", "ndcg"))


def evaluate_embed(
    arguments: EvaluateArguments, pooling: PoolingArguments, reference: ReferenceArguments
) -> dict[str, Any]:
    """Measure an embedding model (the scores by name in "metrics"), and its vectors against those of
    `reference.reference`, if that is given; a ValueError for bad data or a model of another task."""
    check_least(reference, reference_texts=1)
    prepare_result(arguments.result)
    task = read_task(arguments.data, arguments.columns, arguments.split)
    if isinstance(task, Dataset) and "label" not in task.column_names:
        raise ValueError(f"data: {arguments.data!r} has no column of scores (name it by --columns)")
    embedder = Embedder.from_arguments(pooling)
    theirs = SentenceTransformer(reference.reference) if reference.reference else None
    widths = [len(model.encode("a")) for model in (embedder.model, theirs) if model is not None]
    if len({*widths}) > 1:
        given = f"{reference.reference!r} has vectors of {widths[1]} numbers, the model of {widths[0]}"
        raise ValueError(f"reference: {given}; use another one")
    started = time.perf_counter()
    result = {"model": pooling.model, "data": arguments.data, "pooling": embedder.pooling}
    if has_splits(arguments.data):
        result["split"] = arguments.split
    scores = measure(embedder, task, "Embedding")
    if isinstance(task, Retrieval):
        result |= {"queries": len(task.queries), "passages": len(task.passages)}
        texts = [passage.text for passage in task.passages]
    else:
        result["pairs"] = len(task)
        texts = [*task["first"], *task["second"]]
    result |= {"metrics": scores, "seconds": time.perf_counter() - started}
    print_table({Path(pooling.model).name or pooling.model: scores})
    if theirs is not None:
        texts = [text for text in dict.fromkeys(texts) if text][: reference.reference_texts]
        # in fp64, since rounding alone moves a cosine of fp32 vectors by 1e-7
        cosines = pairwise_cos_sim(embedder.embed(texts).astype(float), theirs.encode(texts).astype(float))
        lowest, mean = cosines.min().item(), cosines.mean().item()
        print(f"against {reference.reference}: {len(texts)} texts, cosine at least {lowest:.7f}, mean {mean:.7f}")
        result["reference"] = {"model": reference.reference, "texts": len(texts), "minimum": lowest, "mean": mean}
    write_result(result, arguments.result)
    return result


def evaluate_rerank(arguments: EvaluateArguments, how: EvaluateRerankArguments) -> dict[str, Any]:
    """Measure what a reranker makes of the passages that an embedding model finds: the scores by name in "before",
    "reranker_alone", "metrics" (by the share that is asked for) and, by other shares, in "shares"; a ValueError for bad
    data, a model of another task, or a weight out of range."""
    if not 0 <= how.weight <= 1:
        raise ValueError(f"weight: {how.weight} is out of range; use 0 to 1")
    check_least(how, depth=1)
    prepare_result(arguments.result)
    task = read_retrieval(arguments.data, arguments.split)
    reranker, embedder = open_reranker(how.model), Embedder.from_pretrained(how.embedder)
    started = time.perf_counter()
    ranking = Ranking(embedder, task, how.depth, "Embedding")
    ranking.rerank(reranker)
    shares = {str(step / 10): ranking.scores(step / 10) for step in range(11)}
    before, alone, after = shares["0.0"], shares["1.0"], ranking.scores(how.weight)
    print(f"{len(task.queries)} queries of {arguments.data}, the first {how.depth} passages put in order:")
    print_table({"found": before, "reranker alone": alone, f"with share {how.weight:g}": after})
    result = vars(how) | {"data": arguments.data, "split": arguments.split}
    result |= {"queries": len(task.queries), "passages": len(task.passages), "shares": shares}
    result |= {"before": before, "reranker_alone": alone, "metrics": after, "seconds": time.perf_counter() - started}
    write_result(result, arguments.result)
    return result


def measure(embedder: Embedder, task: Retrieval | Dataset, progress: str | None = None) -> dict[str, float]:
    """The metrics `RETRIEVAL` of a retrieval folder; of scored pairs the correlations of the cosine with the score."""
    if isinstance(task, Retrieval):
        return Ranking(embedder, task, max(KS), progress).scores()
    vectors = (embedder.embed(task[side], progress=progress) for side in ("first", "second"))
    columns = {"predictions": pairwise_cos_sim(*vectors).tolist(), "references": task["label"]}
    return metrics.Spearman().compute(**columns) | metrics.Pearson().compute(**columns)


class Ranking:
    """The `depth` passages of highest cosine for each query of `task`, best first, and what a reranker says of them."""

    def __init__(self, embedder: Embedder, task: Retrieval, depth: int, progress: str | None = None):
        self.queries = list(task.queries.values())
        passages = embedder.embed([passage.text for passage in task.passages], progress=progress, task="document")
        vectors = embedder.embed(self.queries, progress=progress, task="query")
        self.found: list[list[Passage]] = []
        self.cosines: list[np.ndarray] = []
        found = semantic_search(vectors, passages, top_k=depth + task.ignore_identical_ids)
        for name, hits in zip(task.queries, found):
            itself = {name} - task.relevant[name].keys() if task.ignore_identical_ids else ()
            hits = [hit for hit in hits if task.passages[hit["corpus_id"]].id not in itself][:depth]
            self.found.append([task.passages[hit["corpus_id"]] for hit in hits])
            self.cosines.append(np.array([hit["score"] for hit in hits]))
        self.reranked = self.cosines
        relevant = (task.relevant[name] for name in task.queries)
        self.references = [{"ids": list(graded), "grades": list(graded.values())} for graded in relevant]

    def rerank(self, reranker: CrossEncoder) -> None:
        """Score what was found; over the passages of a query, cosines and scores get mean 0 and deviation 1."""
        pairs = [(query, passage.text) for query, row in zip(self.queries, self.found) for passage in row]
        scores = score_pairs(reranker, pairs, "Reranking").astype(float)
        self.cosines = list(map(scale, self.cosines))
        self.reranked = list(map(scale, np.split(scores, np.cumsum([len(row) for row in self.found])[:-1])))

    def scores(self, weight: float = 0.0) -> dict[str, float]:
        """hit, recall, MRR and nDCG at 1 and 10 of the order by weight · reranker + (1 - weight) · cosine."""
        pairs = zip(self.cosines, self.reranked)
        mixed = ((1 - weight) * near + (weight * told if weight else 0) for near, told in pairs)
        orders = (np.argsort(-row, kind="stable") for row in mixed)
        names = [[row[i].id for i in order] for row, order in zip(self.found, orders)]
        return metrics.Retrieval().compute(predictions=names, references=self.references, ks=KS)


def print_table(rows: dict[str, dict[str, float]]) -> None:
    print(format_scores({name: {x: scores[x] for x in SHOWN if x in scores} for name, scores in rows.items()}))
