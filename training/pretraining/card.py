"""The card of a pretrained model."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from transformers import TrainingArguments

from ..data.entries import describe_data
from ..hub.example import Example
from ..hub.facts import CardFacts, CardMetric, add_source, describe_training
from ..hub.origin import read_origin
from .objectives import OBJECTIVES

if TYPE_CHECKING:
    from .trainer import PretrainingTrainer

# Fields of `PretrainingConfig` that the card names.
FIELDS_ON_CARD = (
    "embedding_init",
    "validation_size",
    "seq_length",
    "packing",
    "optimizer",
    "muon_learning_rate",
    "minutes",
)
# What the card of a pretrained model shows of its report.
PRETRAINING_METRICS = (
    "loss",
    "perplexity",
    "accuracy",
    "nsp_loss",
    "nsp_accuracy",
    "sop_loss",
    "sop_accuracy",
)


def card_facts(trainer: "PretrainingTrainer", report: dict[str, Any]) -> CardFacts:
    """What the card says."""
    recipe = {name: getattr(trainer.args, name) for name in FIELDS_ON_CARD}
    recipe |= trainer.objective.masking_options
    texts = trainer.held_out_texts()
    return pretraining_card_facts(
        report,
        trainer.reader.data_names,
        recipe,
        trainer.args,
        started_from=trainer.model.config._name_or_path or None,
        example=trainer.objective.card_example(texts, trainer.processing_class),
    )


def pretraining_card_facts(
    report: dict[str, Any],
    data_names: Sequence[str],
    recipe: dict[str, Any],
    args: TrainingArguments,
    started_from: str | None = None,
    example: Example | None = None,
) -> CardFacts:
    """What the card of a pretraining says.

    Args:
        report: the metrics of `minibert pretrain`.
        data_names: what the model was trained on; of a file the card shows the name alone.
        recipe: the arguments of rows, masking and optimization, by name.
        started_from: the saved model that was trained further.
        example: a held-out text for the snippet.
    """
    training_facts = _training_facts(report, recipe, args)
    objective = OBJECTIVES[training_facts["objective"]]
    facts = CardFacts(
        data=describe_data(data_names),
        training=training_facts,
        results=_pretraining_results(report, objective.baseline_prefix),
        results_note=f"At {report['targets']:,} targets of held-out documents.",
        baseline_name=objective.baseline_name,
        warning=report.get("warning"),
        max_length=recipe["seq_length"],
        example=example,
    )
    if started_from:
        add_source(facts, read_origin(started_from))
        facts.origin = "Trained further from"
    return facts


def _training_facts(
    report: dict[str, Any], recipe: dict[str, Any], args: TrainingArguments
) -> dict[str, str]:
    """Recipe, machine, steps and time; the arguments are those of `pretraining_card_facts`."""
    steps = f"{report['steps']:,}"
    if report["epochs"] is not None:
        steps += f" ({report['epochs']:.2f} epochs)"
    arguments = []
    for name, value in recipe.items():
        if isinstance(value, float):
            arguments.append(f"{name} {value:g}")
        elif str(value) not in ("None", "False", "[]"):
            arguments.append(f"{name} {value}")
    facts = {
        "objective": report.get("objective", "mlm"),
        "steps": steps,
        "tokens": f"{report['training_tokens']:,}",
        "arguments": ", ".join(arguments),
    }
    if report["training_seconds"]:
        facts["time"] = f"{report['training_seconds'] / 60:.1f} minutes"
    facts |= describe_training(args)
    if recipe.get("optimizer") == "muon":
        others = facts["optimizer"]
        facts["optimizer"] = f"Muon for the matrices of the blocks; for the rest {others}"
    return facts


def _pretraining_results(report: dict[str, Any], prefix: str) -> list[CardMetric]:
    """The metrics in the report of a pretraining, each beside that of the baseline, whose names
    begin with `prefix`."""
    results = []
    for metric in PRETRAINING_METRICS:
        value = report.get(metric, report.get(f"validation_{metric}"))
        if value is not None:
            baseline_value = report.get(prefix + metric)
            result = CardMetric(metric, value, "held-out documents", "validation", baseline_value)
            results.append(result)
    return results
