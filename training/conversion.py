"""Weights both ways between MiniBERT and the architectures of Transformers that it spans: BERT and ModernBERT.

A conversion keeps every weight to the last bit, and so the outputs in evaluation; the labels, the special-token ids,
the dtype, the device and the mode. What it cannot keep is where units are dropped in training, and it says so:
ModernBERT's `mlp_dropout` acts inside the MLP and its `attention_dropout` behind the attention too; BERT has one rate
for embeddings and hidden states, and none before the answer to a question.
"""

from __future__ import annotations

import copy
import json
import re
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoTokenizer, BertConfig, ModernBertConfig, PreTrainedConfig, PreTrainedModel
from transformers.utils import cached_file, has_file, logging

from .. import modeling_minibert
from ..configuration_minibert import MiniBertConfig
from .arguments.pretraining import ConvertArguments

logger = logging.get_logger(__name__)

SPECIAL_IDS = tuple(f"{name}_token_id" for name in ("pad", "unk", "cls", "sep", "mask", "bos", "eos"))
# What sentence-transformers writes into the config of a cross-encoder: how scores are made of logits.
CARRIED_IF_THERE = ("sentence_transformers", "sbert_ce_default_activation_function")

CLASSIFIERS = ("ForSequenceClassification", "ForMultipleChoice", "ForTokenClassification", "ForQuestionAnswering")
POOLED = ("ForPreTraining", "ForNextSentencePrediction", "ForSequenceClassification", "ForMultipleChoice")


class Architecture:
    """One architecture of Transformers. A further one is a subclass with these attributes, added to `ARCHITECTURES`,
    and what it must do otherwise of the methods."""

    config_class: type[PreTrainedConfig]
    classes: dict[str, str]  # MiniBERT's head (its class name without prefix) → the native class
    fields: dict[str, str]  # native config field → MiniBERT's of the same meaning
    switches: dict[str, Any]  # the values that make a MiniBERT of this kind
    defaults: dict[str, Any]  # what one is given beside, which the way back does not need
    # MiniBERT's module (behind its head, if it is another one there) → the native one, or those whose rows it stacks, N
    # for the number of a layer; one that is not named here has the same name
    modules: dict[str, tuple[str, ...]] = {}

    def native_names(self, name: str, head: str) -> list[str]:
        """The native names for the parts of the MiniBERT parameter `name`, in the order of their rows."""
        module, _, kind = name.rpartition(".")
        layer = re.search(r"\.\d+\.", module)
        number = layer[0] if layer else ".N."
        key = module.replace(number, ".N.")
        natives = self.modules.get(f"{head}.{key}") or self.modules.get(key, (key,))
        return [f"{native.replace('.N.', number)}.{kind}" for native in natives]

    def minibert_fields(self, native: PreTrainedModel, head: str) -> dict[str, Any]:
        """What a MiniBERT of this model has otherwise than the tables say; a ValueError for a function that MiniBERT
        lacks."""
        return {}

    def native_fields(self, config: MiniBertConfig, head: str) -> dict[str, Any]:
        """What the native config has otherwise than the tables say."""
        return {}

    def required(self, model: PreTrainedModel, head: str) -> dict[str, Any]:
        """The values without which a MiniBERT of this head is none of this architecture."""
        return self.switches


def _field_names(same: str, **renamed: str) -> dict[str, str]:
    """Native field → MiniBERT's; the `same` names are joined by those of every config that belong to the model."""
    return {name: name for name in (*same.split(), "id2label", "label2id", "problem_type", "dtype")} | renamed


