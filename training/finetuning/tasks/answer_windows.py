"""Contexts that are longer than an input: read in parts (windows), of which the best answer is
found."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

# Tokens of a question, as BERT had them on SQuAD.
MAX_QUESTION_LENGTH = 64
# The token that stands for "no answer here": the first one, [CLS].
NULL_TOKEN = 0


def encode_questions(tokenizer, questions, contexts, answers, starts) -> dict[str, list]:
    """Pairs of a question, cut to `MAX_QUESTION_LENGTH` tokens, and a part of its context,
    `model_max_length` tokens at most; neighbouring parts share a third of that. One row each, in
    order. Beside the model's inputs: `start_positions` and `end_positions` of the first answer
    (texts and first characters are given), both 0 where it is not wholly there; `offsets`, for each
    token the characters [first, last + 1] that it covers, [-1, -1] where it is not of the context;
    `is_last`, whether the context ends here."""
    encoded = tokenizer(
        cut_questions(tokenizer, questions),
        contexts,
        truncation="only_second",
        stride=tokenizer.model_max_length // 3,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    question_of = encoded.pop("overflow_to_sample_mapping")
    all_offsets = encoded.pop("offset_mapping")
    rows = {"start_positions": [], "end_positions": [], "offsets": [], "is_last": []}
    for window, question in enumerate(question_of):
        segments = encoded.sequence_ids(window)
        offsets = []
        for segment, characters in zip(segments, all_offsets[window]):
            offsets.append(characters if segment == 1 else (-1, -1))
        first = NULL_TOKEN
        last = NULL_TOKEN
        if answers[question]:
            text = answers[question][0]
            start = starts[question][0]
            tokens = answer_tokens(offsets, start, start + len(text))
            if tokens is not None:
                first, last = tokens
        is_last = window + 1 == len(question_of) or question_of[window + 1] != question
        rows["start_positions"].append(first)
        rows["end_positions"].append(last)
        rows["offsets"].append(offsets)
        rows["is_last"].append(is_last)
    return {**encoded, **rows}


def cut_questions(tokenizer, questions: Sequence[str]) -> list[str]:
    """The questions, cut to `MAX_QUESTION_LENGTH` tokens, or a quarter of the input if that is
    less."""
    max_length = min(MAX_QUESTION_LENGTH, tokenizer.model_max_length // 4)
    tokenized = tokenizer(
        questions, add_special_tokens=False, return_offsets_mapping=True, verbose=False
    )
    cut = []
    for question, offsets in zip(questions, tokenized["offset_mapping"]):
        if len(offsets) > max_length:
            question = question[: offsets[max_length - 1][1]]
            # A character may be several tokens.
            while len(tokenizer.tokenize(question)) > max_length:
                question = question[:-1]
        cut.append(question)
    return cut


def answer_tokens(
    offsets: Sequence[tuple[int, int]], start: int, end: int
) -> tuple[int, int] | None:
    """The first and last token of a window that together cover characters `start` to `end - 1`;
    None if the answer is not wholly in it. `offsets`: as `encode_questions` makes them. Characters
    that belong to no token (such as accents that a normalizer drops) are in it where a token of the
    context follows or goes before."""
    context_tokens = [token for token, (first, _) in enumerate(offsets) if first >= 0]
    answer = [
        token for token in context_tokens if offsets[token][0] < end and offsets[token][1] > start
    ]
    if not answer:
        return None
    begins_here = offsets[answer[0]][0] <= start or answer[0] > context_tokens[0]
    ends_here = end <= offsets[answer[-1]][1] or answer[-1] < context_tokens[-1]
    if not begins_here or not ends_here:
        return None
    return answer[0], answer[-1]


def best_answer(
    windows: Iterable[tuple[np.ndarray, Sequence[tuple[int, int]]]],
    context: str,
    max_answer_length: int = 30,
    null_threshold: float | None = None,
) -> str:
    """The text with the highest sum of the logits of its first and last token over all windows of
    one question; empty where nothing of the context can be it.

    Args:
        windows: of each the logits of its tokens as first and as last one of the answer, [tokens or
            more, 2], and their `offsets`, see `encode_questions`.
        max_answer_length: in tokens.
        null_threshold: by how much the score of the empty answer (the lowest null logit of the
            windows; Devlin et al. 2019, section 4.3) must exceed the best answer's to be given;
            None: there is always an answer.
    """
    null_score = np.inf
    best_score = -np.inf
    best_text = ""
    for logits, offsets in windows:
        logits = np.asarray(logits[: len(offsets)], float)  # without padding
        null_score = min(null_score, float(logits[NULL_TOKEN].sum()))
        is_context = np.array(offsets)[:, :1] >= 0
        first_logits, last_logits = np.where(is_context, logits, -np.inf).T
        # [i, j]: the score of the answer from token i to token i + j
        padded = np.pad(last_logits, (0, max_answer_length - 1), constant_values=-np.inf)
        scores = first_logits[:, None] + sliding_window_view(padded, max_answer_length)
        while scores.max() > best_score:
            i, j = np.unravel_index(scores.argmax(), scores.shape)
            text = text_of_tokens(context, offsets, i, i + j)
            if text:
                best_score = scores[i, j]
                best_text = text
            scores[i, j] = -np.inf
    if null_threshold is not None and null_score - best_score > null_threshold:
        return ""
    return best_text


def text_of_tokens(context: str, offsets: Sequence[tuple[int, int]], first: int, last: int) -> str:
    """The text of the tokens `first` to `last`, up to the next token: accents may belong to none.
    Byte-level tokens begin with the space before a word."""
    start = offsets[first][0]
    end = offsets[last][1]
    if last + 1 < len(offsets):
        end = max(end, offsets[last + 1][0])
    return context[start:end].strip()
