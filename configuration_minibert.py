# Copyright 2026 The MiniBERT authors. Licensed under the Apache License, Version 2.0.
"""The configuration of every MiniBERT model: one flat set of switches, from BERT to ModernBERT, and
its presets.

Sources: BERT (Devlin et al. 2018, arXiv 1810.04805), Google's BERT miniatures (Turc et al. 2019,
arXiv 1908.08962), ALBERT (Lan et al. 2019, arXiv 1909.11942), ModernBERT (Warner et al. 2024,
arXiv 2412.13663), Ettin (Weller et al. 2025, arXiv 2507.11412).
"""

import difflib
import math
from dataclasses import fields
from typing import Any, Literal

from transformers.activations import ACT2FN
from transformers.configuration_utils import PreTrainedConfig
from transformers.utils import logging

from .rope_minibert import (
    LAYER_TYPES,
    check_named_once,
    check_rope,
    complete_rope,
    override_rope,
)

try:
    from huggingface_hub.dataclasses import strict
except ImportError:  # it may move; Transformers, which needs it too, would follow
    from transformers.configuration_utils import strict

logger = logging.get_logger(__name__)

# The class that each Auto class loads from a folder or Hub repository with these files. Every saved
# config has this map, so that any Auto class works whichever head was saved. (Where a detector of
# replaced tokens was saved, `AutoModelForPreTraining` loads that, see `MiniBertConfig.to_dict`.)
AUTO_MAP = {
    "AutoConfig": "configuration_minibert.MiniBertConfig",
    "AutoModel": "modeling_minibert.MiniBertModel",
    "AutoModelForPreTraining": "modeling_minibert.MiniBertForPreTraining",
    "AutoModelForMaskedLM": "modeling_minibert.MiniBertForMaskedLM",
    "AutoModelForCausalLM": "modeling_minibert.MiniBertForCausalLM",
    "AutoModelForNextSentencePrediction": "modeling_minibert.MiniBertForNextSentencePrediction",
    "AutoModelForSequenceClassification": "modeling_minibert.MiniBertForSequenceClassification",
    "AutoModelForTokenClassification": "modeling_minibert.MiniBertForTokenClassification",
    "AutoModelForQuestionAnswering": "modeling_minibert.MiniBertForQuestionAnswering",
    "AutoModelForMultipleChoice": "modeling_minibert.MiniBertForMultipleChoice",
}

# Transformers has no Auto class for this head, and opens ELECTRA's with `AutoModelForPreTraining`.
DETECTOR = "MiniBertForReplacedTokenDetection"

# Keywords that are not fields but that Transformers itself passes to the constructor of a config.
FRAMEWORK_KEYWORDS = {
    "model_type", "auto_map", "num_labels", "torch_dtype", "name_or_path", "_name_or_path",
    "output_attentions", "attn_implementation", "experts_implementation", "tie_last_hidden_states",
    "quantization_config", "sliding_window", "use_cache", "add_cross_attention", "per_layer_config",
    "_commit_hash",
}  # fmt: skip

SPECIAL_IDS = (
    "pad_token_id",
    "unk_token_id",
    "cls_token_id",
    "sep_token_id",
    "mask_token_id",
    "bos_token_id",
    "eos_token_id",
)

# A config holds a list with an entry for each layer, and a dictionary with one for each label. So a
# wrong number in somebody's file could fill the memory before anything is checked.
MAX_LAYERS = 10_000
MAX_LABELS = 1_000_000
# The smallest values of whole numbers. A window of 2 is one neighbour on each side.
MIN_VALUES = {
    "vocab_size": 1,
    "hidden_size": 1,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "intermediate_size": 1,
    "max_position_embeddings": 1,
    "global_attn_every_n_layers": 1,
    "local_attention": 2,
    "type_vocab_size": 0,
}

# Setting one of these derives `layer_types` anew.
PATTERN_FIELDS = ("num_hidden_layers", "global_attn_every_n_layers")

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


