"""How the negatives of a reranker are chosen."""

import random
from typing import Any

from datasets import Dataset
from sentence_transformers.util import mine_hard_negatives

from .pairs import passages_of

NUM_NEAREST = 30  # passages that mined negatives are drawn from


def with_negatives(pairs: Dataset, pool: list[str], count: int, miner: Any = None) -> Dataset:
    """Label the pairs with 1, and negatives of their queries with 0. The negatives are the column
    `third` if there is one, else texts of the `pool`; none is the query or one of its passages, and
    each stands once for a query. A ValueError if there are none.

    Args:
        pool: Texts, each of them once.
        count: Number of negatives to draw for each query, at most; 1 or more.
        miner: An embedding model: they are drawn from the texts that it finds nearest to the query.

    Returns:
        The columns `first`, `second` and `label`.
    """
    passages = passages_of(pairs)
    positives = []
    for query, texts in passages.items():
        for text in texts:
            positives.append((query, text))
    if "third" in pairs.column_names:
        negatives = _usable_negatives(pairs, passages)
        if not negatives:
            raise ValueError(
                "data: every negative is the query of its row or one of the query's passages; give"
                " other negatives"
            )
    elif miner is not None:
        negatives = _mine_negatives(pairs, pool, count, miner)
    else:
        negatives = _draw_negatives(passages, pool, count)
    if not negatives:
        raise ValueError(
            f"negatives: there are none for {count} a query; give data with more passages"
        )
    queries, texts = zip(*positives, *negatives)
    labels = [1.0] * len(positives) + [0.0] * len(negatives)
    return Dataset.from_dict({"first": list(queries), "second": list(texts), "label": labels})


def _usable_negatives(pairs: Dataset, passages: dict[str, list[str]]) -> list[tuple[str, str]]:
    """The queries with the texts of the column `third`. A pair stands once for each of its
    negatives, and a query may have several pairs."""
    negatives = []
    for query, text in dict.fromkeys(zip(pairs["first"], pairs["third"])):
        if text != query and text not in passages[query]:
            negatives.append((query, text))
    return negatives


def _mine_negatives(
    pairs: Dataset, pool: list[str], count: int, miner: Any
) -> list[tuple[str, str]]:
    mined = mine_hard_negatives(
        pairs,
        miner,
        "first",
        "second",
        corpus=pool,
        num_negatives=count,
        range_max=max(NUM_NEAREST, count),
        sampling_strategy="random",
        output_format="labeled-pair",
        verbose=False,
    )
    negatives = []
    for query, text, label in zip(mined["first"], mined["second"], mined["label"]):
        if not label and query != text:
            negatives.append((query, text))
    return negatives


def _draw_negatives(
    passages: dict[str, list[str]], pool: list[str], count: int
) -> list[tuple[str, str]]:
    negatives = []
    for query, texts in passages.items():
        excluded = {query, *texts}
        # enough are left without the excluded ones
        sample = random.sample(pool, min(len(pool), count + len(excluded)))
        usable = [text for text in sample if text not in excluded]
        for text in usable[:count]:
            negatives.append((query, text))
    return negatives
