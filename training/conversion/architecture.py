"""What a family of encoders says about itself so that its models become MiniBERTs, and MiniBERTs models of it."""

import base64
import copy
import re
from typing import Any, ClassVar

import torch
import transformers
from safetensors.torch import load, save
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils import logging

from ...configuration_minibert import SPECIAL_IDS, MiniBertConfig

logger = logging.get_logger(__name__)

# What sentence-transformers writes into the config of a cross-encoder: how scores are made of logits.
CARRIED_IF_THERE = ("sentence_transformers", "sbert_ce_default_activation_function")
# Fields of every config that say nothing of the model, or that `Architecture.fields` has for all.
HOUSEKEEPING = {"architectures", "auto_map", "model_type", "transformers_version", "num_labels", "torch_dtype"}
HOUSEKEEPING |= {"output_attentions"}  # which no implementation but the eager one can be saved with

CLASSIFIERS = ("ForSequenceClassification", "ForMultipleChoice", "ForTokenClassification", "ForQuestionAnswering")

# What the layers of decoders, and of encoders made like them, call their parts.
DECODER_LAYERS = {
    "model.layers.N.attn.Wqkv": tuple(f"model.layers.N.self_attn.{x}_proj" for x in "qkv"),
    "model.layers.N.attn.Wo": ("model.layers.N.self_attn.o_proj",),
    "model.layers.N.mlp.Wi": ("model.layers.N.mlp.gate_proj", "model.layers.N.mlp.up_proj"),
    "model.layers.N.mlp.Wo": ("model.layers.N.mlp.down_proj",),
}


def class_names(prefix: str, *heads: str, **others: str) -> dict[str, str]:
    """MiniBERT's head → the native class, whose name is `prefix` and the head's, or another one."""
    return {head: f"{prefix}{head}" for head in heads} | others


def field_names(same: str, **renamed: str) -> dict[str, str]:
    """Native field → MiniBERT's; the `same` names are joined by those of every config that belong to the model."""
    return {name: name for name in (*same.split(), "id2label", "label2id", "problem_type", "dtype")} | renamed


