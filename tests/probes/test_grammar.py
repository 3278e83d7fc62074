"""`minibert probe grammar`: scores against sums made by hand."""

import copy
import json

import numpy as np
import pytest
import torch
from foreign_tokenizers import foreign_tokenizer
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from tokenizers.processors import BertProcessing, TemplateProcessing
from transformers import (
    BertConfig,
    BertForMaskedLM,
    FNetConfig,
    FNetForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
)

from minibert.configuration_minibert import MiniBertConfig
from minibert.modeling_minibert import MiniBertForCausalLM, MiniBertForMaskedLM, MiniBertForSequenceClassification
from minibert.tokenization import train_tokenizer
from minibert.training.arguments.probes import GrammarArguments, ProbeArguments
from minibert.training.data.packing import adapt_tokenizer
from minibert.training.probes.grammar import grammar, load_language_model, read_minimal_pairs, score_sentences

PAIRS = [
    ("the cats sleep here", "the cats sleeps here"),
    ("a dog sleeps", "a dog sleep"),
    ("no one sleeps", "one no sleeps"),
]
SENTENCES = [sentence for pair in PAIRS for sentence in pair]


@pytest.fixture(scope="module")
def tokenizer():
    """Some words are whole, most are cut."""
    return train_tokenizer(["the cats sleep", "a dog", "no one"] * 9, algorithm="wordpiece", vocab_size=60)


def build(kind, tokenizer):
    torch.manual_seed(0)
    ids = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    small = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
    if kind == "BERT":
        model = BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), **small))
    elif kind == "GPT-2":
        model = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=2, **ids))
    else:
        head = MiniBertForCausalLM if kind == "decoder" else MiniBertForMaskedLM
        family = "bert" if kind == "post-norm" else "modernbert"
        model = head(MiniBertConfig.from_tokenizer(tokenizer, family, "tiny", initializer_range=0.2))
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
        logits = model(row[:, :place] if decoder else row).logits[0, place - 1 if decoder else place]
        total += logits.log_softmax(-1)[token].item()
    return total


@pytest.mark.parametrize(
    ("kind", "masking"),
    [
        *[(kind, "token") for kind in ("modernbert", "post-norm", "BERT", "decoder", "GPT-2")],
        *[(kind, "word") for kind in ("modernbert", "post-norm", "BERT")],
    ],
)
@torch.no_grad()
def test_scores_are_sums_of_log_probabilities(tokenizer, kind, masking):
    model = build(kind, tokenizer).double()
    expected = [by_hand(model, tokenizer, sentence, masking) for sentence in SENTENCES]
    for batch_tokens in (1, 40, 4096):
        scores = score_sentences(model, tokenizer, SENTENCES, masking, batch_tokens)
        np.testing.assert_allclose(scores, expected, rtol=1e-5)


def test_a_model_that_cannot_leave_padding_out_is_refused(tokenizer, tmp_path):
    shape = dict(hidden_size=32, num_hidden_layers=1, intermediate_size=64)
    FNetForMaskedLM(FNetConfig(vocab_size=len(tokenizer), **shape)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="is a FNetForMaskedLM, which takes no attention_mask"):
        load_language_model(str(tmp_path), torch.float32)


def test_decoders_predict_the_first_token_too(tokenizer):
    """From the token that begins texts, also where the tokenizer does not put it there."""
    bare = copy.deepcopy(tokenizer)
    bare.backend_tokenizer.post_processor = TemplateProcessing(single="$A", special_tokens=[])
    bare.bos_token = tokenizer.cls_token
    model = build("decoder", tokenizer)
    scores = [score_sentences(model, each, SENTENCES) for each in (tokenizer, bare)]
    np.testing.assert_allclose(*scores, rtol=1e-5)


def test_a_decoder_masks_no_words(tokenizer):
    with pytest.raises(ValueError, match="masking: 'word' has no effect on a decoder; use token"):
        score_sentences(build("decoder", tokenizer), tokenizer, SENTENCES, "word")


