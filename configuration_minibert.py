# Copyright 2026 The MiniBERT authors. Licensed under the Apache License, Version 2.0.
"""The MiniBERT configuration: one flat set of switches that spans BERT and ModernBERT, and the presets.

Sources: BERT (Devlin et al. 2018, arXiv 1810.04805), Google's BERT miniatures (Turc et al. 2019, arXiv 1908.08962),
ModernBERT (Warner et al. 2024, arXiv 2412.13663), Ettin (Weller et al. 2025, arXiv 2507.11412).
"""

import difflib
from dataclasses import fields
from typing import Any, Literal

import torch
from transformers.activations import ACT2FN
from transformers.configuration_utils import PreTrainedConfig, strict
from transformers.utils import logging

logger = logging.get_logger(__name__)

# What each Auto class loads from a folder or a Hub repository that holds these files. It is written into every saved
# config, so that any Auto class works whichever head was saved.
AUTO_MAP = {"AutoConfig": "configuration_minibert.MiniBertConfig", "AutoModel": "modeling_minibert.MiniBertModel"} | {
    f"AutoModel{head}": f"modeling_minibert.MiniBert{head}"
    for head in (
        "ForPreTraining", "ForMaskedLM", "ForCausalLM", "ForNextSentencePrediction", "ForSequenceClassification",
        "ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice",
    )
}  # fmt: skip

# Keywords that are no fields but that Transformers itself hands to a config's constructor.
FRAMEWORK_KEYWORDS = {
    "model_type", "auto_map", "num_labels", "torch_dtype", "name_or_path", "_name_or_path", "output_attentions",
    "attn_implementation", "experts_implementation", "tie_last_hidden_states", "quantization_config", "sliding_window",
    "use_cache", "add_cross_attention", "per_layer_config", "_commit_hash",
}  # fmt: skip

SPECIAL_IDS = tuple(f"{name}_token_id" for name in ("pad", "unk", "cls", "sep", "mask", "bos", "eos"))

MOST_LAYERS = 10_000  # lists of that length follow

DEFAULT_ROPE_THETA = {"full_attention": 160_000.0, "sliding_attention": 10_000.0}
# What each kind of RoPE scaling needs, and what it may have, beside rope_theta and partial_rotary_factor; in the words
# of Transformers' ROPE_INIT_FUNCTIONS.
ROPE_KEYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "default": ((), ()),
    "linear": (("factor",), ()),
    "dynamic": (("factor",), ()),
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
    "tiny": (128, 4, 2, 192),  # ours; mini, small, medium are Ettin's 17M, 32M, 68M
    "mini": (256, 7, 4, 384),
    "small": (384, 10, 6, 576),
    "medium": (512, 19, 8, 768),
    "base": (768, 22, 12, 1152),
    "large": (1024, 28, 16, 2624),
}


def vocabulary_size(tokenizer) -> int:
    """Word vectors that a tokenizer needs: its highest id plus 1, more than its tokens where ids are left out."""
    return max(tokenizer.get_vocab().values(), default=-1) + 1


def attention_pattern(depth: int, every: int) -> list[str]:
    """`layer_types` of so many layers, of which layer i attends globally if i % every == 0."""
    return ["sliding_attention" if i % max(every, 1) else "full_attention" for i in range(depth)]


