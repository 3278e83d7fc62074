"""From what a pretraining is given to train on (a corpus, prepared rows, or a data set) to rows.

Each of the three has a reader, which checks it before anything is read, decides some of the
settings, and reads the splits: documents or rows for training and validation. `make_rows` makes
rows of a split of documents.
"""

import abc
import copy
import os
from collections.abc import Sequence
from typing import Any

import datasets
import numpy as np
from transformers import PreTrainedTokenizerBase, TrainingArguments
from transformers.trainer_utils import IntervalStrategy, SaveStrategy

from ..common.config_fields import check_same_settings
from ..data.builtin_corpus import BUILTIN
from ..data.corpus import Corpus
from ..data.dataset_calls import DatasetOrStream
from ..data.entries import check_entries, name_without_folder
from ..data.mixtures import (
    SAMPLE_ROWS,
    VALIDATION_DOCUMENTS,
    TrainingSplits,
    first_rows,
    mix_streams,
    split_corpus,
)
from ..data.packing import pack_documents, tokenize_and_pack
from ..data.prepared import PreparedRows
from ..data.tables import as_dataset, check_one_split, names_of_data
from ..data.validation_documents import held_out_mask
from .config import PretrainingConfig
from .objectives import OBJECTIVES, Objective


class TrainingDataReader(abc.ABC):
    """Checks and reads what is given to train on."""

    streaming = False
    has_text = True  # else it reads rows, or documents as token ids
    data_names: Sequence[str] = ("text",)  # on the model card, without folders of this machine
    is_builtin = False  # it reads the built-in corpus, which is known to be small

    @abc.abstractmethod
    def check(self, args: PretrainingConfig, eval_dataset: Any) -> None:
        """Refuse (a ValueError), before anything is read, what cannot be trained on. `args` are the
        user's, without the defaults of fields that are None."""

    def apply_settings(self, args: PretrainingConfig) -> None:
        """Set, in place, the fields of `args` that the data decide."""
        if self.streaming:
            set_up_stream(args)

    @abc.abstractmethod
    def read(self, args: PretrainingConfig, eval_dataset: Any) -> TrainingSplits:
        """The documents or rows to train on, to validate on, and to train a tokenizer on."""


class CorpusReader(TrainingDataReader):
    """Reads text in files or on the Hub."""

    def __init__(self, corpus: Corpus):
        self.corpus = corpus
        self.streaming = corpus.streaming
        self.is_builtin = not corpus.data
        self.data_names = [BUILTIN]
        if corpus.data:
            names = names_of_data(corpus.data)
            self.data_names = [name_without_folder(name) for name in names]

    def check(self, args: PretrainingConfig, eval_dataset: Any) -> None:
        _check_no_validation(eval_dataset)
        check_entries(self.corpus.data)
        if self.streaming:
            check_stream_ends(args)

    def read(self, args: PretrainingConfig, eval_dataset: Any) -> TrainingSplits:
        splits = split_corpus(self.corpus, validation_size=args.validation_size, seed=args.seed)
        amount = f"{len(splits.train):,}"
        if self.streaming:
            amount = "A stream of"
        print(f"{amount} documents to train on, {len(splits.validation):,} held out")
        return splits


