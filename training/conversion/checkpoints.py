"""Loading a checkpoint that is to be converted: all of it, or an error that lists what is wrong."""

import copy
from pathlib import Path

import torch
import transformers
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ... import modeling_minibert
from ...configuration_minibert import MiniBertConfig, vocabulary_size
from ..loading import quietly, reading, saved_config
from .architecture import CLASSIFIERS, logger
from .families import ARCHITECTURES, find_architecture


def load(
    path: str | Path, tokenizer: PreTrainedTokenizerBase | None = None, class_name: str | None = None
) -> PreTrainedModel:
    """Load a checkpoint with the class that its config names. Weights of another head of the same family are left out,
    with a message. Where none is named, as in the first BERTs, it is the encoder with the head of its pretraining, if
    there are weights of one.

    Raises:
        ValueError: several classes are named, one that is not convertible, weights that are missing, unknown or of
            another shape, a `tokenizer` with more tokens than there are word vectors.
    """
    config = saved_config(str(path))
    names = [class_name] if class_name else config.architectures or []
    if not names and config.model_type in ARCHITECTURES:
        names = [ARCHITECTURES[config.model_type].classes["Model"]]
    if len(names) != 1:
        raise ValueError(f"{path}: its config names the classes {names}; name one, in its 'architectures'")
    if config.model_type == MiniBertConfig.model_type:
        module, classes = modeling_minibert, modeling_minibert.__all__[1:]
    else:
        architecture, _ = find_architecture(names[0], config)
        module, classes = transformers, architecture.classes.values()
    model_class = getattr(module, names[0], None)
    if model_class is None:
        raise ValueError(f"{path}: its config names the class {names[0]}, which {module.__name__} does not have")
    with reading(path):
        model, report = model_class.from_pretrained(path, output_loading_info=True, ignore_mismatched_sizes=True)
    missing, unexpected, other = sorted(report["missing_keys"]), sorted(report["unexpected_keys"]), []
    if missing and all(key.startswith("pooler.") for key in missing):
        model.pooler, missing = None, []
    if unexpected:
        known = _weights_of([getattr(module, name) for name in classes], config)
        other = [key for key in unexpected if key.removeprefix(f"{model.base_model_prefix}.") in known]
        unexpected = [key for key in unexpected if key not in other]
    if other and not (class_name or config.architectures):
        pretrained = [name for head, name in architecture.classes.items() if head not in CLASSIFIERS]
        weights = {key.removeprefix(f"{model.base_model_prefix}.") for key in other}
        fitting = [name for name in pretrained if weights <= _weights_of([getattr(module, name)], config)]
        if fitting:
            return load(path, tokenizer, fitting[0])
    shapes = [f"{name} {list(there)} instead of {list(here)}" for name, there, here in report["mismatched_keys"]]
    size = 0 if tokenizer is None else vocabulary_size(tokenizer)
    too_many = [f"ids up to {size - 1} for {config.vocab_size} word vectors"] if size > config.vocab_size else []
    problems = {
        "lacks the weights": missing,
        "has the unknown weights": unexpected,
        "has weights of another shape": sorted(shapes),
        "has a tokenizer that does not fit": too_many,
    }
    found = [f"{what}: {', '.join(which)}" for what, which in problems.items() if which]
    if found:
        raise ValueError(f"{path} is no whole {names[0]}. It " + "; it ".join(found))
    if other:
        logger.warning(f"{path}: {names[0]} has no place for {', '.join(other)}: left out")
    return model


def _weights_of(classes: list[type[PreTrainedModel]], config: PreTrainedConfig) -> set[str]:
    """The weights of these classes, by name without the prefix of the encoder."""
    found = set()
    for model_class in classes:
        given = copy.deepcopy(config)
        given.num_labels = 2  # which some heads insist on
        with quietly(), torch.device("meta"):
            model = model_class(given)
        found |= {name.removeprefix(f"{model.base_model_prefix}.") for name in model.state_dict()}
    return found
