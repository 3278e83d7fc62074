"""The compact relatives of BERT: DistilBERT, and ELECTRA's generator and discriminator."""

from typing import Any

from transformers import DistilBertConfig, ElectraConfig, PreTrainedConfig, PreTrainedModel

from ...configuration_minibert import MiniBertConfig
from .architecture import CLASSIFIERS, class_names, field_names, warn_dropout
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

    def minibert_fields(self, native: PreTrainedModel, head: str) -> dict[str, Any]:
        if rate := native.config.dropout:
            warn_dropout(f"DistilBERT drops nothing behind the attention, MiniBERT at hidden_dropout={rate}")
        return super().minibert_fields(native, head)


class ElectraArchitecture(BertArchitecture):
    """ELECTRA (Clark et al. 2020). The generator is a masked LM, the discriminator detects replaced tokens; the small
    ones have an `embedding_size` of their own."""

    config_class = ElectraConfig
    classes = class_names("Electra", "Model", "ForMaskedLM", "ForCausalLM", *CLASSIFIERS) | {
        "ForReplacedTokenDetection": "ElectraForPreTraining"
    }
    fields = BertArchitecture.fields | dict(embedding_size="embedding_size")
    modules = BertArchitecture.modules | {
        "model.embeddings.projection": ("model.embeddings_project",),
        "head.dense": ("generator_predictions.dense",),
        "head.norm": ("generator_predictions.LayerNorm",),
        "decoder": ("generator_lm_head",),
        "dense": ("discriminator_predictions.dense",),
        "detector": ("discriminator_predictions.dense_prediction",),
        "ForSequenceClassification.model.pooler.dense": ("classifier.dense",),
        "ForSequenceClassification.classifier": ("classifier.out_proj",),
        "ForMultipleChoice.model.pooler.dense": ("sequence_summary.summary",),
    }
    has_pooler, pooler_activation = False, "gelu"
    head_fields = BertArchitecture.head_fields | {
        "ForMultipleChoice": dict(
            summary_last_dropout="classifier_dropout", summary_activation="pooler_activation", classifier_dropout=None
        )
    }
    drops_before_dense = True

    def head_activation(self, config: PreTrainedConfig, head: str) -> str:
        return config.hidden_act if head == "ForReplacedTokenDetection" else "gelu"

    def minibert_fields(self, native: PreTrainedModel, head: str) -> dict[str, Any]:
        config, fields = native.config, super().minibert_fields(native, head)
        if head != "ForMultipleChoice":
            return fields
        for name, value in (("summary_type", "first"), ("summary_use_proj", True), ("summary_proj_to_labels", False)):
            if (found := getattr(config, name, value)) != value:
                raise ValueError(f"{name}={found!r} is not convertible; MiniBERT has {value!r} only")
        return fields | dict(pooler_activation=config.summary_activation)

    def required(self, model: PreTrainedModel, head: str) -> dict[str, Any]:
        own = dict(pooler_activation=model.config.pooler_activation) if head == "ForMultipleChoice" else {}
        return super().required(model, head) | own

    def native_fields(self, config: MiniBertConfig, head: str) -> dict[str, Any]:
        width = config.embedding_size or config.hidden_size
        return super().native_fields(config, head) | dict(embedding_size=width)
