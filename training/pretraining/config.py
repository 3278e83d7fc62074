"""The settings of a pretraining: those of `TrainingArguments`, and of rows, masks, objective and
optimizer."""

import copy
import dataclasses
import difflib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from transformers import PreTrainedTokenizerFast, TrainingArguments
from transformers.trainer_utils import IntervalStrategy, SaveStrategy

from ...configuration_minibert import SPECIAL_IDS, MiniBertConfig
from ...option_checks import check_choice, checked_class
from ...tokenization import train_tokenizer
from ..common.config_fields import option
from ..common.processes import shares_weights, use_cpu_without_accelerator
from ..loading.models import minibert_config
from ..loop.arguments import check_training
from ..optimization.clock import check_minutes
from ..optimization.muon import MUON_LEARNING_RATE, MUON_WIDTH

ADAMW_OPTIMIZERS = (
    "adamw_torch_fused",
    "adamw_torch",
)  # values of --optim that can be combined with Muon
# AdamW's default learning rate, by `optimizer`: beside Muon, it trains embeddings, norms and heads
# only. Muon's own rate is in `optimization/muon.py`.
ADAMW_LEARNING_RATES = {"adamw": 1e-3, "muon": 2e-3}
TRAINED_LEARNING_RATE = 1e-4  # AdamW's default for a trained model, which a larger one would undo
# Without decay, Muon's matrices grow with every step, and the embeddings are lost among the outputs
# of the layers.
WEIGHT_DECAYS = {"adamw": 0.01, "muon": 0.3}
DEFAULT_EPOCHS = 2.0
PRESETS = ("bert", "modernbert", "minibert")
MASKING_FIELDS = (
    "mlm_probability",
    "last_mlm_probability",
    "masking",
    "mask_replace_prob",
    "random_replace_prob",
)
# Fields that may change when a checkpoint is resumed. (The tokenizer itself is compared.)
FIELDS_FREE_TO_CHANGE = (
    "num_proc",
    "minutes",
    "algorithm",
    "vocab_size",
    "lowercase",
    "strip_accents",
    "max_lost_text",
    "embedding_init",  # of a new model only
)


@checked_class
@dataclass
class TokenizerConfig:
    """How a new tokenizer is trained, and how much of the text it may lose."""

    algorithm: Literal["wordpiece", "bpe", "unigram"] = option(
        "wordpiece", "Algorithm of a new tokenizer."
    )
    vocab_size: int = option(8192, "Vocabulary size of a new tokenizer.")
    lowercase: bool | None = option(
        None, "Lower-case all text; by default true for wordpiece, else false."
    )
    strip_accents: bool = option(
        False, "Remove the marks on letters (accents, vowels, tones), as bert-base-uncased does."
    )
    max_lost_text: float | None = option(
        None,
        "Share of the characters that tokenization may lose; by default 0.05, of which 0.01 in"
        " words of more than 100 characters.",
    )

    def train_tokenizer_on(self, texts: Any, **options: Any) -> PreTrainedTokenizerFast:
        names = ("algorithm", "vocab_size", "lowercase", "strip_accents")
        return train_tokenizer(texts, **{name: getattr(self, name) for name in names}, **options)


@checked_class
@dataclass
class RowsConfig(TokenizerConfig):
    """How documents become rows."""

    validation_size: float = option(
        0.05, "Documents to hold out for the evaluation: a share below 1, or a number."
    )
    seq_length: int = option(512, "Longest row, in tokens.")
    packing: Literal["packed", "padded"] = option(
        "packed",
        "packed: several documents a row, each attending only to itself; padded: one document a"
        " row.",
    )
    num_proc: int | None = option(
        None, "Processes that tokenize; by default one, which uses all cores."
    )


