"""Which files are under a folder, or match a pattern."""

import glob
import os
from collections.abc import Iterable, Iterator
from pathlib import Path


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
