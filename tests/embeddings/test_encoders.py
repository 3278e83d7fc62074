"""Vectors of texts, against sentence-transformers'."""

import io
import json
import shutil
import threading

import numpy as np
import pytest
import torch
from embedding_models import MAX_LENGTH, convert, random_bert
from helpers import refusal, run, sentences, write_rows
from processes import Python
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense
from transformers import AutoTokenizer, BertForSequenceClassification

import minibert
from minibert import MiniBertModel
from minibert.training.common import precision
from minibert.training.embeddings import inference
from minibert.training.embeddings.embed import embed
from minibert.training.embeddings.encoders import open_encoder
from minibert.training.embeddings.inference import encode
from minibert.training.embeddings.reading.passages import read_passages
from minibert.training.loading.models import load_pretrained

TEXTS = [*sentences(40), "", "Katan, LOVER! (unseen ünicode)", "katan"]


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_the_same_vectors_as_sentence_transformers(folders, pooling, normalize, monkeypatch):
    native, converted = folders[pooling, normalize]
    expected = SentenceTransformer(native, device="cpu").encode(TEXTS)
    embedder = open_encoder(converted)
    assert embedder.max_seq_length == MAX_LENGTH
    assert np.std(np.linalg.norm(expected, axis=1)) < 1e-6 if normalize else True
    ours = encode(embedder, TEXTS)
    monkeypatch.setattr(inference, "BATCH_TOKENS", 1)
    for vectors in (
        ours,
        encode(embedder, TEXTS),
        SentenceTransformer(converted, device="cpu").encode(TEXTS),
    ):
        cosines = torch.cosine_similarity(
            torch.tensor(vectors).double(), torch.tensor(expected).double()
        )
        assert cosines.min() > 1 - 1e-6
        np.testing.assert_allclose(vectors, expected, atol=1e-4)


def test_parallel_batches(folders, monkeypatch):
    """A batch a core gives the same vectors in the same order; an error in one of them ends all."""
    embedder, cores = open_encoder(folders["mean", True][1]), torch.get_num_threads()
    expected = SentenceTransformer(folders["mean", True][0], device="cpu").encode(TEXTS * 5)
    original, calls = embedder.encode, []
    monkeypatch.setattr(inference, "BATCH_TOKENS", 60)

    def count(batch, **kwargs):
        calls.append((threading.current_thread(), torch.get_num_threads()))
        return original(batch, **kwargs)

    def fail(batch, **kwargs):
        calls.append(batch)
        if len(calls) == 3:
            raise MemoryError("a large batch")
        return original(batch, **kwargs)

    try:
        torch.set_num_threads(4)
        monkeypatch.setattr(embedder, "encode", count)
        np.testing.assert_allclose(encode(embedder, TEXTS * 5), expected, atol=1e-4)
        assert (
            torch.get_num_threads() == 4
            and len(calls) > 20
            and calls[0] == (threading.main_thread(), 4)
        )
        assert {number for _, number in calls[1:]} == {1} and len(
            {thread for thread, _ in calls}
        ) == 5
        calls.clear()
        other = threading.Thread(target=encode, args=(embedder, TEXTS * 5))
        other.start()  # as in a service, where threads that begin meanwhile would keep the smaller number
        other.join()
        assert len(calls) > 20 and set(calls) == {(other, 4)}
        calls.clear()
        monkeypatch.setattr(embedder, "encode", fail)
        with pytest.raises(MemoryError, match="a large batch"):
            encode(embedder, TEXTS * 50)
        assert torch.get_num_threads() == 4 and len(calls) < 100
    finally:
        torch.set_num_threads(cores)


def test_embed_in_bf16(folders, tmp_path):
    """As near as bf16 can be, and not the vectors of fp32; the file holds fp32 all the same."""
    native, converted = folders["mean", True]
    expected, vectors = SentenceTransformer(native, device="cpu").encode(TEXTS), []
    for dtype in (None, "bfloat16"):
        vectors.append(embed(TEXTS, model=converted, dtype=dtype))
    np.testing.assert_allclose(vectors[0], expected, atol=1e-4)
    assert vectors[1].dtype == np.float32 and not np.allclose(vectors[1], expected, atol=1e-4)
    assert torch.cosine_similarity(torch.tensor(vectors[1]), torch.tensor(expected)).min() > 0.99


