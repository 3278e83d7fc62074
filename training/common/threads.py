"""Several threads that share the cores of one process."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch


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
