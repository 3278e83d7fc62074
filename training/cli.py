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
from .commands import COMMANDS
from .files import printable, use_writable_cache

# Libraries' progress bars and notes would bury our tables; a variable that is set already stays.
QUIET = {"HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "TRANSFORMERS_VERBOSITY": "error"}
# Packages that only some commands need, and what installs them.
EXTRAS = {"peft": "peft", "onnx": "onnx onnxruntime", "onnxruntime": "onnx onnxruntime", "mteb": "mteb"}
OUT_OF_MEMORY = ("can't allocate memory", "Storage size calculation overflowed", "out of memory")
LENGTHS = {"num_train_epochs", "max_steps", "minutes"}  # of a training: one given beside a recipe replaces its own
RECIPES = Path(__file__).parent / "pretraining" / "recipes"
# Options whose values are folders or names of the Hub; files, globs or such; and what the names of files end in.
PATHS = {"file", "model", "model_name_or_path", "tokenizer", "extend", "miner", "embedder", "reranker", "source"}
LISTS = {"data", "train", "validation", "test", "corpus"}
SUFFIXES = (".txt", ".json", ".jsonl", ".ndjson", ".jsonlines", ".csv", ".tsv", ".parquet")
# What other programs call options that Transformers has under another name.
USUAL = {"epochs": "num_train_epochs", "lr": "learning_rate", "batch_size": "per_device_train_batch_size"}
UNIONS = (typing.Union, types.UnionType)
MOST_BYTES, MOST_LEVELS = 1_000_000, 20  # of a recipe


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (by default the process's own) and return the exit status.

    Bad input, a file that cannot be read or written and a package that is missing give one line and 2; `--traceback`
    shows where it came from. Of several processes (torchrun, accelerate launch) only the first prints.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    if hasattr(sys.stdout, "reconfigure"):  # on Windows and old terminals, many cannot show an arrow
        sys.stdout.reconfigure(errors="backslashreplace")
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="strict")
    words = [word for word in argv if word != "--traceback"]
    try:
        " ".join(argv).encode()  # refuses what Python makes of bytes that are not UTF-8, which no tokenizer takes
        use_writable_cache()
        first = int(os.environ.get("RANK", 0)) == 0
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(sys.stdout if first else nowhere):
            status = run(words)
        # A process that ends with its group open may be aborted (pytorch#190489), and the launcher then kills others
        # that may still be saving. Not after an error: they could wait for each other.
        distributed = sys.modules.get("torch.distributed")
        if distributed and distributed.is_available() and distributed.is_initialized():
            distributed.destroy_process_group()
        return status
    except BaseException as error:
        said = explain(error, words)
        if said is None or "--traceback" in argv:
            raise
        print(f"minibert: {printable(said)}", file=sys.stderr)
        return 130 if isinstance(error, KeyboardInterrupt) else 2


def explain(error: BaseException, words: Sequence[str]) -> str | None:
    """The line for an error that the user can do something about; None for a fault of ours."""
    said, hub, kind = " ".join(str(error).split()), sys.modules.get("huggingface_hub.errors"), type(error)
    if isinstance(error, KeyboardInterrupt):
        trains = words[:1] in (["pretrain"], ["finetune"])
        use = "add --resume_from_checkpoint true to go on from the last checkpoint" if trains else "run it again"
        return f"interrupted; {use}"
    if isinstance(error, ModuleNotFoundError) and error.name in EXTRAS:
        return f"error: this needs {error.name}: pip install {EXTRAS[error.name]}"
    if isinstance(error, (ValueError, OSError, ImportError)) or (hub and isinstance(error, hub.StrictDataclassError)):
        return f"error: {said}"
    if isinstance(error, MemoryError) or any(words in said for words in OUT_OF_MEMORY):
        return f"error: the memory is too small; use a smaller model, batch or seq_length: {said[:200]}"
    if kind.__name__ == "SafetensorError" or any(x in said for x in ("PytorchStreamWriter", "(os error ")):
        return f"error: a file could not be read or written; is the disk full, or the file damaged? {said[:200]}"
    if kind.__module__ == "pyo3_runtime":  # PanicException of `tokenizers`, no Exception
        return f"error: the tokenizer cannot be used; is its file damaged? {said[:200]}"
    return None


def run(argv: Sequence[str]) -> int:
    """Run a command line; the exit status."""
    group = argv[0] if argv and argv[0] not in COMMANDS and tasks_of(argv[0]) else None
    if argv[:1] in ([], ["-h"], ["--help"]) or (group and argv[1:2] in (["-h"], ["--help"])):
        print(overview(group))
        return 0
    if argv[0] == "--version":
        print(f"minibert {__version__}")
        return 0
    name, rest = split_command(argv)
    if {"-h", "--help", "--help_all"} & {*rest}:
        build_parser(name, everything="--help_all" in rest).print_help()
        return 0
    check_paths(name, rest)
    function, keywords = parse(name, rest)
    function(**keywords)
    return 0


def split_command(argv: Sequence[str]) -> tuple[str, list[str]]:
    """The command, of one word or of two ("finetune tag"), and what follows it."""
    for words in (2, 1):
        name = " ".join(argv[:words])
        if name in COMMANDS:
            return name, list(argv[words:])
    if tasks := tasks_of(argv[0]):
        problem = f"Unknown task {argv[1]!r}" if argv[1:] else "Missing task"
        raise ValueError(f"minibert {argv[0]}: {problem}. Choose one of: {', '.join(tasks)}")
    raise ValueError(f"unknown command {argv[0]!r}{close_matches(argv[0], COMMANDS)}; `minibert --help` shows them all")


def check_paths(name: str, argv: Sequence[str]) -> None:
    """Refuse (a ValueError) a missing file before the imports of seconds that the command needs. What may be a glob or
    a name of the Hub is left to the command."""
    options = [*COMMANDS[name].positional]
    for word in argv:
        if word.startswith("--"):
            options, sign, word = [word[2:].partition("=")[0]], *word.partition("=")[1:]
            if not sign:
                continue
        option = options[0] if options else ""
        options = options if option in LISTS else options[1:]
        path = word if os.path.exists(word) else word.rpartition("=")[2]  # de=file.txt
        local = option == "file" or path.startswith((".", "/", "~")) or path.count("/") > 1 or path.endswith(SUFFIXES)
        missing = local and path != "-" and not glob.has_magic(path) and not os.path.exists(os.path.expanduser(path))
        if missing and option in PATHS | LISTS:
            raise ValueError(f"{option}: {path!r} does not exist")


def tasks_of(group: str) -> list[str]:
    """The second words of the commands that begin with `group` ("finetune")."""
    return [name.split()[1] for name in COMMANDS if name.startswith(f"{group} ")]


def overview(group: str | None = None) -> str:
    """The commands, or those of a group, each with its one-line help."""
    shown = {name: command.help for name, command in COMMANDS.items() if group in (None, name.split()[0])}
    width = max(map(len, shown))
    lines = [f"  {name:{width}}  {help}" for name, help in shown.items()]
    usage = f"usage: minibert {group} TASK [options]" if group else "usage: minibert COMMAND [options]"
    last = "`minibert COMMAND --help` shows its options; --version; --traceback shows where an error came from."
    return "\n".join([usage, "", "commands:", *lines, "", last])


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
            kind = option_type(hints.get(name))
            if kind is None or name in skipped or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            default = None if name in positional and parameter.default is parameter.empty else parameter.default
            metadata = {"help": help_of.get(name, "").replace("%", "%%")}
            if default is parameter.empty:
                field = dataclasses.field(metadata=metadata, kw_only=True)
            elif isinstance(default, (list, tuple)):
                field = dataclasses.field(default_factory=[*default].copy, metadata=metadata, kw_only=True)
            else:
                kind = kind | None if default is None else kind
                field = dataclasses.field(default=default, metadata=metadata, kw_only=True)
            fields.setdefault(name, (name, kind, field))
    return dataclasses.make_dataclass("Options", fields.values())


def option_type(hint: Any) -> Any:
    """What `HfArgumentParser` can make of a value (str, int, float, bool, a Literal or a list of such), or None."""
    parts = typing.get_args(hint) if typing.get_origin(hint) in UNIONS else (hint,)
    parts = [part for part in parts if part is not type(None)]
    for part in parts:
        if typing.get_origin(part) in (list, tuple, Sequence, Iterable):
            element = option_type(typing.get_args(part)[0])
            return element and list[element]
    if len(parts) == 1 and (parts[0] is bool or typing.get_origin(parts[0]) is Literal):
        return parts[0]
    classes = [part for part in parts if inspect.isclass(part)]
    if any(issubclass(each, (str, os.PathLike)) or each is os.PathLike for each in classes):
        return str
    return next((kind for kind in (float, int) if kind in classes), None)


def describe_parameters(function: Callable) -> dict[str, str]:
    """The help of each parameter: the entries of the docstring's section `Args:`."""
    section = re.search(r"^Args:\n(.*?)(?=^\S|\Z)", inspect.getdoc(function) or "", re.MULTILINE | re.DOTALL)
    entries = re.split(r"^(\w+)(?: \([^)]*\))?:", textwrap.dedent(section[1]) if section else "", flags=re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in zip(entries[1::2], entries[2::2])}


# --- the parser ---


class HelpFormatter(ArgumentDefaultsHelpFormatter):
    def _get_help_string(self, action):
        says_nothing = action.default in (None, SUPPRESS) or action.default == []
        return action.help if says_nothing else super()._get_help_string(action)

    def _fill_text(self, text, width, indent):
        return text if "\n" in text else super()._fill_text(text, width, indent)


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


def build_parser(name: str, everything: bool = False) -> Any:
    """The parser of a command. Fields of Transformers' own classes are named only, unless `everything` is shown."""
    from transformers import HfArgumentParser, TrainingArguments

    class Parser(HfArgumentParser):
        @staticmethod
        def _parse_dataclass_field(parser, field):
            HfArgumentParser._parse_dataclass_field(EachOptionOnce(parser), field)

        def error(self, message: str) -> NoReturn:
            raise ValueError(message)

    command = COMMANDS[name]
    function = load(command.function)
    skipped = {*command.preset, *(["args"] if command.config else [])}
    kinds = [options_of([function, *map(load, command.options)], command.positional, skipped)]
    inherited, epilog = [], f"examples:\n{textwrap.indent(command.examples, '  ')}" if command.examples else ""
    if command.config:
        config = load(command.config)
        config._argument_group_name = "training"
        own = {
            key
            for kind in config.__mro__
            if kind.__module__.startswith("minibert.")
            for key in inspect.get_annotations(kind)
        }
        inherited = [field.name for field in dataclasses.fields(config) if field.name not in own]
        kinds.append(config)
        if not everything:
            names = textwrap.fill(" ".join(f"--{each}" for each in inherited), 100, break_on_hyphens=False)
            epilog += f"\n\nalso, of Transformers ({TrainingArguments.__name__}; --help_all shows what they do):\n"
            epilog += textwrap.indent(names, "  ")
    words = "".join(f" [{each.upper()}]" for each in command.positional)
    parser = Parser(
        kinds, prog=f"minibert {name}", usage=f"minibert {name}{words} [--recipe FILE] [--option VALUE …]",
        description=command.help, epilog=epilog, formatter_class=HelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    ours = ", or the name of one of ours" if name == "pretrain" else ""
    parser.add_argument("--recipe", metavar="FILE", help=f"YAML file of options{ours}; options beside it win.")
    parser.set_defaults(**command.defaults)
    for action in parser._actions:
        if action.dest in inherited and not everything:
            action.help = SUPPRESS
    return parser


def parse(name: str, argv: Sequence[str]) -> tuple[Callable, dict[str, Any]]:
    """The function of a command and the keywords that it is called with.

    Raises:
        ValueError: an unknown option (with close matches), a bad or a missing value.
    """
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
        argv = [*words_of({key: value for key, value in recipe.items() if value is not None}, actions), *argv]
    options, *others = parser.parse_args_into_dataclasses(argv, True, look_for_args_file=False)
    keywords = command.preset | vars(options) | ({"args": others[0]} if command.config else {})
    words = others[-1]
    for each in command.positional:
        if not words:
            break
        is_list = actions[each].nargs == "+"
        taken, words = (words, []) if is_list else (words[:1], words[1:])
        if each in given:
            raise ValueError(f"{each}: given with and without --{each}; give it in one way")
        keywords[each] = taken if is_list else taken[0]
    if words:
        raise ValueError(f"unexpected {words[0]!r}; usage: {parser.usage}")
    required = inspect.signature(load(command.function)).parameters
    for each in command.positional:
        if keywords[each] is None and required[each].default is inspect.Parameter.empty:
            raise ValueError(f"missing {each.upper()}; usage: {parser.usage}")
    return load(command.function), keywords


# --- recipes ---


def read_recipe(path: str) -> dict[str, Any]:
    """The options in a YAML file, or in the recipe of ours that has this name: scalars as text, as on the command line
    (`no`, `1e-5`), mappings and null as YAML reads them.

    Raises:
        ValueError: no such file, no YAML mapping, or a file that is large, deep or full of aliases, which a few bytes
            of could blow up to gigabytes.
    """
    import yaml

    ours = {file.stem: file for file in RECIPES.glob("*.yaml")}
    file = Path(path) if Path(path).is_file() else ours.get(path)
    if file is None:
        known = f"use a YAML file, or one of {', '.join(sorted(ours))}"
        raise ValueError(f"recipe: there is no file {path!r}{close_matches(path, ours)}; {known}")
    if file.stat().st_size > MOST_BYTES:
        raise ValueError(f"recipe: {path!r} is larger than {MOST_BYTES:,} bytes")
    text, level = file.read_bytes(), 0
    try:
        for event in yaml.parse(text, yaml.SafeLoader):
            level += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if isinstance(event, yaml.AliasEvent) or level > MOST_LEVELS:
                what = "aliases (*)" if level <= MOST_LEVELS else f"more than {MOST_LEVELS} levels"
                raise ValueError(f"recipe: {path!r} has {what}; write the values out")
        node = yaml.compose(text, yaml.SafeLoader)
        values, texts = yaml.safe_load(text) or {}, yaml.load(text, Loader=yaml.BaseLoader)
    except yaml.YAMLError as error:
        raise ValueError(f"recipe: {path!r} is not YAML: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"recipe: {path!r} has no 'option: value' lines")
    keys = [key.value for key, _ in node.value] if node else []
    if repeated := [key for key in keys if keys.count(key) > 1]:  # YAML allows none, PyYAML takes the last
        raise ValueError(f"recipe: {path!r} has {repeated[0]!r} twice")
    return {str(key): value if isinstance(value, dict | None) else texts[str(key)] for key, value in values.items()}


def words_of(recipe: dict[str, Any], actions: dict[str, Any]) -> list[str]:
    """A recipe as words of a command line that more can follow: the last list ends where `--recipe=` begins."""
    lists, words = [], ["--recipe="]
    for key, value in recipe.items():
        if isinstance(value, list):
            if actions[key].nargs != "+":
                raise ValueError(f"{key}: {value!r} is a list; give one value")
            lists += [f"--{key}", *map(str, value)]
        else:
            words.append(f"--{key}={json.dumps(value) if isinstance(value, dict) else value}")
    return lists + words


if __name__ == "__main__":
    sys.exit(main())
