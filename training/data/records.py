"""The records of one file: JSON, csv and tsv, or tagged words in columns (CoNLL).

A record is a line of a table, or a JSON object: a row is a row of tokens everywhere else.

The JSON and csv readers of `datasets` take the types of all columns from the first records, fail if
a later record has other types, and do not say in which line. So these files are parsed here, and
every error names file and line.
"""

import csv
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from .formats import CONLL_SUFFIXES, CSV_SUFFIXES

ENTITY_TAG = re.compile(r"O|[BIES]-.+")
DELIMITERS = (",", ";", "\t")  # spreadsheets write ; where numbers have commas
SAMPLE_LINES = 200  # the format of a file is guessed from so many lines
# Half of a character that UTF-16 writes in two, as JSON may write it.
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class ReadError(ValueError):
    """A file, or a record of it, that cannot be read; the message names the file and the line."""


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
        raise _encoding_error(file, error) from None


# --- Text ---


def detect_encoding(file: str | Path) -> str:
    """UTF-8, or a form of UTF-16 or UTF-32: the first four bytes tell them apart, by a byte-order
    mark (as Excel writes it) or by their zeros."""
    with open(file, "rb") as stream:
        encoding = json.detect_encoding(stream.read(4))
    return "utf-8-sig" if encoding == "utf-8" else encoding


def read_text(path: str | Path) -> str:
    """The text of a file in UTF-8 or UTF-16; a ReadError for other bytes."""
    try:
        return Path(path).read_text(encoding=detect_encoding(path))
    except UnicodeDecodeError as error:
        raise _encoding_error(path, error) from None


