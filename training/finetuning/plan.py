"""`minibert finetune TASK --plan true`: look at the data, train nothing, and propose how to train, by rules of thumb,
each with its reason. The time is measured: a few training steps of the model itself are extrapolated."""

import dataclasses
import json
import statistics
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from transformers import PreTrainedConfig, TrainingArguments

from ...configuration_minibert import MODERNBERT_SIZES, MiniBertConfig
from ..arguments.finetuning import FINETUNE_DEFAULTS, DataArguments, FinetuneArguments
from .data import FILE, ROW, BadRow
from .survey import Survey, survey
from .tasks.base import Task
from .trainer import Run, TaskTrainer, resolve_training, seconds_of_steps, training_batches

RECIPE, PAGE = "recipe.yaml", "plan.md"
MOST_BAD_ROWS = 20  # found one by one; with more, it is the data that must be looked at
TIMED_STEPS = 3
HEAD_ONLY_ROWS = 200  # up to here a full fine-tuning mostly learns the rows by heart
HOUR = 3600.0


def plan(run: Run, data: DataArguments, bad: list[str]) -> dict[str, Any]:
    """Survey the data of a run that is not encoded yet, write `recipe.yaml` (for `--recipe`) and `plan.md` into the
    output folder, and print the page; `bad` says what is wrong with rows that were left out. The recipe: arguments by
    name."""
    task, arguments, training = run.task, run.arguments, run.training
    limit = task.tokenizer.model_max_length
    task.tokenizer.model_max_length = 10**6  # to see the lengths as they are
    run.encoded = {name: task.encode(split, training=True) for name, split in run.splits.items()}
    resolve_training(run)
    surveys = {name: survey(task, run.splits[name], split) for name, split in run.encoded.items()}
    given = given_for_training(arguments, training)
    if task.arguments.max_length is not None:
        given["max_length"] = task.arguments.max_length
    proposed = propose(task, surveys["train"], limit, given)
    choices = {name: value for name, (value, _) in proposed.items()}
    task.tokenizer.model_max_length = choices["max_length"]
    run.encoded["train"] = task.encode(run.splits["train"], training=True)
    run.arguments = dataclasses.replace(arguments, freeze=choices["freeze"], patience=0)
    chosen = {name: choices[name] for name in ("per_device_train_batch_size", "learning_rate")}
    run = run.replace(num_train_epochs=1.0, **chosen)
    trainer = TaskTrainer(run, run.initial_model(), trains=True)
    taken = [seconds_of_steps(trainer, [batch]) for batch in training_batches(trainer, TIMED_STEPS + 1)]
    batches = -(-len(run.encoded["train"]) // (choices["per_device_train_batch_size"] * training.world_size))
    if "max_steps" in choices:
        batches = choices["max_steps"] * training.gradient_accumulation_steps
    else:
        batches *= choices["num_train_epochs"]
    seconds = statistics.median(taken[1:]) * batches * choices["seeds"]  # the first one warms up

    output = Path(training.output_dir)
    read = {"model": arguments.model, **_changed(data), **_changed(task.arguments)}
    recipe = {name: (value, "as given") for name, value in read.items()} | proposed
    recipe["output_dir"] = str(output), "where the trained model goes"
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}  # {why}" for name, (value, why) in recipe.items()]
    lines = [f"# minibert finetune {task.name} --recipe {RECIPE}", *lines, ""]
    (output / RECIPE).write_text("\n".join(lines), encoding="utf-8")
    elsewhere = " --output_dir NEW_FOLDER" if (output / "config.json").exists() else ""  # a model is not overwritten
    page = [
        f"# Plan: {task.name}",
        *describe_data(surveys, bad),
        f"## The proposal\n\n- head: `{task.model_class.__name__}`",
        f"- metric: {choices.get('metric_for_best_model', task.metric_for_best_model)}, on the validation rows",
        *(f"- `{name}`: {value} – {why}" for name, (value, why) in proposed.items()),
        *describe_time(seconds, _block_parameters(trainer.model.config)),
        f"Next: `minibert finetune {task.name} --recipe {output / RECIPE}{elsewhere}`\n",
    ]
    (output / PAGE).write_text("\n".join(page), encoding="utf-8")
    print(*page, sep="\n")
    return {name: value for name, (value, _) in recipe.items()}


def given_for_training(arguments: FinetuneArguments, training: TrainingArguments) -> dict[str, Any]:
    """What the user said about the training, as far as it is not the default: arguments by name."""
    given = {name: value for name, value in _changed(arguments).items() if name not in ("plan", "model")}
    on_cpu = not torch.accelerator.is_available()  # as the command line has it
    default = TrainingArguments(**FINETUNE_DEFAULTS | {"output_dir": training.output_dir, "use_cpu": on_cpu}).to_dict()
    values = training.to_dict()
    if values["include_num_input_tokens_seen"] == "all":
        values["include_num_input_tokens_seen"] = True  # as the command line takes it
    return given | {name: value for name, value in values.items() if value is not None and value != default[name]}


def read_without_bad_rows(
    task: Task, splits: datasets.DatasetDict, config: PreTrainedConfig | None, bad: list[str]
) -> datasets.DatasetDict:
    """The rows that the task can read; what it says of those it cannot is added to `bad`. A ValueError if more than
    `MOST_BAD_ROWS` are bad, or all of a split."""
    while True:
        try:
            return task.read(splits, config)
        except BadRow as error:
            bad.append(str(error))
            if len(bad) > MOST_BAD_ROWS:
                raise ValueError(f"more than {MOST_BAD_ROWS} bad rows; the first: {bad[0]}") from None
            for name, split in splits.items():
                good = [i for i, place in enumerate(zip(split[FILE], split[ROW])) if place != error.place]
                if not good:
                    raise ValueError(f"no good row left in {error.place[0]!r}; the last bad one: {error}") from None
                splits = datasets.DatasetDict({**splits, name: split.select(good)})


