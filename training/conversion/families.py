"""The architectures that become MiniBERTs, by the `model_type` of their configs."""

from transformers import PreTrainedConfig

from . import bert, distilbert, electra, eurobert, jina_embeddings_v3, modernbert, nomic_bert, roberta
from .architecture import Architecture

# In the order in which `to_native` tries them for a model that was never converted.
ARCHITECTURES: dict[str, Architecture] = {
    architecture.config_class.model_type: architecture()
    for architecture in (
        bert.BertArchitecture,
        modernbert.ModernBertArchitecture,
        roberta.RobertaArchitecture,
        roberta.XLMRobertaArchitecture,
        roberta.CamembertArchitecture,
        distilbert.DistilBertArchitecture,
        electra.ElectraArchitecture,
        nomic_bert.NomicBertArchitecture,
        jina_embeddings_v3.JinaEmbeddingsV3Architecture,
        eurobert.EuroBertArchitecture,
    )
}


def find_architecture(native_class: str, config: PreTrainedConfig) -> tuple[Architecture, str]:
    """The architecture and the head of a class of Transformers; a ValueError if it is not convertible."""
    for architecture in ARCHITECTURES.values():
        for head, name in architecture.classes.items():
            if name == native_class:
                return architecture, head
    if config.model_type in ARCHITECTURES:
        use = f"use one of {', '.join(ARCHITECTURES[config.model_type].classes.values())}"
    else:
        use = f"use a model of {', '.join(ARCHITECTURES)} (docs/convert-and-publish.md says why not others)"
    raise ValueError(f"{native_class} is not convertible; {use}")


def positions(config: PreTrainedConfig) -> int:
    """Tokens of the longest text for a MiniBERT, or for what `from_native` would make one of."""
    native = ARCHITECTURES.get(config.model_type)
    return native.positions(config) if native else config.max_position_embeddings
