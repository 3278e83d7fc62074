"""Pairs of texts made of documents: a title and its text, or passages that follow each other."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from datasets import Dataset

from .documents import Document
from .passages import split_passages


def pair_documents(
    documents: Sequence[Document], sources: Sequence[str], passage_words: int = 64
) -> tuple[Dataset, list[str]]:
    """Pairs of text that nobody judged, as `read_pairs` gives them, and the document of each. The
    `sources`: title (a document's title and its text), adjacent (passages of `passage_words`
    words that follow each other: Neelakantan et al. 2022, arXiv 2201.10005)."""
    first: list[str] = []
    second: list[str] = []
    groups: list[str] = []
    for source in sources:
        count = len(first)
        if source == "title":
            missing = "titles"
            pairs = _title_pairs(documents)
        elif source == "adjacent":
            missing = f"documents of more than {passage_words} words"
            pairs = _adjacent_pairs(documents, passage_words)
        else:
            raise ValueError(f"pairs_from: {source!r} is unknown; use title, adjacent, or both")
        for document, first_text, second_text in pairs:
            first.append(first_text)
            second.append(second_text)
            groups.append(document.text)
        if len(first) == count:
            raise ValueError(
                f"pairs_from: {source} needs {missing}, and there are none in the data"
            )
    return Dataset.from_dict({"first": first, "second": second}), groups


def _title_pairs(documents: Sequence[Document]) -> Iterator[tuple[Document, str, str]]:
    for document in documents:
        # A text that begins with its title is found by its letters: nothing is learned of what it
        # means.
        title = re.escape(document.title)
        text = re.sub(rf"\A{title}(?!\w)", "", document.text).strip()
        if re.search(r"\w", document.title) and text:
            yield document, document.title, text


def _adjacent_pairs(
    documents: Sequence[Document], passage_words: int
) -> Iterator[tuple[Document, str, str]]:
    for document in documents:
        for passage, next_passage in pairwise(split_passages(document.text, passage_words)):
            yield document, passage, next_passage
