"""Documents for training, read, held out and tokenized: a `datasets.Dataset`, cached on disk, or a stream of them."""

import functools
import hashlib
import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import chain
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets.fingerprint import Hasher
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from ..loading import without_bars
from .builtin_corpus import builtin_documents, builtin_files
from .sentences import sentence_table
from .sources import language_of, plan_source, select_text
from .tables import DatasetOrStream

# Documents in one call of the tokenizer: enough to keep every core busy, few enough that the encodings of long
# documents (100 bytes a token and more) stay small.
TOKENIZER_BATCH = 512
SPACES = r"\n[ \t\r]*\n"  # a line of nothing else, as `sources` finds it


def load_documents(
    data: Sequence[str] = (), *, packages: Sequence[str] = (), text_column: str | None = None, sample_by: str = "auto"
) -> datasets.Dataset:
    """One column `text`, one row per document, in the order of `data`; blank documents are left out. Of several entries
    of `data`, a column `source` says from which one a document is (a `ClassLabel`: its language, or the entry itself).
    The arguments are those of `CorpusArguments`.

    Raises:
        ValueError: a path without data, a file that is not UTF-8 (with the byte offset), a column that cannot be told;
            all files are looked at before the first is loaded.
    """
    if not data:
        # What from_generator makes is cached, so that later steps are; it runs when a file or our code has changed.
        files = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in builtin_files(packages)]
        made_of = {"files": tuple(files), "revision": _revision(builtin_documents)}
        return datasets.Dataset.from_generator(_builtin_rows, gen_kwargs=made_of)
    parts = load_sources(data, text_column=text_column, sample_by=sample_by)
    for item, part in zip(data, parts):
        if not len(part):
            raise ValueError(f"data: no text in {item!r}: blank; every entry needs one document or more")
    documents = parts[0]
    if len(parts) > 1:
        names = [language or item for language, item in map(language_of, data)]
        label = datasets.ClassLabel(names=list(dict.fromkeys(names)))
        source = np.repeat(label.str2int(names), [len(part) for part in parts])
        documents = datasets.concatenate_datasets(parts).add_column("source", source, feature=label)
    return documents


def load_sources(
    data: Sequence[str | Sequence[str]],
    *,
    text_column: str | None = None,
    sample_by: str = "auto",
    streaming: bool = False,
) -> list[datasets.Dataset] | list[datasets.IterableDataset]:
    """The documents of every entry of `data`, as `load_documents` reads them, but that a source may be without text.

    A list in the place of an entry is files and globs that are read one after the other. With `streaming`, documents
    are read as they are asked for, in the order of the files.
    """
    layout = "auto" if sample_by == "sentence" else sample_by
    plans = [plan_source([entry] if isinstance(entry, str) else entry, layout, streaming) for entry in data]
    sources = []
    for entry, loads in zip(data, plans):
        parts = []
        for load in loads:
            text, paragraphs = select_text(load(), text_column), load.keywords.get("sample_by") == "paragraph"
            if not streaming and (missing := text.data.table["text"].null_count):
                print(f"Left out of {entry!r}: {missing:,} of {len(text):,} rows, which have no text")
            step = sentence_table if sample_by == "sentence" else split_paragraphs if paragraphs else strip_blank
            parts.append(map_tables(text, step, desc="Reading documents", batch_size=1000))
        sources.append(datasets.concatenate_datasets(parts) if len(parts) > 1 else parts[0])
    return sources


def hold_out(documents: datasets.Dataset, validation_size: float | int, seed: int = 0, minimum: int = 1) -> np.ndarray:
    """Which documents (column `text`) to validate on rather than train on: bool [documents].

    It depends on their text and the seed only, so equal documents are never on both sides. A ValueError where
    `validation_size`, a share (below 1) or a number of documents, is not positive, or leaves none to train on; of a
    share, at least `minimum` different documents are held out.
    """
    if not 0 < validation_size < math.inf:
        raise ValueError(f"validation_size: {validation_size} holds nothing out; use a share, or a number of texts")
    share = validation_size < 1
    target = max(1, round(validation_size * len(documents) if share else validation_size))
    batches = documents.with_format("arrow").select_columns("text").iter(batch_size=1000)
    digests = np.concatenate([text_digests(batch["text"].to_pylist(), seed) for batch in batches])
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


def tokenizer_backend(tokenizer: PreTrainedTokenizerFast) -> str:
    """As JSON: the same before and after the tokenizer's use, so that cached tokens are found again."""
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.no_truncation()
    backend.no_padding()
    return backend.to_str()


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
    with nullcontext() if is_stream or len(dataset) > batch_size else without_bars(of_datasets=True):
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
    encodings = tokenizer.encode_batch_fast(table["text"].to_pylist(), add_special_tokens=False)
    ids = pa.list_(pa.from_numpy_dtype(dtype))
    return pa.table({"input_ids": pa.array([encoding.ids for encoding in encodings], ids)})


def _builtin_rows(files: Sequence[tuple], revision: str) -> Iterator[dict[str, str]]:
    return ({"text": document} for document in builtin_documents(Path(name) for name, *_ in files))
