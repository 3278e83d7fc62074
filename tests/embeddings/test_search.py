"""`minibert search`: the index against brute force."""

import re

import datasets
import numpy as np
import pandas
import pytest
import torch
from helpers import WORDS, refusal, run, write_rows
from safetensors.numpy import save_file
from sentence_transformers import SentenceTransformer

import minibert
from minibert.training.embeddings import search as search_module
from minibert.training.embeddings.encoders import open_encoder
from minibert.training.embeddings.index import Index, cosine_of_random_pairs
from minibert.training.embeddings.reading.passages import Passage, read_passages
from minibert.training.embeddings.reading.validation_pairs import split_pairs


def test_passages(library):
    """Sentences between blank lines together; long ones cut; rows of tables whole."""
    found = {
        passage.id: passage.text for passage in read_passages([str(library)], passage_words=10)
    }
    assert found == {
        "a.txt:1": "katan lover mizol", "a.txt:4": "nuben peduk", "a.txt:7": "river",
        "deep/b.md:1": " ".join(WORDS[:10]), "deep/b.md:1.2": " ".join(WORDS[10:20]),
        "deep/b.md:1.3": " ".join(WORDS[20:25]), "c7": "Katan kazol kaben", "c.jsonl:2": "loduk",
    }  # fmt: skip
    assert [p.text for p in read_passages([str(library / "a.txt")], passage_words=2)][:2] == [
        "katan lover",
        "mizol",
    ]


@pytest.mark.parametrize(
    "line", ["我们在上海学习语言。", "น้ำใจที่ดีกับผู้คนทั้งหลาย", "ことばを学ぶのは楽しい。"]
)
def test_passages_of_scripts_without_spaces(tmp_path, line):
    """Two Chinese letters count as a word: nothing is lost, and no passage is too long."""
    for name, text in (("lines", f"{line}\n" * 40), ("one", line * 40)):
        (tmp_path / f"{name}.txt").write_text(text, encoding="utf-8")
        passages = [
            passage.text
            for passage in read_passages([str(tmp_path / f"{name}.txt")], passage_words=30)
        ]
        assert re.sub(r"\s", "", "".join(passages)) == line * 40
        assert min(map(len, passages[:-1])) > 20 and max(map(len, passages)) < 90


def test_a_heading_belongs_to_the_passage_after_it(tmp_path):
    text = (
        "# Poe\n\n## The Skull ##\n\nThe skull was found.\nIt lay there.\n\nNo heading here.\n\n"
        "Flour\n=====\n\nBread needs flour.\n\n# Salt\n## Sea salt\nSalt keeps bread.\n\n"
        "Water\n---\nWater rises.\n\n#hash is no heading\n\n### The end\n"
    )
    (tmp_path / "b.md").write_text("# Only\n\n## Headings\n")
    (tmp_path / "a.md").write_text(text)
    assert [(p.id, p.text) for p in read_passages([str(tmp_path / "a.md")])] == [
        ("a.md:1", "Poe / The Skull The skull was found. It lay there."),
        ("a.md:8", "No heading here."),
        ("a.md:10", "Flour Bread needs flour."),
        ("a.md:15", "Salt / Sea salt Salt keeps bread."),
        ("a.md:19", "Water Water rises."),
        ("a.md:23", "#hash is no heading"),
    ]
    assert [p.text for p in read_passages([str(tmp_path / "b.md")])] == ["Only / Headings"]


def test_a_heading_is_no_passage_of_its_own(tmp_path):
    """Where the sentence after it fills a passage, and where that is longer than one."""
    for sentence in ("word " * 9 + "word.", "word " * 40 + "word."):
        (tmp_path / "a.md").write_text(f"# The Skull\n\n{sentence}\n")
        passages = read_passages([str(tmp_path / "a.md")], passage_words=9)
        assert passages[0].text.startswith("The Skull word word word word")
        assert not any(passage.text.startswith("The") for passage in passages[1:])
        assert max(len(passage.text) for passage in passages) <= 9 * 6
        assert " ".join(p.text for p in passages) == f"The Skull {sentence}"


