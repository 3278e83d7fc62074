"""What a fine-tuning leaves beside its model: the card, the metrics, mistakes and the picture."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..common.printing import warn
from ..hub.card import headlines, save_card
from ..hub.example import Example
from ..hub.facts import (
    CardFacts,
    CardMetric,
    SplitFacts,
    add_source,
    facts_from_trainer,
    name_without_folder,
)
from ..hub.origin import read_origin
from ..loop.divergence import few_steps_warning
from .class_weights import describe_weights
from .reading.columns import ROW
from .reading.splits import FilesOrRows
from .results import FILES_DESCRIPTION, Results
from .tasks.predictions import LABEL

if TYPE_CHECKING:
    from .trainer import FinetuningTrainer

TRAINER_STATE_FILE = "trainer_state.json"
# The last batch of an epoch may be left out.
MIN_EPOCHS = 0.95
MAX_EXAMPLE_CHARACTERS = 500


def save_results(trainer: "FinetuningTrainer", folder: Path) -> dict[str, Any]:
    """Write the card, the metrics, the mistakes and the picture of a model that was trained and
    measured beside it, and print its scores. Returns the report, which is empty in a process that
    saves nothing."""
    if not trainer.args.should_save:  # one of several processes saves
        return {}
    short_training = warn_of_short_training(trainer)
    results = trainer.results(training_warning=short_training)
    report = make_report(trainer, results)
    facts = card_facts(trainer, report, results)
    if short_training is not None and short_training != results.warning:
        facts.notes.append(short_training)

    trainer.state.save_to_json(str(folder / TRAINER_STATE_FILE))
    trainer.card = facts
    save_card(folder, facts, trainer.args.hub_model_id)
    print_training(report)
    print(f"\n{results.describe()}\n")
    results.save(report, folder)
    print(f"Saved to {folder}: {describe_files(trainer)}")
    warn(results.warning)
    return report


def make_report(trainer: "FinetuningTrainer", results: Results) -> dict[str, Any]:
    """The report, as it stands in `metrics.json`."""
    return {
        "task": trainer.task.name,
        "model": trainer.settings["model"],
        "settings": trainer.settings,
        "precision": precision_of(trainer.args),
        "seed": trainer.args.seed,
        **trainer.scores,
        **trainer.describe_training(),
        **results.report(),
    }


def print_training(report: Mapping[str, Any]) -> None:
    print(
        f"\n{report['trained_parameters']:,} of {report['parameters']:,} parameters trained for"
        f" {report['steps']:,} steps ({report['epochs']:.2f} epochs), {report['precision']};"
        f" kept: step {report['best_step']:,}"
    )


def describe_files(trainer: "FinetuningTrainer") -> str:
    """What is in the folder."""
    trained_length = trainer.task.tokenizer.model_max_length
    saved_length = trainer.tokenizer_to_save().model_max_length
    model = "the model"
    if saved_length > trained_length:
        model = (
            f"the model (it reads {saved_length:,} tokens, also if trained on {trained_length:,})"
        )
    card = "README.md (the card)"
    if trainer.card.example is not None:
        card = "README.md (the card, with a row of your validation data as its example)"
    return f"{model}, the tokenizer, {card}, {FILES_DESCRIPTION}"


def warn_of_short_training(trainer: "FinetuningTrainer") -> str | None:
    """A warning if new weights had few steps, or if some examples were not learned from; else
    None."""
    if trainer.has_new_weights:
        warning = few_steps_warning(trainer.state.global_step)
        if warning is not None:
            return warning
    epochs = trainer.state.epoch
    if epochs is not None and epochs < MIN_EPOCHS:
        return (
            f"trained for {epochs:.2f} epochs only, so that it has not seen all rows; train longer"
        )
    return None


def precision_of(args: Any) -> str:
    if args.bf16:
        return "bf16"
    if args.fp16:
        return "fp16"
    return "fp32"


def describe_source(source: FilesOrRows) -> str:
    """The source of examples, for the card."""
    if isinstance(source, (str, os.PathLike)):
        return name_without_folder(str(source))
    if isinstance(source, (list, tuple)):
        return ", ".join(name_without_folder(str(path)) for path in source)
    return "a data set in memory"


def card_facts(
    trainer: "FinetuningTrainer", report: Mapping[str, Any], results: Results
) -> CardFacts:
    """What the card says."""
    files = {}
    for name, source in trainer.sources.items():
        if source is not None:
            files[name] = describe_source(source)
    training_files = ", ".join(files[name] for name in ("data", "train") if name in files)
    facts = facts_from_trainer(vars(trainer.state), trainer.args, training_files)
    facts.training = {"task": report["task"], **facts.training}
    facts.training["steps"] += f", step {report['best_step']:,} kept"
    if report["training_seconds"] is None:
        del facts.training["time"]
    task = trainer.task
    if task.learned.label_weights is not None:
        weights = describe_weights(task.label_names, task.learned.label_weights)
        facts.training["class weights"] = weights.removeprefix("class_weights: ")
    facts.splits = split_facts(trainer, files)
    facts.results = headlines(measured_results(trainer, results, facts.splits))
    facts.results_note = describe_validation_choices(trainer)
    facts.baseline = results.baseline_name
    if results.simple_scores:
        facts.simple_model = task.simple_model
    facts.are_comparable = not results.is_too_easy
    by_class = results.by_class[results.last]
    most_frequent_first = sorted(by_class, key=lambda name: -by_class[name]["support"])
    facts.by_class = {name: by_class[name] for name in most_frequent_first}
    facts.by_class_split = results.last
    if trainer.chosen_thresholds is not None:
        facts.decisions = trainer.chosen_thresholds.describe(task.label_names)
    facts.pipeline_scores = results.pipeline_scores.get(results.last, {})
    facts.warning = results.warning
    facts.notes = list(trainer.row_warnings)
    facts.example = choose_predicted_example(trainer, results)
    add_source(facts, read_origin(report["model"]))
    facts.max_length = task.tokenizer.model_max_length
    return dataclasses.replace(facts, **task.card_fields())


def split_facts(trainer: "FinetuningTrainer", files: Mapping[str, str]) -> dict[str, SplitFacts]:
    """How many examples each split has, and where they are from.

    Args:
        files: The sources of the splits, in words, by split.
    """
    facts = {}
    for name, examples in trainer.splits.items():
        source = files.get(name) or files.get("data")
        if source is None:
            source = f"{files['train']}, held out"
        counts = trainer.task.class_counts(trainer.label_counts[name])
        num_labelled = trainer.task.count_labelled(counts, len(examples))
        facts[name] = SplitFacts(len(examples), source, counts, num_labelled)
    return facts


def measured_results(
    trainer: "FinetuningTrainer", results: Results, splits: Mapping[str, SplitFacts]
) -> list[CardMetric]:
    """The scores of all splits, with what stands beside them."""
    measured = []
    for split, scores in results.scores.items():
        for metric, value in scores.items():
            if value is None:
                continue
            result = CardMetric(
                metric,
                value,
                splits[split].source,
                split,
                baseline=results.baseline[split].get(metric),
                interval=results.intervals[split].get(metric),
                simple=results.simple_scores.get(split, {}).get(metric),
            )
            measured.append(result)
    return measured


def describe_validation_choices(trainer: "FinetuningTrainer") -> str:
    """What was chosen on the validation examples, on which the scores are too high by that."""
    args = trainer.args
    choices = []
    if args.load_best_model_at_end and args.eval_strategy != "no":
        choices.append("the checkpoint")
    if trainer.chosen_thresholds is not None:
        choices.append("the threshold")
    if not choices:
        return "None of these rows was used in training, and nothing was chosen on them."
    note = (
        "The model was not trained on these rows. The scores on the validation rows are a little"
        f" too high, because these were chosen by them: {', '.join(choices)}."
    )
    if "test" in trainer.splits:
        return f"{note} Nothing was chosen on the test rows."
    return f"{note} There are no test rows."


def choose_predicted_example(trainer: "FinetuningTrainer", results: Results) -> Example | None:
    """The first short validation example that the model gets right, or else the first short one."""
    task = trainer.task
    split = next(iter(results.predictions))
    predictions = results.predictions[split]
    decoded = results.decoded[split]
    first_short = None
    for index, example in enumerate(predictions.examples):
        inputs = task.example_inputs(example)
        if len(str(inputs)) > MAX_EXAMPLE_CHARACTERS:
            continue
        if first_short is None:
            first_short = (index, example, inputs)
        if not task.mistake(decoded[index], example[LABEL], 1.0):
            first_short = (index, example, inputs)
            break
    if first_short is None:
        return None
    index, example, inputs = first_short
    true_label = task.show_label(example, example[LABEL])
    description = (
        f"The example is row {example.get(ROW, index + 1):,} of the {split} rows;"
        f" its label in the data: {true_label}."
    )
    return Example(inputs, description)
