"""Loading saved models and tokenizers, with clear errors and without noise; and writing new folders."""

import json
import os
import random
import signal
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from transformers import (
    AutoConfig,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from ...configuration_minibert import MAX_LABELS, MiniBertConfig
from ...tokenization.coverage import check_tokenizer, is_panic
from .files import holds_something, lock_folder
from .precision import dtype_of_saved

# The files that may hold the vocabulary of a tokenizer.
VOCABULARIES = (
    "tokenizer.json", "vocab.txt", "vocab.json", "sentencepiece.bpe.model", "spiece.model", "tokenizer.model",
    "bpe.codes",
)  # fmt: skip
# A tokenizer of characters or bytes needs no such file. Others have only special tokens without it, fewer than this.
FEWEST_CHARACTERS = 20
# While Transformers loads a model, it replaces `tie_weights` of all models and functions of `torch.nn.init`, and then
# restores them. Of two threads that load at once, the second would restore the replaced ones, for good.
_loading = threading.RLock()


def saved_config(path: str) -> PreTrainedConfig:
    """The config of a model in a folder or on the Hub, without running its code; a ValueError for an adapter, or for so
    many labels that their names would fill the memory."""
    _check_no_adapter(path)
    count = None
    with suppress(
        OSError, ValueError, AttributeError, RecursionError
    ):  # loading it says what is wrong
        count = json.loads(Path(path, "config.json").read_text(encoding="utf-8")).get("num_labels")
    if isinstance(count, int) and count > MAX_LABELS:
        raise ValueError(f"model: {path!r} has num_labels={count:,}; use {MAX_LABELS:,} at most")
    with reading(path):
        return AutoConfig.from_pretrained(path, trust_remote_code=False)


def _check_no_adapter(folder: str | Path) -> None:
    if Path(folder, "adapter_config.json").exists() and not Path(folder, "config.json").exists():
        raise ValueError(
            f"model: {str(folder)!r} holds an adapter without its model. Merge the two and save the result:"
            " peft.AutoPeftModel.from_pretrained(folder).merge_and_unload().save_pretrained(new_folder)"
        )


def saved_tokenizer(path: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer in a folder or on the Hub, without running its code; a ValueError or OSError if there is none."""
    _check_no_adapter(path)
    with reading(path):
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    has_files = not Path(path).is_dir() or any(Path(path, name).exists() for name in VOCABULARIES)
    if (
        not has_files and len(tokenizer) < FEWEST_CHARACTERS
    ):  # Transformers makes an empty one without any file
        raise ValueError(
            f"{str(path)!r} holds no tokenizer; tokenizer.save_pretrained(folder) writes it"
        )
    check_tokenizer(tokenizer)
    return tokenizer


def minibert_config(path: str) -> MiniBertConfig:
    """`saved_config` of a MiniBERT; a ValueError for any other model."""
    config = saved_config(path)
    if not isinstance(config, MiniBertConfig):
        use = f"convert it by `minibert convert {path} FOLDER`, if its family is in docs/convert-and-publish.md"
        raise ValueError(f"model: {path!r} is a {config.model_type}, not a MiniBERT; {use}")
    return config


def load_reported(
    model_class: Any, path: str | Path, head: bool = True, **options: Any
) -> tuple[PreTrainedModel, list[str]]:
    """Call `model_class.from_pretrained` without remote code (by default in `dtype_of_saved`) and `check_complete`;
    returns the model and the names of its new weights."""
    if "dtype" not in options:
        options["dtype"] = dtype_of_saved(saved_config(str(path)))
    # The head of another task may have another width (`embedding_size`).
    options |= dict(
        output_loading_info=True, trust_remote_code=False, ignore_mismatched_sizes=not head
    )
    with _loading:
        model, report = model_class.from_pretrained(path, **options)
    new = sorted({*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])})
    check_complete(path, model, new, head)
    return model, new


def load_predictor(path: str, model_class: Any) -> PreTrainedModel:
    """Load a model with its head; a ValueError if it was not trained to predict masked tokens."""
    model, new = load_reported(model_class, path, head=False)
    if new or getattr(model.config, "is_causal", False):
        saved = ", ".join(model.config.architectures or ["no architecture"])
        raise ValueError(f"model: {path!r} has no head that predicts masked tokens ({saved})")
    return model


def check_complete(
    path: str | Path, model: PreTrainedModel, missing: Iterable[str], head: bool = True
) -> None:
    """Refuse (a ValueError) a model of which weights are missing, which would be random. Without `head`, a head and a
    pooler may be new."""
    if not head:
        prefix = f"{model.base_model_prefix}."
        missing = [
            name
            for name in missing
            if name.startswith(prefix) and not name.startswith(f"{prefix}pooler.")
        ]
    if missing := sorted(missing):
        named = ", ".join(missing[:4]) + " …" * (len(missing) > 4)
        raise ValueError(
            f"model: {str(path)!r} lacks the weights {named}; give a folder that holds the whole model"
        )


def check_weights(path: str, model: PreTrainedModel, head: bool = True) -> None:
    """`check_complete` for a model that sentence-transformers loaded, by the names in the files of the folder. A pooler
    that was not saved is removed from the model."""
    files, prefix = sorted(Path(path).glob("*.safetensors")), f"{model.base_model_prefix}."
    saved = set()
    for file in files:
        with safe_open(file, "pt") as weights:
            saved |= {name.removeprefix(prefix) for name in weights.keys()}  # noqa: SIM118
    state = model.state_dict()
    held = {
        weight.data_ptr() for name, weight in state.items() if name.removeprefix(prefix) in saved
    }  # tied ones too
    missing = (
        [name for name, weight in state.items() if weight.data_ptr() not in held] if files else []
    )
    if missing and all(
        name.startswith("pooler.") for name in missing
    ):  # masked language models have no pooler
        model.pooler, model.config.add_pooling_layer, missing = None, False, []
    check_complete(path, model, missing, head)


def check_new(target: Path) -> None:
    """Refuse (a ValueError) a target that is not empty, or a broken link."""
    if target.is_symlink() and not target.exists():
        raise ValueError(
            f"target {str(target)!r} is a link to {os.readlink(target)!r}, which does not exist"
        )
    if target.exists() and not (target.is_dir() and not holds_something(target)):
        raise ValueError(
            f"target {str(target)!r} exists already, and nothing is overwritten; give a new folder"
        )


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yield a folder to write in; at the end, its files move to `target`, which is new or empty. An error or SIGTERM
    leaves nothing."""
    handles = (
        threading.current_thread() is threading.main_thread()
    )  # only the main thread can handle signals
    before = (
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        if handles
        else None
    )
    try:
        with lock_folder(target):
            check_new(target)  # again, since another process may have finished here
            with tempfile.TemporaryDirectory(dir=target, prefix=".unfinished") as folder:
                written = Path(folder, target.resolve().name)
                written.mkdir()
                yield written
                for path in list(written.iterdir()):
                    path.rename(target / path.name)
    finally:
        if handles:
            signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


@contextmanager
def random_state_kept() -> Iterator[None]:
    """Restore the random states of Python, NumPy and torch (CPU and CUDA) at the end: measuring changes nothing."""
    states = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(
        range(torch.cuda.device_count())
    ):  # without the devices, it warns about several GPUs
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])


