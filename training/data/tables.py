"""One reader of tables: JSON, csv, tsv and parquet files, tagged words (CoNLL), and data sets of
the Hub. How the records of a file are parsed is in `records`."""

import codecs
import glob
import hashlib
import inspect
import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from datasets.fingerprint import Hasher

from ..common.paths import files_under, matching_paths, unique_files
from ..common.printing import warn
from .formats import COMPRESSED_SUFFIXES, FORMATS, TABLE_SUFFIXES
from .records import ReadError, conll_records, is_conll, read_records

DatasetOrStream = datasets.Dataset | datasets.IterableDataset
# Rows in memory, which are data wherever a file is.
Rows = datasets.Dataset | pd.DataFrame | Sequence[Mapping[str, Any]]
# "name" or "owner/name", and perhaps a configuration.
HUB_NAME = re.compile(r"(?P<name>[\w-][\w.-]*(/[\w-][\w.-]*)?)(:(?P<config>[\w.-]+))?")
STRING_TYPES = (
    datasets.Value("string"),
    datasets.Value("large_string"),
    datasets.Value("string_view"),
)
# What `datasets` raises for values that Arrow cannot hold.
STORAGE_ERRORS = (OverflowError, RecursionError, ValueError, pa.ArrowException)
# A first line of such names is a header, not data.
USUAL_COLUMNS = {
    "id", "idx", "index", "text", "sentence", "content", "review", "document", "tweet", "comment",
    "message", "title", "body", "question", "answer", "query", "passage", "context", "premise",
    "hypothesis", "sentence1", "sentence2", "text1", "text2", "text_a", "text_b", "question1",
    "question2", "label", "labels", "class", "category", "target", "score", "rating", "stars",
    "similarity", "sentiment", "source", "date", "language",
}  # fmt: skip


def read_table(
    source: str | Path | datasets.Dataset | datasets.DatasetDict,
    columns: Sequence[str] | None = None,
    *,
    split: str = "train",
    field: str = "data",
    header: Sequence[str] = (),
) -> datasets.Dataset:
    """Read a table. Cells of csv and tsv files, and dates in JSON, stay text, so that an id 007
    keeps its zeros. A JSON column with values of several types has the feature `datasets.Json`; a
    missing value is None.

    Args:
        source: A JSON, csv, tsv or parquet file, tagged words in columns (CoNLL), a data set of the
            Hub ("owner/name" or "owner/name:config"), or a loaded data set.
        columns: The columns to keep; by default all.
        split: The split of a data set of the Hub, or of a `DatasetDict`.
        field: The name of the argument that `source` came from, for errors.
        header: The column names of a csv or tsv file without a header row.

    Raises:
        ValueError: the file or data set does not exist or is empty, or a column is missing.
        ReadError: a record cannot be read.
    """
    if isinstance(source, datasets.DatasetDict):
        source = source[split]
    if isinstance(source, datasets.Dataset):
        name = "the data set"
        table = source
    else:
        name = str(source)
        if os.path.exists(name):
            table = _read_file(name, field, header)
        else:
            table = load_hub(name, field, split=split)
    if not len(table):
        raise ValueError(f"{field}: {name!r} has no rows")
    for column in columns or ():
        if column not in table.column_names:
            names = ", ".join(table.column_names)
            raise ValueError(f"{field}: {name!r} has no column {column!r}; it has {names}")
    return table.select_columns(list(columns)) if columns else table


def _read_file(file: str, field: str, header: Sequence[str]) -> datasets.Dataset:
    _check_regular(file, field)
    file_format = "conll" if is_conll(file) else FORMATS.get(Path(file).suffix.lower(), "text")
    if header and file_format != "csv":
        raise ValueError(
            f"columns: only csv and tsv files can lack a header, not {file!r}; leave --columns out"
        )
    if file_format == "text":
        raise ValueError(
            f"{field}: {file!r} is not a table; use a file that ends in one of"
            f" {', '.join(TABLE_SUFFIXES)}"
        )
    if file_format == "parquet":
        return _read_parquet(file)
    if file_format == "conll":
        return from_numbered_records(file, conll_records(file))
    # JSON, csv and tsv
    numbered_records = list(read_records(file, header))
    if header:
        _check_no_header(file, header, [record for _, record in numbered_records])
    return from_numbered_records(file, numbered_records)


def as_dataset(data: Any, field: str = "data") -> Any:
    """Records in memory (a DataFrame of pandas, or dictionaries) as a `datasets.Dataset`; all else,
    such as a path, stays as it is.

    Args:
        field: The name of the argument that `data` came from, for errors.
    """
    try:
        if isinstance(data, pd.DataFrame):
            return _from_frame(data)
        if isinstance(data, (list, tuple)) and data and isinstance(data[0], Mapping):
            return from_records(data)
    except (TypeError, *STORAGE_ERRORS) as error:
        raise ValueError(f"{field}: the rows cannot be made a table: {_reason(error)}") from error
    return data


