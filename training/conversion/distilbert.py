"""DistilBERT."""

from transformers import DistilBertConfig, PreTrainedConfig

from .architecture import CLASSIFIERS, class_names, field_names
from .bert import BertArchitecture


class DistilBertArchitecture(BertArchitecture):
    """DistilBERT (Sanh et al. 2019): no segments, no pooler, ReLU in the heads over a text."""

    config_class = DistilBertConfig
    classes = class_names("DistilBert", "Model", "ForMaskedLM", *CLASSIFIERS)
    fields = field_names(
        "vocab_size attention_dropout max_position_embeddings initializer_range tie_word_embeddings",
        dim="hidden_size",
        n_layers="num_hidden_layers",
        n_heads="num_attention_heads",
        hidden_dim="intermediate_size",
        activation="hidden_act",
        dropout="hidden_dropout",
    )
    switches = BertArchitecture.switches | dict(type_vocab_size=0, norm_eps=1e-12, is_causal=False)
    modules = BertArchitecture.modules | {
        "model.layers.N.attn.Wqkv": tuple(f"model.transformer.layer.N.attention.{x}_lin" for x in "qkv"),
        "model.layers.N.attn.Wo": ("model.transformer.layer.N.attention.out_lin",),
        "model.layers.N.attn_norm": ("model.transformer.layer.N.sa_layer_norm",),
        "model.layers.N.mlp.Wi": ("model.transformer.layer.N.ffn.lin1",),
        "model.layers.N.mlp.Wo": ("model.transformer.layer.N.ffn.lin2",),
        "model.layers.N.mlp_norm": ("model.transformer.layer.N.output_layer_norm",),
        "model.pooler.dense": ("pre_classifier",),
        "head.dense": ("vocab_transform",),
        "head.norm": ("vocab_layer_norm",),
        "decoder": ("vocab_projector",),
    }
    head_fields = {
        "ForSequenceClassification": {"seq_classif_dropout": "classifier_dropout"},
        "ForMultipleChoice": {"seq_classif_dropout": "classifier_dropout"},
        "ForQuestionAnswering": {"qa_dropout": "classifier_dropout"},
    }
    has_pooler, pooler_activation = False, "relu"

    def head_activation(self, config: PreTrainedConfig, head: str) -> str:
        return config.activation if isinstance(config, DistilBertConfig) else config.hidden_act
