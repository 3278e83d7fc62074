"""`minibert bench`: run the cells that were asked for, one result file each, then show all of them."""

from __future__ import annotations

import dataclasses
import fnmatch
import json
import os
import platform
import statistics
import sys
import time
from functools import partial
from pathlib import Path

import torch
import transformers
from tqdm.auto import tqdm

from ..arguments.pretraining import BenchArguments, CorpusArguments
from .benchmarks import CELLS
from .measure import first_line, interleave, matrix_product, probe
from .report import draw, summary, table
from .work import FLOPS_FORMULA, MFU_FORMULA, Cell, Ratio, Run, Work

MATRIX_PRODUCT = "matrix product"


def bench(corpus: CorpusArguments, arguments: BenchArguments) -> int:
    """Measure cells and show a table (with `arguments.json` the results as JSON) and, where times of several sequence
    lengths are there, a plot.

    Each cell's result is written to `arguments.output` when it is done; a cell that is there already is only shown.

    Returns:
        The process's exit status: 1 if a cell or a MiniBERT in it failed, else 0.

    Raises:
        ValueError: bad arguments, or results of other settings in the folder, before any work.
    """
    device = choose_device(arguments.device)
    cells = choose_cells(arguments.cells, device)
    if arguments.list_cells:
        print("\n".join(f"{cell.name:46}  {cell.what}" for cell in cells))
        return 0
    for name, least in (("rounds", 1), ("cell_seconds", 1)):
        if getattr(arguments, name) < least:
            raise ValueError(f"{name}: {getattr(arguments, name)} is too small; legal: {least} and more")
    folder = Path(arguments.output)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"output: {arguments.output!r} is a file; legal: a folder, existing or new")
    run = Run(device, arguments.quick, arguments.compile, corpus)
    settings = dict(
        device=device_name(device), quick=run.quick, compile=run.compile, corpus=dataclasses.asdict(corpus),
        torch=torch.__version__, transformers=transformers.__version__, threads=torch.get_num_threads(),
    )  # fmt: skip
    done = {} if arguments.overwrite else read_results(cells, folder, settings)

    results = []
    shown = sys.stderr if arguments.json else sys.stdout
    warning = " (quick: tiny shapes, the figures mean nothing)" if run.quick else ""
    print(f"{settings['device']}, {settings['threads']} threads, torch {settings['torch']}{warning}", file=shown)
    folder.mkdir(parents=True, exist_ok=True)
    for number, cell in enumerate(tqdm(cells, desc="Cells", unit=" cells")):
        if cell.name in done:
            results.append(done[cell.name])
            continue
        title = f"[{number + 1}/{len(cells)}] {cell.name}"
        begin = time.perf_counter()
        try:
            result = measure_cell(cell, run, arguments.rounds, arguments.cell_seconds, title)
        except Exception as error:  # one cell must not take the others with it; without a file it runs again next time
            result = {"cell": cell.name, "what": cell.what, "error": first_line(error)}
        else:
            result |= {"settings": settings, "seconds": time.perf_counter() - begin}
            write_atomically(folder / file_name(cell), json.dumps(result, indent=1, ensure_ascii=False) + "\n")
        tqdm.write(summary(result), file=shown)
        results.append(result)

    figure = folder / "bench.png"
    drawn = draw(results, figure)
    if arguments.json:
        print(
            json.dumps(
                {"settings": settings, "formulas": [MFU_FORMULA, FLOPS_FORMULA], "results": results},
                ensure_ascii=False,
            )
        )
    else:
        print(f"\n{table(results)}\n\n{MFU_FORMULA}\n{FLOPS_FORMULA}")
        print(f"Written: {folder / '*.json'}" + (f", {figure}" if drawn else ""))
    return int(any(failed(result) for result in results))


def choose_device(name: str) -> torch.device:
    """`auto` is CUDA where there is one."""
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("device: 'cuda' is not there: torch.cuda.is_available() is False; legal here: auto, cpu")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    info = Path("/proc/cpuinfo")
    lines = info.read_text(errors="replace").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def choose_cells(patterns: list[str], device: torch.device) -> list[Cell]:
    """The cells of this device that the patterns name: a whole name, its beginning up to a "/", or with wildcards."""
    legal = {name: cell for name, cell in CELLS.items() if device.type in cell.devices}
    chosen = set()
    for pattern in patterns:
        found = {name for name in legal if name.startswith(f"{pattern}/") or fnmatch.fnmatchcase(name, pattern)}
        if not found:
            works = ", ".join(dict.fromkeys(name.partition("/")[0] for name in legal))
            raise ValueError(
                f"cells: {pattern!r} is nothing to measure on {device.type}; legal: {works}, and the names that"
                " --list_cells shows"
            )
        chosen |= found
    return [cell for name, cell in legal.items() if not patterns or name in chosen]


