"""`minibert bench`: run the benchmarks that were asked for, one result file each, then show all of them."""

import dataclasses
import json
import platform
import re
import statistics
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from tqdm.auto import tqdm

from ..arguments import check_least, names_that_begin
from ..arguments.pretraining import CorpusArguments
from ..arguments.tools import BenchArguments
from ..checkpoints import check_same
from ..files import write_json
from ..report import bench_table, plot_bench_lengths
from .benchmarks import BENCHMARKS
from .measure import first_line, interleave, matrix_product, probe, slow_in_bf16
from .work import FLOPS_FORMULA, MFU_FORMULA, Benchmark, Run, Work

MATRIX_PRODUCT = "matrix product"


def bench(corpus: CorpusArguments, arguments: BenchArguments) -> list[dict[str, Any]]:
    """Measure, write each result when it is there (one that is there already is only shown), and show all in a table
    and, where there are times of several sequence lengths, a picture.

    Returns:
        the results (see `describe`); with `arguments.list_benchmarks` names and descriptions.

    Raises:
        ValueError: bad arguments, or results of other settings in the folder, before any work; after it, that a
            benchmark or a MiniBERT in it failed.
    """
    device = choose_device(arguments.device)
    known = [name for name, benchmark in BENCHMARKS.items() if device.type in benchmark.devices]
    chosen = names_that_begin("benchmarks", arguments.benchmarks, known)
    slow, why = slow_in_bf16(chosen, device.type)
    if slow and not (arguments.benchmarks or arguments.list_benchmarks or arguments.quick):
        print(f"Without those in bf16 ({why}); --benchmarks takes their names")
        chosen = [name for name in chosen if name not in slow]
    benchmarks = [BENCHMARKS[name] for name in chosen]
    if arguments.list_benchmarks:
        print("\n".join(f"{benchmark.name:46}  {benchmark.what}" for benchmark in benchmarks))
        return [{"benchmark": benchmark.name, "what": benchmark.what} for benchmark in benchmarks]
    check_least(arguments, rounds=1, benchmark_seconds=1)
    run = Run(device, arguments.quick, arguments.compile, corpus)
    settings = dataclasses.asdict(run) | {
        "rounds": arguments.rounds,
        "benchmark_seconds": arguments.benchmark_seconds,
        **describe_machine(device),
    }
    folder = Path(arguments.output)
    files = {benchmark.name: folder / f"{benchmark.name.replace('/', '.')}.json" for benchmark in benchmarks}
    done = {} if arguments.overwrite else read_results(files, settings)
    if any(benchmark.name.startswith("train") for benchmark in benchmarks if benchmark.name not in done):
        _ = run.text  # what is wrong with it is said before any work
    folder.mkdir(parents=True, exist_ok=True)

    results = []
    warning = " (quick: tiny shapes, the figures mean nothing)" if run.quick else ""
    print(f"{settings['device']}, {settings['threads']} threads, torch {settings['torch']}{warning}")
    for benchmark in tqdm(benchmarks, desc="Benchmarks", unit="", disable=None):
        result = done.get(benchmark.name)
        if result is None:
            try:
                result = measure_benchmark(benchmark, run, arguments.rounds, arguments.benchmark_seconds)
            except Exception as error:  # the others go on
                failed = {"MiniBERT and its peers": first_line(error)}
                result = {"benchmark": benchmark.name, "what": benchmark.what, "measured": {}, "failed": failed}
            else:
                result["settings"] = settings
                if not _minibert_failed(result):  # without a file it runs again next time
                    write_json(files[benchmark.name], result)
            tqdm.write(show(result))
        results.append(result)

    figure = folder / "bench.png"
    drawn = plot_bench_lengths(results, figure)
    print(f"\n{bench_table(results)}\n\n{MFU_FORMULA}\n{FLOPS_FORMULA}")
    print(f"Written: {folder / '*.json'}" + (f", {figure}" if drawn else ""))
    failed = [result["benchmark"] for result in results if _minibert_failed(result)]
    if failed:
        raise ValueError(f"failed: {', '.join(failed)}; see above")
    return results


def _minibert_failed(result: dict[str, Any]) -> bool:
    return any("MiniB" in name for name in result["failed"])


def show(result: dict[str, Any]) -> str:
    head = f"\n{result['what']}"
    if result.get("tokens"):
        head += f"; {result['tokens']:,} tokens in {result['places'] or result['tokens']:,} places"
    attention = [f"  {kind}: {reason}" for kind, reason in result.get("attention", {}).items()]
    return "\n".join([head, bench_table([result]), *attention])


