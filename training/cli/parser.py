"""The parser of a command, and what a command line asks of it."""

import dataclasses
import inspect
import textwrap
from argparse import SUPPRESS, ArgumentDefaultsHelpFormatter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from ...option_checks import close_matches
from ..finetuning.tasks import REMOVED_OPTIONS
from .commands import COMMANDS, Command, examples
from .options import import_object, options_of
from .recipes import read_recipe, recipe_arguments

# How long a training takes: one of these on the command line replaces all of them in a recipe.
LENGTH_OPTIONS = {"num_train_epochs", "max_steps", "minutes"}


class HelpFormatter(ArgumentDefaultsHelpFormatter):
    def _get_help_string(self, action):
        if action.default in (None, SUPPRESS, []):
            return action.help
        return super()._get_help_string(action)

    def _fill_text(self, text, width, indent):
        return text  # its lines are commands


class OptionAdapter:
    """Stands between `HfArgumentParser` and a parser, and changes each option on its way: one
    spelling (no dashes, no `--no_…`), and a value for every switch (`--bf16 true`). What argparse
    should do with an option of some type (its `action`, its `nargs`) is decided here."""

    def __init__(self, parser: Any):
        self.parser = parser

    def add_argument(self, name: str, *other_spellings: str, **options: Any) -> None:
        if options.get("action") == "store_false":
            return
        if getattr(options.get("type"), "__name__", "") == "string_to_bool":
            options |= {"nargs": "?", "const": True}
        self.parser.add_argument(name, **options)


def make_parser_class() -> type:
    """Our class of parsers; a function, as the import of Transformers takes seconds."""
    from transformers import HfArgumentParser

    class Parser(HfArgumentParser):
        @staticmethod
        def _parse_dataclass_field(parser, field):
            HfArgumentParser._parse_dataclass_field(OptionAdapter(parser), field)

        def error(self, message: str) -> NoReturn:
            raise ValueError(message)

    return Parser


