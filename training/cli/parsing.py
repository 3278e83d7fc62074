"""How the arguments of a command are read, whoever gives them: a command line, a recipe, or a call from Python.

All three become checked values by name, of which the dataclasses of `arguments` are made, and where the command trains
`TrainingArguments` too. A recipe (`--recipe FILE`, or `recipe=`) is YAML whose keys are argument names; what is given
beside it wins. Where a command builds a model, an argument that is a field of `MiniBertConfig` changes the model.
Anything else is refused, and what can be refused without torch and Transformers is, before they are loaded.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import difflib
import functools
import importlib.util
import json
import re
import sys
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import yaml

from ..arguments.pretraining import CorpusArguments
from .commands import COMMANDS
from .unused_arguments import reject_unused

# How long a training is can be said in one of these ways only.
LENGTHS = {"num_train_epochs", "max_steps", "minutes"}
# Packages that only some commands need, and the extra that installs them.
EXTRAS = ("peft",)

PACKAGE = Path(__file__).parents[2]
TRANSFORMERS = Path(importlib.util.find_spec("transformers").origin).parent
# `import transformers` takes a second, which the module of its parser does not need.
_spec = importlib.util.spec_from_file_location("minibert_hf_argparser", TRANSFORMERS / "hf_argparser.py")
hf_argparser = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(hf_argparser)


def run_command(name: str, argv: Sequence[str] = (), given: Mapping[str, Any] | None = None) -> Any:
    """Run a command with the arguments of a command line or of a dictionary; returns what its function returns.

    Raises:
        ValueError: bad input; names the argument, its value and what to use instead.
        OSError: a file that cannot be read or written.
        ModuleNotFoundError: the command needs a package that is not installed; says which extra installs it.
    """
    module, _, function = COMMANDS[name].function.partition(":")
    try:
        instances = parse(name, argv, given)
        return getattr(importlib.import_module(f"minibert.training.{module}"), function)(*instances)
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        extra = f'pip install "minibert[{error.name}]"'
        raise ModuleNotFoundError(f"this needs {error.name}: {extra}", name=error.name) from error
    except Exception as error:
        library = sys.modules.get("huggingface_hub.errors")
        if library and isinstance(error, library.StrictDataclassError):  # a config's refusal
            raise ValueError(str(error)) from error
        raise


def parse(name: str, argv: Sequence[str] = (), given: Mapping[str, Any] | None = None) -> list[Any]:
    """What the function of command `name` is called with.

    Args:
        argv: a command line, without the command.
        given: values by the arguments' names, from Python.

    Raises:
        ValueError: an unknown argument or recipe key (with close matches), a bad value, or one without effect.
    """
    command, known, given = COMMANDS[name], argument_names(name), dict(given or {})
    named = _named(argv) | given.keys()
    for argument in sorted(named):
        if argument.removeprefix("no_") not in known and argument not in known:
            raise _unknown_argument(name, argument)

    parser = build_parser(name)
    path = parser.read_line(argv)[0].get("recipe", given.pop("recipe", None))
    recipe = read_recipe(path, known - {"recipe"}) if path else {}
    if named & LENGTHS:
        recipe = {key: value for key, value in recipe.items() if key not in LENGTHS}
    instances, rest = parser.read(argv, recipe, given)
    values = {field: value for instance in instances for field, value in vars(instance).items()}
    if CorpusArguments in command.arguments:
        reject_unused(values, named, recipe)
    if command.training_defaults is not None:
        on_line = {field: texts[-1] for field, texts in _sort_rest(rest)[1].items() if texts}
        _check_output_folder(name, command.training_defaults | recipe | given | on_line | values)
        instances, rest = build_parser(name, everything=True).read(argv, recipe, given)

    config_fields = _config_fields() - values.keys() if command.config_overrides else set()
    words, overrides = _sort_rest(rest)
    for argument in overrides.keys() - config_fields:
        raise _unknown_argument(name, argument)
    if words and not command.positional:
        raise ValueError(f"unexpected {words[0]!r}: 'minibert {name}' takes arguments with a --name only")
    for instance in instances:
        if words and hasattr(instance, command.positional):
            setattr(instance, command.positional, words)
    if command.config_overrides:
        in_mappings = {field: value for field, value in (recipe | given).items() if field in config_fields}
        instances.append(in_mappings | {field: _from_yaml(texts) for field, texts in overrides.items()})
    return instances


# --- the parser ---


class Parser(hf_argparser.HfArgumentParser):
    """`HfArgumentParser` that raises what it refuses, and reads dictionaries like command lines."""

    training_defaults: Mapping[str, Any] = {}

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)

    def read(self, argv: Sequence[str], *mappings: Mapping[str, Any]) -> tuple[list[Any], list[str]]:
        """Instances of the dataclasses, and the words of the command line that belong to none of them. Of several that
        give an argument the last mapping wins, and over that the command line."""
        values, (on_line, rest) = dict(self.training_defaults), self.read_line(argv)
        for mapping in mappings:
            values |= self.read_values(mapping)
        values |= on_line
        instances = []
        for kind in self.dataclass_types:
            names = {field.name for field in dataclasses.fields(kind) if field.init}
            instances.append(kind(**{name: value for name, value in values.items() if name in names}))
        return instances, rest

    def read_line(self, argv: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        """What a command line gives, by name, and the words that belong to no argument of the parser."""
        nothing = object()
        namespace = argparse.Namespace(**{action.dest: nothing for action in self._actions})
        namespace, rest = self.parse_known_args(argv, namespace)
        return {key: value for key, value in vars(namespace).items() if value is not nothing}, rest

    def read_values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Those of the values that are arguments of the parser, checked as their text on a command line is. None is for
        arguments that are undecided by default, and leaves them so."""
        read = {}
        for field in (field for kind in self.dataclass_types for field in dataclasses.fields(kind)):
            value = values.get(field.name)
            is_list = isinstance(value, (list, tuple))
            texts = list(map(_as_text, value if is_list else [value]))
            if value is None:
                if field.name in values and field.default is not None:
                    raise ValueError(f"{field.name} has no value; leave it out to keep the default")
            elif field.type == list[str]:
                read[field.name] = texts  # which may look like arguments
            elif is_list and typing.get_origin(field.type) is not list:
                raise ValueError(f"{field.name}: {value!r} is a list; give one value")
            else:
                read |= self.read_line([f"--{field.name}", *texts] if is_list else [f"--{field.name}={texts[0]}"])[0]
        return read


