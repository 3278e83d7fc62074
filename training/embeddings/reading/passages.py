"""Passages: documents in parts of which each is found by itself."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from datasets import Dataset

from ...data.sentences import sentences_across_lines
from .documents import read_documents

BYTES_OF_A_WORD = 6  # with its space, as in English; in Chinese, two letters


@dataclass(frozen=True)
class Passage:
    """What is found: its name, and its text (with the title before it, if it has one)."""

    id: str
    text: str


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
