"""Embedding models: vectors against sentence-transformers', the index against brute force, training on a toy language.

The models are random BERTs of Transformers that sentence-transformers saved with its own modules and `minibert convert`
converted; what sentence-transformers makes of the original is the reference.
"""

import csv
import io
import json
import random
import shutil

import numpy as np
import pytest
import scipy.stats
import torch
from datasets import Dataset
from helpers import WORDS, refusal, run, sentences, write_rows
from processes import Python
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder, SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification, BertForTokenClassification, BertModel

from minibert import MiniBertConfig, MiniBertForMaskedLM, MiniBertForReplacedTokenDetection
from minibert.tokenization import train_tokenizer
from minibert.training import report
from minibert.training.arguments.embeddings import (
    EmbedArguments,
    EvaluateArguments,
    PoolingArguments,
    ReferenceArguments,
    SearchArguments,
)
from minibert.training.cli import main as cli
from minibert.training.embeddings.data import Passage, hold_out, read_pairs, read_passages, read_retrieval, read_table
from minibert.training.embeddings.encoders import Embedder, embed
from minibert.training.embeddings.evaluate import RETRIEVAL, evaluate_embed
from minibert.training.embeddings.search import Index, search
from minibert.training.embeddings.train import Measure

MAX_LENGTH = 12
TEXTS = [*sentences(40), "", "Katan, LOVER! (unseen ünicode)", "katan"]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(sentences(200), vocab_size=120, model_max_length=64, show_progress=False)


def random_bert(tokenizer, model_class=BertModel, seed: int = 0, **fields):
    """Weights large enough for every detail to show in the vectors."""
    torch.manual_seed(seed)
    shape = dict(hidden_size=32, num_hidden_layers=5, num_attention_heads=4, intermediate_size=48)
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=64, initializer_range=0.3, **shape | fields)
    return model_class(config).eval()


def convert(source, target) -> str:
    assert cli.main(["convert", str(source), str(target)]) == 0
    return str(target)


@pytest.fixture(scope="module")
def folders(tokenizer, tmp_path_factory):
    """For each pooling and with or without Normalize: sentence-transformers' folder, and it converted."""
    root = tmp_path_factory.mktemp("models")
    random_bert(tokenizer).save_pretrained(root / "bert")
    tokenizer.save_pretrained(root / "bert")
    made = {}
    for pooling in ("mean", "cls"):
        for normalize in (True, False):
            native = root / f"{pooling}-{normalize}"
            modules = [
                Transformer(str(root / "bert"), processor_kwargs={"model_max_length": MAX_LENGTH}),
                Pooling(32, pooling),
                *[Normalize()] * normalize,
            ]
            SentenceTransformer(modules=modules, device="cpu").save(str(native))
            made[pooling, normalize] = str(native), convert(native, root / f"{pooling}-{normalize}-converted")
    return made


@pytest.fixture(scope="module")
def folder(folders):
    return folders["mean", True][1]


# --- vectors ---


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_the_same_vectors_as_sentence_transformers(folders, pooling, normalize):
    native, converted = folders[pooling, normalize]
    expected = SentenceTransformer(native, device="cpu").encode(TEXTS)
    embedder = Embedder.from_pretrained(converted)
    assert (embedder.pooling, embedder.normalize, embedder.model.max_seq_length) == (pooling, normalize, MAX_LENGTH)
    assert np.std(np.linalg.norm(expected, axis=1)) < 1e-6 if normalize else True
    for vectors in (
        embedder.embed(TEXTS),
        embedder.embed(TEXTS, batch_tokens=1),
        SentenceTransformer(converted, device="cpu").encode(TEXTS),
    ):
        cosines = torch.cosine_similarity(torch.tensor(vectors).double(), torch.tensor(expected).double())
        assert cosines.min() > 1 - 1e-6
        np.testing.assert_allclose(vectors, expected, atol=1e-4)


def test_in_bf16(folders, tmp_path):
    """As near as bf16 can be, and not the vectors of fp32; the file holds fp32 all the same."""
    native, converted = folders["mean", True]
    expected, vectors = SentenceTransformer(native, device="cpu").encode(TEXTS), []
    for dtype in (None, "bfloat16"):
        given = EmbedArguments(text=TEXTS, output=str(tmp_path / f"{dtype}.npy"))
        vectors.append(embed(given, PoolingArguments(model=converted, dtype=dtype)))
    np.testing.assert_allclose(vectors[0], expected, atol=1e-4)
    assert vectors[1].dtype == np.float32 and not np.allclose(vectors[1], expected, atol=1e-4)
    assert torch.cosine_similarity(torch.tensor(vectors[1]), torch.tensor(expected)).min() > 0.99


def test_the_files_of_older_versions_are_read(folders, tmp_path):
    """modules.json, 1_Pooling and sentence_bert_config.json as version 2 wrote them (all-MiniLM-L6-v2 has these)."""
    source = tmp_path / "old"
    native = SentenceTransformer(folders["cls", True][0], device="cpu")
    native.transformers_model.save_pretrained(source)
    AutoTokenizer.from_pretrained(folders["cls", True][0], model_max_length=64).save_pretrained(source)
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    modules = [
        dict(idx=i, name=str(i), path=path, type=f"sentence_transformers.models.{kind}")
        for i, (path, kind) in enumerate(kinds)
    ]
    (source / "modules.json").write_text(json.dumps(modules))
    (source / "1_Pooling").mkdir()
    pooling = dict(word_embedding_dimension=32, pooling_mode_cls_token=True, pooling_mode_mean_tokens=False,
                   pooling_mode_max_tokens=False, pooling_mode_mean_sqrt_len_tokens=False)  # fmt: skip
    (source / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (source / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 7, "do_lower_case": False}))
    expected = SentenceTransformer(str(source), device="cpu").encode(TEXTS)
    converted = convert(source, tmp_path / "converted")
    np.testing.assert_allclose(Embedder.from_pretrained(converted).embed(TEXTS), expected, atol=1e-4)
    np.testing.assert_allclose(SentenceTransformer(converted, device="cpu").encode(TEXTS), expected, atol=1e-4)
    other = Embedder.from_pretrained(converted, pooling="mean", normalize=False, max_length=MAX_LENGTH)
    expected = SentenceTransformer(folders["mean", False][0], device="cpu").encode(TEXTS)
    np.testing.assert_allclose(other.embed(TEXTS), expected, atol=1e-4)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("layers", [5, 3])
