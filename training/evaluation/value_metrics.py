"""The metrics of values: correlations, from -1 to 1."""

import warnings
from collections.abc import Sequence

import numpy as np


def correlations(predictions: Sequence[float], references: Sequence[float]) -> dict[str, float]:
    """`pearson`, the linear correlation, and `spearman`, that of ranks, where equal values share a
    rank. Both are 0 where they are not defined: one side is constant, or there is one row only."""
    import scipy.stats

    if len(references) < 2:
        return {"pearson": 0.0, "spearman": 0.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", scipy.stats.ConstantInputWarning)
        pearson = scipy.stats.pearsonr(predictions, references).statistic
        spearman = scipy.stats.spearmanr(predictions, references).statistic
    # NaN where a correlation is not defined
    return {
        "pearson": float(np.nan_to_num(pearson)),
        "spearman": float(np.nan_to_num(spearman)),
    }
