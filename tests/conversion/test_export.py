"""`minibert export`: what onnxruntime, Transformers and sentence-transformers make of the folders, against the model in
torch."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from helpers import BERT, FAMILIES, HEADS, build, refusal, run, sentences
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from torch.testing import assert_close
from transformers import AutoTokenizer

import minibert
from minibert import MiniBertModel
from minibert.tokenization import train_tokenizer
from minibert.training.conversion import export as exporting
from minibert.training.finetuning.thresholds import shift_bias

TEXTS = [*sentences(6), "", "katan"]
SHOWN = [("bert", "Model"), ("bert", "ForSequenceClassification"), ("bert", "ForQuestionAnswering"),
         ("modernbert", "ForMaskedLM"), ("causal", "ForCausalLM")]  # fmt: skip
REST = [(family, head) for family in FAMILIES for head in HEADS if (family, head) not in SHOWN]
needs_onnx = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("onnx", "onnxruntime")),
    reason="no ONNX here",
)


def onnx_outputs(graph, **inputs) -> dict[str, torch.Tensor]:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(graph))
    names = [output.name for output in session.get_outputs()]
    assert all(isinstance(output.shape[0], str) for output in session.get_outputs())  # any batch
    given = {node.name: inputs[node.name].numpy() for node in session.get_inputs()}
    assert given.keys() == inputs.keys()
    return dict(zip(names, map(torch.from_numpy, session.run(None, given))))


def onnx_weights(graph: Path) -> list[np.ndarray]:
    import onnx

    return [onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(graph).graph.initializer]


def inputs_of(
    head: str, side: str, segments: bool, rows: int = 3, length: int = 13
) -> dict[str, torch.Tensor]:
    """Longer than the windows of local layers, with padding."""
    ids = torch.randint(1, 61, (rows, length), generator=torch.Generator().manual_seed(rows))
    mask = torch.ones_like(ids)
    for row in range(1, rows):
        mask[row, -2 * row :] = 0
    inputs = dict(input_ids=ids, attention_mask=mask if side == "right" else mask.flip(1))
    if segments:
        inputs["token_type_ids"] = ids % 2
    return (
        {name: x.expand(2, -1, -1) for name, x in inputs.items()}
        if head == "ForMultipleChoice"
        else inputs
    )


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(sentences(200), vocab_size=61, model_max_length=40, show_progress=False)


@pytest.fixture(scope="module")
def folder(tokenizer, tmp_path_factory):
    """An encoder with learned positions and a tokenizer."""
    return save(
        build("Model", **BERT).eval(), tokenizer, tmp_path_factory.mktemp("export") / "model"
    )


def save(model, tokenizer, folder) -> Path:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def mean_of(states, mask):
    return (states * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)


# --- ONNX ---


@needs_onnx
@pytest.mark.parametrize(
    ("family", "head"), [*SHOWN, *(pytest.param(*each, marks=pytest.mark.slow) for each in REST)]
)
def test_the_graph_of_every_head(family, head, tmp_path):
    """Padding on either side, and other sizes than those it was traced with; the reference drops the padding. In int8
    near it."""
    model = build(head, **FAMILIES[family]).eval()
    exporting.write_graph(model, tmp_path / "model.onnx")
    assert not model.training
    exporting.write_int8_graph(tmp_path / "model.onnx", tmp_path / "int8.onnx")
    in_int8 = [
        weights for weights in onnx_weights(tmp_path / "int8.onnx") if weights.dtype == "int8"
    ]
    assert in_int8 and all(
        abs(weights.astype(int)).max() <= 64 for weights in in_int8
    )  # 2 · 64 · 255 is below 2 ** 15
    for side, rows, length in (("right", 3, 13), ("left", 3, 13), ("left", 1, 1)):
        inputs = inputs_of(head, side, model.config.type_vocab_size > 1, rows, length)
        actual = onnx_outputs(tmp_path / "model.onnx", **inputs)
        with torch.no_grad():
            expected = model(**inputs)
        assert list(actual) == list(expected)
        assert_close(actual, dict(expected), rtol=1e-4, atol=1e-5)
        for name, rounded in onnx_outputs(tmp_path / "int8.onnx", **inputs).items():
            real = expected[name] > torch.finfo(torch.float32).min  # no answer begins in padding
            off = (rounded - expected[name])[real].norm() / expected[name][real].norm()
            assert 0 < off < 0.2


@needs_onnx
@pytest.mark.parametrize(
    "fields",
    [
        dict(norm_type="rmsnorm"),
        dict(rope_type="dynamic", factor=2.0),
        dict(embedding_size=8),
        dict(share_layers=True),
    ],
    ids=str,
)
def test_graphs_of_other_switches(fields, tmp_path):
    """Of an operator that ONNX lacks, of angles that depend on the length, of a projection, of one layer used twice."""
    if "rope_type" in fields:
        fields = dict(rope_parameters=fields | dict(rope_theta=1e4), max_position_embeddings=12)
    model = build("ForMaskedLM", **fields).eval()
    exporting.write_graph(model, tmp_path / "model.onnx")
    inputs = inputs_of("ForMaskedLM", "left", False)
    with torch.no_grad():
        expected = model(**inputs).logits
    assert_close(
        onnx_outputs(tmp_path / "model.onnx", **inputs)["logits"], expected, rtol=1e-4, atol=1e-5
    )


@needs_onnx
def test_the_folder(folder, tokenizer, tmp_path, capsys):
    """What engines look for: names, a config that they know, the tokenizer, and an int8 graph near the other."""
    said = run("export", folder, tmp_path / "out", capsys=capsys)
    assert "onnx/model.onnx: outputs as torch gives them, to " in said
    assert "MiniBertModel as ONNX, for engines that know bert" in said
    files = {
        path.relative_to(tmp_path / "out").as_posix()
        for path in (tmp_path / "out").rglob("*")
        if path.is_file()
    }
    assert files == {
        "config.json", "onnx/model.onnx", "onnx/model_quantized.onnx", "tokenizer.json", "tokenizer_config.json"
    }  # fmt: skip
    settings = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
    assert (
        settings["tokenizer_class"] == "PreTrainedTokenizerFast"
    )  # Transformers 4 has no TokenizersBackend
    config = transformers.AutoConfig.from_pretrained(tmp_path / "out")
    assert (config.model_type, config.architectures) == ("bert", ["BertModel"])
    inputs = dict(
        AutoTokenizer.from_pretrained(tmp_path / "out")(TEXTS, padding=True, return_tensors="pt")
    )
    with torch.no_grad():
        expected = MiniBertModel.from_pretrained(folder)(**inputs).last_hidden_state
    inputs.setdefault("token_type_ids", torch.zeros_like(inputs["input_ids"]))
    actual = onnx_outputs(tmp_path / "out" / exporting.GRAPH_FILE, **inputs)["last_hidden_state"]
    assert_close(actual, expected, rtol=1e-4, atol=1e-5)
    rounded = onnx_outputs(tmp_path / "out" / exporting.INT8_GRAPH_FILE, **inputs)[
        "last_hidden_state"
    ]
    assert not torch.equal(rounded, actual)
    pooled = (mean_of(x, inputs["attention_mask"]) for x in (rounded, expected))
    assert torch.cosine_similarity(*pooled).min() > 0.98


@needs_onnx
@needs_onnx
@pytest.mark.parametrize(
    "problem_type", ["single_label_classification", "multi_label_classification"]
)
def test_a_graph_decides_by_the_tuned_thresholds(problem_type, tokenizer, tmp_path):
    """As `predict` does, and not as the logits of the training would."""
    labels = ["no", "yes"] if problem_type.startswith("single") else ["a", "b", "c"]
    model = build("ForSequenceClassification", **BERT, num_labels=len(labels)).eval()
    model.config.problem_type = problem_type
    model.config.id2label = dict(enumerate(labels))
    model.config.label2id = {name: index for index, name in enumerate(labels)}
    texts = sentences(12)
    inputs = dict(tokenizer(texts, padding=True, return_tensors="pt"))
    with torch.no_grad():
        logits = model(**inputs).logits

    def decide(logits):
        if problem_type.startswith("single"):
            return [labels[index] for index in logits.argmax(1)]
        return [[labels[index] for index in row.nonzero().flatten()] for row in logits > 0]

    # in the middle between two texts, so that some are on either side
    if problem_type.startswith("single"):
        log_odds = (logits[:, 1] - logits[:, 0]).sort().values
        log_odds = torch.stack([-log_odds, log_odds], 1)
    else:
        log_odds = logits.sort(0).values
    thresholds = log_odds[5:7].mean(0).double().sigmoid()
    shift_bias(model, thresholds.tolist())
    folder = save(model, tokenizer, tmp_path / "model")
    run("export", folder, tmp_path / "out")
    exported = onnx_outputs(tmp_path / "out" / "onnx" / "model.onnx", **inputs)["logits"]
    predicted = minibert.predict(folder, texts, bf16=False)["label"][:]
    assert decide(exported) == predicted
    assert decide(logits) != predicted
    assert json.loads((tmp_path / "out" / "config.json").read_text())["id2label"]["0"] == labels[0]


def test_what_no_native_class_has_keeps_its_own_config(tokenizer, tmp_path, capsys):
    model = build("ForMaskedLM", norm_type="rmsnorm", position_embedding_type="sinusoidal")
    source = save(model, tokenizer, tmp_path / "m")
    assert "for engines that know minibert" in run(
        "export", source, tmp_path / "out", capsys=capsys
    )
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config["model_type"], config["architectures"]) == ("minibert", ["MiniBertForMaskedLM"])
    assert (tmp_path / "out" / "configuration_minibert.py").exists()


@needs_onnx
def test_where_tokens_are_pooled_there_is_no_head(tokenizer, tmp_path):
    source = save(build("ForMaskedLM", **BERT).eval(), tokenizer, tmp_path / "m")
    minibert.export(source, tmp_path / "saved")
    minibert.export(source, tmp_path / "st", format="sentence-transformers", normalize=True)
    minibert.export(tmp_path / "st", tmp_path / "pooled")
    inputs = inputs_of("Model", "right", True)
    assert list(onnx_outputs(tmp_path / "saved" / exporting.GRAPH_FILE, **inputs)) == ["logits"]
    modules = json.loads((tmp_path / "pooled" / "modules.json").read_text())
    assert [module["path"] for module in modules] == ["", "1_Pooling", "2_Normalize"]
    tokens = AutoTokenizer.from_pretrained(tmp_path / "pooled")(
        TEXTS, padding=True, return_tensors="pt"
    )
    inputs = dict(tokens) | dict(token_type_ids=torch.zeros_like(tokens["input_ids"]))
    states = onnx_outputs(tmp_path / "pooled" / exporting.GRAPH_FILE, **inputs)["last_hidden_state"]
    vectors = torch.nn.functional.normalize(mean_of(states, inputs["attention_mask"]))
    assert_close(
        vectors,
        torch.from_numpy(SentenceTransformer(str(tmp_path / "st")).encode(TEXTS)),
        rtol=0,
        atol=1e-5,
    )


# --- the other formats ---


def test_native_is_what_transformers_loads(folder, tmp_path, capsys):
    run("export", folder, tmp_path / "out", "--format", "native", capsys=capsys)
    model, ours = (
        transformers.AutoModel.from_pretrained(tmp_path / "out"),
        MiniBertModel.from_pretrained(folder),
    )
    assert isinstance(model, transformers.BertModel)
    inputs = inputs_of("Model", "right", True)
    with torch.no_grad():
        real = inputs["attention_mask"].bool()
        states = (each(**inputs).last_hidden_state[real] for each in (model, ours))
        assert_close(*states, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_sentence_transformers_opens_its_folder(pooling, folder, tmp_path):
    minibert.export(folder, tmp_path / "out", format="sentence-transformers", pooling=pooling)
    vectors = SentenceTransformer(str(tmp_path / "out")).encode(TEXTS, convert_to_tensor=True).cpu()
    inputs = AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = MiniBertModel.from_pretrained(folder)(**inputs).last_hidden_state
    expected = states[:, 0] if pooling == "cls" else mean_of(states, inputs["attention_mask"])
    assert_close(vectors, expected, rtol=1e-4, atol=1e-5)
    assert load_file(tmp_path / "out" / "model.safetensors")
    loaded = MiniBertModel.from_pretrained(tmp_path / "out", output_loading_info=True)[1]
    assert not loaded["missing_keys"] and not loaded["unexpected_keys"]
    assert (tmp_path / "out" / "modeling_minibert.py").exists()


# --- refusals ---


@needs_onnx
def test_refusals(folder, tmp_path, capsys):
    """Before any work, with nothing written."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    transformers.BertConfig().save_pretrained(tmp_path / "bert")
    before = sorted(tmp_path.rglob("*"))
    for given, message in (
        ([folder], "missing TARGET"),
        ([folder, tmp_path / "full"], "nothing is overwritten"),
        ([tmp_path / "nothing", tmp_path / "out"], "does not exist"),
        ([tmp_path / "full", tmp_path / "out"], "config.json"),
        ([tmp_path / "bert", tmp_path / "out"], "is a bert, not a MiniBERT"),
        ([folder, tmp_path / "out", "--format", "gguf"], "invalid choice: 'gguf'"),
    ):
        assert message in refusal(capsys, "export", *given)
        assert sorted(tmp_path.rglob("*")) == before


@needs_onnx
def test_nothing_is_left_of_a_graph_that_differs(folder, tmp_path, capsys, monkeypatch):
    trace = exporting.write_graph
    monkeypatch.setattr(
        exporting, "write_graph", lambda _, path: trace(build("Model", seed=1, **BERT).eval(), path)
    )
    assert "last_hidden_state differs by" in refusal(capsys, "export", folder, tmp_path / "out")
    assert not list(tmp_path.iterdir())
