"""The families: what each calls its parts and fields, and what makes a MiniBERT one of them."""

from typing import Any, Literal

import torch
import transformers
from transformers import PreTrainedConfig, PreTrainedModel

from ...configuration_minibert import MiniBertConfig
from .architecture import CLASSIFIER_HEADS, Architecture, class_names, field_names

POOLED_HEADS = (
    "ForPreTraining",
    "ForNextSentencePrediction",
    "ForSequenceClassification",
    "ForMultipleChoice",
)
# Heads with an activation before the vocabulary.
HEADS_WITH_ACTIVATION = (
    "ForMaskedLM",
    "ForPreTraining",
    "ForCausalLM",
    "ForReplacedTokenDetection",
)
# The projections of a layer, by the names that decoders use in Transformers, and encoders that were
# written after them.
DECODER_PROJECTIONS = {
    "model.layers.N.attn.Wqkv": tuple(f"model.layers.N.self_attn.{x}_proj" for x in "qkv"),
    "model.layers.N.attn.Wo": ("model.layers.N.self_attn.o_proj",),
    "model.layers.N.mlp.Wi": ("model.layers.N.mlp.gate_proj", "model.layers.N.mlp.up_proj"),
    "model.layers.N.mlp.Wo": ("model.layers.N.mlp.down_proj",),
}
# The norms of such a layer, by `norm_placement`: the one after attention is that of the MLP with
# pre-norm (EuroBERT), and that of attention with post-norm (Nomic, Jina).
PRE_NORMS = {
    "model.layers.N.attn_norm": ("model.layers.N.input_layernorm",),
    "model.layers.N.mlp_norm": ("model.layers.N.post_attention_layernorm",),
}
POST_NORMS = {
    "model.layers.N.attn_norm": ("model.layers.N.post_attention_layernorm",),
    "model.layers.N.mlp_norm": ("model.layers.N.post_mlp_layernorm",),
}
# The layer of ALBERT that all passes share.
ALBERT_LAYER = "model.encoder.albert_layer_groups.0.albert_layers.0"


class BertArchitecture(Architecture):
    """BERT (Devlin et al. 2018)."""

    config_class = transformers.BertConfig
    classes = class_names(
        "Bert",
        "Model",
        "ForMaskedLM",
        *POOLED_HEADS,
        *CLASSIFIER_HEADS,
        ForCausalLM="BertLMHeadModel",
    )
    fields = field_names(
        "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size hidden_act"
        " hidden_dropout_prob attention_probs_dropout_prob classifier_dropout"
        " max_position_embeddings type_vocab_size initializer_range layer_norm_eps"
        " tie_word_embeddings",
        is_decoder="is_causal",
    )
    switches = dict(
        position_embedding_type="absolute",
        norm_type="layernorm",
        norm_placement="post",
        gated_mlp=False,
    )
    defaults = dict(
        global_attn_every_n_layers=1, norm_bias=True, attention_bias=True, mlp_bias=True,
        head_bias=True, decoder_bias=True, classifier_bias=True, classifier_pooling="cls",
        initializer_cutoff_factor=None, scaled_output_init=False,
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
        "model.layers.N.mlp.Wo": ("model.encoder.layer.N.output.dense",),
        "model.layers.N.mlp_norm": ("model.encoder.layer.N.output.LayerNorm",),
        "head.dense": ("cls.predictions.transform.dense",),
        "head.norm": ("cls.predictions.transform.LayerNorm",),
        "decoder": ("cls.predictions.decoder",),
        "seq_relationship": ("cls.seq_relationship",),
        "ForQuestionAnswering.classifier": ("qa_outputs",),
    }
    # nothing is dropped before the answer
    head_fields = {"ForQuestionAnswering": dict(classifier_dropout=None)}
    has_pooler = True
    pooler_activation = "tanh"
    # before the vocabulary; None: that of the layers
    head_activation: str | None = None

    def _activation(self, hidden_act: str, head: str) -> str:
        if head == "ForReplacedTokenDetection" or self.head_activation is None:
            return hidden_act
        return self.head_activation

    def minibert_fields(
        self, native: PreTrainedModel, head: str, fields: dict[str, Any]
    ) -> dict[str, Any]:
        config = native.config
        class_name = type(native).__name__
        is_pooled = getattr(native.base_model, "pooler", None) is not None
        is_decoder = getattr(config, "is_decoder", False)
        if getattr(config, "add_cross_attention", False):
            raise ValueError(
                "add_cross_attention=True is not convertible: MiniBERT has no cross-attention"
            )
        if head == "ForCausalLM" and not is_decoder:
            raise ValueError(
                f"is_decoder=False makes a {class_name} an encoder: load it as"
                f" {self.classes['ForMaskedLM']}"
            )
        if is_decoder and (is_pooled or head in POOLED_HEADS):
            raise ValueError(
                f"is_decoder=True is not convertible for a {class_name} with a pooler: BERT pools"
                " the first token, a causal MiniBERT the last"
            )
        further_fields = {
            "add_pooling_layer": is_pooled or head != "Model",
            "pooler_activation": self.pooler_activation,
            "classifier_activation": self._activation(fields["hidden_act"], head),
        }
        if head == "ForQuestionAnswering" and "classifier_dropout" not in fields:
            further_fields["classifier_dropout"] = 0.0
        return further_fields

    def required(self, model: PreTrainedModel, head: str) -> dict[str, Any]:
        required = super().required(model, head)
        if head in HEADS_WITH_ACTIVATION:
            required |= dict(classifier_activation=self._activation(model.config.hidden_act, head))
        if head in POOLED_HEADS or (
            head == "Model" and model.pooler is not None and self.has_pooler
        ):
            required |= dict(
                classifier_pooling="cls", is_causal=False, pooler_activation=self.pooler_activation
            )
        return required


