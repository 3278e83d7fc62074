"""`minibert evaluate embed`, `minibert evaluate rerank`: the measures of retrieval and of semantic similarity.

Similarity: Spearman's and Pearson's correlation of the cosine with the score (as the leader boards of STS have it, but
from 0 to 1). Retrieval: hit@1, hit@10, MRR@10 and nDCG@10 with the grades as gains (sentence-transformers' evaluator
knows no grades), means over the queries that have a relevant passage; a passage is its title, a space and its text.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from sentence_transformers import CrossEncoder
from sentence_transformers.util import pairwise_cos_sim, semantic_search

from .. import metrics
from ..files import prepare_result, write_result
from ..report import format_scores
from .data import Passage, Retrieval, name_of, read_retrieval, read_task
from .encoders import DtypeName, Embedder, PoolingName, open_reranker, score_pairs

SHOWN = ("hit@1", "hit@10", "mrr@10", "ndcg@10", "spearman", "pearson")
KS = (1, 10)
RETRIEVAL = tuple(f"{name}@{k}" for k in KS for name in ("hit", "recall", "mrr", "ndcg"))


def evaluate_embed(
    data: str | Dataset,
    *,
    split: str = "test",
    columns: Sequence[str] = (),
    model: str = "runs/embed",
    pooling: PoolingName | None = None,
    normalize: bool | None = None,
    max_length: int | None = None,
    dtype: DtypeName | None = None,
    result: str | None = None,
) -> dict[str, Any]:
    """Measure an embedding model on similarity or retrieval.

    Args:
        data: A folder with corpus.jsonl, queries and qrels; or a table, or a data set, of two texts and a score.
        split: Which queries_SPLIT and qrels_SPLIT (or qrels/SPLIT) of a folder, or split of a Hub data set.
        columns: Columns of a table, two texts and the score; by default guessed.
        model: The model: a folder or a Hub name.
        pooling: mean or cls (the first token) of the last states; by default as the model was saved, else mean.
        normalize: Give vectors the length 1; by default as the model was saved, else not.
        max_length: Cut texts off after this many tokens; by default as the model was saved.
        dtype: What to compute in; by default as the model was saved, float32 where the processor is slow in 16 bits.
        result: JSON file that the result is written to.

    Returns:
        The scores by name under "metrics", and what was measured on.

    Raises:
        ValueError: bad data, or a model of another task.
    """
    prepare_result(result)
    task = read_task(data, columns, split)
    if isinstance(task, Dataset) and "label" not in task.column_names:
        raise ValueError(f"data: {name_of(data)!r} has no column of scores (name it by --columns)")
    embedder = Embedder.from_pretrained(model, pooling, normalize, max_length, dtype)
    started = time.perf_counter()
    found = {"model": model, "data": name_of(data), "split": split, "pooling": embedder.pooling}
    scores = measure(embedder, task, "Embedding")
    if isinstance(task, Retrieval):
        found |= {"queries": len(task.queries), "passages": len(task.passages)}
    else:
        found["pairs"] = len(task)
    found |= {"metrics": scores, "seconds": time.perf_counter() - started}
    print_table({Path(model).name or model: scores})
    write_result(found, result)
    return found


def evaluate_rerank(
    data: str,
    *,
    split: str = "test",
    model: str = "runs/rerank",
    embedder: str = "runs/embed",
    depth: int = 20,
    result: str | None = None,
) -> dict[str, Any]:
    """Measure a reranker on the passages that an embedding model finds.

    Args:
        data: A folder with corpus.jsonl, queries and qrels.
        split: Which queries_SPLIT and qrels_SPLIT (or qrels/SPLIT) of it.
        model: The reranker: a folder or a Hub name.
        embedder: The embedding model that finds the passages.
        depth: Passages that are found and put in order for a query.
        result: JSON file that the result is written to.

    Returns:
        The scores by name: of the passages as they were found in "before", as the reranker orders them in "metrics".

    Raises:
        ValueError: bad data, or a model of another task.
    """
    prepare_result(result)
    task = read_retrieval(data, split)
    reranker, finder = open_reranker(model), Embedder.from_pretrained(embedder)
    started = time.perf_counter()
    found = find_passages(finder, task, depth, "Embedding")
    before, after = score(task, found), score(task, reorder(reranker, task, found, "Reranking"))
    print(f"{len(task.queries)} queries of {data}, the first {depth} passages put in order:")
    print_table({"found": before, "reranked": after})
    scores = {"model": model, "embedder": embedder, "depth": depth, "data": str(data), "split": split}
    scores |= {"queries": len(task.queries), "passages": len(task.passages)}
    scores |= {"before": before, "metrics": after, "seconds": time.perf_counter() - started}
    write_result(scores, result)
    return scores


def measure(embedder: Embedder, task: Retrieval | Dataset, progress: str | None = None) -> dict[str, float]:
    """The metrics `RETRIEVAL` of a retrieval folder; of scored pairs the correlations of the cosine with the score."""
    if isinstance(task, Retrieval):
        return score(task, find_passages(embedder, task, max(KS), progress))
    vectors = (embedder.embed(task[side], progress=progress) for side in ("first", "second"))
    cosines = pairwise_cos_sim(*vectors).tolist()
    return metrics.Correlations().compute(predictions=cosines, references=task["label"][:])


def find_passages(embedder: Embedder, task: Retrieval, depth: int, progress: str | None = None) -> list[list[Passage]]:
    """The `depth` passages of highest cosine for each query, best first."""
    passages = embedder.embed([passage.text for passage in task.passages], progress=progress, task="document")
    queries = embedder.embed(list(task.queries.values()), progress=progress, task="query")
    found = []
    for name, hits in zip(task.queries, semantic_search(queries, passages, top_k=depth + task.ignore_identical_ids)):
        itself = {name} - task.relevant[name].keys() if task.ignore_identical_ids else ()
        hits = [task.passages[hit["corpus_id"]] for hit in hits]
        found.append([passage for passage in hits if passage.id not in itself][:depth])
    return found


def reorder(
    reranker: CrossEncoder, task: Retrieval, found: list[list[Passage]], progress: str | None = None
) -> list[list[Passage]]:
    """The passages found for each query in the order of the reranker's scores."""
    pairs = [(query, passage.text) for query, row in zip(task.queries.values(), found) for passage in row]
    parts = np.split(score_pairs(reranker, pairs, progress), np.cumsum([len(row) for row in found])[:-1])
    return [[row[i] for i in np.argsort(-scores, kind="stable")] for row, scores in zip(found, parts)]


def score(task: Retrieval, found: list[list[Passage]]) -> dict[str, float]:
    """hit, recall, MRR and nDCG at 1 and 10 of the passages found for each query."""
    relevant = (task.relevant[name] for name in task.queries)
    references = [{"ids": list(graded), "grades": list(graded.values())} for graded in relevant]
    predictions = [[passage.id for passage in row] for row in found]
    return metrics.RetrievalScores().compute(predictions=predictions, references=references, ks=KS)


def print_table(rows: dict[str, dict[str, float]]) -> None:
    print(format_scores({name: {x: scores[x] for x in SHOWN if x in scores} for name, scores in rows.items()}))
