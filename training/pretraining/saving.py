"""What a pretraining leaves beside its model: the report, the card and the loss curve."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import has_length

from ...configuration_minibert import vocabulary_size
from ..common.files import atomic_write, write_json
from ..common.precision import precision_name
from ..common.printing import warn
from ..evaluation.plots import plot_training
from ..hub.card import save_card
from .card import card_facts
from .objectives.base import unigram_baseline
from .report import BASELINE_LOSSES, describe_pretraining, judge_pretraining

if TYPE_CHECKING:
    from .trainer import PretrainingTrainer


def save_results(trainer: "PretrainingTrainer", folder: Path) -> dict[str, Any]:
    """Write the report, the loss curve and the card beside a saved model, and print the report. All
    processes take part, since the model is measured if it was not; the first one writes. Returns
    the report."""
    report = make_report(trainer)
    if not trainer.is_world_process_zero():
        return report
    with atomic_write(Path(trainer.args.output_dir, TRAINER_STATE_NAME)) as unfinished:
        trainer.state.save_to_json(str(unfinished))
    save_loss_curve(trainer, report, folder / "loss.png")
    write_json(folder / "report.json", report)
    trainer.card = card_facts(trainer, report)
    save_card(folder, trainer.card, trainer.args.hub_model_id)
    print("", describe_pretraining(report), sep="\n")
    warn(report["warning"])
    return report


def make_report(trainer: "PretrainingTrainer") -> dict[str, Any]:
    """The metrics of the model that is kept, and of the whole training."""
    state = trainer.state
    if trainer.report is not None and trainer.report["steps"] == state.global_step:
        return trainer.report  # saved again: a further training forgets the report
    tokenizer = trainer.processing_class
    objective = trainer.objective
    unigram = unigram_baseline(
        trainer.sample_rows,
        trainer.evaluation_batches(trainer.eval_dataset),
        vocabulary_size(tokenizer),
        tokenizer.all_special_ids,
    )
    report = objective.make_report(trainer.metrics_of_kept_model(), unigram)
    if trainer.extension is not None:
        report["extension"] = trainer.extension.metrics()
    if f"start_{objective.metric}" in trainer.start_metrics:
        report["start_loss"] = trainer.start_metrics[f"start_{objective.metric}"]
    if "start_accuracy" in trainer.start_metrics:
        report["start_accuracy"] = trainer.start_metrics["start_accuracy"]
    report["objective"] = objective.name
    report["steps"] = state.global_step
    report["epochs"] = None
    if has_length(trainer.train_dataset):
        report["epochs"] = state.epoch
    report["training_tokens"] = state.num_input_tokens_seen
    report["training_seconds"] = trainer.training_seconds
    report["parameters"] = objective.model_to_save(trainer.model).num_parameters()
    report["precision"] = precision_name(trainer.args)
    report["warning"] = judge_pretraining(report)
    return report


def save_loss_curve(trainer: "PretrainingTrainer", report: dict[str, Any], path: Path) -> None:
    """Draw the losses of the training, with those that the report compares its loss with."""
    baseline_losses = {}
    for name in BASELINE_LOSSES:
        if report.get(name) is not None:
            baseline_losses[name] = report[name]
    plot_training(trainer.state.log_history, path, trainer.objective.metric, baseline_losses)
