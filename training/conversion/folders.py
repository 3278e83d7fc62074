"""From folder to folder: `minibert convert`."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import transformers
from transformers import AutoConfig
from transformers.utils import cached_file, has_file

from ... import modeling_minibert
from ...configuration_minibert import MiniBertConfig
from ..arguments.pretraining import ConvertArguments
from ..loading import reading, saved_tokenizer
from .checkpoints import load
from .native import from_native, to_native


def convert(arguments: ConvertArguments) -> Path:
    """Convert a saved model to MiniBERT, or a MiniBERT back, and return its folder. Its tokenizer goes along, and so do
    the files of sentence-transformers, which say how an embedding model pools.

    Raises:
        ValueError: not two paths, a target that holds something, an architecture for the way to MiniBERT; and whatever
            `load`, `from_native` and `to_native` refuse. Nothing is written then.
    """
    if len(arguments.paths) != 2:
        raise ValueError(f"paths: {len(arguments.paths)} given; give a source and a target")
    source, target = arguments.paths[0], Path(arguments.paths[1])
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise ValueError(f"target {str(target)!r} exists already: nothing is overwritten, give a new folder")
    with reading(source):
        ours = AutoConfig.from_pretrained(source, trust_remote_code=False).model_type == MiniBertConfig.model_type
    if arguments.architecture and not ours:
        raise ValueError(f"architecture={arguments.architecture!r} is for a MiniBERT source; {source!r} is none")
    tokenizer = None
    if has_file(source, "tokenizer_config.json"):
        tokenizer = saved_tokenizer(source)
    loaded = load(source, modeling_minibert if ours else transformers, 0 if tokenizer is None else len(tokenizer))
    model = to_native(loaded, arguments.architecture) if ours else from_native(loaded)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as folder:
        written = Path(folder, target.name)
        model.save_pretrained(written)
        if tokenizer is not None:
            tokenizer.save_pretrained(written)
        _copy_modules(source, written)
        if target.exists():
            target.rmdir()
        written.rename(target)
    print(f"{source} → {target}: {type(model).__name__}, {model.num_parameters():,} parameters")
    return target


def _copy_modules(source: str, target: Path) -> None:
    """Copy what `SentenceTransformer(source)` reads beside the model and the tokenizer, so that it reads `target`."""
    if not has_file(source, "modules.json"):
        return
    modules = json.loads(Path(cached_file(source, "modules.json")).read_text(encoding="utf-8"))
    names = ["modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"]
    for module in modules[1:]:  # the first one is the model
        names += [f"{module['path']}/{name}" for name in ("config.json", "model.safetensors")]
    for name in names:
        if has_file(source, name):
            (target / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(cached_file(source, name), target / name)
