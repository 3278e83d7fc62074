"""Masked language modelling on flat arrays of tokens: which tokens are targets, and the draws that decide on them.

A batch of T tokens (rows one after the other, no padding between them) is masked with a fixed number of NumPy passes,
in time and memory linear in T. All randomness comes in as four uniform numbers per token (`row_draws`), so that every
result is a pure function of its arguments.
"""

import hashlib

import datasets
import numpy as np

MASKING_KINDS = ("token", "whole_word", "span")

# What the four uniform numbers of a token decide. EXTENT is a span's length, and which word becomes the target of a
# document that would have none.
SELECT, EXTENT, ACTION, REPLACEMENT = range(4)

IGNORE_INDEX = -100

# Span lengths follow a geometric distribution with p = 0.2, at most 10 words (SpanBERT, arXiv 1907.10529, 3.1).
SPAN_P = 0.2
SPAN_MAX_WORDS = 10


def row_draws(seed: int, epoch: int, input_ids: np.ndarray, batch: int | None = None) -> np.ndarray:
    """Uniform numbers in [0, 1) for one row: float64 [4, tokens], a pure function of the arguments (`batch`: of a
    stream), which key a counter-based generator: neither the row's place in the batch, nor the worker or the rank that
    asks, nor what was drawn before matters."""
    key = (f"{seed}:{epoch}" if batch is None else f"{seed}:{epoch}:{batch}").encode()
    digest = hashlib.blake2b(input_ids.astype("<i8").tobytes(), digest_size=16, key=key).digest()
    generator = np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))
    return generator.random((4, len(input_ids)))


def choose_targets(
    masking: str,
    rate: float,
    candidates: np.ndarray,
    word_starts: np.ndarray,
    rows: np.ndarray,
    begins: np.ndarray,
    draws: np.ndarray,
    at_least_one: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Choose the tokens to predict, on average the share `rate` of the candidates, whatever the kind of masking.

    `token` and `whole_word` draw once per token or word, as BERT's collators do; `span` covers words with spans, which
    end where their document or segment ends.

    Args:
        candidates: bool [T], the tokens that may be chosen: neither special nor padding.
        word_starts: bool [T], tokens that begin a word wherever they stand. A candidate also begins one after a token
            that is no candidate, and at the beginning of a document.
        rows, begins: int [T], the row of every token, never decreasing; bool [T], the first tokens of documents.
        draws: float [4, T], uniform in [0, 1).
        at_least_one: a document in which chance chose nothing gets one target, a word drawn uniformly.

    Returns:
        `targets`, bool [T], and `leaders`, int [T]: the token whose ACTION draw decides what becomes of this one, the
        same for all tokens of a word, or of a span.
    """
    follows = np.zeros_like(candidates)
    follows[1:] = candidates[:-1] & ~begins[1:]
    word_starts = candidates & (word_starts | ~follows | (masking == "token"))
    firsts = np.flatnonzero(word_starts)  # [W] the first token of every word
    if len(firsts) == 0 or rate == 0:
        return np.zeros_like(candidates), np.arange(len(candidates))
    words = np.cumsum(word_starts) - 1  # [T] the word of every candidate

    if masking == "span":
        chosen, leaders = _spans(rate, rows[firsts], ~follows[firsts], draws[:, firsts])
        leaders = firsts[leaders]
    else:
        chosen, leaders = draws[SELECT, firsts] < rate, firsts

    if at_least_one:  # the word with the smallest draw, in every document without a chosen one
        documents = np.flatnonzero(np.diff(np.cumsum(begins)[firsts], prepend=-1))  # the first word of each
        extent = draws[EXTENT, firsts]
        smallest = np.where(np.logical_or.reduceat(chosen, documents), -1.0, np.minimum.reduceat(extent, documents))
        forced = extent == np.repeat(smallest, np.diff(documents, append=len(firsts)))
        chosen, leaders = chosen | forced, np.where(forced, firsts, leaders)
    return candidates & chosen[words], leaders[words]


def _spans(rate: float, rows: np.ndarray, breaks: np.ndarray, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cover words with spans: a stationary alternation of gaps and spans along every row, so that every word, the first
    one too, is covered with probability `rate`. A gap has a geometric number of words (possibly none), a span the
    capped geometric number above. Word k of a row lends its draws to the row's k-th pair of gap and span.

    Args:
        rows: int [W], the row of every word.
        breaks: bool [W], true where a span that runs on from the word before is cut in two.

    Returns:
        `covered`, bool [W], and `leaders`, int [W]: the first word of the span that covers this one.
    """
    lengths = np.arange(1, SPAN_MAX_WORDS + 1)
    p_length = (1 - SPAN_P) ** (lengths - 1)
    p_length /= p_length.sum()
    mean = p_length @ lengths
    # A span that is already running goes on for k words (this one included) with probability P(length >= k) / mean.
    p_rest = np.cumsum(p_length[::-1])[::-1] / mean
    p_begin = rate / (rate + mean * (1 - rate))  # mean gap : mean span = 1 - rate : rate

    first = np.flatnonzero(np.diff(rows, prepend=-1))  # the first word of every row
    counts = np.diff(first, append=len(rows))
    ends = np.repeat(first + counts, counts)  # [W] one past the last word of the row

    select, extent = draws[SELECT].copy(), draws[EXTENT]
    running = select[first] < rate
    # What the comparison left of the draw is uniform again and gives the gap.
    select[first] = np.where(running, 0, (select[first] - rate) / (1 - rate) if rate < 1 else 0)
    with np.errstate(divide="ignore"):
        gaps = np.log1p(-select) / np.log1p(-p_begin)
    gaps = np.minimum(gaps, len(rows)).astype(np.int64)
    gaps[first] += ~running  # a row that begins uncovered has a gap of at least this word
    length = 1 + np.searchsorted(np.cumsum(p_length)[:-1], extent, side="right")
    length[first[running]] = 1 + np.searchsorted(np.cumsum(p_rest)[:-1], extent[first[running]], side="right")

    after = np.cumsum(gaps + length)  # where each span ends, counted from the first row's first word
    after += np.repeat(first - (after - gaps - length)[first], counts)  # … and now from its own row's
    starts = after - length
    inside = starts < ends
    starts, after = starts[inside], np.minimum(after, ends)[inside]

    change = np.zeros(len(rows) + 1, dtype=np.int64)
    change[starts] += 1
    change[after] -= 1
    covered = np.cumsum(change[:-1]) > 0
    begins = breaks.copy()
    begins[starts] = True
    return covered, np.maximum.accumulate(np.where(begins, np.arange(len(rows)), 0))


def unigram_counts(rows: datasets.Dataset, vocab_size: int) -> np.ndarray:
    """How often every id occurs in the column `input_ids` of `rows`: int64 [vocab_size]."""
    counts = np.zeros(vocab_size, dtype=np.int64)
    for table in rows.select_columns("input_ids").with_format("arrow").iter(1000):
        ids = table["input_ids"].combine_chunks().flatten().to_numpy()
        counts += np.bincount(ids, minlength=vocab_size)
    return counts
