"""The models that run against each other, and one step of each.

A peer is made of a MiniBERT by `to_native`, so that both have the same shape and, parameter for parameter, the same
weights. (DeBERTa-v3 has no such twin: it gets the same width, depth, heads and number of MLP parameters.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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

Build = Callable[[MiniBertConfig], PreTrainedModel]


class SparseBertForMaskedLM(BertForMaskedLM):
    """BertForMaskedLM with the vocabulary at the labelled positions only: the control for what is won beyond that."""

    def forward(self, input_ids, attention_mask=None, labels=None, **kwargs) -> MaskedLMOutput:
        hidden = self.bert(input_ids, attention_mask=attention_mask, **kwargs).last_hidden_state
        chosen = labels != -100
        logits = self.cls(hidden[chosen])
        return MaskedLMOutput(loss=F.cross_entropy(logits, labels[chosen]), logits=logits)


def native(ours: PreTrainedModel) -> PreTrainedModel:
    """The peer of a MiniBERT: BertForMaskedLM, ModernBertModel, …

    Raises:
        RuntimeError: it has another number of parameters.
    """
    peer = to_native(ours)
    if peer.num_parameters() != ours.num_parameters():
        raise RuntimeError(
            f"not comparable: {type(ours).__name__} has {ours.num_parameters()} parameters, {type(peer).__name__} "
            f"{peer.num_parameters()}"
        )
    return peer


def native_masked_lm(config: MiniBertConfig) -> PreTrainedModel:
    return native(MiniBertForMaskedLM(config))


def native_encoder(config: MiniBertConfig) -> PreTrainedModel:
    return native(MiniBertModel(config))


def sparse_masked_lm(config: MiniBertConfig) -> PreTrainedModel:
    """The peer with the vocabulary at the labelled positions only."""
    model = native_masked_lm(config)
    if isinstance(model, BertForMaskedLM):
        sparse = SparseBertForMaskedLM(model.config)
        sparse.load_state_dict(model.state_dict())
        return sparse
    model.sparse_prediction = True
    return model


def with_attention(build: Build, implementation: str, config: MiniBertConfig) -> PreTrainedModel:
    """A model on another attention implementation.

    Raises:
        ImportError: this machine does not have it; Transformers would fetch a kernel from the Hub.
    """
    if implementation in INSTALLED and not INSTALLED[implementation]():
        raise ImportError(f"{implementation} is not installed")
    model = build(config)
    model.set_attn_implementation(implementation)
    return model


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


class ModelStep:
    """What is timed: called with the number of a batch, the model's work on it. What it returns is the same for all
    models, up to rounding.

    Training: one optimizer step, whose loss it returns: forward (bf16 is autocast), backward, fused AdamW. Inference:
    one forward, weights and activations in `dtype`, that returns the last hidden states.

    Args:
        batches: on `device`.
        compiled: by `torch.compile`.
    """

    def __init__(
        self, build: Build, config: MiniBertConfig, batches: Sequence[Mapping[str, torch.Tensor]],
        device: torch.device, dtype: torch.dtype, training: bool, compiled: bool,
    ):  # fmt: skip
        torch.manual_seed(SEED)
        self.batches = batches
        self.model = build(config).to(device, None if training else dtype).train(training)
        if compiled:
            self.model.compile()
        if training:
            self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        self.autocast = torch.autocast(device.type, torch.bfloat16, training and dtype == torch.bfloat16)

    def __call__(self, number: int) -> torch.Tensor:
        if not self.model.training:
            with torch.inference_mode():
                return self.model(**self.batches[number]).last_hidden_state
        with self.autocast:
            loss = self.model(**self.batches[number]).loss
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def attention(self) -> dict[str, str]:
        """See `attention_reasons`; nothing for a peer."""
        if type(self.model) not in (MiniBertForMaskedLM, MiniBertModel):
            return {}
        with self.autocast:
            return attention_reasons(self.model, self.batches[0])


def attention_reasons(model: PreTrainedModel, batch: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """The kernel that a MiniBERT's attention takes on a batch, and why, by type of layer.

    Args:
        model: as it runs: its device, mode and dtype, within the autocast that it runs under.
    """
    with torch.set_grad_enabled(model.training):
        inputs = {name: x for name, x in batch.items() if name != "labels"}
        plans = model.base_model(**inputs, padded_output=False).plans
    return {kind: plan.reason for (kind, _), plan in sorted(plans.items())}
