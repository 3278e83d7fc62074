"""What would silently be another model after a conversion: it is kept, said, or refused before anything is written."""

import json
import logging

import pytest
import torch
import transformers
from helpers import BERT, build, refusal, run
from parity import assert_same_weights, make_native
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, normalizers
from transformers import AutoModelForMaskedLM, AutoTokenizer

import minibert.modeling_minibert as minibert
from minibert.tokenization import train_tokenizer
from minibert.training.conversion import ARCHITECTURES, convert, folders, from_native, to_native
from minibert.training.embeddings.encoders import open_encoder
from minibert.training.embeddings.trainers.teachers import open_teacher
from minibert.training.finetuning import start_model
from minibert.training.loading.models import load_pretrained
from minibert.training.loading.tokenizers import saved_tokenizer

TEXT = "The king sold a map near the river."
WORDS = [TEXT, "An old farmer carried seven green apples to the market.", "Ein Bäcker fragte mich."]
IDS = torch.arange(8, 40).view(2, 16)


def edit_json(file, **fields) -> None:
    """Change fields of a JSON file; None removes one."""
    content = json.loads(file.read_text()) | fields
    file.write_text(json.dumps({name: x for name, x in content.items() if x is not None}))


def edit_weights(folder, change) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def logits_of(model) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(IDS).logits


# --- decoders ---


@pytest.mark.parametrize("tie", [True, None])
def test_an_untied_decoder_is_kept(tie, tmp_path, capsys):
    """The config ties it, or says nothing, and the file holds another one: Transformers keeps both, and warns."""
    native = make_native("bert", "plain", "ForMaskedLM", tie_word_embeddings=False)
    native.save_pretrained(tmp_path / "source")
    edit_json(tmp_path / "source" / "config.json", tie_word_embeddings=tie)
    expected = logits_of(AutoModelForMaskedLM.from_pretrained(tmp_path / "source"))
    torch.testing.assert_close(expected, logits_of(native), rtol=0, atol=1e-5)

    said = run("convert", tmp_path / "source", tmp_path / "ours", capsys=capsys)
    assert "ties cls.predictions.decoder.weight to the word vectors, but its file holds" in said
    ours = minibert.MiniBertForMaskedLM.from_pretrained(tmp_path / "ours")
    assert ours.config.tie_word_embeddings is False
    torch.testing.assert_close(logits_of(ours), expected, rtol=0, atol=1e-5)

    said = run("convert", tmp_path / "ours", tmp_path / "back", capsys=capsys)
    assert "WARNING" not in said
    assert_same_weights(AutoModelForMaskedLM.from_pretrained(tmp_path / "back"), native)


def test_an_untied_decoder_of_a_minibert_is_kept(tmp_path, capsys):
    """To a native class, on the way back into training, and where a switch is set."""
    model = build("ForMaskedLM", **BERT, tie_word_embeddings=False).eval()
    model.save_pretrained(tmp_path / "source")
    edit_json(tmp_path / "source" / "config.json", tie_word_embeddings=True)
    said = run(
        "export", tmp_path / "source", tmp_path / "native", "--format", "native", capsys=capsys
    )
    assert "ties decoder.weight to the word vectors, but its file holds other values" in said
    ids = torch.arange(8, 24).view(1, -1)
    with torch.no_grad():
        expected = model(ids).logits
        actual = AutoModelForMaskedLM.from_pretrained(tmp_path / "native")(ids).logits
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)

    loaded, _ = load_pretrained(minibert.MiniBertForMaskedLM, tmp_path / "source", head=False)
    loaded.tie_weights()
    assert torch.equal(loaded.decoder.weight, model.decoder.weight)
    assert "ties decoder.weight" in capsys.readouterr().out

    convert(tmp_path / "source", tmp_path / "set", set={"hidden_dropout": 0.2})
    changed = minibert.MiniBertForMaskedLM.from_pretrained(tmp_path / "set")
    assert torch.equal(changed.decoder.weight, model.decoder.weight)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_an_untied_decoder_in_memory(architecture):
    native = make_native(architecture, "plain", "ForMaskedLM", tie_word_embeddings=False)
    native.config.tie_word_embeddings = True
    ours = from_native(native)
    assert ours.config.tie_word_embeddings is False
    torch.testing.assert_close(logits_of(ours), logits_of(native), rtol=0, atol=1e-5)
    ours.config.tie_word_embeddings = True
    assert_same_weights(to_native(ours), native)


# --- what source and target compute ---


@pytest.mark.parametrize(
    "head", ["Model", "ForPreTraining", "ForMultipleChoice", "ForQuestionAnswering"]
)
def test_outputs_are_compared(head, tmp_path, capsys):
    """Without a tokenizer, of random ids; without a head, the hidden states; in bfloat16 too."""
    native = make_native("bert", "plain", head).bfloat16()
    native.save_pretrained(tmp_path / "source")
    for source, target in (("source", "ours"), ("ours", "back")):
        said = run("convert", tmp_path / source, tmp_path / target, capsys=capsys)
        assert "source and target differ by" in said and "of the largest logit on ten texts" in said
    assert_same_weights(type(native).from_pretrained(tmp_path / "back"), native)


