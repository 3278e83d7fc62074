"""NomicBERT."""

from transformers import NomicBertConfig

from .architecture import DECODER_LAYERS, class_names
from .bert import BertArchitecture

LAYERS = DECODER_LAYERS | {
    "model.layers.N.attn_norm": ("model.layers.N.post_attention_layernorm",),
    "model.layers.N.mlp_norm": ("model.layers.N.post_mlp_layernorm",),
}


class RotaryBertArchitecture(BertArchitecture):
    fields = BertArchitecture.fields | dict(rope_parameters="rope_parameters", is_decoder=None)
    switches = BertArchitecture.switches | dict(position_embedding_type="rope", is_causal=False)


class NomicBertArchitecture(RotaryBertArchitecture):
    """NomicBERT (Nussbaum et al. 2024): BERT with rotary positions and SwiGLU, without biases in attention and MLP."""

    config_class = NomicBertConfig
    classes = class_names("NomicBert", "Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification")
    switches = RotaryBertArchitecture.switches | dict(gated_mlp=True, attention_bias=False, mlp_bias=False)
    modules = BertArchitecture.modules | LAYERS | {"head.norm": ("cls.predictions.transform.layer_norm",)}
