"""The command line `minibert`: a command is a public function, and its options are the parameters of that function.

`COMMANDS` says which function a command runs. The options, their types and defaults come from the function's signature,
their help from its docstring, and `HfArgumentParser` of Transformers reads them, together with the fields of a training
config where the command trains. Nothing heavy is imported before a command is known: `minibert --help` and
`minibert --version` answer at once.
"""

import contextlib
import dataclasses
import difflib
import glob
import importlib
import inspect
import json
import os
import re
import sys
import textwrap
import types
import typing
from argparse import SUPPRESS, ArgumentDefaultsHelpFormatter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

from .. import __version__
from .commands import COMMANDS, examples
from .files import printable, use_writable_cache

# Packages that only some commands need, and what installs them.
EXTRAS = {
    "peft": "peft",
    "onnx": "onnx onnxruntime",
    "onnxruntime": "onnx onnxruntime",
    "mteb": "mteb",
    "setfit": "setfit",
}
# In the names or texts of errors of libraries that are no fault of ours.
OUT_OF_MEMORY = ("MemoryError", "allocate memory", "Storage size calculation overflowed", "out of memory")
FOREIGN = ("SafetensorError", "PytorchStreamWriter", "(os error ", "PanicException", "StrictDataclass")
MOST_LEVELS = 20  # of a recipe
LENGTHS = {"num_train_epochs", "max_steps", "minutes"}  # of a training: one given beside a recipe replaces its own
RECIPES = Path(__file__).parent / "pretraining" / "recipes"
# Options whose values are files, folders or names of the Hub: one each, or several.
PATHS = {"file", "model", "model_name_or_path", "tokenizer", "extend", "miner", "embedder", "reranker", "source"}
LISTS = {"data", "train", "validation", "test", "corpus"}
SUFFIXES = (".txt", ".json", ".jsonl", ".ndjson", ".jsonlines", ".csv", ".tsv", ".parquet")
# What other programs call options that Transformers has under another name.
USUAL = {"epochs": "num_train_epochs", "lr": "learning_rate", "batch_size": "per_device_train_batch_size"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (by default the process's own) and return the exit status.

    Bad input, a file that cannot be read or written and a package that is missing give one line and 2; `--traceback`
    shows where it came from. Of several processes (torchrun, accelerate launch) only the first prints.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    # Libraries' progress bars and notes would bury our tables; a variable that is set already stays.
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    if hasattr(sys.stdout, "reconfigure"):  # on Windows and old terminals, many cannot show an arrow
        sys.stdout.reconfigure(errors="backslashreplace")
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="strict")
    try:
        " ".join(argv).encode()  # refuses what Python makes of bytes that are not UTF-8, which no tokenizer takes
        use_writable_cache()
        first = int(os.environ.get("RANK", 0)) == 0
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(sys.stdout if first else nowhere):
            run([word for word in argv if word != "--traceback"])
        # A process that ends with its group open may be aborted (pytorch#190489), and the launcher then kills others
        # that may still be saving. Not after an error: they could wait for each other.
        distributed = sys.modules.get("torch.distributed")
        if distributed and distributed.is_available() and distributed.is_initialized():
            distributed.destroy_process_group()
        return 0
    except BaseException as error:
        said = explain(error)
        if said is None or "--traceback" in argv:
            raise
        print(f"minibert: {printable(said)}", file=sys.stderr)
        return 130 if isinstance(error, KeyboardInterrupt) else 2


def explain(error: BaseException) -> str | None:
    """The line for an error that the user can do something about; None for a fault of ours."""
    said, name = " ".join(str(error).split()), type(error).__name__
    if isinstance(error, KeyboardInterrupt):
        return "interrupted; a training goes on with --resume_from_checkpoint true"
    if isinstance(error, ModuleNotFoundError) and error.name in EXTRAS:
        return f"error: this needs {error.name}: pip install {EXTRAS[error.name]}"
    if isinstance(error, (ValueError, OSError, ImportError)):
        return f"error: {said}"
    if any(mark in f"{name} {said}" for mark in OUT_OF_MEMORY):
        return f"error: the memory is too small; use a smaller model, batch or seq_length: {said[:200]}"
    return f"error: {name}: {said[:200]}" if any(mark in f"{name} {said}" for mark in FOREIGN) else None


def run(argv: Sequence[str]) -> None:
    """Run a command line."""
    if argv[:1] in ([], ["-h"], ["--help"]) or (argv[1:] in (["-h"], ["--help"]) and argv[0] not in COMMANDS):
        return print(overview())
    if argv[0] == "--version":
        return print(f"minibert {__version__}")
    name, rest = split_command(argv)
    if {"-h", "--help"} & {*rest}:
        return build_parser(name).print_help()
    check_paths(name, rest)
    function, keywords = parse(name, rest)
    function(**keywords)


def split_command(argv: Sequence[str]) -> tuple[str, list[str]]:
    """The command, of one word or of two ("finetune tag"), and what follows it."""
    for words in (2, 1):
        name = " ".join(argv[:words])
        if name in COMMANDS:
            return name, list(argv[words:])
    if tasks := [name.split()[1] for name in COMMANDS if name.startswith(f"{argv[0]} ")]:
        problem = f"Unknown task {argv[1]!r}" if argv[1:] else "Missing task"
        raise ValueError(f"minibert {argv[0]}: {problem}. Choose one of: {', '.join(tasks)}")
    raise ValueError(f"unknown command {argv[0]!r}{close_matches(argv[0], COMMANDS)}; `minibert --help` shows them all")


def check_paths(name: str, argv: Sequence[str]) -> None:
    """Refuse (a ValueError) a missing file before the imports of seconds that the command needs. What may be a glob or
    a name of the Hub is left to the command."""
    option = "".join(COMMANDS[name].positional[:1])
    for word in argv:
        if word.startswith("--"):
            option, _, word = word[2:].partition("=")
        path = word if os.path.exists(word) else word.rpartition("=")[2]  # de=file.txt
        local = option == "file" or path.startswith((".", "/", "~")) or path.count("/") > 1 or path.endswith(SUFFIXES)
        missing = local and path not in ("", "-") and not glob.has_magic(path)
        if option in PATHS | LISTS and missing and not os.path.exists(os.path.expanduser(path)):
            raise ValueError(f"{option}: {path!r} does not exist")
        if word and option not in LISTS:
            option = ""  # it has its value


def overview() -> str:
    """The commands, each with its one-line help."""
    lines = [f"  {name:19}{command.help}" for name, command in COMMANDS.items()]
    last = "`minibert COMMAND --help` shows its options; --version; --traceback shows where an error came from."
    return "\n".join(["usage: minibert COMMAND [options]", "", "commands:", *lines, "", last])


def close_matches(word: str, known: Iterable[str], prefix: str = "") -> str:
    matches = [USUAL[word]] if USUAL.get(word) in known else difflib.get_close_matches(word, sorted(known), 3, 0.7)
    return f"; close matches: {', '.join(prefix + match for match in matches)}" if matches else ""


# --- from a signature to options ---


def load(reference: str) -> Any:
    """The function or class of "module:name"."""
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(f"minibert.training.{module}"), name)


