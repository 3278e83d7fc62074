"""What embedding models read: lines, documents and their passages, pairs of texts, retrieval
folders.

A retrieval folder is laid out as BEIR's (Thakur et al. 2021, arXiv 2104.08663): corpus.jsonl (_id,
text, perhaps title), queries_SPLIT.jsonl (_id, text), qrels_SPLIT.csv or .tsv, or qrels/SPLIT.tsv
(query-id, corpus-id, score); without SPLIT where one is for all. Errors name the file and the row,
counted from 1 without a header.
"""

import math
import os
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from datasets import ClassLabel, Dataset, DatasetDict

from ..common.files import printable
from ..data.rows import read_text
from ..data.sentences import sentences_of
from ..data.tables import TABLES, Rows, files_in, find_files, read_table, sources_of, to_number

TableOrPath = str | Path | Rows | DatasetDict  # of a table
BYTES_OF_A_WORD = 6  # with its space, as in English; in Chinese, two letters
# A heading of Markdown: "# Title", or a line with a line of = or - below it.
HEADING = re.compile(
    r"(#{1,6}[ \t]+(?P<marked>[^\n]+?)[ \t]*#*|(?P<underlined>[^\n]+)\n[ \t]*(=+|-{3,}))"
    r"[ \t]*(\n|\Z)"
)
MAX_MISSING_SHARE = 0.1  # of judgements that name a passage or a query that is not there


def name_of_data(data: Any) -> str:
    """Data in words: its paths and Hub names."""
    sources = data if isinstance(data, (list, tuple)) else [data]
    names = []
    for source in sources:
        is_in_memory = isinstance(source, (Dataset, DatasetDict))
        names.append("the data set" if is_in_memory else str(source))
    return ", ".join(names)


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
    for row, value in enumerate(numbers, 1):
        if not 0 <= value < math.inf:
            raise ValueError(f"{where}, row {row}: {column} is {value}; use a number, 0 or more")
    return numbers


def read_lines(file: str | Path) -> list[str]:
    """The lines of a text file, or of stdin ("-"), empty ones too, so that they keep their
    numbers."""
    if file == "-":
        text = sys.stdin.read()
        name = "stdin"
    else:
        text = read_text(file)
        name = repr(str(file))
    if not text.strip():
        raise ValueError(f"there is no text in {name}")
    # by line feeds alone: `splitlines` also cuts at form feeds, U+2028 and others, where no editor
    # counts a line
    return text.removesuffix("\n").split("\n")


# --- Documents and passages ---


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


def read_documents(sources: Sequence[str | Path | Dataset]) -> list[Document]:
    """The documents of files, folders and tables in memory, without those that have no text.

    The rows of tables have the columns `text`, and perhaps `_id` and `title`. In a text file, the
    title is the heading before the text, or else the first of several lines. Files are named as
    from the folder that all lie in.
    """
    suffixes = (".txt", ".md", *TABLES)
    files = []
    documents: list[Document] = []
    for source in sources:
        if isinstance(source, Dataset):
            rows = read_table(source, ["text"])
            documents += _documents_of_rows(source, "row", name_of_data(rows))
        elif os.path.isdir(source):
            files += files_in(source, suffixes)
        else:
            files += find_files(str(source))
    if not files and not documents:
        raise ValueError(
            f"data: there is no file of {', '.join(suffixes)} in {name_of_data(sources)}"
        )
    folders = [os.path.dirname(os.path.abspath(file)) for file in files]
    root = os.path.commonpath(folders) if folders else ""
    for file in filter(os.path.getsize, files):
        name = os.path.relpath(os.path.abspath(file), root)
        if is_table(file):
            documents += _documents_of_rows(read_table(file), name, file)
        else:
            documents += _documents_of_text(read_text(file), name)
    documents = [document for document in documents if document.text]
    if not documents:
        raise ValueError(f"data: there is no text in {name_of_data(sources)}")
    return documents


def _documents_of_rows(table: Dataset, name: str, where: str) -> Iterator[Document]:
    texts = texts_of(table, "text", where)
    for number, (row, text) in enumerate(zip(table, texts), 1):
        row_id = row.get("_id")
        has_id = row_id not in (None, "")
        title = (row.get("title") or "").strip()
        yield Document(str(row_id) if has_id else f"{name}:{number}", title, text.strip())


