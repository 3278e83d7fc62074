"""`minibert bench embed`: every engine gives the original's vectors, in a process of its own, and one that fails, or is
not installed, is named and stops no other."""

import importlib.util
import itertools
import json
import re
import types
from concurrent.futures import Executor, Future

import numpy as np
import pytest
import torch
from helpers import sentences
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, StaticEmbedding, Transformer
from sentence_transformers.util import pairwise_cos_sim
from transformers import BertConfig, BertModel

from minibert.tokenization import train_tokenizer
from minibert.training.arguments import names_that_begin
from minibert.training.arguments.embeddings import BenchEmbedArguments
from minibert.training.arguments.pretraining import CorpusArguments
from minibert.training.bench import embed as bench
from minibert.training.bench.embed import ENGINES, ORIGINAL, bench_embed, pieces
from minibert.training.cli import main as cli

TEXTS = [*sentences(12), "", "katan"]
MAX_LENGTH = 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """As the command makes it: the native model, the converted one, and the graphs if there is onnx."""
    root = tmp_path_factory.mktemp("bench")
    tokenizer = train_tokenizer(sentences(200), vocab_size=120, model_max_length=64, show_progress=False)
    shape = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=64, initializer_range=0.2, **shape)
    BertModel(config).save_pretrained(root / "bert")
    tokenizer.save_pretrained(root / "bert")
    modules = [Transformer(str(root / "bert")), Pooling(32, "mean"), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(root / "native"))
    assert cli.main(["convert", str(root / "native"), str(root / "minibert")]) == 0
    return root


@pytest.fixture(scope="module")
def expected(folder):
    model = SentenceTransformer(str(folder / "native"), device="cpu")
    model.max_seq_length = MAX_LENGTH
    return model.encode(TEXTS)


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "corpus.txt").write_text("\n".join(sentences(400)), "utf-8")
    return CorpusArguments(data=[str(tmp_path / "corpus.txt")])


@pytest.mark.parametrize("name", ENGINES)
def test_engines_give_the_vectors_of_the_original(folder, expected, name):
    for package in ENGINES[name][1]:
        pytest.importorskip(package)
    bench.export_graphs(folder, [name])
    vectors = ENGINES[name][0](folder, MAX_LENGTH)(TEXTS)
    assert vectors.shape == expected.shape
    lowest = 1 - 1e-6 if name in (ORIGINAL, "MiniBERT fp32", "onnxruntime fp32") else 0.9 if "int8" in name else 0.999
    cosines = pairwise_cos_sim(vectors.astype(float), expected.astype(float))
    assert lowest <= cosines.min() <= 1 + 1e-9


def test_what_the_process_of_an_engine_does(folder, expected):
    bench.open_engine("MiniBERT fp32", folder, MAX_LENGTH, TEXTS)
    for _ in range(2):
        bench.embed_texts("MiniBERT fp32")
    memory, vectors = bench.results("MiniBERT fp32")
    assert memory > 2**20
    np.testing.assert_allclose(vectors, expected, atol=1e-5)


class Here(Executor):
    """A pool whose process is this one."""

    def __init__(self, *given):
        pass

    def submit(self, function, *given):
        future = Future()
        try:
            future.set_result(function(*given))
        except Exception as error:
            future.set_exception(error)
        return future


def fake_engine(name, clock):
    """It takes 2 seconds for its first text, 100 for its first round."""

    def opened(folder, max_length):
        if name == "OpenVINO":
            raise RuntimeError("no such processor")
        seconds = itertools.chain([2.0, 100.0], itertools.repeat(0.5 if name == "MiniBERT fp32" else 1.0))

        def encode(texts):
            took = next(seconds)
            if name.endswith("bf16") and took == 1.0:
                raise RuntimeError("out of memory")
            clock.now += took
            return np.eye(2)[[0] * len(texts)] + (np.array([0, 1]) if name == "MiniBERT fp32" else 0)

        return encode

    return opened


