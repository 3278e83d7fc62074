"""Exports of annotation tools (doccano's and Prodigy's) as rows of `tokens` and `ner_tags`, or of
`text` and `label`.

First `find_format` says, over all tables, what their columns mean; then `from_annotations` converts
each of them. An export of another tool is a field of `ExportFormat` and a branch in both; if only
its spans are written in another way, it is a case of `_is_span` and of `_sort_spans`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import datasets

PRODIGY_ANSWERS = {"accept", "reject", "ignore"}  # Prodigy's, in the column "answer"
SPAN_COLUMNS = ("spans", "entities", "label", "labels")
TEXT_COLUMNS = ("text", "data")
STRING_LIST_FEATURE = datasets.List(datasets.Value("string"))


class Span(NamedTuple):
    """The characters of a text from `start` to before `end`, which have a label."""

    start: int
    end: int
    label: str


@dataclass(frozen=True)
class ExportFormat:
    """What the columns of an export mean. It is settled over all files, since one of them may have
    no spans, or no accepted rows."""

    span_column: str | None  # of spans of characters
    has_answers: bool  # rows are accepted, rejected or ignored (Prodigy)
    is_binary: bool  # one label was asked for: a rejected row is one without it


def find_format(tables: Sequence[datasets.Dataset]) -> ExportFormat:
    """The format of the tables of all splits, which may be no export at all."""
    answers: set[Any] = set()
    labels: set[str] = set()
    has_spans_or_choices = False
    for table in tables:
        columns = set(table.column_names)
        if "answer" in columns:
            answers.update(map(str, table["answer"]))
        if columns & {"spans", "accept"}:
            has_spans_or_choices = True
        elif "label" in columns:
            labels.update(label for label in table["label"] if isinstance(label, str))
    span_column = None
    for column in SPAN_COLUMNS:
        if span_column is None and any(_has_spans(table, column) for table in tables):
            span_column = column
    has_answers = bool(answers) and answers <= PRODIGY_ANSWERS
    is_binary = has_answers and not has_spans_or_choices and len(labels) == 1
    return ExportFormat(span_column, has_answers, is_binary)


def from_annotations(rows: datasets.Dataset, export: ExportFormat) -> datasets.Dataset:
    """The rows of one file. Those with spans of characters get `tokens` and `ner_tags`, those with
    Prodigy's answers a `label`; others stay. A ValueError for a span that is outside of its text,
    or overlaps another one."""
    if export.has_answers and "answer" in rows.column_names:
        rows = _select_answered(rows, export.is_binary)
    columns = rows.column_names
    text_column = None
    for name in TEXT_COLUMNS:
        if text_column is None and name in columns:
            text_column = name
    if export.span_column not in columns or text_column is None or "ner_tags" in columns:
        return rows
    return _tag_words(rows, text_column, export.span_column)


def _has_spans(rows: datasets.Dataset, column: str) -> bool:
    """Whether the first list of a column that is not empty has spans: {start, end, label}, or
    [start, end, label]."""
    if column not in rows.column_names:
        return False
    for value in rows[column]:
        if isinstance(value, list) and value:
            return _is_span(value[0])
    return False


def _is_span(item: Any) -> bool:
    if isinstance(item, Mapping):
        return "label" in item and ("start" in item or "start_offset" in item)
    if not isinstance(item, list) or len(item) != 3:
        return False
    return isinstance(item[0], int) and isinstance(item[1], int)


# --- Answers ---


def _select_answered(rows: datasets.Dataset, is_binary: bool) -> datasets.Dataset:
    """The rows that were answered. "accept" holds the options chosen; where one label is asked for,
    "label" has it in the rows that were accepted, and is empty in those that were rejected."""
    if is_binary:
        selected_answers = {"accept", "reject"}
        reasons = "ignored"
    else:
        selected_answers = {"accept"}
        reasons = "ignored, rejected"
    selected = [i for i, answer in enumerate(rows["answer"]) if answer in selected_answers]
    num_left_out = len(rows) - len(selected)
    if num_left_out:
        print(f"{num_left_out:,} of {len(rows):,} rows are left out ({reasons})")
    rows = rows.select(selected)
    if is_binary:
        labels = []
        for label, answer in zip(rows["label"], rows["answer"]):
            labels.append([label] if answer == "accept" else [])
        rows = rows.remove_columns("label").add_column("label", labels, feature=STRING_LIST_FEATURE)
    elif "accept" in rows.column_names:
        labels = rows["accept"][:]
        if "label" in rows.column_names:
            rows = rows.remove_columns("label")
        rows = rows.remove_columns("accept")
        rows = rows.add_column("label", labels, feature=STRING_LIST_FEATURE)
    return rows.remove_columns("answer")


# --- Spans ---


def _tag_words(rows: datasets.Dataset, text_column: str, span_column: str) -> datasets.Dataset:
    """`rows` with `tokens` and `ner_tags` in place of spans of characters."""
    word_lists = [None] * len(rows)
    replaced = [span_column]
    if "tokens" in rows.column_names:  # Prodigy's words, with their characters
        word_lists = rows["tokens"]
        replaced.append("tokens")
    all_tokens = []
    all_tags = []
    columns = zip(rows[text_column], rows[span_column], word_lists)
    for number, (text, spans, words) in enumerate(columns, 1):
        try:
            tokens, tags = _tag_text(text, spans, words)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{span_column}: spans of row {number}: {error}; write them as "
                '{"text": "Anna sang", "label": [[0, 4, "PER"]]}'
            ) from None
        all_tokens.append(tokens)
        all_tags.append(tags)
    rows = rows.remove_columns(replaced)
    rows = rows.add_column("tokens", all_tokens, feature=STRING_LIST_FEATURE)
    return rows.add_column("ner_tags", all_tags, feature=STRING_LIST_FEATURE)


def _tag_text(
    text: str, spans: Sequence[Any] | None, words: Sequence[Mapping[str, Any]] | None
) -> tuple[list[str], list[str]]:
    """Words (Prodigy's, or words and marks, cut where a span begins or ends) and their tags in
    scheme BIO."""
    sorted_spans = _sort_spans(text, spans or [])
    if words is None:
        bounds = _split_words(text, sorted_spans)
    else:
        bounds = [(word["start"], word["end"]) for word in words]
    tokens = []
    tags = []
    previous_span = None
    for start, end in bounds:
        span = _first_overlap(sorted_spans, start, end)
        if span is None:
            tags.append("O")
        elif span is previous_span:
            tags.append(f"I-{span.label}")
        else:
            tags.append(f"B-{span.label}")
        tokens.append(text[start:end])
        previous_span = span
    return tokens, tags


def _first_overlap(sorted_spans: Sequence[Span], start: int, end: int) -> Span | None:
    """The first span with characters from `start` to before `end`."""
    for span in sorted_spans:
        if span.start < end and start < span.end:
            return span
    return None


def _sort_spans(text: str, items: Sequence[Any]) -> list[Span]:
    """The spans of a text in their order; a ValueError if one overlaps another or has no text."""
    spans = []
    for item in items:
        if isinstance(item, Mapping):
            start = item.get("start_offset", item.get("start"))
            end = item.get("end_offset", item.get("end"))
            spans.append(Span(start, end, item["label"]))
        else:
            spans.append(Span(*item))
    spans.sort()
    previous_end = 0
    for span in spans:
        if not previous_end <= span.start < span.end <= len(text):
            raise ValueError(
                f"{[span.start, span.end]} overlaps another one, or is outside of {text[:100]!r}"
            )
        previous_end = span.end
    return spans


def _split_words(text: str, spans: Iterable[Span]) -> list[tuple[int, int]]:
    """Where the words and marks of a text begin and end."""
    edges = [0]
    for span in spans:
        edges += [span.start, span.end]
    edges.append(len(text))
    bounds = []
    for start, end in pairwise(edges):
        for word in re.finditer(r"\w+|[^\w\s]", text[start:end]):
            bounds.append((start + word.start(), start + word.end()))
    return bounds