def build_parser(name: str, everything: bool = False) -> Parser:
    """The parser of a command; with `everything`, of the fields of `TrainingArguments` too, which imports torch."""
    command, kinds, epilog = COMMANDS[name], list(COMMANDS[name].arguments), ""
    words = f" [{command.positional} …]" if command.positional else ""
    if trains := command.training_defaults is not None:
        ours = ", ".join(f"{key} {value}" for key, value in command.training_defaults.items() if value is not None)
        epilog = (
            "Every field of transformers.TrainingArguments is an argument too (--max_steps, --learning_rate, …;"
            f" our defaults: {ours}); --help-all shows them."
        )
    if command.config_overrides:
        listed = ", ".join(sorted(_config_fields())) if everything else "--hidden_size, --norm_type, …"
        epilog += f" So is every field of MiniBertConfig, to change the model ({listed})."
    if trains and everything:
        import torch
        from transformers import TrainingArguments

        kinds.append(TrainingArguments)
    parser = Parser(
        kinds,
        prog=f"minibert {name}",
        usage=f"minibert {name}{words} [--recipe FILE] [--argument value …]",
        description=command.help[0].upper() + command.help[1:] + ".",
        epilog=epilog,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--recipe", metavar="FILE", help="YAML file of arguments, or the name of one of ours; the command line wins."
    )
    if trains and everything:
        # Without use_cpu Transformers refuses --bf16 where there is no accelerator, before anything of ours is asked.
        parser.training_defaults = {"use_cpu": not torch.accelerator.is_available()} | command.training_defaults
        parser.set_defaults(**parser.training_defaults)
    return parser


# --- names ---


def argument_names(name: str) -> set[str]:
    """All arguments of a command, known without importing torch or Transformers."""
    command = COMMANDS[name]
    names = {"recipe", *(field.name for kind in command.arguments for field in dataclasses.fields(kind))}
    if command.training_defaults is not None:
        names |= _fields_in_source(TRANSFORMERS / "training_args.py", "TrainingArguments")
    return names | _config_fields() if command.config_overrides else names