@pytest.mark.parametrize("bf16", [True, False])
def test_the_command(bf16, folder, corpus, monkeypatch, tmp_path, capsys):
    """The first round does not count, cosines and ratios are to the original, what fails or takes too long is named."""
    monkeypatch.setattr("minibert.training.bench.measure.fast_bf16", lambda device: (bf16, "no bf16 here"))
    clock = types.SimpleNamespace(now=0.0)
    fakes = {name: (fake_engine(name, clock), packages) for name, (_, packages) in ENGINES.items()}
    monkeypatch.setattr(bench, "ENGINES", fakes)
    monkeypatch.setattr(bench, "ProcessPoolExecutor", Here)
    monkeypatch.setattr(bench, "_status", lambda name: 2**20)
    monkeypatch.setattr(bench.time, "perf_counter", lambda: clock.now)
    monkeypatch.setattr(bench, "export_graphs", lambda *given: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxruntime" else "found")
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.0")
    length, result = MAX_LENGTH, str(tmp_path / "r.json")
    given = BenchEmbedArguments(str(folder / "native"), texts=7, rounds=3, max_length=length, result=result)
    result = bench_embed(corpus, given)
    assert list(result["engines"]) == [ORIGINAL, "MiniBERT fp32"]
    assert result["engines"]["MiniBERT fp32"]["rates"] == [14.0] * 3
    assert result["engines"]["MiniBERT fp32"]["cosine"] == pytest.approx(0.5**0.5)
    assert result["engines"][ORIGINAL]["cosine"] == pytest.approx(1)
    assert result["skipped"] == {
        "onnxruntime fp32": "onnxruntime not installed",
        "onnxruntime int8": "onnxruntime not installed",
        "OpenVINO": "RuntimeError: no such processor",
        f"{ORIGINAL} bf16": "RuntimeError: out of memory" if bf16 else "no bf16 here; --engines takes its name",
        "MiniBERT bf16": "RuntimeError: out of memory" if bf16 else "no bf16 here; --engines takes its name",
    }
    assert json.loads((tmp_path / "r.json").read_text("utf-8")) == result
    shown = capsys.readouterr().out
    assert re.search(r"MiniBERT fp32 +14\.0 +14\.0 +2\.00 +2\.0 +1 +0\.7", shown)
    assert "OpenVINO: left out (RuntimeError: no such processor)" in shown


@pytest.mark.slow  # starts processes
def test_processes_of_their_own(folder, corpus, monkeypatch):
    monkeypatch.setitem(ENGINES, "broken", (None, ()))  # which is not there in another process
    given = BenchEmbedArguments(str(folder / "native"), texts=5, max_length=MAX_LENGTH, rounds=1)
    given.engines = [ORIGINAL, "minibert", "broken"]
    result = bench_embed(corpus, given)
    assert list(result["engines"]) == [ORIGINAL, f"{ORIGINAL} bf16", "MiniBERT fp32", "MiniBERT bf16"]
    assert result["engines"]["MiniBERT fp32"]["cosine"] > 1 - 1e-6
    assert result["skipped"] == {"broken": "KeyError: 'broken'"}


def test_texts_of_mixed_lengths():
    words = [f"w{number}" for number in range(5000)]
    texts = pieces([" ".join(words[:3000]), " ".join(words[3000:])], 2000)
    lengths = [len(text.split()) for text in texts]
    assert 55 < np.mean(lengths) < 65 and min(lengths) >= 3 and max(lengths) <= 400 and np.std(lengths) > 30
    assert all(" ".join(words).count(text) for text in texts[:50]) and texts == pieces([" ".join(words)], 2000)
    with pytest.raises(ValueError, match="data: 3 words are too few"):
        pieces(["a b", "c"], 1)


@pytest.mark.parametrize(
    "given, message",
    [
        (dict(model=""), "model: none given"),
        (dict(model="x", texts=0), "texts: 0 is too small"),
        (dict(model="x", rounds=0), "rounds: 0 is too small"),
        (dict(model="x", engines=["tensorrt"]), "engines: 'tensorrt' begins no name; use sentence-transformers, "),
    ],
)
def test_bad_input(given, message):
    with pytest.raises(ValueError, match=message):
        bench_embed(CorpusArguments(), BenchEmbedArguments(**given))


def test_engines_by_the_beginnings_of_their_names():
    chosen = names_that_begin("engines", ["minibert", "OPEN"], ENGINES)
    assert chosen == ["OpenVINO", "MiniBERT fp32", "MiniBERT bf16"]
    assert names_that_begin("engines", [], ENGINES) == [*ENGINES]


def test_no_engine_at_all(folder, corpus, monkeypatch, tmp_path, capsys):
    """It is said why, and the command has not succeeded."""
    monkeypatch.setattr(bench, "ProcessPoolExecutor", Here)
    monkeypatch.setattr(bench, "ENGINES", {"none": (lambda folder, max_length: 1 / 0, ())})
    given = BenchEmbedArguments(str(folder / "native"), texts=3, max_length=MAX_LENGTH, result=str(tmp_path / "r"))
    with pytest.raises(ValueError, match="engines: none embedded the texts; see above"):
        bench_embed(corpus, given)
    assert "none: left out (ZeroDivisionError: division by zero)" in capsys.readouterr().out
    assert not (tmp_path / "r").exists()


def test_a_length_that_the_model_does_not_take_is_refused_before_any_work(folder, corpus, monkeypatch):
    monkeypatch.setattr(bench, "load_documents", lambda **given: pytest.fail("work began"))
    for length in (2, 65):
        with pytest.raises(ValueError, match=f"max_length: {length} is out of range; use 3 up to 64"):
            bench_embed(corpus, BenchEmbedArguments(str(folder / "native"), max_length=length))


def test_a_model_without_layers_is_refused(folder, corpus, tmp_path):
    static = StaticEmbedding(SentenceTransformer(str(folder / "native"), device="cpu").tokenizer, embedding_dim=8)
    SentenceTransformer(modules=[static], device="cpu").save(str(tmp_path / "static"))
    with pytest.raises(ValueError, match="static' holds a StaticEmbedding, no model of Transformers; give a BERT"):
        bench_embed(corpus, BenchEmbedArguments(str(tmp_path / "static")))


def test_a_minibert_is_none_of_its_own_peers(folder, corpus):
    with pytest.raises(ValueError, match="is a MiniBERT already; `minibert export .* FOLDER --format native` makes"):
        bench_embed(corpus, BenchEmbedArguments(str(folder / "minibert")))


def test_minibert_is_measured_on_the_cpu_as_all_others_are(folder, monkeypatch):
    """Wherever sentence-transformers puts it."""
    placed, to = [], SentenceTransformer.to
    monkeypatch.setattr(SentenceTransformer, "to", lambda self, device: placed.append(device) or to(self, device))
    ENGINES["MiniBERT fp32"][0](folder, MAX_LENGTH)
    assert placed[-1] == "cpu"
