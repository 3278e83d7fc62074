"""`minibert pretrain`: text → tokenizer → rows → masks → model → loss, and a saved model.

What the model learns, and from what rows, is the objective's (`objectives`); how, is `PretrainingTrainer`'s.
"""

import dataclasses
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import datasets
import torch
from transformers import PreTrainedTokenizerBase, TrainingArguments, set_seed
from transformers.trainer_utils import has_length

from ...configuration_minibert import MiniBertConfig, vocabulary_size
from ...modeling_minibert import MiniBertModel
from ...tokenization import Extension, extend_tokenizer, train_tokenizer
from ..arguments import decide
from ..arguments import pretraining as arguments
from ..callbacks import SettingsState, steps_of
from ..checkpoints import checkpoint_to_resume, rows_checksum
from ..data.documents import check_sources, check_tokenization
from ..data.mixtures import SAMPLE_ROWS, check_stream, check_workers, first_rows, prepare_documents
from ..data.prepared import PreparedRows, StreamOrder, texts_of, tokenizer_checksum
from ..files import write_json
from ..hub.card import write_card
from ..hub.push import check_push, push_command
from ..loading import minibert_config, saved_tokenizer, without_bars
from ..optimization.trainer import resolve_optimization
from ..precision import check_training, resolve_precision, without_autocast
from ..processes import first_process_first, shares_weights
from ..report import describe_pretraining, plot_losses
from ..result import TrainingResult
from .cooccurrence import begin_with_word_vectors
from .objectives import OBJECTIVES, Objective
from .objectives.base import unigram_baseline
from .objectives.examples import choose_sentences
from .trainer import PretrainingTrainer
from .vocabulary import extend_embeddings


