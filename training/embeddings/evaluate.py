"""`minibert evaluate embed`, `minibert evaluate rerank`: the measures of retrieval and of semantic
similarity.

Similarity: Spearman's and Pearson's correlation of the cosine with the score (as the leader boards
of STS have it, but from 0 to 1). Retrieval: hit@1, hit@10, MRR@10 and nDCG@10 with the grades as
gains (sentence-transformers' evaluator knows no grades), means over the queries that have a
relevant passage; a passage is its title, a space and its text.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from datasets import Dataset

from ...keywords import checked_keywords
from ..common.files import write_result
from ..common.locks import lock_result
from ..common.printing import format_intervals, format_scores, format_table, print_next_step, warn
from ..data.tables import Rows, as_dataset
from ..evaluation import metrics
from ..evaluation.baselines import judge
from ..evaluation.intervals import Interval, of_means, of_values
from ..hub.card import add_table
from .encoders import encode, open_encoder, open_reranker, score_pairs
from .passages import Passage
from .retrieval import Retrieval, read_retrieval, read_task
from .texts import name_of_data

# Importing sentence-transformers takes seconds, which the help of a command need not take.
if TYPE_CHECKING:
    from sentence_transformers import (
        CrossEncoder,
        MultiVectorEncoder,
        SentenceTransformer,
        SparseEncoder,
    )

    Encoder = SentenceTransformer | SparseEncoder | MultiVectorEncoder

SHOWN_METRICS = ("hit@1", "hit@10", "mrr@10", "ndcg@10", "spearman", "pearson", "active_dims")
RANKS = (1, 10)
SHARED_WORDS = "shared words (TF-IDF)"  # the baseline
TEXTS_AT_ONCE = 8  # encoded at once, where each token has a score for every word of the vocabulary
MAX_COUNTED_TEXTS = 200  # of which the numbers of sparse vectors that are not zero are counted
QUERIES_AT_ONCE = 64  # compared with all passages at once
RETRIEVAL_METRICS = tuple(f"{name}@{k}" for k in RANKS for name in ("hit", "recall", "mrr", "ndcg"))


class SharedWords:
    """The baseline, with the methods of a model: texts are as similar as the words that they share,
    rare ones first."""

    def __init__(self, task: Retrieval | Dataset):
        from sklearn.feature_extraction.text import TfidfVectorizer

        if isinstance(task, Retrieval):
            texts = [passage.text for passage in task.passages]
        else:
            texts = [*task["first"], *task["second"]]
        self.words = TfidfVectorizer(token_pattern=r"\w+|\S").fit(texts)

    def encode(self, texts: Sequence[str], **_: Any) -> Any:
        return self.words.transform(texts)

    encode_query = encode_document = encode

    def similarity(self, first: Any, second: Any) -> torch.Tensor:
        return torch.from_numpy((first @ second.T).toarray())

    def similarity_pairwise(self, first: Any, second: Any) -> np.ndarray:
        return np.asarray(first.multiply(second).sum(axis=1)).ravel()


def is_dense(model: Any) -> bool:
    """Whether a model has one vector of a text, whose numbers are hardly ever zero."""
    from sentence_transformers import MultiVectorEncoder, SparseEncoder

    return not isinstance(model, (SparseEncoder, MultiVectorEncoder, SharedWords))


@checked_keywords
def evaluate_embed(
    data: str | Rows | None = None,
    *,
    tasks: Sequence[str] = (),
    split: str = "test",
    columns: Sequence[str] = (),
    model: str = "runs/embed",
    max_length: int | None = None,
    result: str | None = None,
) -> dict[str, Any]:
    """Measure an embedding model on similarity or retrieval, or on tasks of mteb, whose table goes
    on its card.

    Args:
        data: A folder with corpus.jsonl, queries and qrels; or a table or Hub data set of two texts
            and a score; in Python also rows (a `Dataset`, a DataFrame or dictionaries).
        tasks: Tasks and benchmarks of mteb by name (STSBenchmark, NanoBEIR), instead of data.
        split: The split: queries_SPLIT and qrels_SPLIT (or qrels/SPLIT) of a folder, or a split of
            a Hub data set.
        columns: The columns of the two texts and the score; by default guessed by their names.
        model: The model: a folder or a Hub name.
        max_length: Longest text, in tokens; longer ones are cut. By default as the model was saved.
        result: JSON file to write the result to.

    Returns:
        The scores by name under "metrics", those of the words that texts share under "baseline",
        and what was measured on.
    """
    data = as_dataset(data)
    if bool(tasks) == (data is not None):
        raise ValueError("data: give data, or --tasks of mteb")
    if tasks and (columns or split != "test"):
        raise ValueError("columns, split: tasks of mteb have their own; leave both out")
    if columns and isinstance(data, (str, Path)) and Path(data).is_dir():
        raise ValueError(f"columns: the folder {str(data)!r} has fixed ones; leave columns out")
    with lock_result(result):
        if tasks:
            mteb_tasks = find_tasks(tasks)
            encoder = open_encoder(model, max_length=max_length)
            scores = evaluate_tasks(mteb_tasks, model, encoder)
        else:
            task = _read_scored_task(data, split, columns)
            encoder = open_encoder(model, max_length=max_length)
            scores = {"model": model, "data": name_of_data(data), "split": split}
            scores |= _evaluate_data(encoder, task, model)
        write_result(scores, result)
    next_step = next_command_of_encoder(encoder, model)
    if not is_dense(encoder):
        next_step = ("minibert", "push", model, "OWNER/NAME", "--dry_run")
    print_next_step(*next_step, warning=scores.get("warning"))
    return scores


def next_command_of_encoder(model: Any, path: str | Path) -> tuple[Any, ...]:
    """The words of the command that usually follows, for a model in a folder."""
    from sentence_transformers import CrossEncoder

    if isinstance(model, CrossEncoder):
        return ("minibert", "search", "INDEX", "QUERY", "--reranker", path)
    if is_dense(model):
        return ("minibert", "search", "INDEX", "QUERY", "--data", "FOLDER", "--model", path)
    # The other kinds have no vector of a text, which an index is made of.
    return ("minibert", "evaluate", "embed", "FOLDER", "--model", path)


def _read_scored_task(data: str | Dataset, split: str, columns: Sequence[str]) -> Any:
    """What a model is measured on; a ValueError for pairs without scores."""
    task = read_task(data, columns, split)
    if isinstance(task, Dataset) and "label" not in task.column_names:
        raise ValueError(
            f"data: {name_of_data(data)!r} has no column of scores (name it by --columns)"
        )
    return task


def _evaluate_data(encoder: Encoder, task: Retrieval | Dataset, model: str) -> dict[str, Any]:
    """Measure an embedding model on similarity or retrieval beside the words that texts share."""
    predicted = predict_task(encoder, task, "Embedding")
    scores = measure(encoder, task, predicted=predicted)
    intervals = intervals_of(task, predicted)
    baseline = measure(SharedWords(task), task)
    name = Path(model).name or model
    print_table({name: scores, SHARED_WORDS: baseline}, {name: intervals})
    metric = "spearman" if "spearman" in scores else "ndcg@10"
    warning = judge(metric, scores[metric], baseline[metric], SHARED_WORDS, intervals.get(metric))
    warn(warning)
    return {
        "metrics": scores,
        "intervals": intervals,
        "baseline": baseline,
        "warning": warning,
    }


def find_tasks(names: Sequence[Any]) -> list[Any]:
    """Tasks of mteb, and those of its benchmarks, by name; objects stay. A ValueError for an
    unknown name."""
    import mteb

    benchmarks = {benchmark.name: benchmark for benchmark in mteb.get_benchmarks()}
    tasks = []
    for name in names:
        if not isinstance(name, str):
            tasks.append(name)
        elif name in benchmarks:
            tasks += benchmarks[name].tasks
        else:
            try:
                tasks.append(mteb.get_task(name))
            except KeyError as error:
                raise ValueError(f"tasks: mteb has no benchmark, and no task: {error}") from None
    return tasks


def evaluate_tasks(tasks: Sequence[Any], model: str, encoder: Encoder) -> dict[str, Any]:
    """Measure by mteb, print the table, and put it on the card of a model of ours. A ValueError for
    a task that needs one vector of each text, of a model that has several."""
    import mteb
    from mteb.abstasks import AbsTaskRetrieval
    from sentence_transformers import MultiVectorEncoder

    for task in tasks:
        if isinstance(encoder, MultiVectorEncoder) and not isinstance(task, AbsTaskRetrieval):
            raise ValueError(
                f"tasks: {task.metadata.name} ({task.metadata.type}) needs one vector of each text,"
                f" and {model!r} has one of each token; choose tasks of retrieval or reranking"
            )
    # its cache knows a model by name, also after another training
    measured = mteb.evaluate(encoder, tasks, cache=None, show_progress_bar=False)
    main_metrics = {task.metadata.name: task.metadata.main_score for task in tasks}
    scores = {}
    for result in measured.task_results:
        scores[result.task_name] = float(result.get_score())
    header = ["task", "metric", "score"]
    rows = []
    for name, main_score in scores.items():
        rows.append([name, main_metrics[name], f"{main_score:.4f}"])
    print(format_table(header, rows))
    add_table(model, "MTEB", f"Main scores by mteb {mteb.__version__}.", header, rows)
    return {"model": model, "tasks": main_metrics, "metrics": scores}


@checked_keywords
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
        The scores by name: of the passages as they were found in "before", as the reranker orders
        them in "metrics".
    """
    with lock_result(result):
        task = read_retrieval(data, split)
        reranker = open_reranker(model)
        finder = open_encoder(embedder, "dense")
        passages = find_passages(finder, task, depth, "Embedding")
        before = score(task, passages)
        reranked = reorder(reranker, task, passages, "Reranking")
        after = score(task, reranked)
        intervals = intervals_of(task, reranked)
        print_table({f"{depth} passages found": before, "reranked": after}, {"reranked": intervals})
        scores = {
            "model": model,
            "embedder": embedder,
            "depth": depth,
            "data": str(data),
            "split": split,
            "before": before,
            "metrics": after,
            "intervals": intervals,
        }
        write_result(scores, result)
    print_next_step(*next_command_of_encoder(reranker, model))
    return scores


