"""`minibert finetune TASK --plan true`: look at the data, train nothing, and write a recipe: how to
train, by rules of thumb, each with its reason."""

import json
import os
import shlex
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import numpy as np

from ..common.files import atomic_write
from ..common.printable import printable
from ..common.training_result import TrainingResult
from .checks import check_before_reading
from .config import FinetuningConfig
from .reading.examples import read_and_learn
from .reading.splits import FilesOrRows
from .results import score_baseline
from .start_model import StartModel
from .survey import Survey, find_warnings, survey
from .tasks.base import Task

RECIPE_FILE = "recipe.yaml"
PAGE_FILE = "plan.md"
MAX_CLASS_SHARE = 0.7  # the share of a class from which on accuracy hides the others
# Rows of the rarest class that a model reads in a training, so that it does not ignore the class.
MIN_READS_OF_RAREST_CLASS = 1000
MAX_EPOCHS = 20
MIN_ROWS_OF_USUAL_BATCH = 2000  # of fewer training rows, a batch is smaller
MIN_ROWS_OF_FEW_EPOCHS = 5000  # of fewer training rows, there are more epochs
MAX_LISTED_LABELS = 20
UNLIMITED_LENGTH = 10**6  # a longest input, in tokens, that cuts none
AS_GIVEN = "as given"


class RecipeEntry(NamedTuple):
    """The value of an option in the recipe, and the reason for it."""

    value: Any
    reason: str


Recipe = dict[str, RecipeEntry]  # by option


def make_plan(
    task: Task,
    model: str | os.PathLike,
    args: FinetuningConfig,
    sources: Mapping[str, FilesOrRows],
    columns: list[str] | None,
    validation_size: float | None,
) -> TrainingResult:
    """Read the splits as a training would, and write a recipe.

    Args:
        sources: Where the splits are from: "data", "train", "validation" and "test".
        columns: Names of the columns of csv files without a header row.
        validation_size: As in `finetune`.
    """
    start = StartModel(model, do_train=True)
    check_before_reading(task, start, args, do_train=True)
    options: dict[str, Any] = {"model": str(model)}
    for name, value in (*sources.items(), ("columns", columns)):
        if value is not None:
            options[name] = value
    if validation_size is not None:
        options["validation_size"] = validation_size
    options |= task.options()
    splits = read_and_learn(task, start, args, sources, columns, validation_size, do_train=True)
    recipe = write_plan(task, splits, args, options)
    return TrainingResult(None, task.tokenizer, recipe, Path(args.output_dir))


def write_plan(
    task: Task, splits: datasets.DatasetDict, args: FinetuningConfig, options: dict[str, Any]
) -> dict[str, Any]:
    """Survey the splits, write `recipe.yaml` (for `--recipe`) and `plan.md` into the output folder,
    and print the page.

    Args:
        options: Those beside `args`, which stand in the recipe as they are.

    Returns:
        The recipe: options by name, also examples in memory, which its file only mentions.
    """
    surveys = _survey_uncut(task, splits)
    recipe = _make_recipe(task, surveys, task.tokenizer.model_max_length, args, options)

    output = Path(args.output_dir)
    recipe_lines = [f"# minibert finetune {task.name} --recipe {RECIPE_FILE}"]
    for name, entry in recipe.items():
        recipe_lines.append(_recipe_line(name, entry))
    with atomic_write(output / RECIPE_FILE) as unfinished:
        unfinished.write_text("\n".join(recipe_lines) + "\n", encoding="utf-8")
    page = [
        f"# Plan: {task.name}",
        *describe_splits(task, splits, surveys),
        *_describe_recipe(task, recipe, output / RECIPE_FILE),
    ]
    text = "\n".join(page)
    with atomic_write(output / PAGE_FILE) as unfinished:
        unfinished.write_text(text, encoding="utf-8")
    for line in text.split("\n"):
        print(printable(line))
    return {name: entry.value for name, entry in recipe.items()}


def _survey_uncut(task: Task, splits: datasets.DatasetDict) -> dict[str, Survey]:
    """The surveys of the splits, with all lengths as they are: no input is cut."""
    limit = task.tokenizer.model_max_length
    task.tokenizer.model_max_length = UNLIMITED_LENGTH
    try:
        surveys = {}
        for name, split in splits.items():
            surveys[name] = survey(task, split, task.encode(split))
    finally:
        task.tokenizer.model_max_length = limit
    return surveys


