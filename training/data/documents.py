"""Documents read: a `datasets.Dataset`, cached on disk, or a stream of them.

Of a table only the column of the text is read. A document of a text file is a paragraph between
blank lines (`sample_by="paragraph"`) or, if the file has no blank lines, a line ("line"); "auto"
looks for blank lines.
"""

import os
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import numpy as np
from datasets.fingerprint import Hasher

from .builtin_corpus import builtin_documents, builtin_files
from .cell_types import string_columns, with_numbers
from .csv_and_json import read_records
from .dataset_calls import DatasetOrStream, checksum, load_files, map_tables, revision_of
from .entries import DataEntry, is_prepared, language_of, names_of_entries
from .formats import FORMATS
from .parquet_files import parquet_features
from .sentences import BLANK_LINE, sentence_table, split_paragraphs, strip_blank
from .sources import find_files, load_hub
from .tables import from_numbered_records, from_records, name_of_data
from .text_files import ReadError, detect_encoding

RECORDS_TO_GUESS_FROM = 100  # the column of the text is guessed from so many
BYTES_TO_GUESS_FROM = 1 << 24  # blank lines are looked for in so many


def load_documents(
    data: Sequence[DataEntry] = (), *, text_column: str | None = None, sample_by: str = "auto"
) -> datasets.Dataset:
    """Load documents: one column `text`, one document an entry, in the order of `data`, without
    blank documents. With several entries of `data`, the column `source` (a `ClassLabel`) names the
    language or the entry of each document.

    Args:
        data: Files, folders, globs, data sets of the Hub or loaded ones; without any, the built-in
            corpus.
        text_column: The column of the text; by default "text", or the only one of strings.
        sample_by: "auto", "line", "paragraph" or "document" (all of a file), or "sentence" (of any
            data).
    """
    if not data:
        # `version` is a part of the cache's key: the corpus is read again when a file or our code
        # has changed
        files = list(map(str, builtin_files()))
        version = checksum(files) + revision_of(builtin_documents)
        return datasets.Dataset.from_generator(
            _builtin_texts, gen_kwargs={"files": tuple(files), "version": version}
        )
    parts = load_sources(data, text_column=text_column, sample_by=sample_by)
    for entry, part in zip(data, parts):
        if not len(part):
            raise ValueError(
                f"data: all documents of {name_of_data(entry)!r} are blank;"
                " every entry needs at least one"
            )
    if len(parts) == 1:
        return parts[0]
    names = names_of_entries(data)
    label = datasets.ClassLabel(names=list(dict.fromkeys(names)))
    label_ids = np.repeat(label.str2int(names), list(map(len, parts)))
    return datasets.concatenate_datasets(parts).add_column("source", label_ids, feature=label)


def load_sources(
    data: Sequence[DataEntry],
    *,
    text_column: str | None = None,
    sample_by: str = "auto",
    streaming: bool = False,
) -> list[datasets.Dataset] | list[datasets.IterableDataset]:
    """Load the documents of each entry of `data` as `load_documents` does; an entry may have none.
    With `streaming`, they are read on demand, in the order of the files."""
    layout = "auto" if sample_by == "sentence" else sample_by
    # the files of all entries are found before any is read
    groups_of_entries = [_group_files(entry, layout) for entry in data]
    sources = []
    for entry, groups in zip(data, groups_of_entries):
        parts = []
        for group, files in groups.items():
            texts = _load_texts(group, files, text_column, streaming)
            _report_missing(texts, entry)
            if sample_by == "sentence":
                step = sentence_table
            elif group.layout == "paragraph":
                step = split_paragraphs
            else:
                step = strip_blank
            parts.append(map_tables(texts, step, desc="Reading documents", batch_size=1000))
        sources.append(datasets.concatenate_datasets(parts) if len(parts) > 1 else parts[0])
    return sources


def _report_missing(texts: DatasetOrStream, entry: DataEntry) -> None:
    """Print how many records have no text, if they are not a stream."""
    if not isinstance(texts, datasets.Dataset):
        return
    missing = texts.data.table["text"].null_count
    if missing:
        print(
            f"{name_of_data(entry)!r}: {missing:,} of {len(texts):,} rows have no text"
            " and are left out"
        )


# --- Reading ---


class FileGroup(NamedTuple):
    """How the files of a group are read."""

    file_format: str  # "loaded" (no files), "hub" (no files), or a value of `FORMATS`
    layout: str | None = None  # of text: "line", "paragraph" or "document"
    encoding: str | None = None  # of text


def _group_files(entry: DataEntry, sample_by: str) -> dict[FileGroup, Any]:
    """Group the content of an entry: the files that are read alike, a name of the Hub, or a data
    set."""
    path = language_of(entry)[1]
    if isinstance(path, DatasetOrStream):
        return {FileGroup("loaded"): path}
    if is_prepared(path):
        raise ValueError(
            f"data: {path!r} holds prepared rows, but text is needed; give the text that they were"
            " made of"
        )
    files = find_files(path)
    if not files:
        return {FileGroup("hub"): path}
    groups: dict[FileGroup, list[str]] = {}
    for file in filter(os.path.getsize, files):
        group = _group_of(file, sample_by)
        groups.setdefault(group, []).append(file)
    if not groups:
        raise ValueError(
            f"data: all files of {name_of_data(entry)!r} are empty; give files with text"
        )
    return groups