class RobertaArchitecture(BertArchitecture):
    """RoBERTa (Liu et al. 2019). Transformers counts real tokens here, as MiniBERT does, wherever
    the padding is."""

    config_class = transformers.RobertaConfig
    classes = class_names("Roberta", "Model", "ForMaskedLM", "ForCausalLM", *CLASSIFIER_HEADS)
    modules = BertArchitecture.modules | {
        "head.dense": ("lm_head.dense",),
        "head.norm": ("lm_head.layer_norm",),
        "decoder": ("lm_head.decoder",),
        "ForSequenceClassification.model.pooler.dense": ("classifier.dense",),
        "ForSequenceClassification.classifier": ("classifier.out_proj",),
    }
    head_fields = {
        head: dict(classifier_dropout=None)
        for head in ("ForQuestionAnswering", "ForMultipleChoice")
    }
    head_activation = "gelu"
    starts_behind_padding = True


class XLMRobertaArchitecture(RobertaArchitecture):
    """XLM-RoBERTa (Conneau et al. 2020), which multilingual-e5, bge-m3 and arctic-embed are."""

    config_class = transformers.XLMRobertaConfig
    classes = class_names("XLMRoberta", *RobertaArchitecture.classes)


class CamembertArchitecture(RobertaArchitecture):
    """CamemBERT (Martin et al. 2020)."""

    config_class = transformers.CamembertConfig
    classes = class_names("Camembert", *RobertaArchitecture.classes)


class DistilBertArchitecture(BertArchitecture):
    """DistilBERT (Sanh et al. 2019): no segments, no pooler, ReLU in the heads for texts."""

    config_class = transformers.DistilBertConfig
    classes = class_names("DistilBert", "Model", "ForMaskedLM", *CLASSIFIER_HEADS)
    fields = field_names(
        "vocab_size attention_dropout max_position_embeddings initializer_range"
        " tie_word_embeddings",
        dim="hidden_size",
        n_layers="num_hidden_layers",
        n_heads="num_attention_heads",
        hidden_dim="intermediate_size",
        activation="hidden_act",
        dropout="hidden_dropout",
    )
    switches = BertArchitecture.switches | dict(type_vocab_size=0, norm_eps=1e-12, is_causal=False)
    modules = BertArchitecture.modules | {
        "model.layers.N.attn.Wqkv": tuple(
            f"model.transformer.layer.N.attention.{x}_lin" for x in "qkv"
        ),
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
        "ForSequenceClassification": dict(seq_classif_dropout="classifier_dropout"),
        "ForMultipleChoice": dict(seq_classif_dropout="classifier_dropout"),
        "ForQuestionAnswering": dict(qa_dropout="classifier_dropout"),
    }
    has_pooler = False
    pooler_activation = "relu"