def test_mean_of_the_last_four_layers(folders, tokenizer, tmp_path, layers, normalize):
    """Of three layers, where there are no more; the embeddings are none."""
    native, converted = folders["mean", True]
    if layers == 3:
        random_bert(tokenizer, num_hidden_layers=3).save_pretrained(tmp_path / "bert")
        AutoTokenizer.from_pretrained(native).save_pretrained(tmp_path / "bert")
        native, converted = tmp_path / "bert", convert(tmp_path / "bert", tmp_path / "converted")
    vectors = Embedder.from_pretrained(converted, pooling="last_four", normalize=normalize).embed(TEXTS)
    bert, tokenizer = BertModel.from_pretrained(native).double().eval(), AutoTokenizer.from_pretrained(native)
    for text, vector in zip(TEXTS, vectors):
        inputs = tokenizer(text, truncation=True, max_length=MAX_LENGTH, return_tensors="pt")
        with torch.no_grad():
            states = bert(**inputs, output_hidden_states=True).hidden_states
        last = states[2:6] if layers == 5 else states[1:4]
        expected = sum(last)[0].mean(0) / len(last)
        expected = expected / expected.norm() if normalize else expected
        np.testing.assert_allclose(vector, expected, atol=1e-5, rtol=1e-4)


def test_further_modules_and_prompts_are_those_of_the_folder(folders, tmp_path):
    """A Dense behind the pooling, a prompt before every text: also after the conversion."""
    native = SentenceTransformer(folders["mean", False][0], device="cpu")
    torch.manual_seed(0)
    modules = [*native, Dense(32, 8)]
    prompts = dict(prompts={"query": "lover "}, default_prompt_name="query")
    SentenceTransformer(modules=modules, device="cpu", **prompts).save(str(tmp_path / "native"))
    expected = SentenceTransformer(str(tmp_path / "native"), device="cpu").encode(TEXTS)
    embedder = Embedder.from_pretrained(convert(tmp_path / "native", tmp_path / "converted"))
    assert expected.shape == (len(TEXTS), 8)
    np.testing.assert_allclose(embedder.embed(TEXTS), expected, atol=1e-4)
    plain = Embedder.from_pretrained(folders["mean", False][1])
    prompted = plain.embed([f"lover {text}" for text in TEXTS])
    np.testing.assert_allclose(embedder.model[2]({"sentence_embedding": torch.tensor(prompted)})["sentence_embedding"]
                               .detach(), expected, atol=1e-4)  # fmt: skip


def test_opens_without_the_package(folder, tokenizer, tmp_path):
    """sentence-transformers in a process that has nothing of ours but the folders."""
    random_bert(tokenizer, BertForSequenceClassification, num_labels=1).save_pretrained(tmp_path / "bert")
    tokenizer.save_pretrained(tmp_path / "bert")
    reranker, pairs = convert(tmp_path / "bert", tmp_path / "reranker"), [(text, "katan lover") for text in TEXTS]
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
    np.testing.assert_allclose(Embedder.from_pretrained(str(tmp_path / "again")).embed(TEXTS), expected, atol=1e-5)
    expected = CrossEncoder(str(tmp_path / "bert"), device="cpu").predict(pairs)
    np.testing.assert_allclose(np.load(tmp_path / "scores.npy"), expected, atol=1e-4)


def test_fingerprint(folders, folder, tmp_path):
    """It follows weights and settings, not the place or the library that saved them."""
    first = Embedder.from_pretrained(folder)
    SentenceTransformer(folder, device="cpu").save(str(tmp_path))
    assert Embedder.from_pretrained(str(tmp_path)).fingerprint() == first.fingerprint()
    changed = Embedder.from_pretrained(folder)
    changed.model.transformers_model.layers[2].mlp.Wo.bias.data[0] += 1e-3
    others = [changed, *(Embedder.from_pretrained(folder, **{name: value}) for name, value in
                         dict(pooling="cls", normalize=False, max_length=9).items())]  # fmt: skip
    assert len({embedder.fingerprint() for embedder in [first, *others]}) == 5


# --- minibert embed ---


def test_embed_writes_what_was_asked_for(folder, tmp_path, capsys, monkeypatch):
    expected = SentenceTransformer(folder, device="cpu").encode(["katan", "", "lover mizol"])
    lines = tmp_path / "lines.txt"
    lines.write_text("katan\n\nlover mizol\n", encoding="utf-8")
    table = write_rows(tmp_path / "rows.jsonl", [{"t": text} for text in ("katan", "", "lover mizol")])
    comma = tmp_path / "rows.csv"
    comma.write_text('t,n\nkatan,1\n"",2\nlover mizol,3\n')
    monkeypatch.setattr("sys.stdin", io.StringIO(lines.read_text()))
    for number, source in enumerate(
        [[], ["--file", lines], ["--file", table, "--column", "t"], ["--file", comma, "--column", "t"],
         ["katan", "", "lover mizol"]]
    ):  # fmt: skip
        for suffix in ("npy", "safetensors")[: 2 if source else 1]:
            output = tmp_path / f"new/{number}.{suffix}"
            run("embed", *source, "--model", folder, "--output", output)
            vectors = np.load(output) if suffix == "npy" else load_file(output)["embeddings"]
            np.testing.assert_allclose(vectors, expected, atol=1e-5)
    assert "3 texts × 32 (mean, normalised)" in capsys.readouterr().out


