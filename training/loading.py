"""Saved models: what lies at a path, and loading it without news of weights that belong to another head."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import safe_open
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.utils import logging

from ..configuration_minibert import MiniBertConfig


def saved_config(path: str) -> PreTrainedConfig:
    """The config of a model: a folder's, or that of a name on the Hub; its code is never run.

    Raises:
        ValueError: there is none.
    """
    if Path(path).exists() and not (Path(path) / "config.json").exists():
        raise ValueError(f"model: there is none in {path!r} (no config.json)")
    if not Path(path).exists() and (path.count("/") > 1 or path.startswith((".", "/", "~"))):
        raise ValueError(f"model: {path!r} does not exist")
    try:
        return AutoConfig.from_pretrained(path, trust_remote_code=False)
    except OSError as error:
        raise ValueError(f"model: {path!r} is no folder here, and on the Hub: {str(error).splitlines()[0]}") from error


def minibert_config(path: str) -> MiniBertConfig:
    """`saved_config` of a MiniBERT.

    Raises:
        ValueError: there is none, or it is no MiniBERT.
    """
    config = saved_config(path)
    if not isinstance(config, MiniBertConfig):
        raise ValueError(
            f"model: {path!r} is a {config.model_type}, not a MiniBERT; `minibert convert {path} FOLDER` makes one of a"
            " BERT or ModernBERT"
        )
    return config


def check_weights(path: str, model: PreTrainedModel) -> None:
    """Refuse a folder that lacks weights of a model that was loaded from it: they would be random numbers.

    Raises:
        ValueError: naming them.
    """
    files = sorted(Path(path).glob("*.safetensors"))
    saved = set()
    for file in files:
        with safe_open(file, "pt") as weights:
            names = weights.keys()
            saved |= {name.removeprefix(f"{model.base_model_prefix}.") for name in names}
    missing = [name for name in model.state_dict() if name not in saved] if files else []
    if missing:
        raise ValueError(
            f"model: {path!r} lacks the weights {', '.join(missing[:4])}{' …' * (len(missing) > 4)}; give a folder that"
            " holds the whole encoder"
        )


@contextmanager
def without_bars() -> Iterator[None]:
    """While loading or saving: no bar of Transformers, where that is over at once."""
    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if bars:
            logging.enable_progress_bar()


@contextmanager
def quietly() -> Iterator[None]:
    """While loading: no bar, and that a head or a pooler is new, or left out, is no warning."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with without_bars():
            yield
    finally:
        logging.set_verbosity(verbosity)
