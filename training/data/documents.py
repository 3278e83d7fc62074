"""Documents for training, read, held out and tokenized: a `datasets.Dataset`, cached on disk, or a stream of them.

Of a table only the column of the text is read. In a text file with a blank line between two others, a document is what
stands between blank lines (`sample_by="paragraph"`), without any each line is one ("line"): "auto" looks for them.
"""

import functools
import glob
import hashlib
import inspect
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from datasets.fingerprint import Hasher
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from ...tokenization import Coverage, check_coverage, tokenizer_backend
from . import tables
from .builtin_corpus import builtin_documents, builtin_files
from .sentences import sentence_table
from .tables import FORMATS, DatasetOrStream, ReadError

ROWS_MANIFEST = "minibert_rows.json"  # in a folder of prepared rows
# Documents in one call of the tokenizer: enough to keep every core busy, few enough that the encodings of long
# documents (100 bytes a token and more) stay small.
TOKENIZER_BATCH = 512
# Documents, and characters of each, that show what a tokenizer loses.
SAMPLE, SAMPLE_CHARACTERS = 1000, 10_000
ROWS_TO_SEE = 100  # to find the column of the text
BYTES_TO_SEE = 1 << 24  # to find the layout of a text
# "de=folder": the language that an entry is in.
LANGUAGE = re.compile(r"(?P<language>[A-Za-z][\w-]*)=(?P<item>.+)", re.DOTALL)
BLANK_LINE = r"\n[ \t\r]*\n"
Source = str | Path | DatasetOrStream


def load_documents(
    data: Sequence[Source] = (), *, text_column: str | None = None, sample_by: str = "auto"
) -> datasets.Dataset:
    """One column `text`, one row per document, in the order of `data`; blank documents are left out. Of several entries
    of `data`, a column `source` says from which one a document is (a `ClassLabel`: its language, or the entry itself).

    Args:
        data: Files, folders, globs, data sets of the Hub or loaded ones; without any, the built-in corpus.
        text_column: The column of the text; by default "text", or the only one of strings.
        sample_by: "auto", "line", "paragraph" or "document" (all of a file), or "sentence" (of any data).

    Raises:
        ValueError: A path without data, a file that is not UTF-8, a row or a column that cannot be read.
    """
    if not data:  # cached, so that later steps are; it is read again when a file or our code has changed
        files = list(map(str, builtin_files()))
        version = tables.checksum(files) + _revision(builtin_documents)
        return datasets.Dataset.from_generator(_builtin_rows, gen_kwargs={"files": tuple(files), "version": version})
    parts = load_sources(data, text_column=text_column, sample_by=sample_by)
    for item, part in zip(data, parts):
        if not len(part):
            raise ValueError(f"data: no text in {name_of(item)!r}: blank; every entry needs one document or more")
    if len(parts) == 1:
        return parts[0]
    names = [language or name_of(item) for language, item in map(language_of, data)]
    label = datasets.ClassLabel(names=list(dict.fromkeys(names)))
    source = np.repeat(label.str2int(names), [len(part) for part in parts])
    return datasets.concatenate_datasets(parts).add_column("source", source, feature=label)


def load_sources(
    data: Sequence[Source], *, text_column: str | None = None, sample_by: str = "auto", streaming: bool = False
) -> list[datasets.Dataset] | list[datasets.IterableDataset]:
    """The documents of each entry of `data`, as `load_documents` reads them, maybe none; with `streaming`, they are
    read on demand, in the order of the files."""
    layout = "auto" if sample_by == "sentence" else sample_by
    sources = []
    for entry, groups in [(entry, _groups(entry, layout)) for entry in data]:  # all are found before any is read
        parts = []
        for (kind, layout_of_files), files in groups.items():
            text = _load(kind, layout_of_files, files, text_column, streaming)
            if isinstance(text, datasets.Dataset) and (missing := text.data.table["text"].null_count):
                print(f"Left out of {name_of(entry)!r}: {missing:,} of {len(text):,} rows, which have no text")
            paragraphs = layout_of_files == "paragraph"
            step = sentence_table if sample_by == "sentence" else split_paragraphs if paragraphs else strip_blank
            parts.append(map_tables(text, step, desc="Reading documents", batch_size=1000))
        sources.append(datasets.concatenate_datasets(parts) if len(parts) > 1 else parts[0])
    return sources


def check_sources(data: Sequence[Source]) -> None:
    """Refuse (a ValueError) an entry of `data` where nothing is, before any work."""
    for entry in data:
        if isinstance(entry, (str, Path)):
            tables.find_files(language_of(entry)[1])


def language_of(item: Source) -> tuple[str | None, Source]:
    """The language of an entry `language=item` (None where it names none) and the entry without it."""
    named = LANGUAGE.fullmatch(item) if isinstance(item, str) else None
    if named is None or os.path.exists(item) or glob.glob(item, recursive=True):  # a path may have a "=" in it
        return None, item if isinstance(item, DatasetOrStream) else str(item)
    return named["language"], named["item"]


def name_of(item: Source) -> str:
    """What an entry is called in messages."""
    return "the data set" if isinstance(item, DatasetOrStream) else str(item)


