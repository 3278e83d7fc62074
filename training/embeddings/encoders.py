"""Opens the models of search, which are classes of sentence-transformers: `open_encoder` (texts →
vectors) and `open_reranker` (pairs of texts → scores). `inference` runs them.

What they hold is a MiniBERT, which drops the padding of a batch itself. The files of
sentence-transformers beside a model say how it pools, whether it normalises, where it cuts texts
off and which prompt it puts before them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch

from ...configuration_minibert import MiniBertConfig
from ..common.precision import dtype_of_saved
from ..loading.models import load_sentence_transformer, minibert_config
from ..loading.saved_files import read_json
from ..loading.weights import check_weights
from .inference import encode, score_pairs  # noqa: F401 (where programs look for them)

# Importing sentence-transformers takes seconds, which the help of a command need not take.
if TYPE_CHECKING:
    from sentence_transformers import (
        CrossEncoder,
        MultiVectorEncoder,
        SentenceTransformer,
        SparseEncoder,
    )

# Heads that are trained on text alone, so that what they leave in the encoder can stand for a text.
TEXT_HEADS = (
    "MaskedLM",
    "PreTraining",
    "NextSentencePrediction",
    "CausalLM",
    "ReplacedTokenDetection",
)
TEXT_MODELS = ("MiniBertModel", *(f"MiniBertFor{head}" for head in TEXT_HEADS))
SPARSE_ARCHITECTURE = "MiniBertForMaskedLM"
RERANKER_ARCHITECTURE = "MiniBertForSequenceClassification"
# The classes of sentence-transformers: one vector of a text; one as wide as the vocabulary, mostly
# zero (SPLADE); one of every token (ColBERT).
ENCODER_CLASSES = {
    "dense": "SentenceTransformer",
    "sparse": "SparseEncoder",
    "multi-vector": "MultiVectorEncoder",
}
EncoderType = Literal["dense", "sparse", "multi-vector"]
PoolingName = Literal["mean", "cls"]
DtypeName = Literal["float32", "bfloat16"]


def __getattr__(name: str) -> Any:
    """`embed` was here in earlier versions."""
    if name == "embed":
        from .embed import embed

        return embed
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# --- checks before a model is opened ---


def check_encoder(path: str, max_length: int | None = None) -> MiniBertConfig:
    """The config of a MiniBERT that vectors of text can be taken from; a ValueError if it is none,
    or takes no texts of `max_length` tokens."""
    config = minibert_config(path)
    architecture = architecture_of(config)
    if architecture not in TEXT_MODELS:
        raise ValueError(
            f"model: {path!r} holds a {architecture}; use one of {', '.join(TEXT_MODELS)}"
        )
    _check_max_length(config, max_length)
    return config


def check_reranker(path: str, max_length: int | None = None) -> MiniBertConfig:
    """The config of a MiniBERT that scores pairs by one logit; a ValueError if it is none, or takes
    no pairs of `max_length` tokens."""
    config = minibert_config(path)
    architecture = architecture_of(config)
    if architecture != RERANKER_ARCHITECTURE or config.num_labels != 1:
        raise ValueError(
            f"model: {path!r} holds a {architecture}; a reranker is a {RERANKER_ARCHITECTURE} with"
            " one label"
        )
    _check_max_length(config, max_length)
    return config


def architecture_of(config: MiniBertConfig) -> str:
    """The class that a model was saved by; a config without one is that of an encoder."""
    return (config.architectures or ["MiniBertModel"])[0]


def _check_max_length(config: MiniBertConfig, max_length: int | None) -> None:
    longest = config.max_position_embeddings
    if max_length is not None and not 3 <= max_length <= longest:
        raise ValueError(
            f"max_length: {max_length} is out of range; use 3 up to {longest}, which the model"
            " takes"
        )


def saved_encoder_type(path: str) -> str:
    """The type that sentence-transformers saved a model as; dense if it did not."""
    settings = read_json(path, "config_sentence_transformers.json")
    if isinstance(settings, dict):
        for encoder_type, class_name in ENCODER_CLASSES.items():
            if settings.get("model_type") == class_name:
                return encoder_type
    return "dense"


def _choose_encoder_type(
    path: str, config: MiniBertConfig, encoder_type: str | None, pooling: PoolingName | None
) -> str:
    """The type to open a model as: `encoder_type`, or else that which it was saved as. With a
    `pooling`, which gives one vector of a text, any model can be dense. A ValueError where the
    model does not fit the type."""
    saved_type = saved_encoder_type(path)
    if encoder_type is None:
        encoder_type = "dense" if pooling else saved_type
    if saved_type not in ("dense", encoder_type) and not pooling:
        raise ValueError(
            f"model: {path!r} makes {saved_type} vectors, not {encoder_type} ones; use another"
            " model, or a pooling"
        )
    if encoder_type == "sparse" and architecture_of(config) != SPARSE_ARCHITECTURE:
        raise ValueError(
            f"kind: sparse vectors are made by a masked-LM head, which {path!r} lacks; use a model"
            " as it was pretrained, before fine-tuning"
        )
    return encoder_type


# --- opening ---


def open_encoder(
    path: str,
    encoder_type: str | None = None,
    pooling: PoolingName | None = None,
    normalize: bool | None = None,
    max_length: int | None = None,
    dtype: str | None = None,
) -> SentenceTransformer | SparseEncoder | MultiVectorEncoder:
    """Load a MiniBERT, perhaps with the files of sentence-transformers. By default it is of the
    `encoder_type` that it was saved as (with a `pooling`, dense); a ValueError for another type or
    another task's head. The other arguments are those of `embed`."""
    import sentence_transformers
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

    config = check_encoder(path, max_length)
    encoder_type = _choose_encoder_type(path, config, encoder_type, pooling)
    encoder_class = getattr(sentence_transformers, ENCODER_CLASSES[encoder_type])
    model_kwargs = {"dtype": dtype or dtype_of_saved(config)}
    model = load_sentence_transformer(encoder_class, path, model_kwargs=model_kwargs)
    check_weights(path, model.transformers_model)
    model.max_seq_length = max_length or min(model.max_seq_length, config.max_position_embeddings)
    if pooling is not None:
        _remove_modules(model, Pooling)
        model.insert(1, Pooling(config.hidden_size, pooling))
    if normalize is not None:
        _remove_modules(model, Normalize)
    if normalize:
        model.append(Normalize())
    return model


def _remove_modules(model: SentenceTransformer, module_class: type[torch.nn.Module]) -> None:
    for index in reversed(range(len(model))):
        if isinstance(model[index], module_class):
            del model[index]


def open_reranker(path: str) -> CrossEncoder:
    """A cross-encoder: how well a passage answers a query, from reading both at once; a ValueError
    if it is none."""
    from sentence_transformers import CrossEncoder

    config = check_reranker(path)
    model_kwargs = {"dtype": dtype_of_saved(config)}
    model = load_sentence_transformer(CrossEncoder, path, model_kwargs=model_kwargs)
    check_weights(path, model.transformers_model)
    model.max_seq_length = min(model.max_seq_length, config.max_position_embeddings)
    return model
