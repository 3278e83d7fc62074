"""What of a model trains."""

import copy

import pytest
import torch

from minibert import MiniBertConfig, MiniBertForSequenceClassification, MiniBertForTokenClassification
from minibert.training.finetuning.config import FinetuningConfig
from minibert.training.finetuning.freezing import add_lora, freeze

SHAPE = dict(hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32, vocab_size=64)


@pytest.fixture(params=["bert", "modernbert"])
def model(request):
    torch.manual_seed(0)
    config = getattr(MiniBertConfig, request.param)("tiny", **SHAPE, max_position_embeddings=32, num_labels=3)
    return MiniBertForSequenceClassification(config)


def trained(model):
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def batch():
    torch.manual_seed(1)
    return {"input_ids": torch.randint(5, 64, (4, 9)), "labels": torch.tensor([0, 1, 2, 1])}


def in_layer(name, *layers):
    return any(f"layers.{i}." in name for i in layers)


class TestFreeze:
    def test_parts(self, model):
        names = trained(model)
        assert freeze(model, "none") == [] and trained(model) == names

        lowest = copy.deepcopy(model)
        freeze(lowest, "2")
        assert names - trained(lowest) == {n for n in names if ".embeddings." in n or in_layer(n, 0, 1)}

        freeze(model, "encoder")
        kept = {name.removeprefix("model.") for name in trained(model)}
        assert kept and all(name.startswith(("pooler.", "classifier.", "head.")) for name in kept)
        assert any(name.startswith("classifier.") for name in kept)

    def test_no_graph_of_what_is_frozen(self, model):
        freeze(model, "encoder")
        reached = []
        model.model.layers[-1].register_forward_hook(lambda module, args, output: reached.append(output))
        model.train()(**batch()).loss.backward()
        assert reached[0].grad_fn is None
        assert all((p.grad is not None) == p.requires_grad for p in model.parameters())

    @pytest.mark.parametrize("given", [{"lora": 0}, {"lora": 4, "freeze": "encoder"}])
    def test_refused(self, given):
        with pytest.raises(ValueError, match="lora: .; use a rank of 1 or more, without --freeze"):
            FinetuningConfig(**given)


class TestLora:
    @pytest.mark.parametrize("head", [MiniBertForSequenceClassification, MiniBertForTokenClassification])
    def test_trains_updates_and_the_head_and_merges_into_an_ordinary_model(self, model, head):
        torch.manual_seed(0)
        model = head(model.config).eval()
        before = copy.deepcopy(model.state_dict())
        inputs = batch()["input_ids"]
        adapted = add_lora(model, 4)
        names = trained(adapted)
        assert all(".lora_A." in name or ".lora_B." in name or ".modules_to_save." in name for name in names)
        updates = {name.split(".lora_")[0].rsplit(".", 1)[1] for name in names if ".lora_" in name}
        assert updates == {"Wqkv", "Wo", "Wi"}
        layers = [name for name in names if ".lora_A." in name]
        assert len(layers) == 4 * model.config.num_hidden_layers

        optimizer = torch.optim.SGD([p for p in adapted.parameters() if p.requires_grad], lr=0.5)
        for _ in range(3):
            optimizer.zero_grad()
            adapted(input_ids=inputs).logits.square().mean().backward()
            optimizer.step()
        with torch.no_grad():
            apart = adapted(input_ids=inputs).logits
            merged = adapted.merge_and_unload()
            assert type(merged) is head and merged.state_dict().keys() == before.keys()
            torch.testing.assert_close(merged(input_ids=inputs).logits, apart, rtol=1e-4, atol=1e-5)
        changed = {name for name, value in merged.state_dict().items() if not torch.equal(value, before[name])}
        assert {"classifier.weight", "model.layers.0.attn.Wqkv.weight", "model.layers.2.mlp.Wi.weight"} <= changed
        assert "model.embeddings.tok_embeddings.weight" not in changed
