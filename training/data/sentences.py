"""The sentences of documents."""

import re
from collections.abc import Iterator
from itertools import chain

import pyarrow as pa

# Where a line is cut into sentences: behind the marks that end one, and what closes there before a capital.
SENTENCE_END = re.compile(
    r"(?<=[.!?…।۔؟።։။។。！？｡])\s+"
    r"|(?<=[.!?…][”’\"')])\s+(?=[A-Z\d“‘\"'(])"
    r"|(?<=[。！？｡])(?![”’」』）])"
)
BLANK_LINE = re.compile(r"\n\s*\n")  # a single line break may be nothing but a full line


def sentences_of(text: str) -> Iterator[str]:
    """The sentences of a document, each on one line."""
    for paragraph in BLANK_LINE.split(text):
        yield from filter(None, (" ".join(part.split()) for part in SENTENCE_END.split(paragraph)))


def sentence_table(table: pa.Table) -> pa.Table:
    """Column `text`: every sentence a document of its own."""
    texts = (text for text in table["text"].to_pylist() if text)
    return pa.table({"text": pa.array(chain.from_iterable(map(sentences_of, texts)), pa.string())})


def split_sentences(text: str) -> list[str]:
    """The sentences of a document: its lines, cut behind the marks that end a sentence; none of them blank."""
    return [sentence for line in text.splitlines() for sentence in SENTENCE_END.split(line) if sentence.strip()]