def test_only_line_feeds_end_a_line(folder, tmp_path, capsys):
    """So that vector i is that of line i as an editor counts; an argument is one text."""
    lines = tmp_path / "lines.txt"
    lines.write_text("katan\u2028lover\nmi\x0czol\r\nnu\x85ben\n", encoding="utf-8", newline="")
    run("embed", "--file", lines, "--model", folder, "--output", tmp_path / "lines.npy")
    run("embed", "katan\nlover", "--model", folder, "--output", tmp_path / "text.npy")
    assert len(np.load(tmp_path / "lines.npy")) == 3 and len(np.load(tmp_path / "text.npy")) == 1
    lines.write_text("katan\n\x0c\nlover\n")
    assert [passage.id for passage in read_passages([str(lines)])] == ["lines.txt:1", "lines.txt:3"]


def test_a_cell_may_hold_a_long_document(tmp_path):
    table = tmp_path / "x.csv"
    table.write_text(f"text,n\n{'katan ' * 40_000},1\n")
    assert [len(text) for text in read_table(str(table)).column("text")] == [240_000]


def test_a_folder_that_lacks_weights_is_refused(folder, tmp_path, capsys):
    """They would be random numbers, and so would be the vectors."""
    cut = tmp_path / "cut"
    shutil.copytree(folder, cut)
    weights = load_file(cut / "model.safetensors")
    lost = next(name for name in weights if name.endswith("layers.1.mlp.Wi.weight"))
    save_file({name: x for name, x in weights.items() if name != lost}, cut / "model.safetensors", {"format": "pt"})
    message = refusal(capsys, "embed", "katan", "--model", cut, "--output", tmp_path / "x.npy")
    assert "lacks the weights layers.1.mlp.Wi.weight" in message and not (tmp_path / "x.npy").exists()


def test_embed_refuses(folder, tokenizer, tmp_path, capsys):
    (tmp_path / "blank.txt").write_text("\n \n")
    rows = write_rows(tmp_path / "rows.jsonl", [{"text": "katan"}, {"text": 3}, {"other": "x"}])
    (tmp_path / "broken.jsonl").write_text('{"text": "katan"}\n{"text": \n')
    (tmp_path / "latin.txt").write_bytes("Stra\xdfe".encode("latin-1"))
    (tmp_path / "there.npy").write_text("")
    (tmp_path / "ragged.csv").write_text("text,n\nkatan\n")
    (tmp_path / "latin.csv").write_bytes("text\nStra\xdfe\n".encode("latin-1"))
    (tmp_path / "open.csv").write_text('n,text\n1,katan\n2,"katan\n3,lover\n')
    (tmp_path / "tab.tsv").write_text('n\ttext\n1\t"katan\n2\tlover"\n')
    (tmp_path / "half.jsonl").write_text('{"text": "\\ud83d\\ude00"}\n{"text": "\\ud83d katan"}\n')
    nothing = write_rows(tmp_path / "nothing.jsonl", [{"text": "katan"}, {"text": None}])
    random_bert(tokenizer).save_pretrained(tmp_path / "bert")
    for number, model_class in enumerate((BertForSequenceClassification, BertForTokenClassification)):
        random_bert(tokenizer, model_class, num_labels=1).save_pretrained(tmp_path / f"head{number}")
        convert(tmp_path / f"head{number}", tmp_path / f"task{number}")
    tokenizer.save_pretrained(tmp_path / "bert")

    output = ["--output", tmp_path / "x.npy", "--model"]
    for arguments, words in [
        (["--file", tmp_path / "blank.txt", *output, folder], ["text: none in", "blank.txt"]),
        (["--file", tmp_path / "no.txt", *output, folder], ["no file", "no.txt"]),
        (["--file", rows, *output, folder], ["rows.jsonl, row 2: text=3 is not text"]),
        (["--file", rows, "--column", "other", *output, folder], ["row 1: there is no column 'other'; columns: text"]),
        (["--file", tmp_path / "broken.jsonl", *output, folder], ["broken.jsonl, row 2: is not JSON"]),
        (["--file", tmp_path / "ragged.csv", *output, folder], ["ragged.csv, row 1: 1 values, but 2 columns"]),
        (["--file", tmp_path / "latin.txt", *output, folder], ["latin.txt: byte 4 is not UTF-8"]),
        (["--file", tmp_path / "latin.csv", *output, folder], ["latin.csv: byte 9 is not UTF-8"]),
        (["--file", tmp_path / "open.csv", *output, folder], ["open.csv, row 2:", "a quote that begins a cell"]),
        (["--file", tmp_path / "tab.tsv", *output, folder], ["tab.tsv, row 1: a cell of a tsv has a tab"]),
        (["--file", tmp_path / "half.jsonl", *output, folder], ["half.jsonl, row 2: has half of a character"]),
        (["--file", nothing, *output, folder], ["nothing.jsonl, row 2: text is missing"]),
        (["katan", "--file", rows, *output, folder], ["not both"]),
        ([" ", *output, folder], ["text: none in the arguments"]),
        (["katan", *output, folder, "--batch_tokens", "0"], ["batch_tokens: 0 is too few"]),
        (["katan", *output, folder, "--max_length", "0"], ["max_length: 0 is out of range"]),
        (["katan", "--output", tmp_path / "there.npy/x.npy", "--model", folder], ["there.npy"]),
        (["katan", *output, folder, "--max_length", "65"], ["max_length: 65", "up to 64"]),
        (["katan", *output, tmp_path / "bert"], ["is a bert, not a MiniBERT; `minibert convert"]),
        (["katan", *output, tmp_path / "task0"], ["MiniBertForSequenceClassification, a reranker or a classifier"]),
        (["katan", *output, tmp_path / "task1"], ["MiniBertForTokenClassification, a model of another task"]),
        (["katan", "--output", tmp_path / "x.pt", "--model", folder], ["output:", ".safetensors or .npy"]),
        (["katan", "--output", tmp_path / "there.npy", "--model", folder], ["exists already"]),
    ]:
        error = refusal(capsys, "embed", *arguments)
        assert all(word in error for word in words) and "Embedding" not in error, error
    assert not (tmp_path / "x.npy").exists()


# --- minibert search ---


