# Copyright 2026 The MiniBERT authors. Licensed under the Apache License, Version 2.0.
"""The input of the first layer, and position encodings of every kind. Learned and sinusoidal positions are added to the
word embeddings; rotary ones are angles by which the layers rotate queries and keys (`rotate`).

Shape suffixes: b batch, s columns of the padded batch, d width. With unpadded tokens, b is 1 and s counts the tokens.
"""

import torch
from torch import nn
from torch.nn import functional as F
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from .configuration_minibert import MiniBertConfig
from .cpu_minibert import MiniBertDropout
from .sequences_minibert import is_captured

# --- parts of every layer ---


def build_linear(inputs: int, outputs: int, bias: bool, std: float) -> nn.Linear:
    """A linear that carries the standard deviation of its initialization. Transformers initializes a model from outside
    its tree at modules with parameters only: an initialization written for a container would never run."""
    linear = nn.Linear(inputs, outputs, bias=bias)
    linear.init_std = std
    return linear


def build_norm(config: MiniBertConfig, width: int | None = None) -> nn.Module:
    width = width or config.hidden_size
    if config.norm_type == "rmsnorm":
        return nn.RMSNorm(width, eps=config.norm_eps)
    return nn.LayerNorm(width, eps=config.norm_eps, bias=config.norm_bias)


# --- positions ---


def rotary_frequencies(
    width: int, theta: float | torch.Tensor, device: torch.device
) -> torch.Tensor:
    """theta^(-2i / width) (Su et al. 2021, eq. 15), [width / 2], in fp32."""
    return theta ** -(torch.arange(0, width, 2, device=device, dtype=torch.float32) / width)


