"""The console command `minibert`: how the arguments of a command in `commands` are read, and how it is run.

A command line is read into the dataclasses of `arguments`, and where a command trains also into
`transformers.TrainingArguments`. A recipe (`--recipe FILE`) is a command line written as YAML: its keys are argument
names, and what stands on the command line itself wins. Where a command builds a model, an argument that is a field of
`MiniBertConfig` changes the model. Anything else is refused. Only running a command imports torch; `--help` does not.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import importlib
import json
import os
import re
import sys
from argparse import ArgumentDefaultsHelpFormatter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import yaml
from huggingface_hub.errors import StrictDataclassError
from transformers.hf_argparser import HfArgumentParser

from .commands import COMMANDS
from .unused_arguments import refuse_idle

# Packages that only some commands need, and the extra that installs them.
EXTRAS = {"peft": "peft", "sentence_transformers": "sentence-transformers"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (by default the process's own) and return the exit status.

    Bad input (ValueError, OSError, a refused model field) is printed as one line and gives 2; `--traceback` shows
    where it came from instead.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    traceback = "--traceback" in argv
    try:
        with _one_voice():
            return run([argument for argument in argv if argument != "--traceback"])
    except KeyboardInterrupt:
        if traceback:
            raise
        print("\nminibert: interrupted; what was saved until now is where it was", file=sys.stderr)
        return 130
    except (ValueError, OSError, StrictDataclassError) as error:
        if traceback:
            raise
        print(f"minibert: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if traceback or error.name not in EXTRAS:
            raise
        extra = EXTRAS[error.name]
        print(f'minibert: error: this needs {error.name}: pip install "minibert[{extra}]"', file=sys.stderr)
        return 2


@contextlib.contextmanager
def _one_voice() -> Iterator[None]:
    """Of several processes (torchrun, accelerate launch) only the first one prints."""
    if int(os.environ.get("RANK", 0)) == 0:
        yield
        return
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def run(argv: list[str]) -> int:
    """Run a command line; errors are raised."""
    if not argv or argv[0] in ("-h", "--help"):
        print(overview())
        return 0
    if argv[1:2] in (["-h"], ["--help"]) and argv[0] not in COMMANDS and argv[0] in {c.split()[0] for c in COMMANDS}:
        print(overview(argv[0]))
        return 0
    name, rest = split_command(argv)
    if "-h" in rest or "--help" in rest:
        build_parser(name).print_help()
        return 0
    if "--help-all" in rest:
        build_parser(name, everything=True).print_help()
        return 0
    module, _, function = COMMANDS[name].function.partition(":")
    instances = parse(name, rest)
    result = getattr(importlib.import_module(module), function)(*instances)
    return result if isinstance(result, int) else 0


def split_command(argv: list[str]) -> tuple[str, list[str]]:
    """The command, of one word or of two ("finetune tag"), and what follows it."""
    for words in (2, 1):
        name = " ".join(argv[:words])
        if name in COMMANDS:
            return name, argv[words:]
    of_group = [name for name in COMMANDS if name.split()[0] == argv[0]]
    if of_group:
        given = f"{argv[1]!r} is none of" if argv[1:] else "which? Legal:"
        raise ValueError(f"minibert {argv[0]}: {given} {', '.join(name.split()[1] for name in of_group)}")
    raise ValueError(f"unknown command {argv[0]!r}{_close(argv[0], COMMANDS)}; legal: {', '.join(COMMANDS)}")


def overview(group: str | None = None) -> str:
    """What `minibert --help` prints, or `minibert GROUP --help` (as of "finetune") of its commands."""
    shown = {name: command for name, command in COMMANDS.items() if group in (None, name.split()[0])}
    width = max(map(len, shown))
    lines = [f"  {name:{width}}  {command.help}" for name, command in shown.items()]
    return "\n".join(
        [
            f"usage: minibert {group} TASK [arguments]" if group else "usage: minibert COMMAND [arguments]",
            "",
            "commands:",
            *lines,
            "",
            "minibert COMMAND --help shows its arguments; --traceback shows where an error came from.",
        ]
    )


def parse(name: str, argv: Sequence[str]) -> list[Any]:
    """The arguments that the function of command `name` is called with.

    Raises:
        ValueError: an unknown argument or recipe key (with close matches), an illegal value, or one without effect.
    """
    command = COMMANDS[name]
    parser = build_parser(name, everything=True)
    legal = {
        field.name
        for dataclass_type in parser.dataclass_types
        for field in dataclasses.fields(dataclass_type)
        if field.init
    }
    config_fields = _config_fields() - legal if command.config_overrides else set()
    legal |= config_fields

    recipe = _Parser(add_help=False, allow_abbrev=False)
    recipe.add_argument("--recipe")
    given, argv = recipe.parse_known_args(list(argv))
    on_line, recipe_argv = _named(argv), []
    if given.recipe:
        recipe_argv = _recipe_as_arguments(given.recipe, legal, on_line, nullable=config_fields)
    argv = recipe_argv + argv

    *instances, _, rest = parser.parse_args_into_dataclasses(
        argv, return_remaining_strings=True, look_for_args_file=False
    )
    words, unknown = _sort_rest(rest)
    for flag in unknown:
        if flag not in config_fields:
            raise ValueError(f"unknown argument --{flag} of 'minibert {name}'{_close(flag, legal, '--')}")
    if words and not command.positional:
        raise ValueError(f"unexpected {words[0]!r}: 'minibert {name}' takes arguments with a --name only")
    for instance in instances:
        if words and hasattr(instance, command.positional):
            setattr(instance, command.positional, words)
    values = {name: value for instance in instances for name, value in vars(instance).items()}
    refuse_idle(command.conditions, values, on_line, _named(recipe_argv))
    if command.config_overrides:
        instances.append({field: _override(values) for field, values in unknown.items()})
    return instances


class _Parser(HfArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def build_parser(name: str, everything: bool = False) -> HfArgumentParser:
    """The parser of a command; with `everything`, the fields of `TrainingArguments` too, which imports torch."""
    command = COMMANDS[name]
    trains = command.training_defaults is not None
    words = f" [{command.positional} …]" if command.positional else ""
    epilog = []
    if trains:
        ours = ", ".join(f"{key} {value}" for key, value in command.training_defaults.items() if value is not None)
        epilog.append(
            "Every field of transformers.TrainingArguments is an argument too (--max_steps, --learning_rate, …;"
            f" our defaults: {ours}); --help-all shows them."
        )
    if command.config_overrides:
        listed = ", ".join(sorted(_config_fields())) if everything else "--hidden_size, --norm_type, …"
        epilog.append(f"So is every field of MiniBertConfig, to change the model ({listed}).")
    dataclass_types = list(command.arguments)
    if trains and everything:
        from transformers import TrainingArguments

        dataclass_types.append(TrainingArguments)
    parser = _Parser(
        dataclass_types,
        prog=f"minibert {name}",
        usage=f"minibert {name}{words} [--recipe FILE] [--argument value …]",
        description=command.help[0].upper() + command.help[1:] + ".",
        epilog=" ".join(epilog),
        formatter_class=ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--recipe", metavar="FILE", help="YAML file of arguments, or the name of one of ours; the command line wins."
    )
    if trains and everything:
        import torch

        # Without it Transformers refuses --bf16 where there is no accelerator, before anything of ours is asked.
        parser.set_defaults(use_cpu=not torch.accelerator.is_available(), **command.training_defaults)
    return parser


# How long a training is can be said in one of these ways only.
LENGTHS = {"num_train_epochs", "max_steps", "minutes"}


def _named(argv: Iterable[str]) -> set[str]:
    """The arguments that a command line names."""
    return {word[2:].partition("=")[0].replace("-", "_") for word in argv if word.startswith("--")}


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


def _recipe_as_arguments(path: str, legal: set[str], named: set[str], nullable: set[str]) -> list[str]:
    """A recipe as the command line that says the same, so that both are checked alike.

    Args:
        named: arguments on the real command line. One of `LENGTHS` there replaces those of the recipe.
    """
    ours = {file.stem: file for file in (Path(__file__).parents[1] / "pretraining" / "recipes").glob("*.yaml")}
    if not Path(path).is_file():
        if path not in ours:
            raise ValueError(
                f"recipe: {path!r} is no file{_close(path, ours)}; legal: a YAML file, {', '.join(sorted(ours))}"
            )
        path = str(ours[path])
    recipe = _read_yaml(Path(path).read_text(encoding="utf-8"), path) or {}
    if not isinstance(recipe, dict):
        raise ValueError(f"recipe: {path!r} is no list of 'argument: value' lines")
    argv = []
    for key, value in recipe.items():
        if key not in legal:
            raise ValueError(f"{path}: unknown key {key!r}{_close(str(key), legal)}")
        if key in LENGTHS and named & LENGTHS:
            continue
        if value is None and key not in nullable:
            raise ValueError(f"{path}: {key} has no value; leave it out to keep the default")
        if isinstance(value, list):
            argv += [f"--{key}", *map(_as_text, value)]
        else:
            argv.append(f"--{key}={_as_text(value)}")
    return argv


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _sort_rest(rest: Iterable[str]) -> tuple[list[str], dict[str, list[str]]]:
    """What the parser left over: words, and unknown flags with the words that follow each."""
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


def _override(values: list[str]) -> Any:
    """The value of a model field, in YAML: `null`, `[a, b]`, `{a: 1}`. Several words are a list, none is true."""
    read = [_read_yaml(value, repr(value)) for value in values]
    return True if not read else read[0] if len(read) == 1 else read


def _config_fields() -> set[str]:
    """The names that change a model: MiniBertConfig's own fields and their aliases."""
    from transformers import PreTrainedConfig

    from ...configuration_minibert import MiniBertConfig

    inherited = {field.name for field in dataclasses.fields(PreTrainedConfig)}
    return {field.name for field in dataclasses.fields(MiniBertConfig)} - inherited | set(MiniBertConfig.attribute_map)


def _close(word: str, legal: Iterable[str], prefix: str = "") -> str:
    matches = difflib.get_close_matches(word, sorted(legal), n=3, cutoff=0.7)
    return f"; close matches: {', '.join(prefix + match for match in matches)}" if matches else ""
