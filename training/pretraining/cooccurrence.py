"""The first word embeddings of a new model: counts of neighbouring tokens in its text, factorized.
From random ones, a model needs hundreds of steps to find out which tokens are alike."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from scipy import sparse
from transformers import PreTrainedModel

# The number of neighbours on either side; each position is counted separately.
WINDOW = 2
# At most about this many tokens of a corpus are read, and the most frequent tokens are counted as
# neighbours.
ENOUGH_TOKENS, NEIGHBOURS = 4_000_000, 8192
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
        rows: token ids; the first `ENOUGH_TOKENS` are read.
    """
    from sklearn.utils.extmath import randomized_svd

    taken, tokens = [], 0
    for row in rows:
        taken += [np.asarray(row, dtype=np.int64), np.full(WINDOW, -1)]
        tokens += len(row)
        if tokens >= ENOUGH_TOKENS:
            break
    ids = np.concatenate(taken)
    ids[np.isin(ids, special_ids)] = -1
    frequencies = np.bincount(ids[ids >= 0], minlength=vocab_size)
    neighbours = np.sort(np.argsort(-frequencies, kind="stable")[:NEIGHBOURS])
    column = np.full(vocab_size + 1, -1)  # the last entry is for the id -1
    column[neighbours] = np.arange(len(neighbours))
    by_position = []
    for distance in range(1, WINDOW + 1):
        for word, neighbour in (
            (ids[:-distance], ids[distance:]),
            (ids[distance:], ids[:-distance]),
        ):
            counted = (word >= 0) & (column[neighbour] >= 0)
            pair = word[counted], column[neighbour[counted]]
            by_position.append(
                sparse.coo_array((np.ones(len(pair[0])), pair), (vocab_size, len(neighbours)))
            )
    counts = sparse.hstack(by_position).tocsr().tocoo()
    word, context = (np.asarray(counts.sum(axis)).ravel() for axis in (1, 0))
    context = context**CONTEXT_POWER / (context**CONTEXT_POWER).sum().clip(min=1)
    information = np.log(counts.data / (word[counts.row] * context[counts.col]))
    kept = information > 0
    positive = sparse.csr_array(
        (information[kept], (counts.row[kept], counts.col[kept])), counts.shape
    )
    rank = min(width, vocab_size)
    left, scale, _ = randomized_svd(positive, rank, n_iter=2, random_state=seed)
    vectors = np.zeros((vocab_size, width), dtype=np.float32)
    vectors[:, :rank] = left * np.sqrt(scale) * (word > 0)[:, None]
    return torch.from_numpy(vectors / np.sqrt(np.square(vectors).mean()).clip(min=1e-12))


@torch.no_grad()
def begin_with_word_vectors(
    model: PreTrainedModel, rows: Iterable[Sequence[int]], special_ids: Sequence[int], seed: int
) -> None:
    """Set the embeddings of a new model to the `word_vectors` of its text. Tokens that do not occur
    keep theirs."""
    table = model.get_input_embeddings().weight
    vectors = (
        word_vectors(rows, *table.shape, special_ids, seed).to(table)
        * model.config.initializer_range
    )
    table.copy_(torch.where(vectors.any(1, keepdim=True), vectors, table))
