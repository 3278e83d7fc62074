"""Several sources in one corpus: how often each is drawn, and the documents for training and validation.

A source is an entry of `--data`. Its documents are drawn with p ∝ n^α, where n is the number of its documents (or the
weight that is given for it): the sampling of languages of XLM (Lample and Conneau 2019, with documents in the place
of sentences), mT5 and XLM-R. α = 1 keeps the sizes, α = 0 makes all sources alike. Documents are mixed before they are
packed, so that a row holds documents of several sources.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import datasets
import numpy as np

from ..arguments.pretraining import CorpusArguments, MixtureArguments, StreamingArguments
from ..report import format_table
from .documents import hold_out, load_documents, load_sources
from .sources import is_plain, language_of
from .streaming import VALIDATION_DOCUMENTS, first_documents, mix_streams, split_stream

# The exponent for languages (XLM-R, Conneau et al. 2020).
LANGUAGE_ALPHA = 0.3

# An epoch has every document at least once; one longer than this many times the corpus is taken for a mistake.
LONGEST_EPOCH = 100


@dataclass(frozen=True)
class Documents:
    """Documents, in a column `text`; of several languages that are not streamed, which one in a column `source`.

    Attributes:
        train: what is trained on: each document once, or as often as the mixture has it; or a stream without end.
        validation: what is held out: each document once.
        sample: what a tokenizer is trained on, in the same mixture as `train`.
    """

    train: datasets.Dataset | datasets.IterableDataset
    validation: datasets.Dataset
    sample: datasets.Dataset | datasets.IterableDataset


def prepare_documents(
    corpus: CorpusArguments,
    mixture: MixtureArguments,
    streaming: StreamingArguments,
    *,
    validation_size: float,
    seed: int,
    minimum: int = 1,
    minimum_validation: int = 1,
) -> Documents:
    """Load the corpus, hold out whole documents, and mix the sources; of several, a table of their shares is printed.

    Args:
        validation_size: see `documents.hold_out` and `streaming.split_stream`.
        seed: of the split, the mixture and the order of a stream.
        minimum: the number of documents that the caller needs.
        minimum_validation: different documents that are held out at least where `validation_size` is a share; of
            several languages, of one of them.

    Raises:
        ValueError: bad input, before any work: weights or an alpha that do not fit, a source without text, what
            `documents.load_documents` rejects.
    """
    if streaming.streaming:
        names, streams, probabilities = _streams(corpus, mixture, streaming)
        splits = [split_stream(stream, validation_size, seed) for stream in streams]
        validation = first_documents([held_out for _, held_out in splits], VALIDATION_DOCUMENTS)
        if len(validation) < minimum_validation:
            raise ValueError(f"validation_size: {validation_size} holds no document of the stream out; raise it")
        streams = [train for train, _ in splits]
        _check_not_empty(names, map(_has_document, streams), "is left to train on")
        train, sample = (mix_streams(streams, probabilities, seed, streaming.shuffle_buffer, e) for e in (True, False))
        return Documents(train, validation, sample.take(streaming.sample_documents))

    names, alpha = check_mixture(corpus.data, mixture)
    documents = load_documents(**vars(corpus), minimum=minimum)
    columns, needed = ["text"], minimum_validation
    if len(names) > 1 and all(language_of(item)[0] for item in corpus.data):
        columns, needed = ["text", "source"], len(names) * (minimum_validation - 1) + 1  # the pigeonhole principle
    held_out = hold_out(documents, validation_size, seed, needed)
    train = _mix(names, documents.select(np.flatnonzero(~held_out)), mixture.weights, alpha, seed)
    train = train.select_columns(columns)
    return Documents(train, documents.select(np.flatnonzero(held_out)).select_columns(columns), train)


def load_sample(
    corpus: CorpusArguments, mixture: MixtureArguments, streaming: StreamingArguments, seed: int = 0
) -> datasets.Dataset | datasets.IterableDataset:
    """What a tokenizer is trained on when nothing is held out: see `prepare_documents`."""
    if streaming.streaming:
        _, streams, probabilities = _streams(corpus, mixture, streaming)
        mixed = mix_streams(streams, probabilities, seed, streaming.shuffle_buffer, endless=False)
        return mixed.take(streaming.sample_documents)
    names, alpha = check_mixture(corpus.data, mixture)
    return _mix(names, load_documents(**vars(corpus)), mixture.weights, alpha, seed)


def sampling_probabilities(weights: Sequence[float], alpha: float) -> np.ndarray:
    """p ∝ weight^alpha, in float64: [sources], their sum 1."""
    logarithms = alpha * np.log(np.asarray(weights, dtype=np.float64))  # no power of a large number overflows
    powers = np.exp(logarithms - logarithms.max())
    return powers / powers.sum()


def draw_documents(sizes: Sequence[int], probabilities: np.ndarray, seed: int) -> np.ndarray:
    """An epoch of a mixture: rows of the sources' concatenation, drawn until every document has come at least once.

    Args:
        sizes: the number of documents of each source.
        probabilities: of drawing from each, their sum 1.

    Returns:
        int64 [draws]. Each source is read in its order, and from its start again when it ends.

    Raises:
        ValueError: an epoch would have more than `LONGEST_EPOCH` times as many documents as there are.
    """
    lengths = np.asarray(sizes) / probabilities
    if lengths.max() > LONGEST_EPOCH * sum(sizes):
        raise ValueError(
            f"weights: an epoch, in which every document comes at least once, would have {lengths.max():,.0f}"
            f" documents, of {sum(sizes):,}, more than {LONGEST_EPOCH} times as many; raise the smallest weights"
        )
    begins = np.cumsum(sizes) - sizes
    parts = [datasets.Dataset.from_dict({"row": np.arange(begin, begin + size)}) for begin, size in zip(begins, sizes)]
    mixed = datasets.interleave_datasets(
        parts, probabilities=probabilities.tolist(), seed=seed, stopping_strategy="all_exhausted"
    )
    return mixed.with_format("numpy")["row"][:]


def check_mixture(data: Sequence[str], mixture: MixtureArguments) -> tuple[list[str], float]:
    """The names of the sources and the exponent α, once both make sense.

    Raises:
        ValueError: languages named for some sources only, a source given twice, as many weights as sources or none,
            a weight that is not positive, an alpha outside [0, 1].
    """
    languages = [language_of(item)[0] for item in data]
    if any(languages) and None in languages:
        unnamed = data[languages.index(None)]
        raise ValueError(f"data: {unnamed!r} names no language but others do; use language=item for all or none")
    names = [language or item for language, item in zip(languages, data)]
    weights, alpha = mixture.weights, mixture.sampling_alpha
    if weights and len(weights) != len(data):
        sources = ", ".join(names) or "the built-in corpus"
        raise ValueError(f"weights: {len(weights)} for the sources {sources}; give one for every entry of data")
    for name, weight in zip(names, weights):
        if not (weight > 0 and math.isfinite(weight)):
            raise ValueError(f"weights: {weight} for {name!r}; use numbers above 0, such as 0.5 or 300")
    if alpha is None:
        alpha = LANGUAGE_ALPHA if any(languages) and not weights else 1.0
    if not 0 <= alpha <= 1:
        raise ValueError(f"sampling_alpha: {alpha}; use a number from 0 (all sources alike) to 1 (their own sizes)")
    repeated = [name for name in names if names.count(name) > 1]
    if repeated and (weights or alpha != 1):
        raise ValueError(f"data: {repeated[0]!r} is given twice; give every source of a mixture once")
    return names, alpha if len(names) > 1 else 1.0


def _streams(
    corpus: CorpusArguments, mixture: MixtureArguments, streaming: StreamingArguments
) -> tuple[list[str], list[datasets.IterableDataset], np.ndarray]:
    """The names of the sources, the streams, and with which probability each is drawn from."""
    names, alpha = check_mixture(corpus.data, mixture)
    if not corpus.data:
        raise ValueError("streaming: it needs --data; the built-in corpus is not streamed")
    for name, lowest in (("shuffle_buffer", 0), ("sample_documents", 1)):
        if getattr(streaming, name) < lowest:
            raise ValueError(f"{name}: {getattr(streaming, name)} is too small; use {lowest} or more")
    entries: Sequence = corpus.data
    if len(names) > 1 and not mixture.weights:
        if alpha != 1 or not all(map(is_plain, entries)):
            raise ValueError(
                f"weights: needed with --streaming and {len(names)} sources ({', '.join(names)}), as the documents of"
                " a stream are not counted; give one for every entry of data, such as their numbers of documents"
            )
        names, entries = [", ".join(names)], [entries]  # files that are read one after the other
    streams = load_sources(entries, text_column=corpus.text_column, sample_by=corpus.sample_by, streaming=True)
    _check_not_empty(names, map(_has_document, streams), "is in it")
    probabilities = sampling_probabilities(mixture.weights or [1.0], alpha)
    if len(names) > 1:
        rows = [(name, f"{probability:.1%}") for name, probability in zip(names, probabilities)]
        print(format_table(("source", "share of the documents drawn"), rows))
    return names, streams, probabilities


def _mix(
    names: Sequence[str], documents: datasets.Dataset, weights: Sequence[float], alpha: float, seed: int
) -> datasets.Dataset:
    """An epoch of the mixture, out of documents that are sorted by their source, and a table of it printed; the
    documents as they are, where their numbers are to stay."""
    if len(names) < 2 or (alpha == 1 and not weights):
        return documents
    source = documents.with_format("numpy")["source"][:]
    sizes = np.bincount(source, minlength=len(names))
    _check_not_empty(names, sizes, "is left to train on")
    drawn = draw_documents(sizes, sampling_probabilities(weights or sizes, alpha), seed)
    counts = np.bincount(source[drawn], minlength=len(names))
    rows = [
        (
            name,
            f"{size:,}",
            f"{size / sum(sizes):.1%}",
            f"{count:,}",
            f"{count / sum(counts):.1%}",
            f"{count / size:.2f}",
        )
        for name, size, count in zip(names, sizes, counts)
    ]
    print(format_table(("source", "documents", "share", "sampled", "share", "times seen"), rows))
    return documents.select(drawn)


def _has_document(stream: datasets.IterableDataset) -> bool:
    return next(iter(stream), None) is not None


def _check_not_empty(names: Sequence[str], sizes: Iterable[int], where: str) -> None:
    for name, size in zip(names, sizes):
        if not size:
            raise ValueError(f"data: no text of the source {name!r} {where}; every source needs one document or more")
