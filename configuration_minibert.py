# Copyright 2026 The MiniBERT authors. Licensed under the Apache License, Version 2.0.
"""The configuration of every MiniBERT model: one flat set of switches, from BERT to ModernBERT, and its presets.

Sources: BERT (Devlin et al. 2018, arXiv 1810.04805), Google's BERT miniatures (Turc et al. 2019, arXiv 1908.08962),
ModernBERT (Warner et al. 2024, arXiv 2412.13663), Ettin (Weller et al. 2025, arXiv 2507.11412).
"""

import difflib
import math
from dataclasses import fields
from typing import Any, Literal

from transformers.activations import ACT2FN
from transformers.configuration_utils import PreTrainedConfig, strict
from transformers.utils import logging

logger = logging.get_logger(__name__)

# The class that each Auto class loads from a folder or Hub repository with these files. Every saved config has this
# map, so that any Auto class works whichever head was saved.
AUTO_MAP = {"AutoConfig": "configuration_minibert.MiniBertConfig", "AutoModel": "modeling_minibert.MiniBertModel"} | {
    f"AutoModel{head}": f"modeling_minibert.MiniBert{head}"
    for head in (
        "ForPreTraining", "ForMaskedLM", "ForCausalLM", "ForNextSentencePrediction", "ForSequenceClassification",
        "ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice",
    )
}  # fmt: skip

# Keywords that are not fields but that Transformers itself passes to the constructor of a config.
FRAMEWORK_KEYWORDS = {
    "model_type", "auto_map", "num_labels", "torch_dtype", "name_or_path", "_name_or_path", "output_attentions",
    "attn_implementation", "experts_implementation", "tie_last_hidden_states", "quantization_config", "sliding_window",
    "use_cache", "add_cross_attention", "per_layer_config", "_commit_hash",
}  # fmt: skip

SPECIAL_IDS = tuple(
    f"{name}_token_id" for name in ("pad", "unk", "cls", "sep", "mask", "bos", "eos")
)

# The largest numbers of layers and labels: a config has a list, or a dictionary, of as many entries.
MAX_LAYERS, MAX_LABELS = 10_000, 1_000_000
# The smallest values of whole numbers. A window of 2 is one neighbour on each side.
SMALLEST = {
    "vocab_size": 1, "hidden_size": 1, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 1,
    "max_position_embeddings": 1, "global_attn_every_n_layers": 1, "local_attention": 2, "type_vocab_size": 0,
}  # fmt: skip

DEFAULT_ROPE_THETA = {"full_attention": 160_000.0, "sliding_attention": 10_000.0}
# The required and the optional parameters of each type of RoPE scaling, besides rope_theta and partial_rotary_factor,
# as Transformers' ROPE_INIT_FUNCTIONS name them.
ROPE_KEYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "default": ((), ()), "linear": (("factor",), ()), "dynamic": (("factor",), ()),
    "yarn": (("factor", "original_max_position_embeddings"),
             ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate")),
    "longrope": (("short_factor", "long_factor", "original_max_position_embeddings"), ("factor", "attention_factor")),
    "llama3": (("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"), ()),
}  # fmt: skip

# hidden_size, num_hidden_layers, num_attention_heads, intermediate_size
BERT_SIZES = {
    "tiny": (128, 2, 2, 512),
    "mini": (256, 4, 4, 1024),
    "small": (512, 4, 8, 2048),
    "medium": (512, 8, 8, 2048),
    "base": (768, 12, 12, 3072),
    "large": (1024, 24, 16, 4096),
}
MODERNBERT_SIZES = {
    "tiny": (128, 4, 2, 192),  # our own; mini, small and medium are Ettin's 17M, 32M and 68M
    "mini": (256, 7, 4, 384),
    "small": (384, 10, 6, 576),
    "medium": (512, 19, 8, 768),
    "base": (768, 22, 12, 1152),
    "large": (1024, 28, 16, 2624),
}


def require(condition: bool, name: str, value: Any, instead: str) -> None:
    if not condition:
        raise ValueError(f"{name}={value!r}: {instead}")


