"""What a fine-tuning leaves beside its model: the card, the metrics, mistakes and the picture."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..common.files import atomic_write
from ..common.precision import precision_name
from ..common.printing import warn
from ..hub.card import save_card
from ..loop.divergence import few_steps_warning
from .card import card_facts
from .results import FILES_DESCRIPTION, Results

if TYPE_CHECKING:
    from .trainer import FinetuningTrainer

TRAINER_STATE_FILE = "trainer_state.json"
# The last batch of an epoch may be left out.
MIN_EPOCHS = 0.95


def save_results(trainer: "FinetuningTrainer", folder: Path) -> dict[str, Any]:
    """Write the card, the metrics, the mistakes and the picture of a model that was trained and
    measured beside it, and print its scores. Returns the report, which is empty in a process that
    saves nothing."""
    if not trainer.args.should_save:  # one of several processes saves
        return {}
    short_training = short_training_warning(trainer)
    results = trainer.results(training_warning=short_training)
    report = make_report(trainer, results)
    trainer.card = card_facts(trainer, report, results)
    if short_training is not None and short_training != results.warning:
        trainer.card.notes.append(short_training)

    with atomic_write(folder / TRAINER_STATE_FILE) as unfinished:
        trainer.state.save_to_json(str(unfinished))
    save_card(folder, trainer.card, trainer.args.hub_model_id)
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
        "model": trainer.resume_settings["model"],
        "settings": trainer.resume_settings,
        "precision": precision_name(trainer.args),
        "seed": trainer.args.seed,
        **trainer.scores,
        **trainer.describe_training(),
        **results.make_report(),
    }


def print_training(report: Mapping[str, Any]) -> None:
    """Say how much was trained, and for how long."""
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


def short_training_warning(trainer: "FinetuningTrainer") -> str | None:
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
