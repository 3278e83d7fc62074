"""`minibert finetune TASK` and `minibert evaluate TASK`: rows → model inputs → `Trainer` → metrics and a saved model.
What differs between tasks stands in their `Task`."""

import importlib
import json
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from transformers import TrainerState, TrainingArguments

from ..arguments import check_least, decide
from ..arguments.finetuning import UNLESS_PLANNED, DataArguments, EvaluateArguments, FinetuneArguments, TaskArguments
from ..checkpoints import check_unused, checkpoint_to_resume, remove_checkpoints, rows_checksum
from ..files import check_folder, write_json
from ..hub.card import CardFacts, Result, describe_data, facts_from_trainer, headlines, published_name, save_card
from ..hub.push import check_push, push_output
from ..loading import random_state_kept, without_bars
from ..precision import check_training, without_autocast
from ..processes import first_process_first, shares_weights
from ..report import format_scores
from ..result import TrainingResult
from .compare import check_comparable, compare, saved_report
from .data import FILE, ROW, SPLITS, load_splits
from .models import check_head, load_model, load_tokenizer, read_config
from .plan import plan, read_without_bad_rows
from .survey import survey, warnings
from .tasks.base import Predictions, take_unlabelled
from .trainer import Run, Scores, predict, resolve_training, score, train

REPORT, PICTURE, LOG, PREDICTIONS = "metrics.json", "predictions.png", "trainer_state.json", "test_predictions.jsonl"
PREDICTION = "prediction"  # the column that is added to test rows without labels
# Fields of TrainingArguments that must stay as they are: for scores of all rows, and for a model that is saved.
_NEEDED = "the metrics of the task need the predictions of all rows"
SCORING = {
    "prediction_loss_only": (False, _NEEDED),
    "batch_eval_metrics": (False, _NEEDED),
    "eval_do_concat_batches": (True, _NEEDED),
    "dataloader_drop_last": (False, "it drops rows of evaluation as well"),
    "dataloader_in_order": (True, "predictions are known by their place"),
    "remove_unused_columns": (True, "rows carry columns for the scores, which no model takes"),
    "label_names": (None, "the task knows them"),
    "include_for_metrics": ([], "the metrics of the task need predictions and labels alone"),
}
_HALF = "evaluation would leave the model that is saved in half precision; with --bf16 true both compute in bf16"
SAVING = {
    "bf16_full_eval": (False, _HALF),
    "fp16_full_eval": (False, _HALF),
    "hub_token": (None, "log in with `hf auth login`, or set HF_TOKEN"),
}
# What the names of arguments begin with that no result depends on: where it goes, what is said and kept meanwhile.
NO_SETTINGS = (
    "output_dir", "log", "disable_tqdm", "report_to", "run_name", "project", "trackio_", "push_to_hub", "hub_", "do_",
    "save_only_model", "save_total_limit", "save_on_each_node", "enable_jit_checkpoint", "resume_from_checkpoint",
    "restore_callback_states", "ignore_data_skip", "dataloader_", "ddp_", "local_rank", "debug", "skip_memory_metrics",
    "include_num_input_tokens_seen", "compare",
)  # fmt: skip


@without_bars(of_datasets=True)
def finetune(
    task_arguments: TaskArguments, data: DataArguments, arguments: FinetuneArguments, training: TrainingArguments
) -> TrainingResult:
    """Train a model for a task, measure it and save it to `training.output_dir`: the saved model with its report (of a
    plan, what it proposes, and no model). A ValueError for bad input: before any training, and without touching what is
    in the output folder."""
    output = Path(training.output_dir)
    if arguments.plan:
        bad: list[str] = []
        run = prepare(task_arguments, data, arguments, training, bad)
        return TrainingResult(None, run.task.tokenizer, plan(run, data, bad), output)
    finished = arguments.compare and (output / REPORT).exists() and (output / "config.json").exists()
    seeds = decide(arguments, **UNLESS_PLANNED).seeds
    if seeds > 1 and not finished and str(training.resume_from_checkpoint or "false").lower() != "false":
        raise ValueError(f"resume_from_checkpoint: {seeds} seeds cannot be resumed; give each a command of its own")
    checkpoint = None if finished else checkpoint_to_resume(training)
    for folder in _folders(training, seeds).values() if seeds > 1 else ():
        check_unused(folder, one_of_several=True)
    run = prepare(task_arguments, data, arguments, training)
    if arguments.compare:
        check_comparable(run)
    if finished:
        report = saved_report(output / REPORT, run)
        model = load_model(str(output), type(run.task), run.task.config_fields())
    else:
        model, report = _train_and_save(run, output, checkpoint)
    if arguments.compare:
        compare(run, report, output)
    return TrainingResult(without_autocast(model) if training.should_save else None, run.task.tokenizer, report, output)


