"""For all tests."""

import gc
import os
from collections import Counter

import pytest

# Before torch is loaded, and for the processes that tests start: on tensors as small as here a second thread costs more
# than it gives, most of all on a busy machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault(
    "HF_HUB_OFFLINE", "1"
)  # a name that is no folder would be asked for, and waited for
# Workers of data loaders are forked, and a tokenizer's threads do not survive that: they would wait for ever.
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items):
    """`one_in(n)`: where a test has many cases that differ little, a few of them find what breaks."""
    seen = Counter()
    for item in items:
        marker = item.get_closest_marker("one_in")
        if marker and not item.get_closest_marker("slow"):
            if seen[item.function] % marker.args[0]:
                item.add_marker("slow")
            seen[item.function] += 1


def pytest_collection_finish():
    """What is imported by now stays: `Trainer` collects garbage when it begins, a third of a second with all that."""
    gc.freeze()


@pytest.fixture
def cache(tmp_path_factory, monkeypatch):
    """The cache of `datasets` in a folder of its own."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True, scope="session")
def elsewhere(tmp_path_factory):
    """No test sees, or writes, what commands left in the folder that pytest was started in (`runs/minibert`)."""
    before = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("elsewhere"))
    yield
    os.chdir(before)