def sources_of(data: Any, field: str = "data") -> list[Any]:
    """What an argument names, one thing or a list of them: paths and names of the Hub as they are,
    records in memory each as a `datasets.Dataset`."""
    data = as_dataset(data, field)
    sources = data if isinstance(data, (list, tuple)) else [data]
    return [as_dataset(source, field) for source in sources]


def _from_frame(frame: pd.DataFrame) -> datasets.Dataset:
    """A DataFrame without its index. Categories become texts, missing values None."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    fields = []
    for column in table.schema:
        plain_type = _plain_type(column.type)
        if plain_type == pa.large_string():  # as pandas stores text
            plain_type = pa.string()
        fields.append(column.with_type(plain_type))
    # without what pandas notes about its own types
    return datasets.Dataset(table.cast(pa.schema(fields)).replace_schema_metadata(None))


def from_records(records: Sequence[dict[str, Any]]) -> datasets.Dataset:
    """Records with any columns as a table. An OverflowError, or another of `STORAGE_ERRORS`, for a
    value that it cannot hold."""
    columns = {}
    for name in dict.fromkeys(chain.from_iterable(records)):
        columns[name] = [record.get(name) for record in records]
    table = datasets.Dataset.from_dict(columns, on_mixed_types="use_json")
    for name, feature in table.features.items():
        is_json = isinstance(getattr(feature, "feature", feature), datasets.Json)
        if is_json and any(map(_has_long_number, columns[name])):
            raise OverflowError("a whole number of more than 64 bits")  # `datasets` cannot read it
    return table


def _has_long_number(value: Any) -> bool:
    """Whether a value of JSON is, or has in it, a whole number that 64 bits cannot hold."""
    if isinstance(value, int):
        return abs(value) >= 2**63
    if isinstance(value, dict):
        value = list(value.values())
    return isinstance(value, list) and any(map(_has_long_number, value))


def from_numbered_records(
    file: str | Path, numbered_records: Iterable[tuple[int, dict[str, Any]]]
) -> datasets.Dataset:
    """The records of a file, each with the number of its line, as a table; a ReadError names the
    first one with a value that a table cannot hold, such as a whole number of 400 digits."""
    lines = []
    records = []
    for line, record in numbered_records:
        lines.append(line)
        records.append(record)
    try:
        return from_records(records)
    except STORAGE_ERRORS as error:
        line = lines[_first_unstorable(records)]
        raise ReadError(
            f"{file}, line {line}: a value cannot be stored in a table ({_reason(error)[:100]}); "
            "write it as text, or leave it out"
        ) from None


def _first_unstorable(records: Sequence[dict[str, Any]]) -> int:
    """The index of the first record that cannot become a table, among some that cannot together."""
    first = 0
    count = len(records)
    while count > 1:  # halve them: the record is in the first half, or else in the second
        half = count // 2
        try:
            from_records(records[first : first + half])
        except STORAGE_ERRORS:
            count = half
        else:
            first += half
            count -= half
    return first


def _check_no_header(file: str, header: Sequence[str], records: Sequence[dict[str, str]]) -> None:
    """Refuse names for the columns of a file whose first line is a header; warn if it may
    be one."""
    if not records:
        return
    first_record = records[0]
    first_cells = {cell.strip().casefold() for cell in first_record.values()}
    is_header = first_cells <= USUAL_COLUMNS
    for name in header:
        cell = first_record[name].strip()
        other_cells = [record[name].strip() for record in records[1:]]
        if cell.casefold() == name.casefold() or _is_only_text(cell, other_cells):
            is_header = True
        elif _is_only_rare(cell, other_cells):
            warn(
                f"columns: {cell[:50]!r} in the first row of {file!r} is in no other row of the "
                f"column {name!r}; if that row is a header, leave --columns out"
            )
    if is_header:
        names = ", ".join(repr(cell[:50]) for cell in first_record.values())
        raise ReadError(
            f"columns: the first row of {file!r} is a header ({names}); leave --columns out, or "
            "remove that row"
        )


def _is_only_text(cell: str, other_cells: Sequence[str]) -> bool:
    """Whether a cell is not a number, but all others of its column that are not blank are."""
    if not cell or not math.isnan(to_number(cell)):
        return False
    filled_cells = list(filter(None, other_cells))
    return len(filled_cells) > 1 and not any(map(math.isnan, map(to_number, filled_cells)))


def _is_only_rare(cell: str, other_cells: Sequence[str]) -> bool:
    """Whether a cell occurs once, but the others of its column again and again, as classes do."""
    classes = set(other_cells)
    have_classes = len(other_cells) >= 10 and len(classes) <= len(other_cells) // 5
    return have_classes and cell not in classes


# --- Parquet, and other files that `datasets` reads ---


def _read_parquet(file: str) -> datasets.Dataset:
    features = parquet_features([file])
    table = load_files("parquet", [file], name=checksum([file]), features=features)
    try:
        table.data.table.validate(full=True)  # the reader does not look into the texts
    except pa.ArrowInvalid as error:
        raise ReadError(f"{file!r} cannot be read as parquet: {_reason(error)}") from error
    return table


def parquet_features(files: Sequence[str]) -> datasets.Features:
    """The features of the columns of the first of several shards. The type of a column that has
    only nulls there is that of the first shard with values in it."""
    features: datasets.Features = datasets.Features()
    for number, file in enumerate(files):
        try:
            schema = pq.read_schema(file)
        except (pa.ArrowInvalid, OSError) as error:
            raise ReadError(f"{file!r} cannot be read as parquet: {_reason(error)}") from error
        for index, column in enumerate(schema):
            schema = schema.set(index, column.with_type(_plain_type(column.type)))
        for name, feature in datasets.Features.from_arrow_schema(schema).items():
            if number == 0 or features.get(name) == datasets.Value("null"):
                features[name] = feature
    return features


def _plain_type(arrow_type: pa.DataType) -> pa.DataType:
    """The type with the same values that all of `datasets` knows: views (as Polars writes them) and
    dictionaries (categories of pandas) are only other ways to store them."""
    if arrow_type == pa.string_view():
        return pa.string()
    if arrow_type == pa.binary_view():
        return pa.binary()
    if pa.types.is_dictionary(arrow_type):
        return _plain_type(arrow_type.value_type)
    if pa.types.is_list(arrow_type):
        return pa.list_(_plain_type(arrow_type.value_type))
    return arrow_type


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
        raise ReadError(f"{names} cannot be read as {loader}: {_reason(error)}") from error


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


# --- Files and the Hub ---


def find_files(item: str, field: str = "data") -> list[str]:
    """The files of a path, a folder or a glob, sorted; an empty list for a name that may be a data
    set of the Hub. A ValueError if there are no files."""
    if os.path.isfile(item):
        return [item]
    if os.path.isdir(item):
        files = files_in(item, FORMATS)
    elif glob.has_magic(item):
        files = unique_files(matching_paths(item))
    else:
        _split_hub_name(item, field)
        return []
    if not files:
        suffixes = ", ".join(FORMATS)
        raise ValueError(
            f"{field}: there is no file in {item!r}; use names that end in one of {suffixes}"
        )
    return files


def files_in(folder: str | Path, suffixes: Collection[str]) -> list[str]:
    """`files_under` a folder with these suffixes. Compressed files are reported."""
    paths = files_under(folder)
    compressed = [
        Path(path).name for path in paths if Path(path).suffix.lower() in COMPRESSED_SUFFIXES
    ]
    if compressed:
        print(
            f"{str(folder)!r}: {len(compressed)} compressed files ({compressed[0]!r}, …) are left "
            "out; unpack them to use them"
        )
    return [path for path in paths if Path(path).suffix.lower() in suffixes]


def load_hub(item: str, field: str = "data", **options: Any) -> Any:
    """Call `datasets.load_dataset` for "owner/name" or "owner/name:config"; a ValueError if it is
    not found, cannot be reached, or lacks the configuration or split."""
    name, config = _split_hub_name(item, field)
    try:
        return datasets.load_dataset(name, config, **options)
    except (OSError, ValueError) as error:
        reason = _reason(error)
        raise ValueError(
            f"{field}: {item!r} is neither a path nor a data set of the Hub: {reason}"
        ) from error


def _split_hub_name(item: str, field: str) -> tuple[str, str | None]:
    """Split the name of a data set of the Hub into name and configuration; a ValueError for a
    missing file, and for a path that is no file."""
    _check_regular(item, field)
    parts = HUB_NAME.fullmatch(item)
    if parts is None or Path(item).suffix.lower() in FORMATS:
        raise ValueError(f"{field}: {item!r} does not exist")
    return parts["name"], parts["config"]


def _check_regular(path: str, field: str) -> None:
    """Refuse what could be read once only, or has no end."""
    if os.path.lexists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise ValueError(
            f"{field}: {path!r} is not a regular file (but a pipe, a device or a broken link);"
            " write the data into a file"
        )


def _reason(error: BaseException) -> str:
    """The first line of the cause of an error of `datasets`."""
    cause = error.__cause__ or error
    lines = str(cause).strip().splitlines()
    return lines[0] if lines else type(cause).__name__


# --- Columns ---


def string_columns(table: DatasetOrStream | datasets.Features) -> list[str]:
    """The columns of plain strings."""
    features = getattr(table, "features", table)
    return [name for name, feature in features.items() if feature in STRING_TYPES]


def to_number(cell: Any) -> float:
    """A cell as a number; NaN if it is not one, or has no end."""
    try:
        number = float(cell)
    except (TypeError, ValueError, OverflowError):
        return math.nan
    return number if math.isfinite(number) else math.nan


# --- Steps from one Arrow table to another ---


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
