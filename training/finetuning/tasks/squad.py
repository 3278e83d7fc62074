"""The nested JSON of SQuAD's own releases (rajpurkar.github.io/SQuAD-explorer, versions 1.1 and 2.0; XQuAD and MLQA
have the same), as rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import datasets

ARTICLES, PARAGRAPHS = "data", "paragraphs"
ANSWERS = {"text": datasets.List(datasets.Value("string")), "answer_start": datasets.List(datasets.Value("int64"))}
FEATURES = datasets.Features(
    {name: datasets.Value("string") for name in ("id", "title", "context", "question")} | {"answers": ANSWERS}
)


def flatten_squad(rows: datasets.Dataset) -> datasets.Dataset:
    """A question a row, with the columns of the Hub's `squad`: id, title, context, question and answers, {text: [...],
    answer_start: [...]}; `rows` itself if it is no such file, which is one row: a list of articles."""
    articles = getattr(rows.features.get(ARTICLES), "feature", None)
    if len(rows) != 1 or not isinstance(articles, dict) or PARAGRAPHS not in articles:
        return rows
    return datasets.Dataset.from_list(list(_questions(rows[0][ARTICLES])), features=FEATURES)


def _questions(articles: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for article in articles:
        for paragraph in article[PARAGRAPHS] or []:
            for question in paragraph["qas"] or []:
                answers = question.get("answers")
                yield {
                    "id": question.get("id"),
                    "title": article.get("title"),
                    "context": paragraph["context"],
                    "question": question["question"],
                    "answers": None if answers is None else _as_columns(answers),
                }


def _as_columns(answers: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {part: [answer[part] for answer in answers] for part in ANSWERS}
