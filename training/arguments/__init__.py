"""The arguments of every command, as plain dataclasses: nothing here may import torch, since `--help` shows them.

Where a command trains, every field of `transformers.TrainingArguments` is an argument as well; so no name here may be
one of those. Our defaults for them stand here too.
"""

import json
from dataclasses import field, replace
from typing import Any

# Our defaults for the fields of TrainingArguments, where they are not the library's own; commands have more of them.
TRAINING_DEFAULTS: dict[str, Any] = {
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


def decide(arguments: Any, **defaults: Any) -> Any:
    """The arguments with these values for what the user left undecided (None), as far as they have it."""
    undecided = {name: value for name, value in defaults.items() if getattr(arguments, name, value) is None}
    return replace(arguments, **undecided)


def check_least(arguments: Any, **least: float) -> None:
    """Refuse (a ValueError) numbers, alone or in lists, below the least that makes sense; fields by name."""
    for name, minimum in least.items():
        value = getattr(arguments, name)
        for number in value if isinstance(value, list) else [value]:
            if number is not None and number < minimum:
                raise ValueError(f"{name}: {number} is too small; use {minimum} or more")


def to_mapping(name: str, given: list[str]) -> dict[str, Any]:
    """The dictionary that an argument of `field=value` words gives; from Python it is a dictionary, here as JSON.

    Values are JSON or plain words.

    Raises:
        ValueError: a word that is neither, or a field given twice.
    """
    mapping: dict[str, Any] = {}
    for text in given:
        key, sign, value = text.partition("=")
        whole = text.startswith("{")
        try:
            parsed = json.loads(text if whole else value)
        except json.JSONDecodeError:
            parsed = value
        if whole and isinstance(parsed, dict):
            mapping |= parsed
        elif whole or not sign or key in mapping:
            problem = "given twice" if key in mapping else "no field=value"
            raise ValueError(f"{name}: {text!r} is {problem}; give each once")
        else:
            mapping[key] = parsed
    return mapping
