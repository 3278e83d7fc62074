"""One reader of tables: JSON, csv, tsv and parquet files, tagged words (CoNLL), data sets of the
Hub, and rows in memory."""

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import pyarrow as pa

from .conll import conll_records, is_conll
from .csv_and_json import read_records
from .dataset_calls import error_reason
from .formats import FORMATS, TABLE_SUFFIXES
from .headers import check_no_header
from .parquet_files import plain_type, read_parquet
from .sources import check_regular, load_hub
from .text_files import ReadError

# Rows in memory, which are data wherever a file is.
Rows = datasets.Dataset | pd.DataFrame | Sequence[Mapping[str, Any]]
# What `datasets` raises for values that Arrow cannot hold.
STORAGE_ERRORS = (OverflowError, RecursionError, ValueError, pa.ArrowException)


def read_table(
    source: str | Path | datasets.Dataset | datasets.DatasetDict,
    columns: Sequence[str] | None = None,
    *,
    split: str = "train",
    field: str = "data",
    header: Sequence[str] = (),
) -> datasets.Dataset:
    """Read a table. Cells of csv and tsv files, and dates in JSON, stay text, so that an id 007
    keeps its zeros. A JSON column with values of several types has the feature `datasets.Json`; a
    missing value is None.

    Args:
        source: A JSON, csv, tsv or parquet file, tagged words in columns (CoNLL), a data set of the
            Hub ("owner/name" or "owner/name:config"), or a loaded data set.
        columns: The columns to keep; by default all.
        split: The split of a data set of the Hub, or of a `DatasetDict`.
        field: The name of the argument that `source` came from, for errors.
        header: The column names of a csv or tsv file without a header row.

    Raises:
        ValueError: the file or data set does not exist or is empty, or a column is missing.
        ReadError: a record cannot be read.
    """
    if isinstance(source, datasets.DatasetDict):
        source = source[split]
    if isinstance(source, datasets.Dataset):
        name = "the data set"
        table = source
    else:
        name = str(source)
        if os.path.exists(name):
            table = _read_file(name, field, header)
        else:
            table = load_hub(name, field, split=split)
    if not len(table):
        raise ValueError(f"{field}: {name!r} has no rows")
    for column in columns or ():
        if column not in table.column_names:
            names = ", ".join(table.column_names)
            raise ValueError(f"{field}: {name!r} has no column {column!r}; it has {names}")
    return table.select_columns(list(columns)) if columns else table


def _read_file(file: str, field: str, header: Sequence[str]) -> datasets.Dataset:
    check_regular(file, field)
    file_format = "conll" if is_conll(file) else FORMATS.get(Path(file).suffix.lower(), "text")
    if header and file_format != "csv":
        raise ValueError(
            f"columns: only csv and tsv files can lack a header, not {file!r}; leave --columns out"
        )
    if file_format == "text":
        raise ValueError(
            f"{field}: {file!r} is not a table; use a file that ends in one of"
            f" {', '.join(TABLE_SUFFIXES)}"
        )
    if file_format == "parquet":
        return read_parquet(file)
    if file_format == "conll":
        return from_numbered_records(file, conll_records(file))
    # JSON, csv and tsv
    numbered_records = list(read_records(file, header))
    if header:
        check_no_header(file, header, [record for _, record in numbered_records])
    return from_numbered_records(file, numbered_records)


# --- Rows in memory, and records of a file ---


def as_dataset(data: Any, field: str = "data") -> Any:
    """Records in memory (a DataFrame of pandas, or dictionaries) as a `datasets.Dataset`; all else,
    such as a path, stays as it is.

    Args:
        field: The name of the argument that `data` came from, for errors.
    """
    has_records = isinstance(data, (list, tuple)) and data and isinstance(data[0], Mapping)
    if has_records:
        check_one_split(data[0], field)  # which is a mapping, too
    try:
        if isinstance(data, pd.DataFrame):
            return _from_frame(data)
        if has_records:
            return from_records(data)
    except (TypeError, *STORAGE_ERRORS) as error:
        reason = error_reason(error)
        raise ValueError(f"{field}: the rows cannot be made a table: {reason}") from error
    return data


