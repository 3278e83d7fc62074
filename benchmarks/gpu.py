"""MiniBERT against Transformers' BERT and ModernBERT on one GPU, and variants of its training step.

    python benchmarks/gpu.py --work facts       # 15 seconds: versions and kernels
    python benchmarks/gpu.py --work speed       # baselines, profiles, variants, size large
    python benchmarks/gpu.py --work learning    # four recipes, 100 seconds each
    python benchmarks/gpu.py --work plan        # what each of them runs, with its seconds
    python benchmarks/gpu.py --device cpu --tiny true --slower 10  # does the script work

Every measurement is a process of its own with a time limit. It appends a JSON line to
OUTPUT/WORK.jsonl as soon as it has a result, so that a run that is cut off has brought something.
What fails, or takes too long, leaves a line, too.

It needs torch and Transformers alone. `.ci/gpu-pack` makes the folder of `--data`: `ids.npy`
(uint16, documents one after the other, each `[CLS] … [SEP]`) and a tokenizer.
"""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

START = time.monotonic()  # the imports below take seconds of a run, too

from gpu_models import BATCH_NAMES
from transformers import HfArgumentParser

# A run with its tests fits into ten minutes: `.ci/gpu` runs facts (20 s), tests (100 s), and speed.
RUN_SECONDS = dict(facts=20, speed=450, learning=580)
# A measurement may take this much longer than planned.
PATIENCE = 1.5
NATURAL = ("natural, 8,192", "natural, 32,768")
VARIANT_BATCHES = ("8 x 1,024", "natural, 8,192", "natural, 32,768")
LARGE_BATCHES = ("32 x 1,024", "natural, 32,768")


@dataclass
class Options:
    work: Literal["facts", "speed", "learning", "plan", "worker"] = "speed"
    device: str = "cuda"
    tiny: bool = False
    output: str = "runs/gpu"
    data: str = ".gpu"
    seconds: float = 100.0  # of each training of `learning`
    best_variant: str = "graph and head"  # of `learning`
    slower: float = 1.0  # multiplies all limits of time; a rehearsal on a CPU needs more


@dataclass(frozen=True)
class Measurement:
    """What one process does.

    Args:
        part: "facts", "training", "inference" or "learning".
        seconds: planned, with compilation.
        model: a model, or a recipe of `learning`.
    """

    part: str
    seconds: float
    model: str = ""
    variant: str = "layers"
    size: str = "base"
    batches: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        parts = [self.part, self.model]
        if self.part == "training":
            parts += [self.size, self.variant]
        return ", ".join(part for part in parts if part)


def baseline(model: str, seconds: float, batches: tuple[str, ...] = BATCH_NAMES) -> Measurement:
    return Measurement("training", seconds, model, batches=batches)


def variant(name: str, seconds: float, **fields: Any) -> Measurement:
    options = dict(batches=VARIANT_BATCHES) | fields
    return Measurement("training", seconds, "MiniBERT", name, **options)


# In the order of their worth: where a run is cut off, the last ones are missing.
PLANS = {
    "facts": [Measurement("facts", 15)],
    "speed": [
        baseline("MiniBERT", 40),
        baseline("ModernBERT", 40),
        baseline("ModernBERT, packed", 20, NATURAL),
        variant("graph", 30),
        variant("graph and head", 35),
        variant("head", 20),
        variant("bf16 residual", 20),
        variant("fused residual", 20),
        variant("cuDNN", 15, batches=NATURAL),
        variant("FA3", 10, batches=NATURAL),
        variant("FA4", 10, batches=NATURAL),
        baseline("BERT", 20),
        variant("layers", 25, size="large", batches=LARGE_BATCHES),
        Measurement("training", 25, "ModernBERT", size="large", batches=LARGE_BATCHES),
        variant("graph and head", 30, size="large", batches=LARGE_BATCHES),
        baseline("ModernBERT, masks", 15, NATURAL),
        variant("autotune", 45),
        variant("not compiled", 10),
        Measurement("inference", 5, "MiniBERT", "not compiled"),
        Measurement("inference", 5, "ModernBERT", "not compiled"),
        Measurement("inference", 5, "BERT", "not compiled"),
    ],
    "learning": [
        Measurement("learning", 140, "MiniBERT"),
        Measurement("learning", 140, "ModernBERT, plain AdamW"),
        Measurement("learning", 140, "ModernBERT, best recipe"),
        Measurement("learning", 140, "MiniBERT, best variant"),
    ],
}


# --- the process of one measurement ---


def work(measurement: Measurement, options: Options) -> None:
    """Run one measurement, and append its rows."""
    import gpu_learning
    import gpu_measure
    import torch

    torch._dynamo.config.recompile_limit = 64  # all layers of a model share one function
    device = torch.device(options.device)
    if measurement.part == "facts":
        rows = gpu_measure.measure_facts(device)
    elif measurement.part == "training":
        rows = gpu_measure.measure_training(
            measurement.model,
            measurement.size,
            measurement.variant,
            measurement.batches,
            device,
            options.tiny,
        )
    elif measurement.part == "inference":
        rows = gpu_measure.measure_inference(measurement.model, device, options.tiny)
    else:
        rows = gpu_learning.measure_learning(
            measurement.model,
            Path(options.data),
            options.best_variant,
            options.seconds,
            device,
            options.tiny,
        )
    for row in rows:
        append(options, row)


