"""The model that a task starts from."""

from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ...configuration_minibert import MiniBertConfig, vocabulary_size
from ...tokenization import check_fast
from ..common.loading import load_reported, saved_config, saved_tokenizer, wrap_load_errors
from ..conversion import ARCHITECTURES, from_native, positions
from ..conversion.architecture import CLASSIFIERS
from .tasks.base import Task


def read_config(path: str) -> PreTrainedConfig:
    """The config of a model to start from; a ValueError if there is none, or of no kind that can be fine-tuned here."""
    config = saved_config(path)
    kinds = (MiniBertConfig.model_type, *ARCHITECTURES)
    if config.model_type not in kinds:
        raise ValueError(
            f"model: {path!r} is a {config.model_type!r}; use one of {', '.join(kinds)}"
        )
    return config


def trained_for(config: PreTrainedConfig) -> str | None:
    """The head that a model was trained with for a task (one of `CLASSIFIERS`), None for an encoder to start from."""
    name = next(iter(config.architectures or []), "")
    return next((head for head in CLASSIFIERS if name.endswith(head)), None)


def check_head(path: str, config: PreTrainedConfig, task: type[Task], needed: bool) -> bool:
    """Whether the model has this task's head; a ValueError if it has another task's, or none where one is `needed`."""
    head = trained_for(config)
    if head is not None and task.model_class.__name__.endswith(head):
        return True
    if head is None and not needed:
        return False
    has = f"is a {config.architectures[0]}" if config.architectures else "names no class"
    labels = f" (labels: {', '.join(map(str, config.id2label.values()))})" if head else ""
    wants = (
        f"{'a' if needed else 'an encoder without such a head or a'} {task.model_class.__name__}"
    )
    raise ValueError(
        f"model: {path!r} {has}{labels}, a checkpoint of another task; '{task.name}' needs {wants}"
    )


def load_tokenizer(
    path: str, config: PreTrainedConfig, max_length: int | None
) -> PreTrainedTokenizerBase:
    """The model's tokenizer, with `model_max_length` set to the longest input: `max_length`, or what both allow. A
    ValueError if there is none, or it or `max_length` does not fit the model."""
    try:
        tokenizer = saved_tokenizer(path)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"model: no tokenizer in {path!r}: {str(error).splitlines()[0]}"
        ) from error
    check_fast(tokenizer)
    size = vocabulary_size(tokenizer)
    if size > config.vocab_size:
        raise ValueError(
            f"model: {path!r} has {config.vocab_size} word vectors, its tokenizer ids up to {size - 1}"
        )
    longest = positions(config)
    if max_length is not None and not 3 <= max_length <= longest:
        raise ValueError(
            f"max_length: {max_length} is out of range; use 3 up to the model's {longest} positions"
        )
    tokenizer.model_max_length = max_length or min(longest, tokenizer.model_max_length)
    if (
        getattr(config, "type_vocab_size", 0) == 1
    ):  # RoBERTa's one segment; of a pair, the tokenizer may number two
        tokenizer.model_input_names = [
            name for name in tokenizer.model_input_names if name != "token_type_ids"
        ]
    return tokenizer


def load_model(path: str, task: type[Task], fields: dict[str, Any]) -> PreTrainedModel:
    """The MiniBERT of a task, in fp32, with the weights of the MiniBERT at `path`, or of what becomes one, new ones
    where those lack some, and these fields of the config."""
    with wrap_load_errors(path):
        config = read_config(path)
        if config.model_type == MiniBertConfig.model_type:
            config.update(
                fields | {"output_hidden_states": False, "output_attentions": False}
            )  # logits alone
            head = trained_for(config) is not None  # of this task, see `check_head`
            return load_reported(task.model_class, path, head, config=config, dtype=torch.float32)[
                0
            ]
        source = from_native(path)
        source.config.update(fields)
        options = {
            "config": source.config,
            "state_dict": source.state_dict(),
            "dtype": torch.float32,
        }
        return task.model_class.from_pretrained(None, **options)