@without_bars()
def pretrain(
    model_arguments: arguments.ModelArguments,
    corpus: arguments.CorpusArguments,
    mixture: arguments.MixtureArguments,
    streaming: arguments.StreamingArguments,
    row_arguments: arguments.RowArguments,
    tokenizer_arguments: arguments.TokenizerArguments,
    objective_arguments: arguments.ObjectiveArguments,
    masking: arguments.MaskingArguments,
    optimization: arguments.OptimizationArguments,
    training: TrainingArguments,
    overrides: dict[str, Any],
) -> TrainingResult:
    """Train a tokenizer (unless one is given) and a model, and save both to `training.output_dir`. Bad input is a
    ValueError before any training, and without touching what is in the output folder.

    Args:
        overrides: fields of `MiniBertConfig` that differ from the preset, or from the model to go on from.
    """
    # What can be refused before anything is read.
    check_sources(corpus.data)
    check_training(training)
    if training.push_to_hub:
        check_push(training)
    checkpoint = checkpoint_to_resume(training)
    for name in ("bf16_full_eval", "fp16_full_eval"):
        if getattr(training, name):
            raise ValueError(f"{name}: it would leave the model that is saved in half precision; leave it out")
    if streaming.streaming and (strategy := training.train_sampling_strategy) != "random":
        raise ValueError(f"train_sampling_strategy: {strategy!r} has no effect with --streaming; leave it out")
    start_from, embedding_init = model_arguments.model_name_or_path, model_arguments.embedding_init
    if start_from and training.learning_rate is None and optimization.optimizer != "muon":
        training = dataclasses.replace(training, learning_rate=arguments.TRAINED_LEARNING_RATE)
    if start_from and embedding_init == "cooccurrence":
        raise ValueError("embedding_init: cooccurrence would replace those of --model_name_or_path; leave it out")
    new_mlm = start_from is None and objective_arguments.objective == "mlm"
    if embedding_init is None:
        embedding_init = "cooccurrence" if new_mlm and model_arguments.model == "minibert" else "random"
    optimization, training, budget = resolve_optimization(optimization, training, new_mlm, checkpoint)
    if shares_weights(training) and objective_arguments.objective == "rtd":
        raise ValueError("objective: rtd needs whole matrices, for two models; use another one beside fsdp, deepspeed")
    objective = OBJECTIVES[objective_arguments.objective](objective_arguments, masking, training.seed)
    overrides = objective.config_fields | overrides
    preset = resolve_config(model_arguments, overrides)
    prepared = PreparedRows.find(corpus.data)
    streamed = streaming.streaming and prepared is None  # text
    row_arguments = (
        prepared.arguments(row_arguments) if prepared else decide(row_arguments, **arguments.UNLESS_PREPARED)
    )
    objective.check(preset, row_arguments, streamed, training.label_smoothing_factor)
    if prepared is not None and not objective.packs_documents:
        raise ValueError(f"data: the rows in {corpus.data[0]!r} have no pairs of segments; give mlm+nsp the text")
    if streamed and training.data_seed is not None:
        raise ValueError(f"data_seed: {training.data_seed} has no effect on a stream of text; use seed")
    if streamed:
        check_stream(training)
    tokenizer = read_tokenizer(model_arguments, preset, objective, prepared)
    # The batch is then one row of all its tokens, with `cu_seq_lens_q`: the model has no padding to drop. A compiled
    # graph on CPU would make a square of it.
    unpadded = objective.packs_documents and not training.torch_compile
    counted = "all" if unpadded else "non_padding"  # by the id of padding, which may be that of [SEP] too
    training = dataclasses.replace(resolve_precision(training), include_num_input_tokens_seen=counted)
    set_seed(training.seed)

    # Text, tokenizer, rows; nothing of a stream is kept for other processes
    extension = None
    with nullcontext() if streaming.streaming else first_process_first():
        if prepared is None:
            sizes = dict(validation_size=row_arguments.validation_size, minimum_validation=objective.minimum_validation)
            documents = prepare_documents(corpus, mixture, streaming, seed=training.seed, **sizes)
            if streamed:
                check_workers(documents.train, training)
            objective.check_documents(documents.train, documents.validation)
            if tokenizer is None:
                tokenizer = train_tokenizer(
                    documents.sample["text"],
                    **vars(tokenizer_arguments),
                    model_max_length=preset.max_position_embeddings,
                    token_type_ids=preset.type_vocab_size > 0,
                )
                tokenizer = objective.prepare_tokenizer(tokenizer)
            if model_arguments.extend_vocabulary is not None:
                extension = extend_tokenizer(tokenizer, documents.sample["text"], model_arguments.extend_vocabulary)
                tokenizer = extension.tokenizer
                print(extension.describe())
        resolve_config(model_arguments, overrides, tokenizer)  # what does not fit is said before rows are made
        if prepared is None:
            check_tokenization(documents.sample, tokenizer)
            train = objective.rows(documents.train, tokenizer, row_arguments)
            validation = objective.rows(documents.validation, tokenizer, row_arguments)
            described = "A stream of" if streamed else f"{len(documents.train):,}"
            described += f" documents to train on, {len(documents.validation):,} held out"
            texts = documents.validation["text"]
        else:
            train = prepared.stream(streaming.shuffle_buffer) if streaming.streaming else prepared.load("train")
            validation, described = prepared.load("validation"), prepared.describe()
            texts = texts_of(validation, tokenizer)

    # Masks
    sample = train  # for what is counted
    if streaming.streaming:  # prepared rows mixed as in training
        mixed = train if streamed else (train[row] for row in StreamOrder(train, 1, 1, training.seed, lambda: 0))
        sample = first_rows(mixed, count=SAMPLE_ROWS)
    collator = objective.collator(tokenizer, sample)
    collator.unpadded = unpadded
    collator.rows_repeat = (
        documents.repeats if prepared is None else prepared.manifest["arguments"].get("repeats", False)
    )

    # Model and loss
    config = resolve_config(model_arguments, overrides, tokenizer)
    model = objective.model(config, start_from)
    if extension is not None:
        extend_embeddings(model, extension.pieces)
    batch = training.train_batch_size * training.world_size
    if training.dataloader_drop_last and has_length(train) and len(train) < batch:
        few = f"drops all {len(train):,} rows, less than a batch ({batch:,})"
        raise ValueError(f"dataloader_drop_last: True {few}; use false")
    data = dict(data_collator=collator, train_dataset=train, eval_dataset=validation, processing_class=tokenizer)
    options = dict(objective=objective, optimization=optimization, budget=budget)
    trainer = PretrainingTrainer(model, training, **data, **options)
    if embedding_init == "cooccurrence" and checkpoint is None:
        print("Counting which tokens stand next to each other, for the first word embeddings")
        rows_of_ids = (row["input_ids"] for row in sample)
        begin_with_word_vectors(trainer.model, rows_of_ids, tokenizer.all_special_ids, training.seed)
    # What decides rows, masks and weights: a checkpoint may fit what has another meaning.
    kept = vars(mixture) | vars(streaming) | vars(row_arguments) | vars(objective_arguments) | vars(objective.masking)
    kept |= steps_of(training) | {"embedding_init": embedding_init}
    kept |= {"muon_learning_rate": optimization.muon_learning_rate}
    if streaming.streaming:  # every process, and of text every worker, reads a part of its own
        kept |= {"processes": training.world_size}
        kept |= {"dataloader_num_workers": training.dataloader_num_workers} if streamed else {}
    kept |= {name: getattr(trainer.model.config, name) for name in MiniBertConfig.__annotations__}
    kept |= {"rows": len(train) if has_length(train) else None, "tokenizer": tokenizer_checksum(tokenizer)}
    kept["text"] = rows_checksum(sample)  # of a stream, of the rows that it begins with
    del kept["num_proc"]
    settings = SettingsState(kept)
    trainer.add_callback(settings)
    if checkpoint is not None:
        settings.check(checkpoint)
    elif objective.new_weights:
        print(f"New, since {start_from!r} lacks them: {', '.join(objective.new_weights)}")
    print(
        f"{described}; {'it begins with ' * streaming.streaming}"
        f"{objective.describe_rows(sample, row_arguments.seq_length)}; {trainer.model.num_parameters():,} parameters"
    )
    result = trainer.train(resume_from_checkpoint=checkpoint)

    # Figures, and everything saved
    figures, output = trainer.last_evaluation(), Path(training.output_dir)
    objective.save(trainer)  # by all processes, which may share its weights; the first one writes
    if not trainer.is_world_process_zero():
        if training.push_to_hub:  # it saves the model once more, by all processes
            trainer.push_to_hub()
        return TrainingResult(None, tokenizer, output_dir=output)
    seconds = result.metrics["train_runtime"] if checkpoint is None else None  # it counts from the resumption
    report = _write_report(trainer, figures, sample, seconds, extension)
    read = corpus if prepared is None else prepared.corpus
    source = ", ".join(read.data) or ", ".join(["the built-in corpus", *read.packages])
    recipe = vars(row_arguments) | vars(trainer.optimization)
    recipe |= {} if objective.name == "clm" else vars(objective.masking)
    recipe = {"embedding_init": embedding_init} | recipe
    trainer.card = write_card(output, report, source, recipe, training)
    examples = objective.examples(output, choose_sentences(texts, tokenizer), tokenizer)
    print("", describe_pretraining(report), "", *examples, "", sep="\n")
    print(f"Saved to {output}: the model, the tokenizer, README.md (the model card), report.json and pictures")
    if start_from and Path(start_from, "modules.json").exists():
        print(f"{start_from} was for vectors of texts: its pooling, prompts and longest input are not kept; give them")
        print("again (minibert finetune embed --pooling … --max_length …)")
    try:
        if training.push_to_hub:
            trainer.push_to_hub()
    except Exception as error:  # every library below has its own for a dead line or a refusal
        options = {"revision": training.hub_revision, "private": bool(training.hub_private_repo)}
        again = push_command(str(output), training.hub_model_id or output.absolute().name, **options)
        raise ValueError(f"{' '.join(str(error).split())}; {output} is whole; to try again: {again}") from error
    if budget is not None:
        print(f"Took {budget.elapsed / 60:.1f} of {optimization.minutes:g} minutes")
    return TrainingResult(without_autocast(trainer.model), tokenizer, report, output)


