"""Links in data folders: each real file is read once, and a link that leads back ends."""

import os

import pytest

from minibert.training.data.documents import load_documents
from minibert.training.data.file_search import files_under, matching_paths, unique_files
from minibert.training.data.sources import find_files
from minibert.training.embeddings.reading.documents import read_documents
from minibert.training.finetuning.data import load_splits

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture
def folder(tmp_path):
    """Two real files; two links from folders to folders above them, a linked folder and file."""
    data = tmp_path / "data"
    (data / "part").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (data / "a.txt").write_text("one\ntwo")
    (data / "part" / "b.txt").write_text("three")
    (tmp_path / "elsewhere" / "c.txt").write_text("four")
    (data / ".hidden.txt").write_text("hidden")
    (data / "self").symlink_to(".")
    (data / "part" / "up").symlink_to("..")
    (data / "again").symlink_to("part")
    (data / "0.txt").symlink_to("a.txt")
    (data / "linked").symlink_to(tmp_path / "elsewhere")
    (data / "broken.txt").symlink_to("nothing")
    return data


def test_each_real_file_comes_once(folder):
    expected = [str(folder / name) for name in ("a.txt", "linked/c.txt", "part/b.txt")]
    assert files_under(folder) == expected
    assert find_files(str(folder)) == expected
    for pattern in ("**", "**/*.txt", "**/*"):
        assert find_files(os.path.join(str(folder), pattern)) == expected
    assert find_files(os.path.join(str(folder), "**/b.txt")) == expected[2:]


def test_a_pattern_finds_what_glob_finds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a" / "b[1]" / "b").mkdir(parents=True)
    for name in ("x.txt", "a/x.txt", "a/b[1]/x.txt", "a/b[1]/b/y.txt"):
        (tmp_path / name).write_text("text")
    for pattern, expected in (
        ("**/x.txt", ["a/b[1]/x.txt", "a/x.txt", "x.txt"]),
        ("a/**/*.txt", ["a/b[1]/b/y.txt", "a/b[1]/x.txt", "a/x.txt"]),
        ("a/**/b/**/*.txt", ["a/b[1]/b/y.txt"]),
        ("*.txt", ["x.txt"]),
        ("*/x.txt", ["a/x.txt"]),
        (f"{tmp_path}/**/y.txt", [f"{tmp_path}/a/b[1]/b/y.txt"]),
        ("nowhere/**/x.txt", []),
    ):
        assert unique_files(matching_paths(pattern)) == expected, pattern


def test_documents_and_passages_come_once(folder):
    assert sorted(load_documents([str(folder)])["text"]) == ["four", "one", "three", "two"]
    assert len(read_documents([str(folder)])) == 3


def test_a_linked_shard_comes_once(tmp_path):
    first = tmp_path / "train-00000-of-00002.jsonl"
    first.write_text('{"text": "one"}')
    (tmp_path / "train-00001-of-00002.jsonl").symlink_to(first.name)
    splits = load_splits(None, data=str(tmp_path), validation_size=None)
    assert splits["train"]["text"][:] == ["one"]


@pytest.mark.parametrize("name", ["rows.jsonl", "text.txt"])
def test_pipes_are_refused(tmp_path, name):
    pipe = tmp_path / name
    os.mkfifo(pipe)
    for item in (str(pipe), "/dev/null"):
        with pytest.raises(
            ValueError, match="is not a regular file \\(but a pipe, a device or a broken link\\)"
        ):
            find_files(item)
    with pytest.raises(ValueError, match="there is no file in"):
        find_files(str(tmp_path))
