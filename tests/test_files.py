"""Files whose existence says that something is done: all of them is there, or nothing."""

from pathlib import Path

import pytest

from minibert.training import race
from minibert.training.arguments.pretraining import CorpusArguments
from minibert.training.arguments.tools import RaceArguments
from minibert.training.files import write_json


def half(path, *_, **__):
    with open(path, "w") as file:
        file.write("{")
    raise OSError("disk full")


def test_json_that_breaks_off_is_not_there(tmp_path, monkeypatch):
    write_json(tmp_path / "a.json", {"a": 1})
    monkeypatch.setattr(Path, "write_text", half)
    for name in ("a.json", "b.json"):
        with pytest.raises(OSError, match="disk full"):
            write_json(tmp_path / name, {"a": 2})
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]  # and no half of it
    assert (tmp_path / "a.json").read_text() == '{\n "a": 1\n}\n' and not (tmp_path / "b.json").exists()


def test_held_out_masks_of_a_race_that_break_off_are_made_again(tmp_path, monkeypatch):
    (tmp_path / "text.txt").write_text("\n".join(f"a cat sat under {i} trees" for i in range(100)))
    corpus = CorpusArguments(data=[str(tmp_path / "text.txt")])
    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(OSError, match="disk full"):
        race.race(corpus, RaceArguments(output=str(tmp_path / "race"), quick=True))
    assert not (tmp_path / "race" / race.HELD_OUT).exists()


def test_runs_of_a_race_without_their_held_out_rows_are_refused(tmp_path):
    """They would count as runs of the race that is begun."""
    (tmp_path / "minibert.json").write_text("{}")
    with pytest.raises(ValueError, match="^output: .* has runs without their held_out.json; use another output"):
        race.race(CorpusArguments(), RaceArguments(output=str(tmp_path), quick=True))
