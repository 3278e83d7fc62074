"""The fields of our training configs."""

from dataclasses import field
from typing import Any


def option(default: Any, help: str) -> Any:
    """A field of a dataclass, with its help on the command line."""
    return field(default=default, metadata={"help": help})
