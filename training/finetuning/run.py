"""`minibert finetune TASK` and `minibert evaluate TASK`: rows → model inputs → `Trainer` → metrics and a saved model.
What differs between tasks is in the classes of `tasks/`."""

import copy
import dataclasses
import importlib
import inspect
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict
from transformers import TrainerState

from ..common.checkpoints import best_by, checkpoint_to_resume, remove_checkpoints, rows_checksum
from ..common.files import check_folder, lock_output, printable, written_whole
from ..common.loading import random_state_kept, without_bars
from ..common.precision import check_training, resolve_precision, without_autocast
from ..common.printing import warn
from ..common.training_result import TrainingResult
from ..hub.card import (
    CardFacts,
    Result,
    describe_data,
    facts_from_trainer,
    headlines,
    published_name,
    save_card,
)
from ..hub.push import check_push, push_output
from .config import EvaluationConfig, FinetuningConfig
from .data import VALIDATION_SIZE, Source, load_splits
from .models import check_head, load_tokenizer, read_config, trained_for
from .plan import write_plan
from .results import FILES, Results, baseline
from .survey import survey, warnings
from .tasks import REMOVED_OPTIONS, task_class
from .tasks.base import Scores, Task, drop_unlabelled_test
from .trainer import Run, score, train

LOG = "trainer_state.json"


@without_bars()
def finetune(
    task: str,
    model: str | os.PathLike = "runs/minibert",
    data: str | os.PathLike | Dataset | None = None,
    train: str | list[str] | Dataset | None = None,
    validation: str | list[str] | Dataset | None = None,
    test: str | list[str] | Dataset | None = None,
    columns: list[str] | None = None,
    validation_size: float = VALIDATION_SIZE,
    plan: bool = False,
    args: FinetuningConfig | None = None,
    **options: Any,
) -> TrainingResult:
    """Train a model for a task, measure it, and save it with its card, its metrics and a picture.

    Bad input is refused (a ValueError) before any training, and without a change to the output folder.

    Args:
        task: "classify", "nli", "choose", "tag" or "answer"; "embed" and "rerank" call `finetune_embed` and
            `finetune_rerank` in `training.embeddings.train` with the other arguments.
        model: The model to start from, a folder or a Hub name: a MiniBERT, or a model that `convert` takes.
        data: A folder with train, validation and test (jsonl, csv, parquet, …), a training file, or a Hub data set.
        train: Files to train on, instead of those in data.
        validation: Files to validate on, instead of those in data.
        test: Files to test on, instead of those in data.
        columns: Names of the columns of csv and tsv files without a header row.
        validation_size: Training rows to hold out if there are no validation rows: a share below 1, or a number.
        plan: Train nothing; look at the data and write a recipe with reasons. Options that are given are kept.
        args: The settings of the training; in Python, its fields can be given as keywords instead.
        options: Options of the task (see its class in `training.finetuning.tasks`), and fields of `FinetuningConfig`.

    Returns:
        The saved model with its tokenizer and its report; with `plan`, the recipe.
    """
    if task in ("embed", "rerank"):  # by sentence-transformers
        given = {
            "train": train,
            "validation": validation,
            "test": test,
            "args": args,
            "plan": plan or None,
            **options,
        }
        given |= {"validation_size": validation_size} if validation_size != VALIDATION_SIZE else {}
        function = getattr(
            importlib.import_module("minibert.training.embeddings.train"), f"finetune_{task}"
        )
        return function(
            data,
            model=str(model),
            **{name: value for name, value in given.items() if value is not None},
        )
    cls, task_options, args = resolve_options(task, args, options, FinetuningConfig)
    output = Path(args.output_dir)
    sources = {
        "data": data,
        "train": train,
        "validation": validation,
        "test": test,
        "columns": columns,
    }
    with lock_output(args):
        checkpoint = None if plan else checkpoint_to_resume(args)
        if args.push_to_hub and not plan:
            check_push(args)
        task, splits = read_task(cls, task_options, model, sources, args, validation_size)
        if plan:
            given = {
                "model": str(model),
                **{name: source for name, source in sources.items() if source is not None},
            }
            given |= (
                {"validation_size": validation_size} if validation_size != VALIDATION_SIZE else {}
            )
            return TrainingResult(
                None, task.tokenizer, write_plan(task, splits, args, given | task_options), output
            )
        run = make_run(task, splits, task_options, model, sources, args)
        trained, report = _train_and_save(run, output, checkpoint)
    return TrainingResult(
        without_autocast(trained) if args.should_save else None, run.task.tokenizer, report, output
    )


