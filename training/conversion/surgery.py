"""`minibert convert … --set field=value`: a trained model with another switch, where its weights
keep a meaning.

The weights were not trained for the new function. They are a good start: what was learned stays
where it can, and what is new or gone is said.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from ...configuration_minibert import MiniBertConfig
from .native import copy_generation_config

# The last seven have no weights: they change which tokens a layer sees, how far angles turn, what
# training drops.
CHANGEABLE_FIELDS = (
    "position_embedding_type", "max_position_embeddings", "num_hidden_layers",
    "global_attn_every_n_layers", "layer_types", "local_attention", "rope_parameters",
    "hidden_dropout", "embedding_dropout", "attention_dropout", "classifier_dropout",
)  # fmt: skip
LAYER_NUMBER = re.compile(r"\blayers\.(\d+)\.")
POSITION_TABLE_SUFFIX = "embeddings.position_embeddings.weight"


def parse_changes(words: Sequence[str] | Mapping[str, Any]) -> dict[str, Any]:
    """The fields in words of the form field=value (JSON, or a plain word)."""
    if isinstance(words, Mapping):
        return dict(words)
    changes: dict[str, Any] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign:
            raise ValueError(f"set: expected field=value, got {word!r}")
        try:
            changes[name] = json.loads(value)
        except json.JSONDecodeError:
            changes[name] = value
    return changes


def modify(model: PreTrainedModel, changes: Mapping[str, Any]) -> tuple[PreTrainedModel, list[str]]:
    """A MiniBERT of the same class with other fields in its config, and what became of its weights,
    in words.

    - `position_embedding_type="rope"` from learned positions: the table goes. Its mean, which every
      token had, is added to the segments' rows (of a model without segments, to the words').
    - `max_position_embeddings`: a longer table repeats its rows (Beltagy et al. 2020, arXiv
      2004.05150, section 5); a shorter one loses its last ones.
    - `num_hidden_layers`: layer i is a copy of layer i modulo the old depth (Gong et al. 2019,
      "stacking"), with the same attention pattern. Where the first layer has no norm, as the
      embeddings end in one, its copies get that one. Shared layers have no weights to copy: the
      one layer is used more or fewer times.
    - which layers are local, windows, RoPE's parameters, dropout rates: no weight changes.
    """
    config = _changed_config(model.config, changes)
    with torch.device("meta"):
        changed = type(model)(config)
    if getattr(model, "pooler", changed) is None:  # as it was loaded
        changed.pooler = None
    messages = []
    for name in changes:
        messages.append(f"{name}: {getattr(model.config, name)!r} → {getattr(config, name)!r}")

    old_weights = model.state_dict()
    weights = _stack_layers(old_weights, changed, model.config.num_hidden_layers)
    messages += _describe_layers(model.config, config)
    messages += _change_positions(old_weights, weights, model.config, config)
    changed.load_state_dict(weights, assign=True)
    changed.tie_weights()
    changed.train(model.training)
    copy_generation_config(changed, model)

    num_kept = 0
    for name, tensor in old_weights.items():
        num_kept += name in weights and torch.equal(weights[name], tensor)
    messages.append(f"kept bit for bit: {num_kept} of {len(old_weights)} tensors")
    return changed, messages


# --- weights ---


def _stack_layers(
    old_weights: dict[str, torch.Tensor], changed: PreTrainedModel, old_depth: int
) -> dict[str, torch.Tensor]:
    """Copies of the weights under the names that the changed model has: those of layer i are those
    of layer i modulo the old depth."""
    weights = {}
    for name in changed.state_dict():
        source = LAYER_NUMBER.sub(lambda match: f"layers.{int(match[1]) % old_depth}.", name)
        if source not in old_weights and ".attn_norm." in source:  # of a copy of the first layer
            prefix = source.partition("layers.")[0]
            parameter = name.rpartition(".")[2]
            source = f"{prefix}embeddings.norm.{parameter}"
        weights[name] = old_weights[source].clone()
    return weights


def _describe_layers(old_config: MiniBertConfig, config: MiniBertConfig) -> list[str]:
    old_depth = old_config.num_hidden_layers
    if config.share_layers and config.num_hidden_layers != old_depth:
        return [f"the one layer is used {config.num_hidden_layers} times, not {old_depth}"]
    if config.num_hidden_layers <= old_depth:
        return []
    return [
        f"new: layers {old_depth} to {config.num_hidden_layers - 1}, copies of layers 0 to"
        f" {old_depth - 1} in turn"
    ]


def _change_positions(
    old_weights: dict[str, torch.Tensor],
    weights: dict[str, torch.Tensor],
    old_config: MiniBertConfig,
    config: MiniBertConfig,
) -> list[str]:
    """Make `weights` those of other positions; returns what became of the table, in words."""
    tables = [name for name in old_weights if name.endswith(POSITION_TABLE_SUFFIX)]
    if not tables:
        return []
    table_name = tables[0]
    old_length = old_config.max_position_embeddings
    length = config.max_position_embeddings
    if table_name not in weights:
        prefix = table_name.removesuffix("position_embeddings.weight")
        embeddings = "token_type_embeddings" if config.type_vocab_size else "tok_embeddings"
        names = [f"{prefix}{embeddings}.weight"]
        is_tied = config.tie_word_embeddings and "decoder.weight" in weights
        if embeddings == "tok_embeddings" and is_tied:
            names.append("decoder.weight")
        mean = old_weights[table_name].double().mean(0)
        for name in names:
            weights[name] = (weights[name] + mean).to(weights[name])
        return [
            f"gone: the table of {old_length} learned positions, but for its mean, which was added"
            f" to the {embeddings}"
        ]
    if length != old_length:
        weights[table_name] = weights[table_name][torch.arange(length) % old_length]
    if length > old_length:
        return [f"new: positions {old_length} to {length - 1}, which repeat the others"]
    return []


# --- the config ---


def _changed_config(config: MiniBertConfig, changes: Mapping[str, Any]) -> MiniBertConfig:
    """The config with `changes`; a ValueError where one of them has no meaning for trained
    weights."""
    for name, value in changes.items():
        if name not in CHANGEABLE_FIELDS:
            raise ValueError(
                f"set: {name}={value!r} has no meaning for trained weights. What can be set:"
                f" {', '.join(CHANGEABLE_FIELDS)}"
            )
    old_type = config.position_embedding_type
    new_type = changes.get("position_embedding_type", old_type)
    if new_type != old_type and (old_type, new_type) != ("absolute", "rope"):
        raise ValueError(
            f"set: position_embedding_type={new_type!r} for {old_type!r}: only 'absolute' can"
            " become 'rope'"
        )
    fields = {
        "layer_types": _layer_types(config, changes),
        # It is no longer what it was converted from.
        "converted_from": None,
        "converted_rest": None,
    }
    fields |= changes
    # A new length comes last: until then the rotation takes the old one for that of the training.
    length_field = {}
    if "max_position_embeddings" in fields:
        length_field["max_position_embeddings"] = fields.pop("max_position_embeddings")
    changed = MiniBertConfig.from_dict(config.to_dict(), **fields)
    changed = MiniBertConfig.from_dict(changed.to_dict(), **length_field)
    if changed.max_position_embeddings != config.max_position_embeddings:
        _check_rotation(changed)
    return changed


def _layer_types(config: MiniBertConfig, changes: Mapping[str, Any]) -> list[str] | None:
    """Those of the old layers, repeated for a deeper model; None if they follow from a change."""
    if "global_attn_every_n_layers" in changes:
        return None
    layer_types = config.layer_types
    depth = changes.get("num_hidden_layers", config.num_hidden_layers)
    if depth == config.num_hidden_layers or not isinstance(depth, int):
        return layer_types
    return [layer_types[layer % len(layer_types)] for layer in range(depth)]


def _check_rotation(config: MiniBertConfig) -> None:
    """Refuse (a ValueError) a new length where it would turn the angles of trained positions."""
    for rope in (config.rope_parameters or {}).values():
        rope_type = rope["rope_type"]
        is_scaled_by_length = rope_type == "dynamic"
        if rope_type == "longrope" and "factor" not in rope:
            is_scaled_by_length = True
        if is_scaled_by_length:
            raise ValueError(
                f"set: max_position_embeddings scales rope_type={rope_type!r}; use linear or yarn"
            )
