"""What of a folder may go up to the Hub. Every upload of this package, by `push` and by trainers, is staged here."""

import json
import shutil
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).parents[2]
CODE = tuple(sorted(path.name for path in ROOT.glob("*_minibert.py")))
# Nothing else goes up: no state of a training (a pickle, in which a token may be), no report (which has paths of this
# machine; the card has its metrics), no file of the user's beside the model.
ALLOWED = (
    "config.json", "generation_config.json", "model.safetensors", "model-[0-9]*-of-[0-9]*.safetensors",
    "model.safetensors.index.json", "adapter_config.json", "adapter_model.safetensors",
    # tokenizers
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja",
    "vocab.txt", "vocab.json", "merges.txt", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model", "bpe.codes",
    # sentence-transformers
    "modules.json", "config_sentence_transformers.json", "sentence_bert_config.json", "[0-9]_[A-Z]*/config.json",
    "[0-9]_[A-Z]*/model.safetensors",
    "onnx/model*.onnx", "onnx/model*.onnx_data",
    "README.md", "LICENSE", "LICENSE.txt", "LICENSE.md", "NOTICE", "loss.png", "predictions.png", "training.png",
)  # fmt: skip
CARD = "README.md"
FOLDERS = tuple(pattern.split("/")[0] for pattern in ALLOWED if "/" in pattern)


def allowed(name: str) -> bool:
    """Whether a file may go up, by its path in the folder (`1_Pooling/config.json`)."""
    parts = name.split("/")
    patterns = (pattern.split("/") for pattern in (*ALLOWED, *CODE))
    return any(len(parts) == len(each) and all(map(fnmatchcase, parts, each)) for each in patterns)


def is_card(path: Path) -> bool:
    """Whether a README.md begins with a block of metadata, as a model card does and the one of a project does not."""
    if not path.is_file() or path.is_symlink():
        return False
    return path.read_bytes().removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"---")


def list_files(folder: Path) -> tuple[list[str], list[str]]:
    """The paths in `folder` of the files that may go up, and what else is in there. Symbolic links are not followed."""
    go, stay = [], []
    for entry in sorted(folder.iterdir()):
        opened = (
            entry.is_dir()
            and not entry.is_symlink()
            and any(fnmatchcase(entry.name, each) for each in FOLDERS)
        )
        for path in sorted(entry.iterdir()) if opened else [entry]:
            name = path.relative_to(folder).as_posix()
            goes = (
                allowed(name)
                and path.is_file()
                and not path.is_symlink()
                and (name != CARD or is_card(path))
            )
            (go if goes else stay).append(name)
    return go, stay


def stage(folder: str | Path, target: str | Path, own_code: bool = False) -> list[str]:
    """Copy what of `folder` goes up to `target`. A whole model brings this package's code files.

    Args:
        own_code: code in `folder` that differs from this package's goes up in its place.

    Returns:
        The paths that are left out.

    Raises:
        ValueError: there is other code in the folder, an adapter that names a folder of this machine, or a module that
            does not go up.
    """
    folder, target = Path(folder), Path(target)
    names, left_out = list_files(folder)
    if "adapter_config.json" in names:
        base = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8")).get(
            "base_model_name_or_path"
        )
        if base and (Path(base).exists() or base.startswith(("/", ".", "~"))):
            raise ValueError(
                f"{folder}: the adapter is for {base!r}, which nobody else has; push that model first"
            )
    modules = (
        json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        if "modules.json" in names
        else []
    )
    for path in [str(dict(module).get("path", "")) for module in modules]:
        if path and not any(fnmatchcase(path, each) and "/" not in path for each in FOLDERS):
            raise ValueError(
                f"{folder}: modules.json names {path!r}, which does not go up; use 1_Pooling or such"
            )
    changed = [
        name
        for name in names
        if name in CODE and (folder / name).read_bytes() != (ROOT / name).read_bytes()
    ]
    if changed and not own_code:
        raise ValueError(
            f"{folder}: {', '.join(changed)} differs from this package's (saved by another version, or changed): "
            "remove it, and this package's code goes up; or read it and give --trust_remote_code true, which runs it"
        )
    ours = [name for name in CODE if name not in names and "config.json" in names]
    for name, source in (dict.fromkeys(names, folder) | dict.fromkeys(ours, ROOT)).items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, target / name)
    return left_out
