"""Documents for training, read, held out and tokenized: a `datasets.Dataset`, cached on disk, or a stream of them.

A source is an entry of `--data`: a file, a folder, a glob, a data set of the Hub, or a data set that is loaded already.
Of a table only the column of the text is read. The layout of a text file is found by looking for blank lines
(`sample_by="auto"`): with one between two lines that are not blank, a document is what stands between blank lines
("paragraph"); without any, each line is a document ("line"). `sample_by="document"` takes every file as one document.
"""

import functools
import glob
import hashlib
import inspect
import math
import mmap
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
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
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerFast

from ...tokenization import Coverage, check_coverage, tokenizer_backend
from ...tokenization.coverage import is_panic
from ..loading import without_bars
from .builtin_corpus import builtin_documents, builtin_files
from .sentences import sentence_table
from .tables import (
    FORMATS,
    DatasetOrStream,
    ReadError,
    find_files,
    fingerprint,
    is_object,
    load_files,
    load_hub,
    read_rows,
    reason,
    string_columns,
    to_number,
)

ROWS_MANIFEST = "minibert_rows.json"  # in a folder of prepared rows that is finished
ROWS_PLAN = "minibert_rows.unfinished.json"  # in one that is not: what the rows are made of
# Documents in one call of the tokenizer: enough to keep every core busy, few enough that the encodings of long
# documents (100 bytes a token and more) stay small.
TOKENIZER_BATCH = 512
ROWS_IN_TABLE = 1000
# Documents, and characters of each, that show what a tokenizer loses.
SAMPLE, SAMPLE_CHARACTERS = 1000, 10_000
ROWS_TO_SEE = 100  # to find the column of the text
# "de=folder": the language that an entry is in.
LANGUAGE = re.compile(r"(?P<language>[A-Za-z][\w-]*)=(?P<item>.+)", re.DOTALL)
# Begins with one given byte, which `re` finds a hundred times as fast as one of a class.
BLANK_LINE = re.compile(rb"\n[ \t\r]*\n")
SPACES = r"\n[ \t\r]*\n"  # the same in text
MARKUP = re.compile(r"<[!?A-Za-z]")
Source = str | Path | DatasetOrStream


def load_documents(
    data: Sequence[Source] = (),
    *,
    text_column: str | None = None,
    sample_by: str = "auto",
) -> datasets.Dataset:
    """One column `text`, one row per document, in the order of `data`; blank documents are left out. Of several entries
    of `data`, a column `source` says from which one a document is (a `ClassLabel`: its language, or the entry itself).

    Args:
        data: Files, folders, globs, data sets of the Hub or loaded ones; without any, the built-in corpus.
        text_column: The column of the text; by default "text", or the only one of strings.
        sample_by: "auto", "line", "paragraph" or "document" (in text files), or "sentence" (of any data).

    Raises:
        ValueError: A path without data, a file that is not UTF-8 (with the byte offset), a column that cannot be told;
            all files are looked at before the first is loaded.
    """
    if not data:
        # What from_generator makes is cached, so that later steps are; it runs when a file or our code has changed.
        files = list(map(str, builtin_files()))
        made_of = {"files": tuple(files), "contents": fingerprint(files, False)}
        options = {"gen_kwargs": made_of | {"revision": _revision(builtin_documents)}}
        return datasets.Dataset.from_generator(_builtin_rows, **options)
    parts = load_sources(data, text_column=text_column, sample_by=sample_by)
    for item, part in zip(data, parts):
        if not len(part):
            raise ValueError(f"data: no text in {name_of(item)!r}: blank; every entry needs one document or more")
    documents = parts[0]
    if len(parts) > 1:
        names = [language or name_of(item) for language, item in map(language_of, data)]
        label = datasets.ClassLabel(names=list(dict.fromkeys(names)))
        source = np.repeat(label.str2int(names), [len(part) for part in parts])
        documents = datasets.concatenate_datasets(parts).add_column("source", source, feature=label)
    return documents


