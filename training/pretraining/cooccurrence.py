"""The first word embeddings of a new model: counts of neighbouring tokens in its text, factorized.
From random ones, a model needs hundreds of steps to find out which tokens are alike."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from scipy import sparse
from transformers import PreTrainedModel

# The number of neighbours on either side; each position is counted separately.
NEIGHBOUR_DISTANCE = 2
# About this many tokens of a corpus are read.
MAX_TOKENS_READ = 4_000_000
# This many tokens, the most frequent ones, are counted as neighbours.
NUM_NEIGHBOURS = 8192
# The frequency of a context is raised to this power (Levy, Goldberg & Dagan 2015, section 3.2).
CONTEXT_POWER = 0.75


def word_vectors(
    rows: Iterable[Sequence[int]],
    vocab_size: int,
    width: int,
    special_ids: Sequence[int] = (),
    seed: int = 0,
) -> torch.Tensor:
    """[vocab_size, width], the root mean square being 1: U √S of the truncated singular value
    decomposition U S Vᵀ of the positive pointwise mutual information of tokens and their neighbours
    (Levy & Goldberg 2014; Levy et al. 2015, TACL 3, sections 2 and 3.3). Zeros for ids that do not
    occur, and for special tokens, which are no neighbours.

    Args:
        rows: token ids; the first `MAX_TOKENS_READ` are read.
    """
    from sklearn.utils.extmath import randomized_svd

    counts = count_neighbours(_first_tokens(rows, special_ids), vocab_size)
    word_counts = np.asarray(counts.sum(1)).ravel()
    rank = min(width, vocab_size)
    information = positive_information(counts)
    left, scale, _ = randomized_svd(information, rank, n_iter=2, random_state=seed)
    vectors = np.zeros((vocab_size, width), dtype=np.float32)
    vectors[:, :rank] = left * np.sqrt(scale) * (word_counts > 0)[:, None]
    return torch.from_numpy(vectors / np.sqrt(np.square(vectors).mean()).clip(min=1e-12))


def _first_tokens(rows: Iterable[Sequence[int]], special_ids: Sequence[int]) -> np.ndarray:
    """The ids of the first rows, int64 [tokens]: -1 for special tokens, and between rows, so that
    tokens of two rows are no neighbours."""
    parts = []
    num_tokens = 0
    for row in rows:
        parts.append(np.asarray(row, dtype=np.int64))
        parts.append(np.full(NEIGHBOUR_DISTANCE, -1))
        num_tokens += len(row)
        if num_tokens >= MAX_TOKENS_READ:
            break
    ids = np.concatenate(parts)
    ids[np.isin(ids, special_ids)] = -1
    return ids


def count_neighbours(ids: np.ndarray, vocab_size: int) -> sparse.coo_array:
    """How often each word, a row, has each context, a column. A context is one of the
    `NUM_NEIGHBOURS` most frequent tokens at one of the positions around the word."""
    frequencies = np.bincount(ids[ids >= 0], minlength=vocab_size)
    neighbours = np.sort(np.argsort(-frequencies, kind="stable")[:NUM_NEIGHBOURS])
    column = np.full(vocab_size + 1, -1)  # the last entry is for the id -1
    column[neighbours] = np.arange(len(neighbours))
    counts_by_position = []
    for distance in range(1, NEIGHBOUR_DISTANCE + 1):
        before = ids[:-distance]
        after = ids[distance:]
        for word, neighbour in ((before, after), (after, before)):
            is_counted = (word >= 0) & (column[neighbour] >= 0)
            cells = (word[is_counted], column[neighbour[is_counted]])
            ones = np.ones(is_counted.sum())
            counts_by_position.append(
                sparse.coo_array((ones, cells), (vocab_size, len(neighbours)))
            )
    return sparse.hstack(counts_by_position).tocsr().tocoo()


def positive_information(counts: sparse.coo_array) -> sparse.csr_array:
    """The positive pointwise mutual information of words (rows) and contexts (columns)."""
    word_counts = np.asarray(counts.sum(1)).ravel()
    context_counts = np.asarray(counts.sum(0)).ravel() ** CONTEXT_POWER
    context_shares = context_counts / context_counts.sum().clip(min=1)
    expected = word_counts[counts.row] * context_shares[counts.col]
    information = np.log(counts.data / expected)
    is_positive = information > 0
    cells = (counts.row[is_positive], counts.col[is_positive])
    return sparse.csr_array((information[is_positive], cells), counts.shape)


@torch.no_grad()
def begin_with_word_vectors(
    model: PreTrainedModel, rows: Iterable[Sequence[int]], special_ids: Sequence[int], seed: int
) -> None:
    """Set the embeddings of a new model to the `word_vectors` of its text. Tokens that do not occur
    keep theirs."""
    table = model.get_input_embeddings().weight
    vectors = word_vectors(rows, *table.shape, special_ids, seed).to(table)
    vectors *= model.config.initializer_range
    table.copy_(torch.where(vectors.any(1, keepdim=True), vectors, table))
