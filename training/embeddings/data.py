"""What the commands of search (and the probes) read: rows of files, pairs to train on, passages, retrieval folders.

A retrieval folder is laid out as BEIR's (Thakur et al. 2021, arXiv 2104.08663): corpus.jsonl (_id, text, perhaps
title), queries_SPLIT.jsonl (_id, text), qrels_SPLIT.csv or .tsv, or qrels/SPLIT.tsv (query-id, corpus-id, score);
without SPLIT where one is for all. Every error names the file and the row, counted from 1 without a header.
"""

import math
import random
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets import Dataset

from ..arguments.embeddings import TABLE_SUFFIXES, is_retrieval
from ..data import tables
from ..data.tables import files_in, read_text, to_number

TEXT_SUFFIXES = (".txt", ".md")
# The scripts from Thai to Burmese, Khmer, Chinese and Japanese have no spaces between words; here with their marks.
UNSPACED = "\u0e00-\u109f\u1780-\u17ff\u3001-\u30ff\u3400-\u9fff\uf900-\ufaff\uff01-\uffef\U00020000-\U0003ffff"
# Signs on a letter (which are no \w) and marks behind it stay with it.
WORD = re.compile(rf"(?:[{UNSPACED}]{{1,2}}(?:(?!\w)[{UNSPACED}])*|[^ {UNSPACED}]+) ?")


@dataclass
class Table:
    """The rows of one file, with what errors call them: `field` is the argument that names the file."""

    source: str
    field: str
    rows: list[dict[str, Any]]

    def error(self, number: int, what: str) -> ValueError:
        return ValueError(f"{self.field}: {self.source}, row {number}: {what}")

    def column(self, name: str, fault: Callable[[Any], str] = lambda value: "") -> list[Any]:
        """The values of a column; a ValueError where one is missing, or where `fault` has something to say of it."""
        for number, row in enumerate(self.rows, 1):
            if name not in row:
                raise self.error(number, f"there is no column {name!r}; columns: {', '.join(map(str, row))}")
            if found := " is missing" if row[name] is None else fault(row[name]):
                raise self.error(number, f"{name}{found}")
        return [row[name] for row in self.rows]


def not_text(value: Any) -> str:
    """A fault for `Table.column`, as the following: the value is no string."""
    return "" if isinstance(value, str) else f"={value!r} is not text"


def no_text(value: Any) -> str:
    """The value is no string, or a blank one."""
    return not_text(value) or blank(value)


def blank(value: Any) -> str:
    """The value's text is blank."""
    return "" if str(value).strip() else " is empty"


def not_a_number(value: Any) -> str:
    """The value is no finite number, nor a text that says one."""
    return "" if math.isfinite(to_number(value)) else f"={value!r} is not a number"


def read_table(source: str, field: str = "data", split: str = "train") -> Table:
    """The rows of a jsonl, csv, tsv or parquet file, or of a split of a data set of the Hub (owner/name or
    owner/name:config); a ValueError if it is none, which names the argument `field`, or if a row cannot be read.

    All cells of csv and tsv stay text, so that an id 007 does, as does a text of jsonl that is a date.
    """
    rows = tables.read_table(source, field=field, split=split).to_list()
    return Table(source, field, rows)


def read_lines(file: str | None) -> list[str]:
    """The lines of a text file, or of stdin, empty ones too, so that they keep their numbers; a ValueError if all are
    blank."""
    if file is not None and not Path(file).is_file():
        raise ValueError(f"file: there is no file {file!r}")
    if file is not None and Path(file).suffix.lower() in (*TABLE_SUFFIXES, ".json"):
        raise ValueError(f"file: {file!r} is a table; give a text file, a text on each line")
    try:
        text = sys.stdin.read() if file is None else read_text(Path(file))
    except UnicodeDecodeError as error:
        raise ValueError(f"text: byte {error.start} of stdin is not UTF-8 ({error.reason})") from None
    if not text.strip():
        raise ValueError(f"text: none in {'stdin' if file is None else repr(file)}")
    # by line feeds alone: `splitlines` also cuts at form feeds, U+2028 and others, where no editor counts a line
    return text.removesuffix("\n").split("\n")


# --- Passages --------------------------------------------------------------------------------------------------------


def text_files(sources: Sequence[str]) -> Iterator[tuple[Path, Path]]:
    """Each source with each of its files of text (a folder is searched through; hidden and empty files left out, and
    others with a word), in the order of names; a ValueError for one that is not there, or a file of another kind."""
    for source in sources:
        root = Path(source)
        if not root.exists():
            raise ValueError(f"data: {source!r} does not exist")
        if root.suffix.lower() == ".json":
            raise ValueError(f"data: {source!r} is JSON in one piece; use jsonl, an object a line")
        if root.is_file() and root.suffix and root.suffix.lower() not in TEXT_SUFFIXES + TABLE_SUFFIXES:
            use = ", ".join(TEXT_SUFFIXES + TABLE_SUFFIXES)
            raise ValueError(f"data: {source!r} ends in none of {use}; convert it to text first")
        paths = sorted(map(Path, files_in(root, TEXT_SUFFIXES + TABLE_SUFFIXES))) if root.is_dir() else [root]
        if root.is_dir() and (skipped := _other_files(root, {*paths})):
            named = ", ".join(map(repr, skipped[:5])) + ", …" * (len(skipped) > 5)
            print(f"Skipped {len(skipped)} files of {source!r}, which are neither text nor tables: {named}")
        for path in paths:
            if path == root or path.stat().st_size:
                yield root, path


