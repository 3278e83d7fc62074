"""One reader of tables: JSON, csv, tsv and parquet files, data sets of the Hub, and those that are loaded already.

The readers of JSON and csv in `datasets` take the types of all columns from the first rows, stop where a later row has
others, and name no line. So the rows of these files are parsed here, one at a time; every error names file and line.

In tsv as in csv, a quote that begins a cell encloses it up to the next one that is not doubled. Where quotes were meant
as they are, several rows could so become one: such a tsv is refused, which shows in a cell with a tab.
"""

import codecs
import csv
import functools
import glob
import hashlib
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

DatasetOrStream = datasets.Dataset | datasets.IterableDataset
# How files are read, by what their names end in.
FORMATS = {
    ".txt": "text", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".jsonlines": "json", ".csv": "csv",
    ".tsv": "csv", ".parquet": "parquet",
}  # fmt: skip
TABLES = tuple(suffix for suffix, kind in FORMATS.items() if kind != "text")
CONLL = (".conll", ".conllu", ".conll03", ".bio", ".iob", ".iob2", ".bioes")
ENTITY_TAG = re.compile(r"O|[BIES]-.+")
CONLL_EXAMPLE = "a word and its tag in each line, as 'Anna B-PER', and an empty line between sentences"
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")
ENCLOSED = (
    "a quote that begins a cell encloses it; put such a cell in quotes and double its own ones, or use another format"
)
# "name" or "owner/name", then the configuration where a data set has several.
HUB_NAME = re.compile(r"(?P<name>[\w-][\w.-]*(/[\w-][\w.-]*)?)(:(?P<config>[\w.-]+))?")


class ReadError(ValueError):
    """A file, or a row of it, that cannot be read; the message names the file and the line."""


def read_table(
    source: str | Path | datasets.Dataset | datasets.DatasetDict,
    columns: Sequence[str] | None = None,
    *,
    split: str = "train",
    field: str = "data",
    header: Sequence[str] = (),
) -> datasets.Dataset:
    """The rows of a table.

    Cells of csv and tsv, and dates in JSON, stay text: an id 007 does. A column of JSON with values of several types
    has the feature `datasets.Json`; a value that a row lacks is None.

    Args:
        source: A JSON (.json, .jsonl, .ndjson, .jsonlines), csv, tsv or parquet file, tagged words in columns (CoNLL),
            a data set of the Hub ("owner/name" or "owner/name:config"), or a loaded data set.
        columns: Those that are wanted; by default all.
        split: Which rows of a data set of the Hub, or of a `DatasetDict`.
        field: The argument that `source` was given as, which errors name.
        header: The names of the columns of a csv or tsv file that has none in its first row.

    Raises:
        ValueError: There is no such file or data set, it is no table or has no rows, or a column is missing.
        ReadError: A row that cannot be read.
    """
    if isinstance(source, datasets.DatasetDict):
        source = source[split]
    if isinstance(source, datasets.Dataset):
        table, name = source, "the data set"
    else:
        name = str(source)
        table = _read_file(name, field, header) if os.path.exists(name) else load_hub(name, field, split=split)
    if not len(table):
        raise ValueError(f"{field}: {name!r} has no rows")
    if missing := [column for column in columns or () if column not in table.column_names]:
        raise ValueError(f"{field}: {name!r} has no column {missing[0]!r}; it has {', '.join(table.column_names)}")
    return table.select_columns(list(columns)) if columns else table


def _read_file(file: str, field: str, header: Sequence[str]) -> datasets.Dataset:
    kind = "conll" if is_conll(file) else FORMATS.get(Path(file).suffix.lower(), "text")
    if header and kind != "csv":
        raise ValueError(f"columns: {file!r} is no csv or tsv, and names its columns itself; leave --columns out")
    if kind == "conll":
        return _from_rows([*_conll_rows(Path(file))])
    if header:
        return _from_rows([row for _, row in _csv_rows(Path(file), list(header))])
    if kind == "text" or not os.path.isfile(file):
        raise ValueError(f"{field}: {file!r} is no table; use a file that ends in one of {', '.join(TABLES)}")
    if kind != "parquet":
        return _from_rows([row for _, row in read_rows(file)])
    return load_files("parquet", [file], name=fingerprint([file], False))


def load_files(loader: str, files: Sequence[str], **options: Any) -> Any:
    """`datasets.load_dataset` of files; what is wrong with them is a `ReadError`."""
    try:
        if loader == "parquet":  # which `datasets` cannot read without rows
            files = [file for file in files if pq.read_metadata(file).num_rows]
            if not files:
                return datasets.Dataset.from_dict({})
        literal = [glob.escape(os.path.abspath(file)) for file in files]  # `datasets` takes names for patterns
        return datasets.load_dataset(loader, data_files=literal, split="train", **options)
    except (datasets.exceptions.DatasetGenerationError, pa.ArrowInvalid, OSError) as error:
        named = repr(files[0]) + f" (or one of {len(files) - 1} others)" * (len(files) > 1)
        raise ReadError(f"{named} cannot be read as {loader}: {reason(error)}") from error


