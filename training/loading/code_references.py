"""The names of code in the JSON files of a saved model: where they stand, and which are allowed.

Libraries import what these names say. A name is allowed without a word of the user if it is that of
a model file of this package, or of a library that is installed anyway. Nothing is imported here.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..common.printable import printable

PACKAGE = Path(__file__).parents[2]
# The model files, which go up with every model.
OUR_FILES = tuple(sorted(path.name for path in PACKAGE.glob("*_minibert.py")))
FILE_AND_CLASS = re.compile(r"[A-Za-z_]\w*\.[A-Za-z_]\w*", re.ASCII)
DOTTED_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", re.ASCII)
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
# What a model may set of how sentence-transformers opens it (sentence_bert_config.json and its
# like). Others, such as weights_only or tokenizer_name_or_path, would read pickles, adapters or
# files elsewhere. That library drops trust_remote_code.
SENTENCE_SETTINGS = (
    "do_lower_case", "document_length", "max_seq_length", "modality_config", "module_output_name",
    "processing_kwargs", "query_expansion", "query_length", "transformer_task", "unpad_inputs",
)  # fmt: skip
MODEL_OPTIONS = (
    "add_pooling_layer", "attn_implementation", "dtype", "low_cpu_mem_usage", "torch_dtype",
    "trust_remote_code", "use_safetensors",
)  # fmt: skip
TOKENIZER_OPTIONS = (
    "add_prefix_space", "clean_up_tokenization_spaces", "do_lower_case", "max_length",
    "model_max_length", "padding_side", "trust_remote_code", "truncation_side", "use_fast",
)  # fmt: skip
CONFIG_OPTIONS = ("trust_remote_code",)
OPTIONS_BY_KEY = {
    "model_args": MODEL_OPTIONS,
    "model_kwargs": MODEL_OPTIONS,
    "tokenizer_args": TOKENIZER_OPTIONS,
    "processor_kwargs": TOKENIZER_OPTIONS,
    "config_args": CONFIG_OPTIONS,
    "config_kwargs": CONFIG_OPTIONS,
}
# `sentence_transformers.MultiVectorEncoder` has classes of its own for these, and does not import
# PyLate.
PYLATE_PREFIX = "pylate.models."
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
        if not may_name_code(key, file):
            yield from find_references(value, file)
            continue
        for name in strings_in(value):
            if key not in ACTIVATION_KEYS or "." in name:
                yield CodeReference(file, key, name)


def may_name_code(key: str, file: str) -> bool:
    if key == "type":
        return file == "modules.json"
    return key in LIBRARIES_BY_KEY


def strings_in(value: Any) -> Iterator[str]:
    """All strings in a value, but for keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from strings_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings_in(item)


def _check_kernel(value: Any, file: str) -> None:
    for name in strings_in(value):
        if "/" in name:
            raise ValueError(
                f"{printable(file)} asks for the kernel {printable(repr(name[:LONGEST_NAME]))} of"
                " another repository; remove attn_implementation from that file"
            )


def check_sentence_settings(settings: Any, file: str) -> None:
    """Refuse (a ValueError) what a sentence_bert_config.json may not set. Its options of loading
    are handed to Transformers as they are."""
    for name in _refused_settings(settings):
        raise ValueError(
            f"{printable(file)} opens the model with {printable(repr(name[:LONGEST_NAME]))}, which"
            " a saved model may not set; remove it from that file"
        )


def _refused_settings(settings: Any) -> Iterator[str]:
    """The names of settings and options that a sentence_bert_config.json may not have."""
    if not isinstance(settings, dict):
        return
    for key, value in settings.items():
        if key in OPTIONS_BY_KEY and isinstance(value, dict):
            for name in value:
                if name not in OPTIONS_BY_KEY[key]:
                    yield name
        elif key not in SENTENCE_SETTINGS:
            yield key


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
        if path.name.startswith("sentence_"):
            check_sentence_settings(settings, file)
        try:
            references += find_references(settings, file)
        except RecursionError:
            raise ValueError(
                f"{printable(file)} is nested too deep; save the model again"
            ) from None
    return references
