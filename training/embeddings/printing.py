"""What the commands of embedding models and rerankers print: a table of scores, and the command
that usually follows."""

from pathlib import Path
from typing import Any

from ..common.printing import format_intervals, format_scores
from ..evaluation.intervals import Interval
from .measuring.similarity import is_dense

SHOWN_METRICS = ("hit@1", "hit@10", "mrr@10", "ndcg@10", "spearman", "pearson", "active_dims")


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


def next_command_of_sentence_model(model: Any, path: str | Path) -> tuple[Any, ...]:
    """The words of the command that usually follows, for a model in a folder."""
    from sentence_transformers import CrossEncoder

    if isinstance(model, CrossEncoder):
        return ("minibert", "search", "INDEX", "QUERY", "--reranker", path)
    if is_dense(model):
        return ("minibert", "search", "INDEX", "QUERY", "--data", "FOLDER", "--model", path)
    # The other types have no vector of a text, which an index is made of.
    return ("minibert", "evaluate", "embed", "FOLDER", "--model", path)
