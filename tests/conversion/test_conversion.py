"""That nothing changes on the way there and back, what cannot be converted, and the command."""

import copy
import json
import logging
import os
import signal
from pathlib import Path
from typing import get_args

import pytest
import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from parity import (
    BATCH,
    EVERY_HEAD,
    HEADS,
    LABELS,
    SHAPES,
    TOLERANCE,
    VOCAB,
    Batch,
    assert_same_weights,
    check_outputs,
    check_parity,
    make_native,
)
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models
from transformers import AutoModelForMaskedLM, AutoTokenizer, BertConfig, PreTrainedTokenizerFast

import minibert.modeling_minibert as minibert
from minibert.configuration_minibert import MiniBertConfig
from minibert.tokenization import train_tokenizer
from minibert.training.conversion import ARCHITECTURES, convert, folders, from_native, to_native
from minibert.training.conversion.families import ArchitectureName
from minibert.training.conversion.load_native import load_checkpoint
from minibert.training.loading.models import saved_config
from minibert.training.loading.tokenizers import saved_tokenizer

PRESETS = ["bert", "modernbert"]
# What the code of all families shares is shown by some of them; the rest is slow.
SHOWN = ("bert", "modernbert", "roberta", "electra")
SOME = [
    pytest.param(name, marks=[pytest.mark.slow] * (name not in SHOWN)) for name in ARCHITECTURES
]


@pytest.mark.parametrize("problem_type, labels", [
    ("regression", torch.randn(BATCH, 3)),
    ("multi_label_classification", torch.randint(2, (BATCH, 3)).float()),
    ("single_label_classification", torch.randint(3, (BATCH,))),
])  # fmt: skip
@pytest.mark.parametrize("architecture", SOME)
def test_problem_type_is_kept(architecture, problem_type, labels):
    native = make_native(
        architecture, "plain", "ForSequenceClassification", problem_type=problem_type
    )
    ours = from_native(native)
    assert ours.config.problem_type == problem_type
    assert ours.config.initializer_range == native.config.initializer_range == 0.1
    batch = Batch("ForSequenceClassification", "right", segments=False)
    with torch.no_grad():
        theirs, mine = (
            native(**batch.native | dict(labels=labels)),
            ours(**batch.ours | dict(labels=labels)),
        )
    torch.testing.assert_close(mine.loss, theirs.loss, **TOLERANCE)


# --- the way back ---


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "architecture, shape, head",
    [
        pytest.param(
            name, shape, head, marks=[pytest.mark.slow] * (name in ("xlm-roberta", "camembert"))
        )
        for name, shape, head in EVERY_HEAD
    ],
)
def test_round_trip_is_bit_identical(architecture, shape, head):
    native = make_native(architecture, shape, head)
    ours = from_native(native)
    again = to_native(ours)
    assert type(again) is type(native)
    assert_same_weights(again, native)
    fields = native.config.to_dict().keys() - {"transformers_version", "architectures"}
    for name in fields:
        assert getattr(again.config, name) == getattr(native.config, name), name
    inputs = Batch(head, "right", segments=False).native
    with torch.no_grad():
        again.config._attn_implementation = native.config._attn_implementation
        for actual, expected in zip(again(**inputs).to_tuple(), native(**inputs).to_tuple()):
            if isinstance(expected, torch.Tensor):
                assert torch.equal(actual, expected)


@pytest.mark.parametrize("architecture", SOME)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_dtype_mode_and_labels_are_kept(architecture, dtype):
    names = {0: "no", 1: "perhaps", 2: "yes"}
    numbers = {name: number for number, name in names.items()}
    native = make_native(
        architecture, "plain", "ForSequenceClassification", id2label=names, label2id=numbers
    )
    native.to(dtype).train()
    ours = from_native(native)
    again = to_native(ours)
    for model in (ours, again):
        assert {parameter.dtype for parameter in model.parameters()} == {dtype}
        assert model.training
        assert model.config.id2label == names and model.config.label2id == numbers
        assert model.config.num_labels == 3
    # Rotary frequencies must not be rounded with the weights.
    assert all(buffer.dtype in (torch.float32, torch.long) for buffer in again.buffers())
    assert_same_weights(again, native)


def test_weights_are_copies():
    native = make_native("bert", "plain", "ForMaskedLM")
    ours = from_native(native)
    again = to_native(ours)
    before = copy.deepcopy(ours.state_dict())
    for model in (native, again):
        for parameter in model.parameters():
            parameter.data.zero_()
    assert all(torch.equal(tensor, before[name]) for name, tensor in ours.state_dict().items())
    assert all(tensor.is_contiguous() for tensor in to_native(ours).state_dict().values())


