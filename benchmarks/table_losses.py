"""What a loss is compared with: two tables that are counted, and that no network has learned."""

import itertools

import numpy as np

PSEUDO_COUNT = 10  # the frequencies count as this many tokens seen after each token


def table_losses(train_rows, held_out_rows, vocab_size, special_ids):
    """The mean −log P of the held-out tokens, by two tables that are counted in the rows to train on.

    The first knows how frequent each token is. The second also knows the token on the left, which
    it always sees.

    Args:
        train_rows, held_out_rows: lists of token ids.
        special_ids: tokens that are never asked for.

    Returns:
        Two losses: by the frequencies, and by the token on the left.
    """
    pairs = np.zeros((vocab_size, vocab_size))  # [left, token]
    for row in train_rows:
        np.add.at(pairs, (row[:-1], row[1:]), 1)
    pairs[:, special_ids] = 0
    counts = pairs.sum(axis=0) + 1
    counts[special_ids] = 0
    frequencies = counts / counts.sum()
    totals = pairs.sum(axis=1, keepdims=True)
    after_left = (pairs + PSEUDO_COUNT * frequencies) / (totals + PSEUDO_COUNT)
    frequency_losses = []
    left_losses = []
    for row in held_out_rows:
        for left, token in itertools.pairwise(row):
            if token not in special_ids:
                frequency_losses.append(-np.log(frequencies[token]))
                left_losses.append(-np.log(after_left[left, token]))
    return np.mean(frequency_losses), np.mean(left_losses)
