"""The files of a repository: which belong into it, which never do, and what may not stand in them."""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
CODE = ("configuration_minibert.py", "attention_minibert.py", "modeling_minibert.py")
PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.pickle", "*.ckpt", "*.joblib")  # optimizer state is among them
LEFT_OUT = (*PICKLES, "checkpoint-*", "__pycache__", "events.out.tfevents*")
SECRET_FILES = (".env", ".env.*", ".netrc", "*.pem", "*.key", "id_rsa", "id_ed25519", "credentials", "credentials.json")
SECRETS = {
    "a Hugging Face token": rb"\bhf_[A-Za-z0-9]{30,}",
    "a GitHub token": rb"\b(gh[pousr]_[A-Za-z0-9]{36}|github_pat_\w{22,})",
    "an AWS key": rb"\bAKIA[0-9A-Z]{16}\b",
    "an API key": rb"\bsk-(proj-|ant-|or-)?[A-Za-z0-9_-]{32,}",
    "a Slack token": rb"\bxox[abprs]-[A-Za-z0-9-]{20,}",
    "a Google API key": rb"\bAIza[0-9A-Za-z_-]{35}\b",
    "a private key": rb"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    "a password in an address": rb"\bhttps?://[^/\s:@\"']+:[^/\s:@\"']{6,}@",
}


@dataclass
class Staged:
    """A folder with what is uploaded, and what of the original is not."""

    folder: Path
    sizes: dict[str, int] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


def write_code(folder: str | Path) -> None:
    """Put the three code files of this package into `folder`."""
    for name in CODE:
        shutil.copyfile(ROOT / name, Path(folder) / name)


def write_gitignore(folder: str | Path, keep_checkpoints: bool = False) -> None:
    """Tell the Hub by a `.gitignore`, which it goes by, what is not to come up from `folder`: pickles and optimizer
    state at its top, and checkpoints. Lines that are there stay.

    Args:
        keep_checkpoints: do not name checkpoint folders.
    """
    path = Path(folder) / ".gitignore"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    ours = [f"/{pattern}" for pattern in LEFT_OUT if not (keep_checkpoints and pattern == "checkpoint-*")]
    lines += [line for line in ours if line not in lines]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def stage(folder: Path, target: Path) -> Staged:
    """Lay out in `target` (links, not copies) what of `folder` is published, with the code files and a `.gitignore`.

    Raises:
        ValueError: something that a repository needs is missing, or a secret is in the folder.
    """
    require_complete(folder)
    staged = Staged(target)
    for path in sorted(folder.rglob("*")):
        relative = PurePosixPath(path.relative_to(folder).as_posix())
        if relative.parts[0] in (".git", ".cache") or not path.is_file():
            continue
        if matches(relative.name, SECRET_FILES):
            raise ValueError(f"{path}: a file of secrets; take it out of the folder")
        if any(matches(part, LEFT_OUT) for part in relative.parts) or str(relative) == ".gitignore":
            staged.left_out.append(str(relative))
            continue
        refuse_secrets(path)
        (target / relative).parent.mkdir(parents=True, exist_ok=True)
        _link(path.resolve(), target / relative)
    if not all((target / name).exists() for name in CODE):
        for name in CODE:
            (target / name).unlink(missing_ok=True)
        write_code(target)
    write_gitignore(target)
    staged.left_out = [name for name in staged.left_out if name != ".gitignore"]
    return staged


def measure(staged: Staged) -> Staged:
    """Fill in the sizes, in bytes."""
    staged.sizes = {
        path.relative_to(staged.folder).as_posix(): path.stat().st_size
        for path in sorted(staged.folder.rglob("*"))
        if path.is_file()
    }
    return staged


def require_complete(folder: Path) -> None:
    """Refuse a folder that lacks config, weights or tokenizer.

    Raises:
        ValueError: naming what is missing and how it gets there.
    """
    if not folder.is_dir():
        raise ValueError(f"paths: {str(folder)!r} is no folder")
    if (folder / "adapter_config.json").exists():
        raise ValueError(f"{folder}: only an adapter; merge it into the model first (model.merge_and_unload())")
    for names, cure in (
        (("config.json",), "model.save_pretrained(folder) writes it"),
        (("model.safetensors", "model.safetensors.index.json"), "model.save_pretrained(folder) writes it"),
        (("tokenizer.json",), "tokenizer.save_pretrained(folder) writes it"),
        (("tokenizer_config.json",), "tokenizer.save_pretrained(folder) writes it"),
    ):
        if not any((folder / name).is_file() for name in names):
            raise ValueError(f"{folder}: {names[0]} is missing; {cure}")


def refuse_secrets(path: Path) -> None:
    """Refuse a file with something in it that looks like a token, a key or a password.

    Raises:
        ValueError: naming the file and the line, not the secret.
    """
    if path.suffix in (".safetensors", ".png", ".jpg"):
        return
    content = path.read_bytes()
    for name, pattern in SECRETS.items():
        match = re.search(pattern, content)
        if match:
            line = content.count(b"\n", 0, match.start()) + 1
            raise ValueError(f"{path}, line {line}: there seems to be {name}; take it out")


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether a file name has one of the forms."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _link(source: Path, target: Path) -> None:
    try:
        os.symlink(source, target)
    except OSError:  # not allowed everywhere
        shutil.copyfile(source, target)
