"""The metrics of a single answer to a question, as SQuAD defines them, from 0 to 1."""

import re
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np


def normalize_answer(text: str) -> str:
    """As the SQuAD v1.1 script does: lower case, no ASCII punctuation, no English articles, single
    spaces."""
    text = text.lower().translate(dict.fromkeys(map(ord, string.punctuation)))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def compare_answers(predicted: str, true: str) -> tuple[bool, float]:
    """Whether two answers are the same once normalized, and the F1 of the words they share, counted
    with repeats."""
    words = normalize_answer(predicted).split()
    true_words = normalize_answer(true).split()
    is_same = words == true_words
    if not words or not true_words:
        return is_same, float(is_same)
    shared = Counter(words) & Counter(true_words)
    f1 = 2 * shared.total() / (len(words) + len(true_words))
    return is_same, f1


def answer_scores(
    predictions: Sequence[str], references: Sequence[Sequence[str]]
) -> tuple[np.ndarray, np.ndarray]:
    """`exact_match` and `f1` of each answer, [rows] each, see `SquadScores` in `squad_metrics`."""
    exact = []
    f1 = []
    for predicted, answers in zip(predictions, references):
        # As the official script has it: an answer of nothing but articles and marks is none.
        true_answers = list(filter(normalize_answer, answers)) or [""]
        scores = [compare_answers(predicted, answer) for answer in true_answers]
        best_exact, best_f1 = np.max(scores, axis=0)
        exact.append(best_exact)
        f1.append(best_f1)
    return np.array(exact, np.float64), np.array(f1, np.float64)
