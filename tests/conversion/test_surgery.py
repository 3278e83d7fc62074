"""`minibert convert … --set`: what changes and what stays, against the model before, handed what the change says."""

import copy
import json

import pytest
import torch
from helpers import BERT, build, refusal, run
from huggingface_hub.errors import StrictDataclassError
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from torch import nn
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel

import minibert
from minibert import MiniBertConfig
from minibert.tokenization import train_tokenizer
from minibert.training.conversion import to_native
from minibert.training.conversion.surgery import modify

IDS = torch.randint(1, 61, (2, 30), generator=torch.Generator().manual_seed(0))
HEADS = ("Model", "ForMaskedLM", "ForSequenceClassification")


def outputs(model, **inputs):
    with torch.no_grad():
        return model.double().eval()(IDS, **inputs)[0]


@pytest.mark.parametrize("segments", [2, 0])
@pytest.mark.parametrize("head", HEADS)
def test_learned_positions_become_rotary(head, segments):
    """The mean of the table stays. So if all positions were alike, and no query told keys apart, nothing changes."""
    model = build(head, **BERT | dict(type_vocab_size=segments))
    trained = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    changed, said = modify(model, {"position_embedding_type": "rope"})
    tied = ["decoder.weight"] * (segments == 0 and head == "ForMaskedLM")
    moved = {
        "position_embeddings",
        "token_type_embeddings" if segments else "tok_embeddings",
        *tied,
    }
    for name, tensor in changed.state_dict().items():
        assert torch.equal(tensor, trained[name]) != any(part in name for part in moved), name
    assert changed.config.position_embedding_type == "rope" and changed.config.rope_parameters
    assert f"kept bit for bit: {len(trained) - len(moved)} of {len(trained)} tensors" in said[-1]

    for name, parameter in model.named_parameters():
        if "position_embeddings" in name:
            parameter.data[:] = parameter.data[3]
        elif "Wqkv" in name:
            parameter.data[:16] = 0  # the queries
    again, _ = modify(model, {"position_embedding_type": "rope"})
    expected, found = outputs(model), outputs(again)
    if head == "ForMaskedLM":  # the mean adds the same to all logits of a tied decoder
        expected, found = expected.log_softmax(-1), found.log_softmax(-1)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)


def test_rotary_result_matches_a_native_rotary_bert():
    model = build(
        "Model",
        **BERT | dict(type_vocab_size=1, initializer_range=0.3, global_attn_every_n_layers=1),
    )
    changed, _ = modify(model, {"position_embedding_type": "rope"})
    native = to_native(changed, "jina_embeddings_v3")
    with torch.no_grad():
        expected = native.eval()(IDS, attention_mask=torch.ones_like(IDS)).last_hidden_state
    torch.testing.assert_close(outputs(changed).float(), expected, atol=1e-5, rtol=1e-4)
    assert (outputs(changed) - outputs(model)).abs().max() > 0.01


@pytest.mark.parametrize("head", HEADS)
def test_a_longer_table_repeats_its_rows(head):
    model = build(head, **BERT | dict(max_position_embeddings=30))
    changed, said = modify(model, {"max_position_embeddings": 70})
    assert torch.equal(outputs(changed), outputs(model))
    positions = torch.arange(30)[None]
    assert torch.equal(
        outputs(changed, position_ids=positions + 30), outputs(model, position_ids=positions)
    )
    assert "new: positions 30 to 69, which repeat the others" in said
    shorter, _ = modify(model, {"max_position_embeddings": 25})
    table = shorter.base_model.embeddings.position_embeddings.weight
    assert torch.equal(table, model.base_model.embeddings.position_embeddings.weight[:25])