def _encoding_error(file: str | Path, error: UnicodeDecodeError) -> ReadError:
    """The error for bytes that are no text. Of UTF-8 it names the line of the first of them."""
    if not error.encoding.startswith("utf-8"):
        return ReadError(f"{str(file)!r} is not {error.encoding} text: {error.reason}")
    with open(file, "rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                line.decode()
            except UnicodeDecodeError as error_of_line:
                reason = error_of_line.reason
                return ReadError(
                    f"{str(file)!r} is not UTF-8 text: line {number}: {reason}; save it as UTF-8"
                )
    return ReadError(f"{str(file)!r} is not UTF-8 text: {error.reason}; save it as UTF-8")


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


# --- Tagged words (CoNLL) ---


def is_conll(file: str | Path) -> bool:
    """Whether a file has tagged words in columns: by its suffix, or because each of its first lines
    is blank or ends with a tag."""
    suffix = Path(file).suffix.lower()
    if suffix in CONLL_SUFFIXES:
        return True
    if suffix not in (".txt", ".tsv") or not os.path.isfile(file):
        return False
    has_words = False
    with open(file, encoding=detect_encoding(file), errors="replace") as lines:
        for line in islice(lines, SAMPLE_LINES):
            cells = line.split()
            if not cells or cells[0] in ("#", "-DOCSTART-"):
                continue
            if len(cells) == 1 or not ENTITY_TAG.fullmatch(cells[-1]):
                return False
            has_words = True
    return has_words


def conll_records(file: str | Path) -> Iterator[tuple[int, dict[str, list[str]]]]:
    """Yield a record for each sentence, with the line of its first word; see `_name_columns`.

    Columns stand between tabs or spaces. Comments before a sentence, and -DOCSTART-, are left out.
    """
    try:
        with open(file, encoding=detect_encoding(file)) as stream:
            lines = list(stream)
    except UnicodeDecodeError as error:
        raise _encoding_error(file, error) from None
    sentences = _read_sentences(str(file), lines)
    columns = _name_columns([words for _, words in sentences])
    for line, words in sentences:
        record = {}
        for name, cells in zip(columns, zip(*words)):
            if name:
                record[name] = list(cells)
        yield line, record


def _read_sentences(file: str, lines: Sequence[str]) -> list[tuple[int, list[list[str]]]]:
    """The sentences, each with the line of its first word: the columns of its words. All have the
    number of columns that most lines of the file have."""
    table = list(map(_split_columns, lines))
    width, tags = _usual_columns(table)
    sentences = []
    words: list[list[str]] = []
    for number, (line, cells) in enumerate(zip(lines, table), 1):
        if not cells or cells[0] == "-DOCSTART-":
            words = []
        elif words or not _is_comment(line, cells, width, tags):
            if len(cells) != width or width < 2 or not all(cells):
                raise ReadError(
                    f"{file}, line {number}: {len(cells)} columns instead of {max(width, 2)}; "
                    "write a word and its tag in each line, as 'Anna B-PER', and an empty line "
                    "between sentences"
                )
            if width == 10 and not cells[0].isdecimal():
                continue  # a word over several lines (1-2) or an empty node (1.1) of CoNLL-U
            if not words:
                sentences.append((number, words))
            words.append(cells)
    return sentences


def _usual_columns(table: Sequence[Sequence[str]]) -> tuple[int, set[str]]:
    """The number of columns of most lines, and what stands in the last one. Lines that begin with #
    count only where there are no others."""
    lines_of_words = []
    lines_with_marks = []
    for cells in table:
        if not cells or cells[0] == "-DOCSTART-":
            continue
        if cells[0].startswith("#"):
            lines_with_marks.append(cells)
        else:
            lines_of_words.append(cells)
    lines = lines_of_words or lines_with_marks
    if not lines:
        return 0, set()
    [(width, _)] = Counter(map(len, lines)).most_common(1)
    return width, {cells[-1] for cells in lines}


def _split_columns(line: str) -> list[str]:
    if "\t" in line.strip():
        return [cell.strip() for cell in line.split("\t")]
    return line.split()


def _is_comment(line: str, cells: Sequence[str], width: int, tags: set[str]) -> bool:
    """Whether a line that begins with # is a comment: it has not the columns of a word and its tag
    (`width` of them, the last one of `tags` or like them)."""
    if not cells[0].startswith("#"):
        return False
    if len(cells) != width:
        return True
    if cells[-1] in tags:
        return False
    if _are_entity_tags(tags):
        return not ENTITY_TAG.fullmatch(cells[-1])
    return cells[0] == "#"


def _are_entity_tags(tags: Iterable[str]) -> bool:
    return all(map(ENTITY_TAG.fullmatch, tags))


def _name_columns(sentences: Sequence[Sequence[Sequence[str]]]) -> tuple[str, ...]:
    """The names of the columns, "" for those that are not read. The first column has the words, or
    their numbers, with the words behind them; the last one has the tags.

    Some layouts are known by their number of columns: that of CoNLL-2003 has four, that of GermEval
    four after a number each (the last ones the tags and nested tags of entities), CoNLL-U's ten.
    """
    width = len(sentences[0][0]) if sentences else 2
    if width == 10:
        return ("", "tokens", "", "upos", "xpos", "", "", "", "", "")
    is_numbered = width > 2 and all(map(_counts_words, sentences))
    if is_numbered and width == 4:
        third_column = {cells[2] for cells in chain.from_iterable(sentences)}
        if _are_entity_tags(third_column):
            return ("", "tokens", "ner_tags", "nested_ner_tags")
        return ("", "tokens", "pos_tags", "ner_tags")
    if is_numbered:
        return ("", "tokens", *[""] * (width - 3), "ner_tags")
    if width == 4:
        return ("tokens", "pos_tags", "chunk_tags", "ner_tags")
    return ("tokens", *[""] * (width - 2), "ner_tags")


def _counts_words(words: Sequence[Sequence[str]]) -> bool:
    """Whether the first column numbers the words of a sentence, from 0 or 1."""
    numbers = [cells[0] for cells in words]
    from_zero = list(map(str, range(len(words) + 1)))
    return numbers in (from_zero[:-1], from_zero[1:])
