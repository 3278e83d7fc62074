"""From folder to folder: `minibert convert`."""

import json
import shutil
from pathlib import Path

from safetensors.torch import save_file
from transformers import PreTrainedTokenizerBase
from transformers.modeling_utils import load_state_dict
from transformers.utils import cached_file, has_file

from ...configuration_minibert import MiniBertConfig
from ..arguments.pretraining import ConvertArguments
from ..loading import check_new, new_folder, reading, saved_config, saved_tokenizer
from .checkpoints import load
from .native import from_native, to_native
from .surgery import change


def convert(arguments: ConvertArguments) -> Path:
    """Convert a saved model to MiniBERT, or a MiniBERT back, and return its folder. Its tokenizer goes along, and so do
    the files of sentence-transformers, which say how an embedding model pools. With `set`, what is written is a
    MiniBERT whichever the source was, changed as `surgery.change` says.

    Raises:
        ValueError: not two paths, a target that holds something, an architecture for the way to MiniBERT; and whatever
            `load`, `from_native`, `to_native` and `change` refuse. Nothing is written then.
    """
    if len(arguments.paths) != 2:
        raise ValueError(f"paths: {len(arguments.paths)} given; give a source and a target")
    source, target = arguments.paths[0], Path(arguments.paths[1])
    check_new(target)
    ours = isinstance(saved_config(source), MiniBertConfig)
    if arguments.architecture and not ours:
        raise ValueError(f"architecture={arguments.architecture!r} is for a MiniBERT source; {source!r} is none")
    if arguments.architecture and arguments.set:
        raise ValueError(f"set: it changes a MiniBERT; leave architecture={arguments.architecture!r} out")
    tokenizer = tokenizer_of(source)
    loaded = load(source, tokenizer)
    if ours:
        model = loaded if arguments.set else to_native(loaded, arguments.architecture)
    else:
        model = from_native(loaded)
    if arguments.set:
        model, said = change(model, arguments.set)
        print("\n".join(said))
    length = arguments.set.get("max_position_embeddings")
    if length is not None and tokenizer is not None:
        tokenizer.model_max_length = length
    with new_folder(target) as written:
        model.save_pretrained(written)
        if tokenizer is not None:
            tokenizer.save_pretrained(written)
        copy_modules(source, written, length)
    print(f"{source} → {target}: {type(model).__name__}, {model.num_parameters():,} parameters")
    return target


def tokenizer_of(source: str) -> PreTrainedTokenizerBase | None:
    """The tokenizer beside a model, if there is one."""
    return saved_tokenizer(source) if has_file(source, "tokenizer_config.json") else None


def modules_of(source: str) -> list[dict[str, str]]:
    """The modules of which sentence-transformers makes a model, the encoder first; none if it does not know it."""
    if not has_file(source, "modules.json"):
        return []
    return json.loads(Path(cached_file(source, "modules.json")).read_text(encoding="utf-8"))


def copy_modules(source: str, target: Path, length: int | None = None) -> None:
    """Copy what `SentenceTransformer(source)` reads beside the model and the tokenizer, so that it reads `target`; with
    a `length`, texts are cut off there."""
    modules = modules_of(source)
    names = ["modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"] if modules else []
    for module in modules[1:]:
        if not (target / module["path"]).resolve().is_relative_to(target.resolve()):
            raise ValueError(f"{source}: modules.json names {module['path']!r}; use folders inside of the model's")
        names += [f"{module['path']}/{name}" for name in ("config.json", "model.safetensors")]
    for name in names:
        if has_file(source, name):
            (target / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(cached_file(source, name), target / name)
        elif has_file(source, old := name.replace("model.safetensors", "pytorch_model.bin")):
            with reading(source):  # tensors and nothing else, as Transformers reads it for the encoder
                weights = load_state_dict(cached_file(source, old))
            save_file(weights, target / name, {"format": "pt"})
    settings = target / "sentence_bert_config.json"
    given = json.loads(settings.read_text(encoding="utf-8")) if length is not None and settings.exists() else {}
    if "max_seq_length" in given:
        settings.write_text(json.dumps(given | {"max_seq_length": length}, indent=2) + "\n", encoding="utf-8")
