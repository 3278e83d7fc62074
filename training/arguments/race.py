"""The arguments of `minibert race`; nothing here may import torch."""

from dataclasses import dataclass
from typing import Literal

from . import argument


@dataclass
class RaceArguments:
    """Measure what the same steps teach MiniBERT and Transformers' own models."""

    recipes: list[str] = argument([], "Recipes that run beside MiniBERT's default: names or YAML files.")
    peers: list[str] = argument(["bert", "modernbert"], "Transformers' models to run against, each trained plainly.")
    learning_rates: list[float] = argument([5e-4, 1e-3, 2e-3], "Learning rates that every peer is trained with.")
    size: Literal["tiny", "mini", "small", "medium", "base", "large"] = argument("mini", "The size of all models.")
    vocab_size: int = argument(8192, "Size of the vocabulary that is trained for all.")
    steps: int = argument(500, "Optimizer steps of every run.")
    rows: int = argument(4, "Rows of a step.")
    seq_length: int = argument(512, "Longest row, in tokens.")
    evaluations: int = argument(10, "How often the held-out loss is measured, evenly over the steps.")
    documents: int = argument(400, "Held-out documents at most.")
    turn: int = argument(5, "Steps that a run takes before it is the next one's turn.")
    seed: int = argument(0, "Seed of the split, the rows, the weights and the masks.")
    grammar: str | None = argument(None, "Minimal pairs (BLiMP) that every trained model is measured on as well.")
    output: str = argument("runs/race", "Folder for the results, one file a run; a run whose file is there is done.")
    quick: bool = argument(False, "Tiny models, few steps, one learning rate: shows that all runs, not who learns.")
