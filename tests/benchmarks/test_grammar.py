"""The grammar benchmark: scores against sums made by hand."""

import json

import numpy as np
import pytest
import torch
from grammar import measure_accuracy, read_minimal_pairs, score_sentences
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

from minibert import MiniBertConfig, MiniBertForCausalLM, MiniBertForMaskedLM, train_tokenizer

pytestmark = pytest.mark.slow

PAIRS = [
    ("the cats sleep here", "the cats sleeps here"),
    ("a dog sleeps", "a dog sleep"),
    ("no one sleeps", "one no sleeps"),
]
SENTENCES = [sentence for pair in PAIRS for sentence in pair]


@pytest.fixture(scope="module")
def tokenizer():
    """Some words are whole, most are cut."""
    return train_tokenizer(
        ["the cats sleep", "a dog", "no one"] * 9, algorithm="wordpiece", vocab_size=60
    )


def build(kind, tokenizer):
    torch.manual_seed(0)
    ids = {
        name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")
    }
    small = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
    if kind == "BERT":
        model = BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), **small))
    elif kind == "GPT-2":
        model = GPT2LMHeadModel(
            GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=2, **ids)
        )
    else:
        head = MiniBertForCausalLM if kind == "decoder" else MiniBertForMaskedLM
        family = "bert" if kind == "post-norm" else "modernbert"
        model = head(
            MiniBertConfig.from_tokenizer(tokenizer, family, "tiny", initializer_range=0.2)
        )
    return model.eval()


def by_hand(model, tokenizer, sentence, masking):
    """One forward a token, in float64."""
    encoding = tokenizer(sentence, return_offsets_mapping=True)
    ids = encoding.input_ids
    words = [sentence[:end].count(" ") for _, end in encoding.offset_mapping[:-1]] + [None]
    total, decoder = 0.0, "CausalLM" in type(model).__name__ or "GPT2" in type(model).__name__
    for place, token in enumerate(ids):
        if place in (0, len(ids) - 1):  # [CLS] and [SEP]
            continue
        row = torch.tensor([ids])
        if not decoder:
            row[0, place] = tokenizer.mask_token_id
            for later in range(place + 1, len(ids)):
                if masking == "word" and words[later] == words[place]:
                    row[0, later] = tokenizer.mask_token_id
        logits = model(row[:, :place] if decoder else row).logits[
            0, place - 1 if decoder else place
        ]
        total += logits.log_softmax(-1)[token].item()
    return total


@pytest.mark.parametrize(("kind", "masking"), [
    *[(kind, "token") for kind in ("modernbert", "post-norm", "BERT", "decoder", "GPT-2")],
    *[(kind, "word") for kind in ("modernbert", "post-norm", "BERT")],
])  # fmt: skip
@torch.no_grad()
def test_scores_are_sums_of_log_probabilities(tokenizer, kind, masking):
    model = build(kind, tokenizer).double()
    expected = [by_hand(model, tokenizer, sentence, masking) for sentence in SENTENCES]
    for batch_tokens in (1, 40, 4096):
        scores = score_sentences(model, tokenizer, SENTENCES, masking, batch_tokens)
        np.testing.assert_allclose(scores, expected, rtol=1e-5)


@pytest.fixture
def table(tmp_path):
    rows = [{"sentence_good": good, "sentence_bad": bad, "UID": uid, "linguistics_term": "agreement"}
            for uid in "ab" for good, bad in PAIRS]  # fmt: skip
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(tmp_path / "pairs.jsonl")


def test_accuracy_by_paradigm_and_phenomenon(tokenizer, table, tmp_path):
    model = build("modernbert", tokenizer)
    for saved in (model, tokenizer):
        saved.save_pretrained(tmp_path / "model")
    found = measure_accuracy(str(tmp_path / "model"), table, bf16=False)
    good, bad = score_sentences(model, tokenizer, SENTENCES).reshape(-1, 2).T
    assert found["accuracy"] == pytest.approx((good > bad).mean())
    assert (
        found["pairs"] == 6
        and list(found["paradigms"]) == ["a", "b"]
        and list(found["phenomena"]) == ["agreement"]
    )
    assert [row["UID"] for row in read_minimal_pairs(table, 2)] == ["a", "a", "b", "b"]
