"""One reader of tables: JSON, csv, tsv and parquet files, tagged words (CoNLL), and data sets of the Hub.

The JSON and csv readers of `datasets` take the types of all columns from the first rows, fail if a later row has other
types, and do not say in which line. So the rows of these files are parsed here, and every error names file and line.
"""

import codecs
import csv
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

DatasetOrStream = datasets.Dataset | datasets.IterableDataset
# How a file is read, by its suffix.
FORMATS = {
    ".txt": "text", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".jsonlines": "json", ".csv": "csv",
    ".tsv": "csv", ".parquet": "parquet",
}  # fmt: skip
TABLES = tuple(suffix for suffix, kind in FORMATS.items() if kind != "text")
CONLL = (".conll", ".conllu", ".conll03", ".bio", ".iob", ".iob2", ".bioes")
ENTITY_TAG = re.compile(r"O|[BIES]-.+")
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")
ENCLOSED = 'a cell that begins with a quote must end with one; write quotes inside of it twice, as "a ""b"" c"'
# "name" or "owner/name", and perhaps a configuration.
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
    """Read a table. Cells of csv and tsv files, and dates in JSON, stay text, so that an id 007 keeps its zeros. A JSON
    column with values of several types has the feature `datasets.Json`; a missing value is None.

    Args:
        source: A JSON, csv, tsv or parquet file, tagged words in columns (CoNLL), a data set of the Hub ("owner/name"
            or "owner/name:config"), or a loaded data set.
        columns: The columns to keep; by default all.
        split: The split of a data set of the Hub, or of a `DatasetDict`.
        field: The name of the argument that `source` came from, for errors.
        header: The column names of a csv or tsv file without a header row.

    Raises:
        ValueError: the file or data set does not exist or has no rows, or a column is missing.
        ReadError: a row cannot be read.
    """
    if isinstance(source, datasets.DatasetDict):
        source = source[split]
    if isinstance(source, datasets.Dataset):
        table, name = source, "the data set"
    else:
        name = str(source)
        table = (
            _read_file(name, field, header)
            if os.path.exists(name)
            else load_hub(name, field, split=split)
        )
    if not len(table):
        raise ValueError(f"{field}: {name!r} has no rows")
    if missing := [column for column in columns or () if column not in table.column_names]:
        raise ValueError(
            f"{field}: {name!r} has no column {missing[0]!r}; it has {', '.join(table.column_names)}"
        )
    return table.select_columns(list(columns)) if columns else table


def _read_file(file: str, field: str, header: Sequence[str]) -> datasets.Dataset:
    kind = "conll" if is_conll(file) else FORMATS.get(Path(file).suffix.lower(), "text")
    if header and kind != "csv":
        raise ValueError(
            f"columns: only csv and tsv files can lack a header, not {file!r}; leave --columns out"
        )
    if kind == "text":
        raise ValueError(
            f"{field}: {file!r} is not a table; use a file that ends in one of {', '.join(TABLES)}"
        )
    if kind == "parquet":
        return load_files("parquet", [file], name=checksum([file]))
    return from_rows(
        list(
            _conll_rows(Path(file))
            if kind == "conll"
            else (row for _, row in read_rows(file, header))
        )
    )


def from_rows(rows: Sequence[dict[str, Any]]) -> datasets.Dataset:
    columns = {
        name: [row.get(name) for row in rows] for name in dict.fromkeys(chain.from_iterable(rows))
    }
    return datasets.Dataset.from_dict(columns, on_mixed_types="use_json")


def load_files(loader: str, files: Sequence[str], **options: Any) -> Any:
    """Call `datasets.load_dataset` for files; a `ReadError` if they cannot be read."""
    try:
        literal = [
            glob.escape(os.path.abspath(file)) for file in files
        ]  # `datasets` reads names as patterns
        return datasets.load_dataset(loader, data_files=literal, split="train", **options)
    except (datasets.exceptions.DatasetGenerationError, pa.ArrowInvalid, OSError) as error:
        named = ", ".join(map(repr, files[:3])) + ", …" * (len(files) > 3)
        raise ReadError(f"{named} cannot be read as {loader}: {_reason(error)}") from error


