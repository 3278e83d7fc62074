"""Writes `__init__.pyi`, the types of all that `import minibert` offers.

    python dev/make_stubs.py

The package loads its names on demand, so that an editor cannot follow them. Classes, and functions
that spell out their parameters, are imported from their modules. Of functions with `**options` the
stub says what these are: the fields of a config with a help of ours are parameters, those that only
Transformers describes are a `TypedDict`; `finetune` and `evaluate` have an overload for each task.
"""

import dataclasses
import inspect
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import minibert
from minibert.training.cli.commands import COMMANDS, Command
from minibert.training.cli.options import describe_parameters, import_object
from minibert.training.cli.parser import fields_without_help
from minibert.training.common.config_fields import fields_of

FILE = Path(__file__).parent.parent / "__init__.pyi"
# Public functions with `**options`, and those among them that take a task.
SPELLED_OUT = ("pretrain", "prepare", "finetune", "evaluate")
HAVE_TASKS = ("finetune", "evaluate")
# The parameters of `finetune` and `evaluate` by position, also for the tasks `embed` and `rerank`.
FIRST_PARAMETERS = ("model", "data")
# The undescribed fields that all configs have are in one class.
COMMON_OPTIONS = "_TrainingArgumentsOptions"
HEADER = '''\
"""The types of all that `import minibert` offers. Made by `python dev/make_stubs.py`; do not edit."""
'''  # noqa: E501
WIDTH = 100


@dataclasses.dataclass
class Parameter:
    """A parameter of a function in the stub."""

    name: str
    hint: Any
    default: Any
    description: str
    by_position: bool


class TypeWriter:
    """Writes types as text, and collects the imports that they need."""

    def __init__(self):
        self.modules: set[str] = set()
        self.names: dict[str, set[str]] = {}  # of our modules

    def write(self, hint: Any) -> str:
        """The text of a type."""
        if hint is None or hint is type(None):
            return "None"
        if hint is Any or isinstance(hint, typing.TypeVar) or hint is inspect.Parameter.empty:
            return "Any"
        if hint is Ellipsis:
            return "..."
        origin = typing.get_origin(hint)
        if origin is Literal:
            return f"Literal[{', '.join(map(repr, typing.get_args(hint)))}]"
        if origin in (typing.Union, types.UnionType):
            return self.write_union(typing.get_args(hint))
        if origin is not None:
            arguments = ", ".join(map(self.write, typing.get_args(hint)))
            return f"{self.write(origin)}[{arguments}]"
        return self.write_class(hint)

    def write_union(self, parts: Iterable[Any]) -> str:
        parts = list(parts)
        texts = []
        for part in parts:
            # the enums of Transformers are strings, too
            is_enum = inspect.isclass(part) and issubclass(part, Enum)
            if not (is_enum and str in parts):
                texts.append(self.write(part))
        if "None" in texts:  # in the end
            texts.remove("None")
            texts.append("None")
        return " | ".join(dict.fromkeys(texts))

    def write_class(self, cls: type) -> str:
        module = cls.__module__
        if module == "builtins":
            return cls.__name__
        if module.startswith("minibert."):
            own_module = module.removeprefix("minibert.")
            self.names.setdefault(own_module, set()).add(cls.__name__)
            return cls.__name__
        module = public_module(cls)
        self.modules.add(module)
        return f"{module}.{cls.__qualname__}"

    def imports(self, exported: Mapping[str, list[str]]) -> list[str]:
        """The lines of imports, of the exported names and of those that types need."""
        lines = [f"import {module}" for module in sorted(self.modules)]
        lines.append("from typing import Any, Literal, TypedDict, overload")
        lines.append("")
        lines.append("from typing_extensions import Unpack")
        lines.append("")
        for module, names in exported.items():
            if names:
                lines.append(f"from .{module} import (")
                lines += [f"    {name} as {name}," for name in names]
                lines.append(")")
        all_exported = {name for names in exported.values() for name in names}
        for module, names in sorted(self.names.items()):
            for name in sorted(names - all_exported):
                lines.append(f"from .{module} import {name}")
        return lines


