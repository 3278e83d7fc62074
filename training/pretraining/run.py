"""`minibert pretrain`: reads text, and has `PretrainingTrainer` do the rest."""

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
from ..checkpoints import check_same, checkpoint_to_resume
from ..data.builtin_corpus import BUILTIN
from ..data.documents import check_sources
from ..data.mixtures import Corpus, CorpusSplits, check_stream, mix_streams, prepare_documents
from ..data.prepared import PreparedRows, texts_of
from ..files import check_folder, lock_output
from ..hub.push import check_push
from ..loading import minibert_config, saved_tokenizer, without_bars
from ..precision import without_autocast
from ..processes import first_process_first
from ..report import TrainingResult, describe_pretraining, warn
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

    Args:
        data: The text: text, json, jsonl, csv, tsv or parquet files, folders, globs, or Hub data sets (owner/name or
            owner/name:config), each behind its language if there are several (de=folder); or a folder of rows that
            `minibert prepare` made. Without it, the built-in corpus: the documentation in this Python installation.
        model: The preset: the two published ones, or ModernBERT with what is known to learn faster.
        size: The preset's size.
        tokenizer: A trained tokenizer (folder or Hub name) instead of one trained here.
        model_name_or_path: A trained MiniBERT (folder or Hub name) to go on from.
        config_overrides: Fields of `MiniBertConfig` that differ from the preset or the trained model, such as
            "hidden_size=64,num_hidden_layers=2", or as JSON; of a trained model those that keep its weights' shapes.
        extend_vocabulary: Add so many words of the text, those that its tokenizer cuts most, to the trained model's
            vocabulary.
        args: The settings of the training.
        options: Fields of `Corpus`, and of `PretrainingConfig` in the place of `args`.

    Returns:
        The model as it was saved (None in a process that saves nothing), the tokenizer, the report and the folder.

    Raises:
        ValueError: bad input, before any training, and without touching what is in the output folder.
    """
    start, corpus = time.monotonic(), Corpus.take(data, options)
    args = copy.copy(args) if args else PretrainingConfig(**options)
    check_folder(Path(args.output_dir))
    if args.push_to_hub:
        check_push(args)
    with lock_output(args):
        # What can be refused is refused before anything is read.
        checkpoint = checkpoint_to_resume(args)
        check_sources(corpus.data)
        prepared = PreparedRows.find(corpus.data)
        if model != "minibert" and args.embedding_init is None:
            args.embedding_init = "random"  # published presets begin as published
        if prepared is not None:
            adopt_rows(args, prepared)
        objective = OBJECTIVES[args.objective](fill_defaults(args, model_name_or_path is None))
        config = resolve_config(model, size, model_name_or_path, config_overrides, objective.config_fields)
        objective.check(config, corpus.streaming)
        if extend_vocabulary is not None and (model_name_or_path is None or prepared is not None):
            raise ValueError(f"extend_vocabulary: {extend_vocabulary} needs text, and a model_name_or_path")
        loaded = read_tokenizer(tokenizer, model_name_or_path, prepared)
        train, validation, sample = (
            read_documents(corpus, args) if prepared is None else read_rows(prepared, corpus, args)
        )
        if prepared is None:
            loaded = loaded or new_tokenizer(args, config, sample["text"])
        source, new, extension = config, [], None
        if model_name_or_path is not None:
            set_seed(args.seed)  # of a new head
            source, new = objective.load(model_name_or_path, config)
        if extend_vocabulary is not None:
            extension = extend_tokenizer(loaded, sample["text"], extend_vocabulary)
            print(extension.describe())
            extend_embeddings(source, extension.pieces)
            loaded = extension.tokenizer
        trainer = PretrainingTrainer(source, args, None, train, validation, loaded)
        if trainer.budget is not None:
            trainer.budget.start = start  # reading is in it
        trainer.data_description = ", ".join(map(str, (prepared or corpus).data or [BUILTIN]))
        if extension is not None:
            trainer.more_metrics, trainer.new_ids = {"extension": extension.metrics()}, list(extension.pieces)
        trainer.new_weights = new or trainer.new_weights
        trainer.train(resume_from_checkpoint=checkpoint or args.resume_from_checkpoint)
        trainer.save_model()
    return finish(trainer, validation)


def read_documents(corpus: Corpus, args: PretrainingConfig) -> CorpusSplits:
    """The documents to train on, those held out, and those that a tokenizer is trained on."""
    if corpus.streaming:
        check_stream(args)
    with nullcontext() if corpus.streaming else first_process_first():  # the others find it in the cache
        documents = prepare_documents(corpus, validation_size=args.validation_size, seed=args.seed)
    number = "A stream of" if corpus.streaming else f"{len(documents.train):,}"
    print(f"{number} documents to train on, {len(documents.validation):,} held out")
    return documents


def read_rows(prepared: PreparedRows, corpus: Corpus, args: PretrainingConfig) -> CorpusSplits:
    """The same of rows that `minibert prepare` made, which have their tokenizer."""
    train, validation = prepared.load("train", corpus.streaming), prepared.load("validation")
    print(prepared.describe())
    return CorpusSplits(mix_streams([train], corpus, args.seed) if corpus.streaming else train, validation, train)


def finish(trainer: PretrainingTrainer, validation: datasets.Dataset) -> TrainingResult:
    """Print the report, and the saved model at work on held-out text; of several processes the first has a result."""
    output, tokenizer, objective = Path(trainer.args.output_dir), trainer.processing_class, trainer.objective
    if not trainer.is_world_process_zero():
        return TrainingResult(None, tokenizer)
    texts = validation["text"] if "text" in validation.column_names else texts_of(validation, tokenizer)
    examples = objective.examples(output, texts, tokenizer)
    print("", describe_pretraining(trainer.report), "", *examples, "", sep="\n")
    print(f"Saved to {output}: the model, the tokenizer, README.md (the model card), report.json and pictures")
    warn(trainer.report["warning"])
    if trainer.budget is not None:
        print(f"Took {trainer.budget.elapsed / 60:.1f} of {trainer.args.minutes:g} minutes")
    return TrainingResult(without_autocast(objective.trained(trainer.model)), tokenizer, trainer.report, output)


def adopt_rows(args: PretrainingConfig, prepared: PreparedRows) -> None:
    """Set how the rows were made; a ValueError if other ones are asked for."""
    fresh = RowsConfig()
    asked = {name: x for name in prepared.made if (x := getattr(args, name)) != getattr(fresh, name)}
    made = f"the rows in {str(prepared.folder)!r} were prepared with"
    check_same(prepared.made, prepared.made | asked, made, "leave it out, or prepare rows with it")
    if not OBJECTIVES[args.objective].packs_documents:
        raise ValueError(f"data: the rows in {str(prepared.folder)!r} have no pairs of segments; give mlm+nsp the text")
    vars(args).update(prepared.made)


def resolve_config(
    preset: str, size: str, path: str | None, overrides: str | dict[str, Any] | None, fields: Mapping[str, Any]
) -> MiniBertConfig:
    """The config of the model to go on from, or a preset, with the overrides; `fields` are the objective's."""
    overrides, known = read_overrides(overrides), MiniBertConfig().to_dict()
    for name in overrides.keys() - known:
        close = ", ".join(difflib.get_close_matches(name, known)) or "the fields of MiniBertConfig"
        raise ValueError(f"config_overrides: unknown field {name!r}; use {close}")
    if path is not None:
        minibert_config(path)  # says best what is wrong with a path
        return MiniBertConfig.from_pretrained(path, **{**fields, **overrides})
    return getattr(MiniBertConfig, preset)(size, **{**fields, **overrides})


