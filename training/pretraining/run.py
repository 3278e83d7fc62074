"""`minibert pretrain`: reads text or prepared rows, and calls `PretrainingTrainer`."""

import copy
import difflib
import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

import datasets
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase, set_seed

from ...configuration_minibert import MiniBertConfig
from ...tokenization import extend_tokenizer
from ..common.checkpoints import check_same, checkpoint_to_resume
from ..common.files import check_folder, lock_output
from ..common.loading import minibert_config, saved_tokenizer, without_bars
from ..common.precision import without_autocast
from ..common.processes import first_process_first
from ..common.training_result import TrainingResult
from ..common.trust import drop_foreign_code
from ..data.builtin_corpus import BUILTIN
from ..data.documents import check_sources
from ..data.mixtures import Corpus, CorpusSplits, check_stream, mix_streams, prepare_documents
from ..data.prepared import PreparedRows, texts_of
from ..hub.push import check_push
from .config import PretrainingConfig, RowsConfig, fill_defaults
from .objectives import OBJECTIVES
from .trainer import PretrainingTrainer, new_tokenizer


@without_bars()
def pretrain(
    data: str | os.PathLike | list[str] = (),
    model: Literal["bert", "modernbert", "minibert"] = "minibert",
    size: Literal["tiny", "mini", "small", "medium", "base", "large"] = "mini",
    tokenizer: str | None = None,
    model_name_or_path: str | None = None,
    config_overrides: str | dict[str, Any] | None = None,
    extend_vocabulary: int | None = None,
    args: PretrainingConfig | None = None,
    **options: Any,
) -> TrainingResult:
    """Train a tokenizer and pretrain a model on text.

    The model, the tokenizer, a card, a report and the loss curve are saved to `output_dir`.

    Bad input is refused (a ValueError) before any training, and without a change to the output folder.

    Args:
        data: The text: txt, json, jsonl, csv, tsv or parquet files, folders, globs, or Hub data sets (owner/name or
            owner/name:config), with several languages as language=FILE (de=folder); or a folder that
            `minibert prepare` wrote. By default the built-in corpus: the documentation in this Python installation.
        model: The preset: one of the two published ones, or ModernBERT with changes that make it learn faster.
        size: The size of the preset.
        tokenizer: A trained tokenizer (folder or Hub name); by default one is trained on the text.
        model_name_or_path: A trained MiniBERT (folder or Hub name) to continue with.
        config_overrides: Fields of `MiniBertConfig` to change in the preset, as "hidden_size=64,num_hidden_layers=2"
            or as JSON; in a trained model, only fields that do not change the shapes of its weights.
        extend_vocabulary: Number of words of the text to add to the vocabulary of the trained model: those that its
            tokenizer cuts most.
        args: The settings of the training.
        options: Fields of `Corpus`, and of `PretrainingConfig` instead of `args`.

    Returns:
        The saved model (None in a process that saves nothing), the tokenizer, the report and the folder.
    """
    start, corpus = time.monotonic(), Corpus.take(data, options)
    args = copy.copy(args) if args else PretrainingConfig(**options)
    check_folder(Path(args.output_dir))
    if args.push_to_hub:
        check_push(args)
    with lock_output(args):
        # Refuse what can be refused before anything is read.
        checkpoint = checkpoint_to_resume(args)
        check_sources(corpus.data)
        prepared = PreparedRows.find(corpus.data)
        if model != "minibert" and args.embedding_init is None:
            args.embedding_init = "random"  # as published
        if prepared is not None:
            adopt_rows(args, prepared)
        objective = OBJECTIVES[args.objective](fill_defaults(args, model_name_or_path is None))
        config = resolve_config(
            model, size, model_name_or_path, config_overrides, objective.config_fields
        )
        objective.check(config, corpus.streaming)
        if extend_vocabulary is not None and (model_name_or_path is None or prepared is not None):
            raise ValueError(
                "extend_vocabulary: it needs text and a trained model; give --data and --model_name_or_path"
            )
        tokenizer = read_tokenizer(tokenizer, model_name_or_path, prepared)
        train, validation, sample = (
            read_documents(corpus, args) if prepared is None else read_rows(prepared, corpus, args)
        )
        tokenizer = tokenizer or new_tokenizer(args, config, sample["text"])
        source, new_weights, extension = config, [], None
        if model_name_or_path is not None:
            set_seed(args.seed)  # the head may be new
            source, new_weights = objective.load(model_name_or_path, config)
        if extend_vocabulary is not None:
            extension = extend_tokenizer(tokenizer, sample["text"], extend_vocabulary)
            print(extension.describe())
            extend_embeddings(source, extension.pieces)
            tokenizer = extension.tokenizer
        trainer = PretrainingTrainer(source, args, None, train, validation, tokenizer)
        if trainer.budget is not None:
            trainer.budget.start = start  # reading counts too
        trainer.data_description = ", ".join(map(str, (prepared or corpus).data or [BUILTIN]))
        if extension is not None:
            trainer.more_metrics, trainer.new_ids = (
                {"extension": extension.metrics()},
                list(extension.pieces),
            )
        trainer.new_weights = new_weights or trainer.new_weights
        trainer.train(resume_from_checkpoint=checkpoint or args.resume_from_checkpoint)
        trainer.save_model()
    return finish(trainer, validation)


