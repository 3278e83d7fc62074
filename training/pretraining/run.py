"""`minibert pretrain`: text → tokenizer → rows → an objective under `Trainer` → a saved model.

Nothing but `datasets`, a collator, `Trainer` and what is written at the end: the model, the tokenizer, a model card,
the loss curve and the figures. What the model learns, and from what rows, is the objective's (`objectives`).
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from pathlib import Path
from typing import Any

import datasets
import torch
from transformers import (
    AutoConfig,
    AutoTokenizer,
    PreTrainedTokenizerBase,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

from ...configuration_minibert import BERT_SIZES, MiniBertConfig
from ...modeling_minibert import MiniBertModel
from ...tokenization import train_tokenizer
from ..arguments.pretraining import (
    SIZE_UNLESS_MINUTES,
    UNLESS_MINUTES,
    CorpusArguments,
    MaskingArguments,
    MixtureArguments,
    ModelArguments,
    ObjectiveArguments,
    OptimizationArguments,
    RowArguments,
    StreamingArguments,
    TokenizerArguments,
)
from ..checkpoints import checkpoint_to_resume, settle
from ..data.collators import MaskingProgress
from ..data.mixtures import prepare_documents
from ..data.packing import check_packing
from ..data.streaming import check_stream, check_workers, first_rows
from ..hub.card import write_card
from ..optimization import check_optimization, plan_training, time_budget
from ..report import plot_losses
from .objectives import OBJECTIVES, PretrainingTrainer

MINIMUM_DOCUMENTS = 10


def pretrain(
    model_arguments: ModelArguments,
    corpus: CorpusArguments,
    mixture: MixtureArguments,
    streaming: StreamingArguments,
    rows: RowArguments,
    tokenizer_arguments: TokenizerArguments,
    objective_arguments: ObjectiveArguments,
    masking: MaskingArguments,
    optimization: OptimizationArguments,
    training: TrainingArguments,
    overrides: dict[str, Any],
) -> None:
    """Train a tokenizer (unless one is given) and a model, and save both to `training.output_dir`.

    Args:
        overrides: fields of `MiniBertConfig` that differ from the preset, or from the model to go on from.

    Raises:
        ValueError: bad input; before any training, and without touching what is in the output folder.
    """
    checkpoint = checkpoint_to_resume(training)
    training = check_optimization(optimization, training, UNLESS_MINUTES, checkpoint)
    budget = time_budget(optimization, training, checkpoint)
    named = model_arguments.model_name_or_path or model_arguments.size
    sizes = [named] if named else list(BERT_SIZES)  # of which --minutes takes one
    model_arguments = dataclasses.replace(model_arguments, size=model_arguments.size or SIZE_UNLESS_MINUTES)
    objective = OBJECTIVES[objective_arguments.objective](objective_arguments, masking, training.seed)
    overrides = objective.config_fields() | overrides
    preset = read_config(model_arguments, overrides)
    objective.check(preset)
    objective.check_rows(rows)
    check_packing(rows.packing, rows.seq_length)
    if streaming.streaming:
        check_stream(training)
        if not objective.streams or masking.static_masking:
            what = "--static_masking" if objective.streams else f"--objective {objective.name}"
            raise ValueError(f"streaming: True does not go with {what}; legal: False")
    if rows.seq_length > preset.max_position_embeddings:
        raise ValueError(
            f"seq_length: {rows.seq_length} is beyond max_position_embeddings={preset.max_position_embeddings} of the "
            f"model; legal: at most that, or raise --max_position_embeddings"
        )
    training = settle(training)
    set_seed(training.seed)

    tokenizer = read_tokenizer(model_arguments, preset)
    if tokenizer is not None:
        objective.check_tokenizer(tokenizer)
    documents = prepare_documents(
        corpus,
        mixture,
        streaming,
        validation_size=rows.validation_size,
        seed=training.seed,
        minimum=MINIMUM_DOCUMENTS,
    )
    if streaming.streaming:
        check_workers(documents.train, training)
    objective.check_documents(documents.train, documents.validation)
    if tokenizer is None:
        tokenizer = new_tokenizer(tokenizer_arguments, documents.sample, preset)
    settle_config(model_arguments, preset, tokenizer, overrides)  # what is wrong is said before rows are made
    train = objective.rows(documents.train, tokenizer, rows, training=True)
    validation = objective.rows(documents.validation, tokenizer, rows, training=False)
    seen = first_rows(train) if streaming.streaming else train
    collator = objective.collator(tokenizer, seen)

    def build(arguments: ModelArguments, training: TrainingArguments, **options: Any) -> PretrainingTrainer:
        config = settle_config(arguments, preset, tokenizer, overrides)
        return PretrainingTrainer(
            objective.model(config, arguments.model_name_or_path),
            training,
            objective=objective,
            data_collator=collator,
            train_dataset=train,
            eval_dataset=validation,
            processing_class=tokenizer,
            callbacks=[MaskingProgress(collator), TokensPerSecond()],
            **options,
        )

    if budget is not None:
        measured = dataclasses.replace(optimization, batch_warmup=0.0, weight_average=None)
        size, training = plan_training(
            budget,
            lambda size, short: build(dataclasses.replace(model_arguments, size=size), short, optimization=measured),
            sizes,
            training,
            math.inf if streaming.streaming else len(train),
            len(validation),
        )
        model_arguments = dataclasses.replace(model_arguments, size=size)
    trainer = build(model_arguments, training, optimization=optimization, budget=budget)
    model = trainer.model
    print(
        f"{'A stream of' if streaming.streaming else f'{len(documents.train):,}'} documents to train on,"
        f" {len(documents.validation):,} held out; {'it begins with ' * streaming.streaming}"
        f"{objective.describe_rows(seen, rows.seq_length)}; {model.num_parameters():,} parameters"
    )
    result = trainer.train(resume_from_checkpoint=checkpoint)
    figures = last_evaluation(trainer)
    if not trainer.is_world_process_zero():
        return
    objective.save(trainer)
    baseline = objective.baseline(seen, trainer.get_eval_dataloader(), tokenizer)
    report = objective.report(figures, baseline) | {
        "objective": objective.name,
        "steps": trainer.state.global_step,
        "epochs": trainer.state.epoch,
        "training_tokens": trainer.state.num_input_tokens_seen,
        "training_seconds": result.metrics["train_runtime"],
        "parameters": trainer.model.num_parameters(),
        "precision": "bf16" if training.bf16 else "fp16" if training.fp16 else "fp32",
    }
    output = Path(training.output_dir)
    (output / "training_args.bin").unlink(missing_ok=True)  # a pickle that nothing needs once training is over
    trainer.save_state()
    plot_losses(trainer.state.log_history, output / "loss.png", objective.metric, objective.baselines(report))
    (output / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    source = ", ".join(corpus.data) or ", ".join(["the built-in corpus", *corpus.packages])
    recipe = dataclasses.asdict(rows) | dataclasses.asdict(objective.masking) | dataclasses.asdict(optimization)
    trainer.card = write_card(output, report, source, recipe, training)
    print("", *objective.lines(report), "", *objective.examples(output, documents.validation, tokenizer), sep="\n")
    print(f"Saved to {output}: the model, the tokenizer, README.md (the model card), loss.png and report.json")
    if training.push_to_hub:
        trainer.push_to_hub()
    if budget is not None:
        print(f"Took {budget.elapsed / 60:.1f} of {optimization.minutes:g} minutes")


def read_config(arguments: ModelArguments, overrides: dict[str, Any]) -> MiniBertConfig:
    """The config that the training starts from: a preset's, or that of the model to go on from."""
    if arguments.model_name_or_path is None:
        return getattr(MiniBertConfig, arguments.model)(arguments.size, **overrides)
    if arguments.tokenizer is not None:
        raise ValueError(
            f"tokenizer: {arguments.tokenizer!r} would give the ids of {arguments.model_name_or_path!r} other meanings;"
            " legal: none beside model_name_or_path, whose own is used"
        )
    config = AutoConfig.from_pretrained(arguments.model_name_or_path)
    if not isinstance(config, MiniBertConfig):
        raise ValueError(
            f"model_name_or_path: {arguments.model_name_or_path!r} is a {config.model_type}; legal: a MiniBERT"
            " (`minibert convert` makes one of a BERT or ModernBERT)"
        )
    changed = MiniBertConfig.from_pretrained(arguments.model_name_or_path, **overrides)
    with torch.device("meta"):
        shapes, wanted = (
            {name: tensor.shape for name, tensor in MiniBertModel(each).state_dict().items()}
            for each in (config, changed)
        )
    if shapes != wanted:
        raise ValueError(
            f"{', '.join(overrides)}: would change the shapes of the weights in {arguments.model_name_or_path!r};"
            " legal: fields that leave them alone"
        )
    return changed


