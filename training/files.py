"""Files that are there only when they are whole, so that one that is there can be taken for done."""

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

HALF_WRITTEN = re.compile(r"\..*unfinished.*|\.tmp.*")  # by `whole`, `new_folder` and `safetensors`


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A path to write a file at, which gets the name `path` once it is written: who finds that name finds all of it."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")  # another process may write the same
    try:
        yield unfinished
        os.replace(unfinished, path)
    except OSError as error:  # of a full disk, NumPy and others do not say what file it is
        raise OSError(f"{str(path)!r} could not be written: {error}") from error
    finally:
        unfinished.unlink(missing_ok=True)  # half of it


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """While this process writes in a folder, no other one of this machine does: it gets a ValueError. (On Windows two
    get in.) The system frees what a killed process had claimed, also while workers of that one live on."""
    if fcntl is None:
        yield
        return
    name = f"minibert-{os.getuid()}-{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]}.lock"
    with open(Path(tempfile.gettempdir(), name), "w") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # flock's locks would be the workers' too
        except (BlockingIOError, PermissionError):
            use = "wait for it, or give another one"
            raise ValueError(f"output_dir: another process is writing in {str(folder)!r}; {use}") from None
        try:
            yield
        finally:
            Path(lock.name).unlink(missing_ok=True)


def holds_something(folder: Path) -> bool:
    """Whether a folder has any file but the `HALF_WRITTEN` ones of a process that was killed."""
    return not all(HALF_WRITTEN.fullmatch(path.name) for path in folder.iterdir())


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON, `whole`."""
    with whole(path) as unfinished:
        unfinished.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def check_folder(folder: Path, argument: str = "output_dir") -> None:
    """Refuse (ValueError) an output folder that is a file, or that nothing can be written in."""
    if folder.is_file():
        raise ValueError(f"{argument}: {str(folder)!r} is a file; give a folder, existing or new")
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        raise ValueError(f"{argument}: nothing can be written in {str(there)!r}; give another one")


def prepare_result(path: str | None) -> None:
    """Make the folder of the JSON file that is asked for, before there are figures to lose."""
    if path is not None:
        if Path(path).is_dir():
            raise ValueError(f"result: {path!r} is a folder; give a JSON file")
        check_folder(Path(path).parent, "result")
        Path(path).parent.mkdir(parents=True, exist_ok=True)


def write_result(result: dict[str, Any], path: str | None) -> None:
    """Write the figures to a JSON file, if one is asked for."""
    if path is not None:
        write_json(Path(path), result)
        print(f"Written to {path}")