class Architecture:
    """One architecture. A further one is a subclass with these attributes, a row in `families.ARCHITECTURES`, and what
    it must do otherwise of the methods."""

    config_class: type[PreTrainedConfig]
    classes: dict[str, str]  # MiniBERT's head (its class name without prefix) → the native class
    fields: dict[str, str | None]  # native config field → MiniBERT's of the same meaning; None: there is none
    head_fields: ClassVar[dict[str, dict[str, str | None]]] = {}  # the same of one head; None: it has no effect there
    switches: dict[str, Any]  # the values that make a MiniBERT of this kind
    defaults: dict[str, Any]  # what one is given beside, which the way back does not need
    # MiniBERT's module (behind its head, if it is another one there) → the native one, or those whose rows it stacks, N
    # for the number of a layer, `model` for the encoder; one that is not named here has the same name
    modules: ClassVar[dict[str, tuple[str, ...]]] = {}
    has_pooler = False  # of the encoder itself

    def native_names(self, name: str, head: str) -> list[str]:
        """The native names for the parts of the MiniBERT parameter `name`, in the order of their rows."""
        module, _, kind = name.rpartition(".")
        layer = re.search(r"\.\d+\.", module)
        number = layer[0] if layer else ".N."
        key = module.replace(number, ".N.")
        natives = self.modules.get(f"{head}.{key}") or self.modules.get(key, (key,))
        prefix = getattr(transformers, self.classes["Model"]).base_model_prefix
        return [re.sub("^model[.]", f"{prefix}.", f"{native.replace('.N.', number)}.{kind}") for native in natives]

    def join(self, name: str, parts: list[torch.Tensor], native: PreTrainedConfig) -> torch.Tensor:
        """The MiniBERT parameter `name` from its native parts."""
        return torch.cat(parts)

    def split(self, name: str, tensor: torch.Tensor, parts: int, config: MiniBertConfig) -> list[torch.Tensor]:
        """The native parts of the MiniBERT parameter `name`."""
        return list(tensor.chunk(parts))

    def dropped(self, native: PreTrainedModel) -> dict[str, torch.Tensor]:
        """Rows that MiniBERT has no use for; few, since `converted_rest` of its config keeps them for the way back."""
        return {}

    def fields_of(self, head: str) -> dict[str, str]:
        """`fields` for a model of this head: with its `head_fields`, without those that are None."""
        return {name: ours for name, ours in (self.fields | self.head_fields.get(head, {})).items() if ours}

    def minibert_fields(self, native: PreTrainedModel, head: str) -> dict[str, Any]:
        """What a MiniBERT of this model has otherwise than the tables say; a ValueError for a function that MiniBERT
        lacks."""
        return {}

    def native_fields(self, config: MiniBertConfig, head: str) -> dict[str, Any]:
        """What the native config has otherwise than the tables say."""
        return {}

    def required(self, model: PreTrainedModel, head: str) -> dict[str, Any]:
        """The values without which a MiniBERT of this head is none of this architecture."""
        config, rope = model.config, model.config.rope_parameters
        same = config.embedding_size if config.embedding_size == config.hidden_size else None
        every = ["full_attention"] * config.num_hidden_layers
        required = dict(embedding_size=same, layer_types=every, embedding_norm=True, prediction_transform=True)
        # What the native config has a field for can have any value.
        required = {name: x for name, x in (required | self.switches).items() if name not in self.fields.values()}
        if rope and self.switches["position_embedding_type"] == "rope":  # which turns whole heads
            part = "partial_rotary_factor"
            required |= dict(rope_parameters={kind: x | ({part: 1.0} if part in x else {}) for kind, x in rope.items()})
        if head in CLASSIFIERS:
            required |= dict(add_pooling_layer=True)
        elif head == "Model" and model.pooler is not None and not self.has_pooler:
            required |= dict(add_pooling_layer=False)
        return required

    def positions(self, native: PreTrainedConfig) -> int:
        """Tokens of the longest text."""
        return native.max_position_embeddings

    def rest(self, native: PreTrainedModel, head: str) -> dict[str, Any] | None:
        """What `native` has that MiniBERT does not: fields that do not follow from the others, and `dropped`."""
        known = {*self.fields_of(head), *SPECIAL_IDS}
        usual = self.config_class(**{name: getattr(native.config, name, None) for name in known}).to_dict()
        known |= {*CARRIED_IF_THERE, *HOUSEKEEPING, "max_position_embeddings"}
        fields = {
            name: value
            for name, value in native.config.to_dict().items()
            if name not in known and not name.startswith("_") and value != usual.get(name)
        }
        tensors = {name: rows.contiguous() for name, rows in self.dropped(native).items() if rows.any()}
        rest = dict(fields=fields) if fields else {}
        if tensors:
            rest["tensors"] = base64.b64encode(save(tensors)).decode()
        return rest or None


def kept_fields(config: MiniBertConfig, architecture: Architecture) -> dict[str, Any]:
    """The fields of `Architecture.rest`, if `config` was converted from this architecture."""
    ours = config.converted_from == architecture.config_class.model_type
    return dict((config.converted_rest or {}).get("fields", {})) if ours else {}


def kept_tensors(config: MiniBertConfig) -> dict[str, torch.Tensor]:
    """The tensors of `Architecture.rest`."""
    kept = (config.converted_rest or {}).get("tensors")
    return load(base64.b64decode(kept)) if kept else {}


def keep_generation(model: PreTrainedModel, like: PreTrainedModel) -> None:
    """Give a decoder the settings of `generate` of the one that it was made of."""
    if model.can_generate() and like.can_generate():
        model.generation_config = copy.deepcopy(like.generation_config)