def rotary_angles(
    position_bs: torch.Tensor, frequencies: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin of the rotary angles (Su et al. 2021, eq. 34), [b, s, 1, frequencies], always in fp32."""
    angles = position_bs.to(torch.float32)[..., None, None] * frequencies
    return angles.cos(), angles.sin()


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate the pairs (x_i, x_{i + width / 2}) of the first `width` elements of each head.

    Args:
        x: [b, s, heads, head width].
        cos, sin: [b, s, 1, width], as `MiniBertRotary` returns them: the sines of the first half are negative.
    """
    width = cos.shape[-1]
    if width < x.shape[-1]:
        return torch.cat((rotate(x[..., :width], cos, sin), x[..., width:]), dim=-1)
    first, second = x.chunk(2, dim=-1)
    return torch.addcmul(x * cos.to(x.dtype), torch.cat((second, first), dim=-1), sin.to(x.dtype))


def sinusoidal_positions(position_bs: torch.Tensor, width: int) -> torch.Tensor:
    """The fixed table of Vaswani et al. 2017 (section 3.5), [b, s, width]: sines and cosines interleaved."""
    cos, sin = rotary_angles(position_bs, rotary_frequencies(width, 10_000.0, position_bs.device))
    return torch.stack((sin, cos), dim=-1).flatten(2)


class MiniBertRotary:
    """The rotary angles of one kind of layer, scaled as `rope_parameters` say. It is no module and holds numbers, not
    buffers, so that nothing is lost or rounded when weights are loaded or cast.

    "dynamic" and "longrope" depend on the longest text of the batch, as in Transformers: if it is longer than the
    length trained for, it changes the vectors of the other texts too.
    """

    def __init__(self, config: MiniBertConfig, layer_type: str):
        parameters = config.rope_parameters[layer_type]
        kind, part = parameters["rope_type"], parameters.get("partial_rotary_factor") or 1.0
        self.width = int(
            config.hidden_size // config.num_attention_heads * part
        )  # elements of a head that rotate
        self.theta, self.scaling = parameters["rope_theta"], 1.0
        self.limit = config.max_position_embeddings  # the length trained for
        self.factor = parameters["factor"] if kind == "dynamic" else None
        self.frequencies = None  # "default" and "dynamic" compute them from theta
        self.long_frequencies = None  # "longrope": those of texts beyond the limit
        if kind in ("default", "dynamic"):
            return
        with torch.device("cpu"):  # models are built on the meta device
            compute = ROPE_INIT_FUNCTIONS[kind]
            frequencies, self.scaling = compute(config, "cpu", None, layer_type)
            self.frequencies = frequencies.tolist()
            if kind == "longrope":
                self.limit = parameters["original_max_position_embeddings"]
                self.long_frequencies = compute(config, "cpu", self.limit + 1, layer_type)[
                    0
                ].tolist()

    def __call__(
        self, position_bs: torch.Tensor, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The cosines and sines that `rotate` takes, [b, s, 1, width] each: computed in fp32, then rounded to `dtype`,
        once for all layers."""
        device, theta, length = position_bs.device, self.theta, None
        if self.factor is not None or self.long_frequencies is not None:
            length = F.pad(position_bs.flatten(), (0, 1)).max() + 1  # `max` refuses an empty tensor
        if self.factor is not None:  # NTK-aware scaling: the base grows with the length
            grown = (self.factor * length / self.limit - (self.factor - 1)) ** (
                self.width / (self.width - 2)
            )
            theta = torch.where(length > self.limit, theta * grown, theta)
        if self.frequencies is None:
            frequencies = rotary_frequencies(self.width, theta, device)
        else:
            frequencies = torch.tensor(self.frequencies, device=device)
        if self.long_frequencies is not None:
            longer = torch.tensor(self.long_frequencies, device=device)
            frequencies = torch.where(length > self.limit, longer, frequencies)
        cos, sin = rotary_angles(position_bs, frequencies)
        pair = (
            torch.cat((cos, cos), dim=-1) * self.scaling,
            torch.cat((-sin, sin), dim=-1) * self.scaling,
        )
        return pair[0].to(dtype), pair[1].to(dtype)


# --- words ---


def look_up(table: nn.Embedding, ids: torch.Tensor, name: str) -> torch.Tensor:
    """Rows of an embedding: [b, s] → [b, s, d]. On CPU, an id without a row is a ValueError; reading ids elsewhere
    would mean waiting."""
    rows = getattr(table, "num_embeddings", None)  # adapters may wrap the embedding
    if rows and ids.device.type == "cpu" and ids.numel() and not is_captured(ids):
        low, high = map(int, ids.aminmax())
        if low < 0 or high >= rows:
            raise ValueError(
                f"{name} has {low if low < 0 else high}: use numbers from 0 to {rows - 1}"
            )
    return table(ids)


class MiniBertEmbeddings(nn.Module):
    """Word embeddings, plus learned or sinusoidal positions and segments if the config has them; then norm, dropout and
    projection."""

    def __init__(self, config: MiniBertConfig):
        super().__init__()
        width = config.embedding_size or config.hidden_size
        if not -1 < (config.pad_token_id or 0) < config.vocab_size:
            raise ValueError(
                f"pad_token_id={config.pad_token_id}: it must be below vocab_size={config.vocab_size}"
            )
        self.tok_embeddings = nn.Embedding(
            config.vocab_size, width, padding_idx=config.pad_token_id
        )
        self.position_embeddings = None
        if config.position_embedding_type == "absolute":
            self.position_embeddings = nn.Embedding(config.max_position_embeddings, width)
        self.sinusoidal = config.position_embedding_type == "sinusoidal"
        self.token_type_embeddings = None
        if config.type_vocab_size:
            self.token_type_embeddings = nn.Embedding(config.type_vocab_size, width)
        self.norm = build_norm(config, width) if config.embedding_norm else nn.Identity()
        rate = (
            config.hidden_dropout if config.embedding_dropout is None else config.embedding_dropout
        )
        self.dropout, self.projection = MiniBertDropout(rate), nn.Identity()
        if width != config.hidden_size:
            self.projection = build_linear(
                width, config.hidden_size, True, config.initializer_range
            )

    def forward(
        self, input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None,
        token_type_ids: torch.Tensor | None, position_ids: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        """Embed the tokens: [b, s] → [b, s, d]."""
        x = (
            look_up(self.tok_embeddings, input_ids, "input_ids")
            if inputs_embeds is None
            else inputs_embeds
        )
        if not is_captured(
            x
        ):  # integrated gradients replace one row by several copies of it, by a hook
            x = x.reshape(*position_ids.shape, x.shape[-1])
        if self.token_type_embeddings is not None:
            if token_type_ids is None:
                token_type_ids = position_ids.new_zeros(1, 1)
            x = x + look_up(self.token_type_embeddings, token_type_ids, "token_type_ids")
        if self.position_embeddings is not None:
            x = x + look_up(self.position_embeddings, position_ids, "position_ids")
        elif self.sinusoidal:
            x = x + sinusoidal_positions(position_ids, x.shape[-1]).to(x.dtype)
        return self.projection(self.dropout(self.norm(x)))
