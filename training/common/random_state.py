"""The random states of Python, NumPy and torch."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def random_state_kept() -> Iterator[None]:
    """Restore the random states of Python, NumPy and torch (CPU and CUDA) at the end: measuring
    changes nothing."""
    python_state = random.getstate()
    numpy_state = np.random.get_state()
    devices = range(torch.cuda.device_count())  # without them, it warns about several GPUs
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)
