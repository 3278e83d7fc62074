"""What of a folder may go up to the Hub. Every upload of this package, by `push` and by trainers,
is staged here."""

import os
import shutil
import stat
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from ..loading.code_references import OUR_FILES, PACKAGE, read_settings
from .local_paths import check_no_paths, drop_path_keys
from .published_code import check_published_code, relative_imports

# Nothing else goes up: no state of a training (a pickle, in which a token may be), no report (which
# has paths of this machine; the card has its metrics), no file of the user's beside the model.
ALLOWED = (
    "config.json", "generation_config.json", "model.safetensors",
    "model-[0-9]*-of-[0-9]*.safetensors", "model.safetensors.index.json",
    "adapter_config.json", "adapter_model.safetensors",
    # tokenizers
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "chat_template.jinja", "vocab.txt", "vocab.json", "merges.txt", "spiece.model",
    "sentencepiece.bpe.model", "tokenizer.model", "bpe.codes",
    # sentence-transformers
    "modules.json", "config_sentence_transformers.json", "sentence_bert_config.json",
    "[0-9]_[A-Z]*/config.json", "[0-9]_[A-Z]*/model.safetensors",
    # other runtimes
    "onnx/model*.onnx", "onnx/model*.onnx_data",
    # for people
    "README.md", "LICENSE", "LICENSE.txt", "LICENSE.md", "NOTICE",
    "loss.png", "predictions.png", "training.png",
)  # fmt: skip
CARD_FILE = "README.md"
# What the configs name; these import the other model files.
ROOT_FILES = ("configuration_minibert.py", "modeling_minibert.py")
ALLOWED_FOLDERS = tuple(pattern.split("/")[0] for pattern in ALLOWED if "/" in pattern)


def allowed(name: str) -> bool:
    """Whether a file may go up, by its path in the folder (`1_Pooling/config.json`)."""
    parts = name.split("/")
    patterns = (pattern.split("/") for pattern in (*ALLOWED, *OUR_FILES))
    return any(
        len(parts) == len(pattern) and all(map(fnmatchcase, parts, pattern)) for pattern in patterns
    )


def is_card(path: Path) -> bool:
    """Whether a README.md begins with a block of metadata, as a model card does and the one of a
    project does not."""
    if not path.is_file() or path.is_symlink():
        return False
    return path.read_bytes().removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"---")


def list_files(folder: Path) -> tuple[list[str], list[str]]:
    """The paths in `folder` of the files that may go up, and what else is in there. Symbolic links
    are not followed."""
    allowed_names = []
    other_names = []
    for entry in sorted(folder.iterdir()):
        is_folder = entry.is_dir() and not entry.is_symlink()
        if is_folder and any(fnmatchcase(entry.name, pattern) for pattern in ALLOWED_FOLDERS):
            paths = sorted(entry.iterdir())
        else:
            paths = [entry]
        for path in paths:
            name = path.relative_to(folder).as_posix()
            if allowed(name) and path.is_file() and not path.is_symlink():
                allowed_names.append(name)
            else:
                other_names.append(name)
    return allowed_names, other_names


