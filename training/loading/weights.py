"""Whether the weights in the files of a model are those that its config describes."""

import re
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import safe_open
from transformers import PreTrainedModel

from ..common.printing import warn

MAX_MISSING_NAMES = 4  # of missing weights, in an error
LAYER_NAME = re.compile(r"(\b|_)layers?\.\d")  # ALBERT's are albert_layers
# Buffers of Transformers 4, which hold 0, 1, 2, … or zeros.
OLD_BUFFERS = ("position_ids", "token_type_ids")


def check_complete(
    path: str | Path, model: PreTrainedModel, missing: Iterable[str], head: bool = True
) -> None:
    """Refuse (a ValueError) a model of which weights are missing, which would be random. Without
    `head`, a head and a pooler may be new."""
    missing = sorted(missing)
    if not head:
        encoder = f"{model.base_model_prefix}."
        pooler = f"{encoder}pooler."
        missing = [
            name for name in missing if name.startswith(encoder) and not name.startswith(pooler)
        ]
    if missing:
        names = ", ".join(missing[:MAX_MISSING_NAMES])
        if len(missing) > MAX_MISSING_NAMES:
            names += " …"
        raise ValueError(
            f"model: {str(path)!r} lacks the weights {names}; give a folder that holds the whole"
            " model"
        )


def check_weights(path: str, model: PreTrainedModel, head: bool = True) -> None:
    """`check_complete` for a model that sentence-transformers loaded, by the names in the files of
    the folder. A pooler that was not saved is removed from the model."""
    keep_untied(path, model)
    prefix = f"{model.base_model_prefix}."  # a file of the encoder alone has names without it
    files = sorted(Path(path).glob("*.safetensors"))
    saved_names = set()
    for file in files:
        with safe_open(file, "pt") as weights:
            for name in weights.keys():  # noqa: SIM118
                saved_names.add(name.removeprefix(prefix))
    weights_here = {}
    for name, weight in model.state_dict().items():
        weights_here[name.removeprefix(prefix)] = weight
    check_unused(path, model, saved_names - weights_here.keys())
    # by addresses, since tied weights are saved under one of their names
    saved_addresses = set()
    for name in saved_names & weights_here.keys():
        saved_addresses.add(weights_here[name].data_ptr())
    missing = []
    if files:  # none for a name of the Hub
        for name, weight in model.state_dict().items():
            if weight.data_ptr() not in saved_addresses:
                missing.append(name)
    if missing and all(name.startswith("pooler.") for name in missing):
        # masked language models have no pooler
        model.pooler = None
        model.config.add_pooling_layer = False
        missing = []
    check_complete(path, model, missing, head)


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
    if any(LAYER_NAME.search(name) for name in unused):
        raise ValueError(
            f"model: {str(path)!r} holds weights for which its config.json has no layer ({named});"
            " give the folder that this config.json belongs to"
        )
    if unused:
        warn(f"model: {str(path)!r} holds weights that its config.json has no place for: {named}")


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