@without_bars()
def evaluate(
    task: str,
    model: str | os.PathLike = "runs/finetune",
    data: str | os.PathLike | Dataset | None = None,
    validation: str | list[str] | Dataset | None = None,
    test: str | list[str] | Dataset | None = None,
    columns: list[str] | None = None,
    args: EvaluationConfig | None = None,
    **options: Any,
) -> dict[str, Scores]:
    """Measure a fine-tuned model on every split except the training split. Bad input is refused before any work.

    Args:
        task: "classify", "nli", "choose", "tag" or "answer"; "embed" and "rerank" call `evaluate_embed` and
            `evaluate_rerank` in `training.embeddings.evaluate` with the other arguments.
        model: The fine-tuned model: a folder or a Hub name.
        data: A folder with validation and test (jsonl, csv, parquet, …), or a Hub data set. A simple baseline is made
            from its training rows, or else from the measured rows, and shown beside the model.
        validation: Files to validate on, instead of those in data.
        test: Files to test on, instead of those in data.
        columns: Names of the columns of csv and tsv files without a header row.
        args: The settings of the evaluation; in Python, its fields can be given as keywords instead.
        options: Options of the task (see its class in `training.finetuning.tasks`), and fields of `EvaluationConfig`.

    Returns:
        The metrics of each split, by name; None for a metric that is not defined for these rows.
    """
    if task in ("embed", "rerank"):
        given = options | ({} if model == "runs/finetune" else {"model": str(model)})
        function = getattr(
            importlib.import_module("minibert.training.embeddings.evaluate"), f"evaluate_{task}"
        )
        return function(data, **given)
    cls, task_options, args = resolve_options(task, args, options, EvaluationConfig)
    output = Path(args.output_dir)
    check_folder(output)
    if (output / "config.json").exists():
        raise ValueError(
            f"output_dir: {str(output)!r} holds a model, whose metrics would be lost; give another folder"
        )
    sources = {"data": data, "validation": validation, "test": test, "columns": columns}
    with lock_output(args), random_state_kept():
        task, splits = read_task(cls, task_options, model, sources, args, validation_size=None)
        run = make_run(task, splits, task_options, model, sources, args, trains=False)
        predictions, scores = score(run, run.initial_model())
        if args.should_save:  # one of several processes
            results = Results(run.task, predictions, scores, run.baseline)
            print(f"\n{printable(model)}, {run.task.name}\n{results.describe()}\n")
            results.save({"task": run.task.name, "model": str(model)} | scores, output)
            print(f"Saved to {output}: {FILES}")
            warn(results.warning)
    return scores


def resolve_options(
    task: str,
    args: FinetuningConfig | None,
    options: Mapping[str, Any],
    config: type[FinetuningConfig],
) -> tuple[type[Task], dict[str, Any], FinetuningConfig]:
    """Split the options: the task's class, its options, and the settings of the training."""
    cls = task_class(task)
    own = {
        name: each.default
        for name, each in inspect.signature(cls).parameters.items()
        if name != "tokenizer"
    }
    fields = (
        {field.name for field in dataclasses.fields(config) if field.init}
        if args is None
        else set()
    )
    for name in options.keys() & REMOVED_OPTIONS.keys():
        raise ValueError(REMOVED_OPTIONS[name])
    if unknown := options.keys() - own.keys() - fields:
        use = f"use one of {', '.join(sorted(own))}" + "; give fields of the config in args" * (
            args is not None
        )
        raise ValueError(f"unknown option {min(unknown)!r} of {task}; {use}")
    settings = (
        config(**{name: options[name] for name in fields & options.keys()})
        if args is None
        else args
    )
    settings = dataclasses.replace(settings, output_dir=str(settings.output_dir))
    given = {
        name: value
        for name, value in options.items()
        if name in own and value not in (None, [], own[name])
    }
    return cls, given, settings