def copy_file(folder: Path, name: str, target: Path) -> None:
    """Copy a file below `folder` to the same name below `target`, where nothing has that name. It
    is opened once, and no link in `name` is followed: what has been put in its place since it was
    listed is an OSError."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    *folders, file_name = name.split("/")
    (target / name).parent.mkdir(parents=True, exist_ok=True)
    if os.open in os.supports_dir_fd:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        for step in [*folders, file_name]:
            parent = handle
            try:
                handle = os.open(step, flags, dir_fd=parent)
            finally:
                os.close(parent)
    else:  # Windows
        handle = os.open(folder / name, flags | os.O_BINARY)
    with open(handle, "rb") as source:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(f"{name} in {str(folder)!r} is no file any more; nothing is uploaded")
        with open(target / name, "xb") as copied:
            shutil.copyfileobj(source, copied)


@dataclass
class Staged:
    """What `stage` has done."""

    left_out: list[str]  # paths in the folder that do not go up
    own_code: list[str] = field(default_factory=list)  # files of the folder that are not ours


def stage(folder: str | Path, target: str | Path, trust_remote_code: bool = False) -> Staged:
    """Copy what of `folder` goes up to `target`, an empty folder. A whole model brings this
    package's model files.

    Everything is checked in the copy, which nobody else can change. The configs there lose the
    keys under which libraries write paths (`local_paths`).

    Args:
        trust_remote_code: Code in `folder` that differs from this package's goes up in its place,
            and so do other files of Python that the configs name, with those that they import.

    Raises:
        ValueError: The files name or hold other code, an adapter is for a folder of this machine,
            a config has a path of this machine, or a module does not go up.
    """
    folder = Path(folder)
    target = Path(target)
    names, left_out = list_files(folder)
    for name in names:
        copy_file(folder, name, target)
    if CARD_FILE in names and not is_card(target / CARD_FILE):
        (target / CARD_FILE).unlink()
        left_out.append(CARD_FILE)
    if "adapter_config.json" in names:
        _check_adapter(folder, target)
    if "modules.json" in names:
        _check_modules(folder, target)
    drop_path_keys(target)
    named_files = check_published_code(target, trust_remote_code)
    check_no_paths(target, folder)
    changed = [name for name in names if name in OUR_FILES and _differs(target / name)]
    if changed and not trust_remote_code:
        raise ValueError(
            f"{folder}: {', '.join(changed)} differs from this package's (saved by another"
            " version, or changed): remove it, and this package's code goes up; or read it and"
            " give --trust_remote_code true, which runs it"
        )
    if changed:  # it may need files that this version has no more, and not need newer ones
        named_files += [path.name for path in sorted(folder.glob("*_minibert.py"))]
        named_files += ROOT_FILES
    elif "config.json" in names:
        named_files += OUR_FILES
    own_code = [*changed, *_copy_code(folder, target, named_files)]
    left_out = [name for name in left_out if name not in own_code]
    return Staged(left_out, own_code)


def _differs(file: Path) -> bool:
    return file.read_bytes() != (PACKAGE / file.name).read_bytes()


def _check_adapter(folder: Path, staging_folder: Path) -> None:
    settings = read_settings(staging_folder / "adapter_config.json", "adapter_config.json")
    base = settings.get("base_model_name_or_path") if isinstance(settings, dict) else None
    if base and (Path(str(base)).exists() or str(base).startswith(("/", ".", "~"))):
        raise ValueError(
            f"{folder}: the adapter is for {base!r}, which nobody else has; push that model first"
        )


def _check_modules(folder: Path, staging_folder: Path) -> None:
    modules = read_settings(staging_folder / "modules.json", "modules.json")
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise ValueError(f"{folder}: modules.json is no list of modules; save the model again")
    for module in modules:
        path = str(module.get("path", ""))
        if path and not any(
            fnmatchcase(path, name) and "/" not in path for name in ALLOWED_FOLDERS
        ):
            raise ValueError(
                f"{folder}: modules.json names {path!r}, which does not go up; use 1_Pooling or"
                " such"
            )


def _copy_code(folder: Path, target: Path, names: list[str]) -> list[str]:
    """Copy files of Python to `target`, with those that they import: from `folder`, or ours from
    this package.

    Returns:
        The names of those from `folder` that were not in `target` yet.
    """
    copied = []
    waiting = list(names)
    seen = set()
    while waiting:
        name = waiting.pop(0)
        if name in seen:
            continue
        seen.add(name)
        if not (target / name).exists():
            is_file = (folder / name).exists() and not (folder / name).is_symlink()
            if is_file:
                copy_file(folder, name, target)
                copied.append(name)
            elif name in OUR_FILES:
                shutil.copyfile(PACKAGE / name, target / name)
            else:
                raise ValueError(f"{folder}: {name} is named as code, but is no file there")
        waiting += relative_imports(target / name)
    return copied
