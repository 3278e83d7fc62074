"""The `Trainer` that trains any objective."""

import functools
import math
from contextlib import nullcontext

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import PreTrainedModel, Trainer

from ..callbacks import CheckpointErrors, add_callbacks, leave_group
from ..checkpoints import kept_step
from ..data.collators import MaskedLMCollator, MaskingProgress, halve
from ..data.prepared import StreamedRows, StreamOrder
from ..hub.trainer import HubMixin
from ..optimization.trainer import ADAMW, OptimizationMixin
from ..threads import shared_cores
from .objectives.base import Objective


class PretrainingTrainer(OptimizationMixin, HubMixin, CheckpointErrors, Trainer):
    """`Trainer` for an `Objective`: evaluation with a collator of its own that keeps a few sums of every batch, and the
    terms of the loss logged apart, each a mean that does not depend on gradient accumulation. On a CPU each half of the
    cores computes half of a batch, where it may: they wait for each other once a step, not at every product."""

    def __init__(self, model: PreTrainedModel, *args, objective: Objective, data_collator: MaskedLMCollator, **kwargs):
        super().__init__(model, *args, data_collator=data_collator, **kwargs)
        self.objective = objective
        self.evaluation_collator = data_collator.for_evaluation()
        self._parts: dict[str, torch.Tensor] = {}  # sums since the last log
        self.add_callback(MaskingProgress(data_collator))
        add_callbacks(self)
        self._pool = None

    def _may_halve(self) -> bool:
        """Whether two threads give the same numbers in every run: nothing is drawn, and nothing but gradients written,
        while they compute."""
        model, args = self.model, self.args
        drops = any(module.p for module in model.modules() if isinstance(module, torch.nn.Dropout))
        other = drops or args.label_smoothing_factor or args.torch_compile or args.auto_find_batch_size
        alone = args.device.type == "cpu" and torch.get_num_threads() % 2 == 0 and args.world_size == 1
        return self.objective.name == "mlm" and args.optim in ADAMW and alone and not other

    def train(self, *args, **kwargs):
        with shared_cores(2) if self._may_halve() else nullcontext() as self._pool:
            return super().train(*args, **kwargs)

    def training_step(self, model, inputs, num_items_in_batch=None):
        step = super().training_step
        halves = [inputs] if self._pool is None or num_items_in_batch is None else halve(inputs)
        if len(halves) == 1:
            return step(model, inputs, num_items_in_batch)
        before = [(weight, weight.grad) for weight in model.parameters() if weight.grad is not None]
        for weight, _ in before:
            weight.grad = None
        loss = sum(self._pool.map(lambda half: step(model, half, num_items_in_batch), halves))
        for weight, grad in before:  # of gradient accumulation: a third addend, whose place may not be left to chance
            weight.grad = grad if weight.grad is None else grad.add_(weight.grad)
        return loss

    def get_batch_samples(self, epoch_iterator, num_batches, device):
        batches, num_items = super().get_batch_samples(epoch_iterator, num_batches, device)
        if num_items is not None:
            counts = [self.objective.counts(batch) for batch in batches]
            sums = {name: sum(count[name] for count in counts).to(device) for name in counts[0]}
            if self.args.average_tokens_across_devices and self.args.world_size > 1:
                sums = {name: self.accelerator.gather(total).sum() for name, total in sums.items()}
            batches = [{**batch, **sums} for batch in batches]
        return batches, num_items

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        if not self._parts:
            self._parts_since = self.state.global_step
        for name, term in outputs.items():
            if name.endswith("_loss"):
                self._parts[name] = self._parts.get(name, 0) + term.detach()
        return (loss, outputs) if return_outputs else loss

    def log(self, logs, *args, **kwargs):
        if self._parts and "loss" in logs:
            steps = max(self.state.global_step - self._parts_since, 1)
            how = "sum" if self.args.average_tokens_across_devices else "mean"
            for part, total in self._parts.items():
                logs[part] = round(float(self.accelerator.reduce(total, how)) / steps, 4)
            self._parts = {}
        super().log(logs, *args, **kwargs)

    def _get_train_sampler(self, train_dataset: Dataset | None = None):
        rows, args = self.train_dataset if train_dataset is None else train_dataset, self.args
        seed = args.seed if args.data_seed is None else args.data_seed
        if isinstance(rows, StreamedRows):
            return StreamOrder(rows, self._train_batch_size, args.world_size, seed, lambda: int(self.state.epoch or 0))
        return super()._get_train_sampler(rows)

    def get_eval_dataloader(self, eval_dataset=None):
        # Not accelerate's, which gives ranks some rows again, to fill up their last batches.
        rows = self.eval_dataset if eval_dataset is None else eval_dataset
        return self.evaluation_batches(rows, self.args.process_index, self.args.world_size)

    def evaluation_batches(self, rows: Dataset, rank: int = 0, ranks: int = 1) -> DataLoader:
        """The batches of an evaluation; of several ranks each has every `ranks`-th. All have as many, since ranks that
        share a model go in step: one without a last batch has the first again, which `prediction_step` does not count.
        """
        size = self.args.eval_batch_size
        batches = [range(len(rows))[start : start + size] for start in range(0, len(rows), size)]
        own = batches[rank::ranks]
        own += batches[:1] * (math.ceil(len(batches) / ranks) - len(own))
        workers = self.args.dataloader_num_workers
        apart = functools.partial(leave_group, None)
        return DataLoader(
            rows, batch_sampler=own, collate_fn=self.evaluation_collator, num_workers=workers, worker_init_fn=apart
        )

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        inputs = self._prepare_inputs(inputs)
        with torch.no_grad(), self.compute_loss_context_manager():
            outputs = model(**inputs, sparse_prediction=True)
        loss = outputs["loss"].float()
        sums = torch.cat([torch.stack([loss, torch.ones_like(loss)]), self.objective.score(outputs, inputs)])
        self._sums.append(sums if len(self._sums) < self._counted else torch.zeros_like(sums))
        return None, None, None

    def evaluation_loop(self, dataloader, *args, metric_key_prefix="eval", **kwargs):
        rank, ranks = self.args.process_index, self.args.world_size
        batches = math.ceil(len(dataloader.dataset) / self.args.eval_batch_size)
        self._sums, self._counted = [], len(range(rank, batches, ranks))
        output = super().evaluation_loop(dataloader, *args, metric_key_prefix=metric_key_prefix, **kwargs)
        sums = torch.stack(self._sums).cpu().double().sum(0)
        sums = self.accelerator.reduce(sums.to(self.args.device), "sum") if ranks > 1 else sums
        loss, counted, *sums = sums.tolist()
        figures = self.objective.figures(sums)
        if self.objective.metric in figures:  # else there was no target, whose loss would be 0
            figures["loss"] = loss / counted
        output.metrics.update({f"{metric_key_prefix}_{name}": figure for name, figure in figures.items()})
        return output

    def last_evaluation(self) -> dict[str, float]:
        """The figures of the model as it stands: those of the evaluation at its step, if there was one."""
        step = kept_step(vars(self.state), self.args.load_best_model_at_end)
        found = [entry for entry in self.state.log_history if "eval_loss" in entry and entry["step"] == step]
        return found[-1] if found else self.evaluate()
