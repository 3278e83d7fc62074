"""The table of commands under the name that others know; it lies in `cli`."""

from ..cli.commands import COMMANDS, TASKS, Command, examples

__all__ = ["COMMANDS", "TASKS", "Command", "examples"]
