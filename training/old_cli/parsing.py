"""How the arguments of a command are read, whoever gives them: a command line, a recipe, or a call from Python.

One parser makes the dataclasses of `arguments` of all three, and where the command trains `TrainingArguments` too.
What is given beside a recipe wins. Where a command builds a model, an argument that is a field of `MiniBertConfig`
changes the model. What can be refused without torch and Transformers is refused before they are loaded.
"""

import argparse
import ast
import dataclasses
import difflib
import enum
import functools
import importlib.util
import json
import os
import re
import sys
import typing
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NoReturn

import yaml
from safetensors import SafetensorError

from ..arguments import argument
from ..files import lock_folder
from .commands import COMMANDS

NO_MEMORY = ("can't allocate memory", "Storage size calculation overflowed", "out of memory")
NOT_WRITTEN = ("PytorchStreamWriter", "inline_container", "iostream error", "(os error ")  # the last: `tokenizers`
LENGTHS = {"num_train_epochs", "max_steps", "minutes"}  # of a training; one given beside a recipe replaces its own
PLAIN = (str, int, float, list, dict, os.PathLike, type(None))  # what values can be; true and false are numbers
TEXTS = {"text", "words"}  # arguments of what is read; all others may be paths
# Packages that only some commands need, and what to install for them.
EXTRAS = {"peft": "peft", "onnx": "onnx onnxruntime", "onnxruntime": "onnx onnxruntime"}
PACKAGE = Path(__file__).parents[2]
TRANSFORMERS = Path(importlib.util.find_spec("transformers").origin).parent
# `import transformers` takes a second, which the module of its parser does not need.
_spec = importlib.util.spec_from_file_location("minibert_hf_argparser", TRANSFORMERS / "hf_argparser.py")
hf_argparser = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(hf_argparser)


def run_command(name: str, argv: Sequence[str] = (), given: Mapping[str, Any] | None = None) -> Any:
    """Run a command with the arguments of a command line or of a dictionary; returns what its function returns, and
    raises what `training.api` says."""
    module, _, function = COMMANDS[name].function.partition(":")
    try:
        instances = parse(name, argv, given)
        run = getattr(importlib.import_module(f"minibert.training.{module}"), function)
        with _output_of(name, instances):
            return run(*instances)
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        raise ModuleNotFoundError(
            f"this needs {error.name}: pip install {EXTRAS[error.name]}", name=error.name
        ) from error
    except Exception as error:
        said, hub = str(error), sys.modules.get("huggingface_hub.errors")
        if hub and isinstance(error, hub.StrictDataclassError):  # a config's refusal
            raise ValueError(said) from error
        # Errors of no class of their own, where it is the machine's limits, or a file's.
        if isinstance(error, MemoryError) or any(words in said for words in NO_MEMORY):
            what = "the memory is too small; use a smaller model, batch or seq_length"
        elif isinstance(error, SafetensorError) or any(words in said for words in NOT_WRITTEN):
            what = "a file could not be read or written; is the disk full, or the file damaged?"
        else:
            raise
        raise OSError(f"{what}: {' '.join(said.split())[:200]}") from error


def _output_of(name: str, instances: Sequence[Any]) -> AbstractContextManager:
    """Lock the output folder of a training or of `prepare`, in the first of several processes."""
    goes_on = name == "prepare" or (COMMANDS[name].training_defaults and not name.startswith("evaluate"))
    values = {key: value for each in instances if not isinstance(each, dict) for key, value in vars(each).items()}
    if not goes_on or values.get("plan") or int(os.environ.get("RANK", 0)) > 0:
        return nullcontext()
    return lock_folder(Path(values["output_dir"]))