# --- Reading ---------------------------------------------------------------------------------------------------------


def _groups(entry: Source, sample_by: str) -> dict[tuple[str, str | None], Any]:
    """What an entry holds, by its kind and the layout of its text: files, a name of the Hub, or a data set."""
    path = language_of(entry)[1]
    if isinstance(path, DatasetOrStream):
        return {("loaded", None): path}
    if os.path.isfile(os.path.join(path, ROWS_MANIFEST)):
        raise ValueError(f"data: {path!r} holds prepared rows; here give text")
    if not (files := tables.find_files(path)):
        return {("hub", None): path}
    groups: dict[tuple[str, str | None], list[str]] = {}
    for file in filter(os.path.getsize, files):
        kind = FORMATS.get(Path(file).suffix.lower())
        if kind is None:
            raise ValueError(f"data: {file!r} ends in none of {', '.join(FORMATS)}; name it .txt to read it as text")
        layout = None if kind != "text" else _layout(file) if sample_by == "auto" else sample_by
        groups.setdefault((kind, layout), []).append(file)
    if not groups:
        raise ValueError(f"data: no text in {name_of(entry)!r}: empty")
    return groups


def _layout(file: str) -> str:
    with open(file, "rb") as stream:
        begins = stream.read(BYTES_TO_SEE).strip()
    return "paragraph" if re.search(BLANK_LINE.encode(), begins) else "line"


def _load(kind: str, layout: str | None, source: Any, column: str | None, streaming: bool) -> DatasetOrStream:
    """The texts of a group, in a column `text`."""
    if kind == "loaded":
        return _select_text(source, column)
    if kind == "hub":
        return _select_text(tables.load_hub(source, split="train", streaming=streaming), column)
    version = tables.checksum(source, is_text=kind == "text")
    if kind == "text":
        options = dict(encoding="utf-8-sig", sample_by=layout, streaming=streaming, name=version)
        return tables.load_files("text", source, **options)
    if kind == "parquet":
        features = datasets.Features.from_arrow_schema(pq.read_schema(source[0]))
        column = _choose_column(tables.string_columns(features), column)
        options = dict(columns=[column], streaming=streaming, name=f"{version}-{Hasher.hash(column)}")
        return _select_text(tables.load_files("parquet", source, **options), column)
    rows = tables.from_rows([row for _, row in islice(tables.read_rows(source[0]), ROWS_TO_SEE)])
    column = _choose_column(tables.string_columns(*tables.with_numbers([rows])), column, rows.column_names)
    options = dict(features=datasets.Features({"text": datasets.Value("string")}))
    made_of = {"files": source, "column": column}
    if streaming:
        return datasets.IterableDataset.from_generator(_texts, gen_kwargs=made_of, **options)
    try:
        made_of |= {"version": version + _revision(tables.read_rows) + _revision(_texts)}
        return datasets.Dataset.from_generator(_texts, gen_kwargs=made_of, **options)
    except datasets.exceptions.DatasetGenerationError as error:
        raise error.__cause__ or error from None


def _texts(files: list[str], column: str, version: str = "") -> Iterator[dict[str, str | None]]:
    """The texts in one column of JSON and csv files, the only one that is looked at."""
    for file in files:
        found, row = False, {}
        for line, row in tables.read_rows(file):
            text = row.get(column)
            if text is not None and not isinstance(text, str):
                raise ReadError(f"{file}, line {line}: {column}={text!r:.100} is not text")
            found |= column in row
            yield {"text": text}
        if row and not found:
            raise ReadError(f"{file!r} has no column {column!r}; it has {', '.join(row)}")


def _choose_column(strings: Sequence[str], name: str | None, known: Sequence[str] = ()) -> str:
    """The column of the text: `name`, or "text", or the only one of strings; a ValueError where that is not clear."""
    if name is None:
        name = "text" if "text" in strings else strings[0] if len(strings) == 1 else None
    if name not in strings and name not in known:
        listed = ", ".join(strings) or "none"
        raise ValueError(f"text_column: it is not clear, or {name!r}; use one of the columns of strings: {listed}")
    return name


def _select_text(dataset: DatasetOrStream, name: str | None) -> DatasetOrStream:
    """`dataset` cut down to one column of strings named "text"."""
    # a stream that has not been read knows nothing of its columns
    known = dataset if dataset.features else tables.from_rows(list(islice(dataset, ROWS_TO_SEE)))
    name = _choose_column(tables.string_columns(known), name)
    dataset = dataset.select_columns(name)
    return dataset if name == "text" else dataset.rename_column(name, "text")


# --- Holding out and tokenizing --------------------------------------------------------------------------------------


