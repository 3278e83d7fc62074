"""Several sources in one corpus: how often each is drawn, and the documents for training and validation, on disk or,
for a corpus that is larger than the disk, as streams.

A source is an entry of `--data`. Its documents are drawn with p ∝ n^α, where n is the number of its documents (or the
weight that is given for it): the sampling of languages of XLM (Lample and Conneau 2019, with documents in the place
of sentences), mT5 and XLM-R. α = 1 keeps the sizes, α = 0 makes all sources alike. Documents are mixed before they are
packed, so that a row holds documents of several sources.

A stream's files are its shards: with at least as many files as ranks or workers each reads files of its own; with
fewer files than ranks every rank reads them all and keeps its own batches. A stream for training begins again when it
ends, so that `Trainer` sees a single epoch; its way of resuming (to skip batches) then gives the same batches.
"""

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import datasets
import numpy as np
import pyarrow as pa
from scipy.special import softmax
from tqdm.auto import tqdm
from transformers import TrainingArguments
from transformers.trainer_utils import IntervalStrategy, SaveStrategy

from ..report import format_table
from .builtin_corpus import BUILTIN
from .documents import Source, hold_out, in_share, is_plain, language_of, load_documents, load_sources, map_tables
from .documents import name_of as _name
from .tables import DatasetOrStream

# The exponent for languages (XLM-R, Conneau et al. 2020).
LANGUAGE_ALPHA = 0.3
# An epoch has every document at least once; one longer than this many times the corpus is taken for a mistake.
LONGEST_EPOCH = 100
MINIMUM_DOCUMENTS = 10  # that a training needs, unless they are streamed
# Held-out documents of a stream that are kept for validation, so that evaluating does not take for ever.
VALIDATION_DOCUMENTS = 1000
# Rows of a stream that token frequencies are counted in, and documents that a tokenizer is trained on.
SAMPLE_ROWS, SAMPLE_DOCUMENTS = 1000, 100_000


@dataclass
class Corpus:
    """Where text comes from, in which proportion, and how it is read.

    Args:
        data, text_column, sample_by: as `documents.load_documents` takes them; one entry may stand alone.
        weights: the share of each entry of `data`; by default the number of its documents.
        sampling_alpha: draw sources with p ∝ weight^alpha; by default 0.3 where all entries name languages, else 1.
        streaming: read text as it is needed, for a corpus that is larger than the disk.
        shuffle_buffer: documents that a stream mixes at a time; 0 keeps their order.
    """

    data: Source | Sequence[Source] = ()
    text_column: str | None = None
    sample_by: str = "auto"
    weights: Sequence[float] = ()
    sampling_alpha: float | None = None
    streaming: bool = False
    shuffle_buffer: int = 10_000

    def __post_init__(self):
        if isinstance(self.data, (str, os.PathLike, datasets.Dataset, datasets.IterableDataset)):
            self.data = [self.data]
        self.data = [str(item) if isinstance(item, os.PathLike) else item for item in self.data]
        if self.shuffle_buffer < 0:
            raise ValueError(f"shuffle_buffer: {self.shuffle_buffer} is too small; use 0 or more")

    def load(self) -> datasets.Dataset:
        return load_documents(self.data, text_column=self.text_column, sample_by=self.sample_by)


@dataclass(frozen=True)
class CorpusSplits:
    """Documents, in a column `text`; of several languages that are not streamed, which one in a column `source`."""

    train: DatasetOrStream  # once, or as often as the mixture has it; a stream has no end
    validation: datasets.Dataset  # what is held out, once
    sample: DatasetOrStream  # for a tokenizer, in the same mixture as `train`
    repeats: bool = True  # whether `train` has some more than once