def test_names_of_passages(tmp_path):
    """Folders may have files of one name; a row has a name where its _id is none."""
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.txt").write_text(folder)
    sources = [str(tmp_path / "one"), str(tmp_path / "two")]
    assert [p.id for p in read_passages(sources)] == ["one/a.txt:1", "two/a.txt:1"]
    rows = [
        dict(_id="", text="katan"),
        dict(_id=None, text="lover"),
        dict(_id=7, text=" "),
        dict(_id=8, text="mizol"),
    ]
    table = write_rows(tmp_path / "x.jsonl", rows)
    assert [p.id for p in read_passages([table])] == ["x.jsonl:1", "x.jsonl:2", "8"]


def test_an_index_is_read_as_it_was_saved_or_refused(tmp_path):
    passages = [Passage("a", "kätan\n我们"), Passage("b", "\U0001f600")]
    index = Index(passages, np.eye(2, dtype=np.float32), "model", 12)
    index.save(tmp_path)
    found = Index.load(tmp_path)
    assert (found.passages, found.model, found.max_length) == (passages, "model", 12)
    assert found.random_cosine is None  # as in the indexes of version 0.1
    assert np.array_equal(found.vectors, index.vectors)
    file = tmp_path / "index.safetensors"
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(ValueError, match="index.safetensors' has files that cannot be read"):
        Index.load(tmp_path)
    save_file({"vectors": index.vectors}, file, metadata={"model": "model"})
    with pytest.raises(ValueError, match="index.safetensors' has files that cannot be read"):
        Index.load(tmp_path)