def parse(name: str, argv: Sequence[str] = (), given: Mapping[str, Any] | None = None) -> list[Any]:
    """What the function of command `name` is called with.

    Args:
        argv: a command line, without the command.
        given: values by the arguments' names, from Python.

    Raises:
        ValueError: an unknown argument or recipe key (with close matches), a bad value, or one without effect.
    """
    command, known, given = COMMANDS[name], argument_names(name), _plain(given or {})
    # --no_… of the command line is refused below, where it belongs to no argument
    unknown = given.keys() - known | {each for each in _flags(argv) if not {each, each.removeprefix("no_")} & known}
    for each in sorted(unknown):
        raise _unknown_argument(name, each, known)
    named = {*_flags(argv), *(each for each, value in given.items() if value is not None)}

    parser = build_parser(name)
    path = given.pop("recipe", None) or parser.parse_known_args(argv)[0].recipe
    recipe = read_recipe(path, known - {"recipe"}) if path else {}
    if named & LENGTHS:
        recipe = {key: value for key, value in recipe.items() if key not in LENGTHS}
    chosen = recipe | given
    *instances, others, words = parser.read(argv, chosen)
    values = {field: value for instance in instances for field, value in vars(instance).items()}
    values |= {command.positional: words} if words and command.positional else {}
    if command.training_defaults is not None:
        from ..checkpoints import check_unused

        # A folder in use; what goes on in one is checked when it is trained.
        goes_on = str(values["resume_from_checkpoint"]).lower() not in ("none", "false")
        if not (name.startswith("evaluate") or values.get("plan") or values.get("compare") or goes_on):
            check_unused(Path(values["output_dir"]))
        *instances, others, words = build_parser(name, everything=True).read(argv, chosen)

    for word in words:
        if word.startswith("--"):  # such as --no_quick
            raise _unknown_argument(name, word[2:], known)
        if not command.positional:
            raise ValueError(f"unexpected {word!r}; use --NAME VALUE, of the names that 'minibert {name} --help' shows")
    words = words if command.positional in TEXTS else [*map(at_home, words)]
    if words and command.positional in named:
        raise ValueError(f"{command.positional}: given with and without --{command.positional}; give all in one way")
    for instance in instances if words else ():
        if hasattr(instance, command.positional):
            setattr(instance, command.positional, words)
    if command.config_overrides:
        fields = _config_fields() - values.keys()
        on_line = {field: _from_yaml(texts) for field, texts in vars(others).items() if field in fields}
        for field, value in on_line.items():
            if isinstance(value, list) and _flags(argv).count(field) > 1:  # as in `Parser.read`
                raise ValueError(f"{field}: --{field} is given twice; give all behind one")
        instances.append({field: value for field, value in chosen.items() if field in fields} | on_line)
    return instances


def _flags(argv: Sequence[str]) -> list[str]:
    """The names of the arguments on a command line."""
    return [word[2:].partition("=")[0].replace("-", "_") for word in argv if word.startswith("--")]


# --- the parser ---


@dataclasses.dataclass
class OutputArguments:
    """Those of `TrainingArguments` that are needed before torch is loaded."""

    output_dir: str = argument("", "Folder for all that is saved.")
    resume_from_checkpoint: str | None = argument(None, "true: go on with the run in --output_dir; or a checkpoint.")