def _write_report(
    trainer: PretrainingTrainer,
    figures: dict[str, float],
    sample: datasets.Dataset,
    seconds: float | None,
    extension: Extension | None,
) -> dict[str, Any]:
    """The figures of the last evaluation and of the whole training, saved beside the model with the loss curve."""
    objective, tokenizer, training, state = trainer.objective, trainer.processing_class, trainer.args, trainer.state
    batches = trainer.evaluation_batches(trainer.eval_dataset)
    baseline = unigram_baseline(sample, batches, vocabulary_size(tokenizer), tokenizer.all_special_ids)
    report = objective.report(figures, baseline) | {
        "objective": objective.name,
        "steps": state.global_step,
        "epochs": state.epoch if has_length(trainer.train_dataset) else None,
        "training_tokens": state.num_input_tokens_seen,
        "training_seconds": seconds,
        "parameters": trainer.model.num_parameters(),
        "precision": "bf16" if training.bf16 else "fp16" if training.fp16 else "fp32",
    }
    if extension is not None:
        report["extension"] = extension.figures()
    output = Path(training.output_dir)
    trainer.save_state()
    plot_losses(state.log_history, output / "loss.png", objective.metric, report)
    write_json(output / "report.json", report)
    return report


def resolve_config(
    model_arguments: arguments.ModelArguments,
    overrides: dict[str, Any],
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> MiniBertConfig:
    """The config of the model that is trained: that of the one to go on from, or a preset with the vocabulary and the
    ids of the tokenizer, as soon as there is one; a ValueError where `overrides` change the shapes of its weights."""
    path, size = model_arguments.model_name_or_path, model_arguments.size
    if path is None and tokenizer is None:
        return getattr(MiniBertConfig, model_arguments.model)(size, **overrides)
    if path is None:
        return MiniBertConfig.from_tokenizer(tokenizer, model_arguments.model, size, **overrides)
    saved, changed = minibert_config(path), MiniBertConfig.from_pretrained(path, **overrides)
    with torch.device("meta"):
        models = (MiniBertModel(config).state_dict() for config in (saved, changed))
        before, after = ({name: tensor.shape for name, tensor in weights.items()} for weights in models)
    if before != after:
        raise ValueError(
            f"{', '.join(overrides)}: would change the shapes of the weights in {path!r}; change only fields that leave"
            " them alone"
        )
    return changed


def read_tokenizer(
    model_arguments: arguments.ModelArguments,
    config: MiniBertConfig,
    objective: Objective,
    prepared: PreparedRows | None,
) -> PreTrainedTokenizerBase | None:
    """The tokenizer that was named, that of the model to go on from or of the rows, cutting at the length of the model
    that is trained; None where one is to be trained. A ValueError if it does not serve the model, the objective or the
    rows."""
    trained, named = model_arguments.model_name_or_path, model_arguments.tokenizer
    if trained is not None and named is not None:
        raise ValueError(
            f"tokenizer: {named!r} would give the ids of {trained!r} other meanings; leave it out beside"
            " --model_name_or_path, whose own is used"
        )
    found = named or trained or (prepared and str(prepared.folder))
    if found is None:
        return None
    tokenizer = saved_tokenizer(found)
    tokenizer.model_max_length = config.max_position_embeddings
    if prepared is not None:
        prepared.check_tokenizer(tokenizer)
    tokenizer = objective.prepare_tokenizer(tokenizer)
    if trained is not None:
        config.check_tokenizer(tokenizer)
    return tokenizer
