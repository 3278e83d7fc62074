"""What a family of encoders says about itself so that its models become MiniBERTs, and MiniBERTs models of it."""

import base64
import re
from typing import Any, ClassVar

import torch
import transformers
from safetensors.torch import load, save
from transformers import PreTrainedConfig, PreTrainedModel

from ...configuration_minibert import SPECIAL_IDS, MiniBertConfig

# What sentence-transformers writes into the config of a cross-encoder: how scores are made of logits.
CARRIED_IF_THERE = ("sentence_transformers", "sbert_ce_default_activation_function")
# Fields of every config that say nothing about the model, or that are converted apart.
HOUSEKEEPING = {
    "architectures",
    "auto_map",
    "model_type",
    "transformers_version",
    "num_labels",
    "torch_dtype",
}
HOUSEKEEPING |= {"output_attentions", "max_position_embeddings"}
POSITIONS = "model.embeddings.position_embeddings.weight"

CLASSIFIERS = (
    "ForSequenceClassification",
    "ForMultipleChoice",
    "ForTokenClassification",
    "ForQuestionAnswering",
)


def class_names(prefix: str, *heads: str, **others: str) -> dict[str, str]:
    """MiniBERT's head → the native class: `prefix` and the head's name, or another one."""
    return {head: f"{prefix}{head}" for head in heads} | others


def field_names(same: str, **renamed: str) -> dict[str, str]:
    """Native field → MiniBERT's. The `same` names are joined by those of every config."""
    return {
        name: name for name in (*same.split(), "id2label", "label2id", "problem_type", "dtype")
    } | renamed


