"""Do class weights and a threshold find a rare class? A table of docs/results.

    python benchmarks/class_weights.py --model minilm --data data --output benchmarks/results/class_weights.json

Of the training phrases of SST-2, a seed draws 1,900 positive and 100 negative ones. `finetune` holds out a tenth of
them, and the test rows are SST-2's own, of which half are negative. The folder `data` holds sst2 with train and test
as jsonl.
"""

import random
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import option, parse, read_table, save_figures

import minibert

POSITIVES = 1900
NEGATIVES = 100
SEEDS = (0, 1, 2)
# The options of each row of the table, by their names on the command line.
OPTIONS: dict[str, dict[str, Any]] = {
    "neither": {},
    "--class_weights balanced": {"class_weights": ["balanced"]},
    "--tune_threshold": {"tune_threshold": True},
    "--class_weights balanced --tune_threshold": {
        "class_weights": ["balanced"],
        "tune_threshold": True,
    },
}


@dataclass
class Arguments:
    model: str = option("runs/minilm", "The model that every run starts from.")
    data: str = option("data", "The folder of the data sets.")
    output: str = option("benchmarks/results/class_weights.json", "The file that is written.")


def main(arguments: Arguments) -> None:
    folder = Path(arguments.data, "sst2")
    phrases = read_table(folder / "train.jsonl")
    runs = []
    for seed in SEEDS:
        train = draw_rows(phrases, seed)
        for name, options in OPTIONS.items():
            with tempfile.TemporaryDirectory() as work:
                report = minibert.finetune(
                    "classify",
                    model=arguments.model,
                    train=train,
                    test=str(folder / "test.jsonl"),
                    labels=["negative", "positive"],
                    max_length=64,
                    seed=seed,
                    output_dir=f"{work}/model",
                    disable_tqdm=True,
                    **options,
                ).report
            run = {
                "options": name,
                "seed": seed,
                "f1_macro": report["test"]["f1_macro"],
                "recall": report["by_class"]["test"]["negative"]["recall"],
            }
            runs.append(run)
            print(run, flush=True)
    save_figures(arguments.output, runs=runs)


def draw_rows(phrases: list[dict[str, Any]], seed: int) -> list[dict[str, Any]]:
    """Rows of both classes, one in twenty negative."""
    generator = random.Random(seed)
    rows = generator.sample([row for row in phrases if row["label"] == 1], POSITIVES)
    return rows + generator.sample([row for row in phrases if row["label"] == 0], NEGATIVES)


if __name__ == "__main__":
    main(*parse(__doc__, Arguments))