def _documents_of_text(text: str, name: str) -> Iterator[Document]:
    """What stands between blank lines. A heading of Markdown is the title of what follows it; one
    that nothing follows is left out, unless the file has nothing else."""
    line = 1
    headings: list[str] = []
    headings_line = 1
    has_text = False
    for block in re.split(r"(\n\s*\n)", text):
        block_headings, body = split_headings(block.strip())
        if block_headings and not headings:
            headings_line = line
        headings += block_headings
        first_line, _, other_lines = body.partition("\n")
        if headings and body:
            title = " / ".join(headings)
            yield Document(f"{name}:{headings_line}", title, body, is_row=False)
            headings = []
        elif other_lines:
            yield Document(f"{name}:{line}", first_line, other_lines, is_row=False)
        elif body:
            yield Document(f"{name}:{line}", "", body, is_row=False)
        has_text |= bool(body)
        line += block.count("\n")
    if headings and not has_text:
        yield Document(f"{name}:{headings_line}", "", " / ".join(headings), is_row=False)


def split_headings(block: str) -> tuple[list[str], str]:
    """The headings that a block of text begins with, without their marks, and what follows."""
    headings = []
    while heading := HEADING.match(block):
        headings.append(heading["marked"] or heading["underlined"])
        block = block[heading.end() :].strip()
    return headings, block


def read_passages(sources: Sequence[str | Path | Dataset], words: int = 150) -> list[Passage]:
    """The documents, those of text files in parts of `words` words."""
    passages: list[Passage] = []
    for document in read_documents(sources):
        if document.is_row:
            parts = [f"{document.title} {document.text}".strip()]
        else:
            parts = split_passages(document.text, words, document.title)
        for number, part in enumerate(parts, 1):
            passage_id = document.id if number == 1 else f"{document.id}.{number}"
            passages.append(Passage(passage_id, part))
    return passages


def split_passages(text: str, words: int, title: str = "") -> list[str]:
    """Sentences together in up to `words` words of `BYTES_OF_A_WORD`. A longer sentence is cut. The
    first passage begins with the title, which is never one alone."""
    max_bytes = BYTES_OF_A_WORD * words
    if len(title.encode()) > max_bytes // 2:  # a long first line, which may be cut as all text
        text = f"{title}\n\n{text}"
        title = ""
    passages = [title]
    for sentence in sentences_of(text):
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


# --- Retrieval folders ---


@dataclass
class Retrieval:
    """Queries, passages, and which of them belong together: `relevant[query id][passage id]` is the
    grade."""

    passages: list[Passage]
    queries: dict[str, str]  # id: text
    relevant: dict[str, dict[str, float]]
    # a query is not found as a passage (that is not relevant to itself)
    ignore_identical_ids: bool = False


def read_retrieval(folder: str | Path, split: str = "test", field: str = "data") -> Retrieval:
    """The queries of `split` that have a relevant passage, with the whole corpus. A ValueError for
    a missing file and an id that occurs twice; `field` is the argument's name."""
    corpus_file = _find_file(folder, ["corpus.jsonl"], field)
    queries_file = _find_file(folder, [f"queries_{split}.jsonl", "queries.jsonl"], field)
    stems = (f"qrels_{split}", f"qrels/{split}", "qrels")
    judgements = [stem + suffix for stem in stems for suffix in (".csv", ".tsv")]
    judgements_file = _find_file(folder, judgements, field)
    passages = []
    passage_ids = set()
    for document in _documents_of_rows(read_table(corpus_file), "", corpus_file):
        passages.append(Passage(document.id, f"{document.title} {document.text}".strip()))
        passage_ids.add(document.id)
    if len(passage_ids) < len(passages):
        raise ValueError(f"{corpus_file}: several rows have the same _id")
    table = read_table(queries_file, ["_id", "text"])
    query_texts = texts_of(table, "text", queries_file, blank=False)
    queries = dict(zip(map(str, table["_id"]), query_texts))
    if len(queries) < len(table):
        raise ValueError(f"{queries_file}: several rows have the same _id")
    relevant = _read_judgements(judgements_file, queries, passage_ids)
    queries = {query_id: text for query_id, text in queries.items() if query_id in relevant}
    return Retrieval(passages, queries, relevant)


def _find_file(folder: str | Path, names: Sequence[str], field: str) -> str:
    """The first of the files in the folder."""
    for name in names:
        if Path(folder, name).is_file():
            return str(Path(folder, name))
    raise ValueError(
        f"{field}: {str(folder)!r} is not a retrieval folder: it has none of {', '.join(names)}"
    )