class ElectraArchitecture(BertArchitecture):
    """ELECTRA (Clark et al. 2020): the generator is a masked LM, the discriminator detects replaced
    tokens."""

    config_class = transformers.ElectraConfig
    classes = class_names(
        "Electra", "Model", "ForMaskedLM", "ForCausalLM", *CLASSIFIER_HEADS,
        ForReplacedTokenDetection="ElectraForPreTraining",
    )  # fmt: skip
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
    head_fields = BertArchitecture.head_fields | {
        "ForMultipleChoice": dict(
            summary_last_dropout="classifier_dropout",
            summary_activation="pooler_activation",
            classifier_dropout=None,
        )
    }
    has_pooler = False
    pooler_activation = "gelu"
    head_activation = "gelu"

    def minibert_fields(
        self, native: PreTrainedModel, head: str, fields: dict[str, Any]
    ) -> dict[str, Any]:
        further_fields = super().minibert_fields(native, head, fields)
        if head != "ForMultipleChoice":
            return further_fields
        for name, needed in (
            ("summary_type", "first"),
            ("summary_use_proj", True),
            ("summary_proj_to_labels", False),
        ):
            value = getattr(native.config, name, needed)
            if value != needed:
                raise ValueError(
                    f"{name}={value!r} is not convertible; MiniBERT has {needed!r} only"
                )
        further_fields["pooler_activation"] = native.config.summary_activation
        return further_fields

    def required(self, model: PreTrainedModel, head: str) -> dict[str, Any]:
        required = super().required(model, head)
        if head == "ForMultipleChoice":  # the native config has a field for it
            required["pooler_activation"] = model.config.pooler_activation
        return required

    def native_fields(self, config: MiniBertConfig, head: str) -> dict[str, Any]:
        return dict(embedding_size=config.embedding_size or config.hidden_size)


class AlbertArchitecture(BertArchitecture):
    """ALBERT (Lan et al. 2019): one layer for all, and embeddings that are narrower than it."""

    config_class = transformers.AlbertConfig
    classes = class_names("Albert", "Model", "ForMaskedLM", "ForPreTraining", *CLASSIFIER_HEADS)
    fields = BertArchitecture.fields | dict(
        embedding_size="embedding_size",
        classifier_dropout_prob="classifier_dropout",
        classifier_dropout=None,
        is_decoder=None,
    )
    switches = BertArchitecture.switches | dict(share_layers=True, is_causal=False)
    head_fields = {"ForQuestionAnswering": dict(classifier_dropout_prob=None)}
    modules = BertArchitecture.modules | {
        "model.embeddings.projection": ("model.encoder.embedding_hidden_mapping_in",),
        "model.layers.N.attn.Wqkv": tuple(
            f"{ALBERT_LAYER}.attention.{x}" for x in ("query", "key", "value")
        ),
        "model.layers.N.attn.Wo": (f"{ALBERT_LAYER}.attention.dense",),
        "model.layers.N.attn_norm": (f"{ALBERT_LAYER}.attention.LayerNorm",),
        "model.layers.N.mlp.Wi": (f"{ALBERT_LAYER}.ffn",),
        "model.layers.N.mlp.Wo": (f"{ALBERT_LAYER}.ffn_output",),
        "model.layers.N.mlp_norm": (f"{ALBERT_LAYER}.full_layer_layer_norm",),
        "model.pooler.dense": ("model.pooler",),
        "head.dense": ("predictions.dense",),
        "head.norm": ("predictions.LayerNorm",),
        "decoder": ("predictions.decoder",),
        "seq_relationship": ("sop_classifier.classifier",),
    }

    def minibert_fields(
        self, native: PreTrainedModel, head: str, fields: dict[str, Any]
    ) -> dict[str, Any]:
        config = native.config
        for name in ("num_hidden_groups", "inner_group_num"):
            number = getattr(config, name)
            if number != 1:
                raise ValueError(
                    f"{name}={number} is not convertible: MiniBERT shares one layer, or none"
                )
        if config.embedding_size == config.hidden_size:
            projection = native.base_model.encoder.embedding_hidden_mapping_in
            changes_nothing = torch.equal(
                projection.weight, torch.eye(config.hidden_size).to(projection.weight)
            )
            if not changes_nothing or projection.bias.any():
                raise ValueError(
                    f"embedding_size={config.embedding_size} is not convertible: ALBERT projects"
                    " embeddings that are as wide as its layers, and MiniBERT does not"
                )
        if head == "ForPreTraining" and config.num_labels != 2:
            raise ValueError(
                f"num_labels={config.num_labels} is not convertible: MiniBertForPreTraining has 2"
                " orders of segments"
            )
        return super().minibert_fields(native, head, fields)

    def native_fields(self, config: MiniBertConfig, head: str) -> dict[str, Any]:
        fields = dict(embedding_size=config.embedding_size or config.hidden_size)
        if head == "ForPreTraining" and config.num_labels != 2:
            fields["num_labels"] = 2  # the orders of two segments, whatever the labels say
        return fields

    def further_weights(self, native: PreTrainedConfig) -> dict[str, torch.Tensor]:
        if native.embedding_size != native.hidden_size:
            return {}
        name = "albert.encoder.embedding_hidden_mapping_in.weight"
        return {name: torch.eye(native.hidden_size)}