def test_bert_without_a_pooler(tmp_path):
    torch.manual_seed(0)
    native = transformers.BertModel(
        BertConfig(vocab_size=VOCAB, **SHAPES["bert"]["plain"]), add_pooling_layer=False
    )
    native.save_pretrained(tmp_path)
    for ours in (from_native(native), from_native(tmp_path)):
        assert ours.pooler is None
        again = to_native(ours)
        assert again.pooler is None
        assert_same_weights(again, native)


def test_a_causal_bert_keeps_its_mask_in_every_class():
    native = make_native("bert", "plain", "ForTokenClassification", is_decoder=True)
    ours = from_native(native)
    assert ours.config.is_causal
    check_parity(native, ours, "ForTokenClassification", "right", segments=True)
    assert to_native(ours).config.is_decoder


@pytest.mark.parametrize("architecture", PRESETS)
def test_to_native_chooses_the_architecture_by_the_config(architecture):
    for head in HEADS[architecture]:
        labels = {} if head in ("Model", "ForQuestionAnswering") else dict(num_labels=LABELS)
        torch.manual_seed(0)
        fields = (
            TINY
            | dict(num_hidden_layers=3, local_attention=8, attn_implementation="eager")
            | labels
        )
        config = getattr(MiniBertConfig, architecture)("tiny", **fields)
        ours = getattr(minibert, f"MiniBert{head}")(config).eval()
        native = to_native(ours)
        assert type(native).__name__ == ARCHITECTURES[architecture].classes[head]
        native.set_attn_implementation("eager")
        batch = Batch(head, "right", segments=architecture == "bert")
        with torch.no_grad():
            check_outputs(native(**batch.native), ours(**batch.ours), head, batch)
        assert_same_weights(to_native(from_native(native)), native)


def test_biases_that_minibert_lacks_become_zero():
    torch.manual_seed(0)
    without = ("norm_bias", "attention_bias", "mlp_bias", "head_bias", "decoder_bias")
    config = MiniBertConfig.bert("tiny", vocab_size=VOCAB, **dict.fromkeys(without, False))
    ours = minibert.MiniBertForMaskedLM(config).eval()
    native = to_native(ours, "bert")
    assert not any(
        tensor.any() for name, tensor in native.state_dict().items() if name.endswith("bias")
    )
    batch = Batch("ForMaskedLM", "right", segments=True)
    with torch.no_grad():
        check_outputs(native(**batch.native), ours(**batch.ours), "ForMaskedLM", batch)


@pytest.mark.parametrize("architecture", PRESETS)
def test_question_answering_converts_with_two_labels(architecture, tmp_path):
    """MiniBERT's head takes no number of labels; the native ones do, and work with two only."""
    config = getattr(MiniBertConfig, architecture)("tiny", **TINY, num_labels=3)
    ours = minibert.MiniBertForQuestionAnswering(config).eval()
    native = to_native(ours)
    assert native.config.num_labels == 2
    batch = Batch("ForQuestionAnswering", "right", segments=False)
    with torch.no_grad():
        check_outputs(native(**batch.native), ours(**batch.ours), "ForQuestionAnswering", batch)
    native.save_pretrained(tmp_path)
    assert_same_weights(type(native).from_pretrained(tmp_path), native)


# --- what cannot be converted ---

TINY = dict(
    vocab_size=VOCAB,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=48,
)


