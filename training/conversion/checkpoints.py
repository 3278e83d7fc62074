"""Loading a checkpoint that is to be converted: all of it, or an error that lists what is wrong."""

import re
from pathlib import Path

import transformers
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from ... import modeling_minibert
from ...configuration_minibert import MiniBertConfig, vocabulary_size
from ..common.loading import saved_config, wrap_load_errors
from ..common.weights import keep_untied
from .families import ARCHITECTURES, find_architecture

logger = logging.get_logger(__name__)


def load(path: str | Path, tokenizer: PreTrainedTokenizerBase | None = None) -> PreTrainedModel:
    """Load a checkpoint with the class that its config names. Weights of another head are left out, with a message. If
    no class is named, as in the first BERTs, it is the encoder with the head of its pretraining, if that is there."""
    config = saved_config(str(path))
    names = config.architectures or []
    if not names and config.model_type in ARCHITECTURES:
        classes = ARCHITECTURES[config.model_type].classes
        heads = ("ForPreTraining", "ForReplacedTokenDetection", "ForMaskedLM", "Model")
        names = [classes[head] for head in heads if head in classes]
    elif len(names) != 1:
        raise ValueError(
            f"{path}: its config names the classes {names}; name one, in its 'architectures'"
        )
    for name in names:
        module = (
            modeling_minibert if config.model_type == MiniBertConfig.model_type else transformers
        )
        if module is transformers:
            find_architecture(name, config)  # refuses what is not convertible
        if not hasattr(module, name):
            raise ValueError(
                f"{path}: its config names the class {name}, which {module.__name__} does not have"
            )
        with wrap_load_errors(path):
            model, report = getattr(module, name).from_pretrained(
                path, config=config, output_loading_info=True, ignore_mismatched_sizes=True
            )
        if not report["missing_keys"]:
            break
    missing, other = sorted(report["missing_keys"]), sorted(report["unexpected_keys"])
    if missing and all(key.startswith("pooler.") for key in missing):
        model.pooler, missing = None, []
    size = 0 if tokenizer is None else vocabulary_size(tokenizer)
    problems = {
        "lacks the weights": missing,
        "has the unknown weights": [key for key in other if re.search(r"\blayers?\.\d", key)],
        "has weights of another shape": [
            f"{name} {list(there)} instead of {list(here)}"
            for name, there, here in sorted(report["mismatched_keys"])
        ],
        "has a tokenizer that does not fit": [
            f"ids up to {size - 1} for {config.vocab_size} word vectors"
        ]
        * (size > config.vocab_size),
    }
    if found := [f"{what}: {', '.join(which)}" for what, which in problems.items() if which]:
        raise ValueError(
            f"{path} is not a complete {type(model).__name__}. It " + "; it ".join(found)
        )
    if other:
        logger.warning(
            f"{path}: {type(model).__name__} has no place for {', '.join(other)}: left out"
        )
    keep_untied(path, model)
    return model
