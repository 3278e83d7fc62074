"""Documents cut into paragraphs and sentences."""

import re
from collections.abc import Iterator
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

# Where a line is cut into sentences: after the marks that end one, and after closing quotes before
# a capital.
SENTENCE_END = re.compile(
    r"(?<=[.!?…।۔؟።։။។。！？｡])\s+"
    r"|(?<=[.!?…][”’\"')])\s+(?=[A-Z\d“‘\"'(])"
    r"|(?<=[。！？｡])(?![”’」』）])"
)
BLANK_LINE = r"\n[ \t\r]*\n"  # between paragraphs of a text file
PARAGRAPH_END = re.compile(r"\n\s*\n")  # a single line break may only wrap a line


def sentences_of(text: str) -> Iterator[str]:
    """Yield the sentences of a document. They may go over several lines of a paragraph, and are
    joined to one line."""
    for paragraph in PARAGRAPH_END.split(text):
        yield from filter(None, (" ".join(part.split()) for part in SENTENCE_END.split(paragraph)))


def strip_blank(table: pa.Table) -> pa.Table:
    """Column `text`: without white space at the ends, and without blank documents."""
    text = table["text"].cast(pa.string())  # some rows of a stream may hold nothing but null
    text = pc.utf8_trim_whitespace(text)
    # null compares to null: dropped too
    return pa.table({"text": text.filter(pc.greater(pc.utf8_length(text), 0))})


def split_paragraphs(table: pa.Table) -> pa.Table:
    """Column `text`: split at lines of spaces too. (A paragraph of `datasets` ends at an empty line
    only.)"""
    parts = chain.from_iterable(re.split(BLANK_LINE, text) for text in table["text"].to_pylist())
    return strip_blank(pa.table({"text": pa.array(parts, pa.string())}))


def sentence_table(table: pa.Table) -> pa.Table:
    """Column `text`: every sentence a document of its own."""
    texts = (text for text in table["text"].to_pylist() if text)
    return pa.table({"text": pa.array(chain.from_iterable(map(sentences_of, texts)), pa.string())})


def split_sentences(text: str) -> list[str]:
    """The sentences of a document in which every line ends a sentence; blank ones are left out."""
    return [
        sentence
        for line in text.splitlines()
        for sentence in SENTENCE_END.split(line)
        if sentence.strip()
    ]
