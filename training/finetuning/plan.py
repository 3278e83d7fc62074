"""`minibert finetune TASK --plan true`: look at the data, train nothing, and propose how to train.

The proposals are rules of thumb, each with its reason beside it; the time is measured: a few training steps of the
model itself on random batches are extrapolated to the whole training.
"""

from __future__ import annotations

import dataclasses
import json
import re
import statistics
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from transformers import PreTrainedConfig, TrainingArguments

from ...configuration_minibert import MiniBertConfig
from ..arguments.finetuning import FINETUNE_DEFAULTS, DataArguments, FinetuneArguments
from ..checkpoints import settle
from .data import FILE, ROW
from .models import load_model
from .tasks.base import Task
from .trainer import check_for_task, make_trainer, precision_of

RECIPE, PAGE = "recipe.yaml", "plan.md"
MOST_BAD_ROWS = 20  # found one by one; with more, it is the data that must be looked at
TIMED_STEPS = 3
HEAD_ONLY_ROWS = 200  # up to here a full fine-tuning mostly learns the rows by heart
HOUR = 3600.0


@dataclass
class Survey:
    """What the data are like."""

    rows: dict[str, int] = field(default_factory=dict)
    bad: list[str] = field(default_factory=list)
    lengths: dict[str, np.ndarray] = field(default_factory=dict)  # tokens of every input, [inputs]
    labels: dict[str, Counter] = field(default_factory=dict)
    duplicates: dict[str, int] = field(default_factory=dict)
    contradictions: int = 0  # training inputs that occur with different labels
    overlap: dict[str, int] = field(default_factory=dict)  # inputs of a split that are in the training split


