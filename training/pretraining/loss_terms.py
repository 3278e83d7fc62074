"""The terms of a loss in the log: of an objective that learns two things, the loss of each."""

import threading
from collections.abc import Mapping
from typing import Any

import torch

from .objectives import Objective


class LossTermsMixin:
    """A mixin that stands before `Trainer`. `log` shows each loss that the model returns beside
    their sum, as a mean over the steps since the last log.

    Attributes:
        objective: Names the terms.
    """

    objective: Objective

    def __init__(self, *args: Any, **kwargs: Any):
        # Sums since the last log. Two threads may compute losses (`CpuDataParallelMixin`); the lock
        # keeps both terms. Which one is added first may change the last bit of a sum: only an
        # objective that has no terms is computed so.
        self._loss_terms_lock = threading.Lock()
        self.forget_loss_terms()
        super().__init__(*args, **kwargs)

    def forget_loss_terms(self) -> None:
        """Begin the sums anew: the last steps of a training may not be logged."""
        self._loss_terms: dict[str, torch.Tensor] = {}
        self._loss_terms_first_step = 0

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        self._add_loss_terms(outputs)
        return (loss, outputs) if return_outputs else loss

    def _add_loss_terms(self, outputs: Mapping[str, torch.Tensor]) -> None:
        """Add the terms of a loss to the sums for the log."""
        with self._loss_terms_lock:
            if not self._loss_terms:
                self._loss_terms_first_step = self.state.global_step
            for name, term in outputs.items():
                if name.endswith("_loss"):
                    name = self.objective.loss_name(name)
                    self._loss_terms[name] = self._loss_terms.get(name, 0) + term.detach()

    def log(self, logs, *args, **kwargs):
        if self._loss_terms and "loss" in logs:
            steps = max(self.state.global_step - self._loss_terms_first_step, 1)
            reduction = "sum" if self.args.average_tokens_across_devices else "mean"
            for name, total in self._loss_terms.items():
                logs[name] = round(float(self.accelerator.reduce(total, reduction)) / steps, 4)
            self._loss_terms = {}
        super().log(logs, *args, **kwargs)