def predict_task(
    model: Any, task: Retrieval | Dataset, progress: str | None = None
) -> list[list[Passage]] | list[float]:
    """The passages that are nearest to each query, or how similar the texts of each pair are."""
    if isinstance(task, Retrieval):
        return find_passages(model, task, max(RANKS), progress)
    return similarities(model, task["first"][:], task["second"][:], progress)


def measure(
    model: Any,
    task: Retrieval | Dataset,
    progress: str | None = None,
    predicted: list[list[Passage]] | list[float] | None = None,
) -> dict[str, float]:
    """The scores of a model by name: `RETRIEVAL_METRICS` of retrieval; of scored pairs the
    correlations of the cosine (if vectors are not dense, of the model's own similarity) with the
    score. Of sparse vectors also `active_dims`: how many numbers of a vector are not zero, in the
    mean over the first passages or texts.

    Args:
        predicted: What `predict` returned, if that was called before.
    """
    from sentence_transformers import SparseEncoder

    if predicted is None:
        predicted = predict_task(model, task, progress)
    if isinstance(task, Retrieval):
        scores = score(task, predicted)
        texts = [passage.text for passage in task.passages[:MAX_COUNTED_TEXTS]]
    else:
        texts = task["first"][:MAX_COUNTED_TEXTS]
        scores = metrics.correlations(predicted, task["label"])
    if isinstance(model, SparseEncoder):
        vectors = model.encode_document(texts, batch_size=TEXTS_AT_ONCE, show_progress_bar=False)
        scores["active_dims"] = float(model.sparsity(vectors)["active_dims"])
    return scores


