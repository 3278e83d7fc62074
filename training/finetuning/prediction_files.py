"""The files of `minibert predict`: what it reads, in chunks, and what it writes."""

import csv
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import datasets

from ..common.files import atomic_write
from ..common.locks import lock_file
from ..common.paths import check_folder
from ..common.printable import UNPRINTABLE, printable
from ..data.cell_types import to_number, with_numbers
from ..data.conll import conll_records, is_conll
from ..data.csv_and_json import read_records
from ..data.dataset_calls import load_files
from ..data.formats import CSV_SUFFIXES, FORMATS
from ..data.parquet_files import parquet_features
from ..data.tables import Rows, from_numbered_records
from ..data.text_files import detect_encoding
from .reading.columns import FILE, ROW, with_column

ROWS_PER_CHUNK = 1_000
# The output that prints the rows as lines of JSON.
CONSOLE_OUTPUT = "-"
# A spreadsheet takes a cell of csv that begins so for a formula, which may send other cells away or
# start a program (OWASP: CSV injection).
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
JSON_LINES_SUFFIXES = (".jsonl", ".ndjson", ".jsonlines")
Data = str | os.PathLike | Sequence[str] | Rows


# --- reading ---


def read_chunks(data: Data, columns: Sequence[str]) -> Iterator[datasets.Dataset]:
    """The rows in chunks, each with the columns `FILE` and `ROW`. A ValueError if there are none.

    Args:
        columns: Those of a csv file without a header.
    """
    file = file_of(data)
    name = "data" if file is None else file
    if columns and not name.lower().endswith(CSV_SUFFIXES):
        raise ValueError("columns: only csv and tsv files can lack a header; leave it out")
    start = 0
    for chunk in chunks_of(data, file, columns):
        chunk = with_column(chunk, FILE, [name] * len(chunk))
        chunk = with_column(chunk, ROW, list(range(start + 1, start + len(chunk) + 1)))
        yield chunk
        start += len(chunk)
    if not start:
        raise ValueError(f"data: {name!r} has no rows")


def chunks_of(data: Data, file: str | None, columns: Sequence[str]) -> Iterator[datasets.Dataset]:
    if isinstance(data, datasets.Dataset):
        table = data
    elif file is not None and file.lower().endswith(".parquet"):
        table = load_files("parquet", [file], features=parquet_features([file]))
    else:
        rows = numbered_rows(data, file, columns)
        for numbered in in_chunks(rows):
            yield from_numbered_records(file or "data", numbered)
        return
    for start in range(0, len(table), ROWS_PER_CHUNK):
        yield table.select(range(start, min(start + ROWS_PER_CHUNK, len(table))))


def in_chunks(rows: Iterable[Any]) -> Iterator[list[Any]]:
    iterator = iter(rows)
    chunk = list(islice(iterator, ROWS_PER_CHUNK))
    while chunk:
        yield chunk
        chunk = list(islice(iterator, ROWS_PER_CHUNK))


def numbered_rows(
    data: Data, file: str | None, columns: Sequence[str]
) -> Iterable[tuple[int, dict[str, Any]]]:
    """Rows with the number of their line, of a file or of what is in memory."""
    if file is None:
        rows = [data] if isinstance(data, str) else data
        return enumerate(map(as_row, rows), 1)
    if is_conll(file):
        return conll_records(file)
    if file.lower().endswith(".txt"):
        return text_lines(file)
    return read_records(file, columns)


def as_row(item: Any) -> dict[str, Any]:
    if isinstance(item, str):
        return {"text": item}
    if isinstance(item, Mapping):
        return dict(item)
    raise ValueError(f"data: {item!r:.200} is neither a text nor a row; give texts or dictionaries")


def text_lines(file: str) -> Iterator[tuple[int, dict[str, str]]]:
    with open(file, encoding=detect_encoding(file)) as lines:
        for number, line in enumerate(lines, 1):
            yield number, {"text": line.rstrip("\n")}