def read_task(
    cls: type[Task],
    options: Mapping[str, Any],
    model: str | os.PathLike,
    sources: Mapping[str, Source],
    args: FinetuningConfig,
    validation_size: float | None = VALIDATION_SIZE,
) -> tuple[Task, DatasetDict]:
    """Make the task and read its splits, with all rows checked. `validation_size=None`: the model is measured only."""
    check_training(args)
    model, trains = str(model), validation_size is not None
    config = read_config(model)
    has_head = check_head(model, config, cls, needed=not trains)
    if args.freeze not in ("none", "encoder", *map(str, range(1, config.num_hidden_layers + 1))):
        use = f"none, encoder or a number up to {config.num_hidden_layers}"
        raise ValueError(f"freeze must be {use}, got {args.freeze!r}")
    task = cls(load_tokenizer(model, config, options.get("max_length")), **options)
    splits = load_splits(task, **sources, validation_size=validation_size, seed=args.seed)
    drop_unlabelled_test(task, splits)
    train = None if trains else splits.pop("train", None)
    if trains and "train" not in splits:
        raise ValueError(
            "train: there is no training split; use --train FILE, or a folder that has one"
        )
    if not splits:
        raise ValueError(
            "data: no validation or test split is given; use --test FILE, or a folder that has one"
        )
    splits = task.read(splits, config if has_head else None)
    if has_head and task.labels and len(task.labels) != config.num_labels:
        there, here = (
            ", ".join(map(str, names)) for names in (config.id2label.values(), task.labels)
        )
        what = f"{config.num_labels} labels ({there}), not for {len(task.labels)} ({here}); give all of them"
        raise ValueError(
            f"model: {model!r} was fine-tuned for {what} in its order, or start from another model"
        )
    if train is not None:  # for the baseline; left out if the rows do not fit the model
        with suppress(ValueError):
            splits["train"] = copy.copy(task).read(DatasetDict(train=train), config)["train"]
    return task, splits


def make_run(
    task: Task,
    splits: DatasetDict,
    options: Mapping[str, Any],
    model: str | os.PathLike,
    sources: Mapping[str, Source],
    args: FinetuningConfig,
    trains: bool = True,
) -> Run:
    """Encode all rows, print what they are and warnings about them, and settle the metric and the precision."""
    simple = baseline(task, splits)
    splits = (
        splits
        if trains
        else DatasetDict({name: split for name, split in splits.items() if name != "train"})
    )
    sizes = ", ".join(f"{len(split):,} {name}" for name, split in splits.items())
    columns = f"columns {printable(', '.join(task.text_columns))} → {printable(task.label_column)}"
    print(
        f"{task.name}: {columns}; rows: {sizes}; inputs of {task.tokenizer.model_max_length:,} tokens at most"
    )
    encoded = {name: task.encode(split) for name, split in splits.items()}
    for line in warnings(
        task, {name: survey(task, splits[name], rows) for name, rows in encoded.items()}
    ):
        warn(line)
    if trains:
        _choose_metric(task, splits["validation"], encoded["train"], args)
    settings = {"task": task.name, **options} | {
        "text": {name: rows_checksum(rows) for name, rows in encoded.items()}
    }
    settings |= {
        "model": str(model),
        "freeze": args.freeze,
        "lora": args.lora,
        "labels": list(task.labels),
    }
    files = {name: describe(source) for name, source in sources.items() if source is not None}
    settings, has_head = (
        json.loads(json.dumps(settings)),
        trained_for(read_config(str(model))) is not None,
    )
    return Run(
        task,
        splits,
        encoded,
        str(model),
        resolve_precision(args),
        settings,
        files,
        simple,
        has_head,
    )


