"""Which code the files of a saved model may name. One set of rules for every road: loading,
training, converting, exporting, uploads during a training, and `minibert push`.

Libraries import what these names say. A name is allowed without a word of the user if it is that of
a model file of this package, or of a library that is installed anyway. With `--trust_remote_code
true`, `minibert push` also takes a file that lies in the folder. A name that leads out of the
folder is never allowed. Nothing is imported here.
"""

import json
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..common.files import printable

PACKAGE = Path(__file__).parents[2]
# The model files, which go up with every model.
OUR_FILES = tuple(sorted(path.name for path in PACKAGE.glob("*_minibert.py")))
FILE_AND_CLASS = re.compile(r"[A-Za-z_]\w*\.[A-Za-z_]\w*", re.ASCII)
DOTTED_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", re.ASCII)
RELATIVE_IMPORT = re.compile(r"^\s*(?:from|import)\s+\.(\S+)", re.MULTILINE)
LONGEST_NAME = 80  # characters of a name in a message
# The keys of JSON files under which names of code stand, and the libraries whose names are allowed
# there. A further key is a row here.
LIBRARIES_BY_KEY = {
    "auto_map": (),
    "impl": (),  # in custom_pipelines
    "custom_generate": (),
    "type": ("sentence_transformers",),  # in modules.json
    "types": ("sentence_transformers",),  # of a Router
    "activation_fn": ("torch.nn", "sentence_transformers"),
    "activation_function": ("torch.nn", "sentence_transformers"),
    "sbert_ce_default_activation_function": ("torch.nn", "sentence_transformers"),
    "parent_library": ("transformers", "sentence_transformers", "minibert"),  # of an adapter
}
# Under these, a name without a dot is one of a table of activations (gelu), and no code.
ACTIVATION_KEYS = ("activation_fn", "activation_function", "sbert_ce_default_activation_function")
# An attention implementation with a slash is a repository of compiled code.
KERNEL_KEYS = ("attn_implementation", "_attn_implementation", "experts_implementation")
# What a model may set of how sentence-transformers opens it (sentence_bert_config.json).
# Others, such as weights_only, would read pickles, adapters or files elsewhere.
MODEL_OPTIONS_KEYS = ("model_args", "model_kwargs")
MODEL_OPTIONS = (
    "add_pooling_layer", "attn_implementation", "dtype", "low_cpu_mem_usage", "torch_dtype",
    "trust_remote_code",  # which that library drops
    "use_safetensors",
)  # fmt: skip
# `sentence_transformers.MultiVectorEncoder` has classes of its own for these, and does not import
# PyLate.
PYLATE_PREFIX = "pylate.models."
# Files whose text a model or tokenizer takes up, and so may save again.
SETTINGS_SUFFIXES = (".json", ".jinja", ".txt", ".model", ".codes")
WEIGHT_INDEXES = (
    "model.safetensors.index.json",
    "pytorch_model.bin.index.json",
)  # of weights in several
# Large files without any name of code.
FILES_WITHOUT_CODE = (
    "tokenizer.json",
    "vocab.json",
    "added_tokens.json",
    "model.safetensors.index.json",
)


@dataclass(frozen=True)
class CodeReference:
    """A name of code in a JSON file of a saved model."""

    file: str
    key: str  # auto_map, type, …
    name: str

    def __str__(self) -> str:
        name = self.name
        if len(name) > LONGEST_NAME:
            name = f"{name[:LONGEST_NAME]}…"
        return f"{printable(self.file)} names {printable(repr(name))} ({self.key})"

    @property
    def is_of_library(self) -> bool:
        """Whether it is a name of a library that is allowed under this key."""
        libraries = LIBRARIES_BY_KEY[self.key]
        if self.name in libraries:  # the whole library, as an adapter names it
            return True
        if not DOTTED_NAME.fullmatch(self.name):
            return False
        return any(self.name.startswith(f"{library}.") for library in libraries)

    @property
    def is_ours(self) -> bool:
        """Whether it is a class in one of our model files, by its name alone."""
        module = self.name.partition(".")[0]
        return FILE_AND_CLASS.fullmatch(self.name) is not None and f"{module}.py" in OUR_FILES


# --- reading the names ---


def find_references(settings: Any, file: str) -> Iterator[CodeReference]:
    """Every name of code in the content of a JSON file, however deep it lies. A ValueError for a
    kernel of another repository, and for options of loading that could run code."""
    if isinstance(settings, list):
        for item in settings:
            yield from find_references(item, file)
    if not isinstance(settings, dict):
        return
    for key, value in settings.items():
        if key in KERNEL_KEYS:
            _check_kernel(value, file)
        if key in MODEL_OPTIONS_KEYS and file.startswith("sentence_"):
            _check_options(value, file)
        if not _may_name_code(key, file):
            yield from find_references(value, file)
            continue
        for name in _strings(value):
            if key not in ACTIVATION_KEYS or "." in name:
                yield CodeReference(file, key, name)


