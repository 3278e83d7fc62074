"""ModernBERT, and whatever is one under another name: Ettin, mmBERT, gte-modernbert, granite-embedding r2."""

from typing import Any

from transformers import ModernBertConfig, PreTrainedModel

from ...configuration_minibert import MiniBertConfig
from .architecture import CLASSIFIERS, Architecture, class_names, field_names


class ModernBertArchitecture(Architecture):
    """ModernBERT (Warner et al. 2024) as `transformers.ModernBert*` spells it. Every parameter has the same name."""

    config_class = ModernBertConfig
    classes = class_names("ModernBert", "Model", "ForMaskedLM", *CLASSIFIERS)
    fields = field_names(
        "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size hidden_activation"
        " max_position_embeddings initializer_range initializer_cutoff_factor norm_eps norm_bias attention_bias"
        " attention_dropout embedding_dropout classifier_dropout layer_types rope_parameters local_attention mlp_bias"
        " decoder_bias classifier_pooling classifier_activation tie_word_embeddings",
        classifier_bias="head_bias",
        mlp_dropout="hidden_dropout",
    )
    switches = dict(
        position_embedding_type="rope", norm_type="layernorm", norm_placement="pre", gated_mlp=True, type_vocab_size=0,
        is_causal=False,
    )  # fmt: skip
    defaults = dict(add_pooling_layer=False, classifier_bias=True, scaled_output_init=True)

    def native_fields(self, config: MiniBertConfig, head: str) -> dict[str, Any]:
        hidden, cutoff = config.hidden_dropout, config.initializer_cutoff_factor
        cutoff = ModernBertConfig().initializer_cutoff_factor if cutoff is None else cutoff
        return dict(
            embedding_dropout=hidden if config.embedding_dropout is None else config.embedding_dropout,
            classifier_dropout=hidden if config.classifier_dropout is None else config.classifier_dropout,
            initializer_cutoff_factor=float(cutoff),
        )

    def required(self, model: PreTrainedModel, head: str) -> dict[str, Any]:
        pooler = dict(add_pooling_layer=False) if head in (*CLASSIFIERS, "Model") else {}
        return super().required(model, head) | pooler
