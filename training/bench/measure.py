"""Times in interleaved rounds, the machine's matrix-product rate, and peak memory in a process of its own.

Run as a module (`python -m minibert.training.bench.measure`) it is that process.
"""

import ctypes
import dataclasses
import gc
import json
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from ..arguments.pretraining import CorpusArguments
from ..precision import fast_bf16, now
from .benchmarks import BENCHMARKS
from .work import Run

Step = Callable[[int], Any]


def slow_in_bf16(names: Iterable[str], device: str) -> tuple[list[str], str]:
    """Which names end in bf16, if the device is slow at it (a processor without instructions for it takes a hundred
    times as long as in fp32); and why."""
    fast, why = fast_bf16(device)
    return [name for name in names if name.endswith("bf16") and not fast], why


def seconds(step: Step, device: torch.device, number: int, repeats: int = 1) -> float:
    """How long a step on batch `number` takes, the device's work included; the mean of `repeats` in a row."""
    start = now(device)
    for _ in range(repeats):
        step(number)
    return (now(device) - start) / repeats


def interleave(
    builders: dict[str, Callable[[], Step]], calls: int, rounds: int, device: torch.device, limit: float,
    shortest: float = 0.1,
) -> tuple[dict[str, list[float]], dict[str, str], dict[str, str]]:  # fmt: skip
    """Time steps in rounds: in each, every step runs on every batch, one step after the other on the same batch, and
    the one that begins changes from round to round. A first round is discarded.

    Args:
        builders: make the steps.
        calls: number of batches.
        limit: seconds after which no further round begins; one is done in any case.
        shortest: a call that takes fewer seconds is repeated until it takes that long, and the mean counts.

    Returns:
        seconds over all batches by step and round; the error by step of those that failed; MiniBERT's attention and
        why, by type of layer.
    """
    steps, failed, repeats, attention = {}, {}, {}, {}
    begin = time.perf_counter()
    for name, build in builders.items():
        try:
            step = build()
            taken = sum(seconds(step, device, number) for number in range(calls))
            if taken < shortest * calls:  # what only a first call does is done now
                taken = sum(seconds(step, device, number) for number in range(calls))
            attention |= getattr(step, "attention", dict)()
        except Exception as error:  # whatever it is that one model cannot do, the others go on
            failed[name] = first_line(error)
        else:
            steps[name], repeats[name] = step, max(1, math.ceil(shortest * calls / taken))
    names = list(steps)
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds if names else 0):
        if number and time.perf_counter() - begin > limit:
            break
        first = number % len(names)
        taken = dict.fromkeys(names, 0.0)
        for call in range(calls):
            for name in names[first:] + names[:first]:
                taken[name] += seconds(steps[name], device, call, repeats[name])
        for name in names:
            times[name].append(taken[name])
    return times, failed, attention


def first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}".rstrip(": ")


def matrix_product(size: int, dtype: torch.dtype, device: torch.device) -> Step:
    """A product of two matrices of random numbers, [size, size]: 2 · size³ floating-point operations."""
    generator = torch.Generator(device).manual_seed(0)
    a, b = (torch.randn(size, size, device=device, generator=generator).to(dtype) for _ in range(2))
    return lambda number: torch.matmul(a, b)


# --- peak memory ---


def peak_memory(step: Callable[[], object], device: torch.device) -> int:
    """Bytes that a call needs at most, beyond those that are there before it: what the CUDA allocator handed out, or
    resident memory (on Linux only: NotImplementedError elsewhere)."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        step()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    reset = Path("/proc/self/clear_refs")
    if not reset.exists():
        raise NotImplementedError("peak memory is measured on Linux and CUDA only")
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)  # what building the model left behind would hide what the call needs
    reset.write_text("5")  # proc_pid_clear_refs(5): the peak starts anew
    before = _status("VmRSS")
    step()
    return max(_status("VmHWM") - before, 1)


def _status(name: str) -> int:
    return int(re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024


def probe(benchmark: str, name: str, run: Run, limit: float) -> dict[str, Any]:
    """Run one step of a benchmark once in a fresh process; {"bytes": peak memory of its last call, "attention": …}, or
    {"failed": why}."""
    task = json.dumps(dataclasses.asdict(run) | {"device": str(run.device)})
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", __name__, benchmark, name, task]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, env=environment)
    except subprocess.TimeoutExpired:
        return {"failed": f"not done within {limit:g} s"}
    if done.returncode == -9:
        return {"failed": "killed by the system: out of memory"}
    if done.returncode:
        return {"failed": ([f"exit status {done.returncode}", *done.stderr.strip().splitlines()])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def main(benchmark: str, name: str, task: str) -> None:
    """The process that `probe` starts. Calls before the last one warm up."""
    if (score := Path("/proc/self/oom_score_adj")).exists():
        score.write_text("1000")  # should memory run out, this process goes, not the one that waits
    run = Run(**json.loads(task))
    run.device, run.corpus = torch.device(run.device), CorpusArguments(**run.corpus)
    work = BENCHMARKS[benchmark].build(run)
    step = work.steps[name]()
    for number in range(work.calls - 1):
        step(number)
    used = peak_memory(lambda: step(work.calls - 1), run.device)
    print(json.dumps({"bytes": used, "attention": getattr(step, "attention", dict)()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