@pytest.fixture
def library(tmp_path):
    folder = tmp_path / "library"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.txt").write_text("katan lover\nmizol\n\nnuben peduk\n\n\nriver\n")
    (folder / "deep" / "b.md").write_text(" ".join(WORDS[:25]))
    write_rows(folder / "c.jsonl", [{"_id": "c7", "title": "Katan", "text": "kazol kaben"}, {"text": "loduk"}])
    (folder / ".hidden.txt").write_text("hidden")
    (folder / "d.log").write_text("no text of ours")
    return folder


def test_passages(library):
    """Runs of lines between blank lines; long lines cut; rows of tables whole."""
    found = {passage.id: passage.text for passage in read_passages([str(library)], words=10)}
    assert found == {
        "a.txt:1": "katan lover mizol",
        "a.txt:4": "nuben peduk",
        "a.txt:7": "river",
        "deep/b.md:1.1": " ".join(WORDS[:10]),
        "deep/b.md:1.2": " ".join(WORDS[10:20]),
        "deep/b.md:1": " ".join(WORDS[20:25]),
        "c7": "Katan kazol kaben",
        "c.jsonl:2": "loduk",
    }
    assert [p.text for p in read_passages([str(library / "a.txt")], words=2)][:2] == ["katan lover", "mizol"]


def test_names_of_passages(tmp_path):
    """Folders may have files of one name; a row has a name where its _id is none; a name stands for one passage."""
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.txt").write_text(folder)
    sources = [str(tmp_path / "one"), str(tmp_path / "two")]
    assert [p.id for p in read_passages(sources)] == [f"{source}/a.txt:1" for source in sources]
    rows = [dict(_id="", text="katan"), dict(_id=None, text="lover"), dict(_id=7, text=" "), dict(_id=8, text="mizol")]
    table = write_rows(tmp_path / "x.jsonl", rows)
    assert [p.id for p in read_passages([table])] == ["x.jsonl:1", "x.jsonl:2", "8"]
    write_rows(tmp_path / "x.jsonl", [*rows, dict(_id="8", text="other")])
    with pytest.raises(ValueError, match="x.jsonl, row 5: a passage of .*x.jsonl, row 4 is called '8' already"):
        read_passages([table])


def test_an_index_survives_an_update_that_fails(folder, library, tmp_path, capsys, monkeypatch):
    index = tmp_path / "index"
    run("search", index, "--data", library, "--model", folder, capsys=capsys)
    before = run("search", index, "katan", capsys=capsys)
    (library / "new.txt").write_text("katan")

    def full(*arguments, **keywords):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr("minibert.training.embeddings.search.save_file", full)
        assert "no space left" in refusal(capsys, "search", index, "--data", library)
    assert run("search", index, "katan", capsys=capsys) == before
    run("search", index, "--data", library, capsys=capsys)
    assert "new.txt" in run("search", index, "katan", capsys=capsys)
    assert sorted(path.name for path in index.iterdir()) == ["index.json", "passages.jsonl", "vectors.safetensors"]


def test_an_index_of_another_version(tmp_path):
    Index([Passage("a", "katan")], np.ones((1, 1), np.float32), "model", "abc").save(tmp_path)
    (tmp_path / "index.json").write_text('{"model": "model", "fingerprint": "abc", "made": 2031}')
    assert Index.load(tmp_path).fingerprint == "abc"
    (tmp_path / "index.json").write_text('{"model": "model"}')
    with pytest.raises(ValueError, match="^index: .*index.json' lacks fingerprint; build a new index"):
        Index.load(tmp_path)


def test_search_is_brute_force_and_updates_embed_only_what_is_new(folder, library, tmp_path, capsys, monkeypatch):
    index, query = tmp_path / "index", "nuben katan"
    run("search", index, "--data", library, "--model", folder, "--passage_words", "10")
    passages = read_passages([str(library)], words=10)
    model = SentenceTransformer(folder, device="cpu")
    cosines = model.encode([query])[0] @ model.encode([passage.text for passage in passages]).T
    expected = [passages[i].id for i in np.argsort(-cosines)[:3]]
    found = Index.load(str(index)).search([query], Embedder.from_pretrained(folder), 3)[0]
    assert [passage.id for passage, _ in found] == expected
    np.testing.assert_allclose([cosine for _, cosine in found], -np.sort(-cosines)[:3], atol=1e-5)
    output = run("search", index, query, "--top_k", "3", capsys=capsys)
    assert [line.split()[1] for line in output.splitlines() if line.startswith("  ")] == expected

    (library / "e.txt").write_text("pezol pezol\n")
    (library / "a.txt").unlink()
    embedded, embed = [], Embedder.embed
    monkeypatch.setattr(Embedder, "embed", lambda self, texts, *a, **k: embedded.extend(texts) or embed(self, texts))
    output = run("search", index, "--data", library, "--passage_words", "10", capsys=capsys)
    assert embedded == ["pezol pezol"] and "6 passages, 1 of them new" in output
    updated = Index.load(str(index))
    texts = [passage.text for passage in updated.passages]
    assert "nuben peduk" not in texts
    np.testing.assert_allclose(updated.vectors, model.encode(texts), atol=1e-5)


def test_search_refuses(folders, folder, library, tmp_path, capsys):
    index, other = tmp_path / "index", folders["cls", True][1]
    run("search", index, "--data", library, "--model", folder)
    for arguments, words in [
        ([index, "katan", "--model", other], ["its vectors were made by", "build a new index for another model"]),
        ([index, "--data", library, "--model", other], ["its vectors were made by"]),
        ([tmp_path / "none", "katan"], ["lacks passages.jsonl, vectors.safetensors, index.json"]),
        ([library, "--data", library, "--model", folder], ["exists and is no index"]),
        ([index], ["no query"]),
        ([], ["none given"]),
        ([index, " "], ["a query is empty"]),
        ([index, "katan", "--top_k", "0"], ["top_k: 0 is too few"]),
        ([tmp_path / "new", "--data", tmp_path / "no", "--model", folder], ["does not exist"]),
        ([index, "katan", "--reranker", folder], ["holds a MiniBertModel; a reranker is"]),
    ]:
        error = refusal(capsys, "search", *arguments)
        assert all(word in error for word in words), error
    assert run("search", index, "katan", capsys=capsys)  # what was there still works


