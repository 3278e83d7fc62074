"""Masked language modelling on flat arrays of tokens: which tokens become targets.

A batch of T tokens (rows one after the other, without padding) is masked with a fixed number of
NumPy passes, in time and memory linear in T. All randomness enters as four uniform numbers for each
token (`draw_row_samples`): every result is a pure function of its arguments.
"""

from __future__ import annotations

import hashlib

import numpy as np

# What each of the four uniform numbers of a token decides: whether the token is a target; the
# length of a span, or the target of a document without one; whether a target becomes [MASK], a
# random token or stays; and the random token.
SELECT, EXTENT, ACTION, REPLACEMENT = range(4)

IGNORE_INDEX = -100

# The probabilities of spans of 1, 2, … words. "span": geometric with p = 0.2, at most
# 10 words (SpanBERT, arXiv 1907.10529, 3.1). "ngram": in inverse proportion to the length, at most
# 3 words (ALBERT, arXiv 1909.11942, 4.1).
GEOMETRIC_P = 0.2
SPAN_MAX_WORDS = 10
SPAN_WEIGHTS = {
    "span": (1 - GEOMETRIC_P) ** np.arange(SPAN_MAX_WORDS),
    "ngram": 1 / np.arange(1, 4),
}
SPAN_LENGTH_PROBABILITIES = {
    masking: weights / weights.sum() for masking, weights in SPAN_WEIGHTS.items()
}
MASKING_KINDS = ("token", "whole_word", *SPAN_WEIGHTS)


def draw_row_samples(
    seed: int, epoch: int, input_ids: np.ndarray, batch: int | None = None
) -> np.ndarray:
    """Draw uniform numbers in [0, 1) for one row, float64 [4, tokens]. The arguments (`batch` only
    for a stream) are the key of a counter-based generator: the place of the row in its batch, the
    worker and earlier draws do not matter.
    """
    key = f"{seed}:{epoch}"
    if batch is not None:
        key += f":{batch}"
    tokens = input_ids.astype("<i8").tobytes()
    digest = hashlib.blake2b(tokens, digest_size=16, key=key.encode()).digest()
    generator = np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))
    return generator.random((4, len(input_ids)))


