"""Files whose existence says that something is done: all of them is there, or nothing."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from minibert.training import cli
from minibert.training.common.files import atomic_write, write_json, written_whole
from minibert.training.common.locks import lock_file, lock_folder
from minibert.training.common.paths import check_folder, use_writable_cache
from minibert.training.common.printable import printable


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
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "c.json", {"loss": float("nan")})
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    assert (tmp_path / "a.json").read_text() == '{\n "a": 1\n}\n' and not (
        tmp_path / "b.json"
    ).exists()


def test_a_full_disk_is_named_with_the_file(tmp_path):
    with (
        pytest.raises(OSError, match="a.npy' could not be written: 3 requested and 2 written"),
        atomic_write(tmp_path / "a.npy"),
    ):
        raise OSError("3 requested and 2 written")


def test_no_link_in_the_folder_is_written_through(tmp_path):
    """A stranger's folder may have links to the files of the user, of any name."""
    victim = tmp_path / "bashrc"
    victim.write_text("mine")
    folder = tmp_path / "foreign"
    folder.mkdir()
    (folder / f".README.md.{os.getpid()}.unfinished").symlink_to(victim)
    (folder / ".unfinished").symlink_to(victim)
    (folder / "README.md").symlink_to(victim)
    with atomic_write(folder / "README.md") as unfinished:
        unfinished.write_text("theirs")
    assert victim.read_text() == "mine"
    assert (folder / "README.md").read_text() == "theirs"


def test_a_file_has_the_usual_rights(tmp_path):
    (tmp_path / "usual").touch()
    with atomic_write(tmp_path / "a.txt") as unfinished:
        unfinished.write_text("a")
    assert (tmp_path / "a.txt").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_two_processes_do_not_write_in_one_folder(tmp_path, capsys):
    """Each would overwrite the other's checkpoints and model."""
    output, (ready, is_ready), (over, is_over) = tmp_path / "out", os.pipe(), os.pipe()
    (tmp_path / "text.txt").write_text("a text")
    commands = []
    for command in (
        "pretrain",
        "prepare",
        "finetune classify",
        "finetune embed",
        "finetune rerank",
    ):
        words = [
            *command.split(),
            "--output_dir",
            str(output),
            "--data",
            str(tmp_path / "text.txt"),
        ]
        commands.append([*words, *(["--model", "nowhere"] if "finetune" in command else [])])
    if (other := os.fork()) == 0:
        with lock_folder(tmp_path / "b" / ".." / "out"):
            os.write(is_ready, b".")
            os.read(over, 1)
        os._exit(0)
    os.read(ready, 1)
    try:
        for words in commands:
            assert cli.main(words) == 2
            assert f"another process is writing in '{output}'; wait" in capsys.readouterr().err
    finally:
        os.write(is_over, b".")
        os.waitpid(other, 0)
    (tmp_path / "text.txt").rename(tmp_path / "nowhere.txt")
    for words in commands:
        assert (
            cli.main(words) == 2 and "another process" not in capsys.readouterr().err
        )  # it is free again
    assert not output.exists()


def test_a_folder_is_free_when_its_process_is_killed(tmp_path):
    """Also while a worker of that one lives on, as those of `datasets` do."""

    if (process := os.fork()) == 0:
        with lock_folder(tmp_path / "rows"):
            if os.fork() == 0:
                time.sleep(10)
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL
    with lock_folder(tmp_path / "rows"):
        pass


def test_a_lock_follows_no_link_and_leaves_nothing(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".minibert.lock").symlink_to(tmp_path / "notes.txt")
    with pytest.raises(OSError), lock_folder(tmp_path / "out"):
        pass
    assert (tmp_path / "notes.txt").read_text() == "mine"
    with (
        lock_folder(tmp_path / "new"),
        lock_folder(tmp_path / "new"),
    ):  # by a command, and by what it calls
        pass
    assert not (tmp_path / "new").exists()


def test_the_lock_does_not_depend_on_the_temporary_folder(tmp_path):
    """Two jobs of a cluster have one each."""
    import subprocess
    import sys

    code = f"from minibert.training.common.locks import lock_folder\nwith lock_folder({str(tmp_path / 'out')!r}): pass"
    with lock_folder(tmp_path / "out"):
        other = [sys.executable, "-c", code]
        result = subprocess.run(
            other, env=os.environ | {"TMPDIR": str(tmp_path)}, capture_output=True, text=True
        )
    assert "ValueError: another process is writing in" in result.stderr


