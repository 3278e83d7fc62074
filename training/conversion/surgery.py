"""`minibert convert … --set field=value`: a trained model with another switch, where its weights keep a meaning.

The weights were not trained for the new function. They are a good start: what was learned stays where it can, and what
is new or gone is said.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from ...configuration_minibert import MiniBertConfig
from .native import keep_generation

# The last seven have no weights: they change which tokens a layer sees, how far angles turn, what training drops.
CHANGEABLE = (
    "position_embedding_type", "max_position_embeddings", "num_hidden_layers", "global_attn_every_n_layers",
    "layer_types", "local_attention", "rope_parameters", "hidden_dropout", "embedding_dropout", "attention_dropout",
    "classifier_dropout",
)  # fmt: skip
LAYER = re.compile(r"\blayers\.(\d+)\.")


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
    """A MiniBERT of the same class with other fields in its config, and what became of its weights, in words.

    - `position_embedding_type="rope"` from learned positions: the table goes. Its mean, which every token had, is
      added to the segments' rows (of a model without segments, to the words').
    - `max_position_embeddings`: a longer table repeats its rows (Beltagy et al. 2020, arXiv 2004.05150, section 5); a
      shorter one loses its last ones.
    - `num_hidden_layers`: layer i is a copy of layer i modulo the old depth (Gong et al. 2019, "stacking"), with the
      same attention pattern. Where the first layer has no norm, as the embeddings end in one, its copies get that one.
    - which layers are local, windows, RoPE's parameters, dropout rates: no weight changes.
    """
    config = _changed_config(model.config, changes)
    old, depth = model.state_dict(), model.config.num_hidden_layers
    with torch.device("meta"):
        changed = type(model)(config)
    if getattr(model, "pooler", changed) is None:  # as it was loaded
        changed.pooler = None
    said = [
        f"{name}: {getattr(model.config, name)!r} → {getattr(config, name)!r}" for name in changes
    ]
    weights = {}
    for name in changed.state_dict():
        source = LAYER.sub(lambda match: f"layers.{int(match[1]) % depth}.", name)
        if source not in old and ".attn_norm." in source:  # of a copy of the first layer
            source = f"{source.partition('layers.')[0]}embeddings.norm.{name.rpartition('.')[2]}"
        weights[name] = old[source].clone()
    if config.num_hidden_layers > depth:
        said.append(
            f"new: layers {depth} to {config.num_hidden_layers - 1}, copies of layers 0 to {depth - 1} in turn"
        )

    table = next(
        (name for name in old if name.endswith("embeddings.position_embeddings.weight")), None
    )
    rows, length = model.config.max_position_embeddings, config.max_position_embeddings
    if table is not None and table not in weights:
        mean, prefix = old[table].double().mean(0), table.removesuffix("position_embeddings.weight")
        kind = "token_type_embeddings" if config.type_vocab_size else "tok_embeddings"
        tied = (
            config.tie_word_embeddings and kind == "tok_embeddings" and "decoder.weight" in weights
        )
        for name in (f"{prefix}{kind}.weight", *["decoder.weight"] * tied):
            weights[name] = (weights[name] + mean).to(weights[name])
        said.append(
            f"gone: the table of {rows} learned positions, but for its mean, which was added to the {kind}"
        )
    elif table is not None and length != rows:
        weights[table] = weights[table][torch.arange(length) % rows]
        if length > rows:
            said.append(f"new: positions {rows} to {length - 1}, which repeat the others")
    changed.load_state_dict(weights, assign=True)
    changed.tie_weights()
    keep_generation(changed, model)
    kept = sum(
        name in weights and torch.equal(weights[name], tensor) for name, tensor in old.items()
    )
    said.append(f"kept bit for bit: {kept} of {len(old)} tensors")
    return changed.train(model.training), said


def _changed_config(config: MiniBertConfig, changes: Mapping[str, Any]) -> MiniBertConfig:
    """The config with `changes`; a ValueError where one of them has no meaning for trained weights."""
    for name, value in changes.items():
        if name not in CHANGEABLE:
            raise ValueError(
                f"set: {name}={value!r} has no meaning for trained weights. What can be set: {', '.join(CHANGEABLE)}"
            )
    kind = config.position_embedding_type
    wanted = changes.get("position_embedding_type", kind)
    if wanted != kind and (kind, wanted) != ("absolute", "rope"):
        raise ValueError(
            f"set: position_embedding_type={wanted!r} for {kind!r}: only 'absolute' can become 'rope'"
        )
    types, depth = config.layer_types, changes.get("num_hidden_layers", config.num_hidden_layers)
    if "global_attn_every_n_layers" in changes:
        types = None  # they follow from it
    elif depth != config.num_hidden_layers and isinstance(depth, int):
        types = [types[i % len(types)] for i in range(depth)]
    # It is no longer what it was converted from.
    rest = dict(layer_types=types, converted_from=None, converted_rest=None)
    # A new length comes last: until then the rotation takes the old one for that of the training.
    length = {name: value for name, value in changes.items() if name == "max_position_embeddings"}
    changed = MiniBertConfig.from_dict(
        config.to_dict(), **rest | {k: v for k, v in changes.items() if k not in length}
    )
    longer = MiniBertConfig.from_dict(changed.to_dict(), **length)
    for rope in (longer.rope_parameters or {}).values():
        scaled_by_it = rope["rope_type"] == "dynamic" or (
            rope["rope_type"] == "longrope" and "factor" not in rope
        )
        if scaled_by_it and longer.max_position_embeddings != config.max_position_embeddings:
            raise ValueError(
                f"set: max_position_embeddings scales rope_type={rope['rope_type']!r}; use linear or yarn"
            )
    return longer