class NomicBertArchitecture(BertArchitecture):
    """NomicBERT (Nussbaum et al. 2024): BERT with rotary positions and SwiGLU, without biases in
    attention and MLP."""

    config_class = transformers.NomicBertConfig
    classes = class_names(
        "NomicBert", "Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification"
    )
    fields = BertArchitecture.fields | dict(rope_parameters="rope_parameters", is_decoder=None)
    switches = BertArchitecture.switches | dict(
        position_embedding_type="rope",
        is_causal=False,
        gated_mlp=True,
        attention_bias=False,
        mlp_bias=False,
    )
    modules = (
        BertArchitecture.modules
        | DECODER_PROJECTIONS
        | POST_NORMS
        | {"head.norm": ("cls.predictions.transform.layer_norm",)}
    )


class JinaEmbeddingsV3Architecture(BertArchitecture):
    """The base of jina-embeddings-v3 (Sturua et al. 2024), without its adapters: XLM-RoBERTa with
    rotary positions."""

    config_class = transformers.JinaEmbeddingsV3Config
    classes = class_names(
        "JinaEmbeddingsV3", *NomicBertArchitecture.classes, "ForQuestionAnswering"
    )
    fields = NomicBertArchitecture.fields
    switches = BertArchitecture.switches | dict(position_embedding_type="rope", is_causal=False)
    modules = (
        RobertaArchitecture.modules
        | DECODER_PROJECTIONS
        | POST_NORMS
        | {
            "model.layers.N.mlp.Wi": ("model.layers.N.mlp.fc1",),
            "model.layers.N.mlp.Wo": ("model.layers.N.mlp.fc2",),
        }
    )
    head_activation = "gelu"


class ModernBertArchitecture(Architecture):
    """ModernBERT (Warner et al. 2024), which Ettin, mmBERT, gte-modernbert and granite-embedding r2
    are. Every parameter has the same name."""

    config_class = transformers.ModernBertConfig
    classes = class_names("ModernBert", "Model", "ForMaskedLM", *CLASSIFIER_HEADS)
    fields = field_names(
        "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size"
        " hidden_activation max_position_embeddings initializer_range initializer_cutoff_factor"
        " norm_eps norm_bias attention_bias attention_dropout embedding_dropout classifier_dropout"
        " layer_types rope_parameters local_attention mlp_bias decoder_bias classifier_pooling"
        " classifier_activation tie_word_embeddings",
        classifier_bias="head_bias",
        mlp_dropout="hidden_dropout",
    )
    switches = dict(
        position_embedding_type="rope", norm_type="layernorm", norm_placement="pre",
        gated_mlp=True, type_vocab_size=0, is_causal=False,
    )  # fmt: skip
    defaults = dict(add_pooling_layer=False, classifier_bias=True, scaled_output_init=True)
    has_bert_heads = False


