"""GLiNER (entities of any label, given as a prompt) with a MiniBERT as its encoder."""

import pytest
import torch
from embedding_models import convert, random_bert
from helpers import sentences

from minibert import train_tokenizer
from minibert.modeling_minibert import MiniBertModel


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """GLiNER on a BERT of Transformers, and on the same converted, with equal weights besides."""
    gliner = pytest.importorskip("gliner", reason="the extra gliner is not installed")
    root = tmp_path_factory.mktemp("gliner")
    tokenizer = train_tokenizer(
        [*sentences(200), "fruit tool"] * 2, vocab_size=160, show_progress=False
    )
    random_bert(tokenizer, num_hidden_layers=2).save_pretrained(root / "bert")
    tokenizer.save_pretrained(root / "bert")
    made = []
    for name in (str(root / "bert"), convert(root / "bert", root / "minibert")):
        torch.manual_seed(0)
        made.append(
            gliner.GLiNER.from_config(
                dict(model_name=name, hidden_size=32, max_width=2, dropout=0.0)
            )
        )
    bert, ours = made
    with torch.no_grad():
        encoders = [each.model.token_rep_layer.bert_layer.model for each in made]
        encoders[1].get_input_embeddings().weight.copy_(
            encoders[0].get_input_embeddings().weight
        )  # two new words
    heads = {
        name: weight
        for name, weight in bert.model.state_dict().items()
        if ".bert_layer.model." not in name
    }
    assert not ours.model.load_state_dict(heads, strict=False).unexpected_keys
    return bert, ours


def test_it_finds_what_it_finds_with_a_bert(models):
    assert isinstance(models[1].model.token_rep_layer.bert_layer.model, MiniBertModel)
    for text in sentences(4, longest=9):
        bert, ours = (
            each.predict_entities(text, ["fruit", "tool"], threshold=0.0) for each in models
        )
        assert (
            [(x["text"], x["label"]) for x in ours] == [(x["text"], x["label"]) for x in bert] != []
        )
        assert [x["score"] for x in ours] == pytest.approx([x["score"] for x in bert], abs=1e-4)