def load_sources(
    data: Sequence[Source | Sequence[str]],
    *,
    text_column: str | None = None,
    sample_by: str = "auto",
    streaming: bool = False,
) -> list[datasets.Dataset] | list[datasets.IterableDataset]:
    """Read the documents of each entry of `data`, as `load_documents` does. A source without text is allowed here.

    An entry may also be a list of files and globs, which are read one after the other. With `streaming`, documents are
    read on demand, in the order of the files, and a row that cannot be read raises a `ReadError` at that moment.
    """
    layout = "auto" if sample_by == "sentence" else sample_by
    plans = [_plan(entry, layout, streaming) for entry in data]
    sources = []
    for entry, plan in zip(data, plans):
        parts = []
        for (kind, layout), files in plan.items():
            if kind == "loaded":
                text = select_text(entry, text_column)
            elif kind == "hub":
                text = select_text(load_hub(files[0], split="train", streaming=streaming), text_column)
            else:
                text = _load_texts(kind, layout, files, text_column, streaming)
            if isinstance(text, datasets.Dataset) and (missing := text.data.table["text"].null_count):
                print(f"Left out of {name_of(entry)!r}: {missing:,} of {len(text):,} rows, which have no text")
            paragraphs = layout == "paragraph"
            step = sentence_table if sample_by == "sentence" else split_paragraphs if paragraphs else strip_blank
            parts.append(map_tables(text, step, desc="Reading documents", batch_size=1000))
        sources.append(datasets.concatenate_datasets(parts) if len(parts) > 1 else parts[0])
    return sources


def check_sources(data: Sequence[Source]) -> None:
    """Refuse (a ValueError) an entry of `data` where nothing is, before any work."""
    for entry in data:
        if isinstance(entry, (str, Path)):
            path = language_of(entry)[1]
            if not os.path.exists(path):
                find_files(path)


def language_of(item: Source) -> tuple[str | None, Source]:
    """The language of an entry `language=item` (None where it names none) and the entry without it."""
    named = LANGUAGE.fullmatch(item) if isinstance(item, str) else None
    if named is None or os.path.exists(item) or any(glob.iglob(item, recursive=True)):  # a path may have a "=" in it
        return None, item
    return named["language"], named["item"]


def name_of(item: Source | Sequence[str]) -> str:
    """What an entry is called in messages."""
    if isinstance(item, (datasets.Dataset, datasets.IterableDataset)):
        return "the data set"
    return ", ".join(map(str, item)) if isinstance(item, (list, tuple)) else str(item)


def is_plain(item: Source) -> bool:
    """Whether an entry is a file or a glob, of no language: neither a folder nor a data set."""
    if not isinstance(item, (str, Path)) or language_of(item)[0] or os.path.isdir(item):
        return False
    return os.path.isfile(item) or glob.has_magic(str(item)) or Path(item).suffix.lower() in FORMATS


# --- Reading ---------------------------------------------------------------------------------------------------------


def _plan(entry: Source | Sequence[str], sample_by: str, streaming: bool) -> dict[tuple[str, str | None], list[str]]:
    """How an entry is loaded: files by their format and layout, a data set of the Hub, or one that is loaded."""
    if isinstance(entry, (datasets.Dataset, datasets.IterableDataset)):
        return {("loaded", None): []}
    files: list[str] = []
    for item in entry if isinstance(entry, (list, tuple)) else [entry]:
        path = str(language_of(item)[1])
        if os.path.isfile(os.path.join(path, ROWS_MANIFEST)):
            raise ValueError(f"data: {path!r} holds prepared rows; they are for `minibert pretrain`, here give text")
        if os.path.isfile(os.path.join(path, ROWS_PLAN)):
            raise ValueError(f"data: {path!r} holds unfinished rows; `minibert prepare` finishes them")
        if any(os.path.isfile(os.path.join(path, name)) for name in ("state.json", "dataset_dict.json")):
            raise ValueError(f"data: {path!r} was written by `save_to_disk`; load it, or write it by `to_parquet`")
        if not (found := find_files(path)):
            return {("hub", None): [path]}
        files += found
    groups: dict[tuple[str, str | None], list[str]] = {}
    for file in tqdm(files, desc="Checking files", unit=" files", delay=1, leave=False):
        if os.path.getsize(file):
            kind = _format(file)
            layout = None if kind != "text" else _layout(file) if sample_by == "auto" else sample_by
            groups.setdefault((kind, layout), []).append(file)
    if not groups:
        raise ValueError(f"data: no text in {name_of(entry)!r}: empty")
    return groups


