"""On a CPU, each half of the cores computes half of a batch, so that cores wait for each other once
a step only."""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch

from ..common.processes import shared_cores
from ..data.masking import IGNORE_INDEX
from .config import ADAMW


class CpuDataParallelMixin:
    """A mixin for a `Trainer` with unpadded batches; it stands before `Trainer` in the list of
    bases."""

    _pool = None

    def _may_halve(self) -> bool:
        """Whether two threads give the same numbers in every run: they draw no random numbers, and
        write nothing but gradients."""
        model = self.model
        args = self.args
        has_dropout = any(
            module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)
        )
        excluded = (
            has_dropout
            or args.label_smoothing_factor
            or args.torch_compile
            or args.auto_find_batch_size
        )
        one_cpu = (
            args.device.type == "cpu" and torch.get_num_threads() % 2 == 0 and args.world_size == 1
        )
        return args.objective == "mlm" and args.optim in ADAMW and one_cpu and not excluded

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
        before = [(weight, weight.grad) for weight in model.parameters() if weight.grad is not None]
        for weight, _ in before:
            weight.grad = None
        loss = sum(self._pool.map(lambda half: step(model, half, num_items_in_batch), halves))
        for (
            weight,
            grad,
        ) in before:  # of earlier micro-batches: added last, so that the order of the sum is fixed
            weight.grad = grad if weight.grad is None else grad.add_(weight.grad)
        return loss


def halve(batch: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Cut an unpadded batch into two between documents. A padded batch, and one of which a half
    would have more than two thirds of the tokens, are returned whole."""
    bounds = batch.get("cu_seq_lens_q", torch.zeros(1))
    shape = batch["input_ids"].shape
    cut = int((2 * bounds - shape[1]).abs().argmin())
    if not shape[1] <= 3 * bounds[cut] <= 2 * shape[1]:
        return [batch]
    halves = []
    for documents in (bounds[: cut + 1], bounds[cut:]):
        first = int(documents[0])
        last = int(documents[-1])
        half = {
            name: x[:, first:last] if getattr(x, "shape", None) == shape else x
            for name, x in batch.items()
        }
        longest = int(documents.diff().max())
        half |= dict.fromkeys(("cu_seq_lens_q", "cu_seq_lens_k"), documents - first)
        half |= dict.fromkeys(("max_length_q", "max_length_k"), longest)
        if "masked_lm_positions" in batch:
            half["masked_lm_positions"] = (half["labels"][0] != IGNORE_INDEX).nonzero().squeeze(1)
        halves.append(half)
    return halves
