"""How `datasets` is called to read files and to map over tables, with caches that are keyed by the
contents of files and by the source of functions."""

import codecs
import glob
import hashlib
import inspect
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import datasets
import pyarrow as pa
from datasets.fingerprint import Hasher

from .text_files import ReadError

DatasetOrStream = datasets.Dataset | datasets.IterableDataset


def load_files(loader: str, files: Sequence[str], **options: Any) -> Any:
    """Call `datasets.load_dataset` for files; a `ReadError` if they cannot be read."""
    # `datasets` reads names as patterns
    literal_names = [glob.escape(os.path.abspath(file)) for file in files]
    try:
        return datasets.load_dataset(loader, data_files=literal_names, split="train", **options)
    except (datasets.exceptions.DatasetGenerationError, pa.ArrowInvalid, OSError) as error:
        names = ", ".join(map(repr, files[:3]))
        if len(files) > 3:
            names += ", …"
        raise ReadError(f"{names} cannot be read as {loader}: {error_reason(error)}") from error


def checksum(files: Iterable[str], encoding: str | None = None) -> str:
    """A checksum of the contents of files, by which what is read of them is cached. (A file may
    change and keep its date.) A ReadError for bytes that are no text in the `encoding`, if one is
    given."""
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        digest.update(file.encode(errors="surrogateescape") + b"\0")
        decoder = codecs.getincrementaldecoder(encoding or "utf-8")()
        block = b"..."
        with open(file, "rb") as stream:
            while block:
                block = stream.read(1 << 24)
                digest.update(block)
                if encoding is None:
                    continue
                try:
                    decoder.decode(block, final=not block)
                except UnicodeDecodeError as error:
                    offset = stream.tell() - len(error.object) + error.start
                    name = error.encoding.upper()
                    raise ReadError(
                        f"{file!r} is not {name} text: {error.reason} at offset {offset}"
                    ) from None
    return digest.hexdigest()


def error_reason(error: BaseException) -> str:
    """The first line of the cause of an error of `datasets`."""
    cause = error.__cause__ or error
    lines = str(cause).strip().splitlines()
    return lines[0] if lines else type(cause).__name__


def map_tables(
    dataset: DatasetOrStream,
    function: Callable[..., pa.Table],
    *,
    desc: str,
    batch_size: int,
    num_proc: int | None = None,
    **kwargs,
) -> DatasetOrStream:
    """Map a function from Arrow table to Arrow table over a data set; its result replaces all
    columns and records.

    `datasets` keys its cache by the name of the function, not by its code. The source of its module
    is added here, so that rows made by an older version are not used.
    """
    options: dict = {
        "fn_kwargs": {"function": function, "revision": revision_of(function), **kwargs}
    }
    is_stream = isinstance(dataset, datasets.IterableDataset)
    if not is_stream:
        options |= {"num_proc": num_proc, "remove_columns": dataset.column_names, "desc": desc}
    return (
        dataset.with_format("arrow")
        .map(_call, batched=True, batch_size=batch_size, **options)
        .with_format(None)
    )


def revision_of(function: Callable) -> str:
    """A hash of the source of the module that a function is in."""
    return Hasher.hash(inspect.getsource(inspect.getmodule(function)))


def _call(table: pa.Table, function: Callable[..., pa.Table], revision: str, **kwargs) -> pa.Table:
    return function(table, **kwargs)
