"""`minibert tokenizer`: train a tokenizer on text, or add words to a trained one."""

import os
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from ...tokenization import extend_tokenizer
from ..common.config_fields import checked_options, make_config
from ..common.files import new_folder
from ..common.locks import lock_folder
from ..common.paths import check_folder
from ..common.printable import printable
from ..common.printing import print_next_step
from ..data.corpus import Corpus
from ..data.entries import check_entries
from ..data.mixtures import load_sample
from ..data.tokenized import check_tokenization
from ..loading.tokenizers import saved_tokenizer
from .config import TokenizerConfig


@checked_options(Corpus, TokenizerConfig)
def make_tokenizer(
    data: str | os.PathLike | list[str] | None = None,
    *,
    output_dir: str = "runs/tokenizer",
    extend: str | None = None,
    extend_vocabulary: int = 1000,
    args: TokenizerConfig | None = None,
    **options: Any,
) -> PreTrainedTokenizerBase:
    """Train a tokenizer on text, or add words to a trained one, and save it. Prints the tokens for
    each word, the share of the text that is lost, and an example.

    Args:
        data: The text: txt, json, jsonl, csv, tsv or parquet files, folders, globs, or Hub data
            sets (owner/name or owner/name:config). By default the built-in corpus: the
            documentation in this Python installation.
        output_dir: Folder of the saved tokenizer.
        extend: A trained tokenizer (folder or Hub name) to add words to; by default a new one is
            trained.
        extend_vocabulary: With extend, the number of words to add: those of the text that it cuts
            most.
        args: The settings of a new tokenizer.
        options: Fields of `Corpus` and of `TokenizerConfig`; the latter replace those of `args`.
    """
    output = Path(output_dir)
    corpus = Corpus.from_options(data, options)
    args = make_config(TokenizerConfig, args, options)
    check_entries(corpus.data)
    check_folder(output)
    if (output / "tokenizer.json").exists():
        raise ValueError(
            f"output_dir: {str(output)!r} holds a tokenizer; give another folder, or remove it"
        )
    with lock_folder(output):
        trained = None
        if extend is not None:  # opened first: a wrong name is refused before any work
            trained = saved_tokenizer(extend)
        documents = load_sample(corpus)
        if trained is None:
            tokenizer = args.train_tokenizer_on(documents["text"])
        else:
            extension = extend_tokenizer(trained, documents["text"], extend_vocabulary)
            tokenizer = extension.tokenizer
            print(printable(extension.describe()))
        check_tokenization(documents, tokenizer, args.max_lost_text)
        with new_folder(output) as written:
            tokenizer.save_pretrained(written)
    example = next(iter(documents))["text"].splitlines()[0][:80]
    print(f"{len(tokenizer):,} tokens, saved to {output}")
    print(printable(example))
    print(printable(" ".join(tokenizer.tokenize(example))))
    if extend is None:
        print_next_step("minibert", "pretrain", "--data", "FOLDER", "--tokenizer", output)
    else:
        words = ("--model_name_or_path", extend, "--extend_vocabulary", extend_vocabulary)
        print_next_step("minibert", "pretrain", "--data", "FOLDER", *words)
    return tokenizer
