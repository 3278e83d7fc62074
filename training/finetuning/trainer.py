"""`FinetuningTrainer`: a task, a model and rows → a trained model and its scores."""

import copy
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import torch
from datasets import Dataset, DatasetDict
from transformers import PreTrainedConfig, PreTrainedModel, set_seed
from transformers.trainer_utils import get_last_checkpoint

from ...keywords import checked_class
from ..common.files import printable
from ..common.precision import resolve_precision
from ..common.printing import warn
from ..loop.arguments import check_training, choose_best_metric
from ..loop.checkpoint_mixin import CheckpointMixin
from ..loop.checkpoints import kept_step
from ..loop.early_stopping import EarlyStopping
from ..loop.resume_guard import ResumeGuardCallback, rows_checksum, settings_of_steps
from ..optimization.clock import UNREACHABLE_STEPS, TimeBudget, TimeBudgetMixin, check_minutes
from .class_weights import sum_of_weights, weighted_loss
from .config import EPOCHS, FinetuningConfig
from .freezing import add_lora, freeze
from .models import check_head, find_trained_head, fit_tokenizer, load_model, read_config
from .prediction_loop import TaskPredictor
from .results import score_baseline, score_simple_model
from .splits import VALIDATION_SIZE, FilesOrRows, load_splits
from .survey import find_warnings, survey
from .tasks.base import LABEL, Predictions, Scores, Task, drop_unlabelled_test
from .thresholds import undo_shift

# What a new head reads: a head alone is better over the mean than over the first token, and where
# all layers train it is not worse by more than chance (benchmarks/results/pooling.json).
NEW_HEAD_POOLING = "mean"


