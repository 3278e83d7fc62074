"""BERT."""

from typing import Any

from transformers import BertConfig, PreTrainedConfig, PreTrainedModel

from ...configuration_minibert import MiniBertConfig
from .architecture import CLASSIFIERS, Architecture, class_names, field_names, logger

POOLED = ("ForPreTraining", "ForNextSentencePrediction", "ForSequenceClassification", "ForMultipleChoice")
VOCABULARY = ("ForMaskedLM", "ForPreTraining", "ForCausalLM")


class BertArchitecture(Architecture):
    """BERT (Devlin et al. 2018) as `transformers.Bert*` spells it."""

    config_class = BertConfig
    classes = class_names("Bert", "Model", "ForMaskedLM", *POOLED, *CLASSIFIERS, ForCausalLM="BertLMHeadModel")
    fields = field_names(
        "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size hidden_act hidden_dropout_prob"
        " attention_probs_dropout_prob classifier_dropout max_position_embeddings type_vocab_size initializer_range"
        " layer_norm_eps tie_word_embeddings",
        is_decoder="is_causal",
    )
    switches = dict(position_embedding_type="absolute", norm_type="layernorm", norm_placement="post", gated_mlp=False)
    defaults = dict(
        global_attn_every_n_layers=1, norm_bias=True, attention_bias=True, mlp_bias=True, head_bias=True,
        decoder_bias=True, classifier_bias=True, classifier_pooling="cls", initializer_cutoff_factor=None,
        scaled_output_init=False,
    )  # fmt: skip
    modules = {
        "model.embeddings.tok_embeddings": ("model.embeddings.word_embeddings",),
        "model.embeddings.norm": ("model.embeddings.LayerNorm",),
        "model.layers.N.attn.Wqkv": tuple(
            f"model.encoder.layer.N.attention.self.{x}" for x in ("query", "key", "value")
        ),
        "model.layers.N.attn.Wo": ("model.encoder.layer.N.attention.output.dense",),
        "model.layers.N.attn_norm": ("model.encoder.layer.N.attention.output.LayerNorm",),
        "model.layers.N.mlp.Wi": ("model.encoder.layer.N.intermediate.dense",),
        "model.layers.N.mlp.act": ("model.encoder.layer.N.intermediate.intermediate_act_fn",),
        "model.layers.N.mlp.Wo": ("model.encoder.layer.N.output.dense",),
        "model.layers.N.mlp_norm": ("model.encoder.layer.N.output.LayerNorm",),
        "head.dense": ("cls.predictions.transform.dense",),
        "head.act": ("cls.predictions.transform.transform_act_fn",),
        "head.norm": ("cls.predictions.transform.LayerNorm",),
        "decoder": ("cls.predictions.decoder",),
        "seq_relationship": ("cls.seq_relationship",),
        "ForQuestionAnswering.classifier": ("qa_outputs",),
    }
    head_fields = {"ForQuestionAnswering": dict(classifier_dropout=None)}  # nothing is dropped before the answer
    has_pooler, pooler_activation = True, "tanh"  # of the encoder itself; of the heads over one vector

    def head_activation(self, config: PreTrainedConfig, head: str) -> str:
        """The activation before the vocabulary, for a config of either side."""
        return config.hidden_act

    def minibert_fields(self, native: PreTrainedModel, head: str) -> dict[str, Any]:
        config, pooled = native.config, getattr(native.base_model, "pooler", None) is not None
        decoder = getattr(config, "is_decoder", False)
        if getattr(config, "add_cross_attention", False):
            raise ValueError("add_cross_attention=True is not convertible: MiniBERT has no cross-attention")
        if head == "ForCausalLM" and not decoder:
            name = type(native).__name__
            raise ValueError(f"is_decoder=False makes a {name} an encoder: load it as {self.classes['ForMaskedLM']}")
        if (pooled or head in POOLED) and decoder:
            refused = f"is_decoder=True is not convertible for a {type(native).__name__} with a pooler"
            raise ValueError(f"{refused}: BERT pools the first token, a causal MiniBERT the last")
        fields = dict(
            add_pooling_layer=pooled or head != "Model",
            pooler_activation=self.pooler_activation,
            classifier_activation=self.head_activation(config, head),
        )
        return fields | (dict(classifier_dropout=0.0) if self._undropped(head) else {})

    def _undropped(self, head: str) -> bool:
        return head == "ForQuestionAnswering" and "classifier_dropout" not in self.fields_of(head).values()

    def native_fields(self, config: MiniBertConfig, head: str) -> dict[str, Any]:
        name, hidden, classifier = self.config_class.model_type, config.hidden_dropout, config.classifier_dropout
        if (rate := config.embedding_dropout) not in (None, hidden):
            logger.warning(f"{name} drops embeddings at hidden_dropout_prob={hidden}: embedding_dropout={rate} is lost")
        if self._undropped(head) and (hidden if classifier is None else classifier):
            logger.warning(f"{name} drops nothing before the answer: classifier_dropout={classifier} has no effect")
        # a rate under another name has no None for "as everywhere"
        rates = [rate for rate, ours in self.fields_of(head).items() if ours == "classifier_dropout" != rate]
        return dict.fromkeys(rates, hidden if classifier is None else classifier)

    def required(self, model: PreTrainedModel, head: str) -> dict[str, Any]:
        config, required = model.config, super().required(model, head)
        if "type_vocab_size" in self.fields:
            required |= dict(type_vocab_size=config.type_vocab_size or 2)
        if head in (*VOCABULARY, "ForReplacedTokenDetection"):
            required |= dict(classifier_activation=self.head_activation(config, head))
        if head in POOLED or (head == "Model" and model.pooler is not None and self.has_pooler):
            required |= dict(classifier_pooling="cls", is_causal=False, pooler_activation=self.pooler_activation)
        return required
