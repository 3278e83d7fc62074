"""The losses of two counted tables, which notebook 4 compares losses with."""

import numpy as np
import pytest
from table_losses import PSEUDO_COUNT, table_losses


def test_table_losses():
    """Frequencies of the tokens, and of the tokens after a token; special tokens (0) are not asked for."""
    rows = [[0, 1, 2, 1, 2, 0], [0, 1, 1, 0]]
    frequency_loss, left_loss = table_losses(rows, [[0, 1, 2, 0]], 4, [0])
    frequency = {1: (4 + 1) / 9, 2: (2 + 1) / 9}
    after_start = (2 + PSEUDO_COUNT * frequency[1]) / (2 + PSEUDO_COUNT)
    after_one = (2 + PSEUDO_COUNT * frequency[2]) / (3 + PSEUDO_COUNT)
    assert frequency_loss == pytest.approx(-np.log([frequency[1], frequency[2]]).mean())
    assert left_loss == pytest.approx(-np.log([after_start, after_one]).mean())