def _format(file: str) -> str:
    """How a file is read: by what its name ends in, or else by what it begins with. A ValueError for markup."""
    suffix = Path(file).suffix.lower()
    kind = FORMATS.get(suffix)
    if kind != "parquet":
        fingerprint([file])  # is it UTF-8?
    if kind in ("json", "csv", "parquet"):
        return kind
    with open(file, encoding="utf-8-sig") as lines:
        begins = next((line for line in lines if not line.isspace()), "").strip()
    is_json = is_object(begins)
    if suffix == ".txt":
        if is_json:
            print(f"{file!r} looks like JSON lines, and is read as text, keys and all; name it .jsonl if that is wrong")
        return "text"
    if suffix in (".html", ".htm", ".xhtml", ".xml") or MARKUP.match(begins):
        raise ValueError(f"data: {file!r} is markup ({begins[:40]!r} …); extract its text, or name it .txt")
    print(f"{file!r} is read as {'JSON lines' if is_json else 'plain text'}")
    return "json" if is_json else "text"


def _layout(file: str) -> str:
    with open(file, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        text, end = re.compile(rb"\S").search(content), len(content)  # blank lines before and behind it part nothing
        while content[end - 1 : end].isspace():
            end -= 1
        found = text and BLANK_LINE.search(content, text.start(), end)
    return "paragraph" if found else "line"


def _load_texts(kind: str, layout: str | None, files: list[str], column: str | None, streaming: bool) -> Any:
    """The texts of files of one format, in a column `text`."""
    version = None if streaming else fingerprint(files, False)
    if kind == "text":
        return load_files("text", files, encoding="utf-8-sig", sample_by=layout, streaming=streaming, name=version)
    if kind == "parquet":
        schemas = [datasets.Features.from_arrow_schema(pq.read_schema(file)) for file in files]
        column = choose_column(string_columns(schemas[0]), column)
        for file, features in zip(files, schemas):
            if column not in string_columns(features):
                raise ReadError(f"{file!r} has no column of text {column!r}; it has {', '.join(features)}")
    else:
        rows = [row for _, row in islice(read_rows(files[0]), ROWS_TO_SEE)]
        names = list(dict.fromkeys(name for row in rows for name in row))
        texts = [name for name in names if any(_is_text(row.get(name)) for row in rows)]
        column = choose_column(texts, column, names)
    builder = TextBuilder(files, column, config_name=f"{version}-{_revision(TextBuilder)}-{Hasher.hash(column)}")
    if streaming:
        return builder.as_streaming_dataset(split="train")
    try:
        builder.download_and_prepare()
    except datasets.exceptions.DatasetGenerationError as error:
        raise error.__cause__ or error from None
    return builder.as_dataset(split="train")


class TextBuilder(datasets.ArrowBasedBuilder):
    """The texts in one column of JSON, csv and parquet files, the only one that is read."""

    def __init__(self, files: list[str], column: str, **options):
        self.files, self.column = files, column
        super().__init__(**options)

    def _info(self):
        return datasets.DatasetInfo(features=datasets.Features({"text": datasets.Value("string")}))

    def _split_generators(self, dl_manager):
        return [datasets.SplitGenerator(name="train", gen_kwargs={"files": self.files})]

    def _generate_tables(self, files: list[str]):
        for shard, file in enumerate(files):
            is_parquet = Path(file).suffix.lower() == ".parquet"
            for number, texts in enumerate(self._read_parquet(file) if is_parquet else self._read_rows(file)):
                yield datasets.builder.Key(shard, number), pa.table({"text": texts.cast(pa.string())})

    def _read_parquet(self, file: str) -> Iterator[pa.Array]:
        try:
            for batch in pq.ParquetFile(file).iter_batches(ROWS_IN_TABLE, columns=[self.column]):
                yield batch.column(0)
        except (pa.ArrowException, OSError) as error:
            raise ReadError(f"{file!r} cannot be read as parquet: {reason(error)}") from error

    def _read_rows(self, file: str) -> Iterator[pa.Array]:
        found, row, texts = False, None, []
        for line, row in read_rows(file):
            text = row.get(self.column)
            if text is not None and not isinstance(text, str):
                raise ReadError(f"{file}, line {line}: {self.column}={text!r:.100} is not text")
            found |= self.column in row
            texts.append(text)
            if len(texts) == ROWS_IN_TABLE:
                yield pa.array(texts, pa.string())
                texts = []
        if row and not found:
            raise ReadError(f"{file!r} has no column {self.column!r}; it has {', '.join(row)}")
        if texts:
            yield pa.array(texts, pa.string())


def _is_text(value: Any) -> bool:
    """Whether a cell is a text, and no number."""
    return isinstance(value, str) and math.isnan(to_number(value))


def choose_column(strings: Sequence[str], name: str | None, known: Sequence[str] = ()) -> str:
    """The column of the text: `name`, or "text", or the only one of strings; a ValueError where that is not clear."""
    if name is None:
        name = "text" if "text" in strings else strings[0] if len(strings) == 1 else None
    if name not in strings and name not in known:
        fault = "which column holds the text is not clear" if name is None else f"{name!r} is no column of strings"
        raise ValueError(f"text_column: {fault}; use one of the columns of strings: {', '.join(strings) or 'none'}")
    return name


def select_text(dataset: DatasetOrStream, name: str | None) -> DatasetOrStream:
    """`dataset` cut down to one column of strings named "text"."""
    if dataset.features is None:  # a stream that has not been read knows nothing of its columns
        rows = list(islice(dataset, ROWS_TO_SEE))
        strings = list(dict.fromkeys(column for row in rows for column in row if isinstance(row[column], str)))
    else:
        strings = string_columns(dataset)
    name = choose_column(strings, name)
    dataset = dataset.select_columns(name)
    return dataset if name == "text" else dataset.rename_column(name, "text")


# --- Holding out and tokenizing --------------------------------------------------------------------------------------


def hold_out(documents: datasets.Dataset, validation_size: float | int, seed: int = 0, minimum: int = 1) -> np.ndarray:
    """Which documents (column `text`, or else `input_ids`) to validate on rather than train on: bool [documents].

    It depends on what they hold and the seed only, so equal documents are never on both sides. A ValueError where
    `validation_size`, a share (below 1) or a number of documents, is not positive, or leaves none to train on; of a
    share, at least `minimum` different documents are held out.
    """
    if not 0 < validation_size < math.inf:
        raise ValueError(f"validation_size: {validation_size} holds nothing out; use a share, or a number of texts")
    share = validation_size < 1
    target = max(1, round(validation_size * len(documents) if share else validation_size))
    column = "text" if "text" in documents.column_names else "input_ids"
    batches = documents.with_format("arrow").select_columns(column).iter(batch_size=1000)
    digests = np.concatenate([text_digests(map(str, batch[column].to_pylist()), seed) for batch in batches])
    values, counts = np.unique(digests, return_counts=True)  # ascending: a random order of the distinct documents
    held_out = values[: max(np.searchsorted(np.cumsum(counts), target) + 1, minimum if share else 1)]
    if len(held_out) == len(values):
        texts = f"{len(documents)} texts ({len(values)} different ones{f', {minimum} at least' if share else ''})"
        raise ValueError(f"validation_size: holding out {validation_size} of {texts} leaves none to train on")
    return np.isin(digests, held_out)


def text_digests(texts: Iterable[str], seed: int) -> np.ndarray:
    """A 64-bit hash of every text, keyed by the seed: uint64 [texts]."""
    key = str(seed).encode()
    digests = (hashlib.blake2b(text.encode(), digest_size=8, key=key).digest() for text in texts)
    return np.frombuffer(b"".join(digests), dtype="<u8")


def in_share(texts: Iterable[str], share: float, seed: int) -> np.ndarray:
    """Which texts are held out of documents that cannot be counted, bool [texts]: those whose hash is below `share`."""
    return text_digests(texts, seed) < np.uint64(share * 2.0**64)


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

    `datasets` names its cache after an imported function's name, whatever its code; the source of the function's
    module is added here, so that rows made by an older version are not served.
    """
    options: dict = {"fn_kwargs": {"function": function, "revision": _revision(function), **kwargs}}
    is_stream = isinstance(dataset, datasets.IterableDataset)
    if not is_stream:
        options |= {"num_proc": num_proc, "remove_columns": dataset.column_names, "desc": desc}
    # a bar for a single batch is over before it can be read
    with nullcontext() if is_stream or len(dataset) > batch_size else without_bars():
        mapped = dataset.with_format("arrow").map(_call, batched=True, batch_size=batch_size, **options)
    return mapped.with_format(None)


def _revision(function: Callable) -> str:
    return Hasher.hash(inspect.getsource(inspect.getmodule(function)))


def smallest_dtype(count: int) -> type[np.integer]:
    """The type that ids below `count` are stored in: where 16 bits will do, half the bytes to write and read."""
    return np.uint16 if count <= 1 << 16 else np.int32


# --- Steps of map_tables ---------------------------------------------------------------------------------------------


def _call(table: pa.Table, function: Callable[..., pa.Table], revision: str, **kwargs) -> pa.Table:
    return function(table, **kwargs)


def strip_blank(table: pa.Table) -> pa.Table:
    text = pc.utf8_trim_whitespace(table["text"].cast(pa.string()))  # some rows of a stream may hold nothing but null
    return pa.table({"text": text.filter(pc.greater(pc.utf8_length(text), 0))})  # null compares to null: dropped too


def split_paragraphs(table: pa.Table) -> pa.Table:
    """What `datasets` takes for a paragraph ends at an empty line; one of spaces divides paragraphs too."""
    if pc.any(pc.match_substring_regex(table["text"], SPACES)).as_py():
        parts = chain.from_iterable(re.split(SPACES, text) for text in table["text"].to_pylist())
        table = pa.table({"text": pa.array(parts, pa.string())})
    return strip_blank(table)


@functools.lru_cache(maxsize=1)
def _backend(serialized: str) -> tuple[Tokenizer, type[np.integer]]:
    """The tokenizer, and the type of its ids."""
    backend = Tokenizer.from_str(serialized)
    backend.encode_special_tokens = True  # "[PAD]" spelled out in a document is text, never the padding token
    return backend, smallest_dtype(max(backend.get_vocab(with_added_tokens=True).values(), default=0) + 1)


def tokenize_table(table: pa.Table, backend: str) -> pa.Table:
    """Column `text` to column `input_ids`, without special tokens; `backend` as JSON."""
    tokenizer, dtype = _backend(backend)
    try:
        encodings = tokenizer.encode_batch_fast(table["text"].to_pylist(), add_special_tokens=False)
    except BaseException as error:
        if not is_panic(error):
            raise
        raise ValueError(f"tokenizer: it cannot read the text: {error}; save or download it again") from None
    ids = pa.list_(pa.from_numpy_dtype(dtype))
    return pa.table({"input_ids": pa.array([encoding.ids for encoding in encodings], ids)})


def _builtin_rows(files: Sequence[str], contents: str, revision: str) -> Iterator[dict[str, str]]:
    return ({"text": document} for document in builtin_documents(map(Path, files)))
