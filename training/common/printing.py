"""Tables, warnings, progress bars and the next step for the console."""

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tqdm.auto import tqdm
from transformers.utils import logging

from .printable import printable


def format_table(header: Sequence[str], rows: Sequence[Sequence[Any]], digits: int = 4) -> str:
    """Rows under their header as aligned text: words on the left, numbers on the right, None as a
    blank.

    Args:
        digits: decimals of floating-point cells; format a cell yourself (as a string) where it
            needs other ones.
    """
    lines_of_cells = [list(map(printable, header))]
    for row in rows:
        lines_of_cells.append([format_cell(value, digits) for value in row])
    format_specs = []  # of each column, such as "<12"
    for column, cells in enumerate(zip(*lines_of_cells)):
        width = max(map(len, cells))
        is_left = column == 0 or _has_only_words(rows, column)
        format_specs.append(f"<{width}" if is_left else f">{width}")
    lines = []
    for cells in lines_of_cells:
        aligned_cells = map(format, cells, format_specs)
        lines.append("  ".join(aligned_cells).rstrip())
    return "\n".join(lines)


def _has_only_words(rows: Sequence[Sequence[Any]], column: int) -> bool:
    return all(isinstance(row[column], str) for row in rows)


def format_cell(value: Any, digits: int = 4) -> str:
    """One cell of a table as text."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.{digits}f}"
    if isinstance(value, int):
        return f"{value:,}"
    return printable(str(value))


def format_scores(scores: Mapping[str, Mapping[str, float | str]]) -> str:
    """Metrics (columns) of splits or models (rows) as a table."""
    metrics = []
    for values in scores.values():
        for metric in values:
            if metric not in metrics:
                metrics.append(metric)
    rows = []
    for name, values in scores.items():
        rows.append([name, *map(values.get, metrics)])
    return format_table(["", *metrics], rows)


def format_intervals(intervals: Mapping[str, tuple[float, float]]) -> dict[str, str]:
    """95 % intervals as cells of a table of scores."""
    cells = {}
    for metric, (low, high) in intervals.items():
        cells[metric] = f"{low:.3f}–{high:.3f}"
    return cells


def warn(text: str | None) -> None:
    """Print a warning (if there is one to print), above the progress bar if there is one."""
    if text:
        tqdm.write(f"WARNING: {printable(text)}")


def print_next_step(*command: Any, warning: str | None = None) -> None:
    """Print the last line of a command: which command usually follows it.

    Args:
        command: Its words, without quotes; what the user has to fill in stands in capitals.
        warning: What was warned of in the result, if anything; it comes first then.
    """
    if warning:
        print("Next: read the WARNING above before you use the model")
        return
    command_line = shlex.join(map(str, command))
    print(f"Next: {printable(command_line)}")


@contextmanager
def without_bars() -> Iterator[None]:
    """Hide the progress bars of Transformers and `datasets`, for work that is over at once."""
    libraries = []  # those that show bars
    if logging.is_progress_bar_enabled():
        libraries.append((logging.disable_progress_bar, logging.enable_progress_bar))
    datasets = sys.modules.get("datasets")  # do not import it for this alone
    if datasets is not None and not datasets.are_progress_bars_disabled():
        libraries.append((datasets.disable_progress_bars, datasets.enable_progress_bars))
    try:
        for disable, _ in libraries:
            disable()
        yield
    finally:
        for _, enable in libraries:
            enable()
