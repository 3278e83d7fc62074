# Copyright 2026 The MiniBERT authors. Licensed under the Apache License, Version 2.0.
"""Rotary positions (RoPE; Su et al. 2021, arXiv 2104.09864): their computation, then their
parameters, which only the config checks. Between them stand the fixed sines of the first
Transformer, which have the same frequencies.

`rope_parameters` of a config has a dictionary for each kind of layer:

    {"full_attention":    {"rope_type": "default", "rope_theta": 160000.0},
     "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}

`rope_type` names one of Transformers' ways to scale the frequencies for longer texts. Each has
parameters of its own, see `REQUIRED_KEYS`.

Shape suffixes are those of `modeling_minibert.py`.
"""

import math
from typing import Any

import torch
from torch.nn import functional as F
from transformers.configuration_utils import PreTrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

# --- computation ---


def rotary_frequencies(
    width: int, theta: float | torch.Tensor, device: torch.device
) -> torch.Tensor:
    """theta^(-2i / width) (Su et al. 2021, eq. 15), [width / 2], in fp32."""
    return theta ** -(torch.arange(0, width, 2, device=device, dtype=torch.float32) / width)


def rotary_angles(
    positions_bs: torch.Tensor, frequencies: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin of the rotary angles (Su et al. 2021, eq. 34), [b, s, 1, frequencies], always in
    fp32."""
    angles = positions_bs.to(torch.float32)[..., None, None] * frequencies
    return angles.cos(), angles.sin()


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate the pairs (x_i, x_{i + width / 2}) of the first `width` elements of each head.

    Args:
        x: [b, s, heads, head width].
        cos, sin: [b, s, 1, width], as `MiniBertRotary` returns them; the sines of the first half
            are negative.
    """
    width = cos.shape[-1]
    if width < x.shape[-1]:
        rotated = rotate(x[..., :width], cos, sin)
        return torch.cat((rotated, x[..., width:]), dim=-1)
    first, second = x.chunk(2, dim=-1)
    swapped = torch.cat((second, first), dim=-1)
    return torch.addcmul(x * cos.to(x.dtype), swapped, sin.to(x.dtype))


class MiniBertRotary:
    """The rotary angles of one type of layer, scaled as `rope_parameters` say. It is no module and
    holds numbers, not buffers, so that nothing is lost or rounded when weights are loaded or cast.

    "dynamic" and "longrope" depend on the longest text of the batch, as in Transformers: if it is
    longer than the length trained for, it changes the vectors of the other texts too.

    Args:
        config: a config with complete `rope_parameters`.
        layer_type: "full_attention" or "sliding_attention".

    Attributes:
        rope_type: one of Transformers' types of scaling.
        width: how many elements of a head rotate.
        theta: the base of the frequencies, of the types "default" and "dynamic".
        factor: how many times as long texts may be, of the type "dynamic".
        trained_length: the longest text trained for, of the types "dynamic" and "longrope".
        frequencies: those of all types but "default" and "dynamic".
        long_frequencies: of the type "longrope", those of texts beyond `trained_length`.
        scaling: what cosines and sines are multiplied by.
    """

    def __init__(self, config: PreTrainedConfig, layer_type: str):
        parameters = config.rope_parameters[layer_type]
        head_width = config.hidden_size // config.num_attention_heads
        self.rope_type = parameters["rope_type"]
        self.width = int(head_width * (parameters.get("partial_rotary_factor") or 1.0))
        self.theta = parameters["rope_theta"]
        self.factor = parameters.get("factor")
        self.trained_length = config.max_position_embeddings
        self.frequencies: list[float] | None = None
        self.long_frequencies: list[float] | None = None
        self.scaling = 1.0
        if self.rope_type in ("default", "dynamic"):
            return
        compute = ROPE_INIT_FUNCTIONS[self.rope_type]
        with torch.device("cpu"):  # models are built on the meta device
            frequencies, self.scaling = compute(config, "cpu", None, layer_type)
            self.frequencies = frequencies.tolist()
            if self.rope_type == "longrope":
                self.trained_length = parameters[TRAINED_LENGTH]
                longer, _ = compute(config, "cpu", self.trained_length + 1, layer_type)
                self.long_frequencies = longer.tolist()

    def __call__(
        self, positions_bs: torch.Tensor, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The cosines and sines that `rotate` takes, [b, s, 1, width] each: computed in fp32, then
        rounded to `dtype`, once for all layers."""
        cos, sin = rotary_angles(positions_bs, self._frequencies(positions_bs))
        cos = torch.cat((cos, cos), dim=-1) * self.scaling
        sin = torch.cat((-sin, sin), dim=-1) * self.scaling
        return cos.to(dtype), sin.to(dtype)

    def _frequencies(self, positions_bs: torch.Tensor) -> torch.Tensor:
        """The frequencies for this batch, [width / 2]."""
        device = positions_bs.device
        if self.rope_type == "default":
            return rotary_frequencies(self.width, self.theta, device)
        if self.rope_type == "dynamic":
            theta = self._dynamic_theta(longest_text(positions_bs))
            return rotary_frequencies(self.width, theta, device)
        frequencies = torch.tensor(self.frequencies, device=device)
        if self.rope_type == "longrope":
            is_beyond = longest_text(positions_bs) > self.trained_length
            longer = torch.tensor(self.long_frequencies, device=device)
            frequencies = torch.where(is_beyond, longer, frequencies)
        return frequencies

    def _dynamic_theta(self, length: torch.Tensor) -> torch.Tensor:
        """NTK-aware scaling: beyond the length trained for, the base grows with the length."""
        growth = self.factor * length / self.trained_length - (self.factor - 1)
        exponent = self.width / (self.width - 2)
        return torch.where(length > self.trained_length, self.theta * growth**exponent, self.theta)


def longest_text(positions_bs: torch.Tensor) -> torch.Tensor:
    """The highest position plus 1; 1 if there is no token, as `max` refuses an empty tensor."""
    return F.pad(positions_bs.flatten(), (0, 1)).max() + 1


# --- fixed positions that are added to the embeddings ---


def sinusoidal_positions(positions_bs: torch.Tensor, width: int) -> torch.Tensor:
    """The fixed table of Vaswani et al. 2017 (section 3.5), [b, s, width]: sines and cosines
    interleaved."""
    frequencies = rotary_frequencies(width, 10_000.0, positions_bs.device)
    cos, sin = rotary_angles(positions_bs, frequencies)
    return torch.stack((sin, cos), dim=-1).flatten(2)


# --- parameters ---

# The kinds of layers, each with the base that ModernBERT has there.
DEFAULT_ROPE_THETA = {"full_attention": 160_000.0, "sliding_attention": 10_000.0}
LAYER_TYPES = tuple(DEFAULT_ROPE_THETA)

TRAINED_LENGTH = "original_max_position_embeddings"
# Weights are trained with these two: an override of the scaling keeps them.
TRAINED_KEYS = ("rope_theta", "partial_rotary_factor")
# What every type of scaling takes.
COMMON_KEYS = ("rope_type", *TRAINED_KEYS)
# What each type needs, and what it may have besides, as Transformers' ROPE_INIT_FUNCTIONS name it.
REQUIRED_KEYS: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor", TRAINED_LENGTH),
    "longrope": ("short_factor", "long_factor", TRAINED_LENGTH),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", TRAINED_LENGTH),
}
OPTIONAL_KEYS: dict[str, tuple[str, ...]] = {
    "yarn": (
        "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate",
    ),
    "longrope": ("factor", "attention_factor"),
}  # fmt: skip


def complete_rope(
    rope_parameters: dict[str, Any] | None, max_position_embeddings: int
) -> dict[str, dict[str, Any]]:
    """Complete the `rope_parameters` of a config: parameters for both kinds of layers, with default
    bases. Parameters beside the two kinds hold for both, and win over those of one kind: they may
    have been set later.

    Args:
        max_position_embeddings: the length that the model is trained for, which some types need.

    Raises:
        ValueError: they are not of this form, or a `rope_type` is unknown.
    """
    _check_form(rope_parameters)
    completed, for_both = _split_by_layer_type(rope_parameters or {})
    for layer_type, theta in DEFAULT_ROPE_THETA.items():
        defaults = {"rope_type": "default", "rope_theta": theta}
        parameters = defaults | completed.get(layer_type, {}) | for_both
        _check_type(layer_type, parameters["rope_type"])
        # The types that do not need the trained length lose it.
        if TRAINED_LENGTH in REQUIRED_KEYS[parameters["rope_type"]]:
            parameters.setdefault(TRAINED_LENGTH, max_position_embeddings)
        else:
            parameters.pop(TRAINED_LENGTH, None)
        completed[layer_type] = parameters
    return completed


def _split_by_layer_type(
    rope_parameters: dict[str, Any],
) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """The parameters of each kind of layer; and those that stand beside them, for both."""
    by_layer_type = {}
    for_both = {}
    for name, value in rope_parameters.items():
        if isinstance(value, dict) or name in LAYER_TYPES:
            by_layer_type[name] = value or {}
        else:
            for_both[name] = value
    return by_layer_type, for_both


def check_named_once(rope_parameters: Any) -> None:
    """Refuse (a ValueError) `rope_parameters` of a caller that are not of the right form, or name a
    parameter for both kinds of layers, and again for one of them."""
    _check_form(rope_parameters)
    if rope_parameters is None:
        return
    by_layer_type, for_both = _split_by_layer_type(rope_parameters)
    for layer_type, parameters in by_layer_type.items():
        in_both_places = for_both.keys() & parameters.keys()
        if in_both_places:
            raise ValueError(
                f"rope_parameters: {min(in_both_places)!r} is given for {layer_type!r} and for "
                "both kinds of layers; give it once"
            )


def override_rope(saved: Any, rope_parameters: Any) -> Any:
    """`rope_parameters` that a caller passes for a saved model, completed by what its weights were
    trained with. The type of scaling and its parameters are replaced, all together; the base and
    the rotated part stay, unless the caller names them. If `saved` does not have a dictionary for
    each kind of layer, nothing of it stays.

    Raises:
        ValueError: see `check_named_once`.
    """
    check_named_once(rope_parameters)
    if not isinstance(saved, dict):
        return rope_parameters
    if not all(isinstance(parameters, dict) for parameters in saved.values()):
        return rope_parameters
    completed, for_both = _split_by_layer_type(rope_parameters)
    for layer_type in (*LAYER_TYPES, *(saved.keys() - set(LAYER_TYPES))):
        parameters = saved.get(layer_type, {})
        override = for_both | completed.get(layer_type, {})
        if override:
            parameters = {key: parameters[key] for key in TRAINED_KEYS if key in parameters}
        completed[layer_type] = parameters | override
    return completed


def _check_form(rope_parameters: Any) -> None:
    """Refuse what is no dictionary, and what has something else than one for a kind of layer. None
    stands for the defaults, in either place."""
    if rope_parameters is None:
        return
    if not isinstance(rope_parameters, dict):
        raise ValueError(
            f"rope_parameters={rope_parameters!r}: use a dictionary, such as "
            "{'rope_theta': 10000.0}"
        )
    for layer_type in LAYER_TYPES:
        parameters = rope_parameters.get(layer_type)
        if parameters is not None and not isinstance(parameters, dict):
            raise ValueError(
                f"rope_parameters[{layer_type!r}]={parameters!r}: use a dictionary, such as "
                "{'rope_theta': 10000.0}"
            )


def _check_type(layer_type: str, rope_type: Any) -> None:
    """Refuse an unknown type of scaling."""
    if not isinstance(rope_type, str) or rope_type not in REQUIRED_KEYS:
        raise ValueError(
            f"rope_parameters[{layer_type!r}]['rope_type']={rope_type!r}: use one of "
            f"{', '.join(REQUIRED_KEYS)}"
        )


def check_rope(rope_parameters: dict[str, dict[str, Any]], head_width: int) -> None:
    """Refuse (a ValueError) wrong `rope_parameters`, completed by `complete_rope`."""
    for layer_type, parameters in rope_parameters.items():
        if layer_type not in LAYER_TYPES:
            raise ValueError(
                f"rope_parameters has the key {layer_type!r}: use {', '.join(LAYER_TYPES)}"
            )
        _check_keys(layer_type, parameters)
        _check_values(layer_type, parameters, head_width)


def _check_keys(layer_type: str, parameters: dict[str, Any]) -> None:
    """Refuse a type that is unknown, lacks a parameter, or has one that it does not take."""
    name = f"rope_parameters[{layer_type!r}]"
    rope_type = parameters["rope_type"]
    _check_type(layer_type, rope_type)
    required = REQUIRED_KEYS[rope_type]
    for key in required:
        if parameters.get(key) is None:
            raise ValueError(f"{name}[{key!r}]=None: rope_type={rope_type!r} needs it")
    usable = (*COMMON_KEYS, *required, *OPTIONAL_KEYS.get(rope_type, ()))
    for key, value in parameters.items():
        if key not in usable:
            raise ValueError(
                f"{name}[{key!r}]={value!r}: rope_type={rope_type!r} has no such key; use "
                f"{', '.join(usable)}"
            )


def _check_values(layer_type: str, parameters: dict[str, Any], head_width: int) -> None:
    """Refuse a number that cannot be, a part of a head that cannot rotate, and factors that are not
    one for each frequency."""
    name = f"rope_parameters[{layer_type!r}]"
    for key, value in parameters.items():
        if key in ("rope_type", "short_factor", "long_factor"):
            continue
        if key == "truncate":
            # Transformers ignores it in the parameters of one kind of layer.
            if value not in (None, True):
                raise ValueError(f"{name}[{key!r}]={value!r}: only true is possible")
            continue
        is_left_out = value is None and key != "rope_theta"
        if not is_left_out and not is_positive(value):
            raise ValueError(f"{name}[{key!r}]={value!r}: use a number above 0")

    part = parameters.get("partial_rotary_factor") or 1.0
    rotated = int(head_width * part)
    least = 2
    if parameters["rope_type"] == "dynamic":
        least = 4  # `_dynamic_theta` divides by the rotated width minus 2
    if part > 1 or rotated < least or rotated % 2:
        raise ValueError(
            f"{name}['partial_rotary_factor']={parameters.get('partial_rotary_factor')!r}: it must "
            f"leave an even number, at least {least}, of a head's width, not {rotated}"
        )
    for key in ("short_factor", "long_factor"):
        if key not in parameters:
            continue
        factors = parameters[key]
        is_list = isinstance(factors, (list, tuple)) and all(map(is_positive, factors))
        if not is_list or len(factors) != rotated // 2:
            raise ValueError(f"{name}[{key!r}]={factors!r}: use {rotated // 2} numbers above 0")


def is_positive(value: Any) -> bool:
    """Whether it is a finite number above 0."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and 0 < value < math.inf
