"""What an entry of `--data` means: files or a data set of the Hub, perhaps with their language
before them (`de=folder`), a folder of prepared rows, or a data set in memory."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .dataset_calls import DatasetOrStream
from .file_search import matching_paths
from .sources import find_files, is_hub_name
from .tables import check_one_split, name_of_data, names_of_data, sources_of

# "de=folder": the language that an entry is in.
LANGUAGE = re.compile(r"(?P<language>[A-Za-z][\w-]*)=(?P<entry>.+)", re.DOTALL)
DataEntry = str | Path | DatasetOrStream  # an entry of `data`
ROWS_MANIFEST = "minibert_rows.json"  # in a folder of prepared rows


def entries_of(data: Any) -> list[DataEntry]:
    """What the argument `data` names, one entry or several: paths as text, records in memory as
    data sets. None, which means the built-in corpus, has no entry. A ValueError for an empty
    list, and for a data set of several splits."""
    if data is None:
        return []
    entries = []
    for source in sources_of(data):
        check_one_split(source)
        if isinstance(source, os.PathLike):
            source = os.fspath(source)
        entries.append(source)
    if not entries:
        raise ValueError(
            "data: an empty list; name text, or leave data out for the built-in corpus"
        )
    return entries


def check_entries(data: Sequence[DataEntry]) -> None:
    """Refuse (a ValueError) a path without files, before any work."""
    for entry in data:
        if isinstance(entry, (str, Path)):
            find_files(language_of(entry)[1])


def language_of(entry: DataEntry) -> tuple[str | None, DataEntry]:
    """Split an entry `language=entry` into its language (None if it names none) and the rest."""
    if isinstance(entry, DatasetOrStream):
        return None, entry
    if not isinstance(entry, str):
        return None, str(entry)
    named = LANGUAGE.fullmatch(entry)
    # a path may have a "=" in it
    if named is None or os.path.exists(entry) or matching_paths(entry):
        return None, entry
    return named["language"], named["entry"]


def names_of_entries(data: Sequence[DataEntry]) -> list[str]:
    """The language of each entry of `data`, or else its name. Of several data sets in memory, which
    have no names, each has its number."""
    names = []
    for number, entry in enumerate(data, 1):
        language, source = language_of(entry)
        name = language or name_of_data(source)
        if isinstance(entry, DatasetOrStream) and len(data) > 1:
            name = f"data set {number}"
        names.append(name)
    return names


def describe_data(names: Sequence[str]) -> str:
    """The names of data, with commas between them, without the folders of files on this machine.
    Ask when the data are loaded, as `name_without_folder` says."""
    return ", ".join(map(name_without_folder, names))


def describe_sources(sources: Mapping[str, Any]) -> dict[str, str]:
    """`describe_data` of each source that is given, such as "train" or "test"."""
    descriptions = {}
    for name, source in sources.items():
        if source is not None:
            descriptions[name] = describe_data(names_of_data(source))
    return descriptions


def name_without_folder(entry: str) -> str:
    """An entry, such as a path or `language=path`, without the folder of a file on this machine:
    only names of the Hub keep a slash. Ask when the entry is loaded: whether it is a path, the
    files of this machine decide."""
    language, source = language_of(entry)
    if not is_hub_name(source):
        path = Path(source)
        if path.name in ("", ".."):  # such as "."
            path = path.resolve()
        source = path.name or "/"
    if language is None:
        return source
    return f"{language}={source}"


def is_prepared(folder: str) -> bool:
    """Whether a folder holds prepared rows."""
    return os.path.isfile(os.path.join(folder, ROWS_MANIFEST))