@torch.no_grad()
def test_words_of_a_tokenizer_that_marks_their_ends():
    """They are told by the text alone."""
    backend = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["<unk>", "<s>", "</s>", "<pad>", "[MASK]"]
    backend.train_from_iterator(SENTENCES * 9, trainers.BpeTrainer(special_tokens=special, end_of_word_suffix="</w>"))
    backend.post_processor = BertProcessing(("</s>", 2), ("<s>", 1))
    names = dict(unk_token="<unk>", cls_token="<s>", sep_token="</s>", pad_token="<pad>", mask_token="[MASK]")
    herbert = PreTrainedTokenizerFast(tokenizer_object=backend, **names)
    model = build("modernbert", herbert).double()
    sentences = ["dogs seep", "a dog sleeps"]
    expected = [by_hand(model, herbert, sentence, "word") for sentence in sentences]
    np.testing.assert_allclose(score_sentences(model, herbert, sentences, "word"), expected, rtol=1e-5)


def test_words_that_nothing_tells_are_refused():
    gemma = adapt_tokenizer(foreign_tokenizer("gemma"))
    with pytest.raises(ValueError, match="masking: a tokenizer .*; use token"):
        score_sentences(build("modernbert", gemma), gemma, SENTENCES, "word")


@torch.no_grad()
def test_words_of_a_tokenizer_that_splits_no_text():
    """Llama's: all of a sentence is one word to it."""
    llama = adapt_tokenizer(foreign_tokenizer("LlamaTokenizer"))
    model = build("modernbert", llama).double()
    expected = [by_hand(model, llama, sentence, "word") for sentence in SENTENCES]
    np.testing.assert_allclose(score_sentences(model, llama, SENTENCES, "word"), expected, rtol=1e-5)


def test_masking_words_hides_the_rest_of_a_word(tokenizer):
    model = build("modernbert", tokenizer)
    token, word = (score_sentences(model, tokenizer, SENTENCES, masking) for masking in ("token", "word"))
    assert not np.allclose(token, word)


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
    out = tmp_path / "out"
    found = grammar(ProbeArguments(str(tmp_path / "model")), GrammarArguments(table, bf16=False, output_dir=str(out)))
    good, bad = score_sentences(model, tokenizer, SENTENCES).reshape(-1, 2).T
    assert found["accuracy"] == pytest.approx((good > bad).mean())
    assert found["pairs"] == 6 and list(found["paradigms"]) == ["a", "b"] and list(found["phenomena"]) == ["agreement"]
    assert found["arguments"]["bf16"] is False
    assert json.loads((out / "results.json").read_text()) == found and (out / "grammar.png").exists()


def test_ties_count_a_half(tokenizer, tmp_path):
    """And what the tokenizer does not know is alike. (In fp16, which torch's autocast does not join with its bf16.)"""
    (tmp_path / "ties.csv").write_text("sentence_good,sentence_bad\na dog,a dog\na wug,a xyz\n")
    build("modernbert", tokenizer).half().save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    arguments = GrammarArguments(str(tmp_path / "ties.csv"), bf16=True, output_dir=str(tmp_path / "out"))
    assert grammar(ProbeArguments(str(tmp_path / "model")), arguments)["accuracy"] == 0.5


def test_an_even_part_of_each_paradigm(table):
    assert [row["UID"] for row in read_minimal_pairs(table, 2)] == ["a", "a", "b", "b"]
    assert len(read_minimal_pairs(table, 0)) == len(read_minimal_pairs(table, 99)) == 6


def test_bad_input_is_named(tokenizer, table, tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"sentence_good": "x", "other": "y"}\n')
    (tmp_path / "empty.jsonl").write_text('{"sentence_good": "x", "sentence_bad": " "}\n')
    for file, message in (
        (None, "data: give a table"),
        ("bad", "row 1: there is no column 'sentence_bad'"),
        ("empty", "row 1: sentence_"),
    ):
        with pytest.raises(ValueError, match=message):
            read_minimal_pairs(file and str(tmp_path / f"{file}.jsonl"), 0)
    longer = score_sentences(build("modernbert", tokenizer), tokenizer, ["a dog " * 300])  # rotary positions: no end
    assert np.isfinite(longer).all()
    for sentence, message in (("\u200b", "has no token"), ("a dog " * 300, "… has 602 tokens; the model takes 512")):
        for kind in ("BERT", "GPT-2"):
            with pytest.raises(ValueError, match=f"^data: the sentence .*{message}"):
                score_sentences(build(kind, tokenizer), tokenizer, ["a dog", sentence])
    MiniBertForSequenceClassification(MiniBertConfig.from_tokenizer(tokenizer, size="tiny")).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="has no head that predicts tokens"):
        grammar(ProbeArguments(str(tmp_path)), GrammarArguments(table))
