"""What the commands of search read: rows of files, pairs to train on, passages, and retrieval folders.

A retrieval folder is laid out as BEIR's (Thakur et al. 2021, arXiv 2104.08663): corpus.jsonl (_id, text, perhaps
title), queries_SPLIT.jsonl (_id, text), qrels_SPLIT.csv or .tsv, or qrels/SPLIT.tsv (query-id, corpus-id, score);
without SPLIT where one is for all. Every error names the file and the row, counted from 1 without a header.
"""

from __future__ import annotations

import csv
import io
import json
import math
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets import Dataset

from ..data.tables import ENCLOSED, hub_name, load_files, load_hub

TEXT_SUFFIXES = (".txt", ".md")
TABLE_SUFFIXES = (".jsonl", ".csv", ".tsv", ".parquet")


@dataclass
class Table:
    """The rows of one file, with what errors call them."""

    source: str
    rows: list[dict[str, Any]]

    @property
    def columns(self) -> list[str]:
        return list(self.rows[0])

    def error(self, number: int, what: str) -> ValueError:
        return ValueError(f"{self.source}, row {number}: {what}")

    def values(self, column: str) -> Iterator[tuple[int, Any]]:
        """(number of the row, value) of a column in which none is missing."""
        for number, row in enumerate(self.rows, 1):
            if column not in row:
                raise self.error(number, f"there is no column {column!r}; columns: {', '.join(map(str, row))}")
            if row[column] is None:
                raise self.error(number, f"{column} is missing")
            yield number, row[column]

    def texts(self, column: str, empty: bool = False) -> list[str]:
        """A column of strings; with `empty`, they may be empty."""
        texts = []
        for number, value in self.values(column):
            if not isinstance(value, str):
                raise self.error(number, f"{column}={value!r} is not text")
            if not (empty or value.strip()):
                raise self.error(number, f"{column} is empty")
            texts.append(value)
        return texts

    def numbers(self, column: str, least: float = -math.inf) -> list[float]:
        """A column of finite numbers from `least` on."""
        numbers = []
        for number, value in self.values(column):
            if not _is_number(value):
                raise self.error(number, f"{column}={value!r} is not a number")
            if float(value) < least:
                raise self.error(number, f"{column}={value} is below {least:g}; use {least:g} or more")
            numbers.append(float(value))
        return numbers


def _is_number(value: Any) -> bool:
    """Whether this is a finite number, or a text that says one."""
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError):
        return False


def read_table(source: str) -> Table:
    """The rows of a jsonl, csv, tsv or parquet file, or of a data set of the Hub (owner/name or owner/name:config).

    Otherwise than where `datasets` reads them, the cells of a csv file stay text, so that an id 007 does, a text of
    jsonl that is a date too, and what is wrong with a row names it.

    Raises:
        ValueError: no such file, another kind of file, a row that cannot be read, or no rows.
    """
    path = Path(source).expanduser()
    suffix = path.suffix.lower()
    if not path.exists():
        rows = load_hub(*hub_name(source), split="train").to_list()
    elif not path.is_file():
        raise ValueError(f"data: {source!r} is no file")
    elif suffix == ".jsonl":
        rows = list(_json_lines(source, path))
    elif suffix in (".csv", ".tsv"):
        rows = list(_separated(source, path, "\t" if suffix == ".tsv" else ","))
    elif suffix == ".parquet":
        rows = load_files([str(path)], suffix).to_list()
    else:
        raise ValueError(f"data: {source!r} is no table; use one of {', '.join(TABLE_SUFFIXES)}")
    if not rows:
        raise ValueError(f"data: {source!r} has no rows")
    return Table(source, rows)


def read_lines(file: str) -> list[str]:
    """The lines of a text file, empty ones too, so that they keep their numbers.

    Raises:
        ValueError: there is no such file, it is not UTF-8, or all of its lines are blank.
    """
    path = Path(file).expanduser()
    if not path.is_file():
        raise ValueError(f"file: there is no file {file!r}")
    # by line feeds alone: `splitlines` also cuts at form feeds, U+2028 and others, where no editor counts a line
    return some_text(read_text(path).removesuffix("\n").split("\n"), repr(file))


