"""What a public function or class answers to a keyword that it does not take: an error with close
matches, as the command line has it."""

import difflib
import functools
import inspect
import typing
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

# What other programs call options that Transformers has under another name.
NAMES_ELSEWHERE = {
    "epochs": "num_train_epochs",
    "lr": "learning_rate",
    "batch_size": "per_device_train_batch_size",
}
MAX_NAMES = 12  # that an error lists

Function = TypeVar("Function", bound=Callable[..., Any])
Class = TypeVar("Class", bound=type)


class UnknownOptionError(TypeError, ValueError):
    """A keyword that a function does not take: a TypeError, as Python has it, and a ValueError, as
    all other bad input."""


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


def check_keywords(keywords: Iterable[str], function_name: str, valid_names: Iterable[str]) -> None:
    """Refuse (an UnknownOptionError) a keyword that is none of the valid names."""
    valid_names = list(valid_names)
    for name in keywords:
        if name not in valid_names:
            raise unknown_option(name, function_name, valid_names)


def check_choice(name: str, value: Any, hint: Any) -> None:
    """Refuse (a ValueError) a value that its type, a `Literal` or one of several types, does not
    name; None is no choice."""
    choices: tuple[Any, ...] = ()
    for part in (hint, *typing.get_args(hint)):
        if typing.get_origin(part) is typing.Literal:
            choices = typing.get_args(part)
    if choices and value is not None and value not in choices:
        raise ValueError(
            f"{name}: {value!r} is unknown; use one of {', '.join(choices)}"
            f"{close_matches(str(value), choices)}"
        )


def keyword_names(function: Callable[..., Any]) -> list[str]:
    """The names of the parameters that a function, or the `__init__` of a class, can be given by
    keyword."""
    names = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            names.append(name)
    return names


def checked_keywords(function: Function) -> Function:
    """Decorate a function without `**options`: a keyword that it does not take is answered by close
    matches."""
    names = keyword_names(function)

    @functools.wraps(function)
    def checked(*arguments: Any, **keywords: Any) -> Any:
        check_keywords(keywords, function.__name__, names)
        return function(*arguments, **keywords)

    return checked


def checked_class(cls: Class) -> Class:
    """Decorate a class whose `__init__` has no `**options` (a dataclass above `@dataclass`): a
    keyword that it does not take is answered by close matches."""
    initialize = cls.__init__
    names = keyword_names(cls)

    @functools.wraps(initialize)
    def checked(self: Any, *arguments: Any, **keywords: Any) -> None:
        check_keywords(keywords, type(self).__name__, names)
        initialize(self, *arguments, **keywords)

    cls.__init__ = checked
    return cls
