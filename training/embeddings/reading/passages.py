"""Documents of files and tables, and their passages."""

import os
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from datasets import Dataset

from ...data.formats import TABLE_SUFFIXES
from ...data.records import read_text
from ...data.sentences import sentences_across_lines
from ...data.tables import files_in, find_files, read_table
from .texts import is_table, name_of_data, texts_of

BYTES_OF_A_WORD = 6  # with its space, as in English; in Chinese, two letters
# A heading of Markdown: "# Title", or a line with a line of = or - below it.
HEADING = re.compile(
    r"(#{1,6}[ \t]+(?P<marked>[^\n]+?)[ \t]*#*|(?P<underlined>[^\n]+)\n[ \t]*(=+|-{3,}))"
    r"[ \t]*(\n|\Z)"
)


class Document(NamedTuple):
    """A row of a table, or what stands between blank lines in a text file."""

    id: str
    title: str
    text: str
    is_row: bool = True


@dataclass(frozen=True)
class Passage:
    """What is found: its name, and its text (with the title before it, if it has one)."""

    id: str
    text: str


def read_documents(sources: Sequence[str | Path | Dataset]) -> list[Document]:
    """The documents of files, folders and tables in memory, without those that have no text.

    The rows of tables have the columns `text`, and perhaps `_id` and `title`. In a text file, the
    title is the heading before the text, or else the first of several lines. Files are named as
    from the folder that all lie in.
    """
    suffixes = (".txt", ".md", *TABLE_SUFFIXES)
    files = []
    documents: list[Document] = []
    for source in sources:
        if isinstance(source, Dataset):
            rows = read_table(source, ["text"])
            documents += documents_of_rows(source, "row", name_of_data(rows))
        elif os.path.isdir(source):
            files += files_in(source, suffixes)
        else:
            files += find_files(str(source))
    if not files and not documents:
        raise ValueError(
            f"data: there is no file of {', '.join(suffixes)} in {name_of_data(sources)}"
        )
    folders = [os.path.dirname(os.path.abspath(file)) for file in files]
    root = os.path.commonpath(folders) if folders else ""
    for file in filter(os.path.getsize, files):
        name = os.path.relpath(os.path.abspath(file), root)
        if is_table(file):
            documents += documents_of_rows(read_table(file), name, file)
        else:
            documents += _documents_of_text(read_text(file), name)
    documents = [document for document in documents if document.text]
    if not documents:
        raise ValueError(f"data: there is no text in {name_of_data(sources)}")
    return documents


def documents_of_rows(table: Dataset, name: str, table_name: str) -> Iterator[Document]:
    texts = texts_of(table, "text", table_name)
    for number, (row, text) in enumerate(zip(table, texts), 1):
        row_id = row.get("_id")
        has_id = row_id not in (None, "")
        title = (row.get("title") or "").strip()
        yield Document(str(row_id) if has_id else f"{name}:{number}", title, text.strip())


def _documents_of_text(text: str, name: str) -> Iterator[Document]:
    """What stands between blank lines. A heading of Markdown is the title of what follows it; one
    that nothing follows is left out, unless the file has nothing else."""
    line = 1
    headings: list[str] = []
    headings_line = 1
    has_text = False
    for block in re.split(r"(\n\s*\n)", text):
        block_headings, body = split_headings(block.strip())
        if block_headings and not headings:
            headings_line = line
        headings += block_headings
        first_line, _, other_lines = body.partition("\n")
        if headings and body:
            title = " / ".join(headings)
            yield Document(f"{name}:{headings_line}", title, body, is_row=False)
            headings = []
        elif other_lines:
            yield Document(f"{name}:{line}", first_line, other_lines, is_row=False)
        elif body:
            yield Document(f"{name}:{line}", "", body, is_row=False)
        has_text |= bool(body)
        line += block.count("\n")
    if headings and not has_text:
        yield Document(f"{name}:{headings_line}", "", " / ".join(headings), is_row=False)


def split_headings(block: str) -> tuple[list[str], str]:
    """The headings that a block of text begins with, without their marks, and what follows."""
    headings = []
    while heading := HEADING.match(block):
        headings.append(heading["marked"] or heading["underlined"])
        block = block[heading.end() :].strip()
    return headings, block


def read_passages(
    sources: Sequence[str | Path | Dataset], passage_words: int = 150
) -> list[Passage]:
    """The documents, those of text files in parts of `passage_words` words."""
    passages: list[Passage] = []
    for document in read_documents(sources):
        if document.is_row:
            parts = [f"{document.title} {document.text}".strip()]
        else:
            parts = split_passages(document.text, passage_words, document.title)
        for number, part in enumerate(parts, 1):
            passage_id = document.id if number == 1 else f"{document.id}.{number}"
            passages.append(Passage(passage_id, part))
    return passages


def split_passages(text: str, passage_words: int, title: str = "") -> list[str]:
    """Sentences together in up to `passage_words` words of `BYTES_OF_A_WORD`. A longer sentence is
    cut. The first passage begins with the title, which is never one alone."""
    max_bytes = BYTES_OF_A_WORD * passage_words
    if len(title.encode()) > max_bytes // 2:  # a long first line, which may be cut as all text
        text = f"{title}\n\n{text}"
        title = ""
    passages = [title]
    for sentence in sentences_across_lines(text):
        room = max_bytes
        if passages == [title]:
            room -= len(title.encode())
        width = max(1, room * len(sentence) // len(sentence.encode()))
        for part in textwrap.wrap(sentence, width):
            joined = f"{passages[-1]} {part}".strip()
            if passages != [title] and len(joined.encode()) > max_bytes:
                passages.append(part)
            else:
                passages[-1] = joined
    return passages
