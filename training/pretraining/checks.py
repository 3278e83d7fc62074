"""What a pretraining refuses: before anything is read, and once there are rows.

Settings alone are checked by `check_config` in `config.py`; data alone by the readers in
`training_data.py`.
"""

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
    args: PretrainingConfig,
    objective: Objective,
    config: MiniBertConfig,
    model: MiniBertConfig | PreTrainedModel | str,
    reader: TrainingDataReader,
) -> None:
    """Refuse (a ValueError) what would end the training only after hours of reading. The settings
    and the data alone are checked already."""
    objective.check(config, reader.streaming)
    check_folder(Path(args.output_dir))
    if args.push_to_hub:
        check_push(args)
    path = config_path(model)
    if path is not None and modules_of(path):
        warn(
            f"{path!r} is a sentence embedding model, and masked training makes its vectors"
            " useless; to adapt it to your text, use `minibert finetune embed --pairs_from title`"
        )
    is_new = isinstance(model, MiniBertConfig)
    if args.extend_vocabulary is not None and (is_new or not reader.has_text):
        raise ValueError(
            "extend_vocabulary: it needs text and a trained model; give them as train_dataset and"
            " model (--data and --model_name_or_path)"
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
