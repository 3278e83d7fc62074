"""What an entry of `--data` names: local files, a folder, a glob or a data set on the Hub, as a table or as a stream.

The layout of a text file is found by looking for blank lines (`sample_by="auto"`): with one between two lines that are
not blank, a document is what stands between blank lines ("paragraph"); without any, each line is a document ("line").
`sample_by="document"` takes every file as one document. The names are those of the `datasets` text loader.
"""

from __future__ import annotations

import codecs
import functools
import glob
import itertools
import mmap
import os
import re
from collections.abc import Callable
from pathlib import Path

import datasets
import pyarrow as pa
from tqdm.auto import tqdm

SAMPLE_BY = ("auto", "line", "paragraph", "document")

# What a folder is searched for, with the loader of `datasets` that reads it.
LOADERS = {
    ".txt": ("text", {"encoding": "utf-8-sig"}),
    ".jsonl": ("json", {}),
    ".json": ("json", {}),
    # Empty cells and words such as "NA" stay text.
    ".csv": ("csv", {"encoding": "utf-8-sig", "keep_default_na": False}),
    ".tsv": ("csv", {"encoding": "utf-8-sig", "keep_default_na": False, "sep": "\t"}),
    ".parquet": ("parquet", {}),
}

# "name" or "owner/name", then the configuration where a data set has several.
HUB_NAME = re.compile(r"(?P<name>[\w-][\w.-]*(/[\w-][\w.-]*)?)(:(?P<config>[\w.-]+))?")

# "de=folder": the language that an entry is in.
LANGUAGE = re.compile(r"(?P<language>[A-Za-z][\w-]*)=(?P<item>.+)", re.DOTALL)

BLANK_LINE_BETWEEN_LINES = re.compile(rb"\S[^\S\r\n]*\r?\n\r?\n\s*\S")

# How much of a file is looked at in advance when it is to be streamed.
LOOK_AHEAD = 1 << 24

# Rows of a stream in which a column of strings has to show.
ROWS_TO_SEE = 100


def language_of(item: str) -> tuple[str | None, str]:
    """The language of an entry `language=item` (None where it names none) and the entry without it."""
    named = LANGUAGE.fullmatch(item)
    if named is None or os.path.exists(os.path.expanduser(item)):  # a path may have a "=" in it
        return None, item
    return named["language"], named["item"]


def plan_source(
    item: str, sample_by: str, streaming: bool = False
) -> list[Callable[[], datasets.Dataset | datasets.IterableDataset]]:
    """Check one entry of `data` and say how to load it: local files grouped by loader, or a data set of the Hub.

    Raises:
        ValueError: an entry that does not exist or holds no data, or a file that is not UTF-8 (with the byte offset;
            of a file that is to be streamed, the first `LOOK_AHEAD` bytes are looked at).
    """
    if sample_by not in SAMPLE_BY:
        raise ValueError(f"sample_by: {sample_by!r} is not one of {', '.join(SAMPLE_BY)}")
    _, item = language_of(item)
    path = os.path.expanduser(item)
    if os.path.isdir(path):
        files = _files_in(path)
        if not files:
            raise ValueError(f"data: no file with a name ending in {', '.join(LOADERS)} in the folder {item!r}")
    elif os.path.exists(path):
        files = [path]
    elif glob.has_magic(path):
        files = sorted(file for file in glob.glob(path, recursive=True) if os.path.isfile(file))
        if not files:
            raise ValueError(f"data: no file matches {item!r}")
    else:
        named = HUB_NAME.fullmatch(item)
        if named is None or Path(item).suffix in LOADERS:
            raise ValueError(f"data: {item!r} does not exist")
        return [functools.partial(_from_hub, named["name"], named["config"], streaming)]

    limit = LOOK_AHEAD if streaming else None
    groups: dict[tuple, list[str]] = {}
    for file in tqdm(files, desc="Checking files", unit=" files", delay=1, leave=False):
        suffix = Path(file).suffix.lower()
        suffix = suffix if suffix in LOADERS else ".txt"  # a file given by name may end in anything
        if suffix != ".parquet":
            _check_utf8(file, limit)
        layout = _layout(file, limit) if suffix == ".txt" and sample_by == "auto" else sample_by
        if os.path.getsize(file):
            groups.setdefault((suffix, layout if suffix == ".txt" else None), []).append(file)
    if not groups:
        raise ValueError(f"data: no text in {item!r}: empty")
    return [functools.partial(_from_files, files, *group, streaming) for group, files in groups.items()]