# --- Rows of a file --------------------------------------------------------------------------------------------------


def read_rows(file: str | Path, header: Sequence[str] = ()) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a JSON or csv file, each with the number of its first line (in a JSON list, of the row).

    A JSON file has an object a line, or is one object or one list of objects or of strings (texts). A `ReadError` for a
    row that is not an object, or has more or fewer cells than the header; for an unclosed quote; and for bytes that are
    neither UTF-8 nor UTF-16 with a byte-order mark.
    """
    file = Path(file)
    try:
        yield from (
            _csv_rows(file, header)
            if FORMATS.get(file.suffix.lower()) == "csv"
            else _json_rows(file)
        )
    except UnicodeDecodeError as error:
        raise ReadError(f"{str(file)!r} is not UTF-8 text: {error}") from None


def _encoding_of(file: str | Path) -> str:
    """UTF-16 if the file begins with a byte-order mark, as Excel writes it; else UTF-8."""
    with open(file, "rb") as stream:
        return (
            "utf-16"
            if stream.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
            else "utf-8-sig"
        )


def is_conll(file: str | Path) -> bool:
    """Whether a file has tagged words in columns: by its suffix, or because each of its first lines is blank or ends
    with a tag."""
    suffix = Path(file).suffix.lower()
    if suffix in CONLL or suffix not in (".txt", ".tsv") or not os.path.isfile(file):
        return suffix in CONLL
    with open(file, encoding=_encoding_of(file), errors="replace") as lines:
        found = [line.split() for line in islice(lines, 200)]
    found = [cells for cells in found if cells and cells[0] not in ("#", "-DOCSTART-")]
    return bool(found) and all(
        len(cells) > 1 and ENTITY_TAG.fullmatch(cells[-1]) for cells in found
    )


def _conll_rows(file: Path) -> Iterator[dict[str, list[str]]]:
    """Yield a row for each sentence. Columns stand between tabs or spaces: the first has the word, the last its tag.
    With four columns (CoNLL-2003) the middle ones are tags too; with ten (CoNLL-U) the columns have their own names."""
    names = {
        4: ("tokens", "pos_tags", "chunk_tags", "ner_tags"),
        10: ("", "tokens", "", "upos", "xpos"),
    }
    sentence: list[list[str]] = []
    width = 0
    with open(file, encoding=_encoding_of(file)) as lines:
        for number, line in enumerate(chain(lines, [""]), 1):
            cells = (
                [cell.strip() for cell in line.split("\t")]
                if "\t" in line.strip()
                else line.split()
            )
            is_word = (
                cells and len(cells) == width and ("\t" in line or ENTITY_TAG.fullmatch(cells[-1]))
            )
            if cells and cells[0].startswith("#") and not sentence and not is_word:
                continue  # a comment
            if cells and cells[0] != "-DOCSTART-":
                width = width or len(cells)
                if len(cells) != width or width < 2 or not all(cells):
                    use = "write a word and its tag in each line, as 'Anna B-PER', and an empty line between sentences"
                    raise ReadError(
                        f"{file}, line {number}: {len(cells)} columns instead of {max(width, 2)}; {use}"
                    )
                sentence += (
                    [cells] if width != 10 or cells[0].isdecimal() else []
                )  # no 1-2, no 1.1 of CoNLL-U
            elif sentence:
                columns = names.get(width, ("tokens", *[""] * (width - 2), "ner_tags"))
                yield {name: list(cells) for name, cells in zip(columns, zip(*sentence)) if name}
                sentence = []


def _csv_rows(file: Path, header: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    csv.field_size_limit(
        2**31 - 1
    )  # a cell may hold a document; by default it ends after 131,072 characters
    is_tsv, header, line = file.suffix.lower() == ".tsv", list(header), 1
    with open(file, encoding=_encoding_of(file), newline="") as lines:
        first = next((line for line in lines if not line.isspace()), "")
        lines.seek(0)
        delimiter = (
            "\t" if is_tsv else max(",;\t", key=first.count)
        )  # spreadsheets write ; where numbers have commas
        # strict: an unclosed quote is an error; otherwise all rows after it would become one cell
        rows = csv.reader(lines, strict=True, delimiter=delimiter)
        try:
            for row in rows:
                if row == header and line == 1:
                    raise ReadError(
                        f"columns: the first row of {str(file)!r} has these names; leave --columns out"
                    )
                # skip blank lines; but in a table of one column, a cell may be blank
                if len(row) > 1 or (row and (len(header) == 1 or row[0].strip())):
                    if header and len(row) != len(header):
                        use = "put a cell with a separator or a line break in quotes, and add missing cells"
                        raise ReadError(
                            f"{file}, line {line}: {len(row)} cells, but {len(header)} columns; {use}"
                        )
                    if is_tsv and any(
                        "\t" in cell for cell in row
                    ):  # several rows between two quotes in the text
                        raise ReadError(
                            f"{file}, line {line}: a cell of a tsv has a tab; {ENCLOSED}"
                        )
                    if header:
                        yield line, dict(zip(header, row))
                    elif len(set(row)) < len(row):
                        raise ReadError(
                            f"{file}, line {line}: two columns have the same name; rename one"
                        )
                    else:
                        header = row
                line = rows.line_num + 1
        except csv.Error as error:
            raise ReadError(f"{file}, line {line}: {error}; {ENCLOSED}") from None


def _json_rows(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with open(file, encoding=_encoding_of(file)) as lines:
        first = next((line.strip() for line in lines if not line.isspace()), "{}")
        lines.seek(0)
        is_whole = not (first.startswith("{") and first.endswith("}"))
        if is_whole:
            parsed = _parse(lines.read(), file)
            rows = enumerate(parsed if isinstance(parsed, list) else [parsed], 1)
        else:
            rows = (
                (number, _parse(line, file, number))
                for number, line in enumerate(lines, 1)
                if not line.isspace()
            )
        for number, row in rows:
            row = {"text": row} if is_whole and isinstance(row, str) else row
            if not isinstance(row, dict) or not row:
                where = f"{file}, {'row' if is_whole else 'line'} {number}"
                raise ReadError(f'{where}: not a JSON object with columns, such as {{"text": "…"}}')
            yield number, row


def _parse(text: str, file: Path, line: int | None = None) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ReadError(f"{file}, line {line or error.lineno}: not JSON: {error.msg}") from None


def checksum(files: Iterable[str], is_text: bool = False) -> str:
    """A checksum of the contents of files, by which their rows are cached. (A file may change and keep its date.) A
    ReadError for bytes that are not UTF-8, if the files are text."""
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        digest.update(file.encode(errors="surrogateescape") + b"\0")
        decoder, block = codecs.getincrementaldecoder("utf-8")(), b"..."
        with open(file, "rb") as stream:
            while block:
                block = stream.read(1 << 24)
                digest.update(block)
                try:
                    decoder.decode(block if is_text else b"", final=not block)
                except UnicodeDecodeError as error:
                    offset = stream.tell() - len(error.object) + error.start
                    raise ReadError(
                        f"{file!r} is not UTF-8 text: {error.reason} at offset {offset}"
                    ) from None
    return digest.hexdigest()


def read_text(path: str | Path) -> str:
    """The text of a UTF-8 file; a ReadError for other bytes."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ReadError(f"{str(path)!r} is not UTF-8 text: {error}") from None


