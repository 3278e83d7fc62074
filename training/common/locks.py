"""Locks of output folders and files, so that two processes do not write in one."""

import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from .paths import check_folder

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

LOCK = ".minibert.lock"
_locks: dict[Path, int] = {}  # held by this process, each with the thread that holds it
_changing_locks = threading.Lock()


@contextmanager
def lock_folder(folder: str | Path) -> Iterator[None]:
    """Lock an output folder, which is made if needed; a ValueError if another process or thread has
    locked it. The system frees the lock when this process ends, however that happens. On Windows,
    nothing is locked."""
    folder = Path(folder)
    check_folder(folder)
    with _made_folder(folder), _lock(folder.resolve() / LOCK, folder):
        yield


@contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Lock a file that will be written, as `lock_folder` locks a folder."""
    with (
        _made_folder(path.parent),
        _lock(path.parent.resolve() / f".{path.name}{LOCK}", path),
    ):
        yield


@contextmanager
def lock_result(path: str | None) -> Iterator[None]:
    """Lock the JSON file of a result, if one is asked for. Refuse (a ValueError) one that cannot be
    written, before there are metrics to lose."""
    if path is None:
        yield
        return
    check_folder(Path(path).parent, "result")
    with lock_file(Path(path)):
        yield


@contextmanager
def _made_folder(folder: Path) -> Iterator[None]:
    """Make a folder if needed, and remove it again if nothing was written in it."""
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        if is_new:
            with suppress(OSError):  # it holds something
                folder.rmdir()


@contextmanager
def _lock(path: Path, target: Path) -> Iterator[None]:
    """Hold the lock `path` of what is written in `target`. A function that is called meanwhile may
    lock it again."""
    thread = threading.get_ident()
    with _changing_locks:
        owner = _locks.get(path)
        if owner is None:
            _locks[path] = thread
    if owner == thread:
        yield
        return
    if owner is not None:
        raise ValueError(
            f"another thread is writing in {str(target)!r}; wait for it, or give another name"
        )
    try:
        with nullcontext() if fcntl is None else _system_lock(path, target):
            yield
    finally:
        del _locks[path]


@contextmanager
def _system_lock(path: Path, target: Path) -> Iterator[None]:
    # Not `filelock`: forked workers inherit its `flock`, so that the folder of a killed training
    # stays locked while one of them lives, and on NFS other machines do not see it. O_NOFOLLOW,
    # since the path may be a planted link.
    lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # another process may have just ended and removed the file
            is_taken = not path.exists() or path.stat().st_ino != os.fstat(lock).st_ino
        except (BlockingIOError, PermissionError):
            is_taken = True
        except OSError:  # a file system without locks
            is_taken = False
        if is_taken:
            raise ValueError(
                f"another process is writing in {str(target)!r}; wait for it, or give another name"
            )
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
    finally:
        os.close(lock)


def lock_output(args: Any, folder: str | Path | None = None) -> AbstractContextManager:
    """Lock the output folder of a training (`args`: its `TrainingArguments`), or another one, in
    its first process."""
    return lock_folder(folder or args.output_dir) if args.process_index == 0 else nullcontext()
