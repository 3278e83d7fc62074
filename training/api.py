"""The commands as Python functions: `minibert.pretrain(data="my-text/", size="mini")`.

Keyword arguments are the command line's (`minibert pretrain --help`, or `--help-all`, has all of them), read and
checked by the same code: numbers, strings, booleans, lists, paths as strings or `Path`, and where an argument is
undecided by default also None. `recipe=` names a YAML file of them, or is a dictionary; a training takes any field of
`TrainingArguments` (learning_rate, num_train_epochs, seed, …). A model is a folder or a Hub name. Each function prints
what its command prints, and returns the result.

All raise:
    ValueError: bad input, with the command line's message: the argument, its value and what to use instead; before any
        work, and without touching an output folder that is in use.
    OSError: a file that cannot be read or written.
    ModuleNotFoundError: a package that only some commands need is missing; says what to install.
"""

from __future__ import annotations

from typing import Any

from .old_cli.parsing import run_command
from .result import TrainingResult


def pretrain(**arguments: Any) -> TrainingResult:
    """Train a tokenizer (unless one is given) and a model on text; save both with a card, a loss curve and a report.

    Args:
        data (str or list[str]): files, folders, globs, Hub data sets, or a folder of prepared rows; by default this
            Python's documentation.
        model (str): "minibert" (default), "modernbert" or "bert"; size (str): "tiny", "mini" (default), "small",
            "medium", "base" or "large"; any field of `MiniBertConfig` changes the preset.
        objective (str): "mlm" (default), "mlm+nsp", "rtd" or "clm"; seq_length (int): longest row, in tokens (512).
        minutes (float): train for so long by the clock; or num_train_epochs (default 2) or max_steps.
        output_dir (str): where all is saved; "runs/minibert" by default.
    """
    return run_command("pretrain", given=arguments)
