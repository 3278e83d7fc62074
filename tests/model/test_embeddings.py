"""Positions: RoPE, its scaling and partial rotation, sinusoids; against formulas, ModernBERT and GPT-NeoX."""

import copy

import pytest
import torch
from torch.testing import assert_close
from transformers import GPTNeoXConfig, ModernBertConfig, ModernBertForMaskedLM
from transformers.models.gpt_neox.modeling_gpt_neox import (
    GPTNeoXRotaryEmbedding,
    apply_rotary_pos_emb,
)

from minibert.configuration_minibert import MiniBertConfig
from minibert.modeling_minibert import MiniBertForMaskedLM, MiniBertModel
from minibert.rope_minibert import MiniBertRotary, rotate
from minibert.training.conversion import from_native, to_native

TRAINED, WIDTH = 32, 12  # the longest text that the models were trained for; of a head
KINDS = {
    "default": dict(rope_type="default"),
    "linear": dict(rope_type="linear", factor=3.0),
    "dynamic": dict(rope_type="dynamic", factor=3.0),
    "yarn": dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=TRAINED),
    "yarn, all keys": dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=8.0,
                           beta_slow=2.0, mscale=0.7, mscale_all_dim=0.4, truncate=True),
    "longrope": dict(rope_type="longrope", factor=4.0, original_max_position_embeddings=TRAINED,
                     short_factor=[1.0, 1.1, 1.2, 1.3, 1.4, 1.5], long_factor=[1.0, 1.5, 2.0, 3.0, 5.0, 8.0]),
    "llama3": dict(rope_type="llama3", factor=4.0, original_max_position_embeddings=16, low_freq_factor=1.0,
                   high_freq_factor=4.0),
}  # fmt: skip
FOLLOW_THE_LENGTH = ("dynamic", "longrope")


def parameters(kind: str, **fields) -> dict:
    """Of both kinds of layers, with bases that make positions of a few tokens differ."""
    return {
        name: dict(rope_theta=theta) | KINDS[kind] | fields
        for name, theta in (("full_attention", 500.0), ("sliding_attention", 50.0))
    }


def modernbert(rope_parameters: dict) -> ModernBertForMaskedLM:
    torch.manual_seed(0)
    config = ModernBertConfig(
        vocab_size=61, hidden_size=24, num_hidden_layers=4, num_attention_heads=2, intermediate_size=32, pad_token_id=0,
        local_attention=8, max_position_embeddings=TRAINED, initializer_range=0.3,
        rope_parameters=copy.deepcopy(rope_parameters), attn_implementation="eager",
    )  # fmt: skip
    return ModernBertForMaskedLM(config).eval()


@pytest.fixture(params=[20, TRAINED, 3 * TRAINED], ids=lambda length: f"{length} tokens")
def batch(request) -> dict[str, torch.Tensor]:
    ids = torch.randint(1, 61, (2, request.param), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[1, request.param // 2 :] = 0
    return dict(input_ids=ids, attention_mask=mask)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_rope_scaling_matches_modernbert(kind, batch, tmp_path):
    """On every way, and after a save: models are built on the meta device then."""
    native, real = modernbert(parameters(kind)), batch["attention_mask"].bool()
    ours = from_native(native)
    ours.save_pretrained(tmp_path)
    expected = native(**batch).logits[real]
    for model in (ours, MiniBertForMaskedLM.from_pretrained(tmp_path).eval()):
        for attention in ("sdpa", "eager"):
            model.set_attn_implementation(attention)
            assert_close(model(**batch).logits[real], expected, rtol=0, atol=1e-5)
    again = to_native(ours)
    assert again.config.rope_parameters == native.config.rope_parameters
    assert_close(again(**batch).logits[real], expected, rtol=0, atol=1e-5)


@torch.no_grad()
def test_each_kind_of_layer_may_be_scaled_otherwise(batch):
    mixed = parameters("yarn") | {"sliding_attention": parameters("linear")["sliding_attention"]}
    native, real = modernbert(mixed), batch["attention_mask"].bool()
    assert_close(
        from_native(native)(**batch).logits[real], native(**batch).logits[real], rtol=0, atol=1e-5
    )


@torch.no_grad()
def test_rope_scaling_changes_the_logits(batch):
    """Every kind gives other logits than no scaling; those that follow the length only beyond it."""
    plain = from_native(modernbert(parameters("default")))(**batch).logits
    long = batch["input_ids"].shape[1] > TRAINED
    for kind in KINDS.keys() - {"default"}:
        scaled = from_native(modernbert(parameters(kind)))(**batch).logits
        if kind == "dynamic" and not long:
            assert_close(scaled, plain, rtol=0, atol=1e-6)
        else:
            assert (scaled - plain).abs().max() > 1e-3, kind


def config(**fields) -> MiniBertConfig:
    return MiniBertConfig(
        vocab_size=61, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        local_attention=8, max_position_embeddings=TRAINED, initializer_range=0.3, **fields,
    )  # fmt: skip


@pytest.mark.parametrize("part", [0.5, 0.34, 1.0])
def test_partial_rotation_is_that_of_gpt_neox(part):
    given = dict(rope_theta=300.0, partial_rotary_factor=part)
    neox = GPTNeoXRotaryEmbedding(
        GPTNeoXConfig(
            hidden_size=24, num_attention_heads=2, rope_parameters=dict(rope_type="default") | given
        )
    )
    query, key = torch.randn(2, 2, 2, 9, WIDTH)  # [b, h, s, width] each
    positions = torch.arange(9)[None]
    expected = apply_rotary_pos_emb(query, key, *neox(query, positions))
    rotary = MiniBertRotary(config(rope_parameters=given), "full_attention")(
        positions, torch.float32
    )
    for x, turned in zip((query, key), expected):
        assert_close(rotate(x.transpose(1, 2), *rotary).transpose(1, 2), turned, rtol=0, atol=1e-6)
    unmoved = WIDTH - int(WIDTH * part)
    assert torch.equal(expected[0][..., WIDTH - unmoved :], query[..., WIDTH - unmoved :])


def test_a_partly_rotated_model_is_no_modernbert():
    model = MiniBertModel(config(rope_parameters=dict(partial_rotary_factor=0.5)))
    with pytest.raises(ValueError, match="modernbert needs rope_parameters"):
        to_native(model, "modernbert")


@pytest.mark.parametrize("kind", KINDS)
def test_frequencies_do_not_follow_the_dtype(kind):
    model = MiniBertModel(config(rope_parameters=parameters(kind))).bfloat16()
    expected = MiniBertModel(config(rope_parameters=parameters(kind))).rotary["full_attention"]
    angles = torch.arange(2 * TRAINED)[None], torch.float32
    assert all(map(torch.equal, model.rotary["full_attention"](*angles), expected(*angles)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", FOLLOW_THE_LENGTH)
@torch.no_grad()
def test_length_dependent_rope_is_exported_for_every_length(kind):
    torch.manual_seed(0)
    model = MiniBertModel(config(rope_parameters=parameters(kind))).eval()
    ids = torch.randint(1, 61, (2, 20))
    dynamic = dict(input_ids={1: torch.export.Dim("length", max=200)})
    program = torch.export.export(model, (), dict(input_ids=ids), dynamic_shapes=dynamic)
    for length in (9, TRAINED, 3 * TRAINED):
        ids = torch.randint(1, 61, (2, length))
        actual, expected = program.module()(input_ids=ids), model(ids)
        assert_close(actual.last_hidden_state, expected.last_hidden_state, rtol=0, atol=1e-5)
