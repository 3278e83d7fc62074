"""Speed and memory of MiniBERT against Transformers' own models, side by side on this machine.

    python benchmarks/speed.py --benchmarks train-natural infer-8192/ --rounds 5

`--benchmarks` takes names or their beginnings, `--list_benchmarks` shows them. Models take turns in every round, on the
same batches. The results go to a JSON file, a table is printed.
"""

import ctypes
import dataclasses
import gc
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from common import (
    Corpus,
    choose_device,
    describe_machine,
    first_line,
    memory_of_process,
    names_beginning_with,
    now,
    option,
    parse,
    run_facts,
    slow_in_bf16,
)
from matplotlib.ticker import LogFormatter
from workloads import BENCHMARKS, FLOPS_FORMULA, MFU_FORMULA, Benchmark, Run, Work

from minibert.training.common.files import write_json
from minibert.training.common.printing import format_table
from minibert.training.evaluation.plots import picture

MATRIX_PRODUCT = "matrix product"
Step = Callable[[int], Any]


@dataclasses.dataclass
class Arguments:
    benchmarks: list[str] = option(
        [], "Names or their beginnings; by default all, none in bf16 where that is slow."
    )
    list_benchmarks: bool = option(False, "Only show what can be measured on the device.")
    output: str = option(
        "runs/speed.json", "JSON file of the results; a picture of sequence lengths lies beside it."
    )
    device: Literal["auto", "cpu", "cuda"] = option(
        "auto", "Where to measure; auto: cuda if there is one."
    )
    rounds: int = option(5, "Rounds beside the first, in each of which all models run.")
    seconds: float = option(600.0, "Seconds after which a benchmark begins no further round.")
    compile: bool = option(False, "Compile all models with torch.compile.")
    quick: bool = option(False, "Tiny models and texts: shows that everything runs, not how fast.")


def main(corpus: Corpus, arguments: Arguments) -> list[dict[str, Any]]:
    device = choose_device(arguments.device)
    known = [name for name, benchmark in BENCHMARKS.items() if device.type in benchmark.devices]
    chosen = names_beginning_with(arguments.benchmarks, known)
    slow, why = slow_in_bf16(chosen, device.type)
    if slow and not (arguments.benchmarks or arguments.list_benchmarks or arguments.quick):
        print(f"Without those in bf16 ({why}); --benchmarks takes their names")
        chosen = [name for name in chosen if name not in slow]
    if arguments.list_benchmarks:
        print("\n".join(f"{name:46}  {BENCHMARKS[name].what}" for name in chosen))
        return []
    run = Run(device, arguments.quick, arguments.compile, corpus)
    machine, output, results = describe_machine(device), Path(arguments.output), []
    print(f"{machine['device']}, {machine['threads']} threads, torch {machine['torch']}")
    output.parent.mkdir(parents=True, exist_ok=True)
    for name in chosen:
        benchmark = BENCHMARKS[name]
        try:
            result = measure_benchmark(benchmark, run, arguments.rounds, arguments.seconds)
        except Exception as error:  # the others go on
            failed = {"MiniBERT and its peers": first_line(error)}
            result = {"benchmark": name, "what": benchmark.what, "measured": {}, "failed": failed}
        results.append(result)
        write_json(output, run_facts() | {"machine": machine, "results": results})
        print(show(result), flush=True)
    plot_lengths(results, output.with_suffix(".png"))
    print(f"\n{MFU_FORMULA}\n{FLOPS_FORMULA}")
    return results


def show(result: dict[str, Any]) -> str:
    head = f"\n{result['what']}"
    if result.get("tokens"):
        head += f"; {result['tokens']:,} tokens in {result['places'] or result['tokens']:,} places"
    attention = [f"  {kind}: {reason}" for kind, reason in result.get("attention", {}).items()]
    return "\n".join([head, results_table([result]), *attention])


