"""`minibert finetune TASK` and `minibert evaluate TASK`: rows → model inputs → `Trainer` → metrics and a saved model.

What differs between tasks stands in their `Task`; here is what they have in common.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import datasets
from transformers import EvalPrediction, PreTrainedModel, TrainerState, TrainingArguments

from ..arguments.finetuning import UNLESS_PLANNED, DataArguments, EvaluateArguments, FinetuneArguments, TaskArguments
from ..arguments.hub import PushArguments
from ..checkpoints import can_resume, check_unused, checkpoint_to_resume, remove_checkpoints, settle
from ..hub.card import CardFacts, Result, describe_data, describe_training, published_name, save_card
from ..hub.push import check_push, push
from .compare import check_comparable, compare
from .data import load_splits
from .freezing import check_freezing
from .models import check_head, load_model, load_tokenizer, read_config
from .plan import plan, read_without_bad_rows
from .report import mean_and_deviation, print_table, save_predictions, scores_of
from .tasks.base import Task, take_unlabelled
from .trainer import Run, check_for_task, predict, score, train

REPORT, PICTURE, LOG, PREDICTIONS = "metrics.json", "predictions.png", "trainer_state.json", "test_predictions.jsonl"
# Fields of TrainingArguments that must stay as they are: for scores of all rows, and for a model that is saved.
SCORING = {
    "prediction_loss_only": (False, "the metrics of the task need the predictions"),
    "batch_eval_metrics": (False, "the metrics of the task need the predictions of all rows"),
    "eval_do_concat_batches": (True, "the metrics of the task need the predictions of all rows"),
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


def finetune(
    task_arguments: TaskArguments, data: DataArguments, arguments: FinetuneArguments, training: TrainingArguments
) -> None:
    """Train a model for a task, measure it and save it to `training.output_dir`.

    Raises:
        ValueError: bad input; before any training, and without touching what is in the output folder.
    """
    if arguments.plan:
        return _plan(task_arguments, data, arguments, training)
    output = Path(training.output_dir)
    report = _finished(output) if arguments.compare else None
    checkpoint = None if report else _checkpoint(training, _unless_planned(arguments).seeds)
    run = prepare(task_arguments, data, arguments, training)
    if arguments.compare:
        check_comparable(run)
        if report and report["settings"] != run.settings:
            raise ValueError(
                f"output_dir: {str(output)!r} holds a model of other settings ({_difference(report, run)}); give "
                "another folder, or remove it"
            )
    if report:
        print(f"{output} holds the trained MiniBERT already: it is not trained again")
    else:
        report = _train_and_save(run, output, checkpoint)
    if arguments.compare:
        compare(run, report, output)


def evaluate(
    task_arguments: TaskArguments, data: DataArguments, arguments: EvaluateArguments, training: TrainingArguments
) -> None:
    """Measure a fine-tuned model on every split that is given, except for the training split.

    Raises:
        ValueError: bad input, before any work.
    """
    _check_fixed(training, SCORING)
    if data.train:
        raise ValueError("train: nothing is trained here; legal: --validation, --test, or a folder that has them")
    task_class = find_task(task_arguments)
    config = read_config(arguments.model)
    check_head(arguments.model, config, task_class, needed=True)
    tokenizer = load_tokenizer(arguments.model, config, task_arguments.max_length)
    splits = load_splits(data, names=("validation", "test"))
    if not splits:
        raise ValueError("data: no validation or test split is given; legal: --test FILE, or a folder that has one")
    task = task_class(task_arguments, tokenizer)
    unlabelled = take_unlabelled(task, splits)
    splits = task.read(splits, config)
    training = _settle(training, task)
    encoded = {name: task.encode(split, training=False) for name, split in splits.items()}
    model = load_model(arguments.model, task_class, task.config_fields())
    scored = score(model, training, task, splits, encoded)
    predictions = None if unlabelled is None else predict(model, training, task, unlabelled)
    if not training.should_save:  # of several processes one does
        return
    print_table(f"{arguments.model}, {task.name}", {name: scores for name, (_, scores) in scored.items()})
    output = Path(training.output_dir)
    output.mkdir(parents=True, exist_ok=True)
    name, (prediction, _) = list(scored.items())[-1]
    task.draw(prediction, splits[name], output / PICTURE)
    report = {"task": task.name, "model": arguments.model} | {name: scores for name, (_, scores) in scored.items()}
    (output / REPORT).write_text(json.dumps(report, indent=2) + "\n")
    print(f"Saved to {output}: {REPORT} and {PICTURE} (of {name})")
    if predictions is not None:
        _save_predictions(unlabelled, predictions, output)


def find_task(arguments: TaskArguments) -> type[Task]:
    """The class that does the work for a task's arguments."""
    module, _, name = arguments.task.partition(":")
    return getattr(importlib.import_module(f".tasks.{module}", __package__), name)


