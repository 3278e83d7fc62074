"""Documents for training, read, held out and tokenized: a `datasets.Dataset`, cached on disk, or a stream of them.

Of a table only the column of the text is read. A document of a text file is a paragraph between blank lines
(`sample_by="paragraph"`) or, if the file has no blank lines, a line ("line"); "auto" looks for blank lines.
"""

import functools
import hashlib
import inspect
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets.fingerprint import Hasher
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from ...tokenization import Coverage, check_coverage, tokenizer_backend
from ..common.files import matching_paths
from . import tables
from .builtin_corpus import builtin_documents, builtin_files
from .rows import ReadError, detect_encoding, read_rows
from .sentences import sentence_table
from .tables import FORMATS, DatasetOrStream

ROWS_MANIFEST = "minibert_rows.json"  # in a folder of prepared rows
# Documents in one call of the tokenizer: enough to keep every core busy, few enough that the encodings of long
# documents (100 bytes a token and more) stay small.
TOKENIZER_BATCH = 512
# The coverage of a tokenizer is measured on this many documents, and on this many characters of each.
SAMPLE, SAMPLE_CHARACTERS = 1000, 10_000
ROWS_TO_SEE = 100  # the column of the text is guessed from these rows
BYTES_TO_SEE = 1 << 24  # blank lines are looked for in these bytes
# "de=folder": the language that an entry is in.
LANGUAGE = re.compile(r"(?P<language>[A-Za-z][\w-]*)=(?P<entry>.+)", re.DOTALL)
BLANK_LINE = r"\n[ \t\r]*\n"
Source = str | Path | DatasetOrStream


def load_documents(
    data: Sequence[Source] = (), *, text_column: str | None = None, sample_by: str = "auto"
) -> datasets.Dataset:
    """Load documents: one column `text`, one row per document, in the order of `data`, without blank documents. With
    several entries of `data`, the column `source` (a `ClassLabel`) names the language or the entry of each document.

    Args:
        data: Files, folders, globs, data sets of the Hub or loaded ones; without any, the built-in corpus.
        text_column: The column of the text; by default "text", or the only one of strings.
        sample_by: "auto", "line", "paragraph" or "document" (all of a file), or "sentence" (of any data).
    """
    if not data:  # `version` is a part of the cache's key: the corpus is read again when a file or our code has changed
        files = list(map(str, builtin_files()))
        version = tables.checksum(files) + _revision(builtin_documents)
        return datasets.Dataset.from_generator(
            _builtin_rows, gen_kwargs={"files": tuple(files), "version": version}
        )
    parts = load_sources(data, text_column=text_column, sample_by=sample_by)
    for entry, part in zip(data, parts):
        if not len(part):
            raise ValueError(
                f"data: all documents of {name_of(entry)!r} are blank; every entry needs at least one"
            )
    if len(parts) == 1:
        return parts[0]
    names = [language or name_of(entry) for language, entry in map(language_of, data)]
    label = datasets.ClassLabel(names=list(dict.fromkeys(names)))
    source = np.repeat(label.str2int(names), [len(part) for part in parts])
    return datasets.concatenate_datasets(parts).add_column("source", source, feature=label)


def load_sources(
    data: Sequence[Source],
    *,
    text_column: str | None = None,
    sample_by: str = "auto",
    streaming: bool = False,
) -> list[datasets.Dataset] | list[datasets.IterableDataset]:
    """Load the documents of each entry of `data` as `load_documents` does; an entry may have none. With `streaming`,
    they are read on demand, in the order of the files."""
    layout = "auto" if sample_by == "sentence" else sample_by
    sources = []
    for entry, groups in [
        (entry, _groups(entry, layout)) for entry in data
    ]:  # all are found before any is read
        parts = []
        for group, files in groups.items():
            text = _load(group, files, text_column, streaming)
            if isinstance(text, datasets.Dataset) and (
                missing := text.data.table["text"].null_count
            ):
                print(
                    f"{name_of(entry)!r}: {missing:,} of {len(text):,} rows have no text and are left out"
                )
            paragraphs = group.layout == "paragraph"
            step = (
                sentence_table
                if sample_by == "sentence"
                else split_paragraphs
                if paragraphs
                else strip_blank
            )
            parts.append(map_tables(text, step, desc="Reading documents", batch_size=1000))
        sources.append(datasets.concatenate_datasets(parts) if len(parts) > 1 else parts[0])
    return sources