@pytest.mark.parametrize(
    "preset, head, fields, named",
    [
        ("bert", "ForMaskedLM", dict(norm_type="rmsnorm"), ["norm_type='layernorm' (it is 'rmsnorm')"]),
        ("bert", "ForMaskedLM", dict(position_embedding_type="sinusoidal"), ["position_embedding_type='absolute'"]),
        ("bert", "ForMaskedLM", dict(global_attn_every_n_layers=2), ["layer_types"]),
        ("bert", "ForPreTraining", dict(type_vocab_size=0), ["type_vocab_size"]),
        ("bert", "ForMaskedLM", dict(classifier_activation="relu"), ["classifier_activation='gelu' (it is 'relu')"]),
        ("bert", "ForSequenceClassification", dict(add_pooling_layer=False), ["add_pooling_layer=True"]),
        ("bert", "ForSequenceClassification", dict(classifier_pooling="mean"), ["classifier_pooling='cls'"]),
        ("bert", "ForMaskedLM", dict(share_layers=True, norm_type="rmsnorm"), ["share_layers=False (it is True)"]),
        ("modernbert", "ForMaskedLM", dict(norm_placement="post"), ["norm_placement='pre'"]),
        ("modernbert", "ForMaskedLM", dict(is_causal=True), ["is_causal=False"]),
        ("modernbert", "ForTokenClassification", dict(add_pooling_layer=True), ["add_pooling_layer=False"]),
        ("modernbert", "ForPreTraining", {}, ["modernbert", "none for ForPreTraining"]),
        ("modernbert", "ForMaskedLM", dict(norm_type="rmsnorm", gated_mlp=False, type_vocab_size=2),
         ["norm_type='layernorm'", "gated_mlp=True", "type_vocab_size=0"]),
    ],
)  # fmt: skip
def test_refusal_names_every_field_that_does_not_convert(preset, head, fields, named):
    model = getattr(minibert, f"MiniBert{head}")(
        getattr(MiniBertConfig, preset)("tiny", **TINY | fields)
    )
    for architecture in (preset, None):
        with pytest.raises(ValueError, match=f"MiniBert{head}") as refusal:
            to_native(model, architecture)
        assert (str(refusal.value).count(" needs ") == 3) == (architecture is None)
        assert architecture is None or all(words in str(refusal.value) for words in named)
        assert (
            architecture or "none for" not in str(refusal.value).split("; ")[0]
        )  # one that has the class comes first


def test_to_native_uses_the_recorded_architecture():
    """Switches that were changed since are refused, not turned into another architecture."""
    ours = from_native(make_native("bert", "plain", "ForMaskedLM"))
    ours.config.norm_type = "rmsnorm"
    with pytest.raises(ValueError, match="bert needs norm_type") as refusal:
        to_native(ours)
    assert "modernbert" not in str(refusal.value)


def test_the_command_knows_every_architecture():
    assert list(get_args(ArchitectureName)) == list(ARCHITECTURES)


def test_to_native_refuses_other_models_and_architectures():
    native = make_native("bert", "plain", "ForMaskedLM")
    with pytest.raises(ValueError, match="BertForMaskedLM"):
        to_native(native)
    with pytest.raises(ValueError, match="architecture='gpt2'.*bert or modernbert"):
        to_native(from_native(native), "gpt2")


def test_from_native_refuses_what_it_does_not_know(tmp_path):
    deberta = transformers.DebertaV2Model(transformers.DebertaV2Config(**TINY))
    deberta.save_pretrained(tmp_path)
    for given in (deberta, tmp_path):
        with pytest.raises(
            ValueError, match="DebertaV2Model is not convertible.*bert, modernbert, roberta"
        ):
            from_native(given)
    summary = type("BertForSummaries", (transformers.BertModel,), {})
    with pytest.raises(ValueError, match="BertForSummaries is not convertible.*BertForMaskedLM"):
        from_native(summary(BertConfig(**TINY)))


