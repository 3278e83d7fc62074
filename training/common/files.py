"""Files and folders that appear only when they are whole.

Three functions write whole: `atomic_write` a file, `new_folder` a folder that is new, and
`written_whole` several files of a folder that may hold others.
"""

import json
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .locks import LOCK, lock_folder

# Model files that earlier versions saved with a model, and that this version has no more.
RETIRED_FILES = ("embeddings_minibert.py",)
# Files that a killed process leaves: half-written ones of `atomic_write`, `new_folder` and
# `safetensors`, and its locks.
HALF_WRITTEN = re.compile(rf"\..*unfinished.*|\.tmp.*|.*{re.escape(LOCK)}")


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path, and rename it to `path` once it is written: a file of that name is
    always complete."""
    try:
        # In a new folder that nobody else can name: another process may write the same file, and a
        # link to a file of the user may lie in a folder that is a stranger's.
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".unfinished") as folder:
            unfinished = Path(folder, path.name)
            yield unfinished
            os.replace(unfinished, path)
    except OSError as error:  # when the disk is full, NumPy and others do not name the file
        raise OSError(f"{str(path)!r} could not be written: {error}") from error


@contextmanager
def written_whole(folder: Path) -> Iterator[Path]:
    """Yield a hidden folder inside `folder` to write files in. At the end they move to `folder` and
    replace those of the same names, config.json last. An error while they are written, such as a
    full disk, leaves `folder` as it was.

    Where model files of this package are among them, those that only earlier versions used are
    removed.
    """
    hidden = folder / ".unfinished"
    shutil.rmtree(hidden, ignore_errors=True)  # of a process that was killed
    try:
        hidden.mkdir(parents=True)
        yield hidden
        written = sorted(hidden.iterdir(), key=lambda path: path.name == "config.json")
        names = [path.name for path in written]
        for path in written:
            target = folder / path.name
            if target.is_dir() and not target.is_symlink():
                shutil.rmtree(target)
            path.replace(target)
        for name in RETIRED_FILES:
            if "modeling_minibert.py" in names and name not in names:
                (folder / name).unlink(missing_ok=True)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def holds_something(folder: Path) -> bool:
    """Whether a folder has any file but the `HALF_WRITTEN` ones of a process that was killed."""
    return not all(HALF_WRITTEN.fullmatch(path.name) for path in folder.iterdir())


def check_new_folder(target: Path) -> None:
    """Refuse (a ValueError) a target that is not empty, or a broken link."""
    if target.is_symlink() and not target.exists():
        raise ValueError(
            f"target {str(target)!r} is a link to {os.readlink(target)!r}, which does not exist"
        )
    if target.exists() and not (target.is_dir() and not holds_something(target)):
        raise ValueError(
            f"target {str(target)!r} exists already, and nothing is overwritten; give a new folder"
        )


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yield a folder to write in; at the end, its files move to `target`, which is new or empty. An
    error or SIGTERM leaves nothing."""
    # only the main thread can handle signals
    is_main_thread = threading.current_thread() is threading.main_thread()
    handler_before = None
    if is_main_thread:
        handler_before = signal.signal(signal.SIGTERM, _exit_by_sigterm)
    try:
        with lock_folder(target):
            check_new_folder(target)  # again, since another process may have finished here
            with tempfile.TemporaryDirectory(dir=target, prefix=".unfinished") as folder:
                written = Path(folder, target.resolve().name)
                written.mkdir()
                yield written
                for path in list(written.iterdir()):
                    path.rename(target / path.name)
    finally:
        if is_main_thread:
            signal.signal(signal.SIGTERM, handler_before or signal.SIG_DFL)


def _exit_by_sigterm(*_: Any) -> None:
    sys.exit(128 + signal.SIGTERM)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON, by `atomic_write`. NaN and infinity are a ValueError, since JSON has
    none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as unfinished:
        unfinished.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def write_result(result: dict[str, Any], path: str | None) -> None:
    """Write the metrics to a JSON file, if one is asked for."""
    if path is not None:
        write_json(Path(path), result)
        print(f"Written to {path}")