def options_of(callables: Iterable[Callable], positional: Sequence[str], skipped: Iterable[str]) -> type:
    """A dataclass of the parameters that a command line can give: its help from the docstrings. Parameters of other
    types (a model, a Dataset) are for Python alone."""
    fields = {}
    for each in callables:
        help_of = describe_parameters(each)
        hints = typing.get_type_hints(each.__init__ if inspect.isclass(each) else each)
        for name, parameter in inspect.signature(each).parameters.items():
            kind, default = option_type(hints.get(name)), parameter.default
            if kind is None or name in skipped:
                continue
            options = {"metadata": {"help": help_of.get(name, "").replace("%", "%%")}, "kw_only": True}
            if isinstance(default, (list, tuple)):
                options["default_factory"] = [*default].copy
            elif default is not parameter.empty or name in positional:
                options["default"] = None if default is parameter.empty else default
                kind = kind | None if options["default"] is None else kind
            fields.setdefault(name, (name, kind, dataclasses.field(**options)))
    return dataclasses.make_dataclass("Options", fields.values())


def option_type(hint: Any) -> Any:
    """What `HfArgumentParser` can make of a value (str, int, float, bool, a Literal or a list of such), or None."""
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    parts = [part for part in (typing.get_args(hint) if union else (hint,)) if part is not type(None)]
    for part in parts:
        if typing.get_origin(part) in (list, Sequence, Iterable):
            return list[option_type(typing.get_args(part)[0])]
    if len(parts) == 1 and (parts[0] is bool or typing.get_origin(parts[0]) is Literal):
        return parts[0]
    return next((kind for kind in (str, float, int) if kind in parts), None)


