"""What a training gives back."""

import dataclasses
from pathlib import Path
from typing import Any


@dataclasses.dataclass
class TrainingResult:
    """The result of `minibert.pretrain` and `minibert.finetune`."""

    model: Any  # as it was saved (None in a process of several that saves nothing)
    tokenizer: Any
    report: dict[str, Any] = dataclasses.field(
        default_factory=dict
    )  # the final metrics, as they stand in the folder
    output_dir: Path = Path()  # the folder of the model, the tokenizer, the card and the pictures