class BertArchitecture(Architecture):
    """BERT (Devlin et al. 2018) as `transformers.Bert*` spells it."""

    config_class = BertConfig
    classes = {
        head: f"Bert{head}"
        for head in ("Model", *POOLED, "ForMaskedLM", "ForTokenClassification", "ForQuestionAnswering")
    } | {"ForCausalLM": "BertLMHeadModel"}
    fields = _field_names(
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
        "model.embeddings.tok_embeddings": ("bert.embeddings.word_embeddings",),
        "model.embeddings.position_embeddings": ("bert.embeddings.position_embeddings",),
        "model.embeddings.token_type_embeddings": ("bert.embeddings.token_type_embeddings",),
        "model.embeddings.norm": ("bert.embeddings.LayerNorm",),
        "model.layers.N.attn.Wqkv": tuple(
            f"bert.encoder.layer.N.attention.self.{x}" for x in ("query", "key", "value")
        ),
        "model.layers.N.attn.Wo": ("bert.encoder.layer.N.attention.output.dense",),
        "model.layers.N.attn_norm": ("bert.encoder.layer.N.attention.output.LayerNorm",),
        "model.layers.N.mlp.Wi": ("bert.encoder.layer.N.intermediate.dense",),
        "model.layers.N.mlp.act": ("bert.encoder.layer.N.intermediate.intermediate_act_fn",),
        "model.layers.N.mlp.Wo": ("bert.encoder.layer.N.output.dense",),
        "model.layers.N.mlp_norm": ("bert.encoder.layer.N.output.LayerNorm",),
        "model.pooler.dense": ("bert.pooler.dense",),
        "head.dense": ("cls.predictions.transform.dense",),
        "head.act": ("cls.predictions.transform.transform_act_fn",),
        "head.norm": ("cls.predictions.transform.LayerNorm",),
        "decoder": ("cls.predictions.decoder",),
        "seq_relationship": ("cls.seq_relationship",),
        "ForQuestionAnswering.classifier": ("qa_outputs",),
    }

    def minibert_fields(self, native: PreTrainedModel, head: str) -> dict[str, Any]:
        config, pooled = native.config, getattr(native, "bert", native).pooler is not None
        if config.add_cross_attention:
            raise ValueError("add_cross_attention=True is not convertible: MiniBERT has no cross-attention")
        if head == "ForCausalLM" and not config.is_decoder:
            raise ValueError("is_decoder=False makes a BertLMHeadModel an encoder: load it as BertForMaskedLM")
        if pooled and config.is_decoder:
            refused = f"is_decoder=True is not convertible for a {type(native).__name__} with a pooler"
            raise ValueError(f"{refused}: BERT pools the first token, a causal MiniBERT the last")
        fields = dict(add_pooling_layer=pooled or head != "Model", classifier_activation=config.hidden_act)
        # BERT drops nothing before the answer to a question
        return fields | (dict(classifier_dropout=0.0) if head == "ForQuestionAnswering" else {})

    def native_fields(self, config: MiniBertConfig, head: str) -> dict[str, Any]:
        hidden, classifier = config.hidden_dropout, config.classifier_dropout
        if (rate := config.embedding_dropout) not in (None, hidden):
            logger.warning(f"BERT drops embeddings at hidden_dropout_prob={hidden}: embedding_dropout={rate} is lost")
        if head == "ForQuestionAnswering" and (hidden if classifier is None else classifier):
            logger.warning(f"BERT drops nothing before the answer: classifier_dropout={classifier} has no effect")
        return {}

    def required(self, model: PreTrainedModel, head: str) -> dict[str, Any]:
        config = model.config
        layers = ["full_attention"] * config.num_hidden_layers
        required = self.switches | dict(layer_types=layers, type_vocab_size=config.type_vocab_size or 2)
        if head in ("ForMaskedLM", "ForPreTraining", "ForCausalLM"):
            required |= dict(classifier_activation=config.hidden_act)
        if head in CLASSIFIERS:
            required |= dict(add_pooling_layer=True)
        if head in POOLED or (head == "Model" and model.pooler is not None):
            required |= dict(classifier_pooling="cls", is_causal=False)
        return required