def tokenizer_fields(tokenizer) -> dict[str, int | None]:
    """The fields that a tokenizer decides: its size, rounded up to a multiple of 64, and the ids of
    special tokens."""
    values = {"vocab_size": -(-vocabulary_size(tokenizer) // 64) * 64}
    for name in SPECIAL_IDS:
        values[name] = getattr(tokenizer, name, None)
    return values


def vocabulary_size(tokenizer) -> int:
    """The rows of the embedding that a tokenizer needs: its highest id plus 1, for ids may have
    gaps."""
    return max(tokenizer.get_vocab().values(), default=-1) + 1


def attention_pattern(depth: int, interval: int) -> list[str]:
    """The `layer_types` of `depth` layers: layer i attends globally if i % interval == 0."""
    layer_types = ["sliding_attention"] * depth
    for layer in range(0, depth, max(interval, 1)):
        layer_types[layer] = "full_attention"
    return layer_types


@strict
class MiniBertConfig(PreTrainedConfig):
    """Configuration of every MiniBERT model. The defaults are those of ModernBERT-base.

    All arguments are keywords. Unknown keywords are refused. `from_pretrained` keeps unknown keys
    of a saved config with a warning instead, since other libraries and newer versions write them.

    Args:
        vocab_size (`int`, default `50368`): Rows of the word embedding; a multiple of 64 is
            fastest. BERT has 30522.
        hidden_size (`int`, default `768`): Width of the states; a multiple of
            `num_attention_heads`.
        num_hidden_layers (`int`, default `22`): Number of layers. BERT-base has 12.
        share_layers (`bool`, default `False`): Use the weights of one layer `num_hidden_layers`
            times, as ALBERT does (Lan et al. 2019). `layer_types` may differ between the passes.
        num_attention_heads (`int`, default `12`): Heads of each attention layer. With RoPE,
            `hidden_size / num_attention_heads` must be even.
        intermediate_size (`int`, default `1152`): Width of the MLP after its activation; twice as
            much goes in with `gated_mlp`. BERT-base has 3072.
        max_position_embeddings (`int`, default `8192`): Rows of the table of absolute positions;
            with other positions, the length that the model is trained for. BERT has 512.
        embedding_size (`int`, default `None`): Width of the embeddings, which are projected to
            `hidden_size` after their norm, as in ELECTRA (Clark et al. 2020). None: `hidden_size`.
        type_vocab_size (`int`, default `0`): Number of segments. BERT has 2. With 0,
            `token_type_ids` are accepted and ignored, as by ModernBERT.
        hidden_act (`str`, default `"gelu"`): Activation of the MLP, any of Transformers'; GELU
            (Hendrycks and Gimpel 2016) in BERT and ModernBERT.
        gated_mlp (`bool`, default `True`): Wo(act(a) * b) instead of BERT's Wo(act(a)), with a and
            b the halves of Wi x (Shazeer 2020): GeGLU in ModernBERT.
        norm_type (`str`, default `"layernorm"`): "layernorm" (Ba et al. 2016), as in BERT and
            ModernBERT, or "rmsnorm" (Zhang and Sennrich 2019).
        norm_placement (`str`, default `"pre"`): "pre": norms before attention and MLP, and a final
            one (Xiong et al. 2020), as in ModernBERT. "post": after the residuals, as in BERT.
        embedding_norm (`bool`, default `True`): Whether the embeddings end in a norm, as in BERT
            and ModernBERT. With "pre", the first attention then has none.
        norm_eps (`float`, default `1e-05`): Added to variances by norms. BERT has 1e-12.
        norm_bias (`bool`, default `False`): Biases of the layer norms, as in BERT. RMSNorm has
            none.
        attention_bias (`bool`, default `False`): Biases of the attention's projections, as in BERT.
        mlp_bias (`bool`, default `False`): Biases of the MLP's projections, as in BERT.
        position_embedding_type (`str`, default `"rope"`): "rope": rotary positions (Su et al.
            2021), as in ModernBERT. "absolute": a learned table, as in BERT. "sinusoidal": the
            fixed table of Vaswani et al. 2017. "none": no positions.
        rope_parameters (`dict`, default `None`): For RoPE, a dictionary for "full_attention" and
            one for "sliding_attention", each `{"rope_type": "default", "rope_theta": float}`.
            Parameters outside of the two hold for both, and may not stand in one of them, too.
            Other types are those of Transformers: linear, dynamic, yarn, longrope, llama3. None:
            bases of 160000 and 10000, as in ModernBERT.
        global_attn_every_n_layers (`int`, default `3`): Layer i attends globally if i % n == 0, the
            others locally, as in ModernBERT. 1: all layers attend globally, as in BERT.
        layer_types (`list[str]`, default `None`): "full_attention" or "sliding_attention" for each
            layer. None: as `global_attn_every_n_layers` says.
        local_attention (`int`, default `128`): Window of the local layers (Beltagy et al. 2020):
            token i sees token j if |i - j| <= local_attention // 2. ModernBERT has 128.
        is_causal (`bool`, default `False`): A decoder of the same parameters: token i sees token j
            only if j <= i.
        add_pooling_layer (`bool`, default `False`): True: BERT's heads, a pooler for sequence tasks
            and one linear for token tasks. False: ModernBERT's, with a dense layer, an activation
            and a norm before every classifier.
        pooler_activation (`str`, default `"tanh"`): Activation of the pooler, as in BERT.
            DistilBERT has "relu", ELECTRA "gelu".
        classifier_pooling (`str`, default `"mean"`): What classifiers take for a sequence: "mean"
            of the vectors, as in the published ModernBERT models, or "cls", the first real token's,
            as in BERT. A decoder takes the last token's in either case.
        classifier_activation (`str`, default `"gelu"`): Activation of the prediction head, of
            masked language modelling too.
        head_bias (`bool`, default `False`): Bias of the prediction head's dense layer, as in BERT.
        prediction_transform (`bool`, default `True`): Whether a dense layer, an activation and a
            norm come before the decoder, as in BERT and ModernBERT. EuroBERT (Boizard et al. 2025)
            has none.
        decoder_bias (`bool`, default `True`): Bias of the logits over the vocabulary.
        classifier_bias (`bool`, default `False`): Bias of the last linear of classifiers, as in
            BERT. (ModernBERT's field of this name is `head_bias` here.)
        tie_word_embeddings (`bool`, default `True`): The decoder's weight is the word embedding
            (Press and Wolf 2017), as in BERT and ModernBERT.
        hidden_dropout (`float`, default `0.0`): Dropout after attention and after the MLP. BERT has
            0.1.
        embedding_dropout (`float`, default `None`): Dropout after the embeddings. None:
            `hidden_dropout`.
        attention_dropout (`float`, default `0.0`): Dropout on the attention probabilities. BERT has
            0.1.
        classifier_dropout (`float`, default `None`): Dropout before classifiers. None:
            `hidden_dropout`.
        initializer_range (`float`, default `0.02`): Standard deviation of initial weights, as in
            BERT.
        initializer_cutoff_factor (`float`, default `2.0`): Initial weights are drawn again beyond
            this many standard deviations, as in ModernBERT. None: never, as in Transformers' BERT.
        scaled_output_init (`bool`, default `True`): Divide the standard deviation of projections
            into the residual stream by sqrt(2 * num_hidden_layers) (Radford et al. 2019), as
            ModernBERT does.
        pad_token_id (`int`, default `0`): Id of the padding token; None: the vocabulary has none.
            Its embedding is zero at first. The same holds for the ids below.
        unk_token_id (`int`, default `None`): Id of the token for unknown words.
        cls_token_id (`int`, default `None`): Id of the token before a text.
        sep_token_id (`int`, default `None`): Id of the token after a text.
        mask_token_id (`int`, default `None`): Id of the token that hides another one.
        bos_token_id (`int`, default `None`): Id of the first token of a generated text.
        eos_token_id (`int`, default `None`): Id, or ids, of the last token of a generated text.
        thresholds (`list[float]`, default `None`): Of a trained classifier: it predicts each label
            whose probability is above its threshold. Fine-tuning chooses them on validation rows;
            the model itself ignores them.
        threshold_shift (`list[float]`, default `None`): Of a trained classifier whose thresholds
            are in its bias: what was taken from each logit. Added to the logits, it gives those of
            the training. Fine-tuning writes it; the model itself ignores it.
        converted_from (`str`, default `None`): `model_type` of the model that the weights were
            converted from. The conversion writes it.
        converted_rest (`dict`, default `None`): Settings of that model that MiniBERT lacks, for the
            conversion back.

    Raises:
        ValueError: an unknown keyword, with the nearest names.
        huggingface_hub.errors.StrictDataclassError: a value of the wrong type, or an impossible
            combination.

    Example:

        >>> from minibert import MiniBertConfig, MiniBertForMaskedLM
        >>> config = MiniBertConfig.modernbert("tiny", vocab_size=1000, norm_type="rmsnorm")
        >>> model = MiniBertForMaskedLM(config)
        >>> model.config.layer_types
        ['full_attention', 'sliding_attention', 'sliding_attention', 'full_attention']
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
    # Outputs that are not predictions, for `Trainer`.
    keys_to_ignore_at_inference = ["mlm_loss", "nsp_loss"]

    # The defaults are written here. The docstring repeats them (a test compares), and each preset
    # lists only what differs.

    # shape
    vocab_size: int = 50368
    hidden_size: int = 768
    num_hidden_layers: int = 22
    share_layers: bool = False
    num_attention_heads: int = 12
    intermediate_size: int = 1152
    max_position_embeddings: int = 8192
    embedding_size: int | None = None
    type_vocab_size: int = 0

    # layers
    hidden_act: str = "gelu"
    gated_mlp: bool = True
    norm_type: Literal["layernorm", "rmsnorm"] = "layernorm"
    norm_placement: Literal["pre", "post"] = "pre"
    embedding_norm: bool = True
    norm_eps: float = 1e-5
    norm_bias: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False

    # positions
    position_embedding_type: Literal["absolute", "sinusoidal", "rope", "none"] = "rope"
    rope_parameters: dict[str, Any] | None = None

    # who sees whom
    global_attn_every_n_layers: int = 3
    layer_types: list[str] | None = None
    local_attention: int = 128
    is_causal: bool = False

    # heads
    add_pooling_layer: bool = False
    pooler_activation: str = "tanh"
    classifier_pooling: Literal["cls", "mean"] = "mean"
    classifier_activation: str = "gelu"
    head_bias: bool = False
    prediction_transform: bool = True
    decoder_bias: bool = True
    classifier_bias: bool = False
    tie_word_embeddings: bool = True

    # regularisation and initialisation
    hidden_dropout: float | int = 0.0
    embedding_dropout: float | int | None = None
    attention_dropout: float | int = 0.0
    classifier_dropout: float | int | None = None
    initializer_range: float = 0.02
    initializer_cutoff_factor: float | int | None = 2.0
    scaled_output_init: bool = True

    # special tokens
    pad_token_id: int | None = 0
    unk_token_id: int | None = None
    cls_token_id: int | None = None
    sep_token_id: int | None = None
    mask_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None

    # what training and conversion write
    thresholds: list[float] | None = None
    threshold_shift: list[float] | None = None
    converted_from: str | None = None
    converted_rest: dict[str, Any] | None = None

    # --- presets ---

    @classmethod
    def bert(cls, size: str = "base", **overrides) -> "MiniBertConfig":
        """BERT as published: `tiny`, `mini`, `small`, `medium` (Google's miniatures), `base`,
        `large`."""
        switches = {
            "vocab_size": 30522,
            "max_position_embeddings": 512,
            "type_vocab_size": 2,
            "position_embedding_type": "absolute",
            "norm_placement": "post",
            "norm_eps": 1e-12,
            "norm_bias": True,
            "gated_mlp": False,
            "global_attn_every_n_layers": 1,
            "attention_bias": True,
            "mlp_bias": True,
            "head_bias": True,
            "classifier_bias": True,
            "add_pooling_layer": True,
            "classifier_pooling": "cls",
            "hidden_dropout": 0.1,
            "attention_dropout": 0.1,
            "initializer_cutoff_factor": None,
            "scaled_output_init": False,
        }
        return cls._preset("bert", BERT_SIZES, size, switches | cls._rename(overrides))

    @classmethod
    def modernbert(cls, size: str = "base", **overrides) -> "MiniBertConfig":
        """ModernBERT: `base`, `large` as published; `mini`, `small`, `medium`: Ettin's 17M, 32M,
        68M; `tiny`: ours."""
        return cls._preset("modernbert", MODERNBERT_SIZES, size, cls._rename(overrides))

    @classmethod
    def minibert(cls, size: str = "base", **overrides) -> "MiniBertConfig":
        """The preset that learns fastest at the beginning of a training: ModernBERT with local
        layers that see three tokens on each side. The sizes are those of `modernbert`; the weights
        fit Transformers' ModernBERT classes."""
        switches = {"local_attention": 6}
        return cls._preset("minibert", MODERNBERT_SIZES, size, switches | cls._rename(overrides))

    @classmethod
    def _rename(cls, overrides: dict[str, Any]) -> dict[str, Any]:
        """The overrides by the names of fields: an alias must replace the value of the preset."""
        return {cls.attribute_map.get(name, name): value for name, value in overrides.items()}

    @classmethod
    def _preset(
        cls, name: str, sizes: dict[str, tuple[int, ...]], size: str, switches: dict[str, Any]
    ) -> "MiniBertConfig":
        if size not in sizes:
            raise ValueError(f"size={size!r}: use one of {', '.join(sizes)} with {name}")
        hidden_size, depth, heads, intermediate_size = sizes[size]
        shape = {
            "hidden_size": hidden_size,
            "num_hidden_layers": depth,
            "num_attention_heads": heads,
            "intermediate_size": intermediate_size,
        }
        return cls(**(shape | switches))

    @classmethod
    def from_tokenizer(
        cls,
        tokenizer,
        architecture: Literal["bert", "modernbert", "minibert"] = "modernbert",
        size: str = "base",
        **overrides,
    ) -> "MiniBertConfig":
        """A preset with the `tokenizer_fields` of a tokenizer. A ValueError if an override
        contradicts them."""
        if isinstance(tokenizer, str):
            raise ValueError(
                f"tokenizer={tokenizer!r}: use AutoTokenizer.from_pretrained({tokenizer!r})"
            )
        if architecture not in ("bert", "modernbert", "minibert"):
            raise ValueError(f"architecture={architecture!r}: use bert, modernbert or minibert")
        preset = getattr(cls, architecture)
        config = preset(size, **(tokenizer_fields(tokenizer) | overrides))
        config.check_tokenizer(tokenizer)
        return config

    def check_tokenizer(self, tokenizer) -> None:
        """Refuse (a ValueError) a tokenizer whose vocabulary is larger than the embedding, or with
        a special token of another id."""
        size = vocabulary_size(tokenizer)
        if size > self.vocab_size:
            raise ValueError(
                f"vocab_size={self.vocab_size} is too small: the tokenizer has ids up to {size - 1}"
            )
        for name in SPECIAL_IDS:
            ours = getattr(self, name)
            theirs = getattr(tokenizer, name, None)
            if ours is None or theirs is None:
                continue
            if theirs != ours and (not isinstance(ours, list) or theirs not in ours):
                raise ValueError(
                    f"{name}={ours} in the config, but {theirs} in the tokenizer: they must agree"
                )

    # --- what is derived, and what is refused ---

    def __post_init__(self, **kwargs):
        for name, value in kwargs.items():
            self._check_keyword(name, value)
        depth = self.num_hidden_layers
        if depth > MAX_LAYERS:
            raise ValueError(f"num_hidden_layers={depth}: it must be at most {MAX_LAYERS}")
        if self.layer_types is None:
            self.layer_types = attention_pattern(depth, self.global_attn_every_n_layers)
        check_named_once(self.rope_parameters)
        super().__post_init__(**kwargs)

    def _check_keyword(self, name: str, value: Any):
        """Refuse a keyword that is neither a field nor one of the framework's."""
        field_names = self.field_names()
        if name in field_names or name in FRAMEWORK_KEYWORDS:
            return
        near = difflib.get_close_matches(name, sorted(field_names), n=3, cutoff=0.5)
        if near:
            hint = f"did you mean {' or '.join(near)}?"
        else:
            hint = f"use one of {', '.join(sorted(field_names))}"
        raise ValueError(f"MiniBertConfig has no field {name!r} (value {value!r}); {hint}")

    @classmethod
    def field_names(cls) -> set[str]:
        """The names of all fields, with those of BERT and ModernBERT."""
        return {field.name for field in fields(cls)} | set(cls.attribute_map)

    def __setattr__(self, name: str, value: Any):
        """Set a field, and keep `layer_types` true to it.

        `layer_types` is a list that is derived from two other fields unless it is chosen. Scripts
        set the depth of a config that exists already (`--config_overrides num_hidden_layers=5`):
        then a derived list is derived anew. A chosen one stays, and the model refuses it if it has
        another length.

        Raises:
            ValueError: `num_labels`, of which Transformers makes a dictionary at once, is not from
                0 to `MAX_LABELS`.
        """
        if name == "num_labels" and isinstance(value, int) and not 0 <= value <= MAX_LABELS:
            raise ValueError(f"num_labels={value}: use a number from 0 to {MAX_LABELS}")
        is_built = "layer_types" in self.__dict__  # else `__post_init__` derives it
        if name not in PATTERN_FIELDS or not is_built:
            super().__setattr__(name, value)
            return
        was_derived = self.layer_types == self._derive_layer_types()
        super().__setattr__(name, value)
        if was_derived and 1 <= value <= MAX_LAYERS:
            self.layer_types = self._derive_layer_types()

    def _derive_layer_types(self) -> list[str]:
        return attention_pattern(self.num_hidden_layers, self.global_attn_every_n_layers)

    def convert_rope_params_to_dict(self, **kwargs) -> dict[str, Any]:
        """Complete `rope_parameters`, see `complete_rope`. Transformers calls this while a config
        is built. The base class would give RoPE parameters to models without RoPE too."""
        if self.position_embedding_type == "rope":
            self.rope_parameters = complete_rope(self.rope_parameters, self.max_position_embeddings)
        return kwargs

    def validate_rope(self):
        """Do nothing: `validate_architecture` checks `rope_parameters`."""

    def validate_architecture(self):
        """Refuse impossible values. This runs when a config is built and when it is saved."""
        # It is not a field, but some code sets it.
        if getattr(self, "add_cross_attention", False):
            raise ValueError(
                "add_cross_attention=True: MiniBERT has no cross-attention; leave it out"
            )
        self._validate_numbers()
        for field in ("hidden_act", "classifier_activation", "pooler_activation"):
            name = getattr(self, field)
            if name not in ACT2FN:
                raise ValueError(f"{field}={name!r}: use one of {', '.join(sorted(ACT2FN))}")
        self._validate_widths()
        self._validate_positions()

    def _validate_numbers(self):
        for field, smallest in MIN_VALUES.items():
            value = getattr(self, field)
            if value < smallest:
                raise ValueError(f"{field}={value}: it must be at least {smallest}")
        for name in ("hidden", "embedding", "attention", "classifier"):
            rate = getattr(self, f"{name}_dropout")
            if rate is not None and not 0 <= rate < 1:
                raise ValueError(f"{name}_dropout={rate}: use a rate p with 0 <= p < 1")
        for field in ("norm_eps", "initializer_range"):
            value = getattr(self, field)
            if not 0 < value < math.inf:
                raise ValueError(f"{field}={value}: it must be a finite number above 0")
        cutoff = self.initializer_cutoff_factor
        if cutoff is not None and not cutoff > 0:
            raise ValueError(f"initializer_cutoff_factor={cutoff}: use a number above 0, or None")

    def _validate_widths(self):
        width = self.hidden_size
        if width % self.num_attention_heads:
            raise ValueError(
                f"num_attention_heads={self.num_attention_heads}: it must divide "
                f"hidden_size={width}"
            )
        embedding = self.embedding_size
        if embedding is not None and embedding < 1:
            raise ValueError(
                f"embedding_size={embedding}: it must be at least 1, or None for "
                f"hidden_size={width}"
            )
        if not self.prediction_transform and embedding not in (None, width):
            raise ValueError(
                f"embedding_size={embedding}: without prediction_transform it must be None: "
                f"hidden_size={width}"
            )

    def _validate_positions(self):
        if self.position_embedding_type == "sinusoidal":
            field = "hidden_size" if self.embedding_size is None else "embedding_size"
            width = getattr(self, field)
            if width % 2:
                raise ValueError(f"{field}={width}: sinusoidal positions need an even width")
        if self.position_embedding_type != "rope":
            if self.rope_parameters:
                raise ValueError(
                    f"rope_parameters={self.rope_parameters!r}: it needs "
                    "position_embedding_type='rope'"
                )
            return
        head_width = self.hidden_size // self.num_attention_heads
        if head_width % 2:
            raise ValueError(
                f"num_attention_heads={self.num_attention_heads}: RoPE needs an even head width, "
                f"hidden_size / num_attention_heads = {head_width}"
            )
        check_rope(self.rope_parameters, head_width)

    def validate_layer_type(self):
        """Refuse `layer_types` that are unknown or not one for each layer."""
        layer_types = self.layer_types or []
        for layer_type in layer_types:
            if layer_type not in LAYER_TYPES:
                raise ValueError(f"layer_types={layer_type!r}: use {', '.join(LAYER_TYPES)}")
        depth = self.num_hidden_layers
        if len(layer_types) != depth:
            raise ValueError(
                f"the number of layer_types={len(layer_types)}: use num_hidden_layers={depth} of "
                "them, or leave it out and set global_attn_every_n_layers"
            )

    @property
    def sliding_window(self) -> int:
        """Half the window: local layers see |i - j| <= sliding_window. Setting it sets
        `local_attention`."""
        return self.local_attention // 2

    @sliding_window.setter
    def sliding_window(self, value: int):
        self.local_attention = 2 * value

    # --- loading and saving ---

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs):
        """Build a config from a saved dictionary. Fields among `kwargs` override it.

        Overridden `rope_parameters` keep the base and the rotated part of a kind of layer unless
        they name them. An overridden depth or pattern of global layers rebuilds a `layer_types`
        list that followed the saved one. Unknown keys are kept as attributes, with a warning.
        """
        saved, unknown = cls._split_keywords(config_dict)
        overrides = {}
        for key in list(kwargs):
            if key in cls.field_names() - FRAMEWORK_KEYWORDS:
                overrides[key] = kwargs.pop(key)
        if overrides.get("dtype") == "auto":
            del overrides["dtype"]
        if overrides.get("rope_parameters") and saved.get("rope_parameters"):
            overrides["rope_parameters"] = override_rope(
                saved["rope_parameters"], overrides["rope_parameters"]
            )
        cls._override_pattern(saved, overrides)
        if unknown:
            names = ", ".join(map(repr, sorted(unknown)))  # as `repr`: a file has them
            logger.warning(f"MiniBertConfig keeps unknown keys: {names}")
        # With `return_unused_kwargs=True`, the result is a config and the keywords it did not use.
        result = super().from_dict(saved | overrides, **kwargs)
        config = result[0] if isinstance(result, tuple) else result
        for key, value in unknown.items():
            setattr(config, key, value)
        return result

    @classmethod
    def _split_keywords(cls, config_dict: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The keywords of a saved dictionary that the constructor takes, and the unknown ones."""
        field_names = cls.field_names()
        keywords = {}
        unknown = {}
        for key, value in config_dict.items():
            # The attention kernel, which may be code on the Hub, is chosen by who runs the model,
            # not by its file.
            if "_implementation" in str(key):
                continue
            if key in field_names or key in FRAMEWORK_KEYWORDS:
                keywords[key] = value
            else:
                unknown[key] = value
        return keywords, unknown

    @classmethod
    def _override_pattern(cls, saved: dict[str, Any], overrides: dict[str, Any]):
        """Drop saved `layer_types` that followed a depth or a pattern which is overridden."""
        if "layer_types" in overrides or not any(name in overrides for name in PATTERN_FIELDS):
            return
        depth = saved.get("num_hidden_layers", cls.num_hidden_layers)
        interval = saved.get("global_attn_every_n_layers", cls.global_attn_every_n_layers)
        if saved.get("layer_types") == attention_pattern(depth, interval):
            del saved["layer_types"]

    def to_dict(self) -> dict[str, Any]:
        """The dictionary that is saved. It has the full `auto_map`, with the user's own classes
        that are registered in it, and no attention implementation, which depends on the machine and
        not on the model."""
        our_files = {reference.partition(".")[0] for reference in AUTO_MAP.values()}
        auto_map = dict(AUTO_MAP)
        if self.architectures == [DETECTOR]:
            auto_map["AutoModelForPreTraining"] = f"modeling_minibert.{DETECTOR}"
        for name, reference in (getattr(self, "auto_map", None) or {}).items():
            file_name = str(reference).rpartition("--")[2].partition(".")[0]
            if file_name not in our_files:
                auto_map[name] = reference
        return super().to_dict() | {"auto_map": auto_map}


__all__ = ["MiniBertConfig"]