def select_text(
    dataset: datasets.Dataset | datasets.IterableDataset, name: str | None
) -> datasets.Dataset | datasets.IterableDataset:
    """`dataset` cut down to one column of strings named "text".

    Raises:
        ValueError: `name` is no column of strings, or it is None and which column holds the text is not clear.
    """
    streamed = isinstance(dataset, datasets.IterableDataset)
    strings = _string_columns(dataset)
    if name is None:
        name = "text" if "text" in strings else strings[0] if len(strings) == 1 else None
    if name not in strings:
        wanted = "which column holds the text is not clear" if name is None else f"{name!r} is no column of strings"
        raise ValueError(f"text_column: {wanted}; columns of strings: {', '.join(strings) or 'none'}")
    dataset = dataset.select_columns(name)
    if name != "text":
        dataset = dataset.rename_column(name, "text")
    return dataset if streamed else dataset.cast_column("text", datasets.Value("string"))


def _string_columns(dataset: datasets.Dataset | datasets.IterableDataset) -> list[str]:
    if dataset.features is None:  # a stream that has not been read knows nothing of its columns
        rows = list(itertools.islice(dataset, ROWS_TO_SEE))
        columns = dict.fromkeys(column for row in rows for column in row)
        return [column for column in columns if any(isinstance(row.get(column), str) for row in rows)]
    return [
        column
        for column, feature in dataset.features.items()
        if isinstance(feature, datasets.Value) and feature.dtype in ("string", "large_string")
    ]


def _files_in(folder: str) -> list[str]:
    """All data files under a folder, sorted; hidden ones are left out."""
    paths = [path for path in Path(folder).rglob("*") if path.suffix.lower() in LOADERS and path.is_file()]
    hidden = {path for path in paths if any(part.startswith(".") for part in path.relative_to(folder).parts)}
    return sorted(str(path) for path in paths if path not in hidden)


def _check_utf8(file: str, limit: int | None) -> None:
    """Decode the file, or its first `limit` bytes."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    offset = 0
    with open(file, "rb") as stream:
        while limit is None or offset < limit:
            block = stream.read(1 << 24)
            carried = len(decoder.getstate()[0])  # bytes of a character that the last block began
            try:
                decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                position = offset - carried + error.start
                byte = error.object[error.start]
                raise ValueError(
                    f"data: {file!r} is not UTF-8 text: byte 0x{byte:02x} at offset {position} ({error.reason})"
                ) from None
            if not block:
                return
            offset += len(block)


def _layout(file: str, limit: int | None) -> str:
    size = os.path.getsize(file)
    if size == 0:
        return "line"
    with open(file, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        found = BLANK_LINE_BETWEEN_LINES.search(content, 0, size if limit is None else min(size, limit))
    return "paragraph" if found else "line"


def _from_files(
    files: list[str], suffix: str, layout: str | None, streaming: bool
) -> datasets.Dataset | datasets.IterableDataset:
    loader, options = LOADERS[suffix]
    if loader == "text":
        options = {**options, "sample_by": layout}
    try:
        if not streaming:
            return datasets.load_dataset(loader, data_files=files, split="train", **options)
        stream = datasets.load_dataset(loader, data_files=files, split="train", streaming=True, **options)
        next(iter(stream), None)  # what is wrong at the beginning is found here, where the files are known
        return stream
    except (datasets.exceptions.DatasetGenerationError, pa.ArrowInvalid) as error:
        raise ValueError(f"data: {_some(files)} cannot be read as {suffix[1:]}: {_reason(error)}") from error


def _from_hub(name: str, config: str | None, streaming: bool) -> datasets.Dataset | datasets.IterableDataset:
    options = {"streaming": True} if streaming else {}
    try:
        return datasets.load_dataset(name, config, split="train", **options)
    except (OSError, ValueError) as error:  # not found, no connection; no such configuration or split
        raise ValueError(f"data: {name!r} is no path here, and as a data set of the Hub: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    return str(error.__cause__ or error).strip().splitlines()[0]


def _some(files: list[str]) -> str:
    return repr(files[0]) if len(files) == 1 else f"one of {len(files)} files ({files[0]!r}, …)"
