"""Tables as `datasets` loads them: files by what their names end in, and data sets of the Hub.

In tsv as in csv, a quote that begins a cell encloses it up to the next one that is not doubled. Where quotes were meant
as they are, several rows could so become one: such a tsv is refused, which shows in a cell with a tab.
"""

import csv
import glob
import json
import os
import re
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import datasets
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
    path = Path(file)
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
    csv and tsv, columns of numbers are such, unless all are wanted `as_text`; so are texts of JSON that are dates. A
    ValueError where files cannot be read, or hold no rows; of a stream, rows are looked at as they are read, but for
    the first of each file, and the cells of csv and tsv."""
    loader, defaults = LOADERS[suffix]
    apart = f"{APART}, with --weights" if options.get("streaming") else APART
    blamed = files
    try:
        if as_text and loader == "json":
            return _from_rows([row for file in files for row in json_rows(Path(file))])
        columns = {}  # of each file of csv that has rows: all of them are read, since pandas alters a row that is none
        for file in files if loader == "csv" else ():
            blamed = [file]
            columns.update((file, [*row]) for row in deque(csv_rows(Path(file)), maxlen=1))
            if file in columns and set(columns[file]) != set(next(iter(columns.values()))):
                raise ValueError(f"it has other columns than {next(iter(columns))!r}; {apart}")
        blamed, full = files, [file for file in files if loader != "csv" or file in columns]
        if suffix == ".parquet":  # which `datasets` cannot read without rows
            full = [file for file in files if pq.read_metadata(file).num_rows]
        if not full:
            raise ValueError("no rows")
        # `datasets` takes names for patterns
        literal = [glob.escape(os.path.abspath(file)) for file in full]
        if columns and not options.get("streaming"):  # (`datasets` would take types from the first 10,000 rows)
            options |= {"features": datasets.Features({name: datasets.Value("string") for name in columns[full[0]]})}
        if loader == "json":  # else a text that is no date, further down in a column of dates, could not be read
            found = datasets.load_dataset(loader, data_files=literal, split="train", streaming=True).features or {}
            kinds = {
                name: datasets.Value("string") if isinstance(kind, datasets.Value) and "time" in kind.dtype else kind
                for name, kind in found.items()
            }
            options |= {"features": datasets.Features(kinds)} if kinds != found else {}
        rows = datasets.load_dataset(loader, data_files=literal, split="train", **defaults, **options)
        streamed = isinstance(rows, datasets.IterableDataset)
        if streamed:
            next(iter(rows), None)
            for file in files if suffix in (".jsonl", ".parquet") and rows.features else ():
                if not set(_first_columns(file)) <= set(rows.features):
                    raise ValueError(f"{file!r} has other columns than {files[0]!r}; {apart}")
        if columns and not streamed and not as_text:
            (rows,) = with_numbers([rows])
    except (datasets.exceptions.DatasetGenerationError, ValueError) as error:
        named = repr(blamed[0]) if len(blamed) == 1 else f"one of {len(files)} files ({files[0]!r}, …)"
        reason = "no rows" if "corresponds to no data" in str(error) else _reason(error)
        raise ValueError(f"{field}: {named} cannot be read as {suffix[1:]}: {reason}") from error
    return rows


def read_text(path: Path, newline: str | None = None) -> str:
    """The text of a UTF-8 file, or a ValueError if it is none; `newline` is that of `open`."""
    try:
        with open(path, encoding="utf-8-sig", newline=newline) as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: byte {error.start} is not UTF-8 ({error.reason})") from None


def csv_rows(path: Path) -> Iterator[dict[str, str]]:
    """The rows of a csv or tsv file, all cells as text; a ValueError for one of more or fewer cells than the header, as
    behind a line break that no quotes enclose, or with quotes that enclose no whole cell. Columns without a name have
    the one that pandas gives them."""
    csv.field_size_limit(2**31 - 1)  # a cell may hold a document; by default it ends after 131,072 characters
    tsv, number, header = path.suffix.lower() == ".tsv", 0, []
    try:
        with open(path, encoding="utf-8-sig", newline="") as lines:
            # strict: a quote that is never closed is refused, where otherwise all rows behind it would become one cell
            rows = csv.reader(lines, strict=True, delimiter="\t" if tsv else ",")
            # without blank lines; but in a table of one column, a cell may be blank
            rows = (row for row in rows if len(row) > 1 or (row and (len(header) == 1 or row[0].strip())))
            header = [name or f"Unnamed: {place}" for place, name in enumerate(next(rows, ()))]
            if twice := [name for name in header if header.count(name) > 1]:
                raise ValueError(f"two columns are called {twice[0]!r}; rename one")
            for number, row in enumerate(rows, 1):
                if len(row) != len(header):
                    use = "put a cell with a separator or a line break in quotes, and add missing cells"
                    raise ValueError(f"row {number}: {len(row)} cells, but {len(header)} columns; {use}")
                if tsv and any("\t" in cell for cell in row):
                    raise ValueError(f"row {number}: a cell of a tsv has a tab; {ENCLOSED}")
                yield dict(zip(header, row))
    except csv.Error as error:
        raise ValueError(f"row {number + 1}: {error}; {ENCLOSED}") from None
    except UnicodeDecodeError:
        read_text(path)  # which says where
        raise


def json_rows(path: Path) -> list[dict[str, Any]]:
    """The objects of a file, one a line or all in a list, as they are (`datasets` takes a text that is a date for one);
    a ValueError that names the row which is none."""
    text = read_text(path)
    has_escapes = "\\u" in text
    try:
        whole = json.loads(text)
        rows = [
            {"text": row} if isinstance(row, str) else row for row in (whole if isinstance(whole, list) else [whole])
        ]
    except json.JSONDecodeError as error:
        if text.lstrip().startswith("["):
            raise ValueError(f"is not JSON: {error}") from None
        rows = [_parse(line, number) for number, line in enumerate(filter(str.strip, text.split("\n")), 1)]
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict) or not row:
            raise ValueError(f"row {number}: is no JSON object with columns")
        if has_escapes and re.search("[\ud800-\udfff]", json.dumps(row, ensure_ascii=False)):
            raise ValueError(f"row {number}: has half of a character (a surrogate without its other half)")
    return rows


def _parse(line: str, number: int) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"row {number}: is not JSON: {error}") from None


def _from_rows(rows: Sequence[dict[str, Any]]) -> datasets.Dataset:
    """A column of values of several kinds is one of JSON."""
    if not rows:
        raise ValueError("no rows")
    columns = []
    for name in dict.fromkeys(chain.from_iterable(rows)):
        values = {name: [row.get(name) for row in rows]}
        try:
            columns.append(datasets.Dataset.from_dict(values, on_mixed_types="use_json"))
        except OverflowError:  # whole numbers of more than 64 bits
            columns.append(datasets.Dataset.from_dict({name: [None if x is None else str(x) for x in values[name]]}))
    return datasets.concatenate_datasets(columns, axis=1)


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


def _reason(error: BaseException) -> str:
    cause = error.__cause__ or error
    if isinstance(cause, datasets.table.CastError):
        return f"not all of it has the same columns; {APART}"
    return (str(cause).strip().splitlines() or [type(cause).__name__])[0]
