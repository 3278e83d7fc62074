"""The parser of a command, and what a command line asks of it."""

import dataclasses
import inspect
import textwrap
from argparse import SUPPRESS, ArgumentDefaultsHelpFormatter
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from .commands import COMMANDS, REMOVED_OPTIONS, examples
from .options import close_matches, load, options_of
from .recipes import read_recipe, words_of

LENGTHS = {
    "num_train_epochs",
    "max_steps",
    "minutes",
}  # of a training: one given beside a recipe replaces its own


class HelpFormatter(ArgumentDefaultsHelpFormatter):
    def _get_help_string(self, action):
        return (
            action.help
            if action.default in (None, SUPPRESS, [])
            else super()._get_help_string(action)
        )

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
    kinds = [
        options_of(callables, command.positional, skipped | ({"args"} if command.config else set()))
    ]
    if command.config:
        kinds.append(load(command.config))
        ours = [kind for kind in kinds[1].__mro__ if kind.__module__.startswith("minibert.")]
        own = {*command.shown} or {key for kind in ours for key in inspect.get_annotations(kind)}
        inherited = [field.name for field in dataclasses.fields(kinds[1]) if field.name not in own]
        if inherited and not command.shown:
            names = textwrap.fill(
                " ".join(f"--{each}" for each in inherited), 100, break_on_hyphens=False
            )
            epilog += "\n\nother options, described in the documentation of transformers.TrainingArguments:\n"
            epilog += textwrap.indent(names, "  ")
    words = "".join(f" [{each.upper()}]" for each in command.positional)
    usage = f"minibert {name}{words} [--recipe FILE] [--option VALUE …]"
    more = dict(
        description=command.help, epilog=epilog, formatter_class=HelpFormatter, allow_abbrev=False
    )
    parser = Parser(kinds, prog=f"minibert {name}", usage=usage, **more)
    named = ", or the name of a recipe of MiniBERT" if name == "pretrain" else ""
    parser.add_argument(
        "--recipe",
        metavar="FILE",
        help=f"YAML file of options{named}; options beside it take precedence.",
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
        if each in REMOVED_OPTIONS and each not in actions:
            raise ValueError(REMOVED_OPTIONS[each])
        if each not in actions:
            raise ValueError(
                f"unknown option --{each} of 'minibert {name}'{close_matches(each, actions, '--')}"
            )
        if (
            actions[each].nargs == "+" and given.count(each) > 1
        ):  # argparse would drop the first list
            raise ValueError(f"--{each} is given twice; give all its values behind one")
    if path := parser.parse_known_args(argv)[0].recipe:
        recipe = read_recipe(path)
        if unknown := [key for key in recipe if key not in actions or key == "recipe"]:
            if unknown[0] in REMOVED_OPTIONS:
                raise ValueError(f"{path}: {REMOVED_OPTIONS[unknown[0]]}")
            raise ValueError(
                f"{path}: unknown key {unknown[0]!r}{close_matches(unknown[0], actions)}"
            )
        if LENGTHS & {*given}:
            recipe = {key: value for key, value in recipe.items() if key not in LENGTHS}
        parser.set_defaults(**{key: None for key, value in recipe.items() if value is None})
        argv = [*words_of(recipe, actions), *argv]
    options, *others, words = parser.parse_args_into_dataclasses(
        argv, True, look_for_args_file=False
    )
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