@strict
class MiniBertConfig(PreTrainedConfig):
    """Configuration of every MiniBERT model. The defaults are ModernBERT-base.

    Keyword-only. A keyword that is no field, a value of the wrong type and a combination that no model can have are
    refused with a message that names the field, the value and what to use. `from_pretrained` keeps unknown keys of a
    saved config with a warning instead, since other libraries and newer versions write them.

    Raises:
        ValueError: an unknown keyword (with the nearest names).
        huggingface_hub.errors.StrictDataclassError: a value of the wrong type, or an impossible combination.
    """

    model_type = "minibert"
    # Names that BERT's and ModernBERT's configs use for the same thing.
    attribute_map = {
        "hidden_dropout_prob": "hidden_dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "layer_norm_eps": "norm_eps",
        "hidden_activation": "hidden_act",
        "is_decoder": "is_causal",
    }
    use_cache = False  # scripts for decoders set it; nothing is kept between calls
    keys_to_ignore_at_inference = ["mlm_loss", "nsp_loss"]  # outputs that `Trainer` is not to take for predictions

    # --- shape ---
    vocab_size: int = 50368  # rows of the embedding; a multiple of 64 is fastest
    hidden_size: int = 768  # width; a multiple of num_attention_heads
    num_hidden_layers: int = 22
    num_attention_heads: int = 12  # with RoPE, hidden_size / num_attention_heads must be even
    intermediate_size: int = 1152  # width of the MLP after its activation; twice as much goes in when gated
    max_position_embeddings: int = 8192  # rows of the position table (absolute); elsewhere the length trained for
    embedding_size: int | None = None  # width of the word vectors, projected behind their norm; None: as hidden_size
    type_vocab_size: int = 0  # number of segments; 0: token_type_ids are accepted and ignored

    # --- block ---
    hidden_act: str = "gelu"  # any of Transformers' activations
    gated_mlp: bool = True  # GLU variants (Shazeer 2020): Wo(act(a) * b) instead of Wo(act(a))
    norm_type: Literal["layernorm", "rmsnorm"] = "layernorm"
    norm_placement: Literal["pre", "post"] = "pre"  # pre: a final norm too
    embedding_norm: bool = True  # the embeddings end in a norm, and no other stands before the first attention
    norm_eps: float = 1e-5
    norm_bias: bool = False  # bias of the layer norms; RMSNorm has none
    attention_bias: bool = False  # biases of the attention's projections
    mlp_bias: bool = False  # biases of the MLP's projections

    # --- positions ---
    position_embedding_type: Literal["absolute", "sinusoidal", "rope", "none"] = "rope"
    # {"full_attention": {"rope_type": "default", "rope_theta": float}, "sliding_attention": {…}}; None: 160000, 10000.
    # What stands beside the kinds of layers holds for both; rope_type: linear, dynamic, yarn, longrope or llama3.
    rope_parameters: dict[str, Any] | None = None

    # --- attention pattern ---
    # Layer i attends globally if i % n == 0; 1: every layer does. Decides `layer_types`, unless others are given.
    global_attn_every_n_layers: int = 3
    layer_types: list[str] | None = None  # "full_attention" | "sliding_attention" a layer; None: from the line above
    local_attention: int = 128  # window of the local layers: token i sees token j if |i - j| <= local_attention // 2
    is_causal: bool = False  # a decoder of the same parameters: token i sees j only if j <= i

    # --- heads ---
    # True: BERT's heads (a pooler for sequence tasks, one linear for token tasks).
    # False: ModernBERT's (dense, activation, norm before the classifier everywhere).
    add_pooling_layer: bool = False
    pooler_activation: str = "tanh"  # relu: DistilBERT's, gelu: ELECTRA's
    classifier_pooling: Literal["cls", "mean"] = "mean"  # cls: first real token; with is_causal the last token is taken
    classifier_activation: str = "gelu"  # activation of the prediction head (MLM head included)
    head_bias: bool = False  # bias of the prediction head's dense layer
    prediction_transform: bool = True  # dense, activation, norm before the vocabulary; False: nothing (EuroBERT)
    decoder_bias: bool = True  # bias over the vocabulary
    classifier_bias: bool = False  # of the last linear of classification heads (ModernBERT's name for `head_bias`)
    tie_word_embeddings: bool = True  # the decoder's weight is the word embedding

    # --- regularisation, initialisation ---
    hidden_dropout: float | int = 0.0  # after attention, after the MLP
    embedding_dropout: float | int | None = None  # None: as hidden_dropout
    attention_dropout: float | int = 0.0  # on the attention probabilities
    classifier_dropout: float | int | None = None  # before the classifier; None: as hidden_dropout
    initializer_range: float = 0.02
    initializer_cutoff_factor: float | int | None = 2.0  # truncate the normal at this many deviations; None: do not
    scaled_output_init: bool = True  # std / sqrt(2 * num_hidden_layers) for projections into the residual stream

    # --- special tokens; None: the vocabulary has none ---
    pad_token_id: int | None = 0
    unk_token_id: int | None = None
    cls_token_id: int | None = None
    sep_token_id: int | None = None
    mask_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None

    converted_from: str | None = None  # model_type of the architecture whose weights these were, if they were converted
    converted_rest: dict[str, Any] | None = None  # what that has and no MiniBERT: kept for the way back

    def __post_init__(self, **kwargs):
        known = {field.name for field in fields(self)} | set(self.attribute_map)
        for name, value in kwargs.items():
            if name not in known and name not in FRAMEWORK_KEYWORDS:
                near = difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.5)
                hint = f"did you mean {' or '.join(near)}?" if near else f"use one of {', '.join(sorted(known))}"
                raise ValueError(f"MiniBertConfig has no field {name!r} (given: {value!r}); {hint}")
        given = kwargs.get("torch_dtype") if self.dtype is None else self.dtype
        if not isinstance(getattr(torch, given, "") if isinstance(given, str) else given, torch.dtype | None):
            raise ValueError(f"dtype={given!r}: use the name of a type of torch, such as float32")
        names = self.id2label
        if names is not None and not (isinstance(names, dict) and all(str(number).isdecimal() for number in names)):
            raise ValueError(f"id2label={names!r}: use a mapping from numbers to names")
        if self.num_hidden_layers > MOST_LAYERS:
            raise ValueError(f"num_hidden_layers={self.num_hidden_layers!r}: it must be at most {MOST_LAYERS}")
        if self.layer_types is None:
            self.layer_types = attention_pattern(self.num_hidden_layers, self.global_attn_every_n_layers)
        super().__post_init__(**kwargs)

    def __setattr__(self, name: str, value: Any):
        """With the depth, or the rhythm of global layers, `layer_types` that follow them change too."""
        follow = False
        if name in ("num_hidden_layers", "global_attn_every_n_layers") and "layer_types" in self.__dict__:
            now = attention_pattern(self.num_hidden_layers, self.global_attn_every_n_layers)
            follow = self.layer_types == now and value in range(1, MOST_LAYERS + 1)
        super().__setattr__(name, value)
        if follow:
            self.layer_types = attention_pattern(self.num_hidden_layers, self.global_attn_every_n_layers)

    def convert_rope_params_to_dict(self, **kwargs) -> dict[str, Any]:
        """Fill in the default bases, and what is given for both kinds of layers. (Transformers calls this while a
        config is built; the base class would give every model RoPE parameters, also those without RoPE.)"""
        if self.position_embedding_type == "rope":
            given = self.rope_parameters or {}
            kinds = {name: x or {} for name, x in given.items() if isinstance(x, dict) or name in DEFAULT_ROPE_THETA}
            of_both = {name: value for name, value in given.items() if name not in kinds}
            for kind, theta in DEFAULT_ROPE_THETA.items():
                parameters = {"rope_type": "default", "rope_theta": theta} | kinds.get(kind, {}) | of_both
                length = "original_max_position_embeddings"  # a fact that only some kinds of scaling use
                needed = ROPE_KEYS.get(parameters["rope_type"], ((length,),))[0]
                if length in needed:
                    parameters.setdefault(length, self.max_position_embeddings)
                kinds[kind] = {key: value for key, value in parameters.items() if key != length or length in needed}
            self.rope_parameters = kinds
        return kwargs

    def validate_architecture(self):
        """Refuse what no model can be. Runs when a config is built and when it is saved."""

        def require(condition: bool, field: str, instead: str):
            if not condition:
                raise ValueError(f"{field}={getattr(self, field)!r}: {instead}")

        crossed = getattr(self, "add_cross_attention", False)  # which some set on a config that is there
        require(not crossed, "add_cross_attention", "MiniBERT has no cross-attention; leave it out")
        for field in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
                      "max_position_embeddings", "global_attn_every_n_layers"):  # fmt: skip
            require(getattr(self, field) >= 1, field, "it must be at least 1")
        require(self.embedding_size is None or self.embedding_size >= 1, "embedding_size",
                f"it must be at least 1, or None for hidden_size={self.hidden_size}")  # fmt: skip
        require(self.prediction_transform or self.embedding_size in (None, self.hidden_size), "embedding_size",
                f"without prediction_transform it must be None: hidden_size={self.hidden_size}")  # fmt: skip
        require(self.type_vocab_size >= 0, "type_vocab_size", "it must be 0 (no segments) or more")
        head_width, rest = divmod(self.hidden_size, self.num_attention_heads)
        require(rest == 0, "num_attention_heads", f"it must divide hidden_size={self.hidden_size}")
        if self.position_embedding_type == "rope":
            require(head_width % 2 == 0, "num_attention_heads",
                    f"RoPE needs an even head width, hidden_size / num_attention_heads = {head_width}")  # fmt: skip
            self._validate_rope_parameters()
        else:
            require(not self.rope_parameters, "rope_parameters", "it needs position_embedding_type='rope'")
        width = "hidden_size" if self.embedding_size is None else "embedding_size"
        require(self.position_embedding_type != "sinusoidal" or getattr(self, width) % 2 == 0, width,
                "sinusoidal positions need an even width")  # fmt: skip
        require(self.local_attention >= 2, "local_attention", "the window must be at least 2 (one neighbour a side)")
        states = self.output_hidden_states
        listed = isinstance(states, (list, tuple)) and all(isinstance(i, int) for i in states)
        require(states is None or isinstance(states, bool) or listed, "output_hidden_states",
                "use true, false or a list of states' numbers")  # fmt: skip
        for field in ("hidden_act", "classifier_activation", "pooler_activation"):
            require(getattr(self, field) in ACT2FN, field, f"use one of {', '.join(sorted(ACT2FN))}")
        for field in ("hidden_dropout", "embedding_dropout", "attention_dropout", "classifier_dropout"):
            value = getattr(self, field)
            require(value is None or 0 <= value < 1, field, "use a rate p with 0 <= p < 1")
        for field in ("norm_eps", "initializer_range"):
            require(getattr(self, field) > 0, field, "it must be above 0")
        require(self.initializer_cutoff_factor is None or self.initializer_cutoff_factor > 0,
                "initializer_cutoff_factor", "use a number above 0, or None")  # fmt: skip

    def _validate_rope_parameters(self):
        def require(condition: bool, name: str, key: str, instead: str):
            if not condition:
                value = self.rope_parameters[name].get(key)
                raise ValueError(f"rope_parameters[{name!r}][{key!r}]={value!r}: {instead}")

        def is_number(value: Any) -> bool:
            return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0

        for name, parameters in self.rope_parameters.items():
            if name not in DEFAULT_ROPE_THETA:
                raise ValueError(f"rope_parameters names {name!r}: use {', '.join(DEFAULT_ROPE_THETA)}")
            kind = parameters["rope_type"]
            require(kind in ROPE_KEYS, name, "rope_type", f"use one of {', '.join(ROPE_KEYS)}")
            needed, optional = ROPE_KEYS[kind]
            usable = ("rope_type", "rope_theta", "partial_rotary_factor", *needed, *optional)
            for key in needed:
                require(parameters.get(key) is not None, name, key, f"rope_type={kind!r} needs it")
            for key, value in parameters.items():
                require(key in usable, name, key, f"rope_type={kind!r} has no such key; use {', '.join(usable)}")
                if key == "truncate":  # which Transformers does not read where it stands
                    require(value in (None, True), name, key, "only true is possible")
                elif key not in ("rope_type", "short_factor", "long_factor"):
                    missing = value is None and key != "rope_theta"
                    require(missing or is_number(value), name, key, "use a number above 0")
            part = parameters.get("partial_rotary_factor") or 1.0
            turned, least = int(self.hidden_size // self.num_attention_heads * part), 4 if kind == "dynamic" else 2
            fits = part <= 1 and turned >= least and turned % 2 == 0
            instead = f"it must leave an even number, at least {least}, of a head's width, not {turned}"
            require(fits, name, "partial_rotary_factor", instead)
            for key in {"short_factor", "long_factor"} & parameters.keys():
                given = parameters[key]
                fits = isinstance(given, (list, tuple)) and len(given) == turned // 2 and all(map(is_number, given))
                require(fits, name, key, f"use {turned // 2} numbers above 0")

    def validate_layer_type(self):
        """One of the two attention patterns for every layer."""
        layer_types = self.layer_types or []
        for layer_type in layer_types:
            if layer_type not in DEFAULT_ROPE_THETA:
                raise ValueError(f"layer_types has {layer_type!r}: use {', '.join(DEFAULT_ROPE_THETA)}")
        if len(layer_types) != self.num_hidden_layers:
            raise ValueError(
                f"layer_types has {len(layer_types)} entries, num_hidden_layers={self.num_hidden_layers}: give one a "
                "layer, or leave layer_types out and set global_attn_every_n_layers"
            )

    def validate_rope(self):
        """Nothing beyond `validate_architecture`, which knows MiniBERT's rules for `rope_parameters`."""

    @property
    def sliding_window(self) -> int:
        """Half the window: local layers see |i - j| <= sliding_window. Setting it sets `local_attention`."""
        return self.local_attention // 2

    @sliding_window.setter
    def sliding_window(self, value: int):
        self.local_attention = 2 * value

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs):
        """Build a config from a saved dictionary; `kwargs` that are fields override it.

        `rope_parameters` that are overridden keep the base and the rotated part that they do not name, and the kind of
        layer that they do not name. Unknown keys are kept as attributes, with a warning. A depth or a global/local
        rhythm that is overridden rebuilds a `layer_types` list that had followed the old one.
        """
        if not isinstance(config_dict, dict):
            raise ValueError(f"config: {config_dict!r} is no mapping; give field names with their values")
        # The kernel, which may be code on the Hub, is the choice of who runs the model, never of its file.
        config_dict = {key: value for key, value in config_dict.items() if "_implementation" not in str(key)}
        ours = {field.name for field in fields(cls)} | set(cls.attribute_map) | FRAMEWORK_KEYWORDS
        known = {key: value for key, value in config_dict.items() if key in ours}
        unknown = {key: value for key, value in config_dict.items() if key not in ours}
        overrides = {key: kwargs.pop(key) for key in list(kwargs) if key in ours - FRAMEWORK_KEYWORDS}
        overrides = {key: value for key, value in overrides.items() if key != "dtype" or value != "auto"}
        saved, given = known.get("rope_parameters") or {}, overrides.get("rope_parameters") or {}
        if given and all(isinstance(x, dict) for x in (saved, given, *saved.values())):
            for_both = given.keys() - DEFAULT_ROPE_THETA.keys()
            for kind, parameters in saved.items():
                own = given.get(kind) or {}
                if twice := for_both & set(own):
                    raise ValueError(f"rope_parameters: {min(twice)!r} stands in {kind!r} and beside it; name it once")
                if own or for_both:
                    trained = ("rope_theta", "partial_rotary_factor")
                    parameters = {name: parameters[name] for name in trained if name in parameters}
                given = given | {kind: parameters | own if isinstance(own, dict) else own}
            overrides["rope_parameters"] = given
        if {"num_hidden_layers", "global_attn_every_n_layers"} & overrides.keys() and "layer_types" not in overrides:
            every, depth = known.get("global_attn_every_n_layers", 3), known.get("num_hidden_layers", 22)
            if known.get("layer_types") == attention_pattern(depth, every):
                del known["layer_types"]
        if unknown:
            logger.warning(f"MiniBertConfig keeps keys that it does not know: {', '.join(sorted(unknown))}")
        result = super().from_dict(known | overrides, **kwargs)
        config = result[0] if isinstance(result, tuple) else result
        for key, value in unknown.items():
            setattr(config, key, value)
        return result

    def to_dict(self) -> dict[str, Any]:
        """The dictionary that is saved: with the full `auto_map` (but for classes of the user's own that are registered
        in it), and never an attention implementation (which is a choice of the machine that runs the model, not of the
        model)."""
        ours = {reference.partition(".")[0] for reference in AUTO_MAP.values()}
        given = getattr(self, "auto_map", None) or {}
        own = {name: x for name, x in given.items() if str(x).rpartition("--")[2].partition(".")[0] not in ours}
        return super().to_dict() | {"auto_map": AUTO_MAP | own}

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
        """What learns fastest, as far as we know (docs/record.md): ModernBERT whose local layers see three tokens on
        either side. The sizes are ModernBERT's; the weights fit its class."""
        return cls._preset("minibert", MODERNBERT_SIZES, size, overrides, dict(local_attention=6))

    @classmethod
    def _preset(cls, name: str, sizes: dict[str, tuple], size: str, overrides: dict, switches: dict):
        if size not in sizes:
            raise ValueError(f"size={size!r} is no {name} preset: use one of {', '.join(sizes)}")
        shape = zip(("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"), sizes[size])
        # An alias in the overrides must replace the preset's value, not stand beside it.
        renamed = {cls.attribute_map.get(key, key): value for key, value in overrides.items()}
        return cls(**(dict(shape) | switches | renamed))

    @classmethod
    def from_tokenizer(
        cls,
        tokenizer,
        architecture: Literal["bert", "modernbert", "minibert"] = "modernbert",
        size: str = "base",
        pad_vocab_to_multiple_of: int = 64,
        **overrides,
    ) -> "MiniBertConfig":
        """A preset with the vocabulary size (padded up to a multiple) and every special-token id of `tokenizer`.

        Raises:
            ValueError: an override contradicts the tokenizer; the tokenizer's name in its place.
        """
        if isinstance(tokenizer, str):
            raise ValueError(f"tokenizer={tokenizer!r}: give AutoTokenizer.from_pretrained({tokenizer!r})")
        if architecture not in ("bert", "modernbert", "minibert"):
            raise ValueError(f"architecture={architecture!r}: use bert, modernbert or minibert")
        multiple = pad_vocab_to_multiple_of
        if multiple < 1:
            raise ValueError(f"pad_vocab_to_multiple_of={multiple!r}: it must be at least 1")
        ids = {name: getattr(tokenizer, name, None) for name in SPECIAL_IDS}
        taken = {"vocab_size": -(-vocabulary_size(tokenizer) // multiple) * multiple} | ids
        config = getattr(cls, architecture)(size, **(taken | overrides))
        config.check_tokenizer(tokenizer)
        return config

    def check_tokenizer(self, tokenizer) -> None:
        """Refuse a tokenizer whose ids this config cannot serve.

        Raises:
            ValueError: the vocabulary is larger than the embedding, or a special token has another id.
        """
        size = vocabulary_size(tokenizer)
        if size > self.vocab_size:
            raise ValueError(f"vocab_size={self.vocab_size} is too small: the tokenizer has ids up to {size - 1}")
        for name in SPECIAL_IDS:
            ours, theirs = getattr(self, name), getattr(tokenizer, name, None)
            if None not in (ours, theirs) and theirs not in (ours if isinstance(ours, list) else [ours]):
                raise ValueError(f"{name}={ours} in the config, but {theirs} in the tokenizer: they must agree")


__all__ = ["MiniBertConfig"]
