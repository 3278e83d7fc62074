"""`share_layers`: one layer used `num_hidden_layers` times, as in ALBERT (Lan et al. 2019). Its outputs, losses and
gradients in every combination of switches are in `test_combinations`."""

import math

import pytest
import torch
from accelerate import infer_auto_device_map
from helpers import BERT, FAMILIES, build
from torch.testing import assert_close

from minibert import MiniBertForMaskedLM, MiniBertModel

PASSES = 3
# Without a norm before the first layer, copies of it would be no layers of the same kind.
SHARED = {
    "bert": BERT | dict(layer_types=["full_attention", "sliding_attention", "full_attention"]),
    "modernbert": dict(embedding_norm=False),
}
IDS = torch.randint(1, 61, (2, 12), generator=torch.Generator().manual_seed(0))


def shared_and_copies(head: str, family: str):
    """A model with one layer, and a model with that many copies of it."""
    fields = SHARED[family] | dict(num_hidden_layers=PASSES)
    shared = build(head, share_layers=True, **fields)
    copies = build(head, **fields)
    weights = shared.state_dict()
    for name in copies.state_dict():
        number = next((part for part in name.split(".") if part.isdigit()), "0")
        weights[name] = shared.state_dict()[name.replace(f"layers.{number}.", "layers.0.")]
    copies.load_state_dict(weights)
    return shared, copies


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", SHARED)
def test_states_and_attentions_of_every_pass_are_those_of_copies(family, attention):
    shared, copies = shared_and_copies("Model", family)
    for model in (shared, copies):
        model.eval().set_attn_implementation(attention)
    mask = torch.ones_like(IDS)
    mask[0, 7:] = 0
    wanted = dict(output_hidden_states=True, output_attentions=attention == "eager")
    with torch.no_grad():
        actual = shared(IDS, attention_mask=mask, **wanted)
        expected = copies(IDS, attention_mask=mask, **wanted)
    assert len(actual.hidden_states) == PASSES + 1
    assert_close(actual.hidden_states, expected.hidden_states)
    assert len(actual.attentions or ()) == (PASSES if attention == "eager" else 0)
    assert_close(actual.attentions, expected.attentions)
    assert_close(actual.last_hidden_state, expected.last_hidden_state)


@pytest.mark.parametrize("recomputed", [False, True])
@pytest.mark.parametrize("family", SHARED)
def test_the_gradient_is_the_sum_of_those_of_all_passes(family, recomputed):
    shared, copies = shared_and_copies("ForMaskedLM", family)
    if recomputed:
        shared.gradient_checkpointing_enable()
    for model in (shared, copies):
        model.train()(IDS, labels=IDS).loss.backward()
    summed: dict[str, torch.Tensor] = {}
    for name, parameter in copies.named_parameters():
        for number in range(1, PASSES):
            name = name.replace(f"layers.{number}.", "layers.0.")
        summed[name] = summed.get(name, 0) + parameter.grad
    for name, parameter in shared.named_parameters():
        assert_close(parameter.grad, summed[name], rtol=1e-4, atol=1e-5)


def test_parameters_are_counted_and_saved_once(tmp_path):
    shared, copies = shared_and_copies("ForMaskedLM", "bert")
    layer = sum(parameter.numel() for parameter in copies.model.layers[0].parameters())
    assert shared.num_parameters() == copies.num_parameters() - (PASSES - 1) * layer
    shared.save_pretrained(tmp_path)
    loaded = MiniBertForMaskedLM.from_pretrained(tmp_path)
    assert loaded.config.share_layers and len(loaded.model.layers) == 1
    with torch.no_grad():
        assert torch.equal(loaded(IDS).logits, shared.eval()(IDS).logits)


def test_every_pass_has_a_norm_before_its_attention():
    """The first layer has none where the embeddings end in one; the next passes need it."""
    model = build("Model", share_layers=True)
    assert isinstance(model.layers[0].attn_norm, torch.nn.LayerNorm)
    assert isinstance(build("Model").layers[0].attn_norm, torch.nn.Identity)


def test_initialisation_is_scaled_by_the_number_of_passes():
    """What flows into the residual stream comes from every pass."""
    fields = dict(hidden_size=192, num_hidden_layers=8, intermediate_size=256)
    fields |= dict(scaled_output_init=True, initializer_range=0.02, initializer_cutoff_factor=None)
    layer = build("Model", share_layers=True, **fields).layers[0]
    assert math.isclose(layer.attn.Wqkv.weight.std().item(), 0.02, rel_tol=0.03)
    assert math.isclose(layer.attn.Wo.weight.std().item(), 0.02 / math.sqrt(16), rel_tol=0.03)


def test_device_map(tmp_path):
    """The layer stays whole, and is fetched from the disk for every pass."""
    model = build("Model", share_layers=True, **BERT).eval()
    model.save_pretrained(tmp_path / "model")
    layer = sum(x.numel() * x.element_size() for x in model.layers[0].state_dict().values())
    devices = infer_auto_device_map(
        model, {0: layer, "cpu": 10**9}, no_split_module_classes=list(model._no_split_modules)
    )
    assert not any("layers.0." in name for name in devices)
    places = {"embeddings": "cpu", "layers": "disk", "final_norm": "cpu", "pooler": "cpu"}
    spread = MiniBertModel.from_pretrained(
        tmp_path / "model", device_map=places, offload_folder=str(tmp_path / "disk")
    )
    assert spread.layers[0].attn.Wqkv.weight.device.type == "meta"
    with torch.no_grad():
        assert_close(spread(IDS).last_hidden_state, model(IDS).last_hidden_state)


@pytest.mark.slow
def test_it_compiles_into_one_graph():
    model = build("ForMaskedLM", share_layers=True, **FAMILIES["bert"]).train()
    torch.compiler.reset()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    assert_close(compiled(IDS, labels=IDS).loss, model(IDS, labels=IDS).loss)


def test_vllm_has_one_window_for_a_layer():
    """It looks its own attention up by the number of the layer, which all passes share."""
    model = build("Model", share_layers=True)
    assert len(set(model.config.layer_types)) == 2
    model.set_attn_implementation("eager")
    with pytest.raises(ValueError, match="share_layers.*layer_types"):
        model(IDS[:1], attention_instances={})
