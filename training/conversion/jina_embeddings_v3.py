"""The base of Jina's embeddings v3."""

from transformers import JinaEmbeddingsV3Config

from .architecture import class_names
from .nomic_bert import LAYERS, NomicBertArchitecture, RotaryBertArchitecture
from .roberta import RobertaArchitecture


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
