"""The table of commands under the name that others know; it lies in `cli`."""

from ..cli.commands import COMMANDS, Command, examples
from ..finetuning.tasks import TASKS

__all__ = ["COMMANDS", "TASKS", "Command", "examples"]