class Parser(hf_argparser.HfArgumentParser):
    """`HfArgumentParser` that raises what it refuses, and reads dictionaries like command lines."""

    def _get_value(self, action: argparse.Action, text: str) -> Any:
        try:
            return super()._get_value(action, text if action.dest in TEXTS else at_home(text))
        except argparse.ArgumentError as error:
            # a flag needs no value, but takes the word behind it for one
            remedy = f"; put {text!r} in front of it, if it belongs elsewhere" if action.const is True else ""
            self.error(str(error).rstrip(".") + remedy)

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)

    def read(self, argv: Sequence[str], values: Mapping[str, Any]) -> Sequence[Any]:
        """Instances of the dataclasses, a namespace of the other arguments, and the words that belong to none.

        Those of the values that are fields of the dataclasses are checked as their text on the command line is, which
        wins over them. None is for arguments that are undecided by default, and leaves them so.
        """
        words, flags = [], _flags(argv)
        for action in self._actions:
            if action.nargs == "+" and flags.count(action.dest) > 1:  # argparse would drop the first list
                raise ValueError(f"{action.dest}: --{action.dest} is given twice; give all behind one")
        for field in (field for kind in self.dataclass_types for field in dataclasses.fields(kind)):
            value = values.get(field.name)
            value = value.value if isinstance(value, enum.Enum) else value
            is_list = isinstance(value, (list, tuple))
            found = list(value) if is_list else [value]
            if not found and field.name in ("data", "train", "validation", "test"):  # as of a glob that matches nothing
                raise ValueError(f"{field.name}: an empty list; give files, or leave it out")
            parts = [part for x in found for part in (x.values() if isinstance(x, dict) else [x])]
            if objects := [part for part in parts if not isinstance(part, PLAIN)]:
                raise ValueError(f"{field.name}: a {type(objects[0]).__name__}; save it, and give the folder's name")
            texts = [json.dumps(x) if isinstance(x, (bool, dict)) else str(x) for x in found]
            if value is None:
                if field.name in values and self.get_default(field.name) is not None:
                    raise ValueError(f"{field.name} has no value; leave it out to keep the default")
            elif typing.get_origin(field.type) is list:  # as words, a list would take those that follow for its own
                action = next(action for action in self._actions if action.dest == field.name)
                self.set_defaults(**{field.name: [self._get_value(action, text) for text in texts]})
            elif is_list:
                raise ValueError(f"{field.name}: {value!r} is a list; give one value")
            else:
                words.append(f"--{field.name}={texts[0]}")
        return self.parse_args_into_dataclasses([*words, *argv], True, look_for_args_file=False)


def build_parser(name: str, everything: bool = False) -> Parser:
    """The parser of a command; with `everything`, of the fields of `TrainingArguments` too, which imports torch."""
    command, kinds, epilog = COMMANDS[name], list(COMMANDS[name].arguments), ""
    defaults = command.training_defaults or {}
    if defaults and everything:
        import torch
        from transformers import TrainingArguments

        kinds.append(TrainingArguments)
        # Without use_cpu Transformers refuses --bf16 where there is no accelerator, before anything of ours is asked.
        defaults = {"use_cpu": not torch.accelerator.is_available()} | defaults
    elif defaults:
        kinds.append(OutputArguments)
        ours = ", ".join(f"{key} {value}" for key, value in defaults.items() if value is not None)
        model = ", and of MiniBertConfig (--hidden_size, --norm_type, …)" if command.config_overrides else ""
        epilog = (
            "Every field of transformers.TrainingArguments is an argument too (--max_steps, --learning_rate, …; our"
            f" defaults: {ours}){model}; --help-all shows them."
        )
        defaults = {"output_dir": defaults["output_dir"]}
    words = f" [{command.positional} …]" if command.positional else ""
    parser = Parser(
        kinds,
        prog=f"minibert {name}",
        usage=f"minibert {name}{words} [--recipe FILE] [--argument value …]",
        description=command.help,
        epilog=epilog,
        allow_abbrev=False,
    )
    ours = ", or the name of one of ours" if name == "pretrain" else ""
    parser.add_argument("--recipe", metavar="FILE", help=f"YAML file of arguments{ours}; the command line wins.")
    parser.set_defaults(**defaults)
    hint = "Of the model, in YAML." if everything else argparse.SUPPRESS
    taken = {action.dest for action in parser._actions}
    for each in sorted(_config_fields() - taken) if command.config_overrides else ():
        parser.add_argument(f"--{each}", f"--{each.replace('_', '-')}", nargs="*", default=argparse.SUPPRESS, help=hint)
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
        for line in statement.body if isinstance(statement, ast.ClassDef) and statement.name == class_name else ():
            if isinstance(line, ast.AnnAssign):
                names.add(line.target.id)
            elif isinstance(line, ast.Assign) and line.targets[0].id == "attribute_map":
                names |= ast.literal_eval(line.value).keys()
    return names


