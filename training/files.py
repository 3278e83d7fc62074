"""Files that are there only when they are whole, so that one that is there can be taken for done."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

HALF_WRITTEN = re.compile(r"\..*unfinished.*|\.tmp.*")  # by `whole`, `new_folder` and `safetensors`
CLAIMS: set[int] = set()  # descriptors of the folders that this process has `claimed`


def _drop_claims() -> None:
    """In a process that is forked, such as a worker, which may outlive one that is killed."""
    while CLAIMS:
        os.close(CLAIMS.pop())


if fcntl is not None:
    os.register_at_fork(after_in_child=_drop_claims)


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
    """While this process writes in a folder, no other one does: it gets a ValueError. The system frees a folder whose
    process was killed. Windows and some network file systems have no such locks: there two get in."""
    if fcntl is None:
        yield
        return
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(held)
        raise ValueError(
            f"output_dir: another process is writing in {str(folder)!r}; wait for it, or give another one"
        ) from None
    except OSError:  # a file system without locks
        pass
    CLAIMS.add(held)
    try:
        yield
    finally:
        if held in CLAIMS:
            CLAIMS.remove(held)
            os.close(held)
        for path in made:  # those in which nothing was written
            with suppress(OSError):
                path.rmdir()


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