def _group_of(file: str, sample_by: str) -> FileGroup:
    file_format = FORMATS.get(Path(file).suffix.lower())
    if file_format is None:
        suffixes = ", ".join(FORMATS)
        raise ValueError(
            f"data: the suffix of {file!r} is unknown; use {suffixes} (rename it to .txt to read"
            " it as text)"
        )
    if file_format != "text":
        return FileGroup(file_format)
    encoding = detect_encoding(file)
    layout = _layout(file, encoding) if sample_by == "auto" else sample_by
    return FileGroup("text", layout, encoding)


def _layout(file: str, encoding: str) -> str:
    with open(file, "rb") as stream:
        beginning = stream.read(BYTES_TO_GUESS_FROM).decode(encoding, errors="replace").strip()
    return "paragraph" if re.search(BLANK_LINE, beginning) else "line"


def _load_texts(
    group: FileGroup, source: Any, column: str | None, streaming: bool
) -> DatasetOrStream:
    """The texts of a group, in a column `text`. Each format of `FORMATS` has its branch."""
    if group.file_format == "loaded":
        return _select_text(source, column)
    if group.file_format == "hub":
        return _select_text(load_hub(source, split="train", streaming=streaming), column)
    version = checksum(source, group.encoding)
    if group.file_format == "text":
        options = dict(encoding=group.encoding, sample_by=group.layout, streaming=streaming)
        return load_files("text", source, name=version, **options)
    if group.file_format == "parquet":
        return _load_parquet(source, column, version, streaming)
    return _load_records(source, column, version, streaming)


def _load_parquet(
    files: list[str], column: str | None, version: str, streaming: bool
) -> DatasetOrStream:
    features = parquet_features(files)
    column = _choose_column(string_columns(features), column)
    loaded = load_files(
        "parquet",
        files,
        columns=[column],
        features=datasets.Features({column: features[column]}),
        streaming=streaming,
        name=f"{version}-{Hasher.hash(column)}",
    )
    return _select_text(loaded, column)


def _load_records(
    files: list[str], column: str | None, version: str, streaming: bool
) -> DatasetOrStream:
    """The texts of JSON, csv and tsv files."""
    first_records = islice(read_records(files[0]), RECORDS_TO_GUESS_FROM)
    table = from_numbered_records(files[0], first_records)
    # a column of numbers is not a text, though its cells in a csv file are
    converted = with_numbers([table])[0]
    column = _choose_column(string_columns(converted), column, table.column_names)
    features = datasets.Features({"text": datasets.Value("string")})
    arguments = {"files": files, "column": column}
    if streaming:
        return datasets.IterableDataset.from_generator(
            _texts, gen_kwargs=arguments, features=features
        )
    # a part of the key by which `datasets` caches the texts
    arguments["version"] = version + revision_of(read_records) + revision_of(_texts)
    try:
        return datasets.Dataset.from_generator(_texts, gen_kwargs=arguments, features=features)
    except datasets.exceptions.DatasetGenerationError as error:
        raise error.__cause__ or error from None


def _texts(files: list[str], column: str, version: str = "") -> Iterator[dict[str, str | None]]:
    """Yield the texts in one column of JSON and csv files; other columns are not checked."""
    for file in files:
        has_column = False
        record = {}
        for line, record in read_records(file):
            text = record.get(column)
            if text is not None and not isinstance(text, str):
                raise ReadError(f"{file}, line {line}: {column}={text!r:.100} is not text")
            has_column |= column in record
            yield {"text": text}
        if record and not has_column:
            raise ReadError(f"{file!r} has no column {column!r}; it has {', '.join(record)}")


def _choose_column(
    text_columns: Sequence[str], name: str | None, other_columns: Sequence[str] = ()
) -> str:
    """The column of the text: `name`, or else "text", or the only column of strings. By its name,
    it may be one of `other_columns` too."""
    string_names = ", ".join(text_columns) or "there is none"
    if name is None and "text" in text_columns:
        name = "text"
    elif name is None and len(text_columns) == 1:
        name = text_columns[0]
    if name is None:
        raise ValueError(
            "text_column: the column of the text is not clear; use one of the columns of strings:"
            f" {string_names}"
        )
    if name not in text_columns and name not in other_columns:
        raise ValueError(
            f"text_column: {name!r} is not a column of strings; use one of the columns of strings:"
            f" {string_names}"
        )
    return name


def _select_text(dataset: DatasetOrStream, name: str | None) -> DatasetOrStream:
    """Reduce a data set to its column of text, renamed to "text"."""
    table = dataset
    if not dataset.features:  # a stream may not know its columns before it is read
        table = from_records(list(islice(dataset, RECORDS_TO_GUESS_FROM)))
    name = _choose_column(string_columns(table), name)
    dataset = dataset.select_columns(name)
    return dataset if name == "text" else dataset.rename_column(name, "text")


def _builtin_texts(files: Sequence[str], version: str) -> Iterator[dict[str, str]]:
    for document in builtin_documents(map(Path, files)):
        yield {"text": document}