@pytest.mark.parametrize("weight", ["layers.1.mlp.Wi.bias", "pooler.dense.weight"])
def test_another_model_is_refused(weight, tmp_path, monkeypatch, capsys):
    make_native("bert", "plain", "Model").save_pretrained(tmp_path / "source")

    def other_model(native):
        model = from_native(native)
        model.get_parameter(weight).data[0] += 0.01
        return model

    monkeypatch.setattr(folders, "from_native", other_model)
    said = refusal(capsys, "convert", tmp_path / "source", tmp_path / "target")
    assert "the converted model is another one: its" in said and "nothing is written" in said
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
    said = run("convert", tmp_path / "source", tmp_path / "target", "--no_check", capsys=capsys)
    assert "differ" not in said


def test_changed_models_are_not_compared(tmp_path, capsys):
    make_native("bert", "plain", "Model").save_pretrained(tmp_path / "source")
    switch = ("--set", "position_embedding_type=rope")
    said = run("convert", tmp_path / "source", tmp_path / "target", *switch, capsys=capsys)
    assert "'absolute' → 'rope'" in said and "differ" not in said


# --- weights that a config has no place for ---


@pytest.mark.parametrize(
    "name", ["embeddings.position_embeddings.weight", "layers.2.attn.Wo.weight"]
)
def test_weights_of_the_encoder_are_never_dropped_silently(name, tokenizers, tmp_path, capsys):
    """Those of layers are refused: the config belongs to another model."""
    build("Model").save_pretrained(tmp_path)
    tokenizers["wordpiece"].save_pretrained(tmp_path)
    edit_weights(tmp_path, lambda weights: weights.update({name: torch.ones(3)}))
    roads = (
        lambda: load_pretrained(minibert.MiniBertModel, tmp_path),
        lambda: load_pretrained(minibert.MiniBertForTokenClassification, tmp_path, head=False),
        lambda: open_encoder(str(tmp_path)),
    )
    for road in roads:
        if "layers" in name:
            with pytest.raises(
                ValueError, match=f"weights for which its config.json has no layer.*{name}"
            ):
                road()
        else:
            road()
            assert (
                f"holds weights that its config.json has no place for: {name}"
                in capsys.readouterr().out
            )


def test_a_teacher_without_its_head_is_said(tokenizers, tmp_path, monkeypatch, caplog):
    """It may be of any architecture, so Transformers' own report is shown."""
    save_model(
        tmp_path, tokenizers["wordpiece"], None, "BertForSequenceClassification", num_labels=1
    )
    edit_weights(tmp_path, lambda weights: weights.pop("classifier.weight"))
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    open_teacher(str(tmp_path), "student")
    assert "classifier.weight" in caplog.text and "MISSING" in caplog.text


# --- tokenizers ---


@pytest.fixture(scope="module")
def tokenizers():
    options = dict(vocab_size=400, show_progress=False)
    texts = WORDS * 20
    return {
        "wordpiece": train_tokenizer(texts, **options),
        "cased": train_tokenizer(texts, lowercase=False, **options),
        "bpe": train_tokenizer(texts, algorithm="bpe", **options),
        "unigram": train_tokenizer(texts, algorithm="unigram", **options),
        "bert": transformers.BertTokenizer(
            vocab=train_tokenizer(texts, strip_accents=True, **options).get_vocab()
        ),
    }


