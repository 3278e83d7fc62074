"""What the commands of search read: lines, passages, pairs of texts, retrieval folders.

A retrieval folder is laid out as BEIR's (Thakur et al. 2021, arXiv 2104.08663): corpus.jsonl (_id, text, perhaps
title), queries_SPLIT.jsonl (_id, text), qrels_SPLIT.csv or .tsv, or qrels/SPLIT.tsv (query-id, corpus-id, score);
without SPLIT where one is for all. Errors name the file and the row, counted from 1 without a header.
"""

import math
import random
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict

from ..data.tables import TABLES, files_in, read_table, read_text, to_number

TEXT_SUFFIXES = (".txt", ".md")
Source = str | Path | Dataset | DatasetDict  # of a table
# The scripts from Thai to Burmese, Khmer, Chinese and Japanese have no spaces between words; here with their marks.
UNSPACED = "\u0e00-\u109f\u1780-\u17ff\u3001-\u30ff\u3400-\u9fff\uf900-\ufaff\uff01-\uffef\U00020000-\U0003ffff"
# Signs on a letter (which are no \w) and marks behind it stay with it.
WORD = re.compile(rf"(?:[{UNSPACED}]{{1,2}}(?:(?!\w)[{UNSPACED}])*|[^ {UNSPACED}]+) ?")


def name_of(source: Any) -> str:
    return "the data set" if isinstance(source, (Dataset, DatasetDict)) else str(source)


def is_table(file: str | Path) -> bool:
    return Path(file).suffix.lower() in TABLES


def texts_of(table: Dataset, column: str, where: str, blank: bool = True) -> list[str]:
    """A column of texts; a ValueError for a row that has none, or (unless `blank`) an empty one."""
    if column not in table.column_names:
        raise ValueError(f"{where} has no column {column!r}; it has {', '.join(table.column_names)}")
    texts = table[column][:]
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise ValueError(f"{where}, row {number}: {column}={text!r} is not text")
        if not blank and not text.strip():
            raise ValueError(f"{where}, row {number}: {column} is empty")
    return texts


def numbers_of(table: Dataset, column: str, where: str) -> list[float]:
    """A column of finite numbers, or texts of such."""
    numbers = list(map(to_number, table[column]))
    for row, number in enumerate(numbers):
        if not math.isfinite(number):
            raise ValueError(f"{where}, row {row + 1}: {column}={table[column][row]!r} is not a number")
    return numbers


def read_lines(file: str | Path) -> list[str]:
    """The lines of a text file, or of stdin ("-"), empty ones too, so that they keep their numbers."""
    text = sys.stdin.read() if file == "-" else read_text(file)
    if not text.strip():
        raise ValueError(f"there is no text in {'stdin' if file == '-' else repr(str(file))}")
    # by line feeds alone: `splitlines` also cuts at form feeds, U+2028 and others, where no editor counts a line
    return text.removesuffix("\n").split("\n")


# --- Passages --------------------------------------------------------------------------------------------------------


def text_files(sources: Sequence[str | Path]) -> Iterator[tuple[Path, Path]]:
    """Each source with each of its files of text (a folder is searched through; empty and hidden files are left out,
    others named), in the order of names.

    Raises:
        ValueError: a source does not exist, or is a file of another kind.
    """
    known = (*TEXT_SUFFIXES, *TABLES)
    for root in map(Path, sources):
        if not root.exists():
            raise ValueError(f"data: {str(root)!r} does not exist")
        if root.is_file() and root.suffix and root.suffix.lower() not in known:
            raise ValueError(f"data: {str(root)!r} ends in none of {', '.join(known)}; convert it to text first")
        paths = sorted(map(Path, files_in(root, known))) if root.is_dir() else [root]
        if root.is_dir() and (skipped := _other_files(root, {*paths})):
            named = ", ".join(map(repr, skipped[:5])) + ", …" * (len(skipped) > 5)
            print(f"Skipped {len(skipped)} files of {str(root)!r}, which are neither text nor tables: {named}")
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


