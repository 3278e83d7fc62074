"""Tables as `datasets` loads them: files by what their names end in, and data sets of the Hub.

In tsv as in csv, a quote that begins a cell encloses it up to the next one that is not doubled. Where quotes were meant
as they are, several rows could so become one: such a tsv is refused, which shows in a cell with a tab.
"""

import csv
import glob
import itertools
import json
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

DatasetOrStream = datasets.Dataset | datasets.IterableDataset
# Empty cells and words such as "NA" stay text.
CSV = {"encoding": "utf-8-sig", "keep_default_na": False}
# What the names of files end in, with the loader of `datasets` that reads them, and its options.
LOADERS = {
    ".txt": ("text", {"encoding": "utf-8-sig"}),
    ".jsonl": ("json", {}),
    ".json": ("json", {}),
    ".csv": ("csv", CSV),
    ".tsv": ("csv", CSV | {"sep": "\t"}),
    ".parquet": ("parquet", {}),
}
SHORT_ROWS = 1000  # of a stream that are looked at in advance for missing cells
TABLES = tuple(suffix for suffix in LOADERS if suffix != ".txt")
APART = "give files with other ones as entries of their own"
ENCLOSED = (
    "a quote that begins a cell encloses it; put such a cell in quotes and double its own ones, or use another format"
)
# "name" or "owner/name", then the configuration where a data set has several.
HUB_NAME = re.compile(r"(?P<name>[\w-][\w.-]*(/[\w-][\w.-]*)?)(:(?P<config>[\w.-]+))?")


def check_table(file: str | Path, field: str = "data") -> None:
    """Refuse a file that is not there, empty or no table by its name, without reading it: a ValueError that names the
    argument `field`."""
    path = Path(file).expanduser()
    if not os.path.isfile(path):  # (pathlib raises an OSError for what is too long to be a name)
        raise ValueError(f"{field}: {str(file)!r} is no file")
    if path.suffix.lower() not in TABLES:
        raise ValueError(f"{field}: {str(file)!r} ends in none of {', '.join(TABLES)}")
    if not path.stat().st_size:
        raise ValueError(f"{field}: {str(file)!r} is empty")


def load_files(
    files: Sequence[str], suffix: str, field: str = "data", as_text: bool = False, **options: Any
) -> DatasetOrStream:
    """The rows of files that are read as those ending in `suffix`; `options` are those of `datasets.load_dataset`. Of
    csv and tsv, columns of numbers are such, unless all are wanted `as_text`. A ValueError where files cannot be read,
    or hold no rows; of a stream, the first rows of each file are looked at, the others as they are read."""
    loader, defaults = LOADERS[suffix]
    apart = f"{APART}, with --weights" if options.get("streaming") else APART
    try:
        # `datasets` takes names for patterns, and cannot read parquet without rows
        full = [file for file in files if suffix != ".parquet" or pq.read_metadata(file).num_rows]
        if not full:
            raise ValueError("no rows")
        literal = [glob.escape(os.path.abspath(file)) for file in full]
        columns = [_text_columns(file, defaults) for file in files] if loader == "csv" else []
        for file, its in zip(files, columns):
            if set(its) != set(columns[0]):
                raise ValueError(f"{file!r} has other columns than {files[0]!r}; {apart}")
        if columns and not options.get("streaming"):
            options |= {"features": columns[0]}
        rows = datasets.load_dataset(loader, data_files=literal, split="train", **defaults, **options)
        streamed = isinstance(rows, datasets.IterableDataset)
        if suffix == ".tsv" and streamed:
            rows = rows.with_format("arrow").map(_check_tabs, batched=True).with_format(None)
        elif suffix == ".tsv":
            _check_tabs(rows.data.table)
        if streamed:
            next(iter(rows), None)
            for file in files if suffix in (".jsonl", ".parquet") and rows.features else ():
                if not set(_first_columns(file)) <= set(rows.features):
                    raise ValueError(f"{file!r} has other columns than {files[0]!r}; {apart}")
        for file in files if columns else ():
            _check_rows(file, defaults.get("sep", ","), SHORT_ROWS if streamed else None)
        if columns and not streamed and not as_text:
            (rows,) = with_numbers([rows])
    except (datasets.exceptions.DatasetGenerationError, csv.Error, ValueError) as error:
        named = repr(files[0]) if len(files) == 1 else f"one of {len(files)} files ({files[0]!r}, …)"
        reason = "no rows" if "corresponds to no data" in str(error) else _reason(error)
        raise ValueError(f"{field}: {named} cannot be read as {suffix[1:]}: {reason}") from error
    return rows


def hub_name(item: str, field: str = "data") -> tuple[str, str | None]:
    """Data set and configuration that `item` names, where there is no such path; a ValueError if it can be none, which
    names the argument `field`."""
    named = HUB_NAME.fullmatch(item)
    if named is None or Path(item).suffix in LOADERS:
        raise ValueError(f"{field}: {item!r} does not exist")
    return named["name"], named["config"]


def load_hub(name: str, config: str | None, field: str = "data", **options: Any) -> Any:
    """`datasets.load_dataset` of a data set of the Hub; a ValueError if it is not found, there is no connection, or it
    has no such configuration or split."""
    try:
        return datasets.load_dataset(name, config, **options)
    except (OSError, ValueError) as error:
        reason = _reason(error)
        raise ValueError(f"{field}: {name!r} is no path here, and as a data set of the Hub: {reason}") from error


