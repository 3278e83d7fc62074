"""`minibert evaluate embed`, `minibert evaluate rerank`: the measures of retrieval and of semantic similarity.

Similarity: Spearman's and Pearson's correlation of the cosine with the score (as the leader boards of STS have it, but
from 0 to 1). Retrieval: hit@1, hit@10, MRR@10 and nDCG@10 with the grades as gains (sentence-transformers' evaluator
knows no grades), means over the queries that have a relevant passage; a passage is its title, a space and its text.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import CrossEncoder, MultiVectorEncoder, SparseEncoder
from sentence_transformers.util import pairwise_cos_sim, semantic_search
from sklearn.feature_extraction.text import TfidfVectorizer

from ..common.files import lock_result, write_result
from ..common.printing import format_scores, format_table, warn
from ..evaluation import metrics
from ..evaluation.baselines import judge
from ..hub.card import add_table
from .data import Passage, Retrieval, name_of, read_retrieval, read_task
from .encoders import Encoder, encode, open_encoder, open_reranker, score_pairs

SHOWN = ("hit@1", "hit@10", "mrr@10", "ndcg@10", "spearman", "pearson")
KS = (1, 10)
SIMPLE = "shared words (TF-IDF)"


class SharedWords:
    """In the place of a model: texts are as similar as the words that they share, rare ones first."""

    def __init__(self, task: Retrieval | Dataset):
        texts = (
            [x.text for x in task.passages]
            if isinstance(task, Retrieval)
            else [*task["first"], *task["second"]]
        )
        self.words = TfidfVectorizer(token_pattern=r"\w+|\S").fit(texts)

    def encode(self, texts: Sequence[str], **_: Any) -> Any:
        return self.words.transform(texts)

    encode_query = encode_document = encode

    def similarity(self, first: Any, second: Any) -> torch.Tensor:
        return torch.from_numpy((first @ second.T).toarray())

    def similarity_pairwise(self, first: Any, second: Any) -> np.ndarray:
        return np.asarray(first.multiply(second).sum(axis=1)).ravel()


OTHER_KINDS = (SparseEncoder, MultiVectorEncoder, SharedWords)
AT_ONCE = 8  # texts whose tokens have a score for every word of the vocabulary
RETRIEVAL = tuple(f"{name}@{k}" for k in KS for name in ("hit", "recall", "mrr", "ndcg"))


def evaluate_embed(
    data: str | Dataset | None = None,
    *,
    tasks: Sequence[str] = (),
    split: str = "test",
    columns: Sequence[str] = (),
    model: str = "runs/embed",
    max_length: int | None = None,
    result: str | None = None,
) -> dict[str, Any]:
    """Measure an embedding model on similarity or retrieval, or on tasks of mteb, whose table goes on its card.

    Args:
        data: A folder with corpus.jsonl, queries and qrels; or a table or Hub data set of two texts and a score.
        tasks: Tasks and benchmarks of mteb by name (STSBenchmark, NanoBEIR), instead of data.
        split: The split: queries_SPLIT and qrels_SPLIT (or qrels/SPLIT) of a folder, or a split of a Hub data set.
        columns: The columns of the two texts and the score; by default guessed by their names.
        model: The model: a folder or a Hub name.
        max_length: Longest text, in tokens; longer ones are cut. By default as the model was saved.
        result: JSON file to write the result to.

    Returns:
        The scores by name under "metrics", those of the words that texts share under "baseline", and what was measured
        on.
    """
    if bool(tasks) == (data is not None):
        raise ValueError("data: give data, or --tasks of mteb")
    with lock_result(result):
        if tasks:
            mteb_tasks = find_tasks(tasks)
            scores = evaluate_tasks(mteb_tasks, model, open_encoder(model, max_length=max_length))
        else:
            scores = _evaluate_data(data, split, columns, model, max_length)
        write_result(scores, result)
    return scores


def _evaluate_data(
    data: str | Dataset, split: str, columns: Sequence[str], model: str, max_length: int | None
) -> dict[str, Any]:
    """Measure an embedding model on similarity or retrieval beside the words that texts share."""
    task = read_task(data, columns, split)
    if isinstance(task, Dataset) and "label" not in task.column_names:
        raise ValueError(f"data: {name_of(data)!r} has no column of scores (name it by --columns)")
    encoder = open_encoder(model, max_length=max_length)
    scores = measure(encoder, task, "Embedding")
    baseline = measure(SharedWords(task), task)
    print_table({Path(model).name or model: scores, SIMPLE: baseline})
    metric = "spearman" if "spearman" in scores else "ndcg@10"
    warning = judge(metric, scores[metric], baseline[metric], SIMPLE)
    warn(warning)
    return {
        "model": model,
        "data": name_of(data),
        "split": split,
        "metrics": scores,
        "baseline": baseline,
        "warning": warning,
    }


def find_tasks(names: Sequence[Any]) -> list[Any]:
    """Tasks of mteb, and those of its benchmarks, by name; objects stay. A ValueError for an unknown name."""
    import mteb

    benchmarks = {each.name: list(each.tasks) for each in mteb.get_benchmarks()}
    tasks = []
    for name in names:
        try:
            tasks += benchmarks.get(name) or [
                mteb.get_task(name) if isinstance(name, str) else name
            ]
        except KeyError as error:
            raise ValueError(f"tasks: mteb has no benchmark, and no task: {error}") from None
    return tasks


def evaluate_tasks(tasks: Sequence[Any], model: str, encoder: Any) -> dict[str, Any]:
    """Measure by mteb, print the table, and put it on the card of a model of ours."""
    import mteb

    # its cache knows a model by name, also after another training
    measured = mteb.evaluate(encoder, tasks, cache=None, show_progress_bar=False)
    main = {task.metadata.name: task.metadata.main_score for task in tasks}
    scores = {each.task_name: float(each.get_score()) for each in measured.task_results}
    header, rows = (
        ["task", "metric", "score"],
        [[name, main[name], f"{scores[name]:.4f}"] for name in scores],
    )
    print(format_table(header, rows))
    add_table(model, "MTEB", f"Main scores by mteb {mteb.__version__}.", header, rows)
    return {"model": model, "tasks": main, "metrics": scores}


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
        split: The split: queries_SPLIT and qrels_SPLIT (or qrels/SPLIT) of the folder.
        model: The reranker: a folder or a Hub name.
        embedder: The embedding model that finds the passages.
        depth: Number of passages to find for each query and to order.
        result: JSON file to write the result to.

    Returns:
        The scores by name: of the passages as they were found in "before", as the reranker orders them in "metrics".
    """
    with lock_result(result):
        task = read_retrieval(data, split)
        reranker = open_reranker(model)
        finder = open_encoder(embedder, "dense")
        passages = find_passages(finder, task, depth, "Embedding")
        before = score(task, passages)
        after = score(task, reorder(reranker, task, passages, "Reranking"))
        print_table({f"{depth} passages found": before, "reranked": after})
        scores = {
            "model": model,
            "embedder": embedder,
            "depth": depth,
            "data": str(data),
            "split": split,
            "before": before,
            "metrics": after,
        }
        write_result(scores, result)
    return scores


