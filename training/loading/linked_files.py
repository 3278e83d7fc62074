"""Whether the files of a saved model are where they seem to be."""

import json
import re
from contextlib import suppress
from pathlib import Path

from ..common.printable import printable
from .code_references import LONGEST_NAME, strings_in

# Of weights. Any other file may become text of a tokenizer, a config or a card that is saved.
WEIGHT_SUFFIXES = (
    ".bin", ".ckpt", ".gguf", ".h5", ".msgpack", ".onnx", ".onnx_data", ".ot", ".pt", ".pth",
    ".safetensors",
)  # fmt: skip
WEIGHT_INDEXES = (
    "model.safetensors.index.json",
    "pytorch_model.bin.index.json",
)  # of weights in several


def check_links(folder: Path) -> None:
    """Refuse (a ValueError) a folder of a model whose files are elsewhere on this machine: links
    out of it, but for weights, or an index of weights in another folder. What is there would be
    saved with the model, and be published. The cache of the Hub has links to its own files."""
    root = folder.resolve()
    roots = (root, root.parent.parent / "blobs")
    paths = [*folder.glob("*/*"), *folder.glob("*/*/*")]
    for path in folder.glob("*"):
        # weights in the folder itself may be links
        if path.suffix not in WEIGHT_SUFFIXES or path.is_dir():
            paths.append(path)
    for path in sorted(path for path in paths if path.is_symlink()):
        real_path = path.resolve()
        if not any(real_path.is_relative_to(allowed) for allowed in roots):
            name = path.relative_to(folder).as_posix()
            raise ValueError(
                f"{printable(folder)}: {printable(name)} is a link to {printable(real_path)};"
                " remove it, or put a copy in its place"
            )
    for name in WEIGHT_INDEXES:
        index = None
        with suppress(OSError, ValueError, RecursionError):  # loading it says what is wrong
            index = json.loads((folder / name).read_text(encoding="utf-8"))
        weight_map = None
        if isinstance(index, dict):
            weight_map = index.get("weight_map")
        for file in strings_in(weight_map):
            if re.search(r"[/\\:]", file):
                raise ValueError(
                    f"{printable(folder)}: {name} names {printable(repr(file[:LONGEST_NAME]))};"
                    " all weights have to lie beside it"
                )
