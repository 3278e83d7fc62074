"""Weights both ways between MiniBERT and the architectures of Transformers that it spans, in
memory.

A conversion keeps every weight to the last bit, and so the outputs in evaluation. It also keeps
labels, special ids, dtype, device and mode. What a MiniBERT has no place for, `converted_rest` of
its config keeps for the way back. Where units are dropped in training differs between the
architectures.

Both ways go in the same steps: the fields of the new config, a new model of it, the weights under
their new names, and what else belongs to a model (`_load_weights_and_settings`).
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
from ..loading.weights import untied_weights
from .architecture import CROSS_ENCODER_FIELDS, Architecture
from .families import ARCHITECTURES, find_architecture
from .load_native import load_checkpoint

# Of a model that fits no architecture, the message names what the nearest ones need.
NUM_NEAREST = 3


def from_native(model_or_path: PreTrainedModel | str | Path) -> PreTrainedModel:
    """Make a MiniBERT of a model of Transformers, with the same head and the same outputs.

    Where padding comes before a token, most architectures count columns and MiniBERT counts real
    tokens: the outputs agree if all padding is on the right, or if the native model gets
    `position_ids` that count real tokens.

    Args:
        model_or_path: A model, or the folder or Hub name of one whose config names its class. No
            remote code runs.

    Returns:
        The MiniBERT class of the same head, with its own copy of the weights.
        `config.converted_from` names the architecture.

    Raises:
        ValueError: A class that is not convertible, an incomplete checkpoint, a switch that
            MiniBERT lacks.
        huggingface_hub.errors.StrictDataclassError: A value that MiniBertConfig refuses.
    """
    if isinstance(model_or_path, PreTrainedModel):
        native = model_or_path
    else:
        native = load_checkpoint(model_or_path)
    source, head = find_architecture(type(native).__name__, native.config)
    config = MiniBertConfig(**copy.deepcopy(_minibert_fields(source, native, head)))
    config.converted_from = source.config_class.model_type
    config.converted_rest = source.converted_rest(native, head)
    model = getattr(modeling_minibert, f"MiniBert{head}")(config)
    # fields that its class ignores, but that MiniBERT would follow
    obstacles = _unmet_requirements(config.converted_from, model, head)
    if obstacles:
        raise ValueError(
            f"this {type(native).__name__} is not convertible: its class computes with"
            f" {', '.join(obstacles)}"
        )

    native_weights = native.state_dict(prefix=_prefix(native))
    weights = {}
    for name in model.state_dict(prefix=_prefix(model)):
        parts = [native_weights[part] for part in source.native_names(name, head)]
        weights[name] = source.join(name, parts, native.config)
    _load_weights_and_settings(model, weights, native)
    return model


def to_native(model: PreTrainedModel, architecture: str | None = None) -> PreTrainedModel:
    """Make a model of Transformers of a MiniBERT: the class of the same head, with the same outputs
    and its own copy of the weights. A bias that only the native class has is zero.

    Args:
        architecture: One of `ARCHITECTURES`. None: the one recorded when the model was converted,
            else the first one that its switches allow.

    Raises:
        ValueError: No such architecture, no such head there, or switches that it does not have:
            all of them are named (of the three nearest architectures, if none is given or
            recorded).
        huggingface_hub.errors.StrictDataclassError: A value that the native config refuses.
    """
    if not isinstance(model.config, MiniBertConfig):
        raise ValueError(f"model is a {type(model).__name__}, not a MiniBERT model of this package")
    head = type(model).__name__.removeprefix("MiniBert")
    target = _choose_architecture(model, head, architecture or model.config.converted_from)
    native_class = getattr(transformers, target.classes[head])
    config = target.config_class(**copy.deepcopy(_native_fields(target, model, head)))
    options = {}
    if "add_pooling_layer" in inspect.signature(native_class).parameters:
        options["add_pooling_layer"] = model.pooler is not None  # it is no field of the config
    native = native_class(config, **options)

    weights = {}
    for name, tensor in model.state_dict(prefix=_prefix(model)).items():
        native_names = target.native_names(name, head)
        parts = target.split(name, tensor, len(native_names), model.config)
        for native_name, part in zip(native_names, parts, strict=True):
            weights[native_name] = part.clone()
    for name, tensor in target.further_weights(config).items():
        weights[name] = tensor.to(model.device, model.dtype)
    _add_biases(weights, native, model)
    _load_weights_and_settings(native, weights, model)
    return native


def _choose_architecture(
    model: PreTrainedModel, head: str, architecture: str | None
) -> Architecture:
    """The named architecture, or the first one that can be this model; a ValueError if none can."""
    if architecture is not None and architecture not in ARCHITECTURES:
        raise ValueError(
            f"architecture={architecture!r} is unknown; use {' or '.join(ARCHITECTURES)}"
        )
    candidates = ARCHITECTURES if architecture is None else [architecture]
    obstacles = {}
    for name in candidates:
        obstacles[name] = _unmet_requirements(name, model, head)
        if not obstacles[name]:
            return ARCHITECTURES[name]

    def distance(name: str) -> tuple[bool, int]:
        return head not in ARCHITECTURES[name].classes, len(obstacles[name])

    nearest: dict[str, str] = {}  # of architectures that need the same, the first
    for name in sorted(obstacles, key=distance):
        nearest.setdefault(", ".join(obstacles[name]), name)
    reasons = "; ".join(
        f"{name} needs {needed}" for needed, name in list(nearest.items())[:NUM_NEAREST]
    )
    raise ValueError(f"this {type(model).__name__} cannot become a native model: {reasons}")


def _unmet_requirements(architecture: str, model: PreTrainedModel, head: str) -> list[str]:
    """What the architecture needs and this model does not have."""
    if head not in ARCHITECTURES[architecture].classes:
        return [f"another class: it has none for {head}"]
    obstacles = []
    for name, needed in ARCHITECTURES[architecture].required(model, head).items():
        value = getattr(model.config, name)
        if value == needed:
            continue
        obstacle = f"{name}={needed!r} (it is {value!r})"
        if name == "classifier_pooling":
            obstacle += ", as --pooling of `minibert finetune` sets it"
        obstacles.append(obstacle)
    return obstacles


# --- fields of the config ---


def _minibert_fields(
    architecture: Architecture, native: PreTrainedModel, head: str
) -> dict[str, Any]:
    """The fields of a MiniBertConfig for a native model."""
    fields = {}
    for native_name, name in architecture.fields_of(head).items():
        fields[name] = getattr(native.config, native_name)
    for name in SPECIAL_IDS:
        fields[name] = getattr(native.config, name, None)
    fields["max_position_embeddings"] = architecture.positions(native.config)
    fields |= architecture.defaults
    fields |= architecture.switches
    fields |= architecture.minibert_fields(native, head, fields)
    if untied_weights(native):
        fields["tie_word_embeddings"] = False
    return fields


def _native_fields(target: Architecture, model: PreTrainedModel, head: str) -> dict[str, Any]:
    """The fields of a native config for a MiniBERT."""
    config = model.config
    names = target.fields_of(head)
    defaults = target.config_class()
    fields = target.recorded_fields(config)
    for native_name, name in names.items():
        fields[native_name] = getattr(config, name)
    for name, value in fields.items():
        default = getattr(defaults, name, None)
        if value is None and default is not None:  # it has no None for "as everywhere"
            fields[name] = config.hidden_dropout if "dropout" in name else default
        is_float = "dropout" in name or isinstance(default, float)
        if is_float and fields[name] is not None:
            fields[name] = float(fields[name])  # some take no whole number for a rate
    if "rope_parameters" in names and "layer_types" not in names:
        # one rotation, since all layers attend globally
        fields["rope_parameters"] = config.rope_parameters["full_attention"]
    if head == "ForQuestionAnswering" and config.num_labels != 2:
        # it has a start and an end, whatever the labels say
        del fields["id2label"]
        del fields["label2id"]
    for name in SPECIAL_IDS:
        special_id = getattr(config, name)
        if special_id is not None or hasattr(defaults, name):
            fields[name] = special_id
    first_position = target.first_position(config)
    fields["max_position_embeddings"] = config.max_position_embeddings + first_position
    fields |= target.native_fields(config, head)
    if untied_weights(model):
        fields["tie_word_embeddings"] = False
    return fields


# --- weights ---


def _add_biases(
    weights: dict[str, torch.Tensor], native: PreTrainedModel, model: PreTrainedModel
) -> None:
    """Add the biases that a native model has and a MiniBERT lacks: zeros, or the second name of the
    vocabulary's bias."""
    other_names = {source: name for name, source in (native._tied_weights_keys or {}).items()}
    for name, tensor in native.state_dict(prefix=_prefix(native)).items():
        if name in weights:
            continue
        if other_names.get(name) in weights:
            weights[name] = weights[other_names[name]].clone()
        elif name.endswith(".bias"):
            weights[name] = torch.zeros_like(tensor, dtype=model.dtype, device=model.device)


def _load_weights_and_settings(
    model: PreTrainedModel, weights: dict[str, torch.Tensor], source: PreTrainedModel
) -> None:
    """Put `weights` into `model`, each with its own dtype, and take from `source` what is not a
    field of a MiniBERT: device, mode, settings of `generate` and of sentence-transformers."""
    prefix = _prefix(model)
    state = {name.removeprefix(prefix): tensor for name, tensor in weights.items()}
    model.load_state_dict(state, assign=True)
    model.tie_weights()
    model.to(source.device)
    model.train(source.training)
    copy_generation_config(model, source)
    for name in CROSS_ENCODER_FIELDS:
        if hasattr(source.config, name):
            setattr(model.config, name, getattr(source.config, name))


def copy_generation_config(model: PreTrainedModel, source: PreTrainedModel) -> None:
    """Give a decoder the settings of `generate` of the one that it was made of."""
    if model.can_generate() and source.can_generate():
        model.generation_config = copy.deepcopy(source.generation_config)


def _prefix(model: PreTrainedModel) -> str:
    """The `prefix` by which the weights of a model without a head get the names that they have in
    one with a head, such as "model."; empty for the latter."""
    if hasattr(model, model.base_model_prefix):
        return ""
    return f"{model.base_model_prefix}."
