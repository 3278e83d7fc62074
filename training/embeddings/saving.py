"""What a training of an embedding model or a reranker leaves beside its model: the card, the report
and the picture."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..common.files import write_json
from ..common.printing import warn
from ..data.tables import name_of_data
from ..evaluation.baselines import judge
from ..evaluation.plots import plot_training
from ..hub.card import save_card
from .card import card_facts

if TYPE_CHECKING:
    from .trainers.sentence_trainer import SentenceTrainerMixin


def save_results(trainer: "SentenceTrainerMixin", folder: Path) -> dict[str, Any]:
    """Write the card, the report and the picture of a model that was trained and measured beside
    it. Returns the report, which is empty in a process that saves nothing."""
    if not trainer.args.should_save:  # one of several processes saves
        return {}
    report = make_report(trainer)
    trainer.card = card_facts(trainer, report)
    save_card(folder, trainer.card, trainer.args.hub_model_id)
    report["training"] = trainer.card.training
    write_json(folder / "report.json", report)
    metric = report["metric"]
    reference_lines = {"before this training": report["before"][metric]}
    plot_training(trainer.state.log_history, folder / "training.png", metric, reference_lines)
    warn(report["warning"])
    print(
        f"Saved to {folder}: open it by {type(trainer.model).__name__}({str(folder)!r}), after"
        " import minibert"
    )
    return report


def make_report(trainer: "SentenceTrainerMixin") -> dict[str, Any]:
    """The report without the recipe and the machine, which stand on the card, too."""
    metric = trainer.args.metric_for_best_model.removeprefix("eval_")
    after = trainer.scores["after"][metric]
    before = trainer.scores["before"][metric]
    return {
        **trainer.scores,
        "intervals": {name: list(interval) for name, interval in trainer.intervals.items()},
        "metric": metric,
        "warning": judge(metric, after, before, "the model that it started from"),
        "arguments": {**trainer.setup.arguments(), "data": name_of_data(trainer.setup.data)},
        "steps": trainer.state.global_step,
        "epochs": trainer.state.epoch,
    }
