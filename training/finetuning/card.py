"""The card of a fine-tuned model."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..hub.card import headlines
from ..hub.example import Example
from ..hub.facts import (
    CardFacts,
    CardMetric,
    SplitFacts,
    add_source,
    facts_from_trainer,
)
from ..hub.origin import read_origin
from .class_weights import describe_weights
from .reading.columns import ROW
from .results import Results
from .tasks.display import most_frequent_first
from .tasks.predictions import LABEL

if TYPE_CHECKING:
    from .trainer import FinetuningTrainer

MAX_EXAMPLE_CHARACTERS = 500


def card_facts(
    trainer: "FinetuningTrainer", report: Mapping[str, Any], results: Results
) -> CardFacts:
    """What the card says."""
    task = trainer.task
    files = trainer.source_names
    training_files = ", ".join(files[name] for name in ("data", "train") if name in files)

    # The training
    facts = facts_from_trainer(vars(trainer.state), trainer.args, training_files)
    facts.training = {"task": report["task"], **facts.training}
    facts.training["steps"] += f", step {report['best_step']:,} kept"
    if report["training_seconds"] is None:
        del facts.training["time"]
    if task.learned.label_weights is not None:
        weights = describe_weights(task.label_names, task.learned.label_weights)
        facts.training["class weights"] = weights.removeprefix("class_weights: ")
    facts.max_length = task.tokenizer.model_max_length
    add_source(facts, read_origin(report["model"]))

    # The examples
    facts.splits = split_facts(trainer, files)
    facts.notes = list(trainer.row_warnings)
    facts.example = choose_predicted_example(trainer, results)

    # The scores
    facts.results = headlines(measured_results(results, facts.splits))
    facts.results_note = describe_validation_choices(trainer)
    facts.baseline_name = results.baseline_name
    if results.simple_scores:
        facts.simple_model_name = task.simple_model_name
    facts.are_comparable = not results.is_too_easy
    facts.by_class = most_frequent_first(results.by_class[results.last])
    facts.by_class_split = results.last
    facts.pipeline_scores = results.pipeline_scores.get(results.last, {})
    if trainer.chosen_thresholds is not None:
        facts.decisions = trainer.chosen_thresholds.describe(task.label_names)
    facts.warning = results.warning
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
        counts = trainer.task.counts_by_class(trainer.label_counts[name])
        num_labelled = trainer.task.total_of_shares(counts, len(examples))
        facts[name] = SplitFacts(len(examples), source, counts, num_labelled)
    return facts


def measured_results(results: Results, splits: Mapping[str, SplitFacts]) -> list[CardMetric]:
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
                baseline_value=results.baseline_scores[split].get(metric),
                interval=results.intervals[split].get(metric),
                simple_model_value=results.simple_scores.get(split, {}).get(metric),
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
    chosen = None
    for index, example in enumerate(predictions.examples):
        inputs = task.example_inputs(example)
        if len(str(inputs)) > MAX_EXAMPLE_CHARACTERS:
            continue
        is_right = not task.mistake(decoded[index], example[LABEL], 1.0)
        if chosen is None or is_right:
            chosen = (index, example, inputs)
        if is_right:
            break
    if chosen is None:
        return None
    index, example, inputs = chosen
    true_label = task.show_label(example, example[LABEL])
    description = (
        f"The example is row {example.get(ROW, index + 1):,} of the {split} rows;"
        f" its label in the data: {true_label}."
    )
    return Example(inputs, description)
