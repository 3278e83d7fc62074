"""Training only the word vectors that occur: the same as training the table, but for what is at rest."""

import copy

import datasets
import pytest
import torch
from transformers import AutoModelForSequenceClassification, BertConfig, BertForSequenceClassification

from minibert import MiniBertConfig, MiniBertForSequenceClassification
from minibert.training.finetuning.freezing import SeenEmbedding, restore_embedding, train_seen_rows

IDS = torch.tensor([[2, 9, 11, 3, 0], [2, 7, 7, 9, 3]])
ROWS = datasets.Dataset.from_dict({"input_ids": [[2, 9, 11, 3], [2, 7, 7, 9, 3]]})
UNSEEN = [i for i in range(40) if i not in (2, 3, 7, 9, 11)]


@pytest.fixture(params=["bert", "modernbert"])
def model(request):
    config = getattr(MiniBertConfig, request.param)("tiny", vocab_size=40, num_hidden_layers=1, hidden_dropout=0.0,
                                                    attention_dropout=0.0, pad_token_id=0)  # fmt: skip
    torch.manual_seed(0)
    return MiniBertForSequenceClassification(config)


def losses(model, steps=4, weight_decay=0.0):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=weight_decay)
    found = []
    for _ in range(steps):
        loss = model(IDS, attention_mask=(IDS != 0).long(), labels=torch.tensor([0, 1])).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


def test_it_learns_what_the_whole_table_learns(model):
    whole = copy.deepcopy(model)
    train_seen_rows(model, ROWS)
    assert isinstance(model.get_input_embeddings(), SeenEmbedding)
    trained = [each.num_parameters(only_trainable=True) for each in (whole, model)]
    assert trained[0] - trained[1] == len(UNSEEN) * model.config.hidden_size
    assert losses(model) == pytest.approx(losses(whole), abs=1e-6)
    restore_embedding(model)
    for name, tensor in whole.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], tensor, rtol=1e-5, atol=1e-6)


def test_what_never_occurs_stays_as_it_is(model):
    before = model.get_input_embeddings().weight.detach().clone()
    train_seen_rows(model, ROWS)
    losses(model, weight_decay=0.5)
    restore_embedding(model)
    after = model.get_input_embeddings().weight
    assert type(model.get_input_embeddings()) is torch.nn.Embedding and after.requires_grad
    assert torch.equal(after[UNSEEN], before[UNSEEN])
    assert not torch.equal(after[[7]], before[[7]])


def test_other_ids_are_looked_up_too(model):
    ids = torch.tensor([[2, 30, 7, 31, 3]])
    model.eval()
    expected = model(ids).logits
    train_seen_rows(model, ROWS)
    torch.testing.assert_close(model(ids).logits, expected, rtol=0, atol=0)


def test_checkpoints_are_ordinary(model, tmp_path):
    names = list(model.state_dict())
    train_seen_rows(model, ROWS)
    losses(model)
    assert sorted(model.state_dict()) == sorted(names)
    model.save_pretrained(tmp_path)
    reloaded, loading = AutoModelForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert not loading["missing_keys"] and not loading["unexpected_keys"]
    assert torch.equal(reloaded.eval()(IDS).logits, model.eval()(IDS).logits)
    kept = copy.deepcopy(model.state_dict())
    losses(model)
    model.load_state_dict(kept)  # as `load_best_model_at_end` does
    assert torch.equal(model.eval()(IDS).logits, reloaded(IDS).logits)


def test_what_rests_anyway_is_left_alone(model):
    model.base_model.embeddings.requires_grad_(False)
    train_seen_rows(model, ROWS)
    assert type(model.get_input_embeddings()) is torch.nn.Embedding
    bert = BertForSequenceClassification(
        BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, vocab_size=40)
    )
    train_seen_rows(bert, ROWS)
    assert type(bert.get_input_embeddings()) is torch.nn.Embedding


def test_hooks_on_the_rows_that_train_are_called(model):
    train_seen_rows(model, ROWS)
    called = []
    embedding = model.get_input_embeddings()
    embedding.register_forward_pre_hook(lambda module, args: called.append("before"))
    embedding.register_forward_hook(lambda module, args, output: called.append("after"))
    embedding.register_full_backward_hook(lambda module, *gradients: called.append("backward"))
    losses(model, steps=1)
    assert called == ["before", "after", "backward"]


def test_several_choices_a_row(model):
    train_seen_rows(model, datasets.Dataset.from_dict({"input_ids": [[[2, 9], [2, 11]]]}))
    assert model.get_input_embeddings().ids.tolist() == [2, 9, 11]


@pytest.mark.skipif(not torch.accelerator.is_available(), reason="no accelerator")
def test_weights_that_were_read_on_the_cpu_go_into_a_model_elsewhere(model):
    """As `Trainer` loads its best checkpoint."""
    kept = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    train_seen_rows(model, ROWS)
    model.to(torch.accelerator.current_accelerator()).load_state_dict(kept, strict=False)
    assert torch.equal(model.get_input_embeddings().whole().cpu(), kept["model.embeddings.tok_embeddings.weight"])