def check_sources(data: Sequence[Source]) -> None:
    """Refuse (a ValueError) a path without files, before any work."""
    for entry in data:
        if isinstance(entry, (str, Path)):
            tables.find_files(language_of(entry)[1])


def language_of(entry: Source) -> tuple[str | None, Source]:
    """Split an entry `language=entry` into its language (None if it names none) and the rest."""
    named = LANGUAGE.fullmatch(entry) if isinstance(entry, str) else None
    if (
        named is None or os.path.exists(entry) or matching_paths(entry)
    ):  # a path may have a "=" in it
        return None, entry if isinstance(entry, DatasetOrStream) else str(entry)
    return named["language"], named["entry"]


def name_of(entry: Source) -> str:
    """The name of an entry in messages."""
    return "the data set" if isinstance(entry, DatasetOrStream) else str(entry)


# --- Reading ---------------------------------------------------------------------------------------------------------


class FileGroup(NamedTuple):
    """How the files of a group are read."""

    file_format: str  # "loaded" (no files), "hub" (no files), or a value of `tables.FORMATS`
    layout: str | None = None  # of text: "line", "paragraph" or "document"
    encoding: str | None = None  # of text


def _groups(entry: Source, sample_by: str) -> dict[FileGroup, Any]:
    """Group the content of an entry: the files that are read alike, a name of the Hub, or a data set."""
    path = language_of(entry)[1]
    if isinstance(path, DatasetOrStream):
        return {FileGroup("loaded"): path}
    if os.path.isfile(os.path.join(path, ROWS_MANIFEST)):
        raise ValueError(
            f"data: {path!r} holds prepared rows, but text is needed; give the text that they were made of"
        )
    files = tables.find_files(path)
    if not files:
        return {FileGroup("hub"): path}
    groups: dict[FileGroup, list[str]] = {}
    for file in filter(os.path.getsize, files):
        group = _group_of(file, sample_by)
        groups.setdefault(group, []).append(file)
    if not groups:
        raise ValueError(f"data: all files of {name_of(entry)!r} are empty; give files with text")
    return groups


def _group_of(file: str, sample_by: str) -> FileGroup:
    file_format = FORMATS.get(Path(file).suffix.lower())
    if file_format is None:
        suffixes = ", ".join(FORMATS)
        raise ValueError(
            f"data: the suffix of {file!r} is unknown; use {suffixes} (rename it to .txt to read it as text)"
        )
    if file_format != "text":
        return FileGroup(file_format)
    encoding = detect_encoding(file)
    layout = _layout(file, encoding) if sample_by == "auto" else sample_by
    return FileGroup("text", layout, encoding)


def _layout(file: str, encoding: str) -> str:
    with open(file, "rb") as stream:
        begins = stream.read(BYTES_TO_SEE).decode(encoding, errors="replace").strip()
    return "paragraph" if re.search(BLANK_LINE, begins) else "line"


def _load(group: FileGroup, source: Any, column: str | None, streaming: bool) -> DatasetOrStream:
    """The texts of a group, in a column `text`."""
    if group.file_format == "loaded":
        return _select_text(source, column)
    if group.file_format == "hub":
        return _select_text(tables.load_hub(source, split="train", streaming=streaming), column)
    version = tables.checksum(source, group.encoding)
    if group.file_format == "text":
        options = dict(encoding=group.encoding, sample_by=group.layout, streaming=streaming)
        return tables.load_files("text", source, name=version, **options)
    if group.file_format == "parquet":
        features = tables.parquet_features(source)
        column = _choose_column(tables.string_columns(features), column)
        options = dict(
            columns=[column],
            features=datasets.Features({column: features[column]}),
            streaming=streaming,
            name=f"{version}-{Hasher.hash(column)}",
        )
        return _select_text(tables.load_files("parquet", source, **options), column)
    first_rows = islice(read_rows(source[0]), ROWS_TO_SEE)
    rows = tables.from_numbered_rows(source[0], first_rows)
    column = _choose_column(
        tables.string_columns(*tables.with_numbers([rows])), column, rows.column_names
    )
    options = dict(features=datasets.Features({"text": datasets.Value("string")}))
    made_of = {"files": source, "column": column}
    if streaming:
        return datasets.IterableDataset.from_generator(_texts, gen_kwargs=made_of, **options)
    try:
        made_of |= {"version": version + _revision(read_rows) + _revision(_texts)}
        return datasets.Dataset.from_generator(_texts, gen_kwargs=made_of, **options)
    except datasets.exceptions.DatasetGenerationError as error:
        raise error.__cause__ or error from None


