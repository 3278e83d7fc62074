"""`minibert search`: the index against brute force."""

import re
from pathlib import Path

import numpy as np
import pytest
from helpers import WORDS, refusal, run, write_rows
from safetensors.numpy import save_file
from sentence_transformers import SentenceTransformer

import minibert
from minibert.training.embeddings.data import Passage, read_passages
from minibert.training.embeddings.encoders import Embedder
from minibert.training.embeddings.search import Index


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


@pytest.mark.parametrize("line", ["我们在上海学习语言。", "น้ำใจที่ดีกับผู้คนทั้งหลาย", "ことばを学ぶのは楽しい。"])
def test_passages_of_scripts_without_spaces(tmp_path, line):
    """Two letters count as a word: nothing is lost, no passage is too long, and none begins with a sign or a mark."""
    for name, text in (("lines", f"{line}\n" * 40), ("one", line * 40)):
        (tmp_path / f"{name}.txt").write_text(text, encoding="utf-8")
        passages = [passage.text for passage in read_passages([str(tmp_path / f"{name}.txt")], words=30)]
        assert re.sub(r"\s", "", "".join(passages)) == line * 40
        assert min(map(len, passages[:-1])) > 20 and max(map(len, passages)) < 90
        assert all(passage[0].isalpha() for passage in passages)


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


def test_an_index_survives_a_rebuild_that_fails(folder, library, tmp_path, capsys, monkeypatch):
    index = tmp_path / "index"
    run("search", index, "--data", library, "--model", folder, capsys=capsys)
    before = run("search", index, "katan", capsys=capsys)
    (library / "new.txt").write_text("katan")

    def full(*arguments, **keywords):
        raise OSError("no space left")

    for function in ("minibert.training.embeddings.search.save_file", "os.replace"):
        with monkeypatch.context() as patch:
            patch.setattr(function, full)
            assert "no space left" in refusal(capsys, "search", index, "--data", library)
        assert run("search", index, "katan", capsys=capsys) == before
    run("search", index, "--data", library, capsys=capsys)
    assert "new.txt" in run("search", index, "katan", capsys=capsys)
    assert sorted(path.name for path in index.iterdir()) == ["index.safetensors"]


def test_an_index_may_lie_in_what_it_is_built_of(folder, library, capsys):
    for _ in range(2):
        output = run("search", library / "index", "--data", library, "--model", folder, capsys=capsys)
        assert "6 passages, 32 numbers each" in output


def test_an_index_is_read_as_it_was_saved_or_refused(tmp_path):
    passages = [Passage("a", "kätan\n我们"), Passage("b", "\U0001f600")]
    index = Index(passages, np.eye(2, dtype=np.float32), "model", "abc", 12)
    index.save(tmp_path)
    found = Index.load(tmp_path)
    assert (found.passages, found.model, found.fingerprint, found.max_length) == (passages, "model", "abc", 12)
    assert np.array_equal(found.vectors, index.vectors)
    file = tmp_path / "index.safetensors"
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(ValueError, match="index.safetensors' has files that cannot be read"):
        Index.load(tmp_path)
    save_file({"vectors": index.vectors}, file, metadata={"model": "model"})
    with pytest.raises(ValueError, match="index.safetensors' has files that cannot be read"):
        Index.load(tmp_path)
    for some, vectors in (
        (passages[:1], index.vectors),
        (passages * 2, index.vectors),
        (passages, index.vectors[0]),
        (passages, index.vectors * np.float32("nan")),
    ):
        Index(some, vectors, "model", "abc", 12).save(tmp_path)
        with pytest.raises(ValueError, match="index.safetensors' is damaged .vectors of shape"):
            Index.load(tmp_path)


def test_vectors_of_another_width_are_refused(folder, tmp_path):
    embedder = Embedder.from_pretrained(folder)
    index = Index([Passage("a", "katan")], np.ones((1, 8), np.float32), folder, embedder.fingerprint(), 12)
    with pytest.raises(ValueError, match="its vectors have 8 numbers, the model gives 32"):
        index.search(["katan"], embedder)


def test_search_is_brute_force(folder, library, tmp_path, capsys):
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
    run("search", index, "--data", library, "--passage_words", "10")  # by the model of before
    rebuilt = Index.load(str(index))
    texts = [passage.text for passage in rebuilt.passages]
    assert "nuben peduk" not in texts and "pezol pezol" in texts
    np.testing.assert_allclose(rebuilt.vectors, model.encode(texts), atol=1e-5)


