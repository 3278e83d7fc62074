"""`minibert pretrain --extend_vocabulary`: what a trained model knows of new words before it is trained on."""

import json

import pytest
import torch
from helpers import build, refusal, run, sentences
from transformers import AutoTokenizer

from minibert import MiniBertForMaskedLM
from minibert.training.pretraining.new_words import extend_embeddings

PIECES = {61: [7, 9], 62: [11, 12, 30]}


@pytest.mark.parametrize("head, fields", [
    ("ForMaskedLM", {}), ("ForMaskedLM", dict(tie_word_embeddings=False)), ("ForMaskedLM", dict(decoder_bias=False)),
    ("ForMaskedLM", dict(embedding_size=8)), ("ForPreTraining", dict(add_pooling_layer=True)), ("ForCausalLM", {}),
    ("Model", {}), ("ForMaskedLM", dict(vocab_size=70)),
])  # fmt: skip
def test_new_rows_are_means_and_the_rest_stays(head, fields):
    model = build(head, **fields)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    extend_embeddings(model, PIECES)
    size = fields.get("vocab_size", 63)
    assert model.config.vocab_size == size
    grown = [
        name
        for name in before
        if name.startswith(("decoder", "model.embeddings.tok", "embeddings.tok"))
    ]
    for name, now in model.state_dict().items():
        if name not in grown:
            assert torch.equal(now, before[name]), name
            continue
        assert len(now) == size
        assert torch.equal(now[:61], before[name][:61]) and torch.equal(now[63:], before[name][63:])
        for token, old in PIECES.items():
            torch.testing.assert_close(now[token].double(), before[name][old].double().mean(0))
    if head == "ForMaskedLM":
        tied = model.decoder.weight is model.get_input_embeddings().weight
        assert tied == fields.get("tie_word_embeddings", True)
        # A new token's logit is the mean of its pieces', whatever the text.
        logits = model.eval()(torch.arange(1, 20)[None]).logits[0].double()
        for token, old in PIECES.items():
            torch.testing.assert_close(
                logits[:, token], logits[:, old].mean(1), atol=1e-5, rtol=1e-5
            )


QUICK = ["--seq_length", 32, "--max_steps", 2, "--disable_tqdm", "true", "--bf16", "false", "--eval_strategy", "no",
         "--save_strategy", "no"]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small model of a small vocabulary, and a domain whose words it cuts."""
    folder = tmp_path_factory.mktemp("extend")
    (folder / "general.txt").write_text("\n\n".join(sentences(60)), encoding="utf-8")
    (folder / "domain.txt").write_text(
        "\n\n".join(f"katanverzol {text} nubenduk" for text in sentences(60, 1))
    )
    run("pretrain", "--data", folder / "general.txt", "--output_dir", folder / "general", "--model", "bert", "--size",
        "tiny", "--vocab_size", 90, "--config_overrides", "hidden_size=32,num_attention_heads=2", *QUICK)  # fmt: skip
    return folder


def test_from_the_text_to_the_saved_model(folder, capsys):
    output = folder / "domain"
    given = [
        "pretrain",
        "--data",
        folder / "domain.txt",
        "--model_name_or_path",
        folder / "general",
        *QUICK,
    ]
    said = run(
        *given,
        "--extend_vocabulary",
        2,
        "--output_dir",
        output,
        "--learning_rate",
        1e-8,
        capsys=capsys,
    )
    report = json.loads((output / "report.json").read_text())["extension"]
    assert report["added"] == 2 and 1 <= report["fertility_after"] < report["fertility_before"]
    assert (
        f"{report['fertility_before']:.3f} tokens a word before, {report['fertility_after']:.3f} after"
        in said
    )
    tokenizers = [AutoTokenizer.from_pretrained(path) for path in (folder / "general", output)]
    models = [MiniBertForMaskedLM.from_pretrained(path) for path in (folder / "general", output)]
    for word in ("katanverzol", "nubenduk"):
        pieces, (new,) = (
            tokenizer(word, add_special_tokens=False)["input_ids"] for tokenizer in tokenizers
        )
        assert len(pieces) > 1 and new >= len(tokenizers[0])
        for name in ("model.embeddings.tok_embeddings.weight", "decoder.bias"):
            before, after = (model.get_parameter(name).detach() for model in models)
            torch.testing.assert_close(after[new], before[pieces].mean(0), atol=1e-5, rtol=0)
    assert len(tokenizers[1]) <= models[1].config.vocab_size


@pytest.mark.slow
def test_resume_with_extended_vocabulary(folder):
    """The checkpoint has the new rows; the same words are found again."""
    given = ["pretrain", "--data", folder / "domain.txt", "--model_name_or_path", folder / "general", *QUICK[:-4],
             "--extend_vocabulary", 2, "--max_steps", 4, "--save_strategy", "steps", "--save_steps", 2,
             "--save_total_limit", 9]  # fmt: skip
    run(*given, "--output_dir", folder / "whole")
    run(
        *given,
        "--output_dir",
        folder / "resumed",
        "--resume_from_checkpoint",
        folder / "whole/checkpoint-2",
    )
    whole, resumed = (
        MiniBertForMaskedLM.from_pretrained(folder / name).state_dict()
        for name in ("whole", "resumed")
    )
    assert all(torch.equal(tensor, resumed[name]) for name, tensor in whole.items())


def test_refusals(folder, capsys):
    given = [
        "pretrain",
        "--data",
        folder / "domain.txt",
        "--output_dir",
        folder / "refused",
        *QUICK,
    ]
    trained = [*given, "--model_name_or_path", folder / "general"]
    for arguments, message in (
        (
            [*given, "--extend_vocabulary", 2],
            "extend_vocabulary: it needs text and a trained model",
        ),
        ([*trained, "--extend_vocabulary", 0], "extend_vocabulary: 0 words; use at least 1"),
    ):
        assert message in refusal(capsys, *arguments)
    assert not (folder / "refused").exists()