def choose_device(name: str) -> torch.device:
    """`auto` is CUDA where there is one."""
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("device: 'cuda' is not there: torch.cuda.is_available() is False; use auto or cpu")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def describe_machine(device: torch.device) -> dict[str, Any]:
    """What times depend on."""
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    return {"device": device_name(device), **versions, "threads": torch.get_num_threads()}


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    info = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: *(.+)", info.read_text(errors="replace")) if info.exists() else None
    return model[1].strip() if model else platform.processor() or platform.machine()


def read_results(files: dict[str, Path], settings: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The results of an earlier run, by benchmark; ValueError for one of other settings, which must not stand beside
    new ones, and for a file that is no result."""
    results = {}
    for benchmark, path in files.items():
        if not path.is_file():
            continue
        try:
            results[benchmark] = json.loads(path.read_text(encoding="utf-8"))
            found = results[benchmark]["settings"]
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"output: {str(path)!r} is no result of this command; use another folder") from None
        check_same(found, settings, f"{str(path)!r} was measured with", "use another output, or --overwrite")
    return results


def measure_benchmark(benchmark: Benchmark, run: Run, rounds: int, limit: float) -> dict[str, Any]:
    """The result of one benchmark, ready for JSON. After `limit` seconds no further round begins, and a process of its
    own is ended."""
    work, rate = benchmark.build(run), None
    probes = work.steps if benchmark.measure == "bytes" else () if run.quick else work.guarded
    probed = {name: probe(benchmark.name, name, run, limit) for name in probes}
    failed = {name: outcome["failed"] for name, outcome in probed.items() if "failed" in outcome}
    if benchmark.measure == "bytes":
        samples = {name: [outcome["bytes"]] for name, outcome in probed.items() if name not in failed}
        attention = {kind: why for outcome in probed.values() for kind, why in outcome.get("attention", {}).items()}
    else:
        size = run.choose(8192 if run.device.type == "cuda" else 2048, 512)
        builders = {name: build for name, build in work.steps.items() if name not in failed}
        if work.flops is not None:
            builders[MATRIX_PRODUCT] = partial(matrix_product, size, work.dtype, run.device)
        shortest = 0.0 if run.quick else 0.1
        samples, errors, attention = interleave(builders, work.calls, rounds, run.device, limit, shortest)
        failed |= errors
        if products := samples.pop(MATRIX_PRODUCT, None):  # each round runs it once a batch
            rate = 2 * size**3 * work.calls / statistics.median(products)
    for ratio in work.ratios if run.quick else ():
        ratio.target = None  # tiny shapes say nothing about targets
    return describe(benchmark, work, samples, failed, rate) | {"attention": attention}


def describe(
    benchmark: Benchmark, work: Work, samples: dict[str, list[float]], failed: dict[str, str], rate: float | None
) -> dict[str, Any]:
    """Samples (seconds or bytes by model, one a round) to medians, minima, rates and ratios (`reached` speaks of the
    medians); `rate` is that of the machine's matrix product, in FLOPs per second."""
    measured = {}
    for name, values in samples.items():
        entry = measured[name] = {"samples": values, "median": statistics.median(values), "min": min(values)}
        if benchmark.measure == "seconds" and work.tokens:
            entry["tokens_per_second"] = work.tokens / entry["median"]
        if rate and work.flops and name not in work.guarded:  # those are of another architecture
            entry["mfu"] = work.flops / entry["median"] / rate
    ratios = []
    for ratio in work.ratios:
        if {ratio.numerator, ratio.denominator} <= set(measured):
            over, under = measured[ratio.numerator], measured[ratio.denominator]
            median, least = (over[key] / under[key] for key in ("median", "min"))
            reached = ratio.target and (median <= ratio.target if ratio.at_most else median >= ratio.target)
            ratios.append(dataclasses.asdict(ratio) | {"median": median, "min": least, "reached": reached})
    facts = {name: getattr(work, name) for name in ("tokens", "places", "flops")}
    facts |= {"dtype": str(work.dtype).removeprefix("torch."), "matrix_flops_per_second": rate}
    names = {"benchmark": benchmark.name, "what": benchmark.what, "measure": benchmark.measure}
    return names | facts | {"measured": measured, "failed": failed, "ratios": ratios}