def describe_parameters(function: Callable) -> dict[str, str]:
    """The help of each parameter: the entries of the docstring's section `Args:`."""
    section = re.search(r"^Args:\n(.*?)(?=^\S|\Z)", inspect.getdoc(function) or "", re.MULTILINE | re.DOTALL)
    entries = re.split(r"^(\w+)(?: \([^)]*\))?:", textwrap.dedent(section[1]) if section else "", flags=re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in zip(entries[1::2], entries[2::2])}


# --- the parser ---


class HelpFormatter(ArgumentDefaultsHelpFormatter):
    def _get_help_string(self, action):
        return action.help if action.default in (None, SUPPRESS, []) else super()._get_help_string(action)

    def _fill_text(self, text, width, indent):
        return text  # its lines are commands


class EachOptionOnce:
    """A parser to which `HfArgumentParser` adds options under one spelling each: no dashes, no `--no_…`."""

    def __init__(self, parser: Any):
        self.parser = parser

    def add_argument(self, name: str, *others: str, **options: Any) -> None:
        if options.get("action") == "store_false":
            return
        if getattr(options.get("type"), "__name__", "") == "string_to_bool":
            options |= {"nargs": "?", "const": True}
        self.parser.add_argument(name, **options)


def build_parser(name: str) -> Any:
    """The parser of a command. The help names fields of Transformers' own classes only."""
    from transformers import HfArgumentParser

    class Parser(HfArgumentParser):
        @staticmethod
        def _parse_dataclass_field(parser, field):
            HfArgumentParser._parse_dataclass_field(EachOptionOnce(parser), field)

        def error(self, message: str) -> NoReturn:
            raise ValueError(message)

    command, inherited = COMMANDS[name], []
    epilog = "\n  ".join(["examples:", *examples(name)])
    callables, skipped = map(load, [command.function, *command.options]), {*command.preset}
    kinds = [options_of(callables, command.positional, skipped | ({"args"} if command.config else set()))]
    if command.config:
        kinds.append(load(command.config))
        ours = [kind for kind in kinds[1].__mro__ if kind.__module__.startswith("minibert.")]
        own = {*command.shown} or {key for kind in ours for key in inspect.get_annotations(kind)}
        inherited = [field.name for field in dataclasses.fields(kinds[1]) if field.name not in own]
        if inherited and not command.shown:
            names = textwrap.fill(" ".join(f"--{each}" for each in inherited), 100, break_on_hyphens=False)
            epilog += "\n\nother options, described in the documentation of transformers.TrainingArguments:\n"
            epilog += textwrap.indent(names, "  ")
    words = "".join(f" [{each.upper()}]" for each in command.positional)
    usage = f"minibert {name}{words} [--recipe FILE] [--option VALUE …]"
    more = dict(description=command.help, epilog=epilog, formatter_class=HelpFormatter, allow_abbrev=False)
    parser = Parser(kinds, prog=f"minibert {name}", usage=usage, **more)
    named = ", or the name of a recipe of MiniBERT" if name == "pretrain" else ""
    parser.add_argument(
        "--recipe", metavar="FILE", help=f"YAML file of options{named}; options beside it take precedence."
    )
    parser.set_defaults(**command.defaults)
    for action in parser._actions:
        if action.dest in inherited:
            action.help = SUPPRESS
    return parser


