"""How the result of a pretraining is told."""

import math
from collections.abc import Mapping
from typing import Any

from ..common.printing import format_table
from ..evaluation.baselines import judge

BASELINE_LOSSES = (
    "unigram_loss",
    "constant_loss",
    "start_loss",
)  # in the report of a pretraining, to compare its loss with
# Accuracies at masked positions that trainings of ours reached.
REFERENCE_ACCURACIES = {
    0.297: "size tiny after 200 steps",
    0.395: "the first command of the README",
    0.473: "7,500 steps on books",
    0.521: "an hour on books",
}


def describe_pretraining(report: Mapping[str, Any]) -> str:
    """The metrics of a pretraining (`report.json`), beside those of something simple: unigram
    frequencies, or the answer "original" for every token."""
    if report["validation_loss"] is None:
        return (
            "The held-out documents have no position to predict: there is no score"
            " (--validation_size, --seq_length)"
        )
    rows = []
    compared = {
        "MiniBERT": "",
        "unigram": "unigram_",
        "always original": "constant_",
        "before this training": "start_",
    }
    for name, prefix in compared.items():
        loss, accuracy = (
            report.get(f"{prefix or 'validation_'}loss"),
            report.get(f"{prefix}accuracy"),
        )
        if loss is not None:
            share = "" if accuracy is None else f"{accuracy:.1%}"
            rows.append((name, f"{loss:.3f}", f"{math.exp(min(loss, 700)):.1f}", share))
    targets = {"clm": "next tokens", "rtd": "tokens"}.get(report["objective"], "masked positions")
    lines = [f"At {report['targets']:,} {targets} of the held-out documents:"]
    lines.append(format_table(("", "loss", "perplexity", "accuracy"), rows))
    if report["objective"] == "mlm":
        known = min(REFERENCE_ACCURACIES, key=lambda reached: abs(reached - report["accuracy"]))
        how = "about as high as" if report["accuracy"] > 0.8 * known else "lower than"
        lines.append(f"The accuracy is {how} that of {REFERENCE_ACCURACIES[known]}")
    for task, task_name in (("nsp", "next sentence"), ("sop", "sentence order")):
        loss = report.get(f"{task}_loss")
        if loss is not None:
            accuracy = report[f"{task}_accuracy"]
            lines.append(
                f"{task_name}: loss {loss:.3f} (guessing {math.log(2):.3f}), accuracy"
                f" {accuracy:.1%}"
            )
    return "\n".join(lines)


def judge_pretraining(report: Mapping[str, Any]) -> str | None:
    """What to say of a model that is not better than something simple, or than the model it started
    from."""
    loss, simple = (
        report["validation_loss"],
        report.get("unigram_loss", report.get("constant_loss")),
    )
    worse = judge("loss", loss, simple, "guessing by frequency")
    return worse or judge("loss", loss, report.get("start_loss"), "the model that it started from")