class Architecture:
    """One family. A further one is a subclass in `families.py` with these attributes, and a row of `ARCHITECTURES`."""

    config_class: type[PreTrainedConfig]
    classes: dict[str, str]  # MiniBERT's head (its class name without prefix) → the native class
    fields: dict[
        str, str | None
    ]  # native field → MiniBERT's of the same meaning; None: there is none
    head_fields: ClassVar[dict[str, dict[str, str | None]]] = {}  # the same for one head
    switches: dict[str, Any]  # the values that make a MiniBERT of this kind
    defaults: dict[str, Any]  # further values, which the way back does not need
    # MiniBERT's module → the native one, or those whose rows it stacks. N is the number of a layer, `model` the
    # encoder. A key with a head before it holds for that head. A module that is not named here has the same name.
    modules: ClassVar[dict[str, tuple[str, ...]]] = {}
    has_pooler = False  # the encoder without a head can have a pooler
    has_bert_heads = True  # classifiers are built as `add_pooling_layer` says
    starts_behind_padding = False  # positions begin behind the row `pad_token_id` of their table

    def native_names(self, name: str, head: str) -> list[str]:
        """The native names for the parts of the MiniBERT parameter `name`, in the order of their rows."""
        module, _, kind = name.rpartition(".")
        layer = re.search(r"\.\d+\.", module)
        number = layer[0] if layer else ".N."
        key = module.replace(number, ".N.")
        natives = self.modules.get(f"{head}.{key}") or self.modules.get(key, (key,))
        prefix = getattr(transformers, self.classes["Model"]).base_model_prefix
        return [
            re.sub("^model[.]", f"{prefix}.", f"{native.replace('.N.', number)}.{kind}")
            for native in natives
        ]

    def join(self, name: str, parts: list[torch.Tensor], native: PreTrainedConfig) -> torch.Tensor:
        """The MiniBERT parameter `name` from its native parts."""
        rows = torch.cat(parts)
        return rows[self.first_position(native) :].clone() if name == POSITIONS else rows

    def split(
        self, name: str, tensor: torch.Tensor, parts: int, config: MiniBertConfig
    ) -> list[torch.Tensor]:
        """The native parts of the MiniBERT parameter `name`."""
        if name == POSITIONS and (count := self.first_position(config)):
            unused = tensor.new_zeros(count, tensor.shape[1])
            kept = (config.converted_rest or {}).get("tensors")
            kept = load(base64.b64decode(kept))[POSITIONS].to(unused) if kept else unused
            return [torch.cat([kept if kept.shape == unused.shape else unused, tensor])]
        return list(tensor.chunk(parts))

    def fields_of(self, head: str) -> dict[str, str]:
        """`fields` and `head_fields` for a model with this head."""
        return {
            name: ours
            for name, ours in (self.fields | self.head_fields.get(head, {})).items()
            if ours
        }

    def minibert_fields(
        self, native: PreTrainedModel, head: str, fields: dict[str, Any]
    ) -> dict[str, Any]:
        """What the config of a MiniBERT of this model has besides `fields`, which the tables give. A ValueError for a
        function that MiniBERT lacks."""
        return {}

    def native_fields(self, config: MiniBertConfig, head: str) -> dict[str, Any]:
        """What the native config has besides what the tables give."""
        return {}

    def required(self, model: PreTrainedModel, head: str) -> dict[str, Any]:
        """The values that a MiniBERT with this head must have to become a model of this architecture."""
        config, rope = model.config, model.config.rope_parameters
        same = config.embedding_size if config.embedding_size == config.hidden_size else None
        every = ["full_attention"] * config.num_hidden_layers
        required = dict(
            embedding_size=same, layer_types=every, embedding_norm=True, prediction_transform=True
        )
        # What the native config has a field for can have any value.
        required = {
            name: x
            for name, x in (required | self.switches).items()
            if name not in self.fields.values()
        }
        if "type_vocab_size" in self.fields:
            required |= dict(type_vocab_size=config.type_vocab_size or 2)
        if self.starts_behind_padding and config.pad_token_id is None:
            required |= dict(pad_token_id=1)
        if rope and self.switches["position_embedding_type"] == "rope":  # whole heads are rotated
            part = "partial_rotary_factor"
            required |= dict(
                rope_parameters={
                    kind: x | ({part: 1.0} if part in x else {}) for kind, x in rope.items()
                }
            )
        if head in CLASSIFIERS:
            required |= dict(add_pooling_layer=self.has_bert_heads)
        elif head == "Model" and model.pooler is not None and not self.has_pooler:
            required |= dict(add_pooling_layer=False)
        return required

    def first_position(self, config: PreTrainedConfig) -> int:
        """The rows before the first position in the native table, for a config of either side."""
        return config.pad_token_id + 1 if self.starts_behind_padding else 0

    def positions(self, native: PreTrainedConfig) -> int:
        """Tokens of the longest text."""
        return native.max_position_embeddings - self.first_position(native)

    def rest(self, native: PreTrainedModel, head: str) -> dict[str, Any] | None:
        """What `native` has that MiniBERT has no place for: fields that do not follow from the others, and the rows
        before the first position."""
        known = {*self.fields_of(head), *SPECIAL_IDS}
        usual = self.config_class(
            **{name: getattr(native.config, name, None) for name in known}
        ).to_dict()
        known |= {*CARRIED_IF_THERE, *HOUSEKEEPING}
        fields = {
            name: value
            for name, value in native.config.to_dict().items()
            if name not in known and not name.startswith("_") and value != usual.get(name)
        }
        rest = dict(fields=fields) if fields else {}
        if count := self.first_position(native.config):
            rows = native.base_model.embeddings.position_embeddings.weight.detach()[:count]
            if rows.any():
                rest["tensors"] = base64.b64encode(save({POSITIONS: rows.contiguous()})).decode()
        return rest or None

    def kept_fields(self, config: MiniBertConfig) -> dict[str, Any]:
        """The fields of `rest`, if `config` was converted from this architecture."""
        ours = config.converted_from == self.config_class.model_type
        return dict((config.converted_rest or {}).get("fields", {})) if ours else {}
