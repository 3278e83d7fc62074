"""Which vector a classifier should read, the first token's or the mean: a table of docs/results.

    python benchmarks/pooling.py --model minilm --data data --output benchmarks/results/pooling.json

The folder `data` holds sst2 and nli, each with train and test as jsonl. Every run is saved as soon as it ends; runs
that are in the output file already are left out. Two processes can share the work: each takes the models it is given.
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

TASKS = {"sst2": "classify", "nli": "nli"}
ROWS = {"sst2": (100, 1000, 8000), "nli": (1000, 8000)}
# The same for both vectors, set beforehand: frozen encoders take larger steps, and more of them.
TRAINING = {
    "all layers": {"learning_rate": 1e-4},
    "head only": {"learning_rate": 1e-3, "freeze": "encoder"},
}
EPOCHS = {
    "all layers": {100: 8.0, 1000: 8.0, 8000: 2.0},
    "head only": {100: 20.0, 1000: 20.0, 8000: 5.0},
}
SEEDS = (0, 1, 2)


@dataclass
class Arguments:
    model: str = option("runs/minilm", "The model that every run starts from.")
    data: str = option("data", "The folder of the data sets.")
    output: str = option("benchmarks/results/pooling.json", "The file that is written.")
    trained: list[str] = option([*TRAINING], "What to train: all layers, head only.")


def train_once(
    arguments: Arguments, name: str, rows: int, trained: str, pooling: str, seed: int
) -> dict[str, Any]:
    files = {split: f"{arguments.data}/{name}/{split}.jsonl" for split in ("train", "test")}
    splits = load_dataset("json", data_files=files)
    train = splits["train"].shuffle(seed=seed).select(range(rows))
    started = time.process_time()
    with tempfile.TemporaryDirectory() as work, contextlib.redirect_stdout(io.StringIO()):
        report = minibert.finetune(
            TASKS[name],
            model=arguments.model,
            pooling=pooling,
            train=train,
            validation=splits["test"],
            max_length=128,
            num_train_epochs=EPOCHS[trained][rows],
            train_sampling_strategy="group_by_length",
            seed=seed,
            output_dir=f"{work}/model",
            **KEEP_LAST,
            **TRAINING[trained],
        ).report
    return {
        "model": Path(arguments.model).name,
        "data": name,
        "rows": rows,
        "trained": trained,
        "pooling": pooling,
        "seed": seed,
        "accuracy": report["validation"]["accuracy"],
        "cpu_seconds": round(time.process_time() - started, 1),
    }


def main(arguments: Arguments) -> None:
    logging.set_verbosity_error()
    output = Path(arguments.output)
    keys = ("model", "data", "rows", "trained", "pooling", "seed")

    def saved_runs() -> list[dict[str, Any]]:
        return json.loads(output.read_text())["runs"] if output.exists() else []

    grid = [(name, rows) for name in TASKS for rows in ROWS[name]]
    grid.sort(key=lambda entry: entry[1])  # the short runs first
    for (name, rows), seed, trained, pooling in itertools.product(
        grid, SEEDS, arguments.trained, ("cls", "mean")
    ):
        model = Path(arguments.model).name
        finished = {tuple(run[key] for key in keys) for run in saved_runs()}
        if (model, name, rows, trained, pooling, seed) in finished:
            continue
        run = train_once(arguments, name, rows, trained, pooling, seed)
        print(run, flush=True)
        save_figures(output, epochs=EPOCHS, training=TRAINING, runs=[*saved_runs(), run])


if __name__ == "__main__":
    main(*parse(__doc__, Arguments))
