"""Documents for training: read from files, the Hub or the built-in corpus, held out by document, tokenized.

Everything returns a `datasets.Dataset`, cached on disk by `datasets`. The layout of a text file is found by looking
for blank lines (`sample_by="auto"`): with one between two lines that are not blank, a document is what stands between
blank lines (one paragraph a line, blank line between documents: "paragraph"); without any, each line is a document
("line"). `sample_by="document"` takes every file as one document. The names are those of the `datasets` text loader.
"""

from __future__ import annotations

import codecs
import functools
import glob
import hashlib
import inspect
import mmap
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets.fingerprint import Hasher
from tokenizers import Tokenizer
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerFast

from .corpus import builtin_documents

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

BLANK_LINE_BETWEEN_LINES = re.compile(rb"\S[^\S\r\n]*\r?\n\r?\n\s*\S")

# Documents in one call of the tokenizer: enough to keep every core busy, few enough that the encodings of long
# documents (100 bytes a token and more) stay small.
TOKENIZER_BATCH = 512


def load_documents(
    data: Sequence[str] = (),
    *,
    packages: Sequence[str] = (),
    text_column: str | None = None,
    sample_by: str = "auto",
    minimum: int = 1,
) -> datasets.Dataset:
    """One column `text`, one row per document, in the order of `data`; blank documents are left out.

    Args:
        data: files (text, jsonl, csv, tsv, parquet), folders (searched through), globs, or names of data sets on the
            Hub (`owner/name` or `owner/name:config`, split "train") that are no path here. Empty: the built-in corpus.
        packages: installed packages whose docstrings the built-in corpus takes in too.
        text_column: the column that holds the text; by default "text", or else the only column of strings.
        sample_by: how a text file falls into documents, see the module's docstring.
        minimum: the number of documents that the caller needs.

    Raises:
        ValueError: for a path that does not exist, a folder or glob without data, a file that is not UTF-8 (with the
            byte offset), a column that cannot be told, no text at all or fewer documents than `minimum`. All files
            are looked at before the first is loaded.
    """
    if sample_by not in SAMPLE_BY:
        raise ValueError(f"sample_by: {sample_by!r} is not one of {', '.join(SAMPLE_BY)}")
    if data and packages:
        raise ValueError("packages: these extend the built-in corpus, which is not read when data is given")

    if data:
        loads = [load for item in data for load in _plan(item, sample_by)]
        parts = [_text_column(load(), text_column) for load in loads]
        documents = datasets.concatenate_datasets(parts) if len(parts) > 1 else parts[0]
        documents = map_tables(documents, _strip_blank, desc="Reading documents", batch_size=1000)
    else:
        documents = _from_builtin_corpus(packages)
    if len(documents) < max(minimum, 1):
        source = ", ".join(data) if data else "the built-in corpus"
        found = f"{len(documents)} documents" if len(documents) else "no text"
        raise ValueError(f"data: {found} in {source}; at least {max(minimum, 1)} documents are needed")
    return documents


def split_documents(
    documents: datasets.Dataset, validation_size: float | int = 0.05, seed: int = 0
) -> datasets.DatasetDict:
    """Hold out whole documents: a `DatasetDict` with "train" and "validation", each in the order of `documents`.

    Which documents are held out depends on their text and the seed only, so equal documents are never on both sides.

    Args:
        documents: a data set with a column `text`.
        validation_size: a share of the documents (below 1) or their number (1 and above). At least one document is
            held out.
        seed: another seed holds out others.

    Raises:
        ValueError: `validation_size` is not positive, or leaves no document to train on.
    """
    if validation_size <= 0:
        raise ValueError(
            f"validation_size: {validation_size} holds nothing out; legal: a share between 0 and 1, or a number of"
            " documents"
        )
    wanted = max(1, round(validation_size * len(documents) if validation_size < 1 else validation_size))
    digests = np.fromiter(_digests(documents, seed), dtype=np.uint64, count=len(documents))
    values, counts = np.unique(digests, return_counts=True)  # ascending: a random order of the distinct documents
    held_out = values[: np.searchsorted(np.cumsum(counts), wanted) + 1]
    if len(held_out) == len(values):
        raise ValueError(
            f"validation_size: holding out {validation_size} of {len(documents)} documents ({len(values)} different"
            " ones) leaves none to train on"
        )
    is_held_out = np.isin(digests, held_out)
    return datasets.DatasetDict(
        train=documents.select(np.flatnonzero(~is_held_out)),
        validation=documents.select(np.flatnonzero(is_held_out)),
    )


