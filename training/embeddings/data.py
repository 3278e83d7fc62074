"""What embedding models read: lines, documents and their passages, pairs of texts, retrieval folders.

A retrieval folder is laid out as BEIR's (Thakur et al. 2021, arXiv 2104.08663): corpus.jsonl (_id, text, perhaps
title), queries_SPLIT.jsonl (_id, text), qrels_SPLIT.csv or .tsv, or qrels/SPLIT.tsv (query-id, corpus-id, score);
without SPLIT where one is for all. Errors name the file and the row, counted from 1 without a header.
"""

import math
import os
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from datasets import Dataset, DatasetDict

from ..data.rows import read_text
from ..data.sentences import sentences_of
from ..data.tables import TABLES, files_in, find_files, read_table, to_number

Source = str | Path | Dataset | DatasetDict  # of a table


def name_of(data: Any) -> str:
    """Data in words: its paths and Hub names."""
    sources = data if isinstance(data, (list, tuple)) else [data]
    return ", ".join(
        "the data set" if isinstance(x, (Dataset, DatasetDict)) else str(x) for x in sources
    )


def is_table(file: str | Path) -> bool:
    return Path(file).suffix.lower() in TABLES


def texts_of(table: Dataset, column: str, where: str, blank: bool = True) -> list[str]:
    """A column of texts; a ValueError for a row that has none, or (unless `blank`) an empty one."""
    texts = table.select_columns(column)[column][:]
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str) or not (blank or text.strip()):
            raise ValueError(f"{where}, row {number}: {column}={text!r} is not text")
    return texts


def numbers_of(table: Dataset, column: str, where: str) -> list[float]:
    """A column of numbers from 0 on, or texts of such."""
    numbers = list(map(to_number, table[column]))
    for number, value in enumerate(numbers, 1):
        if not 0 <= value < math.inf:
            raise ValueError(f"{where}, row {number}: {column} is {value}; use a number, 0 or more")
    return numbers


def read_lines(file: str | Path) -> list[str]:
    """The lines of a text file, or of stdin ("-"), empty ones too, so that they keep their numbers."""
    text = sys.stdin.read() if file == "-" else read_text(file)
    if not text.strip():
        raise ValueError(f"there is no text in {'stdin' if file == '-' else repr(str(file))}")
    # by line feeds alone: `splitlines` also cuts at form feeds, U+2028 and others, where no editor counts a line
    return text.removesuffix("\n").split("\n")


# --- Documents and passages ------------------------------------------------------------------------------------------


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


def read_documents(sources: Sequence[str | Path]) -> list[Document]:
    """The documents of files and folders, without those that have no text.

    The rows of tables have the columns `text`, and perhaps `_id` and `title`. In a text file, the first of several
    lines is the title. Files are named as from the folder that all lie in.
    """
    known = (".txt", ".md", *TABLES)
    found = (files_in(x, known) if os.path.isdir(x) else find_files(str(x)) for x in sources)
    files = [file for each in found for file in each]
    if not files:
        raise ValueError(f"data: there is no file of {', '.join(known)} in {name_of(sources)}")
    root = os.path.commonpath([os.path.dirname(os.path.abspath(file)) for file in files])
    documents: list[Document] = []
    for file in filter(os.path.getsize, files):
        name = os.path.relpath(os.path.abspath(file), root)
        documents += (
            _rows(read_table(file), name, file)
            if is_table(file)
            else _blocks(read_text(file), name)
        )
    documents = [document for document in documents if document.text]
    if not documents:
        raise ValueError(f"data: there is no text in {name_of(sources)}")
    return documents


def _rows(table: Dataset, name: str, where: str) -> Iterator[Document]:
    for number, (row, text) in enumerate(zip(table, texts_of(table, "text", where)), 1):
        given = row.get("_id")
        named = f"{name}:{number}" if given in (None, "") else str(given)
        yield Document(named, (row.get("title") or "").strip(), text.strip())


def _blocks(text: str, name: str) -> Iterator[Document]:
    line = 1
    for block in re.split(r"(\n\s*\n)", text):
        first, _, rest = block.strip().partition("\n")
        yield Document(f"{name}:{line}", first if rest else "", rest or first, is_row=False)
        line += block.count("\n")