def worker(options: Options) -> None:
    """Import all that takes seconds, then wait for a measurement on standard input."""
    import gpu_learning  # noqa: F401

    line = sys.stdin.readline()
    if not line:
        return
    request = json.loads(line)
    options.output = request.pop("path")
    request["batches"] = tuple(request["batches"])
    measurement = Measurement(**request)
    try:
        work(measurement, options)
    except Exception as error:
        append(
            options,
            dict(
                what=measurement.name,
                model=measurement.model,
                failed=f"{type(error).__name__}: {str(error)[:1000]}",
            ),
        )


def append(options: Options, row: dict[str, Any]) -> None:
    """Add a line to the file of results, and print it."""
    with open(options.output, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    print(describe(row), flush=True)


def describe(row: dict[str, Any]) -> str:
    """A row as one line of text."""
    texts = []
    for name, value in row.items():
        if name in ("what", "model"):
            texts.append(str(value))
        elif isinstance(value, float):
            texts.append(f"{name} {value:.4g}")
        elif name != "dearest":
            texts.append(f"{name} {value}")
    return "  ".join(text for text in texts if text)


# --- the run ---


class Run:
    """All measurements of a plan, one after the other. What does not fit into its time is left out,
    with a line."""

    def __init__(self, options: Options):
        self.options = options
        self.deadline = START + RUN_SECONDS[options.work] * options.slower
        self.path = Path(options.output) / f"{options.work}.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("", encoding="utf-8")
        # All processes share what inductor compiles.
        cache = Path(tempfile.gettempdir()) / "minibert_gpu_cache"
        self.environment = os.environ | dict(TORCHINDUCTOR_CACHE_DIR=str(cache))
        self.processes: list[subprocess.Popen] = []

    def start(self) -> subprocess.Popen:
        """A process that imports, then waits."""
        options = dataclasses.asdict(self.options) | dict(work="worker")
        arguments = []
        for name, value in options.items():
            arguments += [f"--{name}", str(value)]
        process = subprocess.Popen(
            [sys.executable, __file__, *arguments],
            stdin=subprocess.PIPE,
            text=True,
            env=self.environment,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def measure(self, measurements: list[Measurement]) -> None:
        try:
            waiting = self.start()
            for measurement in measurements:
                left = self.deadline - time.monotonic()
                if left < 5:
                    self.note(measurement, "skipped: the run has no time left")
                    continue
                process = waiting
                self.send(process, measurement)
                waiting = self.start()  # it imports while the other one measures
                self.wait(process, measurement, left)
        finally:
            for process in self.processes:
                stop(process)

    def send(self, process: subprocess.Popen, measurement: Measurement) -> None:
        request = dataclasses.asdict(measurement) | dict(path=str(self.path))
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.close()

    def wait(self, process: subprocess.Popen, measurement: Measurement, left: float) -> None:
        limit = min(measurement.seconds * PATIENCE * self.options.slower, left)
        try:
            code = process.wait(timeout=limit)
            if code:
                self.note(measurement, f"the process ended with the code {code}")
        except subprocess.TimeoutExpired:
            stop(process)
            self.note(measurement, f"stopped after {limit:.0f} seconds")

    def note(self, measurement: Measurement, text: str) -> None:
        options = dataclasses.replace(self.options, output=str(self.path))
        append(options, dict(what=measurement.name, model=measurement.model, failed=text))

    def rows(self) -> list[dict[str, Any]]:
        lines = self.path.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]


def stop(process: subprocess.Popen) -> None:
    """End a process and all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


# --- summaries ---


def print_plan() -> None:
    for name, measurements in PLANS.items():
        planned = sum(measurement.seconds for measurement in measurements)
        print(f"{name}: {planned:.0f} seconds planned, {RUN_SECONDS[name]} at most")
        for measurement in measurements:
            print(f"  {measurement.seconds:5.0f}  {measurement.name}")


def print_speed(rows: list[dict[str, Any]]) -> None:
    """Thousands of tokens a second of each model and variant on each batch, and its share of
    ModernBERT's."""
    timed = [row for row in rows if "tokens" in row]
    reference = {
        row["what"]: row["tokens"]
        for row in timed
        if row["model"] == "ModernBERT" and row["variant"] in ("layers", "not compiled")
    }
    for row in sorted(timed, key=lambda row: row["what"]):
        times = row["tokens"] / reference.get(row["what"], float("nan"))
        name = f"{row['model']}, {row['variant']}"
        peak = f"{row['mfu']:.1%}" if "mfu" in row else ""
        print(f"{row['what']:34} {name:36} {row['tokens'] / 1000:8.1f} {times:6.2f} {peak}")


def print_learning(rows: list[dict[str, Any]]) -> None:
    """The last held-out loss of each recipe, and the seconds that it takes to the last losses of
    the others."""
    from gpu_learning import seconds_to_loss

    runs: dict[str, list] = {}
    for row in rows:
        if "loss" in row:
            runs.setdefault(row["model"], []).append(row)
    for target_name, target_rows in runs.items():
        target = target_rows[-1]["loss"]
        print(f"to the last loss of {target_name}, {target:.3f}:")
        for name, run_rows in runs.items():
            seconds = seconds_to_loss(run_rows, target)
            print(f"  {name:28}", "never" if seconds is None else f"{seconds:.0f} s")


def main() -> None:
    (options,) = HfArgumentParser(Options).parse_args_into_dataclasses()
    if options.work == "worker":
        return worker(options)
    if options.work == "plan":
        return print_plan()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # `timeout` sends it: end the processes
    run = Run(options)
    run.measure(PLANS[options.work])
    if options.work == "speed":
        print_speed(run.rows())
    elif options.work == "learning":
        print_learning(run.rows())


if __name__ == "__main__":
    main()