def similarities(
    model: Any, first: Sequence[str], second: Sequence[str], progress: str | None = None
) -> list[float]:
    """How similar each text is to the one at the same index: [texts]."""
    from sentence_transformers.util import pairwise_cos_sim

    if not is_dense(model):
        first_vectors = model.encode(first, batch_size=TEXTS_AT_ONCE)
        second_vectors = model.encode(second, batch_size=TEXTS_AT_ONCE)
        return model.similarity_pairwise(first_vectors, second_vectors).tolist()
    first_vectors = encode(model, first, progress=progress)
    second_vectors = encode(model, second, progress=progress)
    return pairwise_cos_sim(first_vectors, second_vectors).tolist()


def find_passages(
    model: Encoder, task: Retrieval, depth: int, progress: str | None = None
) -> list[list[Passage]]:
    """The `depth` passages that are nearest to each query, best first."""
    # one more, where the query itself may be among them
    count = depth + 1 if task.ignore_identical_ids else depth
    nearest_passages = []
    for query_id, indices in zip(task.queries, _nearest(model, task, count, progress)):
        leaves_query_out = task.ignore_identical_ids and query_id not in task.relevant[query_id]
        passages = []
        for index in indices:
            passage = task.passages[index]
            if not (leaves_query_out and passage.id == query_id):
                passages.append(passage)
        nearest_passages.append(passages[:depth])
    return nearest_passages


