"""Tables and warnings for the console."""

from collections.abc import Mapping, Sequence
from typing import Any

from tqdm.auto import tqdm

from .files import printable


def format_table(header: Sequence[str], rows: Sequence[Sequence[Any]], digits: int = 4) -> str:
    """Rows under their header as aligned text: words on the left, numbers on the right, None as a blank.

    Args:
        digits: decimals of floating-point cells; format a cell yourself (as a string) where it needs other ones.
    """

    def show(cell: Any) -> str:
        if cell is None:
            return ""
        text = (
            f"{cell:,.{digits}f}"
            if isinstance(cell, float)
            else f"{cell:,}"
            if isinstance(cell, int)
            else str(cell)
        )
        return printable(text)

    lines = [list(map(printable, header)), *([show(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines)]
    words = [all(isinstance(cell, str) for cell in column) for column in zip(*rows)] or [
        True
    ] * len(widths)
    words[0] = True
    aligned = [f"{'<' if left else '>'}{width}" for left, width in zip(words, widths)]
    return "\n".join("  ".join(map(format, line, aligned)).rstrip() for line in lines)


def format_scores(rows: Mapping[str, Mapping[str, float | str]]) -> str:
    """Metrics (columns) of splits or models (rows) as a table."""
    metrics = list(dict.fromkeys(metric for row in rows.values() for metric in row))
    return format_table(
        ["", *metrics], [[name, *map(row.get, metrics)] for name, row in rows.items()]
    )


def warn(text: str | None) -> None:
    """Print a warning (if there is one to print), above the progress bar if there is one."""
    if text:
        tqdm.write(f"WARNING: {printable(text)}")
