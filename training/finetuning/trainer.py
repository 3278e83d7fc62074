"""`Trainer` for a task: frozen parts that rest, weighted losses, metrics of any split."""

import copy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import datasets
from torch.utils.data import SequentialSampler
from transformers import PreTrainedModel, Trainer, TrainerState, set_seed

from ..common.callbacks import (
    CheckpointMixin,
    EarlyStopping,
    SettingsState,
    add_callbacks,
    steps_of,
)
from ..common.checkpoints import kept_step
from ..common.printing import warn
from .config import FinetuningConfig
from .freezing import add_lora, freeze
from .imbalance import sum_of_weights, weighted_loss
from .models import load_model
from .tasks.base import LABEL, Predictions, Scores, Task


@dataclass
class Run:
    """A task with its data, ready to be trained or measured."""

    task: Task
    splits: datasets.DatasetDict  # as `Task.read` returned them
    encoded: dict[str, datasets.Dataset]  # the model inputs of each
    model: str  # where its weights are from
    args: FinetuningConfig
    settings: dict[
        str, Any
    ]  # of rows, labels and model, which may not be others when the training is resumed
    files: dict[str, str]  # where the rows are from, in words
    baseline: dict[str, Scores] = field(default_factory=dict)  # of something simple, by split
    has_head: bool = False  # the model was trained for this task before

    def initial_model(self) -> PreTrainedModel:
        """The model before training: the same for the same seed."""
        set_seed(self.args.seed)
        return load_model(self.model, type(self.task), self.task.config_fields())


class Trained(NamedTuple):
    """What a training comes to; `report` has the metrics of every split but the training split, steps and time."""

    model: PreTrainedModel
    report: dict[str, Any]
    predictions: dict[str, Predictions]
    state: TrainerState


class TaskTrainer(CheckpointMixin, Trainer):
    """Evaluates the task of a run with `model`, and trains it (`trains`), but for what the settings freeze."""

    def __init__(self, run: Run, model: PreTrainedModel, trains: bool = False):
        task, options = run.task, {}
        args = copy.copy(run.args)
        args.push_to_hub = (
            False  # `run` pushes the finished model; `Trainer` would create a repository right here
        )
        args.hub_token = None  # checkpoints save the arguments
        self.task, self.resting = task, freeze(model, args.freeze) if trains else []
        if trains:
            rows = run.splits["validation"], run.encoded["validation"]

            def compute_metrics(output: Any) -> dict[str, float]:
                """Without metrics that are not defined for these rows, which nothing can be chosen by."""
                predictions = Predictions(*rows, *output.predictions)
                task.tune(predictions)
                scores = task.compute_metrics(predictions)
                labels = task.decode(predictions), rows[0][LABEL]
                said, true = (
                    {task.show_label(*pair) for pair in zip(rows[0], each)} for each in labels
                )
                if len(said) == 1 < len(true):
                    warn(f"so far the model predicts the same for every row: {said.pop()}")
                return {name: score for name, score in scores.items() if score is not None}

            options["compute_metrics"] = compute_metrics
            if task.label_weights:
                options["compute_loss_func"] = weighted_loss(task.label_weights)
            if args.lora is not None:
                model = add_lora(model, args.lora)
            options["callbacks"] = [SettingsState(steps_of(args) | run.settings)]
            if args.patience and args.eval_strategy != "no" and args.load_best_model_at_end:
                floor = run.baseline["validation"].get(
                    args.metric_for_best_model.removeprefix("eval_")
                )
                options["callbacks"].append(
                    EarlyStopping(args.patience, floor if args.greater_is_better else None)
                )
        options["train_dataset"] = run.encoded.get("train")
        options["eval_dataset"] = run.encoded.get("validation", run.encoded.get("test"))
        self.new_weights = trains and not run.has_head
        super().__init__(
            model,
            args,
            task.collator_class(task.tokenizer),
            processing_class=task.tokenizer,
            **options,
        )
        add_callbacks(self)

    def _get_eval_sampler(self, eval_dataset):
        # Predictions are known by their place; `train_sampling_strategy` would order these rows as well.
        return SequentialSampler(eval_dataset)

    def _get_num_items_in_batch(self, batch_samples, device):
        labels = [batch.get("labels") for batch in batch_samples]
        if labels and self.compute_loss_func is not None and not labels[0].is_floating_point():
            total = sum(sum_of_weights(self.task.label_weights, values) for values in labels).to(
                device
            )
            shared = self.args.average_tokens_across_devices and self.args.world_size > 1
            return self.accelerator.gather(total).sum() if shared else total
        return super()._get_num_items_in_batch(batch_samples, device)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        for module in self.resting:
            module.eval()
        smoother, weighted = self.label_smoother, self.compute_loss_func
        if not model.training:
            # `Trainer` weighs the losses of ranks by rows: what it counts is not to be of other ranks. And it smooths
            # (or weights) what is held out as well, whose loss would then not be the one of `minibert evaluate`.
            num_items_in_batch = self.label_smoother = self.compute_loss_func = None
        try:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        finally:
            self.label_smoother, self.compute_loss_func = smoother, weighted

    def prediction_step(self, model, inputs, *args, **kwargs):
        loss, logits, labels = super().prediction_step(model, inputs, *args, **kwargs)
        ending = self.accelerator.gradient_state  # where in its batches the evaluation is
        if (
            loss is not None
            and self.args.world_size > 1
            and ending.end_of_dataloader
            and ending.remainder > 0
        ):
            # The last batches of all ranks are filled up with rows of the first: `Trainer` drops their predictions, and
            # repeats the loss of each batch for its rows, so the copies must not be part of it. (Models that are split
            # among ranks go in step.)
            count = max(ending.remainder - self.args.process_index * self.args.eval_batch_size, 1)
            own = {name: column[:count] for name, column in inputs.items()}
            loss = super().prediction_step(model, own, True)[0]
        for part in logits if isinstance(logits, tuple) else () if logits is None else (logits,):
            if not part.isfinite().all():  # the best class of such numbers would still be one
                raise ValueError(
                    "model: its outputs are not finite numbers (NaN or infinite), so nothing is measured"
                )
        if logits is not None:  # here, as `preprocess_logits_for_metrics` does not see the inputs
            logits = (
                self.task.preprocess_logits(logits, inputs),
                self.task.confidence(logits, inputs),
            )
        return loss, logits, labels


