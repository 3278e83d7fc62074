"""Paths of this machine in the JSON files of a model: they tell names of people and projects, and
nobody else can open them. `stage` drops those that libraries write, and refuses all others."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from ..common.printable import printable
from ..loading.code_references import FILES_WITHOUT_CODE, read_settings

# Under these keys, libraries write where they found a model or its files. No loader needs them.
PATH_KEYS = (
    "_name_or_path", "name_or_path",
    "added_tokens_file", "chat_template_file", "merges_file", "special_tokens_map_file", "spm_file",
    "tokenizer_config_file", "tokenizer_file", "vocab_file",
)  # fmt: skip
FILES_WITH_PATH_KEYS = ("config.json", "tokenizer_config.json")
# Under these stand labels, tokens and texts, which may look like paths: "/person/artist", "/home".
# Those of a home folder are refused there, too.
TEXT_KEYS = (
    "id2label", "label2id", "prompts", "chat_template", "added_tokens_decoder",
    "additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens",
    *PreTrainedTokenizerBase.SPECIAL_TOKENS_ATTRIBUTES,
)  # fmt: skip
# A path that begins at a root, in a home folder, or beside the folder that is open.
PATH_AT_START = re.compile(r"/+[\w.-]|~\w*[/\\]|\.{1,2}[/\\]|[A-Za-z]:[\\/]\w|\\\\\w|file:/")
# A home folder anywhere in a text, but not in the address of a web page.
HOME_FOLDER = re.compile(
    r"(?<![\w.~/-])(/home/|/Users/|/root/|~/)[\w.-]|\bfile:/|\b[A-Za-z]:\\Users\\\w"
)
# A path of two folders or more within a text: "data=/mnt/alice", "['/mnt/alice']".
PATH_IN_TEXT = re.compile(r"(?<=[\s=:,;(\[\"'])/[\w.-]+/[\w.-]")
MAX_SHOWN_LENGTH = 80  # of a key or a value, in an error


def drop_path_keys(folder: Path) -> None:
    """Rewrite the config and the tokenizer's config in a folder without the keys of `PATH_KEYS`;
    a file without them stays as it is."""
    for name in FILES_WITH_PATH_KEYS:
        path = folder / name
        if not path.is_file():
            continue
        settings = read_settings(path, name)
        if _remove_path_keys(settings):
            text = json.dumps(settings, indent=2, ensure_ascii=False)
            path.write_text(f"{text}\n", encoding="utf-8")


def _remove_path_keys(settings: Any) -> bool:
    """Remove texts under `PATH_KEYS` in place, however deep they lie; returns whether there were
    any."""
    has_path = False
    waiting = [settings]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            for key in PATH_KEYS:
                if isinstance(value.get(key), str):  # else it may be the id of a label
                    del value[key]
                    has_path = True
            waiting += value.values()
    return has_path


def check_no_paths(staging_folder: Path, folder: Path) -> None:
    """Refuse (a ValueError) a path of this machine in a JSON file of `staging_folder`, but for
    vocabularies. `folder` is what the error calls it."""
    for path in sorted([*staging_folder.glob("*.json"), *staging_folder.glob("*/*.json")]):
        if path.name in FILES_WITHOUT_CODE:
            continue
        name = path.relative_to(staging_folder).as_posix()
        for key, text in _local_paths(read_settings(path, name)):
            shown_key = printable(repr(key[:MAX_SHOWN_LENGTH]))
            shown_text = printable(repr(text[:MAX_SHOWN_LENGTH]))
            raise ValueError(
                f"{folder}: {printable(name)} has a path of this machine under {shown_key}:"
                f" {shown_text}; remove it from that file, or give a name of the Hub in its place"
            )


def _local_paths(settings: Any) -> Iterator[tuple[str, str]]:
    """The texts in the content of a JSON file that have a path of this machine, each with the key
    that it stands under. A key is a text, too."""
    waiting = [("", settings, False)]
    while waiting:
        key, value, is_inside_text_key = waiting.pop()
        may_look_like_path = is_inside_text_key or key in TEXT_KEYS
        if isinstance(value, str):
            if may_look_like_path:
                has_path = HOME_FOLDER.search(value) is not None
            else:
                has_path = is_local_path(value)
            if has_path:
                yield key, value
        elif isinstance(value, list):
            waiting += [(key, item, may_look_like_path) for item in value]
        elif isinstance(value, dict):
            for name, item in value.items():
                waiting.append((key, name, may_look_like_path))
                waiting.append((name, item, may_look_like_path))


def is_local_path(text: str) -> bool:
    """Whether a text is a path of a machine, or has one in it. A relative path (`runs/model`) is
    none: names of the Hub look alike."""
    if PATH_AT_START.match(text):
        return True
    return HOME_FOLDER.search(text) is not None or PATH_IN_TEXT.search(text) is not None
