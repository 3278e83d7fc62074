"""Few labels: fine-tuning alone beside `few_shot`, for the same number of steps.

    python benchmarks/few_shot.py --model minilm --data data/sst2

The folder of the data has train and test as jsonl, with the columns text and label (0 or 1).
"""

import contextlib
import io
import tempfile
from dataclasses import dataclass
from pathlib import Path

import datasets
import numpy as np
from common import KEEP_LAST, option, parse, read_table
from transformers.utils import logging

import minibert

SIZES, SEEDS = (8, 16, 64), (0, 1, 2)
STEPS = {"fine-tuning": 160, "few_shot": 60}  # after its 100 contrastive ones


@dataclass
class Arguments:
    model: str = option("runs/minilm", "The model that every run starts from.")
    data: str = option("data/sst2", "The folder of the data set.")


def accuracy(
    model: str, train: datasets.Dataset, test: datasets.Dataset, method: str, seed: int
) -> float:
    with tempfile.TemporaryDirectory() as output, contextlib.redirect_stdout(io.StringIO()):
        report = minibert.finetune(
            "classify",
            model=model,
            train=train,
            validation=train,  # nothing is chosen by these rows
            test=test,
            few_shot=method == "few_shot",
            max_steps=STEPS[method],
            max_length=64,
            seed=seed,
            output_dir=f"{output}/model",
            **KEEP_LAST,
        ).report
    return report["test"]["accuracy"]


def main(arguments: Arguments) -> None:
    logging.set_verbosity_error()
    rows, test = (read_table(Path(arguments.data) / f"{name}.jsonl") for name in ("train", "test"))
    scores = {(size, method): [] for size in SIZES for method in STEPS}
    for seed in SEEDS:
        draw = np.random.default_rng(seed)
        shuffled = [rows[i] for i in draw.permutation(len(rows))]
        for size, method in scores:
            few = [
                row
                for label in (0, 1)
                for row in [row for row in shuffled if row["label"] == label][:size]
            ]
            data = [datasets.Dataset.from_list(each) for each in (few, test)]
            scores[size, method].append(accuracy(arguments.model, *data, method, seed))
            print(
                f"seed {seed}, {size:>2} a class, {method:<11} {scores[size, method][-1]:.4f}",
                flush=True,
            )
    for (size, method), each in scores.items():
        print(
            f"{size:>2} a class, {method:<11} mean {np.mean(each):.3f}, standard deviation {np.std(each, ddof=1):.3f}"
        )


if __name__ == "__main__":
    main(*parse(__doc__, Arguments))