@pytest.mark.parametrize("name", ["attacker/model", "../model/x", "runs/none"])
@pytest.mark.parametrize("options", [{}, {"data": "text.txt"}], ids=["search", "build again"])
def test_a_model_that_only_the_index_names_is_not_fetched(name, options, tmp_path, monkeypatch):
    """Whoever made the index may have named any repository."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(search_module, "open_encoder", lambda *_, **__: pytest.fail("was opened"))
    (tmp_path / "text.txt").write_text("katan")
    (tmp_path / "index").mkdir()
    Index([Passage("a", "b")], np.eye(1, dtype=np.float32), name, 12).save(tmp_path / "index")
    with pytest.raises(ValueError, match=f"made by '{name}', which is not on this machine"):
        minibert.search("index", "katan", **options)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda index: index.vectors.__setitem__(13, np.nan), "vector 14 has the length nan"),
        (lambda index: index.vectors.__setitem__(13, np.inf), "vector 14 has the length inf"),
        (lambda index: index.vectors.__setitem__(13, 0), "vector 14 has the length 0 instead of 1"),
        (lambda index: setattr(index, "vectors", index.vectors * 2), "vector 1 has the length 2"),
        (lambda index: setattr(index, "vectors", index.vectors[:8]), "8 vectors for 16 passages"),
        (lambda index: setattr(index, "passages", index.passages[:8]), "16 vectors for 8 passages"),
        (lambda index: setattr(index, "vectors", index.vectors[0]), "float32 of the shape (16,)"),
        (lambda index: setattr(index, "vectors", index.vectors.astype("i8")), "are int64"),
        (lambda index: index.passages.__setitem__(13, Passage(7, "")), "passage 14 is not text"),
    ],
)
def test_a_damaged_index_is_refused(tmp_path, damage, message):
    passages = [Passage(str(number), "katan") for number in range(16)]
    index = Index(passages, np.eye(16, dtype=np.float32), "model", 12)
    damage(index)
    index.save(tmp_path)
    with pytest.raises(ValueError, match="^index: .*index.safetensors' is damaged: ") as error:
        Index.load(tmp_path)
    assert message in str(error.value)
    assert "build it again by --data" in str(error.value)


def test_search_matches_brute_force(folder, library, tmp_path, capsys):
    index, query = tmp_path / "index", "nuben katan"
    run("search", index, "--data", library, "--model", folder)
    passages = read_passages(
        [str(library)], passage_words=6
    )  # half of the tokens that the model reads
    model = SentenceTransformer(folder, device="cpu")
    cosines = model.encode([query])[0] @ model.encode([passage.text for passage in passages]).T
    expected = [passages[i].id for i in np.argsort(-cosines)[:3]]
    found = Index.load(str(index)).search([query], open_encoder(folder), 3)[0]
    assert [passage.id for passage, _ in found] == expected
    np.testing.assert_allclose([cosine for _, cosine in found], -np.sort(-cosines)[:3], atol=1e-5)
    output = run("search", index, query, "--top_k", "3", capsys=capsys)
    assert [line.split()[1] for line in output.splitlines() if line.startswith("  ")] == expected

    (library / "e.txt").write_text("pezol pezol\n")
    (library / "a.txt").unlink()
    run("search", index, "--data", library)  # by the model of before
    rebuilt = Index.load(str(index))
    texts = [passage.text for passage in rebuilt.passages]
    assert "nuben peduk" not in texts and "pezol pezol" in texts
    np.testing.assert_allclose(rebuilt.vectors, model.encode(texts), atol=1e-5)


def test_an_index_keeps_the_length_that_it_was_built_with(folder, library, tmp_path, capsys):
    run("search", tmp_path / "index", "--data", library, "--model", folder, "--max_length", "5")
    index = Index.load(tmp_path / "index")
    model = SentenceTransformer(folder, device="cpu")
    model.max_seq_length = 5
    np.testing.assert_allclose(
        index.vectors, model.encode([p.text for p in index.passages]), atol=1e-5
    )
    query = "katan lover mizol nuben peduk"
    found = minibert.search(tmp_path / "index", query)[0]
    assert found[0][1] == pytest.approx(
        float((index.vectors @ model.encode([query])[0]).max()), abs=1e-5
    )
    error = refusal(capsys, "search", tmp_path / "index", "katan", "--max_length", "3")
    assert "its vectors were made by" in error and "with max_length=5" in error


def test_the_cosine_of_random_pairs_is_that_of_all_pairs():
    vectors = np.random.default_rng(1).normal(size=(60, 8))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    others = ~np.eye(60, dtype=bool)
    expected = np.quantile((vectors @ vectors.T)[others], 0.95)
    assert cosine_of_random_pairs(vectors) == pytest.approx(expected, abs=0.03)
    assert cosine_of_random_pairs(vectors[:10]) is None


def test_nothing_fits_where_random_passages_are_as_near(folder, tmp_path, capsys):
    lines = [f"{first} {second}" for first in WORDS[:6] for second in WORDS[6:12]]
    (tmp_path / "lines.txt").write_text("\n\n".join(lines))
    index = tmp_path / "index"
    run("search", index, "--data", tmp_path / "lines.txt", "--model", folder)
    loaded = Index.load(index)
    assert loaded.random_cosine == pytest.approx(cosine_of_random_pairs(loaded.vectors))
    cosine = loaded.search(["nuben"], open_encoder(folder), 1)[0][0][1]
    for random_cosine, says_so in ((cosine + 0.01, True), (cosine - 0.01, False)):
        loaded.random_cosine = random_cosine
        loaded.save(index)
        output = run("search", index, "nuben", capsys=capsys)
        assert ("Nothing fits: 1 of 20 random pairs" in output) is says_so


def test_an_index_is_searched_in_another_dtype(folder, library, tmp_path):
    """The model is the same; vectors in 16 bits are near those in 32."""
    found = [
        minibert.search(
            tmp_path / dtype, "katan lover", data=[str(library)], model=folder, dtype=dtype
        )[0]
        for dtype in ("float32", "bfloat16")
    ]
    again = minibert.search(tmp_path / "float32", "katan lover", dtype="bfloat16")[0]
    assert found[0][0][1] != found[1][0][1] == pytest.approx(found[0][0][1], abs=0.02)
    assert again[0][1] == pytest.approx(found[1][0][1], abs=0.02)


def test_queries_and_passages_have_the_prompts_of_the_model(prompted, folder, library, tmp_path):
    """As sentence-transformers puts them before queries and documents; an index of other prompts is another model's."""
    native, embedder = SentenceTransformer(prompted[0], device="cpu"), open_encoder(prompted[1])
    passages, queries = read_passages([str(library)], passage_words=10), ["nuben katan", "loduk"]
    index = Index.build(passages, embedder, prompted[1])
    cosines = (
        native.encode_query(queries)
        @ native.encode_document([passage.text for passage in passages]).T
    )
    for found, expected in zip(index.search(queries, embedder, 3), cosines):
        assert [passage.id for passage, _ in found] == [
            passages[i].id for i in np.argsort(-expected)[:3]
        ]
        np.testing.assert_allclose(
            [cosine for _, cosine in found], -np.sort(-expected)[:3], atol=1e-5
        )
    with pytest.raises(ValueError, match="its vectors were made by"):
        index.check_model(open_encoder(folder))