@pytest.mark.parametrize(
    "model_class, fields, message",
    [
        ("BertModel", dict(is_decoder=True, add_cross_attention=True), "add_cross_attention=True"),
        ("BertModel", dict(is_decoder=True), "is_decoder=True"),
        ("BertForSequenceClassification", dict(is_decoder=True), "is_decoder=True"),
        ("BertLMHeadModel", dict(is_decoder=False), "is_decoder=False.*BertForMaskedLM"),
        ("ModernBertModel", dict(pad_token_id=0, rope_parameters={"full_attention": {
            "rope_type": "proportional", "factor": 2.0, "rope_theta": 1e4}}), "rope_parameters"),
        ("NomicBertModel", dict(rope_parameters={
            "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}),
         "computes with rope_parameters=.*'partial_rotary_factor': 1.0.*it is .*0.5"),
        ("AlbertModel", dict(num_hidden_groups=2), "num_hidden_groups=2"),
        ("AlbertModel", dict(inner_group_num=2), "inner_group_num=2"),
        ("AlbertModel", dict(embedding_size=32), "embedding_size=32 .*as wide as its layers"),
        ("AlbertForPreTraining", dict(num_labels=3), "num_labels=3"),
    ],
)  # fmt: skip
def test_unsupported_native_features_are_refused(model_class, fields, message):
    native_class = getattr(transformers, model_class)
    native = native_class(native_class.config_class(**TINY | fields))
    with pytest.raises((ValueError, StrictDataclassError), match=message):
        from_native(native)


def name_classes(folder, names: list[str] | None) -> None:
    path = folder / "config.json"
    saved = json.loads(path.read_text())
    del saved["architectures"]
    path.write_text(json.dumps(saved if names is None else saved | {"architectures": names}))


@pytest.mark.parametrize(("saved", "ours", "left"), [
    ("BertModel", "Model", ""), ("BertForMaskedLM", "ForMaskedLM", ""), ("BertForPreTraining", "ForPreTraining", ""),
    ("ElectraForPreTraining", "ForReplacedTokenDetection", ""),
    ("BertForTokenClassification", "Model", "classifier.weight"),  # as every classifier calls it
])  # fmt: skip
def test_head_is_inferred_from_the_weights_without_architectures(
    saved, ours, left, tmp_path, monkeypatch, caplog
):
    """As those of the first BERTs, whose config.json says but how large they are."""
    model_class = getattr(transformers, saved)
    native = model_class(model_class.config_class(**TINY)).eval()
    native.save_pretrained(tmp_path)
    name_classes(tmp_path, None)
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    model = from_native(tmp_path)
    assert type(model) is getattr(minibert, f"MiniBert{ours}")
    assert (left in caplog.text) if left else ("left out" not in caplog.text)
    ids = torch.arange(1, 9).view(1, -1)
    expected = (native.bert if left else native)(ids)[0]
    torch.testing.assert_close(model(ids)[0], expected, rtol=0, atol=1e-6)


def test_a_checkpoint_that_names_two_classes_is_refused(tmp_path):
    transformers.BertModel(BertConfig(**TINY)).save_pretrained(tmp_path)
    name_classes(tmp_path, ["BertModel", "BertForMaskedLM"])
    with pytest.raises(ValueError, match="names the classes.*'BertForMaskedLM'.*name one"):
        from_native(tmp_path)


def edit(folder, change) -> None:
    """Change the saved weights of a model."""
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def test_damaged_checkpoint_is_refused_with_all_its_faults(tmp_path):
    make_native("bert", "plain", "ForMaskedLM").save_pretrained(tmp_path / "source")
    save_tokenizer(tmp_path / "source", words=VOCAB + 1)

    def damage(weights):
        del weights["bert.encoder.layer.1.output.dense.weight"]
        weights["bert.encoder.layer.2.output.dense.weight"] = torch.zeros(32, 64)
        weights["bert.encoder.layer.0.output.dense.bias"] = torch.zeros(33)

    edit(tmp_path / "source", damage)
    with pytest.raises(ValueError, match="not a complete BertForMaskedLM") as refusal:
        convert(str(tmp_path / "source"), str(tmp_path / "new" / "target"))
    for words in (
        "lacks the weights: bert.encoder.layer.1.output.dense.weight",
        "has the unknown weights: bert.encoder.layer.2.output.dense.weight",
        "of another shape: bert.encoder.layer.0.output.dense.bias [33] instead of [32]",
        f"ids up to {VOCAB} for {VOCAB} word vectors",
    ):
        assert words in str(refusal.value)
    assert not (tmp_path / "new").exists()


def test_sigterm_removes_the_unfinished_folder(tmp_path, monkeypatch):
    """Not even the folder that was being written; afterwards the signal does what it did before."""
    make_native("bert", "plain", "ForMaskedLM").save_pretrained(tmp_path / "source")
    monkeypatch.setattr(
        folders, "save_tokenizer_and_modules", lambda *_: os.kill(os.getpid(), signal.SIGTERM)
    )
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit, match="143"):
        convert(str(tmp_path / "source"), str(tmp_path / "target"))
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("function", [saved_config, saved_tokenizer])
def test_adapter_without_base_model_is_refused(tmp_path, function):
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ValueError, match="holds an adapter without its model. Merge the two"):
        function(str(tmp_path))


def test_unused_head_weights_are_reported(tmp_path, monkeypatch, caplog):
    """As in the files of bert-base-uncased, which name BertForMaskedLM and hold a BertForPreTraining."""
    native = make_native("bert", "plain", "ForPreTraining")
    native.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(
        json.dumps(config | {"architectures": ["BertForMaskedLM"]})
    )
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    with caplog.at_level(logging.WARNING):
        ours = from_native(tmp_path)
    assert "cls.seq_relationship.weight" in caplog.text and "pooler.dense.bias" in caplog.text
    assert torch.equal(ours.decoder.bias, native.cls.predictions.decoder.bias)


# --- the command ---


def save_tokenizer(folder, words: int = 7):
    special = dict(
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        pad_token="[PAD]",
    )
    words = {
        word: i
        for i, word in enumerate([*special.values(), "a", "cat", *map(str, range(words - 7))])
    }
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)
    return words


