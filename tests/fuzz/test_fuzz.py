"""Bad input through public entry points: a result or one clear line, whatever is handed over.

A case is told by its area and its number: `pytest tests/fuzz -k saved` runs an area, and what failed is named by
`run(area, number)`, which does it again.
"""

import contextlib
import random
import signal
import tempfile
import warnings
from pathlib import Path

import pytest
from fuzz.cases import CASES, COUNTS, World, make_world
from huggingface_hub.errors import StrictDataclassError

LONGEST = 60  # seconds of a case; a hang otherwise
# What Python callers are told with: the first two are ours, the third is the Hub library's name for a field's type.
REFUSALS = (ValueError, OSError, StrictDataclassError)


@pytest.fixture(scope="module")
def world(tmp_path_factory, cache):
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    import datasets

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
        datasets.disable_progress_bars()
        yield
        datasets.enable_progress_bars()


@contextlib.contextmanager
def at_most(seconds: int):
    def stop(*_):
        raise TimeoutError(f"took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run(area: str, number: int, world: World) -> str | None:
    """One case; what is wrong with how it ends, None where nothing is."""
    with tempfile.TemporaryDirectory() as work, at_most(LONGEST), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            CASES[area](random.Random(f"{area} {number}"), World(world.folder, Path(work)))
        except TimeoutError as error:
            return f"{area} {number}: {error}"
        except REFUSALS as error:
            return None if len(str(error)) > 10 else f"{area} {number}: says only {error!r}"
        except Exception as error:
            return f"{area} {number}: {type(error).__name__}: {' '.join(str(error).split())[:200]}"


def check(area: str, numbers: range, world: World):
    faults = [fault for fault in (run(area, number, world) for number in numbers) if fault]
    assert not faults, f"{len(faults)} of {len(numbers)}:\n" + "\n".join(faults[:40])


@pytest.mark.parametrize("area", CASES)
def test_bad_input(area, world):
    check(area, range(COUNTS[area][0]), world)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
@pytest.mark.parametrize("area", CASES)
def test_much_bad_input(area, part, world):
    few, many = COUNTS[area]
    check(area, range(few + part * many // 10, few + (part + 1) * many // 10), world)


def test_there_are_as_many_as_promised():
    few, many = map(sum, zip(*COUNTS.values()))
    assert few >= 300 and many >= 10_000 and COUNTS.keys() == CASES.keys()


def test_a_traceback_is_found():
    """The judge itself: an error from the depths, one that says nothing, a hang."""

    def fails(error):
        def case(chance, world):
            raise error

        return case

    for error, wrong in ((KeyError("x"), True), (IndexError("out of range"), True), (ValueError("x"), True),
                         (ValueError("hidden_size=0: it must be at least 1"), False)):  # fmt: skip
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(CASES, "test", fails(error))
            assert (run("test", 0, World(Path("."), Path("."))) is not None) == wrong