def prepare_documents(
    corpus: Corpus, *, validation_size: float, seed: int, minimum_validation: int = 1
) -> CorpusSplits:
    """Load the corpus, hold out whole documents, and mix the sources; of several, a table of their shares is printed.

    Args:
        validation_size: see `documents.hold_out` and `split_stream`.
        minimum_validation: different documents that are held out at least where `validation_size` is a share; of
            several languages, of one of them.

    Raises:
        ValueError: what `load_documents`, `hold_out` and `check_mixture` refuse, or a source without text.
    """
    if corpus.streaming:
        names, streams, probabilities = _streams(corpus)
        splits = [split_stream(stream, validation_size, seed) for stream in streams]
        validation = first_rows(*(held_out for _, held_out in splits), count=VALIDATION_DOCUMENTS)
        if len(validation) < minimum_validation:
            raise ValueError(f"validation_size: {validation_size} holds no document of the stream out; raise it")
        streams = [train for train, _ in splits]
        _check_not_empty(names, streams, "is left to train on")
        mixed = streams, probabilities, seed, corpus.shuffle_buffer
        sample = mix_streams(*mixed, endless=False).take(SAMPLE_DOCUMENTS)
        return CorpusSplits(mix_streams(*mixed), validation, sample)

    (names, alpha), documents = check_mixture(corpus), corpus.load()
    if len(documents) < MINIMUM_DOCUMENTS:
        source = ", ".join(map(_name, corpus.data)) or BUILTIN
        raise ValueError(f"data: {len(documents)} documents in {source}; give {MINIMUM_DOCUMENTS} or more")
    columns, needed = ["text"], minimum_validation
    if len(names) > 1 and all(language_of(item)[0] for item in corpus.data):
        columns, needed = ["text", "source"], len(names) * (minimum_validation - 1) + 1  # the pigeonhole principle
    is_held_out = hold_out(documents, validation_size, seed, needed)
    rest, held_out = (documents.select(np.flatnonzero(side)) for side in (~is_held_out, is_held_out))
    train = _mix(names, rest, corpus.weights, alpha, seed)
    repeats = len(train) > len(rest) or len(set(names)) < len(names)
    train, held_out = train.select_columns(columns), held_out.select_columns(columns)
    return CorpusSplits(train, held_out, train, repeats)


def load_sample(corpus: Corpus) -> DatasetOrStream:
    """What a tokenizer is trained on when nothing is held out: see `prepare_documents`."""
    if corpus.streaming:
        mixed = mix_streams(*_streams(corpus)[1:], 0, corpus.shuffle_buffer, endless=False)
        return mixed.take(SAMPLE_DOCUMENTS)
    names, alpha = check_mixture(corpus)
    return _mix(names, corpus.load(), corpus.weights, alpha, seed=0)


def check_mixture(corpus: Corpus) -> tuple[list[str], float]:
    """The names of the sources and the exponent α; a ValueError if what is given does not make sense."""
    data, weights, alpha = corpus.data, corpus.weights, corpus.sampling_alpha
    languages = [language_of(item)[0] for item in data]
    if any(languages) and None in languages:
        unnamed = _name(data[languages.index(None)])
        raise ValueError(f"data: {unnamed!r} names no language but others do; use language=item for all or none")
    names = [language or _name(item) for language, item in zip(languages, data)]
    if weights and len(weights) != len(data):
        sources = ", ".join(names) or BUILTIN
        raise ValueError(f"weights: {len(weights)} for the sources {sources}; give one for every entry of data")
    for name, weight in zip(names, weights):
        if not 0 < weight < math.inf:
            raise ValueError(f"weights: {weight} for {name!r}; use numbers above 0, such as 0.5 or 300")
    if alpha is None:
        alpha = LANGUAGE_ALPHA if any(languages) and not weights else 1.0
    if not 0 <= alpha <= 1:
        raise ValueError(f"sampling_alpha: {alpha}; use a number from 0 (all sources alike) to 1 (their own sizes)")
    repeated = [name for name in names if names.count(name) > 1]
    if repeated and (weights or alpha != 1):
        raise ValueError(f"data: {repeated[0]!r} is given twice; give every source of a mixture once")
    return names, alpha if len(names) > 1 else 1.0