def tokenizer_fields(tokenizer) -> dict[str, int | None]:
    """The fields that a tokenizer decides: its size, rounded up to a multiple of 64, and the ids of special tokens."""
    size = -(-vocabulary_size(tokenizer) // 64) * 64
    return {"vocab_size": size} | {name: getattr(tokenizer, name, None) for name in SPECIAL_IDS}


def vocabulary_size(tokenizer) -> int:
    """The rows of the embedding that a tokenizer needs: its highest id plus 1. (Ids may have gaps.)"""
    return max(tokenizer.get_vocab().values(), default=-1) + 1


def attention_pattern(depth: int, every: int) -> list[str]:
    """The `layer_types` of `depth` layers, of which layer i attends globally if i % every == 0."""
    return ["sliding_attention" if i % max(every, 1) else "full_attention" for i in range(depth)]


@strict
class MiniBertConfig(PreTrainedConfig):
    """Configuration of every MiniBERT model. The defaults are those of ModernBERT-base.

    All arguments are keywords. Unknown keywords are refused. `from_pretrained` keeps unknown keys of a saved config
    with a warning instead, since other libraries and newer versions write them.

    Raises:
        ValueError: an unknown keyword, with the nearest names.
        huggingface_hub.errors.StrictDataclassError: a value of the wrong type, or an impossible combination.
    """

    model_type = "minibert"
    # The names of these fields in the configs of BERT and ModernBERT.
    attribute_map = {
        "hidden_dropout_prob": "hidden_dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "layer_norm_eps": "norm_eps",
        "hidden_activation": "hidden_act",
        "is_decoder": "is_causal",
    }
    use_cache = False  # scripts for decoders set it; there is no cache
    keys_to_ignore_at_inference = [
        "mlm_loss",
        "nsp_loss",
    ]  # outputs that are not predictions, for `Trainer`

    # --- shape ---
    vocab_size: int = 50368  # rows of the embedding; a multiple of 64 is fastest
    hidden_size: int = 768  # width; a multiple of num_attention_heads
    num_hidden_layers: int = 22
    num_attention_heads: int = 12  # with RoPE, hidden_size / num_attention_heads must be even
    intermediate_size: int = (
        1152  # width of the MLP after its activation; twice as much goes in when gated
    )
    max_position_embeddings: int = (
        8192  # rows of the position table (absolute), or the length trained for
    )
    embedding_size: int | None = (
        None  # width of the embeddings, projected after their norm; None: as hidden_size
    )
    type_vocab_size: int = 0  # number of segments; 0: token_type_ids are accepted and ignored

    # --- block ---
    hidden_act: str = "gelu"  # any activation of Transformers
    gated_mlp: bool = True  # GLU variants (Shazeer 2020): Wo(act(a) * b) instead of Wo(act(a))
    norm_type: Literal["layernorm", "rmsnorm"] = "layernorm"
    norm_placement: Literal["pre", "post"] = "pre"  # pre: with a final norm
    embedding_norm: bool = True  # the embeddings end in a norm, and the first attention has none
    norm_eps: float = 1e-5
    norm_bias: bool = False  # bias of the layer norms; RMSNorm has none
    attention_bias: bool = False  # biases of the attention's projections
    mlp_bias: bool = False  # biases of the MLP's projections

    # --- positions ---
    position_embedding_type: Literal["absolute", "sinusoidal", "rope", "none"] = "rope"
    # {"full_attention": {"rope_type": "default", "rope_theta": float}, "sliding_attention": {…}}; None: 160000, 10000.
    # Parameters outside the two dictionaries hold for both. Other types: linear, dynamic, yarn, longrope, llama3.
    rope_parameters: dict[str, Any] | None = None

    # --- attention pattern ---
    # Layer i attends globally if i % n == 0; 1: every layer does.
    global_attn_every_n_layers: int = 3
    layer_types: list[str] | None = (
        None  # "full_attention" or "sliding_attention" for each layer; None: as above
    )
    local_attention: int = (
        128  # window of the local layers: token i sees token j if |i - j| <= local_attention // 2
    )
    is_causal: bool = False  # a decoder of the same parameters: token i sees j only if j <= i

    # --- heads ---
    # True: BERT's heads (a pooler for sequence tasks, one linear for token tasks).
    # False: ModernBERT's (dense, activation, norm before the classifier everywhere).
    add_pooling_layer: bool = False
    pooler_activation: str = "tanh"  # relu: DistilBERT's, gelu: ELECTRA's
    classifier_pooling: Literal["cls", "mean"] = (
        "mean"  # cls: the first real token; ignored with is_causal (the last)
    )
    classifier_activation: str = "gelu"  # activation of the prediction head (MLM head included)
    head_bias: bool = False  # bias of the prediction head's dense layer
    prediction_transform: bool = (
        True  # dense, activation, norm before the vocabulary; False: nothing (EuroBERT)
    )
    decoder_bias: bool = True  # bias over the vocabulary
    classifier_bias: bool = (
        False  # of the last linear of classification heads (ModernBERT's name for `head_bias`)
    )
    tie_word_embeddings: bool = True  # the decoder's weight is the word embedding

    # --- regularisation, initialisation ---
    hidden_dropout: float | int = 0.0  # after attention, after the MLP
    embedding_dropout: float | int | None = None  # None: as hidden_dropout
    attention_dropout: float | int = 0.0  # on the attention probabilities
    classifier_dropout: float | int | None = None  # before the classifier; None: as hidden_dropout
    initializer_range: float = 0.02
    initializer_cutoff_factor: float | int | None = (
        2.0  # truncate the normal at this many deviations; None: never
    )
    scaled_output_init: bool = (
        True  # std / sqrt(2 * num_hidden_layers) for projections into the residual stream
    )

    # --- special tokens; None: the vocabulary has none ---
    pad_token_id: int | None = 0
    unk_token_id: int | None = None
    cls_token_id: int | None = None
    sep_token_id: int | None = None
    mask_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None

    # Of a trained classifier: predict each label whose probability is above its threshold (chosen on validation rows).
    thresholds: list[float] | None = None

    converted_from: str | None = (
        None  # model_type of the architecture that the weights were converted from
    )
    converted_rest: dict[str, Any] | None = (
        None  # its settings that MiniBERT lacks, for the conversion back
    )

    def __post_init__(self, **kwargs):
        known = {field.name for field in fields(self)} | set(self.attribute_map)
        for name, value in kwargs.items():
            if name not in known and name not in FRAMEWORK_KEYWORDS:
                near = difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.5)
                hint = (
                    f"did you mean {' or '.join(near)}?"
                    if near
                    else f"use one of {', '.join(sorted(known))}"
                )
                raise ValueError(f"MiniBertConfig has no field {name!r} (value {value!r}); {hint}")
        depth = self.num_hidden_layers
        require(depth <= MAX_LAYERS, "num_hidden_layers", depth, f"it must be at most {MAX_LAYERS}")
        if self.layer_types is None:
            self.layer_types = attention_pattern(
                self.num_hidden_layers, self.global_attn_every_n_layers
            )
        super().__post_init__(**kwargs)

    def __setattr__(self, name: str, value: Any):
        """Set a field. `layer_types` that follow the depth and the pattern of global layers change with them."""
        if name == "num_labels" and isinstance(value, int):
            require(0 <= value <= MAX_LABELS, name, value, f"use a number from 0 to {MAX_LABELS}")
        follow = False
        if (
            name in ("num_hidden_layers", "global_attn_every_n_layers")
            and "layer_types" in self.__dict__
        ):
            now = attention_pattern(self.num_hidden_layers, self.global_attn_every_n_layers)
            follow = self.layer_types == now and value in range(1, MAX_LAYERS + 1)
        super().__setattr__(name, value)
        if follow:
            self.layer_types = attention_pattern(
                self.num_hidden_layers, self.global_attn_every_n_layers
            )

    def convert_rope_params_to_dict(self, **kwargs) -> dict[str, Any]:
        """Complete `rope_parameters`: the default bases, and parameters for both kinds of layers. (Transformers calls
        this while a config is built. The base class would give RoPE parameters to models without RoPE too.)"""
        if self.position_embedding_type == "rope":
            rope = self.rope_parameters or {}
            by_type = {
                name: x or {}
                for name, x in rope.items()
                if isinstance(x, dict) or name in DEFAULT_ROPE_THETA
            }
            for_both = {name: value for name, value in rope.items() if name not in by_type}
            for layer_type, theta in DEFAULT_ROPE_THETA.items():
                parameters = (
                    {"rope_type": "default", "rope_theta": theta}
                    | by_type.get(layer_type, {})
                    | for_both
                )
                length = "original_max_position_embeddings"  # only some types of scaling use it
                required = ROPE_KEYS.get(parameters["rope_type"], ((length,),))[0]
                if length in required:
                    parameters.setdefault(length, self.max_position_embeddings)
                by_type[layer_type] = {
                    k: value for k, value in parameters.items() if k != length or length in required
                }
            self.rope_parameters = by_type
        return kwargs

    def validate_architecture(self):
        """Refuse impossible values. This runs when a config is built and when it is saved."""

        def check(field: str, condition: bool, instead: str):
            require(condition, field, getattr(self, field, None), instead)

        has_cross_attention = getattr(
            self, "add_cross_attention", False
        )  # not a field, but some code sets it
        check(
            "add_cross_attention",
            not has_cross_attention,
            "MiniBERT has no cross-attention; leave it out",
        )
        for field, smallest in SMALLEST.items():
            check(field, getattr(self, field) >= smallest, f"it must be at least {smallest}")
        for field in ("hidden_act", "classifier_activation", "pooler_activation"):
            check(field, getattr(self, field) in ACT2FN, f"use one of {', '.join(sorted(ACT2FN))}")
        for field in (
            "hidden_dropout",
            "embedding_dropout",
            "attention_dropout",
            "classifier_dropout",
        ):
            check(field, 0 <= (getattr(self, field) or 0) < 1, "use a rate p with 0 <= p < 1")
        for field in ("norm_eps", "initializer_range"):
            check(field, 0 < getattr(self, field) < math.inf, "it must be a finite number above 0")
        cutoff = self.initializer_cutoff_factor
        check(
            "initializer_cutoff_factor",
            cutoff is None or cutoff > 0,
            "use a number above 0, or None",
        )
        width, heads, embedding = self.hidden_size, self.num_attention_heads, self.embedding_size
        check("num_attention_heads", width % heads == 0, f"it must divide hidden_size={width}")
        instead = f"it must be at least 1, or None for hidden_size={width}"
        check("embedding_size", embedding is None or embedding >= 1, instead)
        instead = f"without prediction_transform it must be None: hidden_size={width}"
        check("embedding_size", self.prediction_transform or embedding in (None, width), instead)
        if self.position_embedding_type == "rope":
            instead = f"RoPE needs an even head width, hidden_size / num_attention_heads = {width // heads}"
            check("num_attention_heads", width // heads % 2 == 0, instead)
            for layer_type, parameters in self.rope_parameters.items():
                known = ", ".join(DEFAULT_ROPE_THETA)
                require(
                    layer_type in DEFAULT_ROPE_THETA, "rope_parameters", layer_type, f"use {known}"
                )
                self._check_rope(layer_type, parameters)
        else:
            check(
                "rope_parameters",
                not self.rope_parameters,
                "it needs position_embedding_type='rope'",
            )
        if self.position_embedding_type == "sinusoidal":
            field = "hidden_size" if embedding is None else "embedding_size"
            check(field, getattr(self, field) % 2 == 0, "sinusoidal positions need an even width")

    def _check_rope(self, layer_type: str, parameters: dict[str, Any]):
        def check(key: str, condition: bool, instead: str):
            require(
                condition, f"rope_parameters[{layer_type!r}][{key!r}]", parameters.get(key), instead
            )

        def is_number(value: Any) -> bool:
            return (
                isinstance(value, (int, float))
                and not isinstance(value, bool)
                and 0 < value < math.inf
            )

        kind = parameters["rope_type"]
        check("rope_type", kind in ROPE_KEYS, f"use one of {', '.join(ROPE_KEYS)}")
        required, optional = ROPE_KEYS[kind]
        usable = ("rope_type", "rope_theta", "partial_rotary_factor", *required, *optional)
        for key in required:
            check(key, parameters.get(key) is not None, f"rope_type={kind!r} needs it")
        for key, value in parameters.items():
            check(
                key, key in usable, f"rope_type={kind!r} has no such key; use {', '.join(usable)}"
            )
            if (
                key == "truncate"
            ):  # Transformers ignores it in `rope_parameters` of one kind of layer
                check(key, value in (None, True), "only true is possible")
            elif key not in ("rope_type", "short_factor", "long_factor"):
                is_left_out = value is None and key != "rope_theta"
                check(key, is_left_out or is_number(value), "use a number above 0")
        part = parameters.get("partial_rotary_factor") or 1.0
        rotated, least = (
            int(self.hidden_size // self.num_attention_heads * part),
            4 if kind == "dynamic" else 2,
        )
        instead = (
            f"it must leave an even number, at least {least}, of a head's width, not {rotated}"
        )
        check("partial_rotary_factor", part <= 1 and rotated >= least and rotated % 2 == 0, instead)
        for key in {"short_factor", "long_factor"} & parameters.keys():
            factors = parameters[key]
            fits = isinstance(factors, (list, tuple)) and all(map(is_number, factors))
            check(key, fits and len(factors) == rotated // 2, f"use {rotated // 2} numbers above 0")

    def validate_layer_type(self):
        """Refuse `layer_types` that are unknown or not one for each layer."""
        layer_types, depth = self.layer_types or [], self.num_hidden_layers
        for layer_type in layer_types:
            known = ", ".join(DEFAULT_ROPE_THETA)
            require(layer_type in DEFAULT_ROPE_THETA, "layer_types", layer_type, f"use {known}")
        instead = f"use num_hidden_layers={depth} of them, or leave it out and set global_attn_every_n_layers"
        require(len(layer_types) == depth, "the number of layer_types", len(layer_types), instead)

    def validate_rope(self):
        """Do nothing: `validate_architecture` checks `rope_parameters`."""

    @property
    def sliding_window(self) -> int:
        """Half the window: local layers see |i - j| <= sliding_window. Setting it sets `local_attention`."""
        return self.local_attention // 2

    @sliding_window.setter
    def sliding_window(self, value: int):
        self.local_attention = 2 * value

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs):
        """Build a config from a saved dictionary. Fields among `kwargs` override it.

        Overridden `rope_parameters` keep the base and the rotated part of a kind of layer unless they name them. An
        overridden depth or pattern of global layers rebuilds a `layer_types` list that followed the saved one. Unknown
        keys are kept as attributes, with a warning.
        """
        # The attention kernel, which may be code on the Hub, is chosen by who runs the model, not by its file.
        config_dict = {
            key: value for key, value in config_dict.items() if "_implementation" not in str(key)
        }
        names = {field.name for field in fields(cls)} | set(cls.attribute_map)
        known = {
            key: value for key, value in config_dict.items() if key in names | FRAMEWORK_KEYWORDS
        }
        unknown = {key: value for key, value in config_dict.items() if key not in known}
        overrides = {
            key: kwargs.pop(key) for key in list(kwargs) if key in names - FRAMEWORK_KEYWORDS
        }
        if overrides.get("dtype") == "auto":
            del overrides["dtype"]
        saved, rope = known.get("rope_parameters") or {}, overrides.get("rope_parameters") or {}
        if rope and all(isinstance(x, dict) for x in (saved, rope, *saved.values())):
            overrides["rope_parameters"] = cls._override_rope(saved, rope)
        pattern = ("num_hidden_layers", "global_attn_every_n_layers")
        if overrides.keys() & {*pattern} and "layer_types" not in overrides:
            depth, every = (known.get(name, getattr(cls, name)) for name in pattern)
            if known.get("layer_types") == attention_pattern(depth, every):
                del known["layer_types"]
        if unknown:
            logger.warning(f"MiniBertConfig keeps unknown keys: {', '.join(sorted(unknown))}")
        result = super().from_dict(known | overrides, **kwargs)
        config = result[0] if isinstance(result, tuple) else result
        for key, value in unknown.items():
            setattr(config, key, value)
        return result

    @staticmethod
    def _override_rope(saved: dict[str, dict], rope: dict[str, Any]) -> dict[str, Any]:
        """The `rope_parameters` that override saved ones, completed by what the weights were trained with."""
        for_both = rope.keys() - DEFAULT_ROPE_THETA.keys()
        for layer_type, parameters in saved.items():
            own = rope.get(layer_type) or {}
            if twice := for_both & set(own):
                where = f"is given for {layer_type!r} and for both kinds of layers"
                raise ValueError(f"rope_parameters: {min(twice)!r} {where}; give it once")
            if own or for_both:
                trained = ("rope_theta", "partial_rotary_factor")
                parameters = {name: parameters[name] for name in trained if name in parameters}
            rope = rope | {layer_type: parameters | own if isinstance(own, dict) else own}
        return rope

    def to_dict(self) -> dict[str, Any]:
        """The dictionary that is saved. It has the full `auto_map`, with the user's own classes that are registered in
        it, and no attention implementation, which depends on the machine and not on the model."""
        our_files = {reference.partition(".")[0] for reference in AUTO_MAP.values()}
        auto_map = getattr(self, "auto_map", None) or {}
        users = {
            name: x
            for name, x in auto_map.items()
            if str(x).rpartition("--")[2].partition(".")[0] not in our_files
        }
        return super().to_dict() | {"auto_map": AUTO_MAP | users}

    @classmethod
    def bert(cls, size: str = "base", **overrides) -> "MiniBertConfig":
        """BERT as published: `tiny`, `mini`, `small`, `medium` (Google's miniatures), `base`, `large`."""
        return cls._preset("bert", BERT_SIZES, size, overrides, dict(
            vocab_size=30522, max_position_embeddings=512, type_vocab_size=2, position_embedding_type="absolute",
            norm_placement="post", norm_eps=1e-12, norm_bias=True, gated_mlp=False, global_attn_every_n_layers=1,
            attention_bias=True, mlp_bias=True, head_bias=True, classifier_bias=True, add_pooling_layer=True,
            classifier_pooling="cls", hidden_dropout=0.1, attention_dropout=0.1, initializer_cutoff_factor=None,
            scaled_output_init=False,
        ))  # fmt: skip

    @classmethod
    def modernbert(cls, size: str = "base", **overrides) -> "MiniBertConfig":
        """ModernBERT: `base`, `large` as published; `mini`, `small`, `medium`: Ettin's 17M, 32M, 68M; `tiny`: ours."""
        return cls._preset("modernbert", MODERNBERT_SIZES, size, overrides, {})

    @classmethod
    def minibert(cls, size: str = "base", **overrides) -> "MiniBertConfig":
        """The preset that learns fastest in our experiments: ModernBERT with local layers that see three tokens on each
        side. The sizes are those of `modernbert`; the weights fit Transformers' ModernBERT classes."""
        return cls._preset("minibert", MODERNBERT_SIZES, size, overrides, dict(local_attention=6))

    @classmethod
    def _preset(
        cls, name: str, sizes: dict[str, tuple], size: str, overrides: dict, switches: dict
    ):
        require(size in sizes, "size", size, f"use one of {', '.join(sizes)} with {name}")
        shape = zip(
            ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
            sizes[size],
        )
        # An alias among the overrides must replace the preset's value.
        renamed = {cls.attribute_map.get(key, key): value for key, value in overrides.items()}
        return cls(**(dict(shape) | switches | renamed))

    @classmethod
    def from_tokenizer(
        cls,
        tokenizer,
        architecture: Literal["bert", "modernbert", "minibert"] = "modernbert",
        size: str = "base",
        **overrides,
    ) -> "MiniBertConfig":
        """A preset with the `tokenizer_fields` of a tokenizer. A ValueError if an override contradicts them."""
        is_name = isinstance(tokenizer, str)
        require(
            not is_name, "tokenizer", tokenizer, f"use AutoTokenizer.from_pretrained({tokenizer!r})"
        )
        is_preset = architecture in ("bert", "modernbert", "minibert")
        require(is_preset, "architecture", architecture, "use bert, modernbert or minibert")
        config = getattr(cls, architecture)(size, **(tokenizer_fields(tokenizer) | overrides))
        config.check_tokenizer(tokenizer)
        return config

    def check_tokenizer(self, tokenizer) -> None:
        """Refuse (a ValueError) a tokenizer whose vocabulary is larger than the embedding, or with a special token of
        another id."""
        size = vocabulary_size(tokenizer)
        if size > self.vocab_size:
            raise ValueError(
                f"vocab_size={self.vocab_size} is too small: the tokenizer has ids up to {size - 1}"
            )
        for name in SPECIAL_IDS:
            ours, theirs = getattr(self, name), getattr(tokenizer, name, None)
            if None not in (ours, theirs) and theirs not in (
                ours if isinstance(ours, list) else [ours]
            ):
                raise ValueError(
                    f"{name}={ours} in the config, but {theirs} in the tokenizer: they must agree"
                )


__all__ = ["MiniBertConfig"]
