"""Tagged words in columns (CoNLL): a word and its tags a line, a blank line between sentences."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

from .formats import CONLL_SUFFIXES
from .text_files import ReadError, detect_encoding, encoding_error

ENTITY_TAG = re.compile(r"O|[BIES]-.+")
SAMPLE_LINES = 200  # whether a file has tagged words is told by so many lines


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
        raise encoding_error(file, error) from None
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