def sampling_probabilities(weights: Sequence[float], alpha: float) -> np.ndarray:
    """p ∝ weight^alpha, in float64: [sources], their sum 1."""
    return softmax(alpha * np.log(np.asarray(weights, dtype=np.float64)))  # no power of a large number overflows


def _check_not_empty(names: Sequence[str], sources: Iterable[Iterable], where: str) -> None:
    for name, source in zip(names, sources):
        if next(iter(source), None) is None:
            raise ValueError(f"data: no text of the source {name!r} {where}; every source needs one document or more")


# --- On disk ---------------------------------------------------------------------------------------------------------


def _mix(
    names: Sequence[str], documents: datasets.Dataset, weights: Sequence[float], alpha: float, seed: int
) -> datasets.Dataset:
    """An epoch of the mixture, out of documents that are sorted by their source, and a table of it printed; the
    documents as they are, where their numbers are to stay."""
    if len(names) < 2 or (alpha == 1 and not weights):
        return documents
    source = documents.with_format("numpy")["source"][:]
    sizes = np.bincount(source, minlength=len(names))
    _check_not_empty(names, map(range, sizes), "is left to train on")
    drawn = draw_documents(sizes, sampling_probabilities(weights or sizes, alpha), seed)
    counts = np.bincount(source[drawn], minlength=len(names))
    table = [
        (name, size, f"{size / len(documents):.1%}", count, f"{count / len(drawn):.1%}", f"{count / size:.2f}")
        for name, size, count in zip(names, sizes.tolist(), counts.tolist())
    ]
    print(format_table(("source", "documents", "share", "sampled", "share", "times seen"), table))
    return documents.select(drawn)


def draw_documents(sizes: Sequence[int], probabilities: np.ndarray, seed: int) -> np.ndarray:
    """An epoch of a mixture, int64 [draws]: rows of the sources' concatenation, drawn until every document has come at
    least once. Each source is read in its order, and from its start again when it ends. A ValueError where there would
    be more than `LONGEST_EPOCH` times as many draws as documents."""
    lengths = np.asarray(sizes) / probabilities
    if lengths.max() > LONGEST_EPOCH * sum(sizes):
        many = f"{lengths.max():,.0f} documents, of {sum(sizes):,}, more than {LONGEST_EPOCH} times as many"
        raise ValueError(f"weights: an epoch with every document would have {many}; raise the smallest weights")
    rows = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    parts = [datasets.Dataset.from_dict({"row": part}) for part in rows]
    return _interleave(parts, probabilities, seed).with_format("numpy")["row"][:]


def _interleave(parts: list, probabilities: np.ndarray, seed: int):
    """Drawn with these probabilities, until each has come to its end; those that end before begin again."""
    return datasets.interleave_datasets(
        parts, probabilities=probabilities.tolist(), seed=seed, stopping_strategy="all_exhausted"
    )


# --- Streams ---------------------------------------------------------------------------------------------------------


def _streams(corpus: Corpus) -> tuple[list[str], list, np.ndarray]:
    """The names of the sources, the streams, and with which probability each is drawn from."""
    names, alpha = check_mixture(corpus)
    if not corpus.data:
        raise ValueError("streaming: it needs --data; the built-in corpus is not streamed")
    entries: Sequence = corpus.data
    if len(names) > 1 and not corpus.weights:
        if alpha != 1 or not all(map(is_plain, entries)):
            several = f"{len(names)} sources ({', '.join(names)}), whose documents are not counted"
            raise ValueError(f"weights: needed with --streaming and {several}; give one for every entry of data")
        names, entries = [", ".join(names)], [entries]  # files that are read one after the other
    streams = load_sources(entries, text_column=corpus.text_column, sample_by=corpus.sample_by, streaming=True)
    _check_not_empty(names, streams, "is in it")
    probabilities = sampling_probabilities(corpus.weights or [1.0], alpha)
    if len(names) > 1:
        rows = [(name, f"{probability:.1%}") for name, probability in zip(names, probabilities)]
        print(format_table(("source", "share of the documents drawn"), rows))
    return names, streams, probabilities