def prepare(
    task_arguments: TaskArguments, data: DataArguments, arguments: FinetuneArguments, training: TrainingArguments
) -> Run:
    """Check the arguments and every row, and encode them.

    Raises:
        ValueError: bad input.
    """
    if training.push_to_hub:
        check_push(_repository(training))
    task, splits, unlabelled = _read(task_arguments, data, arguments, training)
    arguments, training = _unless_planned(arguments), _unless_planned(training)
    encoded = {name: task.encode(split, training=name == "train") for name, split in splits.items()}
    check_for_task(training, task, splits, encoded)
    training = _settle(training, task)
    settings = _settings(task_arguments, data, arguments, training)
    return Run(task, splits, encoded, arguments, training, settings, unlabelled)


def _train_and_save(run: Run, output: Path, checkpoint: str | None) -> dict[str, Any]:
    task, training = run.task, run.training
    sizes = ", ".join(f"{len(split):,} {name}" for name, split in run.splits.items())
    print(f"{task.name}: rows: {sizes}; inputs of {task.tokenizer.model_max_length:,} tokens at most")
    seeds = [training.seed + i for i in range(run.arguments.seeds)]
    reports: dict[int, dict[str, Any]] = {}
    best = None
    for seed in seeds:
        folder = _folder(output, seed, len(seeds))
        of_seed = dataclasses.replace(training, seed=seed, output_dir=str(folder), push_to_hub=False)
        model, report, predictions, state = train(run, run.initial_model(seed), of_seed, checkpoint)
        reports[seed] = report
        if best is None or _is_better(training, report, reports[best[0]]):
            best = (seed, model, predictions, state)
        if len(seeds) > 1:
            print_table(f"seed {seed}", scores_of(report))
    seed, model, predictions, state = best
    unlabelled = None if run.unlabelled is None else predict(model, training, task, run.unlabelled)
    report = {
        "task": task.name,
        "model": run.arguments.model,
        "settings": run.settings,
        "precision": "bf16" if training.bf16 else "fp16" if training.fp16 else "fp32",
        "seed": seed,
        **reports[seed],
        **({"seeds": reports, "mean_and_deviation": mean_and_deviation(reports)} if len(seeds) > 1 else {}),
    }
    if training.should_save:  # of several processes one
        _save(run, report, model, predictions, unlabelled, state, output)
        for seed in seeds:  # only now, since nothing else holds their models
            folder = _folder(output, seed, len(seeds))
            remove_checkpoints(folder)
            if len(seeds) > 1:
                with suppress(OSError):  # logs lie there
                    folder.rmdir()
        if training.push_to_hub:
            name, private = _repository(training), bool(training.hub_private_repo)
            push(PushArguments([str(output), name], revision=training.hub_revision, private=private))
    return report


def _save(
    run: Run,
    report: dict[str, Any],
    model: PreTrainedModel,
    predictions: Mapping[str, EvalPrediction],
    unlabelled: list[Any] | None,
    state: TrainerState,
    output: Path,
) -> None:
    """Save what a training came to, and tell it; `unlabelled` is what is predicted for `run.unlabelled`."""
    task, name = run.task, list(predictions)[-1]
    model.save_pretrained(output)
    task.tokenizer.save_pretrained(output)
    state.save_to_json(str(output / LOG))
    if unlabelled is not None:
        _save_predictions(run.unlabelled, unlabelled, output)
    task.draw(predictions[name], run.splits[name], output / PICTURE)
    save_card(output, _card(run, report))
    # Last, since it says that all is there.
    (output / REPORT).write_text(json.dumps(report, indent=2) + "\n")
    _print_report(run, report)
    print(f"\nThe saved model on its {name} rows:")
    print("\n".join(task.show(output, run.splits[name])))
    print(
        f"Saved to {output}: the model, the tokenizer, README.md (the model card), {REPORT} and {PICTURE} (of {name})"
    )