def measure_benchmark(benchmark: Benchmark, run: Run, rounds: int, limit: float) -> dict[str, Any]:
    """The result of one benchmark, ready for JSON. After `limit` seconds no further round begins, and a process of its
    own is ended."""
    work, rate = benchmark.build(run), None
    probes = work.steps if benchmark.measure == "bytes" else () if run.quick else work.guarded
    probed = {name: probe(benchmark.name, name, run, limit) for name in probes}
    failed = {name: outcome["failed"] for name, outcome in probed.items() if "failed" in outcome}
    if benchmark.measure == "bytes":
        samples = {
            name: [outcome["bytes"]] for name, outcome in probed.items() if name not in failed
        }
        attention = {
            kind: why
            for outcome in probed.values()
            for kind, why in outcome.get("attention", {}).items()
        }
    else:
        size = run.choose(8192 if run.device.type == "cuda" else 2048, 512)
        builders = {name: build for name, build in work.steps.items() if name not in failed}
        if work.flops is not None:
            builders[MATRIX_PRODUCT] = partial(matrix_product, size, work.dtype, run.device)
        shortest = 0.0 if run.quick else 0.1
        samples, errors, attention = interleave(
            builders, work.calls, rounds, run.device, limit, shortest
        )
        failed |= errors
        if products := samples.pop(MATRIX_PRODUCT, None):  # each round runs it once a batch
            rate = 2 * size**3 * work.calls / statistics.median(products)
    for ratio in work.ratios if run.quick else ():
        ratio.target = None  # tiny shapes say nothing about targets
    return describe(benchmark, work, samples, failed, rate) | {"attention": attention}


def describe(
    benchmark: Benchmark,
    work: Work,
    samples: dict[str, list[float]],
    failed: dict[str, str],
    rate: float | None,
) -> dict[str, Any]:
    """Samples (seconds or bytes by model, one a round) to medians, minima, rates and ratios (`reached` speaks of the
    medians); `rate` is that of the machine's matrix product, in FLOPs per second."""
    measured = {}
    for name, values in samples.items():
        entry = measured[name] = {
            "samples": values,
            "median": statistics.median(values),
            "min": min(values),
        }
        if benchmark.measure == "seconds" and work.tokens:
            entry["tokens_per_second"] = work.tokens / entry["median"]
        if rate and work.flops and name not in work.guarded:  # those are of another architecture
            entry["mfu"] = work.flops / entry["median"] / rate
    ratios = []
    for ratio in work.ratios:
        if {ratio.numerator, ratio.denominator} <= set(measured):
            over, under = measured[ratio.numerator], measured[ratio.denominator]
            median, least = (over[key] / under[key] for key in ("median", "min"))
            reached = ratio.target and (
                median <= ratio.target if ratio.at_most else median >= ratio.target
            )
            ratios.append(
                dataclasses.asdict(ratio) | {"median": median, "min": least, "reached": reached}
            )
    facts = {name: getattr(work, name) for name in ("tokens", "places", "flops")}
    facts |= {"dtype": str(work.dtype).removeprefix("torch."), "matrix_flops_per_second": rate}
    names = {"benchmark": benchmark.name, "what": benchmark.what, "measure": benchmark.measure}
    return names | facts | {"measured": measured, "failed": failed, "ratios": ratios}


# --- times in interleaved rounds ---


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


def matrix_product(size: int, dtype: torch.dtype, device: torch.device) -> Step:
    """A product of two matrices of random numbers, [size, size]: 2 · size³ floating-point operations."""
    generator = torch.Generator(device).manual_seed(0)
    a, b = (torch.randn(size, size, device=device, generator=generator).to(dtype) for _ in range(2))
    return lambda number: torch.matmul(a, b)


# --- peak memory ---


PROBE = "--probe"  # what `probe` starts this script with


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
    before = memory_of_process("VmRSS")
    step()
    return max(memory_of_process("VmHWM") - before, 1)


def probe(benchmark: str, name: str, run: Run, limit: float) -> dict[str, Any]:
    """Run one step of a benchmark once in a fresh process; {"bytes": peak memory of its last call, "attention": …}, or
    {"failed": why}."""
    task = json.dumps(dataclasses.asdict(run) | {"device": str(run.device)})
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, __file__, PROBE, benchmark, name, task]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit, env=environment
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"not done within {limit:g} s"}
    if done.returncode == -9:
        return {"failed": "killed by the system: out of memory"}
    if done.returncode:
        return {
            "failed": ([f"exit status {done.returncode}", *done.stderr.strip().splitlines()])[-1]
        }
    return json.loads(done.stdout.splitlines()[-1])


