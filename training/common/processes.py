"""Several processes that train together, and several threads that share the cores of one."""

import functools
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from torch import distributed
from transformers import TrainingArguments


def shares_weights(training: TrainingArguments) -> bool:
    """Whether each process holds only a part of every matrix: FSDP or DeepSpeed, by an argument or by accelerate."""
    by_accelerate = (os.environ.get(f"ACCELERATE_USE_{name}", "") for name in ("FSDP", "DEEPSPEED"))
    return bool(training.fsdp or training.deepspeed) or "true" in map(str.lower, by_accelerate)


def of_first_rank(value: Any) -> Any:
    """The first process's value on all of them: they must decide alike, though clocks and folders may differ."""
    return broadcast_object_list([value])[0] if _several() else value


def on_any_rank(condition: bool) -> bool:
    """Whether it is so in any of the processes; asks them without waiting for their accelerators."""
    if not _several():
        return condition
    found = torch.tensor(int(condition))
    distributed.all_reduce(found, distributed.ReduceOp.MAX, _cpu_group())
    return bool(found)


@contextmanager
def first_process_first() -> Iterator[None]:
    """The first process of every machine does what follows alone; then the others do, and find in caches what it made.
    That may take long: `TrainingArguments.main_process_first` would end the training after `ddp_timeout`."""
    first, several = PartialState().is_local_main_process, _several()
    group = distributed.new_group(backend="gloo", timeout=timedelta(days=30)) if several else None
    if several and not first:
        distributed.barrier(group)
    yield
    if several and first:
        distributed.barrier(group)  # the others begin …
    if several:
        distributed.barrier(group)  # … and may take as long


def _several() -> bool:
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


@contextmanager
def shared_cores(workers: int) -> Iterator[ThreadPoolExecutor]:
    """Threads of which each computes on its share of the cores that torch uses; an error ends all that wait."""
    cores = torch.get_num_threads()

    def begin():
        torch.set_num_threads(cores // workers)
        torch.get_num_threads()  # only now it holds for this thread, whatever others set

    pool = ThreadPoolExecutor(workers, initializer=begin)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(cores)  # some of it is for the process, not for a thread