@without_bars(of_datasets=True)
def evaluate(
    task_arguments: TaskArguments, data: DataArguments, arguments: EvaluateArguments, training: TrainingArguments
) -> dict[str, Scores]:
    """The metrics by name of a fine-tuned model, for every split that is given except the training split. A ValueError
    for bad input, before any work."""
    output = Path(training.output_dir)
    check_folder(output)
    if (output / "config.json").exists():
        raise ValueError(f"output_dir: {str(output)!r} holds a model, whose report would be replaced; give another one")
    with random_state_kept():
        run = prepare(task_arguments, data, arguments, training)
        model = run.initial_model()
        predictions, scores = score(run, model)
        predicted = predict(run, model)
    if training.should_save:  # of several processes one
        print(f"\n{arguments.model}, {run.task.name}\n{format_scores(scores)}")
        _save(run, {"task": run.task.name, "model": arguments.model} | scores, predictions, predicted, output)
    return scores


def prepare(
    task_arguments: TaskArguments,
    data: DataArguments,
    arguments: FinetuneArguments | EvaluateArguments,
    training: TrainingArguments,
    bad: list[str] | None = None,
) -> Run:
    """Check the arguments and every row (a ValueError where they are bad), and encode the rows. For a plan, these are
    not encoded, and what is wrong with rows is added to `bad` and they are left out."""
    trains = isinstance(arguments, FinetuneArguments)
    check_training(training)
    if shares_weights(training):
        raise ValueError("fsdp, deepspeed: fine-tuning needs the whole model in every process; leave them out")
    if trains and training.push_to_hub and bad is None:
        check_push(training)
    for field, (value, reason) in (SCORING | SAVING if trains else SCORING).items():
        if getattr(training, field) != value:
            instead = "leave it out" if value in (None, []) else f"use {str(value).lower()}"
            raise ValueError(f"{field}: {instead}; {reason}")
    if data.train and not trains:
        raise ValueError("train: nothing is trained here; use --validation, --test, or a folder that has them")
    module, _, name = task_arguments.task.partition(":")
    task_class = getattr(importlib.import_module(f".tasks.{module}", __package__), name)
    config = read_config(arguments.model)
    has_head = check_head(arguments.model, config, task_class, needed=not trains)
    if trains:
        check_arguments(arguments, training, config.num_hidden_layers)
    task = task_class(task_arguments, load_tokenizer(arguments.model, config, task_arguments.max_length))
    splits = load_splits(data, training.seed, [name for name in SPLITS if trains or name != "train"], task)
    if trains and "train" not in splits:
        raise ValueError("train: there is no training split; use --train FILE, or a folder that has one")
    if not splits:
        raise ValueError("data: no validation or test split is given; use --test FILE, or a folder that has one")
    unlabelled = take_unlabelled(task, splits)
    known = config if has_head else None
    splits = task.read(splits, known) if bad is None else read_without_bad_rows(task, splits, known, bad)
    # What is wrong with rows without labels is told before any training, too.
    blank = None if unlabelled is None else task.read_unlabelled(unlabelled)
    if has_head and task.labels and len(task.labels) != config.num_labels:
        there, here = (", ".join(map(str, names)) for names in (config.id2label.values(), task.labels))
        use = "start from a model without such a head" if trains else "give all of them, in its order, with --labels"
        raise ValueError(
            f"model: {arguments.model!r} was fine-tuned for {config.num_labels} labels ({there}), not for "
            f"{len(task.labels)} ({here}); {use}"
        )
    run = Run(task, splits, {}, arguments, training, {}, unlabelled, blank)
    if bad is not None:
        run.splits |= {} if blank is None else {"test": blank}
        return run
    run.arguments, run.training = decide(arguments, **UNLESS_PLANNED), decide(training, **UNLESS_PLANNED)
    sizes = ", ".join(f"{len(split):,} {name}" for name, split in splits.items())
    columns = f"columns {', '.join(task.text_columns)} → {task.label_column}"
    print(f"{task.name}: {columns}; rows: {sizes}; inputs of {task.tokenizer.model_max_length:,} tokens at most")
    with first_process_first():
        run.encoded = {name: task.encode(split, training=name == "train") for name, split in splits.items()}
    for name, rows in run.encoded.items():
        if not len(rows):
            raise ValueError(f"{name}: no row of {splits[name][0][FILE]!r} has a word; use one with words")
    for line in warnings(task, {name: survey(task, splits[name], rows) for name, rows in run.encoded.items()}):
        print(line)
    resolve_training(run)
    # What a result depends on: all arguments, as JSON has them; of Transformers', those that are given a value.
    settings = {**vars(task_arguments), **vars(data), **vars(run.arguments)}
    settings |= {"text": {name: rows_checksum(rows) for name, rows in run.encoded.items()}}
    settings |= {name: value for name, value in run.training.to_dict().items() if value is not None}
    settings = {name: value for name, value in settings.items() if not name.startswith(NO_SETTINGS)}
    run.settings = json.loads(json.dumps(settings))
    return run