def _read_judgements(
    file: str, query_ids: dict[str, str], passage_ids: set[str]
) -> dict[str, dict[str, float]]:
    """The grades by query and passage, of queries that have a relevant passage.

    A relevant passage that is not in the corpus can never be found, and counts, as in trec_eval and
    mteb (ArguAna has one); a judgement of an unknown query is left out. Where many name what is not
    there, the files do not belong together.
    """
    table = read_table(file, ["query-id", "corpus-id", "score"])
    relevant: dict[str, dict[str, float]] = {}
    missing = []
    columns = (table["query-id"], table["corpus-id"], table["score"])
    for number, (query_id, passage_id, score) in enumerate(zip(*columns), 1):
        query_id = str(query_id)
        passage_id = str(passage_id)
        grade = to_number(score)
        row = f"row {number}: query-id={query_id!r}, corpus-id={passage_id!r}, score={score}"
        if not math.isfinite(grade):
            raise ValueError(f"{file}, {row}: the score is no number")
        if query_id not in query_ids or passage_id not in passage_ids:
            missing.append(row)
        if query_id in query_ids:
            relevant.setdefault(query_id, {})[passage_id] = grade
    if len(missing) > MAX_MISSING_SHARE * len(table):
        raise ValueError(
            f"{file}: {len(missing):,} of {len(table):,} judgements name a query or a passage that"
            f" is not there, as {missing[0]}; give files that belong together"
        )
    if missing:
        print(
            f"{file}: {len(missing):,} of {len(table):,} judgements name a query or a passage that"
            f" is not there, as {printable(missing[0])}; such a passage counts as not found"
        )
    with_relevant_passage = {}
    for query_id, grades in relevant.items():
        if max(grades.values()) > 0:
            with_relevant_passage[query_id] = grades
    if not with_relevant_passage:
        raise ValueError(f"{file}: no query has a relevant passage (a score above 0)")
    return with_relevant_passage


# --- Pairs of texts ---

# What columns are guessed from: the first and the second text, then the negatives or the score.
FIRST = ("query", "anchor", "question", "sentence1", "text1", "premise")
SECOND = ("positive", "passage", "answer", "sentence2", "text2", "document", "text", "hypothesis")
NEGATIVE = re.compile(r"(hard_)?negatives?(_?\d+)?")
SCORE = ("score", "similarity", "label")
NO = ("no", "false", "negative", "different", "0")  # names of a first class of two that says no
USE_COLUMNS = "name them, or call them query, positive[, negative …] or sentence1, sentence2, score"


def read_pairs(
    data: TableOrPath | Sequence[TableOrPath],
    columns: Sequence[str] = (),
    field: str = "data",
    split: str = "train",
) -> Dataset:
    """Texts that belong together, of tables or data sets whose `columns` are two texts, then
    perhaps negatives or a score (by default guessed).

    Returns:
        The columns `first` and `second`; perhaps `third`, texts that do not belong to the first
        ones (a row for each of several), or `label`, how much the two belong together: from 0 to 1,
        divided by the largest score if that is above 1.
    """
    sources = sources_of(data, field)
    parts = []
    for source in sources:
        table = read_table(source, field=field, split=split)
        parts.append(_pairs_of(table, columns, name_of_data(source)))
    names = list(parts[0]) if parts else []
    if not parts or any(list(part) != names for part in parts):
        raise ValueError(
            f"{field}: {name_of_data(sources)!r}: give tables, all with the same kinds of columns"
        )
    pairs = {}
    for name in names:
        pairs[name] = list(chain.from_iterable(part[name] for part in parts))
    if "label" in pairs:
        largest = max(1.0, *pairs["label"])
        pairs["label"] = [score / largest for score in pairs["label"]]
    return Dataset.from_dict(pairs)


def _pairs_of(table: Dataset, columns: Sequence[str], where: str) -> dict[str, list]:
    """The columns of `read_pairs` of one table."""
    names = list(columns or _guess_columns(table, where))
    if len(names) < 2:
        raise ValueError(
            f"columns: {' '.join(names)}: name two texts, then perhaps negatives or a score"
        )
    missing = [name for name in names if name not in table.column_names]
    if missing:
        raise ValueError(
            f"columns: {where!r} has no column {missing[0]!r}; it has"
            f" {', '.join(table.column_names)}"
        )
    first_name, second_name, *other_names = names
    first = texts_of(table, first_name, where, blank=False)
    second = texts_of(table, second_name, where, blank=False)
    if not other_names:
        return {"first": first, "second": second}
    if len(other_names) == 1 and _is_score(table, other_names[0]):
        _check_scores(table, other_names[0], names, is_guessed=not columns, where=where)
        scores = numbers_of(table, other_names[0], where)
        return {"first": first, "second": second, "label": scores}
    negatives = _negatives_of(table, other_names, where)
    triples = {"first": [], "second": [], "third": []}
    for query, passage, texts in zip(first, second, negatives):
        for text in texts:
            triples["first"].append(query)
            triples["second"].append(passage)
            triples["third"].append(text)
    return triples