def some_text(texts: list[str], source: str) -> list[str]:
    """`texts`, unless all of them are blank.

    Raises:
        ValueError: they are.
    """
    if not any(text.strip() for text in texts):
        raise ValueError(f"text: none in {source}")
    return texts


def read_text(path: Path, newline: str | None = None) -> str:
    """The text of a UTF-8 file; `newline` is that of `open`.

    Raises:
        ValueError: it is not UTF-8.
    """
    try:
        with open(path, encoding="utf-8-sig", newline=newline) as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: byte {error.start} is not UTF-8 ({error.reason})") from None


def _json_lines(source: str, path: Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(filter(str.strip, read_text(path).split("\n")), 1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{source}, row {number}: is not JSON: {error}") from None
        if not isinstance(row, dict) or not row:
            raise ValueError(f"{source}, row {number}: is no JSON object with columns")
        if "\\u" in line and re.search("[\ud800-\udfff]", json.dumps(row, ensure_ascii=False)):
            raise ValueError(f"{source}, row {number}: has half of a character (a surrogate without its other half)")
        yield row


def _separated(source: str, path: Path, delimiter: str) -> Iterator[dict[str, Any]]:
    csv.field_size_limit(2**31 - 1)  # a cell may hold a document; by default it ends after 131,072 characters
    # strict: a quote that is never closed is refused, where otherwise all rows behind it would become one cell
    reader = csv.reader(io.StringIO(read_text(path, newline=""), newline=""), delimiter=delimiter, strict=True)
    number = 0
    try:
        header = next(reader, [])
        for number, row in enumerate(filter(None, reader), 1):
            if len(row) != len(header):
                raise ValueError(f"{source}, row {number}: {len(row)} values, but {len(header)} columns")
            if delimiter == "\t" and any("\t" in cell for cell in row):
                raise ValueError(f"{source}, row {number}: a cell of a tsv has a tab; {ENCLOSED}")
            yield dict(zip(header, row))
    except csv.Error as error:
        raise ValueError(f"{source}, row {number + 1}: {error}; {ENCLOSED}") from None


# --- Passages --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Passage:
    """What is found: its name, and its text (with the title before it, if it has one)."""

    id: str
    text: str


def read_passages(sources: Sequence[str], words: int = 150) -> list[Passage]:
    """The passages of files and folders (searched through; hidden files left out).

    A row of a table (columns `text`, perhaps `_id` and `title`) is a passage. In a text file it is a run of whole lines
    of up to `words` words that no blank line divides; a longer line is cut. Rows without text are left out.

    Raises:
        ValueError: no such file or folder, nothing in it, or two passages of one name.
    """
    passages: list[Passage] = []
    places: dict[str, str] = {}
    for source in sources:
        root = Path(source).expanduser()
        if not root.exists():
            raise ValueError(f"data: {source!r} does not exist")
        for path in _files(root) if root.is_dir() else [root]:
            # several sources may each have a file of this name
            name = str(path if len(sources) > 1 else path.relative_to(root) if root.is_dir() else path.name)
            if path.suffix.lower() in TABLE_SUFFIXES:
                rows = _rows_as_passages(read_table(str(path)), name)
                found = [(f"{path}, row {number}", passage) for number, passage in enumerate(rows, 1)]
            else:
                found = [(str(path), Passage(f"{name}:{line}", text)) for line, text in _cut(read_text(path), words)]
            for place, passage in found:
                if passage.id in places:
                    raise ValueError(f"{place}: a passage of {places[passage.id]} is called {passage.id!r} already")
                places[passage.id] = place
            passages += [passage for _, passage in found if passage.text]
    if not passages:
        raise ValueError(f"data: no text in {', '.join(sources)}")
    return passages


def _files(root: Path) -> list[Path]:
    suffixes = (*TEXT_SUFFIXES, *TABLE_SUFFIXES)
    found = [path for path in root.rglob("*") if path.is_file() and path.suffix.lower() in suffixes]
    return sorted(p for p in found if not any(part.startswith(".") for part in p.relative_to(root).parts))


def _rows_as_passages(table: Table, name: str) -> list[Passage]:
    titles = [row.get("title") or "" for row in table.rows]
    named = (row.get("_id") for row in table.rows)
    ids = [f"{name}:{number}" if given in (None, "") else str(given) for number, given in enumerate(named, 1)]
    texts = table.texts("text", empty=True)
    return [Passage(i, f"{title} {text}".strip()) for i, title, text in zip(ids, titles, texts)]


def _cut(text: str, words: int) -> Iterator[tuple[int, str]]:
    """(number of its first line, text) of every passage of a text file."""
    start, run = 1, []
    for number, line in enumerate([*text.split("\n"), ""], 1):
        new = line.split()
        if run and (not new or len(run) + len(new) > words):
            yield start, " ".join(run)
            run = []
        if not run:
            start = number
        run += new
        for part in range(1, -(-len(run) // words)):
            yield f"{start}.{part}", " ".join(run[:words])
            run = run[words:]


# --- Retrieval folders -----------------------------------------------------------------------------------------------


@dataclass
class Retrieval:
    """Queries, passages, and which of them belong together: `relevant[query id][passage id]` is the grade."""

    passages: list[Passage]
    query_ids: list[str]
    queries: list[str]
    relevant: dict[str, dict[str, float]]

    def references(self) -> list[dict[str, list]]:
        """The relevant passages of each query, as the metric wants them."""
        return [
            {"ids": list(self.relevant[name]), "grades": list(self.relevant[name].values())} for name in self.query_ids
        ]


def read_retrieval(folder: str, split: str = "test") -> Retrieval:
    """The queries of `split` that have a judged passage, with the whole corpus.

    Raises:
        ValueError: a file or a column is missing, an id occurs twice, a judgement names an id that is not there or
            contradicts another, or no query has a relevant passage.
    """
    root = Path(folder).expanduser()
    if not (root / "corpus.jsonl").is_file():
        raise ValueError(f"data: {folder!r} is no retrieval folder: it has no corpus.jsonl")
    corpus, queries = read_table(str(root / "corpus.jsonl")), read_table(_of_split(root, "queries", split, (".jsonl",)))
    judgements = read_table(_of_split(root, "qrels", split, (".csv", ".tsv")))
    passages = [Passage(i, p.text) for i, p in zip(_ids(corpus), _rows_as_passages(corpus, "corpus.jsonl"))]
    known_passages = {passage.id for passage in passages}
    known_queries = dict(zip(_ids(queries), queries.texts("text")))

    relevant: dict[str, dict[str, float]] = {}
    columns = (judgements.texts("query-id"), judgements.texts("corpus-id"), judgements.numbers("score"))
    for number, (query, passage, grade) in enumerate(zip(*columns), 1):
        if query not in known_queries:
            raise judgements.error(number, f"query-id={query!r} is not in {queries.source}")
        if passage not in known_passages:
            raise judgements.error(number, f"corpus-id={passage!r} is not in {corpus.source}")
        if relevant.setdefault(query, {}).setdefault(passage, grade) != grade:
            raise judgements.error(number, f"score={grade:g}, but {relevant[query][passage]:g} in a row before")
    relevant = {query: graded for query, graded in relevant.items() if max(graded.values()) > 0}
    if not relevant:
        raise ValueError(f"{judgements.source}: no query has a relevant passage (a score above 0)")
    names = [name for name in known_queries if name in relevant]
    return Retrieval(passages, names, [known_queries[name] for name in names], relevant)


def is_retrieval(source: str) -> bool:
    """Whether this is a folder, which can only be a retrieval folder here."""
    return Path(source).expanduser().is_dir()


def _of_split(root: Path, kind: str, split: str, suffixes: Sequence[str]) -> str:
    names = [f"{stem}{suffix}" for stem in (f"{kind}_{split}", f"{kind}/{split}", kind) for suffix in suffixes]
    there = [root / name for name in names if (root / name).is_file()]
    if not there:
        raise ValueError(f"data: {str(root)!r} has none of {', '.join(names)}")
    return str(there[0])


def _ids(table: Table) -> list[str]:
    seen: dict[str, int] = {}
    for number, value in table.values("_id"):
        name = str(value)
        if name in seen:
            raise table.error(number, f"_id={name!r} is that of row {seen[name]} already")
        seen[name] = number
    return list(seen)


# --- Pairs to train on -----------------------------------------------------------------------------------------------

# What columns are guessed from.
FIRST = ("query", "anchor", "question", "sentence1", "text1", "premise")
SECOND = ("positive", "passage", "answer", "sentence2", "text2", "document", "text")
THIRD = ("negative", "hard_negative")
SCORE = ("score", "similarity", "label")


def read_pairs(sources: Sequence[str], columns: Sequence[str] | None = None) -> Dataset:
    """Pairs, triples or scored pairs, from tables with the same columns.

    Args:
        columns: their names in the order first, second, then the negative or the score; guessed if left out.

    Returns:
        texts that belong together as `first` and `second`; perhaps `third`, texts that do not belong to the first ones,
        or `label`, how much the two do: from 0 to 1, divided by the largest one if that is above 1.

    Raises:
        ValueError: no data, columns that are missing or cannot be guessed, a row without text, a score below 0.
    """
    if not sources:
        raise ValueError("data: none given; use jsonl, csv, tsv or parquet files, or data sets of the Hub")
    parts: list[dict[str, list]] = []
    for source in sources:
        table = read_table(source)
        names = list(columns) if columns else _guess(table)
        if len(names) not in (2, 3):
            raise ValueError(f"columns: {' '.join(names)}: name two texts, then perhaps a negative or a score")
        for name in names:
            if name not in table.columns:
                raise ValueError(f"columns: {name!r} is none of {source!r}, which has {', '.join(table.columns)}")
        part = {"first": table.texts(names[0]), "second": table.texts(names[1])}
        if len(names) == 3 and _is_score(table, names[2]):
            part["label"] = table.numbers(names[2], least=0)
        elif len(names) == 3:
            part["third"] = table.texts(names[2])
        parts.append(part)
    if len({tuple(part) for part in parts}) > 1:
        raise ValueError(f"data: {', '.join(sources)} do not have the same kinds of columns")
    whole = {name: [value for part in parts for value in part[name]] for name in parts[0]}
    if "label" in whole:
        largest = max(1.0, *whole["label"])
        whole["label"] = [score / largest for score in whole["label"]]
    return Dataset.from_dict(whole)


def hold_out(pairs: Dataset, validation_size: float, seed: int) -> tuple[Dataset, Dataset]:
    """Rows to train on and rows held out; rows with the same first text are on one side.

    Raises:
        ValueError: nothing is held out, or nothing is left.
    """
    queries = list(pairs["first"])
    groups = sorted(set(queries))
    random.Random(seed).shuffle(groups)
    count = round(validation_size * len(groups) if validation_size < 1 else validation_size)
    if not 0 < count < len(groups):
        raise ValueError(f"validation_size: {validation_size} holds out {count} of {len(groups)} different queries")
    held_out = set(groups[:count])
    sides: tuple[list[int], list[int]] = ([], [])
    for row, query in enumerate(queries):
        sides[query in held_out].append(row)
    return pairs.select(sides[0]), pairs.select(sides[1])


def _guess(table: Table) -> list[str]:
    def find(candidates: Sequence[str]) -> list[str]:
        return [name for name in candidates if name in table.columns][:1]

    first, second = find(FIRST), find(SECOND)
    if not first or not second:
        raise ValueError(
            f"columns: cannot be guessed from {', '.join(table.columns)} of {table.source!r}; name them, or call them"
            " query, positive[, negative] or sentence1, sentence2, score"
        )
    return first + second + (find(THIRD) or find(SCORE))


def _is_score(table: Table, column: str) -> bool:
    # in csv and tsv a number is a text
    return column in SCORE or (column not in THIRD and _is_number(table.rows[0][column]))