@checked_class
@dataclass
class PretrainingConfig(RowsConfig, TrainingArguments):
    """The settings of `PretrainingTrainer`: the fields below beside those of `TrainingArguments`.
    `minibert pretrain --help` lists each with its meaning.

    Fields that are None are filled in by the trainer, which knows the model and the rows.
    """

    validation_size: float | None = option(
        None,
        "Documents to hold out for the evaluation: a share below 1, or a number. By default"
        f" {RowsConfig.validation_size:g}; prepared rows have theirs.",
    )
    seq_length: int | None = option(
        None,
        f"Longest row, in tokens; by default {RowsConfig.seq_length}, or that of prepared rows.",
    )
    packing: Literal["packed", "padded"] | None = option(
        None,
        "packed: several documents a row, each attending only to itself; padded: one document a"
        f" row. By default {RowsConfig.packing}, or that of prepared rows.",
    )
    output_dir: str | None = option(
        "runs/minibert", "Folder of the model, the tokenizer, the card and the report."
    )
    logging_steps: float = option(
        10, "Steps between two lines of the log; below 1, a share of all steps."
    )
    eval_strategy: IntervalStrategy | str = option("epoch", "When to evaluate: no, steps or epoch.")
    save_strategy: SaveStrategy | str = option(
        "epoch", "When to save a checkpoint: no, steps, epoch or best."
    )
    save_total_limit: int | None = option(1, "Number of checkpoints to keep.")
    bf16: bool | None = option(None, "Compute in bf16; by default if the hardware is fast at it.")
    per_device_train_batch_size: int = option(4, "Rows of a training batch, for each process.")
    per_device_eval_batch_size: int = option(8, "Rows of an evaluation batch, for each process.")
    num_train_epochs: float | None = option(
        None, f"Passes over the rows; by default {DEFAULT_EPOCHS:g}."
    )
    learning_rate: float | None = option(
        None,
        "Peak learning rate; by default 2e-3 with muon, 1e-3 with adamw, and 1e-4 for a trained"
        " model.",
    )
    warmup_steps: float = option(
        0.06, "Steps in which the learning rate rises; below 1, a share of all steps."
    )
    weight_decay: float | None = option(
        None, "Weight decay; by default 0.3 with muon, 0.01 with adamw."
    )
    adam_beta2: float = option(0.98, "AdamW's second beta.")

    objective: Literal["mlm", "mlm+nsp", "mlm+sop", "rtd", "clm"] = option(
        "mlm",
        "mlm: predict masked tokens; mlm+nsp: also whether one segment follows another (BERT);"
        " mlm+sop: also whether two segments are in order (ALBERT); rtd: find tokens that a small"
        " generator has replaced (ELECTRA); clm: predict next tokens (a decoder).",
    )
    embedding_init: Literal["cooccurrence", "random"] | None = option(
        None,
        "First word embeddings of a new model: from counts of neighbouring tokens, or random. By"
        " default cooccurrence with objective mlm, else random.",
    )
    extend_vocabulary: int | None = option(
        None,
        "Number of words of the text to add to the vocabulary of the trained model: those that its"
        " tokenizer cuts most.",
    )

    mlm_probability: float | None = option(
        None,
        "Share of the tokens to mask in training; by default 0.3 (as ModernBERT), with mlm+nsp,"
        " mlm+sop and rtd 0.15.",
    )
    last_mlm_probability: float | None = option(
        None,
        "Share of masked tokens at the end of the training, reached in a straight line; by default"
        " constant.",
    )
    masking: Literal["token", "whole_word", "span", "ngram"] = option(
        "token",
        "What is masked together: single tokens, whole words, spans of up to 10 words (SpanBERT),"
        " or of up to 3 (ngram, ALBERT).",
    )
    mask_replace_prob: float | None = option(
        None, "Share of the chosen tokens that become [MASK]; by default 0.8, with rtd 1."
    )
    random_replace_prob: float | None = option(
        None, "Share of the chosen tokens that become random tokens; by default 0.1, with rtd 0."
    )
    short_seq_prob: float = option(
        0.1, "With mlm+nsp and mlm+sop, the share of pairs that are shorter than a row, as in BERT."
    )
    generator_size: float = option(
        0.25, "With rtd, the width of the generator relative to the discriminator."
    )
    discriminator_weight: float = option(50.0, "With rtd, the weight of the discriminator's loss.")

    optimizer: Literal["adamw", "muon"] | None = option(
        None,
        "muon: Muon for the matrices of the layers and AdamW for the rest (the default of new"
        " models with objective mlm); adamw: the optimizer of --optim for all.",
    )
    muon_learning_rate: float | None = option(
        None,
        "Peak learning rate of Muon; by default learning_rate if given, else"
        f" {MUON_LEARNING_RATE:g}, or {MUON_LEARNING_RATE * MUON_WIDTH:.1g} / hidden_size if"
        " larger.",
    )
    minutes: float | None = option(
        None,
        "Stop after this many minutes, including reading and evaluating; the learning rate falls"
        " by the clock.",
    )

    def __post_init__(self):
        check_choices(self)
        use_cpu_without_accelerator(self)
        super().__post_init__()


def check_choices(args: PretrainingConfig) -> None:
    """Refuse (a ValueError) a value that is none of those that its field may have."""
    for field in dataclasses.fields(PretrainingConfig):
        check_choice(field.name, getattr(args, field.name), field.type)


