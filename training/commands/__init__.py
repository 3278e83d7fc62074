"""The former place of `cli/commands.py`, kept for its importers."""

from ..cli.commands import COMMANDS, TASKS, Command, examples

__all__ = ["COMMANDS", "TASKS", "Command", "examples"]
