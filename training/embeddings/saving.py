"""What a training leaves in its folder: the model, its card, its report and its picture."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datasets import Dataset

from ..common.files import write_json, written_whole
from ..evaluation.plots import plot_training
from ..hub.card import save_card
from ..hub.example import Example
from ..hub.facts import (
    CardFacts,
    CardMetric,
    SplitFacts,
    add_source,
    describe_data,
    facts_from_trainer,
)
from ..hub.origin import read_origin
from ..loop.checkpoints import remove_checkpoints
from .config import CommandArguments
from .retrieval import Retrieval, count_rows

MAX_EXAMPLE_CHARACTERS = 500  # of the texts on the card


def save_trained(
    trainer: Any,
    report: dict[str, Any],
    arguments: CommandArguments,
    data_names: list[str],
) -> None:
    """Save the model with its card and picture, complete the report and write it; checkpoints are
    removed.

    Args:
        arguments: Those of the command, for the report.
        data_names: The paths and Hub names of the data.
    """
    state = trainer.state
    output = Path(trainer.args.output_dir)
    with written_whole(output) as folder:
        trainer.model.save_pretrained(str(folder), create_model_card=False)
    facts = card_facts(trainer, report, arguments.model, data_names)
    save_card(output, facts)
    report["arguments"] = {**dataclasses.asdict(arguments), "data": ", ".join(data_names)}
    report["steps"] = state.global_step
    report["epochs"] = state.epoch
    report["training"] = facts.training
    write_json(output / "report.json", report)
    metric = report["metric"]
    baseline = {"before this training": report["before"][metric]}
    plot_training(state.log_history, output / "training.png", metric, baseline)
    remove_checkpoints(output)


def card_facts(
    trainer: Any, report: Mapping[str, Any], first_model: str, data_names: list[str]
) -> CardFacts:
    """What the card says.

    Args:
        first_model: The folder or Hub name of the model that the training started from.
        data_names: The paths and Hub names of the data.
    """
    data_name = describe_data(data_names)
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
        "held out": SplitFacts(count_rows(held_out), "queries, or pairs with a score"),
    }
    facts.example = choose_held_out_example(held_out)
    add_source(facts, read_origin(first_model))
    facts.warning = report["warning"]
    return facts


def choose_held_out_example(held_out: Retrieval | Dataset) -> Example | None:
    """The first short row that is held out: a query, its passage and another one; or a pair with
    its score."""
    if not isinstance(held_out, Retrieval):
        for row in held_out:
            if len(row["first"]) + len(row["second"]) <= MAX_EXAMPLE_CHARACTERS:
                inputs = {"first": row["first"], "second": row["second"]}
                description = f"The pair is held out; its score in the data: {row['label']:.4g}."
                return Example(inputs, description)
        return None
    text_of = {passage.id: passage.text for passage in held_out.passages}
    for query_id, query in held_out.queries.items():
        relevant_ids = [name for name in held_out.relevant[query_id] if name in text_of]
        other_ids = [name for name in text_of if name not in (*relevant_ids, query_id)]
        if not relevant_ids or not other_ids:
            continue
        passages = [text_of[relevant_ids[0]], text_of[other_ids[0]]]
        if sum(map(len, [query, *passages])) <= MAX_EXAMPLE_CHARACTERS:
            description = "The query is held out; the first passage is relevant to it in the data."
            return Example({"query": query, "passages": passages}, description)
    return None
