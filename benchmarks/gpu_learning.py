"""What benchmarks/gpu.py measures about learning: held-out loss against seconds, for recipes of the
same length."""

import itertools
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpu_measure import synchronized_time
from gpu_models import fix_shapes, for_varlen, to_device
from gpu_variants import VARIANTS, Step
from learning_runs import native_matrices
from torch import nn
from transformers import AutoTokenizer

from minibert import MaskedLMCollator
from minibert.training.optimization.muon import muon_optimizer

ROWS_IN_BATCH = 16
EVALUATIONS = 12


@dataclass(frozen=True)
class Recipe:
    """A model and how it is trained.

    Args:
        model: one of `gpu_models.MODEL_NAMES`.
        masked: share of the tokens.
        muon: Muon for the matrices of the layers; False: AdamW for all.
        rate: AdamW's learning rate.
        variant: of the training step; None: what the command line says is the best one.
    """

    model: str
    masked: float
    muon: bool
    rate: float
    variant: str | None = "layers"


RECIPES = {
    "MiniBERT": Recipe("MiniBERT", masked=0.3, muon=True, rate=2e-3),
    "ModernBERT, plain AdamW": Recipe("ModernBERT", masked=0.15, muon=False, rate=5e-4),
    "ModernBERT, best recipe": Recipe("ModernBERT, packed", masked=0.3, muon=True, rate=2e-3),
    "MiniBERT, best variant": Recipe("MiniBERT", masked=0.3, muon=True, rate=2e-3, variant=None),
}


# --- data ---


def read_rows(folder: Path, length: int) -> list[dict[str, list[int]]]:
    """Documents packed one after the other into rows of at most `length` tokens; longer ones are
    cut."""
    ids = np.load(folder / "ids.npy").astype(np.int64)
    starts = np.flatnonzero(ids == ids[0]).tolist()
    rows = []
    row = dict(input_ids=[], position_ids=[])
    for start, stop in itertools.pairwise([*starts, len(ids)]):
        for piece_start in range(start, stop, length):
            tokens = ids[piece_start : min(piece_start + length, stop)].tolist()
            if len(row["input_ids"]) + len(tokens) > length:
                rows.append(row)
                row = dict(input_ids=[], position_ids=[])
            row["input_ids"] = row["input_ids"] + tokens
            row["position_ids"] = row["position_ids"] + list(range(len(tokens)))
    rows.append(row)
    return rows


def hold_out(rows: list, tiny: bool) -> tuple[list, list]:
    """Rows to train on, and at most 64 others to evaluate on."""
    interval = 4 if tiny else 50
    held_out = rows[::interval][:64]
    training = [row for number, row in enumerate(rows) if number % interval]
    return training, held_out


# --- optimizers ---


def build_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    betas = (0.9, 0.98)
    if not recipe.muon:
        return torch.optim.AdamW(
            model.parameters(), lr=recipe.rate, weight_decay=0.01, betas=betas, fused=True
        )
    decayed = [name for name, parameter in model.named_parameters() if parameter.dim() > 1]
    matrices = None if recipe.model == "MiniBERT" else native_matrices(model)
    return muon_optimizer(
        model,
        decayed,
        learning_rate=recipe.rate,
        muon_learning_rate=3.5e-3,
        weight_decay=0.3,
        matrices=matrices,
        betas=betas,
    )


# --- training ---


def collate_for(model: str, collator: MaskedLMCollator, rows: list) -> dict[str, Any]:
    """A batch in the form that the model takes. Padded ModernBERT reads a row as one text, as
    run_mlm.py trains it."""
    batch = dict(collator(rows))
    if model == "ModernBERT, packed":
        return for_varlen(batch)
    if model == "ModernBERT":
        batch.pop("position_ids")
    return batch


