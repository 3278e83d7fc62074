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

import tempfile
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .cli import split_command
from .old_cli.parsing import argument_names, read_recipe, run_command
from .result import TrainingResult

if TYPE_CHECKING:
    import numpy as np

    from .data.prepared import PreparedRows


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


def prepare(**arguments: Any) -> PreparedRows:
    """Make rows of text once, for trainings that read them instead (`pretrain(data=output_dir)`), also as a stream.

    Args:
        data, seq_length (int), packing (str), validation_size (float): as `pretrain` takes them.
        tokenizer (str): a trained one, or a model; else one is trained, and kept with the rows.
        output_dir (str): "runs/rows" by default; the same call goes on where it was killed.
    """
    return run_command("prepare", given=arguments)


def finetune(task: str, **arguments: Any) -> TrainingResult:
    """Train a model for a task, measure it, and save it with its card, metrics and a picture.

    Args:
        task: "classify", "nli", "tag", "answer", "choose", "embed" or "rerank"; each has arguments of its own.
        model (str): what to start from: a MiniBERT, or (not for "embed" and "rerank") an encoder that `convert` takes.
        data (str): a folder with train, validation and test files, one file, or a Hub data set; or train, validation
            and test (each a list of files). For "embed" and "rerank", a list of tables.
        output_dir (str): "runs/finetune" by default ("runs/embed", "runs/rerank").
        seeds (int), freeze (str), lora (int): for the first five tasks.
    """
    return run_command(split_command(["finetune", task])[0], given=arguments)


def evaluate(task: str, **arguments: Any) -> dict[str, Any]:
    """Measure a trained model; returns its scores by name: of each split, or for "embed" and "rerank" under "metrics".

    Args:
        task, model (str), data (str): as `finetune` takes them; for "embed" and "rerank" data is a retrieval
            folder, for "embed" also a table of scored pairs.
    """
    return run_command(split_command(["evaluate", task])[0], given=arguments)


def embed(text: str | Iterable[str], **arguments: Any) -> np.ndarray:
    """The vectors of texts, [texts, width], row i of text i; float32.

    Args:
        model (str), and as it was saved by default: pooling (str): "mean", "cls" or "last_four"; normalize (bool):
            vectors of length 1; max_length (int), in tokens.
        output (str): a new .safetensors or .npy file to save them in as well; by default none.
    """
    given, recipe = {"text": _texts(text), **arguments}, arguments.get("recipe")
    with tempfile.TemporaryDirectory() as folder:  # the command always writes a file
        if "output" not in given | (read_recipe(recipe, argument_names("embed")) if recipe else {}):
            given["output"] = str(Path(folder) / "vectors.npy")
        return run_command("embed", given=given)


def search(index: str | PathLike, *queries: str, **arguments: Any) -> list[list[tuple[Any, float]]]:
    """The passages nearest to every query with their cosines (or the reranker's scores), best first.

    Args:
        index: its folder; built or brought up to date first, if data (list[str]: files and folders) is given.
        model (str): the embedding model, by default the index's own; reranker (str): puts the passages in order.
        top_k (int): passages for each query; 5 by default.
    """
    return run_command("search", given={"words": [str(index), *(_texts(queries) if queries else [])], **arguments})


def rerank(query: str, passages: Iterable[str], **arguments: Any) -> list[tuple[str, float]]:
    """The `top_k` (int; by default all) passages with the scores of the reranker `model` (str), best first."""
    return run_command("rerank", given={"words": [*_texts([query]), *_texts(passages)], **arguments})


def convert(source: str | PathLike, target: str | PathLike, **arguments: Any) -> Any:
    """Convert a saved BERT, ModernBERT, RoBERTa … to MiniBERT, or back, bit for bit; its tokenizer goes along.

    Args:
        source: a folder or a Hub name. target: a new folder.
        architecture (str): "bert", "modernbert", "roberta" … (docs/families.md), for what a MiniBERT becomes; by
            default what it was, or can be.
        set (dict): fields of `MiniBertConfig` that the MiniBERT written has otherwise; what is kept and new is printed.
    """
    return run_command("convert", given={"paths": [source, target], **arguments})


def export(source: str | PathLike, target: str | PathLike, **arguments: Any) -> Path:
    """Write a saved MiniBERT for other runtimes; the new folder.

    Args:
        source: a folder or a Hub name. target: a new folder.
        format (str): "onnx" (default), "native" or "sentence-transformers".
        head (str): "Model" for the encoder alone; int8 (bool): an int8 graph too (both "onnx").
        pooling (str), normalize (bool): of "sentence-transformers".
    """
    return run_command("export", given={"paths": [source, target], **arguments})


def _texts(texts: str | Iterable[str]) -> list[str]:
    if isinstance(texts, Mapping) or hasattr(texts, "columns") or not hasattr(texts, "__iter__"):
        raise ValueError(f"text: a {type(texts).__name__}; give strings, of a table one column")
    texts = [texts] if isinstance(texts, str) else list(texts)
    if not texts:  # a command would read stdin
        raise ValueError("text: none given; give at least one")
    for text in texts:
        if not isinstance(text, str):  # such as a table's missing value, nan
            raise ValueError(f"text: {text!r} is a {type(text).__name__}; give strings")
    return texts