def _choose_metric(task: Task, validation: Dataset, train: Dataset, args: FinetuningConfig) -> None:
    """Settle the metric of the best model; refuse label smoothing where the labels cannot have it."""
    defined = task.metric_names(validation)
    if args.metric_for_best_model == "auto" and task.metric_for_best_model not in defined:
        why = f"{task.metric_for_best_model} is not defined for the validation rows"
        raise ValueError(
            f"metric_for_best_model: {why}; use one of {', '.join(['loss', *defined])}, or other rows"
        )
    for name, value in best_by(args, task.metric_for_best_model, ["loss", *defined]).items():
        setattr(args, name, value)
    labels = train.features.get("labels")
    labels = getattr(labels, "feature", labels)  # of a list
    has_classes = labels is not None and labels.dtype.startswith("int")
    if args.label_smoothing_factor and (task.label_weights or not has_classes):
        raise ValueError(
            "label_smoothing_factor: it needs classes, and no class_weights; leave it out"
        )


def describe(source: Source) -> str:
    """Describe the source of rows for the card."""
    if isinstance(source, (str, os.PathLike)):
        return describe_data(str(source))
    return (
        describe_data(", ".join(map(str, source)))
        if isinstance(source, (list, tuple))
        else "a data set in memory"
    )


def _train_and_save(run: Run, output: Path, checkpoint: str | None) -> tuple[Any, dict[str, Any]]:
    trained = train(run, run.initial_model(), checkpoint)
    args, model = run.args, trained.model
    precision = "bf16" if args.bf16 else "fp16" if args.fp16 else "fp32"
    report = {
        "task": run.task.name,
        "model": run.model,
        "settings": run.settings,
        "precision": precision,
    }
    report |= {"seed": args.seed, **trained.report}
    results = Results(run.task, trained.predictions, trained.report, run.baseline)
    length = run.task.tokenizer.model_max_length
    if (
        run.task.name != "answer"
    ):  # which keeps its windows; other tasks may read more than they were trained on
        run.task.tokenizer.model_max_length = load_tokenizer(
            run.model, read_config(run.model), None
        ).model_max_length
    if args.should_save:  # one of several processes
        # calls have set truncation and padding, which would be saved
        backend = run.task.tokenizer.backend_tokenizer
        backend.no_truncation()
        backend.no_padding()
        with written_whole(output) as folder:
            model.save_pretrained(folder)
            run.task.tokenizer.save_pretrained(folder)
        trained.state.save_to_json(str(output / LOG))
        save_card(output, _card(run, report, results, trained.state, length), args.hub_model_id)
        shares = f"{report['trained_parameters']:,} of {report['parameters']:,} parameters"
        steps = f"{report['steps']:,} steps ({report['epochs']:.2f} epochs)"
        print(f"\n{shares} trained for {steps}, {precision}; kept: step {report['best_step']:,}")
        print(f"\n{results.describe()}\n")
        results.save(report, output)
        reads = run.task.tokenizer.model_max_length
        longer = f" (it reads {reads:,} tokens, also if trained on {length:,})" * (reads > length)
        print(f"Saved to {output}: the model{longer}, the tokenizer, README.md (the card), {FILES}")
        warn(results.warning)
        remove_checkpoints(output)  # last: until now, they are the only copy of the model
        if args.push_to_hub:
            push_output(args)
    return model, report


def _card(
    run: Run, report: dict[str, Any], results: Results, state: TrainerState, length: int
) -> CardFacts:
    files = run.files
    whole = ", ".join(files[name] for name in ("data", "train") if name in files)
    facts = facts_from_trainer(vars(state), run.args, whole)
    facts.training = {"task": run.task.name, **facts.training}
    facts.training["steps"] += f", step {report['best_step']:,} kept"
    if report["training_seconds"] is None:
        del facts.training["time"]
    facts.results = headlines([
        Result(
            metric, value, files.get(split) or files.get("data") or files["train"], split,
            run.baseline[split].get(metric),
        )
        for split, scores in results.scores.items()
        for metric, value in scores.items()
        if value is not None
    ])  # fmt: skip
    facts.baseline, facts.warning = run.task.baseline, results.warning
    facts.base_model, facts.max_length = published_name(run.model), length
    return facts
