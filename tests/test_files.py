"""Files whose existence says that something is done: all of them is there, or nothing."""

import os
import signal
import time
from pathlib import Path

import pytest

from minibert.training import race
from minibert.training.arguments.pretraining import CorpusArguments
from minibert.training.arguments.tools import RaceArguments
from minibert.training.cli import main as cli
from minibert.training.files import claimed, whole, write_json


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


def test_a_full_disk_is_named_with_the_file(tmp_path):
    with (
        pytest.raises(OSError, match="a.npy' could not be written: 3 requested and 2 written"),
        whole(tmp_path / "a.npy"),
    ):
        raise OSError("3 requested and 2 written")


def test_two_processes_do_not_write_in_one_folder(tmp_path, capsys):
    """Each would overwrite the other's checkpoints and model."""
    output, (ready, is_ready), (over, is_over) = tmp_path / "out", os.pipe(), os.pipe()
    commands = []
    for command in ("pretrain", "prepare", "finetune classify", "finetune embed", "finetune rerank"):
        words = [*command.split(), "--output_dir", str(output), "--data", str(tmp_path / "nowhere.txt")]
        commands.append([*words, *(["--model", "nowhere"] if "finetune" in command else [])])
    if (other := os.fork()) == 0:
        with claimed(tmp_path / "b" / ".." / "out"):
            os.write(is_ready, b".")
            os.read(over, 1)
        os._exit(0)
    os.read(ready, 1)
    for words in commands:
        assert cli.main(words) == 2
        assert f"output_dir: another process is writing in '{output}'; wait" in capsys.readouterr().err
    os.write(is_over, b".")
    os.waitpid(other, 0)
    for words in commands:
        assert cli.main(words) == 2 and "nowhere" in capsys.readouterr().err  # it is free again
    assert not output.exists()


def test_a_folder_is_free_when_its_process_is_killed(tmp_path):
    """Also while a worker of that one lives on, as those of `datasets` do."""

    if (process := os.fork()) == 0:
        with claimed(tmp_path / "rows"):
            if os.fork() == 0:
                time.sleep(10)
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL
    with claimed(tmp_path / "rows"):
        pass


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