class Training:
    """One recipe on one text.

    Args:
        folder: with `ids.npy` and a tokenizer.
        variant: of the step, for a recipe that names none.
    """

    def __init__(self, name: str, folder: Path, variant: str, device: torch.device, tiny: bool):
        self.name = name
        self.recipe = RECIPES[name]
        self.device = device
        tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
        self.row_length = 128 if tiny else 1024
        self.rows, self.held_out = hold_out(read_rows(folder, self.row_length), tiny)
        self.collator = MaskedLMCollator(
            tokenizer,
            mlm_probability=self.recipe.masked,
            seed=0,
            unpadded=self.recipe.model != "ModernBERT",
        )
        self.fixed_masks = self.collator.for_evaluation()
        self.step = Step(
            self.recipe.model,
            "tiny" if tiny else "base",
            VARIANTS[self.recipe.variant or variant],
            device,
            lambda model: build_optimizer(model, self.recipe),
        )
        self.rates = [group["lr"] for group in self.step.optimizer.param_groups]

    def training_batch(self, number: int) -> dict[str, Any]:
        first = number * ROWS_IN_BATCH % max(len(self.rows) - ROWS_IN_BATCH, 1)
        self.collator.set_progress(epoch=number * ROWS_IN_BATCH // len(self.rows))
        rows = self.rows[first : first + ROWS_IN_BATCH]
        batch = collate_for(self.recipe.model, self.collator, rows)
        if self.step.variant.fixed:
            batch = self._fix(batch)
        return to_device(batch, self.device)

    def _fix(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Shapes for all batches: full rows, one document in 32 tokens, 40 % targets."""
        tokens = ROWS_IN_BATCH * self.row_length
        return fix_shapes(batch, tokens, tokens // 32, int(tokens * 0.4), self.row_length)

    def compile(self) -> float:
        """Seconds of the first two steps, which compile and change no weight."""
        start = synchronized_time(self.device)
        for number in range(2):
            self.step.forward_and_backward(self.training_batch(number))
            self.step.optimizer.zero_grad(set_to_none=not self.step.variant.graph)
        self.evaluate()
        return synchronized_time(self.device) - start

    def train_step(self, number: int, share: float) -> None:
        """One update, at the learning rate for this share of the time: it rises to 5 %, then falls
        to 0."""
        for group, rate in zip(self.step.optimizer.param_groups, self.rates):
            group["lr"] = rate * min(share / 0.05, (1 - share) / 0.95)
        self.step.forward_and_backward(self.training_batch(number))
        torch.nn.utils.clip_grad_norm_(self.step.model.parameters(), 1.0)
        self.step.optimizer.step()
        if not self.step.variant.graph:
            self.step.optimizer.zero_grad()

    @torch.no_grad()
    def evaluate(self) -> float:
        """The mean loss over the held-out rows, with the same masks every time."""
        model = self.step.model.eval()
        losses = []
        for first in range(0, len(self.held_out), ROWS_IN_BATCH):
            rows = self.held_out[first : first + ROWS_IN_BATCH]
            batch = to_device(collate_for(self.recipe.model, self.fixed_masks, rows), self.device)
            with torch.autocast(self.device.type, torch.bfloat16, self.device.type == "cuda"):
                losses.append(float(model(**batch).loss))
        model.train()
        return statistics.mean(losses)


def measure_learning(
    name: str, folder: Path, variant: str, seconds: float, device: torch.device, tiny: bool
) -> Iterator[dict[str, Any]]:
    """The held-out loss at twelve moments. The clock stands still while the step compiles and the
    loss is measured."""
    training = Training(name, folder, variant, device, tiny)
    compile_seconds = training.compile()
    start = synchronized_time(device)
    evaluation_seconds = 0.0
    number = 0
    evaluations = 0
    while True:
        trained = time.perf_counter() - start - evaluation_seconds
        share = trained / seconds
        if share >= 1:
            break
        training.train_step(number, share)
        number += 1
        if share > (evaluations + 1) / EVALUATIONS:
            begin = synchronized_time(device)
            trained = begin - start - evaluation_seconds
            loss = training.evaluate()
            evaluation_seconds += synchronized_time(device) - begin
            evaluations += 1
            yield learning_row(name, trained, number, loss)
    yield learning_row(name, seconds, number, training.evaluate()) | dict(
        compile_seconds=compile_seconds
    )


def learning_row(name: str, seconds: float, steps: int, loss: float) -> dict[str, Any]:
    return dict(what="learning, base", model=name, seconds=seconds, steps=steps, loss=loss)


def seconds_to_loss(rows: list[dict[str, Any]], target: float) -> float | None:
    """The training seconds at which a run's held-out loss falls to the target, between two
    evaluations by a line; None if it never does."""
    before = None
    for row in rows:
        if row["loss"] <= target:
            if before is None:
                return row["seconds"]
            share = (before["loss"] - target) / (before["loss"] - row["loss"])
            return before["seconds"] + share * (row["seconds"] - before["seconds"])
        before = row
    return None