def propose(task: Task, survey: Survey, limit: int, given: dict[str, Any]) -> dict[str, tuple[Any, str]]:
    """What to train with, after the survey of the training split, and why: the value and the reason by the name of the
    argument. What is `given` stays."""
    rows, lengths, counts = survey.rows, survey.lengths, survey.labels
    longest = int(np.percentile(lengths, 99)) if len(lengths) else limit
    max_length = min(limit, -(-max(task.shortest_input, longest) // 8) * 8)
    cut = float((lengths > given.get("max_length", max_length)).mean()) if len(lengths) else 0.0
    trains_layers = "lora" in given or "layerwise_lr_decay" in given
    freeze = given.get("freeze", "encoder" if rows <= HEAD_ONLY_ROWS and not trains_layers else "none")
    why_freeze, rate = "layers train", (1e-4, "for small encoders; 5e-5 for base, 2e-5 for large")
    if freeze == "encoder":
        why_freeze, rate = f"{rows:,} training rows: the head only", (1e-3, "a head alone can learn fast")
    elif rows > HEAD_ONLY_ROWS:
        why_freeze = f"{rows:,} training rows: enough to train all (above {HEAD_ONLY_ROWS})"
    epochs = (20 if rows <= HEAD_ONLY_ROWS and freeze == "encoder" else 8), "until validation stops it"
    several = rows < 2000 and "compare" not in given
    proposed = {
        "freeze": (freeze, why_freeze),
        "max_length": (max_length, f"99 % have up to {longest} tokens; {cut:.1%} are longer than {max_length}"),
        "per_device_train_batch_size": (16, "small data take more steps") if rows < 2000 else (32, "the usual batch"),
        "learning_rate": rate,
        "num_train_epochs": epochs if rows < 5000 else (3, "the usual number; validation may stop it"),
        "seeds": (3, "few rows make scores vary with the seed") if several else (1, "enough rows, or --compare"),
        "patience": (3, f"stop after so many evaluations without a better {task.metric_for_best_model}"),
    }
    if counts and task.metric_for_best_model == "accuracy" and max(counts.values()) > 0.7 * counts.total():
        why = f"{counts.most_common(1)[0][0]!r} is most of the rows: accuracy hides the rest"
        proposed["metric_for_best_model"] = ("f1_macro", why)
    if "max_steps" in given:
        del proposed["num_train_epochs"]
    if given.get("eval_strategy") == "no" or not given.get("load_best_model_at_end", True):
        del proposed["patience"]
    return proposed | {name: (value, "as given") for name, value in given.items()}


def describe_data(surveys: dict[str, Survey], bad: list[str]) -> list[str]:
    """The first part of the page, in Markdown."""
    rows, train = [], surveys["train"]
    for name, split in surveys.items():
        middle, most, longest = np.percentile(split.lengths, (50, 95, 100)) if len(split.lengths) else (0, 0, 0)
        shared = "–" if name == "train" else f"{split.shared_with(train):,}"
        tokens = f"{middle:.0f}, {most:.0f}, {longest:.0f}"
        rows.append((name, f"{split.rows:,}", tokens, f"{split.repeated:,}", shared))
    lines = ["\n## The data\n"]
    lines += _table(("split", "rows", "tokens: median, 95 %, longest", "repeated", "also in train"), rows)
    if train.contradictions:
        lines += [f"{train.contradictions:,} inputs of the training split occur with different labels.\n"]
    if any(row[-1] not in ("–", "0") for row in rows):
        lines += ["Inputs that are also in train flatter the scores: remove them from it.\n"]
    if bad:
        lines += [f"Bad rows, left out here, and to be mended before training ({len(bad)}):\n"]
        lines += [*(f"- {said}" for said in bad), ""]
    if counts := train.labels:
        rows = [(label, f"{count / train.labelled:.1%} ({count:,})") for label, count in counts.most_common(20)]
        rows += [(f"… {len(counts) - 20} more", "")] if len(counts) > 20 else []
        lines += _table(("label", "share in train"), rows)
    return lines


def describe_time(seconds: float, blocks: int) -> list[str]:
    """How long the training takes, and with every size of ModernBERT: the same, scaled by the parameters of its blocks,
    which is the work per token; `blocks` are those of the model that was measured."""
    parameters = {size: _block_parameters(MiniBertConfig.modernbert(size)) for size in MODERNBERT_SIZES}
    times = {size: seconds * count / blocks for size, count in parameters.items()}
    fitting = [size for size, time in times.items() if time <= HOUR]
    rows = [(size, f"{parameters[size]:,}", _duration(time)) for size, time in times.items()]
    return [
        f"\nEstimated time with the model given, over all seeds, evaluation left out: {_duration(seconds)}.\n",
        *_table(("size of ModernBERT", "parameters of its blocks", "estimated time"), rows),
        f"The largest size that trains within an hour here: {fitting[-1] if fitting else 'none'}.\n",
    ]


def _table(header: Collection[str], rows: Iterable[Collection[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)] + [""]


def _changed(arguments: Any) -> dict[str, Any]:
    default = type(arguments)()
    return {name: value for name, value in vars(arguments).items() if value != getattr(default, name)}


def _block_parameters(config: MiniBertConfig) -> int:
    """Weights that every token is multiplied with: the matrices of the blocks."""
    width, inner = config.hidden_size, config.intermediate_size
    return config.num_hidden_layers * (4 * width * width + (3 if config.gated_mlp else 2) * width * inner)


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 2 * HOUR else f"{seconds / HOUR:.1f} h"
