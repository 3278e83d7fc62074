"""The splits of a fine-tuning: from files, the Hub or memory. Every example knows the file and the
row that it came from."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datasets

from ...common.printable import printable
from ...data import tables
from ...data.cell_types import with_numbers
from ...data.conll import is_conll
from ...data.file_search import unique_files
from ...data.formats import CSV_SUFFIXES, TABLE_SUFFIXES
from ...data.sources import load_hub
from .annotations import find_format, from_annotations
from .columns import FILE, with_location
from .validation_examples import hold_out

if TYPE_CHECKING:
    from ..tasks.base import Task

Part = str | datasets.Dataset  # a file, or rows in memory, which a split has one or more of
FilesOrRows = str | os.PathLike | Sequence[str | os.PathLike] | tables.Rows | None
# The share that is held out where no validation examples are given.
VALIDATION_SIZE = 0.1
# The splits, with the names that files and data sets give them, best first. "eval" is none of them:
# it means the validation examples to some, the test examples to others.
SPLIT_NAMES = {
    "train": ("train", "training"),
    "validation": (
        "validation", "valid", "validate", "val", "dev", "development", "validation_matched",
    ),
    "test": ("test", "testing", "test_matched"),
}  # fmt: skip
# The end of train-00000-of-00002.parquet, and of SQuAD's train-v1.1.json.
SHARD_SUFFIX = re.compile(r"-(v\d+\.\d+|\d+-of-\d+)$")
MAX_LISTED_NAMES = 5
# The columns of SQuAD on the Hub.
SQUAD_FEATURES = datasets.Features(
    {
        "id": datasets.Value("string"),
        "title": datasets.Value("string"),
        "context": datasets.Value("string"),
        "question": datasets.Value("string"),
        "answers": {
            "text": datasets.List(datasets.Value("string")),
            "answer_start": datasets.List(datasets.Value("int64")),
        },
        "is_impossible": datasets.Value("bool"),
    }
)


def load_splits(
    task: Task,
    data: FilesOrRows | datasets.DatasetDict = None,
    train: FilesOrRows = None,
    validation: FilesOrRows = None,
    test: FilesOrRows = None,
    validation_size: float | None = VALIDATION_SIZE,
    seed: int = 0,
    columns: Sequence[str] | None = None,
    allow_validation: bool = True,
) -> datasets.DatasetDict:
    """Load the splits that are given, each with the columns `FILE` and `ROW`. Without validation
    examples, some of the training examples are held out (drawn with `seed`), each class of the task
    in proportion: examples that are copies of each other together, and no label that training would
    then lack. With `validation_size=None`, none are.

    Args:
        columns: Those of csv files without a header.
        allow_validation: Whether validation examples may be given; if not, they are refused (a
            ValueError).
    """
    sources = _find_splits(data)
    for split, source in (("train", train), ("validation", validation), ("test", test)):
        parts = _as_parts(source, split)
        if parts:
            sources[split] = parts
    if not sources:
        raise ValueError(
            "data: none given; use --data FOLDER, or files with --train, --validation, --test"
        )
    if "validation" in sources and not allow_validation:
        raise ValueError(
            "validation_size: validation rows are given, so that none are held out; leave it out,"
            " or give the training rows alone (--train)"
        )
    splits = _read_tables(sources, columns)
    if "train" in splits and "validation" not in splits and validation_size is not None:
        train_split, validation_split = hold_out(splits["train"], validation_size, seed, task)
        splits["train"] = train_split
        splits["validation"] = validation_split
    in_order = datasets.DatasetDict()
    for name in SPLIT_NAMES:
        if name in splits:
            in_order[name] = splits[name]
    return in_order


# --- Which tables are which split ---


def _as_parts(source: FilesOrRows, split: str) -> list[Part]:
    """What `--train`, `--validation` or `--test` names: files, or a data set in memory."""
    if source is None:
        return []
    tables.check_one_split(source, split)
    source = tables.as_dataset(source, split)
    if isinstance(source, datasets.Dataset):
        return [source]
    if isinstance(source, (str, os.PathLike)):
        return [str(source)]
    return list(map(str, source))


def _find_splits(data: FilesOrRows | datasets.DatasetDict) -> dict[str, list[Part]]:
    """What `--data` names: the parts of each split of a folder, a training file, a data set of the
    Hub or one in memory."""
    if data is None:
        return {}
    data = tables.as_dataset(data)
    if isinstance(data, datasets.Dataset):
        return {"train": [data]}
    if isinstance(data, datasets.DatasetDict):
        return _choose_splits({name: [rows] for name, rows in data.items()})
    data = str(data)
    if os.path.isfile(data):
        return {"train": [data]}
    if os.path.isdir(data):
        return _choose_splits(_tables_in(Path(data)))
    loaded = {}
    for name, rows in load_hub(data).items():
        loaded[name] = [with_location(_flatten_squad(rows), f"{data} ({name})")]
    return _choose_splits(loaded)


def _choose_splits(tables_by_name: Mapping[str, list[Part]]) -> dict[str, list[Part]]:
    """The tables that are a split by their names (`SPLIT_NAMES`). It prints which are not used."""
    sources = {}
    unused = dict(tables_by_name)
    for split, names in SPLIT_NAMES.items():
        for name in names:
            if name in tables_by_name:
                sources[split] = unused.pop(name)
                break
    if not tables_by_name:
        raise ValueError(
            "data: there is no table in the folder; use files or a data set with train, validation "
            "or test"
        )
    if not sources:
        raise ValueError(
            f"data: the splits are {_list_names(tables_by_name)}; use files or a data set with"
            " train, "
            "validation or test"
        )
    if unused:
        print(
            f"data: {', '.join(sources)} are used, not {_list_names(unused)}; give other files by "
            "--train, --validation or --test"
        )
    return sources


def _list_names(tables_by_name: Mapping[str, Sequence[Part]]) -> str:
    """The names of some tables: of files those of the files."""
    names = []
    for name, parts in tables_by_name.items():
        if isinstance(parts[0], str):
            name = Path(parts[0]).name
        names.append(printable(name))
    if len(names) > MAX_LISTED_NAMES:
        return f"{', '.join(names[:MAX_LISTED_NAMES])} and {len(names) - MAX_LISTED_NAMES} more"
    return ", ".join(names)


def _tables_in(folder: Path) -> dict[str, list[str]]:
    """The tables in a folder by the beginning of their names."""
    shards: dict[str, list[str]] = {}  # by their name without a number
    for file in sorted(folder.iterdir()):
        is_table = file.suffix.lower() in TABLE_SUFFIXES or is_conll(file)
        if is_table and file.is_file():
            name = SHARD_SUFFIX.sub("", file.stem).lower()
            shards.setdefault(name, []).append(str(file))
    for name, files in shards.items():
        shards[name] = unique_files(files)
    for split, names in SPLIT_NAMES.items():
        for name in names:
            files = list(map(Path, shards.get(name, [])))
            if len(files) > 1 and "-of-" not in files[0].stem:
                raise ValueError(
                    f"data: {str(folder)!r} has {files[0].name!r} and {files[1].name!r}, which are "
                    f"no shards of one table; use --{split} FILE"
                )
    return {name: files for name, files in shards.items() if files}


# --- Reading ---


def _read_tables(
    sources: Mapping[str, list[Part]], header: Sequence[str] | None
) -> dict[str, datasets.Dataset]:
    """Read all parts. What their columns hold (numbers, spans) is settled over all of them
    together: one file may have no cell that tells."""
    tables_of_parts = _read_parts(sources, header)
    csv_files = [name for name in tables_of_parts if name.lower().endswith(CSV_SUFFIXES)]
    csv_tables = with_numbers([tables_of_parts[file] for file in csv_files])
    tables_of_parts.update(zip(csv_files, csv_tables))
    for name, rows in tables_of_parts.items():
        if FILE not in rows.column_names:
            tables_of_parts[name] = with_location(_flatten_squad(rows), name)
    export = find_format(list(tables_of_parts.values()))
    for name, rows in tables_of_parts.items():
        try:
            tables_of_parts[name] = from_annotations(rows, export)
        except ValueError as error:
            raise ValueError(f"data: {name!r}: {error}") from None
    splits = {}
    for split, parts in sources.items():
        tables_of_split = [tables_of_parts[_name_of(part, split)] for part in parts]
        splits[split] = datasets.concatenate_datasets(tables_of_split)
    return splits


def _read_parts(
    sources: Mapping[str, list[Part]], header: Sequence[str] | None
) -> dict[str, datasets.Dataset]:
    """The table of each part, by `_name_of` it. A file of several splits is read once."""
    tables_of_parts: dict[str, datasets.Dataset] = {}
    for split, parts in sources.items():
        for part in parts:
            name = _name_of(part, split)
            if isinstance(part, datasets.Dataset):
                tables_of_parts[name] = tables.read_table(part, field=split)
            elif not os.path.isfile(part):
                raise ValueError(f"data: {part!r} is not a file")
            elif name not in tables_of_parts:
                tables_of_parts[name] = tables.read_table(part, header=header or ())
    return tables_of_parts


def _name_of(part: Part, split: str) -> str:
    """What messages call a part: the file, or of rows in memory the split."""
    return part if isinstance(part, str) else split


def _flatten_squad(rows: datasets.Dataset) -> datasets.Dataset:
    """A file of SQuAD's own releases, which is one row, a list of articles, as the Hub has it: a
    row for each question. Other rows stay."""
    articles = getattr(rows.features.get("data"), "feature", None)
    if len(rows) != 1 or not isinstance(articles, dict) or "paragraphs" not in articles:
        return rows
    questions = []
    for article in rows[0]["data"]:
        for paragraph in article["paragraphs"] or []:
            for question in paragraph["qas"] or []:
                questions.append(_squad_row(article, paragraph, question))
    return datasets.Dataset.from_list(questions, features=SQUAD_FEATURES)


def _squad_row(article: dict, paragraph: dict, question: dict) -> dict[str, Any]:
    fields = article | paragraph | question
    row = {name: fields.get(name) for name in SQUAD_FEATURES}
    if row["answers"] is not None:
        answers: dict[str, list] = {"text": [], "answer_start": []}
        for answer in row["answers"]:
            answers["text"].append(answer["text"])
            answers["answer_start"].append(answer["answer_start"])
        row["answers"] = answers
    return row
