"""The settings of a pretraining: `TrainingArguments`, and the fields of rows, masks, objective and optimizer."""

import copy
import math
import os
from dataclasses import dataclass
from typing import Any, Literal

import torch
from transformers import PreTrainedTokenizerFast, TrainingArguments
from transformers.trainer_utils import IntervalStrategy, SaveStrategy

from ...tokenization import train_tokenizer
from ..options import option
from ..precision import check_training
from ..processes import shares_weights

ADAMW = ("adamw_torch_fused", "adamw_torch")  # what Muon can stand beside
# By optimizer, where the user gives none; beside Muon's own rate it is that of the embeddings, norms and heads.
LEARNING_RATES = {"adamw": 1e-3, "muon": 2e-3}
TRAINED_LEARNING_RATE = 1e-4  # AdamW's for a model that is trained already: what is for a new one would undo it
# Without it, Muon's matrices grow with every step, and what tokens mean is lost among layers' outputs.
WEIGHT_DECAYS = {"adamw": 0.01, "muon": 0.3}
EPOCHS = 2.0
MASKING_FIELDS = ("mlm_probability", "masking", "mask_replace_prob", "random_replace_prob")
# What a checkpoint may be resumed with another value of; the tokenizer itself is compared.
FREE_FIELDS = ("num_proc", "minutes", "algorithm", "vocab_size", "lowercase", "strip_accents", "max_lost_text")


@dataclass
class TokenizerConfig:
    """How a new tokenizer is trained, and how much of the text it may lose."""

    algorithm: Literal["wordpiece", "bpe", "unigram"] = option("wordpiece", "How a new tokenizer splits words.")
    vocab_size: int = option(8192, "Size of a new tokenizer's vocabulary.")
    lowercase: bool | None = option(None, "Lower-case all text; by default wordpiece does, the others do not.")
    strip_accents: bool = option(
        False, "Drop the marks on letters, as bert-base-uncased does (accents, vowels, tones)."
    )
    max_lost_text: float | None = option(
        None,
        "Share of the characters that may be lost; by default 0.05, and 0.01 in words of more than 100 characters.",
    )

    def train_tokenizer(self, texts: Any, **options: Any) -> PreTrainedTokenizerFast:
        names = ("algorithm", "vocab_size", "lowercase", "strip_accents")
        return train_tokenizer(texts, **{name: getattr(self, name) for name in names}, **options)


@dataclass
class RowsConfig(TokenizerConfig):
    """How documents become rows."""

    validation_size: float = option(0.05, "Documents held out without an evaluation set: a share, or a number from 1.")
    seq_length: int = option(512, "Longest row, in tokens.")
    packing: Literal["packed", "padded"] = option(
        "packed", "packed: several documents a row, each attending only to itself; padded: one document a row."
    )
    num_proc: int | None = option(None, "Processes that prepare the data; the tokenizer uses all cores by itself.")


@dataclass
class PretrainingConfig(RowsConfig, TrainingArguments):
    """The settings of `PretrainingTrainer`: those of `TrainingArguments`, some with other defaults, and more.

    What is None by default is decided by the trainer, which knows the model and the rows.
    """

    output_dir: str | None = option("runs/minibert", "Folder of the model, the tokenizer, the card and the report.")
    logging_steps: float = option(10, "A line of losses every so many steps; below 1 a share of all.")
    eval_strategy: IntervalStrategy | str = option("epoch", "When to evaluate: no, steps or epoch.")
    save_strategy: SaveStrategy | str = option("epoch", "When to save a checkpoint: no, steps, epoch or best.")
    save_total_limit: int | None = option(1, "Checkpoints that are kept.")
    bf16: bool | None = option(None, "Compute in bf16; by default where the machine is fast at it.")
    per_device_train_batch_size: int = option(4, "Rows a process trains on at once.")
    per_device_eval_batch_size: int = option(8, "Rows a process evaluates at once.")
    num_train_epochs: float | None = option(None, f"Passes over the rows; by default {EPOCHS:g}.")
    learning_rate: float | None = option(
        None,
        "The highest one; by default 2e-3 with muon, 1e-3 with adamw, and 1e-4 for a model that is trained already.",
    )
    warmup_steps: float = option(0.06, "Steps in which the rate rises; below 1 a share of all.")
    weight_decay: float | None = option(None, "By default 0.3 with muon, 0.01 with adamw.")
    adam_beta2: float = option(0.98, "AdamW's second beta.")

    objective: Literal["mlm", "mlm+nsp", "rtd", "clm"] = option(
        "mlm",
        "mlm: masked tokens; mlm+nsp: those and whether one segment follows another (BERT); rtd: which tokens a small"
        " generator has replaced (ELECTRA); clm: next tokens (a decoder).",
    )
    embedding_init: Literal["cooccurrence", "random"] | None = option(
        None, "A new model's word embeddings: out of counts of neighbours (by default for mlm; pretrain: of minibert)."
    )

    mlm_probability: float | None = option(
        None, "Share of the tokens to predict, in training; by default 0.3 (ModernBERT's), mlm+nsp and rtd 0.15."
    )
    last_mlm_probability: float | None = option(
        None, "Share at the end of the training, which mlm_probability reaches in a straight line; by default itself."
    )
    masking: Literal["token", "whole_word", "span"] = option("token", "What is masked together.")
    mask_replace_prob: float | None = option(None, "Share of the targets that become [MASK]; by default 0.8, rtd 1.")
    random_replace_prob: float | None = option(None, "Share that become random tokens; by default 0.1, rtd 0.")
    short_seq_prob: float = option(0.1, "mlm+nsp: share of the pairs that are made shorter than a row, as in BERT.")
    generator_size: float = option(0.25, "rtd: the generator's width, as a share of the discriminator's.")
    discriminator_weight: float = option(50.0, "rtd: weight of the discriminator's loss beside the generator's.")

    optimizer: Literal["adamw", "muon"] | None = option(
        None,
        "muon: Muon for the blocks' matrices, else AdamW (the default of new models, mlm); adamw: what --optim is.",
    )
    muon_learning_rate: float | None = option(
        None, "Muon's own; by default learning_rate, and without that 3.5e-3, or 0.9 / hidden_size if that is more."
    )
    minutes: float | None = option(
        None,
        "Train for so long, reading and evaluating included, with the linear schedule by the clock, not for steps.",
    )

    def __post_init__(self):
        if (self.bf16 or self.bf16_full_eval) and not torch.accelerator.is_available():
            self.use_cpu = True  # without it, Transformers refuses bf16 on a CPU
        super().__post_init__()