class PreparedRowsReader(TrainingDataReader):
    """Reads rows that `minibert prepare` made; they come with their tokenizer."""

    has_text = False

    def __init__(self, rows: PreparedRows, corpus: Corpus):
        self.rows = rows
        self.corpus = corpus  # says whether to stream them
        self.streaming = corpus.streaming
        self.is_builtin = not rows.data
        self.data_names = rows.data or [BUILTIN]

    def check(self, args: PretrainingConfig, eval_dataset: Any) -> None:
        _check_no_validation(eval_dataset)
        folder = str(self.rows.folder)
        if not OBJECTIVES[args.objective].packs_documents:
            raise ValueError(
                f"data: {folder!r} holds prepared rows; objective {args.objective} needs text;"
                " give that"
            )
        user_settings = {}
        for name in self.rows.settings:
            value = getattr(args, name)
            if value is not None:
                user_settings[name] = value
        check_same_settings(
            self.rows.settings,
            self.rows.settings | user_settings,
            f"the rows in {folder!r} were prepared with",
            "leave it out, or prepare rows with it",
        )
        if self.streaming:
            check_stream_ends(args)

    def apply_settings(self, args: PretrainingConfig) -> None:
        super().apply_settings(args)
        vars(args).update(self.rows.settings)

    def read(self, args: PretrainingConfig, eval_dataset: Any) -> TrainingSplits:
        print(self.rows.describe())
        rows = self.rows.load("train", self.streaming)
        train = rows
        if self.streaming:
            train = mix_streams([rows], self.corpus, args.seed)
        return TrainingSplits(train, self.rows.load("validation"), tokenizer_sample=rows)


class DatasetReader(TrainingDataReader):
    """Reads a data set of documents or rows, in memory or as a stream."""

    def __init__(self, dataset: datasets.Dataset | datasets.IterableDataset):
        self.dataset = dataset
        self.streaming = isinstance(dataset, datasets.IterableDataset)
        self.has_text = "text" in column_names(dataset)

    def check(self, args: PretrainingConfig, eval_dataset: Any) -> None:
        check_columns(self.dataset, "train_dataset")
        check_one_split(eval_dataset, "eval_dataset")
        validation = as_dataset(eval_dataset, "eval_dataset")
        is_dataset = isinstance(validation, (datasets.Dataset, datasets.IterableDataset))
        if validation is not None and not is_dataset:
            raise ValueError(
                "eval_dataset: beside a data set, give a data set too, for example"
                " datasets.load_dataset('text', data_files=…, split='train')"
            )
        if validation is not None:
            check_columns(validation, "eval_dataset")
        if eval_dataset is not None and args.validation_size is not None:
            raise ValueError(
                "validation_size: eval_dataset is given, so that nothing is held out; leave one of"
                " them out"
            )
        if not self.streaming:
            return
        if eval_dataset is None:
            raise ValueError(
                "eval_dataset: needed, since nothing can be held out of an IterableDataset;"
                " give one"
            )
        check_stream_ends(args)

    def read(self, args: PretrainingConfig, eval_dataset: Any) -> TrainingSplits:
        train = drop_blank_texts(self.dataset)
        validation = as_dataset(eval_dataset, "eval_dataset")
        if validation is None:
            is_held_out = held_out_mask(train, args.validation_size, args.seed)
            validation = train.select(np.flatnonzero(is_held_out))
            train = train.select(np.flatnonzero(~is_held_out))
        elif isinstance(validation, datasets.IterableDataset):
            validation = first_rows(drop_blank_texts(validation), count=VALIDATION_DOCUMENTS)
        else:
            validation = drop_blank_texts(validation)
        return TrainingSplits(train, validation, tokenizer_sample=train)


def choose_reader(train_dataset: Any) -> TrainingDataReader:
    """The reader of a trainer's `train_dataset`: a `Corpus`, paths, a data set, or records in
    memory."""
    if train_dataset is None:
        raise ValueError("train_dataset: needed; give a data set, a folder of text, or Corpus(…)")
    check_one_split(train_dataset, "train_dataset")
    data = as_dataset(train_dataset, "train_dataset")
    if isinstance(data, (list, tuple)) and not data:
        raise ValueError(
            "train_dataset: empty; give a data set or a folder of text, or Corpus() for the"
            " built-in corpus"
        )
    if isinstance(data, (str, os.PathLike, list, tuple)):
        data = Corpus(data)
    if isinstance(data, (datasets.Dataset, datasets.IterableDataset)):
        return DatasetReader(data)
    if not isinstance(data, Corpus):
        raise ValueError(
            f"train_dataset: got a {type(data).__name__}; give a data set, a folder of text, or"
            " Corpus(…)"
        )
    rows = PreparedRows.find(data.data)
    if rows is not None:
        return PreparedRowsReader(rows, data)
    return CorpusReader(data)


