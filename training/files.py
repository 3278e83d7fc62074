"""Files that are there only when they are whole, so that one that is there can be taken for done."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A path to write a file at, which gets the name `path` once it is written: who finds that name finds all of it."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")  # another process may write the same
    try:
        yield unfinished
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)  # half of it


def holds_something(folder: Path) -> bool:
    """Whether a folder has any file but what `whole` and `new_folder` left there when they were killed."""
    return not all(path.name.startswith(".") and "unfinished" in path.name for path in folder.iterdir())


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON, `whole`."""
    with whole(path) as unfinished:
        unfinished.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def prepare_result(path: str | None) -> None:
    """Make the folder of the JSON file that is asked for, before there are figures to lose."""
    if path is not None:
        if Path(path).is_dir():
            raise ValueError(f"result: {path!r} is a folder; give a JSON file")
        Path(path).parent.mkdir(parents=True, exist_ok=True)


def write_result(result: dict[str, Any], path: str | None) -> None:
    """Write the figures to a JSON file, if one is asked for."""
    if path is not None:
        write_json(Path(path), result)
        print(f"Written to {path}")