def choose_targets(
    masking: str,
    rate: float,
    candidates: np.ndarray,
    word_starts: np.ndarray,
    row_of_token: np.ndarray,
    is_document_start: np.ndarray,
    uniform_samples: np.ndarray,
    at_least_one: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Choose the tokens to predict. Their expected share of the candidates is `rate` for every kind
    of masking.

    "token" and "whole_word" draw once for each token or word, as BERT's collators do. "span" and
    "ngram" cover words with spans, which end where their document or segment ends.

    Args:
        masking: one of `MASKING_KINDS`.
        rate: the expected share.
        candidates: bool [T], the tokens that may be chosen: neither special nor padding.
        word_starts: bool [T], the tokens that begin a word wherever they stand. The first candidate
            of a document, and a candidate after a token that is not one, begin a word too.
        row_of_token: int [T], in order.
        is_document_start: bool [T], the first tokens of documents.
        uniform_samples: float [4, T], uniform in [0, 1).
        at_least_one: give a document without targets one, a word drawn uniformly.

    Returns:
        `targets`, bool [T], and `span_first_token`, int [T]: the token whose ACTION draw decides
        for this one. All tokens of a word, or of a span, have the same one.
    """
    # Whether the token before is a candidate of the same document.
    follows_candidate = np.zeros_like(candidates)
    follows_candidate[1:] = candidates[:-1] & ~is_document_start[1:]
    word_starts = candidates & (word_starts | ~follows_candidate | (masking == "token"))
    first_token_of_word = np.flatnonzero(word_starts)  # [W]
    if len(first_token_of_word) == 0 or rate == 0:
        return np.zeros_like(candidates), np.arange(len(candidates))
    word_of_token = np.cumsum(word_starts) - 1  # [T] right for every candidate

    if masking in SPAN_LENGTH_PROBABILITIES:
        chosen, first_word_of_span = cover_with_spans(
            rate,
            SPAN_LENGTH_PROBABILITIES[masking],
            row_of_token[first_token_of_word],
            ~follows_candidate[first_token_of_word],
            uniform_samples[:, first_token_of_word],
        )
        span_first_token = first_token_of_word[first_word_of_span]
    else:
        chosen = uniform_samples[SELECT, first_token_of_word] < rate
        span_first_token = first_token_of_word

    if at_least_one:
        document_of_word = np.cumsum(is_document_start)[first_token_of_word]
        forced = _words_of_empty_documents(
            chosen, document_of_word, uniform_samples[EXTENT, first_token_of_word]
        )
        chosen = chosen | forced
        span_first_token = np.where(forced, first_token_of_word, span_first_token)
    return candidates & chosen[word_of_token], span_first_token[word_of_token]


def _words_of_empty_documents(
    chosen: np.ndarray, documents: np.ndarray, samples: np.ndarray
) -> np.ndarray:
    """The word with the smallest of the uniform `samples` in every document without a chosen one:
    bool [W]. `documents`: the document of each word, in order."""
    first_words = np.flatnonzero(np.diff(documents, prepend=-1))
    has_chosen = np.logical_or.reduceat(chosen, first_words)
    smallest = np.minimum.reduceat(samples, first_words)
    smallest = np.where(has_chosen, -1.0, smallest)  # no sample is -1
    num_words = np.diff(first_words, append=len(documents))
    return samples == np.repeat(smallest, num_words)


def cover_with_spans(
    rate: float,
    length_probabilities: np.ndarray,
    row_of_word: np.ndarray,
    is_span_break: np.ndarray,
    uniform_samples: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Cover words with spans: `covered`, bool [W], and `first_word_of_span`, int [W], the first
    word of the span of this one.

    Along each row, gaps and spans alternate in a stationary process, so that every word, including
    the first, is covered with probability `rate`. A gap has a geometric number of words (possibly
    none), a span has 1, 2, … words. The samples of the k-th word of a row are used for its k-th
    pair of gap and span.

    Args:
        rate: the expected share of the words.
        length_probabilities: float, of spans of 1, 2, … words.
        row_of_word: int [W], in order.
        is_span_break: bool [W], where a span that continues from the previous word is cut in two.
        uniform_samples: float [4, W].
    """
    mean_length = length_probabilities @ np.arange(1, len(length_probabilities) + 1)
    row_starts = np.flatnonzero(np.diff(row_of_word, prepend=-1))  # [R], the first words of rows
    begins_covered = uniform_samples[SELECT, row_starts] < rate  # [R]
    gaps = _draw_gaps(rate, mean_length, row_starts, begins_covered, uniform_samples[SELECT])
    lengths = _draw_lengths(
        length_probabilities, mean_length, row_starts[begins_covered], uniform_samples[EXTENT]
    )
    starts, stops = _place_spans(gaps, lengths, row_starts)
    return _merge_spans(starts, stops, is_span_break)


def _draw_gaps(
    rate: float,
    mean_length: float,
    row_starts: np.ndarray,
    begins_covered: np.ndarray,
    samples: np.ndarray,
) -> np.ndarray:
    """Draw the number of words before each span, int [W], from one uniform sample for each gap.

    Args:
        mean_length: of spans, in words.
        row_starts: int [R], the first gap of each row.
        begins_covered: bool [R], whether a row begins within a span: it has no first gap.
        samples: float [W].
    """
    # The probability that a gap ends at a word: the mean gap is to the mean span as 1 - rate is to
    # the rate.
    p_end = rate / (rate + mean_length * (1 - rate))
    # `begins_covered` has compared the first sample of a row with the rate. What is left of it is
    # uniform again.
    remainder = np.zeros(len(row_starts))
    if rate < 1:
        remainder = (samples[row_starts] - rate) / (1 - rate)
    samples = samples.copy()
    samples[row_starts] = np.where(begins_covered, 0, remainder)
    with np.errstate(divide="ignore"):
        gaps = np.log1p(-samples) / np.log1p(-p_end)
    gaps = np.minimum(gaps, len(samples)).astype(np.int64)
    # A row that begins uncovered has a gap of at least its first word.
    gaps[row_starts] += ~begins_covered
    return gaps


def _draw_lengths(
    length_probabilities: np.ndarray,
    mean_length: float,
    running_spans: np.ndarray,
    samples: np.ndarray,
) -> np.ndarray:
    """Draw the number of words of each span, int [W], from one uniform sample for each span.

    Args:
        running_spans: int, the spans that are running where their row begins.
        samples: float [W].
    """
    lengths = 1 + np.searchsorted(np.cumsum(length_probabilities)[:-1], samples, side="right")
    # A span that is running has k more words (including this one) with probability
    # P(length >= k) / mean.
    running_probabilities = np.cumsum(length_probabilities[::-1])[::-1] / mean_length
    lengths[running_spans] = 1 + np.searchsorted(
        np.cumsum(running_probabilities)[:-1], samples[running_spans], side="right"
    )
    return lengths


def _place_spans(
    gaps: np.ndarray, lengths: np.ndarray, row_starts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Lay gaps and spans one after the other along each row: the first word of each span, and the
    last one + 1. Spans beyond the end of their row are left out, and the last one is cut there."""
    num_words = len(gaps)
    row_lengths = np.diff(row_starts, append=num_words)
    row_ends = np.repeat(row_starts + row_lengths, row_lengths)  # [W]
    # As if all gaps and spans were of one row, and then counted from the start of their own.
    stops = np.cumsum(gaps + lengths)
    first_gap_starts = (stops - gaps - lengths)[row_starts]
    stops += np.repeat(row_starts - first_gap_starts, row_lengths)
    starts = stops - lengths
    is_within_row = starts < row_ends
    return starts[is_within_row], np.minimum(stops, row_ends)[is_within_row]


def _merge_spans(
    starts: np.ndarray, stops: np.ndarray, is_span_break: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """From the bounds of spans to words: which are covered, bool [W], and the first word of the
    span of each, int [W]."""
    num_words = len(is_span_break)
    change = np.zeros(num_words + 1, dtype=np.int64)
    change[starts] += 1
    change[stops] -= 1
    covered = np.cumsum(change[:-1]) > 0
    is_first = is_span_break.copy()
    is_first[starts] = True
    first_words = np.where(is_first, np.arange(num_words), 0)
    return covered, np.maximum.accumulate(first_words)
