"""What a training gives back, and files that are there only when they are whole."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class TrainingResult:
    """The result of `minibert.pretrain` and `minibert.finetune`."""

    model: Any  # as it was saved (None in a process of several that saves nothing)
    tokenizer: Any
    report: dict[str, Any] = field(default_factory=dict)  # the final figures by name, as they stand in the folder
    output_dir: Path = Path()  # the folder of the model, the tokenizer, the card and the pictures


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A path to write a file at, which gets the name `path` once it is written: who finds that name finds all of it."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    yield unfinished
    os.replace(unfinished, path)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON, `whole`."""
    with whole(path) as unfinished:
        unfinished.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