def _train_and_save(run: Run, output: Path, checkpoint: str | None) -> tuple[Any, dict[str, Any]]:
    training, metric = run.training, run.training.metric_for_best_model.removeprefix("eval_")
    folders = _folders(training, run.arguments.seeds)
    reports: dict[int, dict[str, Any]] = {}
    best_rank = None
    for seed, folder in folders.items():
        seeded = run.replace(seed=seed, output_dir=str(folder))
        trained = train(seeded, seeded.initial_model(), checkpoint)
        reports[seed] = trained.report
        # On the validation rows, which is what may be chosen by.
        rank = trained.report["validation"][metric] * (1 if training.greater_is_better else -1)
        if best_rank is None or rank > best_rank or best_rank != best_rank:  # anything is better than NaN
            best_rank, best_seed, best = rank, seed, trained
        if len(folders) > 1:
            print(f"\nseed {seed}\n{format_scores(_scores_of(trained.report))}")
    report = {
        "task": run.task.name,
        "model": run.arguments.model,
        "settings": run.settings,
        "precision": "bf16" if training.bf16 else "fp16" if training.fp16 else "fp32",
        "seed": best_seed,
        **best.report,
    }
    if len(folders) > 1:
        report |= {"seeds": reports, "mean_and_deviation": {}}
        for split, scores in _scores_of(report).items():
            values = {metric: [each[split][metric] for each in reports.values()] for metric in scores}
            spread = {metric: (float(np.mean(found)), float(np.std(found, ddof=1))) for metric, found in values.items()}
            report["mean_and_deviation"][split] = spread
        report = json.loads(json.dumps(report))  # with the keys that it has in its file
    predicted = predict(run, best.model)
    if training.should_save:  # of several processes one
        best.model.save_pretrained(output)
        backend = run.task.tokenizer.backend_tokenizer  # else its file says what the last call asked for
        backend.no_truncation()
        backend.no_padding()
        run.task.tokenizer.save_pretrained(output)
        best.state.save_to_json(str(output / LOG))
        save_card(output, _card(run, report, best.state))
        _describe(report)
        _save(run, report, best.predictions, predicted, output)
        for folder in folders.values():  # only now, since nothing else holds their models
            remove_checkpoints(folder)
        if training.push_to_hub:
            push_output(training)
    return best.model, report


def _describe(report: dict[str, Any]) -> None:
    seconds = report["training_seconds"]
    print(
        f"\n{report['trained_parameters']:,} of {report['parameters']:,} parameters trained for {report['steps']:,} "
        f"steps ({report['epochs']:.2f} epochs){f' in {seconds:.0f} s' if seconds else ''}, {report['precision']}; "
        f"kept: step {report['best_step']:,} of seed {report['seed']}"
    )
    print(f"\n{report['task']}\n{format_scores(_scores_of(report))}")
    if "seeds" in report:
        spread = {
            split: {metric: f"{mean:.4f} ± {deviation:.4f}" for metric, (mean, deviation) in metrics.items()}
            for split, metrics in report["mean_and_deviation"].items()
        }
        print(f"\nover {len(report['seeds'])} seeds\n{format_scores(spread)}")


