"""Loading saved models and tokenizers, with clear errors, without noise, and without running their
code.

What a hostile or damaged folder may hold is refused in three places: the names of code in `trust`,
tokenizers in `tokenization.coverage.check_loaded_tokenizer`, values of config.json in
`_check_config`.
"""

import json
import random
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub import hf_hub_download, is_offline_mode
from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError
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
from ...tokenization.coverage import check_loaded_tokenizer, is_panic
from ...tokenization.saved import follow_tokenizer_file, tokens_with_capitals
from .precision import dtype_of_saved
from .printing import warn
from .trust import (
    check_activation,
    check_kernels,
    check_links,
    check_modules,
    drop_foreign_code,
)
from .weights import check_unused, keep_untied

# The files that may hold the vocabulary of a tokenizer.
VOCABULARIES = (
    "tokenizer.json", "vocab.txt", "vocab.json", "sentencepiece.bpe.model", "spiece.model",
    "tokenizer.model", "bpe.codes",
)  # fmt: skip
# A tokenizer of characters or bytes needs no such file. Others have only special tokens without it,
# fewer than this.
FEWEST_CHARACTERS = 20
RUNS = "runs/"  # where commands save by default
MAX_NAMES = 4  # of missing weights, in an error
# While Transformers loads a model, it replaces `tie_weights` of all models and functions of
# `torch.nn.init`, and then restores them. Of two threads that load at once, the second would
# restore the replaced ones, for good.
_loading = threading.RLock()
# Where sentence-transformers looks for the longest text, first to last.
SENTENCE_CONFIGS = tuple(
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "xlm-roberta")
)


# --- files of a saved model ---


def find_file(source: str | Path, name: str) -> Path | None:
    """A file of a folder or a Hub repository. None if it has none, or if it is not in the cache in
    offline mode."""
    if Path(source).exists():
        path = Path(source, name)
        return path if path.is_file() else None
    try:
        return Path(hf_hub_download(str(source), name))
    except LocalEntryNotFoundError:
        if not is_offline_mode():
            raise
    except EntryNotFoundError:
        pass
    return None


def read_json(source: str | Path, name: str) -> Any:
    """The content of a JSON file that may be missing (an empty dictionary then)."""
    file = find_file(source, name)
    if file is None:
        return {}
    with wrap_load_errors(source):
        return json.loads(file.read_text(encoding="utf-8"))


def modules_of(source: str | Path) -> list[dict[str, str]]:
    """The modules of which sentence-transformers makes a model, the encoder first; none if it does
    not know it. A ValueError if they, or the files that belong to them, name code of others."""
    modules = read_json(source, "modules.json")
    if modules == {}:
        return []
    settings = {}
    check_modules(modules, settings, str(source))
    names = ["config_sentence_transformers.json", "router_config.json", *SENTENCE_CONFIGS]
    for module in modules:
        if module["path"]:
            names += [f"{module['path']}/config.json", f"{module['path']}/router_config.json"]
    for name in names:
        settings[name] = read_json(source, name)
        if not isinstance(settings[name], dict):
            raise ValueError(f"{source}: {name} is no JSON object; save the model again")
    check_modules(modules, settings, str(source))
    return modules


# --- models and tokenizers ---


def saved_config(path: str) -> PreTrainedConfig:
    """The config of a model in a folder or on the Hub, without running its code; a ValueError for
    an adapter, or for so many labels that their names would fill the memory."""
    check_exists(path)
    _check_no_adapter(path)
    saved = {}
    with suppress(OSError, ValueError, RecursionError):  # loading it says what is wrong
        file = find_file(path, "config.json")
        if file is not None:
            saved = json.loads(file.read_text(encoding="utf-8"))
    _check_config(path, saved)
    with wrap_load_errors(path):
        config = AutoConfig.from_pretrained(path, trust_remote_code=False)
    drop_foreign_code(vars(config), "config.json", path)
    return config


