"""What Transformers warns of when the weights in a file are not those that the config describes."""

import re
from collections.abc import Iterable
from pathlib import Path

import torch
from transformers import PreTrainedModel

from .printing import warn

LAYER = re.compile(r"(\b|_)layers?\.\d")  # ALBERT's are albert_layers
# Buffers of Transformers 4, which hold 0, 1, 2, … or zeros.
OLD_BUFFERS = ("position_ids", "token_type_ids")


def untied_weights(model: PreTrainedModel) -> list[str]:
    """The names of the weights that the config ties to others, and that have other values all the
    same."""
    tied_names = model.get_expanded_tied_weights_keys(all_submodels=False)
    untied = []
    for name, source_name in tied_names.items():
        if not name.endswith(".weight"):
            continue
        weight = model.get_parameter(name)
        source = model.get_parameter(source_name)
        is_tied = weight is source or torch.equal(weight, source)
        if not is_tied:
            untied.append(name)
    return untied


def keep_untied(path: str | Path, model: PreTrainedModel) -> None:
    """Where a file holds a decoder of its own though the config ties it to the word vectors,
    Transformers keeps both. Say so, and untie them in the config, so that nothing ties them
    later."""
    names = untied_weights(model)
    if not names:
        return
    model.config.tie_word_embeddings = False
    warn(
        f"model: the config of {str(path)!r} ties {', '.join(names)} to the word vectors, but its"
        " file holds other values for it; both are kept, with tie_word_embeddings=false"
    )


def check_unused(path: str | Path, model: PreTrainedModel, names: Iterable[str]) -> None:
    """Refuse (a ValueError) weights of layers that the model has no place for, and warn of others
    of its encoder. Heads and poolers may be left out: each class has its own."""
    prefix = f"{model.base_model_prefix}."
    encoder_modules = dict(model.base_model.named_children())
    encoder_modules.pop("pooler", None)
    unused = []
    for name in sorted(names):
        module_name = name.removeprefix(prefix).partition(".")[0]
        if module_name in encoder_modules and not name.endswith(OLD_BUFFERS):
            unused.append(name)
    named = ", ".join(unused[:4]) + " …" * (len(unused) > 4)
    if any(LAYER.search(name) for name in unused):
        raise ValueError(
            f"model: {str(path)!r} holds weights for which its config.json has no layer ({named});"
            " give the folder that this config.json belongs to"
        )
    if unused:
        warn(f"model: {str(path)!r} holds weights that its config.json has no place for: {named}")
