"""Rows for fine-tuning: splits from files, the Hub or memory, every row knowing the file and the row it came from."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datasets
import numpy as np

from ..common.files import unique_files
from ..data import tables
from ..data.documents import text_digests
from .annotations import from_annotations

if TYPE_CHECKING:
    from .tasks.base import Task

Source = str | os.PathLike | Sequence[str | os.PathLike] | datasets.Dataset | None
VALIDATION_SIZE = 0.1  # the share that is held out where no validation rows are given
FEW = 5  # a class of so many rows is validated on, however small the share
FILE, ROW = "_file", "_row"  # columns of every split: where a row came from
# The splits, with the names that files and data sets give them, best first.
SPLITS = {
    "train": ("train",),
    "validation": ("validation", "valid", "val", "dev", "validation_matched"),
    "test": ("test", "test_matched"),
}
SHARD = re.compile(
    r"-(v\d+\.\d+|\d+-of-\d+)$"
)  # train-00000-of-00002.parquet; SQuAD's train-v1.1.json
# The columns of SQuAD on the Hub.
ANSWERS = {
    "text": datasets.List(datasets.Value("string")),
    "answer_start": datasets.List(datasets.Value("int64")),
}
SQUAD = {name: datasets.Value("string") for name in ("id", "title", "context", "question")}
SQUAD |= {"answers": ANSWERS, "is_impossible": datasets.Value("bool")}


def load_splits(
    task: Task,
    data: Source | datasets.DatasetDict = None,
    train: Source = None,
    validation: Source = None,
    test: Source = None,
    validation_size: float | None = VALIDATION_SIZE,
    seed: int = 0,
    columns: Sequence[str] | None = None,
) -> datasets.DatasetDict:
    """Load the splits that are given, each with the columns `FILE` and `ROW`. Without validation rows, some of the
    training rows are held out (drawn with `seed`), each class of the task in proportion: rows that are copies of each
    other together, and no label that training would then lack. With `validation_size=None`, none are.

    Args:
        columns: Those of csv files without a header.
    """
    given = {"train": train, "validation": validation, "test": test}
    given = {name: source for name, source in given.items() if source is not None and len(source)}
    sources = ({} if data is None else _splits_of(data)) | given
    if not sources:
        raise ValueError(
            "data: none given; use --data FOLDER, or files with --train, --validation, --test"
        )
    splits = _load({name: sources[name] for name in SPLITS if name in sources}, columns or ())
    if "train" in splits and "validation" not in splits and validation_size is not None:
        rows = splits.pop("train")
        is_held_out = _hold_out(rows, validation_size, seed, task)
        sides = {"train": ~is_held_out, "validation": is_held_out}
        splits = {name: rows.select(np.flatnonzero(side)) for name, side in sides.items()} | splits
    return datasets.DatasetDict(splits)


def _load(sources: Mapping[str, Source], columns: Sequence[str]) -> dict[str, datasets.Dataset]:
    files = {
        name: [str(source)] if isinstance(source, (str, os.PathLike)) else [*map(str, source)]
        for name, source in sources.items()
        if not isinstance(source, datasets.Dataset)
    }
    every = [file for of_split in files.values() for file in of_split]
    if missing := [file for file in every if not os.path.isfile(file)]:
        raise ValueError(f"data: {missing[0]!r} is not a file")
    loaded = {file: tables.read_table(file, header=columns) for file in every}
    cells = [
        file for file in every if file.lower().endswith((".csv", ".tsv"))
    ]  # numbers in all of them, or in none
    loaded |= dict(zip(cells, tables.with_numbers([loaded[file] for file in cells])))
    loaded = {file: _located(rows, file) for file, rows in loaded.items()}
    read = {
        name: datasets.concatenate_datasets([loaded[file] for file in of_split])
        for name, of_split in files.items()
    }
    return {
        name: read[name]
        if name in read
        else source
        if FILE in source.column_names
        else _located(source, name)
        for name, source in sources.items()
    }


def _splits_of(data: Source | datasets.DatasetDict) -> dict[str, Source]:
    """The splits of a folder, a training file, a data set of the Hub or one in memory."""
    if isinstance(data, datasets.Dataset) or (
        not isinstance(data, datasets.DatasetDict) and os.path.isfile(data)
    ):
        return {"train": data}
    if not isinstance(data, datasets.DatasetDict):
        data = str(data)
        loaded = _files_of(Path(data)) if os.path.isdir(data) else tables.load_hub(data)
        data = {
            split: _located(rows, f"{data} ({split})")
            if isinstance(rows, datasets.Dataset)
            else rows
            for split, rows in loaded.items()
        }
    found = {
        split: next((name for name in names if name in data), None)
        for split, names in SPLITS.items()
    }
    if not any(found.values()):
        there = f"the splits are {', '.join(data)}" if data else "there is no table in the folder"
        raise ValueError(f"data: {there}; use files or a data set with train, validation or test")
    return {split: data[name] for split, name in found.items() if name is not None}


def _files_of(folder: Path) -> dict[str, list[Path]]:
    """The tables in a folder by the beginning of their names."""
    files: dict[str, list[Path]] = {}
    for file in sorted(folder.iterdir()):
        if file.suffix.lower() in tables.TABLES or tables.is_conll(file):
            files.setdefault(SHARD.sub("", file.stem).lower(), []).append(file)
    for split, shards in files.items():
        files[split] = [Path(name) for name in unique_files(map(str, shards))]
    for split in files.keys() & {name for names in SPLITS.values() for name in names}:
        first, *others = files[split]
        if others and "-of-" not in first.stem:
            two = f"{first.name!r} and {others[0].name!r}"
            raise ValueError(
                f"data: {str(folder)!r} has {two}, which are no shards of one table; use --{split} FILE"
            )
    return files


def _located(split: datasets.Dataset, name: str) -> datasets.Dataset:
    split = _flat(split)
    split = with_column(
        with_column(split, FILE, [name] * len(split)), ROW, list(range(1, len(split) + 1))
    )
    try:
        return from_annotations(split)
    except ValueError as error:
        raise ValueError(f"data: {name!r}: {error}") from None


def _flat(rows: datasets.Dataset) -> datasets.Dataset:
    """A file of SQuAD's own releases, which is one row, a list of articles, as the Hub has it: a row for each question.
    Other rows stay."""
    articles = getattr(rows.features.get("data"), "feature", None)
    if len(rows) != 1 or not isinstance(articles, dict) or "paragraphs" not in articles:
        return rows
    questions = []
    for article in rows[0]["data"]:
        for paragraph in article["paragraphs"] or []:
            for question in paragraph["qas"] or []:
                row = {name: (article | paragraph | question).get(name) for name in SQUAD}
                if row["answers"] is not None:
                    row["answers"] = {
                        part: [answer[part] for answer in row["answers"]] for part in ANSWERS
                    }
                questions.append(row)
    return datasets.Dataset.from_list(questions, features=datasets.Features(SQUAD))


# --- rows and columns ---


def each_row(
    split: datasets.Dataset, function: Callable[..., Any], *columns: Iterable[Any]
) -> list[Any]:
    """What `function` makes of the values of each row in `columns`; a ValueError that it raises names the row."""
    made = []
    for index, values in enumerate(zip(*columns)):
        try:
            made.append(function(*values))
        except ValueError as error:
            raise ValueError(f"{split[index][FILE]}, row {split[index][ROW]}: {error}") from None
    return made


def bad_value(column: str, value: Any, use: str, why: str = "") -> ValueError:
    """The error for a value, for `each_row`."""
    given = f"{column!r} is empty" if value is None else f"{column}={value!r}"
    return ValueError(f"{given}{why}; use {use}")


def as_list(value: Any) -> list[Any]:
    """A single value stands for a list of one, None for an empty one."""
    return value if isinstance(value, list) else [] if value is None else [value]


def find_column(
    split: datasets.Dataset, option: str, given: str | None, guesses: Iterable[str]
) -> str:
    """The column given for `option`, or the first of `guesses` that is there; a ValueError where there is none."""
    found = given or next((name for name in guesses if name in split.column_names), None)
    if found is None:
        file, sought = split[0][FILE], option.replace("_columns", "s").removesuffix("_column")
        unclear = f"which column of {file!r} holds the {sought} is not clear"
        header = (
            "; where its first row is no header, give --columns"
            if file.endswith(("csv", "tsv"))
            else ""
        )
        raise ValueError(
            f"{option}: {unclear}; name it with --{option} ({_columns(split)}){header}"
        )
    check_column(split, found)
    return found


def check_column(split: datasets.Dataset, column: str) -> None:
    if column not in split.column_names:
        raise ValueError(f"data: {split[0][FILE]!r} has no column {column!r} ({_columns(split)})")


def string_columns(split: datasets.Dataset) -> list[str]:
    """The columns of plain strings, without `FILE`."""
    return [name for name in tables.string_columns(split) if name != FILE]


def check_texts(split: datasets.Dataset, columns: Sequence[str], blank: bool = False) -> None:
    """Refuse columns that hold no strings, and rows without text (which may be `blank`, but not missing)."""
    for column in columns:
        if column not in string_columns(split):
            there = (
                f"{split.features[column]}, not text; use one of {', '.join(string_columns(split))}"
            )
            raise ValueError(f"data: column {column!r} of {split[0][FILE]!r} holds {there}")
        each_row(split, partial(_check_text, column, blank), split[column])


def _check_text(column: str, blank: bool, text: str | None) -> None:
    if text is None or not (blank or text.strip()):
        raise bad_value(column, None, "a text, which every row needs")


def with_column(
    split: datasets.Dataset, name: str, values: list[Any], feature: Any = None
) -> datasets.Dataset:
    """`split` with a column of these values, whatever of that name it had before."""
    split = split.remove_columns([name] if name in split.column_names else [])
    return split.add_column(name, values, feature=feature)


def _columns(split: datasets.Dataset) -> str:
    return f"it has {', '.join(name for name in split.column_names if name not in (FILE, ROW))}"


# --- what is held out ---


def _hold_out(rows: datasets.Dataset, validation_size: float, seed: int, task: Task) -> np.ndarray:
    """Which training rows to validate on: bool [rows]."""
    target = max(1, round(validation_size * (len(rows) if validation_size < 1 else 1)))
    columns = [rows[column] for column in task.find_texts(rows)[task.copied]]
    keys = [json.dumps(row, default=str) for row in zip(*columns)]
    texts = list(dict.fromkeys(keys))
    number_of = {text: number for number, text in enumerate(texts)}
    group_of = np.array([number_of[key] for key in keys])
    classes = [Counter() for _ in texts]
    for group, of_row in zip(group_of, task.classes(rows)):
        classes[group].update([None, *of_row])
    is_held_out = stratify(classes, target, np.argsort(text_digests(texts, seed)))
    if validation_size <= 0 or target >= len(rows) or not is_held_out.any():
        of = f"{validation_size} of {len(rows)} rows ({len(texts)} different ones)"
        raise ValueError(
            f"validation_size: {of} cannot be held out with all labels left to train on; use --validation"
        )
    return is_held_out[group_of]


def stratify(groups: Sequence[Counter], target: int, order: Iterable[int]) -> np.ndarray:
    """Hold out about `target` rows with each class in proportion, the rarest class first (iterative stratification,
    Sechidis et al. 2011); no class loses its last group, and of a class of `FEW` rows or more at least one is held out.

    Args:
        groups: rows that stay together; of each the number of its rows by class, and of all its rows under None.
        order: the numbers of all groups in the order in which they are drawn.

    Returns:
        Which groups are held out: bool [groups].
    """
    rows, left, held = Counter(), Counter(), Counter()
    for group in groups:
        rows.update(group)
        left.update(group.keys())
    share, is_held_out = target / rows[None], np.zeros(len(groups), dtype=bool)
    wanted = {name: max(int(share * count), int(count >= FEW)) for name, count in rows.items()} | {
        None: target
    }

    def hold_out(group: int, name: str | None, most: float) -> None:
        fits = all(left[each] > 1 and held[each] <= most * rows[each] for each in groups[group])
        if fits and held[name] < wanted[name] and not is_held_out[group]:
            is_held_out[group] = True
            held.update(groups[group])
            left.subtract(groups[group].keys())

    order = list(order)
    rarest = [
        min(group.keys() - {None}, key=lambda name: (rows[name], name), default=None)
        for group in groups
    ]
    named = [group for group in order if rarest[group] is not None]
    for group in sorted(named, key=lambda group: (rows[rarest[group]], rarest[group])):
        hold_out(group, rarest[group], most=1)
    for group in order:  # rows without a class, and more of classes with few rows each
        hold_out(group, None, most=share)
    return is_held_out
