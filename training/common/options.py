"""Options: the fields of our training configs, and what a wrong name may have been meant as."""

import difflib
from collections.abc import Iterable
from dataclasses import field
from typing import Any

# What other programs call options that Transformers has under another name.
NAMES_ELSEWHERE = {
    "epochs": "num_train_epochs",
    "lr": "learning_rate",
    "batch_size": "per_device_train_batch_size",
}


def option(default: Any, help: str) -> Any:
    """A field of a dataclass, with its help on the command line."""
    return field(default=default, metadata={"help": help})


def close_matches(word: str, valid_names: Iterable[str], prefix: str = "") -> str:
    """The end of an error message that names what `word` may have been meant as; empty if nothing
    is near.

    Args:
        prefix: Stands before each name, such as "--".
    """
    matches = difflib.get_close_matches(word, sorted(valid_names), n=3, cutoff=0.7)
    name_in_transformers = NAMES_ELSEWHERE.get(word)
    if name_in_transformers in valid_names:
        matches = [name_in_transformers]
    if not matches:
        return ""
    return f"; close matches: {', '.join(prefix + match for match in matches)}"
