"""Every two values of all switches together, each combination against a model written down here in float64.

The combinations are a covering array: any two values of two switches occur together in one of them at least. What is
random (dropout, initialisation) is left out, and flex attention, which has no backward on CPU.
"""

import copy
import itertools
import random

import pytest
import torch
from encoder_texts import LENGTHS, Texts
from helpers import LABELS, VOCAB, build
from model.test_modeling import LAYOUTS
from torch import Tensor
from torch.nn import functional as F

SWITCHES = {
    "head": ("ForMaskedLM", "ForSequenceClassification"), "way": ("sdpa", "sdpa, padded rows", "eager"),
    "dtype": (torch.float64, torch.float32, torch.bfloat16), "layout": tuple(LAYOUTS),
    "recomputed": (False, True),  # gradient checkpointing
    # --- the config ---
    "position_embedding_type": ("absolute", "sinusoidal", "rope", "none"), "num_attention_heads": (1, 4),
    "type_vocab_size": (0, 2), "norm_type": ("layernorm", "rmsnorm"), "norm_placement": ("pre", "post"),
    "norm_eps": (1e-5, 1e-2), "norm_bias": (False, True), "hidden_act": ("gelu", "relu", "silu"),
    "gated_mlp": (False, True), "attention_bias": (False, True), "mlp_bias": (False, True),
    "global_attn_every_n_layers": (1, 2), "local_attention": (2, 7), "is_causal": (False, True),
    "add_pooling_layer": (False, True), "classifier_pooling": ("cls", "mean"),
    "classifier_activation": ("gelu", "tanh"), "head_bias": (False, True), "decoder_bias": (False, True),
    "classifier_bias": (False, True), "tie_word_embeddings": (False, True), "share_layers": (False, True),
}  # fmt: skip
# Of the loss, and of the length of a gradient. Rotary angles are in fp32, whatever the model is in.
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-4, torch.bfloat16: 0.1}


NUMBER = {name: number for number, name in enumerate(SWITCHES)}


def pair(*values: tuple) -> tuple:
    return tuple(sorted(values, key=lambda value: NUMBER[value[0]]))


def pairs_of(row: dict) -> set[tuple]:
    return {pair(*two) for two in itertools.combinations(row.items(), 2)}


def covering_array(seed: int = 1) -> list[dict]:
    """Rows in which every pair of values occurs: one after the other the best of a few that are begun with a missing
    pair and filled up with the values that bring most (Cohen et al. 1997)."""
    draw, rows = random.Random(seed), []
    missing = {
        ((a, x), (b, y))
        for a, b in itertools.combinations(SWITCHES, 2)
        for x in SWITCHES[a]
        for y in SWITCHES[b]
    }
    while missing:
        candidates = []
        for first in draw.sample(sorted(missing, key=str), min(10, len(missing))):
            row = dict(first)
            for name in draw.sample(list(SWITCHES), len(SWITCHES)):
                values = (
                    [row[name]] if name in row else draw.sample(SWITCHES[name], len(SWITCHES[name]))
                )
                row[name] = max(
                    values,
                    key=lambda x: sum(pair((name, x), old) in missing for old in row.items()),
                )
            candidates.append({name: row[name] for name in SWITCHES})
        rows.append(max(candidates, key=lambda row: len(pairs_of(row) & missing)))
        missing -= pairs_of(rows[-1])
    return rows


ROWS = covering_array()


def test_every_pair_occurs():
    wanted = sum(len(x) * len(y) for x, y in itertools.combinations(SWITCHES.values(), 2))
    assert len(set.union(*map(pairs_of, ROWS))) == wanted and len(ROWS) < 40


# --- the model, from the papers' formulas; one text at a time ---