@checked_class
class FinetuningTrainer(CheckpointMixin, TimeBudgetMixin, TaskPredictor):
    """Trains a model for a task, and measures it.

    ```python
    tokenizer = AutoTokenizer.from_pretrained("runs/minibert")
    trainer = FinetuningTrainer(
        Classify(tokenizer), "runs/minibert", FinetuningConfig("runs/reviews"), train_dataset=rows
    )
    trainer.train()
    scores = trainer.measure()
    trainer.save_model()
    ```

    Bad rows and settings are refused (a ValueError) here, before any training.

    Args:
        task: What to learn, such as `Classify(tokenizer)`.
        model: A folder or a Hub name: a MiniBERT, or a model that `convert` takes. Or a model of
            the class `task.model_class`.
        args: The settings. The trainer uploads nothing: `finetune` does with `push_to_hub`, or
            call `minibert.push` on the saved folder.
        train_dataset: The rows to train on: a `Dataset`, a DataFrame, dictionaries, or files.
            Without them, the model is
            measured only.
        eval_dataset: The rows to validate on; by default some of the training rows.
        test_dataset: The rows to test on, if there are any.
        baseline_dataset: Of a model that is measured only, the rows that the baseline learns from.
        validation_size: Training rows to hold out if there is no `eval_dataset`: a share below 1,
            or a number.

    Attributes:
        splits: The rows by split ("train", "validation", "test"), as `Task.read` returned them.
        encoded: The model inputs made of them.
        baseline: The scores of guesses, by split.
        simple_scores: Those of a simple model that learned from the training rows, by split.
        label_counts: How often each label occurs, by split.
        row_warnings: What one should know of the rows.
        predictions: Since `measure`, what the model predicts for each split.
        scores: Since `measure`, its metrics with the loss, by split.
        settings: Of rows, labels and model, which must be the same when the training is resumed.
    """

    def __init__(
        self,
        task: Task,
        model: str | os.PathLike | PreTrainedModel,
        args: FinetuningConfig | None = None,
        train_dataset: FilesOrRows = None,
        eval_dataset: FilesOrRows = None,
        test_dataset: FilesOrRows = None,
        baseline_dataset: FilesOrRows = None,
        validation_size: float = VALIDATION_SIZE,
    ):
        args = copy.copy(FinetuningConfig() if args is None else args)
        trains = train_dataset is not None
        check_start(type(task), model, args, trains)
        if trains and args.minutes is not None:
            self.budget = TimeBudget(args.minutes, args.warmup_steps)  # the time counts from here
        config = config_of(model)
        choose_pooling(task, config)
        fit_tokenizer(task.tokenizer, config, None)
        task_options = task.options()

        splits = load_splits(
            task,
            train=train_dataset if trains else baseline_dataset,
            validation=eval_dataset,
            test=test_dataset,
            validation_size=validation_size if trains else None,
            seed=args.seed,
        )
        self._use_rows(task, read_for_task(task, splits, model, trains), trains)

        if trains:
            choose_metric(task, self.splits["validation"], args)
            check_label_smoothing(task, self.encoded["train"], args)
        self.settings = settings_to_resume(task, task_options, model, args, self.encoded)
        args = resolve_precision(args)
        if self.budget is not None:
            args.max_steps = UNREACHABLE_STEPS
        # `finetune` pushes the finished model; `Trainer` would create a repository right here.
        args.push_to_hub = False
        args.hub_token = None  # checkpoints save the arguments

        model = initial_model(task, model, args)
        if trains:
            undo_shift(model)
        self.new_weights = trains and find_trained_head(config) is None
        self.num_parameters = model.num_parameters()
        self.frozen_modules: list[torch.nn.Module] = []
        training_options: dict[str, Any] = {}
        if trains:
            self.frozen_modules = freeze(model, args.freeze)
            if args.lora is not None:
                model = add_lora(model, args.lora)
            training_options = self._training_options(task, args)
        self.num_trained_parameters = model.num_parameters(only_trainable=True)
        # A model that is measured only may have a test split alone.
        eval_rows = self.encoded.get("validation", self.encoded.get("test"))
        super().__init__(task, model, args, eval_dataset=eval_rows, **training_options)

    def _use_rows(self, task: Task, splits: DatasetDict, trains: bool) -> None:
        """Score simple guesses and a simple model on the rows, then encode them. Training rows of a
        model that is measured only serve for these scores."""
        self.baseline = score_baseline(task, splits)
        self.simple_scores = score_simple_model(task, splits)
        if not trains:
            splits.pop("train", None)
        self.splits = splits
        print_splits(task, splits)
        self.encoded = {name: task.encode(split) for name, split in splits.items()}
        self._survey_rows(task)

    def _survey_rows(self, task: Task) -> None:
        """Count the labels of every split; warn of rows that are hard to learn or measure."""
        surveys = {}
        for name, split in self.splits.items():
            surveys[name] = survey(task, split, self.encoded[name])
        self.label_counts = {name: counted.labels for name, counted in surveys.items()}
        self.row_warnings = find_warnings(task, surveys)
        for warning in self.row_warnings:
            warn(warning)

    def _training_options(self, task: Task, args: FinetuningConfig) -> dict[str, Any]:
        """What `Trainer` needs to train, beside what it needs to predict."""
        options = {
            "train_dataset": self.encoded["train"],
            "compute_metrics": self._validation_metrics,
            "callbacks": self._training_callbacks(args),
        }
        if task.label_weights:
            options["compute_loss_func"] = weighted_loss(task.label_weights)
        return options

    def _training_callbacks(self, args: FinetuningConfig) -> list[Any]:
        callbacks: list[Any] = []
        if self.budget is not None:
            callbacks.append(self.budget)
        callbacks.append(ResumeGuardCallback(settings_of_steps(args) | self.settings))
        if args.patience and args.eval_strategy != "no" and args.load_best_model_at_end:
            floor = None
            if args.greater_is_better:
                metric = args.metric_for_best_model.removeprefix("eval_")
                floor = self.baseline["validation"].get(metric)
            callbacks.append(EarlyStopping(args.patience, floor))
        return callbacks

    # --- training ---

    def train(self, resume_from_checkpoint: str | bool | None = None, **options: Any):
        """Train the model, as `Trainer.train`. What was learned by LoRA is merged into it at the
        end."""
        if resume_from_checkpoint is True:
            resume_from_checkpoint = get_last_checkpoint(self.args.output_dir)
        if resume_from_checkpoint:
            settings = ResumeGuardCallback(settings_of_steps(self.args) | self.settings)
            settings.check(resume_from_checkpoint)
        result = super().train(resume_from_checkpoint=resume_from_checkpoint, **options)
        # The clock of a resumed training counts from the resumption.
        self.training_seconds = None
        if not resume_from_checkpoint:
            self.training_seconds = result.metrics["train_runtime"]
        if self.args.lora is not None:
            self.model = self.model.merge_and_unload()
            self.model_wrapped = self.model
        self.model.requires_grad_(True)
        return result

    def _save(self, output_dir=None, state_dict=None):
        self.reset_tokenizer()
        super()._save(output_dir, state_dict)

    def reset_tokenizer(self) -> None:
        """Undo truncation and padding, which calls of the tokenizer have set, and which would be
        saved."""
        backend = self.task.tokenizer.backend_tokenizer
        backend.no_truncation()
        backend.no_padding()

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        for module in self.frozen_modules:
            module.eval()  # dropout would only be noise there
        return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

    def _get_num_items_in_batch(self, batch_samples, device):
        """Of weighted classes, the sum of the weights, which their loss is divided by."""
        labels = [batch.get("labels") for batch in batch_samples]
        has_weighted_classes = (
            labels and self.compute_loss_func is not None and not labels[0].is_floating_point()
        )
        if not has_weighted_classes:
            return super()._get_num_items_in_batch(batch_samples, device)
        weights = [sum_of_weights(self.task.label_weights, values) for values in labels]
        total = torch.stack(weights).sum().to(device)
        if self.args.average_tokens_across_devices and self.args.world_size > 1:
            total = self.accelerator.gather(total).sum()
        return total

    def evaluate(self, eval_dataset: Dataset | None = None, *args: Any, **kwargs: Any):
        """As `Trainer.evaluate`, of the rows to validate on. A ValueError for others."""
        self._check_validation_rows("eval_dataset", eval_dataset)
        return super().evaluate(eval_dataset, *args, **kwargs)

    def predict(self, test_dataset: Dataset, *args: Any, **kwargs: Any):
        """As `Trainer.predict`, of the rows to validate on. A ValueError for others."""
        self._check_validation_rows("test_dataset", test_dataset)
        return super().predict(test_dataset, *args, **kwargs)

    def _check_validation_rows(self, name: str, rows: Dataset | None) -> None:
        """Refuse (a ValueError) rows that `_validation_metrics` would compare with the labels of
        the rows to validate on."""
        if self.compute_metrics is None or rows is None or rows is self.eval_dataset:
            return
        raise ValueError(
            f"{name}: other rows than those to validate on, whose labels they would be compared"
            " with; make a trainer with them as test_dataset, and call measure()"
        )

    def _validation_metrics(self, output: Any) -> dict[str, float]:
        """`compute_metrics` of a training: without metrics that are not defined for these rows,
        which nothing can be chosen by."""
        examples = self.splits["validation"]
        predictions = Predictions(examples, self.encoded["validation"], *output.predictions)
        self.task.choose_thresholds(predictions)
        scores = self.task.compute_metrics(predictions)
        predicted_labels = self._label_names(examples, self.task.decode(predictions))
        true_labels = self._label_names(examples, examples[LABEL])
        if len(predicted_labels) == 1 and len(true_labels) > 1:
            (label,) = predicted_labels
            warn(f"so far the model predicts the same for every row: {label}")
        return {name: score for name, score in scores.items() if score is not None}

    def _label_names(self, examples: Dataset, labels: Any) -> set[str]:
        return {self.task.show_label(row, label) for row, label in zip(examples, labels)}

    # --- measuring ---

    def measure(self) -> dict[str, Scores]:
        """Measure the model on every split that is not trained on, the validation rows first: its
        metrics with the loss, by split. They and the predictions are kept in `scores` and
        `predictions`.

        After a training, what the task decides by (such as thresholds) is chosen on the validation
        rows, and saved with the model.
        """
        trains = "train" in self.encoded
        self.predictions: dict[str, Predictions] = {}
        self.scores: dict[str, Scores] = {}
        for name in self.encoded:
            if name == "train":
                continue
            predictions, loss = self._predict_split(name)
            if name == "validation" and trains:
                self.task.choose_thresholds(predictions)
                if self.task.move_thresholds_into(self.model):
                    predictions, loss = self._predict_split(name)
            scores = dict(self.task.compute_metrics(predictions))
            scores["loss"] = loss
            self.predictions[name] = predictions
            self.scores[name] = scores
        if trains:
            self.model.config.update(self.task.config_fields())
        return self.scores

    def _predict_split(self, name: str) -> tuple[Predictions, float]:
        """The predictions for a split, and the loss."""
        encoded = self.encoded[name]
        # Another trainer, which wraps the model anew: after LoRA it is not the one that was
        # trained.
        predictor = TaskPredictor(self.task, self.model, self.args, eval_dataset=encoded)
        output = predictor.predict(encoded)
        predictions = Predictions(self.splits[name], encoded, *output.predictions)
        return predictions, output.metrics["test_loss"]

    def describe_training(self) -> dict[str, Any]:
        """What the report says of the training, since `train`."""
        return {
            "best_step": kept_step(vars(self.state), self.args.load_best_model_at_end),
            "steps": self.state.global_step,
            "epochs": self.state.epoch,
            "training_seconds": self.training_seconds,
            "parameters": self.num_parameters,
            "trained_parameters": self.num_trained_parameters,
        }


