"""Files and folders that appear only when they are whole, locks of output folders, the files under
a folder, and text that is safe to print.

Three functions write whole: `atomic_write` a file, `new_folder` a folder that is new, and
`written_whole` several files of a folder that may hold others.
"""

import glob
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

LOCK = ".minibert.lock"
# Model files that earlier versions saved with a model, and that this version has no more.
RETIRED_FILES = ("embeddings_minibert.py",)
# Files that a killed process leaves: half-written ones of `atomic_write`, `new_folder` and
# `safetensors`, and its locks.
HALF_WRITTEN = re.compile(rf"\..*unfinished.*|\.tmp.*|.*{re.escape(LOCK)}")
_locks: dict[Path, int] = {}  # held by this process, each with the thread that holds it
_changing_locks = threading.Lock()
UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path, and rename it to `path` once it is written: a file of that name is
    always complete."""
    # another process may write the same file
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        yield unfinished
        os.replace(unfinished, path)
    except OSError as error:  # when the disk is full, NumPy and others do not name the file
        raise OSError(f"{str(path)!r} could not be written: {error}") from error
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def written_whole(folder: Path) -> Iterator[Path]:
    """Yield a hidden folder inside `folder` to write files in. At the end they move to `folder` and
    replace those of the same names, config.json last. An error, such as a full disk, leaves
    `folder` as it was.

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


def printable(text: object) -> str:
    """Make text from a file safe for a terminal, on one line: control characters (such as line ends
    and terminal escapes), marks that change the direction of writing, and invisible tags become
    Python escapes."""
    return UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), str(text))


def files_under(folder: str | Path) -> list[str]:
    """All files under a folder, sorted, without hidden ones. Links are followed, but each real file
    comes once, even if a link leads back to the folder it is in."""
    names = []
    for root, _, files in _walk(str(folder)):
        names += [os.path.join(root, file) for file in files if not file.startswith(".")]
    return unique_files(names)


def unique_files(names: Iterable[str]) -> list[str]:
    """The regular files among these names, sorted. Of several names of one file, one stays that is
    no link if there is one."""
    by_real_path: dict[str, str] = {}
    for name in sorted(names, key=lambda name: (os.path.islink(name), name)):
        if os.path.isfile(name):
            by_real_path.setdefault(os.path.realpath(name), name)
    return sorted(by_real_path.values())


def matching_paths(pattern: str) -> list[str]:
    """What `glob.glob(pattern, recursive=True)` finds, but no folder twice, where links lead
    back."""
    head, stars, tail = f"/{pattern}".partition("/**")
    if not stars or (tail and not tail.startswith("/")):
        return sorted(glob.glob(pattern))
    roots = ["."]
    if head:
        roots = glob.glob(head[1:] + "/")
    elif pattern.startswith("/"):
        roots = ["/"]
    paths: list[str] = []
    for root in roots:
        for folder, _, files in _walk(root):
            if tail:
                paths += matching_paths(glob.escape(folder.rstrip("/")) + tail)
            else:
                paths += [os.path.join(folder, file) for file in files if not file.startswith(".")]
    return sorted(map(os.path.normpath, paths))


def _walk(folder: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """`os.walk` without hidden folders, through links, but into every real folder once; those
    behind links come last."""
    visited = set()
    waiting = [folder]
    while waiting:
        for root, folders, files in os.walk(waiting.pop(0)):
            real = os.path.realpath(root)
            if real in visited:
                folders.clear()
                continue
            visited.add(real)
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            paths = (os.path.join(root, name) for name in folders)
            waiting += filter(os.path.islink, paths)
            yield root, folders, files


def use_writable_cache() -> None:
    """Set HF_HOME to a temporary folder if the cache of Hugging Face's libraries cannot be written,
    as for a user without a home in a container. Call this before the libraries are imported."""
    cache = (
        os.environ.get("HF_HOME")
        or os.environ.get("XDG_CACHE_HOME")
        or os.path.expanduser("~/.cache")
    )
    if cache.startswith("~") or not _can_write(Path(cache)):
        os.environ["HF_HOME"] = tempfile.mkdtemp(prefix="minibert-cache-")
        print(
            f"{cache!r} cannot be written: downloads go to {os.environ['HF_HOME']!r}; set HF_HOME",
            file=sys.stderr,
        )


def _can_write(folder: Path) -> bool:
    """Whether files can be written in a folder, or the folder can be made."""
    for path in (folder.absolute(), *folder.absolute().parents):
        if path.exists():
            return os.access(path, os.W_OK | os.X_OK)
    return False


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


def check_folder(folder: Path, argument: str = "output_dir") -> None:
    """Refuse (ValueError) an output folder that is a file, or that nothing can be written in."""
    if folder.is_file():
        raise ValueError(f"{argument}: {str(folder)!r} is a file; give a folder, existing or new")
    if not _can_write(folder):
        raise ValueError(f"{argument}: nothing can be written in {str(folder)!r}; give another one")


def write_result(result: dict[str, Any], path: str | None) -> None:
    """Write the metrics to a JSON file, if one is asked for."""
    if path is not None:
        write_json(Path(path), result)
        print(f"Written to {path}")
