"""The fields of our training configs, and functions that take them as keywords."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from ...option_checks import check_keywords

Config = TypeVar("Config")
Function = TypeVar("Function", bound=Callable[..., Any])


def option(default: Any, help: str) -> Any:
    """A field of a dataclass, with its help on the command line."""
    return dataclasses.field(default=default, metadata={"help": help})


def checked_options(
    *config_classes: type,
    described_fields: Iterable[str] | None = None,
    has_task_options: bool = False,
    former_names: Mapping[str, str] | None = None,
) -> Callable[[Function], Function]:
    """Decorate a public function: a keyword that it does not take is refused as on the command
    line, with close matches.

    Args:
        config_classes: Dataclasses whose fields the function takes as `**options`.
            `inspect.signature`, and so `help` and notebooks, lists them as keywords.
        described_fields: The fields that it lists, if some of them have no effect; by default all.
        has_task_options: Whether the function takes further `**options`, which depend on the task.
            It checks their names itself.
        former_names: Keywords of earlier versions, which still work, and their names today. A
            ValueError if both are given and differ.
    """
    former_names = former_names or {}

    def decorate(function: Function) -> Function:
        signature = spell_out(
            inspect.signature(function), config_classes, described_fields, has_task_options
        )
        names = list(signature.parameters)

        @functools.wraps(function)
        def checked(*arguments: Any, **keywords: Any) -> Any:
            for former_name, name in former_names.items():
                if former_name not in keywords:
                    continue
                value = keywords.pop(former_name)
                if keywords.setdefault(name, value) != value:
                    raise ValueError(
                        f"{former_name}: {value!r}, but {name} is {keywords[name]!r}; they are the"
                        f" same option, leave {former_name} out"
                    )
            if not has_task_options:
                check_keywords(keywords, function.__name__, names)
            return function(*arguments, **keywords)

        checked.__signature__ = signature
        return checked

    return decorate


def spell_out(
    signature: inspect.Signature,
    config_classes: Iterable[type],
    described_fields: Iterable[str] | None,
    has_task_options: bool,
) -> inspect.Signature:
    """A signature with fields of dataclasses as keywords in the place of `**options`: all of them,
    or the described ones."""
    parameters = dict(signature.parameters)
    options = parameters.pop("options", None)
    for config_class in config_classes:
        for name, field in fields_of(config_class).items():
            if described_fields is not None and name not in described_fields:
                continue
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


def check_same_settings(
    before: Mapping[str, Any], now: Mapping[str, Any], owner: str, advice: str
) -> None:
    """Refuse (a ValueError) settings that differ from those before. The message says whose the
    latter were (`owner`), and what to do (`advice`)."""
    for name in {**now, **before}:
        if before.get(name) != now.get(name):
            raise ValueError(
                f"{name}: {now.get(name)!r}, but {owner} {before.get(name)!r}; {advice}"
            )
