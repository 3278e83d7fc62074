"""Answers from the scores of their first and last tokens: n-best decoding over windows. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Answer:
    """Part of a context, characters `start` to `end - 1`; its score is the sum of the logits of its first and its last
    token. The answer that there is none is empty, at 0."""

    text: str
    start: int
    end: int
    score: float


@dataclass(frozen=True)
class WindowScores:
    """What is kept of one window: tokens by number and their logits, the best first, and where tokens stand.

    Args:
        starts, ends: numbers of tokens of the context; start_logits, end_logits: their logits.
        null_logit: the logit of "no answer here", start plus end.
        offsets: for every token of the window the characters it covers in the context, (first, last + 1).
    """

    starts: Sequence[int]
    start_logits: Sequence[float]
    ends: Sequence[int]
    end_logits: Sequence[float]
    null_logit: float
    offsets: Sequence[tuple[int, int]]


def best_answers(
    windows: Iterable[WindowScores],
    context: str,
    *,
    n_best: int = 20,
    max_answer_length: int = 30,
    null_threshold: float | None = None,
) -> list[Answer]:
    """The best answers over all windows of one question, each place in the context once, best first.

    Args:
        max_answer_length: in tokens.
        null_threshold: None: there is always an answer. A number: the empty answer is the first if its score (the
            lowest null logit of the windows; Devlin et al. 2019, section 4.3) exceeds the best answer's by more.
    """
    windows = list(windows)
    best: dict[tuple[int, int], float] = {}
    for window in windows:
        starts, ends = np.asarray(window.starts, dtype=int), np.asarray(window.ends, dtype=int)
        length = ends[None, :] - starts[:, None] + 1
        scores = np.add.outer(np.asarray(window.start_logits, float), np.asarray(window.end_logits, float))
        of_window: dict[tuple[int, int], float] = {}
        scores = np.where((length >= 1) & (length <= max_answer_length), scores, -np.inf)
        for place in np.argsort(-scores, axis=None, kind="stable"):
            i, j = np.unravel_index(place, scores.shape)
            if scores[i, j] == -np.inf or len(of_window) == n_best:
                break
            span = _without_spaces(context, window.offsets[starts[i]][0], window.offsets[ends[j]][1])
            if span[0] < span[1]:
                of_window.setdefault(span, float(scores[i, j]))
        for span, score in of_window.items():
            best[span] = max(best.get(span, -np.inf), score)
    ranked = sorted(best.items(), key=lambda item: -item[1])[:n_best]
    answers = [Answer(context[start:end], start, end, score) for (start, end), score in ranked]
    null = Answer("", 0, 0, min((window.null_logit for window in windows), default=0.0))
    if not answers:
        return [null]
    if null_threshold is not None:
        answers.insert(0 if null.score - answers[0].score > null_threshold else len(answers), null)
    return answers


def _without_spaces(context: str, start: int, end: int) -> tuple[int, int]:
    """Byte-level tokens begin with the space before a word."""
    text = context[start:end]
    start += len(text) - len(text.lstrip())
    return start, start + len(text.strip())


def answer_tokens(offsets: Sequence[tuple[int, int] | None], start: int, end: int) -> tuple[int, int] | None:
    """The first and last token of a window that together cover characters `start` to `end - 1`; None if the answer is
    not wholly in it.

    Args:
        offsets: for every token the characters it covers in the context, None for one that is not of the context.
    """
    inside = [i for i, offset in enumerate(offsets) if offset is not None and offset[0] < end and offset[1] > start]
    if not inside:
        return None
    first, last = inside[0], inside[-1]
    covered = offsets[first][0] <= start and end <= offsets[last][1]
    return (first, last) if covered else None