# --- details ---


def _read(
    task_arguments: TaskArguments,
    data: DataArguments,
    arguments: FinetuneArguments,
    training: TrainingArguments,
    bad: list[str] | None = None,
) -> tuple[Task, datasets.DatasetDict, datasets.Dataset | None]:
    """The task, its rows, and the test rows as they were given if they have no labels; all of it checked.

    Args:
        bad: where it is told what is wrong with rows, which are then left out; None: they are refused.

    Raises:
        ValueError: bad input.
    """
    task_class = find_task(task_arguments)
    config = read_config(arguments.model)
    has_head = check_head(arguments.model, config, task_class, needed=False)
    _check_arguments(arguments, training, config.num_hidden_layers)
    tokenizer = load_tokenizer(arguments.model, config, task_arguments.max_length)
    task = task_class(task_arguments, tokenizer)
    splits = load_splits(data, training.seed, task=task)
    if "train" not in splits:
        raise ValueError("train: there is no training split; legal: --train FILE, or a folder that has one")
    unlabelled = take_unlabelled(task, splits)
    known = config if has_head else None
    splits = task.read(splits, known) if bad is None else read_without_bad_rows(task, splits, known, bad)
    if unlabelled is not None:
        task.read_unlabelled(unlabelled)  # what is wrong with them is told before any training
    labels = task.config_fields().get("id2label")
    if has_head and labels is not None and len(labels) != config.num_labels:
        raise ValueError(
            f"model: {arguments.model!r} was fine-tuned for {config.num_labels} labels "
            f"({', '.join(map(str, config.id2label.values()))}), the data have {len(labels)} "
            f"({', '.join(map(str, labels.values()))}); start from a model without such a head"
        )
    return task, splits, unlabelled


def _check_arguments(arguments: FinetuneArguments, training: TrainingArguments, layers: int) -> None:
    """Refuse what no training can be done with, or what would be of no effect.

    Raises:
        ValueError: names the argument, its value and what is legal.
    """
    _check_fixed(training, SCORING | SAVING)
    check_freezing(arguments, layers)
    if arguments.seeds is not None and arguments.seeds < 1:
        raise ValueError(f"seeds: {arguments.seeds} is not legal: 1 or more")
    if arguments.patience is not None and arguments.patience < 0:
        raise ValueError(f"patience: {arguments.patience} is not legal: 0 or more")
    if arguments.patience and (training.eval_strategy == "no" or not training.load_best_model_at_end):
        raise ValueError(
            f"patience: {arguments.patience} is of no effect without evaluations in training and"
            " --load_best_model_at_end true; legal: 0"
        )
    for name in ("compare_rounds", "compare_batches"):
        if not arguments.compare and getattr(arguments, name) != getattr(FinetuneArguments, name):
            raise ValueError(f"{name}: needs --compare true")


def _check_fixed(training: TrainingArguments, fixed: Mapping[str, tuple[Any, str]]) -> None:
    for name, (value, reason) in fixed.items():
        if getattr(training, name) != value:
            legal = "it must not be given" if value is None else f"legal: {str(value).lower()}"
            raise ValueError(f"{name}: {legal}; {reason}")


def _unless_planned(instance: Any) -> Any:
    """The arguments with what the user left undecided."""
    undecided = {name: value for name, value in UNLESS_PLANNED.items() if getattr(instance, name, value) is None}
    return dataclasses.replace(instance, **undecided)


def _save_predictions(rows: datasets.Dataset, predictions: list[Any], output: Path) -> None:
    save_predictions(rows, predictions, output / PREDICTIONS)
    print(f"What is predicted for the {len(rows):,} test rows without labels: {output / PREDICTIONS}")


def _plan(
    task_arguments: TaskArguments, data: DataArguments, arguments: FinetuneArguments, training: TrainingArguments
) -> None:
    bad: list[str] = []
    task, splits, unlabelled = _read(task_arguments, data, arguments, training, bad)
    if unlabelled is not None:
        splits["test"] = task.read_unlabelled(unlabelled)
    plan(task, splits, bad, data, arguments, training)