def test_an_index_keeps_the_length_that_it_was_built_with(folder, library, tmp_path, capsys):
    run("search", tmp_path / "index", "--data", library, "--model", folder, "--max_length", "5")
    index = Index.load(tmp_path / "index")
    model = SentenceTransformer(folder, device="cpu")
    model.max_seq_length = 5
    np.testing.assert_allclose(index.vectors, model.encode([p.text for p in index.passages]), atol=1e-5)
    query = "katan lover mizol nuben peduk"
    found = minibert.search(tmp_path / "index", query)[0]
    assert found[0][1] == pytest.approx(float((index.vectors @ model.encode([query])[0]).max()), abs=1e-5)
    error = refusal(capsys, "search", tmp_path / "index", "katan", "--max_length", "7")
    assert "its vectors were made by" in error and "with max_length=5" in error


def test_an_index_is_searched_in_another_dtype(folder, library, tmp_path):
    """The model is the same; vectors in 16 bits are near those in 32."""
    found = [
        minibert.search(tmp_path / dtype, "katan lover", data=[str(library)], model=folder, dtype=dtype)[0]
        for dtype in ("float32", "bfloat16")
    ]
    again = minibert.search(tmp_path / "float32", "katan lover", dtype="bfloat16")[0]
    assert found[0][0][1] != found[1][0][1] == pytest.approx(found[0][0][1], abs=0.02)
    assert again[0][1] == pytest.approx(found[1][0][1], abs=0.02)


def test_queries_and_passages_have_the_prompts_of_the_model(prompted, folder, library, tmp_path):
    """As sentence-transformers puts them before queries and documents; an index of other prompts is another model's."""
    native, embedder = SentenceTransformer(prompted[0], device="cpu"), Embedder.from_pretrained(prompted[1])
    passages, queries = read_passages([str(library)], words=10), ["nuben katan", "loduk"]
    index = Index.build(passages, embedder, prompted[1])
    cosines = native.encode_query(queries) @ native.encode_document([passage.text for passage in passages]).T
    for found, expected in zip(index.search(queries, embedder, 3), cosines):
        assert [passage.id for passage, _ in found] == [passages[i].id for i in np.argsort(-expected)[:3]]
        np.testing.assert_allclose([cosine for _, cosine in found], -np.sort(-expected)[:3], atol=1e-5)
    assert index.fingerprint != Embedder.from_pretrained(folder).fingerprint()


def test_an_index_that_was_not_finished_is_begun_anew(folder, library, tmp_path, capsys, monkeypatch):
    """Whoever was killed while it was written leaves a hidden file. Empty files are no passages, nor in the way."""
    monkeypatch.setenv("HOME", str(tmp_path))
    left = tmp_path / "index" / ".index.safetensors.123.unfinished"
    left.parent.mkdir()
    left.touch()
    left.with_name(".tmpG1x9aB").touch()  # of `safetensors`
    (library / "empty.jsonl").touch()
    output = run("search", "~/index", "--data", library, "--model", folder, capsys=capsys)
    assert "passages" in output and (tmp_path / "index" / "index.safetensors").exists()


def test_where_nothing_can_be_written_nothing_is_embedded(folder, library, tmp_path, capsys, monkeypatch):
    run("search", tmp_path / "index", "--data", library, "--model", folder)
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != tmp_path / "index")
    monkeypatch.setattr(Embedder, "embed", None)
    error = refusal(capsys, "search", tmp_path / "index", "--data", library, "--model", folder)
    assert f"index: nothing can be written in '{tmp_path / 'index'}'" in error
    error = refusal(capsys, "embed", "katan", "--model", folder, "--output", tmp_path / "index" / "new" / "v.npy")
    assert f"output: nothing can be written in '{tmp_path / 'index'}'" in error


def test_search_refuses(folders, folder, library, tmp_path, capsys):
    index, other = tmp_path / "index", folders["cls", True][1]
    run("search", index, "--data", library, "--model", folder)
    for arguments, words in [
        ([index, "katan", "--model", other], ["its vectors were made by", "build a new index for another model"]),
        ([tmp_path / "none", "katan"], ["has no index.safetensors", "build one in a new folder by --data"]),
        ([library, "--data", library, "--model", folder], ["exists and is no index"]),
        ([index], ["queries: none given"]),
        ([], ["missing INDEX"]),
        ([index, " "], ["queries: there is no text in it"]),
        ([index, "katan", " "], ["queries: one is empty"]),
        ([tmp_path / "new", "--data", tmp_path / "no", "--model", folder], ["does not exist"]),
        ([index, "katan", "--reranker", folder], ["holds a MiniBertModel; a reranker is"]),
    ]:
        error = refusal(capsys, "search", *arguments)
        assert all(word in error for word in words), error
    assert run("search", index, "katan", capsys=capsys)  # what was there still works
