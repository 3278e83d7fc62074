"""What the cells of a table are: text or numbers."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import datasets

from .dataset_calls import DatasetOrStream

STRING_TYPES = (
    datasets.Value("string"),
    datasets.Value("large_string"),
    datasets.Value("string_view"),
)


def string_columns(table: DatasetOrStream | datasets.Features) -> list[str]:
    """The columns of plain strings."""
    features = getattr(table, "features", table)
    return [name for name, feature in features.items() if feature in STRING_TYPES]


def to_number(cell: Any) -> float:
    """A cell as a number; NaN if it is not one, or has no end."""
    try:
        number = float(cell)
    except (TypeError, ValueError, OverflowError):
        return math.nan
    return number if math.isfinite(number) else math.nan


def with_numbers(parts: Sequence[datasets.Dataset]) -> list[datasets.Dataset]:
    """The parts of one table, such as its splits: columns of text whose cells are numbers in all
    parts are converted, with blank cells as None."""
    columns_of_parts = [part.select_columns(string_columns(part)).to_dict() for part in parts]
    all_cells: dict[str, list[str | None]] = {}  # of each column those of all parts
    for columns in columns_of_parts:
        for name, cells in columns.items():
            all_cells.setdefault(name, []).extend(cells)
    features: dict[str, datasets.Value] = {}
    for name, cells in all_cells.items():
        feature = _number_feature(cells)
        if feature is not None:
            features[name] = feature
    converted = []
    for part, columns in zip(parts, columns_of_parts):
        numbers = {}
        for name in columns.keys() & features.keys():
            numbers[name] = list(map(_parse_number, columns[name]))
        converted.append(_replace_columns(part, numbers, features))
    return converted


def _number_feature(cells: Iterable[str | None]) -> datasets.Value | None:
    """The feature of a column with these cells, if all that are not blank are numbers."""
    number_types = set()
    for cell in cells:
        try:
            number_types.add(type(_parse_number(cell)))
        except ValueError:
            return None
    if float in number_types:
        return datasets.Value("float64")
    return datasets.Value("int64") if int in number_types else None


def _replace_columns(
    part: datasets.Dataset, columns: dict[str, list], features: dict[str, datasets.Value]
) -> datasets.Dataset:
    """`part` with other values in some of its columns, all of them at once: one by one, a table of
    1,000 columns takes half a minute."""
    if not columns:
        return part
    replaced = datasets.Features({name: features[name] for name in columns})
    changed = datasets.Dataset.from_dict(columns, features=replaced)
    if len(columns) < len(part.column_names):
        unchanged = part.remove_columns(list(columns))
        changed = datasets.concatenate_datasets([unchanged, changed], axis=1)
    return changed.select_columns(part.column_names)


def _parse_number(cell: str | None) -> int | float | None:
    """A cell as a number, if the number is written as the cell is: 01 and 3.10 may be codes, and
    are a ValueError."""
    if cell is None or not cell.strip():
        return None
    for number_type in (int, float):
        try:
            number = number_type(cell)
        except ValueError:
            continue
        if str(number) == cell.strip() and abs(number) < 2**63:
            return number
    raise ValueError(f"{cell!r} is not a number")