class EuroBertArchitecture(Architecture):
    """EuroBERT (Boizard et al. 2025): a decoder's blocks, read in both directions. Keys and values
    that several heads share are repeated for each of them."""

    config_class = transformers.EuroBertConfig
    classes = class_names(
        "EuroBert", "Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification"
    )
    fields = field_names(
        "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size hidden_act"
        " max_position_embeddings initializer_range tie_word_embeddings attention_bias"
        " attention_dropout mlp_bias rope_parameters",
        rms_norm_eps="norm_eps",
    )
    switches = dict(
        position_embedding_type="rope", norm_type="rmsnorm", norm_placement="pre", gated_mlp=True,
        type_vocab_size=0,
        is_causal=False, embedding_norm=False, prediction_transform=False,
    )  # fmt: skip
    defaults = dict(
        global_attn_every_n_layers=1, classifier_bias=True, hidden_dropout=0.0,
        initializer_cutoff_factor=None,
        scaled_output_init=False, pooler_activation="gelu",
    )  # fmt: skip
    modules = (
        DECODER_PROJECTIONS
        | PRE_NORMS
        | {
            "model.embeddings.tok_embeddings": ("model.embed_tokens",),
            "model.final_norm": ("model.norm",),
            "model.pooler.dense": ("dense",),
            "decoder": ("lm_head",),
        }
    )
    poolings = {"bos": "cls", "mean": "mean"}

    def join(self, name: str, parts: list[torch.Tensor], native: PreTrainedConfig) -> torch.Tensor:
        num_groups = native.num_key_value_heads
        num_heads = native.num_attention_heads
        if ".attn.Wqkv." not in name or num_groups == num_heads:
            return super().join(name, parts, native)
        query, *shared_parts = parts
        repeated = [query]
        for part in shared_parts:
            groups = part.unflatten(0, (num_groups, -1))
            heads = groups.repeat_interleave(num_heads // num_groups, 0)
            repeated.append(heads.flatten(0, 1))
        return super().join(name, repeated, native)

    def split(
        self, name: str, tensor: torch.Tensor, parts: int, config: MiniBertConfig
    ) -> list[torch.Tensor]:
        native_parts = super().split(name, tensor, parts, config)
        num_groups = self._num_groups(config)
        if ".attn.Wqkv." not in name or num_groups == config.num_attention_heads:
            return native_parts
        query, *repeated_parts = native_parts
        shared = [query]
        for part in repeated_parts:
            heads = part.unflatten(0, (num_groups, config.num_attention_heads // num_groups, -1))
            first_heads = heads[:, :1]
            if not torch.equal(heads, first_heads.expand_as(heads)):
                raise ValueError(
                    f"num_key_value_heads={num_groups}: the heads of {name} no longer share their"
                    " keys and values, since they were trained; config.converted_rest=None gives"
                    " each its own"
                )
            shared.append(first_heads.flatten(0, 2))
        return shared

    def _num_groups(self, config: MiniBertConfig) -> int:
        return self.recorded_fields(config).get("num_key_value_heads") or config.num_attention_heads

    def minibert_fields(
        self, native: PreTrainedModel, head: str, fields: dict[str, Any]
    ) -> dict[str, Any]:
        pooling = native.config.classifier_pooling
        if head == "ForSequenceClassification" and pooling not in self.poolings:
            raise ValueError(
                f"classifier_pooling={pooling!r} is not convertible: MiniBERT pools before its"
                f" head; train with one of {', '.join(self.poolings)}"
            )
        return dict(
            decoder_bias=native.config.mlp_bias,
            add_pooling_layer=head != "Model",
            classifier_pooling=self.poolings.get(pooling, "mean"),
        )

    def native_fields(self, config: MiniBertConfig, head: str) -> dict[str, Any]:
        width = config.hidden_size // config.num_attention_heads
        fields = dict(head_dim=width, num_key_value_heads=self._num_groups(config))
        if head == "ForSequenceClassification":
            fields["classifier_pooling"] = "bos" if config.classifier_pooling == "cls" else "mean"
        return fields

    def required(self, model: PreTrainedModel, head: str) -> dict[str, Any]:
        required = super().required(model, head)
        if head == "ForSequenceClassification":
            required |= dict(pooler_activation="gelu")
        if head == "ForMaskedLM":
            required |= dict(decoder_bias=model.config.mlp_bias)
        return required


# The names of `ARCHITECTURES`, in the same order, written out for the command line.
ArchitectureName = Literal[
    "bert", "modernbert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra",
    "albert", "nomic_bert", "jina_embeddings_v3", "eurobert",
]  # fmt: skip
# By `model_type`, in the order in which `to_native` tries them for a model that was never
# converted.
ARCHITECTURES: dict[str, Architecture] = {
    architecture.config_class.model_type: architecture()
    for architecture in (
        BertArchitecture,
        ModernBertArchitecture,
        RobertaArchitecture,
        XLMRobertaArchitecture,
        CamembertArchitecture,
        DistilBertArchitecture,
        ElectraArchitecture,
        AlbertArchitecture,
        NomicBertArchitecture,
        JinaEmbeddingsV3Architecture,
        EuroBertArchitecture,
    )
}


def find_architecture(native_class: str, config: PreTrainedConfig) -> tuple[Architecture, str]:
    """The architecture and the head of a class of Transformers. A ValueError if it is not
    convertible."""
    for architecture in ARCHITECTURES.values():
        for head, name in architecture.classes.items():
            if name == native_class:
                return architecture, head
    if config.model_type in ARCHITECTURES:
        use = f"use one of {', '.join(ARCHITECTURES[config.model_type].classes.values())}"
    else:
        use = f"use a model of {', '.join(ARCHITECTURES)}"
    raise ValueError(f"{native_class} is not convertible; {use}")


def count_positions(config: PreTrainedConfig) -> int:
    """Tokens of the longest text for a MiniBERT, or for what `from_native` would make one of."""
    native = ARCHITECTURES.get(config.model_type)
    return native.positions(config) if native else config.max_position_embeddings
