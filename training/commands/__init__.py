"""Which commands `minibert` has; `cli` reads their options and runs them."""

from ..finetuning.tasks import TASKS
from .table import COMMANDS, Command, examples

__all__ = ["COMMANDS", "TASKS", "Command", "examples"]
