"""The arguments of `minibert finetune` and `minibert evaluate`; nothing here may import torch.

`task` of a task's dataclass says which class does the work ("module:class" in this package), its docstring what is
trained and measured.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from . import TRAINING_DEFAULTS, argument


@dataclass
class TaskArguments:
    """What is the task's own; every task has a subclass."""

    task: ClassVar[str]
    max_length: int | None = argument(None, "Longest input, in tokens, the rest is cut; by default the model's.")


@dataclass
class DataArguments:
    data: str | None = argument(
        None, "A folder with train, validation and test (jsonl, csv, parquet, …), a training file, or a Hub data set."
    )
    train: list[str] = argument([], "Files to train on, instead of those in --data.")
    validation: list[str] = argument([], "Files to validate on, instead of those in --data.")
    test: list[str] = argument([], "Files to test on, instead of those in --data.")
    validation_size: float = argument(0.1, "Training rows held out where nothing else is: a share or a number.")


Scheme = Literal["auto", "bio", "io", "bioes", "none"]

# What `--plan` proposes, and a training without a plan takes where the user gave nothing (None).
UNLESS_PLANNED: dict[str, Any] = {
    "freeze": "none",
    "seeds": 1,
    "patience": 3,
    "per_device_train_batch_size": 32,
    "learning_rate": 1e-4,
    "num_train_epochs": 3.0,
}


@dataclass
class FinetuneArguments:
    model: str = argument("runs/minibert", "What to start from: a MiniBERT or what `convert` takes; folder or name.")
    freeze: str | None = argument(None, "none (default), encoder, or a number: embeddings and that many lowest layers.")
    lora: int | None = argument(None, "Train low-rank updates of this rank instead of the encoder's own weights.")
    layerwise_lr_decay: float = argument(1.0, "Each layer's learning rate as a share of that of the layer above it.")
    seeds: int | None = argument(None, "Seeds to train with, from --seed on; the best model is kept (default: 1).")
    patience: int | None = argument(None, "Evaluations without progress before it stops; 0: never (default: 3).")
    plan: bool = argument(
        False,
        "Train nothing, write a recipe: what is given, the rest proposed with reasons. Without a plan: "
        + ", ".join(f"--{name} {value}" for name, value in UNLESS_PLANNED.items())
        + ".",
    )
    compare: bool = argument(False, "Train Transformers' own model beside it, and time both.")
    compare_rounds: int = argument(5, "Rounds in which the training speed of both models is measured.")
    compare_batches: int = argument(10, "Batches a round.")


@dataclass
class EvaluateArguments:
    model: str = argument("runs/finetune", "The fine-tuned model: a folder or a Hub name.")


@dataclass
class ClassifyArguments(TaskArguments):
    """A classifier of texts or pairs of texts: one class, several labels or a value."""

    task: ClassVar[str] = "classification:Classify"
    text_column: str | None = argument(None, "The column of the text (or of the first of two); guessed by its name.")
    pair_column: str | None = argument(None, "The column of the second text; guessed by its name where there is one.")
    label_column: str | None = argument(None, "The column of the label; guessed by its name.")
    labels: list[str] = argument([], "Names of the labels; a label that is a number counts them from 0.")
    problem_type: Literal["single_label_classification", "multi_label_classification", "regression"] | None = argument(
        None, "By default lists are several labels, numbers with a fraction are values, the rest are classes."
    )


@dataclass
class NliArguments(ClassifyArguments):
    """A model that tells whether a premise entails a hypothesis."""

    task: ClassVar[str] = "classification:Nli"


@dataclass
class ChooseArguments(TaskArguments):
    """A model that chooses one of several continuations or answers."""

    task: ClassVar[str] = "choice:Choose"
    text_column: str | None = argument(None, "The column of the text before the choices; guessed by its name.")
    prefix_column: str | None = argument(None, "A column that every choice begins with (SWAG's sent2; guessed).")
    choice_columns: list[str] = argument([], "A column of lists of choices, or a column for each choice; guessed.")
    label_column: str | None = argument(None, "The right choice: its number from 0, letter (A, B, …) or text; guessed.")


@dataclass
class TagArguments(TaskArguments):
    """A tagger of words: entities, parts of speech."""

    task: ClassVar[str] = "tagging:Tag"
    max_length: int | None = argument(
        None, "Longest part of a sentence, in tokens: longer ones are read in parts; by default the model's."
    )
    tokens_column: str | None = argument(None, "The column of the words, a list; guessed by its name.")
    tags_column: str | None = argument(None, "The column of their tags, a list; guessed by its name.")
    tag_names: list[str] = argument([], "Names of the tags where these are numbers that the data gives no names.")
    scheme: Scheme = argument("auto", "The scheme that the model learns; none: classes of words; auto: the data's.")
    data_scheme: Scheme = argument("auto", "The scheme of the data; auto: told from the tags.")
    repair_tags: bool = argument(False, "Read tags that break their scheme as seqeval does, no error.")
    align: Literal["first", "all"] = argument("first", "In training, which of a word's subwords carry its tag.")
    subwords: Literal["first", "mean"] = argument("first", "Decode a word from its first subword or the mean of all.")
    decoding: Literal["viterbi", "greedy"] = argument(
        "viterbi", "viterbi: the likeliest tags that keep the scheme; greedy: each word's, repaired as seqeval does."
    )
    stride: int = argument(32, "Tokens that neighbouring parts of a sentence share that is longer than --max_length.")


@dataclass
class AnswerArguments(TaskArguments):
    """A model that answers questions with a part of a text."""

    task: ClassVar[str] = "answering:AnswerQuestions"
    max_length: int | None = argument(
        None, "Longest input, in tokens; by default what a model of this task was trained with, else 384 at most."
    )
    stride: int | None = argument(None, "Tokens that parts of a context share; by default a third of --max_length.")
    max_question_length: int = argument(64, "Longest question, in tokens; what is longer is cut.")
    max_answer_length: int = argument(30, "Longest answer, in tokens.")
    null_threshold: float | None = argument(
        None, "What 'no answer' must beat the best answer by; by default 0 if training had such questions, else never."
    )
    question_column: str | None = argument(None, "The column of the question; guessed by its name.")
    context_column: str | None = argument(None, "The column of the context; guessed by its name.")
    answers_column: str | None = argument(None, "The column of {text: […], answer_start: […]}, as in SQuAD; guessed.")


FINETUNE_DEFAULTS: dict[str, Any] = TRAINING_DEFAULTS | {
    "output_dir": "runs/finetune",
    "seed": 0,
    **dict.fromkeys(("per_device_train_batch_size", "learning_rate", "num_train_epochs")),  # see UNLESS_PLANNED
    "per_device_eval_batch_size": 64,
    "warmup_steps": 0.06,
    "weight_decay": 0.01,
    "logging_steps": 50,
    "save_only_model": True,  # a fine-tuning is short: repeating it costs less than the optimizer's state on disk
    "load_best_model_at_end": True,
    "metric_for_best_model": "auto",  # the task's
}
EVALUATE_DEFAULTS = {"output_dir": "runs/evaluate", "per_device_eval_batch_size": 64, "report_to": "none", "bf16": None}
