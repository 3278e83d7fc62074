"""What a training gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class TrainingResult:
    """The result of `minibert.pretrain` and `minibert.finetune`.

    Args:
        model: the trained model, as it was saved (None in a process of several that saves nothing).
        tokenizer: its tokenizer.
        report: the final figures by name, as they stand in the output folder.
        output_dir: the folder that holds the model, the tokenizer, the card and the pictures.
    """

    model: Any
    tokenizer: Any
    report: dict[str, Any] = field(default_factory=dict)
    output_dir: Path = Path()
