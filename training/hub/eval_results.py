"""`.eval_results/`: figures for the leaderboards of the Hub's benchmarks, beside the `model-index` of the card
(https://huggingface.co/docs/hub/eval-results).

A benchmark is a data set with an `eval.yaml`, which names its tasks. Which figure belongs to which task nobody but the
author knows, and so it has to be said.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import yaml
from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

from .card import Result

FOLDER = ".eval_results"
FORM = re.compile(r"([\w@]+)=([\w.-]+/[\w.-]+):([\w.-]+)")


def check_eval_results(given: Sequence[str]) -> None:
    """A ValueError for what is no METRIC=OWNER/DATASET:TASK."""
    for text in given:
        if not FORM.fullmatch(text):
            raise ValueError(
                f"eval_results: {text!r} is unclear; use METRIC=OWNER/DATASET:TASK, such as f1=me/news:ner"
            )


def write_eval_results(folder: Path, given: Sequence[str], results: Sequence[Result]) -> None:
    """Write a file for every benchmark: `given` as METRIC=OWNER/DATASET:TASK, the values of `results`, as they are. Of
    several splits that of the test counts.

    Raises:
        ValueError: no such figure, one of several splits, a file that is there already.
    """
    benchmarks: dict[str, list[EvalResultEntry]] = {}
    for text in given:
        metric, dataset, task = FORM.fullmatch(text).groups()
        found = [result for result in results if result.metric == metric]
        found = [result for result in found if result.split == "test"] or found
        if len(found) != 1:
            there = ", ".join(dict.fromkeys(result.metric for result in results)) or "none"
            raise ValueError(f"eval_results: {metric!r} names {len(found)} figures of the card; use one of {there}")
        benchmarks.setdefault(dataset, []).append(EvalResultEntry(dataset, task, found[0].value))
    for dataset, entries in benchmarks.items():
        path = folder / FOLDER / f"{dataset.replace('/', '--')}.yaml"
        if path.exists():
            raise ValueError(f"eval_results: {FOLDER}/{path.name} is in the folder already; leave one of the two out")
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml.safe_dump(eval_result_entries_to_yaml(entries), sort_keys=False), encoding="utf-8")
