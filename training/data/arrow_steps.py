"""Steps from one Arrow table to another, mapped over a data set."""

import inspect
from collections.abc import Callable

import datasets
import pyarrow as pa
from datasets.fingerprint import Hasher

from .tables import DatasetOrStream


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
