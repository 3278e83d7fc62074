"""`minibert finetune TASK` and `minibert evaluate TASK`: scripts over `FinetuningTrainer`."""

import dataclasses
import importlib
import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from datasets import DatasetDict

from ...keywords import UnknownOptionError, close_matches, unknown_option
from ..common.config_fields import checked_options, fields_of, make_config
from ..common.files import check_folder, lock_output, printable
from ..common.precision import without_autocast
from ..common.printing import print_next_step, warn, without_bars
from ..common.random_state import random_state_kept
from ..common.training_result import TrainingResult
from ..data.tables import Rows, as_dataset
from ..hub.push import check_push, push_output
from ..loop.checkpoints import checkpoint_to_resume
from .config import EvaluationConfig, FinetuningConfig
from .models import load_tokenizer, read_config
from .plan import write_plan
from .results import FILES, Results
from .saving import save_finetuned
from .splits import VALIDATION_SIZE, FilesOrRows, load_splits
from .tasks import REMOVED_OPTIONS, TASKS, task_class
from .tasks.base import Scores, Task
from .trainer import FinetuningTrainer, check_start, read_for_task


@checked_options(FinetuningConfig, has_task_options=True)
@without_bars()
def finetune(
    task: str,
    model: str | os.PathLike = "runs/minibert",
    data: str | os.PathLike | Rows | DatasetDict | None = None,
    train: str | list[str] | Rows | None = None,
    validation: str | list[str] | Rows | None = None,
    test: str | list[str] | Rows | None = None,
    columns: list[str] | None = None,
    validation_size: float | None = None,
    plan: bool = False,
    args: FinetuningConfig | None = None,
    **options: Any,
) -> TrainingResult:
    """Train a model for a task, measure it, and save it with its card, its metrics and a picture.

    Bad input is refused (a ValueError) before any training, and without a change to the output
    folder.

    Args:
        task: "classify", "nli", "choose", "tag" or "answer"; "embed" and "rerank" call
            `finetune_embed` and `finetune_rerank` in `training.embeddings.train` with the other
            arguments.
        model: The model to start from, a folder or a Hub name: a MiniBERT, or a model that
            `convert` takes.
        data: A folder with train, validation and test (jsonl, csv, parquet, …), a training file, or
            a Hub data set. In Python, all four can be rows: a `Dataset`, a DataFrame or
            dictionaries.
        train: Files to train on, instead of those in data.
        validation: Files to validate on, instead of those in data.
        test: Files to test on, instead of those in data.
        columns: Names of the columns of csv and tsv files without a header row.
        validation_size: Training rows to hold out if there are no validation rows: a share below 1,
            or a number; by default 0.1 (embed, rerank: 0.05).
        plan: Train nothing; look at the data and write a recipe with reasons. Options that are
            given are kept.
        args: The settings of the training.
        options: Options of the task, which are those of its class (`Classify`, `Tag`, …), and
            fields of `FinetuningConfig`, which replace those of `args`.

    Returns:
        The saved model with its tokenizer and its report; with `plan`, the recipe.
    """
    sources = {
        "data": as_dataset(data),
        "train": as_dataset(train, "train"),
        "validation": as_dataset(validation, "validation"),
        "test": as_dataset(test, "test"),
    }
    if task in ("embed", "rerank"):
        arguments = {
            **sources,
            "model": str(model),
            "columns": columns,
            "validation_size": validation_size,
            "plan": plan or None,
            "args": args,
            **options,
        }
        return call_encoder_function(f"train:finetune_{task}", arguments)
    if validation is not None and validation_size is not None:
        raise ValueError(
            "validation_size: validation rows are given, so that none are held out; leave it out"
        )
    cls, task_options, args = resolve_options(finetune, task, args, options, FinetuningConfig)
    with lock_output(args):
        if plan:
            return make_plan(cls, task_options, model, sources, columns, validation_size, args)
        checkpoint = checkpoint_to_resume(args)
        if args.push_to_hub:
            check_push(args)
        loaded_task = load_task(cls, task_options, model, args, trains=True)
        splits = load_splits(
            loaded_task,
            **sources,
            columns=columns,
            validation_size=VALIDATION_SIZE if validation_size is None else validation_size,
            seed=args.seed,
        )
        trainer = FinetuningTrainer(
            loaded_task,
            model,
            args,
            train_dataset=splits.get("train"),
            eval_dataset=splits.get("validation"),
            test_dataset=splits.get("test"),
        )
        trainer.train(resume_from_checkpoint=checkpoint)
        return measure_and_save(trainer, str(model), sources, args)


