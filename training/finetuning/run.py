"""`minibert finetune TASK` and `minibert evaluate TASK`: rows → model inputs → `Trainer` → metrics and a saved model.

What differs between tasks stands in their `Task`; here is what they have in common.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import statistics
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import datasets
from transformers import TrainingArguments

from ..arguments.finetuning import UNLESS_PLANNED, DataArguments, EvaluateArguments, FinetuneArguments, TaskArguments
from ..arguments.hub import PushArguments
from ..checkpoints import can_resume, check_unused, checkpoint_to_resume, remove_checkpoints
from ..hub.card import CardFacts, Result, describe_data, describe_training, published_name, save_card
from ..hub.push import check_push, push
from ..loading import without_bars
from ..precision import check_launcher
from ..report import format_scores
from ..result import TrainingResult
from .compare import check_comparable, compare
from .data import FILE, ROW, SPLITS, load_splits
from .freezing import check_freezing
from .models import check_head, load_model, load_tokenizer, read_config
from .plan import plan, read_without_bad_rows
from .tasks.base import Task, take_unlabelled
from .trainer import Run, Scores, Trained, check_for_task, predict, resolve_training, score, train

REPORT, PICTURE, LOG, PREDICTIONS = "metrics.json", "predictions.png", "trainer_state.json", "test_predictions.jsonl"
PREDICTION = "prediction"  # the column that is added to test rows without labels
# Fields of TrainingArguments that must stay as they are: for scores of all rows, and for a model that is saved.
_NEEDED = "the metrics of the task need the predictions of all rows"
SCORING = {
    "prediction_loss_only": (False, _NEEDED),
    "batch_eval_metrics": (False, _NEEDED),
    "eval_do_concat_batches": (True, _NEEDED),
    "dataloader_drop_last": (False, "it drops rows of evaluation as well"),
    "label_names": (None, "the task knows them"),
}
_HALF = "evaluation would leave the model that is saved in half precision; with --bf16 true both compute in bf16"
SAVING = {
    "bf16_full_eval": (False, _HALF),
    "fp16_full_eval": (False, _HALF),
    "hub_token": (None, "log in with `hf auth login`, or set HF_TOKEN"),
}
# What the names of those fields begin with that no result depends on: where it goes, what is said and kept meanwhile.
NO_SETTINGS = (
    "output_dir", "log", "disable_tqdm", "report_to", "run_name", "project", "trackio_", "push_to_hub", "hub_", "do_",
    "save_only_model", "save_total_limit", "save_on_each_node", "enable_jit_checkpoint", "resume_from_checkpoint",
    "restore_callback_states", "ignore_data_skip", "dataloader_", "ddp_", "local_rank", "debug", "skip_memory_metrics",
    "include_num_input_tokens_seen",
)  # fmt: skip


@without_bars(of_datasets=True)
def finetune(
    task_arguments: TaskArguments, data: DataArguments, arguments: FinetuneArguments, training: TrainingArguments
) -> TrainingResult:
    """Train a model for a task, measure it and save it to `training.output_dir`.

    Returns:
        the saved model with its report; of a plan, what it proposes as the report, and no model.

    Raises:
        ValueError: bad input; before any training, and without touching what is in the output folder.
    """
    check_launcher()
    output = Path(training.output_dir)
    if arguments.plan:
        bad: list[str] = []
        task, splits, unlabelled = _read(task_arguments, data, arguments, training, bad)
        if unlabelled is not None:
            splits["test"] = task.read_unlabelled(unlabelled)
        return TrainingResult(None, task.tokenizer, plan(task, splits, bad, data, arguments, training), output)
    finished = arguments.compare and (output / REPORT).exists() and (output / "config.json").exists()
    checkpoint = None if finished else _checkpoint(training, _unless_planned(arguments).seeds)
    run = prepare(task_arguments, data, arguments, training)
    if arguments.compare:
        check_comparable(run)
    if finished:
        report = json.loads((output / REPORT).read_text())
        there, here = report["settings"], run.settings
        names = [name for name in sorted({*there, *here}) if there.get(name) != here.get(name)]
        if names:
            different = ", ".join(f"{name}: {there.get(name)} there, {here.get(name)} here" for name in names)
            use = "give another folder, or remove it"
            raise ValueError(f"output_dir: {str(output)!r} holds a model of other settings ({different}); {use}")
        print(f"{output} holds the trained MiniBERT already: it is not trained again")
        model = load_model(str(output), type(run.task), run.task.config_fields())
    else:
        model, report = _train_and_save(run, output, checkpoint)
    if arguments.compare:
        compare(run, report, output)
    return TrainingResult(model if training.should_save else None, run.task.tokenizer, report, output)


@without_bars(of_datasets=True)
def evaluate(
    task_arguments: TaskArguments, data: DataArguments, arguments: EvaluateArguments, training: TrainingArguments
) -> dict[str, Scores]:
    """Measure a fine-tuned model on every split that is given, except for the training split.

    Returns:
        the metrics of each split by name.

    Raises:
        ValueError: bad input, before any work.
    """
    run = prepare(task_arguments, data, arguments, training)
    task, output, model = run.task, Path(training.output_dir), run.initial_model()
    scored = score(run, model)
    scores = {name: scores for name, (_, scores) in scored.items()}
    predicted = predict(run, model)
    if training.should_save:  # of several processes one
        print(f"\n{arguments.model}, {task.name}\n{format_scores(scores)}")
        output.mkdir(parents=True, exist_ok=True)
        name, (prediction, _) = list(scored.items())[-1]
        task.draw(prediction, run.splits[name], output / PICTURE)
        report = {"task": task.name, "model": arguments.model} | scores
        (output / REPORT).write_text(json.dumps(report, indent=2) + "\n")
        print(f"Saved to {output}: {REPORT} and {PICTURE} (of {name})")
        _save_predictions(run, predicted, output)
    return scores


def prepare(
    task_arguments: TaskArguments,
    data: DataArguments,
    arguments: FinetuneArguments | EvaluateArguments,
    training: TrainingArguments,
) -> Run:
    """Check the arguments and every row (a ValueError where they are bad), and encode the rows."""
    trains = isinstance(arguments, FinetuneArguments)
    if trains and training.push_to_hub:
        check_push(_repository(training))
    task, splits, unlabelled = _read(task_arguments, data, arguments, training)
    if trains:
        arguments, training = _unless_planned(arguments), _unless_planned(training)
    sizes = ", ".join(f"{len(split):,} {name}" for name, split in splits.items())
    print(f"{task.name}: rows: {sizes}; inputs of {task.tokenizer.model_max_length:,} tokens at most")
    encoded = {name: task.encode(split, training=name == "train") for name, split in splits.items()}
    run = Run(task, splits, encoded, arguments, training, {}, unlabelled)
    if trains:
        check_for_task(run)
    run.training = resolve_training(training, task)
    run.settings = _settings(task_arguments, data, arguments, run.training)
    return run


# --- training and what it leaves behind ---


def _train_and_save(run: Run, output: Path, checkpoint: str | None) -> tuple[Any, dict[str, Any]]:
    training, metric = run.training, run.training.metric_for_best_model.removeprefix("eval_")
    folders = _folders(training, run.arguments.seeds)
    reports: dict[int, dict[str, Any]] = {}
    best_rank = None
    for seed, folder in folders.items():
        seeded = run.replace(seed=seed, output_dir=str(folder), push_to_hub=False)
        trained = train(seeded, seeded.initial_model(), checkpoint)
        reports[seed] = trained.report
        # On the validation rows, which is what may be chosen by.
        rank = trained.report["validation"][metric] * (1 if training.greater_is_better else -1)
        if best_rank is None or rank > best_rank:
            best_rank, best_seed, best = rank, seed, trained
        if len(folders) > 1:
            print(f"\nseed {seed}\n{format_scores(_scores_of(trained.report))}")
    report = {
        "task": run.task.name,
        "model": run.arguments.model,
        "settings": run.settings,
        "precision": describe_training(training)["precision"],
        "seed": best_seed,
        **best.report,
    }
    if len(folders) > 1:
        report |= {"seeds": reports, "mean_and_deviation": {}}
        for split, scores in _scores_of(report).items():
            values = {metric: [each[split][metric] for each in reports.values()] for metric in scores}
            spread = {metric: (statistics.mean(found), statistics.stdev(found)) for metric, found in values.items()}
            report["mean_and_deviation"][split] = spread
    predicted = predict(run, best.model)
    if training.should_save:  # of several processes one
        _save(run, report, best, predicted, output)
        for folder in folders.values():  # only now, since nothing else holds their models
            remove_checkpoints(folder)
            if folder != output:
                with suppress(OSError):  # logs lie there
                    folder.rmdir()
        if training.push_to_hub:
            name, private = _repository(training), bool(training.hub_private_repo)
            push(PushArguments([str(output), name], revision=training.hub_revision, private=private))
    return best.model, report


def _save(run: Run, report: dict[str, Any], best: Trained, predicted: list[Any] | None, output: Path) -> None:
    """Save what a training came to, and tell it; `predicted` is for `run.unlabelled`."""
    task, (name, prediction) = run.task, list(best.predictions.items())[-1]
    best.model.save_pretrained(output)
    task.tokenizer.save_pretrained(output)
    best.state.save_to_json(str(output / LOG))
    _save_predictions(run, predicted, output)
    task.draw(prediction, run.splits[name], output / PICTURE)
    save_card(output, _card(run, report))
    # Last, since it says that all is there.
    (output / REPORT).write_text(json.dumps(report, indent=2) + "\n")
    print(
        f"\n{report['trained_parameters']:,} of {report['parameters']:,} parameters trained for {report['steps']:,} "
        f"steps ({report['epochs']:.2f} epochs) in {report['training_seconds']:.0f} s, {report['precision']}; "
        f"kept: step {report['best_step']:,} of seed {report['seed']}"
    )
    print(f"\n{task.name}\n{format_scores(_scores_of(report))}")
    if "seeds" in report:
        spread = {
            split: {metric: f"{mean:.4f} ± {deviation:.4f}" for metric, (mean, deviation) in metrics.items()}
            for split, metrics in report["mean_and_deviation"].items()
        }
        print(f"\nover {len(report['seeds'])} seeds\n{format_scores(spread)}")
    print(f"\nThe saved model on its {name} rows:", *task.show(output, prediction, run.splits[name]), sep="\n")
    print(f"Saved to {output}: the model, the tokenizer, README.md (the card), {REPORT} and {PICTURE} (of {name})")


def _save_predictions(run: Run, predicted: list[Any] | None, output: Path) -> None:
    """Write the test rows without labels as they were given, each with what was predicted for it."""
    if predicted is None:
        return
    with (output / PREDICTIONS).open("w", encoding="utf-8") as file:
        for row, prediction in zip(run.unlabelled.remove_columns([FILE, ROW]), predicted):
            # what JSON does not know (dates, pictures) as Python shows it
            file.write(json.dumps({**row, PREDICTION: prediction}, ensure_ascii=False, default=str) + "\n")
    print(f"What is predicted for the {len(predicted):,} test rows without labels: {output / PREDICTIONS}")


def _card(run: Run, report: dict[str, Any]) -> CardFacts:
    """What the model card says of a fine-tuning."""
    data = describe_data(", ".join(filter(None, [run.settings["data"], *run.settings["train"]])))
    told = {
        "task": run.task.name,
        "steps": f"{report['steps']:,} ({report['epochs']:.2f} epochs), step {report['best_step']:,} kept",
        "time": f"{report['training_seconds'] / 60:.1f} minutes",
        **describe_training(run.training),
    }
    scores = [(split, *score) for split, scores in _scores_of(report).items() for score in scores.items()]
    return CardFacts(
        data=data,
        training=told,
        results=[Result(metric, value, data, split) for split, metric, value in scores],
        base_model=published_name(run.arguments.model),
        max_length=run.task.tokenizer.model_max_length,
    )


def _scores_of(report: Mapping[str, Any]) -> dict[str, Scores]:
    return {name: report[name] for name in ("validation", "test") if name in report}


# --- arguments and rows ---


def _read(
    task_arguments: TaskArguments,
    data: DataArguments,
    arguments: FinetuneArguments | EvaluateArguments,
    training: TrainingArguments,
    bad: list[str] | None = None,
) -> tuple[Task, datasets.DatasetDict, datasets.Dataset | None]:
    """The task, its rows, and the test rows as they were given if they have no labels; all of it checked. `bad` is
    where it is told what is wrong with rows, which are then left out; without it they are refused."""
    trains = isinstance(arguments, FinetuneArguments)
    for field, (value, reason) in (SCORING | SAVING if trains else SCORING).items():
        if getattr(training, field) != value:
            instead = "leave it out" if value is None else f"use {str(value).lower()}"
            raise ValueError(f"{field}: {instead}; {reason}")
    if data.train and not trains:
        raise ValueError("train: nothing is trained here; use --validation, --test, or a folder that has them")
    module, _, name = task_arguments.task.partition(":")
    task_class = getattr(importlib.import_module(f".tasks.{module}", __package__), name)
    config = read_config(arguments.model)
    has_head = check_head(arguments.model, config, task_class, needed=not trains)
    if trains:
        _check_arguments(arguments, training, config.num_hidden_layers)
    task = task_class(task_arguments, load_tokenizer(arguments.model, config, task_arguments.max_length))
    splits = load_splits(data, training.seed, [name for name in SPLITS if trains or name != "train"], task)
    if trains and "train" not in splits:
        raise ValueError("train: there is no training split; use --train FILE, or a folder that has one")
    if not splits:
        raise ValueError("data: no validation or test split is given; use --test FILE, or a folder that has one")
    unlabelled = take_unlabelled(task, splits)
    known = config if has_head else None
    splits = task.read(splits, known) if bad is None else read_without_bad_rows(task, splits, known, bad)
    if unlabelled is not None:
        task.read_unlabelled(unlabelled)  # what is wrong with them is told before any training
    labels = task.config_fields().get("id2label")
    if trains and has_head and labels is not None and len(labels) != config.num_labels:
        there, here = (", ".join(map(str, names.values())) for names in (config.id2label, labels))
        raise ValueError(
            f"model: {arguments.model!r} was fine-tuned for {config.num_labels} labels ({there}), the data have "
            f"{len(labels)} ({here}); start from a model without such a head"
        )
    return task, splits, unlabelled


def _check_arguments(arguments: FinetuneArguments, training: TrainingArguments, layers: int) -> None:
    """Refuse what no training can be done with, or what would be of no effect."""
    check_freezing(arguments, layers)
    for name, least in (("seeds", 1), ("patience", 0), ("compare_rounds", 1), ("compare_batches", 1)):
        value = getattr(arguments, name)
        if value is not None and value < least:
            raise ValueError(f"{name}: {value} is too few; use {least} or more")
        if name.startswith("compare_") and not arguments.compare and value != getattr(FinetuneArguments, name):
            raise ValueError(f"{name}: {value} has no effect without --compare true")
    if arguments.patience and (training.eval_strategy == "no" or not training.load_best_model_at_end):
        needed = "evaluations in training and --load_best_model_at_end true"
        raise ValueError(f"patience: {arguments.patience} has no effect without {needed}; use 0")


def _unless_planned(instance: Any) -> Any:
    """The arguments with what the user left undecided."""
    undecided = {name: value for name, value in UNLESS_PLANNED.items() if getattr(instance, name, value) is None}
    return dataclasses.replace(instance, **undecided)


def _folders(training: TrainingArguments, seeds: int) -> dict[int, Path]:
    """The seeds, and where their checkpoints lie while they are trained."""
    output, first = Path(training.output_dir), training.seed
    return {seed: output / f"seed-{seed}" if seeds > 1 else output for seed in range(first, first + seeds)}


def _checkpoint(training: TrainingArguments, seeds: int) -> str | None:
    """The checkpoint to go on from; a ValueError for an output folder in use, or one that nothing can go on from."""
    checkpoint = checkpoint_to_resume(training)
    if checkpoint is None and seeds > 1:
        for folder in _folders(training, seeds).values():
            check_unused(folder, one_of_several=True)
    elif checkpoint is not None and seeds > 1:
        raise ValueError(f"resume_from_checkpoint: {seeds} seeds cannot be resumed; start again in another folder")
    elif checkpoint is not None and not can_resume(checkpoint):
        raise ValueError(
            f"resume_from_checkpoint: {checkpoint!r} holds a model only, to save time and space; start again in another"
            " folder (with --save_only_model false a training can be resumed)"
        )
    return checkpoint


def _repository(training: TrainingArguments) -> str:
    return training.hub_model_id or Path(training.output_dir).name


def _settings(*instances: Any) -> dict[str, Any]:
    """What a result depends on: all arguments, as JSON has them; of Transformers', those that are given a value."""
    *ours, training = instances
    settings = {name: value for instance in ours for name, value in dataclasses.asdict(instance).items()}
    settings = {name: value for name, value in settings.items() if not name.startswith("compare")}
    for name, value in training.to_dict().items():
        if value is not None and not name.startswith(NO_SETTINGS):
            settings[name] = value
    return json.loads(json.dumps(settings))