class Reference:
    def __init__(self, config, weights: dict[str, Tensor]):
        self.config, self.weights = config, weights

    def norm(self, name: str, x: Tensor) -> Tensor:
        if self.config.norm_type == "layernorm":
            x = x - x.mean(-1, keepdim=True)
        x = (
            x
            / (x.pow(2).mean(-1, keepdim=True) + self.config.norm_eps).sqrt()
            * self.weights[f"{name}.weight"]
        )
        return x + self.weights.get(f"{name}.bias", 0)

    def linear(self, name: str, x: Tensor) -> Tensor:
        return x @ self.weights[f"{name}.weight"].T + self.weights.get(f"{name}.bias", 0)

    def act(self, name: str, x: Tensor) -> Tensor:
        return {
            "gelu": lambda: x * (1 + torch.erf(x / 2**0.5)) / 2,
            "relu": lambda: x.clamp(min=0),
            "silu": lambda: x / (1 + torch.exp(-x)),
            "tanh": lambda: torch.tanh(x),
        }[name]()

    def angles(self, length: int, width: int, theta: float) -> Tensor:
        rates = [theta ** (-i / width) for i in range(0, width, 2)]
        return torch.arange(length)[:, None].double() * torch.tensor(rates).double()

    def embed(self, ids: Tensor, segments: Tensor) -> Tensor:
        config, place = self.config, "model.embeddings."
        x = self.weights[place + "tok_embeddings.weight"][ids]
        if config.type_vocab_size:
            x = x + self.weights[place + "token_type_embeddings.weight"][segments]
        if config.position_embedding_type == "absolute":
            x = x + self.weights[place + "position_embeddings.weight"][: len(ids)]
        elif config.position_embedding_type == "sinusoidal":
            angles = self.angles(len(ids), config.hidden_size, 10_000)
            x = x + torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
        return self.norm(place + "norm", x)

    def layer(self, number: int) -> str:
        return f"model.layers.{0 if self.config.share_layers else number}"

    def attend(self, layer: int, x: Tensor) -> Tensor:
        config, kind, length = self.config, self.config.layer_types[layer], len(x)
        heads = [part.unflatten(1, (config.num_attention_heads, -1)).transpose(0, 1)
                 for part in self.linear(f"{self.layer(layer)}.attn.Wqkv", x).chunk(3, 1)]  # fmt: skip
        if (
            config.position_embedding_type == "rope"
        ):  # pairs of coordinates as complex numbers, turned
            turns = self.angles(
                length, heads[0].shape[-1], config.rope_parameters[kind]["rope_theta"]
            )
            turns = torch.polar(torch.ones_like(turns), turns)
            for i in range(2):
                turned = torch.complex(*heads[i].chunk(2, -1)) * turns
                heads[i] = torch.cat([turned.real, turned.imag], -1)
        far = torch.arange(length)[:, None] - torch.arange(length)
        seen = far.abs() <= (config.local_attention // 2 if kind == "sliding_attention" else length)
        seen = seen & (far >= 0) if config.is_causal else seen
        q, k, v = heads
        scores = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5).masked_fill(~seen, -torch.inf)
        return self.linear(
            f"{self.layer(layer)}.attn.Wo", (scores.softmax(-1) @ v).transpose(0, 1).flatten(1)
        )

    def mlp(self, layer: int, x: Tensor) -> Tensor:
        inner = self.linear(f"{self.layer(layer)}.mlp.Wi", x)
        signal, *gate = inner.chunk(2, -1) if self.config.gated_mlp else (inner,)
        x = self.act(self.config.hidden_act, signal)
        return self.linear(f"{self.layer(layer)}.mlp.Wo", x * gate[0] if gate else x)

    def encode(self, ids: Tensor, segments: Tensor) -> Tensor:
        x = self.embed(ids, segments)
        for layer in range(self.config.num_hidden_layers):
            for part, norm in ((self.attend, "attn_norm"), (self.mlp, "mlp_norm")):
                name = f"{self.layer(layer)}.{norm}"
                # only the first layer has none, unless it is all layers
                has_norm = f"{name}.weight" in self.weights
                assert has_norm or name == "model.layers.0.attn_norm"
                assert has_norm or not self.config.share_layers
                if self.config.norm_placement == "post":
                    x = self.norm(name, x + part(layer, x))
                else:
                    x = x + part(layer, self.norm(name, x) if has_norm else x)
        return x if self.config.norm_placement == "post" else self.norm("model.final_norm", x)

    def head(self, x: Tensor) -> Tensor:
        return self.norm(
            "head.norm", self.act(self.config.classifier_activation, self.linear("head.dense", x))
        )

    def logits(self, head: str, ids: Tensor, segments: Tensor) -> Tensor:
        x = self.encode(ids, segments)
        if head == "ForMaskedLM":
            return self.linear("decoder", self.head(x))
        pooling = "last" if self.config.is_causal else self.config.classifier_pooling
        x = {"last": x[-1:], "cls": x[:1], "mean": x.mean(0, keepdim=True)}[pooling]
        x = (
            self.linear("model.pooler.dense", x).tanh()
            if self.config.add_pooling_layer
            else self.head(x)
        )
        return self.linear("classifier", x)


def described(row: dict) -> str:
    return "-".join(str(value).replace("torch.", "").replace(" ", "_") for value in row.values())


@pytest.mark.parametrize("row", ROWS, ids=described)
def test_loss_and_gradients(row):
    fields, texts = dict(row), Texts(VOCAB)
    head, way, dtype, layout, recomputed = (fields.pop(name) for name in list(row)[:5])
    model = build(head, num_labels=LABELS, rope_parameters=None, **fields).to(dtype).train()
    model.set_attn_implementation(way.split(",")[0])
    if recomputed:
        model.gradient_checkpointing_enable()
    inputs = LAYOUTS[layout].inputs(texts, segments=bool(fields["type_vocab_size"]))
    # classes among the first ids of the vocabulary; a class a text
    labels = LAYOUTS[layout].grid(texts.tokens, -100) if head == "ForMaskedLM" else texts.one
    loss = model(**inputs, labels=labels, output_hidden_states="padded" in way).loss
    loss.backward()

    twin = copy.deepcopy(model).double()
    weights = dict(twin.named_parameters(remove_duplicate=False))
    twin.zero_grad()
    reference = Reference(model.config, weights)
    logits = torch.cat([reference.logits(head, *text) for text in zip(texts.ids, texts.segments)])
    expected = F.cross_entropy(
        logits, torch.cat(texts.tokens) if head == "ForMaskedLM" else texts.one
    )
    expected.backward()

    assert (
        logits.shape == (sum(LENGTHS), VOCAB) if head == "ForMaskedLM" else (len(LENGTHS), LABELS)
    )
    assert abs(loss.item() - expected.item()) <= TOLERANCE[dtype] * expected.item()
    lengths = [
        parameter.grad.norm() for parameter in twin.parameters() if parameter.grad is not None
    ]
    least = (
        5e-2 * torch.stack(lengths).norm()
    )  # of a gradient that is almost nothing, only so much is asked
    for (name, parameter), true in zip(model.named_parameters(), twin.parameters()):
        zero = torch.zeros_like(true)
        found, wanted = (zero if x.grad is None else x.grad.double() for x in (parameter, true))
        assert (found - wanted).norm() <= TOLERANCE[dtype] * max(wanted.norm(), least), name
