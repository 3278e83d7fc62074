"""`minibert prepare`: tokenize and pack text once, for several trainings."""

import os
from pathlib import Path
from typing import Any

from ...tokenization import adapt_tokenizer
from ..common.config_fields import checked_options, make_config
from ..common.files import check_new_folder, new_folder
from ..common.printing import print_next_step, without_bars
from ..data.corpus import Corpus
from ..data.entries import check_entries, name_without_folder
from ..data.mixtures import split_corpus
from ..data.packing import check_packing, tokenize_and_pack
from ..data.prepared import SPLITS, PreparedRows, save_rows
from ..data.tables import Rows, names_of_data
from ..data.tokenized import check_tokenization
from ..loading.tokenizers import saved_tokenizer
from .config import RowsConfig, fill_row_defaults

# What the manifest says, beside names of data and tokenizer, of how the rows were made. It goes
# wherever the rows go: all else stays on this machine, above all paths.
ARGUMENTS_IN_MANIFEST = (
    "validation_size",
    "seq_length",
    "packing",
    "algorithm",
    "vocab_size",
    "lowercase",
    "strip_accents",
    "max_lost_text",
    "num_proc",
    "text_column",
    "sample_by",
    "weights",
    "sampling_alpha",
)


@checked_options(Corpus, RowsConfig)
@without_bars()
def prepare(
    data: str | os.PathLike | list[str] | Rows | Corpus | None = None,
    *,
    output_dir: str | os.PathLike = "runs/rows",
    tokenizer: str | None = None,
    seed: int = 42,
    args: RowsConfig | None = None,
    **options: Any,
) -> PreparedRows:
    """Tokenize and pack text into parquet shards, which `pretrain` takes as its data.

    The rows are those that `pretrain` would make from the same text with the same seed. If the call
    is killed, the same call continues from the cache of `datasets`. Bad input is refused (a
    ValueError) before any work.

    Args:
        data: The text: txt, json, jsonl, csv, tsv or parquet files, folders, globs, or Hub data
            sets (owner/name or owner/name:config). By default the built-in corpus: the
            documentation in this Python installation. In Python also rows: a `Dataset`, a
            DataFrame or dictionaries; or a `Corpus`.
        output_dir: Folder of the rows.
        tokenizer: A trained tokenizer or model (folder or Hub name); by default one is trained and
            saved with the rows.
        seed: Seed of the documents that are held out and drawn; the default is that of pretrain,
            too.
        args: The settings of the rows and of a new tokenizer.
        options: Fields of `Corpus` and of `RowsConfig`; the latter replace those of `args`.
    """
    folder = Path(output_dir)
    corpus = Corpus.from_options(data, options)
    args = make_config(RowsConfig, args, options)
    fill_row_defaults(args)
    if corpus.streaming:
        raise ValueError(
            "streaming: prepare reads text from disk; leave it out, or stream with minibert"
            " pretrain"
        )
    check_entries(corpus.data)
    check_packing(args.packing, args.seq_length)
    check_new_folder(folder)
    arguments = describe_arguments(args, corpus, seed, tokenizer)
    row_tokenizer = None
    if tokenizer is not None:  # opened first: a wrong name is refused before any work
        row_tokenizer = adapt_tokenizer(saved_tokenizer(tokenizer))
    with new_folder(folder) as written:
        splits = split_corpus(corpus, validation_size=args.validation_size, seed=seed)
        if row_tokenizer is None:
            row_tokenizer = args.train_tokenizer_on(
                splits.tokenizer_sample["text"], model_max_length=args.seq_length
            )
        check_tokenization(splits.tokenizer_sample, row_tokenizer, args.max_lost_text)
        rows = {}
        for name in SPLITS:
            documents = getattr(splits, name).select_columns("text")
            rows[name] = tokenize_and_pack(
                documents,
                row_tokenizer,
                seq_length=args.seq_length,
                packing=args.packing,
                num_proc=args.num_proc,
            )
        save_rows(written, rows, row_tokenizer, vars(args), arguments)
    prepared = PreparedRows(folder)
    print(f"{prepared.describe()}, saved to {folder}")
    print_next_step("minibert", "pretrain", "--data", folder)
    return prepared


def describe_arguments(
    args: RowsConfig, corpus: Corpus, seed: int, tokenizer: str | os.PathLike | None
) -> dict[str, Any]:
    """How rows were made, for the manifest: without the folders of this machine."""
    arguments = {}
    for name, value in (vars(args) | vars(corpus)).items():
        if name in ARGUMENTS_IN_MANIFEST:
            arguments[name] = value
    arguments["data"] = [name_without_folder(name) for name in names_of_data(corpus.data)]
    arguments["seed"] = seed
    arguments["tokenizer"] = None
    if tokenizer is not None:
        arguments["tokenizer"] = name_without_folder(os.fspath(tokenizer))
    return arguments
