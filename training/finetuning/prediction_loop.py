"""`Trainer.predict` and `Trainer.evaluate` for a task: what is kept of the model's outputs."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.data import SequentialSampler
from transformers import PreTrainedModel, Trainer, TrainerCallback

from ...modeling_minibert import classification_loss
from ..loop.callbacks import add_callbacks, common_callbacks
from .config import FinetuningConfig
from .tasks.base import Task


class TaskPredictor(Trainer):
    """A `Trainer` whose predictions are those of a task: examples in their order, the loss of
    held-out examples as it is, and of the logits what `Task.preprocess_logits` and
    `Task.confidence` keep.

    Args:
        task: After `Task.read`.
        callbacks: By default those of every training, which print the lines of a log.
        options: Those of `Trainer`.
    """

    def __init__(
        self,
        task: Task,
        model: PreTrainedModel,
        args: FinetuningConfig,
        callbacks: Sequence[TrainerCallback] | None = None,
        **options: Any,
    ):
        self.task = task
        super().__init__(
            model,
            args,
            data_collator=task.collator_class(task.tokenizer),
            processing_class=task.tokenizer,
            **options,
        )
        add_callbacks(self, callbacks or common_callbacks())

    def _get_eval_sampler(self, eval_dataset):
        # Predictions belong to examples by their order, which `train_sampling_strategy` would
        # change here, too.
        return SequentialSampler(eval_dataset)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        if model.training:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        # `Trainer` smooths (or weights) what is held out as well, whose loss would then not be the
        # one of `minibert evaluate`. And it weighs the losses of ranks by rows: what it counts is
        # not to be of other ranks.
        label_smoother = self.label_smoother
        loss_function = self.compute_loss_func
        self.label_smoother = None
        self.compute_loss_func = None
        try:
            loss, outputs = super().compute_loss(
                model, inputs, return_outputs=True, num_items_in_batch=None
            )
        finally:
            self.label_smoother = label_smoother
            self.compute_loss_func = loss_function
        shift = self.model.config.threshold_shift
        if shift:  # A threshold in the bias is for decisions; the loss is that of the training.
            logits = outputs.logits + outputs.logits.new_tensor(shift)
            loss = classification_loss(self.model.config, logits, inputs["labels"])
        if return_outputs:
            return loss, outputs
        return loss

    def prediction_step(self, model, inputs, *args, **kwargs):
        loss, logits, labels = super().prediction_step(model, inputs, *args, **kwargs)
        if loss is not None:
            loss = self._loss_of_own_rows(model, inputs, loss)
        if logits is None:
            return loss, logits, labels
        parts = logits if isinstance(logits, tuple) else (logits,)
        for part in parts:
            if not part.isfinite().all():  # the best class of such numbers would still be one
                raise ValueError(
                    "model: its outputs are not finite numbers (NaN or infinite),"
                    " so nothing is measured; train it anew with a lower learning rate, or in fp32"
                )
        # Here, as `preprocess_logits_for_metrics` does not see the inputs.
        predicted = self.task.preprocess_logits(logits, inputs)
        confidence = self.task.confidence(logits, inputs)
        return loss, (predicted, confidence), labels

    def _loss_of_own_rows(self, model, inputs, loss: torch.Tensor) -> torch.Tensor:
        """The loss of a batch without the copies that fill it up.

        The last batches of all ranks are filled up with rows of the first: `Trainer` drops their
        predictions, and repeats the loss of each batch for its rows, so the copies must not be part
        of it. (Models that are split among ranks go in step.)
        """
        position = self.accelerator.gradient_state  # where in its batches the evaluation is
        is_filled_up = position.end_of_dataloader and position.remainder > 0
        if self.args.world_size == 1 or not is_filled_up:
            return loss
        rows_of_earlier_ranks = self.args.process_index * self.args.eval_batch_size
        num_own_rows = max(position.remainder - rows_of_earlier_ranks, 1)
        own_inputs = {name: values[:num_own_rows] for name, values in inputs.items()}
        own_loss, _, _ = super().prediction_step(model, own_inputs, True)
        return own_loss
