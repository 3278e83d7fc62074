"""Documents of files and tables: a title, perhaps, and a text."""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from datasets import Dataset

from ...data.formats import TABLE_SUFFIXES
from ...data.sources import files_in, find_files
from ...data.tables import check_one_split, name_of_data, read_table
from ...data.text_files import read_text
from .texts import is_table, texts_of

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
        check_one_split(source)
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
