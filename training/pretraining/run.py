"""`minibert pretrain`: reads text, and has `PretrainingTrainer` do the rest."""

import copy
import difflib
import json
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

import datasets
import torch
from transformers import PreTrainedTokenizerBase

from ...configuration_minibert import MiniBertConfig
from ...modeling_minibert import MiniBertModel
from ...tokenization import extend_tokenizer
from ..checkpoints import check_same, checkpoint_to_resume
from ..data.builtin_corpus import BUILTIN
from ..data.documents import check_sources
from ..data.mixtures import Corpus, check_stream, mix_streams, prepare_documents
from ..data.prepared import PreparedRows, texts_of
from ..files import check_folder, lock_output
from ..hub.push import check_push
from ..loading import minibert_config, saved_tokenizer, without_bars
from ..precision import check_training, without_autocast
from ..processes import first_process_first
from ..report import TrainingResult, describe_pretraining, warn
from .config import PretrainingConfig, fill_defaults
from .objectives import OBJECTIVES, Objective
from .objectives.examples import choose_sentences
from .trainer import PretrainingTrainer, new_tokenizer
from .vocabulary import extend_embeddings


@without_bars()
def pretrain(
    data: str | os.PathLike | list[str] = (),
    model: Literal["bert", "modernbert", "minibert"] = "minibert",
    size: Literal["tiny", "mini", "small", "medium", "base", "large"] = "mini",
    tokenizer: str | None = None,
    model_name_or_path: str | None = None,
    config_overrides: str | dict[str, Any] | None = None,
    extend_vocabulary: int | None = None,
    text_column: str | None = None,
    sample_by: Literal["auto", "line", "paragraph", "document", "sentence"] = "auto",
    weights: list[float] = (),
    sampling_alpha: float | None = None,
    streaming: bool = False,
    shuffle_buffer: int = 10_000,
    args: PretrainingConfig | None = None,
    **config: Any,
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
        text_column: The column of the text; by default "text", or the only one of strings.
        sample_by: A document in a text file (document: all of it); auto: paragraphs if it has blank lines, else lines;
            sentence: every sentence of any kind of data.
        weights: A weight for every entry of data: its share of the documents; by default their number.
        sampling_alpha: Draw sources with p ∝ weight^alpha (0: all alike); by default 0.3 for languages, else 1.
        streaming: Read text (give max_steps or minutes) or prepared rows as needed.
        shuffle_buffer: Documents (or prepared rows) that a stream mixes at a time; 0 keeps their order.
        args: The settings of the training.
        config: Fields of `PretrainingConfig`, in the place of `args`.

    Returns:
        The model as it was saved (None in a process that saves nothing), the tokenizer, the report and the folder.

    Raises:
        ValueError: bad input, before any training, and without touching what is in the output folder.
        OSError: a file that cannot be read or written.
    """
    start, args = time.monotonic(), copy.copy(args) if args else PretrainingConfig(**config)
    check_folder(Path(args.output_dir))
    check_training(args)
    if args.push_to_hub:
        check_push(args)
    corpus = Corpus(data, text_column, sample_by, weights, sampling_alpha, streaming, shuffle_buffer)
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
        base = resolve_config(model, size, model_name_or_path, config_overrides, objective.config_fields)
        objective.check(base, streaming)
        if extend_vocabulary is not None and (model_name_or_path is None or prepared is not None):
            raise ValueError(f"extend_vocabulary: {extend_vocabulary} needs text, and a model_name_or_path")
        loaded = read_tokenizer(tokenizer, model_name_or_path, base, prepared)
        if prepared is None:
            train, validation, sample = read_documents(corpus, args, objective)
            number = "A stream of" if streaming else f"{len(train):,}"
            described = f"{number} documents to train on, {len(validation):,} held out"
            loaded = loaded or new_tokenizer(args, base, sample["text"])
        else:
            train = prepared.load("train", streaming)
            train = mix_streams([train], corpus, args.seed) if streaming else train
            validation, sample, described = prepared.load("validation"), None, prepared.describe()
        source, loaded, metrics, new_ids = load_model(
            model_name_or_path, base, objective, loaded, extend_vocabulary, sample
        )
        print(described)
        trainer = PretrainingTrainer(source, args, None, train, validation, loaded)
        if trainer.budget is not None:
            trainer.budget.start = start  # reading is in it
        read = corpus.data if prepared is None else prepared.data
        trainer.data_description = ", ".join(map(str, read or [BUILTIN]))
        trainer.more_metrics, trainer.new_ids = metrics, new_ids
        trainer.train(resume_from_checkpoint=checkpoint or args.resume_from_checkpoint)
        trainer.save_model()
    return finish(trainer, validation)


def load_model(
    path: str | None,
    config: MiniBertConfig,
    objective: Objective,
    tokenizer: PreTrainedTokenizerBase,
    words: int | None,
    sample: datasets.Dataset | None,
) -> tuple[Any, PreTrainedTokenizerBase, dict[str, Any], list[int]]:
    """The config of a new model, or the saved one to go on from; the tokenizer, to which `words` of the `sample` are
    added; what the report says of these, and their ids."""
    if path is None:
        return config, tokenizer, {}, []
    model, new_weights = objective.load(path, config)
    if new_weights:
        print(f"New, since {path!r} lacks them: {', '.join(new_weights)}")
    if words is None:
        return model, tokenizer, {}, []
    extension = extend_tokenizer(tokenizer, sample["text"], words)
    print(extension.describe())
    extend_embeddings(model, extension.pieces)
    return model, extension.tokenizer, {"extension": extension.metrics()}, list(extension.pieces)


def finish(trainer: PretrainingTrainer, validation: datasets.Dataset) -> TrainingResult:
    """Print the report and the saved model at work; of several processes the first has a result."""
    output, tokenizer = Path(trainer.args.output_dir), trainer.processing_class
    if not trainer.is_world_process_zero():
        return TrainingResult(None, tokenizer)
    texts = validation["text"] if "text" in validation.column_names else texts_of(validation, tokenizer)
    show(trainer, output, texts)
    if trainer.budget is not None:
        print(f"Took {trainer.budget.elapsed / 60:.1f} of {trainer.args.minutes:g} minutes")
    return TrainingResult(without_autocast(trainer.objective.trained(trainer.model)), tokenizer, trainer.report, output)


def read_documents(corpus: Corpus, args: PretrainingConfig, objective: Objective) -> tuple[Any, datasets.Dataset, Any]:
    """The documents to train on, those held out, and those that a tokenizer is trained on."""
    if corpus.streaming:
        check_stream(args)
    sizes = dict(validation_size=objective.args.validation_size, minimum_validation=objective.minimum_validation)
    with nullcontext() if corpus.streaming else first_process_first():  # the others find it in the cache
        documents = prepare_documents(corpus, seed=args.seed, **sizes)
    objective.check_documents(documents.train, documents.validation)
    return documents.train, documents.validation, documents.sample


def adopt_rows(args: PretrainingConfig, prepared: PreparedRows) -> None:
    """Set how the rows were made; a ValueError if other ones are asked for."""
    asked = {name: value for name in prepared.made if (value := getattr(args, name)) is not None}
    made = f"the rows in {str(prepared.folder)!r} were prepared with"
    check_same(prepared.made, prepared.made | asked, made, "leave it out, or prepare rows with it")
    if not OBJECTIVES[args.objective].packs_documents:
        raise ValueError(f"data: the rows in {str(prepared.folder)!r} have no pairs of segments; give mlm+nsp the text")
    vars(args).update(prepared.made)


def resolve_config(
    preset: str, size: str, path: str | None, overrides: str | dict[str, Any] | None, fields: Mapping[str, Any]
) -> MiniBertConfig:
    """The config of the model to go on from, or a preset, with the overrides; a ValueError where those change the
    shapes of its weights. `fields` are the objective's."""
    overrides, known = read_overrides(overrides), MiniBertConfig().to_dict()
    for name in overrides:
        if name not in known:
            close = ", ".join(difflib.get_close_matches(name, known)) or "the fields of MiniBertConfig"
            raise ValueError(f"config_overrides: unknown field {name!r}; use {close}")
    if path is None:
        return getattr(MiniBertConfig, preset)(size, **{**fields, **overrides})
    saved, changed = minibert_config(path), MiniBertConfig.from_pretrained(path, **{**fields, **overrides})
    with torch.device("meta"):
        models = (MiniBertModel(config).state_dict() for config in (saved, changed))
        before, after = ({name: tensor.shape for name, tensor in weights.items()} for weights in models)
    if before != after:
        raise ValueError(
            f"config_overrides: {', '.join(overrides)}: would change the shapes of the weights in {path!r}; change only"
            " fields that leave them alone"
        )
    return changed


def read_overrides(given: str | dict[str, Any] | None) -> dict[str, Any]:
    """The fields in "hidden_size=64,num_hidden_layers=2", or in JSON; values are JSON, or words."""
    if not isinstance(given, str):
        return dict(given or {})
    if given.lstrip().startswith("{"):
        return json.loads(given)
    overrides = {}
    for part in filter(None, given.split(",")):
        name, sign, value = part.partition("=")
        if not sign:
            raise ValueError(f"config_overrides: {part!r} has no value; use name=value,name=value, or JSON")
        try:
            overrides[name.strip()] = json.loads(value.lower() if value in ("True", "False") else value)
        except json.JSONDecodeError:
            overrides[name.strip()] = value
    return overrides


def read_tokenizer(
    named: str | None, trained: str | None, config: MiniBertConfig, prepared: PreparedRows | None
) -> PreTrainedTokenizerBase | None:
    """The tokenizer that was named, that of the model to go on from or of the rows; None where one is to be trained. A
    ValueError if it does not serve the model or the rows."""
    if trained is not None and named is not None:
        raise ValueError(
            f"tokenizer: {named!r} would give the ids of {trained!r} other meanings; leave it out beside"
            " --model_name_or_path, whose own is used"
        )
    path = named or trained or (prepared and str(prepared.folder))
    if path is None:
        return None
    tokenizer = saved_tokenizer(path)
    if prepared is not None:
        prepared.check_tokenizer(tokenizer)
    if trained is not None:
        config.check_tokenizer(tokenizer)
    return tokenizer


def show(trainer: PretrainingTrainer, output: Path, texts: Iterable[str]) -> None:
    """Print the report, and the saved model at work on held-out text."""
    tokenizer, objective = trainer.processing_class, trainer.objective
    examples = objective.examples(output, choose_sentences(texts, tokenizer, objective.candidates), tokenizer)
    print("", describe_pretraining(trainer.report), "", *examples, "", sep="\n")
    print(f"Saved to {output}: the model, the tokenizer, README.md (the model card), report.json and pictures")
    if trainer.report["warning"]:
        warn(trainer.report["warning"])
