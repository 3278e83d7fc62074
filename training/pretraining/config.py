"""The settings of a pretraining: `TrainingArguments`, and the fields of rows, masks, objective and optimizer."""

import copy
import os
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import torch
from transformers import TrainingArguments
from transformers.trainer_utils import IntervalStrategy, SaveStrategy

from ..optimization.muon import MUON_LEARNING_RATE, MUON_WIDTH
from ..processes import shares_weights

ADAMW = ("adamw_torch_fused", "adamw_torch")  # what Muon can stand beside
# By optimizer, where the user gives none; beside Muon's own rate it is that of the embeddings, norms and heads.
LEARNING_RATES = {"adamw": 1e-3, "muon": 2e-3}
TRAINED_LEARNING_RATE = 1e-4  # AdamW's for a model that is trained already: what is for a new one would undo it
# Without it, Muon's matrices grow with every step, and what tokens mean is lost among layers' outputs.
WEIGHT_DECAYS = {"adamw": 0.01, "muon": 0.3}
EPOCHS = 2.0
ROW_DEFAULTS: dict[str, Any] = {"validation_size": 0.05, "seq_length": 512, "packing": "packed"}
MASKING_FIELDS = (
    "mlm_probability", "masking", "mask_replace_prob", "random_replace_prob", "rate_points", "at_least_one_target"
)  # fmt: skip
# What a checkpoint may be resumed with another value of; the tokenizer itself is compared.
FREE_FIELDS = ("num_proc", "minutes", "algorithm", "vocab_size", "lowercase", "strip_accents", "max_lost_text")


def option(default: Any, help: str) -> Any:
    make = dict(default_factory=default.copy) if isinstance(default, list) else dict(default=default)
    return field(**make, metadata={"help": help})


