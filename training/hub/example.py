"""The example on a model card: a real row, and what the card's snippet prints for it."""

import contextlib
import io
import os
import re
from dataclasses import dataclass
from typing import Any

from ..common.printing import warn
from ..common.random_state import random_state_kept

MAX_OUTPUT_LINES = 20


@dataclass
class Example:
    """A row for the snippet of a card."""

    inputs: dict[str, Any]  # texts by the names that the template has for them
    description: str  # where the row is from, and what is true of it: a sentence
    output: str | None = None  # what the snippet prints


def run_example(card: str) -> str | None:
    """Run the first snippet of a card, which loads the model that was just saved, and return what
    it prints. None if that fails: the model is worth more than its card.

    The code of a MiniBERT is this package's; what else the folder may hold is not run.
    """
    snippet = re.search(r"^```python\n(.*?\n)```$", card, re.DOTALL | re.MULTILINE)
    if snippet is None:
        return None
    num_processes = int(os.environ.get("WORLD_SIZE", 1))
    if "minibert.predict" in snippet[1] and num_processes > 1:
        return None  # It would wait for the other processes.
    source = snippet[1].replace("trust_remote_code=True", "trust_remote_code=False")
    printed = io.StringIO()
    try:
        with (
            random_state_kept(),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            exec(compile(source, "card", "exec"), {"__name__": "card"})
    except Exception as error:
        warn(f"the card has no output of its example, which failed: {error!r:.300}")
        return None
    lines = printed.getvalue().splitlines()
    if len(lines) > MAX_OUTPUT_LINES:
        lines = [*lines[:MAX_OUTPUT_LINES], "…"]
    return "\n".join(lines)