def make_rows(
    split: DatasetOrStream, tokenizer: PreTrainedTokenizerBase, objective: Objective
) -> DatasetOrStream:
    """Make rows for the collator from a split of documents, as text or as token ids. A split of
    rows is returned as it is."""
    if not objective.packs_documents:
        return _make_pairs(split, tokenizer, objective)
    args = objective.args
    columns = column_names(split)
    if "text" in columns:
        documents = split.select_columns("text")
        return tokenize_and_pack(
            documents,
            tokenizer,
            seq_length=args.seq_length,
            packing=args.packing,
            num_proc=args.num_proc,
        )
    if "position_ids" in columns:
        return split
    token_ids = split.select_columns("input_ids")
    return pack_documents(token_ids, tokenizer, args.seq_length, args.packing)


def _make_pairs(
    split: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, objective: Objective
) -> datasets.Dataset:
    """Rows of pairs of segments, from text."""
    columns = column_names(split)
    if "text" in columns:
        return objective.make_pairs(split, tokenizer)
    if "token_type_ids" in columns and "next_sentence_label" in columns:
        return split
    raise ValueError(
        f"train_dataset: objective {objective.name} makes its pairs from text; give a column text"
    )


def take_sample(rows: DatasetOrStream) -> datasets.Dataset:
    """The rows in which tokens are counted: all of them, of a stream the first ones."""
    if isinstance(rows, datasets.IterableDataset):
        return first_rows(rows, count=SAMPLE_ROWS)
    return rows


def column_names(dataset: DatasetOrStream) -> list[str]:
    """The columns of a data set; for a stream that does not know them, those of its first entry."""
    return dataset.column_names or list(next(iter(dataset), {}))


def check_columns(dataset: DatasetOrStream, name: str) -> None:
    """Refuse (a ValueError) a data set that has neither text nor token ids. `name` is the argument
    that it was given as."""
    columns = column_names(dataset)
    if "text" not in columns and "input_ids" not in columns:
        raise ValueError(f"{name} needs a column text or input_ids, got {', '.join(columns)}")


def drop_blank_texts(dataset: DatasetOrStream) -> DatasetOrStream:
    """The rows whose column `text`, if there is one, has a character that is no space."""
    if "text" not in column_names(dataset):
        return dataset
    return dataset.filter(_has_characters, input_columns="text", batched=True)


def _has_characters(texts: list[str | None]) -> list[bool]:
    return [bool(text and text.strip()) for text in texts]


def _check_no_validation(eval_dataset: Any) -> None:
    if eval_dataset is not None:
        raise ValueError(
            "eval_dataset: a corpus holds out its own documents (validation_size); leave it out"
        )


# --- streams ---


def check_stream_ends(args: TrainingArguments) -> None:
    """Refuse (a ValueError) a training on a stream that has no end."""
    if args.max_steps <= 0 and getattr(args, "minutes", None) is None:
        raise ValueError("max_steps: a stream has no end; give max_steps or minutes")


def set_up_stream(args: TrainingArguments) -> None:
    """Set up a training on a stream, in place. Every rank reads its own part (by default,
    `accelerate` lets the first rank read for all, and fails on batches of unequal width).
    Checkpoints are written every `save_steps` instead of every epoch, since a stream has only
    one."""
    # a copy: the user's arguments may have the same object
    args.accelerator_config = copy.copy(args.accelerator_config)
    args.accelerator_config.dispatch_batches = False
    if args.save_strategy == "epoch":
        args.save_strategy = SaveStrategy.STEPS
        if args.load_best_model_at_end:  # it needs an evaluation for each checkpoint
            args.eval_strategy = IntervalStrategy.STEPS
            args.eval_steps = args.save_steps
        print(
            f"A stream has no epochs: a checkpoint every {args.save_steps:g} steps (--save_steps)"
        )