def settle_config(
    arguments: ModelArguments, config: MiniBertConfig, tokenizer: PreTrainedTokenizerBase, overrides: dict[str, Any]
) -> MiniBertConfig:
    """The config with the tokenizer's vocabulary and ids; that of a model to go on from has them already."""
    if arguments.model_name_or_path is None:
        return MiniBertConfig.from_tokenizer(tokenizer, arguments.model, arguments.size, **overrides)
    return config


def last_evaluation(trainer: PretrainingTrainer) -> dict[str, float]:
    """The figures of the model as it stands: those of the evaluation at its step, if there was one."""
    state = trainer.state
    best = trainer.args.load_best_model_at_end and state.best_model_checkpoint is not None
    step = state.best_global_step if best else state.global_step
    found = [entry for entry in state.log_history if "eval_loss" in entry and entry["step"] == step]
    return found[-1] if found else trainer.evaluate()


class TokensPerSecond(TrainerCallback):
    """Adds the rate of real tokens to what `Trainer` logs."""

    def on_train_begin(self, args, state, control, **kwargs):
        self.tokens, self.time = state.num_input_tokens_seen, time.perf_counter()

    def on_log(self, args, state, control, logs=None, **kwargs):
        now = time.perf_counter()
        if "loss" in logs and state.num_input_tokens_seen > self.tokens:
            logs["tokens_per_second"] = round((state.num_input_tokens_seen - self.tokens) / (now - self.time))
        self.tokens, self.time = state.num_input_tokens_seen, now


def read_tokenizer(arguments: ModelArguments, config: MiniBertConfig) -> PreTrainedTokenizerBase | None:
    """The tokenizer that was named, or that of the model to go on from, cutting at the length of the model that is
    trained; None where one is to be trained."""
    named = arguments.tokenizer or arguments.model_name_or_path
    if named is None:
        return None
    tokenizer = AutoTokenizer.from_pretrained(named)
    tokenizer.model_max_length = config.max_position_embeddings
    if arguments.model_name_or_path is not None:
        config.check_tokenizer(tokenizer)
    return tokenizer


def new_tokenizer(
    arguments: TokenizerArguments, documents: datasets.Dataset, preset: MiniBertConfig
) -> PreTrainedTokenizerBase:
    """A tokenizer for the model that is trained, of the training documents."""
    return train_tokenizer(
        documents["text"],
        **dataclasses.asdict(arguments),
        model_max_length=preset.max_position_embeddings,
        token_type_ids=preset.type_vocab_size > 0,
    )
