"""What a pretraining refuses: before anything is read, and once there are rows."""

from pathlib import Path

import datasets
from transformers import PreTrainedModel

from ...configuration_minibert import MiniBertConfig
from ..common.paths import check_folder
from ..common.printing import warn
from ..hub.push import check_push
from ..loading.saved_files import modules_of
from .config import PretrainingConfig, config_path
from .objectives import Objective
from .training_data import TrainingDataReader


def check_before_reading(
    user_args: PretrainingConfig,
    reader: TrainingDataReader,
    objective: Objective,
    model: MiniBertConfig | PreTrainedModel | str,
    config: MiniBertConfig,
) -> None:
    """Refuse (a ValueError) what would end the training only after hours of reading. Settings and
    data alone were checked before, by `check_config` and the reader.

    Args:
        user_args: The settings without the defaults of fields that are None; `objective.args` has
            them.
        reader: Of what is given to train on.
        model: What is given as the model to train.
        config: The config that it gets.
    """
    is_new = isinstance(model, MiniBertConfig)
    objective.check(config, reader.streaming)
    check_vocabulary_extension(user_args, is_new, reader)
    check_folder(Path(user_args.output_dir))
    if user_args.push_to_hub:
        check_push(user_args)
    warn_of_embedding_model(config_path(model))


def check_vocabulary_extension(
    args: PretrainingConfig, is_new: bool, reader: TrainingDataReader
) -> None:
    """Refuse (a ValueError) `extend_vocabulary` where no model has a vocabulary, or no words are
    read."""
    if args.extend_vocabulary is not None and (is_new or not reader.has_text):
        raise ValueError(
            "extend_vocabulary: it needs text and a trained model; give them as train_dataset and"
            " model (--data and --model_name_or_path)"
        )


def warn_of_embedding_model(path: str | None) -> None:
    """Warn if the saved model to train further is one of sentence embeddings."""
    if path is not None and modules_of(path):
        warn(
            f"{path!r} is a sentence embedding model, and masked training makes its vectors"
            " useless; to adapt it to your text, use `minibert finetune embed --pairs_from title`"
        )


def check_rows(train_rows: datasets.Dataset, evaluation_rows: datasets.Dataset) -> None:
    """Refuse (a ValueError) a split without a row."""
    if not len(train_rows):
        raise ValueError("train_dataset: it makes no row; give text, or rows with tokens")
    if not len(evaluation_rows):
        raise ValueError(
            "validation_size: the held-out text (or eval_dataset) makes no row; give more text,"
            " or a larger validation_size"
        )
