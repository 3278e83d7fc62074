"""How fast this machine trains, and what to train in the time there is."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed

from ..callbacks import SaveAndStop
from ..checkpoints import check_same
from ..precision import now
from ..processes import of_first_rank, on_any_rank
from .clock import TimeBudget

# Where a size has caught up with the one below it, in the same time (docs/record.md). Embeddings, which cost next to
# nothing, are not counted.
TOKENS_PER_PARAMETER = 2
STEPS = 4000  # batches are made larger rather than steps more than this
# Rows a step are doubled until it takes so long (s): then the machine is busy with the rows.
BUSY = 0.25
FIRST_ROWS, MOST_ROWS = 4, 256
STEPS_IN_EPOCH = 8  # that batches which are chosen here leave at least
UNTIMED_STEPS, TIMED_STEPS = 2, 4
LEAST_STEPS = 10  # a schedule has no shape in fewer
FORWARD = 0.5  # about the share of a batch of training that one of evaluation takes

# Builds the trainer of a model size with changed training arguments.
MakeTrainer = Callable[[str, TrainingArguments], Trainer]


class Throughput(NamedTuple):
    """Of a size: parameters beside embeddings, rows of a process in a step, seconds and real tokens of one (of all
    processes)."""

    parameters: int
    rows: int
    seconds: float
    tokens: float


class _StepTimer(TrainerCallback):
    """Stops early where no training fits into the seconds that are `left`: each step may take as long as all of it."""

    def __init__(self, left: float = math.inf):
        self.left = left
        self.ends: list[tuple[float, float]] = []

    def on_step_end(self, args, state, control, **kwargs):
        self.ends.append((now(args.device), state.num_input_tokens_seen))
        seconds = np.diff([end for end, _ in self.ends])
        too_long = len(seconds) >= UNTIMED_STEPS and LEAST_STEPS * seconds.min() > self.left
        control.should_training_stop |= on_any_rank(bool(too_long))

    def step(self) -> tuple[float, float]:
        """Seconds of a step, of which a stall may have taken some longer, and its tokens."""
        seconds, tokens = (np.diff(each) for each in zip(*self.ends[UNTIMED_STEPS - 1 :]))
        return float(np.median(seconds)), float(tokens.mean())


def measure(
    make_trainer: MakeTrainer, size: str, training: TrainingArguments, rows: int, left: float = math.inf
) -> Throughput:
    """Train a throw-away model of a size for a few steps, as the real one will be: rows, optimizer, precision."""
    short = dict(max_steps=UNTIMED_STEPS + TIMED_STEPS, per_device_train_batch_size=rows, gradient_accumulation_steps=1)
    short |= dict(eval_strategy="no", eval_on_start=False, save_strategy="no", load_best_model_at_end=False)
    short |= dict(logging_strategy="no", report_to="none", push_to_hub=False, disable_tqdm=True)
    trainer = make_trainer(size, dataclasses.replace(training, **short))
    timer = _StepTimer(left)
    trainer.add_callback(timer)
    trainer.remove_callback(SaveAndStop)  # nobody goes on from here
    trainer.train()
    parameters = trainer.model.num_parameters(exclude_embeddings=True)
    return Throughput(parameters, rows, *of_first_rank(timer.step()))


def saturate(
    make_trainer: MakeTrainer, size: str, training: TrainingArguments, most: float = MOST_ROWS, left: float = math.inf
) -> Throughput:
    """`measure` with as many rows as keep the machine busy, up to `most`, or as fit into its memory."""
    found = measure(make_trainer, size, training, FIRST_ROWS, left)
    while found.seconds <= BUSY and 2 * found.rows <= most:
        try:
            larger = measure(make_trainer, size, training, 2 * found.rows)
        except torch.OutOfMemoryError:
            break
        if larger.tokens / larger.seconds < found.tokens / found.seconds:
            break
        found = larger
    return found


def plan_training(
    budget: TimeBudget,
    make_trainer: MakeTrainer,
    sizes: Sequence[str],
    training: TrainingArguments,
    train_rows: float,
    validation_rows: int,
) -> tuple[str, TrainingArguments]:
    """What to train: the largest size that sees `TOKENS_PER_PARAMETER` in the time left, at the speed measured here,
    and the training arguments with its batches; or, where a training is resumed, what its budget keeps of that. Rows
    that are not given are as many as keep the machine busy; gradients are then accumulated (unless the user said how
    often) over so many batches that the training has about `STEPS` steps, or fewer.

    Args:
        sizes: from small to large; with a single one only rows are chosen.
        training: the user's; `per_device_train_batch_size` None says that none was given.
        train_rows: rows to train on, infinite for a stream.
        validation_rows: rows of the evaluation, for which time is kept at the end.

    Raises:
        ValueError: not even a few steps fit into the time.
    """
    given, ranks, found = training.per_device_train_batch_size, training.world_size, None
    most = train_rows / STEPS_IN_EPOCH / ranks
    for size in () if budget.plan else sizes:
        left = of_first_rank(budget.left)
        if given is None:
            measured = saturate(make_trainer, size, training, min(most, MOST_ROWS), left)
        else:
            measured = measure(make_trainer, size, training, given, left)
        speed = measured.tokens / measured.seconds
        affordable = speed * of_first_rank(budget.left) / measured.parameters
        print(
            f"Measured {size}: {speed:,.0f} tokens a second; the time is enough for {affordable:.1f} tokens a parameter"
            f" ({measured.parameters:,} beside the embeddings)"
        )
        if found is None or affordable >= TOKENS_PER_PARAMETER:
            chosen, found = size, measured
        if affordable < TOKENS_PER_PARAMETER:
            break
    if found is not None:
        left, accumulation = of_first_rank(budget.left), training.gradient_accumulation_steps
        if given is None and accumulation == 1:
            accumulation = max(1, math.floor(min(left / found.seconds / STEPS, most / found.rows)))
        seconds, batch = accumulation * found.seconds, found.rows * ranks * accumulation
        if left < LEAST_STEPS * seconds:
            raise ValueError(
                f"minutes: they are as good as over before training begins, a step of the model ({chosen}) takes"
                f" {seconds:.2g} s; give more"
            )
        budget.plan = dict(size=chosen, rows=found.rows, accumulation=accumulation)
        budget.expect(seconds, FORWARD * validation_rows / batch * seconds)
        set_seed(training.seed)  # the model does not depend on what was measured
        print(f"Training a model of size {chosen} on batches of {batch} rows, {seconds:.2g} s each")
    plan = budget.plan
    asked = dict(size=sizes[0] if len(sizes) == 1 else plan["size"], per_device_train_batch_size=given or plan["rows"])
    made = dict(size=plan["size"], per_device_train_batch_size=plan["rows"])
    check_same(made, asked, "the checkpoint was trained with", "give the arguments of that run")
    batches = dict(per_device_train_batch_size=plan["rows"], gradient_accumulation_steps=plan["accumulation"])
    return plan["size"], dataclasses.replace(training, **batches)