def _may_name_code(key: str, file: str) -> bool:
    if key == "type":
        return file == "modules.json"
    return key in LIBRARIES_BY_KEY


def _strings(value: Any) -> Iterator[str]:
    """All strings in a value, but for keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)


def _check_kernel(value: Any, file: str) -> None:
    for name in _strings(value):
        if "/" in name:
            raise ValueError(
                f"{printable(file)} asks for the kernel {printable(repr(name[:LONGEST_NAME]))} of"
                " another repository; remove attn_implementation from that file"
            )


def _check_options(options: Any, file: str) -> None:
    if not isinstance(options, dict):
        return
    for name in options:
        if name not in MODEL_OPTIONS:
            raise ValueError(
                f"{printable(file)} opens the model with"
                f" {printable(repr(name[:LONGEST_NAME]))}, which a saved model may not set; remove"
                " it from that file"
            )


def check_kernels(settings: Any, file: str) -> None:
    """Refuse (a ValueError) a JSON file that asks for a kernel of another repository."""
    for _ in find_references(settings, file):
        pass  # it refuses them on its way


def read_settings(path: Path, name: str) -> Any:
    """The content of a JSON file; `name` is what an error calls it. A ValueError if it is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        reason = printable(" ".join(str(error).split())[:100])
        raise ValueError(
            f"{printable(name)} is not JSON ({reason}); save the model again"
        ) from None


def references_in(folder: Path) -> list[CodeReference]:
    """Every name of code in the JSON files of a folder and of its subfolders."""
    references = []
    for path in sorted([*folder.glob("*.json"), *folder.glob("*/*.json")]):
        if path.name in FILES_WITHOUT_CODE or not path.is_file():
            continue
        file = path.relative_to(folder).as_posix()
        settings = read_settings(path, file)
        try:
            references += find_references(settings, file)
        except RecursionError:
            raise ValueError(
                f"{printable(file)} is nested too deep; save the model again"
            ) from None
    return references


# --- files of a folder ---


def check_links(folder: Path) -> None:
    """Refuse (a ValueError) a folder of a model whose files are elsewhere on this machine: links
    out of it, but for weights, or an index of weights in another folder. What is there would be
    saved with the model, and be published. The cache of the Hub has links to its own files."""
    root = folder.resolve()
    roots = (root, root.parent.parent / "blobs")
    module_files = [path for path in folder.glob("[0-9]*/*") if path.is_file()]
    settings = [path for path in folder.glob("*") if path.suffix in SETTINGS_SUFFIXES]
    for path in sorted([*settings, *module_files]):
        real_path = path.resolve()
        if not any(real_path.is_relative_to(allowed) for allowed in roots):
            name = path.relative_to(folder).as_posix()
            raise ValueError(
                f"{printable(folder)}: {printable(name)} is a link to {printable(real_path)};"
                " put a copy in its place if the model needs it"
            )
    for name in WEIGHT_INDEXES:
        index = None
        with suppress(OSError, ValueError, RecursionError):  # loading it says what is wrong
            index = json.loads((folder / name).read_text(encoding="utf-8"))
        weight_map = None
        if isinstance(index, dict):
            weight_map = index.get("weight_map")
        for file in _strings(weight_map):
            if re.search(r"[/\\:]", file):
                raise ValueError(
                    f"{printable(folder)}: {name} names {printable(repr(file[:LONGEST_NAME]))};"
                    " all weights have to lie beside it"
                )


# --- a folder that is published ---


def check_published_code(folder: Path, trust_remote_code: bool = False) -> list[str]:
    """Refuse (a ValueError) a folder that names other code than ours and that of libraries.

    With `trust_remote_code`, files of Python in the folder are allowed, too; their names are
    returned. Whether our files in the folder are as in this package, the caller checks.
    """
    own_files = {}
    for reference in references_in(folder):
        if reference.is_of_library or reference.is_ours:
            continue
        is_pylate = reference.key == "type" and reference.name.startswith(PYLATE_PREFIX)
        if not FILE_AND_CLASS.fullmatch(reference.name) and not is_pylate:
            raise ValueError(
                f"{reference}, which is no class of a file in the folder: code elsewhere is never"
                " run and never published; remove the name"
            )
        if not trust_remote_code:
            raise ValueError(
                f"{reference}, which is no code of this package: remove the name; or read the code"
                " and give --trust_remote_code true, which runs and publishes it"
            )
        if not is_pylate:
            own_files[f"{reference.name.partition('.')[0]}.py"] = reference
    return list(own_files)


