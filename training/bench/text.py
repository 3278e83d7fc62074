"""Batches of a corpus to train on: the same tensors for all contenders."""

from __future__ import annotations

import warnings

import datasets
import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from ...tokenization import train_tokenizer
from ..arguments.pretraining import CorpusArguments, MaskingArguments, TokenizerArguments
from ..data.collators import MaskedLMCollator
from ..data.documents import load_documents, tokenize_documents
from ..data.packing import pack_documents
from .models import SEED

# Documents drawn from a corpus, which may be of any size: for the tokenizer, and for the batches.
SAMPLE, QUICK_SAMPLE = 20_000, 300


class Text:
    """Masked batches of a corpus. Its tokenizer is trained on it, at the size that `minibert pretrain` uses."""

    def __init__(self, corpus: CorpusArguments, quick: bool):
        documents = load_documents(**vars(corpus)).shuffle(seed=SEED)
        documents = documents.select(range(min(len(documents), QUICK_SAMPLE if quick else SAMPLE)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a small corpus gives fewer tokens does not matter here
            self.tokenizer: PreTrainedTokenizerBase = train_tokenizer(
                documents["text"], vocab_size=1000 if quick else TokenizerArguments().vocab_size, show_progress=False
            )
        self.tokenized = tokenize_documents(documents, self.tokenizer)

    def natural(self, count: int, batch_size: int, length: int) -> list[dict[str, torch.Tensor]]:
        """`count` batches of documents as they come, one a row, padded to the longest of the batch; those that are
        longer than `length` are cut into several."""
        rows = self._rows(length, "padded").select_columns("input_ids")
        order = np.random.default_rng(SEED).permutation(len(rows))
        order = np.resize(order, (count, batch_size))  # a small corpus is read again
        return [self._mask(rows.select(numbers)) for numbers in order]

    def packed(self, count: int, batch_size: int, length: int) -> list[dict[str, torch.Tensor]]:
        """`count` batches of rows without any padding, with `position_ids` that restart at every document."""
        rows = self._rows(length, "packed").with_format("numpy")
        # Best-fit packing leaves a few places free: its rows one behind the other, cut anew, leave none.
        columns = {name: np.concatenate(rows[name][:]).astype(np.int64) for name in ("input_ids", "position_ids")}
        columns = {name: np.resize(column, (count, batch_size, length)) for name, column in columns.items()}
        return [
            self._mask([dict(zip(columns, row)) for row in zip(*(column[number] for column in columns.values()))])
            for number in range(count)
        ]

    def _rows(self, length: int, mode: str) -> datasets.Dataset:
        return pack_documents(self.tokenized, self.tokenizer, length, mode)

    def _mask(self, rows) -> dict[str, torch.Tensor]:
        rate = MaskingArguments().mlm_probability
        return dict(MaskedLMCollator(self.tokenizer, mlm_probability=rate, seed=SEED)(list(rows)))
