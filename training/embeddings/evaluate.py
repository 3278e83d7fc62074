"""`minibert evaluate embed`, `minibert evaluate rerank`: a saved model on data or mteb tasks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets import Dataset

from ...option_checks import checked_keywords
from ..common.files import write_result
from ..common.locks import lock_result
from ..common.printing import format_intervals, format_scores, format_table, print_next_step, warn
from ..data.tables import Rows, as_dataset
from ..evaluation.baselines import judge
from ..evaluation.intervals import Interval
from ..hub.card import add_table
from .encoders import open_encoder, open_reranker
from .measuring.held_out import HeldOut, ScoredPairs, score_embeddings
from .measuring.retrieval_folders import is_folder, read_retrieval
from .measuring.similarity import SharedWords, is_dense
from .reading.pairs import read_pairs
from .reading.texts import name_of_data

# Importing sentence-transformers takes seconds, which the help of a command need not take.
if TYPE_CHECKING:
    from .measuring.similarity import Encoder

SHOWN_METRICS = ("hit@1", "hit@10", "mrr@10", "ndcg@10", "spearman", "pearson", "active_dims")
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
            _show_mteb_report(report)
        else:
            held_out = _read_held_out(data, split, columns)
            encoder = open_encoder(model, max_length=max_length)
            report = {"model": model, "data": name_of_data(data), "split": split}
            report |= _evaluate_data(encoder, held_out)
            _show_report(report)
        write_result(report, result)
    next_step = next_command_of_encoder(encoder, model)
    if not is_dense(encoder):
        next_step = ("minibert", "push", model, "OWNER/NAME", "--dry_run")
    print_next_step(*next_step, warning=report.get("warning"))
    return report


def next_command_of_encoder(model: Any, path: str | Path) -> tuple[Any, ...]:
    """The words of the command that usually follows, for a model in a folder."""
    from sentence_transformers import CrossEncoder

    if isinstance(model, CrossEncoder):
        return ("minibert", "search", "INDEX", "QUERY", "--reranker", path)
    if is_dense(model):
        return ("minibert", "search", "INDEX", "QUERY", "--data", "FOLDER", "--model", path)
    # The other types have no vector of a text, which an index is made of.
    return ("minibert", "evaluate", "embed", "FOLDER", "--model", path)


def _read_held_out(data: str | Dataset, split: str, columns: Sequence[str]) -> HeldOut:
    """What a model is measured on; a ValueError for pairs without scores."""
    if is_folder(data):
        return read_retrieval(data, split)
    pairs = read_pairs(data, columns, split=split)
    if "label" not in pairs.column_names:
        raise ValueError(
            f"data: {name_of_data(data)!r} has no column of scores (name it by --columns)"
        )
    return ScoredPairs.from_rows(pairs)


def _evaluate_data(encoder: Encoder, held_out: HeldOut) -> dict[str, Any]:
    """Measure an embedding model on similarity or retrieval beside the words that texts share.
    Returns its metrics and their intervals, the baseline's metrics, and what to warn of."""
    predicted = held_out.predict(encoder, "Embedding")
    scores = score_embeddings(encoder, held_out, predicted)
    intervals = held_out.intervals(predicted)
    shared_words = SharedWords(held_out.all_texts())
    baseline = held_out.score(held_out.predict(shared_words))
    metric = "spearman" if "spearman" in scores else "ndcg@10"
    warning = judge(metric, scores[metric], baseline[metric], SHARED_WORDS, intervals.get(metric))
    return {
        "metrics": scores,
        "intervals": intervals,
        "baseline": baseline,
        "warning": warning,
    }


def _show_report(report: dict[str, Any]) -> None:
    """Print the table of a model and of the baseline, and what to warn of."""
    name = Path(report["model"]).name or report["model"]
    rows = {name: report["metrics"], SHARED_WORDS: report["baseline"]}
    print_table(rows, {name: report["intervals"]})
    warn(report["warning"])


def find_mteb_tasks(names: Sequence[Any]) -> list[Any]:
    """Tasks of mteb, and those of its benchmarks, by name; objects stay. A ValueError for an
    unknown name."""
    import mteb

    benchmarks = {benchmark.name: benchmark for benchmark in mteb.get_benchmarks()}
    mteb_tasks = []
    for name in names:
        if not isinstance(name, str):
            mteb_tasks.append(name)
        elif name in benchmarks:
            mteb_tasks += benchmarks[name].tasks
        else:
            try:
                mteb_tasks.append(mteb.get_task(name))
            except KeyError as error:
                raise ValueError(f"tasks: mteb has no benchmark, and no task: {error}") from None
    return mteb_tasks


def evaluate_mteb_tasks(mteb_tasks: Sequence[Any], model: str, encoder: Encoder) -> dict[str, Any]:
    """Measure by mteb. Returns the model, and the main metric and the score of each task. A
    ValueError for a task that needs one vector of each text, of a model that has several."""
    import mteb
    from mteb.abstasks import AbsTaskRetrieval
    from sentence_transformers import MultiVectorEncoder

    for mteb_task in mteb_tasks:
        is_retrieval = isinstance(mteb_task, AbsTaskRetrieval)
        if isinstance(encoder, MultiVectorEncoder) and not is_retrieval:
            metadata = mteb_task.metadata
            raise ValueError(
                f"tasks: {metadata.name} ({metadata.type}) needs one vector of each text,"
                f" and {model!r} has one of each token; choose tasks of retrieval or reranking"
            )
    # its cache knows a model by name, also after another training
    measured = mteb.evaluate(encoder, mteb_tasks, cache=None, show_progress_bar=False)
    main_metrics = {}
    for mteb_task in mteb_tasks:
        main_metrics[mteb_task.metadata.name] = mteb_task.metadata.main_score
    scores = {}
    for result in measured.task_results:
        scores[result.task_name] = float(result.get_score())
    return {"model": model, "tasks": main_metrics, "metrics": scores}


def _show_mteb_report(report: dict[str, Any]) -> None:
    """Print the table of tasks, and put it on the card of a model of ours."""
    import mteb

    header = ["task", "metric", "score"]
    rows = []
    for name, main_score in report["metrics"].items():
        rows.append([name, report["tasks"][name], f"{main_score:.4f}"])
    print(format_table(header, rows))
    introduction = f"Main scores by mteb {mteb.__version__}."
    add_table(report["model"], "MTEB", introduction, header, rows)


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
        held_out = read_retrieval(data, split)
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
    print_next_step(*next_command_of_encoder(reranker, model))
    return report


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