def _nearest(model: Encoder, task: Retrieval, count: int, progress: str | None) -> list[list[int]]:
    """The indices of the passages nearest to each query, best first: [queries, count]."""
    from sentence_transformers.util import semantic_search

    texts = [passage.text for passage in task.passages]
    queries = list(task.queries.values())
    indices = []
    if is_dense(model):
        vectors = encode(model, texts, "document", progress)
        query_vectors = encode(model, queries, "query", progress)
        for hits in semantic_search(query_vectors, vectors, top_k=count):
            indices.append([hit["corpus_id"] for hit in hits])
        return indices
    has_bar = progress is not None
    vectors = model.encode_document(texts, batch_size=TEXTS_AT_ONCE, show_progress_bar=has_bar)
    for start in range(0, len(queries), QUERIES_AT_ONCE):
        batch = model.encode_query(
            queries[start : start + QUERIES_AT_ONCE], batch_size=TEXTS_AT_ONCE
        )
        similarity = model.similarity(batch, vectors)
        indices += similarity.topk(min(count, len(texts))).indices.tolist()
    return indices


def reorder(
    reranker: CrossEncoder,
    task: Retrieval,
    candidates: list[list[Passage]],
    progress: str | None = None,
) -> list[list[Passage]]:
    """The candidates of each query in the order of the reranker's scores."""
    pairs = []
    ends = []
    for query, passages in zip(task.queries.values(), candidates):
        for passage in passages:
            pairs.append((query, passage.text))
        ends.append(len(pairs))
    scores = np.split(score_pairs(reranker, pairs, progress), ends[:-1])
    reordered = []
    for passages, scores_of_query in zip(candidates, scores):
        order = np.argsort(-scores_of_query, kind="stable")
        reordered.append([passages[index] for index in order])
    return reordered


def score(task: Retrieval, ranked: list[list[Passage]]) -> dict[str, float]:
    """hit, recall, MRR and nDCG at `RANKS` of the passages found for each query, best first."""
    return metrics.retrieval_scores(ids_of(ranked), relevance_of(task), RANKS)


def intervals_of(
    task: Retrieval | Dataset, predicted: list[list[Passage]] | list[float]
) -> dict[str, Interval]:
    """The 95 % intervals of the metrics of what `predict` returned, by resampling queries or
    pairs."""
    if isinstance(task, Retrieval):
        scores = metrics.query_scores(ids_of(predicted), relevance_of(task), RANKS)
        return of_means(scores)
    intervals = of_values(predicted, task["label"][:])
    del intervals["mse"]  # a cosine is on another scale than a score
    return intervals


def ids_of(ranked: list[list[Passage]]) -> list[list[str]]:
    """The ids of the passages found for each query."""
    ids = []
    for passages in ranked:
        ids.append([passage.id for passage in passages])
    return ids


def relevance_of(task: Retrieval) -> list[dict[str, float]]:
    """The grades of each query's passages, in the order of the queries."""
    return [task.relevant[query_id] for query_id in task.queries]


def print_table(
    rows: dict[str, dict[str, float]], intervals: dict[str, dict[str, Interval]] | None = None
) -> None:
    """Print the scores (columns) of models (rows), and the intervals of some of the models."""
    table: dict[str, dict[str, float | str]] = {}
    for name, scores in rows.items():
        table[name] = _select_shown(scores)
        if intervals and name in intervals:
            cells = format_intervals(intervals[name])
            table[f"  95 % interval ({name})"] = _select_shown(cells)
    print(format_scores(table))


def _select_shown(scores: dict[str, Any]) -> dict[str, Any]:
    """Those of `SHOWN_METRICS`, in their order."""
    return {metric: scores[metric] for metric in SHOWN_METRICS if metric in scores}