def split_stream(
    stream: datasets.IterableDataset, validation_size: float, seed: int
) -> tuple[datasets.IterableDataset, datasets.IterableDataset]:
    """Two streams, of the documents to train on and of those held out, each in the order of `stream`.

    A document is held out when the hash of its text (and the seed) falls below the share `validation_size`: those that
    `documents.hold_out` takes, which can count them, but for a few at the border.
    """
    if not 0 < validation_size < 1:
        raise ValueError(f"validation_size: {validation_size} cannot be held out of a stream; use a share such as 0.05")
    options = dict(desc="Splitting", batch_size=1000, share=validation_size, seed=seed)
    return tuple(map_tables(stream, _one_side, held_out=held_out, **options) for held_out in (False, True))


def _one_side(table: pa.Table, share: float, seed: int, held_out: bool) -> pa.Table:
    return table.filter(pa.array(in_share(table["text"].to_pylist(), share, seed) == held_out))


def first_rows(*streams: datasets.IterableDataset, count: int) -> datasets.Dataset:
    """The first rows of every stream, `count` in all where the streams have as many."""
    each = -(-count // len(streams))
    rows = (tqdm(islice(stream, each), desc="Reading rows", total=each, delay=1, leave=False) for stream in streams)
    return datasets.Dataset.from_list([row for part in rows for row in part])


def mix_streams(
    streams: list[datasets.IterableDataset], probabilities: np.ndarray, seed: int, buffer: int, endless: bool = True
) -> datasets.IterableDataset:
    """One stream out of several, none of them empty, whose next document is drawn from each with its probability, and
    then among the next `buffer` ones. `endless`: every stream begins again when it ends; otherwise the mixture ends
    when every document has come once."""
    if endless:
        streams = [stream.repeat(None) for stream in streams]
    mixed = _interleave(streams, probabilities, seed) if len(streams) > 1 else streams[0]
    # from files that begin again when they end, the buffer takes one after the other: else small ones would count as
    # much as large ones
    files = {"max_buffer_input_shards": 1} if endless else {}
    return mixed.shuffle(seed=seed, buffer_size=buffer, **files) if buffer else mixed


def check_stream(training: TrainingArguments) -> None:
    """Have every rank read its own part of the stream, once it is clear that training ends (else a ValueError), and
    checkpoints written every `save_steps`, where they would come every epoch: a stream is one.

    `accelerate` would by default have the first rank read for all and send the batches on, which it cannot do with
    batches of unequal width.
    """
    if training.max_steps <= 0 and getattr(training, "minutes", None) is None:
        raise ValueError("max_steps: needed with --streaming, as a stream has no end; give it, or --minutes")
    training.accelerator_config.dispatch_batches = False
    if training.save_strategy == "epoch":
        training.save_strategy = SaveStrategy.STEPS
        if training.load_best_model_at_end:  # which wants an evaluation for each
            training.eval_strategy, training.eval_steps = IntervalStrategy.STEPS, training.save_steps
        print(f"A stream has no epochs: a checkpoint every {training.save_steps:g} steps (--save_steps)")


def check_workers(stream: datasets.IterableDataset, training: TrainingArguments) -> None:
    """Reject (ValueError) workers that would get no file: `datasets` stops them, and batches no longer come from all in
    turn, by which a worker's collator tells how far training is."""
    files, ranks = stream.num_shards, training.world_size
    if files >= ranks:
        files //= ranks  # what the rank with the fewest gets
    if training.dataloader_num_workers > files:
        given = f"{training.dataloader_num_workers} for a stream of {files} files"
        raise ValueError(f"dataloader_num_workers: {given}; use at most as many (of a mixture: the fewest of a source)")
