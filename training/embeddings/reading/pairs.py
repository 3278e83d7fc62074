"""Pairs of texts that tables have. Errors name the row, counted from 1."""

import math
import re
from collections.abc import Sequence
from itertools import chain

from datasets import ClassLabel, Dataset

from ...common.printable import printable
from ...data.cell_types import to_number
from ...data.tables import name_of_data, read_table, sources_of
from .texts import TableOrPath, numbers_of, texts_of

# What columns are guessed from: the first and the second text, then the negatives or the score.
FIRST_COLUMNS = ("query", "anchor", "question", "sentence1", "text1", "premise")
SECOND_COLUMNS = (
    "positive",
    "passage",
    "answer",
    "sentence2",
    "text2",
    "document",
    "text",
    "hypothesis",
)
NEGATIVE_COLUMN = re.compile(r"(hard_)?negatives?(_?\d+)?")
SCORE_COLUMNS = ("score", "similarity", "label")
# Of two classes, a first one with such a name says that the texts do not belong together.
NEGATIVE_CLASSES = ("no", "false", "negative", "different", "0")
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


def _pairs_of(table: Dataset, columns: Sequence[str], table_name: str) -> dict[str, list]:
    """The columns of `read_pairs` of one table."""
    names = list(columns or _guess_columns(table, table_name))
    if len(names) < 2:
        raise ValueError(
            f"columns: {' '.join(names)}: name two texts, then perhaps negatives or a score"
        )
    missing = [name for name in names if name not in table.column_names]
    if missing:
        raise ValueError(
            f"columns: {table_name!r} has no column {missing[0]!r}; it has"
            f" {', '.join(table.column_names)}"
        )
    first_name, second_name, *other_names = names
    first = texts_of(table, first_name, table_name, blank=False)
    second = texts_of(table, second_name, table_name, blank=False)
    if not other_names:
        return {"first": first, "second": second}
    if len(other_names) == 1 and _is_score(table, other_names[0]):
        _check_scores(table, other_names[0], names, is_guessed=not columns, table_name=table_name)
        scores = numbers_of(table, other_names[0], table_name)
        return {"first": first, "second": second, "label": scores}
    negatives = _negatives_of(table, other_names, table_name)
    triples = {"first": [], "second": [], "third": []}
    for query, passage, texts in zip(first, second, negatives):
        for text in texts:
            triples["first"].append(query)
            triples["second"].append(passage)
            triples["third"].append(text)
    return triples


def _guess_columns(table: Dataset, table_name: str) -> list[str]:
    """The names of the columns of two texts, then of the negatives or of the score."""
    first = next((name for name in FIRST_COLUMNS if name in table.column_names), None)
    second = next((name for name in SECOND_COLUMNS if name in table.column_names), None)
    if first is None or second is None:
        names = ", ".join(table.column_names)
        raise ValueError(
            f"columns: cannot be guessed from {names} of {table_name!r}; {USE_COLUMNS}"
        )
    negatives = [name for name in table.column_names if NEGATIVE_COLUMN.fullmatch(name)]
    if negatives:
        if len(negatives) > 1:
            print(f"{table_name}: the columns {', '.join(map(printable, negatives))} are negatives")
        return [first, second, *negatives]
    scores = [name for name in SCORE_COLUMNS if name in table.column_names]
    return [first, second, *scores[:1]]


def _is_score(table: Dataset, name: str) -> bool:
    """Whether a third column has scores rather than negatives; in csv and tsv, a number is a
    text."""
    if name in SCORE_COLUMNS:
        return True
    if NEGATIVE_COLUMN.fullmatch(name) or name not in table.column_names:
        return False
    for cell in table[name]:
        if isinstance(cell, float):  # also NaN, which stands for a missing number
            return True
        if cell is not None and cell != "":
            return math.isfinite(to_number(cell))
    return False


def _check_scores(
    table: Dataset, column: str, names: Sequence[str], is_guessed: bool, table_name: str
) -> None:
    """Refuse (a ValueError) classes, whose numbers do not say how much two texts belong
    together."""
    feature = table.features[column]
    if isinstance(feature, ClassLabel) and not _are_scores(feature.names):
        raise ValueError(
            f"columns: {column!r} of {table_name!r} has the classes {', '.join(feature.names[:9])},"
            " which are no scores; train on them by `minibert finetune nli` or `classify`, or give"
            " scores, or the pairs that belong together"
        )
    is_inference = is_guessed and names[0] == "premise" and column == "label"
    if is_inference and {to_number(value) for value in table[column]} <= {0.0, 1.0, 2.0, -1.0}:
        raise ValueError(
            f"columns: {column!r} of {table_name!r} looks like the classes of inference (0, 1, 2),"
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
    if first in NEGATIVE_CLASSES:
        return True
    return re.fullmatch(rf"(not|non|no|un|dis)[ _-]?{re.escape(second)}", first) is not None


def _negatives_of(table: Dataset, columns: Sequence[str], table_name: str) -> list[list[str]]:
    """The negatives of each row, from columns of texts or of lists of texts; empty cells are left
    out."""
    rows = []
    columns_of_cells = [table[column] for column in columns]
    for number, cells in enumerate(zip(*columns_of_cells), 1):
        negatives = []
        for column, cell in zip(columns, cells):
            for text in cell if isinstance(cell, list) else [cell]:
                if text is not None and not isinstance(text, str):
                    raise ValueError(f"{table_name}, row {number}: {column}={text!r} is not text")
                if text is not None and text.strip():
                    negatives.append(text)
        if not negatives:
            raise ValueError(
                f"{table_name}, row {number}: {', '.join(columns)}: there is no negative; give one,"
                " or remove the row"
            )
        rows.append(negatives)
    return rows


def passages_of(pairs: Dataset) -> dict[str, list[str]]:
    """The passages of every query, each once; a pair stands once for each of its negatives."""
    passages: dict[str, dict[str, None]] = {}
    for query, passage in zip(pairs["first"], pairs["second"]):
        passages.setdefault(query, {})[passage] = None
    return {query: list(texts) for query, texts in passages.items()}
