"""How far a training is, which decides its masks: `MaskingProgress` tells the collator, which keeps
it in `SharedProgress`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils.data import IterableDataset, get_worker_info
from transformers import TrainerCallback
from transformers.trainer_utils import has_length

if TYPE_CHECKING:
    from .collators import MaskedLMCollator


class TrainingProgress(NamedTuple):
    """The arguments of `MaskedLMCollator.set_progress`, and the number of its calls."""

    epoch: int = 0
    step: int = 0
    total_steps: int = 0
    batches_per_step: int = 1
    streamed: bool = False
    num_calls: int = 0


class SharedProgress:
    """How far a training is, for all processes that make its batches. The workers of a data loader
    are other processes, with copies of the collator: all read the same `TrainingProgress` from
    shared memory, and each counts its own batches.

    Attributes:
        num_batches: The batches that this process has made since the progress was last set.
    """

    def __init__(self):
        self._shared = torch.tensor(TrainingProgress()).share_memory_()
        self._num_calls_seen = 0  # `num_calls` when this process made its last batch
        self.num_batches = 0

    def read(self) -> TrainingProgress:
        return TrainingProgress(*self._shared.tolist())

    def write(self, progress: TrainingProgress) -> None:
        self._shared.copy_(torch.tensor(progress))

    def count_batch(self) -> tuple[TrainingProgress, int]:
        """Count a batch. Returns the progress, and the number of this batch since the training
        began."""
        progress = self.read()
        if progress.num_calls != self._num_calls_seen:
            self._num_calls_seen = progress.num_calls
            self.num_batches = 0
        # A data loader gives its batches to its workers in turn (unless
        # `dataloader_in_order=False`).
        number_in_epoch = self.num_batches
        worker = get_worker_info()
        if worker is not None:
            number_in_epoch = self.num_batches * _num_busy_workers(worker) + worker.id
        self.num_batches += 1
        return progress, progress.step * progress.batches_per_step + number_in_epoch


def _num_busy_workers(worker: Any) -> int:
    """The number of workers that make batches. Of a stream with fewer files than workers,
    `datasets` gives each of the first ones a file, and nothing to the others.

    Args:
        worker: what `get_worker_info` returns.
    """
    if not isinstance(worker.dataset, IterableDataset):
        return worker.num_workers
    stream = getattr(worker.dataset, "dataset", worker.dataset)  # out of accelerate's wrapper
    files = getattr(stream, "num_shards", worker.num_workers)
    return min(worker.num_workers, files)


class MaskingProgress(TrainerCallback):
    """Tell the collator of a `Trainer` the epoch and the steps done, after a resumption too.

    `Trainer` begins an epoch after all batches of the previous one are made and before any of the
    new one is, however far ahead the workers of the data loader are.
    """

    def __init__(self, collator: MaskedLMCollator):
        self.collator = collator
        self.num_training_batches = 0
        self.first_epoch = 0  # of this run: it may be resumed
        self.epoch = 0
        collator.set_progress(epoch=0)

    def on_train_begin(self, args, state, control, **kwargs):
        self.first_epoch = int(state.epoch or 0)
        self.epoch = self.first_epoch
        self.num_training_batches = self.collator.num_batches

    def on_step_end(self, args, state, control, **kwargs):
        self.num_training_batches = self.collator.num_batches
        self.collator.set_total_steps(state.max_steps)  # training by the clock corrects it

    def on_evaluate(self, args, state, control, **kwargs):
        # The evaluation may have used the same collator.
        self.collator.num_batches = self.num_training_batches

    def on_epoch_begin(self, args, state, control, train_dataloader=None, **kwargs):
        step = state.global_step
        batches_per_step = args.gradient_accumulation_steps
        streamed = isinstance(train_dataloader.dataset, IterableDataset)
        if streamed and self.epoch == self.first_epoch and not args.ignore_data_skip:
            # The batches before the resumption are collated again and then skipped.
            steps_per_epoch = state.max_steps
            if has_length(train_dataloader):
                steps_per_epoch = math.ceil(len(train_dataloader) / batches_per_step)
            step -= step % steps_per_epoch
        self.collator.set_progress(self.epoch, step, state.max_steps, batches_per_step, streamed)
        self.epoch += 1