def check_config(args: PretrainingConfig) -> None:
    """Refuse (ValueError), before any work, what does not go together."""
    check_training(args)
    if args.optimizer == "muon" and args.optim.value not in ADAMW:
        raise ValueError(f"optimizer: muon and --optim {args.optim.value} are two optimizers; give one")
    if shares_weights(args) and (args.optimizer == "muon" or args.objective == "rtd"):
        raise ValueError("fsdp, deepspeed: muon and rtd need whole matrices; use adamw, and another objective")
    if args.bf16_full_eval or args.fp16_full_eval:
        raise ValueError("bf16_full_eval, fp16_full_eval: the saved model would be in half precision; leave them out")
    for name in (
        "mlm_probability",
        "last_mlm_probability",
        "mask_replace_prob",
        "random_replace_prob",
        "short_seq_prob",
    ):
        if (share := getattr(args, name)) is not None and not 0 <= share <= 1:
            raise ValueError(f"{name}: {share} is no share; use 0 to 1")
    if args.minutes is not None:
        if not 0 < args.minutes < math.inf:
            raise ValueError(f"minutes must be positive, got {args.minutes}")
        by_steps = {"max_steps": args.max_steps > 0, "num_train_epochs": args.num_train_epochs is not None}
        by_steps |= {"warmup_steps": args.warmup_steps >= 1, "lr_scheduler_type": args.lr_scheduler_type != "linear"}
        if clash := [name for name, is_given in by_steps.items() if is_given]:
            raise ValueError(f"minutes: --{clash[0]} does not go with it; the linear schedule follows the clock")


def fill_defaults(args: PretrainingConfig, new: bool) -> PretrainingConfig:
    """A copy with what the user left open; `new`: the model is not trained yet. A ValueError for what does not go
    together."""
    check_config(args)
    args = copy.copy(args)
    if args.optimizer is None:
        can = args.optim.value in ADAMW and not shares_weights(args)
        args.optimizer = "muon" if new and args.objective == "mlm" and can else "adamw"
    if args.optimizer == "muon" and args.muon_learning_rate is None:
        args.muon_learning_rate = args.learning_rate  # and without that, what the width of the model says
    if args.optimizer != "muon" and args.muon_learning_rate is not None:
        raise ValueError("muon_learning_rate: needs --optimizer muon")
    if args.learning_rate is None:
        trained = args.optimizer == "adamw" and not new
        args.learning_rate = TRAINED_LEARNING_RATE if trained else LEARNING_RATES[args.optimizer]
    if args.weight_decay is None:
        args.weight_decay = WEIGHT_DECAYS[args.optimizer]
    if args.embedding_init is None:
        args.embedding_init = "cooccurrence" if new and args.objective == "mlm" else "random"
    elif args.embedding_init == "cooccurrence" and not new:
        raise ValueError("embedding_init: cooccurrence would replace those of the trained model; leave it out")
    if args.num_train_epochs is None:
        args.num_train_epochs = EPOCHS
    if args.minutes is not None:
        args.max_steps = 10**9  # `Trainer` needs a number of steps; it never comes so far
    # All tokens count, as no batch has padding; with padding, by the mask, since its id may be that of [SEP] too.
    packed = args.objective != "mlm+nsp" and not args.torch_compile
    args.include_num_input_tokens_seen = "all" if packed else "non_padding"
    return args


def config_path(model: Any) -> str | None:
    """The folder or Hub name that stands for a saved model; None for a config or a model."""
    return os.fspath(model) if isinstance(model, (str, os.PathLike)) else None