def check_exists(path: str | Path) -> None:
    """Refuse (a ValueError) the name of a folder that does not exist and can be no Hub name: our
    commands save in `runs`; and a folder whose files are elsewhere (`trust.check_links`)."""
    name = str(path)
    if Path(name).is_dir():
        check_links(Path(name))
    is_folder_name = name.startswith((RUNS, ".", "/", "~")) or name.count("/") > 1
    if is_folder_name and not Path(name).expanduser().exists():
        raise ValueError(
            f"there is no folder {name!r}; give the folder of a saved model, or a Hub name"
        )


def _check_config(path: str, saved: Any) -> None:
    """Refuse (a ValueError) a config.json whose values Transformers would fail on without a clear
    word."""
    if not isinstance(saved, dict):
        raise ValueError(f"model: {path!r} has a config.json that is no JSON object")
    count = saved.get("num_labels")
    if isinstance(count, int) and count > MAX_LABELS:
        raise ValueError(f"model: {path!r} has num_labels={count:,}; use {MAX_LABELS:,} at most")
    names = saved.get("architectures") or []
    if not isinstance(names, list) or not all(map(_is_identifier, names)):
        raise ValueError(
            f"model: {path!r} has architectures={names!r:.80} in config.json; use a list of one"
            " class name"
        )
    labels = saved.get("id2label")
    if labels is not None and not _are_labels(labels):
        raise ValueError(
            f"model: {path!r} has id2label={labels!r:.80} in config.json; use names by numbers from"
            " 0"
        )
    check_kernels(saved, "config.json")


def _is_identifier(name: Any) -> bool:
    return isinstance(name, str) and name.isidentifier()


def _are_labels(labels: Any) -> bool:
    if not isinstance(labels, dict):
        return False
    numbers = [key.isascii() and key.isdecimal() and len(key) < 10 for key in labels]
    names = [isinstance(name, (str, int, float)) for name in labels.values()]
    return all(numbers) and all(names)


def _check_no_adapter(folder: str | Path) -> None:
    if Path(folder, "adapter_config.json").exists():  # it would bring a model from elsewhere
        raise ValueError(
            f"model: {str(folder)!r} holds an adapter without its model. Merge the two and save"
            " the result: peft.AutoPeftModel.from_pretrained(folder).merge_and_unload()"
            ".save_pretrained(new_folder)"
        )


