"""From the signature and docstring of a function to the options of a command."""

import dataclasses
import importlib
import inspect
import re
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal


def import_object(reference: str) -> Any:
    """The function or class of "module:name"."""
    module_name, _, name = reference.partition(":")
    module = importlib.import_module(f"minibert.training.{module_name}")
    return getattr(module, name)


def options_of(
    callables: Iterable[Callable], positional: Sequence[str], skipped: Iterable[str]
) -> type:
    """A dataclass of the parameters that a command line can give: its help from the docstrings.
    Parameters of other types (a model, a Dataset) are for Python alone. Of two parameters with one
    name, the first counts."""
    fields = {}
    for function in callables:
        function = inspect.unwrap(function)  # whose `**options` are not spelled out
        descriptions = describe_parameters(function)
        annotated = function.__init__ if inspect.isclass(function) else function
        type_hints = typing.get_type_hints(annotated)
        for name, parameter in inspect.signature(function).parameters.items():
            parsed_type = option_type(type_hints.get(name))
            if parsed_type is None or name in skipped or name in fields:
                continue
            description = descriptions.get(name, "")
            fields[name] = option_field(
                parameter, parsed_type, description, is_optional=name in positional
            )
    return dataclasses.make_dataclass("Options", fields.values())


def option_field(
    parameter: inspect.Parameter, parsed_type: Any, description: str, is_optional: bool
) -> tuple[str, Any, dataclasses.Field]:
    """A parameter as a field for `dataclasses.make_dataclass`: name, type and the field itself.

    Args:
        is_optional: Whether the option may be missing although the parameter has no default.
    """
    arguments = {
        "metadata": {"help": description.replace("%", "%%")},  # argparse formats its help
        "kw_only": True,
    }
    default = parameter.default
    if isinstance(default, (list, tuple)):
        arguments["default_factory"] = list(default).copy
    elif default is not parameter.empty:
        arguments["default"] = default
    elif is_optional:
        arguments["default"] = None
    if arguments.get("default", ...) is None:
        parsed_type = parsed_type | None
    return parameter.name, parsed_type, dataclasses.field(**arguments)


def option_type(hint: Any) -> Any:
    """The type of an option for `HfArgumentParser` (str, int, float, bool, a Literal, or a list of
    such) whose parameter has the type `hint`; None if it cannot be an option."""
    alternatives = [hint]
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        alternatives = [part for part in typing.get_args(hint) if part is not type(None)]
    for alternative in alternatives:
        if typing.get_origin(alternative) in (list, Sequence, Iterable):
            item_type = option_type(typing.get_args(alternative)[0])
            if item_type is not None:  # a list of rows is for Python alone
                return list[item_type]
    if len(alternatives) == 1:
        only = alternatives[0]
        if only is bool or typing.get_origin(only) is Literal:
            return only
    for parsed_type in (str, float, int):
        if parsed_type in alternatives:
            return parsed_type
    return None


def describe_parameters(function: Callable) -> dict[str, str]:
    """The help of each parameter: the entries of the docstring's section `Args:`."""
    docstring = inspect.getdoc(function) or ""
    section = re.search(r"^Args:\n(.*?)(?=^\S|\Z)", docstring, re.MULTILINE | re.DOTALL)
    if section is None:
        return {}
    # "name: text" or "name (type): text"; the split gives what is before the first name, then names
    # and texts in turn
    entry_start = re.compile(r"^(\w+)(?: \([^)]*\))?:", re.MULTILINE)
    _, *names_and_texts = entry_start.split(textwrap.dedent(section[1]))
    names = names_and_texts[0::2]
    texts = names_and_texts[1::2]
    return {name: " ".join(text.split()) for name, text in zip(names, texts)}
