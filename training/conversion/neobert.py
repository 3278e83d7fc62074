"""NeoBERT, whose class is not in Transformers but code beside its weights, which is not run: what is known here is how
its config and its weights are laid out."""

import sys
from typing import Any

import torch
from huggingface_hub.dataclasses import strict
from torch import nn
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel

from ...configuration_minibert import MiniBertConfig
from .architecture import Architecture, class_names, field_names, kept_fields, logger
from .eurobert import EuroBertArchitecture

ROPE = dict(rope_type="default", rope_theta=10_000.0)


@strict
class NeoBERTConfig(PreTrainedConfig):
    """The fields of the published config, with the defaults of its class."""

    model_type = "neobert"
    attribute_map = {"max_position_embeddings": "max_length"}

    hidden_size: int = 768
    num_hidden_layers: int = 28
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    norm_eps: float = 1e-6
    vocab_size: int = 30522
    pad_token_id: int | None = 0
    max_length: int = 1024
    classifier_dropout: float = 0.1

    @property
    def mlp_width(self) -> int:
        """Two thirds of `intermediate_size`, made a multiple of 8."""
        return (int(2 * self.intermediate_size / 3) + 7) // 8 * 8


AutoConfig.register(NeoBERTConfig.model_type, NeoBERTConfig, exist_ok=True)


class NeoBERTPreTrainedModel(PreTrainedModel):
    """The published modules and their names, without a `forward`: the published code computes with them."""

    config_class = NeoBERTConfig
    base_model_prefix = "model"


class NeoBERT(NeoBERTPreTrainedModel):
    def __init__(self, config: NeoBERTConfig):
        super().__init__(config)
        size, width, eps = config.hidden_size, config.mlp_width, config.norm_eps
        shapes = dict(qkv=(size, 3 * size), wo=(size, size)), dict(w12=(size, 2 * width), w3=(width, size))
        self.encoder = nn.Embedding(config.vocab_size, size, padding_idx=config.pad_token_id)
        self.transformer_encoder = nn.ModuleList()
        for _ in range(config.num_hidden_layers):
            attention, mlp = ({name: nn.Linear(*shape, bias=False) for name, shape in part.items()} for part in shapes)
            norms = {name: nn.RMSNorm(size, eps) for name in ("attention_norm", "ffn_norm")}
            self.transformer_encoder.append(nn.ModuleDict(attention | norms | dict(ffn=nn.ModuleDict(mlp))))
        self.layer_norm = nn.RMSNorm(size, eps)
        self.post_init()


class NeoBERTLMHead(NeoBERTPreTrainedModel):
    def __init__(self, config: NeoBERTConfig):
        super().__init__(config)
        self.model, self.decoder = NeoBERT(config), nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()


class NeoBERTForSequenceClassification(NeoBERTPreTrainedModel):
    def __init__(self, config: NeoBERTConfig):
        super().__init__(config)
        self.model, self.dense = NeoBERT(config), nn.Linear(config.hidden_size, config.hidden_size)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()


class NeoBertArchitecture(Architecture):
    """NeoBERT (Le Breton et al. 2025). Its queries, keys and values lie head by head in one matrix, and its RoPE turns
    neighbouring units, MiniBERT's those half a head apart: the rows are put in another order."""

    config_class = NeoBERTConfig
    module = sys.modules[__name__]
    drops_before_dense = True
    classes = class_names("NeoBERT", "ForSequenceClassification", Model="NeoBERT", ForMaskedLM="NeoBERTLMHead")
    fields = field_names(
        "vocab_size hidden_size num_hidden_layers num_attention_heads norm_eps classifier_dropout",
        max_length="max_position_embeddings",
    )
    switches = EuroBertArchitecture.switches | dict(hidden_act="silu", attention_bias=False, mlp_bias=False)
    defaults = EuroBertArchitecture.defaults | dict(
        attention_dropout=0.0, decoder_bias=True, tie_word_embeddings=False, classifier_pooling="cls",
        pooler_activation="tanh", rope_parameters=ROPE,
    )  # fmt: skip
    modules = {
        "model.embeddings.tok_embeddings": ("model.encoder",),
        "model.layers.N.attn_norm": ("model.transformer_encoder.N.attention_norm",),
        "model.layers.N.attn.Wqkv": ("model.transformer_encoder.N.qkv",),
        "model.layers.N.attn.Wo": ("model.transformer_encoder.N.wo",),
        "model.layers.N.mlp_norm": ("model.transformer_encoder.N.ffn_norm",),
        "model.layers.N.mlp.Wi": ("model.transformer_encoder.N.ffn.w12",),
        "model.layers.N.mlp.Wo": ("model.transformer_encoder.N.ffn.w3",),
        "model.final_norm": ("model.layer_norm",),
        "model.pooler.dense": ("dense",),
    }

    def join(self, name: str, parts: list[torch.Tensor], native: PreTrainedConfig) -> torch.Tensor:
        if ".attn.Wqkv." not in name:
            return super().join(name, parts, native)
        rows = parts[0].unflatten(0, (native.num_attention_heads, 3, -1)).transpose(0, 1)
        turned = rows[:2].unflatten(2, (-1, 2)).transpose(2, 3).flatten(2, 3)
        return torch.cat([turned, rows[2:]]).flatten(0, 2)

    def split(self, name: str, tensor: torch.Tensor, parts: int, config: MiniBertConfig) -> list[torch.Tensor]:
        if ".attn.Wqkv." not in name:
            return super().split(name, tensor, parts, config)
        rows = tensor.unflatten(0, (3, config.num_attention_heads, -1))
        turned = rows[:2].unflatten(2, (2, -1)).transpose(2, 3).flatten(2, 3)
        return [torch.cat([turned, rows[2:]]).transpose(0, 1).flatten(0, 2)]

    def minibert_fields(self, native: PreTrainedModel, head: str) -> dict[str, Any]:
        return dict(intermediate_size=native.config.mlp_width, add_pooling_layer=head != "Model")

    def native_fields(self, config: MiniBertConfig, head: str) -> dict[str, Any]:
        for name in ("hidden_dropout", "attention_dropout", "embedding_dropout"):
            if rate := getattr(config, name):
                logger.warning(f"NeoBERT drops units in its classifier only: {name}={rate} is lost")
        classifier = config.hidden_dropout if config.classifier_dropout is None else config.classifier_dropout
        code = {"AutoConfig": "NeoBERTConfig"}
        code |= {f"AutoModel{head.removeprefix('Model')}": name for head, name in self.classes.items()}
        return dict(
            intermediate_size=kept_fields(config, self).get("intermediate_size", config.intermediate_size * 3 // 2),
            dim_head=config.hidden_size // config.num_attention_heads,
            classifier_dropout=float(classifier),
            auto_map={auto: f"chandar-lab/NeoBERT--model.{x}" for auto, x in code.items()},
        )

    def required(self, model: PreTrainedModel, head: str) -> dict[str, Any]:
        config = model.config
        required = super().required(model, head) | dict(
            intermediate_size=(config.intermediate_size + 7) // 8 * 8,
            rope_parameters=(config.rope_parameters or {}) | dict(full_attention=ROPE),
        )
        if head == "ForMaskedLM":
            required |= dict(tie_word_embeddings=False)
        if head == "ForSequenceClassification":
            required |= dict(classifier_pooling="cls", pooler_activation="tanh")
        return required