def relative_imports(file: Path) -> list[str]:
    """The files beside a file of Python that it imports (`from .name import …`), as Transformers
    looks for them; a ValueError for one in another folder."""
    names = []
    for module in RELATIVE_IMPORT.findall(file.read_text(encoding="utf-8", errors="replace")):
        if not re.fullmatch(r"[A-Za-z_]\w*", module, re.ASCII):
            raise ValueError(
                f"{file.name} imports {printable(repr('.' + module[:LONGEST_NAME]))}; only files"
                " beside it can go up"
            )
        names.append(f"{module}.py")
    return names


# --- a model that is loaded ---


def check_modules(modules: Any, settings: dict[str, Any], model: str) -> None:
    """Refuse (a ValueError) the modules of a model of sentence-transformers if they are no list of
    modules, or name a class of another library.

    Args:
        modules: The content of modules.json.
        settings: The content of further files by their names: those of the modules.
        model: The model, for the error.
    """
    if not isinstance(modules, list) or not all(map(_is_module, modules)):
        raise ValueError(
            f"{model}: modules.json is no list of modules, each with a path and a type; save the"
            " model again"
        )
    for module in modules:
        path = module["path"]
        if ".." in re.split(r"[/\\]", path) or path.startswith(("/", "\\", "~")) or ":" in path:
            raise ValueError(
                f"{model}: modules.json names {path!r}; use folders inside of the model's"
            )
    for file, content in {"modules.json": modules, **settings}.items():
        for reference in find_references(content, file):
            if reference.key == "type" and reference.name.startswith(PYLATE_PREFIX):
                continue
            if reference.key == "auto_map":
                continue  # `drop_foreign_code` removes it from what is loaded
            if not reference.is_of_library:
                raise ValueError(
                    f"{model}: {reference}, which is no class of sentence-transformers; code of"
                    " others is never run"
                )


def check_activation(config: Any, model: str) -> None:
    """Refuse (a ValueError) a config.json of a reranker that computes its score by code of others;
    sentence-transformers runs any function of torch that is named there."""
    for reference in find_references(config, "config.json"):
        if reference.key in ACTIVATION_KEYS and not reference.is_of_library:
            raise ValueError(
                f"{model}: {reference}, which is no class of torch.nn; code of others is never run"
            )


def _is_module(module: Any) -> bool:
    if not isinstance(module, dict):
        return False
    return isinstance(module.get("path"), str) and isinstance(module.get("type"), str)


_reported: set[str] = set()  # messages of `drop_foreign_code`, each of which is printed once


def drop_foreign_code(
    settings: dict[str, Any], file: str, model: str | Path, keep_files: bool = False
) -> None:
    """Remove the names of code that is not ours from `settings`, in place, so that they are not
    saved again; says on stderr what is left out.

    Args:
        settings: The attributes of a config, or what a tokenizer was made of.
        file: The file that they come from.
        model: The model, for the message.
        keep_files: Keep names of files beside the model, such as a class that the user has
            registered.
    """
    foreign: list[CodeReference] = []
    cleaned = _cleaned(settings, file, keep_files, foreign)
    if not foreign:
        return
    settings.clear()
    settings.update(cleaned)
    names = "; ".join(dict.fromkeys(str(reference) for reference in foreign[:3]))
    message = f"{printable(model)}: {names}: code of others, which is not run and does not go along"
    if message not in _reported:
        _reported.add(message)
        print(message, file=sys.stderr)


def _cleaned(value: Any, file: str, keep_files: bool, foreign: list[CodeReference]) -> Any:
    """A copy without what names foreign code; the names are added to `foreign`."""
    if isinstance(value, list):
        return [_cleaned(item, file, keep_files, foreign) for item in value]
    if not isinstance(value, dict):
        return value
    cleaned = {}
    for key, item in value.items():
        if key != "custom_pipelines" and not _may_name_code(key, file):
            cleaned[key] = _cleaned(item, file, keep_files, foreign)
            continue
        foreign_names = set()
        for reference in find_references({key: item}, file):
            if not _may_stay(reference, keep_files):
                foreign.append(reference)
                foreign_names.add(reference.name)
        if key == "auto_map" and isinstance(item, dict):
            # one entry for each Auto class: the others stay
            cleaned[key] = {}
            for auto_class, names in item.items():
                if foreign_names.isdisjoint(_strings(names)):
                    cleaned[key][auto_class] = names
        elif not foreign_names:
            cleaned[key] = item
    return cleaned


def _may_stay(reference: CodeReference, keep_files: bool) -> bool:
    # Transformers writes the repository before the name, in memory.
    name = reference.name.rpartition("--")[2]
    if reference.is_of_library or CodeReference(reference.file, reference.key, name).is_ours:
        return True
    return keep_files and FILE_AND_CLASS.fullmatch(reference.name) is not None
