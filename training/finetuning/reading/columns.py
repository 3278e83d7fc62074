"""The columns of a split: found by name, read example by example, checked and added."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import datasets

from ...data.cell_types import string_columns
from ...data.formats import CSV_SUFFIXES

# Columns of every split: the file of an example, and its number there.
FILE = "_file"
ROW = "_row"


def map_examples(
    split: datasets.Dataset, function: Callable[..., Any], *columns: Iterable[Any]
) -> list[Any]:
    """What `function` makes of the values of each example in `columns`; a ValueError that it raises
    names the example."""
    results = []
    for index, values in enumerate(zip(*columns)):
        try:
            results.append(function(*values))
        except ValueError as error:
            row = split[index]
            raise ValueError(f"{row[FILE]}, row {row[ROW]}: {error}") from None
    return results


def bad_value(column: str, value: Any, use: str, why: str = "") -> ValueError:
    """The error for a value, for `map_examples`."""
    if value is None:
        return ValueError(f"{column!r} is empty{why}; use {use}")
    return ValueError(f"{column}={value!r:.1000}{why}; use {use}")


def as_list(value: Any) -> list[Any]:
    """A single value stands for a list of one, None for an empty one."""
    if isinstance(value, list):
        return value
    return [] if value is None else [value]


def find_column(
    split: datasets.Dataset, option: str, name: str | None, guesses: Iterable[str]
) -> str:
    """The column that is named by `option`, or the first of `guesses` that the split has; a
    ValueError where there is none."""
    for guess in guesses:
        if name is None and guess in split.column_names:
            name = guess
    if name is None:
        file = split[0][FILE]
        contents = option.replace("_columns", "s").removesuffix("_column")
        advice = f"name it with --{option} ({_list_columns(split)})"
        if file.endswith(CSV_SUFFIXES):
            advice += "; where its first row is no header, give --columns"
        raise ValueError(
            f"{option}: which column of {file!r} holds the {contents} is not clear; {advice}"
        )
    check_column(split, name)
    return name


def check_column(split: datasets.Dataset, column: str) -> None:
    if column not in split.column_names:
        file = split[0][FILE]
        raise ValueError(f"data: {file!r} has no column {column!r} ({_list_columns(split)})")


def plain_text_columns(split: datasets.Dataset) -> list[str]:
    """The columns of plain strings, without `FILE`."""
    return [name for name in string_columns(split) if name != FILE]


def check_text_columns(
    split: datasets.Dataset, columns: Sequence[str], blank: bool = False
) -> None:
    """Refuse columns that hold no strings, and examples without text (which may be `blank`, but not
    missing)."""
    text_columns = plain_text_columns(split)
    for column in columns:
        if column not in text_columns:
            raise ValueError(
                f"data: column {column!r} of {split[0][FILE]!r} holds {split.features[column]},"
                f" not text; use one of {', '.join(text_columns)}"
            )
        map_examples(split, partial(_check_text, column, blank), split[column])


def _check_text(column: str, blank: bool, text: str | None) -> None:
    if text is None or not (blank or text.strip()):
        raise bad_value(column, None, "a text, which every row needs")


def with_column(
    split: datasets.Dataset, name: str, values: list[Any], feature: Any = None
) -> datasets.Dataset:
    """`split` with a column of these values, whatever of that name it had before."""
    if name in split.column_names:
        split = split.remove_columns(name)
    return split.add_column(name, values, feature=feature)


def _list_columns(split: datasets.Dataset) -> str:
    names = [name for name in split.column_names if name not in (FILE, ROW)]
    return f"it has {', '.join(names)}"


def with_location(rows: datasets.Dataset, name: str) -> datasets.Dataset:
    """`rows` with the columns `FILE` and `ROW`."""
    rows = with_column(rows, FILE, [name] * len(rows))
    return with_column(rows, ROW, list(range(1, len(rows) + 1)))
