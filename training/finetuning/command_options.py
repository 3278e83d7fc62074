"""The options of `finetune` and `evaluate`: those of the task, those of the config, and tasks that
other functions do."""

import dataclasses
import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any

from ...option_checks import UnknownOptionError, close_matches, unknown_option
from ..common.config_fields import fields_of, make_config
from .config import FinetuningConfig
from .start_model import load_tokenizer, read_config
from .tasks import REMOVED_OPTIONS, task_class
from .tasks.base import Task

# Tasks that `training.embeddings` does, with sentence-transformers: the rows of
# `FINETUNE_FUNCTIONS` in its `finetune.py`, and of `EVALUATE_FUNCTIONS` in its `evaluate.py`.
SENTENCE_TASKS = ("embed", "rerank")


def resolve_options(
    function: Callable,
    task_name: str,
    args: FinetuningConfig | None,
    options: Mapping[str, Any],
    config_class: type[FinetuningConfig],
) -> tuple[type[Task], dict[str, Any], FinetuningConfig]:
    """Split the options of `finetune` or `evaluate` (`function`): the task's class, its options
    that are not the defaults, and the settings. An UnknownOptionError for an unknown one."""
    cls = task_class(task_name)
    parameters = dict(inspect.signature(cls).parameters)
    del parameters["tokenizer"]
    config_fields = fields_of(config_class)
    config_options = {}
    for name, value in options.items():
        if name in REMOVED_OPTIONS:
            raise ValueError(REMOVED_OPTIONS[name])
        if name in config_fields:
            config_options[name] = value
        elif name not in parameters:
            names = [*sorted(parameters), *inspect.signature(function).parameters, *config_fields]
            distinct_names = dict.fromkeys(names)
            raise unknown_option(name, f"{function.__name__} {task_name}", distinct_names)
    args = make_config(config_class, args, config_options)
    args = dataclasses.replace(args, output_dir=str(args.output_dir))
    task_options = {}
    for name, value in options.items():
        if name in parameters and value not in (None, [], parameters[name].default):
            task_options[name] = value
    return cls, task_options, args


def make_task(cls: type[Task], model: str | os.PathLike, task_options: Mapping[str, Any]) -> Task:
    """A task with the tokenizer of a saved model. A ValueError if that is no model to start
    from."""
    path = str(model)
    read_config(path)  # its errors say more than those of a missing tokenizer
    return cls(load_tokenizer(path), **task_options)


def call_sentence_function(function: Callable, arguments: Mapping[str, Any]) -> Any:
    """Call a function that does one of `SENTENCE_TASKS`, such as `finetune_embed`, with the
    arguments that are not None. A ValueError for one that it does not take."""
    parameters = inspect.signature(function).parameters
    arguments = {key: value for key, value in arguments.items() if value is not None}
    for key in arguments:
        if key not in parameters:
            advice = close_matches(key, parameters)
            if not advice:
                usable = ", ".join(inspect.signature(inspect.unwrap(function)).parameters)
                advice = f"; it takes {usable}"
            raise UnknownOptionError(f"{key}: {function.__name__} does not take it{advice}")
    if "data" not in arguments and parameters["data"].default is inspect.Parameter.empty:
        raise ValueError("data: none given; give a table, or a data set of the Hub")
    return function(**arguments)
