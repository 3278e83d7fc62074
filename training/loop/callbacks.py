"""The callbacks that every training has."""

from collections.abc import Callable, Sequence
from typing import Any

from transformers import PrinterCallback, Trainer, TrainerCallback
from transformers.trainer import DEFAULT_PROGRESS_CALLBACK

from .console_log import ConsoleLog
from .divergence import DivergenceCallback
from .signals import SaveAndStop


def common_callbacks(
    budget: Any = None,
    has_new_weights: bool = False,
    suggest_size: Callable[[int], tuple[str, int] | None] | None = None,
) -> list[TrainerCallback]:
    """Make the callbacks that every training has: they print a line for each log, save a checkpoint
    at SIGTERM and Ctrl-C, stop if a number is no longer finite, and end the training on time.

    Args:
        budget: The `TimeBudget` of a training by the clock.
        has_new_weights: Whether the model, or a part of it such as a head, begins untrained.
        suggest_size: From a number of steps that are too few to a smaller size of the model, and
            the steps that it does in the same time.
    """
    callbacks = [
        DivergenceCallback(has_new_weights, budget, suggest_size),
        ConsoleLog(budget),
        SaveAndStop(),
    ]
    if budget is not None:
        callbacks.insert(0, budget)  # the others read the number of steps that it sets
    return callbacks


def add_callbacks(trainer: Trainer, callbacks: Sequence[TrainerCallback]) -> None:
    """Add callbacks to a trainer, and remove those by which `Trainer` prints."""
    trainer.pop_callback(PrinterCallback)
    trainer.pop_callback(DEFAULT_PROGRESS_CALLBACK)  # it prints a table in notebooks
    for callback in callbacks:
        trainer.add_callback(callback)
