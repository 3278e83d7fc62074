"""Several sources in one corpus: how often each is drawn, and the documents for training and validation.

A source is an entry of `--data`. Its documents are drawn with p ∝ n^α, where n is the number of its documents (or the
weight that is given for it): the sampling of languages of XLM (Lample and Conneau 2019, with documents in the place
of sentences), mT5 and XLM-R. α = 1 keeps the sizes, α = 0 makes all sources alike. Documents are mixed before they are
packed, so that a row holds documents of several sources.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import datasets
import numpy as np

from ..arguments.pretraining import CorpusArguments, MixtureArguments, StreamingArguments
from .documents import load_documents, load_sources, split_documents
from .sources import language_of
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
) -> Documents:
    """Load the corpus, hold out whole documents, and mix the sources; of several, a table of their shares is printed.

    Args:
        validation_size: see `data.split_documents` and `streaming.split_stream`.
        seed: of the split, the mixture and the order of a stream.
        minimum: the number of documents that the caller needs.

    Raises:
        ValueError: bad input, before any work: weights or an alpha that are not legal, a source without text, what
            `data.load_documents` refuses.
    """
    if streaming.streaming:
        names, streams, probabilities = _streams(corpus, mixture, streaming)
        splits = [split_stream(stream, validation_size, seed) for stream in streams]
        validation = first_documents([held_out for _, held_out in splits], VALIDATION_DOCUMENTS)
        if not len(validation):
            raise ValueError(f"validation_size: {validation_size} holds no document of the stream out; raise it")
        streams = [train for train, _ in splits]
        _refuse_empty(names, [next(iter(stream), None) is not None for stream in streams], "is left to train on")
        return Documents(
            mix_streams(streams, probabilities, seed, streaming.shuffle_buffer),
            validation,
            mix_streams(streams, probabilities, seed, streaming.shuffle_buffer, endless=False).take(
                streaming.sample_documents
            ),
        )

    names, alpha = check_mixture(corpus.data, mixture)
    splits = split_documents(load_documents(**vars(corpus), minimum=minimum), validation_size, seed)
    mixed = _mix(names, splits["train"], mixture.weights, alpha, seed)
    several_languages = len(names) > 1 and all(language_of(item)[0] for item in corpus.data)
    columns = ["text", "source"] if several_languages else ["text"]
    mixed, validation = mixed.select_columns(columns), splits["validation"].select_columns(columns)
    return Documents(mixed, validation, mixed)


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
            f" documents, of {sum(sizes):,}; legal: at most {LONGEST_EPOCH} times as many; raise the smallest weights"
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
        raise ValueError(f"data: {unnamed!r} names no language but others do; legal: language=item for all or none")
    names = [language or item for language, item in zip(languages, data)]
    weights, alpha = mixture.weights, mixture.sampling_alpha
    if weights and len(weights) != len(data):
        sources = ", ".join(names) or "the built-in corpus"
        raise ValueError(f"weights: {len(weights)} for the sources {sources}; legal: one for every entry of data")
    for name, weight in zip(names, weights):
        if not (weight > 0 and math.isfinite(weight)):
            raise ValueError(f"weights: {weight} for {name!r}; legal: numbers above 0, such as 0.5 or 300")
    if alpha is None:
        alpha = LANGUAGE_ALPHA if any(languages) and not weights else 1.0
    if not 0 <= alpha <= 1:
        raise ValueError(f"sampling_alpha: {alpha} is not legal; legal: 0 (all sources alike) to 1 (their own sizes)")
    repeated = [name for name in names if names.count(name) > 1]
    if repeated and (weights or alpha != 1):
        raise ValueError(f"data: {repeated[0]!r} is given twice; legal in a mixture: every source once")
    return names, alpha if len(names) > 1 else 1.0


def _streams(
    corpus: CorpusArguments, mixture: MixtureArguments, streaming: StreamingArguments
) -> tuple[list[str], list[datasets.IterableDataset], np.ndarray]:
    names, alpha = check_mixture(corpus.data, mixture)
    if not corpus.data or corpus.packages:
        raise ValueError("streaming: it needs --data; the built-in corpus is not streamed")
    for name in ("shuffle_buffer", "sample_documents"):
        lowest = int(name == "sample_documents")
        if getattr(streaming, name) < lowest:
            raise ValueError(f"{name}: {getattr(streaming, name)} is not legal; legal: {lowest} and more")
    if len(names) > 1 and not mixture.weights:
        raise ValueError(
            f"weights: needed with --streaming and {len(names)} sources ({', '.join(names)}), as the documents of a"
            " stream are not counted; legal: one for every entry of data, such as their numbers of documents"
        )
    streams = load_sources(corpus.data, text_column=corpus.text_column, sample_by=corpus.sample_by, streaming=True)
    _refuse_empty(names, [next(iter(stream), None) is not None for stream in streams], "is in it")
    probabilities = sampling_probabilities(mixture.weights or [1.0], alpha)
    if len(names) > 1:
        width = max(map(len, ["source", *names]))
        print(f"{'source':{width}}  share of the documents drawn")
        for name, probability in zip(names, probabilities):
            print(f"{name:{width}}  {probability:.1%}")
    return names, streams, probabilities


def _mix(
    names: Sequence[str], documents: datasets.Dataset, weights: Sequence[float], alpha: float, seed: int
) -> datasets.Dataset:
    """An epoch of the mixture, out of documents that are sorted by their source, and its table printed; the documents
    as they are, where their numbers are to stay."""
    if len(names) < 2 or (alpha == 1 and not weights):
        return documents
    source = documents.with_format("numpy")["source"][:]
    sizes = np.bincount(source, minlength=len(names))
    _refuse_empty(names, sizes, "is left to train on")
    rows = draw_documents(sizes, sampling_probabilities(weights or sizes, alpha), seed)
    print_shares(names, sizes, np.bincount(source[rows], minlength=len(names)))
    return documents.select(rows)


def print_shares(names: Sequence[str], sizes: Sequence[int], drawn: Sequence[int]) -> None:
    """A table: the documents of every source, how many of an epoch's are its, and how often each is seen."""
    width = max(map(len, ["source", *names]))
    print(f"{'source':{width}}{'documents':>12}{'share':>9}{'sampled':>12}{'share':>9}{'times seen':>12}")
    for name, size, count in zip(names, sizes, drawn):
        shares = f"{size:>12,}{size / sum(sizes):>9.1%}{count:>12,}{count / sum(drawn):>9.1%}"
        print(f"{name:{width}}{shares}{count / size:>12.2f}")


def _refuse_empty(names: Sequence[str], sizes: Sequence[int], where: str) -> None:
    for name, size in zip(names, sizes):
        if not size:
            raise ValueError(f"data: no text of the source {name!r} {where}; legal in a mixture: one document and more")
