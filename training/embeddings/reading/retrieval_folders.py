"""The files of a retrieval folder, read.

It is laid out as BEIR's (Thakur et al. 2021, arXiv 2104.08663): corpus.jsonl (_id,
text, perhaps title), queries_SPLIT.jsonl (_id, text), qrels_SPLIT.csv or .tsv, or qrels/SPLIT.tsv
(query-id, corpus-id, score); without SPLIT where one is for all. Errors name the file and the row,
counted from 1 without a header.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...common.printable import printable
from ...data.cell_types import to_number
from ...data.tables import read_table
from .documents import documents_of_rows
from .passages import Passage
from .texts import texts_of

MAX_MISSING_SHARE = 0.1  # of judgements that name a passage or a query that is not there


class RetrievalFolder(NamedTuple):
    """What such a folder holds."""

    passages: list[Passage]
    queries: dict[str, str]  # the text of each query, by its id
    relevant: dict[str, dict[str, float]]  # the grades of passages: relevant[query id][passage id]


def is_folder(source: Any) -> bool:
    """Whether data are a folder, and not a table, rows or a Hub name."""
    return isinstance(source, (str, Path)) and Path(source).is_dir()


def read_retrieval(folder: str | Path, split: str = "test", field: str = "data") -> RetrievalFolder:
    """The queries of `split` that have a relevant passage, with the whole corpus. A ValueError for
    a missing file and an id that occurs twice; `field` is the argument's name."""
    corpus_file = _find_file(folder, ["corpus.jsonl"], field)
    queries_file = _find_file(folder, [f"queries_{split}.jsonl", "queries.jsonl"], field)
    stems = (f"qrels_{split}", f"qrels/{split}", "qrels")
    judgements = [stem + suffix for stem in stems for suffix in (".csv", ".tsv")]
    judgements_file = _find_file(folder, judgements, field)
    passages = []
    passage_ids = set()
    for document in documents_of_rows(read_table(corpus_file), "", corpus_file):
        passages.append(Passage(document.id, f"{document.title} {document.text}".strip()))
        passage_ids.add(document.id)
    if len(passage_ids) < len(passages):
        raise ValueError(f"{corpus_file}: several rows have the same _id; give each its own")
    table = read_table(queries_file, ["_id", "text"])
    query_texts = texts_of(table, "text", queries_file, blank=False)
    queries = dict(zip(map(str, table["_id"]), query_texts))
    if len(queries) < len(table):
        raise ValueError(f"{queries_file}: several rows have the same _id; give each its own")
    relevant = _read_judgements(judgements_file, queries, passage_ids)
    queries = {query_id: text for query_id, text in queries.items() if query_id in relevant}
    return RetrievalFolder(passages, queries, relevant)


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
            raise ValueError(f"{file}, {row}: the score is no number; give a grade, such as 1")
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
        raise ValueError(
            f"{file}: no query has a relevant passage (a score above 0);"
            " give the judgements of these queries"
        )
    return with_relevant_passage
