"""Loading a checkpoint that is to be converted: all of it, or an error that lists what is wrong."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import transformers
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from ... import modeling_minibert
from ...configuration_minibert import MiniBertConfig, vocabulary_size
from ..common.printable import printable
from ..loading.load_errors import wrap_load_errors
from ..loading.models import saved_config
from ..loading.weights import LAYER_NAME, keep_untied
from .families import ARCHITECTURES, find_architecture

logger = logging.get_logger(__name__)

# The heads of pretraining, for checkpoints that name no class: the first one that is complete.
PRETRAINING_HEADS = ("ForPreTraining", "ForReplacedTokenDetection", "ForMaskedLM", "Model")


def load_checkpoint(
    path: str | Path, tokenizer: PreTrainedTokenizerBase | None = None
) -> PreTrainedModel:
    """Load a checkpoint with the class that its config names.

    Weights of another head are left out, with a message. If no class is named, as in the first
    BERTs, it is the encoder with the head of its pretraining, if that is there.

    Args:
        tokenizer: The one that belongs to it; its ids must have word vectors.

    Raises:
        ValueError: A class that is not convertible, or a checkpoint that is not complete.
    """
    config = saved_config(str(path))
    for class_name in _class_names(path, config):
        model_class = _find_class(path, class_name, config)
        with wrap_load_errors(path):
            model, report = model_class.from_pretrained(
                path, config=config, output_loading_info=True, ignore_mismatched_sizes=True
            )
        if not report["missing_keys"]:
            break
    missing_names = sorted(report["missing_keys"])
    if missing_names and all(name.startswith("pooler.") for name in missing_names):
        model.pooler = None
        missing_names = []
    _check_report(path, model, missing_names, report, tokenizer)
    if report["unexpected_keys"]:
        unused_names = _join_names(report["unexpected_keys"])
        logger.warning(f"{path}: {type(model).__name__} has no place for {unused_names}: left out")
    keep_untied(path, model)
    return model


def _class_names(path: str | Path, config: PreTrainedConfig) -> list[str]:
    """The class that a config names, or those that it can be without one."""
    class_names = config.architectures or []
    if not class_names and config.model_type in ARCHITECTURES:
        classes = ARCHITECTURES[config.model_type].classes
        return [classes[head] for head in PRETRAINING_HEADS if head in classes]
    if len(class_names) != 1:
        raise ValueError(
            f"{path}: its config names the classes {class_names}; name one, in its 'architectures'"
        )
    return class_names


def _find_class(path: str | Path, class_name: str, config: PreTrainedConfig) -> Any:
    """A class of this package or of Transformers. A ValueError if it is not convertible."""
    if config.model_type == MiniBertConfig.model_type:
        module = modeling_minibert
    else:
        module = transformers
        find_architecture(class_name, config)  # refuses what is not convertible
    if not hasattr(module, class_name):
        raise ValueError(
            f"{path}: its config names the class {printable(class_name)}, which {module.__name__}"
            " does not have"
        )
    return getattr(module, class_name)


def _join_names(names: Iterable[str]) -> str:
    """The names of weights in a message, sorted."""
    return ", ".join(map(printable, sorted(names)))


def _check_report(
    path: str | Path,
    model: PreTrainedModel,
    missing_names: list[str],
    report: dict[str, Any],
    tokenizer: PreTrainedTokenizerBase | None,
) -> None:
    """Refuse (a ValueError) a checkpoint that is not complete, with all that is wrong with it.

    Args:
        report: What `from_pretrained` gives with `output_loading_info`.
    """
    problems = []
    if missing_names:
        problems.append(f"lacks the weights: {_join_names(missing_names)}")
    unknown_layers = [name for name in report["unexpected_keys"] if LAYER_NAME.search(name)]
    if unknown_layers:
        problems.append(f"has the unknown weights: {_join_names(unknown_layers)}")
    other_shapes = []
    for name, saved_shape, model_shape in sorted(report["mismatched_keys"]):
        shapes = f"{list(saved_shape)} instead of {list(model_shape)}"
        other_shapes.append(f"{printable(name)} {shapes}")
    if other_shapes:
        problems.append(f"has weights of another shape: {', '.join(other_shapes)}")
    vocab_size = model.config.vocab_size
    if tokenizer is not None and vocabulary_size(tokenizer) > vocab_size:
        largest_id = vocabulary_size(tokenizer) - 1
        problems.append(
            f"has a tokenizer that does not fit: ids up to {largest_id} for {vocab_size} word"
            " vectors"
        )
    if problems:
        raise ValueError(
            f"{path} is not a complete {type(model).__name__}. It {'; it '.join(problems)}"
        )