# --- minibert evaluate embed ---


def write_retrieval(folder, split: str = "", graded: bool = True):
    """40 passages (one empty, some with titles) and 12 queries, of which one has no relevant passage."""
    chance = random.Random(1)
    texts = sentences(40, seed=5)
    corpus = [{"_id": f"d{i}", "text": text if i else ""} | ({"title": "Lover"} if i % 3 else {"title": ""})
              for i, text in enumerate(texts)]  # fmt: skip
    queries = [{"_id": f"q{i}", "text": text} for i, text in enumerate(sentences(12, seed=6))]
    folder.mkdir()
    write_rows(folder / "corpus.jsonl", corpus)
    write_rows(folder / f"queries{split}.jsonl", queries)
    judged = [(q["_id"], d["_id"], chance.randint(1, 4) if graded else 1)
              for q in queries[:-1] for d in chance.sample(corpus, 4)]  # fmt: skip
    with open(folder / f"qrels{split}.csv", "w", newline="") as file:
        csv.writer(file).writerows([("query-id", "corpus-id", "score"), *judged])
    return corpus, queries[:-1], judged


def test_retrieval_as_sentence_transformers_evaluates_it(folder, tmp_path, capsys):
    corpus, queries, judged = write_retrieval(tmp_path / "data", "_dev", graded=False)
    run("evaluate", "embed", "--model", folder, "--data", tmp_path / "data", "--split", "dev",
        "--result", tmp_path / "r/result.json", "--reference", folder, "--reference_texts", "20")  # fmt: skip
    result = json.loads((tmp_path / "r/result.json").read_text())
    evaluator = InformationRetrievalEvaluator(
        {q["_id"]: q["text"] for q in queries},
        {d["_id"]: f"{d['title']} {d['text']}".strip() for d in corpus},
        {q["_id"]: {d for query, d, _ in judged if query == q["_id"]} for q in queries},
        accuracy_at_k=[1, 10], mrr_at_k=[10], ndcg_at_k=[10], precision_recall_at_k=[10], map_at_k=[10],
        write_csv=False,
    )  # fmt: skip
    expected = evaluator(SentenceTransformer(folder, device="cpu"))
    for ours, theirs in {"hit@1": "accuracy@1", "hit@10": "accuracy@10", "mrr@10": "mrr@10", "ndcg@10": "ndcg@10",
                         "recall@10": "recall@10"}.items():  # fmt: skip
        assert result["metrics"][ours] == pytest.approx(expected[f"cosine_{theirs}"]), ours
    assert result["queries"] == 11 and result["passages"] == 40
    assert result["reference"]["texts"] == 20 and result["reference"]["minimum"] > 1 - 1e-6


def test_graded_ndcg(folder, tmp_path):
    corpus, queries, judged = write_retrieval(tmp_path / "data")
    run("evaluate", "embed", "--model", folder, "--data", tmp_path / "data", "--result", tmp_path / "result.json")
    model = SentenceTransformer(folder, device="cpu")
    passages = model.encode([f"{d['title']} {d['text']}".strip() for d in corpus])
    expected = []
    for query in queries:
        grades = {d: grade for q, d, grade in judged if q == query["_id"]}
        order = np.argsort(-(passages @ model.encode([query["text"]])[0]))[:10]
        gains = [grades.get(corpus[i]["_id"], 0) for i in order]
        discount = np.log2(np.arange(2, 12))
        ideal = sorted(grades.values(), reverse=True)
        expected.append(np.sum(gains / discount) / np.sum(ideal / discount[: len(ideal)]))
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["metrics"]["ndcg@10"] == pytest.approx(np.mean(expected), abs=1e-6)


def test_a_folder_as_beir_publishes_them(tmp_path):
    _, _, judged = write_retrieval(tmp_path / "data", graded=False)
    beir = read_retrieval(str(tmp_path / "data")).relevant
    (tmp_path / "data/qrels.csv").unlink()
    (tmp_path / "data/qrels").mkdir()
    for split, rows in (("test", judged), ("dev", judged[:4])):
        lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in rows)]
        (tmp_path / f"data/qrels/{split}.tsv").write_text("\n".join(lines) + "\n")
    assert read_retrieval(str(tmp_path / "data")).relevant == beir
    assert len(read_retrieval(str(tmp_path / "data"), "dev").queries) == 1


def test_similarity(folder, tmp_path):
    chance = random.Random(0)
    first, second = sentences(50, seed=1), sentences(50, seed=2)
    scores = [chance.uniform(0, 5) for _ in first]
    rows = [dict(sentence1=a, sentence2=b, score=c) for a, b, c in zip(first, second, scores)]
    data = write_rows(tmp_path / "sts.jsonl", rows)
    run("evaluate", "embed", "--model", folder, "--data", data, "--result", tmp_path / "result.json")
    model = SentenceTransformer(folder, device="cpu")
    cosines = (model.encode(first) * model.encode(second)).sum(1)
    measured = json.loads((tmp_path / "result.json").read_text())["metrics"]
    assert measured["spearman"] == pytest.approx(scipy.stats.spearmanr(cosines, scores).statistic, abs=1e-3)
    assert measured["pearson"] == pytest.approx(scipy.stats.pearsonr(cosines, scores).statistic, abs=1e-4)


def test_evaluation_refuses_before_it_embeds(folder, tmp_path, capsys):
    write_retrieval(tmp_path / "data")
    for arguments, words in [
        (["--result", tmp_path / "data"], ["result:", "is a folder"]),
        (["--result", tmp_path / "data/qrels.csv/x.json"], ["qrels.csv"]),
        (["--reference", folder, "--reference_texts", "0"], ["reference_texts: 0 is too few"]),
        (["--reference", tmp_path / "no"], [str(tmp_path / "no")]),
    ]:
        error = refusal(capsys, "evaluate", "embed", "--model", folder, "--data", tmp_path / "data", *arguments)
        assert all(word in error for word in words) and "Embedding" not in error, error


