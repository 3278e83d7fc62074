"""What an entry of `--data` names: local files, a folder, a glob or a data set on the Hub, as a table or as a stream.

The layout of a text file is found by looking for blank lines (`sample_by="auto"`): with one between two lines that are
not blank, a document is what stands between blank lines ("paragraph"); without any, each line is a document ("line").
`sample_by="document"` takes every file as one document. The names are those of the `datasets` text loader.
"""

import codecs
import functools
import glob
import itertools
import mmap
import os
import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from tqdm.auto import tqdm

from ..arguments.pretraining import ROWS_MANIFEST, ROWS_PLAN
from .tables import LOADERS, DatasetOrStream, hub_name, load_files, load_hub, string_columns

# "de=folder": the language that an entry is in.
LANGUAGE = re.compile(r"(?P<language>[A-Za-z][\w-]*)=(?P<item>.+)", re.DOTALL)
# Begins with one given byte, which `re` finds a hundred times as fast as one of a class.
BLANK_LINE = re.compile(rb"\n[ \t\r]*\n")
ROWS_TO_SEE = 100  # of a stream, for a column of strings
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")


def language_of(item: str) -> tuple[str | None, str]:
    """The language of an entry `language=item` (None where it names none) and the entry without it."""
    named = LANGUAGE.fullmatch(item)
    if named is None or os.path.exists(item) or any(glob.iglob(item, recursive=True)):  # a path may have a "=" in it
        return None, item
    return named["language"], named["item"]


def is_plain(item: str) -> bool:
    """Whether an entry is a file or a glob, of no language: neither a folder nor a data set of the Hub."""
    language, path = language_of(item)
    is_file = os.path.isfile(path) or glob.has_magic(path) or Path(path).suffix in LOADERS
    return language is None and is_file and not os.path.isdir(path)


def plan_source(items: Sequence[str], sample_by: str, streaming: bool = False) -> list[Callable[[], DatasetOrStream]]:
    """Check one entry of `data`, or several that are one source, and say how to load it: local files grouped by loader,
    or a data set of the Hub. A ValueError for an entry that does not exist or holds no data, or a file that is not
    UTF-8."""
    files = []
    for item in items:
        _, path = language_of(item)
        if os.path.isfile(os.path.join(path, ROWS_MANIFEST)):
            raise ValueError(f"data: {path!r} holds prepared rows; they are for `minibert pretrain`, here give text")
        if os.path.isfile(os.path.join(path, ROWS_PLAN)):
            raise ValueError(f"data: {path!r} holds unfinished rows; `minibert prepare` finishes them")
        if any(os.path.isfile(os.path.join(path, name)) for name in ("state.json", "dataset_dict.json")):
            raise ValueError(f"data: {path!r} was written by `save_to_disk`; write it by `to_parquet`, and give that")
        if os.path.isdir(path):
            found = files_in(path, LOADERS)
            missing = f"no file with a name ending in {', '.join(LOADERS)} in the folder {path!r}"
        elif os.path.exists(path):
            found = [path]
        elif glob.has_magic(path):
            found = sorted(file for file in glob.glob(path, recursive=True) if os.path.isfile(file))
            missing = f"no file matches {path!r}"
        else:
            return [functools.partial(load_hub, *hub_name(path), split="train", streaming=streaming)]
        if not found:
            raise ValueError(f"data: {missing}")
        files += found

    groups: dict[tuple, list[str]] = {}
    for file in tqdm(files, desc="Checking files", unit=" files", delay=1, leave=False):
        suffix = Path(file).suffix.lower()
        suffix = suffix if suffix in LOADERS else ".txt"  # a file given by name may end in anything
        if suffix != ".parquet":
            _check_utf8(file)
        if os.path.getsize(file):
            layout = None if suffix != ".txt" else _layout(file) if sample_by == "auto" else sample_by
            groups.setdefault((suffix, layout), []).append(file)
    if not groups:
        raise ValueError(f"data: no text in {', '.join(map(repr, items))}: empty")
    return [
        functools.partial(load_files, files, suffix, streaming=streaming, **({"sample_by": layout} if layout else {}))
        for (suffix, layout), files in groups.items()
    ]


def select_text(dataset: DatasetOrStream, name: str | None) -> DatasetOrStream:
    """`dataset` cut down to one column of strings named "text"; a ValueError if `name` is none, or it is None and which
    column holds the text is not clear."""
    if dataset.features is None:  # a stream that has not been read knows nothing of its columns
        rows = list(itertools.islice(dataset, ROWS_TO_SEE))
        strings = list(dict.fromkeys(column for row in rows for column in row if isinstance(row[column], str)))
    else:
        strings = string_columns(dataset)
    if name is None:
        name = "text" if "text" in strings else strings[0] if len(strings) == 1 else None
    if name not in strings:
        fault = "which column holds the text is not clear" if name is None else f"{name!r} is no column of strings"
        raise ValueError(f"text_column: {fault}; use one of the columns of strings: {', '.join(strings) or 'none'}")
    dataset = dataset.select_columns(name)
    return dataset if name == "text" else dataset.rename_column(name, "text")


def is_compressed(file: Path, suffixes: Collection[str]) -> bool:
    return file.suffix.lower() in COMPRESSED and file.with_suffix("").suffix.lower() in suffixes


def files_in(folder: str | Path, suffixes: Collection[str]) -> list[str]:
    """All files under a folder whose names end so, sorted; hidden ones are left out, of compressed ones it says so."""
    found, compressed, seen = [], [], set()
    for root, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(root)
        folders[:] = [] if real in seen else [name for name in folders if not name.startswith(".")]
        names = [] if real in seen else [name for name in names if not name.startswith(".")]
        seen.add(real)  # a link may lead back
        paths = [Path(root, name) for name in names]
        found += [path for path in paths if path.suffix.lower() in suffixes]
        compressed += [path for path in paths if is_compressed(path, suffixes)]
    if compressed:
        first = compressed[0].name
        print(f"Left out of {str(folder)!r}: {len(compressed)} compressed files ({first!r}, …); unpack them first")
    return sorted(str(path) for path in found if path.is_file())


def _check_utf8(file: str) -> None:
    with open(file, "rb") as stream:
        try:
            for _ in codecs.iterdecode(iter(functools.partial(stream.read, 1 << 24), b""), "utf-8"):
                pass
        except UnicodeDecodeError as error:
            offset = stream.tell() - len(error.object) + error.start  # of what was read, the end is being decoded
            where = f"byte 0x{error.object[error.start]:02x} at offset {offset}"
            advice = "; unpack it first" if Path(file).suffix.lower() in COMPRESSED else ""
            raise ValueError(f"data: {file!r} is not UTF-8 text: {where} ({error.reason}){advice}") from None


def _layout(file: str) -> str:
    with open(file, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        text, end = re.compile(rb"\S").search(content), len(content)  # blank lines before and behind it part nothing
        while content[end - 1 : end].isspace():
            end -= 1
        found = text and BLANK_LINE.search(content, text.start(), end)
    return "paragraph" if found else "line"
