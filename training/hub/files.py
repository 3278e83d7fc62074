"""The files of a repository: which belong into it, which never do, and what may not stand in them.

`huggingface_hub` has neither a search for secrets nor a list of files that must not be published: both stand here.
"""

import fnmatch
import os
import re
import shutil
from mmap import ACCESS_READ, mmap
from pathlib import Path

ROOT = Path(__file__).parents[2]
CODE = (
    "configuration_minibert.py", "sequences_minibert.py", "cpu_minibert.py", "embeddings_minibert.py",
    "attention_minibert.py", "modeling_minibert.py",
)  # fmt: skip
PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.pickle", "*.ckpt", "*.joblib")  # optimizer state is among them
LEFT_OUT = (
    *PICKLES, ".tmp*", ".*unfinished*",  # half-written
    "checkpoint-*", "checkpoint_manifest.json", "__pycache__", "events.out.tfevents*",
    "test_predictions.jsonl",  # the user's rows, as they were given
    # the card has the figures; these, paths of this machine too
    "report.json", "metrics.json", "compare.json", "trainer_state.json",
)  # fmt: skip
NOT_LOOKED_AT = (".git", ".cache", ".gitignore")
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
REQUIRED = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


def write_code(folder: str | Path) -> None:
    """Put the code files of this package into `folder`, in the place of what is there."""
    for name in CODE:
        (Path(folder) / name).unlink(missing_ok=True)  # may be a link
        shutil.copyfile(ROOT / name, Path(folder) / name)


def write_gitignore(folder: str | Path, keep_checkpoints: bool = False) -> None:
    """Tell the Hub by a `.gitignore`, which it goes by, what is not to come up from `folder`: pickles and optimizer
    state at its top, and checkpoints unless they are kept. Lines that are there stay."""
    path = Path(folder) / ".gitignore"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    ours = [f"/{pattern}" for pattern in LEFT_OUT if not (keep_checkpoints and pattern == "checkpoint-*")]
    path.write_text("\n".join(dict.fromkeys(lines + ours)) + "\n", encoding="utf-8")


def stage(folder: Path, target: Path) -> list[str]:
    """Lay out in `target`, a new folder, what of `folder` is published (links, not copies), with the code files and a
    `.gitignore`; the files that are left out.

    Raises:
        ValueError: something that a repository needs is missing, or a secret is in the folder.
    """
    if not folder.is_dir():
        raise ValueError(f"paths: {str(folder)!r} is no folder")
    if (folder / "adapter_config.json").exists():
        raise ValueError(f"{folder}: only an adapter; merge it into the model first (model.merge_and_unload())")
    for name in REQUIRED:
        if not any((folder / each).is_file() for each in (name, f"{name}.index.json")):  # of weights in several files
            cure = "tokenizer" if name.startswith("tokenizer") else "model"
            raise ValueError(f"{folder}: {name} is missing; {cure}.save_pretrained(folder) writes it")
    left_out = []
    paths = [Path(parent, name) for parent, _, names in os.walk(folder, followlinks=True) for name in names]
    for path in sorted(paths):
        relative = path.relative_to(folder)
        if any(matches(part, NOT_LOOKED_AT) for part in relative.parts):
            continue
        if matches(path.name, SECRET_FILES):
            raise ValueError(f"{path}: a file of secrets; take it out of the folder")
        if any(matches(part, LEFT_OUT) for part in relative.parts):
            left_out.append(relative.as_posix())
            continue
        check_secrets(path)
        staged = target / relative
        staged.parent.mkdir(parents=True, exist_ok=True)
        try:
            staged.symlink_to(path.resolve())
        except OSError:  # not allowed everywhere
            shutil.copyfile(path, staged)
    if (folder / ".gitignore").is_file():
        shutil.copyfile(folder / ".gitignore", target / ".gitignore")
    if not all((target / name).exists() for name in CODE):
        write_code(target)
    write_gitignore(target)
    return left_out


def check_secrets(path: Path) -> None:
    """Search a file for what looks like a token, a key or a password: a ValueError names the file and the line, not
    the secret."""
    if path.suffix in (".safetensors", ".png", ".jpg") or not path.stat().st_size:  # an empty file cannot be mapped
        return
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        for name, pattern in SECRETS.items():
            if match := re.search(pattern, content):
                line = content[: match.start()].count(b"\n") + 1
                raise ValueError(f"{path}, line {line}: there seems to be {name}; take it out")


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
