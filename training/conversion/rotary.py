"""BERTs with rotary positions: NomicBERT and the base of Jina's embeddings v3."""

from transformers import JinaEmbeddingsV3Config, NomicBertConfig

from .architecture import DECODER_LAYERS, class_names
from .bert import BertArchitecture, RobertaArchitecture

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


class JinaEmbeddingsV3Architecture(RotaryBertArchitecture):
    """The base of jina-embeddings-v3 (Sturua et al. 2024), without its adapters: XLM-RoBERTa with rotary positions."""

    config_class = JinaEmbeddingsV3Config
    classes = class_names("JinaEmbeddingsV3", *NomicBertArchitecture.classes, "ForQuestionAnswering")
    modules = {
        **RobertaArchitecture.modules,
        **LAYERS,
        "model.layers.N.mlp.Wi": ("model.layers.N.mlp.fc1",),
        "model.layers.N.mlp.Wo": ("model.layers.N.mlp.fc2",),
    }
    head_activation = RobertaArchitecture.head_activation
    drops_before_dense = True
