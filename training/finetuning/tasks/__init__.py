"""The tasks of `minibert finetune` and `minibert evaluate`, by name."""

import importlib

from ...cli.commands import TASKS


def task_class(name: str) -> type:
    """The class of a task. A ValueError if there is none of this name."""
    if name not in TASKS:
        raise ValueError(f"Unknown task {name!r}. Choose one of: {', '.join(TASKS)}")
    module, _, cls = TASKS[name][1].partition(":")
    return getattr(importlib.import_module(f".{module}", __name__), cls)
