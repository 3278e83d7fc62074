"""Files that appear only when they are whole, locks of output folders, and text that is safe to print."""

import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

LOCK = ".minibert.lock"
# Files that a killed process leaves: half-written ones of `whole`, `new_folder` and `safetensors`, and its lock.
HALF_WRITTEN = re.compile(rf"\..*unfinished.*|\.tmp.*|{re.escape(LOCK)}")
_locked: set[Path] = set()  # by this process
UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yield a temporary path, and rename it to `path` once it is written: a file of that name is always complete."""
    unfinished = path.with_name(
        f".{path.name}.{os.getpid()}.unfinished"
    )  # another process may write the same file
    try:
        yield unfinished
        os.replace(unfinished, path)
    except OSError as error:  # when the disk is full, NumPy and others do not name the file
        raise OSError(f"{str(path)!r} could not be written: {error}") from error
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def lock_folder(folder: str | Path) -> Iterator[None]:
    """Lock an output folder, which is made if needed; a ValueError if another process has locked it. The system frees
    the lock when this process ends, however that happens. On Windows, nothing is locked."""
    folder = Path(folder)
    check_folder(folder)
    path, new = folder.resolve() / LOCK, not folder.exists()
    if fcntl is None or path in _locked:  # a caller has locked it
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    # Not `filelock`: forked workers inherit its `flock`, so that the folder of a killed training stays locked while one
    # of them lives, and on NFS other machines do not see it. O_NOFOLLOW, since the path may be a planted link.
    lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # another process may have just ended and removed the file
            taken = not path.exists() or path.stat().st_ino != os.fstat(lock).st_ino
        except (BlockingIOError, PermissionError):
            taken = True
        except OSError:  # a file system without locks
            taken = False
        if taken:
            raise ValueError(
                f"another process is writing in {str(folder)!r}; wait for it, or give another folder"
            )
        _locked.add(path)
        try:
            yield
        finally:
            _locked.remove(path)
            path.unlink(missing_ok=True)
            with suppress(OSError):  # it holds something
                if new:
                    folder.rmdir()
    finally:
        os.close(lock)


def lock_output(args: Any, folder: str | Path | None = None) -> AbstractContextManager:
    """Lock the output folder of a training (`args`: its `TrainingArguments`), or another one, in its first process."""
    return lock_folder(folder or args.output_dir) if args.process_index == 0 else nullcontext()


def printable(text: object) -> str:
    """Make text from a file safe for a terminal, on one line: control characters (such as line ends and terminal
    escapes), marks that change the direction of writing, and invisible tags become Python escapes."""
    return UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), str(text))


def use_writable_cache() -> None:
    """Set HF_HOME to a temporary folder if the cache of Hugging Face's libraries cannot be written, as for a user
    without a home in a container. Call this before the libraries are imported."""
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
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    return os.access(there, os.W_OK | os.X_OK)


def holds_something(folder: Path) -> bool:
    """Whether a folder has any file but the `HALF_WRITTEN` ones of a process that was killed."""
    return not all(HALF_WRITTEN.fullmatch(path.name) for path in folder.iterdir())


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON, `whole`. NaN and infinity are a ValueError, since JSON has none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole(path) as unfinished:
        unfinished.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def check_folder(folder: Path, argument: str = "output_dir") -> None:
    """Refuse (ValueError) an output folder that is a file, or that nothing can be written in."""
    if folder.is_file():
        raise ValueError(f"{argument}: {str(folder)!r} is a file; give a folder, existing or new")
    if not _can_write(folder):
        raise ValueError(f"{argument}: nothing can be written in {str(folder)!r}; give another one")


def prepare_result(path: str | None) -> None:
    """Refuse (a ValueError) a JSON file that cannot be written, before there are metrics to lose."""
    if path is not None:
        check_folder(Path(path).parent, "result")


def write_result(result: dict[str, Any], path: str | None) -> None:
    """Write the metrics to a JSON file, if one is asked for."""
    if path is not None:
        write_json(Path(path), result)
        print(f"Written to {path}")
