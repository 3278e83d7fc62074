"""Pairs to train an embedding model on, from text that nobody judged (`--pairs_from`).

- title: a document's title and its text.
- adjacent: passages of a document that follow each other (Neelakantan et al. 2022, arXiv 2201.10005).
- dropout: a passage and itself, which dropout makes two vectors of (SimCSE: Gao et al. 2021, arXiv 2104.08821).

Every other text of the batch is a negative.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from datasets import Dataset

from ..data.sentences import BLANK_LINE, split_sentences
from ..data.tables import read_table, read_text
from .data import UNSPACED, is_table, split_words, text_files, texts_of

KINDS = ("title", "adjacent", "dropout")


@dataclass(frozen=True)
class Document:
    title: str
    text: str


def read_documents(sources: Sequence[str | Path]) -> list[Document]:
    """The documents of `text_files`: the rows of a table (columns `text`, perhaps `title`), or what blank lines divide
    in a text file, where the first of several lines is the title. A ValueError for no such file, or no text in them."""
    documents: list[Document] = []
    for _, path in text_files(sources):
        if is_table(path):
            table = read_table(path)
            rows = zip(table, texts_of(table, "text", str(path)))
            documents += [Document(str(row.get("title") or "").strip(), text.strip()) for row, text in rows]
        else:
            for block in BLANK_LINE.split(read_text(path)):
                title, _, text = block.strip().partition("\n")
                documents.append(Document(title.strip(), text.strip()) if text else Document("", title.strip()))
    documents = [document for document in documents if document.text]
    if not documents:
        raise ValueError(f"data: no text in {', '.join(map(str, sources)) or 'nothing'}")
    return documents


def cut_into_passages(text: str, words: int) -> list[str]:
    """Whole sentences, up to `words` words a passage; a longer sentence is one by itself."""
    passages: list[list[str]] = []
    for sentence in split_sentences(text):
        new = split_words(sentence)
        if not passages or len(passages[-1]) + len(new) > words:
            passages.append([])
        passages[-1] += new
    return ["".join(passage).strip() for passage in passages]


def without_title(document: Document) -> str:
    """Its text without the title that it begins with: in any spacing, and in any case if that has several words, since
    "us" is no "US"; never a part of a word."""
    words = document.title.split()
    title, case = r"\s+".join(map(re.escape, words)), re.IGNORECASE if len(words) > 1 else 0
    return re.sub(rf"\A{title}(?!(?![{UNSPACED}])\w)", "", document.text, flags=case).strip()


def make_pairs(documents: Sequence[Document], kinds: Sequence[str], words: int, where: str = "the data") -> Dataset:
    """Pairs of each of the `kinds`, as `read_pairs` gives them, in passages of at most `words` words; none of a kind is
    a ValueError that says why, and `where`."""
    pairs: list[tuple[str, str]] = []
    for kind in kinds:
        if kind not in KINDS:
            raise ValueError(f"pairs_from: {kind!r} is unknown; use {', '.join(KINDS)}, or several of them")
        if kind == "title":
            found = [(each.title, without_title(each)) for each in documents if each.title]
            found = [(title, text) for title, text in found if text and re.search(r"\w", title)]
        else:
            passages = (cut_into_passages(each.text, words) for each in documents)
            pairs_of = pairwise if kind == "adjacent" else lambda of_one: zip(of_one, of_one)
            found = [pair for of_one in passages for pair in pairs_of(of_one)]
        if not found:
            missing = "titles" if kind == "title" else f"documents of more than {words} words (--passage_words)"
            raise ValueError(f"pairs_from: {kind} needs {missing}, and there are none in {where}")
        pairs += found
    return Dataset.from_dict({"first": [first for first, _ in pairs], "second": [second for _, second in pairs]})