def check_one_split(data: Any, field: str = "data") -> None:
    """Refuse (a ValueError) a data set of several splits where one table is read.

    Args:
        field: The name of the argument that `data` came from, for errors.
    """
    if isinstance(data, (datasets.DatasetDict, datasets.IterableDatasetDict)):
        splits = ", ".join(map(repr, data))
        raise ValueError(
            f"{field}: a {type(data).__name__} with the splits {splits}; give one of them"
        )


def sources_of(data: Any, field: str = "data") -> list[Any]:
    """What an argument names, one thing or a list of them: paths and names of the Hub as they are,
    records in memory each as a `datasets.Dataset`."""
    data = as_dataset(data, field)
    sources = data if isinstance(data, (list, tuple)) else [data]
    return [as_dataset(source, field) for source in sources]


def names_of_data(data: Any) -> list[str]:
    """The path or Hub name of each source of an argument. Rows in memory are "the data set": no
    name has text of theirs, since reports and cards, which are published, show it."""
    sources = [data]
    if isinstance(data, (list, tuple)) and not (data and isinstance(data[0], Mapping)):
        sources = data  # else they are records, which are one data set
    names = []
    for source in sources:
        has_name = isinstance(source, (str, os.PathLike))
        names.append(str(source) if has_name else "the data set")
    return names


def name_of_data(data: Any) -> str:
    """The names of an argument's sources, with commas between them."""
    return ", ".join(names_of_data(data))


def _from_frame(frame: pd.DataFrame) -> datasets.Dataset:
    """A DataFrame without its index. Categories become texts, missing values None."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    fields = []
    for column in table.schema:
        column_type = plain_type(column.type)
        if column_type == pa.large_string():  # as pandas stores text
            column_type = pa.string()
        fields.append(column.with_type(column_type))
    # without what pandas notes about its own types
    return datasets.Dataset(table.cast(pa.schema(fields)).replace_schema_metadata(None))


def from_records(records: Sequence[dict[str, Any]]) -> datasets.Dataset:
    """Records with any columns as a table. An OverflowError, or another of `STORAGE_ERRORS`, for a
    value that it cannot hold."""
    columns = {}
    for name in dict.fromkeys(chain.from_iterable(records)):
        columns[name] = [record.get(name) for record in records]
    table = datasets.Dataset.from_dict(columns, on_mixed_types="use_json")
    for name, feature in table.features.items():
        is_json = isinstance(getattr(feature, "feature", feature), datasets.Json)
        if is_json and any(map(_has_long_number, columns[name])):
            raise OverflowError("a whole number of more than 64 bits")  # `datasets` cannot read it
    return table


def _has_long_number(value: Any) -> bool:
    """Whether a value of JSON is, or has in it, a whole number that 64 bits cannot hold."""
    if isinstance(value, int):
        return abs(value) >= 2**63
    if isinstance(value, dict):
        value = list(value.values())
    return isinstance(value, list) and any(map(_has_long_number, value))


def from_numbered_records(
    file: str | Path, numbered_records: Iterable[tuple[int, dict[str, Any]]]
) -> datasets.Dataset:
    """The records of a file, each with the number of its line, as a table; a ReadError names the
    first one with a value that a table cannot hold, such as a whole number of 400 digits."""
    lines = []
    records = []
    for line, record in numbered_records:
        lines.append(line)
        records.append(record)
    try:
        return from_records(records)
    except STORAGE_ERRORS as error:
        line = lines[_first_unstorable(records)]
        reason = error_reason(error)[:100]
        raise ReadError(
            f"{file}, line {line}: a value cannot be stored in a table ({reason}); write it as"
            " text, or leave it out"
        ) from None


def _first_unstorable(records: Sequence[dict[str, Any]]) -> int:
    """The index of the first record that cannot become a table, among some that cannot together."""
    first = 0
    count = len(records)
    while count > 1:  # halve them: the record is in the first half, or else in the second
        half = count // 2
        try:
            from_records(records[first : first + half])
        except STORAGE_ERRORS:
            count = half
        else:
            first += half
            count -= half
    return first