def read_passages(sources: Sequence[str | Path], words: int = 150) -> list[Passage]:
    """The documents, those of text files in parts of `words` words."""
    passages: list[Passage] = []
    for document in read_documents(sources):
        text = f"{document.title} {document.text}".strip()
        parts = (
            [text]
            if document.is_row
            else split_passages(f"{document.title}\n\n{document.text}", words)
        )
        names = [document.id, *(f"{document.id}.{number}" for number in range(2, len(parts) + 1))]
        passages += map(Passage, names, parts)
    return passages


def split_passages(text: str, words: int) -> list[str]:
    """Sentences together in up to `words` words of six bytes, as they are long in English; in Chinese, two letters are
    one. A longer sentence is cut."""
    most, passages = 6 * words, [""]
    for sentence in sentences_of(text):
        for part in textwrap.wrap(sentence, max(1, most * len(sentence) // len(sentence.encode()))):
            joined = f"{passages[-1]} {part}".strip()
            if passages[-1] and len(joined.encode()) > most:
                passages.append(part)
            else:
                passages[-1] = joined
    return passages


# --- Retrieval folders -----------------------------------------------------------------------------------------------


@dataclass
class Retrieval:
    """Queries, passages, and which of them belong together: `relevant[query id][passage id]` is the grade."""

    passages: list[Passage]
    queries: dict[str, str]  # id: text
    relevant: dict[str, dict[str, float]]
    ignore_identical_ids: bool = (
        False  # a query is not found as a passage (that is not relevant to itself)
    )


def read_retrieval(folder: str | Path, split: str = "test", field: str = "data") -> Retrieval:
    """The queries of `split` that have a relevant passage, with the whole corpus. A ValueError for a missing file, an
    id that occurs twice, and a judgement of one that is not there; `field` is the argument's name."""
    root = Path(folder)

    def find(*names: str) -> str:
        there = [str(root / name) for name in names if (root / name).is_file()]
        if not there:
            raise ValueError(
                f"{field}: {str(folder)!r} is not a retrieval folder: it has none of {', '.join(names)}"
            )
        return there[0]

    corpus_file, queries_file = (
        find("corpus.jsonl"),
        find(f"queries_{split}.jsonl", "queries.jsonl"),
    )
    judged_file = find(
        *(
            f"qrels{stem}{end}"
            for stem in (f"_{split}", f"/{split}", "")
            for end in (".csv", ".tsv")
        )
    )
    corpus = [
        Passage(x.id, f"{x.title} {x.text}".strip())
        for x in _rows(read_table(corpus_file), "", corpus_file)
    ]
    queries = read_table(queries_file, ["_id", "text"])
    texts = dict(
        zip(map(str, queries["_id"]), texts_of(queries, "text", queries_file, blank=False))
    )
    ids = {passage.id for passage in corpus}
    if len(ids) < len(corpus) or len(texts) < len(queries):
        raise ValueError(
            f"{corpus_file if len(ids) < len(corpus) else queries_file}: several rows have the same _id"
        )
    judged = read_table(judged_file, ["query-id", "corpus-id", "score"])
    relevant: dict[str, dict[str, float]] = {}
    rows = zip(
        map(str, judged["query-id"]), map(str, judged["corpus-id"]), map(to_number, judged["score"])
    )
    for number, (query, passage, grade) in enumerate(rows, 1):
        if query not in texts or passage not in ids or not math.isfinite(grade):
            row = f"query-id={query!r}, corpus-id={passage!r}, score={grade}"
            raise ValueError(f"{judged_file}, row {number}: {row}: an unknown id, or no number")
        relevant.setdefault(query, {})[passage] = grade
    relevant = {query: graded for query, graded in relevant.items() if max(graded.values()) > 0}
    if not relevant:
        raise ValueError(f"{judged_file}: no query has a relevant passage (a score above 0)")
    return Retrieval(
        corpus, {name: text for name, text in texts.items() if name in relevant}, relevant
    )


# --- Pairs of texts --------------------------------------------------------------------------------------------------

# What columns are guessed from: the first and the second text, then the negative or the score.
FIRST = ("query", "anchor", "question", "sentence1", "text1", "premise")
SECOND = ("positive", "passage", "answer", "sentence2", "text2", "document", "text")
THIRD = ("negative", "hard_negative")
SCORE = ("score", "similarity", "label")


def read_pairs(
    data: Source | Sequence[Source],
    columns: Sequence[str] = (),
    field: str = "data",
    split: str = "train",
) -> Dataset:
    """Texts that belong together, of tables or data sets whose `columns` are two texts, then perhaps a negative or a
    score (by default guessed).

    Returns:
        The columns `first` and `second`; perhaps `third`, texts that do not belong to the first ones, or `label`, how
        much the two belong together: from 0 to 1, divided by the largest score if that is above 1.
    """
    sources = [*data] if isinstance(data, (list, tuple)) else [data]
    parts = [
        _pairs(read_table(each, field=field, split=split), columns, name_of(each))
        for each in sources
    ]
    if len({tuple(part) for part in parts}) != 1:
        raise ValueError(
            f"{field}: {name_of(sources)!r}: give tables, all with the same kinds of columns"
        )
    whole = {name: [value for part in parts for value in part[name]] for name in parts[0]}
    if "label" in whole:
        largest = max(1.0, *whole["label"])
        whole["label"] = [score / largest for score in whole["label"]]
    return Dataset.from_dict(whole)


def _pairs(table: Dataset, columns: Sequence[str], where: str) -> dict[str, list]:
    given, names = table.column_names, list(columns or ())
    if not names:
        found = [
            [name for name in guesses if name in given][:1]
            for guesses in (FIRST, SECOND, THIRD + SCORE)
        ]
        names = [name for each in found for name in each]
        if not found[0] or not found[1]:
            use = (
                "name them, or call them query, positive[, negative] or sentence1, sentence2, score"
            )
            raise ValueError(
                f"columns: cannot be guessed from {', '.join(given)} of {where!r}; {use}"
            )
    if len(names) not in (2, 3):
        raise ValueError(
            f"columns: {' '.join(names)}: name two texts, then perhaps a negative or a score"
        )
    pairs = {
        role: texts_of(table, name, where, blank=False)
        for role, name in zip(("first", "second"), names)
    }
    for name in names[2:]:  # a score, or a negative; in csv and tsv a number is a text
        if name in SCORE or (
            name in given and name not in THIRD and math.isfinite(to_number(table[name][0]))
        ):
            pairs["label"] = numbers_of(table, name, where)
        else:
            pairs["third"] = texts_of(table, name, where, blank=False)
    return pairs


def make_pairs(
    documents: Sequence[Document], kinds: Sequence[str], words: int = 64
) -> tuple[Dataset, list[str]]:
    """Pairs of text that nobody judged, as `read_pairs` gives them, and the document of each. The `kinds`: title (a
    document's title and its text), adjacent (passages of `words` words that follow each other: Neelakantan et al. 2022,
    arXiv 2201.10005)."""
    pairs: list[tuple[str, str, str]] = []
    for kind in kinds:
        if kind == "title":
            named = [x for x in documents if re.search(r"\w", x.title)]
            # A text that begins with its title is found by its letters: nothing is learned of what it means.
            texts = [re.sub(rf"\A{re.escape(x.title)}(?!\w)", "", x.text).strip() for x in named]
            found = [(x.title, text, x.text) for x, text in zip(named, texts) if text]
        elif kind == "adjacent":
            found = [
                (*pair, x.text)
                for x in documents
                for pair in pairwise(split_passages(x.text, words))
            ]
        else:
            raise ValueError(f"pairs_from: {kind!r} is unknown; use title, adjacent, or both")
        if not found:
            missing = "titles" if kind == "title" else f"documents of more than {words} words"
            raise ValueError(f"pairs_from: {kind} needs {missing}, and there are none in the data")
        pairs += found
    first, second, groups = map(list, zip(*pairs))
    return Dataset.from_dict({"first": first, "second": second}), groups


def read_task(
    source: Source, columns: Sequence[str], split: str, field: str = "data"
) -> Dataset | Retrieval:
    """What a model is measured on: `read_retrieval` of a folder, `read_pairs` of all else."""
    if isinstance(source, (str, Path)) and Path(source).is_dir():
        return read_retrieval(source, split, field)
    return read_pairs(source, columns, field, split)
