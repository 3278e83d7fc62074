"""Lines of a file, and columns of a table, as texts and numbers."""

import math
import sys
from pathlib import Path

from datasets import Dataset, DatasetDict

from ...data.cell_types import to_number
from ...data.formats import TABLE_SUFFIXES
from ...data.tables import Rows
from ...data.text_files import read_text

TableOrPath = str | Path | Rows | DatasetDict  # of a table


def is_table(file: str | Path) -> bool:
    return Path(file).suffix.lower() in TABLE_SUFFIXES


def texts_of(table: Dataset, column: str, table_name: str, blank: bool = True) -> list[str]:
    """A column of texts; a ValueError for a row that has none, or (unless `blank`) an empty one."""
    texts = table.select_columns(column)[column][:]
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str) or not (blank or text.strip()):
            raise ValueError(f"{table_name}, row {number}: {column}={text!r} is not text")
    return texts


def numbers_of(table: Dataset, column: str, table_name: str) -> list[float]:
    """A column of numbers from 0 on, or texts of such."""
    numbers = list(map(to_number, table[column]))
    for row, value in enumerate(numbers, 1):
        if not 0 <= value < math.inf:
            raise ValueError(
                f"{table_name}, row {row}: {column} is {value}; use a number, 0 or more"
            )
    return numbers


def read_lines(file: str | Path) -> list[str]:
    """The lines of a text file, or of stdin ("-"), empty ones too, so that they keep their
    numbers."""
    if file == "-":
        text = sys.stdin.read()
        name = "stdin"
    else:
        text = read_text(file)
        name = repr(str(file))
    if not text.strip():
        raise ValueError(f"there is no text in {name}")
    # by line feeds alone: `splitlines` also cuts at form feeds, U+2028 and others, where no editor
    # counts a line
    return text.removesuffix("\n").split("\n")
