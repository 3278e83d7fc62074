"""The tokenizer of a pretraining: a given one, that of the model or the rows, or a new one."""

import copy
import os

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ...configuration_minibert import MiniBertConfig
from ...tokenization import Extension, extend_tokenizer
from ..common.printable import printable
from ..data.mixtures import TrainingSplits
from ..loading.tokenizers import saved_tokenizer
from .config import config_path
from .objectives import Objective
from .training_data import PreparedRowsReader, TrainingDataReader


def open_tokenizer(
    tokenizer: PreTrainedTokenizerBase | str | None,
    model: MiniBertConfig | PreTrainedModel | str,
    reader: TrainingDataReader,
) -> PreTrainedTokenizerBase | None:
    """A copy of the tokenizer that is given, or the one that is named, or that of the saved model
    or of prepared rows; None if one is to be trained. A ValueError for another one than the rows
    were made with."""
    path = config_path(model)
    prepared_rows = None
    if isinstance(reader, PreparedRowsReader):
        prepared_rows = reader.rows
    if isinstance(tokenizer, (str, os.PathLike)):
        if path is not None:
            raise ValueError(
                f"tokenizer: the trained model {path!r} has its own; leave {str(tokenizer)!r} out"
            )
        tokenizer = saved_tokenizer(tokenizer)
    elif tokenizer is not None:
        tokenizer = copy.deepcopy(tokenizer)  # its longest input is set
    elif path is not None:
        tokenizer = saved_tokenizer(path)
    elif prepared_rows is not None:
        tokenizer = saved_tokenizer(prepared_rows.folder)
    if prepared_rows is not None:
        prepared_rows.check_tokenizer(tokenizer)
    if tokenizer is None and not reader.has_text:
        raise ValueError(
            "processing_class: rows without text need the tokenizer that made them; give it"
        )
    return tokenizer


def make_model_tokenizer(
    tokenizer: PreTrainedTokenizerBase | None,
    objective: Objective,
    config: MiniBertConfig,
    splits: TrainingSplits,
) -> tuple[PreTrainedTokenizerBase, Extension | None]:
    """Train a tokenizer if there is none, extend it if the settings say so, and adapt it to the
    objective and to a model with this config."""
    args = objective.args
    extension = None
    if tokenizer is None:
        tokenizer = args.train_tokenizer_on(
            splits.tokenizer_sample["text"],
            model_max_length=config.max_position_embeddings,
            token_type_ids=config.type_vocab_size > 0,
        )
    if args.extend_vocabulary is not None:
        texts = splits.tokenizer_sample["text"]
        extension = extend_tokenizer(tokenizer, texts, args.extend_vocabulary)
        print(printable(extension.describe()))
        tokenizer = extension.tokenizer
    tokenizer.model_max_length = config.max_position_embeddings
    return objective.prepare_tokenizer(tokenizer), extension