def test_search_refuses(folder, library, tmp_path, capsys):
    index, other = tmp_path / "index", tmp_path / "other"
    retrained = SentenceTransformer(folder, device="cpu")
    torch.nn.init.normal_(retrained.transformers_model.layers[2].mlp.Wo.weight)
    retrained.save(str(other))
    run("search", index, "--data", library, "--model", folder)
    for arguments, words in [
        (
            [index, "katan", "--model", other],
            ["its vectors were made by", "build it again for another model"],
        ),
        (
            [tmp_path / "none", "katan"],
            ["has no index.safetensors", "build one in a new folder by --data"],
        ),
        ([index], ["queries: none given"]),
        ([index, "katan", "--reranker", folder], ["holds a MiniBertModel; a reranker is"]),
    ]:
        error = refusal(capsys, "search", *arguments)
        assert all(word in error for word in words), error
    assert run("search", index, "katan", capsys=capsys)  # what was there still works


@pytest.mark.parametrize("make", [list, pandas.DataFrame, datasets.Dataset.from_list])
def test_rows_in_memory_are_data(folder, tmp_path, make):
    """As those of a file: to index, to embed, to measure and to train on."""
    rows = [{"_id": str(n), "text": text, "score": n / 4} for n, text in enumerate(WORDS[:5])]
    file = write_rows(tmp_path / "rows.jsonl", rows)
    data = make(rows)
    found = minibert.search(tmp_path / "index", "katan", data=data, model=folder)
    assert found == minibert.search(tmp_path / "of-file", "katan", data=file, model=folder)
    vectors = minibert.embed(data, model=folder)
    np.testing.assert_array_equal(vectors, minibert.embed(file=file, model=folder))
    np.testing.assert_array_equal(vectors, minibert.embed(data, column="text", model=folder))
    pairs = [
        {"sentence1": row["text"], "sentence2": "katan", "score": row["score"]} for row in rows
    ]
    measured = minibert.evaluate("embed", folder, make(pairs))
    assert measured["data"] == "the data set"
    assert (
        measured["metrics"]
        == minibert.evaluate("embed", folder, write_rows(tmp_path / "p.jsonl", pairs))["metrics"]
    )
    pairs, held_out = split_pairs(make(pairs), (), make(pairs), 0.1, 0)
    assert pairs[:] == held_out[:] and len(pairs) == 5
    with pytest.raises(ValueError, match="has no column 'body'"):
        minibert.embed(data, column="body", model=folder)
