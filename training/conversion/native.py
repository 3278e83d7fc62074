"""Weights both ways between MiniBERT and the architectures of Transformers that it spans, in memory.

A conversion keeps every weight to the last bit, and so the outputs in evaluation. It also keeps labels, special ids,
dtype, device and mode. What a MiniBERT has no place for, `converted_rest` of its config keeps for the way back. Where
units are dropped in training differs between the architectures.
"""

import copy
import inspect
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import PreTrainedModel

from ... import modeling_minibert
from ...configuration_minibert import SPECIAL_IDS, MiniBertConfig
from ..common.weights import untied_weights
from .architecture import CARRIED_IF_THERE, Architecture
from .checkpoints import load
from .families import ARCHITECTURES, find_architecture


def from_native(model_or_path: PreTrainedModel | str | Path) -> PreTrainedModel:
    """Make a MiniBERT of a model of Transformers, with the same head and the same outputs.

    Where padding comes before a token, most architectures count columns and MiniBERT counts real tokens: the outputs
    agree if all padding is on the right, or if the native model gets `position_ids` that count real tokens.

    Args:
        model_or_path: A model, or the folder or Hub name of one whose config names its class. No remote code runs.

    Returns:
        The MiniBERT class of the same head, with its own copy of the weights. `config.converted_from` names the
        architecture.

    Raises:
        ValueError: A class that is not convertible, an incomplete checkpoint, a switch that MiniBERT lacks.
        huggingface_hub.errors.StrictDataclassError: A value that MiniBertConfig refuses.
    """
    native = model_or_path if isinstance(model_or_path, PreTrainedModel) else load(model_or_path)
    architecture, head = find_architecture(type(native).__name__, native.config)
    fields = {
        ours: getattr(native.config, name) for name, ours in architecture.fields_of(head).items()
    }
    fields |= {name: getattr(native.config, name, None) for name in SPECIAL_IDS}
    fields |= dict(max_position_embeddings=architecture.positions(native.config))
    fields |= (
        architecture.defaults
        | architecture.switches
        | architecture.minibert_fields(native, head, fields)
    )
    if untied_weights(native):
        fields["tie_word_embeddings"] = False
    config = MiniBertConfig(**copy.deepcopy(fields))
    config.converted_from = architecture.config_class.model_type
    config.converted_rest = architecture.rest(native, head)
    model = getattr(modeling_minibert, f"MiniBert{head}")(config)
    if found := _obstacles(
        config.converted_from, model, head
    ):  # fields that its class reads and MiniBERT does not
        raise ValueError(
            f"this {type(native).__name__} is not convertible: its class computes with {', '.join(found)}"
        )

    weights, converted = native.state_dict(prefix=_prefix(native)), {}
    for name in model.state_dict(prefix=_prefix(model)):
        parts = [weights[part] for part in architecture.native_names(name, head)]
        converted[name] = architecture.join(name, parts, native.config)
    _fill(model, converted, native)
    return model


