"""How the result of a pretraining is told."""

import math
from collections.abc import Mapping
from typing import Any

from ..common.printing import format_table
from ..evaluation.baselines import judge
from .objectives import OBJECTIVES

# Losses in the report of a pretraining, to compare its loss with.
BASELINE_LOSSES = ("unigram_loss", "constant_loss", "start_loss")
# The lines of the table: a name, and the keys of its loss and its accuracy in the report.
COMPARED_MODELS = (
    ("MiniBERT", "validation_loss", "accuracy"),
    ("unigram", "unigram_loss", "unigram_accuracy"),
    ("always original", "constant_loss", "constant_accuracy"),
    ("before this training", "start_loss", "start_accuracy"),
)


def describe_pretraining(report: Mapping[str, Any]) -> str:
    """The metrics of a pretraining (`report.json`), beside those of something simple: unigram
    frequencies, or the answer "original" for every token."""
    if report["validation_loss"] is None:
        return (
            "The held-out documents have no position to predict: there is no score"
            " (--validation_size, --seq_length)"
        )
    table_lines = []
    for name, loss_key, accuracy_key in COMPARED_MODELS:
        loss = report.get(loss_key)
        accuracy = report.get(accuracy_key)
        if loss is not None:
            share = "" if accuracy is None else f"{accuracy:.1%}"
            table_lines.append((name, f"{loss:.3f}", f"{math.exp(min(loss, 700)):.1f}", share))
    objective = OBJECTIVES[report["objective"]]
    lines = [f"At {report['targets']:,} {objective.targets_name} of the held-out documents:"]
    lines.append(format_table(("", "loss", "perplexity", "accuracy"), table_lines))
    pair_loss = report.get(f"{objective.pair_task}_loss")
    if pair_loss is not None:
        accuracy = report[f"{objective.pair_task}_accuracy"]
        lines.append(
            f"{objective.pair_task_name}: loss {pair_loss:.3f} (guessing {math.log(2):.3f}),"
            f" accuracy {accuracy:.1%}"
        )
    return "\n".join(lines)


def judge_pretraining(report: Mapping[str, Any]) -> str | None:
    """What to say of a model that is not better than something simple, or than the model it started
    from."""
    loss = report["validation_loss"]
    simple_loss = report.get("unigram_loss", report.get("constant_loss"))
    warning = judge("loss", loss, simple_loss, "guessing by frequency")
    if warning is None:
        start_loss = report.get("start_loss")
        warning = judge("loss", loss, start_loss, "the model that it started from")
    return warning