def _other_files(root: Path, known: set[Path]) -> list[str]:
    """The names of the files in a folder that are not `known`, without hidden ones and indexes of ours."""
    paths = (path for path in sorted(root.rglob("*")) if path not in known and path.suffix != ".safetensors")
    names = [path.relative_to(root) for path in paths if path.is_file()]
    return [str(name) for name in names if not any(part.startswith(".") for part in name.parts)]


@dataclass(frozen=True)
class Passage:
    """What is found: its name, and its text (with the title before it, if it has one)."""

    id: str
    text: str


def read_passages(sources: Sequence[str], words: int = 150) -> list[Passage]:
    """The passages of `text_files`; a ValueError if there are none, or two of one name.

    A row of a table (columns `text`, perhaps `_id` and `title`) is a passage. In a text file it is a run of whole lines
    of up to `words` words that no blank line divides; a longer line is cut. Rows without text are left out.
    """
    passages: list[Passage] = []
    places: dict[str, str] = {}
    for root, path in text_files(sources):
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


def _rows_as_passages(table: Table, name: str) -> Iterator[Passage]:
    for number, (row, text) in enumerate(zip(table.rows, table.column("text", not_text)), 1):
        given = row.get("_id")
        text = f"{row.get('title') or ''} {text}".strip()
        yield Passage(f"{name}:{number}" if given in (None, "") else str(given), text)


def split_words(line: str) -> list[str]:
    """The words of a line, with the space behind them, if there is one; of `UNSPACED` scripts two letters are one."""
    return WORD.findall(" ".join(line.split()) + " ")


def _cut(text: str, words: int) -> Iterator[tuple[int | str, str]]:
    """(number of its first line, text) of every passage of a text file."""
    start, run = 1, []
    for number, line in enumerate([*text.split("\n"), ""], 1):
        new = split_words(line)
        if run and (not new or len(run) + len(new) > words):
            yield start, "".join(run).strip()
            run = []
        if not run:
            start = number
        run += new
        cuts = range(words, len(run), words)
        for part, cut in enumerate(cuts, 1):
            yield f"{start}.{part}", "".join(run[cut - words : cut]).strip()
        run = run[len(cuts) * words :]


# --- Retrieval folders -----------------------------------------------------------------------------------------------


@dataclass
class Retrieval:
    """Queries, passages, and which of them belong together: `relevant[query id][passage id]` is the grade."""

    passages: list[Passage]
    queries: dict[str, str]  # id: text
    relevant: dict[str, dict[str, float]]
    ignore_identical_ids: bool = False  # a query is not found as a passage (that is not relevant to itself)


def read_retrieval(folder: str, split: str = "test", field: str = "data") -> Retrieval:
    """The queries of `split` that have a relevant passage, with the whole corpus; `field` is the argument's name. A
    ValueError if a file or a column is missing, an id occurs twice, a judgement names an id that is not there or
    contradicts another, or no query is left."""

    def of_split(kind: str, *suffixes: str) -> Table:
        names = [f"{stem}{suffix}" for stem in (f"{kind}_{split}", f"{kind}/{split}", kind) for suffix in suffixes]
        there = [root / name for name in names if (root / name).is_file()]
        if not there:
            raise ValueError(f"{field}: {folder!r} has none of {', '.join(names)}")
        return read_table(str(there[0]), field)

    root = Path(folder)
    if not (root / "corpus.jsonl").is_file():
        raise ValueError(f"{field}: {folder!r} is no retrieval folder: it has no corpus.jsonl")
    corpus = read_table(str(root / "corpus.jsonl"), field)
    queries, judgements = of_split("queries", ".jsonl"), of_split("qrels", ".csv", ".tsv")
    passages = {name: Passage(name, p.text) for name, p in zip(_ids(corpus), _rows_as_passages(corpus, ""))}
    texts = dict(zip(_ids(queries), queries.column("text", no_text)))

    relevant: dict[str, dict[str, float]] = {}
    columns = [judgements.column(name, no_text) for name in ("query-id", "corpus-id")]
    columns.append(map(float, judgements.column("score", not_a_number)))
    for number, (query, passage, grade) in enumerate(zip(*columns), 1):
        if query not in texts:
            raise judgements.error(number, f"query-id={query!r} is not in {queries.source}")
        if passage not in passages:
            raise judgements.error(number, f"corpus-id={passage!r} is not in {corpus.source}")
        if relevant.setdefault(query, {}).setdefault(passage, grade) != grade:
            raise judgements.error(number, f"score={grade:g}, but {relevant[query][passage]:g} in a row before")
    relevant = {query: graded for query, graded in relevant.items() if max(graded.values()) > 0}
    if not relevant:
        raise ValueError(f"{judgements.source}: no query has a relevant passage (a score above 0)")
    return Retrieval([*passages.values()], {name: text for name, text in texts.items() if name in relevant}, relevant)


