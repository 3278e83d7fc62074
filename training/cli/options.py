"""From the signature and docstring of a function to the options of a command."""

import dataclasses
import difflib
import importlib
import inspect
import re
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

# What other programs call options that Transformers has under another name.
USUAL = {
    "epochs": "num_train_epochs",
    "lr": "learning_rate",
    "batch_size": "per_device_train_batch_size",
}


def close_matches(word: str, known: Iterable[str], prefix: str = "") -> str:
    matches = (
        [USUAL[word]]
        if USUAL.get(word) in known
        else difflib.get_close_matches(word, sorted(known), 3, 0.7)
    )
    return f"; close matches: {', '.join(prefix + match for match in matches)}" if matches else ""


def load(reference: str) -> Any:
    """The function or class of "module:name"."""
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(f"minibert.training.{module}"), name)


def options_of(
    callables: Iterable[Callable], positional: Sequence[str], skipped: Iterable[str]
) -> type:
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
            options = {
                "metadata": {"help": help_of.get(name, "").replace("%", "%%")},
                "kw_only": True,
            }
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
    parts = [
        part for part in (typing.get_args(hint) if union else (hint,)) if part is not type(None)
    ]
    for part in parts:
        if typing.get_origin(part) in (list, Sequence, Iterable):
            return list[option_type(typing.get_args(part)[0])]
    if len(parts) == 1 and (parts[0] is bool or typing.get_origin(parts[0]) is Literal):
        return parts[0]
    return next((kind for kind in (str, float, int) if kind in parts), None)


def describe_parameters(function: Callable) -> dict[str, str]:
    """The help of each parameter: the entries of the docstring's section `Args:`."""
    section = re.search(
        r"^Args:\n(.*?)(?=^\S|\Z)", inspect.getdoc(function) or "", re.MULTILINE | re.DOTALL
    )
    entries = re.split(
        r"^(\w+)(?: \([^)]*\))?:",
        textwrap.dedent(section[1]) if section else "",
        flags=re.MULTILINE,
    )
    return {name: " ".join(text.split()) for name, text in zip(entries[1::2], entries[2::2])}
