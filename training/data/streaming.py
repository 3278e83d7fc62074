"""Documents read while training, for a corpus that is larger than the disk.

A stream is a `datasets.IterableDataset`. Its files are its shards: with at least as many files as ranks or workers
each reads files of its own; with fewer files than ranks every rank reads them all and keeps its own batches. A stream
for training begins again when it ends, so that `Trainer` sees a single epoch however often the data is read; that is
what makes its way of resuming, to make all batches again and skip those it has trained on, give the same batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import datasets
import numpy as np
import pyarrow as pa
from tqdm.auto import tqdm
from transformers import TrainingArguments

from .documents import map_tables, text_digests

# Held-out documents of a stream that are kept for validation, so that evaluating does not take for ever.
VALIDATION_DOCUMENTS = 1000

# Rows of a stream that token frequencies are counted in; the help of --random_replacement says so.
SAMPLE_ROWS = 1000


def split_stream(
    stream: datasets.IterableDataset, validation_size: float, seed: int
) -> tuple[datasets.IterableDataset, datasets.IterableDataset]:
    """Hold out whole documents: two streams, of those to train on and of the others, each in the order of `stream`.

    A document is held out when the hash of its text (and the seed) falls below the share `validation_size`, so that
    copies are never on both sides. `documents.hold_out` holds out the documents with the lowest hashes: the same ones,
    but for a few at the border, as a stream's documents cannot be counted beforehand.

    Raises:
        ValueError: `validation_size` is no share.
    """
    if not 0 < validation_size < 1:
        raise ValueError(
            f"validation_size: {validation_size} cannot be held out of a stream, whose documents are not counted; use"
            " a share between 0 and 1"
        )
    options = dict(desc="Splitting", batch_size=1000, share=validation_size, seed=seed)
    train, validation = (map_tables(stream, _one_side, held_out=held_out, **options) for held_out in (False, True))
    return train, validation


def _one_side(table: pa.Table, share: float, seed: int, held_out: bool) -> pa.Table:
    below = text_digests(table["text"].to_pylist(), seed) < np.uint64(share * 2.0**64)
    return table.filter(pa.array(below == held_out))


def first_documents(streams: Sequence[datasets.IterableDataset], count: int) -> datasets.Dataset:
    """The first documents of every stream, `count` in all where the streams have as many."""
    each = -(-count // len(streams))
    texts = [row["text"] for stream in streams for row in _first(stream, each, "Reading held-out documents")]
    return datasets.Dataset.from_dict({"text": texts}, features=datasets.Features({"text": datasets.Value("string")}))


def first_rows(rows: datasets.IterableDataset) -> datasets.Dataset:
    """The first `SAMPLE_ROWS` rows of a stream, to count in."""
    return datasets.Dataset.from_list(list(_first(rows, SAMPLE_ROWS, "Reading rows")))


def _first(stream: datasets.IterableDataset, count: int, desc: str) -> tqdm:
    return tqdm(islice(stream, count), desc=desc, total=count, delay=1, leave=False)


def mix_streams(
    streams: Sequence[datasets.IterableDataset],
    probabilities: np.ndarray,
    seed: int,
    shuffle_buffer: int,
    endless: bool = True,
) -> datasets.IterableDataset:
    """One stream out of several, whose next document is drawn from each with its probability.

    Args:
        streams: what is mixed; none of them empty.
        probabilities: float [streams], their sum 1.
        seed: another seed draws another order.
        shuffle_buffer: documents among which the next one is drawn, after mixing; 0: none, the order is kept.
        endless: every stream begins again when it ends. Otherwise the mixture ends when every document has come once.
    """
    if endless:
        streams = [stream.repeat(None) for stream in streams]
    mixed = streams[0]
    if len(streams) > 1:
        mixed = datasets.interleave_datasets(
            list(streams), probabilities=probabilities.tolist(), seed=seed, stopping_strategy="all_exhausted"
        )
    return mixed.shuffle(seed=seed, buffer_size=shuffle_buffer) if shuffle_buffer else mixed


def check_stream(training: TrainingArguments) -> None:
    """Have every rank read its own part of the stream, once it is clear that training ends (else a ValueError).

    `accelerate` would by default have the first rank read for all and send the batches on, which it cannot do with
    batches of unequal width.
    """
    if training.max_steps <= 0:
        raise ValueError("max_steps: needed with --streaming, as a stream has no end; give it, or --minutes")
    training.accelerator_config.dispatch_batches = False


def check_workers(stream: datasets.IterableDataset, training: TrainingArguments) -> None:
    """Reject (ValueError) workers that would get no file: `datasets` stops them, and batches no longer come from all in
    turn, by which a worker's collator tells how far training is."""
    files, ranks = stream.num_shards, training.world_size
    if files >= ranks:
        files //= ranks  # what the rank with the fewest gets
    if training.dataloader_num_workers > files:
        raise ValueError(
            f"dataloader_num_workers: {training.dataloader_num_workers} for a stream of {files} files; use at most as"
            " many (of a mixture, as its source with the fewest)"
        )
