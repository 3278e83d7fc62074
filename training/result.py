"""What a training gives back."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class TrainingResult:
    """The result of `minibert.pretrain` and `minibert.finetune`."""

    model: Any  # as it was saved (None in a process of several that saves nothing)
    tokenizer: Any
    report: dict[str, Any] = field(default_factory=dict)  # the final metrics by name, as they stand in the folder
    output_dir: Path = Path()  # the folder of the model, the tokenizer, the card and the pictures
