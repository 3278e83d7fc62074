"""A converted model remembers where it is from, and so does what is trained from it."""

import pytest
from helpers import write_rows
from huggingface_hub import ModelCard
from transformers import BertConfig, BertForMaskedLM

import minibert
from minibert import train_tokenizer
from minibert.training.hub.origin import OriginFacts, read_origin

README = """---
license: apache-2.0
language: [en, no]
datasets: [owner/corpus]
base_model: owner/base
tags: [x]
---
# A BERT
"""


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    folder = tmp_path_factory.mktemp("source") / "bert"
    tokenizer = train_tokenizer(
        ["a good book", "a bad book"] * 9, vocab_size=60, show_progress=False
    )
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=32,
    )  # fmt: skip
    BertForMaskedLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "README.md").write_text(README)
    return folder


@pytest.fixture(scope="module")
def converted(bert):
    return minibert.convert(bert, bert.parent / "converted")


def card_of(folder):
    return ModelCard.load(folder / "README.md")


def test_the_card_keeps_the_facts(converted, bert, tmp_path):
    """There and back."""
    back = minibert.convert(converted, tmp_path / "back")
    for folder in (converted, back):
        data = card_of(folder).data
        assert (data.license, data.base_model) == ("apache-2.0", "owner/base")
        assert data.language == ["en", "no"] and data.datasets == ["owner/corpus"]
        assert "Converted from owner/base." in card_of(folder).text
        assert str(bert.parent) not in card_of(back).text
    assert "see the card of owner/base" in card_of(converted).text


def test_a_fine_tuned_model_names_them(converted, tmp_path):
    """As those of its base: the licence of what it became is for its author to say."""
    rows = [{"text": f"a {word} book", "label": word} for word in ("good", "bad")] * 10
    file = write_rows(tmp_path / "rows.jsonl", rows)
    output = tmp_path / "out"
    minibert.finetune(
        "classify", model=str(converted), train=[file], validation=[file], max_steps=1,
        output_dir=str(output), use_cpu=True, bf16=False, disable_tqdm=True, report_to="none",
    )  # fmt: skip
    card = card_of(output)
    assert card.data.base_model == "owner/base" and card.data.license is None
    assert "Fine-tuned from owner/base (its licence: apache-2.0)." in card.text
    assert "The languages of that model: en, no." in card.text


@pytest.mark.parametrize(
    "block",
    [
        "license: '](http://evil) <b>'\nlanguage: {a: b}\ndatasets: ['../x', '[a](http://b)']\nbase_model: /etc/passwd",
        "license: [a\n",
        "- a\n- b",
        "license: &a [x]\nlanguage: [*a, *a]\nbase_model: []",
        "license: " + "x" * 1000,
    ],
)
def test_texts_that_are_no_such_facts_are_left_out(block, tmp_path):
    (tmp_path / "README.md").write_text(f"---\n{block}\n---\n# x\n")
    assert read_origin(tmp_path) == OriginFacts()


def test_without_a_card(tmp_path):
    assert read_origin(tmp_path) == OriginFacts()
    (tmp_path / "README.md").write_text("# My project\n")
    assert read_origin(tmp_path) == OriginFacts()
