"""Whether the first line of a csv or tsv file is a header although it has names by `--columns`."""

import math
from collections.abc import Sequence

from ..common.printing import warn
from .cell_types import to_number
from .text_files import ReadError

# A first line of such names is a header, not data.
USUAL_COLUMNS = {
    "id", "idx", "index", "text", "sentence", "content", "review", "document", "tweet", "comment",
    "message", "title", "body", "question", "answer", "query", "passage", "context", "premise",
    "hypothesis", "sentence1", "sentence2", "text1", "text2", "text_a", "text_b", "question1",
    "question2", "label", "labels", "class", "category", "target", "score", "rating", "stars",
    "similarity", "sentiment", "source", "date", "language",
}  # fmt: skip


def check_no_header(file: str, header: Sequence[str], records: Sequence[dict[str, str]]) -> None:
    """Refuse names for the columns of a file whose first line is a header; warn if it may
    be one."""
    if not records:
        return
    first_record = records[0]
    first_cells = {cell.strip().casefold() for cell in first_record.values()}
    is_header = first_cells <= USUAL_COLUMNS
    for name in header:
        cell = first_record[name].strip()
        other_cells = [record[name].strip() for record in records[1:]]
        if cell.casefold() == name.casefold() or _is_only_text(cell, other_cells):
            is_header = True
        elif _is_only_rare(cell, other_cells):
            warn(
                f"columns: {cell[:50]!r} in the first row of {file!r} is in no other row of the "
                f"column {name!r}; if that row is a header, leave --columns out"
            )
    if is_header:
        names = ", ".join(repr(cell[:50]) for cell in first_record.values())
        raise ReadError(
            f"columns: the first row of {file!r} is a header ({names}); leave --columns out, or "
            "remove that row"
        )


def _is_only_text(cell: str, other_cells: Sequence[str]) -> bool:
    """Whether a cell is not a number, but all others of its column that are not blank are."""
    if not cell or not math.isnan(to_number(cell)):
        return False
    filled_cells = list(filter(None, other_cells))
    return len(filled_cells) > 1 and not any(map(math.isnan, map(to_number, filled_cells)))


def _is_only_rare(cell: str, other_cells: Sequence[str]) -> bool:
    """Whether a cell occurs once, but the others of its column again and again, as classes do."""
    classes = set(other_cells)
    have_classes = len(other_cells) >= 10 and len(classes) <= len(other_cells) // 5
    return have_classes and cell not in classes