# --- the steps of `FinetuningTrainer.__init__` ---


def check_start(
    task: type[Task],
    model: str | os.PathLike | PreTrainedModel,
    args: FinetuningConfig,
    trains: bool,
) -> None:
    """Refuse (a ValueError) what can be known before any row is read."""
    check_training(args)
    check_minutes(args, default_epochs=EPOCHS)
    config = config_of(model)
    if not isinstance(model, PreTrainedModel):
        check_head(str(model), config, task, needed=not trains)
    elif not isinstance(model, task.model_class):
        raise ValueError(
            f"model: a {type(model).__name__}; '{task.name}' needs a {task.model_class.__name__},"
            " or a folder or a Hub name"
        )
    # Of the native models, ALBERT's layers share their weights.
    shares_layers = getattr(config, "share_layers", config.model_type == "albert")
    if shares_layers and args.freeze not in ("none", "encoder"):
        raise ValueError(
            f"freeze={args.freeze!r}: with share_layers there is one layer; use none or encoder"
        )
    layers = [str(number) for number in range(1, config.num_hidden_layers + 1)]
    if args.freeze not in ("none", "encoder", *layers):
        raise ValueError(
            f"freeze must be none, encoder or a number up to {config.num_hidden_layers},"
            f" got {args.freeze!r}"
        )