@dataclass
class PretrainingConfig(TrainingArguments):
    """The settings of `PretrainingTrainer`: those of `TrainingArguments`, some with other defaults, and those below.

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
        f"The highest one; by default {LEARNING_RATES['muon']:g} with muon, {LEARNING_RATES['adamw']:g} with adamw, and"
        f" {TRAINED_LEARNING_RATE:g} with adamw for a model that is trained already.",
    )
    warmup_steps: float = option(0.06, "Steps in which the rate rises; below 1 a share of all.")
    weight_decay: float | None = option(
        None, f"By default {WEIGHT_DECAYS['muon']:g} with muon, {WEIGHT_DECAYS['adamw']:g} with adamw."
    )
    adam_beta2: float = option(0.98, "AdamW's second beta.")

    objective: Literal["mlm", "mlm+nsp", "rtd", "clm"] = option(
        "mlm",
        "mlm: masked tokens; mlm+nsp: those and whether one segment follows another (BERT); rtd: which tokens a small"
        " generator has replaced (ELECTRA); clm: next tokens (a decoder).",
    )
    validation_size: float | None = option(
        None, "Documents held out where no evaluation set is given: a share (below 1) or a number; by default 0.05."
    )
    seq_length: int | None = option(None, "Longest row, in tokens; by default 512.")
    packing: Literal["packed", "padded"] | None = option(
        None,
        "packed (the default): several documents a row, each attending only to itself; padded: one document a row.",
    )
    num_proc: int | None = option(None, "Processes that prepare the data; the tokenizer uses all cores by itself.")

    algorithm: Literal["wordpiece", "bpe", "unigram"] = option("wordpiece", "How a new tokenizer splits words.")
    vocab_size: int = option(8192, "Size of a new tokenizer's vocabulary.")
    lowercase: bool | None = option(None, "Lower-case all text; by default wordpiece does, the others do not.")
    strip_accents: bool = option(
        False, "Drop the marks on letters, as bert-base-uncased does (accents, vowels, tones)."
    )
    max_lost_text: float | None = option(
        None,
        "Share of the characters that the tokenizer may lose; by default 0.05, and 0.01 in words of more than 100"
        " characters.",
    )
    embedding_init: Literal["cooccurrence", "random"] | None = option(
        None,
        "How a new model's word embeddings begin: out of counts of which words stand next to each other in the text, or"
        " at random; by default counted for mlm (pretrain: with the preset minibert).",
    )

    mlm_probability: float | None = option(
        None, "Share of the tokens to predict, in training; by default 0.3 (ModernBERT's), mlm+nsp and rtd 0.15."
    )
    masking: Literal["token", "whole_word", "span"] = option("token", "What is masked together.")
    mask_replace_prob: float | None = option(None, "Share of the targets that become [MASK]; by default 0.8, rtd 1.")
    random_replace_prob: float | None = option(None, "Share that become random tokens; by default 0.1, rtd 0.")
    rate_points: list[str] = option(
        [],
        "Points share-of-the-training:rate that mlm_probability moves through in straight lines, such as 0.5:0.2"
        " 1:0.15; from Python a dictionary, too.",
    )
    at_least_one_target: bool | None = option(None, "Every document gets a target; by default so, but for mlm+nsp.")
    short_seq_prob: float = option(0.1, "mlm+nsp: share of the pairs that are made shorter than a row, as in BERT.")
    generator_size: float = option(0.25, "rtd: the generator's width, as a share of the discriminator's.")
    discriminator_weight: float = option(50.0, "rtd: weight of the discriminator's loss beside the generator's.")
    generator_temperature: float = option(1.0, "rtd: temperature at which the generator's tokens are sampled.")

    optimizer: Literal["adamw", "muon"] | None = option(
        None,
        "muon: Muon for the blocks' matrices, else fused AdamW; adamw: what --optim says (fused AdamW). By default muon"
        " for new models of the objective mlm, where it can be.",
    )
    muon_learning_rate: float | None = option(
        None,
        "Muon's own; by default learning_rate, which its updates fit, and without that"
        f" {MUON_LEARNING_RATE:g}, or {MUON_LEARNING_RATE:g} · {MUON_WIDTH} / hidden_size if that is more.",
    )
    minutes: float | None = option(
        None,
        "Train for so long, reading the data and evaluating included, instead of for max_steps or num_train_epochs,"
        " with the linear schedule by the clock.",
    )

    def __post_init__(self):
        if not isinstance(self.rate_points, dict):
            try:
                pairs = [point.split(":") for point in self.rate_points]
                self.rate_points = {float(share): float(rate) for share, rate in pairs}
            except ValueError:
                raise ValueError(
                    f"rate_points: {' '.join(self.rate_points)!r} are no points; use share-of-the-training:rate, such"
                    " as 0.5:0.2 1:0.15"
                ) from None
        if (self.bf16 or self.bf16_full_eval) and not torch.accelerator.is_available():
            self.use_cpu = True  # without it, Transformers refuses bf16 on a CPU
        super().__post_init__()

    def own_settings(self) -> dict[str, Any]:
        """The fields that `TrainingArguments` do not have, by name."""
        inherited = {each.name for each in fields(TrainingArguments)}
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name not in inherited}


def check_config(args: PretrainingConfig) -> None:
    """Refuse (ValueError), before any work, what does not go together."""
    optim, muon = args.optim.value, args.optimizer == "muon"
    refused = {
        "optimizer: muon needs whole matrices; use adamw beside fsdp, deepspeed": muon and shares_weights(args),
        f"optimizer: muon and --optim {optim} are two optimizers; give one": muon and optim not in ADAMW,
        "objective: rtd needs whole matrices, for two models; use another one beside fsdp, deepspeed": (
            args.objective == "rtd" and shares_weights(args)
        ),
    }
    for name in ("bf16_full_eval", "fp16_full_eval"):
        refused[f"{name}: it would leave the model that is saved in half precision; leave it out"] = getattr(args, name)
    if args.minutes is not None:
        clash, scheduler = "does not go with --minutes", args.lr_scheduler_type
        refused |= {
            f"minutes must be positive, got {args.minutes}": not 0 < args.minutes < float("inf"),
            f"minutes: --max_steps {clash}: both say how long to train": args.max_steps > 0,
            f"minutes: --num_train_epochs {clash}: both say how long to train": args.num_train_epochs is not None,
            f"restore_callback_states_from_checkpoint: {clash}, which restores its own": (
                args.restore_callback_states_from_checkpoint
            ),
            f"warmup_steps: {args.warmup_steps} {clash}; use a share below 1": args.warmup_steps >= 1,
            f"lr_scheduler_type: {scheduler.value} {clash}; use linear": scheduler != "linear",
            f"lr_scheduler_kwargs: {args.lr_scheduler_kwargs} {clash}": args.lr_scheduler_kwargs,
        }
    for message, wrong in refused.items():
        if wrong:
            raise ValueError(message)


def fill_defaults(args: PretrainingConfig, new: bool) -> PretrainingConfig:
    """A copy with what the user left open; `new`: the model is not trained yet. A ValueError for what does not go
    together."""
    check_config(args)
    args = copy.copy(args)
    for name, value in ROW_DEFAULTS.items():
        if getattr(args, name) is None:
            setattr(args, name, value)
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