def file_name(cell: Cell) -> str:
    return cell.name.replace("/", ".") + ".json"


def read_results(cells: list[Cell], folder: Path, settings: dict) -> dict[str, dict]:
    """The results of an earlier run, by cell.

    Raises:
        ValueError: a file that is no result, or a result of other settings, which must not stand beside new ones.
    """
    results = {}
    for cell in cells:
        path = folder / file_name(cell)
        if not path.is_file():
            continue
        try:
            result = json.loads(path.read_text(encoding="utf-8"))
            found = result["settings"]
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"output: {str(path)!r} is no result of this command; choose another folder") from None
        differ = [name for name in settings if found.get(name) != settings[name]]
        if differ:
            name = differ[0]
            raise ValueError(
                f"output: {str(path)!r} was measured with {name}={found.get(name)!r}, this run has {settings[name]!r};"
                " choose another folder, or --overwrite"
            )
        results[cell.name] = result
    return results


def write_atomically(path: Path, text: str) -> None:
    """A file that is there is whole."""
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, path)


def measure_cell(cell: Cell, run: Run, rounds: int, limit: float, title: str = "") -> dict:
    """The result of one cell, ready for JSON.

    Args:
        limit: seconds after which no further round begins, and that a process of its own may take.
    """
    work = cell.build(run)
    if cell.measure == "bytes":
        probes = list(work.steps)
    else:
        probes = [] if run.quick else list(work.guarded)
    probed = {}
    for name in tqdm(probes, desc=title, unit=" processes", leave=False, disable=not probes):
        probed[name] = probe(cell.name, name, run, limit)
    failed = {name: outcome["failed"] for name, outcome in probed.items() if "failed" in outcome}
    rate = None
    if cell.measure == "bytes":
        samples = {name: [outcome["bytes"]] for name, outcome in probed.items() if name not in failed}
    else:
        size = run.choose(8192 if run.device.type == "cuda" else 2048, 512)
        builders = {name: build for name, build in work.steps.items() if name not in failed}
        if work.flops is not None:
            builders[MATRIX_PRODUCT] = partial(matrix_product, size, work.dtype, run.device)
        shortest = 0.0 if run.quick else 0.1
        samples, errors = interleave(builders, work.calls, rounds, run.device, limit, shortest, title)
        failed |= errors
        products = samples.pop(MATRIX_PRODUCT, None)
        if products:  # each round runs it once a batch
            rate = 2 * size**3 * work.calls / statistics.median(products)
    if run.quick:  # tiny shapes say nothing about what is wanted
        work.ratios = [Ratio(ratio.numerator, ratio.denominator) for ratio in work.ratios]
    return describe(cell, work, samples, failed, rate)


def describe(
    cell: Cell, work: Work, samples: dict[str, list[float]], failed: dict[str, str], rate: float | None
) -> dict:
    """Samples to medians, minima, rates and ratios.

    Args:
        samples: seconds or bytes by entry, one a round.
        rate: FLOPs per second of the machine's matrix product.
    """
    measured = {}
    for name, values in samples.items():
        entry = {"samples": values, "median": statistics.median(values), "min": min(values)}
        if cell.measure == "seconds" and work.tokens:
            entry["tokens_per_second"] = work.tokens / entry["median"]
        if rate and work.flops:
            entry["mfu"] = work.flops / entry["median"] / rate
        measured[name] = entry
    return {
        "cell": cell.name,
        "what": cell.what,
        "measure": cell.measure,
        "dtype": str(work.dtype).removeprefix("torch."),
        "rounds": max(map(len, samples.values()), default=0),
        "tokens": work.tokens,
        "places": work.places,
        "flops": work.flops,
        "matrix_flops_per_second": rate,
        "backend": work.backend,
        "measured": measured,
        "failed": failed,
        "ratios": [
            compare(ratio, measured) for ratio in work.ratios if {ratio.numerator, ratio.denominator} <= set(measured)
        ],
    }


def compare(ratio: Ratio, measured: dict[str, dict]) -> dict:
    """The ratio of the medians and that of the minima; `reached` speaks of the medians."""
    values = {key: measured[ratio.numerator][key] / measured[ratio.denominator][key] for key in ("median", "min")}
    reached = None
    if ratio.at_least is not None:
        reached = values["median"] >= ratio.at_least
    if ratio.at_most is not None:
        reached = values["median"] <= ratio.at_most
    return dataclasses.asdict(ratio) | values | {"reached": reached}


def failed(result: dict) -> bool:
    """Whether the cell as a whole or a MiniBERT in it failed."""
    return "error" in result or any(name.startswith(("MiniBert", "stream_")) for name in result["failed"])
