"""Tests that need a GPU. `MINIBERT_GPU_TESTS=cpu pytest tests/on_gpu` tries on the CPU whatever can run there."""

import os

import pytest
import torch

DEVICE = os.environ.get("MINIBERT_GPU_TESTS", "cuda")


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items):
    missing = DEVICE == "cuda" and not torch.cuda.is_available()
    for item in items:
        if "gpu" in item.path.parent.name:
            item.add_marker("gpu")
            if missing:
                item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture(scope="session")
def device():
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch.device(DEVICE)


@pytest.fixture
def cuda(device):
    """Of what only CUDA has."""
    if device.type != "cuda":
        pytest.skip("CUDA only")
    return device
