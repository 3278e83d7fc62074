"""The models that run against each other, and one step of each.

A peer is made of a MiniBERT by `to_native`, so that both have the same shape and, parameter for parameter, the same
weights. (DeBERTa-v3 has no such twin: it gets the same width, depth, heads and number of MLP parameters.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional as F
from transformers import BertForMaskedLM, DebertaV2Config, DebertaV2Model, PreTrainedModel
from transformers.modeling_outputs import MaskedLMOutput
from transformers.utils import is_flash_attn_2_available, is_flash_attn_3_available

from ...configuration_minibert import MiniBertConfig
from ...modeling_minibert import MiniBertForMaskedLM, MiniBertModel
from ..conversion import to_native

SEED = 0

INSTALLED = {"flash_attention_2": is_flash_attn_2_available, "flash_attention_3": is_flash_attn_3_available}

# What is timed: called with the number of a batch. What it returns is the same for all contenders, up to rounding.
Step = Callable[[int], Any]


class SparseBertForMaskedLM(BertForMaskedLM):
    """BertForMaskedLM with the vocabulary at the labelled positions only: the control for what is won beyond that."""

    def forward(self, input_ids, attention_mask=None, labels=None, **kwargs) -> MaskedLMOutput:
        hidden = self.bert(input_ids, attention_mask=attention_mask, **kwargs).last_hidden_state
        chosen = labels != -100
        logits = self.cls(hidden[chosen])
        return MaskedLMOutput(loss=F.cross_entropy(logits, labels[chosen]), logits=logits)


# --- models ---


def masked_lm(config: MiniBertConfig) -> PreTrainedModel:
    return MiniBertForMaskedLM(config)


def encoder(config: MiniBertConfig) -> PreTrainedModel:
    return MiniBertModel(config)


def native_masked_lm(config: MiniBertConfig) -> PreTrainedModel:
    """BertForMaskedLM or ModernBertForMaskedLM as it is."""
    return same_size(masked_lm(config), to_native)


def native_encoder(config: MiniBertConfig) -> PreTrainedModel:
    """BertModel or ModernBertModel."""
    return same_size(encoder(config), to_native)


def sparse_bert(config: MiniBertConfig) -> PreTrainedModel:
    native = native_masked_lm(config)
    sparse = SparseBertForMaskedLM(native.config)
    sparse.load_state_dict(native.state_dict())
    return sparse


def sparse_modernbert(config: MiniBertConfig) -> PreTrainedModel:
    native = native_masked_lm(config)
    native.sparse_prediction = True
    return native


def with_attention(build: Callable[[MiniBertConfig], PreTrainedModel], implementation: str):
    """The same model on another attention backend; building it raises where this machine does not have it."""

    def build_with_attention(config: MiniBertConfig) -> PreTrainedModel:
        # Transformers would go and fetch a kernel from the Hub.
        if implementation in INSTALLED and not INSTALLED[implementation]():
            raise ImportError(f"{implementation} is not installed")
        model = build(config)
        model.set_attn_implementation(implementation)
        return model

    return build_with_attention


def deberta_encoder(config: MiniBertConfig) -> PreTrainedModel:
    """DeBERTa-v3 (He et al. 2021, arXiv 2111.09543; the switches of deberta-v3-base) in the shape of `config`."""
    return DebertaV2Model(
        DebertaV2Config(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            num_hidden_layers=config.num_hidden_layers,
            num_attention_heads=config.num_attention_heads,
            # a gated MLP has three matrices, this one two
            intermediate_size=config.intermediate_size * (3 if config.gated_mlp else 2) // 2,
            layer_norm_eps=1e-7,
            relative_attention=True,
            position_buckets=256,
            norm_rel_ebd="layer_norm",
            share_att_key=True,
            pos_att_type=["p2c", "c2p"],
            position_biased_input=False,
        )
    )


def parameter_count(model: torch.nn.Module) -> int:
    """Parameters, tied ones once."""
    return sum(parameter.numel() for parameter in model.parameters())


def same_size(ours: PreTrainedModel, convert: Callable[[PreTrainedModel], PreTrainedModel]) -> PreTrainedModel:
    """The peer that `convert` makes of `ours`, refused unless it has as many parameters."""
    peer = convert(ours)
    counts = parameter_count(ours), parameter_count(peer)
    if counts[0] != counts[1]:
        raise RuntimeError(
            f"not comparable: {type(ours).__name__} has {counts[0]} parameters, {type(peer).__name__} {counts[1]}"
        )
    return peer


# --- steps ---


def training_step(
    build: Callable[[], PreTrainedModel],
    batches: Sequence[dict],
    device: torch.device,
    dtype: torch.dtype,
    compiled: bool,
) -> Step:
    """One optimizer step on a batch, whose loss it returns: forward (bf16 is autocast), backward, fused AdamW."""
    torch.manual_seed(SEED)
    model = build().to(device).train()
    if compiled:
        model.compile()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    autocast = torch.autocast(device.type, dtype=torch.bfloat16, enabled=dtype == torch.bfloat16)

    def step(number: int) -> torch.Tensor:
        with autocast:
            loss = model(**batches[number]).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def inference_step(
    build: Callable[[], PreTrainedModel],
    batches: Sequence[dict],
    device: torch.device,
    dtype: torch.dtype,
    compiled: bool,
) -> Step:
    """One forward of a batch, weights and activations in `dtype`, that returns the last hidden states."""
    torch.manual_seed(SEED)
    model = build().to(device, dtype).eval()
    if compiled:
        model.compile()

    @torch.inference_mode()
    def step(number: int) -> torch.Tensor:
        return model(**batches[number]).last_hidden_state

    return step
