"""A moving average of the weights, which is what is evaluated and saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

TRAINING_WEIGHTS = "training_weights.safetensors"


class WeightAverage:
    """An exponential moving average of the parameters that learn (Polyak and Juditsky 1992).

    Early on the average is short: after t steps its decay is at most (1 + t) / (10 + t).

    Args:
        model: where the average starts.
        decay: share of the old average that each step keeps, above 0 and below 1.
    """

    def __init__(self, model: nn.Module, decay: float):
        self.decay = decay
        self.weights = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        self.average = self._copies()

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after optimizer step number `step` (from 1)."""
        decay = min(self.decay, (1 + step) / (10 + step))
        get_ema_multi_avg_fn(decay)(list(self.average.values()), list(self.weights.values()), step)

    @torch.no_grad()
    def copy_to_model(self, weights: Mapping[str, torch.Tensor] | None = None) -> None:
        """Make the average (or other `weights`, by name) the model's weights."""
        for name, parameter in self.weights.items():
            parameter.copy_((self.average if weights is None else weights)[name])

    @contextmanager
    def in_model(self) -> Iterator[None]:
        """The average in the model, for a while; then the weights that are trained are back."""
        trained = self._copies()
        self.copy_to_model()
        try:
            yield
        finally:
            self.copy_to_model(trained)

    def save(self, folder: str | Path) -> None:
        """The weights that are trained, beside the average that the folder's model is."""
        save_file(self._copies(), Path(folder) / TRAINING_WEIGHTS, metadata={"format": "pt"})

    def resume(self, folder: str | Path) -> None:
        """Go on from a checkpoint whose model, the average, is in the model already.

        Raises:
            ValueError: the checkpoint was made without weight averaging.
        """
        path = Path(folder) / TRAINING_WEIGHTS
        if not path.is_file():
            raise ValueError(f"weight_average: the checkpoint {str(folder)!r} was made without; leave it out")
        self.copy_to_model(load_file(path))

    def _copies(self) -> dict[str, torch.Tensor]:
        return {
            name: parameter.detach().clone(memory_format=torch.contiguous_format)
            for name, parameter in self.weights.items()
        }
