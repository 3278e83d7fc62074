"""RoBERTa, XLM-RoBERTa and CamemBERT, which differ from BERT by positions and the names of their heads."""

from typing import Any

import torch
from transformers import CamembertConfig, PreTrainedConfig, PreTrainedModel, RobertaConfig, XLMRobertaConfig

from ...configuration_minibert import MiniBertConfig
from .architecture import CLASSIFIERS, class_names, kept_tensors
from .bert import BertArchitecture

POSITIONS = "model.embeddings.position_embeddings.weight"


class RobertaArchitecture(BertArchitecture):
    """RoBERTa (Liu et al. 2019). Its positions begin behind the row `pad_token_id` of their table: the rows up to there
    are dropped. Transformers counts real tokens here, as MiniBERT does, wherever the padding is."""

    config_class = RobertaConfig
    classes = class_names("Roberta", "Model", "ForMaskedLM", "ForCausalLM", *CLASSIFIERS)
    fields = BertArchitecture.fields | dict(max_position_embeddings=None)
    modules = BertArchitecture.modules | {
        "head.dense": ("lm_head.dense",),
        "head.norm": ("lm_head.layer_norm",),
        "decoder": ("lm_head.decoder",),
        "ForSequenceClassification.model.pooler.dense": ("classifier.dense",),
        "ForSequenceClassification.classifier": ("classifier.out_proj",),
    }
    head_fields = {head: dict(classifier_dropout=None) for head in ("ForQuestionAnswering", "ForMultipleChoice")}

    def head_activation(self, config: PreTrainedConfig, head: str) -> str:
        return "gelu"

    def positions(self, native: PreTrainedConfig) -> int:
        return native.max_position_embeddings - native.pad_token_id - 1

    def dropped(self, native: PreTrainedModel) -> dict[str, torch.Tensor]:
        table = native.base_model.embeddings.position_embeddings.weight.detach()
        return {POSITIONS: table[: native.config.pad_token_id + 1]}

    def join(self, name: str, parts: list[torch.Tensor], native: PreTrainedConfig) -> torch.Tensor:
        rows = super().join(name, parts, native)
        return rows[native.pad_token_id + 1 :].clone() if name == POSITIONS else rows

    def split(self, name: str, tensor: torch.Tensor, parts: int, config: MiniBertConfig) -> list[torch.Tensor]:
        if name != POSITIONS:
            return super().split(name, tensor, parts, config)
        unused = tensor.new_zeros(config.pad_token_id + 1, tensor.shape[1])
        kept = kept_tensors(config).get(POSITIONS, unused)
        return [torch.cat([kept.to(unused) if kept.shape == unused.shape else unused, tensor])]

    def minibert_fields(self, native: PreTrainedModel, head: str) -> dict[str, Any]:
        config = native.config
        if config.pad_token_id is None:
            raise ValueError("pad_token_id=None is not convertible: positions begin behind the row of that number")
        return super().minibert_fields(native, head) | dict(max_position_embeddings=self.positions(config))

    def required(self, model: PreTrainedModel, head: str) -> dict[str, Any]:
        padding = model.config.pad_token_id
        return super().required(model, head) | dict(pad_token_id=1 if padding is None else padding)

    def native_fields(self, config: MiniBertConfig, head: str) -> dict[str, Any]:
        positions = config.max_position_embeddings + config.pad_token_id + 1
        return super().native_fields(config, head) | dict(max_position_embeddings=positions)


class XLMRobertaArchitecture(RobertaArchitecture):
    """XLM-RoBERTa (Conneau et al. 2020): RoBERTa for 100 languages; multilingual-e5, bge-m3 and arctic-embed are it."""

    config_class = XLMRobertaConfig
    classes = class_names("XLMRoberta", *RobertaArchitecture.classes)


class CamembertArchitecture(RobertaArchitecture):
    """CamemBERT (Martin et al. 2020): RoBERTa for French."""

    config_class = CamembertConfig
    classes = class_names("Camembert", *RobertaArchitecture.classes)
