"""The card of an embedding model or a reranker that was trained."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..hub.facts import (
    CardFacts,
    CardMetric,
    SplitFacts,
    add_source,
    facts_from_trainer,
)
from ..hub.origin import read_origin

if TYPE_CHECKING:
    from .trainers.sentence_trainer import SentenceTrainerMixin

MAX_EXAMPLE_CHARACTERS = 500  # of the texts on the card


def card_facts(trainer: "SentenceTrainerMixin", report: Mapping[str, Any]) -> CardFacts:
    """What the card says."""
    data_name = trainer.data_name
    held_out = trainer.evaluator.held_out
    facts = facts_from_trainer(vars(trainer.state), trainer.args, data_name)
    facts.results = []
    for name, value in report["after"].items():
        result = CardMetric(
            name,
            value,
            "held-out data",
            "validation",
            baseline_value=report["before"][name],
            interval=report["intervals"].get(name),
        )
        facts.results.append(result)
    facts.baseline_name = "before this training"
    facts.splits = {
        "train": SplitFacts(len(trainer.train_dataset), data_name),
        "held out": SplitFacts(len(held_out), "queries, or pairs with a score"),
    }
    facts.example = held_out.example(MAX_EXAMPLE_CHARACTERS)
    add_source(facts, read_origin(trainer.setup.model))
    facts.warning = report["warning"]
    return facts