@pytest.mark.parametrize("architecture", SOME)
def test_convert_there_and_back(architecture, tmp_path, capsys):
    native = make_native(architecture, "plain", "ForMaskedLM")
    source, ours, back = (str(tmp_path / name) for name in ("source", "ours", "back"))
    native.save_pretrained(source)
    words = save_tokenizer(source)
    assert convert(source, ours) == Path(ours)
    convert(ours, back)
    assert "MiniBertForMaskedLM" in capsys.readouterr().out
    assert_same_weights(type(native).from_pretrained(back), native)
    for folder in (ours, back):
        assert AutoTokenizer.from_pretrained(folder).get_vocab() == words
    assert isinstance(AutoModelForMaskedLM.from_pretrained(ours), minibert.MiniBertForMaskedLM)


def test_convert_refuses_before_it_writes(tmp_path):
    source, target = str(tmp_path / "source"), str(tmp_path / "target")
    make_native("bert", "plain", "ForMaskedLM").save_pretrained(source)
    with pytest.raises(ValueError, match="architecture=.bert. needs a MiniBERT as the source"):
        convert(source, target, architecture="bert")
    with pytest.raises((OSError, ValueError), match="nowhere"):
        convert(str(tmp_path / "nowhere"), target)
    assert not (tmp_path / "target").exists()
    with pytest.raises(ValueError, match="exists already"):
        convert(source, source)


@pytest.mark.parametrize("kind", ["Bert", "Roberta", "XLMRoberta"])
def test_folder_without_a_tokenizer_is_refused(kind, tmp_path):
    """Transformers makes one of nothing, which knows no word."""
    getattr(transformers, f"{kind}Config")().save_pretrained(tmp_path)
    with pytest.raises((ValueError, OSError)):
        saved_tokenizer(tmp_path)


def test_tokenizer_without_config_file_is_converted(tmp_path):
    tokenizer = train_tokenizer(
        ["a good book", "a dull book"] * 9, vocab_size=60, show_progress=False
    )
    shape = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=48)
    transformers.BertModel(transformers.BertConfig(vocab_size=60, **shape)).save_pretrained(
        tmp_path / "bert"
    )
    tokenizer.save_pretrained(tmp_path / "bert")
    (tmp_path / "bert" / "tokenizer_config.json").unlink()
    convert(str(tmp_path / "bert"), str(tmp_path / "converted"))
    converted = transformers.AutoTokenizer.from_pretrained(tmp_path / "converted")
    assert converted("a good book")["input_ids"] == tokenizer("a good book")["input_ids"]


def test_bertweet_keeps_its_merges(tmp_path):
    """Transformers writes them without their counts, and takes the last field of a line for one."""
    source, target = tmp_path / "source", tmp_path / "target"
    shape = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=48)
    transformers.RobertaModel(transformers.RobertaConfig(vocab_size=60, **shape)).save_pretrained(
        source
    )
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = (
        [f"{letter}@@ 10" for letter in letters]
        + [f"{letter} 10" for letter in letters]
        + ["the 5"]
    )
    (source / "vocab.txt").write_text("\n".join(words) + "\n")
    (source / "bpe.codes").write_text("t h 10\nth e</w> 8\n")
    (source / "tokenizer_config.json").write_text('{"tokenizer_class": "BertweetTokenizer"}')
    convert(str(source), str(target))
    ids = [
        transformers.AutoTokenizer.from_pretrained(folder)("the")["input_ids"]
        for folder in (source, target)
    ]
    assert ids[0] == ids[1] and len(ids[0]) == 3


def test_output_attentions_does_not_prevent_saving(tmp_path):
    """Which Transformers saves of its eager implementation alone."""
    native = transformers.BertModel(
        BertConfig(**TINY, output_attentions=True, attn_implementation="eager")
    )
    to_native(from_native(native)).save_pretrained(tmp_path)


def test_names_of_weights_are_data(tmp_path, caplog, monkeypatch):
    """A message shows the terminal escapes in them, and does not send them."""
    native = make_native("bert", "plain", "ForMaskedLM")
    native.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    escape = "\x1b]0;title\x07"
    weights = load_file(file) | {f"cls.{escape}": torch.zeros(1)}
    save_file(weights, file, {"format": "pt"})
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    load_checkpoint(tmp_path)
    assert r"has no place for cls.\x1b]0;title\x07" in caplog.text
    weights[f"bert.encoder.layer.9.{escape}"] = torch.zeros(1)
    save_file(weights, file, {"format": "pt"})
    with pytest.raises(ValueError) as refused:
        load_checkpoint(tmp_path)
    assert r"layer.9.\x1b]0;title\x07" in str(refused.value) and escape not in str(refused.value)