def _texts(files: list[str], column: str, version: str = "") -> Iterator[dict[str, str | None]]:
    """Yield the texts in one column of JSON and csv files; other columns are not checked."""
    for file in files:
        has_column, row = False, {}
        for line, row in read_rows(file):
            text = row.get(column)
            if text is not None and not isinstance(text, str):
                raise ReadError(f"{file}, line {line}: {column}={text!r:.100} is not text")
            has_column |= column in row
            yield {"text": text}
        if row and not has_column:
            raise ReadError(f"{file!r} has no column {column!r}; it has {', '.join(row)}")


def _choose_column(strings: Sequence[str], name: str | None, known: Sequence[str] = ()) -> str:
    """The column of the text: `name`, or else "text", or the only column of strings."""
    use = f"use one of the columns of strings: {', '.join(strings) or 'there is none'}"
    if name is None and "text" not in strings and len(strings) != 1:
        raise ValueError(f"text_column: the column of the text is not clear; {use}")
    name = name or ("text" if "text" in strings else strings[0])
    if name not in strings and name not in known:
        raise ValueError(f"text_column: {name!r} is not a column of strings; {use}")
    return name


def _select_text(dataset: DatasetOrStream, name: str | None) -> DatasetOrStream:
    """Reduce a data set to its column of text, renamed to "text"."""
    # a stream may not know its columns before it is read
    known = dataset if dataset.features else tables.from_rows(list(islice(dataset, ROWS_TO_SEE)))
    name = _choose_column(tables.string_columns(known), name)
    dataset = dataset.select_columns(name)
    return dataset if name == "text" else dataset.rename_column(name, "text")


# --- Holding out and tokenizing --------------------------------------------------------------------------------------


def hold_out(
    documents: datasets.Dataset, validation_size: float | int, seed: int = 0
) -> np.ndarray:
    """Choose the documents (column `text`, or else `input_ids`) to validate on: bool [documents].

    The choice depends on the content of a document and the seed only, so that equal documents are never on both sides.
    `validation_size` is a share (below 1) or a number of documents; at least one is held out.
    """
    if not 0 < validation_size < math.inf:
        use = "use a share below 1, or a number of documents"
        raise ValueError(f"validation_size must be positive, got {validation_size}; {use}")
    target = max(
        1, round(validation_size * len(documents) if validation_size < 1 else validation_size)
    )
    column = "text" if "text" in documents.column_names else "input_ids"
    batches = documents.with_format("arrow").select_columns(column).iter(batch_size=1000)
    digests = np.concatenate(
        [text_digests(map(str, batch[column].to_pylist()), seed) for batch in batches]
    )
    values, counts = np.unique(
        digests, return_counts=True
    )  # ascending: a random order of the distinct documents
    held_out = values[: np.searchsorted(np.cumsum(counts), target) + 1]
    if len(held_out) == len(values):
        texts = f"{len(documents)} documents ({len(values)} different ones)"
        raise ValueError(
            f"validation_size: {validation_size} of {texts} leaves none to train on; use less, or more data"
        )
    return np.isin(digests, held_out)


def text_digests(texts: Iterable[str], seed: int) -> np.ndarray:
    """A 64-bit hash of every text, keyed by the seed: uint64 [texts]."""
    key = str(seed).encode()
    digests = (hashlib.blake2b(text.encode(), digest_size=8, key=key).digest() for text in texts)
    return np.frombuffer(b"".join(digests), dtype="<u8")


def tokenize_documents(
    documents: DatasetOrStream, tokenizer: PreTrainedTokenizerFast, num_proc: int | None = None
) -> DatasetOrStream:
    """Tokenize whole documents (column `text`): one column `input_ids` (lists), never truncated, without special
    tokens. Special tokens that are spelled out in a text are read as text.

    With `num_proc`, each of that many processes uses one core; without it, one process uses all cores.
    """
    options = dict(desc="Tokenizing", batch_size=TOKENIZER_BATCH, num_proc=num_proc)
    return map_tables(documents, tokenize_table, backend=tokenizer_backend(tokenizer), **options)


