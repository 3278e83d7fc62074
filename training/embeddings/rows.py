"""The rows of a training: what is trained on, what is held out, and the negatives of both."""

import random
from collections.abc import Sequence
from typing import Any

from datasets import Dataset
from sentence_transformers.util import mine_hard_negatives

from ..data.tables import sources_of
from .data import Passage, Retrieval, pair_documents, read_documents, read_pairs, read_task

NEAREST = 30  # passages that mined negatives are drawn from


def split_pairs(
    data: Any,
    columns: Sequence[str],
    validation: Any,
    validation_size: float,
    seed: int,
    pairs_from: Sequence[str] = (),
) -> tuple[Dataset, Dataset | Retrieval]:
    """What is trained on, and what the best checkpoint is chosen on: without `validation`, a share
    or a number of the queries, or of the documents that pairs are made of (`pairs_from`)."""
    if pairs_from:
        pairs, groups = pair_documents(read_documents(sources_of(data)), pairs_from)
    else:
        pairs = read_pairs(data, columns)
        groups = pairs["first"][:]
    if validation is None:
        return _hold_out(pairs, groups, validation_size, seed)
    held_out = read_task(validation, columns, "validation", "validation")
    if isinstance(held_out, Dataset):
        has_scores = "label" in pairs.column_names
        if has_scores != ("label" in held_out.column_names):
            raise ValueError("validation: it and the data must both have scores, or neither")
    return pairs, held_out


def _hold_out(
    pairs: Dataset, groups: Sequence[str], validation_size: float, seed: int
) -> tuple[Dataset, Dataset]:
    """The pairs of two sides; those of one group (a query, or a document) stay together."""
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
    train_rows = []
    held_out_rows = []
    for row, group in enumerate(groups):
        side = held_out_rows if group in held_out_groups else train_rows
        side.append(row)
    return pairs.select(train_rows), pairs.select(held_out_rows)


def as_retrieval(pairs: Dataset) -> Retrieval:
    """Each first text as a query, all second (and third) texts as the passages, by the names of
    their texts. A text is often both (of adjacent passages, all but the first and the last): it
    does not find itself."""
    texts = list(pairs["second"])
    if "third" in pairs.column_names:
        texts += pairs["third"]
    passages = [Passage(text, text) for text in dict.fromkeys(texts)]
    queries = {}
    relevant = {}
    for query, relevant_texts in passages_of(pairs).items():
        queries[query] = query
        relevant[query] = dict.fromkeys(relevant_texts, 1.0)
    return Retrieval(passages, queries, relevant, ignore_identical_ids=True)


def passages_of(pairs: Dataset) -> dict[str, list[str]]:
    """The passages of every query, each once; a pair stands once for each of its negatives."""
    passages: dict[str, dict[str, None]] = {}
    for query, passage in zip(pairs["first"], pairs["second"]):
        passages.setdefault(query, {})[passage] = None
    return {query: list(texts) for query, texts in passages.items()}


def with_negatives(pairs: Dataset, pool: list[str], count: int, miner: Any = None) -> Dataset:
    """Every pair with the label 1, and with the label 0 what it has as `third`, or for every query
    up to `count` texts of `pool` that are neither the query nor one of its passages: any, or some
    that a `miner` finds nearest."""
    passages = passages_of(pairs)
    positives = []
    for query, texts in passages.items():
        for text in texts:
            positives.append((query, text))
    if "third" in pairs.column_names:
        negatives = list(zip(pairs["first"], pairs["third"]))
    elif miner is not None and count > 0:
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
        range_max=max(NEAREST, count),
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


def as_reranking(rows: Dataset) -> tuple[Retrieval, list[list[Passage]]]:
    """Labelled rows as a task for `reorder`: the queries, and the passages of each that are put in
    order. Negatives come first, so that a model that scores all alike is not taken for a good
    one."""
    positives: dict[str, list[str]] = {}
    negatives: dict[str, list[str]] = {}
    for query, text, label in zip(rows["first"], rows["second"], rows["label"]):
        positives.setdefault(query, [])
        negatives.setdefault(query, [])
        side = positives if label else negatives
        side[query].append(text)
    queries = {}
    relevant = {}
    candidates = []
    for query, texts in positives.items():
        queries[query] = query
        relevant[query] = dict.fromkeys(texts, 1.0)
        distinct_texts = dict.fromkeys(negatives[query] + texts)
        candidates.append([Passage(text, text) for text in distinct_texts])
    return Retrieval([], queries, relevant), candidates
