"""Options: the fields of our training configs, the keywords of our functions, and what a wrong name
may have been meant as."""

import dataclasses
import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

# What other programs call options that Transformers has under another name.
NAMES_ELSEWHERE = {
    "epochs": "num_train_epochs",
    "lr": "learning_rate",
    "batch_size": "per_device_train_batch_size",
}


MAX_NAMES = 12  # that an error lists
Config = TypeVar("Config")
Function = TypeVar("Function", bound=Callable[..., Any])


class UnknownOptionError(TypeError, ValueError):
    """A keyword that a function does not take: a TypeError, as Python has it, and a ValueError, as
    all other bad input."""


def option(default: Any, help: str) -> Any:
    """A field of a dataclass, with its help on the command line."""
    return dataclasses.field(default=default, metadata={"help": help})


def close_matches(word: str, valid_names: Iterable[str], prefix: str = "") -> str:
    """The end of an error message that names what `word` may have been meant as; empty if nothing
    is near.

    Args:
        prefix: Stands before each name, such as "--".
    """
    matches = difflib.get_close_matches(word, sorted(valid_names), n=3, cutoff=0.7)
    name_in_transformers = NAMES_ELSEWHERE.get(word)
    if name_in_transformers in valid_names:
        matches = [name_in_transformers]
    if not matches:
        return ""
    return f"; close matches: {', '.join(prefix + match for match in matches)}"


def unknown_option(name: str, function_name: str, valid_names: Iterable[str]) -> UnknownOptionError:
    """The error for a keyword that a function (or a task) does not take."""
    valid_names = list(valid_names)
    advice = close_matches(name, valid_names)
    if not advice:
        advice = f"; it takes {', '.join(valid_names[:MAX_NAMES])}"
        if len(valid_names) > MAX_NAMES:
            advice += ", …"
    return UnknownOptionError(f"unknown option {name!r} of {function_name}{advice}")


def checked_options(
    *config_classes: type,
    has_task_options: bool = False,
    former_names: Mapping[str, str] | None = None,
) -> Callable[[Function], Function]:
    """Decorate a public function: a keyword that it does not take is refused as on the command
    line, with close matches.

    Args:
        config_classes: Dataclasses whose fields the function takes as `**options`.
            `inspect.signature`, and so `help` and notebooks, lists them as keywords.
        has_task_options: Whether the function takes further `**options`, which depend on the task.
            It checks their names itself.
        former_names: Keywords of earlier versions, which still work, and their names today.
    """
    former_names = former_names or {}

    def decorate(function: Function) -> Function:
        signature = spell_out(inspect.signature(function), config_classes, has_task_options)
        names = list(signature.parameters)

        @functools.wraps(function)
        def checked(*arguments: Any, **keywords: Any) -> Any:
            for name in former_names.keys() & keywords.keys():
                keywords[former_names[name]] = keywords.pop(name)
            for name in keywords:
                if name not in names and not has_task_options:
                    raise unknown_option(name, function.__name__, names)
            return function(*arguments, **keywords)

        checked.__signature__ = signature
        return checked

    return decorate


def spell_out(
    signature: inspect.Signature, config_classes: Iterable[type], has_task_options: bool
) -> inspect.Signature:
    """A signature with the fields of dataclasses as keywords in the place of `**options`."""
    parameters = dict(signature.parameters)
    options = parameters.pop("options", None)
    for config_class in config_classes:
        for name, field in fields_of(config_class).items():
            default = field.default
            if default is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING:
                default = field.default_factory()
            keyword = inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=field.type
            )
            parameters.setdefault(name, keyword)
    if has_task_options and options is not None:
        parameters["options"] = options
    return signature.replace(parameters=list(parameters.values()))


def fields_of(config_class: type) -> dict[str, dataclasses.Field]:
    """The fields that a dataclass can be made with, by name."""
    return {field.name: field for field in dataclasses.fields(config_class) if field.init}


def make_config(config_class: type[Config], args: Config | None, fields: dict[str, Any]) -> Config:
    """The config that a function was given, with some fields in place of its own; without one, a
    new config."""
    if args is None:
        return config_class(**fields)
    return dataclasses.replace(args, **fields)
