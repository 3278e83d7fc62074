"""Several sources in one corpus: how often each is drawn, and the documents for training and
validation, on disk or, for a corpus that is larger than the disk, as streams.

A source is an entry of `--data`. Its documents are drawn with p ∝ n^α, where n is the number of its
documents (or the weight that is given for it), as in XLM (Lample and Conneau 2019), mT5 and XLM-R.
α = 1 keeps the sizes, α = 0 makes all sources alike. Documents are mixed before they are packed, so
that a row holds documents of several sources.

A stream's files are its shards: with at least as many files as ranks or workers each reads files of
its own; with fewer files than ranks every rank reads them all and keeps its own batches. A stream
for training begins again when it ends, so that `Trainer` sees a single epoch; its way of resuming
(to skip batches) then gives the same batches.
"""

from itertools import islice
from typing import Any, NamedTuple

import datasets
import numpy as np
from tqdm.auto import tqdm

from ..common.printing import format_table
from .corpus import Corpus
from .dataset_calls import DatasetOrStream
from .validation_documents import held_out_mask, split_stream

# An epoch has every document at least once. One of more than this many times the corpus is refused
# as a mistake.
MAX_EPOCH_RATIO = 100
MIN_DOCUMENTS = 10  # of a corpus that is not streamed
# The number of held-out documents of a stream that are kept for validation.
VALIDATION_DOCUMENTS = 1000
# Of a stream, the rows in which token frequencies are counted, and the documents on which a
# tokenizer is trained.
SAMPLE_ROWS = 1000
TOKENIZER_DOCUMENTS = 100_000


class TrainingSplits(NamedTuple):
    """What a model and its tokenizer are trained and validated on: documents (column `text`), or
    rows. With several languages on disk, the column `source` has the language of a document."""

    # each document once, or as often as the mixture draws it; a stream is endless
    train: DatasetOrStream
    validation: datasets.Dataset  # each held-out document once
    tokenizer_sample: DatasetOrStream  # to train a tokenizer on, in the same mixture as `train`


def split_corpus(corpus: Corpus, *, validation_size: float, seed: int) -> TrainingSplits:
    """Load the documents of the corpus, hold out some of them (see `held_out_mask` and
    `split_stream`), and mix the sources."""
    if corpus.streaming:
        return _split_streams(corpus, validation_size, seed)
    documents = corpus.load()
    if len(documents) < MIN_DOCUMENTS:
        raise ValueError(
            f"data: a training needs {MIN_DOCUMENTS} documents or more, got {len(documents)}"
        )
    columns = ["text"]
    if corpus.has_languages and len(corpus.data) > 1:
        columns.append("source")
    is_held_out = held_out_mask(documents, validation_size, seed)
    held_out = documents.select(np.flatnonzero(is_held_out))
    train = documents.select(np.flatnonzero(~is_held_out))
    train = _mix(train, corpus, seed).select_columns(columns)
    return TrainingSplits(train, held_out.select_columns(columns), tokenizer_sample=train)


def load_sample(corpus: Corpus) -> DatasetOrStream:
    """The documents to train a tokenizer on if nothing is held out: the `tokenizer_sample` of
    `split_corpus` with all documents."""
    if corpus.streaming:
        return _tokenizer_sample(corpus.stream(), corpus, seed=0)
    return _mix(corpus.load(), corpus, seed=0)


# --- On disk ---


