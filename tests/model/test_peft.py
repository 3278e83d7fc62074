"""Plain `peft` with `target_modules="all-linear"`: a model trains, merges, saves and reloads."""

import peft
import pytest
import torch
from helpers import BERT, build

from minibert import MiniBertForSequenceClassification

IDS = torch.tensor([[1, 5, 6, 2], [1, 7, 2, 0]])
INPUTS = dict(input_ids=IDS, attention_mask=(IDS > 0).long())


@pytest.mark.parametrize("family", ["bert", "modernbert", "shared layers"])
def test_lora_trains_merges_saves_and_reloads(family, tmp_path):
    fields = {"bert": BERT, "modernbert": {}, "shared layers": BERT | dict(share_layers=True)}[
        family
    ]
    model = build("ForSequenceClassification", **fields)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    new = dict(task_type="SEQ_CLS", modules_to_save=["head", "pooler", "classifier"])
    adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules="all-linear", **new))
    names = [name.split(".lora_A")[0] for name, _ in adapted.named_parameters() if "lora_A" in name]
    found = {name.split(".layers.")[1][2:] for name in names}
    assert len(names) == 4 * len(
        model.model.layers
    )  # a shared layer has one update, for all passes
    assert found == {"attn.Wqkv", "attn.Wo", "mlp.Wi", "mlp.Wo"}
    optimizer = torch.optim.AdamW([p for p in adapted.parameters() if p.requires_grad], lr=0.05)
    losses = []
    for _ in range(8):
        loss = adapted(**INPUTS, labels=torch.tensor([0, 2])).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    adapted.eval()
    expected = adapted(**INPUTS).logits
    adapted.save_pretrained(tmp_path / "adapter")
    again = build("ForSequenceClassification", seed=1, **fields)
    encoder = {
        name: x for name, x in before.items() if name.startswith("model.") and "pooler" not in name
    }
    again.load_state_dict(encoder, strict=False)
    reloaded = peft.PeftModel.from_pretrained(again, tmp_path / "adapter").eval()
    torch.testing.assert_close(reloaded(**INPUTS).logits, expected)
    merged = adapted.merge_and_unload()
    torch.testing.assert_close(merged(**INPUTS).logits, expected, rtol=1e-4, atol=1e-5)
    merged.save_pretrained(tmp_path / "merged")
    loaded = MiniBertForSequenceClassification.from_pretrained(tmp_path / "merged").eval()
    torch.testing.assert_close(loaded(**INPUTS).logits, expected, rtol=1e-4, atol=1e-5)


def test_adapted_word_embeddings_take_no_part_in_inputs_embeds():
    model = build("Model")
    states = torch.randn(1, 3, model.config.hidden_size)
    expected = model.eval()(inputs_embeds=states).last_hidden_state
    adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=["tok_embeddings"])).eval()
    torch.testing.assert_close(adapted(inputs_embeds=states).last_hidden_state, expected)