def tokenize_documents(
    documents: datasets.Dataset, tokenizer: PreTrainedTokenizerFast, num_proc: int | None = None
) -> datasets.Dataset:
    """Token ids of whole documents: one column `input_ids` (lists), never truncated, without special tokens.

    A special token that is spelled out in the text is read as text.

    Args:
        documents: a data set with a column `text`.
        tokenizer: a fast tokenizer; its backend is called once per batch and uses all cores by itself.
        num_proc: processes, each tokenizing on a single core; worth it only where many cores wait for one another.
    """
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.no_truncation()
    backend.no_padding()
    # As JSON it is the same before and after the tokenizer's use, and cached tokens are found again.
    return map_tables(
        documents,
        _tokenize,
        desc="Tokenizing",
        batch_size=TOKENIZER_BATCH,
        num_proc=num_proc,
        backend=backend.to_str(),
    )


def map_tables(
    dataset: datasets.Dataset,
    function: Callable[..., pa.Table],
    *,
    desc: str,
    batch_size: int,
    num_proc: int | None = None,
    **kwargs,
) -> datasets.Dataset:
    """`dataset.map` with a function from Arrow table to Arrow table, which replaces all columns and rows.

    `datasets` names its cache after an imported function's name, whatever its code; the source of the function's
    module is added here, so that rows made by an older version are not served.
    """
    revision = Hasher.hash(inspect.getsource(inspect.getmodule(function)))
    return (
        dataset.with_format("arrow")
        .map(
            _call,
            batched=True,
            batch_size=batch_size,
            num_proc=num_proc,
            remove_columns=dataset.column_names,
            fn_kwargs={"function": function, "revision": revision, **kwargs},
            desc=desc,
        )
        .with_format(None)
    )


def smallest_dtype(count: int) -> type[np.integer]:
    """The type that `count` different ids are stored in: where 16 bits will do, half the bytes to write and read."""
    return np.uint16 if count <= 1 << 16 else np.int32


