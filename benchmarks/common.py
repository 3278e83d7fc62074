"""What the benchmarks share: arguments, tables of data, and facts about the machine.

Every script here is run as `python benchmarks/NAME.py --help`, with a Python that has MiniBERT installed.
"""

import json
import os
import platform
import re
import shlex
import sys
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import datasets
import torch
import transformers
from transformers import HfArgumentParser

from minibert.training.common.precision import fast_bf16


def now(device: torch.device) -> float:
    """The time (s), once the device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def option(default: Any, help: str) -> Any:
    """A dataclass field with its help text."""
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata={"help": help})
    return field(default=default, metadata={"help": help})


def parse(description: str | None, *kinds: type) -> tuple[Any, ...]:
    """An instance of each dataclass from the command line."""
    return HfArgumentParser(
        kinds, description=description, allow_abbrev=False
    ).parse_args_into_dataclasses()


# Settings of `minibert.finetune` by which the last model is kept, and the test rows are looked at once.
KEEP_LAST = {
    "per_device_train_batch_size": 16,
    "eval_strategy": "no",
    "save_strategy": "no",
    "load_best_model_at_end": False,
    "disable_tqdm": True,
}


@dataclass
class Corpus:
    data: list[str] = option(
        [], "Text files, tables, folders or Hub data sets; by default Python's documentation."
    )

    def documents(self) -> datasets.Dataset:
        """A column `text`, a row per document."""
        from minibert.training.data.documents import load_documents

        return load_documents(self.data)


def read_table(file: str | Path) -> list[dict[str, Any]]:
    """The rows of a jsonl, csv, tsv or parquet file."""
    suffix = Path(file).suffix.removeprefix(".")
    kind = {"jsonl": "json", "tsv": "csv"}.get(suffix, suffix)
    options = {"delimiter": "\t"} if suffix == "tsv" else {}
    return datasets.load_dataset(kind, data_files=str(file), split="train", **options).to_list()


def names_beginning_with(beginnings: Sequence[str], known: Collection[str]) -> list[str]:
    """The known names that begin with one of these; all of them without any."""
    for beginning in beginnings:
        if not any(name.lower().startswith(beginning.lower()) for name in known):
            raise ValueError(f"unknown name {beginning!r}; available: {', '.join(known)}")
    return [
        name for name in known if name.lower().startswith(tuple(map(str.lower, beginnings)) or "")
    ]


def save_figures(file: str | Path, **figures: Any) -> None:
    """Write figures of a notebook, a row a line, with the command that made them, the date and the machine."""
    text = json.dumps(run_facts() | figures).replace("}, {", "},\n{").replace("[{", "[\n{")
    Path(file).write_text(text + "\n", encoding="utf-8")


def run_facts() -> dict[str, Any]:
    """What stands beside figures: the command that made them, the date and the machine. Folders of
    this machine are left out of the command."""
    words = ["python", f"benchmarks/{Path(sys.argv[0]).name}"]
    for argument in sys.argv[1:]:
        path = Path(argument)
        words.append(path.name if path.is_absolute() else argument)
    command = shlex.join(words)
    machine = describe_machine(choose_device())
    return {"command": command, "date": str(date.today()), "machine": machine}


# --- the machine ---


def choose_device(name: str = "auto") -> torch.device:
    """`auto` is CUDA where there is one."""
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def describe_machine(device: torch.device) -> dict[str, Any]:
    """What times depend on."""
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    fast, _ = fast_bf16(device.type)
    return {
        "device": device_name(device),
        "fast_bf16": fast,
        **versions,
        "threads": torch.get_num_threads(),
    }


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    info = Path("/proc/cpuinfo")
    model = (
        re.search(r"model name\s*: *(.+)", info.read_text(errors="replace"))
        if info.exists()
        else None
    )
    return model[1].strip() if model else platform.processor() or platform.machine()


def slow_in_bf16(names: Iterable[str], device: str) -> tuple[list[str], str]:
    """Which names end in bf16, if the device is slow at it (a processor without instructions for it takes a hundred
    times as long as in fp32); and why."""
    fast, why = fast_bf16(device)
    return [name for name in names if name.endswith("bf16") and not fast], why


def memory_of_process(name: str) -> int:
    """Bytes of a field of /proc/self/status (VmRSS, VmHWM); 0 where the system has none."""
    status = Path("/proc/self/status")
    return (
        int(re.search(rf"{name}:\s+(\d+) kB", status.read_text())[1]) * 1024
        if status.exists()
        else 0
    )


def first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(os.linesep)[0]}".rstrip(": ")
