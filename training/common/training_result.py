"""What a training gives back."""

import dataclasses
from pathlib import Path
from typing import Any


@dataclasses.dataclass
class TrainingResult:
    """The result of `minibert.pretrain` and `minibert.finetune`."""

    # As it was saved (None in a process of several that saves nothing).
    model: Any
    tokenizer: Any
    # The final metrics, as they stand in the folder.
    report: dict[str, Any] = dataclasses.field(default_factory=dict)
    # The folder of the model, the tokenizer, the card and the pictures.
    output_dir: Path = Path()