def measure_and_save(
    trainer: FinetuningTrainer,
    model: str,
    sources: Mapping[str, FilesOrRows],
    args: FinetuningConfig,
) -> TrainingResult:
    """The last steps of `finetune`: measure the trained model, save it, and publish it if asked
    to."""
    output = Path(args.output_dir)
    trainer.measure()
    report = save_finetuned(trainer, model, sources, output)
    if args.should_save and args.push_to_hub:
        push_output(args)
    if args.should_save:
        print_next_step("minibert", "predict", output, "FILE", warning=report["warning"])
    saved_model = without_autocast(trainer.model) if args.should_save else None
    return TrainingResult(saved_model, trainer.task.tokenizer, report, output)


def check_evaluation(task: str, task_options: Mapping[str, Any], output: Path) -> None:
    """Refuse (a ValueError) options of training, and a folder whose metrics would be lost."""
    for name in TASKS[task].training_options:
        if name in task_options:
            raise ValueError(f"{name}: it matters in training only; leave it out")
    check_folder(output)
    if (output / "config.json").exists():
        raise ValueError(
            f"output_dir: {str(output)!r} holds a model, whose metrics would be lost;"
            " give another folder"
        )


@checked_options(EvaluationConfig, has_task_options=True)
@without_bars()
def evaluate(
    task: str,
    model: str | os.PathLike | None = None,
    data: str | os.PathLike | Rows | DatasetDict | None = None,
    validation: str | list[str] | Rows | None = None,
    test: str | list[str] | Rows | None = None,
    columns: list[str] | None = None,
    args: EvaluationConfig | None = None,
    **options: Any,
) -> dict[str, Scores]:
    """Measure a fine-tuned model on every split except the training split. Bad input is refused
    before any work.

    Args:
        task: "classify", "nli", "choose", "tag" or "answer"; "embed" and "rerank" call
            `evaluate_embed` and `evaluate_rerank` in `training.embeddings.evaluate` with the other
            arguments.
        model: The fine-tuned model: a folder or a Hub name; by default runs/finetune (embed:
            runs/embed, rerank: runs/rerank).
        data: A folder with validation and test (jsonl, csv, parquet, …), or a Hub data set. A
            simple baseline is made from its training rows, or else from the measured rows, and
            shown beside the model.
        validation: Files to validate on, instead of those in data.
        test: Files to test on, instead of those in data.
        columns: Names of the columns of csv and tsv files without a header row.
        args: The settings of the evaluation.
        options: Options of the task, which are those of its class (`Classify`, `Tag`, …), and
            fields of `EvaluationConfig`, which replace those of `args`.

    Returns:
        The metrics of each split, by name; None for a metric that is not defined for these rows.
    """
    if task in ("embed", "rerank"):
        arguments = {
            "data": data,
            "model": None if model is None else str(model),
            "validation": validation,
            "test": test,
            "columns": columns,
            "args": args,
            **options,
        }
        return call_encoder_function(f"evaluate:evaluate_{task}", arguments)
    if model is None:
        model = "runs/finetune"
    cls, task_options, args = resolve_options(evaluate, task, args, options, EvaluationConfig)
    output = Path(args.output_dir)
    check_evaluation(task, task_options, output)
    with lock_output(args), random_state_kept():
        loaded_task = load_task(cls, task_options, model, args, trains=False)
        splits = load_splits(
            loaded_task,
            data,
            validation=validation,
            test=test,
            columns=columns,
            validation_size=None,
        )
        trainer = FinetuningTrainer(
            loaded_task,
            model,
            args,
            eval_dataset=splits.get("validation"),
            test_dataset=splits.get("test"),
            baseline_dataset=splits.get("train"),
        )
        scores = trainer.measure()
        if args.should_save:  # one of several processes
            results = Results(
                loaded_task, trainer.predictions, scores, trainer.baseline, trainer.simple_scores
            )
            print(f"\n{printable(model)}, {task}\n{results.describe()}\n")
            results.save({"task": task, "model": str(model), **scores}, output)
            print(f"Saved to {output}: {FILES}")
            warn(results.warning)
            print_next_step("minibert", "predict", model, "FILE", warning=results.warning)
    return scores


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
    given_fields = {}
    for name, value in options.items():
        if name in REMOVED_OPTIONS:
            raise ValueError(REMOVED_OPTIONS[name])
        if name in config_fields:
            given_fields[name] = value
        elif name not in parameters:
            names = [*sorted(parameters), *inspect.signature(function).parameters]
            raise unknown_option(name, f"{function.__name__} {task_name}", names)
    args = make_config(config_class, args, given_fields)
    args = dataclasses.replace(args, output_dir=str(args.output_dir))
    task_options = {}
    for name, value in options.items():
        if name in parameters and value not in (None, [], parameters[name].default):
            task_options[name] = value
    return cls, task_options, args