def read_passages(sources: Sequence[str | Path], words: int = 150) -> list[Passage]:
    """The passages of `text_files`.

    A row of a table (columns `text`, perhaps `_id` and `title`) is a passage. In a text file it is a run of whole lines
    of up to `words` words that no blank line divides; a longer line is cut. Rows without text are left out.

    Raises:
        ValueError: there are no passages, or two of one name.
    """
    if words < 1:
        raise ValueError(f"passage_words: it must be positive, got {words}")
    passages: list[Passage] = []
    places: dict[str, str] = {}
    for root, path in text_files(sources):
        # several sources may each have a file of this name
        name = str(path if len(sources) > 1 else path.relative_to(root) if root.is_dir() else path.name)
        if is_table(path):
            rows = _rows_as_passages(read_table(path), name, str(path))
            found = [(f"{path}, row {number}", passage) for number, passage in enumerate(rows, 1)]
        else:
            found = [(str(path), Passage(f"{name}:{line}", text)) for line, text in _cut(read_text(path), words)]
        for place, passage in found:
            if passage.id in places:
                raise ValueError(f"{place}: a passage of {places[passage.id]} is called {passage.id!r} already")
            places[passage.id] = place
        passages += [passage for _, passage in found if passage.text]
    if not passages:
        raise ValueError(f"data: no text in {', '.join(map(str, sources))}")
    return passages


def _rows_as_passages(table: Dataset, name: str, where: str) -> Iterator[Passage]:
    for number, (row, text) in enumerate(zip(table, texts_of(table, "text", where)), 1):
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


def read_retrieval(folder: str | Path, split: str = "test", field: str = "data") -> Retrieval:
    """The queries of `split` that have a relevant passage, with the whole corpus; `field` is the argument's name.

    Raises:
        ValueError: a file or a column is missing, an id occurs twice, a judgement names an id that is not there or
            contradicts another, or no query is left.
    """
    root = Path(folder)

    def find(kind: str, *suffixes: str) -> str:
        names = [f"{stem}{suffix}" for stem in (f"{kind}_{split}", f"{kind}/{split}", kind) for suffix in suffixes]
        there = [str(root / name) for name in names if (root / name).is_file()]
        if not there:
            raise ValueError(f"{field}: {str(folder)!r} is no retrieval folder: it has none of {', '.join(names)}")
        return there[0]

    corpus_file = str(root / "corpus.jsonl")
    if not Path(corpus_file).is_file():
        raise ValueError(f"{field}: {str(folder)!r} is no retrieval folder: it has no corpus.jsonl")
    queries_file, judgements_file = find("queries", ".jsonl"), find("qrels", ".csv", ".tsv")
    corpus = read_table(corpus_file, field=field)
    passages = {p.id: p for p in _rows_as_passages(corpus, "", corpus_file)}
    queries = read_table(queries_file, ["_id", "text"], field=field)
    texts = dict(zip(map(str, queries["_id"]), texts_of(queries, "text", queries_file, blank=False)))
    for file, table, found in ((corpus_file, corpus, passages), (queries_file, queries, texts)):
        if len(found) < len(table):
            raise ValueError(f"{file}: {len(table) - len(found)} rows have an _id that another row has, too")

    judgements = read_table(judgements_file, ["query-id", "corpus-id", "score"], field=field)
    relevant: dict[str, dict[str, float]] = {}
    pairs = zip(map(str, judgements["query-id"]), map(str, judgements["corpus-id"]))
    grades = numbers_of(judgements, "score", judgements_file)
    for number, ((query, passage), grade) in enumerate(zip(pairs, grades), 1):
        for kind, name, known in (("query-id", query, texts), ("corpus-id", passage, passages)):
            if name not in known:
                raise ValueError(f"{judgements_file}, row {number}: {kind}={name!r} does not exist")
        if relevant.setdefault(query, {}).setdefault(passage, grade) != grade:
            before = f"{relevant[query][passage]:g} in a row before"
            raise ValueError(f"{judgements_file}, row {number}: score={grade:g}, but {before}")
    relevant = {query: graded for query, graded in relevant.items() if max(graded.values()) > 0}
    if not relevant:
        raise ValueError(f"{judgements_file}: no query has a relevant passage (a score above 0)")
    return Retrieval([*passages.values()], {name: text for name, text in texts.items() if name in relevant}, relevant)


