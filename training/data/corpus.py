"""`Corpus`: where text comes from, in which proportion, and how it is read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import datasets
import numpy as np
from scipy.special import softmax

from ...option_checks import check_choice, checked_class
from .documents import load_documents, load_sources
from .entries import DataEntry, entries_of, language_of, names_of_entries
from .tables import Rows

SampleBy = Literal["auto", "line", "paragraph", "document", "sentence"]
# The exponent for languages (XLM-R, Conneau et al. 2020).
LANGUAGE_ALPHA = 0.3


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
        self.data = entries_of(self.data)
        self.names = names_of_entries(self.data)
        languages = [language_of(entry)[0] for entry in self.data]
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
