"""Where files can be written."""

import os
import sys
import tempfile
from pathlib import Path


def check_folder(folder: Path, argument: str = "output_dir") -> None:
    """Refuse (ValueError) an output folder that is a file, or that nothing can be written in."""
    if folder.is_file():
        raise ValueError(f"{argument}: {str(folder)!r} is a file; give a folder, existing or new")
    if not _can_write(folder):
        raise ValueError(f"{argument}: nothing can be written in {str(folder)!r}; give another one")


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