def public_module(cls: type) -> str:
    """The shortest name of a module that has a class: `datasets`, not `datasets.arrow_dataset`."""
    parts = cls.__module__.split(".")
    for length in range(1, len(parts)):
        module = ".".join(parts[:length])
        if getattr(sys.modules[module], cls.__name__, None) is cls:
            return module
    return cls.__module__


def main() -> None:
    FILE.write_text(make_stub(), encoding="utf-8")
    print(f"{FILE}: {len(FILE.read_text(encoding='utf-8').splitlines()):,} lines")


def make_stub() -> str:
    """The text of `__init__.pyi`."""
    writer = TypeWriter()
    commands = spelled_out_commands()
    option_classes = write_option_classes(writer, commands.values())
    functions = []
    for command_name, command in commands.items():
        functions.append(write_function(writer, command_name, command))
    exported = {}
    for module, names in minibert._PUBLIC_NAMES.items():
        exported[module] = [name for name in names if name not in SPELLED_OUT]
    names = "\n".join(f"    {name!r}," for name in minibert.__all__).replace("'", '"')
    parts = [
        HEADER,
        "\n".join(writer.imports(exported)),
        f"\n__version__: str\n__all__ = [\n{names}\n]\n",
        *option_classes,
        *functions,
    ]
    return "\n".join(parts)


def spelled_out_commands() -> dict[str, Command]:
    commands = {}
    for command_name, command in COMMANDS.items():
        if command_name.split()[0] in SPELLED_OUT:
            commands[command_name] = command
    return commands


# --- the options that only Transformers describes ---


def write_option_classes(writer: TypeWriter, commands: Iterable[Command]) -> list[str]:
    """A `TypedDict` of the undescribed fields of each config, over one of those that all have."""
    option_types: dict[str, dict[str, str]] = {}
    for command in commands:
        if command.config:
            config_class = import_object(command.config)
            hints = typing.get_type_hints(config_class)
            names = undescribed_fields(command)
            option_types[config_class.__name__] = {
                name: writer.write(hints[name]) for name in names
            }
    with_options = [options for options in option_types.values() if options]
    common = dict(with_options[0])
    for options in with_options[1:]:
        common = {name: text for name, text in common.items() if options.get(name) == text}
    classes = [write_option_class(COMMON_OPTIONS, "TypedDict", common)]
    for config_name, options in option_types.items():
        further_options = {name: options[name] for name in options if name not in common}
        if options:
            classes.append(
                write_option_class(f"_{config_name}Options", COMMON_OPTIONS, further_options)
            )
    return classes


def write_option_class(name: str, base: str, options: Mapping[str, str]) -> str:
    lines = [f"class {name}({base}, total=False):"]
    lines += [f"    {option}: {text}" for option, text in options.items()]
    if not options:
        lines.append("    pass")
    return "\n".join(lines) + "\n"


def undescribed_fields(command: Command) -> list[str]:
    """The fields of a command's config that its help only names."""
    config_class = import_object(command.config)
    fields = fields_of(config_class)
    return [name for name in fields_without_help(command, config_class) if name in fields]


# --- functions ---


def write_function(writer: TypeWriter, command_name: str, command: Command) -> str:
    """A function, or the overload of one for a task."""
    name, _, task_name = command_name.partition(" ")
    function = inspect.unwrap(import_object(command.function))
    parameters = parameters_of(command)
    lines = []
    if task_name:
        lines.append("@overload")
    lines.append(f"def {name}(")
    if task_name:
        lines.append(f'    task: Literal["{task_name}"],')
    for parameter in parameters:
        if parameter.by_position:
            lines.append(write_parameter(writer, parameter))
    lines.append("    *,")
    for parameter in parameters:
        if not parameter.by_position:
            lines.append(write_parameter(writer, parameter))
    if command.config and undescribed_fields(command):
        config_name = import_object(command.config).__name__
        lines.append(f"    **options: Unpack[_{config_name}Options],")
    result = writer.write(typing.get_type_hints(function)["return"])
    lines.append(f") -> {result}:")
    lines.append(textwrap.indent(write_docstring(function, parameters), "    "))
    return "\n".join(lines) + "\n"