def parse(name: str, argv: Sequence[str]) -> tuple[Callable, dict[str, Any]]:
    """The function of a command and the keywords that it is called with."""
    command, parser = COMMANDS[name], build_parser(name)
    actions = {action.dest: action for action in parser._actions}
    given = [word[2:].partition("=")[0] for word in argv if word.startswith("--")]
    for each in given:
        if each not in actions:
            raise ValueError(f"unknown option --{each} of 'minibert {name}'{close_matches(each, actions, '--')}")
        if actions[each].nargs == "+" and given.count(each) > 1:  # argparse would drop the first list
            raise ValueError(f"--{each} is given twice; give all its values behind one")
    if path := parser.parse_known_args(argv)[0].recipe:
        recipe = read_recipe(path)
        if unknown := [key for key in recipe if key not in actions or key == "recipe"]:
            raise ValueError(f"{path}: unknown key {unknown[0]!r}{close_matches(unknown[0], actions)}")
        if LENGTHS & {*given}:
            recipe = {key: value for key, value in recipe.items() if key not in LENGTHS}
        parser.set_defaults(**{key: None for key, value in recipe.items() if value is None})
        argv = [*words_of(recipe, actions), *argv]
    options, *others, words = parser.parse_args_into_dataclasses(argv, True, look_for_args_file=False)
    keywords = command.preset | vars(options) | ({"args": others[0]} if command.config else {})
    required = inspect.signature(load(command.function)).parameters
    for each in command.positional:
        if words:
            is_list = actions[each].nargs == "+"
            keywords[each], words = (words, []) if is_list else (words[0], words[1:])
        if keywords[each] is None and required[each].default is inspect.Parameter.empty:
            raise ValueError(f"missing {each.upper()}; usage: {parser.usage}")
    if words:
        raise ValueError(f"unexpected {words[0]!r}; usage: {parser.usage}")
    return load(command.function), keywords


# --- recipes ---


def read_recipe(path: str) -> dict[str, Any]:
    """The options in a YAML file, or in the recipe of ours that has this name: scalars as text, as on the command line
    (`no`, `1e-5`), mappings and null as YAML reads them."""
    import yaml

    ours = {file.stem: file for file in RECIPES.glob("*.yaml")}
    file = Path(path) if Path(path).is_file() else ours.get(path)
    if file is None:
        known = f"use a YAML file, or one of {', '.join(sorted(ours))}"
        raise ValueError(f"recipe: there is no file {path!r}{close_matches(path, ours)}; {known}")
    text, level = file.read_bytes(), 0
    try:
        for event in yaml.parse(text, yaml.SafeLoader):
            level += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if isinstance(event, yaml.AliasEvent) or level > MOST_LEVELS:
                use = "write the values out"
                raise ValueError(f"recipe: {path!r} has aliases (*), or more than {MOST_LEVELS} levels; {use}")
        values, texts = yaml.safe_load(text) or {}, yaml.load(text, Loader=yaml.BaseLoader)
    except yaml.YAMLError as error:
        raise ValueError(f"recipe: {path!r} is not YAML: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"recipe: {path!r} has no 'option: value' lines")
    return {str(key): value if isinstance(value, dict | None) else texts[str(key)] for key, value in values.items()}


def words_of(recipe: dict[str, Any], actions: dict[str, Any]) -> list[str]:
    """A recipe as words of a command line that more can follow: the last list ends where `--recipe=` begins."""
    lists, words = [], ["--recipe="]
    for key, value in recipe.items():
        if isinstance(value, list):
            if actions[key].nargs != "+":
                raise ValueError(f"{key}: {value!r} is a list; give one value")
            lists += [f"--{key}", *map(str, value)]
        elif value is not None:
            words.append(f"--{key}={json.dumps(value) if isinstance(value, dict) else value}")
    return lists + words


if __name__ == "__main__":
    sys.exit(main())
