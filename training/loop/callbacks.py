"""The callbacks that every training has."""

from transformers import PrinterCallback, Trainer
from transformers.trainer import DEFAULT_PROGRESS_CALLBACK

from .console_log import ConsoleLog
from .divergence import DivergenceCallback
from .signals import SaveAndStop


def add_callbacks(trainer: Trainer) -> None:
    """Print a line for each log instead of what `Trainer` prints, save a checkpoint at SIGTERM and
    Ctrl-C, and stop if a number is no longer finite."""
    trainer.pop_callback(PrinterCallback)
    trainer.pop_callback(DEFAULT_PROGRESS_CALLBACK)  # it prints a table in notebooks
    budget = getattr(trainer, "budget", None)

    # called when the training begins: what is new may be known after the trainer is made
    def has_new_weights() -> bool:
        return getattr(trainer, "has_new_weights", False)

    describe_smaller_size = getattr(trainer, "describe_smaller_size", None)
    trainer.add_callback(DivergenceCallback(has_new_weights, budget, describe_smaller_size))
    trainer.add_callback(ConsoleLog(budget))
    trainer.add_callback(SaveAndStop())
