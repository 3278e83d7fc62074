"""What a family of encoders says about itself so that its models become MiniBERTs, and MiniBERTs
models of it."""

import base64
import re
from typing import Any, ClassVar

import torch
import transformers
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from transformers import PreTrainedConfig, PreTrainedModel

from ...configuration_minibert import SPECIAL_IDS, MiniBertConfig

# What sentence-transformers writes into the config of a cross-encoder: how scores are made of
# logits.
CROSS_ENCODER_FIELDS = ("sentence_transformers", "sbert_ce_default_activation_function")
# Fields of every config that say nothing about the model, or that are converted apart.
SKIPPED_FIELDS = {
    "architectures", "auto_map", "model_type", "transformers_version", "num_labels", "torch_dtype",
    "output_attentions", "max_position_embeddings",
}  # fmt: skip
# Fields that have the same name in every family.
COMMON_FIELDS = ("id2label", "label2id", "problem_type", "dtype")
POSITION_TABLE = "model.embeddings.position_embeddings.weight"

CLASSIFIER_HEADS = (
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
    return {name: name for name in (*same.split(), *COMMON_FIELDS)} | renamed


class Architecture:
    """One family. A further one is a subclass in `families.py` with these attributes, and a row of
    `ARCHITECTURES`."""

    config_class: type[PreTrainedConfig]
    # MiniBERT's head (its class name without prefix) → the native class
    classes: dict[str, str]
    # native field → MiniBERT's of the same meaning; None: there is none
    fields: dict[str, str | None]
    # the same for one head
    head_fields: ClassVar[dict[str, dict[str, str | None]]] = {}
    # the values that make a MiniBERT of this kind
    switches: dict[str, Any]
    # further values, which the way back does not need
    defaults: dict[str, Any]
    # MiniBERT's module → the native one, or those whose rows it stacks. N is the number of a layer,
    # `model` the encoder. A key with a head before it holds for that head. A module that is not
    # named here has the same name.
    modules: ClassVar[dict[str, tuple[str, ...]]] = {}
    # the encoder without a head can have a pooler
    has_pooler = False
    # classifiers are built as `add_pooling_layer` says
    has_bert_heads = True
    # positions begin behind the row `pad_token_id` of their table
    starts_behind_padding = False

    # --- weights ---

    def native_names(self, name: str, head: str) -> list[str]:
        """The native names for the parts of the MiniBERT parameter `name`, in the order of their
        rows."""
        module, _, parameter = name.rpartition(".")
        layer_match = re.search(r"\.\d+\.", module)
        layer_number = layer_match[0] if layer_match else ".N."
        key = module.replace(layer_number, ".N.")
        native_modules = self.modules.get(f"{head}.{key}") or self.modules.get(key, (key,))
        encoder = getattr(transformers, self.classes["Model"]).base_model_prefix
        names = []
        for native_module in native_modules:
            native_module = native_module.replace(".N.", layer_number)
            names.append(re.sub("^model[.]", f"{encoder}.", f"{native_module}.{parameter}"))
        return names

    def join(self, name: str, parts: list[torch.Tensor], native: PreTrainedConfig) -> torch.Tensor:
        """The MiniBERT parameter `name` from its native parts."""
        rows = torch.cat(parts)
        if name == POSITION_TABLE:
            return rows[self.first_position(native) :].clone()
        return rows

    def split(
        self, name: str, tensor: torch.Tensor, parts: int, config: MiniBertConfig
    ) -> list[torch.Tensor]:
        """The native parts of the MiniBERT parameter `name`."""
        first_position = self.first_position(config)
        if name != POSITION_TABLE or first_position == 0:
            return list(tensor.chunk(parts))
        unused_rows = tensor.new_zeros(first_position, tensor.shape[1])
        saved_tensors = (config.converted_rest or {}).get("tensors")
        if saved_tensors:
            saved_rows = load_tensors(base64.b64decode(saved_tensors))[POSITION_TABLE]
            if saved_rows.shape == unused_rows.shape:
                unused_rows = saved_rows.to(unused_rows)
        return [torch.cat([unused_rows, tensor])]

    def further_weights(self, native: PreTrainedConfig) -> dict[str, torch.Tensor]:
        """Weights that every native model has and a MiniBERT lacks, with values that change
        nothing."""
        return {}

    # --- fields of the config ---

    def fields_of(self, head: str) -> dict[str, str]:
        """`fields` and `head_fields` for a model with this head."""
        fields = self.fields | self.head_fields.get(head, {})
        return {native_name: name for native_name, name in fields.items() if name}

    def minibert_fields(
        self, native: PreTrainedModel, head: str, fields: dict[str, Any]
    ) -> dict[str, Any]:
        """What the config of a MiniBERT of this model has besides `fields`, which the tables give.
        A ValueError for a function that MiniBERT lacks."""
        return {}

    def native_fields(self, config: MiniBertConfig, head: str) -> dict[str, Any]:
        """What the native config has besides what the tables give."""
        return {}

    def required(self, model: PreTrainedModel, head: str) -> dict[str, Any]:
        """The values that a MiniBERT with this head must have to become a model of this
        architecture."""
        config = model.config
        has_projection = config.embedding_size != config.hidden_size
        required = {
            "embedding_size": None if has_projection else config.embedding_size,
            "layer_types": ["full_attention"] * config.num_hidden_layers,
            "embedding_norm": True,
            "share_layers": False,
            "prediction_transform": True,
        }
        required |= self.switches
        for name in self.fields.values():  # what the native config has a field for
            required.pop(name, None)
        if "type_vocab_size" in self.fields:
            required["type_vocab_size"] = config.type_vocab_size or 2
        if self.starts_behind_padding and config.pad_token_id is None:
            required["pad_token_id"] = 1
        if config.rope_parameters and self.switches["position_embedding_type"] == "rope":
            required["rope_parameters"] = _rotate_whole_heads(config.rope_parameters)
        if head in CLASSIFIER_HEADS:
            required["add_pooling_layer"] = self.has_bert_heads
        elif head == "Model" and model.pooler is not None and not self.has_pooler:
            required["add_pooling_layer"] = False
        return required

    # --- positions ---

    def first_position(self, config: PreTrainedConfig) -> int:
        """The rows before the first position in the native table, for a config of either side."""
        return config.pad_token_id + 1 if self.starts_behind_padding else 0

    def positions(self, native: PreTrainedConfig) -> int:
        """Tokens of the longest text."""
        return native.max_position_embeddings - self.first_position(native)

    # --- what MiniBERT has no place for ---

    def converted_rest(self, native: PreTrainedModel, head: str) -> dict[str, Any] | None:
        """What `native` has that MiniBERT has no place for: fields that do not follow from the
        others, and the rows before the first position."""
        rest = {}
        fields = self._further_fields(native.config, head)
        if fields:
            rest["fields"] = fields
        first_position = self.first_position(native.config)
        if first_position > 0:
            table = native.base_model.embeddings.position_embeddings.weight.detach()
            rows = table[:first_position]
            if rows.any():
                tensors = save_tensors({POSITION_TABLE: rows.contiguous()})
                rest["tensors"] = base64.b64encode(tensors).decode()
        return rest or None

    def _further_fields(self, native: PreTrainedConfig, head: str) -> dict[str, Any]:
        """The fields of a native config that one with the converted fields would not have too."""
        converted = {*self.fields_of(head), *SPECIAL_IDS}
        converted_fields = {name: getattr(native, name, None) for name in converted}
        defaults = self.config_class(**converted_fields).to_dict()
        ignored = {*converted, *CROSS_ENCODER_FIELDS, *SKIPPED_FIELDS}
        fields = {}
        for name, value in native.to_dict().items():
            if name in ignored or name.startswith("_"):
                continue
            if value != defaults.get(name):
                fields[name] = value
        return fields

    def recorded_fields(self, config: MiniBertConfig) -> dict[str, Any]:
        """The fields of `converted_rest`, if `config` was converted from this architecture."""
        if config.converted_from != self.config_class.model_type:
            return {}
        return dict((config.converted_rest or {}).get("fields", {}))


def _rotate_whole_heads(rope_parameters: dict[str, dict]) -> dict[str, dict]:
    """`rope_parameters` where no head is rotated in part."""
    rotated = {}
    for layer_type, rope in rope_parameters.items():
        rotated[layer_type] = dict(rope)
        if "partial_rotary_factor" in rope:
            rotated[layer_type]["partial_rotary_factor"] = 1.0
    return rotated