def choose_pooling(task: Task, config: PreTrainedConfig) -> None:
    """Let a new head read the mean, if the task names nothing else. Refuse (a ValueError) another
    pooling than the one that a trained head learned to read."""
    if not hasattr(task, "pooling"):
        return
    if find_trained_head(config) is None:
        task.pooling = task.pooling or NEW_HEAD_POOLING
        return
    trained_pooling = getattr(config, "classifier_pooling", "cls")  # BERT has no such field
    if task.pooling not in (None, trained_pooling):
        raise ValueError(
            f"pooling={task.pooling!r}: the head of this model was trained with"
            f" {trained_pooling!r}; leave the option out, or start from a model without a head"
        )


def read_for_task(
    task: Task,
    splits: DatasetDict,
    model: str | os.PathLike | PreTrainedModel,
    trains: bool,
) -> DatasetDict:
    """Check all rows, and learn the labels, from the training rows or from a model that was trained
    for the task before: the splits as `Task.read` returns them. Of a model that is measured only,
    the training rows are for the baseline; they are left out if they do not fit the model."""
    splits = DatasetDict(splits)
    drop_unlabelled_test(task, splits)
    if trains and "train" not in splits:
        raise ValueError(
            "train: there is no training split; give train_dataset (--train FILE), or a folder"
            " that has one"
        )
    baseline_rows = None if trains else splits.pop("train", None)
    if not splits:
        raise ValueError(
            "data: no validation or test split is given; give test_dataset (--test FILE), or a"
            " folder that has one"
        )
    config = config_of(model)
    has_trained_head = find_trained_head(config) is not None
    splits = task.read(splits, config if has_trained_head else None)
    has_head = has_trained_head or isinstance(model, PreTrainedModel)
    if has_head and task.labels and len(task.labels) != config.num_labels:
        model_labels = ", ".join(map(str, config.id2label.values()))
        row_labels = ", ".join(map(str, task.labels))
        raise ValueError(
            f"model: {name_of_model(model)!r} was fine-tuned for {config.num_labels} labels"
            f" ({model_labels}),"
            f" not for {len(task.labels)} ({row_labels}); give all of them in its order,"
            " or start from another model"
        )
    if baseline_rows is not None:
        with suppress(ValueError):
            splits["train"] = copy.copy(task).read(DatasetDict(train=baseline_rows), config)[
                "train"
            ]
    return splits