def _make_recipe(
    task: Task,
    surveys: Mapping[str, Survey],
    model_length: int,
    args: FinetuningConfig,
    options: Mapping[str, Any],
) -> Recipe:
    """What the user gave, as it is, and proposals for the rest. The order is that of the page:
    options beside `args`, proposals, fields of `args`."""
    user_settings = _changed_settings(args)
    user_options = {name: value for name, value in options.items() if value is not None}
    recipe = {}
    for name, value in user_options.items():
        recipe[name] = RecipeEntry(value, AS_GIVEN)
    for name, entry in propose(task, surveys, model_length, user_options | user_settings).items():
        recipe.setdefault(name, entry)
    for name, value in user_settings.items():  # in the place of a proposal, if there is one
        recipe[name] = RecipeEntry(value, AS_GIVEN)
    recipe["output_dir"] = RecipeEntry(str(args.output_dir), "where the trained model goes")
    return recipe


def _changed_settings(args: FinetuningConfig) -> dict[str, Any]:
    """The fields of `args` that are not the default, without the token of the Hub."""
    defaults = type(args)(args.output_dir).to_dict()
    changed = {}
    for name, value in args.to_dict().items():
        if value is not None and value != defaults[name] and name != "hub_token":
            changed[name] = value
    if "include_num_input_tokens_seen" in changed:
        changed["include_num_input_tokens_seen"] = True  # "all", as options take it
    return changed


# --- The proposal ---


def propose(
    task: Task, surveys: Mapping[str, Survey], model_length: int, options: Mapping[str, Any]
) -> Recipe:
    """What to train with, after a survey of the splits. A further proposal is an entry of
    `proposed`; the caller leaves out what the user has set.

    Args:
        model_length: The longest input of the model, in tokens.
        options: What the user has set, on which some proposals depend.
    """
    num_examples = surveys["train"].num_examples
    is_head_only = options.get("freeze") == "encoder"
    metric = task.metric_for_best_model
    hides_classes = metric == "accuracy" and _is_unbalanced(surveys["train"])
    if hides_classes:
        metric = "f1_macro"
    proposed = {
        # Whatever the number of examples: with 100 examples of SST-2 and all-MiniLM-L6-v2, a head
        # alone was 3 to 13 points worse in each of three seeds (benchmarks/results/pooling.json).
        "freeze": RecipeEntry("none", "all layers learn, from few rows too"),
        "max_length": _propose_length(task, surveys, model_length),
        "per_device_train_batch_size": RecipeEntry(32, "the usual batch"),
        "learning_rate": RecipeEntry(1e-4, "for small encoders; 5e-5 for base, 2e-5 for large"),
        "num_train_epochs": _propose_epochs(task, surveys["train"], is_head_only),
        "patience": RecipeEntry(
            3,
            f"once {options.get('metric_for_best_model', metric)} is above guessing, stop after so "
            "many evaluations without a better one",
        ),
    }
    if num_examples < MIN_ROWS_OF_USUAL_BATCH:
        reason = "few rows: a smaller batch gives more steps"
        proposed["per_device_train_batch_size"] = RecipeEntry(16, reason)
    if is_head_only:
        proposed["learning_rate"] = RecipeEntry(1e-3, "only the head is trained")
    if hides_classes:
        largest = surveys["train"].labels.most_common(1)[0][0]
        reason = f"most rows are {largest!r}, so accuracy hides the other classes"
        proposed["metric_for_best_model"] = RecipeEntry("f1_macro", reason)
        if "label_smoothing_factor" not in options:  # which does not go with it
            reason = "all classes then count alike in the loss"
            proposed["class_weights"] = RecipeEntry("balanced", reason)
    if "max_steps" in options or "minutes" in options:
        del proposed["num_train_epochs"]
    return proposed