@contextmanager
def without_bars() -> Iterator[None]:
    """Hide the progress bars of Transformers and `datasets`, for work that is over at once."""
    shown = [
        (logging.disable_progress_bar, logging.enable_progress_bar)
    ] * logging.is_progress_bar_enabled()
    datasets = sys.modules.get("datasets")  # do not import it for this alone
    if datasets is not None and not datasets.are_progress_bars_disabled():
        shown.append((datasets.disable_progress_bars, datasets.enable_progress_bars))
    try:
        for disable, _ in shown:
            disable()
        yield
    finally:
        for _, enable in shown:
            enable()


@contextmanager
def quietly() -> Iterator[None]:
    """Hide progress bars, and warnings about a head or a pooler that is new or left out. One thread at a time."""
    with _loading:
        verbosity = logging.get_verbosity()
        logging.set_verbosity_error()
        try:
            with without_bars():
                yield
        finally:
            logging.set_verbosity(verbosity)


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """`quietly`; any error of a library that reads damaged files becomes a ValueError that names the path."""
    try:
        with quietly():
            yield
    except BaseException as error:
        is_clear = isinstance(error, (ValueError, OSError)) and not isinstance(
            error, json.JSONDecodeError
        )
        if is_clear or not (isinstance(error, Exception) or is_panic(error)):
            raise
        said = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise ValueError(
            f"{str(path)!r} has files that cannot be read ({said}); save or download it again"
        ) from error
