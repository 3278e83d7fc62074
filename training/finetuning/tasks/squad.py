"""The nested JSON of SQuAD's own releases (rajpurkar.github.io/SQuAD-explorer, versions 1.1 and 2.0; XQuAD and MLQA
have the same), as rows."""

from __future__ import annotations

import datasets

ANSWERS = {"text": datasets.List(datasets.Value("string")), "answer_start": datasets.List(datasets.Value("int64"))}
FEATURES = datasets.Features(
    {name: datasets.Value("string") for name in ("id", "title", "context", "question")} | {"answers": ANSWERS}
)


def flatten_squad(rows: datasets.Dataset) -> datasets.Dataset:
    """A question a row, with the columns of the Hub's `squad`: id, title, context, question and answers, {text: [...],
    answer_start: [...]}; `rows` itself if it is no such file, which is one row: a list of articles."""
    articles = getattr(rows.features.get("data"), "feature", None)
    if len(rows) != 1 or not isinstance(articles, dict) or "paragraphs" not in articles:
        return rows
    questions = []
    for article in rows[0]["data"]:
        for paragraph in article["paragraphs"] or []:
            for question in paragraph["qas"] or []:
                answers = question.get("answers")
                row = {
                    "id": question.get("id"),
                    "title": article.get("title"),
                    "context": paragraph["context"],
                    "question": question["question"],
                    "answers": answers if answers is None else {part: [a[part] for a in answers] for part in ANSWERS},
                }
                questions.append(row)
    return datasets.Dataset.from_list(questions, features=FEATURES)
