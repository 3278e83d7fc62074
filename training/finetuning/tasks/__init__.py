"""The tasks of `minibert finetune` and `minibert evaluate`, by name.

The file of a task is imported when its class is wanted: the command line reads the table without
importing torch.
"""

import importlib
from typing import NamedTuple


class TaskEntry(NamedTuple):
    """A row of `TASKS`."""

    purpose: str  # what the model learns, behind "Train a model to"
    reference: str  # "module:class" in this package; the class's parameters are options
    training_options: tuple[str, ...] = ()  # those of them that matter in training only


TASKS = {
    "classify": TaskEntry(
        "classify texts or pairs of texts, by one class, several labels or a value",
        "classification:Classify",
        training_options=("class_weights", "tune_threshold", "regression", "pooling"),
    ),
    "nli": TaskEntry(
        "tell whether a premise entails a hypothesis",
        "nli:Nli",
        training_options=("class_weights", "tune_threshold", "regression", "pooling"),
    ),
    "choose": TaskEntry(
        "choose one of several continuations or answers",
        "choice:Choose",
        training_options=("pooling",),
    ),
    "tag": TaskEntry(
        "tag words: entities, parts of speech",
        "tagging:Tag",
        training_options=("class_weights",),
    ),
    "answer": TaskEntry("answer questions with a part of a text", "answering:AnswerQuestions"),
}

# The settings of `minibert evaluate` that its help lists: the others have no effect.
EVALUATION_FIELDS = ("output_dir", "per_device_eval_batch_size", "bf16")

# Options that earlier versions had, and what stands in their place.
REMOVED_OPTIONS = {
    "few_shot": (
        "few_shot: this option was removed; train by SetFit itself,"
        " as the documentation shows (Fine-tuning, Few labels)"
    )
}


def task_class(name: str) -> type:
    """The class of a task. A ValueError if there is none of this name."""
    if name not in TASKS:
        raise ValueError(f"task: {name!r} is unknown; use one of {', '.join(TASKS)}")
    module_name, class_name = TASKS[name].reference.split(":")
    module = importlib.import_module(f".{module_name}", __name__)
    return getattr(module, class_name)
