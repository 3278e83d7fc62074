"""What becomes of the names of others' code when a model is loaded: `check_modules` and
`check_activation` refuse what sentence-transformers would import, `drop_foreign_code` leaves out
the rest, so that it is neither run nor saved again. What is allowed says `code_references`."""

import re
import sys
from pathlib import Path
from typing import Any

from ..common.printable import printable
from .code_references import (
    ACTIVATION_KEYS,
    FILE_AND_CLASS,
    LONGEST_NAME,
    PYLATE_PREFIX,
    CodeReference,
    check_sentence_settings,
    find_references,
    may_name_code,
    strings_in,
)

# The modules of sentence-transformers that are opened, by the names of their classes. Others make
# encoders in folders of their own (Router), or of files that are not checked (BoW).
TRANSFORMER_MODULES = ("MLMTransformer", "Transformer")
MODULE_TYPES = (
    *TRANSFORMER_MODULES, "Dense", "Dropout", "LayerNorm", "LogitScore", "MultiVectorMask",
    "Normalize", "Pooling", "SparseAutoEncoder", "SpladePooling", "TokenPooling",
    "WeightedLayerPooling",
)  # fmt: skip
# Where a module other than the encoder is: 1_Pooling, 2_Normalize.
MODULE_FOLDER = re.compile(r"[A-Za-z0-9_-]+")


def check_modules(modules: Any, settings: dict[str, Any], model: str) -> None:
    """Refuse (a ValueError) the modules of a model of sentence-transformers if they are no list of
    modules, name a class of another library or of another kind, or are not where
    sentence-transformers saves them: an encoder beside modules.json, where its files are checked,
    and each other module in a folder of its own, so that no file of it stands for one of the model.

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
        if file.startswith("sentence_"):
            check_sentence_settings(content, f"{model}: {file}")
    for module in modules:
        if class_name(module) not in MODULE_TYPES:
            raise ValueError(
                f"{model}: modules.json has a {class_name(module)}; MiniBERT opens"
                f" {', '.join(MODULE_TYPES)}"
            )
    _check_folders(modules, model)


def _check_folders(modules: list[dict[str, str]], model: str) -> None:
    for index, module in enumerate(modules):
        path = module["path"]
        shown_path = printable(repr(path[:LONGEST_NAME]))
        if is_transformer(module):
            if path:
                raise ValueError(
                    f"{model}: modules.json has its encoder in {shown_path}; save the model again,"
                    " which puts it beside modules.json"
                )
            if index > 0:
                raise ValueError(
                    f"{model}: modules.json has an encoder after other modules; MiniBERT opens one"
                    " encoder, which is the first module"
                )
        elif not MODULE_FOLDER.fullmatch(path):
            raise ValueError(
                f"{model}: modules.json has a {class_name(module)} in {shown_path}; save the"
                " model again, which gives it a folder such as '1_Pooling'"
            )


def class_name(module: dict[str, str]) -> str:
    return module["type"].rpartition(".")[2]


def is_transformer(module: dict[str, str]) -> bool:
    return class_name(module) in TRANSFORMER_MODULES


def _is_module(module: Any) -> bool:
    if not isinstance(module, dict):
        return False
    return isinstance(module.get("path"), str) and isinstance(module.get("type"), str)


def check_activation(config: Any, model: str) -> None:
    """Refuse (a ValueError) a config.json of a reranker that computes its score by code of others;
    sentence-transformers runs any function of torch that is named there."""
    for reference in find_references(config, "config.json"):
        if reference.key in ACTIVATION_KEYS and not reference.is_of_library:
            raise ValueError(
                f"{model}: {reference}, which is no class of torch.nn; code of others is never run"
            )


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
        if key != "custom_pipelines" and not may_name_code(key, file):
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
                if foreign_names.isdisjoint(strings_in(names)):
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