def _config_fields() -> set[str]:
    """The names that change a model: MiniBertConfig's own fields and their aliases."""
    return _fields_in_source(PACKAGE / "configuration_minibert.py", "MiniBertConfig")


@functools.cache
def _fields_in_source(path: Path, class_name: str) -> set[str]:
    """The fields of a dataclass, and of a config their other names (`attribute_map`), from its source."""
    names: set[str] = set()
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.ClassDef) and statement.name == class_name:
            for line in statement.body:
                if isinstance(line, ast.AnnAssign):
                    names.add(line.target.id)
                elif isinstance(line, ast.Assign) and line.targets[0].id == "attribute_map":
                    names |= ast.literal_eval(line.value).keys()
    return names


def _named(argv: Iterable[str]) -> set[str]:
    """The arguments that a command line names."""
    return {word[2:].partition("=")[0].replace("-", "_") for word in argv if word.startswith("--")}


def _unknown_argument(name: str, argument: str) -> ValueError:
    return ValueError(
        f"unknown argument --{argument} of 'minibert {name}'{close_matches(argument, argument_names(name), '--')}"
    )


def close_matches(word: str, known: Iterable[str], prefix: str = "") -> str:
    matches = difflib.get_close_matches(word, sorted(known), n=3, cutoff=0.7)
    return f"; close matches: {', '.join(prefix + match for match in matches)}" if matches else ""


# --- values ---


# YAML 1.1, which PyYAML reads, takes 1e-5 for a string and `no` for false; YAML 1.2 has it the other way round.
class _Yaml12Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":bool", ":float"))]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_Yaml12Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"(true|True|TRUE|false|False|FALSE)$"), "tTfF"
)
_Yaml12Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"([-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$"),
    "-+.0123456789",
)


def _read_yaml(text: str, source: str) -> Any:
    try:
        return yaml.load(text, Loader=_Yaml12Loader)
    except yaml.YAMLError as error:
        raise ValueError(f"{source} is not YAML: {error}") from None


def read_recipe(path: str | Path, known: set[str]) -> dict[str, Any]:
    """The arguments in a YAML file, or in the recipe of ours that has this name."""
    path, ours = Path(path), {file.stem: file for file in (PACKAGE / "training/pretraining/recipes").glob("*.yaml")}
    if not path.is_file():
        if str(path) not in ours:
            raise ValueError(
                f"recipe: {str(path)!r} is no file{close_matches(str(path), ours)}; use a YAML file, or one of"
                f" {', '.join(sorted(ours))}"
            )
        path = ours[str(path)]
    recipe = _read_yaml(path.read_text(encoding="utf-8"), str(path)) or {}
    if not isinstance(recipe, dict):
        raise ValueError(f"recipe: {str(path)!r} is no list of 'argument: value' lines")
    for key in recipe:
        if key not in known:
            raise ValueError(f"{path}: unknown key {key!r}{close_matches(str(key), known)}")
    return recipe


def _as_text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, (bool, dict)) else str(value)


def _sort_rest(rest: Iterable[str]) -> tuple[list[str], dict[str, list[str]]]:
    """What the parser left over: words, and unknown arguments with the words that follow each."""
    words: list[str] = []
    unknown: dict[str, list[str]] = {}
    values = words
    for item in rest:
        if item.startswith("--"):
            flag, equals, value = item[2:].partition("=")
            values = unknown[flag.replace("-", "_")] = [value] if equals else []
        else:
            values.append(item)
    return words, unknown


def _from_yaml(texts: list[str]) -> Any:
    """The value of a model field, in YAML: `null`, `[a, b]`, `{a: 1}`. Several words are a list, none is true."""
    values = [_read_yaml(text, repr(text)) for text in texts]
    return True if not values else values[0] if len(values) == 1 else values


def _check_output_folder(name: str, values: Mapping[str, Any]) -> None:
    """Refuse a folder in use before anything is loaded; what goes on in one is checked when it is trained."""
    from ..checkpoints import check_unused

    resumes = str(values.get("resume_from_checkpoint")).lower() not in ("none", "false")
    if not (name.startswith("evaluate") or values.get("plan") or values.get("compare") or resumes):
        check_unused(Path(values["output_dir"]))
