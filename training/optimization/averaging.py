"""A moving average of the weights, which is what is evaluated and saved."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch.optim.swa_utils import get_ema_multi_avg_fn
from transformers import TrainerCallback

TRAINING_WEIGHTS = "training_weights.safetensors"


class WeightAverage(TrainerCallback):
    """An exponential moving average of the parameters that learn (Polyak and Juditsky 1992), kept while a `Trainer`
    trains; then it is the model's weights, unless `load_best_model_at_end` put others there, an average as well. Early
    on it is short: after t steps its decay is at most (1 + t) / (10 + t).

    Args:
        decay: share of the old average that each step keeps, above 0 and below 1.
    """

    def __init__(self, decay: float):
        self.decay, self.checkpoint = decay, None  # a checkpoint that training goes on from
        self.weights: dict[str, torch.nn.Parameter] = {}  # and the average of each: none but in training
        self.average: dict[str, torch.Tensor] = {}

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        self.weights = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        self.average = self._copies()
        if self.checkpoint:  # its model is the average
            self._put(load_file(Path(self.checkpoint) / TRAINING_WEIGHTS))

    @torch.no_grad()
    def on_step_end(self, args, state, control, **kwargs):
        decay, step = min(self.decay, (1 + state.global_step) / (10 + state.global_step)), state.global_step
        get_ema_multi_avg_fn(decay)(list(self.average.values()), list(self.weights.values()), step)

    def on_train_end(self, args, state, control, **kwargs):
        if not (args.load_best_model_at_end and state.best_model_checkpoint is not None):
            self._put(self.average)
        self.weights, self.average = {}, {}

    @contextmanager
    def in_model(self) -> Iterator[None]:
        """The average in the model, for a while; then the weights that are trained are back."""
        trained = self._copies()
        self._put(self.average)
        try:
            yield
        finally:
            self._put(trained)

    def save(self, folder: str | Path) -> None:
        """In training, the weights that are trained, beside the average that the folder's model is."""
        if self.weights:
            save_file(self._copies(), Path(folder) / TRAINING_WEIGHTS, metadata={"format": "pt"})

    @torch.no_grad()
    def _put(self, weights: Mapping[str, torch.Tensor]) -> None:
        for name, parameter in self.weights.items():
            parameter.copy_(weights[name])

    def _copies(self) -> dict[str, torch.Tensor]:
        return {
            name: parameter.detach().clone(memory_format=torch.contiguous_format)
            for name, parameter in self.weights.items()
        }