def load_task(
    cls: type[Task],
    task_options: Mapping[str, Any],
    model: str | os.PathLike,
    args: FinetuningConfig,
    trains: bool,
) -> Task:
    """The task with the tokenizer of a model. What needs no rows to be refused is refused here."""
    check_start(cls, model, args, trains)
    tokenizer = load_tokenizer(str(model), read_config(str(model)), task_options.get("max_length"))
    return cls(tokenizer, **task_options)


def make_plan(
    cls: type[Task],
    task_options: dict[str, Any],
    model: str | os.PathLike,
    sources: Mapping[str, Any],
    columns: list[str] | None,
    validation_size: float | None,
    args: FinetuningConfig,
) -> TrainingResult:
    """`--plan`: look at the rows, and write a recipe."""
    task = load_task(cls, task_options, model, args, trains=True)
    splits = load_splits(
        task,
        **sources,
        columns=columns,
        validation_size=VALIDATION_SIZE if validation_size is None else validation_size,
        seed=args.seed,
    )
    splits = read_for_task(task, splits, model, trains=True)
    cli_options: dict[str, Any] = {"model": str(model)}
    for name, value in (*sources.items(), ("columns", columns)):
        if value is not None:
            cli_options[name] = value
    if validation_size is not None:
        cli_options["validation_size"] = validation_size
    recipe = write_plan(task, splits, args, cli_options | task_options)
    return TrainingResult(None, task.tokenizer, recipe, Path(args.output_dir))


def call_encoder_function(reference: str, arguments: Mapping[str, Any]) -> Any:
    """Call "module:function" of `training.embeddings` with the arguments that are not None. A
    ValueError for one that it does not take."""
    module_name, _, name = reference.partition(":")
    module = importlib.import_module(f"minibert.training.embeddings.{module_name}")
    function = getattr(module, name)
    parameters = inspect.signature(function).parameters
    arguments = {key: value for key, value in arguments.items() if value is not None}
    for key in arguments:
        if key not in parameters:
            advice = close_matches(key, parameters)
            if not advice:
                usable = ", ".join(inspect.signature(inspect.unwrap(function)).parameters)
                advice = f"; it takes {usable}"
            raise UnknownOptionError(f"{key}: {name} does not take it{advice}")
    if "data" not in arguments and parameters["data"].default is inspect.Parameter.empty:
        raise ValueError("data: none given; give a table, or a data set of the Hub")
    return function(**arguments)