@pytest.mark.skipif(torch.accelerator.is_available(), reason="a GPU computes in 16 bits")
@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.slow)], ids=str
)
def test_weights_in_16_bits_where_the_processor_is_slow_at_them(
    dtype, folders, tmp_path, monkeypatch
):
    """Computed in fp32, unless it is asked for otherwise; the same model to an index."""
    shutil.copytree(folders["mean", True][1], tmp_path / "half")
    MiniBertModel.from_pretrained(tmp_path / "half").to(dtype).save_pretrained(tmp_path / "half")
    for flags in ({"avx512f", "amx_bf16"}, {"avx2"}):
        monkeypatch.setattr(precision, "_processor_flags", lambda flags=flags: flags)
        names = None, str(dtype).removeprefix("torch.")
        half, asked = (open_encoder(str(tmp_path / "half"), dtype=name) for name in names)
        expected = (
            torch.bfloat16 if dtype == torch.bfloat16 and "amx_bf16" in flags else torch.float32
        )
        assert (
            half.transformers_model.dtype
            == load_pretrained(MiniBertModel, tmp_path / "half")[0].dtype
            == expected
        )
        assert asked.transformers_model.dtype == dtype


def test_the_files_of_older_versions_are_read(folders, tmp_path):
    """modules.json, 1_Pooling and sentence_bert_config.json as version 2 wrote them (all-MiniLM-L6-v2 has these)."""
    source = tmp_path / "old"
    native = SentenceTransformer(folders["cls", True][0], device="cpu")
    native.transformers_model.save_pretrained(source)
    AutoTokenizer.from_pretrained(folders["cls", True][0], model_max_length=64).save_pretrained(
        source
    )
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    kinds = [(path, f"sentence_transformers.models.{kind}") for path, kind in kinds]
    modules = [
        dict(idx=i, name=str(i), path=path, type=kind) for i, (path, kind) in enumerate(kinds)
    ]
    (source / "modules.json").write_text(json.dumps(modules))
    (source / "1_Pooling").mkdir()
    pooling = dict(word_embedding_dimension=32, pooling_mode_cls_token=True, pooling_mode_mean_tokens=False,
                   pooling_mode_max_tokens=False, pooling_mode_mean_sqrt_len_tokens=False)  # fmt: skip
    (source / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (source / "sentence_bert_config.json").write_text(
        json.dumps({"max_seq_length": 7, "do_lower_case": False})
    )
    expected = SentenceTransformer(str(source), device="cpu").encode(TEXTS)
    converted = convert(source, tmp_path / "converted")
    np.testing.assert_allclose(encode(open_encoder(converted), TEXTS), expected, atol=1e-4)
    np.testing.assert_allclose(
        SentenceTransformer(converted, device="cpu").encode(TEXTS), expected, atol=1e-4
    )
    other = open_encoder(converted, pooling="mean", normalize=False, max_length=MAX_LENGTH)
    expected = SentenceTransformer(folders["mean", False][0], device="cpu").encode(TEXTS)
    np.testing.assert_allclose(encode(other, TEXTS), expected, atol=1e-4)


def test_further_modules_and_prompts_are_those_of_the_folder(folders, tmp_path):
    """A Dense behind the pooling, a prompt before every text: also after the conversion."""
    native = SentenceTransformer(folders["mean", False][0], device="cpu")
    torch.manual_seed(0)
    modules = [*native, Dense(32, 8)]
    prompts = dict(prompts={"query": "lover "}, default_prompt_name="query")
    SentenceTransformer(modules=modules, device="cpu", **prompts).save(str(tmp_path / "native"))
    expected = SentenceTransformer(str(tmp_path / "native"), device="cpu").encode(TEXTS)
    embedder = open_encoder(convert(tmp_path / "native", tmp_path / "converted"))
    assert expected.shape == (len(TEXTS), 8)
    np.testing.assert_allclose(encode(embedder, TEXTS), expected, atol=1e-4)


@pytest.mark.slow
def test_sentence_transformers_loads_without_the_package(folder, tokenizer, tmp_path):
    random_bert(tokenizer, BertForSequenceClassification, num_labels=1).save_pretrained(
        tmp_path / "bert"
    )
    tokenizer.save_pretrained(tmp_path / "bert")
    reranker, pairs = (
        convert(tmp_path / "bert", tmp_path / "reranker"),
        [(text, "katan lover") for text in TEXTS],
    )
    with Python(tmp_path, with_package=False) as python:
        python.run(f"""
            import numpy as np
            from sentence_transformers import CrossEncoder, SentenceTransformer, SentenceTransformerTrainer
            model = SentenceTransformer({folder!r}, trust_remote_code=True, device="cpu")
            module = type(model.transformers_model).__module__
            assert module.startswith("transformers_modules."), module
            np.save("vectors.npy", model.encode({TEXTS!r}), allow_pickle=False)
            model.save("again")
            model = CrossEncoder({reranker!r}, trust_remote_code=True, device="cpu")
            assert type(model.model).__module__.startswith("transformers_modules."), type(model.model)
            np.save("scores.npy", model.predict({pairs!r}), allow_pickle=False)
        """)
    expected = SentenceTransformer(folder, device="cpu").encode(TEXTS)
    np.testing.assert_allclose(np.load(tmp_path / "vectors.npy"), expected, atol=1e-6)
    np.testing.assert_allclose(
        encode(open_encoder(str(tmp_path / "again")), TEXTS), expected, atol=1e-5
    )
    expected = CrossEncoder(str(tmp_path / "bert"), device="cpu").predict(pairs)
    np.testing.assert_allclose(np.load(tmp_path / "scores.npy"), expected, atol=1e-4)


# --- minibert embed ---


def test_embed_from_python(folder, tmp_path):
    """Of texts or of a file; without an output, nothing is written."""
    expected = SentenceTransformer(folder, device="cpu").encode(["katan", "lover mizol"])
    lines = tmp_path / "lines.txt"
    lines.write_text("katan\nlover mizol\n")
    for given in (
        {"text": ["katan", "lover mizol"]},
        {"text": iter(["katan", "lover mizol"])},
        {"file": str(lines)},
    ):
        np.testing.assert_allclose(minibert.embed(**given, model=folder), expected, atol=1e-5)
    assert minibert.embed("katan", model=folder).shape == (1, 32)
    assert [path.name for path in tmp_path.iterdir()] == ["lines.txt"]
    with pytest.raises(ValueError, match="text: none given"):
        minibert.embed(model=folder)


def test_embed_writes_what_was_asked_for(folder, tmp_path, monkeypatch):
    expected = SentenceTransformer(folder, device="cpu").encode(["katan", "", "lover mizol"])
    lines = tmp_path / "lines.txt"
    lines.write_text("katan\n\nlover mizol\n", encoding="utf-8")
    table = write_rows(
        tmp_path / "rows.jsonl", [{"t": text} for text in ("katan", "", "lover mizol")]
    )
    comma = tmp_path / "rows.csv"
    comma.write_text('t,n\nkatan,1\n"",2\nlover mizol,3\n')
    monkeypatch.setattr("sys.stdin", io.StringIO(lines.read_text()))
    for number, source in enumerate(
        [[], ["--file", lines], ["--file", table, "--column", "t"], ["--file", comma, "--column", "t"],
         ["katan", "", "lover mizol"]]
    ):  # fmt: skip
        output = tmp_path / f"new/{number}.npy"
        run("embed", *source, "--model", folder, "--output", output)
        np.testing.assert_allclose(np.load(output), expected, atol=1e-5)


def test_only_line_feeds_end_a_line(folder, tmp_path, capsys):
    """So that vector i is that of line i as an editor counts; an argument is one text."""
    lines = tmp_path / "lines.txt"
    lines.write_text("katan\u2028lover\nmi\x0czol\r\nnu\x85ben\n", encoding="utf-8", newline="")
    run("embed", "--file", lines, "--model", folder, "--output", tmp_path / "lines.npy")
    text = ["embed", "katan\nlover", "--model", folder, "--output", tmp_path / "text.npy"]
    next_step = f"Next: minibert search INDEX QUERY --data FOLDER --model {folder}"
    assert run(*text, capsys=capsys).splitlines()[-1] == next_step
    assert len(np.load(tmp_path / "lines.npy")) == 3 and len(np.load(tmp_path / "text.npy")) == 1
    lines.write_text("katan\n\x0c\nlover\n")
    assert [passage.id for passage in read_passages([str(lines)])] == ["lines.txt:1", "lines.txt:3"]


def test_folder_with_missing_weights_is_refused(folder, tmp_path, capsys):
    cut = tmp_path / "cut"
    shutil.copytree(folder, cut)
    weights = load_file(cut / "model.safetensors")
    lost = next(name for name in weights if name.endswith("layers.1.mlp.Wi.weight"))
    save_file(
        {name: x for name, x in weights.items() if name != lost},
        cut / "model.safetensors",
        {"format": "pt"},
    )
    message = refusal(capsys, "embed", "katan", "--model", cut, "--output", tmp_path / "x.npy")
    assert (
        "lacks the weights layers.1.mlp.Wi.weight" in message and not (tmp_path / "x.npy").exists()
    )


def test_vectors_that_are_no_numbers_are_not_written(folder, library, tmp_path, capsys):
    """Of a model whose training diverged, or of one text alone; scores of rerankers likewise."""
    shutil.copytree(folder, tmp_path / "nan")
    weights = load_file(tmp_path / "nan/model.safetensors")
    word = AutoTokenizer.from_pretrained(folder)("lover", add_special_tokens=False).input_ids[0]
    weights["embeddings.tok_embeddings.weight"][word] = float("nan")
    save_file(weights, tmp_path / "nan/model.safetensors", {"format": "pt"})
    model = ["--model", tmp_path / "nan"]
    error = refusal(capsys, "embed", "katan", "lover", *model, "--output", tmp_path / "x.npy")
    assert "no finite numbers for 1 of 2 texts, as for text 2: 'lover'" in error
    assert "no finite numbers for" in refusal(
        capsys, "search", tmp_path / "index", "--data", library, *model
    )
    assert not (tmp_path / "x.npy").exists() and not (tmp_path / "index/index.safetensors").exists()
    run("embed", "katan", *model, "--output", tmp_path / "x.npy")


def test_embed_refuses(folder, tokenizer, tmp_path, capsys):
    (tmp_path / "blank.txt").write_text("\n \n")
    rows = write_rows(tmp_path / "rows.jsonl", [{"text": "katan"}, {"text": 3}, {"other": "x"}])
    (tmp_path / "there.npy").write_text("")
    random_bert(tokenizer).save_pretrained(tmp_path / "bert")
    random_bert(tokenizer, BertForSequenceClassification, num_labels=1).save_pretrained(
        tmp_path / "head"
    )
    convert(tmp_path / "head", tmp_path / "task")
    tokenizer.save_pretrained(tmp_path / "bert")

    output = ["--output", tmp_path / "x.npy", "--model"]
    for arguments, words in [
        (["--file", tmp_path / "blank.txt", *output, folder], ["there is no text in", "blank.txt"]),
        (["--file", rows, *output, folder], ["rows.jsonl, row 2: text=3 is not text"]),
        (["katan", "--file", rows, *output, folder], ["not both"]),
        (["katan", "--output", tmp_path / "there.npy/x.npy", "--model", folder], ["there.npy"]),
        (["katan", *output, folder, "--max_length", "65"], ["max_length: 65", "up to 64"]),
        (
            ["katan", *output, tmp_path / "bert"],
            ["is a bert, not a MiniBERT; convert it by `minibert convert"],
        ),
        (
            ["katan", *output, tmp_path / "task"],
            ["holds a MiniBertForSequenceClassification; use one of"],
        ),
        (["katan", "--output", tmp_path / "x.pt", "--model", folder], ["output:", "ends in .npy"]),
        (
            ["katan", "--output", tmp_path / "there.npy", "--model", folder],
            ["nothing is overwritten"],
        ),
    ]:
        error = refusal(capsys, "embed", *arguments)
        assert all(word in error for word in words) and "Embedding" not in error, error
    assert not (tmp_path / "x.npy").exists()