def check_config(args: PretrainingConfig, is_new: bool) -> None:
    """Refuse (a ValueError), before any work, settings that contradict each other. `args` are the
    user's, without the defaults of fields that are None; `is_new`: the model is not trained yet."""
    check_choices(args)
    check_training(args)
    if args.optimizer == "muon" and args.optim.value not in ADAMW_OPTIMIZERS:
        raise ValueError(
            f"optimizer: muon cannot be combined with --optim {args.optim.value}; give one of them"
        )
    if shares_weights(args) and args.optimizer == "muon":
        raise ValueError(
            "fsdp, deepspeed: muon and rtd need whole matrices; use adamw and another objective"
        )
    if args.bf16_full_eval or args.fp16_full_eval:
        raise ValueError(
            "bf16_full_eval, fp16_full_eval: the saved model would be in half precision; leave"
            " them out"
        )
    shares = (
        "mlm_probability",
        "last_mlm_probability",
        "mask_replace_prob",
        "random_replace_prob",
        "short_seq_prob",
    )
    for name in shares:
        share = getattr(args, name)
        if share is not None and not 0 <= share <= 1:
            raise ValueError(f"{name} must be from 0 to 1, got {share}")
    check_minutes(args, default_epochs=None)
    if args.muon_learning_rate is not None and choose_optimizer(args, is_new) != "muon":
        raise ValueError(
            "muon_learning_rate: it has no effect without --optimizer muon; give that, or leave it"
            " out"
        )
    if args.embedding_init == "cooccurrence" and not is_new:
        raise ValueError(
            "embedding_init: cooccurrence would replace the embeddings of the trained model; leave"
            " it out"
        )


def choose_optimizer(args: PretrainingConfig, is_new: bool) -> str:
    """The user's optimizer, or else the default."""
    if args.optimizer is not None:
        return args.optimizer
    can_use_muon = args.optim.value in ADAMW_OPTIMIZERS and not shares_weights(args)
    if is_new and args.objective == "mlm" and can_use_muon:
        return "muon"
    return "adamw"


def fill_defaults(args: PretrainingConfig, is_new: bool) -> PretrainingConfig:
    """A copy of settings that `check_config` lets pass, in which the fields that are None have
    their defaults, but for Muon's learning rate, which depends on the model. `is_new`: the model is
    not trained yet."""
    args = copy.copy(args)
    fill_row_defaults(args)
    args.optimizer = choose_optimizer(args, is_new)
    if args.learning_rate is None:
        args.learning_rate = ADAMW_LEARNING_RATES[args.optimizer]
        if args.optimizer == "adamw" and not is_new:
            args.learning_rate = TRAINED_LEARNING_RATE
    if args.weight_decay is None:
        args.weight_decay = WEIGHT_DECAYS[args.optimizer]
    if args.embedding_init is None:
        args.embedding_init = "random"
        if is_new and args.objective == "mlm":
            args.embedding_init = "cooccurrence"
    if args.num_train_epochs is None:
        args.num_train_epochs = DEFAULT_EPOCHS
    return args


def fill_row_defaults(args: RowsConfig) -> None:
    """Set, in place, the settings of rows that are None, as they are in a `PretrainingConfig`."""
    for field in dataclasses.fields(RowsConfig):
        if getattr(args, field.name) is None:
            setattr(args, field.name, field.default)


def preset_config(preset: str, size: str, overrides: Mapping[str, Any]) -> MiniBertConfig:
    """The config of a preset, with the overrides; a ValueError for a field that it does not
    have."""
    if preset not in PRESETS:
        raise ValueError(
            f"preset: {preset!r} is unknown; use one of {', '.join(PRESETS)}, or give a saved model"
            " as model_name_or_path"
        )
    check_overrides(overrides)
    return getattr(MiniBertConfig, preset)(size, **overrides)


def saved_model_config(path: str, overrides: Mapping[str, Any]) -> MiniBertConfig:
    """The config of a saved MiniBERT, with the overrides; a ValueError for any other model."""
    minibert_config(path)  # has the best messages for a wrong path
    return MiniBertConfig.from_pretrained(path, **overrides)


def check_overrides(overrides: Mapping[str, Any]) -> None:
    """Refuse (a ValueError) fields that a config does not have, and those that the tokenizer
    decides."""
    for name in ("vocab_size", *SPECIAL_IDS):
        if name in overrides:
            raise ValueError(
                f"config_overrides: the tokenizer decides {name}; leave it out (--vocab_size sets"
                " the size of a new tokenizer)"
            )
    fields = MiniBertConfig().to_dict()
    for name in overrides:
        if name not in fields:
            close = difflib.get_close_matches(name, fields)
            use = ", ".join(close) or "the fields of MiniBertConfig"
            raise ValueError(f"config_overrides: unknown field {name!r}; use {use}")


def read_overrides(overrides: str | dict[str, Any] | None) -> dict[str, Any]:
    """Parse "hidden_size=64,num_hidden_layers=2", or JSON; values are JSON or words."""
    if not isinstance(overrides, str):
        return dict(overrides or {})
    if overrides.lstrip().startswith("{"):
        return json.loads(overrides)
    fields = {}
    for part in filter(None, overrides.split(",")):
        name, _, value = part.partition("=")
        try:
            fields[name.strip()] = json.loads(value.lower())  # Python's True, too
        except json.JSONDecodeError:
            fields[name.strip()] = value
    return fields


def config_path(model: Any) -> str | None:
    """The folder or Hub name that stands for a saved model; None for a config or a model."""
    return os.fspath(model) if isinstance(model, (str, os.PathLike)) else None