# --- Rows of a file --------------------------------------------------------------------------------------------------


def read_rows(file: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a JSON or csv file, each with the line that it begins in (in a JSON list, with its number).

    JSON is an object a line, or a list of objects (of strings: texts) in a file that begins with "[", or one object in
    a .json file.

    Raises:
        ReadError: A row that is no object, or has more or fewer cells than the header, as behind a line break that no
            quotes enclose; quotes that enclose no whole cell; bytes that are not UTF-8 (nor UTF-16, with its mark).
    """
    try:
        yield from (_csv_rows if FORMATS.get(Path(file).suffix.lower()) == "csv" else _json_rows)(Path(file))
    except UnicodeDecodeError:
        fingerprint([str(file)])  # says where
        raise


def encoding_of(file: str | Path) -> str:
    """UTF-8, or UTF-16 where a file begins with its mark, as Excel writes it."""
    with open(file, "rb") as stream:
        return "utf-16" if stream.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig"


def is_conll(file: str | Path) -> bool:
    """Whether a file has tagged words in columns: by its name, or since each line at its beginning is blank, or ends
    with a tag behind a word."""
    suffix = Path(file).suffix.lower()
    if suffix in CONLL or suffix not in (".txt", ".tsv") or not os.path.isfile(file):
        return suffix in CONLL
    with open(file, encoding=encoding_of(file), errors="replace") as lines:
        found = [line.split() for line in islice(lines, 200)]
    found = [cells for cells in found if cells and cells[0] not in ("#", "-DOCSTART-")]
    return bool(found) and all(len(cells) > 1 and ENTITY_TAG.fullmatch(cells[-1]) for cells in found)


def _conll_rows(file: Path) -> Iterator[dict[str, list[str]]]:
    """A sentence each, of columns between tabs or spaces: the first one is the word, the last one its tag. Of four
    (CoNLL-2003) the middle ones are tags as well; of ten (CoNLL-U) they have names of their own."""
    names = {4: ("tokens", "pos_tags", "chunk_tags", "ner_tags"), 10: ("", "tokens", "", "upos", "xpos")}
    sentence: list[list[str]] = []
    width = 0
    with open(file, encoding=encoding_of(file)) as lines:
        for number, line in enumerate(chain(lines, [""]), 1):
            cells = [cell.strip() for cell in line.split("\t")] if "\t" in line.strip() else line.split()
            is_word = cells and len(cells) == width and ("\t" in line or ENTITY_TAG.fullmatch(cells[-1]))
            if cells and cells[0].startswith("#") and not sentence and not is_word:
                continue  # a comment
            if cells and cells[0] != "-DOCSTART-":
                width = width or len(cells)
                if len(cells) != width or width < 2 or not all(cells):
                    raise ReadError(
                        f"{file}, line {number}: {len(cells)} columns, not {max(width, 2)}; write {CONLL_EXAMPLE}"
                    )
                sentence += [cells] if width != 10 or cells[0].isdecimal() else []  # no 1-2, no 1.1 of CoNLL-U
            elif sentence:
                columns = names.get(width, ("tokens", *[""] * (width - 2), "ner_tags"))
                yield {name: list(cells) for name, cells in zip(columns, zip(*sentence)) if name}
                sentence = []


def _csv_rows(file: Path, header: Sequence[str] = ()) -> Iterator[tuple[int, dict[str, str]]]:
    csv.field_size_limit(2**31 - 1)  # a cell may hold a document; by default it ends after 131,072 characters
    tsv, named, line = file.suffix.lower() == ".tsv", header, 1
    with open(file, encoding=encoding_of(file), newline="") as lines:
        first = next((line for line in lines if not line.isspace()), "")
        lines.seek(0)
        delimiter = "\t" if tsv else max(",;\t", key=first.count)  # spreadsheets write ; where the comma is in numbers
        # strict: a quote that is never closed is refused, where otherwise all rows behind it would become one cell
        rows = csv.reader(lines, strict=True, delimiter=delimiter)
        try:
            for row in rows:
                # without blank lines; but in a table of one column, a cell may be blank
                full = len(row) > 1 or (row and (len(header) == 1 or row[0].strip()))
                if full and not header:
                    header = [name or f"Unnamed: {place}" for place, name in enumerate(row)]
                    if twice := [name for name in header if header.count(name) > 1]:
                        raise ReadError(f"{file}, line {line}: two columns are called {twice[0]!r}; rename one")
                elif full:
                    if line == 1 and row == [*named]:
                        raise ReadError(f"columns: the first row of {str(file)!r} has these names; leave --columns out")
                    if len(row) != len(header):
                        use = (
                            "name each one"
                            if line == 1
                            else "put a cell with a separator or a line break in quotes, and add missing cells"
                        )
                        cells = f"{len(row)} cells, but {len(header)} columns"
                        raise ReadError(f"{file}, line {line}: {cells}; {use}")
                    if tsv and any("\t" in cell for cell in row):
                        raise ReadError(f"{file}, line {line}: a cell of a tsv has a tab; {ENCLOSED}")
                    yield line, dict(zip(header, row))
                line = rows.line_num + 1
        except csv.Error as error:
            raise ReadError(f"{file}, line {line}: {error}; {ENCLOSED}") from None


def _json_rows(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with open(file, encoding=encoding_of(file)) as lines:
        first = next((line for line in lines if not line.isspace()), "")
        lines.seek(0)
        whole = first.lstrip().startswith("[") or (file.suffix.lower() == ".json" and not is_object(first))
        if whole:
            parsed = _parse(lines.read(), file, None) if first else []
            rows = enumerate(parsed if isinstance(parsed, list) else [parsed], 1)
            rows = ((number, {"text": row} if isinstance(row, str) else row) for number, row in rows)
        else:
            numbered = ((number, line) for number, line in enumerate(lines, 1) if not line.isspace())
            rows = ((number, _parse(line, file, number)) for number, line in numbered)
        for number, row in rows:
            where = f"{file}, {'row' if whole else 'line'} {number}"
            if not isinstance(row, dict) or not row:
                raise ReadError(f"{where}: it is no JSON object with columns")
            yield number, row


def _parse(text: str, file: Path, line: int | None) -> Any:
    try:
        parsed = json.loads(text)
        if "\\u" in text:
            json.dumps(parsed, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        said = f"{error.msg} (column {error.colno})"
        raise ReadError(f"{file}, line {line or error.lineno}: it is not JSON: {said}") from None
    except UnicodeEncodeError:
        raise ReadError(f"{file}, line {line or 1}: it has half of a character (a lone surrogate)") from None
    except RecursionError:
        raise ReadError(f"{file}, line {line or 1}: it is nested too deeply") from None
    return parsed


def is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _from_rows(rows: Sequence[dict[str, Any]]) -> datasets.Dataset:
    """A column of values of several kinds is one of JSON."""
    columns = []
    for name in dict.fromkeys(chain.from_iterable(rows)):
        values = {name: [row.get(name) for row in rows]}
        try:
            columns.append(datasets.Dataset.from_dict(values, on_mixed_types="use_json"))
        except OverflowError:  # whole numbers of more than 64 bits
            columns.append(datasets.Dataset.from_dict({name: [None if x is None else str(x) for x in values[name]]}))
    return datasets.concatenate_datasets(columns, axis=1) if columns else datasets.Dataset.from_dict({})


# --- Files -----------------------------------------------------------------------------------------------------------


def find_files(item: str | Path, suffixes: Collection[str] = tuple(FORMATS), field: str = "data") -> list[str]:
    """The files that a path, a folder (those that end in one of `suffixes`) or a glob names, sorted; none for a name
    that may be a data set of the Hub. A ValueError where nothing is there."""
    item = str(item)
    if os.path.isdir(item):
        found = files_in(item, suffixes)
        missing = f"no file with a name ending in {', '.join(suffixes)} in the folder {item!r}"
    elif os.path.exists(item):
        return [item]
    elif glob.has_magic(item):
        found = sorted(file for file in glob.glob(item, recursive=True) if os.path.isfile(file))
        missing = f"no file matches {item!r}"
    else:
        hub_name(item, field)
        return []
    if not found:
        raise ValueError(f"{field}: {missing}")
    return found


def files_in(folder: str | Path, suffixes: Collection[str]) -> list[str]:
    """All files under a folder whose names end so, sorted; hidden ones are left out, of compressed ones it says so."""
    paths, seen = [], set()
    for root, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(root)
        folders[:] = [] if real in seen else [name for name in folders if not name.startswith(".")]
        paths += [] if real in seen else [Path(root, name) for name in names if not name.startswith(".")]
        seen.add(real)  # a link may lead back
    packed = [path for path in paths if path.suffix.lower() in COMPRESSED]
    if compressed := [path.name for path in packed if path.with_suffix("").suffix.lower() in suffixes]:
        print(
            f"Left out of {str(folder)!r}: {len(compressed)} compressed files ({compressed[0]!r}, …); unpack them first"
        )
    return sorted(str(path) for path in paths if path.suffix.lower() in suffixes and path.is_file())


def fingerprint(files: Iterable[str], is_text: bool = True) -> str:
    """A checksum of the contents of files, under which their rows are cached: a file may change and keep its time. A
    ReadError for bytes that are not UTF-8, where it `is_text`."""
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        digest.update(file.encode(errors="surrogateescape") + b"\0")
        decoder, offset = codecs.getincrementaldecoder("utf-8")(), 0
        with open(file, "rb") as stream:
            for block in chain(iter(functools.partial(stream.read, 1 << 24), b""), [b""]):
                digest.update(block)
                kept = len(decoder.getstate()[0])  # of a character that the last block began
                try:
                    decoder.decode(block if is_text else b"", final=not block)
                except UnicodeDecodeError as error:
                    where = f"byte 0x{error.object[error.start]:02x} at offset {offset - kept + error.start}"
                    advice = "; unpack it first" if Path(file).suffix.lower() in COMPRESSED else ""
                    raise ReadError(f"{file!r} is not UTF-8 text: {where} ({error.reason}){advice}") from None
                offset += len(block)
    return digest.hexdigest()


def read_text(path: str | Path) -> str:
    """The text of a UTF-8 file, or a ReadError if it is none."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        fingerprint([str(path)])  # says where
        raise


# --- The Hub ---------------------------------------------------------------------------------------------------------


def hub_name(item: str, field: str = "data") -> tuple[str, str | None]:
    """Data set and configuration that `item` names, where there is no such path; a ValueError if it can be none."""
    named = HUB_NAME.fullmatch(item)
    if named is None or Path(item).suffix.lower() in FORMATS:
        raise ValueError(f"{field}: {item!r} does not exist")
    return named["name"], named["config"]


def load_hub(item: str, field: str = "data", **options: Any) -> Any:
    """`datasets.load_dataset` of "owner/name" or "owner/name:config"; a ValueError if it is not found, there is no
    connection, or it has no such configuration or split."""
    name, config = hub_name(item, field)
    try:
        return datasets.load_dataset(name, config, **options)
    except (OSError, ValueError) as error:
        raise ValueError(f"{field}: {item!r} is no path here, and as a data set of the Hub: {reason(error)}") from error


def reason(error: BaseException) -> str:
    """The first line of what `datasets` was stopped by."""
    cause = error.__cause__ or error
    return (str(cause).strip().splitlines() or [type(cause).__name__])[0]


# --- Columns ---------------------------------------------------------------------------------------------------------


def string_columns(table: DatasetOrStream | datasets.Features) -> list[str]:
    """The columns of plain strings."""
    strings = (datasets.Value("string"), datasets.Value("large_string"))
    return [name for name, feature in getattr(table, "features", table).items() if feature in strings]


def to_number(cell: Any) -> float:
    """The number of a cell, which may be its text; NaN if it is none."""
    try:
        return float(cell)
    except (TypeError, ValueError):
        return float("nan")


def with_numbers(parts: Sequence[datasets.Dataset], exact: bool = False) -> list[datasets.Dataset]:
    """Columns of text of which all cells, in all parts, are whole numbers, or numbers, or booleans, as such; with
    `exact`, only numbers that say all that their cells do (3.0 does; 01 and 3.10, which may be codes, do not), and
    cells without any text are missing ones."""
    order = (pa.int64(), pa.float64()) if exact else (pa.int64(), pa.float64(), pa.bool_())

    def cast(cells: Any, kind: pa.DataType) -> Any:
        cells = pc.utf8_trim_whitespace(cells)
        if exact:
            cells = pc.if_else(pc.equal(cells, ""), pa.scalar(None, cells.type), cells)
        numbers = cells.cast(kind)
        if exact and numbers.cast(cells.type) != pc.replace_substring_regex(cells, r"\.0$", ""):
            raise pa.ArrowInvalid("other text")
        return numbers

    def kind_of(columns: list[Any]) -> pa.DataType | None:
        for kind in order:
            with suppress(pa.ArrowInvalid):
                for column in columns:
                    cast(column.slice(0, 100), kind)  # a few first: a column of texts is copied here
                return kind if any(len(column) > cast(column, kind).null_count for column in columns) else None
        return None

    def typed(part: datasets.Dataset) -> datasets.Dataset:
        for name in kinds.keys() & {*part.column_names}:
            column = cast(part.data.table[name], kinds[name]).to_pylist()
            part = part.remove_columns(name).add_column(name, column, feature=datasets.Value(str(kinds[name])))
        return part

    names = dict.fromkeys(name for part in parts for name in part.column_names)
    found = {name: kind_of([part.data.table[name] for part in parts if name in part.column_names]) for name in names}
    kinds = {name: kind for name, kind in found.items() if kind}
    return [typed(part).select_columns(part.column_names) for part in parts]