def test_full_attention_becomes_local():
    """As before, with a mask of the pairs within the window."""
    model = build("Model", **BERT | dict(num_hidden_layers=3))
    changed, _ = modify(model, {"global_attn_every_n_layers": 4, "local_attention": 8})
    assert changed.config.layer_types == [
        "full_attention",
        "sliding_attention",
        "sliding_attention",
    ]
    every, _ = modify(model, {"layer_types": ["sliding_attention"] * 3, "local_attention": 8})
    near = (torch.arange(30)[:, None] - torch.arange(30)).abs() <= 4
    expected = outputs(model, attention_mask=near.expand(2, 1, 30, 30))
    torch.testing.assert_close(outputs(every), expected, atol=1e-6, rtol=1e-6)
    wide, _ = modify(model, {"global_attn_every_n_layers": 3, "local_attention": 60})
    torch.testing.assert_close(outputs(wide), outputs(model), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("family", ["bert", "modernbert", "eurobert"])
def test_deeper_by_stacking(family):
    """The layers of before, gone through twice; where the first has no norm, the embeddings' stands before its copy."""
    fields = {
        "bert": BERT,
        "modernbert": dict(norm_bias=True),
        "eurobert": dict(embedding_norm=False),
    }[family]
    layers = ["full_attention", "sliding_attention", "sliding_attention"]
    model = build("ForMaskedLM", **fields | dict(num_hidden_layers=3, layer_types=layers))
    changed, said = modify(model, {"num_hidden_layers": 6})
    assert changed.config.layer_types == layers * 2
    assert "new: layers 3 to 5, copies of layers 0 to 2 in turn" in said
    stacked = copy.deepcopy(model)
    stacked.model.layers = nn.ModuleList(
        [copy.deepcopy(model.model.layers[i % 3]) for i in range(6)]
    )
    if family == "modernbert":
        stacked.model.layers[3].attn_norm = copy.deepcopy(model.model.embeddings.norm)
    torch.testing.assert_close(outputs(changed), outputs(stacked), atol=1e-6, rtol=1e-6)
    shorter, _ = modify(model, {"num_hidden_layers": 2})
    assert shorter.config.layer_types == layers[:2] and len(shorter.model.layers) == 2


def test_a_shared_layer_is_used_more_or_fewer_times():
    layers = ["full_attention", "sliding_attention"]
    fields = dict(share_layers=True, num_hidden_layers=2, layer_types=layers)
    model = build("ForMaskedLM", **BERT | fields)
    changed, messages = modify(model, {"num_hidden_layers": 4})
    assert "the one layer is used 4 times, not 2" in messages
    assert changed.config.layer_types == layers * 2 and len(changed.model.layers) == 1
    deeper = build(
        "ForMaskedLM", **BERT | fields | dict(num_hidden_layers=4, layer_types=layers * 2)
    )
    deeper.load_state_dict(model.state_dict())
    torch.testing.assert_close(outputs(changed), outputs(deeper))
    shallower, messages = modify(model, {"num_hidden_layers": 1})
    assert "the one layer is used 1 times, not 2" in messages
    assert shallower.config.layer_types == layers[:1]


def test_other_settings_and_weights_are_kept():
    model = build(
        "ForSequenceClassification", **BERT, id2label={0: "a", 1: "b", 2: "c"}, dtype="bfloat16"
    )
    model.to(torch.bfloat16).eval()
    changed, said = modify(
        model, {"hidden_dropout": 0.2, "local_attention": 4, "position_embedding_type": "absolute"}
    )
    assert said[0] == "hidden_dropout: 0.0 → 0.2"
    assert changed.config.id2label == model.config.id2label and changed.dtype == torch.bfloat16
    assert changed.config.hidden_dropout == 0.2 and not changed.training
    assert all(
        torch.equal(tensor, model.state_dict()[name])
        for name, tensor in changed.state_dict().items()
    )
    assert changed.get_parameter("classifier.weight") is not model.get_parameter(
        "classifier.weight"
    )


@pytest.mark.parametrize("fields, changes, message", [
    (BERT, {"hidden_size": 32}, "set: hidden_size=32 has no meaning for trained weights"),
    (BERT, {"local_atention": 8}, "set: local_atention=8 .* What can be set: .*local_attention"),
    (BERT, {"position_embedding_type": "none"}, "only 'absolute' can become 'rope'"),
    ({}, {"position_embedding_type": "absolute"}, "only 'absolute' can become 'rope'"),
    (BERT, {"rope_parameters": {"rope_theta": 5.0}}, "rope_parameters.*needs position_embedding_type='rope'"),
    (BERT, {"num_hidden_layers": 0}, "num_hidden_layers=0: it must be at least 1"),
    (BERT, {"local_attention": "wide"}, "local_attention"),
    ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, {"max_position_embeddings": 999}, "'dynamic'; use"),
    ({}, {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}, "max_position_embeddings": 999}, "'dynamic'"),
])  # fmt: skip
def test_bad_changes_are_refused(fields, changes, message):
    with pytest.raises((ValueError, StrictDataclassError), match=message):
        modify(build("Model", **fields), changes)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A BERT as sentence-transformers saves it."""
    folder = tmp_path_factory.mktemp("surgery")
    tokenizer = train_tokenizer(
        ["a good book", "a dull book"] * 9, vocab_size=60, model_max_length=32
    )
    torch.manual_seed(0)
    shape = dict(hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=48)
    BertModel(BertConfig(vocab_size=60, max_position_embeddings=32, **shape)).save_pretrained(
        folder / "bert"
    )
    tokenizer.save_pretrained(folder / "bert")
    modules = [Transformer(str(folder / "bert"), max_seq_length=32), Pooling(32, "mean")]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder / "native"))
    settings = folder / "native" / "sentence_bert_config.json"  # as version 2 wrote it
    settings.write_text(json.dumps({"max_seq_length": 24, "do_lower_case": False}))
    return folder / "native"


FOR_LONG_TEXTS = {"position_embedding_type": "rope", "max_position_embeddings": 300, "global_attn_every_n_layers": 3,
                  "local_attention": 8}  # fmt: skip


def test_from_folder_to_folder(source, tmp_path, capsys):
    """From a BERT in one step, and from a MiniBERT; on the command line and from Python."""
    given = [f"{name}={value}" for name, value in FOR_LONG_TEXTS.items()]
    said = run("convert", source, tmp_path / "long", "--set", *given, capsys=capsys)
    assert "position_embedding_type: 'absolute' → 'rope'" in said and "kept bit for bit" in said
    run("convert", source, tmp_path / "mini")
    minibert.convert(tmp_path / "mini", tmp_path / "again", set=FOR_LONG_TEXTS)
    first, second = (AutoModel.from_pretrained(tmp_path / name) for name in ("long", "again"))
    assert first.config.to_dict() == second.config.to_dict() | {
        "_name_or_path": first.config._name_or_path
    }
    assert all(
        torch.equal(tensor, second.state_dict()[name])
        for name, tensor in first.state_dict().items()
    )
    assert isinstance(first.config, MiniBertConfig) and first.config.converted_from is None
    assert AutoTokenizer.from_pretrained(tmp_path / "long").model_max_length == 300
    embedder = SentenceTransformer(str(tmp_path / "long"), device="cpu")
    assert embedder.max_seq_length == 300
    assert embedder.encode("a good book " * 90).shape == (32,)


def test_bad_commands_are_refused(source, tmp_path, capsys):
    said = refusal(capsys, "convert", source, tmp_path / "out", "--set", "rope")
    assert "set: expected field=value, got 'rope'" in said
    run("convert", source, tmp_path / "mini")
    words = [
        "convert",
        tmp_path / "mini",
        tmp_path / "out",
        "--set",
        "local_attention=8",
        "--architecture",
        "bert",
    ]
    assert "leave architecture='bert' out" in refusal(capsys, *words)
    assert not (tmp_path / "out").exists()


def test_missing_pooler_is_not_added(tmp_path):
    model = build("Model", **BERT)
    model.pooler = None
    changed, _ = modify(model, {"max_position_embeddings": 80})
    assert changed.pooler is None and changed.state_dict().keys() == model.state_dict().keys()


def test_yarn_keeps_the_original_length():
    yarn = {"rope_type": "yarn", "factor": 4.0}
    changed, _ = modify(build("Model"), {"max_position_embeddings": 160, "rope_parameters": yarn})
    alone, _ = modify(build("Model"), {"rope_parameters": yarn})
    assert changed.config.max_position_embeddings == 160
    assert changed.config.rope_parameters == alone.config.rope_parameters
    assert (
        changed.config.rope_parameters["full_attention"]["original_max_position_embeddings"] == 40
    )