class ModernBertArchitecture(Architecture):
    """ModernBERT (Warner et al. 2024) as `transformers.ModernBert*` spells it. Every parameter has the same name."""

    config_class = ModernBertConfig
    classes = {head: f"ModernBert{head}" for head in ("Model", "ForMaskedLM", *CLASSIFIERS)}
    fields = _field_names(
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

    def minibert_fields(self, native: PreTrainedModel, head: str) -> dict[str, Any]:
        self._warn_of_dropout(native.config.mlp_dropout, native.config.attention_dropout)
        return {}

    def native_fields(self, config: MiniBertConfig, head: str) -> dict[str, Any]:
        hidden, cutoff = config.hidden_dropout, config.initializer_cutoff_factor
        cutoff = ModernBertConfig().initializer_cutoff_factor if cutoff is None else cutoff
        self._warn_of_dropout(hidden, config.attention_dropout)
        return dict(
            embedding_dropout=hidden if config.embedding_dropout is None else config.embedding_dropout,
            classifier_dropout=hidden if config.classifier_dropout is None else config.classifier_dropout,
            initializer_cutoff_factor=float(cutoff),
        )

    def required(self, model: PreTrainedModel, head: str) -> dict[str, Any]:
        return self.switches | (dict(add_pooling_layer=False) if head in (*CLASSIFIERS, "Model") else {})

    @staticmethod
    def _warn_of_dropout(hidden: float, attention: float) -> None:
        if hidden or attention:
            logger.warning(
                "units are dropped in other places in training (evaluation is the same): ModernBERT's "
                f"mlp_dropout={hidden} acts before the MLP's last projection and its attention_dropout={attention} "
                f"behind the attention too, MiniBERT's hidden_dropout={hidden} behind both"
            )


ARCHITECTURES = {"bert": BertArchitecture(), "modernbert": ModernBertArchitecture()}


def from_native(model_or_path: PreTrainedModel | str | Path) -> PreTrainedModel:
    """Make a MiniBERT of a BERT or ModernBERT of Transformers, with the same head and the same outputs.

    Where padding comes before a token, BERT and ModernBERT count columns and MiniBERT counts real tokens: the outputs
    agree when all padding is on the right, or when the native model is handed positions that count real tokens.

    Args:
        model_or_path: a model, or the folder or Hub name of one whose config names its class. No remote code is run.

    Returns:
        The MiniBERT class of the same head, with its own copy of the weights, in the dtype, on the device and in the
        mode (training or evaluation) of the original. `config.converted_from` names the architecture.

    Raises:
        ValueError: a class that is not convertible, a checkpoint that lacks weights, a switch that MiniBERT lacks.
        huggingface_hub.errors.StrictDataclassError: a value that MiniBertConfig refuses.
    """
    native = model_or_path if isinstance(model_or_path, PreTrainedModel) else _load(model_or_path, transformers)
    kinds = {of_head: (each, head) for each in ARCHITECTURES.values() for head, of_head in each.classes.items()}
    if type(native).__name__ not in kinds:
        raise ValueError(f"{type(native).__name__} is not convertible; use one of {', '.join(kinds)}")
    architecture, head = kinds[type(native).__name__]
    fields = {ours: getattr(native.config, name) for name, ours in architecture.fields.items()}
    fields |= {name: getattr(native.config, name, None) for name in SPECIAL_IDS}
    fields |= architecture.switches | architecture.defaults | architecture.minibert_fields(native, head)
    config = MiniBertConfig(**copy.deepcopy(fields))
    config.converted_from = architecture.config_class.model_type
    _carry_if_there(native.config, config)
    model = getattr(modeling_minibert, f"MiniBert{head}")(config)

    weights = _weights(native)
    names = {name: architecture.native_names(name, head) for name in _weights(model)}
    _fill(model, {name: torch.cat([weights[part] for part in parts]) for name, parts in names.items()}, native)
    return model


def to_native(model: PreTrainedModel, architecture: str | None = None) -> PreTrainedModel:
    """Make a Transformers BERT or ModernBERT of a MiniBERT: the class of the same head with the same outputs, its own
    copy of the weights, in the same dtype, device and mode. A bias that only the native class has is written as zeros.

    Args:
        architecture: "bert" or "modernbert"; None: the one recorded when the model was converted, else the one that
            its switches allow.

    Raises:
        ValueError: no such architecture, no such head there, or switches that it does not have: all of them are named.
    """
    config, head = model.config, type(model).__name__.removeprefix("MiniBert")
    if not isinstance(config, MiniBertConfig):
        raise ValueError(f"model is a {type(model).__name__}, not a MiniBERT model")
    recorded = architecture or config.converted_from
    if recorded is not None and recorded not in ARCHITECTURES:
        raise ValueError(f"architecture={recorded!r} is unknown; use {' or '.join(ARCHITECTURES)}")
    obstacles = {name: _obstacles(name, model, head) for name in ([recorded] if recorded else ARCHITECTURES)}
    target = next((ARCHITECTURES[name] for name, found in obstacles.items() if not found), None)
    if target is None:
        reasons = "; ".join(f"{name} needs {', '.join(found)}" for name, found in obstacles.items())
        raise ValueError(f"this {type(model).__name__} cannot become a native model: {reasons}")

    fields = {name: getattr(config, ours) for name, ours in target.fields.items()}
    if head == "ForQuestionAnswering" and config.num_labels != 2:  # a start and an end, whatever the labels say
        del fields["id2label"], fields["label2id"]
    # An id that the native config does not declare is only written where there is one.
    ids = {name: getattr(config, name) for name in SPECIAL_IDS}
    fields |= {name: i for name, i in ids.items() if i is not None or hasattr(target.config_class(), name)}
    native_config = target.config_class(**copy.deepcopy(fields | target.native_fields(config, head)))
    _carry_if_there(config, native_config)
    native_class = getattr(transformers, target.classes[head])
    options = (
        {"add_pooling_layer": model.pooler is not None} if native_class is transformers.BertModel else {}
    )  # no config field
    native = native_class(native_config, **options)

    converted = {}
    for name, tensor in _weights(model).items():
        parts = target.native_names(name, head)
        converted |= {part: rows.clone() for part, rows in zip(parts, tensor.chunk(len(parts)))}
    for name, tensor in _weights(native).items():
        if name == "cls.predictions.bias" and "cls.predictions.decoder.bias" in converted:  # two names of one bias
            converted[name] = converted["cls.predictions.decoder.bias"].clone()
        elif name.endswith(".bias") and name not in converted:
            converted[name] = torch.zeros_like(tensor, dtype=model.dtype, device=model.device)
    _fill(native, converted, model)
    return native


def convert(arguments: ConvertArguments) -> Path:
    """Convert a saved model, BERT or ModernBERT to MiniBERT, MiniBERT to either, and return its folder. Its tokenizer
    goes along, and so do the files of sentence-transformers, which say how an embedding model pools.

    Raises:
        ValueError: not two paths, a target that holds something, an architecture for the way to MiniBERT; and whatever
            `from_native` and `to_native` refuse.
    """
    if len(arguments.paths) != 2:
        raise ValueError(f"paths: {len(arguments.paths)} given; give a source and a target")
    source, target = arguments.paths
    if Path(target).exists() and not (Path(target).is_dir() and not any(Path(target).iterdir())):
        raise ValueError(f"target {target!r} exists already: nothing is overwritten, give a new folder")
    if AutoConfig.from_pretrained(source, trust_remote_code=False).model_type == MiniBertConfig.model_type:
        model = to_native(_load(source, modeling_minibert), arguments.architecture)
    elif arguments.architecture:
        raise ValueError(f"architecture={arguments.architecture!r} is for a MiniBERT source; {source!r} is none")
    else:
        model = from_native(source)
    model.save_pretrained(target)
    if has_file(source, "tokenizer_config.json"):
        AutoTokenizer.from_pretrained(source, trust_remote_code=False).save_pretrained(target)
    _copy_modules(source, target)
    print(f"{source} → {target}: {type(model).__name__}, {model.num_parameters():,} parameters")
    return Path(target)


def _copy_modules(source: str, target: str) -> None:
    """Copy what `SentenceTransformer(source)` reads beside the model and the tokenizer, so that it reads `target`."""
    if not has_file(source, "modules.json"):
        return
    modules = json.loads(Path(cached_file(source, "modules.json")).read_text(encoding="utf-8"))
    names = ["modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"]
    for module in modules[1:]:  # the first one is the model
        names += [f"{module['path']}/{name}" for name in ("config.json", "model.safetensors")]
    for name in names:
        if has_file(source, name):
            Path(target, name).parent.mkdir(exist_ok=True)
            shutil.copyfile(cached_file(source, name), Path(target, name))


def _load(path: str | Path, module: ModuleType) -> PreTrainedModel:
    """Load a checkpoint with the class of `module` that its config names; a ValueError if it names none or several, or
    one that `module` lacks, or if weights of it are missing."""
    names = AutoConfig.from_pretrained(path, trust_remote_code=False).architectures or []
    if len(names) != 1:
        raise ValueError(f"{path}: its config names the classes {names}; load the right one and pass the model")
    model_class = getattr(module, names[0], None)
    if model_class is None:
        raise ValueError(f"{path}: its config names the class {names[0]}, which {module.__name__} does not have")
    model, report = model_class.from_pretrained(path, output_loading_info=True)
    missing = sorted(report["missing_keys"])
    if missing and all(key.startswith("pooler.") for key in missing):
        return model_class.from_pretrained(path, add_pooling_layer=False)
    if missing:
        raise ValueError(f"{path} lacks weights of {names[0]}: {', '.join(missing)}")
    return model


def _carry_if_there(config: PreTrainedConfig, to: PreTrainedConfig) -> None:
    for name in CARRIED_IF_THERE:
        if hasattr(config, name):  # afterwards: MiniBertConfig refuses keywords that it does not know
            setattr(to, name, getattr(config, name))


def _obstacles(architecture: str, model: PreTrainedModel, head: str) -> list[str]:
    """What the architecture needs and this model does not have."""
    if head not in ARCHITECTURES[architecture].classes:
        return [f"another class: it has none for {head}"]
    return [
        f"{name}={value!r} (it is {getattr(model.config, name)!r})"
        for name, value in ARCHITECTURES[architecture].required(model, head).items()
        if getattr(model.config, name) != value
    ]


def _weights(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """All weights, tied ones under each of their names, under the names that a model with a head gives them."""
    return {_prefix(model) + name: tensor for name, tensor in model.state_dict().items()}


def _fill(model: PreTrainedModel, weights: dict[str, torch.Tensor], like: PreTrainedModel) -> None:
    """Put `weights` into `model`, each with its own dtype, and take the device and the mode of `like`."""
    model.load_state_dict({name.removeprefix(_prefix(model)): tensor for name, tensor in weights.items()}, assign=True)
    model.tie_weights()
    model.to(like.device).train(like.training)


def _prefix(model: PreTrainedModel) -> str:
    """What a base model's own names lack."""
    return "" if hasattr(model, model.base_model_prefix) else f"{model.base_model_prefix}."
