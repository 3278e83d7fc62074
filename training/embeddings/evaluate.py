"""`minibert evaluate embed`, `minibert evaluate rerank`: the measures of retrieval and of semantic similarity.

Similarity: Spearman's and Pearson's correlation of the cosine with the score (as the leader boards of STS have it, but
from 0 to 1). Retrieval: hit@1, hit@10, MRR@10 and nDCG@10 with the grades as gains (sentence-transformers' evaluator
knows no grades), means over the queries that have a relevant passage; a passage is its title, a space and its text.
"""

import time
from itertools import islice
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
from .data import Retrieval, read_retrieval, read_task
from .encoders import Embedder, open_reranker, score_pairs

SHOWN = ("hit@1", "hit@10", "mrr@10", "ndcg@10", "spearman", "pearson")
KS = (1, 10)
RETRIEVAL = tuple(f"{name}@{k}" for k in KS for name in ("hit", "recall", "mrr", "ndcg"))
WEIGHTS = [step / 10 for step in range(11)]


def evaluate_embed(
    arguments: EvaluateArguments, pooling: PoolingArguments, reference: ReferenceArguments
) -> dict[str, Any]:
    """Measure an embedding model (the scores by name in "metrics"), and its vectors against those of
    `reference.reference`, if that is given; a ValueError for bad data or a model of another task."""
    check_least(reference, reference_texts=1)
    prepare_result(arguments.result)
    if not arguments.data:
        raise ValueError("data: none given; give a folder with corpus.jsonl, queries and qrels, or a scored table")
    task = read_task(arguments.data, arguments.columns, arguments.split)
    if isinstance(task, Dataset) and "label" not in task.column_names:
        raise ValueError(f"data: {arguments.data!r} has no column of scores (name it by --columns)")
    embedder = Embedder.from_arguments(pooling)
    theirs = SentenceTransformer(reference.reference) if reference.reference else None
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
    "reranker_alone" and, of the mixture, "metrics"; a ValueError for bad data, a model of another task, or a weight out
    of range."""
    if how.weight is not None and not 0 <= how.weight <= 1:
        raise ValueError(f"weight: {how.weight} is out of range; use 0 to 1")
    check_least(how, depth=1, tuning_queries=1)
    if how.metric not in RETRIEVAL:
        raise ValueError(f"metric: {how.metric!r} is not measured; use one of {', '.join(RETRIEVAL)}")
    if how.weight is not None and how.tuning_data is not None:
        raise ValueError("weight: give it or the tuning_data that it is chosen on, not both")
    prepare_result(arguments.result)
    task = read_retrieval(arguments.data, arguments.split)
    tuning = read_retrieval(how.tuning_data, how.tuning_split, "tuning_data") if how.tuning_data else None
    reranker, embedder = open_reranker(how.model), Embedder.from_pretrained(how.embedder)
    started = time.perf_counter()
    result = vars(how) | {"data": arguments.data, "split": arguments.split}

    weight = 1.0 if how.weight is None else how.weight
    if tuning is not None:
        tuning.queries = dict(islice(tuning.queries.items(), how.tuning_queries))
        ranking = Ranking(embedder, tuning, how.depth, "Embedding")
        ranking.rerank(reranker)
        tried = {w: ranking.scores(w) for w in WEIGHTS}
        weight = max(WEIGHTS, key=lambda w: tried[w][how.metric])
        print(f"Share of the reranker by {how.metric} on {len(tuning.queries)} queries of {how.tuning_data}:")
        print_table({f"{w:.1f}": scores for w, scores in tried.items()})
        result["tuning"] = {str(w): scores for w, scores in tried.items()}

    ranking = Ranking(embedder, task, how.depth, "Embedding")
    ranking.rerank(reranker)
    before, alone, after = (ranking.scores(w) for w in (0.0, 1.0, weight))
    print(f"{len(task.queries)} queries of {arguments.data}, the first {how.depth} passages put in order:")
    print_table({"found": before, "reranker alone": alone, f"with share {weight:g}": after})
    result |= {"weight": weight, "queries": len(task.queries), "passages": len(task.passages)}
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
        vectors, spare = embedder.embed(self.queries, progress=progress, task="query"), task.ignore_identical_ids
        depth = min(depth, max(len(passages) - spare, 1))
        found = semantic_search(vectors, passages, top_k=depth + spare)
        for number, name in enumerate(task.queries) if spare else ():
            itself = {name} - task.relevant[name].keys()
            hits = [hit for hit in found[number] if task.passages[hit["corpus_id"]].id not in itself]
            found[number] = hits[:depth]
        self.found = [[task.passages[hit["corpus_id"]] for hit in hits] for hits in found]
        # each row with mean 0 and deviation 1; a constant row becomes 0
        self.cosines = scale(np.array([[hit["score"] for hit in hits] for hits in found]), axis=1)
        relevant = (task.relevant[name] for name in task.queries)
        self.references = [{"ids": list(graded), "grades": list(graded.values())} for graded in relevant]

    def rerank(self, reranker: CrossEncoder) -> None:
        pairs = [(query, passage.text) for query, row in zip(self.queries, self.found) for passage in row]
        scores = score_pairs(reranker, pairs, "Reranking").astype(float)
        self.reranked = scale(scores.reshape(self.cosines.shape), axis=1)

    def scores(self, weight: float = 0.0) -> dict[str, float]:
        """hit, recall, MRR and nDCG at 1 and 10 of the order by weight · reranker + (1 - weight) · cosine, each of them
        standardised over the passages of a query."""
        mixed = (1 - weight) * self.cosines + (weight * self.reranked if weight else 0)
        orders = np.argsort(-mixed, axis=-1, kind="stable")
        names = [[row[i].id for i in order] for row, order in zip(self.found, orders)]
        return metrics.Retrieval().compute(predictions=names, references=self.references, ks=KS)


def print_table(rows: dict[str, dict[str, float]]) -> None:
    print(format_scores({name: {x: scores[x] for x in SHOWN if x in scores} for name, scores in rows.items()}))
