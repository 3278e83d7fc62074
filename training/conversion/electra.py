"""ELECTRA."""

from typing import Any

from transformers import ElectraConfig, PreTrainedConfig, PreTrainedModel

from ...configuration_minibert import MiniBertConfig
from .architecture import CLASSIFIERS, class_names
from .bert import BertArchitecture


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
