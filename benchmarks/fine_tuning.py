"""How much of a model to train, for how many labels: the figures of docs/notebooks/06_fine_tuning.ipynb.

    python benchmarks/fine_tuning.py --model minilm --data data

The folder `data` holds sst2, nli and ner_wikigold, each with train, validation and test as jsonl. Every run is saved as
soon as it ends; runs that are in the output file already are left out. Two processes can share the work, by `--tasks`.
"""

import contextlib
import io
import itertools
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import KEEP_LAST, option, parse, save_figures
from datasets import load_dataset
from transformers.utils import logging

import minibert

# The task, the folder of its data, the file that is measured, and the metric.
TASKS = {
    "sentiment": ("classify", "sst2", "validation", "accuracy"),
    "inference": ("nli", "nli", "validation", "accuracy"),
    "entities": ("tag", "ner_wikigold", "test", "f1"),
}
# The learning rates were set beforehand, a tenfold apart for the head and the whole: fewer weights take larger steps.
METHODS = {
    "head": {"freeze": "encoder", "learning_rate": 2e-3},
    "top 2 layers": {"freeze": "4", "learning_rate": 5e-4},
    "all": {"learning_rate": 2e-4},
    "LoRA": {"lora": 8, "learning_rate": 2e-3},
}
EPOCHS = {100: 8.0, 1000: 2.0, 2000: 2.0, 100_000: 1.0}
# (task, rows, seed), in the order in which they run; where there are fewer rows, all of them are taken.
GRID = [
    *((task, 100, 0) for task in TASKS),
    *(("sentiment", rows, seed) for rows, seed in [(1000, 0), (100, 1), (100, 2)]),
    *(("entities", rows, seed) for rows, seed in [(2000, 0), (100, 1), (100, 2)]),
    *(("inference", rows, seed) for rows, seed in [(1000, 0), (100, 1), (100, 2)]),
    *(("sentiment", 1000, seed) for seed in (1, 2)),
    *(("entities", 2000, seed) for seed in (1, 2)),
    *(("inference", 1000, seed) for seed in (1, 2)),
    *((task, 100_000, 0) for task in ("sentiment", "inference")),
]


@dataclass
class Arguments:
    model: str = option("runs/minilm", "The model that every run starts from.")
    data: str = option("data", "The folder of the data sets.")
    output: str = option("docs/notebooks/06_fine_tuning.json", "The file that is written.")
    test_rows: int = option(400, "Rows that are measured, at most.")
    tasks: list[str] = option([*TASKS], "The tasks to run.")


def train_once(
    arguments: Arguments, task: str, rows: int, method: str, seed: int
) -> dict[str, Any]:
    name, folder, measured, metric = TASKS[task]
    files = {
        "train": f"{arguments.data}/{folder}/train.jsonl",
        "test": f"{arguments.data}/{folder}/{measured}.jsonl",
    }
    splits = load_dataset("json", data_files=files)
    train, test = splits["train"].shuffle(seed=seed), splits["test"].shuffle(seed=0)
    train, test = (
        train.select(range(min(rows, len(train)))),
        test.select(range(min(arguments.test_rows, len(test)))),
    )
    pooling = {} if name == "tag" else {"pooling": "cls"}  # what BERT's heads read
    started = time.process_time()
    with tempfile.TemporaryDirectory() as output, contextlib.redirect_stdout(io.StringIO()):
        report = minibert.finetune(
            name,
            model=arguments.model,
            train=train,
            validation=test,
            max_length=128,
            num_train_epochs=EPOCHS[rows],
            train_sampling_strategy="group_by_length",
            seed=seed,
            output_dir=f"{output}/model",
            **KEEP_LAST,
            **METHODS[method],
            **pooling,
        ).report
    return {
        "task": task,
        "rows": len(train),
        "method": method,
        "seed": seed,
        "metric": metric,
        "score": report["validation"][metric],
        "test_rows": len(test),
        "trained_parameters": report["trained_parameters"],
        "parameters": report["parameters"],
        "cpu_seconds": round(time.process_time() - started, 1),
    }


def main(arguments: Arguments) -> None:
    logging.set_verbosity_error()
    output = Path(arguments.output)

    def saved() -> list[dict[str, Any]]:
        return json.loads(output.read_text())["runs"] if output.exists() else []

    for (task, rows, seed), method in itertools.product(GRID, METHODS):
        done = {(run["task"], run["asked"], run["seed"], run["method"]) for run in saved()}
        if task in arguments.tasks and (task, rows, seed, method) not in done:
            run = {"asked": rows, **train_once(arguments, task, rows, method, seed)}
            print(
                {
                    key: run[key]
                    for key in ("task", "rows", "method", "seed", "score", "cpu_seconds")
                }
            )
            save_figures(output, epochs=EPOCHS, methods=METHODS, runs=[*saved(), run])


if __name__ == "__main__":
    main(*parse(__doc__, Arguments))