def to_number(cell: Any) -> float:
    """The number of a cell, which may be its text; NaN if it is none. (One bad cell makes a whole column text, or its
    whole numbers floats: those are numbers too, so that the row with the bad cell is the one that is named.)"""
    try:
        return float(cell)
    except (TypeError, ValueError):
        return float("nan")


def string_columns(dataset: datasets.Dataset) -> list[str]:
    """The columns of plain strings."""
    strings = (datasets.Value("string"), datasets.Value("large_string"))
    return [name for name, feature in dataset.features.items() if feature in strings]


def _text_columns(file: str, options: dict[str, Any]) -> datasets.Features:
    """All columns as text (`datasets` would take their types from the first 10,000 rows); a ValueError where the first
    row is longer than the header: pandas takes its first cell for the row's name, and moves all others to the left."""
    names = pd.read_csv(file, nrows=1, header=None, dtype=str, **options).iloc[0]
    if any(twice := names.duplicated() & (names != "")):  # which pandas would call label and label.1
        raise ValueError(f"two columns of {file!r} are called {names[twice].iloc[0]!r}; rename one")
    first = pd.read_csv(file, nrows=1, **options)
    if not isinstance(first.index, pd.RangeIndex):
        raise ValueError(f"a row has more cells than the header ({file!r}); put a cell with a separator in quotes")
    return datasets.Features({name: datasets.Value("string") for name in first.columns})


def _check_rows(file: str, separator: str, count: int | None) -> None:
    """Refuse (ValueError) a row of the first `count` (None: of all) with fewer cells than the header, as behind a line
    break that no quotes enclose: pandas would take the others for empty."""
    csv.field_size_limit(2**31 - 1)  # a cell may hold a document; by default it ends after 131,072 characters
    with open(file, encoding="utf-8-sig", newline="") as lines:
        rows = (row for row in csv.reader(lines, delimiter=separator) if len(row) > 1 or "".join(row).strip())
        header = next(rows)
        for number, row in enumerate(itertools.islice(rows, count), 1):
            if len(row) < len(header):
                fewer = f"row {number} of {file!r} has fewer cells than the header ({len(row)} of {len(header)})"
                raise ValueError(f"{fewer}; add empty ones, or put a cell with a line break in quotes")


def _first_columns(file: str) -> list[str]:
    """Of a parquet file, or of the first row of jsonl."""
    if file.lower().endswith(".parquet"):
        return pq.read_schema(file).names
    row = None
    with open(file, encoding="utf-8-sig") as lines, suppress(ValueError):  # `datasets` also reads what is not by lines
        row = json.loads(next(filter(str.strip, lines), "null"))
    return list(row) if isinstance(row, dict) else []


def with_numbers(parts: Sequence[datasets.Dataset], exact: bool = False) -> list[datasets.Dataset]:
    """Columns of text of which all cells, in all parts, are whole numbers, or numbers, or booleans, as such; with
    `exact`, only numbers that say all that their cells do (3.0 does; 01 and 3.10, which may be codes, do not), and
    cells without any text are missing ones."""

    def cast(cells: Any, kind: pa.DataType) -> Any:
        cells = pc.utf8_trim_whitespace(cells)
        if exact:
            cells = pc.if_else(pc.equal(cells, ""), pa.scalar(None, cells.type), cells)
        numbers = cells.cast(kind)
        if exact and numbers.cast(cells.type) != pc.replace_substring_regex(cells, r"\.0$", ""):
            raise pa.ArrowInvalid("other text")
        return numbers

    kinds = {}
    for name in dict.fromkeys(name for part in parts for name in part.column_names):
        columns = [part.data.table[name] for part in parts if name in part.column_names]
        for kind in (pa.int64(), pa.float64()) if exact else (pa.int64(), pa.float64(), pa.bool_()):
            try:
                for column in columns:
                    cast(column.slice(0, 100), kind)  # a few first: a column of texts is copied here
                numbers = sum(len(column) - cast(column, kind).null_count for column in columns)
            except pa.ArrowInvalid:
                continue
            kinds |= {name: kind} if numbers else {}
            break

    def replace(table: pa.Table) -> pa.Table:
        for name in kinds.keys() & {*table.column_names}:
            table = table.set_column(table.column_names.index(name), name, cast(table[name], kinds[name]))
        return table

    def typed(part: datasets.Dataset) -> datasets.Dataset:
        numbers = {name: datasets.Value(str(kinds[name])) for name in kinds.keys() & {*part.column_names}}
        features = datasets.Features(part.features | numbers)
        return part.with_format("arrow").map(replace, batched=True, features=features).with_format(None)

    return [typed(part) for part in parts] if kinds else [*parts]


def _check_tabs(table: pa.Table) -> pa.Table:
    """`table`; a ValueError where a cell has a tab."""
    for column in table.columns:
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            with_tab = column.filter(pc.match_substring(column, "\t"))
            if len(with_tab):
                raise ValueError(f"a cell of a tsv has a tab: {with_tab[0].as_py()[:60]!r}; {ENCLOSED}")
    return table


def _reason(error: BaseException) -> str:
    cause = error.__cause__ or error
    if isinstance(cause, datasets.table.CastError):
        return f"not all of it has the same columns; {APART}"
    reason = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
    return f"{reason}; {ENCLOSED}" if "EOF inside string" in reason else reason
