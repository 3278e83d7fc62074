"""Which pairs are trained on, and which are held out."""

import random
from collections.abc import Sequence
from typing import Any

from datasets import Dataset

from ...data.tables import sources_of
from .document_pairs import pair_documents
from .documents import read_documents
from .pairs import read_pairs
from .retrieval_folders import RetrievalFolder, is_folder, read_retrieval


def split_pairs(
    data: Any,
    columns: Sequence[str],
    validation: Any,
    validation_size: float,
    seed: int,
    pairs_from: Sequence[str] = (),
) -> tuple[Dataset, Dataset | RetrievalFolder]:
    """Read the pairs. Returns those to train on, and what the best checkpoint is chosen on.

    Args:
        data: Tables of pairs; with `pairs_from`, text to make pairs of.
        columns: The columns of the texts and the score; guessed if empty.
        validation: A table or a retrieval folder to choose on; None: some of the pairs.
        validation_size: How many of the queries, or of the documents that pairs are made of, are
            held out then: a share below 1, or a number.
        seed: Decides which ones.
        pairs_from: The ways to make pairs, as in `pair_documents`.
    """
    if pairs_from:
        pairs, groups = pair_documents(read_documents(sources_of(data)), pairs_from)
    else:
        pairs = read_pairs(data, columns)
        groups = pairs["first"][:]
    if validation is None:
        return _hold_out(pairs, groups, validation_size, seed)
    if is_folder(validation):
        return pairs, read_retrieval(validation, split="validation", field="validation")
    held_out = read_pairs(validation, columns, field="validation", split="validation")
    has_scores = "label" in pairs.column_names
    if has_scores != ("label" in held_out.column_names):
        raise ValueError("validation: it and the data must both have scores, or neither")
    return pairs, held_out


def _hold_out(
    pairs: Dataset, groups: Sequence[str], validation_size: float, seed: int
) -> tuple[Dataset, Dataset]:
    """Split the pairs into those to train on and those that are held out. The pairs of a group (a
    query, or a document) stay together."""
    distinct_groups = sorted(set(groups))
    random.Random(seed).shuffle(distinct_groups)
    size = validation_size
    if validation_size < 1:  # a share
        size = validation_size * len(distinct_groups)
    count = round(size)
    if not 0 < count < len(distinct_groups):
        raise ValueError(
            f"validation_size: {validation_size} holds out {count} of {len(distinct_groups)} texts;"
            " use a size that leaves some on both sides, or --validation"
        )
    held_out_groups = set(distinct_groups[:count])
    train_indices = []
    held_out_indices = []
    for index, group in enumerate(groups):
        if group in held_out_groups:
            held_out_indices.append(index)
        else:
            train_indices.append(index)
    return pairs.select(train_indices), pairs.select(held_out_indices)