def _card(run: Run, report: dict[str, Any]) -> CardFacts:
    """What the model card says of a fine-tuning."""
    data = describe_data(", ".join(filter(None, [run.settings["data"], *run.settings["train"]])))
    return CardFacts(
        data=data,
        training={
            "task": run.task.name,
            "steps": f"{report['steps']:,} ({report['epochs']:.2f} epochs), step {report['best_step']:,} kept",
            "time": f"{report['training_seconds'] / 60:.1f} minutes",
            **describe_training(run.training),
        },
        results=[
            Result(metric, value, data, split)
            for split, scores in scores_of(report).items()
            for metric, value in scores.items()
            if math.isfinite(value)
        ],
        base_model=published_name(run.arguments.model),
        max_length=run.task.tokenizer.model_max_length,
    )


def _print_report(run: Run, report: dict[str, Any]) -> None:
    print(
        f"\n{report['trained_parameters']:,} of {report['parameters']:,} parameters trained for {report['steps']:,} "
        f"steps ({report['epochs']:.2f} epochs) in {report['training_seconds']:.0f} s, {report['precision']}; "
        f"kept: step {report['best_step']:,} of seed {report['seed']}"
    )
    print_table(run.task.name, scores_of(report))
    if "mean_and_deviation" in report:
        rows = {
            name: {metric: f"{mean:.4f} ± {deviation:.4f}" for metric, (mean, deviation) in metrics.items()}
            for name, metrics in report["mean_and_deviation"].items()
        }
        print_table(f"over {len(report['seeds'])} seeds", rows)


def _is_better(training: TrainingArguments, report: Mapping[str, Any], than: Mapping[str, Any]) -> bool:
    """Whether a seed did better on the validation rows, which is what may be chosen by."""
    metric = training.metric_for_best_model.removeprefix("eval_")
    ours, theirs = (each["validation"][metric] for each in (report, than))
    return ours > theirs if training.greater_is_better else ours < theirs


def _settle(training: TrainingArguments, task: Task) -> TrainingArguments:
    if training.metric_for_best_model == "auto":
        training = dataclasses.replace(
            training, metric_for_best_model=task.metric_for_best_model, greater_is_better=task.greater_is_better
        )
    elif training.metric_for_best_model in ("mse", "eval_mse"):  # Transformers knows this of "loss" only
        training = dataclasses.replace(training, greater_is_better=False)
    # Counting tokens is for pretraining, unless it is asked for.
    counted = training.include_num_input_tokens_seen
    return dataclasses.replace(settle(training), include_num_input_tokens_seen=counted)


def _checkpoint(training: TrainingArguments, seeds: int) -> str | None:
    """The checkpoint to go on from.

    Raises:
        ValueError: an output folder that is in use, or a checkpoint that nothing can go on from.
    """
    checkpoint = checkpoint_to_resume(training)
    if checkpoint is None:
        for i in range(seeds):
            check_unused(_folder(Path(training.output_dir), training.seed + i, seeds), one_of_several=seeds > 1)
    elif seeds > 1:
        raise ValueError("resume_from_checkpoint: not legal with several seeds")
    elif not can_resume(checkpoint):
        raise ValueError(
            f"resume_from_checkpoint: {checkpoint!r} holds a model only, to save time and space; start again in another"
            " folder (with --save_only_model false a training can be resumed)"
        )
    return checkpoint


def _folder(output: Path, seed: int, seeds: int) -> Path:
    """Where the checkpoints of a seed lie while it is trained."""
    return output if seeds == 1 else output / f"seed-{seed}"


def _repository(training: TrainingArguments) -> str:
    return training.hub_model_id or Path(training.output_dir).name


def _finished(output: Path) -> dict[str, Any] | None:
    """The report of a training that ended in this folder."""
    path = output / REPORT
    return json.loads(path.read_text()) if path.exists() and (output / "config.json").exists() else None


def _settings(*instances: Any) -> dict[str, Any]:
    """What a result depends on: all arguments, as JSON has them; of Transformers', those that are given a value."""
    *ours, training = instances
    settings = {
        key: value
        for instance in ours
        for key, value in dataclasses.asdict(instance).items()
        if not key.startswith("compare")
    }
    settings |= {
        key: value for key, value in training.to_dict().items() if value is not None and not key.startswith(NO_SETTINGS)
    }
    return json.loads(json.dumps(settings))


def _difference(report: dict[str, Any], run: Run) -> str:
    keys = sorted({*report["settings"], *run.settings})
    values = ((key, report["settings"].get(key), run.settings.get(key)) for key in keys)
    return ", ".join(f"{key}: {theirs} there, {ours} here" for key, theirs, ours in values if theirs != ours)