# --- Pairs of texts --------------------------------------------------------------------------------------------------

# What columns are guessed from: the first and the second text, then the negative or the score.
FIRST = ("query", "anchor", "question", "sentence1", "text1", "premise")
SECOND = ("positive", "passage", "answer", "sentence2", "text2", "document", "text")
THIRD = ("negative", "hard_negative")
SCORE = ("score", "similarity", "label")


def read_pairs(
    data: Source | Sequence[Source], columns: Sequence[str] | None = None, field: str = "data", split: str = "train"
) -> Dataset:
    """Texts that belong together.

    Args:
        data: tables, or data sets.
        columns: their columns: two texts, then perhaps a negative or a score; by default guessed.
        field: the argument that `data` was given as.
        split: of data sets of the Hub.

    Returns:
        The columns `first` and `second`; perhaps `third`, texts that do not belong to the first ones, or `label`, how
        much the two belong together: from 0 to 1, divided by the largest score if that is above 1.

    Raises:
        ValueError: there is no data, columns are missing or cannot be guessed, a row lacks text, a score is below 0.
    """
    sources = [*data] if isinstance(data, (list, tuple)) else [data]
    if not sources:
        raise ValueError(f"{field}: none given; use tables ({', '.join(TABLES)}) or data sets of the Hub")
    parts = [_pairs(read_table(each, field=field, split=split), columns, name_of(each)) for each in sources]
    if len({tuple(part) for part in parts}) > 1:
        raise ValueError(f"{field}: {', '.join(map(name_of, sources))} do not have the same kinds of columns")
    whole = {name: [value for part in parts for value in part[name]] for name in parts[0]}
    if "label" in whole:
        tops = [top for part in parts if (top := max(part["label"])) > 0]
        if tops and min(tops) <= 1 < max(tops):
            scales = " and ".join(f"{top:g}" for top in sorted({*tops}))
            raise ValueError(f"{field}: the scores of some tables go up to {scales}; bring them to one scale")
        largest = max(1.0, *whole["label"])
        whole["label"] = [score / largest for score in whole["label"]]
    return Dataset.from_dict(whole)


def _pairs(table: Dataset, columns: Sequence[str], where: str) -> dict[str, list]:
    given, names = table.column_names, list(columns or ())
    if not names:
        found = [[name for name in guesses if name in given][:1] for guesses in (FIRST, SECOND, THIRD + SCORE)]
        names = [name for each in found for name in each]
        if not found[0] or not found[1]:
            use = "name them, or call them query, positive[, negative] or sentence1, sentence2, score"
            raise ValueError(f"columns: cannot be guessed from {', '.join(given)} of {where!r}; {use}")
        if more := [name for name in given if re.fullmatch(r"(hard_)?negatives?(_?\d+)?", name) and name not in names]:
            use = "a row takes one negative: write a row for each, or name one by --columns"
            raise ValueError(f"columns: {', '.join(more)} of {where!r} would be left out; {use}")
    elif len(names) not in (2, 3):
        raise ValueError(f"columns: {' '.join(names)}: name two texts, then perhaps a negative or a score")
    pairs = {role: texts_of(table, name, where, blank=False) for role, name in zip(("first", "second"), names)}
    for name in names[2:]:  # a score, or a negative; in csv and tsv a number is a text
        if name in SCORE or (name in given and name not in THIRD and math.isfinite(to_number(table[name][0]))):
            pairs["label"] = numbers_of(table, name, where)
            if (lowest := min(pairs["label"])) < 0:
                row = pairs["label"].index(lowest) + 1
                raise ValueError(f"{where}, row {row}: {name}={lowest:g} is below 0; use 0 or more")
        else:
            pairs["third"] = texts_of(table, name, where, blank=False)
    return pairs


def read_task(source: Source, columns: Sequence[str], split: str, field: str = "data") -> Dataset | Retrieval:
    """What a model is measured on: `read_retrieval` of a folder, `read_pairs` of all else."""
    if isinstance(source, (str, Path)) and Path(source).is_dir():
        return read_retrieval(source, split, field)
    return read_pairs(source, columns, field, split)


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
