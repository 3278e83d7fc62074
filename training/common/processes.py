"""Several processes that train together."""

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from torch import distributed
from transformers import TrainingArguments


def shares_weights(args: TrainingArguments) -> bool:
    """Whether each process holds only a part of every matrix: FSDP or DeepSpeed, by an argument or
    by accelerate."""
    by_accelerate = (os.environ.get(f"ACCELERATE_USE_{name}", "") for name in ("FSDP", "DEEPSPEED"))
    return bool(args.fsdp or args.deepspeed) or "true" in map(str.lower, by_accelerate)


def use_cpu_without_accelerator(args: TrainingArguments) -> None:
    """Set `use_cpu` where there is no accelerator; for the beginning of `__post_init__`.

    Without it, Transformers refuses bf16, and processes that a launcher has started on CPUs form no
    group: each takes itself for the first one.
    """
    if not torch.accelerator.is_available():
        args.use_cpu = True


def of_first_rank(value: Any) -> Any:
    """The first process's value on all of them: they must decide alike, though clocks and folders
    may differ."""
    return broadcast_object_list([value])[0] if _in_group() else value


def on_any_rank(condition: bool) -> bool:
    """Whether it is so in any of the processes; asks them without waiting for their
    accelerators."""
    return bool(largest_of_ranks(int(condition))[0])


def largest_of_ranks(*numbers: int) -> list[int]:
    """The largest value of each number in any of the processes, which must all call this at the
    same point."""
    if not _in_group():
        return list(numbers)
    largest = torch.tensor(numbers)
    distributed.all_reduce(largest, distributed.ReduceOp.MAX, _cpu_group())
    return largest.tolist()


@contextmanager
def first_process_first() -> Iterator[None]:
    """The first process of every machine does what follows alone; then the others do, and find in
    caches what it made. That may take long: `TrainingArguments.main_process_first` would end the
    training after `ddp_timeout`."""
    is_first = PartialState().is_local_main_process  # it also sets up the group of processes
    if not _in_group():
        yield
        return
    group = distributed.new_group(backend="gloo", timeout=timedelta(days=30))
    if not is_first:
        distributed.barrier(group)
    yield
    if is_first:
        distributed.barrier(group)  # the others begin …
    distributed.barrier(group)  # … and may take as long


def _in_group() -> bool:
    return (
        distributed.is_available()
        and distributed.is_initialized()
        and distributed.get_world_size() > 1
    )


@functools.cache
def _cpu_group() -> distributed.ProcessGroup:
    """All processes, by way of their CPUs."""
    return (
        distributed.group.WORLD
        if distributed.get_backend() == "gloo"
        else distributed.new_group(backend="gloo")
    )


def leave_group(worker_init_fn: Callable[[int], None] | None, worker: int) -> None:
    """For `DataLoader(worker_init_fn=…)`: put a worker into its own process group, and then do what
    the loader's own function does. Launchers stop a whole group, but a rank needs its workers for
    the last step."""
    if hasattr(os, "setpgrp"):  # not on Windows
        os.setpgrp()
    if worker_init_fn is not None:
        worker_init_fn(worker)