# --- Files and the Hub -----------------------------------------------------------------------------------------------


def find_files(item: str, field: str = "data") -> list[str]:
    """The files of a path, a folder or a glob, sorted; an empty list for a name that may be a data set of the Hub. A
    ValueError if there are no files."""
    if os.path.isfile(item):
        return [item]
    if os.path.isdir(item):
        found = files_in(item, FORMATS)
    elif glob.has_magic(item):
        found = sorted(file for file in glob.glob(item, recursive=True) if os.path.isfile(file))
    else:
        _hub_name(item, field)
        return []
    if not found:
        raise ValueError(
            f"{field}: there is no file in {item!r}; use names that end in one of {', '.join(FORMATS)}"
        )
    return found


def files_in(folder: str | Path, suffixes: Collection[str]) -> list[str]:
    """All files under a folder with these suffixes, sorted, without hidden ones. Compressed files are reported."""
    names = sorted(glob.glob(os.path.join(glob.escape(str(folder)), "**"), recursive=True))
    packed = [Path(name).name for name in names if Path(name).suffix.lower() in COMPRESSED]
    if packed:
        print(
            f"{str(folder)!r}: {len(packed)} compressed files ({packed[0]!r}, …) are left out; unpack them to use them"
        )
    return [
        name for name in names if Path(name).suffix.lower() in suffixes and os.path.isfile(name)
    ]