def run_probe(benchmark: str, name: str, task: str) -> None:
    """The process that `probe` starts. Calls before the last one warm up."""
    if (score := Path("/proc/self/oom_score_adj")).exists():
        score.write_text("1000")  # should memory run out, this process goes, not the one that waits
    run = Run(**json.loads(task))
    run.device = torch.device(run.device)
    fields = run.corpus
    run.corpus = Corpus(**fields | {"data": fields["data"] or None})
    work = BENCHMARKS[benchmark].build(run)
    step = work.steps[name]()
    for number in range(work.calls - 1):
        step(number)
    used = peak_memory(lambda: step(work.calls - 1), run.device)
    print(json.dumps({"bytes": used, "attention": getattr(step, "attention", dict)()}))


# --- what is shown ---


def results_table(results: Sequence[dict]) -> str:
    """A line per model. A ratio stands beside its numerator."""

    def amount(value: float, measure: str) -> str:
        if measure == "bytes":
            return f"{value / 2**20:,.0f} MiB"
        return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.2f} ms"

    rows = []
    for result in results:
        name, ratios = (
            result["benchmark"],
            {ratio["numerator"]: ratio for ratio in result.get("ratios", ())},
        )
        for model, entry in result["measured"].items():
            ratio, compared, target = ratios.get(model), None, None
            if ratio:
                compared = f"{ratio['median']:.2f}× ({ratio['min']:.2f}×) {ratio['denominator']}"
            if ratio and ratio["target"]:
                bound = f"{'≤' if ratio['at_most'] else '≥'} {ratio['target']:g}×"
                target = f"{bound} {'reached' if ratio['reached'] else 'MISSED'}"
            speed = f"{entry['tokens_per_second']:,.0f}" if "tokens_per_second" in entry else None
            share = f"{entry['mfu']:.1%}" if "mfu" in entry else None
            amounts = (amount(entry[key], result["measure"]) for key in ("median", "min"))
            rows.append((name, model, *amounts, speed, share, compared, target))
        rows += [
            (name, f"{model}: FAILED: {reason}", *[None] * 6)
            for model, reason in result["failed"].items()
        ]
    header = (
        "benchmark",
        "model",
        "median",
        "minimum",
        "tokens/s",
        "MFU",
        "ratio of medians (minima)",
        "target",
    )
    return format_table(header, rows)


def plot_lengths(results: Sequence[dict], path: Path) -> None:
    """Draw the time of one text against its length, one panel per precision, if at least two lengths were measured."""
    results = [
        result
        for result in results
        if result["benchmark"].startswith("infer-length-") and result["measured"]
    ]
    precisions = list(dict.fromkeys(result["dtype"] for result in results))
    if len({result["tokens"] for result in results}) < 2:
        return
    title = f"Inference of one text, {results[0]['benchmark'].split('/')[1]}"
    with picture(path, title, len(precisions), (5.5 * len(precisions), 4.5), sharey=True) as panels:
        for precision, axes in zip(precisions, panels):
            chosen = sorted(
                (each for each in results if each["dtype"] == precision),
                key=lambda each: each["tokens"],
            )
            for name in dict.fromkeys(name for result in chosen for name in result["measured"]):
                points = [
                    (each["tokens"], each["measured"][name])
                    for each in chosen
                    if name in each["measured"]
                ]
                lengths, entries = zip(*points)
                axes.plot(
                    lengths,
                    [entry["median"] for entry in entries],
                    marker="o",
                    markersize=4,
                    label=name,
                )
                low, high = ([pick(entry["samples"]) for entry in entries] for pick in (min, max))
                axes.fill_between(lengths, low, high, alpha=0.2)
            ylabel = "seconds a forward pass (median; band: all rounds)"
            axes.set(title=precision, xlabel="tokens of the text", ylabel=ylabel, yscale="log")
            axes.set_xscale("log", base=2)
            axes.set_xticks(lengths, lengths)
            axes.yaxis.set_major_formatter(LogFormatter())  # labels without formulas
            axes.yaxis.set_minor_formatter(LogFormatter())
            axes.label_outer()


if __name__ == "__main__":
    if sys.argv[1:2] == [PROBE]:
        run_probe(*sys.argv[2:])
    else:
        outcome = main(*parse(__doc__, Corpus, Arguments))
        sys.exit(any("MiniB" in model for result in outcome for model in result["failed"]))
