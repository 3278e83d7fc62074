"""Several processes that train together, and several threads that share the cores of one."""

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
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


def check_batches(count: int, error: Exception | None) -> None:
    """Raise in all processes what keeps one of them from its next batches; the others would wait
    for it forever.

    Args:
        count: the number of batches that this process has taken, the same on all of them.
        error: why it has no more, if reading them has failed.
    """
    failed, most, least_negated = largest_of_ranks(int(error is not None), count, -count)
    if error is not None:
        raise error
    if failed:
        raise ValueError("another process could not read its rows; its message says which")
    if most != -least_negated:
        raise ValueError(
            "some processes have no rows left while others have; give as many files as processes,"
            " of about the same size, or a stream that begins again (`stream.repeat(None)`)"
        )


class StepwiseLoader:
    """A data loader of which all processes take a batch at the same time, so that an error of one
    (kept as `error`) ends them all."""

    def __init__(self, loader: Iterable):
        self.loader = loader
        self.error: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator:
        batches = iter(self.loader)
        has_batch = True
        while has_batch:
            batch = None
            error = None
            try:
                batch = next(batches, None)
            except Exception as raised:
                error = raised
            has_batch = batch is not None
            try:
                check_batches(int(has_batch), error)
            except Exception as raised:
                self.error = raised
                raise
            if has_batch:
                yield batch


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


@contextmanager
def shared_cores(workers: int) -> Iterator[ThreadPoolExecutor]:
    """Threads of which each computes on its share of the cores that torch uses; an error ends all
    that wait."""
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