def saved_tokenizer(path: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer in a folder or on the Hub, without running its code; a ValueError or OSError if
    there is none. Where its class gives other ids than its tokenizer.json, that file is used, with
    a warning."""
    check_exists(path)
    _check_no_adapter(path)
    with wrap_load_errors(path):
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    has_files = not Path(path).is_dir() or any(Path(path, name).exists() for name in VOCABULARIES)
    # without any file, Transformers makes an empty one
    if not has_files and len(tokenizer) < FEWEST_CHARACTERS:
        raise ValueError(
            f"{str(path)!r} holds no tokenizer; tokenizer.save_pretrained(folder) writes it"
        )
    drop_foreign_code(tokenizer.init_kwargs, "tokenizer_config.json", path)
    check_loaded_tokenizer(tokenizer)
    return match_tokenizer_file(path, tokenizer)


def match_tokenizer_file(
    path: str | Path, tokenizer: PreTrainedTokenizerBase
) -> PreTrainedTokenizerBase:
    """`tokenizer`, which was loaded from `path`; or, with a warning, one that gives the ids of its
    tokenizer.json where it does not. Warn of a cased vocabulary whose text is lower-cased."""
    file = find_file(str(path), "tokenizer.json")
    with wrap_load_errors(path):
        followed = follow_tokenizer_file(tokenizer, file)
    if followed is not tokenizer:
        warn(
            f"tokenizer: Transformers reads {str(path)!r} as {type(tokenizer).__name__}, which"
            " gives other ids than its tokenizer.json; tokenizer.json is used"
        )
    cased_tokens = tokens_with_capitals(tokenizer) if file is None else []
    if cased_tokens:
        warn(
            f"tokenizer: {str(path)!r} has {len(cased_tokens):,} tokens with capitals, but"
            " lower-cases all text, as"
            ' Transformers does by default; if it is cased, write {"do_lower_case": false} into its'
            " tokenizer_config.json"
        )
    return followed


def load_sentence_transformer(
    model_class: Any, path: str, show_warnings: bool = False, **options: Any
) -> Any:
    """Open a model of sentence-transformers (`model_class`: `SentenceTransformer`, `CrossEncoder`,
    …) without remote code; a ValueError if it names code of others, or if its tokenizer cannot be
    used. With `show_warnings`, Transformers says which weights are new or left out."""
    saved_config(path)
    tokenizer = saved_tokenizer(path)
    modules_of(path)
    check_activation(read_json(path, "config.json"), path)
    with wrap_load_errors(path, show_warnings):
        model = model_class(path, trust_remote_code=False, **options)
    if type(model.tokenizer) is not type(tokenizer):  # see `match_tokenizer_file`
        tokenizer.model_max_length = model.tokenizer.model_max_length
        model[0].processor = tokenizer
    if model.transformers_model is not None:
        drop_foreign_code(vars(model.transformers_model.config), "config.json", path)
    drop_foreign_code(model.tokenizer.init_kwargs, "tokenizer_config.json", path)
    check_loaded_tokenizer(model.tokenizer)  # sentence_bert_config.json may have changed it
    return model


def minibert_config(path: str) -> MiniBertConfig:
    """`saved_config` of a MiniBERT; a ValueError for any other model."""
    config = saved_config(path)
    if not isinstance(config, MiniBertConfig):
        raise ValueError(
            f"model: {path!r} is a {config.model_type}, not a MiniBERT; convert it by"
            f" `minibert convert {path} FOLDER` (`minibert convert --help` lists the families)"
        )
    return config


def load_pretrained(
    model_class: Any, path: str | Path, head: bool = True, **options: Any
) -> tuple[PreTrainedModel, list[str]]:
    """Call `model_class.from_pretrained` without remote code (by default in `dtype_of_saved`) and
    `check_complete`; returns the model and the names of its new weights. Without `head`, the
    weights of a head may be missing, and are new then."""
    if "config" not in options:
        options["config"] = saved_config(str(path))
    if "dtype" not in options:
        options["dtype"] = dtype_of_saved(options["config"])
    # The head of another task may have another width (`embedding_size`).
    options |= dict(
        output_loading_info=True, trust_remote_code=False, ignore_mismatched_sizes=not head
    )
    with _loading:
        model, report = model_class.from_pretrained(path, **options)
    new_weights = set(report["missing_keys"])
    for name, *_ in report["mismatched_keys"]:
        new_weights.add(name)
    check_complete(path, model, new_weights, head)
    check_unused(path, model, report["unexpected_keys"])
    keep_untied(path, model)
    return model, sorted(new_weights)


def load_masked_lm(path: str, model_class: Any) -> PreTrainedModel:
    """Load a model with its head; a ValueError if it was not trained to predict masked tokens."""
    model, new_weights = load_pretrained(model_class, path, head=False)
    if new_weights or getattr(model.config, "is_causal", False):
        saved = ", ".join(model.config.architectures or ["no architecture"])
        raise ValueError(f"model: {path!r} has no head that predicts masked tokens ({saved})")
    return model


def check_complete(
    path: str | Path, model: PreTrainedModel, missing: Iterable[str], head: bool = True
) -> None:
    """Refuse (a ValueError) a model of which weights are missing, which would be random. Without
    `head`, a head and a pooler may be new."""
    missing = sorted(missing)
    if not head:
        encoder = f"{model.base_model_prefix}."
        pooler = f"{encoder}pooler."
        missing = [
            name for name in missing if name.startswith(encoder) and not name.startswith(pooler)
        ]
    if missing:
        names = ", ".join(missing[:MAX_NAMES])
        if len(missing) > MAX_NAMES:
            names += " …"
        raise ValueError(
            f"model: {str(path)!r} lacks the weights {names}; give a folder that holds the whole"
            " model"
        )


def check_weights(path: str, model: PreTrainedModel, head: bool = True) -> None:
    """`check_complete` for a model that sentence-transformers loaded, by the names in the files of
    the folder. A pooler that was not saved is removed from the model."""
    keep_untied(path, model)
    prefix = f"{model.base_model_prefix}."  # a file of the encoder alone has names without it
    files = sorted(Path(path).glob("*.safetensors"))
    saved_names = set()
    for file in files:
        with safe_open(file, "pt") as weights:
            for name in weights.keys():  # noqa: SIM118
                saved_names.add(name.removeprefix(prefix))
    weights_here = {}
    for name, weight in model.state_dict().items():
        weights_here[name.removeprefix(prefix)] = weight
    check_unused(path, model, saved_names - weights_here.keys())
    # by addresses, since tied weights are saved under one of their names
    saved_addresses = set()
    for name in saved_names & weights_here.keys():
        saved_addresses.add(weights_here[name].data_ptr())
    missing = []
    if files:  # none for a name of the Hub
        for name, weight in model.state_dict().items():
            if weight.data_ptr() not in saved_addresses:
                missing.append(name)
    if missing and all(name.startswith("pooler.") for name in missing):
        # masked language models have no pooler
        model.pooler = None
        model.config.add_pooling_layer = False
        missing = []
    check_complete(path, model, missing, head)


@contextmanager
def random_state_kept() -> Iterator[None]:
    """Restore the random states of Python, NumPy and torch (CPU and CUDA) at the end: measuring
    changes nothing."""
    python_state = random.getstate()
    numpy_state = np.random.get_state()
    devices = range(torch.cuda.device_count())  # without them, it warns about several GPUs
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)


@contextmanager
def without_bars() -> Iterator[None]:
    """Hide the progress bars of Transformers and `datasets`, for work that is over at once."""
    libraries = []  # those that show bars
    if logging.is_progress_bar_enabled():
        libraries.append((logging.disable_progress_bar, logging.enable_progress_bar))
    datasets = sys.modules.get("datasets")  # do not import it for this alone
    if datasets is not None and not datasets.are_progress_bars_disabled():
        libraries.append((datasets.disable_progress_bars, datasets.enable_progress_bars))
    try:
        for disable, _ in libraries:
            disable()
        yield
    finally:
        for _, enable in libraries:
            enable()


@contextmanager
def suppress_logging() -> Iterator[None]:
    """Hide progress bars, and warnings about a head or a pooler that is new or left out. One thread
    at a time."""
    with _loading:
        verbosity = logging.get_verbosity()
        logging.set_verbosity_error()
        try:
            with without_bars():
                yield
        finally:
            logging.set_verbosity(verbosity)


@contextmanager
def wrap_load_errors(path: str | Path, show_warnings: bool = False) -> Iterator[None]:
    """Any error of a library that reads damaged files becomes a ValueError that names the path;
    with `suppress_logging`, or with `show_warnings` only without bars."""
    quiet = without_bars() if show_warnings else suppress_logging()
    try:
        with quiet:
            yield
    except BaseException as error:
        if isinstance(error, (ValueError, OSError)) and not isinstance(error, json.JSONDecodeError):
            if isinstance(error, OSError) and not Path(path).exists():
                raise OSError(
                    f"there is no folder {str(path)!r} here, and from the Hub it cannot be loaded:"
                    f" {error}"
                ) from error
            raise  # it is clear
        if not isinstance(error, Exception) and not is_panic(error):
            raise  # such as KeyboardInterrupt
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise ValueError(
            f"{str(path)!r} has files that cannot be read ({reason}); save or download it again"
        ) from error