def test_bad_retrieval_folders(tmp_path):
    write_retrieval(tmp_path / "data")
    qrels, corpus = tmp_path / "data/qrels.csv", tmp_path / "data/corpus.jsonl"
    good = qrels.read_text()
    rows = good.count("\n")
    for line, message in [
        ("q0,d99,1", f"qrels.csv, row {rows}: corpus-id='d99' is not in .*corpus.jsonl"),
        ("q99,d1,1", f"qrels.csv, row {rows}: query-id='q99' is not in .*queries.jsonl"),
        ("q0,d1,high", f"qrels.csv, row {rows}: score='high' is not a number"),
        ("q0,d1,nan", f"qrels.csv, row {rows}: score='nan' is not a number"),
        (good.splitlines()[1][:-1] + "9", f"qrels.csv, row {rows}: score=9, but . in a row before"),
    ]:
        qrels.write_text(good + line + "\n")
        with pytest.raises(ValueError, match=message):
            read_retrieval(str(tmp_path / "data"))
    qrels.write_text("query-id,corpus-id,score\nq0,d1,0\n")
    with pytest.raises(ValueError, match="qrels.csv: no query has a relevant passage"):
        read_retrieval(str(tmp_path / "data"))
    qrels.write_text(good)
    assert len(read_retrieval(str(tmp_path / "data")).queries) == 11
    corpus.write_text(corpus.read_text() + '{"_id": "d3", "text": "x"}\n')
    with pytest.raises(ValueError, match="corpus.jsonl, row 41: _id='d3' is that of row 4 already"):
        read_retrieval(str(tmp_path / "data"))
    qrels.unlink()
    with pytest.raises(ValueError, match="has none of qrels_test.csv, qrels_test.tsv, qrels/test.csv"):
        read_retrieval(str(tmp_path / "data"))
    corpus.unlink()
    with pytest.raises(ValueError, match=r"no retrieval folder: it has no corpus.jsonl"):
        read_retrieval(str(tmp_path / "data"))


# --- pairs ---


def columns(first, second, third=None, label=None) -> dict[str, list]:
    """Columns of pairs, those that are given."""
    given = dict(first=first, second=second, third=third, label=label)
    return {name: column for name, column in given.items() if column is not None}


def test_pairs_are_guessed_by_their_columns(tmp_path):
    pairs = write_rows(tmp_path / "pairs.jsonl", [dict(id=1, query="a", positive="b"), dict(query="c", positive="d")])
    assert read_pairs([pairs, pairs]).to_dict() == columns(["a", "c"] * 2, ["b", "d"] * 2)
    triples = write_rows(tmp_path / "triples.jsonl", [dict(anchor="a", positive="b", negative="n", score=1)])
    assert read_pairs([triples]).to_dict() == columns(["a"], ["b"], ["n"])
    scored = tmp_path / "scored.tsv"
    scored.write_text("score\tsentence1\tsentence2\n5\ta\tb\n2.5\tc\td\n")
    assert read_pairs([str(scored)]).to_dict() == columns(["a", "c"], ["b", "d"], None, [1.0, 0.5])
    assert read_pairs([str(scored)], ["sentence2", "sentence1"]).to_dict() == columns(["b", "d"], ["a", "c"])
    scored.write_text("a\tb\tgold\nx\ty\t5\nz\tw\t2.5\n")  # a column of any name, its numbers text
    assert read_pairs([str(scored)], ["a", "b", "gold"]).to_dict() == columns(["x", "z"], ["y", "w"], None, [1.0, 0.5])
    triples = write_rows(tmp_path / "triples.jsonl", [dict(query="when", positive="1984", negative="1985")])
    assert read_pairs([triples]).to_dict() == columns(["when"], ["1984"], ["1985"])


def test_bad_pairs(tmp_path):
    path = write_rows(tmp_path / "x.jsonl", [dict(query="a", positive="b"), dict(query="a", positive=" ")])
    for columns, message in [
        (None, "x.jsonl, row 2: positive is empty"),
        (["query", "answer"], "'answer' is none of .*x.jsonl', which has query, positive"),
        (["query"], "columns: query: name two texts"),
    ]:
        with pytest.raises(ValueError, match=message):
            read_pairs([path], columns)
    with pytest.raises(ValueError, match="cannot be guessed from a, b of"):
        read_pairs([write_rows(tmp_path / "y.jsonl", [dict(a="1", b="2")])])
    with pytest.raises(ValueError, match="row 1: score=-1 is below 0"):
        read_pairs([write_rows(tmp_path / "z.jsonl", [dict(query="a", positive="b", score=-1)])])
    with pytest.raises(ValueError, match="row 1: score='inf' is not a number"):
        read_pairs([write_rows(tmp_path / "z.jsonl", [dict(query="a", positive="b", score="inf")])])
    with pytest.raises(ValueError, match="none given"):
        read_pairs([])
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(ValueError, match="empty.jsonl' has no rows"):
        read_table(str(tmp_path / "empty.jsonl"))


def test_rows_of_one_query_are_held_out_together():
    pairs = Dataset.from_dict(columns([f"q{i // 3}" for i in range(60)], [f"p{i}" for i in range(60)]))
    train, held_out = hold_out(pairs, 0.25, seed=0)
    assert len(train) == 45 and len(held_out) == 15 and not set(train["first"]) & set(held_out["first"])
    assert sorted([*train["second"], *held_out["second"]]) == sorted(pairs["second"])
    assert list(hold_out(pairs, 0.25, seed=1)[1]["first"]) != list(held_out["first"])
    with pytest.raises(ValueError, match="holds out 20 of 20"):
        hold_out(pairs, 20, seed=0)


# --- minibert finetune embed ---

TOPICS = 24


