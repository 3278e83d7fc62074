"""`minibert convert … --set field=value`: a trained model with another switch, where its weights keep a meaning.

What is changed is a function that the weights were not trained for. Here they only get a good start: what was learned
stays wherever it can, what is new or gone is said, and a field that would make numbers of them that mean nothing is
refused.
"""

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import torch
from transformers import PreTrainedModel

from ...configuration_minibert import MiniBertConfig
from .architecture import keep_generation

# No weight belongs to these: what they change is which tokens a layer sees, how far angles turn, what training drops.
WITHOUT_WEIGHTS = (
    "global_attn_every_n_layers", "layer_types", "local_attention", "rope_parameters",
    "hidden_dropout", "embedding_dropout", "attention_dropout", "classifier_dropout",
)  # fmt: skip
CHANGEABLE = ("position_embedding_type", "max_position_embeddings", "num_hidden_layers", *WITHOUT_WEIGHTS)
REASONS = {
    "vocab_size": "`minibert pretrain --extend_vocabulary` adds words to a trained model",
    "is_causal": "`minibert pretrain --objective clm --model_name_or_path` trains a decoder from it",
}
OTHERWISE = "the weights have another shape or another meaning with it; train a model with it instead"
LAYER = re.compile(r"\blayers\.(\d+)\.")


def parse_changes(words: Sequence[str] | Mapping[str, Any]) -> dict[str, Any]:
    """The fields in words of the form field=value (JSON, or a plain word), each given once."""
    if isinstance(words, Mapping):
        return dict(words)
    changes: dict[str, Any] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or name in changes:
            raise ValueError(f"set: {word!r} is {'given twice' if sign else 'no field=value'}; give each field once")
        try:
            changes[name] = json.loads(value)
        except json.JSONDecodeError:
            changes[name] = value
    return changes


def modify(model: PreTrainedModel, changes: Mapping[str, Any]) -> tuple[PreTrainedModel, list[str]]:
    """A MiniBERT of the same class with other fields in its config, and what became of its weights, in words.

    - `position_embedding_type="rope"` from learned positions: the table goes. Its mean, which every token had, is
      added to the segments' rows (of a model without segments, to the words': to the logits of a tied decoder that
      adds the same everywhere).
    - `max_position_embeddings`: a longer table repeats its rows (Beltagy et al. 2020, arXiv 2004.05150, section 5); a
      shorter one loses its last ones; without a table nothing but the promise changes (refused where RoPE is scaled
      by it).
    - `num_hidden_layers`: layer i is a copy of layer i modulo the old depth (Gong et al. 2019, "stacking"), of the same
      attention pattern. Where the first layer has no norm, as the embeddings end in one, its copies get that one.
    - which layers are local, windows, RoPE's parameters, dropout rates: no weight changes.

    Raises:
        ValueError: a field that cannot be changed in a trained model, or (a `StrictDataclassError`) a value that no
            config takes.
    """
    config = _changed_config(model.config, changes)
    old, depth = model.state_dict(), model.config.num_hidden_layers
    with torch.device("meta"):
        changed = type(model)(config)
    if getattr(model, "pooler", changed) is None:  # as it was loaded
        changed.pooler = None
    weights, said = {}, []
    for name in changes:
        before, now = getattr(model.config, name), getattr(config, name)
        said.append(f"{name}: {before!r}, as it was" if before == now else f"{name}: {before!r} → {now!r}")
    for name in changed.state_dict():
        source = LAYER.sub(lambda match: f"layers.{int(match[1]) % depth}.", name)
        if source not in old and ".attn_norm." in source:  # of a copy of the first layer
            source = f"{source.partition('layers.')[0]}embeddings.norm.{name.rpartition('.')[2]}"
        weights[name] = old[source].clone()

    table = next((name for name in old if name.endswith("embeddings.position_embeddings.weight")), None)
    rows, length = model.config.max_position_embeddings, config.max_position_embeddings
    if table is not None and table not in weights:
        mean, prefix = old[table].double().mean(0), table.removesuffix("position_embeddings.weight")
        kind = "token_type_embeddings" if config.type_vocab_size else "tok_embeddings"
        tied = config.tie_word_embeddings and kind == "tok_embeddings"
        for name in (f"{prefix}{kind}.weight", *["decoder.weight"] * (tied and "decoder.weight" in weights)):
            weights[name] = (weights[name] + mean).to(weights[name])
        said.append(
            f"new: rotary positions, which have no weights. Gone: the table of {rows} learned positions, but for its"
            f" mean, which was added to the {kind}"
        )
    elif table is not None and length != rows:
        weights[table] = weights[table][torch.arange(length) % rows]
        grown = f"new: positions {rows} to {length - 1}, which repeat the others"
        said.append(grown if length > rows else f"gone: positions {length} to {rows - 1}")
    if config.num_hidden_layers > depth:
        said.append(f"new: layers {depth} to {config.num_hidden_layers - 1}, copies of layers 0 to {depth - 1} in turn")
    elif config.num_hidden_layers < depth:
        said.append(f"gone: layers {config.num_hidden_layers} to {depth - 1}")
    if config.layer_types != model.config.layer_types:
        local = [str(i) for i, kind in enumerate(config.layer_types) if kind == "sliding_attention"]
        reach = f"local layers: {', '.join(local) or 'none'}"
        said.append(f"{reach} ({config.sliding_window} tokens on either side)" if local else reach)
    changed.load_state_dict(weights, assign=True)
    changed.tie_weights()
    keep_generation(changed, model)
    kept = sum(name in weights and torch.equal(weights[name], tensor) for name, tensor in old.items())
    said.append(f"kept bit for bit: {kept} of {len(old)} tensors")
    return changed.train(model.training), said