def list_array(values: np.ndarray, lengths: np.ndarray) -> pa.ListArray:
    """An Arrow column of lists: `values` cut into consecutive lists of the given lengths."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(offsets, values)


# --- Steps of map_tables ---------------------------------------------------------------------------------------------


def _call(table: pa.Table, function: Callable[..., pa.Table], revision: str, **kwargs) -> pa.Table:
    return function(table, **kwargs)


def _strip_blank(table: pa.Table) -> pa.Table:
    text = pc.utf8_trim_whitespace(table["text"])
    return pa.table({"text": text.filter(pc.greater(pc.utf8_length(text), 0))})  # null compares to null: dropped too


@functools.lru_cache(maxsize=1)
def _backend(serialized: str) -> Tokenizer:
    backend = Tokenizer.from_str(serialized)
    backend.encode_special_tokens = True  # "[PAD]" spelled out in a document is text, never the padding token
    return backend


def _tokenize(table: pa.Table, backend: str) -> pa.Table:
    encodings = _backend(backend).encode_batch_fast(table["text"].to_pylist(), add_special_tokens=False)
    dtype = smallest_dtype(_backend(backend).get_vocab_size())
    ids = [np.array(encoding.ids, dtype=dtype) for encoding in encodings]
    return pa.table({"input_ids": list_array(np.concatenate(ids), np.fromiter(map(len, ids), dtype=np.int64))})


# --- Sources ---------------------------------------------------------------------------------------------------------


def _from_builtin_corpus(packages: Sequence[str]) -> datasets.Dataset:
    # from_generator rather than from_dict: what it makes lies in the cache, so that later steps are cached as well.
    return datasets.Dataset.from_generator(
        _rows,
        gen_kwargs={"documents": tuple(builtin_documents(packages))},
        features=datasets.Features({"text": datasets.Value("string")}),
    )


def _rows(documents: tuple[str, ...]) -> Iterator[dict[str, str]]:
    for document in documents:
        yield {"text": document}


def _plan(item: str, sample_by: str) -> list[Callable[[], datasets.Dataset]]:
    """Check one entry of `data` and say how to load it: local files grouped by loader, or a data set of the Hub."""
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
        return [functools.partial(_from_hub, named["name"], named["config"])]

    groups: dict[tuple, list[str]] = {}
    for file in tqdm(files, desc="Checking files", unit=" files", delay=1, leave=False):
        suffix = Path(file).suffix.lower()
        suffix = suffix if suffix in LOADERS else ".txt"  # a file given by name may end in anything
        if suffix != ".parquet":
            _check_utf8(file)
        layout = _layout(file) if suffix == ".txt" and sample_by == "auto" else sample_by
        if os.path.getsize(file):
            groups.setdefault((suffix, layout if suffix == ".txt" else None), []).append(file)
    if not groups:
        raise ValueError(f"data: no text in {item!r}: empty")
    return [functools.partial(_from_files, files, *group) for group, files in groups.items()]


def _files_in(folder: str) -> list[str]:
    """All data files under a folder, sorted; hidden ones are left out."""
    paths = [path for path in Path(folder).rglob("*") if path.suffix.lower() in LOADERS and path.is_file()]
    hidden = {path for path in paths if any(part.startswith(".") for part in path.relative_to(folder).parts)}
    return sorted(str(path) for path in paths if path not in hidden)


def _check_utf8(file: str) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")()
    offset = 0
    with open(file, "rb") as stream:
        while True:
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


def _layout(file: str) -> str:
    if os.path.getsize(file) == 0:
        return "line"
    with open(file, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return "paragraph" if BLANK_LINE_BETWEEN_LINES.search(content) else "line"


def _from_files(files: list[str], suffix: str, layout: str | None) -> datasets.Dataset:
    loader, options = LOADERS[suffix]
    if loader == "text":
        options = {**options, "sample_by": layout}
    try:
        return datasets.load_dataset(loader, data_files=files, split="train", **options)
    except datasets.exceptions.DatasetGenerationError as error:
        reason = str(error.__cause__ or error).strip().splitlines()[0]
        raise ValueError(f"data: {_some(files)} cannot be read as {suffix[1:]}: {reason}") from error


def _from_hub(name: str, config: str | None) -> datasets.Dataset:
    try:
        return datasets.load_dataset(name, config, split="train")
    except (OSError, ValueError) as error:  # not found, no connection; no such configuration or split
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"data: {name!r} is no path here, and as a data set of the Hub: {reason}") from error


def _text_column(dataset: datasets.Dataset, name: str | None) -> datasets.Dataset:
    """`dataset` cut down to one column of strings named "text"."""
    strings = [
        column
        for column, feature in dataset.features.items()
        if isinstance(feature, datasets.Value) and feature.dtype in ("string", "large_string")
    ]
    if name is None:
        name = "text" if "text" in strings else strings[0] if len(strings) == 1 else None
    if name not in strings:
        wanted = "which column holds the text is not clear" if name is None else f"{name!r} is no column of strings"
        raise ValueError(f"text_column: {wanted}; columns of strings: {', '.join(strings) or 'none'}")
    dataset = dataset.select_columns(name)
    if name != "text":
        dataset = dataset.rename_column(name, "text")
    return dataset.cast_column("text", datasets.Value("string"))


def _digests(documents: datasets.Dataset, seed: int) -> Iterator[int]:
    """A 64-bit hash of every document's text, keyed by the seed."""
    key = str(seed).encode()
    for batch in documents.with_format("arrow").select_columns("text").iter(batch_size=1000):
        for text in batch["text"].to_pylist():
            yield int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8, key=key).digest(), "little")


def _some(files: list[str]) -> str:
    return repr(files[0]) if len(files) == 1 else f"one of {len(files)} files ({files[0]!r}, …)"
