"""What the tests of the command line and of its Python functions share."""

import dataclasses
import sys
import types

import pytest

from minibert.training.cli.commands import COMMANDS


@pytest.fixture
def called(monkeypatch):
    """Put a function in the place of a command's; what it is called with is listed, and its result can be set."""
    calls = types.SimpleNamespace(arguments=None, result=None)

    def function(*instances):
        calls.arguments = instances
        if isinstance(calls.result, BaseException):
            raise calls.result
        return calls.result

    module = types.ModuleType("stand_in")
    module.function = function
    monkeypatch.setitem(sys.modules, "minibert.training.stand_in", module)
    for name, command in COMMANDS.items():
        monkeypatch.setitem(COMMANDS, name, dataclasses.replace(command, function="stand_in:function"))
    return calls


@pytest.fixture
def recipe(tmp_path):
    def write(text):
        path = tmp_path / "recipe.yaml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write
