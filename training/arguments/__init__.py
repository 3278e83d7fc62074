"""The arguments of every command, as plain dataclasses: nothing here may import torch, since `--help` shows them.

Where a command trains, every field of `transformers.TrainingArguments` is an argument as well; so no name here may be
one of those. Our defaults for them stand here too.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

# Our defaults for the fields of TrainingArguments, where they are not the library's own; commands have more of them.
TRAINING_DEFAULTS: dict[str, Any] = {
    "per_device_eval_batch_size": 64,
    "logging_steps": 10,
    "eval_strategy": "epoch",
    "save_strategy": "epoch",
    "save_total_limit": 1,
    "report_to": "none",
    "bf16": None,  # undecided: bf16 where the hardware is fast at it
}


def argument(default: Any, help: str) -> Any:
    """A dataclass field with its help text; a list is copied for every instance."""
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata={"help": help})
    return field(default=default, metadata={"help": help})
