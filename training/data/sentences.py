"""The sentences of documents."""

import re
from collections.abc import Iterator
from itertools import chain

import datasets
from tqdm.auto import tqdm

# Where a line is cut into sentences: behind the marks that end one.
SENTENCE_END = re.compile(r"(?<=[.!?…。！？।])\s+|(?<=[。！？])")
BLANK_LINE = re.compile(r"\n\s*\n")  # a single line break may be nothing but a full line


def sentences(documents: datasets.Dataset) -> Iterator[str]:
    """The sentences of all documents in their order, each on one line, with a progress bar."""
    texts = chain.from_iterable(batch["text"] for batch in documents.iter(1000))
    for text in tqdm(texts, desc="Reading", total=len(documents), unit=" documents", leave=False, delay=1):
        for paragraph in BLANK_LINE.split(text):
            yield from filter(None, (" ".join(part.split()) for part in SENTENCE_END.split(paragraph)))


def split_sentences(text: str) -> list[str]:
    """The sentences of a document: its lines, cut behind the marks that end a sentence; none of them blank."""
    return [sentence for line in text.splitlines() for sentence in SENTENCE_END.split(line) if sentence.strip()]
