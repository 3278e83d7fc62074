"""`minibert finetune TASK --plan true`: look at the data, train nothing, and propose how to train, by rules of thumb,
each with its reason."""

import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import datasets
import numpy as np

from ..common.files import printable
from .config import FinetuningConfig
from .results import baseline
from .survey import Survey, survey, warnings
from .tasks.base import Task

RECIPE, PAGE = "recipe.yaml", "plan.md"
HEAD_ONLY_ROWS = 200  # up to here a full fine-tuning mostly learns the rows by heart
MOST = 0.7  # the share of a class from which on accuracy hides the others
SEEN = 1000  # rows of the rarest class that a model reads in a training, so that it does not ignore the class


def write_plan(
    task: Task, splits: datasets.DatasetDict, args: FinetuningConfig, given: dict[str, Any]
) -> dict[str, Any]:
    """Survey the splits, write `recipe.yaml` (for `--recipe`) and `plan.md` into the output folder, and print the page.
    `given`: the options beside `args`, which stand in the recipe as they are. Returns the recipe, options by name."""
    limit, task.tokenizer.model_max_length = (
        task.tokenizer.model_max_length,
        10**6,
    )  # to see all lengths as they are
    surveys = {name: survey(task, split, task.encode(split)) for name, split in splits.items()}
    default = type(args)(args.output_dir).to_dict()
    changed = {
        k: v
        for k, v in args.to_dict().items()
        if v is not None and v != default[k] and k != "hub_token"
    }
    if "include_num_input_tokens_seen" in changed:
        changed["include_num_input_tokens_seen"] = True  # "all", as options take it
    recipe = {name: (value, "as given") for name, value in given.items() if value is not None}
    proposed = propose(task, surveys, limit, given | changed)
    recipe |= {name: entry for name, entry in proposed.items() if name not in recipe}
    recipe |= {name: (value, "as given") for name, value in changed.items()}
    output = Path(args.output_dir)
    recipe["output_dir"] = str(output), "where the trained model goes"
    lines = [f"# minibert finetune {task.name} --recipe {RECIPE}"]
    for name, (value, why) in recipe.items():
        lines.append(f"{name}: {json.dumps(value, ensure_ascii=False, default=str)}  # {why}")
    (output / RECIPE).write_text("\n".join([*lines, ""]), encoding="utf-8")
    page = [
        f"# Plan: {task.name}",
        *describe_data(task, splits, surveys),
        f"## The proposal\n\n- head: `{task.model_class.__name__}`",
        *(f"- `{name}`: {value} – {why}" for name, (value, why) in recipe.items()),
        f"\nNext: `minibert finetune {task.name} --recipe {output / RECIPE}`\n",
    ]
    (output / PAGE).write_text("\n".join(page), encoding="utf-8")
    print(*map(printable, "\n".join(page).split("\n")), sep="\n")
    return {name: value for name, (value, _) in recipe.items()}


def propose(
    task: Task, surveys: Mapping[str, Survey], limit: int, given: dict[str, Any]
) -> dict[str, tuple[Any, str]]:
    """What to train with, after a survey of the splits, and why: the value and the reason by option."""
    rows, counts = surveys["train"].rows, surveys["train"].labels
    longest = max(
        (int(np.percentile(x.lengths, 99)) for x in surveys.values() if len(x.lengths)),
        default=limit,
    )
    max_length = min(limit, -(-max(task.shortest_input, longest) // 8) * 8)
    few = rows <= HEAD_ONLY_ROWS and "lora" not in given
    freeze = given.get("freeze", "encoder" if few else "none")
    enough = "enough to train all" if rows > HEAD_ONLY_ROWS else "layers train"
    head_only, rarest = freeze == "encoder", min(counts.values(), default=rows)
    own = task.metric_for_best_model
    hides = own == "accuracy" and counts and max(counts.values()) > MOST * counts.total()
    metric = given.get("metric_for_best_model", "f1_macro" if hides else own)
    epochs = 20 if head_only else 8 if rows < 5000 else 3
    why = f"for {rows:,} rows"
    if own == "accuracy" and SEEN / rarest > epochs:
        epochs = min(20, -(-SEEN // rarest))
        why = f"so that the model reads {rarest * epochs:,} rows of the rarest class"
    proposed = {
        "freeze": (freeze, f"{rows:,} training rows: {'the head only' if head_only else enough}"),
        "max_length": (
            max_length,
            f"99 % of the inputs of every split have up to {longest} tokens",
        ),
        "per_device_train_batch_size": (16, "few rows: a smaller batch gives more steps")
        if rows < 2000
        else (32, "the usual batch"),
        "learning_rate": (1e-3, "only the head is trained")
        if head_only
        else (1e-4, "for small encoders; 5e-5 for base, 2e-5 for large"),
        "num_train_epochs": (epochs, f"{why}; the learning rate falls over all epochs"),
        "patience": (
            3,
            f"once {metric} is above guessing, stop after so many evaluations without a better one",
        ),
    }
    if hides:
        why = f"most rows are {counts.most_common(1)[0][0]!r}, so accuracy hides the other classes"
        proposed["metric_for_best_model"] = ("f1_macro", why)
        if "label_smoothing_factor" not in given:  # which does not go with it
            proposed["class_weights"] = ("balanced", "all classes then count alike in the loss")
    if "max_steps" in given:
        del proposed["num_train_epochs"]
    return proposed


def describe_data(
    task: Task, splits: datasets.DatasetDict, surveys: dict[str, Survey]
) -> list[str]:
    """The first part of the page, in Markdown."""
    rows, train = [], surveys["train"]
    for name, split in surveys.items():
        middle, most, longest = (
            np.percentile(split.lengths, (50, 95, 100)) if len(split.lengths) else (0, 0, 0)
        )
        shared = "–" if name == "train" else f"{split.shared_with(train):,}"
        tokens = f"{middle:.0f}, {most:.0f}, {longest:.0f}"
        rows.append((name, f"{split.rows:,}", tokens, f"{split.repeated:,}", shared))
    lines = ["\n## The data\n"]
    lines += _table(
        ("split", "rows", "tokens: median, 95 %, longest", "repeated", "also in train"), rows
    )
    if train.contradictions:
        lines += [
            f"{train.contradictions:,} inputs of the training split occur with different labels.\n"
        ]
    lines += [*(f"- {line}" for line in warnings(task, surveys)), ""]
    for name, scores in baseline(task, splits).items():
        known = (f"{metric} {score:.4f}" for metric, score in scores.items() if score is not None)
        lines += [f"Without a model, {task.baseline} reaches on {name}: {', '.join(known)}.\n"]
    if counts := train.labels:
        rows = [
            (label, f"{count / train.labelled:.1%} ({count:,})")
            for label, count in counts.most_common(20)
        ]
        rows += [(f"… {len(counts) - 20} more", "")] if len(counts) > 20 else []
        lines += _table(("label", "share in train"), rows)
    return lines


def _table(header: Collection[str], rows: Iterable[Collection[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)] + [""]
