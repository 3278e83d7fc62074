"""Where data are: files, folders, globs, and data sets of the Hub by their name."""

import glob
import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import datasets

from .dataset_calls import error_reason
from .file_search import files_under, matching_paths, unique_files
from .formats import COMPRESSED_SUFFIXES, FORMATS

# "name" or "owner/name", and perhaps a configuration.
HUB_NAME = re.compile(r"(?P<name>[\w-][\w.-]*(/[\w-][\w.-]*)?)(:(?P<config>[\w.-]+))?")


def find_files(item: str, field: str = "data") -> list[str]:
    """The files of a path, a folder or a glob, sorted; an empty list for a name that may be a data
    set of the Hub. A ValueError if there are no files."""
    if os.path.isfile(item):
        return [item]
    if os.path.isdir(item):
        files = files_in(item, FORMATS)
    elif glob.has_magic(item):
        files = unique_files(matching_paths(item))
    else:
        _split_hub_name(item, field)
        return []
    if not files:
        suffixes = ", ".join(FORMATS)
        raise ValueError(
            f"{field}: there is no file in {item!r}; use names that end in one of {suffixes}"
        )
    return files


def files_in(folder: str | Path, suffixes: Collection[str]) -> list[str]:
    """`files_under` a folder with these suffixes. Compressed files are reported."""
    paths = files_under(folder)
    compressed = [
        Path(path).name for path in paths if Path(path).suffix.lower() in COMPRESSED_SUFFIXES
    ]
    if compressed:
        print(
            f"{str(folder)!r}: {len(compressed)} compressed files ({compressed[0]!r}, …) are left "
            "out; unpack them to use them"
        )
    return [path for path in paths if Path(path).suffix.lower() in suffixes]


def load_hub(item: str, field: str = "data", **options: Any) -> Any:
    """Call `datasets.load_dataset` for "owner/name" or "owner/name:config"; a ValueError if it is
    not found, cannot be reached, or lacks the configuration or split."""
    name, config = _split_hub_name(item, field)
    try:
        return datasets.load_dataset(name, config, **options)
    except (OSError, ValueError) as error:
        reason = error_reason(error)
        raise ValueError(
            f"{field}: {item!r} is neither a path nor a data set of the Hub: {reason}"
        ) from error


def is_hub_name(item: str) -> bool:
    """Whether an item is loaded from the Hub, by "owner/name" or "owner/name:config". Old data sets
    without an owner do not count: a file could be called so."""
    parts = HUB_NAME.fullmatch(item)
    if parts is None or "/" not in parts["name"] or Path(item).suffix.lower() in FORMATS:
        return False
    # `datasets` also takes a folder of this machine for the name before the ":"
    return not os.path.lexists(item) and not os.path.lexists(parts["name"])


def _split_hub_name(item: str, field: str) -> tuple[str, str | None]:
    """Split the name of a data set of the Hub into name and configuration; a ValueError for a
    missing file, and for a path that is no file."""
    check_regular(item, field)
    parts = HUB_NAME.fullmatch(item)
    if parts is None or Path(item).suffix.lower() in FORMATS:
        raise ValueError(f"{field}: {item!r} does not exist")
    return parts["name"], parts["config"]


def check_regular(path: str, field: str) -> None:
    """Refuse what could be read once only, or has no end."""
    if os.path.lexists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise ValueError(
            f"{field}: {path!r} is not a regular file (but a pipe, a device or a broken link);"
            " write the data into a file"
        )
