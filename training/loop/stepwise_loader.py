"""Batches that several processes take at the same time, so that an error of one ends them all."""

from collections.abc import Iterable, Iterator
from typing import Any

from ..common.processes import largest_of_ranks


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
