"""`minibert evaluate embed`, `minibert evaluate rerank`: a saved model on data or mteb tasks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets import Dataset

from ...option_checks import checked_keywords
from ..common.files import write_result
from ..common.locks import lock_result
from ..common.printing import print_next_step, warn
from ..data.tables import Rows, as_dataset, name_of_data
from ..evaluation.baselines import judge
from .encoders import open_encoder, open_reranker
from .measuring.held_out import HeldOut, score_embeddings
from .measuring.mteb_tasks import evaluate_mteb_tasks, find_mteb_tasks, show_mteb_report
from .measuring.retrieval import Retrieval
from .measuring.scored_pairs import ScoredPairs
from .measuring.similarity import SharedWords, is_dense
from .printing import next_command_of_sentence_model, print_table
from .reading.pairs import read_pairs
from .reading.retrieval_folders import is_folder

# Importing sentence-transformers takes seconds, which the help of a command need not take.
if TYPE_CHECKING:
    from .measuring.similarity import Encoder

SHARED_WORDS = "shared words (TF-IDF)"  # the baseline


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
    if columns and is_folder(data):
        raise ValueError(f"columns: the folder {str(data)!r} has fixed ones; leave columns out")
    with lock_result(result):
        if tasks:
            mteb_tasks = find_mteb_tasks(tasks)
            encoder = open_encoder(model, max_length=max_length)
            report = evaluate_mteb_tasks(mteb_tasks, model, encoder)
            show_mteb_report(report)
        else:
            held_out = _read_held_out(data, split, columns)
            encoder = open_encoder(model, max_length=max_length)
            report = {"model": model, "data": name_of_data(data), "split": split}
            report |= _measure_data(encoder, held_out)
            _show_report(report)
        write_result(report, result)
    next_step = next_command_of_sentence_model(encoder, model)
    if not is_dense(encoder):
        next_step = ("minibert", "push", model, "OWNER/NAME", "--dry_run")
    print_next_step(*next_step, warning=report.get("warning"))
    return report


def _read_held_out(data: str | Dataset, split: str, columns: Sequence[str]) -> HeldOut:
    """What a model is measured on; a ValueError for pairs without scores."""
    if is_folder(data):
        return Retrieval.from_folder(data, split)
    pairs = read_pairs(data, columns, split=split)
    if "label" not in pairs.column_names:
        raise ValueError(
            f"data: {name_of_data(data)!r} has no column of scores (name it by --columns)"
        )
    return ScoredPairs.from_rows(pairs)


def _measure_data(encoder: Encoder, held_out: HeldOut) -> dict[str, Any]:
    """Measure an embedding model on similarity or retrieval beside the words that texts share.
    Returns its metrics and their intervals, the baseline's metrics, and what to warn of."""
    predicted = held_out.predict(encoder, "Embedding")
    scores = score_embeddings(encoder, held_out, predicted)
    intervals = held_out.intervals(predicted)
    shared_words = SharedWords(held_out.all_texts())
    baseline_scores = held_out.score(held_out.predict(shared_words))
    metric = "spearman" if "spearman" in scores else "ndcg@10"
    warning = judge(
        metric, scores[metric], baseline_scores[metric], SHARED_WORDS, intervals.get(metric)
    )
    return {
        "metrics": scores,
        "intervals": intervals,
        "baseline": baseline_scores,
        "warning": warning,
    }


def _show_report(report: dict[str, Any]) -> None:
    """Print the table of a model and of the baseline, and what to warn of."""
    name = Path(report["model"]).name or report["model"]
    rows = {name: report["metrics"], SHARED_WORDS: report["baseline"]}
    print_table(rows, {name: report["intervals"]})
    warn(report["warning"])


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
        held_out = Retrieval.from_folder(data, split)
        reranker = open_reranker(model)
        finder = open_encoder(embedder, "dense")
        passages = held_out.find_passages(finder, depth, "Embedding")
        before = held_out.score(passages)
        reranked = held_out.reorder(reranker, passages, "Reranking")
        after = held_out.score(reranked)
        intervals = held_out.intervals(reranked)
        print_table({f"{depth} passages found": before, "reranked": after}, {"reranked": intervals})
        report = {
            "model": model,
            "embedder": embedder,
            "depth": depth,
            "data": str(data),
            "split": split,
            "before": before,
            "metrics": after,
            "intervals": intervals,
        }
        write_result(report, result)
    print_next_step(*next_command_of_sentence_model(reranker, model))
    return report


# What `minibert.evaluate` calls for its tasks of these names.
EVALUATE_FUNCTIONS = {"embed": evaluate_embed, "rerank": evaluate_rerank}
