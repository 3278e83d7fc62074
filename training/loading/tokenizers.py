"""Opens saved tokenizers, without running their code."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from ...tokenization.coverage import check_loaded_tokenizer
from ...tokenization.tokenizer_file import tokenizer_with_ids_of_file, tokens_with_capitals
from ..common.printable import printable
from ..common.printing import warn
from .foreign_code import drop_foreign_code
from .load_errors import wrap_load_errors
from .saved_files import check_exists, check_no_adapter, find_file, read_json

# The files that may hold the vocabulary of a tokenizer.
VOCABULARY_FILES = (
    "tokenizer.json", "vocab.txt", "vocab.json", "sentencepiece.bpe.model", "spiece.model",
    "tokenizer.model", "bpe.codes",
)  # fmt: skip
# What special_tokens_map.json has beside single tokens (`cls_token`).
SPECIAL_TOKEN_LISTS = ("additional_special_tokens", "extra_special_tokens")
# A tokenizer of characters or bytes needs no such file. Others have only special tokens without it,
# fewer than this.
FEWEST_CHARACTERS = 20


def saved_tokenizer(path: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer in a folder or on the Hub, without running its code; a ValueError or OSError if
    there is none. Where its class gives other ids than its tokenizer.json, that file is used, with
    a warning."""
    check_exists(path)
    check_no_adapter(path)
    check_tokenizer_settings(path)
    with wrap_load_errors(path):
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    has_files = not Path(path).is_dir() or any(
        Path(path, name).exists() for name in VOCABULARY_FILES
    )
    # without any file, Transformers makes an empty one
    if not has_files and len(tokenizer) < FEWEST_CHARACTERS:
        raise ValueError(
            f"{str(path)!r} holds no tokenizer; tokenizer.save_pretrained(folder) writes it"
        )
    drop_foreign_code(tokenizer.init_kwargs, "tokenizer_config.json", path)
    check_loaded_tokenizer(tokenizer)
    return match_tokenizer_file(path, tokenizer)


def check_tokenizer_settings(path: str | Path) -> None:
    """Refuse (a ValueError) a tokenizer whose JSON files name a file for its vocabulary: any file
    of this machine would become part of the tokenizer, and be published with it."""
    settings = read_json(path, "tokenizer_config.json")
    special_tokens = read_json(path, "special_tokens_map.json")
    if not isinstance(settings, dict) or not isinstance(special_tokens, dict):
        raise ValueError(
            f"{printable(path)}: tokenizer_config.json or special_tokens_map.json is no JSON"
            " object; save the tokenizer again"
        )
    for file, key in _keys_of_files(settings, special_tokens):
        raise ValueError(
            f"{printable(path)}: {file} has {printable(repr(key))}, by which a tokenizer can read"
            " any file; remove it, and put the vocabulary beside it, as"
            " tokenizer.save_pretrained(folder) does"
        )


def _keys_of_files(
    settings: dict[str, Any], special_tokens: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    """The files, and their keys, under which a tokenizer would find the name of a file."""
    for key in ("vocab", "merges"):
        if isinstance(settings.get(key), str):
            yield "tokenizer_config.json", key
    if settings.get("init_inputs"):  # handed to the tokenizer by position, a vocabulary among them
        yield "tokenizer_config.json", "init_inputs"
    for key in special_tokens:
        if not key.endswith("_token") and key not in SPECIAL_TOKEN_LISTS:
            yield "special_tokens_map.json", key


def match_tokenizer_file(
    path: str | Path, tokenizer: PreTrainedTokenizerBase
) -> PreTrainedTokenizerBase:
    """`tokenizer`, which was loaded from `path`; or, with a warning, one that gives the ids of its
    tokenizer.json where it does not. Warn of a cased vocabulary whose text is lower-cased."""
    file = find_file(str(path), "tokenizer.json")
    with wrap_load_errors(path):
        followed = tokenizer_with_ids_of_file(tokenizer, file)
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
