"""What a training leaves in its folder: the model, its card, its report and its picture."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...common.files import write_json, written_whole
from ...common.printing import warn
from ...evaluation.baselines import judge
from ...evaluation.plots import plot_training
from ...hub.card import save_card
from ...hub.facts import (
    CardFacts,
    CardMetric,
    SplitFacts,
    add_source,
    describe_data,
    facts_from_trainer,
)
from ...hub.origin import read_origin
from ...loop.checkpoints import remove_checkpoints
from ..reading.texts import name_of_data
from .encoder_trainer import EncoderTrainerMixin

MAX_EXAMPLE_CHARACTERS = 500  # of the texts on the card


def save_trained(trainer: EncoderTrainerMixin) -> dict[str, Any]:
    """Save a model that was trained and measured into the output folder, with its card, its report
    and its picture; checkpoints are removed. Returns the report, which is empty in a process that
    saves nothing."""
    if not trainer.args.should_save:  # one of several processes saves
        return {}
    output = Path(trainer.args.output_dir)
    with written_whole(output) as folder:
        trainer.model.save_pretrained(str(folder), create_model_card=False)
    report = make_report(trainer)
    facts = card_facts(trainer, report)
    save_card(output, facts)
    report["training"] = facts.training
    write_json(output / "report.json", report)
    metric = report["metric"]
    baseline = {"before this training": report["before"][metric]}
    plot_training(trainer.state.log_history, output / "training.png", metric, baseline)
    remove_checkpoints(output)
    warn(report["warning"])
    print(
        f"Saved to {output}: open it by {type(trainer.model).__name__}({str(output)!r}), after"
        " import minibert"
    )
    return report


def make_report(trainer: EncoderTrainerMixin) -> dict[str, Any]:
    """The report without the recipe and the machine, which stand on the card, too."""
    metric = trainer.args.metric_for_best_model.removeprefix("eval_")
    after = trainer.scores["after"][metric]
    before = trainer.scores["before"][metric]
    return {
        **trainer.scores,
        "intervals": {name: list(interval) for name, interval in trainer.intervals.items()},
        "metric": metric,
        "warning": judge(metric, after, before, "the model that it started from"),
        "arguments": {**trainer.task.arguments(), "data": name_of_data(trainer.task.data)},
        "steps": trainer.state.global_step,
        "epochs": trainer.state.epoch,
    }


def card_facts(trainer: EncoderTrainerMixin, report: Mapping[str, Any]) -> CardFacts:
    """What the card says."""
    data_name = describe_data(trainer.task.data_names)
    held_out = trainer.evaluator.held_out
    facts = facts_from_trainer(vars(trainer.state), trainer.args, data_name)
    facts.results = []
    for name, value in report["after"].items():
        result = CardMetric(
            name,
            value,
            "held-out data",
            "validation",
            baseline=report["before"][name],
            interval=report["intervals"].get(name),
        )
        facts.results.append(result)
    facts.baseline = "before this training"
    facts.splits = {
        "train": SplitFacts(len(trainer.train_dataset), data_name),
        "held out": SplitFacts(len(held_out), "queries, or pairs with a score"),
    }
    facts.example = held_out.example(MAX_EXAMPLE_CHARACTERS)
    add_source(facts, read_origin(trainer.task.model))
    facts.warning = report["warning"]
    return facts