def read_documents(corpus: Corpus, args: PretrainingConfig) -> CorpusSplits:
    """Read the documents to train on, those held out, and those that a tokenizer is trained on."""
    if corpus.streaming:
        check_stream(args)
    with (
        nullcontext() if corpus.streaming else first_process_first()
    ):  # the other processes read the cache
        documents = prepare_documents(corpus, validation_size=args.validation_size, seed=args.seed)
    number = "A stream of" if corpus.streaming else f"{len(documents.train):,}"
    print(f"{number} documents to train on, {len(documents.validation):,} held out")
    return documents


def read_rows(prepared: PreparedRows, corpus: Corpus, args: PretrainingConfig) -> CorpusSplits:
    """Read rows that `minibert prepare` made; they come with their tokenizer."""
    train, validation = prepared.load("train", corpus.streaming), prepared.load("validation")
    print(prepared.describe())
    return CorpusSplits(
        mix_streams([train], corpus, args.seed) if corpus.streaming else train, validation, train
    )


def finish(trainer: PretrainingTrainer, validation: datasets.Dataset) -> TrainingResult:
    """Print examples of the saved model on held-out text. Only the first process returns the model."""
    output, tokenizer, objective = (
        Path(trainer.args.output_dir),
        trainer.processing_class,
        trainer.objective,
    )
    if not trainer.is_world_process_zero():
        return TrainingResult(None, tokenizer)
    texts = (
        validation["text"] if "text" in validation.column_names else texts_of(validation, tokenizer)
    )
    examples = objective.examples(output, texts, tokenizer)
    print("", *examples, "", sep="\n")
    print(
        f"Saved to {output}: the model, the tokenizer, README.md (the model card), report.json and pictures"
    )
    if trainer.report["warning"]:
        print("Read the WARNING above before you use it")
    if trainer.budget is not None:
        print(f"Used {trainer.budget.elapsed / 60:.1f} of {trainer.args.minutes:g} minutes")
    return TrainingResult(
        without_autocast(objective.trained(trainer.model)), tokenizer, trainer.report, output
    )


def adopt_rows(args: PretrainingConfig, prepared: PreparedRows) -> None:
    """Set the fields of `args` to those of prepared rows; a ValueError if the user asks for other rows."""
    defaults, folder = RowsConfig(), str(prepared.folder)
    asked = {
        name: x for name in prepared.made if (x := getattr(args, name)) != getattr(defaults, name)
    }
    made = f"the rows in {folder!r} were prepared with"
    check_same(prepared.made, prepared.made | asked, made, "leave it out, or prepare rows with it")
    if not OBJECTIVES[args.objective].packs_documents:
        raise ValueError(
            f"data: {folder!r} holds prepared rows; objective {args.objective} needs text; give that"
        )
    vars(args).update(prepared.made)


def resolve_config(
    preset: str,
    size: str,
    path: str | None,
    overrides: str | dict[str, Any] | None,
    fields: Mapping[str, Any],
) -> MiniBertConfig:
    """The config of a trained model or a preset, with the overrides; `fields` are set by the objective."""
    overrides, known = read_overrides(overrides), MiniBertConfig().to_dict()
    for name in overrides.keys() - known:
        close = ", ".join(difflib.get_close_matches(name, known)) or "the fields of MiniBertConfig"
        raise ValueError(f"config_overrides: unknown field {name!r}; use {close}")
    if path is not None:
        minibert_config(path)  # has the best messages for a wrong path
        config = MiniBertConfig.from_pretrained(path, **{**fields, **overrides})
        drop_foreign_code(vars(config), "config.json", path)
        return config
    return getattr(MiniBertConfig, preset)(size, **{**fields, **overrides})


def read_overrides(given: str | dict[str, Any] | None) -> dict[str, Any]:
    """Parse "hidden_size=64,num_hidden_layers=2", or JSON; values are JSON or words."""
    if not isinstance(given, str):
        return dict(given or {})
    if given.lstrip().startswith("{"):
        return json.loads(given)
    overrides = {}
    for name, _, value in (part.partition("=") for part in given.split(",") if part):
        try:
            overrides[name.strip()] = json.loads(value.lower())  # Python's True, too
        except json.JSONDecodeError:
            overrides[name.strip()] = value
    return overrides


def read_tokenizer(
    named: str | None, trained: str | None, prepared: PreparedRows | None
) -> PreTrainedTokenizerBase | None:
    """The named tokenizer, or that of the trained model or of the rows; None if one is to be trained."""
    if trained is not None and named is not None:
        raise ValueError(
            f"tokenizer: the trained model {trained!r} has its own; leave {named!r} out"
        )
    path = named or trained or (prepared and str(prepared.folder))
    tokenizer = saved_tokenizer(path) if path else None
    if prepared is not None:
        prepared.check_tokenizer(tokenizer)
    return tokenizer


@torch.no_grad()
def extend_embeddings(model: PreTrainedModel, pieces: Mapping[int, Sequence[int]]) -> None:
    """Add the tokens of an `Extension` to a model, in place. The embedding of each starts as the mean of those of its
    `pieces`, and so do its bias and, if they are not tied, its weights in the decoder. All other numbers stay. The
    vocabulary grows to the last new token if it is not larger already."""
    size = max(model.config.vocab_size, max(pieces) + 1)
    model.resize_token_embeddings(size, mean_resizing=False)
    tables, decoder = [model.get_input_embeddings().weight], model.get_output_embeddings()
    if decoder is not None:
        tables += [decoder.weight] * (decoder.weight is not tables[0])
        tables += [decoder.bias] * (decoder.bias is not None)
    for table in tables:
        for token, old in pieces.items():
            table[token] = table[list(old)].mean(dim=0)