def _ids(table: Table) -> list[str]:
    rows: dict[str, int] = {}
    for number, name in enumerate(map(str, table.column("_id")), 1):
        if rows.setdefault(name, number) != number:
            raise table.error(number, f"_id={name!r} is that of row {rows[name]} already")
    return list(rows)


# --- Pairs to train on -----------------------------------------------------------------------------------------------

# What columns are guessed from: the first and the second text, then the negative or the score.
FIRST = ("query", "anchor", "question", "sentence1", "text1", "premise")
SECOND = ("positive", "passage", "answer", "sentence2", "text2", "document", "text")
THIRD = ("negative", "hard_negative")
SCORE = ("score", "similarity", "label")


def read_pairs(
    sources: Sequence[str], columns: Sequence[str] | None = None, field: str = "data", split: str = "train"
) -> Dataset:
    """Texts that belong together as `first` and `second`; perhaps `third`, texts that do not belong to the first ones,
    or `label`, how much the two do: from 0 to 1, divided by the largest one if that is above 1. `columns` are their
    names in the tables, in this order, guessed if left out; `field` is the argument that names the sources, `split` is
    of data sets of the Hub. A ValueError for no data, columns that are missing or cannot be guessed, a row without
    text, or a score below 0."""
    if not sources:
        raise ValueError("data: none given; use jsonl, csv, tsv or parquet files, or data sets of the Hub")
    parts = [_pairs(read_table(source, field, split), columns) for source in sources]
    if len({tuple(part) for part in parts}) > 1:
        raise ValueError(f"data: {', '.join(sources)} do not have the same kinds of columns")
    whole = {name: [value for part in parts for value in part[name]] for name in parts[0]}
    if "label" in whole:
        tops = {source: top for source, part in zip(sources, parts) if (top := max(part["label"])) > 0}
        if tops and min(tops.values()) <= 1 < max(tops.values()):
            scales = ", ".join(f"{top:g} in {source}" for source, top in tops.items())
            use = "bring them to one, or put what is of one scale into one file"
            raise ValueError(f"data: scores go up to {scales}, as if of several scales; {use}")
        largest = max(1.0, *whole["label"])
        whole["label"] = [score / largest for score in whole["label"]]
    return Dataset.from_dict(whole)


def _pairs(table: Table, columns: Sequence[str] | None) -> dict[str, list]:
    given = list(table.rows[0])
    if columns:
        names = list(columns)
        if len(names) not in (2, 3):
            raise ValueError(f"columns: {' '.join(names)}: name two texts, then perhaps a negative or a score")
    else:
        found = [[name for name in guesses if name in given][:1] for guesses in (FIRST, SECOND, THIRD + SCORE)]
        if not found[0] or not found[1]:
            use = "name them, or call them query, positive[, negative] or sentence1, sentence2, score"
            raise ValueError(f"columns: cannot be guessed from {', '.join(given)} of {table.source!r}; {use}")
        names = [name for names in found for name in names]
        if more := [name for name in given if re.fullmatch(r"(hard_)?negatives?(_?\d+)?", name) and name not in names]:
            use = "a row takes one negative: write a row for each, or name one by --columns"
            raise ValueError(f"columns: {', '.join(more)} of {table.source!r} would be left out; {use}")
    pairs = {role: table.column(name, no_text) for role, name in zip(("first", "second"), names)}
    for name in names[2:]:  # a score, or a negative; in csv and tsv a number is a text
        if name in SCORE or (name not in THIRD and not not_a_number(table.column(name)[0])):
            pairs["label"] = [float(value) for value in table.column(name, _not_a_score)]
        else:
            pairs["third"] = table.column(name, no_text)
    return pairs


def _not_a_score(value: Any) -> str:
    return not_a_number(value) or (f"={value} is below 0; use 0 or more" if float(value) < 0 else "")


def read_task(source: str, columns: Sequence[str] | None, split: str, field: str = "data") -> Dataset | Retrieval:
    """What a model is measured on: `read_retrieval` of a folder, `read_pairs` of all else."""
    return read_retrieval(source, split, field) if is_retrieval(source) else read_pairs([source], columns, field, split)


def hold_out(keys: Sequence, size: float, seed: int, what: str) -> tuple[list[int], list[int]]:
    """The places in `keys` to train on, and those held out: of a share (below 1) or a number of the different keys, so
    that equal ones are on one side; a ValueError, which calls them `what`, if either are none."""
    different = sorted(set(keys))
    random.Random(seed).shuffle(different)
    count = round(size * len(different) if size < 1 else size)
    if not 0 < count < len(different):
        use = "use a size that leaves some on both sides, or --validation"
        raise ValueError(f"validation_size: {size} holds out {count} of {len(different)} {what}; {use}")
    held_out, sides = set(different[:count]), ([], [])
    for place, key in enumerate(keys):
        sides[key in held_out].append(place)
    return sides