def build_parser(command_name: str) -> Any:
    """The parser of a command. The help only names the fields that a config has from Transformers'
    own classes."""
    command = COMMANDS[command_name]
    option_classes = [function_options(command)]
    undescribed_fields = []
    epilog = "\n  ".join(["examples:", *examples(command_name)])
    if command.config:
        config_class = import_object(command.config)
        option_classes.append(config_class)
        undescribed_fields = fields_without_help(command, config_class)
        if undescribed_fields and not command.described_fields:
            epilog += "\n\n" + describe_other_options(undescribed_fields)

    positional_words = "".join(f" [{name.upper()}]" for name in command.positional)
    parser = make_parser_class()(
        option_classes,
        prog=f"minibert {command_name}",
        usage=f"minibert {command_name}{positional_words} [--recipe FILE] [--option VALUE …]",
        description=command.help,
        epilog=epilog,
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    recipe_help = "YAML file of options; options beside it take precedence."
    if command_name == "pretrain":
        recipe_help = (
            "YAML file of options, or the name of a recipe of MiniBERT; "
            "options beside it take precedence."
        )
    parser.add_argument("--recipe", metavar="FILE", help=recipe_help)
    parser.set_defaults(**command.defaults)
    for action in parser._actions:
        if action.dest in undescribed_fields:
            action.help = SUPPRESS
    return parser


def function_options(command: Command) -> type:
    """A dataclass of the options that come from the command's function and from the callables
    beside it."""
    callables = [import_object(reference) for reference in (command.function, *command.options)]
    skipped = set(command.fixed_keywords)
    if command.config:
        skipped.add("args")
    return options_of(callables, command.positional, skipped)


def fields_without_help(command: Command, config_class: type) -> list[str]:
    """The fields of a command's config that its help does not describe: by default all that are
    Transformers'."""
    described = set(command.described_fields)
    if not described:
        for base_class in config_class.__mro__:
            if base_class.__module__.startswith("minibert."):
                described.update(inspect.get_annotations(base_class))
    return [field.name for field in dataclasses.fields(config_class) if field.name not in described]


def describe_other_options(names: Sequence[str]) -> str:
    options = " ".join(f"--{name}" for name in names)
    wrapped = textwrap.fill(options, 100, break_on_hyphens=False)
    heading = "other options, described in the documentation of transformers.TrainingArguments:"
    return f"{heading}\n{textwrap.indent(wrapped, '  ')}"


def parse(command_name: str, argv: Sequence[str]) -> tuple[Callable, dict[str, Any]]:
    """The function of a command and the keywords that it is called with."""
    command = COMMANDS[command_name]
    argv = with_todays_names(argv, command)
    parser = build_parser(command_name)
    actions = {action.dest: action for action in parser._actions}
    cli_options = [word[2:].partition("=")[0] for word in argv if word.startswith("--")]
    check_options(command_name, cli_options, actions)

    recipe_path = parser.parse_known_args(argv)[0].recipe
    if recipe_path:
        recipe = load_recipe(recipe_path, cli_options, actions, command)
        # no word of a command line means None, so a null becomes the default
        nulls = [key for key, value in recipe.items() if value is None]
        parser.set_defaults(**dict.fromkeys(nulls))
        # the last word counts: that of the command line
        argv = [*recipe_arguments(recipe, actions), *argv]

    # one namespace each: the function's options, the config if the command has one, `--recipe`;
    # then the words without a flag
    function_namespace, *configs_and_recipe, positional_words = parser.parse_args_into_dataclasses(
        argv, return_remaining_strings=True, look_for_args_file=False
    )
    keywords = command.fixed_keywords | vars(function_namespace)
    if command.config:
        keywords["args"] = configs_and_recipe[0]
    fill_positional(command, keywords, positional_words, parser.usage, actions)
    return import_object(command.function), keywords


def with_todays_names(argv: Sequence[str], command: Command) -> list[str]:
    """The words of a command line, with options of earlier versions under their names today."""
    words = []
    for word in argv:
        option, equals, value = word.partition("=")
        if option.startswith("--") and option[2:] in command.former_names:
            option = f"--{command.former_names[option[2:]]}"
        words.append(f"{option}{equals}{value}")
    return words


def check_options(
    command_name: str, cli_options: Sequence[str], actions: Mapping[str, Any]
) -> None:
    """Refuse (a ValueError) unknown options, and a list that is given twice: argparse would drop
    the first. Of a single value that is given twice, the last counts."""
    for option in cli_options:
        if option not in actions and option in REMOVED_OPTIONS:
            raise ValueError(REMOVED_OPTIONS[option])
        if option not in actions:
            raise ValueError(
                f"unknown option --{option} of 'minibert {command_name}'"
                f"{close_matches(option, actions, '--')}"
            )
        if actions[option].nargs == "+" and cli_options.count(option) > 1:
            raise ValueError(f"--{option} is given twice; give all its values behind one")


def load_recipe(
    path: str, cli_options: Sequence[str], actions: Mapping[str, Any], command: Command
) -> dict[str, Any]:
    """The options of a recipe, without those that the command line replaces. A ValueError for an
    unknown one."""
    recipe = {}
    for key, value in read_recipe(path).items():
        name = command.former_names.get(key, key)
        if recipe.setdefault(name, value) != value:
            raise ValueError(f"{path}: {key!r} is a former name of {name!r}; give one of them")
    for key in recipe:
        if key not in actions and key in REMOVED_OPTIONS:
            raise ValueError(f"{path}: {REMOVED_OPTIONS[key]}")
        if key not in actions or key == "recipe":
            raise ValueError(f"{path}: unknown key {key!r}{close_matches(key, actions)}")
    if LENGTH_OPTIONS.intersection(cli_options):
        for key in LENGTH_OPTIONS.intersection(recipe):
            del recipe[key]
    return recipe


def fill_positional(
    command: Command,
    keywords: dict[str, Any],
    words: Sequence[str],
    usage: str,
    actions: Mapping[str, Any],
) -> None:
    """Put words without a flag into `keywords`; a list takes all that are left. A ValueError if
    some are missing, or too many."""
    words = list(words)
    parameters = inspect.signature(import_object(command.function)).parameters
    for name in command.positional:
        if words and actions[name].nargs == "+":
            keywords[name] = words
            words = []
        elif words:
            keywords[name] = words.pop(0)
        is_required = parameters[name].default is inspect.Parameter.empty
        if keywords[name] is None and is_required:
            raise ValueError(f"missing {name.upper()}; usage: {usage}")
    if words:
        raise ValueError(f"unexpected {words[0]!r}; usage: {usage}")
