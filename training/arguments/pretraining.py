"""The arguments of text, tokenizers and pretraining, and of the commands around it; nothing here may import torch."""

from dataclasses import dataclass
from typing import Any, Literal

from . import TRAINING_DEFAULTS, argument, check_least

# Fields of transformers.TrainingArguments where the user gives none.
UNLESS_GIVEN: dict[str, Any] = {"num_train_epochs": 2.0, "per_device_train_batch_size": 4}
# By optimizer, where the user gives none; beside Muon's own it is that of the embeddings, norms and heads.
LEARNING_RATES = {"adamw": 1e-3, "muon": 2e-3}
TRAINED_LEARNING_RATE = 1e-4  # AdamW's for a model that is trained already: what is for a new one would undo it
# Without it, Muon's matrices grow with every step, and what tokens mean is lost among layers' outputs (docs/record.md).
WEIGHT_DECAYS = {"adamw": 0.01, "muon": 0.3}
# Muon's at this hidden size and above; narrower models take a higher one (docs/record.md).
MUON_LEARNING_RATE, MUON_WIDTH = 3.5e-3, 256
# How rows are made where the user does not say so, and the training has none that were prepared.
UNLESS_PREPARED: dict[str, Any] = {"validation_size": 0.05, "seq_length": 512, "packing": "packed"}
ROWS_MANIFEST = "minibert_rows.json"  # in a folder of prepared rows that is finished
ROWS_PLAN = "minibert_rows.unfinished.json"  # in one that is not: what the rows are made of


@dataclass
class CorpusArguments:
    data: list[str] = argument(
        [],
        "The text: text, json, jsonl, csv, tsv or parquet files, folders, globs, or Hub data sets (owner/name"
        " or owner/name:config); for pretrain, a folder of prepared rows too. Without it, the built-in corpus: the"
        " documentation in this Python installation.",
    )
    packages: list[str] = argument([], "Installed packages whose docstrings the built-in corpus takes in too.")
    text_column: str | None = argument(None, "The column of the text; by default 'text', or the only one of strings.")
    sample_by: Literal["auto", "line", "paragraph", "document", "sentence"] = argument(
        "auto",
        "A document in a text file (document: all of it); auto: paragraphs if it has blank lines, else lines; sentence:"
        " every sentence of any kind of data.",
    )


@dataclass
class MixtureArguments:
    """In which proportion several sources are read: every entry of --data is one."""

    weights: list[float] = argument(
        [], "A weight for every entry of --data: its share of the documents, long or short; by default their number."
    )
    sampling_alpha: float | None = argument(
        None,
        "Draw sources with p ∝ weight^alpha (0: all alike); by default 0.3 where every entry stands behind its language"
        " (--data de=folder fr=file.txt), else 1.",
    )


@dataclass
class StreamingArguments:
    """How a corpus that is larger than the disk is read."""

    streaming: bool = argument(
        False, "Read as needed: text (in pretrain, give --max_steps or --minutes) or, in pretrain, prepared rows."
    )
    shuffle_buffer: int = argument(
        10_000, "Documents (or prepared rows) that a stream mixes at a time; 0 keeps their order."
    )
    sample_documents: int = argument(100_000, "Documents of a stream that a tokenizer is trained on.")

    def __post_init__(self):
        check_least(self, shuffle_buffer=0, sample_documents=1)


@dataclass
class RowArguments:
    """How documents become rows."""

    validation_size: float | None = argument(
        None, "Documents held out: a share (below 1) or a number; by default 0.05 (in pretrain, prepared rows' own)."
    )
    seq_length: int | None = argument(None, "Longest row, in tokens; by default 512 (in pretrain, prepared rows' own).")
    packing: Literal["packed", "padded", "concatenated"] | None = argument(
        None,
        "packed (the default; in pretrain, prepared rows' own): several documents a row, each attending only to"
        " itself; padded: one document a row; concatenated: all documents joined and cut into rows, in which they see"
        " each other.",
    )
    num_proc: int | None = argument(None, "Processes that prepare the data; the tokenizer uses all cores by itself.")


@dataclass
class TokenizerArguments:
    algorithm: Literal["wordpiece", "bpe", "unigram"] = argument("wordpiece", "How the tokenizer splits words.")
    vocab_size: int = argument(8192, "Size of the tokenizer's vocabulary.")
    lowercase: bool | None = argument(None, "Lower-case all text; by default wordpiece does, the others do not.")
    strip_accents: bool = argument(
        False, "Drop the marks on letters, as bert-base-uncased does (accents, vowels, tones)."
    )


@dataclass
class ModelArguments:
    """The model that is trained. Every field of MiniBertConfig is an argument besides these."""

    model: Literal["bert", "modernbert", "minibert"] = argument(
        "minibert", "The preset: the two published ones, or ModernBERT with what is known to learn faster."
    )
    size: Literal["tiny", "mini", "small", "medium", "base", "large"] = argument("mini", "The preset's size.")
    tokenizer: str | None = argument(None, "A trained tokenizer (folder or Hub name) instead of one trained here.")
    model_name_or_path: str | None = argument(
        None, "A trained MiniBERT (folder or Hub name) to go on from; fields that keep its weights' shapes can change."
    )
    embedding_init: Literal["cooccurrence", "random"] | None = argument(
        None,
        "How word embeddings begin: out of counts of which words stand next to each other in the text, or at random; by"
        " default counted where the preset minibert learns to fill masks (mlm).",
    )
    extend_vocabulary: int | None = argument(
        None, "Add so many words of the text, those that its tokenizer cuts most, to the trained model's vocabulary."
    )