def plan(
    task: Task,
    splits: datasets.DatasetDict,
    bad: list[str],
    data: DataArguments,
    arguments: FinetuneArguments,
    training: TrainingArguments,
) -> None:
    """Survey the data, write `recipe.yaml` (for `--recipe`) and `plan.md` into the output folder, and print the page.

    Args:
        task: its tokenizer with `model_max_length` at the longest input that is legal.
        splits, bad: see `read_without_bad_rows`.

    Raises:
        ValueError: an argument that no training could have.
    """
    limit = task.tokenizer.model_max_length
    task.tokenizer.model_max_length = 10**6  # lengths are wanted as they are
    encoded = {name: task.encode(split, training=True) for name, split in splits.items()}
    check_for_task(training, task, splits, encoded)
    survey = look(task, splits, encoded, bad)

    given = given_for_training(arguments, training)
    if task.arguments.max_length is not None:
        given["max_length"] = task.arguments.max_length
    choices, reasons = propose(task, survey, limit, given)
    task.tokenizer.model_max_length = choices["max_length"]
    encoded["train"] = task.encode(splits["train"], training=True)
    model = load_model(arguments.model, type(task), task.config_fields())
    seconds = step_seconds(task, splits, encoded, arguments, training, model, choices)
    steps = -(-len(encoded["train"]) // choices["per_device_train_batch_size"])
    steps = choices["max_steps"] if "max_steps" in choices else steps * choices["num_train_epochs"]
    steps *= choices["seeds"]
    backbones = backbone_times(model.config, seconds * steps)

    output = Path(training.output_dir)
    output.mkdir(parents=True, exist_ok=True)
    read = {"model": arguments.model, **_changed(data), **_changed(task.arguments)}
    recipe = read | choices | {"output_dir": str(output)}
    reasons |= dict.fromkeys(read, "as given") | {"output_dir": "where the trained model goes"}
    (output / RECIPE).write_text(as_recipe(task, recipe, reasons), encoding="utf-8")
    page = as_page(task, survey, choices, reasons, seconds * steps, backbones, output)
    (output / PAGE).write_text(page, encoding="utf-8")
    print(page)


def given_for_training(arguments: FinetuneArguments, training: TrainingArguments) -> dict[str, Any]:
    """What the user said about the training, as far as it is not the default: arguments by name."""
    given = _changed(arguments)
    given = {name: value for name, value in given.items() if name not in ("plan", "model")}
    on_cpu = not torch.accelerator.is_available()  # as the command line has it
    default = TrainingArguments(**FINETUNE_DEFAULTS | {"output_dir": training.output_dir, "use_cpu": on_cpu}).to_dict()
    values = training.to_dict()
    if values["include_num_input_tokens_seen"] == "all":
        values["include_num_input_tokens_seen"] = True  # as the command line takes it
    return given | {name: value for name, value in values.items() if value is not None and value != default[name]}


def read_without_bad_rows(
    task: Task, splits: datasets.DatasetDict, config: PreTrainedConfig | None, bad: list[str]
) -> datasets.DatasetDict:
    """The rows that the task can read; what it says of those it cannot is added to `bad`.

    Raises:
        ValueError: what is wrong is not a row, more than `MOST_BAD_ROWS` rows are bad, or all of a split.
    """
    while True:
        try:
            return task.read(splits, config)
        except ValueError as error:
            named = re.match(r"(?P<file>.+?), row (?P<row>\d+): ", str(error))
            if named is None:
                raise
            bad.append(str(error))
            if len(bad) > MOST_BAD_ROWS:
                raise ValueError(f"more than {MOST_BAD_ROWS} bad rows; the first: {bad[0]}") from None
            file, row = named["file"], int(named["row"])
            left = datasets.DatasetDict(
                {
                    name: split.select([i for i, at in enumerate(zip(split[FILE], split[ROW])) if at != (file, row)])
                    for name, split in splits.items()
                }
            )
            if all(len(left[name]) == len(splits[name]) for name in splits):
                raise
            if not all(map(len, left.values())):
                raise ValueError(f"no good row left in {file!r}; the last bad one: {error}") from None
            splits = left


def look(task: Task, splits: datasets.DatasetDict, encoded: dict[str, datasets.Dataset], bad: list[str]) -> Survey:
    """Count rows, lengths, labels, duplicates and overlap.

    Two inputs are the same if all their token ids are (so case counts only if it does for the tokenizer).
    """
    survey = Survey(bad=bad)
    training_inputs: dict[bytes, str] = {}
    for name, split in encoded.items():
        survey.rows[name] = len(splits[name])
        ids = [_flat(row) for row in split["input_ids"]]
        survey.lengths[name] = np.array([len(part) for row in split["input_ids"] for part in _parts(row)])
        survey.labels[name] = count_labels(task, split)
        keys = [np.asarray(row, dtype=np.int32).tobytes() for row in ids]
        survey.duplicates[name] = len(keys) - len(set(keys))
        if name == "train":
            answers = (
                [json.dumps(row) for row in split["labels"]] if "labels" in split.column_names else [""] * len(keys)
            )
            contradicting = set()
            for key, answer in zip(keys, answers):
                if training_inputs.setdefault(key, answer) != answer:
                    contradicting.add(key)
            survey.contradictions = len(contradicting)
        else:
            survey.overlap[name] = sum(key in training_inputs for key in set(keys))
    return survey


def count_labels(task: Task, encoded: datasets.Dataset) -> Counter:
    """How often each label occurs among the targets; empty where the task has no named labels."""
    names = task.config_fields().get("id2label")
    counts: Counter = Counter()
    if names is None or "labels" not in encoded.column_names or len(names) < 2:
        return counts
    for labels in encoded["labels"]:
        if isinstance(labels, list) and labels and isinstance(labels[0], float):  # several labels: 0 or 1 for each
            counts.update(names[i] for i, there in enumerate(labels) if there)
        else:
            counts.update(names[int(i)] for i in (labels if isinstance(labels, list) else [labels]) if i >= 0)
    return counts


def propose(task: Task, survey: Survey, limit: int, given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """What to train with, and why: two dictionaries with the same keys, names of arguments. What is `given` stays."""
    rows, lengths = survey.rows["train"], survey.lengths["train"]
    longest = int(np.percentile(lengths, 99)) if len(lengths) else limit
    max_length = min(limit, -(-max(task.shortest_input, longest) // 8) * 8)
    small = rows < 5000
    rest = rows <= HEAD_ONLY_ROWS and "lora" not in given and "layerwise_lr_decay" not in given  # both train layers
    freeze = given.get("freeze", "encoder" if rest else "none")
    head_only = freeze == "encoder"
    choices = {
        "freeze": freeze,
        "max_length": max_length,
        "per_device_train_batch_size": 16 if rows < 2000 else 32,
        "learning_rate": 1e-3 if head_only else 1e-4,
        "num_train_epochs": 20 if rows <= HEAD_ONLY_ROWS and head_only else 8 if small else 3,
        "seeds": 3 if rows < 2000 and "compare" not in given else 1,
        "patience": 3,
    }
    cut = float((lengths > given.get("max_length", max_length)).mean()) if len(lengths) else 0.0
    reasons = {
        "freeze": f"{rows:,} training rows: the head only"
        if head_only
        else f"{rows:,} training rows: enough to train all (above {HEAD_ONLY_ROWS})"
        if rows > HEAD_ONLY_ROWS
        else "layers train with what is given",
        "max_length": f"99 % of the inputs have up to {longest} tokens; {cut:.1%} are longer than {max_length}",
        "per_device_train_batch_size": "small data take more, noisier steps" if rows < 2000 else "the usual batch",
        "learning_rate": "a head alone can learn fast"
        if head_only
        else "for small encoders; 5e-5 for base, 2e-5 for large",
        "num_train_epochs": "until validation stops it" if small else "the usual number; validation may stop it",
        "seeds": "few rows make scores vary with the seed" if choices["seeds"] > 1 else "enough rows, or --compare",
        "patience": f"stop after so many evaluations without a better {task.metric_for_best_model}",
    }
    counts = survey.labels["train"]
    if counts and task.metric_for_best_model == "accuracy" and max(counts.values()) > 0.7 * sum(counts.values()):
        choices["metric_for_best_model"] = "f1_macro"
        reasons["metric_for_best_model"] = (
            f"{counts.most_common(1)[0][0]!r} is most of the rows: accuracy hides the rest"
        )
    if "max_steps" in given:
        del choices["num_train_epochs"]
    if given.get("eval_strategy") == "no" or not given.get("load_best_model_at_end", True):
        del choices["patience"]
    reasons = {name: reasons[name] for name in choices} | dict.fromkeys(given, "as given")
    return choices | given, reasons


def step_seconds(
    task: Task,
    splits: datasets.DatasetDict,
    encoded: dict[str, datasets.Dataset],
    arguments: FinetuneArguments,
    training: TrainingArguments,
    model: torch.nn.Module,
    choices: dict[str, Any],
) -> float:
    """Seconds of a training step, from a few of them on random rows; the model is thrown away."""
    arguments = dataclasses.replace(arguments, freeze=choices["freeze"], patience=0)
    chosen = {name: choices[name] for name in ("per_device_train_batch_size", "learning_rate")}
    training = settle(dataclasses.replace(training, num_train_epochs=1.0, **chosen))
    trainer = make_trainer(model, training, task, splits, encoded, arguments)
    trainer.create_optimizer()
    dtype, device = precision_of(training), training.device
    batches = iter(trainer.get_train_dataloader())
    taken = []
    trainer.model.train()
    for _ in range(TIMED_STEPS + 1):  # the first one warms up
        batch = next(batches, None)
        if batch is None:
            break
        start = time.perf_counter()
        with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
            loss = trainer.model(**{name: value.to(device) for name, value in batch.items()}).loss
        loss.backward()
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()
        loss.item()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken[1:] or taken)


def backbone_times(config: MiniBertConfig, seconds: float) -> dict[str, tuple[int, float]]:
    """For every size of ModernBERT, the parameters of its blocks and the seconds that this training would take with it:
    the measured ones, scaled by the work per token."""
    ours = _block_parameters(config)
    sizes = {}
    for size in ("tiny", "mini", "small", "medium", "base", "large"):
        theirs = _block_parameters(MiniBertConfig.modernbert(size))
        sizes[size] = (theirs, seconds * theirs / ours)
    return sizes


def as_recipe(task: Task, choices: dict[str, Any], reasons: dict[str, str]) -> str:
    """The choices as YAML, the reason behind each."""
    lines = [f"# minibert finetune {task.name} --recipe {RECIPE}"]
    for name, value in choices.items():
        text = f"{name}: {json.dumps(value, ensure_ascii=False)}"
        lines.append(f"{text}  # {reasons[name]}" if name in reasons else text)
    return "\n".join(lines) + "\n"


def as_page(
    task: Task,
    survey: Survey,
    choices: dict[str, Any],
    reasons: dict[str, str],
    seconds: float,
    backbones: dict[str, tuple[int, float]],
    output: Path,
) -> str:
    """The plan for people, in Markdown."""
    lines = [f"# Plan: {task.name}", "", "## The data", ""]
    lines += ["| split | rows | tokens: median, 95 %, longest | repeated | also in train |", "|---|---|---|---|---|"]
    for name, rows in survey.rows.items():
        lengths = survey.lengths[name]
        tokens = f"{np.median(lengths):.0f}, {np.percentile(lengths, 95):.0f}, {lengths.max()}" if len(lengths) else "–"
        overlap = survey.overlap.get(name)
        shared = "–" if overlap is None else f"{overlap:,}"
        lines.append(f"| {name} | {rows:,} | {tokens} | {survey.duplicates[name]:,} | {shared} |")
    lines.append("")
    if survey.contradictions:
        lines += [f"{survey.contradictions:,} inputs of the training split occur with different labels.", ""]
    if any(survey.overlap.values()):
        lines += ["Inputs that are also in train flatter the scores: remove them from it.", ""]
    if survey.bad:
        lines += [f"Bad rows, left out here, and to be mended before training ({len(survey.bad)}):", ""]
        lines += [*(f"- {said}" for said in survey.bad), ""]
    counts = survey.labels["train"]
    if counts:
        total = sum(counts.values())
        lines += ["| label | share in train |", "|---|---|"]
        lines += [f"| {label} | {count / total:.1%} ({count:,}) |" for label, count in counts.most_common(20)]
        lines += [f"| … {len(counts) - 20} more | |"] if len(counts) > 20 else []
        lines.append("")
    lines += ["## The proposal", "", f"- head: `{task.model_class.__name__}`"]
    lines += [f"- metric: {choices.get('metric_for_best_model', task.metric_for_best_model)}, on the validation rows"]
    lines += [f"- `{name}`: {value} – {reasons[name]}" for name, value in choices.items()]
    lines += [
        "",
        f"Estimated time with the model given, over all seeds, evaluation left out: {_duration(seconds)}.",
        "",
    ]
    fitting = [size for size, (_, time_taken) in backbones.items() if time_taken <= HOUR]
    lines += ["| size of ModernBERT | parameters of its blocks | estimated time |", "|---|---|---|"]
    lines += [f"| {size} | {parameters:,} | {_duration(taken)} |" for size, (parameters, taken) in backbones.items()]
    lines += ["", f"The largest size that trains within an hour here: {fitting[-1] if fitting else 'none'}."]
    lines += ["", f"Next: `minibert finetune {task.name} --recipe {output / RECIPE}`"]
    return "\n".join(lines) + "\n"


def _changed(arguments: Any) -> dict[str, Any]:
    """The arguments that are not at their default."""
    default = type(arguments)()
    return {name: value for name, value in vars(arguments).items() if value != getattr(default, name)}


def _block_parameters(config: MiniBertConfig) -> int:
    """Weights that every token is multiplied with: the matrices of the blocks."""
    width, inner = config.hidden_size, config.intermediate_size
    return config.num_hidden_layers * (4 * width * width + (3 if config.gated_mlp else 2) * width * inner)


def _duration(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 2 * HOUR
        else f"{seconds / HOUR:.1f} h"
    )


def _flat(ids: list) -> list[int]:
    """Token ids of an input; those of several choices one after the other."""
    return [token for part in _parts(ids) for token in part]


def _parts(ids: list) -> list[list[int]]:
    """What the model reads as one text each: the choices of a row, or the row."""
    return ids if ids and isinstance(ids[0], list) else [ids]
