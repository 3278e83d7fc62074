"""What a family of encoders says about itself so that its models become MiniBERTs, and MiniBERTs models of it."""

import base64
import re
from types import ModuleType
from typing import Any, ClassVar

import torch
import transformers
from safetensors.torch import load, save
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils import logging

from ...configuration_minibert import MiniBertConfig

logger = logging.get_logger(__name__)

SPECIAL_IDS = tuple(f"{name}_token_id" for name in ("pad", "unk", "cls", "sep", "mask", "bos", "eos"))
# What sentence-transformers writes into the config of a cross-encoder: how scores are made of logits.
CARRIED_IF_THERE = ("sentence_transformers", "sbert_ce_default_activation_function")
# Fields of every config that say nothing of the model, or that `Architecture.fields` has for all.
HOUSEKEEPING = {"architectures", "auto_map", "model_type", "transformers_version", "num_labels", "torch_dtype"}

CLASSIFIERS = ("ForSequenceClassification", "ForMultipleChoice", "ForTokenClassification", "ForQuestionAnswering")
POOLED = ("ForPreTraining", "ForNextSentencePrediction", "ForSequenceClassification", "ForMultipleChoice")
VOCABULARY = ("ForMaskedLM", "ForPreTraining", "ForCausalLM")


def field_names(same: str, **renamed: str) -> dict[str, str]:
    """Native field → MiniBERT's; the `same` names are joined by those of every config that belong to the model."""
    return {name: name for name in (*same.split(), "id2label", "label2id", "problem_type", "dtype")} | renamed


class Architecture:
    """One architecture. A further one is a subclass with these attributes, a row in `families.ARCHITECTURES`, and what
    it must do otherwise of the methods."""

    config_class: type[PreTrainedConfig]
    module: ModuleType = transformers  # where its classes are
    classes: dict[str, str]  # MiniBERT's head (its class name without prefix) → the native class
    fields: dict[str, str]  # native config field → MiniBERT's of the same meaning
    switches: dict[str, Any]  # the values that make a MiniBERT of this kind
    defaults: dict[str, Any]  # what one is given beside, which the way back does not need
    # MiniBERT's module (behind its head, if it is another one there) → the native one, or those whose rows it stacks, N
    # for the number of a layer; one that is not named here has the same name
    modules: ClassVar[dict[str, tuple[str, ...]]] = {}

    def native_names(self, name: str, head: str) -> list[str]:
        """The native names for the parts of the MiniBERT parameter `name`, in the order of their rows."""
        module, _, kind = name.rpartition(".")
        layer = re.search(r"\.\d+\.", module)
        number = layer[0] if layer else ".N."
        key = module.replace(number, ".N.")
        natives = self.modules.get(f"{head}.{key}") or self.modules.get(key, (key,))
        return [f"{native.replace('.N.', number)}.{kind}" for native in natives]

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
        """`fields` for a model of this head: without those that have no effect there."""
        return self.fields

    def minibert_fields(self, native: PreTrainedModel, head: str) -> dict[str, Any]:
        """What a MiniBERT of this model has otherwise than the tables say; a ValueError for a function that MiniBERT
        lacks."""
        return {}

    def native_fields(self, config: MiniBertConfig, head: str) -> dict[str, Any]:
        """What the native config has otherwise than the tables say."""
        return {}

    def required(self, model: PreTrainedModel, head: str) -> dict[str, Any]:
        """The values without which a MiniBERT of this head is none of this architecture."""
        config = model.config
        same = config.embedding_size if config.embedding_size == config.hidden_size else None
        return dict(embedding_size=same, embedding_norm=True, prediction_transform=True) | self.switches

    def positions(self, native: PreTrainedConfig) -> int:
        """Tokens of the longest text."""
        return native.max_position_embeddings

    def rest(self, native: PreTrainedModel, head: str) -> dict[str, Any] | None:
        """What `native` has that MiniBERT does not: fields of its config that are no defaults, and `dropped`."""
        usual = self.config_class().to_dict()
        known = {*self.fields_of(head), *SPECIAL_IDS, *CARRIED_IF_THERE, *HOUSEKEEPING, "max_position_embeddings"}
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


def warn_dropout(where: str) -> None:
    logger.warning(f"units are dropped in other places in training (evaluation is the same): {where}")


def check_head_dim(config: PreTrainedConfig) -> None:
    width, usual = getattr(config, "head_dim", None), config.hidden_size // config.num_attention_heads
    if width not in (None, usual):
        raise ValueError(f"head_dim={width} is not convertible; MiniBERT has hidden_size / heads = {usual} only")


def rotating_whole_heads(config: MiniBertConfig) -> dict[str, Any]:
    """What is required of a config for an architecture whose RoPE turns whole heads, where it does not."""
    rope, whole = config.rope_parameters or {}, {"partial_rotary_factor": 1.0}
    if all(parameters.get("partial_rotary_factor", 1.0) == 1.0 for parameters in rope.values()):
        return {}
    return dict(rope_parameters={kind: parameters | whole for kind, parameters in rope.items()})
