"""NeoBERT as it is published: config, names and shapes of its weights; no code of it is run. That the formulas agree is
in `test_parity`."""

import json

import pytest
import torch
from parity import LENGTH, TOLERANCE, VOCAB, assert_same_weights, make_native, make_rows
from safetensors.torch import load_file, save_file

import minibert.modeling_minibert as minibert
from minibert.configuration_minibert import MiniBertConfig
from minibert.training.arguments.tools import ConvertArguments
from minibert.training.conversion import convert, from_native, neobert, positions, to_native

# chandar-lab/NeoBERT: its config.json, and the tensors of its model.safetensors.
PUBLISHED = dict(
    architectures=["NeoBERTLMHead"],
    auto_map={
        "AutoConfig": "model.NeoBERTConfig",
        "AutoModel": "model.NeoBERT",
        "AutoModelForMaskedLM": "model.NeoBERTLMHead",
        "AutoModelForSequenceClassification": "model.NeoBERTForSequenceClassification",
    },
    classifier_init_range=0.02, decoder_init_range=0.02, dim_head=64, embedding_init_range=0.02, hidden_size=768,
    intermediate_size=3072, max_length=4096, model_type="neobert", norm_eps=1e-05, num_attention_heads=12,
    num_hidden_layers=28, pad_token_id=0, pretrained_model_name_or_path="google-bert/bert-base-uncased",
    kwargs=dict(classifier_init_range=0.02, pretrained_model_name_or_path="google-bert/bert-base-uncased",
                trust_remote_code=True),
    torch_dtype="float32", transformers_version="4.48.2", trust_remote_code=True, vocab_size=30522,
)  # fmt: skip

# Other names for the same are of the version of Transformers; `kwargs` repeats fields that stand beside it.
FIELDS = PUBLISHED.keys() - {"auto_map", "kwargs", "torch_dtype", "transformers_version"}


def tensors(vocabulary: int, size: int, width: int, layers: int) -> dict[str, tuple[int, ...]]:
    of_all = {
        "decoder.bias": (vocabulary,),
        "decoder.weight": (vocabulary, size),
        "model.encoder.weight": (vocabulary, size),
        "model.layer_norm.weight": (size,),
    }
    of_layer = {
        "attention_norm.weight": (size,),
        "ffn.w12.weight": (2 * width, size),
        "ffn.w3.weight": (size, width),
        "ffn_norm.weight": (size,),
        "qkv.weight": (3 * size, size),
        "wo.weight": (size, size),
    }
    return of_all | {
        f"model.transformer_encoder.{layer}.{name}": shape
        for layer in range(layers)
        for name, shape in of_layer.items()
    }


def published_folder(folder, seed: int = 0, **fields):
    """A small one, with code beside it that must not be run."""
    config = PUBLISHED | dict(vocab_size=VOCAB, hidden_size=24, dim_head=12, num_attention_heads=2,
                              num_hidden_layers=2, intermediate_size=40, max_length=LENGTH) | fields  # fmt: skip
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.py").write_text("raise SystemExit('code of a checkpoint was run')")
    torch.manual_seed(seed)
    weights = {name: 0.3 * torch.randn(shape) for name, shape in tensors(VOCAB, 24, 32, 2).items()}  # 32 ≥ 2/3 · 40
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return weights


def test_the_published_model_at_full_size():
    config = neobert.NeoBERTConfig.from_dict(PUBLISHED)
    with torch.device("meta"):
        native = neobert.NeoBERTLMHead(config)
        ours = from_native(native)
        again = to_native(ours)
    shapes = tensors(30522, 768, 2048, 28)
    assert len(shapes) == 172
    for model in (native, again):
        assert {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()} == shapes
    assert ours.config.max_position_embeddings == positions(config) == 4096
    assert (ours.config.intermediate_size, again.config.intermediate_size) == (2048, 3072)
    for name in FIELDS - {"architectures"}:  # which saving writes
        assert getattr(again.config, name) == PUBLISHED[name], name
    assert again.config.auto_map == {
        name: f"chandar-lab/NeoBERT--{where}" for name, where in PUBLISHED["auto_map"].items()
    }