def _changed_config(config: MiniBertConfig, changes: Mapping[str, Any]) -> MiniBertConfig:
    """The config with `changes`; a ValueError where one of them is none for trained weights."""
    for name, value in changes.items():
        if name not in {field.name for field in fields(MiniBertConfig)}:
            near = difflib.get_close_matches(name, CHANGEABLE) or CHANGEABLE
            raise ValueError(f"set: MiniBertConfig has no field {name!r}; use {', '.join(near)}")
        if name not in CHANGEABLE:
            raise ValueError(
                f"set: {name}={value!r} has no meaning for trained weights: {REASONS.get(name, OTHERWISE)}. What can be"
                f" set: {', '.join(CHANGEABLE)}"
            )
    kind = config.position_embedding_type
    wanted = changes.get("position_embedding_type", kind)
    if wanted != kind and (kind, wanted) != ("absolute", "rope"):
        raise ValueError(
            f"set: position_embedding_type={wanted!r} has no meaning for weights trained with {kind!r}; only 'absolute'"
            " can become 'rope'"
        )
    types, depth = config.layer_types, changes.get("num_hidden_layers", config.num_hidden_layers)
    if "global_attn_every_n_layers" in changes:
        types = None  # they follow from it
    elif depth != config.num_hidden_layers and isinstance(depth, int):
        types = [types[i % len(types)] for i in range(depth)]
    # What it was converted from it no longer is.
    rest = dict(layer_types=types, converted_from=None, converted_rest=None)
    # A new length comes last: until then the rotation takes the old one for that of the training.
    length = {name: value for name, value in changes.items() if name == "max_position_embeddings"}
    changed = MiniBertConfig.from_dict(config.to_dict(), **rest | {k: v for k, v in changes.items() if k not in length})
    longer = MiniBertConfig.from_dict(changed.to_dict(), **length)
    for rope in (longer.rope_parameters or {}).values():
        scaled_by_it = rope["rope_type"] == "dynamic" or (rope["rope_type"] == "longrope" and "factor" not in rope)
        if scaled_by_it and longer.max_position_embeddings != config.max_position_embeddings:
            raise ValueError(
                f"set: max_position_embeddings={longer.max_position_embeddings}: rope_type={rope['rope_type']!r} is"
                f" scaled by it; leave it at {config.max_position_embeddings}, or use linear or yarn"
            )
    return longer
