"""NeoBERT's published formulas (Le Breton et al. 2025, arXiv 2502.19587, and the code beside its weights), written out
for the modules that hold its weights. `use_formulas` makes models of them that run.

Asked for `output_attentions`, the published code multiplies the scores by the padding mask, so that padding is seen;
here it is left out of every softmax, as it is there otherwise. Hidden states are listed as Transformers does: the
embeddings first, and the last one behind the final norm.
"""

import math

import torch
from torch.nn import functional as F
from transformers.modeling_outputs import BaseModelOutput, MaskedLMOutput, SequenceClassifierOutput

from minibert.training.conversion import neobert


def norm(module, x, eps):
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * module.weight


def rotated(x: torch.Tensor) -> torch.Tensor:
    """[B, N, H, W]: units 2i and 2i + 1 of a head are a complex number, turned by n · 10000^(−2i / W)."""
    length, width = x.shape[1], x.shape[3]
    angles = torch.outer(torch.arange(length), 10_000.0 ** (-torch.arange(0, width, 2) / width))
    turned = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) * torch.polar(
        torch.ones_like(angles), angles
    ).unsqueeze(1)
    return torch.view_as_real(turned).flatten(3)


def encode(self, input_ids, attention_mask=None, output_hidden_states=False, output_attentions=False):
    heads, eps = self.config.num_attention_heads, self.config.norm_eps
    x = self.encoder(input_ids)
    states, attentions = [], []
    for layer in self.transformer_encoder:
        states.append(x)
        of_heads = layer["qkv"](norm(layer["attention_norm"], x, eps)).unflatten(2, (heads, -1))
        query, key, value = of_heads.chunk(3, dim=-1)  # [B, N, H, W]
        scores = torch.einsum("bqhw,bkhw->bhqk", rotated(query), rotated(key)) / math.sqrt(query.shape[-1])
        if attention_mask is not None:
            scores = scores.masked_fill(attention_mask[:, None, None] == 0, float("-inf"))
        attentions.append(scores.softmax(-1))
        x = x + layer["wo"](torch.einsum("bhqk,bkhw->bqhw", attentions[-1], value).flatten(2))
        gate, up = layer["ffn"]["w12"](norm(layer["ffn_norm"], x, eps)).chunk(2, dim=-1)
        x = x + layer["ffn"]["w3"](F.silu(gate) * up)
    x = norm(self.layer_norm, x, eps)
    hidden_states = (*states, x) if output_hidden_states else None
    return BaseModelOutput(x, hidden_states, tuple(attentions) if output_attentions else None)


def predict(self, input_ids, attention_mask=None, labels=None, **kwargs):
    encoded = self.model(input_ids, attention_mask, **kwargs)
    logits = self.decoder(encoded.last_hidden_state)
    loss = None if labels is None else F.cross_entropy(logits.flatten(0, 1), labels.flatten())
    return MaskedLMOutput(loss, logits, encoded.hidden_states, encoded.attentions)


def classify(self, input_ids, attention_mask=None, labels=None, **kwargs):
    """Without dropout."""
    encoded = self.model(input_ids, attention_mask, **kwargs)
    logits = self.classifier(torch.tanh(self.dense(encoded.last_hidden_state[:, 0])))
    loss = None if labels is None else self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
    return SequenceClassifierOutput(loss, logits, encoded.hidden_states, encoded.attentions)


def use_formulas():
    neobert.NeoBERT.forward = encode
    neobert.NeoBERTLMHead.forward = predict
    neobert.NeoBERTForSequenceClassification.forward = classify