def parameters_of(command: Command) -> list[Parameter]:
    """The parameters of a command's function, with the options of its task or corpus, and the
    described fields of its config."""
    has_tasks = "task" in command.fixed_keywords or command.function.startswith("embeddings.")
    parameters: dict[str, Parameter] = {}
    for reference in (command.function, *command.options):
        function = inspect.unwrap(import_object(reference))
        for parameter in read_parameters(function):
            if reference != command.function:
                parameter.by_position = False
            is_fixed = parameter.name in command.fixed_keywords or parameter.name == "tokenizer"
            if reference == command.function or not is_fixed:
                parameters.setdefault(parameter.name, parameter)
    parameters.pop("task", None)
    if has_tasks and "task" not in command.fixed_keywords:
        parameters = in_order_of_finetune(parameters)
    if command.config:
        add_fields(parameters, command)
    return list(parameters.values())


def read_parameters(function: Callable) -> list[Parameter]:
    """The parameters of a function or class, without `**options`."""
    descriptions = describe_parameters(function)
    annotated = function.__init__ if inspect.isclass(function) else function
    hints = typing.get_type_hints(annotated)
    parameters = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is not parameter.VAR_KEYWORD:
            by_position = parameter.kind is not parameter.KEYWORD_ONLY
            description = descriptions.get(name, "")
            parameters.append(
                Parameter(name, hints.get(name), parameter.default, description, by_position)
            )
    return parameters


def in_order_of_finetune(parameters: dict[str, Parameter]) -> dict[str, Parameter]:
    """The parameters of `finetune_embed` and its like, as `finetune` takes them: the model is
    first, and everything behind the data is a keyword."""
    ordered = {name: parameters[name] for name in FIRST_PARAMETERS}
    for name, parameter in (ordered | parameters).items():
        parameter.by_position = name in FIRST_PARAMETERS
        ordered[name] = parameter
    if ordered["data"].default is inspect.Parameter.empty:
        ordered["data"].default = ...  # an error says that it is missing
    return ordered


def add_fields(parameters: dict[str, Parameter], command: Command) -> None:
    """Add the described fields of a command's config."""
    config_class = import_object(command.config)
    hints = typing.get_type_hints(config_class)
    undescribed = undescribed_fields(command)
    for name, field in fields_of(config_class).items():
        if name in undescribed or name in parameters:
            continue
        hint = hints[name]
        if name == "output_dir":
            hint = hint | Path
        description = field.metadata.get("help", "").replace("%%", "%")
        parameters[name] = Parameter(name, hint, field.default, description, by_position=False)


def write_parameter(writer: TypeWriter, parameter: Parameter) -> str:
    text = f"    {parameter.name}: {writer.write(parameter.hint)}"
    if parameter.default is inspect.Parameter.empty:
        return f"{text},"
    default = "..."
    if parameter.default is None or isinstance(parameter.default, (bool, int, float)):
        default = repr(parameter.default)
    elif isinstance(parameter.default, str) and not isinstance(parameter.default, Enum):
        default = f'"{parameter.default}"'
    return f"{text} = {default},"


def write_docstring(function: Callable, parameters: Iterable[Parameter]) -> str:
    """The function's docstring, with all parameters."""
    introduction, _, sections = inspect.getdoc(function).partition("Args:\n")
    lines = [f'"""{introduction.strip()}', "", "Args:"]
    for parameter in parameters:
        if parameter.description:
            lines += textwrap.wrap(
                f"{parameter.name}: {parameter.description}",
                WIDTH - 8,
                initial_indent="    ",
                subsequent_indent="        ",
                break_on_hyphens=False,
            )
    _, separator, returns = sections.partition("Returns:\n")
    if separator:
        lines += ["", "Returns:", returns.rstrip()]
    lines += ['"""']
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
