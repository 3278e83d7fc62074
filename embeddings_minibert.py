# Copyright 2026 The MiniBERT authors. Licensed under the Apache License, Version 2.0.
"""What a token is before the first layer, and positions of every kind: learned and sinusoidal ones are added to word
vectors, rotary ones are the angles by which layers turn queries and keys (`rotate`).

Shape suffixes: b batch, s columns of the padded batch, d width; of unpadded tokens b is 1 and s counts them.
"""

import torch
from torch import nn
from torch.nn import functional as F
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from .attention_minibert import MiniBertDropout, build_linear, is_captured
from .configuration_minibert import MiniBertConfig

# --- positions ---


def rotary_frequencies(width: int, theta: float | torch.Tensor, device: torch.device) -> torch.Tensor:
    """theta^(-2i / width) (Su et al. 2021, eq. 15), [width / 2], in fp32."""
    return theta ** -(torch.arange(0, width, 2, device=device, dtype=torch.float32) / width)


def rotary_angles(position_bs: torch.Tensor, frequencies: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin of the rotary angles (Su et al. 2021, eq. 34), [b, s, 1, frequencies], always in fp32."""
    angles = position_bs.to(torch.float32)[..., None, None] * frequencies
    return angles.cos(), angles.sin()


def sinusoidal_positions(position_bs: torch.Tensor, width: int) -> torch.Tensor:
    """The fixed table of Vaswani et al. 2017 (section 3.5), [b, s, width]: sines and cosines interleaved."""
    cos, sin = rotary_angles(position_bs, rotary_frequencies(width, 10_000.0, position_bs.device))
    return torch.stack((sin, cos), dim=-1).flatten(2)


class MiniBertRotary:
    """The rotary angles of one kind of layer, scaled as `rope_parameters` say. No module, and numbers instead of
    buffers: nothing can be lost or rounded when weights are loaded or cast.

    "dynamic" and "longrope" follow the longest text of the batch, as in Transformers: there a text's vectors depend on
    its neighbours, if one of them is longer than what the model was trained for.
    """

    def __init__(self, config: MiniBertConfig, layer_type: str):
        parameters, kind = config.rope_parameters[layer_type], config.rope_parameters[layer_type]["rope_type"]
        part = parameters.get("partial_rotary_factor") or 1.0
        self.width = int(config.hidden_size // config.num_attention_heads * part)  # what is turned of a head
        self.theta, self.scaling = parameters["rope_theta"], 1.0
        self.factor = parameters["factor"] if kind == "dynamic" else None
        self.limit, self.frequencies, self.beyond = config.max_position_embeddings, None, None
        if kind not in ("default", "dynamic"):
            with torch.device("cpu"):  # models are built on the meta device
                compute = ROPE_INIT_FUNCTIONS[kind]
                frequencies, self.scaling = compute(config, "cpu", None, layer_type)
                self.frequencies = frequencies.tolist()
                if kind == "longrope":
                    self.limit = parameters["original_max_position_embeddings"]
                    self.beyond = compute(config, "cpu", self.limit + 1, layer_type)[0].tolist()

    def __call__(self, position_bs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What `rotate` takes, [b, s, 1, width] each."""
        device, theta, length = position_bs.device, self.theta, None
        if self.factor is not None or self.beyond is not None:
            length = F.pad(position_bs.flatten(), (0, 1)).max() + 1  # there may be no token
        if self.factor is not None:  # the base of "NTK-aware" scaling grows with the length
            grown = (self.factor * length / self.limit - (self.factor - 1)) ** (self.width / (self.width - 2))
            theta = torch.where(length > self.limit, theta * grown, theta)
        if self.frequencies is None:
            frequencies = rotary_frequencies(self.width, theta, device)
        else:
            frequencies = torch.tensor(self.frequencies, device=device)
        if self.beyond is not None:
            frequencies = torch.where(length > self.limit, torch.tensor(self.beyond, device=device), frequencies)
        cos, sin = rotary_angles(position_bs, frequencies)
        return torch.cat((cos, cos), dim=-1) * self.scaling, torch.cat((-sin, sin), dim=-1) * self.scaling


# --- words ---


def build_norm(config: MiniBertConfig, width: int | None = None) -> nn.Module:
    width = width or config.hidden_size
    if config.norm_type == "rmsnorm":
        return nn.RMSNorm(width, eps=config.norm_eps)
    return nn.LayerNorm(width, eps=config.norm_eps, bias=config.norm_bias)


def look_up(table: nn.Embedding, ids: torch.Tensor, name: str) -> torch.Tensor:
    """Rows of a table; a ValueError for what it does not have (on CPU: elsewhere it would mean to wait)."""
    if ids.dtype not in (torch.long, torch.int):
        raise ValueError(f"{name} has the type {ids.dtype}: give torch.long")
    rows = getattr(table, "num_embeddings", None)  # what an adapter wraps may not say it
    if rows and ids.device.type == "cpu" and ids.numel() and not is_captured(ids):
        low, high = map(int, ids.aminmax())
        if low < 0 or high >= rows:
            raise ValueError(f"{name} has {low if low < 0 else high}: give numbers from 0 to {rows - 1}")
    return table(ids)


class MiniBertEmbeddings(nn.Module):
    """Words, plus learned or sinusoidal positions and segments where there are some; norm, dropout, projection."""

    def __init__(self, config: MiniBertConfig):
        super().__init__()
        width = config.embedding_size or config.hidden_size
        if not -1 < (config.pad_token_id or 0) < config.vocab_size:
            raise ValueError(f"pad_token_id={config.pad_token_id}: it must be below vocab_size={config.vocab_size}")
        self.tok_embeddings = nn.Embedding(config.vocab_size, width, padding_idx=config.pad_token_id)
        self.position_embeddings = None
        if config.position_embedding_type == "absolute":
            self.position_embeddings = nn.Embedding(config.max_position_embeddings, width)
        self.sinusoidal = config.position_embedding_type == "sinusoidal"
        self.token_type_embeddings = None
        if config.type_vocab_size:
            self.token_type_embeddings = nn.Embedding(config.type_vocab_size, width)
        self.norm = build_norm(config, width) if config.embedding_norm else nn.Identity()
        rate = config.hidden_dropout if config.embedding_dropout is None else config.embedding_dropout
        self.dropout, self.projection = MiniBertDropout(rate), nn.Identity()
        if width != config.hidden_size:
            self.projection = build_linear(width, config.hidden_size, True, config.initializer_range)

    def forward(
        self,
        input_ids: torch.Tensor | None,
        inputs_embeds: torch.Tensor | None,
        token_type_ids: torch.Tensor | None,
        position_ids: torch.Tensor,
    ) -> torch.Tensor:
        """[b, s, d]; of unpadded tokens [1, t, d]"""
        x = look_up(self.tok_embeddings, input_ids, "input_ids") if inputs_embeds is None else inputs_embeds
        if self.token_type_embeddings is not None:
            if token_type_ids is None:
                token_type_ids = position_ids.new_zeros(1, 1)
            x = x + look_up(self.token_type_embeddings, token_type_ids, "token_type_ids")
        if self.position_embeddings is not None:
            x = x + look_up(self.position_embeddings, position_ids, "position_ids")
        elif self.sinusoidal:
            x = x + sinusoidal_positions(position_ids, x.shape[-1]).to(x.dtype)
        return self.projection(self.dropout(self.norm(x)))