def _hub_name(item: str, field: str) -> tuple[str, str | None]:
    """Split the name of a data set of the Hub into name and configuration; a ValueError for a missing file."""
    named = HUB_NAME.fullmatch(item)
    if named is None or Path(item).suffix.lower() in FORMATS:
        raise ValueError(f"{field}: {item!r} does not exist")
    return named["name"], named["config"]


def load_hub(item: str, field: str = "data", **options: Any) -> Any:
    """Call `datasets.load_dataset` for "owner/name" or "owner/name:config"; a ValueError if it is not found, cannot be
    reached, or lacks the configuration or split."""
    name, config = _hub_name(item, field)
    try:
        return datasets.load_dataset(name, config, **options)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{field}: {item!r} is neither a path nor a data set of the Hub: {_reason(error)}"
        ) from error


def _reason(error: BaseException) -> str:
    """The first line of the cause of an error of `datasets`."""
    cause = error.__cause__ or error
    return (str(cause).strip().splitlines() or [type(cause).__name__])[0]


# --- Columns ---------------------------------------------------------------------------------------------------------


def string_columns(table: DatasetOrStream | datasets.Features) -> list[str]:
    """The columns of plain strings."""
    strings = (datasets.Value("string"), datasets.Value("large_string"))
    return [
        name for name, feature in getattr(table, "features", table).items() if feature in strings
    ]


def to_number(cell: Any) -> float:
    """A cell as a number; NaN if it is not one."""
    try:
        return float(cell)
    except (TypeError, ValueError):
        return float("nan")


def with_numbers(parts: list[datasets.Dataset]) -> list[datasets.Dataset]:
    """Convert columns of text whose cells are numbers in all parts; blank cells become None."""
    for name in dict.fromkeys(chain.from_iterable(map(string_columns, parts))):
        holders = [number for number, part in enumerate(parts) if name in part.column_names]
        try:
            columns = [list(map(_number, parts[number][name])) for number in holders]
        except ValueError:
            continue
        kinds = {*map(type, chain.from_iterable(columns))} - {type(None)}
        for number, column in zip(holders if kinds else [], columns):
            part, feature = parts[number], datasets.Value("float64" if float in kinds else "int64")
            part = part.remove_columns(name).add_column(name, column, feature=feature)
            parts[number] = part.select_columns(parts[number].column_names)
    return parts


def _number(cell: str | None) -> int | float | None:
    """A cell as a number, if the number is written as the cell is: 01 and 3.10 may be codes, and are a ValueError."""
    for kind in (int, float):
        with suppress(ValueError):
            if cell and str(number := kind(cell)) == cell.strip() and abs(number) < 2**63:
                return number
    if cell and cell.strip():
        raise ValueError(f"{cell!r} is not a number")
    return None
