"""Embedding models measured on tasks of mteb, a library of benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...common.printing import format_table
from ...hub.card import add_table

# Importing sentence-transformers takes seconds, which the help of a command need not take.
if TYPE_CHECKING:
    from .similarity import Encoder


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


def show_mteb_report(report: dict[str, Any]) -> None:
    """Print the table of tasks, and put it on the card of a model of ours."""
    import mteb

    header = ["task", "metric", "score"]
    rows = []
    for name, main_score in report["metrics"].items():
        rows.append([name, report["tasks"][name], f"{main_score:.4f}"])
    print(format_table(header, rows))
    introduction = f"Main scores by mteb {mteb.__version__}."
    add_table(report["model"], "MTEB", introduction, header, rows)