def train(run: Run, model: PreTrainedModel, checkpoint: str | None = None) -> Trained:
    """Train `model` (in place, or merged back into it), and measure it."""
    parameters = model.num_parameters()
    if checkpoint is not None:
        SettingsState(steps_of(run.args) | run.settings).check(checkpoint)
    trainer = TaskTrainer(run, model, trains=True)
    trained_parameters = trainer.model.num_parameters(only_trainable=True)
    result = trainer.train(resume_from_checkpoint=checkpoint)
    seconds = (
        result.metrics["train_runtime"] if checkpoint is None else None
    )  # it counts from the resumption
    trained = trainer.model if run.args.lora is None else trainer.model.merge_and_unload()
    trained.requires_grad_(True)  # as the saved one is
    (predictions, scores), state = score(run, trained, tunes=True), trainer.state
    trained.config.update(run.task.config_fields())
    report = scores | {
        "best_step": kept_step(vars(state), run.args.load_best_model_at_end),
        "steps": state.global_step,
        "epochs": state.epoch,
        "training_seconds": seconds,
        "parameters": parameters,
        "trained_parameters": trained_parameters,
    }
    return Trained(trained, report, predictions, state)


def score(
    run: Run, model: PreTrainedModel, tunes: bool = False
) -> tuple[dict[str, Predictions], dict[str, Scores]]:
    """Predictions, and metrics with the loss, of `model` for every split that is not trained on."""
    predictions, scores = {}, {}
    for name in run.encoded:  # the validation rows first
        if name != "train":
            output = TaskTrainer(run, model).predict(run.encoded[name])
            predictions[name] = Predictions(
                run.splits[name], run.encoded[name], *output.predictions
            )
            if tunes and name == "validation":
                run.task.tune(predictions[name])
            scores[name] = {
                **run.task.compute_metrics(predictions[name]),
                "loss": output.metrics["test_loss"],
            }
    return predictions, scores
