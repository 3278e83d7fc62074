"""The command line `minibert`."""

from .command_line import main

__all__ = ["main"]
