"""The table of the commands of `minibert`: what each one runs and which arguments it takes.

Nothing here may import torch: `--help` reads it.
"""

from dataclasses import dataclass
from typing import Any

from ..arguments import pretraining


@dataclass
class Command:
    """One command of `minibert`.

    Its function is called with an instance of every dataclass in `arguments`, in this order, then with a
    `transformers.TrainingArguments` if there are `training_defaults`, then with the dictionary of changed model fields
    if there are `config_overrides`. What it returns is what `minibert.pretrain` and its like return; of a command line,
    its `exit_status` is the exit status, or itself, if it is a number.
    """

    function: str  # "module:function", the module within `minibert.training`
    arguments: tuple[type, ...]
    positional: str | None = None  # the argument that words without a flag belong to
    help: str = ""  # by default the docstring of the last arguments
    training_defaults: dict[str, Any] | None = None  # where it takes TrainingArguments: those that are ours
    config_overrides: bool = False

    def __post_init__(self):
        self.help = self.help or self.arguments[-1].__doc__


# What the command of several arguments' dataclasses would repeat.
TEXT = (pretraining.CorpusArguments, pretraining.MixtureArguments)
ROWS = (pretraining.RowArguments, pretraining.TokenizerArguments)
COMMANDS = {
    "pretrain": Command(
        "pretraining.run:pretrain",
        (
            pretraining.ModelArguments,
            *TEXT,
            pretraining.StreamingArguments,
            *ROWS,
            pretraining.ObjectiveArguments,
            pretraining.MaskingArguments,
            pretraining.OptimizationArguments,
        ),
        help="Train a tokenizer and pretrain a model on text.",
        training_defaults=pretraining.PRETRAIN_DEFAULTS,
        config_overrides=True,
    ),
}