def check_tokenization(
    documents: DatasetOrStream,
    tokenizer: PreTrainedTokenizerFast,
    max_lost_text: float | None = None,
) -> Coverage:
    """Print how much of a sample of documents (column `text`; of a stream the first ones) the tokenizer loses, and
    refuse (a ValueError) one that loses too much, see `tokenization.check_coverage`."""
    if isinstance(documents, datasets.Dataset):
        count = min(len(documents), SAMPLE)
        documents = documents.select(np.linspace(0, len(documents) - 1, count).astype(int))
    sample = (row["text"][:SAMPLE_CHARACTERS] for row in islice(documents, SAMPLE))
    coverage = check_coverage(tokenizer, sample, max_lost_text)
    print(f"Tokenizer: {coverage.describe()}")
    return coverage


def map_tables(
    dataset: DatasetOrStream,
    function: Callable[..., pa.Table],
    *,
    desc: str,
    batch_size: int,
    num_proc: int | None = None,
    **kwargs,
) -> DatasetOrStream:
    """Map a function from Arrow table to Arrow table over a data set; its result replaces all columns and rows.

    `datasets` keys its cache by the name of the function, not by its code. The source of its module is added here, so
    that rows made by an older version are not used.
    """
    options: dict = {"fn_kwargs": {"function": function, "revision": _revision(function), **kwargs}}
    is_stream = isinstance(dataset, datasets.IterableDataset)
    if not is_stream:
        options |= {"num_proc": num_proc, "remove_columns": dataset.column_names, "desc": desc}
    return (
        dataset.with_format("arrow")
        .map(_call, batched=True, batch_size=batch_size, **options)
        .with_format(None)
    )


def _revision(function: Callable) -> str:
    return Hasher.hash(inspect.getsource(inspect.getmodule(function)))


def smallest_dtype(count: int) -> type[np.integer]:
    """The smallest type that stores ids below `count`."""
    return np.uint16 if count <= 1 << 16 else np.int32


# --- Steps of map_tables ---------------------------------------------------------------------------------------------


def _call(table: pa.Table, function: Callable[..., pa.Table], revision: str, **kwargs) -> pa.Table:
    return function(table, **kwargs)


def strip_blank(table: pa.Table) -> pa.Table:
    text = pc.utf8_trim_whitespace(
        table["text"].cast(pa.string())
    )  # some rows of a stream may hold nothing but null
    return pa.table(
        {"text": text.filter(pc.greater(pc.utf8_length(text), 0))}
    )  # null compares to null: dropped too


def split_paragraphs(table: pa.Table) -> pa.Table:
    """Split at lines of spaces too. (A paragraph of `datasets` ends at an empty line only.)"""
    parts = chain.from_iterable(re.split(BLANK_LINE, text) for text in table["text"].to_pylist())
    return strip_blank(pa.table({"text": pa.array(parts, pa.string())}))


@functools.lru_cache(maxsize=1)
def _backend(serialized: str) -> tuple[Tokenizer, type[np.integer]]:
    """The tokenizer, and the type of its ids."""
    backend = Tokenizer.from_str(serialized)
    backend.encode_special_tokens = (
        True  # "[PAD]" spelled out in a document is text, not the padding token
    )
    return backend, smallest_dtype(
        max(backend.get_vocab(with_added_tokens=True).values(), default=0) + 1
    )


def tokenize_table(table: pa.Table, backend: str) -> pa.Table:
    """Column `text` to column `input_ids`, without special tokens; `backend` as JSON."""
    tokenizer, dtype = _backend(backend)
    encodings = tokenizer.encode_batch_fast(table["text"].to_pylist(), add_special_tokens=False)
    ids = pa.list_(pa.from_numpy_dtype(dtype))
    return pa.table({"input_ids": pa.array([encoding.ids for encoding in encodings], ids)})


def _builtin_rows(files: Sequence[str], version: str) -> Iterator[dict[str, str]]:
    return ({"text": document} for document in builtin_documents(map(Path, files)))