def test_texts_do_not_steer_the_terminal():
    hostile = "a\x1b[31mred\x07\r\nb\x9b2J \u202eevil\u2066 \u200f\ud800\U000e0041"
    shown = printable(hostile)
    assert shown == r"a\x1b[31mred\x07\r\nb\x9b2J \u202eevil\u2066 \u200f\ud800\U000e0041"
    for text in (
        "schön",
        "में",
        "ไทย",
        "日本語",
        "👩\u200d👧",
        "می\u200cخواهم",
    ):  # joiners belong to scripts
        assert printable(text) == text


@pytest.mark.parametrize(("home", "writable"), [("~", True), ("/home/of/nobody", False)])
def test_without_a_home_the_cache_is_temporary(home, writable, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("os.path.expanduser", lambda path: path.replace("~", home))
    monkeypatch.setattr("os.access", lambda *_: writable)
    monkeypatch.setattr("tempfile.mkdtemp", lambda prefix: str(tmp_path))
    for name in ("HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", "")  # restored afterwards
    use_writable_cache()
    assert os.environ["HF_HOME"] == str(tmp_path) and "cannot be written" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(ValueError, match="output_dir: nothing can be written"):
        check_folder(tmp_path / "out" / "run")


def test_files_that_break_off_are_not_there(tmp_path):
    """As the model at the end of a training, when the disk is full: no config without weights."""
    (tmp_path / "config.json").write_text("old")
    with pytest.raises(OSError, match="disk full"), written_whole(tmp_path) as folder:
        (folder / "config.json").write_text("new")
        half(folder / "model.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    assert (tmp_path / "config.json").read_text() == "old"


def test_whole_files_replace_those_of_their_names(tmp_path):
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "old.json").touch()
    (tmp_path / "notes.txt").touch()
    (tmp_path / ".unfinished").mkdir()  # of a process that was killed
    (tmp_path / ".unfinished" / "x").touch()
    with written_whole(tmp_path) as folder:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").touch()
        (folder / "config.json").touch()
    names = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*"))
    assert names == ["1_Pooling", "1_Pooling/config.json", "config.json", "notes.txt"]


@pytest.mark.parametrize("files", [["modeling_minibert.py"], ["tokenizer.json"]])
def test_a_model_saved_anew_takes_away_code_of_earlier_versions(tmp_path, files):
    """Only with code of this version: a tokenizer that is saved leaves it."""
    (tmp_path / "embeddings_minibert.py").touch()
    (tmp_path / "my_minibert.py").touch()
    with written_whole(tmp_path) as folder:
        for name in files:
            (folder / name).touch()
    left = ["embeddings_minibert.py"] if files == ["tokenizer.json"] else []
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [*files, *left, "my_minibert.py"]
    )


def test_two_threads_do_not_write_one_file(tmp_path):
    with ThreadPoolExecutor(1) as pool, lock_file(tmp_path / "new" / "a.npy"):
        with lock_file(tmp_path / "new" / "a.npy"):  # by what this thread calls
            pass
        other = pool.submit(lambda: lock_file(tmp_path / "new" / "a.npy").__enter__())
        with pytest.raises(ValueError, match="another thread is writing in '.*a.npy'; wait"):
            other.result()
        free = pool.submit(lambda: lock_file(tmp_path / "new" / "b.npy").__enter__())
        free.result()
    assert not list(tmp_path.glob("new/*a.npy*"))


def test_of_two_commands_with_one_output_the_second_is_refused(tmp_path, capsys):
    """Else both would end well, and one result would be lost."""
    (tmp_path / "text.txt").write_text("a text")
    text = str(tmp_path / "text.txt")
    commands = {
        "vectors.npy": ["embed", "a text", "--output"],
        "scores.json": ["evaluate", "embed", text, "--result"],
        "measures.json": ["evaluate", "rerank", str(tmp_path), "--result"],
    }
    for name, words in commands.items():
        with ThreadPoolExecutor(1) as pool, lock_file(tmp_path / name):
            assert pool.submit(cli.main, [*words, str(tmp_path / name)]).result() == 2
        message = capsys.readouterr().err
        assert f"another thread is writing in '{tmp_path / name}'" in message
    folders = {
        "index": ["search", str(tmp_path / "index"), "--data", text],
        "tokenizer": ["tokenizer", "--data", text, "--output_dir", str(tmp_path / "tokenizer")],
    }
    for name, words in folders.items():
        with ThreadPoolExecutor(1) as pool, lock_folder(tmp_path / name):
            assert pool.submit(cli.main, words).result() == 2
        message = capsys.readouterr().err
        assert f"another thread is writing in '{tmp_path / name}'" in message