def _unknown_argument(command: str, name: str, known: set[str]) -> ValueError:
    matches = close_matches(name, known, "--") or close_matches(name.removeprefix("no_"), known, "--")
    return ValueError(f"unknown argument --{name} of 'minibert {command}'{matches}")


def close_matches(word: str, known: Iterable[str], prefix: str = "") -> str:
    matches = difflib.get_close_matches(word, sorted(known), n=3, cutoff=0.7)
    return f"; close matches: {', '.join(prefix + match for match in matches)}" if matches else ""


# --- values ---


def _plain(value: Any) -> Any:
    """NumPy's and torch's numbers and arrays, and the columns of tables, as Python's; also within lists."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [*map(_plain, value)] if isinstance(value, (list, tuple)) else value


def at_home(value: str) -> str:
    """A path with the home folder in the place of "~", which shells leave in `--data=~/text` and `de=~/text`."""
    language, equals, path = value.rpartition("=")
    return f"{language}{equals}{os.path.expanduser(path)}" if path.startswith("~/") else value


class _Yaml12Loader(yaml.SafeLoader):
    """Numbers and truth values of YAML 1.2. PyYAML reads YAML 1.1, which takes 1e-5 for a string, `no` for false, 1:30
    for 90 and 010 for 8."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":bool", ":int", ":float"))]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for key in (key for key in keys if keys.count(key) > 1):  # PyYAML takes the last, YAML allows none
            raise yaml.YAMLError(f"{key!r} is given twice")
        return super().construct_mapping(node, deep)


for _kind, _first, _pattern in (
    ("bool", "tTfF", r"(true|True|TRUE|false|False|FALSE)$"),
    ("int", "-+0123456789", r"([-+]?\d+|0o[0-7]+|0x[\da-fA-F]+)$"),
    ("float", "-+.0123456789", r"([-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$"),
):
    _Yaml12Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", re.compile(_pattern), _first)
_Yaml12Loader.add_constructor(
    "tag:yaml.org,2002:int", lambda _, node: int(node.value, 0 if node.value[:2] in ("0o", "0x") else 10)
)


def read_yaml(text: str | bytes, source: str) -> Any:
    try:
        return yaml.load(text, Loader=_Yaml12Loader)
    except yaml.YAMLError as error:
        raise ValueError(f"{source} is not YAML: {error}") from None


def _from_yaml(texts: Sequence[str]) -> Any:
    """The value of a model field on the command line: `null`, `[a, b]`, `{a: 1}`. Several are a list, none is true."""
    values = [read_yaml(text, repr(text)) for text in texts]
    return True if not values else values[0] if len(values) == 1 else values


def read_recipe(given: str | Path | Mapping[str, Any], known: set[str]) -> dict[str, Any]:
    """The arguments in a YAML file, or in the recipe of ours that has this name; or, from Python, a dictionary."""
    ours = {file.stem: file for file in (PACKAGE / "training/pretraining/recipes").glob("*.yaml")}
    if isinstance(given, Mapping):
        file, recipe = "recipe", dict(given)
    else:
        file = Path(at_home(str(given)))
        file = file if file.is_file() else ours.get(str(given))
        if file is None:
            raise ValueError(
                f"recipe: {str(given)!r} is no file{close_matches(str(given), ours)}; use a YAML file, or one of"
                f" {', '.join(sorted(ours))}"
            )
        recipe = read_yaml(file.read_bytes(), str(file)) or {}
    if not isinstance(recipe, dict):
        raise ValueError(f"recipe: {str(file)!r} is no list of 'argument: value' lines")
    for key in (key for key in recipe if key not in known):
        raise ValueError(f"{file}: unknown key {key!r}{close_matches(str(key), known)}")
    return recipe
