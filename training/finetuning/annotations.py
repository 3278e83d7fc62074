"""Exports of annotation tools as rows of `tokens` and `ner_tags`, or of `text` and `label`: doccano's and Prodigy's."""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import datasets

ANSWERS = {"accept", "reject", "ignore"}  # Prodigy's, in the column "answer"
SPANS, TEXTS = ("spans", "entities", "label", "labels"), ("text", "data")
EXAMPLE = '{"text": "Anna sang", "label": [[0, 4, "PER"]]}'
STRINGS = datasets.List(datasets.Value("string"))


def from_annotations(rows: datasets.Dataset) -> datasets.Dataset:
    """Rows with spans of characters get `tokens` and `ner_tags`, those with Prodigy's answers a `label`; others stay. A
    ValueError for a span that is outside of its text, or overlaps another one."""
    columns = rows.column_names
    if "answer" in columns and {*rows["answer"]} <= ANSWERS:
        rows = _accepted(rows)
    column = next((name for name in SPANS if name in columns and _has_spans(rows, name)), None)
    text = next((name for name in TEXTS if name in columns), None)
    if column is None or text is None or "ner_tags" in columns:
        return rows
    words = rows["tokens"] if "tokens" in columns else [None] * len(rows)
    tagged = []
    for number, row in enumerate(zip(rows[text], rows[column], words), 1):
        try:
            tagged.append(_tag(*row))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{column}: spans of row {number}: {error}; write them as {EXAMPLE}"
            ) from None
    rows = rows.remove_columns([name for name in (column, "tokens") if name in columns])
    for name, values in zip(("tokens", "ner_tags"), zip(*tagged)):
        rows = rows.add_column(name, list(values), feature=STRINGS)
    return rows


def _accepted(rows: datasets.Dataset) -> datasets.Dataset:
    """The rows that were answered. "accept" holds the options chosen; where one label is asked for, "label" has it in
    the rows that were accepted, and is empty in those that were rejected."""
    answers, names = rows["answer"][:], rows.column_names
    labels = rows["label"] if "label" in names and not {"spans", "accept"} & {*names} else []
    binary = len({label for label in labels if isinstance(label, str)}) == 1
    kept = [
        i
        for i, answer in enumerate(answers)
        if answer == "accept" or (binary and answer == "reject")
    ]
    print(
        f"{len(rows) - len(kept):,} of {len(rows):,} rows are left out (ignored{', rejected' * (not binary)})"
    )
    rows = rows.select(kept)
    if not (binary or "accept" in names):
        return rows.remove_columns("answer")
    labels = (
        [[label] * (answers[i] == "accept") for i, label in zip(kept, rows["label"])]
        if binary
        else rows["accept"]
    )
    rows = rows.remove_columns([name for name in ("answer", "accept", "label") if name in names])
    return rows.add_column("label", list(labels), feature=STRINGS)


def _has_spans(rows: datasets.Dataset, column: str) -> bool:
    """Whether the first list of a column that is not empty has spans: {start, end, label}, or [start, end, label]."""
    first = next((value for value in rows[column] if isinstance(value, list) and value), [None])[0]
    if isinstance(first, Mapping):
        return "label" in first and bool({"start", "start_offset"} & first.keys())
    return (
        isinstance(first, list)
        and len(first) == 3
        and all(isinstance(each, int) for each in first[:2])
    )


def _tag(
    text: str, spans: Sequence[Any] | None, words: Sequence[Mapping[str, Any]] | None
) -> tuple[list, list]:
    """Words (Prodigy's, or words and marks, cut where a span begins or ends) and their tags in scheme BIO."""
    found, end = [], 0
    for span in spans or []:
        if isinstance(span, Mapping):
            span = [span.get(f"{edge}_offset", span.get(edge)) for edge in ("start", "end")] + [
                span["label"]
            ]
        found.append(tuple(span))
    found.sort()
    for first, last, _ in found:
        if not end <= first < last <= len(text):
            raise ValueError(
                f"{[first, last]} overlaps another one, or is outside of {text[:100]!r}"
            )
        end = last
    if words is None:
        edges = [0, *(edge for span in found for edge in span[:2]), len(text)]
        parts = ((a, re.finditer(r"\w+|[^\w\s]", text[a:b])) for a, b in pairwise(edges))
        places = [(a + word.start(), a + word.end()) for a, of_part in parts for word in of_part]
    else:
        places = [(word["start"], word["end"]) for word in words]
    tags, last = [], None
    for start, stop in places:
        span = next((span for span in found if span[0] < stop and start < span[1]), None)
        tags.append("O" if span is None else f"{'I' if span is last else 'B'}-{span[2]}")
        last = span
    return [text[start:stop] for start, stop in places], tags