def save_model(
    folder, tokenizer, tokenizer_class: str | None, architecture: str = "BertModel", **fields
) -> None:
    model_class = getattr(transformers, architecture)
    fields |= dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    config = model_class.config_class(vocab_size=len(tokenizer), pad_token_id=0, **fields)
    torch.manual_seed(0)
    model_class(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    edit_json(folder / "tokenizer_config.json", tokenizer_class=tokenizer_class, backend=None)


@pytest.mark.filterwarnings("ignore:the texts gave a vocabulary")
@pytest.mark.parametrize(("algorithm", "tokenizer_class", "fits"), [
    ("wordpiece", "RobertaTokenizer", False), ("bpe", "BertTokenizer", False), ("unigram", "BertTokenizer", False),
    ("cased", "BertTokenizer", False), ("bpe", "GPT2Tokenizer", False), ("bert", "BertTokenizer", True),
    ("wordpiece", None, True),
])  # fmt: skip
def test_the_tokenizer_file_wins(algorithm, tokenizer_class, fits, tokenizers, tmp_path, capsys):
    """Over a class that makes other ids of its vocabulary, which Transformers 5 uses. The reference is `tokenizers`."""
    source = tmp_path / "source"
    save_model(source, tokenizers[algorithm], tokenizer_class)
    reference = Tokenizer.from_file(str(source / "tokenizer.json"))
    by_class = AutoTokenizer.from_pretrained(source)(TEXT)["input_ids"]
    assert (by_class == reference.encode(TEXT).ids) is fits
    warning = f"as {tokenizer_class}, which gives other ids than its tokenizer.json"
    said = run("convert", source, tmp_path / "ours", capsys=capsys)
    assert (warning in said) is not fits
    said = run("convert", tmp_path / "ours", tmp_path / "back", capsys=capsys)
    assert "WARNING" not in said
    for name in ("ours", "back"):
        saved = AutoTokenizer.from_pretrained(tmp_path / name)
        for text in WORDS:
            assert saved(text)["input_ids"] == reference.encode(text).ids
        for role in ("cls_token", "sep_token", "pad_token", "mask_token", "unk_token"):
            assert getattr(saved, role) == getattr(tokenizers[algorithm], role)


def test_fine_tuning_reads_the_tokenizer_file(tokenizers, tmp_path, capsys):
    """Where it converts a model itself."""
    save_model(tmp_path, tokenizers["cased"], "BertTokenizer")
    config = start_model.read_config(str(tmp_path))
    tokenizer = start_model.load_tokenizer(str(tmp_path))
    start_model.fit_tokenizer(tokenizer, config, None)
    assert tokenizer(TEXT)["input_ids"] == tokenizers["cased"](TEXT)["input_ids"]
    assert "tokenizer.json is used" in capsys.readouterr().out
    assert "token_type_ids" in tokenizer(TEXT)


def test_embedding_models_read_the_tokenizer_file(tokenizers, tmp_path):
    """Students and teachers alike."""
    save_model(tmp_path / "teacher", tokenizers["bpe"], "BertTokenizer")
    convert(tmp_path / "teacher", tmp_path / "student")
    edit_json(tmp_path / "student" / "tokenizer_config.json", tokenizer_class="BertTokenizer")
    expected = tokenizers["bpe"](TEXT)["input_ids"]
    encoder = open_encoder(str(tmp_path / "student"))
    teacher = open_teacher(str(tmp_path / "teacher"), str(tmp_path / "student"))
    for model in (encoder, teacher):
        assert model.tokenizer(TEXT)["input_ids"] == expected
        assert model.preprocess([TEXT])["input_ids"].tolist() == [expected]


def test_a_file_without_a_template_leaves_special_tokens_to_the_class(tokenizers, tmp_path, capsys):
    save_model(tmp_path, tokenizers["bert"], "BertTokenizer")
    edit_json(tmp_path / "tokenizer.json", post_processor=None)
    assert saved_tokenizer(tmp_path)(TEXT)["input_ids"] == tokenizers["bert"](TEXT)["input_ids"]
    assert "WARNING" not in capsys.readouterr().out


def test_truncation_and_padding_in_the_file_are_not_other_ids(tokenizers, tmp_path, capsys):
    """As all-MiniLM-L6-v2 has them."""
    save_model(tmp_path, tokenizers["bert"], "BertTokenizer")
    file = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    file.enable_truncation(8)
    file.enable_padding(length=8)
    file.save(str(tmp_path / "tokenizer.json"))
    saved_tokenizer(tmp_path)
    assert "WARNING" not in capsys.readouterr().out


@pytest.mark.parametrize(("algorithm", "fields", "warns"), [
    ("cased", None, True), ("cased", {"do_lower_case": False}, False), ("wordpiece", None, False),
])  # fmt: skip
def test_a_cased_vocabulary_that_is_lower_cased_is_said(
    algorithm, fields, warns, tokenizers, tmp_path, capsys
):
    """A vocab.txt and nothing else, as in the first BERTs: Transformers lower-cases what it reads."""
    source = tmp_path / "source"
    save_model(source, tokenizers[algorithm], None)
    vocabulary = tokenizers[algorithm].get_vocab()
    (source / "vocab.txt").write_text("\n".join(sorted(vocabulary, key=vocabulary.get)) + "\n")
    (source / "tokenizer.json").unlink()
    (source / "tokenizer_config.json").unlink()
    if fields:
        (source / "tokenizer_config.json").write_text(json.dumps(fields))
    expected = AutoTokenizer.from_pretrained(source)(TEXT)["input_ids"]
    said = run("convert", source, tmp_path / "target", capsys=capsys)
    assert ("tokens with capitals, but lower-cases all text" in said) is warns
    assert AutoTokenizer.from_pretrained(tmp_path / "target")(TEXT)["input_ids"] == expected


def test_another_tokenizer_is_refused(tokenizers, tmp_path, monkeypatch, capsys):
    """Should saving it ever change it."""
    save_model(tmp_path / "source", tokenizers["cased"], None)
    monkeypatch.setattr(
        folders,
        "save_tokenizer_and_modules",
        lambda source, _, target, *rest: tokenizers["wordpiece"].save_pretrained(target),
    )
    said = refusal(capsys, "convert", tmp_path / "source", tmp_path / "target")
    assert "gives other ids after it is saved; nothing is written" in said
    assert not (tmp_path / "target").exists()


def test_a_file_that_multiplies_text_is_refused(tokenizers, tmp_path):
    """Though the class that is named reads nothing but its vocabulary."""
    save_model(tmp_path, tokenizers["wordpiece"], "BertTokenizer")
    file = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    file.normalizer = normalizers.Sequence([normalizers.Replace("e", "ee") for _ in range(34)])
    file.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ValueError, match="multiplies a text"):
        saved_tokenizer(tmp_path)
