"""Sentences of documents."""

from __future__ import annotations

import re

# Where a line is cut into sentences: behind the marks that end one.
SENTENCE_END = re.compile(r"(?<=[.!?…。！？।])\s+|(?<=[。！？])")


def split_sentences(text: str) -> list[str]:
    """The sentences of a document: its lines, cut behind the marks that end a sentence; none of them blank."""
    return [sentence for line in text.splitlines() for sentence in SENTENCE_END.split(line) if sentence.strip()]
