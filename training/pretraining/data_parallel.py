"""On a CPU, each half of the cores computes half of a batch, so that cores wait for each other once
a step only: 8 % to 15 % more tokens a second on an EPYC (measured 2026-11-24).

`training_step` cuts a batch in two, lets two threads add their gradients to those of the model, and
adds the gradients of earlier micro-batches last.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch

from ..common.threads import shared_cores
from ..data.masking import IGNORE_INDEX
from .config import ADAMW_OPTIMIZERS


class CpuDataParallelMixin:
    """A mixin for a `Trainer` with unpadded batches; it stands before `Trainer` in the list of
    bases."""

    _pool = None

    def _may_halve(self) -> bool:
        """Whether two threads give the same numbers in every run: they draw no random numbers, and
        write nothing but gradients."""
        args = self.args
        if args.device.type != "cpu" or args.world_size > 1 or torch.get_num_threads() % 2:
            return False
        if not self.objective.can_halve_batches or args.optim not in ADAMW_OPTIMIZERS:
            return False
        if args.label_smoothing_factor or args.torch_compile or args.auto_find_batch_size:
            return False
        for module in self.model.modules():
            if isinstance(module, torch.nn.Dropout) and module.p:
                return False
        return True

    def train(self, *args, **kwargs):
        with shared_cores(2) if self._may_halve() else nullcontext() as self._pool:
            return super().train(*args, **kwargs)

    def training_step(self, model, inputs, num_items_in_batch=None):
        step = super().training_step
        halves = [inputs]
        if self._pool is not None and num_items_in_batch is not None:
            halves = halve(inputs)
        if len(halves) == 1:
            return step(model, inputs, num_items_in_batch)
        # The gradients of earlier micro-batches are added last, so that the order of the sum is
        # fixed.
        earlier_gradients = []
        for parameter in model.parameters():
            if parameter.grad is not None:
                earlier_gradients.append((parameter, parameter.grad))
                parameter.grad = None
        losses = self._pool.map(lambda half: step(model, half, num_items_in_batch), halves)
        loss = sum(losses)  # waits for both threads
        for parameter, earlier in earlier_gradients:
            if parameter.grad is not None:
                earlier.add_(parameter.grad)
            parameter.grad = earlier
        return loss


def halve(batch: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Cut an unpadded batch into two between documents. A padded batch, and one of which a half
    would have more than two thirds of the tokens, are returned whole."""
    if "cu_seq_lens_q" not in batch:
        return [batch]
    bounds = batch["cu_seq_lens_q"]
    num_tokens = batch["input_ids"].shape[1]
    cut = int((2 * bounds - num_tokens).abs().argmin())  # the bound that is nearest to the middle
    if not num_tokens <= 3 * bounds[cut] <= 2 * num_tokens:
        return [batch]
    return [take_documents(batch, bounds[: cut + 1]), take_documents(batch, bounds[cut:])]


def take_documents(batch: Mapping[str, Any], bounds: torch.Tensor) -> dict[str, Any]:
    """The documents of an unpadded batch between these of its bounds, int32 [documents + 1]."""
    first = int(bounds[0])
    last = int(bounds[-1])
    longest = int(bounds.diff().max())
    shape = batch["input_ids"].shape
    part = {}
    for name, value in batch.items():
        has_tokens = getattr(value, "shape", None) == shape
        part[name] = value[:, first:last] if has_tokens else value
    part["cu_seq_lens_q"] = bounds - first
    part["cu_seq_lens_k"] = bounds - first
    part["max_length_q"] = longest
    part["max_length_k"] = longest
    if "masked_lm_positions" in batch:
        part["masked_lm_positions"] = (part["labels"][0] != IGNORE_INDEX).nonzero().squeeze(1)
    return part
