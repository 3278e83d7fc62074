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

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, NamedTuple

import datasets
import numpy as np
from scipy.special import softmax
from tqdm.auto import tqdm

from ...option_checks import check_choice, checked_class
from ..common.printing import format_table
from .dataset_calls import DatasetOrStream
from .documents import DataEntry, language_of, load_documents, load_sources, names_of_sources
from .tables import Rows, check_one_split, sources_of
from .validation_documents import held_out_mask, split_stream

SampleBy = Literal["auto", "line", "paragraph", "document", "sentence"]
# The exponent for languages (XLM-R, Conneau et al. 2020).
LANGUAGE_ALPHA = 0.3
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


@checked_class
@dataclass
class Corpus:
    """Where text comes from, in which proportion, and how it is read. Contradicting values are
    refused.

    Args:
        data: Files, folders, globs, data sets of the Hub, or records in memory (a `Dataset`, a
            DataFrame of pandas, or dictionaries); one entry may stand alone. None: the built-in
            corpus, the documentation in this Python installation.
        text_column: The column of the text; by default "text", or the only column of strings.
        sample_by: What a document of a text file is: a line, a paragraph between blank lines, or
            the whole file (document); auto: paragraphs if there are blank lines, else lines.
            sentence: each sentence of any data.
        weights: A weight for each entry of data, by which its documents are drawn; by default their
            number.
        sampling_alpha: Draw from sources with p ∝ weight^alpha, from 0 (all alike) to 1; by default
            0.3 if each entry names its language (de=folder fr=file.txt), else 1.
        streaming: Read text or prepared rows while training, for data that does not fit on the
            disk; needs max_steps or minutes.
        shuffle_buffer: Number of documents (or prepared rows) of a stream to shuffle at a time; 0
            keeps their order.
    """

    data: DataEntry | Rows | Sequence[DataEntry | Rows] | None = None
    text_column: str | None = None
    sample_by: SampleBy = "auto"
    weights: Sequence[float] = ()
    sampling_alpha: float | None = None
    streaming: bool = False
    shuffle_buffer: int = 10_000

    @classmethod
    def from_options(
        cls,
        data: "DataEntry | Rows | Sequence[DataEntry | Rows] | Corpus | None",
        options: dict[str, Any],
    ) -> "Corpus":
        """Build a corpus from `data` and the `options` that are its fields, and remove those from
        `options`. A corpus stays as it is; a ValueError for a field beside it."""
        fields = {}
        for name in cls.__annotations__:
            if name in options:
                fields[name] = options.pop(name)
        if not isinstance(data, Corpus):
            return cls(data, **fields)
        if fields:
            name = next(iter(fields))
            raise ValueError(f"{name}: data is a Corpus; set the field {name} there")
        return data

    def __post_init__(self):
        check_choice("sample_by", self.sample_by, SampleBy)
        entries = []
        languages = []
        sources = []
        if self.data is not None:
            sources = sources_of(self.data)
            if not sources:
                raise ValueError(
                    "data: an empty list; name text, or leave data out for the built-in corpus"
                )
        for entry in sources:
            check_one_split(entry)
            if isinstance(entry, os.PathLike):
                entry = os.fspath(entry)
            language, _ = language_of(entry)
            entries.append(entry)
            languages.append(language)
        self.data = entries
        self.names = names_of_sources(entries)
        self.has_languages = any(languages)
        if self.sampling_alpha is None:
            self.sampling_alpha = 1.0
            if self.has_languages and not self.weights:
                self.sampling_alpha = LANGUAGE_ALPHA
        if self.has_languages and None in languages:
            unnamed = self.names[languages.index(None)]
            raise ValueError(
                f"data: {unnamed!r} names no language but others do; use language=FILE for all or"
                " none"
            )
        if not 0 <= self.sampling_alpha <= 1:
            raise ValueError(
                "sampling_alpha must be from 0 (all alike) to 1 (own sizes), got"
                f" {self.sampling_alpha}"
            )
        if self.weights and (len(self.weights) != len(self.data) or not min(self.weights) > 0):
            weights = ", ".join(map(str, self.weights))
            raise ValueError(
                f"weights: {weights}; give each of the {len(self.data)} entries of data a number"
                " above 0"
            )
        if self.is_drawn and not self.streaming:
            self._check_names()
        if self.streaming and len(self.data) != 1 and not self.weights:
            raise ValueError(
                f"weights: needed to stream {len(self.data)} entries of data, since the documents"
                " of a stream are not counted; give one for each, or name all files of a source by"
                " one folder or one quoted glob"
            )

    @property
    def is_drawn(self) -> bool:
        """Whether documents are drawn from the sources in another proportion than they have."""
        return len(self.data) > 1 and (self.sampling_alpha != 1 or bool(self.weights))

    def _check_names(self) -> None:
        """Refuse (a ValueError) two entries of one name: their documents could not be told
        apart."""
        for number, name in enumerate(self.names):
            if name in self.names[:number]:
                raise ValueError(
                    f"data: {name!r} names two entries; name all files of a source by one folder or"
                    " one quoted glob, and each entry once"
                )

    def probabilities(self, sizes: Sequence[int]) -> np.ndarray:
        """The share of each source, float64 [sources], from the weights or, without weights, from
        the `sizes`."""
        weights = np.asarray(self.weights or sizes, dtype=np.float64)
        # the softmax of logarithms, since a power of a large number could overflow
        return softmax(self.sampling_alpha * np.log(weights))

    def load(self) -> datasets.Dataset:
        return load_documents(self.data, text_column=self.text_column, sample_by=self.sample_by)

    def stream(self) -> list[datasets.IterableDataset]:
        """A stream of each entry."""
        return load_sources(
            self.data, text_column=self.text_column, sample_by=self.sample_by, streaming=True
        )


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