def read_overrides(given: str | dict[str, Any] | None) -> dict[str, Any]:
    """The fields in "hidden_size=64,num_hidden_layers=2", or in JSON; values are JSON, or words."""
    if not isinstance(given, str):
        return dict(given or {})
    if given.lstrip().startswith("{"):
        return json.loads(given)
    overrides = {}
    for name, _, value in (part.partition("=") for part in given.split(",") if part):
        try:
            overrides[name.strip()] = json.loads(value.lower())  # True, as Python spells it
        except json.JSONDecodeError:
            overrides[name.strip()] = value
    return overrides


def read_tokenizer(
    named: str | None, trained: str | None, prepared: PreparedRows | None
) -> PreTrainedTokenizerBase | None:
    """The tokenizer that was named, that of the model to go on from or of the rows; None where one is to be trained."""
    if trained is not None and named is not None:
        raise ValueError(f"tokenizer: {named!r} would give the ids of {trained!r} other meanings; leave it out")
    path = named or trained or (prepared and str(prepared.folder))
    tokenizer = saved_tokenizer(path) if path else None
    if prepared is not None:
        prepared.check_tokenizer(tokenizer)
    return tokenizer


@torch.no_grad()
def extend_embeddings(model: PreTrainedModel, pieces: Mapping[int, Sequence[int]]) -> None:
    """Give a model, in place, the tokens of an `Extension`. The vector of each starts as the mean of those of its
    `pieces` (the word then means about what it meant in pieces), and so does what the decoder has for it: its bias, and
    its weights where they are not the vectors. All other numbers stay as they are.

    The vocabulary grows to the last new token, where it was not larger already.
    """
    size = max(model.config.vocab_size, max(pieces) + 1)
    model.resize_token_embeddings(size, mean_resizing=False)
    tables, decoder = [model.get_input_embeddings().weight], model.get_output_embeddings()
    if decoder is not None:
        tables += [decoder.weight] * (decoder.weight is not tables[0])
        tables += [decoder.bias] * (decoder.bias is not None)
    for table in tables:
        for token, old in pieces.items():
            table[token] = table[list(old)].mean(dim=0)