def to_native(model: PreTrainedModel, architecture: str | None = None) -> PreTrainedModel:
    """Make a model of Transformers of a MiniBERT: the class of the same head, with the same outputs and its own copy of
    the weights. A bias that only the native class has is zero.

    Args:
        architecture: One of `ARCHITECTURES`. None: the one recorded when the model was converted, else the first one
            that its switches allow.

    Raises:
        ValueError: No such architecture, no such head there, or switches that it does not have: all of them are named
            (of the three nearest architectures, if none is given or recorded).
        huggingface_hub.errors.StrictDataclassError: A value that the native config refuses.
    """
    config, head = model.config, type(model).__name__.removeprefix("MiniBert")
    if not isinstance(config, MiniBertConfig):
        raise ValueError(f"model is a {type(model).__name__}, not a MiniBERT model of this package")
    recorded = architecture or config.converted_from
    if recorded is not None and recorded not in ARCHITECTURES:
        raise ValueError(f"architecture={recorded!r} is unknown; use {' or '.join(ARCHITECTURES)}")
    obstacles = {
        name: _obstacles(name, model, head) for name in ([recorded] if recorded else ARCHITECTURES)
    }
    target = next((ARCHITECTURES[name] for name, found in obstacles.items() if not found), None)
    if target is None:
        nearest = sorted(
            obstacles.items(), key=lambda x: (head not in ARCHITECTURES[x[0]].classes, len(x[1]))
        )[:3]
        reasons = "; ".join(f"{name} needs {', '.join(found)}" for name, found in nearest)
        raise ValueError(f"this {type(model).__name__} cannot become a native model: {reasons}")

    native_class = getattr(transformers, target.classes[head])
    has_switch = (
        "add_pooling_layer" in inspect.signature(native_class).parameters
    )  # not a field of the config
    pooler = {"add_pooling_layer": model.pooler is not None} if has_switch else {}
    fields = _native_fields(target, config, head)
    if untied_weights(model):
        fields["tie_word_embeddings"] = False
    native = native_class(target.config_class(**copy.deepcopy(fields)), **pooler)

    converted = {}
    for name, tensor in model.state_dict(prefix=_prefix(model)).items():
        names = target.native_names(name, head)
        parts = target.split(name, tensor, len(names), config)
        converted |= {part: rows.clone() for part, rows in zip(names, parts, strict=True)}
    twins = {other: one for one, other in (native_class._tied_weights_keys or {}).items()}
    for name, tensor in native.state_dict(prefix=_prefix(native)).items():
        if (
            name not in converted and twins.get(name) in converted
        ):  # a second name, of the vocabulary's bias
            converted[name] = converted[twins[name]].clone()
        elif name not in converted and name.endswith(".bias"):
            converted[name] = torch.zeros_like(tensor, dtype=model.dtype, device=model.device)
    _fill(native, converted, model)
    return native


def _native_fields(target: Architecture, config: MiniBertConfig, head: str) -> dict[str, Any]:
    own, usual = target.fields_of(head), target.config_class()
    fields = target.kept_fields(config) | {
        name: getattr(config, ours) for name, ours in own.items()
    }
    for name, value in fields.items():
        default = getattr(usual, name, None)
        if (
            value is None and default is not None
        ):  # the native config has no None for "as everywhere"
            fields[name] = config.hidden_dropout if "dropout" in name else default
        if fields[name] is not None and ("dropout" in name or isinstance(default, float)):
            fields[name] = float(fields[name])  # some take no whole number for a rate
    if (
        "rope_parameters" in own and "layer_types" not in own
    ):  # one rotation, since all layers attend globally
        fields["rope_parameters"] = config.rope_parameters["full_attention"]
    if (
        head == "ForQuestionAnswering" and config.num_labels != 2
    ):  # a start and an end, whatever the labels say
        del fields["id2label"], fields["label2id"]
    # An id that the native config does not declare is only written where there is one.
    ids = {name: getattr(config, name) for name in SPECIAL_IDS}
    fields |= {name: i for name, i in ids.items() if i is not None or hasattr(usual, name)}
    first = target.first_position(config)
    return (
        fields
        | dict(max_position_embeddings=config.max_position_embeddings + first)
        | target.native_fields(config, head)
    )


def _obstacles(architecture: str, model: PreTrainedModel, head: str) -> list[str]:
    """What the architecture needs and this model does not have."""
    if head not in ARCHITECTURES[architecture].classes:
        return [f"another class: it has none for {head}"]
    return [
        f"{name}={value!r} (it is {getattr(model.config, name)!r})"
        for name, value in ARCHITECTURES[architecture].required(model, head).items()
        if getattr(model.config, name) != value
    ]


def _fill(model: PreTrainedModel, weights: dict[str, torch.Tensor], like: PreTrainedModel) -> None:
    """Put `weights` into `model`, each with its own dtype, and take from `like` what is not a field of a MiniBERT."""
    model.load_state_dict(
        {name.removeprefix(_prefix(model)): tensor for name, tensor in weights.items()}, assign=True
    )
    model.tie_weights()
    model.to(like.device).train(like.training)
    keep_generation(model, like)
    for name in CARRIED_IF_THERE:
        if hasattr(like.config, name):
            setattr(model.config, name, getattr(like.config, name))


def keep_generation(model: PreTrainedModel, like: PreTrainedModel) -> None:
    """Give a decoder the settings of `generate` of the one that it was made of."""
    if model.can_generate() and like.can_generate():
        model.generation_config = copy.deepcopy(like.generation_config)


def _prefix(model: PreTrainedModel) -> str:
    """What the names of a base model's weights lack to be those that they have below a head."""
    return "" if hasattr(model, model.base_model_prefix) else f"{model.base_model_prefix}."
