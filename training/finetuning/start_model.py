"""The model that a task starts from."""

import os
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase, set_seed

from ...configuration_minibert import MiniBertConfig, vocabulary_size
from ...tokenization import check_fast
from ..conversion import ARCHITECTURES, count_positions, from_native
from ..conversion.architecture import CLASSIFIER_HEADS
from ..loading.load_errors import wrap_load_errors
from ..loading.models import load_pretrained, saved_config
from ..loading.tokenizers import saved_tokenizer
from .tasks.base import Task

# What a new head reads: a head alone is better over the mean than over the first token, and where
# all layers train it is not worse by more than chance (benchmarks/results/pooling.json).
NEW_HEAD_POOLING = "mean"


def read_config(path: str) -> PreTrainedConfig:
    """The config of a model to start from; a ValueError if there is none, or of no type that can be
    fine-tuned here."""
    config = saved_config(path)
    model_types = (MiniBertConfig.model_type, *ARCHITECTURES)
    if config.model_type not in model_types:
        raise ValueError(
            f"model: {path!r} is a {config.model_type!r}; use one of {', '.join(model_types)}"
        )
    return config


class StartModel:
    """The model that a training or an evaluation starts from.

    Args:
        model: A folder, a Hub name, or a model in memory.
        do_train: Whether it will be trained.

    Attributes:
        config: Its config.
        name: What messages and reports call it.
        is_loaded: Whether it is in memory.
        has_trained_head: Whether it was trained for a task before. A model in memory that is
            measured only was, also if it has never been saved.
    """

    def __init__(self, model: str | os.PathLike | PreTrainedModel, do_train: bool):
        self.model = model
        self.is_loaded = isinstance(model, PreTrainedModel)
        if self.is_loaded:
            self.config = model.config
            self.name = model.name_or_path or type(model).__name__
        else:
            self.config = read_config(str(model))
            self.name = str(model)
        is_measured_in_memory = self.is_loaded and not do_train
        has_saved_head = find_trained_head(self.config) is not None
        self.has_trained_head = is_measured_in_memory or has_saved_head

    def load(self, task: Task, seed: int) -> PreTrainedModel:
        """The model with the labels of a task: the same for the same seed. A new head reads the
        mean, if the task names nothing else."""
        fields = task.config_fields()
        if task.has_pooled_head and not self.has_trained_head:
            fields["classifier_pooling"] = task.pooling or NEW_HEAD_POOLING
        if self.is_loaded:
            self.model.config.update(fields)
            if "classifier_pooling" in fields and not self.config.is_causal:
                # The encoder has read the config when it was built.
                self.model.base_model.pooling = fields["classifier_pooling"]
            return self.model
        set_seed(seed)
        return load_model(self.name, type(task), fields)


def find_trained_head(config: PreTrainedConfig) -> str | None:
    """The head that a model was trained with for a task (one of `CLASSIFIER_HEADS`), None for an
    encoder to start from."""
    if not config.architectures:
        return None
    for head in CLASSIFIER_HEADS:
        if config.architectures[0].endswith(head):
            return head
    return None


def check_head(path: str, config: PreTrainedConfig, task_class: type[Task], needed: bool) -> None:
    """Refuse (a ValueError) a model with another task's head, or with none where one is
    `needed`."""
    head = find_trained_head(config)
    wanted_class = task_class.model_class.__name__
    if head is not None and wanted_class.endswith(head):
        return
    if head is None and not needed:
        return
    description = "names no class"
    if config.architectures:
        description = f"is a {config.architectures[0]}"
    if head is not None:
        description += f" (labels: {', '.join(map(str, config.id2label.values()))})"
    wanted = f"a {wanted_class}"
    if not needed:
        wanted = f"an encoder without such a head or a {wanted_class}"
    raise ValueError(
        f"model: {path!r} {description}, a checkpoint of another task; '{task_class.name}' needs"
        f" {wanted}"
    )


def load_tokenizer(path: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a saved model. A ValueError if there is none, or a slow one."""
    try:
        tokenizer = saved_tokenizer(path)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"model: no tokenizer in {path!r}: {str(error).splitlines()[0]}; save the model's"
            " tokenizer there"
        ) from error
    check_fast(tokenizer)
    return tokenizer


def longest_input(tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig) -> int:
    """In tokens: what both tokenizer and model allow."""
    return min(count_positions(config), tokenizer.model_max_length)


def fit_tokenizer(
    tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig, max_length: int | None
) -> None:
    """Set `model_max_length` to `max_length`, or to the `longest_input`. A ValueError if the
    tokenizer or `max_length` does not fit the model."""
    check_fast(tokenizer)
    num_ids = vocabulary_size(tokenizer)
    if num_ids > config.vocab_size:
        raise ValueError(
            f"model: {config.name_or_path!r} has {config.vocab_size} word vectors,"
            f" its tokenizer ids up to {num_ids - 1}; use the tokenizer that the model was trained"
            " with"
        )
    num_positions = count_positions(config)
    if max_length is not None and not 3 <= max_length <= num_positions:
        raise ValueError(
            f"max_length: {max_length} is out of range;"
            f" use 3 up to the model's {num_positions} positions"
        )
    if max_length is None:
        max_length = longest_input(tokenizer, config)
    tokenizer.model_max_length = max_length
    # RoBERTa has one segment; of a pair, the tokenizer may number two.
    if getattr(config, "type_vocab_size", 0) == 1:
        input_names = tokenizer.model_input_names
        tokenizer.model_input_names = [name for name in input_names if name != "token_type_ids"]


def load_model(path: str, task_class: type[Task], fields: dict[str, Any]) -> PreTrainedModel:
    """The MiniBERT of a task, in fp32, with the weights of the MiniBERT at `path`, or of what
    becomes one, new ones where those lack some, and these fields of the config."""
    with wrap_load_errors(path):
        config = read_config(path)
        if config.model_type == MiniBertConfig.model_type:
            config.update(fields)
            # The logits alone are wanted.
            config.update({"output_hidden_states": False, "output_attentions": False})
            has_head = find_trained_head(config) is not None  # of this task, see `check_head`
            model, _ = load_pretrained(
                task_class.model_class, path, has_head, config=config, dtype=torch.float32
            )
            return model
        source = from_native(path)
        source.config.update(fields)
        return task_class.model_class.from_pretrained(
            None, config=source.config, state_dict=source.state_dict(), dtype=torch.float32
        )
