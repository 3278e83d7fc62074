"""BERTs with rotary positions: NomicBERT and the base of Jina's embeddings v3."""

from typing import Any

from transformers import JinaEmbeddingsV3Config, NomicBertConfig, PreTrainedModel

from ...configuration_minibert import MiniBertConfig
from .architecture import check_head_dim, rotating_whole_heads
from .bert import BertArchitecture, RobertaArchitecture, warn_of_dropout_before_dense


def layers_of(prefix: str) -> dict[str, tuple[str, ...]]:
    """What both call the parts of their encoders, but for the MLP."""
    layer = f"{prefix}.layers.N"
    return {
        "model.embeddings.tok_embeddings": (f"{prefix}.embeddings.word_embeddings",),
        "model.embeddings.token_type_embeddings": (f"{prefix}.embeddings.token_type_embeddings",),
        "model.embeddings.norm": (f"{prefix}.embeddings.LayerNorm",),
        "model.layers.N.attn.Wqkv": tuple(f"{layer}.self_attn.{x}_proj" for x in "qkv"),
        "model.layers.N.attn.Wo": (f"{layer}.self_attn.o_proj",),
        "model.layers.N.attn_norm": (f"{layer}.post_attention_layernorm",),
        "model.layers.N.mlp_norm": (f"{layer}.post_mlp_layernorm",),
        "model.pooler.dense": (f"{prefix}.pooler.dense",),
    }


class RotaryBertArchitecture(BertArchitecture):
    fields = {name: ours for name, ours in BertArchitecture.fields.items() if name != "is_decoder"}
    switches = BertArchitecture.switches | dict(position_embedding_type="rope", is_causal=False)

    def minibert_fields(self, native: PreTrainedModel, head: str) -> dict[str, Any]:
        check_head_dim(native.config)
        return super().minibert_fields(native, head) | dict(rope_parameters=dict(native.config.rope_parameters))

    def native_fields(self, config: MiniBertConfig, head: str) -> dict[str, Any]:
        return super().native_fields(config, head) | dict(rope_parameters=config.rope_parameters["full_attention"])

    def required(self, model: PreTrainedModel, head: str) -> dict[str, Any]:
        return super().required(model, head) | rotating_whole_heads(model.config)


class NomicBertArchitecture(RotaryBertArchitecture):
    """NomicBERT (Nussbaum et al. 2024): BERT with rotary positions and SwiGLU, without biases in attention and MLP."""

    config_class = NomicBertConfig
    classes = {
        head: f"NomicBert{head}"
        for head in ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification")
    }
    switches = RotaryBertArchitecture.switches | dict(gated_mlp=True, attention_bias=False, mlp_bias=False)
    defaults = {k: v for k, v in BertArchitecture.defaults.items() if k not in ("attention_bias", "mlp_bias")}
    modules = layers_of("nomic_bert") | {
        "model.layers.N.mlp.Wi": ("nomic_bert.layers.N.mlp.gate_proj", "nomic_bert.layers.N.mlp.up_proj"),
        "model.layers.N.mlp.Wo": ("nomic_bert.layers.N.mlp.down_proj",),
        "head.dense": ("cls.predictions.transform.dense",),
        "head.norm": ("cls.predictions.transform.layer_norm",),
        "decoder": ("cls.predictions.decoder",),
    }

    def native_fields(self, config: MiniBertConfig, head: str) -> dict[str, Any]:
        rates = dict(hidden_dropout_prob=config.hidden_dropout, attention_probs_dropout_prob=config.attention_dropout)
        rates |= {} if config.classifier_dropout is None else dict(classifier_dropout=config.classifier_dropout)
        return super().native_fields(config, head) | {name: float(rate) for name, rate in rates.items()}


class JinaEmbeddingsV3Architecture(RotaryBertArchitecture):
    """The base of jina-embeddings-v3 (Sturua et al. 2024), without its adapters: XLM-RoBERTa with rotary positions."""

    config_class = JinaEmbeddingsV3Config
    classes = {
        head: f"JinaEmbeddingsV3{head}"
        for head in RobertaArchitecture.classes
        if head not in ("ForCausalLM", "ForMultipleChoice")
    }
    modules = (
        RobertaArchitecture.modules
        | layers_of("roberta")
        | {
            "model.layers.N.mlp.Wi": ("roberta.layers.N.mlp.fc1",),
            "model.layers.N.mlp.Wo": ("roberta.layers.N.mlp.fc2",),
        }
    )
    head_activation = RobertaArchitecture.head_activation

    def minibert_fields(self, native: PreTrainedModel, head: str) -> dict[str, Any]:
        warn_of_dropout_before_dense(native, head)
        return super().minibert_fields(native, head)