def topic_pair(chance: random.Random, topic: int) -> tuple[str, str]:
    """A query and a passage about a topic, in words that they do not share; the rest is noise of both."""
    noise = [f"w{chance.randrange(30)}" for _ in range(6)]
    query = [f"ask{topic}", *noise[:3]]
    passage = [f"tell{topic}", *noise[3:]]
    chance.shuffle(query)
    chance.shuffle(passage)
    return " ".join(query), " ".join(passage)


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """An untrained model, and pairs of a language in which the passage's topic follows from the query's."""
    root = tmp_path_factory.mktemp("toy")
    chance = random.Random(0)
    pairs = [topic_pair(chance, i % TOPICS) for i in range(600)]
    write_rows(root / "train.jsonl", [dict(query=q, positive=p) for q, p in pairs])
    (root / "test").mkdir()
    held_out = [topic_pair(chance, topic) for topic in range(TOPICS)]
    write_rows(root / "test/corpus.jsonl", [dict(_id=f"d{i}", text=p) for i, (_, p) in enumerate(held_out)])
    write_rows(root / "test/queries.jsonl", [dict(_id=f"q{i}", text=q) for i, (q, _) in enumerate(held_out)])
    rows = [f"q{i},d{i},1" for i in range(TOPICS)]
    (root / "test/qrels.csv").write_text("\n".join(["query-id,corpus-id,score", *rows]) + "\n")
    tokenizer = train_tokenizer(
        [text for pair in pairs for text in pair], vocab_size=400, model_max_length=16, show_progress=False
    )
    config = MiniBertConfig.from_tokenizer(
        tokenizer, "modernbert", "tiny", hidden_size=64, num_hidden_layers=2, intermediate_size=64,
        max_position_embeddings=16,
    )  # fmt: skip
    torch.manual_seed(0)
    MiniBertForMaskedLM(config).save_pretrained(root / "model")
    tokenizer.save_pretrained(root / "model")
    return root


TRAINING = ["--learning_rate", "3e-3", "--per_device_train_batch_size", "24", "--disable_tqdm", "true",
            "--bf16", "false", "--logging_steps", "5", "--use_cpu", "true"]  # fmt: skip


@pytest.mark.parametrize("chunk", [[], pytest.param(["--chunk_size", "8"], marks=pytest.mark.slow)])
def test_training_finds_more_and_the_best_model_is_saved(toy, tmp_path, chunk, capsys):
    output = tmp_path / "out"
    run("evaluate", "embed", "--model", toy / "model", "--data", toy / "test", "--result", tmp_path / "before.json")
    run("finetune", "embed", toy / "train.jsonl", "--model", toy / "model", "--output_dir", output,
        "--num_train_epochs", "3", "--validation", toy / "test", *chunk, *TRAINING)  # fmt: skip
    run("evaluate", "embed", "--model", output, "--data", toy / "test", "--result", tmp_path / "after.json")
    before, after = (json.loads((tmp_path / f"{name}.json").read_text())["metrics"] for name in ("before", "after"))
    assert before["hit@1"] < 0.3 and after["hit@1"] > 0.8
    report = json.loads((output / "report.json").read_text())
    assert report["after"] == pytest.approx(after) and report["before"] == pytest.approx(before, abs=0.05)
    assert (output / "training.png").exists() and not [*output.rglob("*.bin"), *output.rglob("*.pt")]
    assert f"SentenceTransformer({str(output)!r})" in capsys.readouterr().out
    texts = [f"ask{i} w1" for i in range(9)]
    ours, theirs = Embedder.from_pretrained(str(output)), SentenceTransformer(str(output), device="cpu")
    np.testing.assert_allclose(ours.embed(texts), theirs.encode(texts), atol=1e-5)
    assert ours.normalize and ours.model.max_seq_length == 16


@pytest.mark.parametrize("loss", [pytest.param("cosine", marks=pytest.mark.slow), "cosent"])
def test_training_on_scores(toy, tmp_path, loss):
    chance = random.Random(3)
    rows = []
    for _ in range(400):
        (query, right), (_, wrong) = (topic_pair(chance, topic) for topic in chance.sample(range(6), 2))
        rows.append(
            dict(sentence1=query, **chance.choice([dict(sentence2=right, score=5), dict(sentence2=wrong, score=0)]))
        )
    write_rows(tmp_path / "scored.jsonl", rows)
    run("finetune", "embed", tmp_path / "scored.jsonl", "--model", toy / "model", "--output_dir", tmp_path / "out",
        "--num_train_epochs", "4", "--loss", loss, "--validation_size", "60", *TRAINING)  # fmt: skip
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert report["after"]["spearman"] > max(0.6, report["before"]["spearman"] + 0.3)


def test_the_model_is_measured_on_the_device_of_the_trainer(toy, tmp_path, monkeypatch):
    order, make = [], SentenceTransformerTrainer.__init__
    monkeypatch.setattr(SentenceTransformerTrainer, "__init__", lambda *a, **k: order.append("placed") or make(*a, **k))
    monkeypatch.setattr(
        Measure, "__call__", lambda self, *_, **__: order.append("measured") or dict.fromkeys(RETRIEVAL, 0.0)
    )
    run("finetune", "embed", toy / "train.jsonl", "--model", toy / "model", "--output_dir", tmp_path / "out",
        "--max_steps", "1", *TRAINING)  # fmt: skip
    assert order[:2] == ["placed", "measured"]