def measure(model: Any, task: Retrieval | Dataset, progress: str | None = None) -> dict[str, float]:
    """The metrics `RETRIEVAL` of a retrieval folder; of scored pairs the correlations of the cosine (of what is not
    dense: of its own similarity) with the score."""
    if isinstance(task, Retrieval):
        return score(task, find_passages(model, task, max(KS), progress))
    if isinstance(model, OTHER_KINDS):
        near = model.similarity_pairwise(
            *(model.encode(task[x][:], batch_size=AT_ONCE) for x in ("first", "second"))
        )
    else:
        near = pairwise_cos_sim(
            *(encode(model, task[x], progress=progress) for x in ("first", "second"))
        )
    return metrics.correlations(near.tolist(), task["label"][:])


def find_passages(
    model: Encoder, task: Retrieval, depth: int, progress: str | None = None
) -> list[list[Passage]]:
    """The `depth` passages that are nearest to each query, best first."""
    texts, queries = [passage.text for passage in task.passages], [*task.queries.values()]
    most = depth + task.ignore_identical_ids
    if isinstance(model, OTHER_KINDS):
        passages = model.encode_document(
            texts, batch_size=AT_ONCE, show_progress_bar=progress is not None
        )
        places = []
        for start in range(0, len(queries), 64):
            near = model.similarity(
                model.encode_query(queries[start : start + 64], batch_size=AT_ONCE), passages
            )
            places += near.topk(min(most, len(texts))).indices.tolist()
    else:
        passages = encode(model, texts, "document", progress)
        hits = semantic_search(encode(model, queries, "query", progress), passages, top_k=most)
        places = [[hit["corpus_id"] for hit in row] for row in hits]
    found = []
    for name, row in zip(task.queries, places):
        itself = {name} - task.relevant[name].keys() if task.ignore_identical_ids else ()
        row = [task.passages[place] for place in row]
        found.append([passage for passage in row if passage.id not in itself][:depth])
    return found


def reorder(
    reranker: CrossEncoder, task: Retrieval, found: list[list[Passage]], progress: str | None = None
) -> list[list[Passage]]:
    """The passages found for each query in the order of the reranker's scores."""
    pairs = [
        (query, passage.text) for query, row in zip(task.queries.values(), found) for passage in row
    ]
    parts = np.split(
        score_pairs(reranker, pairs, progress), np.cumsum([len(row) for row in found])[:-1]
    )
    return [
        [row[i] for i in np.argsort(-scores, kind="stable")] for row, scores in zip(found, parts)
    ]


def score(task: Retrieval, found: list[list[Passage]]) -> dict[str, float]:
    """hit, recall, MRR and nDCG at 1 and 10 of the passages found for each query."""
    predictions = [[passage.id for passage in row] for row in found]
    return metrics.retrieval_scores(predictions, [task.relevant[name] for name in task.queries], KS)


def print_table(rows: dict[str, dict[str, float]]) -> None:
    print(
        format_scores(
            {name: {x: scores[x] for x in SHOWN if x in scores} for name, scores in rows.items()}
        )
    )