def config_of(model: str | os.PathLike | PreTrainedModel) -> PreTrainedConfig:
    if isinstance(model, PreTrainedModel):
        return model.config
    return read_config(str(model))


def name_of_model(model: str | os.PathLike | PreTrainedModel) -> str:
    if isinstance(model, PreTrainedModel):
        return model.name_or_path or type(model).__name__
    return str(model)


def print_splits(task: Task, splits: Mapping[str, Dataset]) -> None:
    sizes = ", ".join(f"{len(split):,} {name}" for name, split in splits.items())
    print(
        f"{task.name}: columns {printable(', '.join(task.text_columns))} →"
        f" {printable(task.label_column)}; rows: {sizes};"
        f" inputs of {task.tokenizer.model_max_length:,} tokens at most"
    )


def choose_metric(task: Task, validation: Dataset, args: FinetuningConfig) -> None:
    """Settle in `args` the metric of the best model; refuse one that these rows do not have."""
    metrics = ["loss", *task.metric_names(validation)]
    if args.metric_for_best_model == "auto" and task.metric_for_best_model not in metrics:
        raise ValueError(
            f"metric_for_best_model: {task.metric_for_best_model} is not defined for the validation"
            f" rows; use one of {', '.join(metrics)}, or other rows"
        )
    for name, value in choose_best_metric(args, task.metric_for_best_model, metrics).items():
        setattr(args, name, value)


def check_label_smoothing(task: Task, encoded: Dataset, args: FinetuningConfig) -> None:
    """Refuse label smoothing where the labels cannot have it."""
    if not args.label_smoothing_factor:
        return
    feature = encoded.features.get("labels")
    feature = getattr(feature, "feature", feature)  # of a list
    has_classes = feature is not None and feature.dtype.startswith("int")
    if task.label_weights or not has_classes:
        raise ValueError(
            "label_smoothing_factor: it needs classes, and no class_weights; leave it out"
        )


def settings_to_resume(
    task: Task,
    task_options: Mapping[str, Any],
    model: str | os.PathLike | PreTrainedModel,
    args: FinetuningConfig,
    encoded: Mapping[str, Dataset],
) -> dict[str, Any]:
    """The settings of rows, labels and model that must be the same when the training is resumed."""
    settings = {
        "task": task.name,
        **task_options,
        "text": {name: rows_checksum(rows) for name, rows in encoded.items()},
        "model": name_of_model(model),
        "freeze": args.freeze,
        "lora": args.lora,
        "labels": list(task.labels),
        "by the clock": args.minutes is not None,
    }
    return json.loads(json.dumps(settings))


def initial_model(
    task: Task, model: str | os.PathLike | PreTrainedModel, args: FinetuningConfig
) -> PreTrainedModel:
    """The model before training: the same for the same seed."""
    if isinstance(model, PreTrainedModel):
        model.config.update(task.config_fields())
        return model
    set_seed(args.seed)
    return load_model(str(model), type(task), task.config_fields())
