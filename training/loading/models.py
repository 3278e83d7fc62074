"""Opens saved models and their configs, without running their code."""

import json
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any

from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel

from ...configuration_minibert import MiniBertConfig
from ...tokenization.coverage import check_loaded_tokenizer
from ..common.precision import dtype_of_saved
from .config_checks import check_config_values
from .foreign_code import check_activation, drop_foreign_code
from .load_errors import LOADING_LOCK, wrap_load_errors
from .saved_files import check_exists, check_no_adapter, find_file, modules_of, read_json
from .tokenizers import saved_tokenizer
from .weights import check_complete, check_unused, keep_untied


def saved_config(path: str) -> PreTrainedConfig:
    """The config of a model in a folder or on the Hub, without running its code; a ValueError for
    an adapter, or for so many labels that their names would fill the memory."""
    check_exists(path)
    check_no_adapter(path)
    saved = {}
    with suppress(OSError, ValueError, RecursionError):  # loading it says what is wrong
        file = find_file(path, "config.json")
        if file is not None:
            saved = json.loads(file.read_text(encoding="utf-8"))
    check_config_values(path, saved)
    with wrap_load_errors(path):
        config = AutoConfig.from_pretrained(path, trust_remote_code=False)
    drop_foreign_code(vars(config), "config.json", path)
    return config


def minibert_config(path: str) -> MiniBertConfig:
    """`saved_config` of a MiniBERT; a ValueError for any other model."""
    config = saved_config(path)
    if not isinstance(config, MiniBertConfig):
        command = shlex.join(["minibert", "convert", str(path), "FOLDER"])
        raise ValueError(
            f"model: {path!r} is a {config.model_type}, not a MiniBERT; convert it by"
            f" `{command}` (`minibert convert --help` lists the families)"
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
    with LOADING_LOCK:
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
    # whatever files of the model say: no pickle
    options["model_kwargs"] = options.get("model_kwargs", {}) | {"weights_only": True}
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