def _guess_columns(table: Dataset, where: str) -> list[str]:
    """The names of the columns of two texts, then of the negatives or of the score."""
    first = next((name for name in FIRST if name in table.column_names), None)
    second = next((name for name in SECOND if name in table.column_names), None)
    if first is None or second is None:
        names = ", ".join(table.column_names)
        raise ValueError(f"columns: cannot be guessed from {names} of {where!r}; {USE_COLUMNS}")
    negatives = [name for name in table.column_names if NEGATIVE.fullmatch(name)]
    if negatives:
        if len(negatives) > 1:
            print(f"{where}: the columns {', '.join(map(printable, negatives))} are negatives")
        return [first, second, *negatives]
    scores = [name for name in SCORE if name in table.column_names]
    return [first, second, *scores[:1]]


def _is_score(table: Dataset, name: str) -> bool:
    """Whether a third column has scores rather than negatives; in csv and tsv, a number is a
    text."""
    if name in SCORE:
        return True
    if NEGATIVE.fullmatch(name) or name not in table.column_names:
        return False
    return math.isfinite(to_number(table[name][0]))


def _check_scores(
    table: Dataset, column: str, names: Sequence[str], is_guessed: bool, where: str
) -> None:
    """Refuse (a ValueError) classes, whose numbers do not say how much two texts belong
    together."""
    feature = table.features[column]
    if isinstance(feature, ClassLabel) and not _are_scores(feature.names):
        raise ValueError(
            f"columns: {column!r} of {where!r} has the classes {', '.join(feature.names[:9])},"
            " which are no scores; train on them by `minibert finetune nli` or `classify`, or give"
            " scores, or the pairs that belong together"
        )
    is_inference = is_guessed and names[0] == "premise" and column == "label"
    if is_inference and {to_number(value) for value in table[column]} <= {0.0, 1.0, 2.0, -1.0}:
        raise ValueError(
            f"columns: {column!r} of {where!r} looks like the classes of inference (0, 1, 2),"
            " which are no scores; train on them by `minibert finetune nli`, or if they are"
            f" scores, give --columns {' '.join(names)}"
        )


def _are_scores(class_names: Sequence[str]) -> bool:
    """Whether the numbers of classes are scores: each is its name, or there are two, of which the
    first says no."""
    if list(map(to_number, class_names)) == list(range(len(class_names))):
        return True
    if len(class_names) != 2:
        return False
    first = class_names[0].lower()
    second = class_names[1].lower()
    return first in NO or re.fullmatch(rf"(not|non|no|un|dis)[ _-]?{re.escape(second)}", first)


def _negatives_of(table: Dataset, columns: Sequence[str], where: str) -> list[list[str]]:
    """The negatives of each row, from columns of texts or of lists of texts; empty cells are left
    out."""
    rows = []
    columns_of_cells = [table[column] for column in columns]
    for number, cells in enumerate(zip(*columns_of_cells), 1):
        negatives = []
        for column, cell in zip(columns, cells):
            for text in cell if isinstance(cell, list) else [cell]:
                if text is not None and not isinstance(text, str):
                    raise ValueError(f"{where}, row {number}: {column}={text!r} is not text")
                if text is not None and text.strip():
                    negatives.append(text)
        if not negatives:
            raise ValueError(f"{where}, row {number}: {', '.join(columns)}: there is no negative")
        rows.append(negatives)
    return rows


def pair_documents(
    documents: Sequence[Document], sources: Sequence[str], words: int = 64
) -> tuple[Dataset, list[str]]:
    """Pairs of text that nobody judged, as `read_pairs` gives them, and the document of each. The
    `sources`: title (a document's title and its text), adjacent (passages of `words` words that
    follow each other: Neelakantan et al. 2022, arXiv 2201.10005)."""
    first: list[str] = []
    second: list[str] = []
    groups: list[str] = []
    for source in sources:
        count = len(first)
        if source == "title":
            missing = "titles"
            pairs = _title_pairs(documents)
        elif source == "adjacent":
            missing = f"documents of more than {words} words"
            pairs = _adjacent_pairs(documents, words)
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
    documents: Sequence[Document], words: int
) -> Iterator[tuple[Document, str, str]]:
    for document in documents:
        for passage, next_passage in pairwise(split_passages(document.text, words)):
            yield document, passage, next_passage


def read_task(
    source: TableOrPath, columns: Sequence[str], split: str, field: str = "data"
) -> Dataset | Retrieval:
    """What a model is measured on: `read_retrieval` of a folder, `read_pairs` of all else."""
    if isinstance(source, (str, Path)) and Path(source).is_dir():
        return read_retrieval(source, split, field)
    return read_pairs(source, columns, field, split)