def file_of(data: Data) -> str | None:
    """The file that `data` names: a path, or a single word that is one; None for texts and rows."""
    if isinstance(data, os.PathLike):
        word = os.fspath(data)
    elif isinstance(data, str):
        word = data
    elif isinstance(data, (list, tuple)) and len(data) == 1 and isinstance(data[0], str):
        word = data[0]
    else:
        return None
    has_suffix = Path(word).suffix.lower() in FORMATS and not any(map(str.isspace, word))
    if os.path.isfile(word):
        if has_suffix or is_conll(word):
            return word
        raise ValueError(
            f"data: {word!r} is not a table; use a file that ends in one of {', '.join(FORMATS)}"
        )
    if has_suffix or isinstance(data, os.PathLike):
        raise ValueError(f"data: {word!r} is not a file")
    return None


def count_rows(data: Data) -> int | None:
    """The number of rows, where it is known before they are read."""
    if isinstance(data, (str, os.PathLike)) or file_of(data) is not None:
        return None
    return len(data)


def with_numbers_of_csv(chunk: datasets.Dataset) -> datasets.Dataset:
    """A chunk in which columns are what training would take them for: in csv, all cells are texts,
    also numbers."""
    if str(chunk[FILE][0]).lower().endswith(CSV_SUFFIXES):
        [chunk] = with_numbers([chunk])
    return chunk


# --- writing ---


def check_output(output: str | None, data: Data) -> None:
    """Refuse (a ValueError) an output file that cannot be written, before the work."""
    if output is None or output == CONSOLE_OUTPUT:
        return
    path = Path(output)
    if path.suffix.lower() not in (*JSON_LINES_SUFFIXES, ".csv"):
        raise ValueError(f"output: {output!r}; use a name that ends in .jsonl or .csv")
    check_folder(path.parent, "output")
    if path.is_dir():
        raise ValueError(f"output: {output!r} is a folder; give a file")
    file = file_of(data)
    if file is not None and path.exists() and path.samefile(file):
        raise ValueError(f"output: {output!r} is the file of the rows; give another one")


def write_file(chunks: Iterable[datasets.Dataset], path: Path) -> None:
    """Write the chunks as they come. The file has its name when it is complete."""
    num_rows = 0
    with (
        lock_file(path),
        atomic_write(path) as unfinished,
        open(unfinished, "w", encoding="utf-8", newline="") as stream,
    ):
        writer = None
        for chunk in chunks:
            num_rows += len(chunk)
            if path.suffix.lower() != ".csv":
                write_json_lines(chunk, stream)
                continue
            if writer is None:
                writer = csv.DictWriter(stream, chunk.column_names)
                writer.writerow({name: csv_cell(name) for name in chunk.column_names})
            write_csv(chunk, writer)
    print(f"{num_rows:,} rows with predictions → {printable(path)}")


def write_json_lines(chunk: datasets.Dataset, stream: Any) -> None:
    for row in chunk:
        stream.write(as_json(row) + "\n")
    stream.flush()


def write_csv(chunk: datasets.Dataset, writer: csv.DictWriter) -> None:
    """Rows as csv."""
    unknown = [name for name in chunk.column_names if name not in writer.fieldnames]
    if unknown:
        raise ValueError(
            f"output: a csv file has the columns of the first rows, but a later row has"
            f" {unknown[0]!r}; write a .jsonl file"
        )
    for row in chunk:
        writer.writerow({name: csv_cell(value) for name, value in row.items()})


def csv_cell(value: Any) -> Any:
    """A value as it stands in csv: lists as JSON, and a text that a spreadsheet would take for a
    formula behind a '. A text that is a number stays."""
    if isinstance(value, (list, dict)):
        return as_json(value)
    is_text = isinstance(value, str) and math.isnan(to_number(value))
    if is_text and value.startswith(FORMULA_STARTS):
        return f"'{value}"
    return value


def as_json(value: Any) -> str:
    """A line of JSON that a terminal may show: control characters and marks that change the
    direction of writing become JSON's escapes. Dates and the like become text."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return UNPRINTABLE.sub(lambda match: json.dumps(match[0])[1:-1], text)
