"""The sentences of documents."""

import re
from collections.abc import Iterator
from itertools import chain

import pyarrow as pa

# Where a line is cut into sentences: after the marks that end one, and after closing quotes before a capital.
SENTENCE_END = re.compile(
    r"(?<=[.!?…।۔؟።։။។。！？｡])\s+"
    r"|(?<=[.!?…][”’\"')])\s+(?=[A-Z\d“‘\"'(])"
    r"|(?<=[。！？｡])(?![”’」』）])"
)
BLANK_LINE = re.compile(r"\n\s*\n")  # a single line break may only wrap a line


def sentences_of(text: str) -> Iterator[str]:
    """Yield the sentences of a document. They may go over several lines of a paragraph, and are joined to one line."""
    for paragraph in BLANK_LINE.split(text):
        yield from filter(None, (" ".join(part.split()) for part in SENTENCE_END.split(paragraph)))


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
