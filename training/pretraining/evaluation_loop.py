"""`Trainer.evaluate` for an objective: what is kept of each batch, and the metrics made of it."""

import functools

import torch
from torch.utils.data import DataLoader, Dataset

from ..common.processes import leave_group
from ..data.collators import MaskedLMCollator
from .objectives import Objective


class SummedEvaluationMixin:
    """A mixin that stands before `Trainer`. An evaluation keeps a few sums of each batch, so that
    its memory does not grow with the data, and makes means of them at the end: `eval_loss`, too, is
    a mean over targets, not over batches.

    Attributes:
        objective: What is summed and measured.
        evaluation_collator: Makes the batches of an evaluation.
        sum_names: The names of the sums of the last evaluation.
    """

    objective: Objective
    evaluation_collator: MaskedLMCollator
    sum_names: list[str]

    def get_eval_dataloader(self, eval_dataset=None):
        # Not accelerate's loader, which repeats rows to fill up the last batches.
        rows = self.eval_dataset if eval_dataset is None else eval_dataset
        return self.evaluation_batches(rows, self.args.process_index, self.args.world_size)

    def evaluation_batches(self, rows: Dataset, rank: int = 0, ranks: int = 1) -> DataLoader:
        """The batches of an evaluation; with several ranks, each gets every `ranks`-th batch. All
        get equally many, since ranks that share a model go in step: a rank without a last batch
        repeats the first, uncounted."""
        size = self.args.eval_batch_size
        row_numbers = range(len(rows))
        batches = [row_numbers[start : start + size] for start in row_numbers[::size]]
        batches_of_rank = batches[rank::ranks]
        num_batches = -(-len(batches) // ranks)
        if len(batches_of_rank) < num_batches:
            batches_of_rank = [*batches_of_rank, batches[0]]
        return DataLoader(
            rows,
            batch_sampler=batches_of_rank,
            collate_fn=self.evaluation_collator,
            num_workers=self.args.dataloader_num_workers,
            worker_init_fn=functools.partial(leave_group, None),
        )

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        inputs = self._prepare_inputs(inputs)  # private; `Trainer.prediction_step` does it
        with torch.no_grad(), self.compute_loss_context_manager():
            outputs = model(**inputs, sparse_prediction=True)
        sums = self.objective.batch_sums(outputs, inputs)
        self.sum_names = list(sums)
        return None, torch.stack(list(sums.values()))[None], None  # [1, sums]: gathered at once

    def evaluation_loop(self, dataloader, *args, metric_key_prefix="eval", **kwargs):
        # the sums of all ranks, a row for each batch
        self.gather_function = self.accelerator.gather
        output = super().evaluation_loop(
            dataloader, *args, metric_key_prefix=metric_key_prefix, **kwargs
        )
        # further rows are of repeated batches
        num_batches = -(-len(dataloader.dataset) // self.args.eval_batch_size)
        totals = torch.from_numpy(output.predictions[:num_batches]).double().sum(0).tolist()
        sums = dict(zip(self.sum_names, totals))
        metrics = self.objective.metrics(sums)
        loss = self.objective.total_loss(metrics)
        if loss is not None:
            metrics["loss"] = loss
        for name, value in metrics.items():
            output.metrics[f"{metric_key_prefix}_{name}"] = value
        return output