def _propose_length(task: Task, surveys: Mapping[str, Survey], model_length: int) -> RecipeEntry:
    """A multiple of 8 that 99 of 100 inputs fit into."""
    percentiles = []
    for split in surveys.values():
        if len(split.lengths):
            percentiles.append(np.percentile(split.lengths, 99))
    longest = int(max(percentiles, default=model_length))
    multiple = -(-max(task.shortest_input, longest) // 8) * 8
    reason = f"99 % of the inputs of every split have up to {longest} tokens"
    return RecipeEntry(min(model_length, multiple), reason)


def _propose_epochs(task: Task, train: Survey, is_head_only: bool) -> RecipeEntry:
    """More epochs for few rows, for a head alone, and for a rare class."""
    epochs = 8 if train.num_examples < MIN_ROWS_OF_FEW_EPOCHS else 3
    if is_head_only:
        epochs = MAX_EPOCHS
    reason = f"for {train.num_examples:,} rows"
    rarest = min(train.labels.values(), default=train.num_examples)
    if task.metric_for_best_model == "accuracy" and rarest * epochs < MIN_READS_OF_RAREST_CLASS:
        epochs = min(MAX_EPOCHS, -(-MIN_READS_OF_RAREST_CLASS // rarest))
        reason = f"so that the model reads {rarest * epochs:,} rows of the rarest class"
    return RecipeEntry(epochs, f"{reason}; the learning rate falls over all epochs")


def _is_unbalanced(train: Survey) -> bool:
    """Whether most examples have one class."""
    largest = max(train.labels.values(), default=0)
    return largest > MAX_CLASS_SHARE * train.labels.total()


# --- The files ---


def _recipe_line(name: str, entry: RecipeEntry) -> str:
    """A line of the recipe in YAML, with the reason behind it."""
    if _is_in_memory(entry.value):
        return f"# {name}: rows in memory, which a file cannot name; give a file, or use Python"
    value = json.dumps(entry.value, ensure_ascii=False, default=str)
    return f"{name}: {value}  # {entry.reason}"


def _is_in_memory(value: Any) -> bool:
    return isinstance(value, (datasets.Dataset, datasets.DatasetDict))


def _describe_recipe(task: Task, recipe: Recipe, file: Path) -> list[str]:
    """The last part of the page, in Markdown."""
    lines = [f"## The proposal\n\n- head: `{task.model_class.__name__}`"]
    has_rows_in_memory = False
    for name, entry in recipe.items():
        value = entry.value
        if _is_in_memory(value):
            has_rows_in_memory = True
            value = "rows in memory"
        lines.append(f"- `{name}`: {value} – {entry.reason}")
    if has_rows_in_memory:
        call = f'minibert.finetune("{task.name}", **plan.report)'
        lines.append(f"\nNext, in Python: `{call}`, where `plan` is what `finetune` returned\n")
    else:
        command = ("minibert", "finetune", task.name, "--recipe", str(file))
        lines.append(f"\nNext: `{shlex.join(command)}`\n")
    return lines


def describe_splits(
    task: Task, splits: datasets.DatasetDict, surveys: Mapping[str, Survey]
) -> list[str]:
    """The first part of the page, in Markdown."""
    lines = ["\n## The data\n", *_splits_table(surveys)]
    lines += [f"- {line}" for line in find_warnings(task, surveys)]
    lines.append("")
    for name, scores in score_baseline(task, splits["train"], splits).items():
        scores_in_words = []
        for metric, score in scores.items():
            if score is not None:
                scores_in_words.append(f"{metric} {score:.4f}")
        reached = ", ".join(scores_in_words)
        lines.append(f"Without a model, {task.baseline_name} reaches on {name}: {reached}.\n")
    return lines + _describe_labels(surveys["train"])


def _splits_table(surveys: Mapping[str, Survey]) -> list[str]:
    """The sizes of the splits, in Markdown."""
    rows = []
    for name, split in surveys.items():
        percentiles = (0, 0, 0)
        if len(split.lengths):
            percentiles = np.percentile(split.lengths, (50, 95, 100))
        tokens = ", ".join(f"{length:.0f}" for length in percentiles)
        shared = "–"
        if name != "train":
            shared = f"{split.shared_with(surveys['train']):,}"
        rows.append((name, f"{split.num_examples:,}", tokens, f"{split.num_repeated:,}", shared))
    header = ("split", "rows", "tokens: median, 95 %, longest", "repeated", "also in train")
    return _table(header, rows)


def _describe_labels(train: Survey) -> list[str]:
    """The shares of the labels, in Markdown; nothing for a task without labels."""
    if not train.labels:
        return []
    rows = []
    for label, count in train.labels.most_common(MAX_LISTED_LABELS):
        rows.append((label, f"{count / train.num_labelled:.1%} ({count:,})"))
    if len(train.labels) > MAX_LISTED_LABELS:
        rows.append((f"… {len(train.labels) - MAX_LISTED_LABELS} more", ""))
    return _table(("label", "share in train"), rows)


def _table(header: Collection[str], rows: Iterable[Collection[str]]) -> list[str]:
    """The lines of a table in Markdown."""
    lines = []
    for cells in (header, ["---"] * len(header), *rows):
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]