def _save(
    run: Run, report: dict[str, Any], predictions: dict[str, Predictions], predicted: list[Any] | None, output: Path
) -> None:
    """Save what was measured: the picture, the report, and test rows without labels as they were given, each with what
    was `predicted` for it. Of a training, show what the model says of a few rows."""
    name, said = list(predictions.items())[-1]
    run.task.draw(said, output / PICTURE)
    (output / PREDICTIONS).unlink(missing_ok=True)  # of a model before
    if predicted is not None:
        with (output / PREDICTIONS).open("w", encoding="utf-8") as file:
            for row, prediction in zip(run.unlabelled.remove_columns([FILE, ROW]), predicted):
                # what JSON does not know (dates, pictures) as Python shows it
                file.write(json.dumps({**row, PREDICTION: prediction}, ensure_ascii=False, default=str) + "\n")
        print(f"What is predicted for the {len(predicted):,} test rows without labels: {output / PREDICTIONS}")
    # Last, since it says that all is there.
    write_json(output / REPORT, report)
    model = ""
    if isinstance(run.arguments, FinetuneArguments):
        model = "the model, the tokenizer, README.md (the model card), "
        print(f"\nThe first {name} rows, and what the model says of them:")
        for given, answer in islice(run.task.demonstrate(output, said), 3):
            print(f"  {given}\n    {answer}")
    print(f"Saved to {output}: {model}{REPORT} and {PICTURE} (of {name})")


def _card(run: Run, report: dict[str, Any], state: TrainerState) -> CardFacts:
    def source(split: str) -> str:
        """Where its rows are from: files of its own, files to train on (some rows are held out), or all the data."""
        file, given = run.splits[split][0][FILE], (run.settings[name] for name in (split, "train"))
        whose = (files for files in given if file in {str(Path(each)) for each in files})
        return describe_data(", ".join(next(whose, [run.settings["data"]])))

    data = describe_data(", ".join(filter(None, [run.settings["data"], *run.settings["train"]])))
    facts = facts_from_trainer(vars(state), run.training, data)
    facts.training = {"task": run.task.name, **facts.training}
    facts.training["steps"] += f", step {report['best_step']:,} kept"
    facts.training["seed"] = str(report["seed"])
    if report["training_seconds"] is None:
        del facts.training["time"]
    scores = [(split, *score) for split, scores in _scores_of(report).items() for score in scores.items()]
    results = [Result(metric, value, source(split), split) for split, metric, value in scores if value is not None]
    facts.results = headlines(results)
    facts.base_model, facts.max_length = published_name(run.arguments.model), run.task.tokenizer.model_max_length
    return facts


def _scores_of(report: Mapping[str, Any]) -> dict[str, Scores]:
    return {name: report[name] for name in ("validation", "test") if name in report}


def check_arguments(arguments: FinetuneArguments, training: TrainingArguments, layers: int) -> None:
    """Refuse (a ValueError) what no model of `layers` layers can be trained with, or what would be of no effect."""
    check_least(arguments, lora=1, seeds=1, patience=0, compare_rounds=1, compare_batches=1)
    freeze, lora, decay = arguments.freeze or "none", arguments.lora, arguments.layerwise_lr_decay
    if lora is not None:
        import peft  # noqa: F401 - missing it is told before any work
    parts = ["none", "encoder", *map(str, range(1, layers + 1))]
    unmeasured = arguments.patience and (training.eval_strategy == "no" or not training.load_best_model_at_end)
    needed = "evaluations in training and --load_best_model_at_end true"
    for name, refused, why in (
        ("freeze", freeze not in parts, f"is no part of the model; use none, encoder or a number from 1 to {layers}"),
        ("lora", lora and freeze != "none", f"freezes the encoder's own weights already; leave out --freeze {freeze}"),
        ("layerwise_lr_decay", not 0 < decay <= 1, "is out of range; use a share above 0, up to 1"),
        ("layerwise_lr_decay", decay < 1 and freeze == "encoder", "has no effect with --freeze encoder; leave it out"),
        ("patience", unmeasured, f"has no effect without {needed}; use 0"),
    ):
        if refused:
            raise ValueError(f"{name}: {getattr(arguments, name)!r} {why}")


def _folders(training: TrainingArguments, seeds: int) -> dict[int, Path]:
    """The seeds, and where their checkpoints lie while they are trained."""
    output, first = Path(training.output_dir), training.seed
    return {seed: output / f"seed-{seed}" if seeds > 1 else output for seed in range(first, first + seeds)}