def hold_out(documents: datasets.Dataset, validation_size: float | int, seed: int = 0) -> np.ndarray:
    """Which documents (column `text`, or else `input_ids`) to validate on rather than train on: bool [documents].

    It depends on what they hold and the seed only, so equal documents are never on both sides. `validation_size` is a
    share (below 1) or a number of documents; at least one is held out. A ValueError where it is not positive, or leaves
    none to train on.
    """
    if not 0 < validation_size < math.inf:
        raise ValueError(f"validation_size: {validation_size} holds nothing out; use a share, or a number of texts")
    target = max(1, round(validation_size * len(documents) if validation_size < 1 else validation_size))
    column = "text" if "text" in documents.column_names else "input_ids"
    batches = documents.with_format("arrow").select_columns(column).iter(batch_size=1000)
    digests = np.concatenate([text_digests(map(str, batch[column].to_pylist()), seed) for batch in batches])
    values, counts = np.unique(digests, return_counts=True)  # ascending: a random order of the distinct documents
    held_out = values[: np.searchsorted(np.cumsum(counts), target) + 1]
    if len(held_out) == len(values):
        texts = f"{len(documents)} texts ({len(values)} different ones)"
        raise ValueError(f"validation_size: holding out {validation_size} of {texts} leaves none to train on")
    return np.isin(digests, held_out)


def text_digests(texts: Iterable[str], seed: int) -> np.ndarray:
    """A 64-bit hash of every text, keyed by the seed: uint64 [texts]."""
    key = str(seed).encode()
    digests = (hashlib.blake2b(text.encode(), digest_size=8, key=key).digest() for text in texts)
    return np.frombuffer(b"".join(digests), dtype="<u8")


def tokenize_documents(
    documents: DatasetOrStream, tokenizer: PreTrainedTokenizerFast, num_proc: int | None = None
) -> DatasetOrStream:
    """Token ids of whole documents (column `text`): one column `input_ids` (lists), never truncated, without special
    tokens; one that is spelled out in the text is read as text.

    `num_proc` processes tokenize on a core each; without it, one uses all cores.
    """
    options = dict(desc="Tokenizing", batch_size=TOKENIZER_BATCH, num_proc=num_proc)
    return map_tables(documents, tokenize_table, backend=tokenizer_backend(tokenizer), **options)


def check_tokenization(
    documents: DatasetOrStream, tokenizer: PreTrainedTokenizerFast, max_lost_text: float | None = None
) -> Coverage:
    """Print what the tokenizer loses of a sample of documents (column `text`), from the first to the last or, of a
    stream, the first ones; a ValueError where that is too much (see `tokenization.check_coverage`)."""
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
    """`dataset.map` with a function from Arrow table to Arrow table, which replaces all columns and rows (of a
    stream, as they are asked for).

    `datasets` names its cache after a function's name, whatever its code; the source of its module is added here, so
    that rows made by an older version are not served.
    """
    options: dict = {"fn_kwargs": {"function": function, "revision": _revision(function), **kwargs}}
    is_stream = isinstance(dataset, datasets.IterableDataset)
    if not is_stream:
        options |= {"num_proc": num_proc, "remove_columns": dataset.column_names, "desc": desc}
    return dataset.with_format("arrow").map(_call, batched=True, batch_size=batch_size, **options).with_format(None)


def _revision(function: Callable) -> str:
    return Hasher.hash(inspect.getsource(inspect.getmodule(function)))


def smallest_dtype(count: int) -> type[np.integer]:
    """The type that ids below `count` are stored in: where 16 bits will do, half the bytes."""
    return np.uint16 if count <= 1 << 16 else np.int32


# --- Steps of map_tables ---------------------------------------------------------------------------------------------


def _call(table: pa.Table, function: Callable[..., pa.Table], revision: str, **kwargs) -> pa.Table:
    return function(table, **kwargs)


def strip_blank(table: pa.Table) -> pa.Table:
    text = pc.utf8_trim_whitespace(table["text"].cast(pa.string()))  # some rows of a stream may hold nothing but null
    return pa.table({"text": text.filter(pc.greater(pc.utf8_length(text), 0))})  # null compares to null: dropped too


def split_paragraphs(table: pa.Table) -> pa.Table:
    """What `datasets` takes for a paragraph ends at an empty line; one of spaces divides paragraphs too."""
    parts = chain.from_iterable(re.split(BLANK_LINE, text) for text in table["text"].to_pylist())
    return strip_blank(pa.table({"text": pa.array(parts, pa.string())}))


@functools.lru_cache(maxsize=1)
def _backend(serialized: str) -> tuple[Tokenizer, type[np.integer]]:
    """The tokenizer, and the type of its ids."""
    backend = Tokenizer.from_str(serialized)
    backend.encode_special_tokens = True  # "[PAD]" spelled out in a document is text, never the padding token
    return backend, smallest_dtype(max(backend.get_vocab(with_added_tokens=True).values(), default=0) + 1)


def tokenize_table(table: pa.Table, backend: str) -> pa.Table:
    """Column `text` to column `input_ids`, without special tokens; `backend` as JSON."""
    tokenizer, dtype = _backend(backend)
    encodings = tokenizer.encode_batch_fast(table["text"].to_pylist(), add_special_tokens=False)
    ids = pa.list_(pa.from_numpy_dtype(dtype))
    return pa.table({"input_ids": pa.array([encoding.ids for encoding in encodings], ids)})


def _builtin_rows(files: Sequence[str], version: str) -> Iterator[dict[str, str]]:
    return ({"text": document} for document in builtin_documents(map(Path, files)))
