"""The arguments of the commands, as plain dataclasses: nothing here may import torch, since `--help` shows them.

Where a command trains, every field of `transformers.TrainingArguments` is an argument as well; so no name here may be
one of those. Our defaults for them stand here too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


def argument(default: Any, help: str) -> Any:
    """A dataclass field with its help text; a list is copied for every instance."""
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata={"help": help})
    return field(default=default, metadata={"help": help})


@dataclass
class CorpusArguments:
    """Where the text comes from."""

    data: list[str] = argument(
        [],
        "Text to train on: text, jsonl, csv, tsv or parquet files, folders, globs, or Hub data sets (owner/name or"
        " owner/name:config). Without it, the built-in corpus: the documentation in this Python installation.",
    )
    packages: list[str] = argument([], "Installed packages whose docstrings the built-in corpus takes in too.")
    text_column: str | None = argument(
        None, "The column that holds the text; by default 'text', or the only column of strings."
    )
    sample_by: Literal["auto", "line", "paragraph", "document"] = argument(
        "auto",
        "What a document is in a text file: a line, the lines between blank lines (paragraph), or the whole file"
        " (document). auto: paragraph where a file has blank lines between its lines, else line.",
    )


@dataclass
class RowArguments:
    """How documents become rows."""

    validation_size: float = argument(0.05, "Documents held out: a share (below 1) or their number.")
    seq_length: int = argument(512, "Longest row, in tokens.")
    packing: Literal["packed", "padded", "concatenated"] = argument(
        "packed",
        "packed: several documents a row, each attending only to itself; padded: one document a row; concatenated: one"
        " stream cut into rows, whose documents see each other.",
    )
    num_proc: int | None = argument(None, "Processes that prepare the data; the tokenizer uses all cores by itself.")


@dataclass
class TokenizerArguments:
    """The tokenizer that is trained."""

    algorithm: Literal["wordpiece", "bpe", "unigram"] = argument("wordpiece", "How the tokenizer splits words.")
    vocab_size: int = argument(8192, "Size of the tokenizer's vocabulary.")
    lowercase: bool | None = argument(None, "Lower-case all text; by default wordpiece does, the others do not.")


@dataclass
class ModelArguments:
    """The model that is trained. Every field of MiniBertConfig is an argument besides these."""

    model: Literal["bert", "modernbert"] = argument("modernbert", "The family whose preset is used.")
    size: Literal["tiny", "mini", "small", "medium", "base", "large"] = argument("mini", "The preset's size.")
    tokenizer: str | None = argument(
        None, "A trained tokenizer (folder or Hub name); by default one is trained on the training documents."
    )


@dataclass
class MaskingArguments:
    """The masked language modelling objective."""

    mlm_probability: float = argument(0.15, "Share of the tokens that are to be predicted, in training.")
    masking: Literal["token", "whole_word", "span"] = argument("token", "What is masked together.")


@dataclass
class TokenizerCommandArguments:
    """Where `minibert tokenizer` saves."""

    output_dir: str = argument("runs/tokenizer", "Folder that the tokenizer is saved in.")


@dataclass
class FillArguments:
    """What `minibert fill` fills."""

    text: list[str] = argument([], "Text with [MASK] in it; also given without --text.")
    model: str = argument("runs/minibert", "The trained model: a folder or a Hub name.")
    top_k: int = argument(5, "Candidates shown for every mask.")


@dataclass
class MaskStatsArguments:
    """What `minibert mask-stats` counts."""

    tokens: list[int] = argument([10_000, 1_000_000], "Numbers of tokens to observe.")
    algorithms: list[str] = argument(["wordpiece", "bpe", "unigram"], "Tokenizers to train and observe.")
    kinds: list[str] = argument(["token", "whole_word", "span"], "Kinds of masking to observe.")
    mlm_probability: float = argument(0.15, "Expected share of masked tokens.")
    seed: int = argument(0, "Seed of the masks.")
    output_dir: str = argument("runs/mask-stats", "Folder for the table and the plot.")


@dataclass
class BenchArguments:
    """What `minibert bench` measures."""

    cells: list[str] = argument(
        [],
        "What to measure, by name, by the beginning of a name up to a '/', or with wildcards (see --list_cells); by"
        " default everything. Also given without --cells.",
    )
    list_cells: bool = argument(False, "Only show what can be measured on the device.")
    output: str = argument("runs/bench", "Folder for the results, one file a cell; a cell whose file is there is done.")
    overwrite: bool = argument(False, "Measure again what is in the folder already.")
    device: Literal["auto", "cpu", "cuda"] = argument("auto", "Where to measure; auto: cuda if there is one.")
    rounds: int = argument(5, "Rounds beside the first, in each of which all models run; median and minimum are shown.")
    cell_seconds: float = argument(600.0, "Seconds after which a cell begins no further round.")
    compile: bool = argument(False, "Compile all models with torch.compile.")
    quick: bool = argument(False, "Tiny models and texts: shows that everything runs, not how fast.")
    json: bool = argument(False, "Print the results as JSON instead of a table.")


@dataclass
class ConvertArguments:
    """What `minibert convert` converts."""

    paths: list[str] = argument(
        [], "The model to convert (a folder or a Hub name) and the folder to write; also given without --paths."
    )
    architecture: Literal["bert", "modernbert"] | None = argument(
        None, "What a MiniBERT becomes; by default what it was converted from, else what its switches allow."
    )


# Our defaults for the fields of transformers.TrainingArguments, where they are not the library's own.
PRETRAIN_DEFAULTS: dict[str, Any] = {
    "output_dir": "runs/minibert",
    "per_device_train_batch_size": 4,
    "per_device_eval_batch_size": 8,
    "learning_rate": 1e-3,
    "warmup_steps": 0.06,
    "weight_decay": 0.01,
    "adam_beta2": 0.98,
    "num_train_epochs": 2.0,
    "logging_steps": 10,
    "eval_strategy": "epoch",
    "save_strategy": "epoch",
    "save_total_limit": 1,
    "report_to": "none",
    "bf16": None,  # undecided: bf16 where the hardware is fast at it
}
