"""How fast this machine trains, and what to train in the time there is."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from tqdm.auto import tqdm
from transformers import PreTrainedModel, PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from .clock import of_first_rank

# Hoffmann et al. 2022 (arXiv 2203.15556): a budget of computation is spent best on a model that sees about 20 tokens
# for each of its parameters. Embeddings, which cost next to nothing, are not counted here.
TOKENS_PER_PARAMETER = 20
# Batches are made larger rather than steps more than this.
STEPS = 4000
# Rows a step are doubled until it takes so long (s): then the machine is busy with the rows.
BUSY = 0.25
FIRST_ROWS, MOST_ROWS = 4, 256
UNTIMED_STEPS, TIMED_STEPS = 2, 4
# A schedule has no shape in fewer.
LEAST_STEPS = 10

# Builds the trainer of a model size with changed training arguments.
MakeTrainer = Callable[[str, TrainingArguments], Trainer]


@dataclass(frozen=True)
class Throughput:
    """What was measured for a size: rows in a step, and seconds and real tokens of one."""

    rows: int
    seconds: float
    tokens: float


@dataclass(frozen=True)
class Plan:
    """What is trained in the time there is: rows of a device's batch, and seconds of an optimizer step."""

    size: str
    rows: int
    accumulation: int
    seconds_per_step: float
    tokens_per_second: float


class _StepTimer(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step in (UNTIMED_STEPS, UNTIMED_STEPS + TIMED_STEPS):
            if args.device.type == "cuda":
                torch.cuda.synchronize()
            now = (time.perf_counter(), state.num_input_tokens_seen)
            if state.global_step == UNTIMED_STEPS:
                self.begin = now
            else:
                self.seconds, self.tokens = ((b - a) / TIMED_STEPS for a, b in zip(self.begin, now))


def measure(make_trainer: MakeTrainer, size: str, training: TrainingArguments, rows: int) -> Throughput:
    """Train a throw-away model of a size for a few steps, as the real one will be: same rows, optimizer and precision."""
    trainer = make_trainer(
        size,
        dataclasses.replace(
            training,
            max_steps=UNTIMED_STEPS + TIMED_STEPS,
            per_device_train_batch_size=rows,
            gradient_accumulation_steps=1,
            include_num_input_tokens_seen="non_padding",
            eval_strategy="no",
            eval_on_start=False,
            save_strategy="no",
            load_best_model_at_end=False,
            logging_strategy="no",
            report_to="none",
            push_to_hub=False,
            disable_tqdm=True,
        ),
    )
    trainer.remove_callback(PrinterCallback)
    timer = _StepTimer()
    trainer.add_callback(timer)
    trainer.train()
    return Throughput(rows, *of_first_rank((timer.seconds, timer.tokens)))


def saturate(make_trainer: MakeTrainer, size: str, training: TrainingArguments) -> Throughput:
    """`measure` with as many rows as keep the machine busy, or as fit into its memory."""
    found, rows = None, FIRST_ROWS
    while rows <= MOST_ROWS:
        try:
            faster = measure(make_trainer, size, training, rows)
        except torch.OutOfMemoryError:
            if found is None:
                raise
            break
        if found is not None and faster.tokens / faster.seconds < found.tokens / found.seconds:
            break
        found, rows = faster, 2 * rows
        if found.seconds > BUSY:
            break
    return found


def choose(
    make_trainer: MakeTrainer,
    sizes: Sequence[str],
    parameters: Callable[[str], int],
    training: TrainingArguments,
    rows: int | None,
    seconds: Callable[[], float],
) -> Plan:
    """What to train: the largest size that sees `TOKENS_PER_PARAMETER` in the time left, at the speed measured here.

    Rows that are not given are as many as keep the machine busy; gradients are then accumulated (unless the user said
    how often) over so many batches that the training has about `STEPS` steps, or fewer.

    Args:
        make_trainer: builds the trainer of a size.
        sizes: from small to large; with a single one only rows are chosen.
        parameters: of the blocks of a size.
        training: with the user's `gradient_accumulation_steps`.
        rows: of a device's batch, if given.
        seconds: how many there are at the moment it is called.

    Raises:
        ValueError: not even a few steps fit into the time.
    """

    def left() -> float:
        return of_first_rank(max(seconds(), 0.0))

    chosen = None
    for size in tqdm(sizes, desc="Measuring", unit=" sizes", leave=False, disable=training.disable_tqdm):
        wanted = TOKENS_PER_PARAMETER * parameters(size)
        if chosen is not None and fast * left() < wanted:
            break  # a larger one is not faster
        throughput = (
            saturate(make_trainer, size, training) if rows is None else measure(make_trainer, size, training, rows)
        )
        fast = training.world_size * throughput.tokens / throughput.seconds
        affordable = fast * left()
        print(
            f"Measured {size}: {fast:,.0f} tokens a second, {affordable / parameters(size):.1f} tokens for each of the"
            f" {parameters(size):,} parameters of its blocks"
        )
        if chosen is None or affordable >= wanted:
            chosen = _plan(size, throughput, fast, training, rows is None, left())
        if affordable < wanted:
            break
    if left() < LEAST_STEPS * chosen.seconds_per_step:
        raise ValueError(
            f"minutes: they are as good as over before training begins, a step of the {chosen.size} model takes"
            f" {chosen.seconds_per_step:.2g} s; give more"
        )
    return chosen


def _plan(
    size: str, measured: Throughput, tokens_per_second: float, training: TrainingArguments, free: bool, seconds: float
) -> Plan:
    accumulation = training.gradient_accumulation_steps
    if free and accumulation == 1:
        accumulation = max(1, round(seconds / measured.seconds / STEPS))
    return Plan(size, measured.rows, accumulation, accumulation * measured.seconds, tokens_per_second)


def block_parameters(model: PreTrainedModel) -> int:
    """Parameters of a model but for its embeddings, and a decoder tied to them."""
    return model.num_parameters(exclude_embeddings=True)
