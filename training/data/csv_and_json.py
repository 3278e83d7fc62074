"""The records of a file of JSON, csv or tsv.

A record is a line of a table, or a JSON object: a row is a row of tokens everywhere else.

The JSON and csv readers of `datasets` take the types of all columns from the first records, fail if
a later record has other types, and do not say in which line. So these files are parsed here, and
every error names file and line.
"""

import csv
import json
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from .formats import CSV_SUFFIXES
from .text_files import ReadError, detect_encoding, encoding_error

DELIMITERS = (",", ";", "\t")  # spreadsheets write ; where numbers have commas
SAMPLE_LINES = 200  # the delimiter is guessed from so many lines
# Half of a character that UTF-16 writes in two, as JSON may write it.
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def read_records(
    file: str | Path, header: Sequence[str] = ()
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the records of a JSON or csv file, each with the number of its first line (in a JSON
    list, of the record).

    A JSON file has an object a line, or is one object or one list of objects or of strings (texts).

    Args:
        header: The column names of a csv or tsv file without a header row.

    Raises:
        ReadError: a record is not an object, or has more or fewer cells than the header; a quote is
            not closed; or the bytes are not text, see `detect_encoding`.
    """
    file = Path(file)
    try:
        if file.suffix.lower() in CSV_SUFFIXES:
            yield from _csv_records(file, header)
        else:
            yield from _json_records(file)
    except UnicodeDecodeError as error:
        raise encoding_error(file, error) from None


# --- csv and tsv ---


def _csv_records(file: Path, header: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    csv.field_size_limit(2**31 - 1)  # a cell may hold a document; the default is 131,072 characters
    is_tsv = file.suffix.lower() == ".tsv"
    columns = list(header)
    line = 1
    with open(file, encoding=detect_encoding(file), newline="") as lines:
        delimiter = "\t"
        if not is_tsv:
            delimiter = _guess_delimiter(list(islice(lines, SAMPLE_LINES)), len(header))
            lines.seek(0)
        # strict: an unclosed quote is an error; otherwise all after it would become one cell
        records = csv.reader(lines, strict=True, delimiter=delimiter)
        try:
            for cells in records:
                if not _is_blank(cells, len(columns)):
                    _check_cells(cells, columns, is_tsv, f"{file}, line {line}")
                    if columns:
                        yield line, dict(zip(columns, cells))
                    else:
                        columns = cells
                line = records.line_num + 1
        except csv.Error as error:
            raise ReadError(
                f"{file}, line {line}: {error}; a cell that begins with a quote must end with one; "
                'write quotes inside of it twice, as "a ""b"" c"'
            ) from None


def _guess_delimiter(sample: Sequence[str], num_columns: int) -> str:
    """The delimiter by which most records of the sample have as many cells as there are named
    columns (`num_columns` > 0), or else as the first one has. A mark inside of texts does not occur
    in so many records equally often."""
    best = DELIMITERS[0]
    best_fit = (0, 0)
    for delimiter in DELIMITERS:
        widths = _widths(sample, delimiter)
        if widths:
            width = num_columns or widths[0]
            fit = (widths.count(width), width)
            if width > 1 and fit > best_fit:
                best = delimiter
                best_fit = fit
    return best


def _widths(lines: Sequence[str], delimiter: str) -> list[int]:
    """The number of cells of each record, as far as the lines can be read with this delimiter."""
    widths = []
    try:
        for cells in csv.reader(lines, strict=True, delimiter=delimiter):
            if not _is_blank(cells, num_columns=0):
                widths.append(len(cells))
    except csv.Error:
        pass
    return widths


def _is_blank(cells: Sequence[str], num_columns: int) -> bool:
    """Whether a record is a blank line. In a table of one column it is one whose cell is blank."""
    if len(cells) > 1:
        return False
    if not cells:
        return True
    return num_columns != 1 and not cells[0].strip()


def _check_cells(cells: Sequence[str], columns: Sequence[str], is_tsv: bool, location: str) -> None:
    """Refuse a record that does not fit the columns, or a header (`columns` is empty) with a
    repeated name."""
    if not columns and len(set(cells)) < len(cells):
        raise ReadError(f"{location}: two columns have the same name; rename one")
    if columns and len(cells) != len(columns):
        raise ReadError(
            f"{location}: {len(cells)} cells, but {len(columns)} columns; put a cell with a "
            "separator or a line break in quotes, and add missing cells"
        )
    # a tab in a cell stands for several records between two quotes in the text
    if is_tsv and any("\t" in cell for cell in cells):
        raise ReadError(
            f"{location}: a cell of a tsv has a tab; a cell that begins with a quote must end with "
            'one; write quotes inside of it twice, as "a ""b"" c"'
        )


# --- JSON ---


def _json_records(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with open(file, encoding=detect_encoding(file)) as lines:
        first_line = "{}"  # of a file without any: it has no records
        for line in lines:
            if not line.isspace():
                first_line = line.strip()
                break
        lines.seek(0)
        if first_line.startswith("{") and first_line.endswith("}"):
            yield from _json_lines(file, lines)
        else:
            yield from _json_document(file, lines.read())


def _json_lines(file: Path, lines: Iterator[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The records of a file with an object a line, each with the number of its line."""
    for number, line in enumerate(lines, 1):
        if not line.isspace():
            record = _parse_json(line, file, line=number)
            _check_record(record, f"{file}, line {number}", SURROGATE.search(line) is not None)
            yield number, record


def _json_document(file: Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The records of a file that is one object or one list, each with its number in the list."""
    content = _parse_json(text, file)
    records = content if isinstance(content, list) else [content]
    has_surrogates = SURROGATE.search(text) is not None
    for number, record in enumerate(records, 1):
        if isinstance(record, str):
            record = {"text": record}
        _check_record(record, f"{file}, row {number}", has_surrogates)
        yield number, record


def _parse_json(text: str, file: Path, line: int | None = None) -> Any:
    """The value that a text writes: the whole file, or the line with this number."""
    location = f"{file}, line {line}" if line else str(file)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = line or error.lineno
        raise ReadError(f"{file}, line {line}: not JSON: {error.msg}") from None
    except RecursionError:
        raise ReadError(f"{location}: lists or objects are nested too deep") from None
    except ValueError as error:  # Python reads no whole numbers of more than 4,300 digits
        raise ReadError(f"{location}: {error}") from None


def _check_record(record: Any, location: str, has_surrogates: bool) -> None:
    """Refuse what is no object with columns. `has_surrogates`: halves of characters may be in
    it."""
    if not isinstance(record, dict) or not record:
        raise ReadError(f'{location}: not a JSON object with columns, such as {{"text": "…"}}')
    if has_surrogates:
        try:
            json.dumps(record, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = error.object[error.start : error.start + 1]
            raise ReadError(
                f"{location}: {half!r} is half of a character; write both halves, or leave it out"
            ) from None