def test_finetune_embed_refuses_before_it_trains(toy, folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Measure, "__call__", lambda *_, **__: pytest.fail("it measures"))
    scored = write_rows(tmp_path / "scored.jsonl", [dict(sentence1=text, sentence2="b", score=1) for text in WORDS])
    (tmp_path / "done").mkdir()
    (tmp_path / "done/config.json").write_text("{}")
    for arguments, words in [
        ([scored, "--loss", "ranking"], ["loss: ranking does not fit the data; use cosine or cosent"]),
        ([toy / "train.jsonl", "--loss", "cosine"], ["loss: cosine does not fit the data; use ranking"]),
        ([scored, "--chunk_size", "4", "--validation", scored], ["chunk_size: 4 is of no use"]),
        ([toy / "train.jsonl", "--validation", scored], ["must both have scores, or neither"]),
        ([toy / "train.jsonl", "--max_length", "17"], ["max_length: 17 is out of range", "up to 16"]),
        ([toy / "train.jsonl", "--max_length", "0"], ["max_length: 0 is out of range"]),
        ([toy / "train.jsonl", "--patience", "-1"], ["patience: -1 is below 0"]),
        ([toy / "train.jsonl", "--metric_for_best_model", "f1"], ["metric_for_best_model: 'f1' is not measured"]),
        ([toy / "train.jsonl", "--output_dir", tmp_path / "done"], ["holds a finished model"]),
        ([], ["data: none given"]),
    ]:
        error = refusal(
            capsys,
            "finetune",
            "embed",
            "--model",
            toy / "model",
            "--output_dir",
            tmp_path / "out",
            *TRAINING,
            *arguments,
        )
        assert all(word in error for word in words), error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "arguments, epochs", [(["--patience", "0"], 3), (["--patience", "1"], 2), (["--eval_strategy", "no"], 3)]
)
def test_when_training_stops(toy, tmp_path, arguments, epochs):
    """At a rate of 0 nothing gets better after the first evaluation: 2 steps an epoch."""
    rows = [dict(query=f"ask{i} w1", positive=f"tell{i} w2") for i in range(TOPICS)]
    if "no" in arguments:
        arguments = [*arguments, "--load_best_model_at_end", "false"]
    run("finetune", "embed", write_rows(tmp_path / "few.jsonl", rows), "--model", toy / "model", *TRAINING,
        "--output_dir", tmp_path / "out", "--learning_rate", "0", "--num_train_epochs", "3", "--validation_size", "4",
        "--per_device_train_batch_size", "10", *arguments)  # fmt: skip
    assert json.loads((tmp_path / "out/report.json").read_text())["steps"] == 2 * epochs


@pytest.mark.parametrize("command", ["embed", "rerank"])
def test_models_of_half_precision_train_in_full(toy, tmp_path, command):
    model = MiniBertForMaskedLM.from_pretrained(toy / "model", dtype=torch.bfloat16)
    model.save_pretrained(tmp_path / "half")
    AutoTokenizer.from_pretrained(toy / "model").save_pretrained(tmp_path / "half")
    run("finetune", command, toy / "train.jsonl", "--model", tmp_path / "half", "--output_dir", tmp_path / "out",
        "--max_steps", "1", "--validation_size", "4", *TRAINING)  # fmt: skip
    weights = load_file(tmp_path / "out/model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}
    assert json.loads((tmp_path / "out/report.json").read_text())["precision"] == "fp32"


def test_the_picture_has_a_title_and_no_curve_of_one_point(tmp_path, monkeypatch):
    figures, close = [], report.plt.close
    monkeypatch.setattr(report.plt, "close", lambda figure: figures.append(figure) or close(figure))
    losses = [{"step": step, "loss": 1 / step} for step in (10, 20)]
    for log, labels in [
        ([*losses, {"step": 20, "eval_mrr@10": 0.5}], ["training loss", "mrr@10, held out"]),
        (losses, ["training loss"]),
        ([losses[0], {"step": 20, "eval_mrr@10": 0.5}], ["mrr@10, held out"]),
    ]:
        report.plot_embedding_training(log, tmp_path / "training.png", "mrr@10", before=0.2)
        figure = figures.pop()
        assert figure.get_suptitle() and [axes.get_ylabel() for axes in figure.axes] == labels
        assert all(len(axes.lines[0].get_xdata()) > 1 for axes in figure.axes)
    report.plot_embedding_training(losses[:1], tmp_path / "none.png", "mrr@10", before=0.2)
    assert not (tmp_path / "none.png").exists()


def test_commands_return_their_results(folder, library, tmp_path):
    """What is printed and written comes back to Python as well."""
    pooling = PoolingArguments(model=folder)
    vectors = embed(EmbedArguments(text=["katan", "lover"], output=str(tmp_path / "v.npy")), pooling)
    np.testing.assert_array_equal(vectors, np.load(tmp_path / "v.npy"))
    words = [str(tmp_path / "index"), "katan", "lover"]
    hits = search(SearchArguments(words=words, data=[str(library)], model=folder, top_k=2))
    assert [len(found) for found in hits] == [2, 2] and all(isinstance(p, Passage) for p, _ in hits[0])
    assert hits[0][0][1] >= hits[0][1][1]
    write_retrieval(tmp_path / "data")
    result = tmp_path / "r.json"
    scores = evaluate_embed(
        EvaluateArguments(str(tmp_path / "data"), result=str(result)), pooling, ReferenceArguments()
    )
    assert scores == json.loads(result.read_text()) and 0 <= scores["metrics"]["ndcg@10"] <= 1


def test_index_keeps_equal_texts_apart(folder):
    """Two passages of one text are both found; the text is embedded once."""
    passages = [Passage("a", "katan"), Passage("b", "katan"), Passage("c", "lover")]
    index = Index.build(passages, Embedder.from_pretrained(folder), folder)
    found = index.search(["katan"], Embedder.from_pretrained(folder), 2)[0]
    assert {passage.id for passage, _ in found} == {"a", "b"} and found[0][1] == pytest.approx(1, abs=1e-5)


def test_a_discriminator_is_an_encoder_too(tokenizer, tmp_path):
    config = MiniBertConfig.from_tokenizer(tokenizer, "bert", "tiny", num_hidden_layers=1)
    model = MiniBertForReplacedTokenDetection(config).eval()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    vector = Embedder.from_pretrained(str(tmp_path), pooling="cls", normalize=False).embed(["katan lover"])
    with torch.no_grad():
        states = model.model(**tokenizer("katan lover", return_tensors="pt")).last_hidden_state
    np.testing.assert_allclose(vector, states[:, 0], rtol=1e-5, atol=1e-6)
