"""How benchmarks/learning.py measures runs: each in a process of its own, a few steps in turn."""

import json
import math
import os
import shutil
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import asdict
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import torch
from common import now, run_facts
from learning_runs import Race, Run, make_trainer
from torch.nn import functional as F
from tqdm.auto import tqdm
from transformers import TrainerCallback

from minibert.training.common.files import write_json

# The held-out rows with their masks.
HELD_OUT = "held_out.json"


def take_turns(runs: Mapping[str, Run], race: Race, evaluations: int, turn: int) -> None:
    """Train the runs, of which one at a time computes; write a file of results for each.

    Args:
        turn: the steps that a run takes before it is the next one's turn.
    """
    bar = tqdm(total=race.steps * len(runs), desc="Race", unit=" steps")
    with started_processes(runs, race, evaluations, turn) as lines, bar:
        while lines:
            for name in list(lines):
                lines[name].send("go")
                steps = receive(lines[name], name, race)
                if steps:
                    bar.update(steps)
                else:  # the run is over
                    del lines[name]


@contextmanager
def started_processes(runs: Mapping[str, Run], race: Race, evaluations: int, turn: int):
    """A line to a process for each run, which has loaded its data and waits."""
    context = get_context("spawn")
    lines: dict[str, Connection] = {}
    processes: list[BaseProcess] = []
    try:
        for name, run in tqdm(runs.items(), desc="Start", unit=" runs"):
            lines[name], end_of_process = context.Pipe()
            arguments = (name, run, race, evaluations, turn, end_of_process)
            process = context.Process(target=train_run, args=arguments, daemon=True)
            process.start()
            end_of_process.close()
            processes.append(process)
            receive(lines[name], name, race)
        yield lines
    finally:
        for process in processes:
            if lines:  # an error, or a signal
                process.terminate()
            else:
                process.join(10)


def receive(line: Connection, name: str, race: Race) -> Any:
    """What the process of a run says; a RuntimeError with the last line of its log if it died."""
    try:
        return line.recv()
    except EOFError:
        log = race.folder / f"{name}.log"
        last_line = " ".join(log.read_text(errors="replace").strip().splitlines()[-1:])
        raise RuntimeError(f"the run {name!r} failed: {last_line} (see {log})") from None


def train_run(
    name: str, run: Run, race: Race, evaluations: int, turn: int, line: Connection
) -> None:
    """One run, in its own process; what it prints goes to a log file."""
    log = os.open(race.folder / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    held_out = json.loads((race.folder / HELD_OUT).read_text())
    shutil.rmtree(race.folder / name, ignore_errors=True)  # of a run that was not finished
    turns = Turns(line, turn, math.ceil(race.steps / evaluations), held_out["batches"])
    trainer = make_trainer(name, run, race, turns)
    trainer.train()
    trainer.save_model()
    last = turns.curve[-1]
    result = run_facts() | {
        "run": asdict(run),
        "parameters": trainer.model.num_parameters(),
        "loss": last["loss"],
        "accuracy": last["accuracy"],
        "bits_per_byte": last["loss"] / math.log(2) / held_out["bytes_per_token"],
        "curve": turns.curve,
    }
    write_json(race.results / f"{name}.json", result)
    line.send(0)


class Turns(TrainerCallback):
    """Trains while it is this run's turn; measures the time of steps and the held-out loss.

    Args:
        line: "go" comes in when it is this run's turn; the steps that were made go out.
        turn: the steps of a turn.
        interval: the steps between two measurements.
        batches: held-out rows with their masks.

    Attributes:
        curve: step, tokens, seconds, loss and accuracy at every measurement. The seconds are those
            of the steps, and of what is done to the model before them.
    """

    def __init__(self, line: Connection, turn: int, interval: int, batches: list[dict[str, list]]):
        self.line = line
        self.turn = turn
        self.interval = interval
        self.batches = []
        for batch in batches:
            self.batches.append({name: torch.tensor(column) for name, column in batch.items()})
        self.curve: list[dict[str, float]] = []
        self.seconds = 0.0

    def on_init_end(self, args, state, control, **kwargs):
        self.start = now(args.device)

    def on_train_begin(self, args, state, control, **kwargs):
        # Before the first step, the first word embeddings are counted, for instance.
        self.seconds = now(args.device) - self.start
        self.line.send("ready")
        self.line.recv()

    def on_step_begin(self, args, state, control, **kwargs):
        self.start = now(args.device)

    def on_step_end(self, args, state, control, model=None, **kwargs):
        self.seconds += now(args.device) - self.start
        step = state.global_step
        is_last = step == state.max_steps
        if step % self.interval == 0 or is_last:
            self.measure(args, state, model)
        if is_last:
            self.line.send(step % self.turn or self.turn)
            self.line.recv()
        elif step % self.turn == 0:
            self.line.send(self.turn)
            self.line.recv()

    @torch.no_grad()
    def measure(self, args, state, model) -> None:
        """Add a point to the curve."""
        model.eval()
        loss = 0.0
        hits = 0
        targets = 0
        for batch in self.batches:
            batch = {name: column.to(args.device) for name, column in batch.items()}
            is_target = batch["labels"] != -100
            with torch.autocast(args.device.type, torch.bfloat16, enabled=args.bf16):
                logits = model(**batch).logits
            if logits.dim() == 3:  # else they are of the masked tokens alone
                logits = logits[is_target]
            labels = batch["labels"][is_target]
            loss += F.cross_entropy(logits.float(), labels, reduction="sum").item()
            hits += int((logits.argmax(-1) == labels).sum())
            targets += len(labels)
        model.train()
        point = {
            "step": state.global_step,
            "tokens": int(state.num_input_tokens_seen),
            "seconds": self.seconds,
            "loss": loss / targets,
            "accuracy": hits / targets,
        }
        self.curve.append(point)