def _mix(documents: datasets.Dataset, corpus: Corpus, seed: int) -> datasets.Dataset:
    """Make an epoch of the mixture from documents that are sorted by source, and print its table.
    Sources are drawn until every document has come at least once; a source that ends starts again.
    With one source, or if their sizes shall not change, the documents are returned as they are."""
    if not corpus.is_drawn:
        return documents
    sizes = np.bincount(documents.with_format("numpy")["source"][:], minlength=len(corpus.data))
    if not sizes.all():
        name = corpus.names[sizes.argmin()]
        raise ValueError(f"data: no document of {name!r} is left to train on; give more of it")
    probabilities = corpus.probabilities(sizes)
    epoch_size = (sizes / probabilities).max()
    if epoch_size > MAX_EPOCH_RATIO * len(documents):
        raise ValueError(
            f"weights: an epoch with every document would have about {epoch_size:,.0f} documents"
            f" (there are {len(documents):,}); raise the smallest weights"
        )
    parts = []
    start = 0
    for size in sizes.tolist():
        parts.append(documents.select(range(start, start + size)))
        start += size
    mixed = _interleave(parts, probabilities, seed)
    counts = np.bincount(mixed.with_format("numpy")["source"][:], minlength=len(sizes))
    lines = []
    for name, size, count in zip(corpus.names, sizes.tolist(), counts.tolist()):
        lines.append((name, size, count, f"{count / len(mixed):.1%}"))
    print(format_table(("source", "documents", "sampled", "share"), lines))
    return mixed


def _interleave(parts: list, probabilities: np.ndarray, seed: int):
    options = dict(seed=seed, stopping_strategy="all_exhausted")
    return datasets.interleave_datasets(parts, probabilities=probabilities.tolist(), **options)


# --- Streams ---


def _split_streams(corpus: Corpus, validation_size: float, seed: int) -> TrainingSplits:
    """`split_corpus` of streams."""
    train = []
    held_out = []
    for stream in corpus.stream():
        train_stream, held_out_stream = split_stream(stream, validation_size, seed)
        train.append(train_stream)
        held_out.append(held_out_stream)
    validation = first_rows(*held_out, count=VALIDATION_DOCUMENTS)
    if not len(validation):
        raise ValueError(
            f"validation_size: {validation_size} holds out no document of the stream; raise it"
        )
    mixed = mix_streams(train, corpus, seed)
    return TrainingSplits(mixed, validation, _tokenizer_sample(train, corpus, seed))


def first_rows(*streams: datasets.IterableDataset, count: int) -> datasets.Dataset:
    """The first documents or rows of every stream, `count` in all if there are as many."""
    count_by_stream = -(-count // len(streams))
    rows: list[dict[str, Any]] = []
    for stream in streams:
        first = islice(stream, count_by_stream)
        rows += tqdm(first, desc="Reading rows", total=count_by_stream, delay=1, leave=False)
    return datasets.Dataset.from_list(rows)


def mix_streams(
    streams: list[DatasetOrStream], corpus: Corpus, seed: int, endless: bool = True
) -> datasets.IterableDataset:
    """Mix streams into one: each next document comes from a stream drawn by its probability, and is
    then shuffled among `shuffle_buffer` documents. If `endless`, a stream begins again when it
    ends; else the mixture ends when every document has come once."""
    for name, stream in zip(corpus.names, streams):
        if next(iter(stream), None) is None:  # repeating an empty stream would never return
            raise ValueError(
                f"data: no document of {name!r} is left to train on; every entry needs at least one"
            )
    if endless:
        streams = [stream.repeat(None) for stream in streams]
    mixed = streams[0]
    if len(streams) > 1:
        mixed = _interleave(streams, corpus.probabilities(()), seed)
    if corpus.shuffle_buffer <= 0:
        return mixed
    options = {"seed": seed, "buffer_size": corpus.shuffle_buffer}
    if endless:
        # The buffer reads the files of an endless stream one after the other: read at the same
        # time, small files would come as often as large ones.
        options["max_buffer_input_shards"] = 1
    return mixed.shuffle(**options)


def _tokenizer_sample(
    streams: list[datasets.IterableDataset], corpus: Corpus, seed: int
) -> datasets.IterableDataset:
    """The first documents of the mixture, each once."""
    return mix_streams(streams, corpus, seed, endless=False).take(TOKENIZER_DOCUMENTS)