@dataclass
class MaskingArguments:
    mlm_probability: float | None = argument(
        None, "Share of the tokens to predict, in training; by default 0.3 (ModernBERT's), mlm+nsp and rtd 0.15."
    )
    masking: Literal["token", "whole_word", "span"] = argument("token", "What is masked together.")
    mask_replace_prob: float | None = argument(None, "Share of the targets that become [MASK]; by default 0.8, rtd 1.")
    random_replace_prob: float | None = argument(None, "Share that become random tokens; by default 0.1, rtd 0.")
    random_replacement: Literal["uniform", "unigram"] = argument(
        "uniform",
        "Drawn uniformly, or in proportion to their frequency in the text (of a stream: in its first 1,000 rows).",
    )
    rate_schedule: Literal["constant", "linear", "steps"] = argument(
        "constant", "How --mlm_probability changes in training: through --rate_points in straight lines, or in steps."
    )
    rate_points: list[str] = argument([], "Points share-of-the-training:rate of the schedule, such as 0.5:0.2 1:0.15.")
    at_least_one_target: bool | None = argument(None, "Every document gets a target; by default so, but for mlm+nsp.")

    def __post_init__(self):
        """`rate_points` from `["0.5:0.2", "1:0.15"]` to `{0.5: 0.2, 1.0: 0.15}`."""
        if not isinstance(self.rate_points, dict):
            try:
                pairs = [point.split(":") for point in self.rate_points]
                self.rate_points = {float(share): float(rate) for share, rate in pairs}
            except ValueError:
                raise ValueError(
                    f"rate_points: {' '.join(self.rate_points)!r} are no points; use share-of-the-training:rate, such"
                    " as 0.5:0.2 1:0.15"
                ) from None


@dataclass
class ObjectiveArguments:
    objective: Literal["mlm", "mlm+nsp", "rtd", "clm"] = argument(
        "mlm",
        "mlm: masked tokens; mlm+nsp: those and whether one segment follows another (BERT); rtd: which tokens a small"
        " generator has replaced (ELECTRA); clm: next tokens (a decoder).",
    )
    short_seq_prob: float = argument(0.1, "mlm+nsp: share of the pairs that are made shorter than a row, as in BERT.")
    generator_size: float = argument(0.25, "rtd: the generator's width, as a share of the discriminator's.")
    discriminator_weight: float = argument(50.0, "rtd: weight of the discriminator's loss beside the generator's.")
    generator_temperature: float = argument(1.0, "rtd: temperature at which the generator's tokens are sampled.")


@dataclass
class OptimizationArguments:
    """Optimizer and schedule, beside what TrainingArguments say (--optim, --learning_rate, --lr_scheduler_type, …)."""

    optimizer: Literal["adamw", "muon"] | None = argument(
        None,
        "muon: Muon for the blocks' matrices, else fused AdamW; adamw: --optim (fused AdamW). By default"
        " muon for new models of the objective mlm, where it can be. --learning_rate, where not given: muon"
        f" {LEARNING_RATES['muon']:g}, adamw {LEARNING_RATES['adamw']:g}, with --model_name_or_path"
        f" {TRAINED_LEARNING_RATE:g}; --weight_decay: {WEIGHT_DECAYS['muon']:g} and {WEIGHT_DECAYS['adamw']:g}.",
    )
    muon_learning_rate: float | None = argument(
        None,
        "Muon's own; by default --learning_rate, which its updates fit, and without that"
        f" {MUON_LEARNING_RATE:g}, or {MUON_LEARNING_RATE:g} · {MUON_WIDTH} / hidden_size if that is more.",
    )
    minutes: float | None = argument(
        None,
        "Train for so long, reading the data and evaluating included, instead of for --max_steps or --num_train_epochs,"
        " with the linear schedule by the clock.",
    )


@dataclass
class TokenizerCommandArguments:
    """Train a tokenizer on text, or extend a trained one."""

    extend: str | None = argument(None, "A trained tokenizer (folder or Hub name) that words are added to instead.")
    extend_vocabulary: int = argument(1000, "How many: the words of the text that it cuts most.")
    output_dir: str = argument("runs/tokenizer", "Folder that the tokenizer is saved in.")


@dataclass
class PrepareArguments:
    """Make rows of text once, in parquet shards that trainings read (pretrain --data FOLDER)."""

    output_dir: str = argument("runs/rows", "Folder of the rows. The same command goes on where it was killed.")
    tokenizer: str | None = argument(None, "A trained tokenizer or model (folder or Hub name); else one is trained.")
    shard_documents: int = argument(65_536, "Documents that a shard is made of: a multiple of 4096.")
    seed: int = argument(42, "Seed of what is held out and drawn; 42 is that of pretrain, too.")


PRETRAIN_DEFAULTS: dict[str, Any] = TRAINING_DEFAULTS | {
    "output_dir": "runs/minibert",
    "per_device_train_batch_size": None,  # undecided, and so is num_train_epochs: see UNLESS_GIVEN
    "per_device_eval_batch_size": 8,
    "learning_rate": None,  # see LEARNING_RATES
    "warmup_steps": 0.06,
    "weight_decay": None,  # see WEIGHT_DECAYS
    "adam_beta2": 0.98,
    "num_train_epochs": None,
}