def test_there_and_back_from_the_published_files_without_their_code(tmp_path):
    weights = published_folder(tmp_path / "source")
    convert(ConvertArguments(paths=[str(tmp_path / "source"), str(tmp_path / "ours")]))
    convert(ConvertArguments(paths=[str(tmp_path / "ours"), str(tmp_path / "back")]))
    back = load_file(tmp_path / "back" / "model.safetensors")
    assert back.keys() == weights.keys()
    for name, tensor in weights.items():
        assert torch.equal(back[name], tensor), name
    before, after = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("source", "back"))
    assert {name: after[name] for name in FIELDS} == {name: before[name] for name in FIELDS}
    ours = minibert.MiniBertForMaskedLM.from_pretrained(tmp_path / "ours").eval()
    native = neobert.NeoBERTLMHead.from_pretrained(tmp_path / "source").eval()
    ids, mask = torch.randint(8, VOCAB, (4, LENGTH)), make_rows("right", 4)
    with torch.no_grad():
        theirs, mine = native(ids, mask).logits, ours(ids, attention_mask=mask).logits
    torch.testing.assert_close(mine[mask.bool()], theirs[mask.bool()], **TOLERANCE)


def test_other_weights_are_refused(tmp_path):
    """As of those who call their model the same and build it otherwise: another MLP, positions that are learned."""
    weights = published_folder(tmp_path / "source", intermediate_size=30)
    weights["model.positional_embedding.weight"] = torch.zeros(LENGTH, 24)
    save_file(weights, tmp_path / "source" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match="no whole NeoBERTLMHead") as refusal:
        convert(ConvertArguments(paths=[str(tmp_path / "source"), str(tmp_path / "ours")]))
    assert "unknown weights: model.positional_embedding.weight" in str(refusal.value)
    assert "transformer_encoder.0.ffn.w3.weight [24, 32] instead of [24, 24]" in str(refusal.value)
    assert not (tmp_path / "ours").exists()


SWITCHES = dict(
    vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40,
    norm_type="rmsnorm", hidden_act="silu", embedding_norm=False, prediction_transform=False,
    global_attn_every_n_layers=1, tie_word_embeddings=False, pooler_activation="tanh", classifier_pooling="cls",
    rope_parameters=dict(rope_theta=10_000.0), attention_bias=False, mlp_bias=False, classifier_bias=True,
    pad_token_id=0,
)  # fmt: skip


@pytest.mark.parametrize("head", ["Model", "ForMaskedLM", "ForSequenceClassification"])
def test_a_minibert_of_its_switches_becomes_one(head):
    torch.manual_seed(0)
    config = MiniBertConfig(**SWITCHES, add_pooling_layer=head != "Model")
    ours = getattr(minibert, f"MiniBert{head}")(config).eval()
    native = to_native(ours, "neobert")
    assert native.config.intermediate_size == 60 and native.config.mlp_width == 40
    ids, mask = torch.randint(8, VOCAB, (4, LENGTH)), make_rows("right", 4)
    with torch.no_grad():
        theirs, mine = native(ids, mask)[0], ours(ids, attention_mask=mask)[0]
    real = mask.bool() if theirs.shape[:2] == mask.shape else slice(None)
    torch.testing.assert_close(mine[real], theirs[real], **TOLERANCE)
    assert_same_weights(from_native(native), ours)


@pytest.mark.parametrize(
    "fields, named",
    [
        (dict(intermediate_size=36), "intermediate_size=40 (it is 36)"),
        (dict(rope_parameters=dict(rope_theta=500.0)), "rope_parameters={'full_attention': {'rope_type': 'default'"),
        (dict(tie_word_embeddings=True), "tie_word_embeddings=False"),
        (dict(hidden_act="gelu"), "hidden_act='silu'"),
    ],
)
def test_others_do_not(fields, named):
    with pytest.raises(ValueError, match="cannot become") as refusal:
        to_native(minibert.MiniBertForMaskedLM(MiniBertConfig(**SWITCHES | fields)), "neobert")
    assert named in str(refusal.value)


def test_dropout_of_its_classifier_is_carried_over():
    ours = from_native(make_native("neobert", "plain", "ForSequenceClassification", classifier_dropout=0.3))
    assert ours.dropout.p == 0.3 and ours.config.hidden_dropout == ours.config.attention_dropout == 0
    assert to_native(ours).config.classifier_dropout == 0.3
