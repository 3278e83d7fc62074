"""`FinetuningTrainer`: a task, a model and examples → a trained model and its scores."""

import copy
import json
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, DatasetDict
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ...option_checks import checked_class
from ..common.locks import lock_output
from ..common.printable import printable
from ..common.printing import warn
from ..data.entries import describe_sources
from ..hub.push import check_push
from ..hub.save_model_mixin import SaveModelMixin
from ..loop.arguments import choose_best_metric, trainer_settings
from ..loop.callbacks import common_callbacks
from ..loop.checkpoint_mixin import CheckpointMixin
from ..loop.checkpoints import kept_step
from ..loop.early_stopping import EarlyStopping
from ..loop.resume_guard import ResumeGuardCallback, rows_checksum, settings_of_steps
from ..optimization.clock import TimeBudgetMixin, start_budget
from .checks import check_before_reading
from .class_weights import sum_of_weights, weighted_loss
from .config import FinetuningConfig
from .freezing import add_lora, freeze
from .prediction_loop import TaskPredictor
from .reading.examples import read_and_learn
from .reading.splits import FilesOrRows
from .results import Results, name_baseline, score_baseline, score_simple_model
from .saving import save_results
from .start_model import StartModel, longest_input
from .survey import find_warnings, survey
from .tasks.base import Task
from .tasks.predictions import LABEL, Predictions, Scores
from .thresholds import ChosenThresholds, shift_bias, undo_shift

# Private methods of `Trainer` that `FinetuningTrainer` and `TaskPredictor` override, because no
# public method is called there (tests/loop/test_private_names.py fails where Transformers changed
# one):
# - `_get_eval_sampler`: predictions belong to examples by their order, which
#   `train_sampling_strategy` would change;
# - `_get_num_items_in_batch`: a weighted loss is divided by the sum of the weights, not by the
#   number of labels;
# - `_save`: calls of the tokenizer leave truncation and padding in it, which would be saved.


@checked_class
class FinetuningTrainer(SaveModelMixin, CheckpointMixin, TimeBudgetMixin, TaskPredictor):
    """Trains a model for a task, and measures it.

    ```python
    tokenizer = AutoTokenizer.from_pretrained("runs/minibert")
    trainer = FinetuningTrainer(
        Classify(tokenizer), "runs/minibert", FinetuningConfig("runs/reviews"),
        train_dataset=examples
    )
    trainer.train()
    scores = trainer.measure()
    trainer.save_model()
    ```

    Bad examples and settings are refused (a ValueError) here, before any training.

    Args:
        task: What to learn, such as `Classify(tokenizer)`. The trainer learns the labels in a copy,
            `trainer.task`, so that a task can be used again.
        model: A folder or a Hub name: a MiniBERT, or a model that `convert` takes. Or a model of
            the class `task.model_class`.
        args: The settings. With `push_to_hub`, `save_model` pushes the finished model.
        train_dataset: The examples to train on: a `Dataset`, a DataFrame, dictionaries, or files.
            Without them and without `data`, the model is measured only.
        eval_dataset: The examples to validate on; by default some of the training examples.
        test_dataset: The examples to test on, if there are any.
        baseline_dataset: Of a model that is measured only, the examples that the baseline learns
            from.
        validation_size: Training examples to hold out if there is no `eval_dataset`: a share below
            1, or a number; by default 0.1.
        data: A folder, a Hub data set or a `DatasetDict` that has the splits which are not given.
        columns: Names of the columns of csv and tsv files without a header row.
        do_train: Whether to train; by default if there is a `train_dataset` or `data`. A model that
            is measured only is compared with a baseline from the training examples of `data`.

    Attributes:
        sources: Where the splits are from, as given: "data", "train", "validation", "test".
        source_names: Those that are given, in words, without folders of this machine.
        splits: The examples by split ("train", "validation", "test"), as `Task.read` returned them.
        encoded: The model inputs made of them.
        longest_input: The tokens that tokenizer and model allow, whatever `task.max_length` says.
        label_counts: How often each label occurs, by split.
        row_warnings: What one should know of the examples.
        predictions: Since `measure`, what the model predicts for each split.
        scores: Since `measure`, its metrics with the loss, by split.
        chosen_thresholds: Since `measure` after a training, the thresholds that the task chose.
        resume_settings: Of examples, labels and model: what must be the same when the training is
            resumed, beside the settings of its steps.
        resume_guard: All of these settings.
        budget: The clock of `args.minutes`; None without.
        has_new_weights: Whether the head begins untrained.
        frozen_modules: What `args.freeze` keeps as it is.
        num_trained_parameters: The number of weights that are trained.
        training_seconds: Since `train`, how long it took; None if it was resumed.
        report: Since `save_model` after `train` and `measure`, the report.
        card: Since then, what the card says.
    """

    frozen_modules: Sequence[torch.nn.Module] = ()

    def __init__(
        self,
        task: Task,
        model: str | os.PathLike | PreTrainedModel,
        args: FinetuningConfig | None = None,
        train_dataset: FilesOrRows = None,
        eval_dataset: FilesOrRows = None,
        test_dataset: FilesOrRows = None,
        baseline_dataset: FilesOrRows = None,
        validation_size: float | None = None,
        data: FilesOrRows | DatasetDict = None,
        columns: Sequence[str] | None = None,
        do_train: bool | None = None,
    ):
        # Copies, since the caller's task and settings stay as they are
        self.task = copy.deepcopy(task)
        args = copy.copy(FinetuningConfig() if args is None else args)
        if do_train is None:
            do_train = train_dataset is not None or data is not None
        start = StartModel(model, do_train)

        # Checks, before anything is read
        args.push_to_hub = args.push_to_hub and do_train
        check_before_reading(self.task, start, args, do_train)
        if args.push_to_hub:
            check_push(args)
        if do_train:
            self.budget = start_budget(args)

        # Examples and model inputs
        if train_dataset is None and not do_train:
            train_dataset = baseline_dataset
        self.sources = dict(
            data=data, train=train_dataset, validation=eval_dataset, test=test_dataset
        )
        self._prepare_examples(start, args, columns, validation_size, do_train)
        self._warn_of_examples()

        # Settings
        if do_train:
            choose_metric(self.task, self.splits["validation"], args)
            check_label_smoothing(self.task, self.encoded["train"], args)
        self.resume_settings = resume_settings(self.task, start.name, args, self.encoded)
        args = trainer_settings(args)

        # Model
        model = start.load(self.task, args.seed)
        self.has_new_weights = do_train and not start.has_trained_head
        if do_train:
            model = self._choose_weights(model, args)
        self.num_trained_parameters = model.num_parameters(only_trainable=True)

        # Trainer
        training_options = self._training_options(args) if do_train else {}
        # A model that is measured only may have a test split alone.
        eval_examples = self.encoded.get("validation", self.encoded.get("test"))
        super().__init__(self.task, model, args, eval_dataset=eval_examples, **training_options)
        self.resume_guard = ResumeGuardCallback(self.settings_to_resume())
        self.add_callback(self.resume_guard)
        self._clear_results()

    def _prepare_examples(
        self,
        start: StartModel,
        args: FinetuningConfig,
        columns: Sequence[str] | None,
        validation_size: float | None,
        do_train: bool,
    ) -> None:
        """Read the examples of `sources`, which the task then knows the labels of, say how many
        there are, and make model inputs of them."""
        self.longest_input = longest_input(self.task.tokenizer, start.config)
        self.source_names = describe_sources(self.sources)
        self.splits = read_and_learn(
            self.task, start, args, self.sources, columns, validation_size, do_train
        )
        self._training_examples = self.splits.get("train")
        if not do_train:
            self.splits.pop("train", None)  # only `baseline_scores` and `simple_scores` need them
        print_splits(self.task, self.splits)
        self.encoded = {name: self.task.encode(split) for name, split in self.splits.items()}

    def _warn_of_examples(self) -> None:
        """Count the labels of every split; warn of examples that are hard to learn or measure."""
        surveys = {}
        for name, split in self.splits.items():
            surveys[name] = survey(self.task, split, self.encoded[name])
        self.label_counts = {name: counted.labels for name, counted in surveys.items()}
        self.row_warnings = find_warnings(self.task, surveys)
        for warning in self.row_warnings:
            warn(warning)

    def _choose_weights(self, model: PreTrainedModel, args: FinetuningConfig) -> PreTrainedModel:
        """The model whose weights are trained: all of them, some, or those of LoRA."""
        undo_shift(model)
        self.frozen_modules = freeze(model, args.freeze)
        if args.lora is None:
            return model
        return add_lora(model, args.lora)

    def _training_options(self, args: FinetuningConfig) -> dict[str, Any]:
        """What `Trainer` needs to train, beside what it needs to predict."""
        options = {
            "train_dataset": self.encoded["train"],
            "compute_metrics": self._validation_metrics,
            "callbacks": self._training_callbacks(args),
        }
        label_weights = self.task.learned.label_weights
        if label_weights:
            options["compute_loss_func"] = weighted_loss(label_weights)
        return options

    def _training_callbacks(self, args: FinetuningConfig) -> list[Any]:
        """Callbacks of a training; one that may stop early goes on while it is no better than
        guessing."""
        callbacks = common_callbacks(self.budget, self.has_new_weights)
        if args.patience and args.eval_strategy != "no" and args.load_best_model_at_end:
            floor = None
            if args.greater_is_better:
                metric = args.metric_for_best_model.removeprefix("eval_")
                floor = self.baseline_scores["validation"].get(metric)
            callbacks.append(EarlyStopping(args.patience, floor))
        return callbacks

    def settings_to_resume(self) -> dict[str, Any]:
        """All that must be the same when the training is resumed."""
        return settings_of_steps(self.args) | self.resume_settings

    @property
    def settings(self) -> dict[str, Any]:
        """The former name of `resume_settings`."""
        return self.resume_settings

    # --- training ---

    def train(self, resume_from_checkpoint: str | bool | None = None, **options: Any):
        """Train as `Trainer.train` does; True resumes from the newest whole checkpoint. What was
        learned by LoRA is merged into the model at the end. A ValueError if the output folder holds
        another run, another process writes in it, or the checkpoint was trained with other
        settings."""
        changes_weights = self.args.lora is not None or self.args.freeze != "none"
        if changes_weights and self.state.global_step:
            raise ValueError(
                "lora and freeze: this trainer has trained; its adapters are merged and its layers"
                " are trainable again. Make a new trainer to train further"
            )
        with lock_output(self.args):
            checkpoint = self.find_checkpoint(resume_from_checkpoint)
            self._forget_training()
            result = super().train(resume_from_checkpoint=checkpoint, **options)
        # The clock of a resumed training counts from the resumption.
        if checkpoint is None:
            self.training_seconds = result.metrics["train_runtime"]
        if self.args.lora is not None:
            self.model = self.model.merge_and_unload()
            self.model_wrapped = self.model
        self.model.requires_grad_(True)
        return result

    def _forget_training(self) -> None:
        """Forget what an earlier `train` or `measure` of this trainer has left."""
        undo_shift(self.model)
        self.model.config.thresholds = self.task.learned.thresholds
        self._clear_results()
        self.report = None
        self.card = None

    def _clear_results(self) -> None:
        """What `train` and `measure` find is not known yet."""
        self.training_seconds: float | None = None
        self.predictions: dict[str, Predictions] = {}
        self.scores: dict[str, Scores] = {}
        self.chosen_thresholds: ChosenThresholds | None = None

    def _save(self, output_dir=None, state_dict=None):
        self.reset_tokenizer()
        super()._save(output_dir, state_dict)

    # --- saving: see `SaveModelMixin.save_model` ---

    def write_model(self, folder: Path) -> None:
        """Write the model and its tokenizer. All processes take part."""
        super().write_model(folder)
        if self.args.should_save:
            self.tokenizer_to_save().save_pretrained(folder)

    def save_results(self, folder: Path) -> None:
        """Write the results beside the model, and print them, after `train` and `measure`."""
        if self.scores and self.train_dataset is not None:
            self.report = save_results(self, folder)

    def tokenizer_to_save(self) -> PreTrainedTokenizerBase:
        """A copy of the tokenizer that allows inputs as long as the model reads, even if it was
        trained on shorter ones, but for a task that keeps the length of its training."""
        self.reset_tokenizer()
        tokenizer = copy.deepcopy(self.task.tokenizer)
        if not self.task.keeps_max_length:
            tokenizer.model_max_length = self.longest_input
        return tokenizer

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
        weights = [sum_of_weights(self.task.learned.label_weights, values) for values in labels]
        total = torch.stack(weights).sum().to(device)
        if self.args.average_tokens_across_devices and self.args.world_size > 1:
            total = self.accelerator.gather(total).sum()
        return total

    def evaluate(self, eval_dataset: Dataset | None = None, *args: Any, **kwargs: Any):
        """As `Trainer.evaluate`, of the examples to validate on. A ValueError for others."""
        self._check_validation_examples("eval_dataset", eval_dataset)
        return super().evaluate(eval_dataset, *args, **kwargs)

    def predict(self, test_dataset: Dataset, *args: Any, **kwargs: Any):
        """As `Trainer.predict`, of the examples to validate on. A ValueError for others."""
        self._check_validation_examples("test_dataset", test_dataset)
        return super().predict(test_dataset, *args, **kwargs)

    def _check_validation_examples(self, name: str, examples: Dataset | None) -> None:
        """Refuse (a ValueError) examples that `_validation_metrics` would compare with the labels
        of the examples to validate on."""
        if self.compute_metrics is None or examples is None or examples is self.eval_dataset:
            return
        raise ValueError(
            f"{name}: other rows than those to validate on, whose labels they would be compared"
            " with; make a trainer with them as test_dataset, and call measure()"
        )

    def _validation_metrics(self, output: Any) -> dict[str, float]:
        """`compute_metrics` of a training: the metrics by the thresholds that would be chosen here,
        without those that are not defined for these examples, which nothing can be chosen by. Says
        so if the model predicts the same for all examples."""
        predictions = Predictions(
            self.splits["validation"], self.encoded["validation"], *output.predictions
        )
        thresholds = None
        if self.task.tune_threshold:
            thresholds = self.task.choose_thresholds(predictions).values
        predictions = self._decode(predictions, thresholds)
        self._warn_of_a_single_label(predictions)
        scores = self.task.compute_metrics(predictions)
        return {name: score for name, score in scores.items() if score is not None}

    def _decode(self, predictions: Predictions, thresholds: Sequence[float] | None) -> Predictions:
        """The predictions by these thresholds, decoded."""
        predictions = predictions._replace(thresholds=thresholds)
        return predictions._replace(decoded=list(self.task.decode(predictions)))

    def _warn_of_a_single_label(self, predictions: Predictions) -> None:
        """Say so if the model predicts the same for all examples."""
        examples = predictions.examples
        predicted_labels = self._shown_labels(examples, predictions.decoded)
        true_labels = self._shown_labels(examples, examples[LABEL])
        if len(predicted_labels) == 1 and len(true_labels) > 1:
            (label,) = predicted_labels
            warn(f"so far the model predicts the same for every row: {label}")

    def _shown_labels(self, examples: Dataset, labels: Any) -> set[str]:
        return {self.task.show_label(example, label) for example, label in zip(examples, labels)}

    # --- measuring ---

    def measure(self) -> dict[str, Scores]:
        """Measure the model on every split that is not trained on, the validation examples first:
        its metrics with the loss, by split. They and the predictions are kept in `scores` and
        `predictions`.

        After a training, the thresholds of the task are chosen on the validation examples, and
        go into the model.
        """
        self.predictions = {}
        self.scores = {}
        thresholds = self.task.learned.thresholds
        if self.task.tune_threshold and self.state.global_step:
            thresholds = self._choose_thresholds()
        for name in self.encoded:
            if name == "train":
                continue
            predictions, loss = self._predict_split(name)
            predictions = self._decode(predictions, thresholds)
            scores = dict(self.task.compute_metrics(predictions))
            scores["loss"] = loss
            self.predictions[name] = predictions
            self.scores[name] = scores
        return self.scores

    def _choose_thresholds(self) -> Sequence[float] | None:
        """Choose the thresholds of the task on the validation examples, say so, and keep them with
        the model. Returns those that `decode` still has to apply."""
        undo_shift(self.model)  # of an earlier `measure`
        predictions, _ = self._predict_split("validation")
        self.chosen_thresholds = self.task.choose_thresholds(predictions)
        for line in self.chosen_thresholds.describe(self.task.label_names):
            print(f"tune_threshold: {line}")
        thresholds = self.chosen_thresholds.values
        if thresholds is not None and self.task.thresholds_go_into_bias:
            shift_bias(self.model, thresholds)
            return None
        self.model.config.thresholds = thresholds
        return thresholds

    def _predict_split(self, name: str) -> tuple[Predictions, float]:
        """The predictions for a split, and the loss."""
        encoded = self.encoded[name]
        args = copy.copy(self.args)
        args.push_to_hub = False  # else `Trainer` creates the repository
        # Another trainer, which wraps the model anew: after LoRA it is not the one that was
        # trained.
        predictor = TaskPredictor(self.task, self.model, args, eval_dataset=encoded)
        output = predictor.predict(encoded)
        predictions = Predictions(self.splits[name], encoded, *output.predictions)
        return predictions, output.metrics["test_loss"]

    @cached_property
    def baseline_scores(self) -> dict[str, Scores]:
        """The scores of guesses, by split."""
        return score_baseline(self.task, self._training_examples, self.splits)

    @property
    def baseline_name(self) -> str:
        """What these guesses are called in tables."""
        return name_baseline(self.task, self._training_examples)

    @cached_property
    def simple_scores(self) -> dict[str, Scores]:
        """The scores of a simple model that learned from the training examples, by split."""
        return score_simple_model(self.task, self._training_examples, self.splits)

    def results(self, training_warning: str | None = None) -> Results:
        """What the scores are worth, since `measure`.

        Args:
            training_warning: What was wrong with the training.
        """
        return Results(
            self.task,
            self.predictions,
            self.scores,
            self.baseline_scores,
            self.simple_scores,
            self.baseline_name,
            training_warning,
        )

    def describe_training(self) -> dict[str, Any]:
        """What the report says of the training, since `train`."""
        return {
            "best_step": kept_step(vars(self.state), self.args.load_best_model_at_end),
            "steps": self.state.global_step,
            "epochs": self.state.epoch,
            "training_seconds": self.training_seconds,
            "parameters": self.model.num_parameters(),
            "trained_parameters": self.num_trained_parameters,
        }


# --- the steps of `FinetuningTrainer.__init__` ---


def print_splits(task: Task, splits: Mapping[str, Dataset]) -> None:
    """Say which columns are read, and how many examples each split has."""
    sizes = ", ".join(f"{len(split):,} {name}" for name, split in splits.items())
    print(
        f"{task.name}: columns {printable(', '.join(task.text_columns))} →"
        f" {printable(task.learned.label_column)}; rows: {sizes};"
        f" inputs of {task.tokenizer.model_max_length:,} tokens at most"
    )


def choose_metric(task: Task, validation: Dataset, args: FinetuningConfig) -> None:
    """Write the metric of the best model into `args`; refuse (a ValueError) one that these examples
    do not have."""
    metrics = ["loss", *task.metric_names(validation)]
    if args.metric_for_best_model == "auto" and task.metric_for_best_model not in metrics:
        raise ValueError(
            f"metric_for_best_model: {task.metric_for_best_model} is not defined for the validation"
            f" rows; use one of {', '.join(metrics)}, or other rows"
        )
    for name, value in choose_best_metric(args, task.metric_for_best_model, metrics).items():
        setattr(args, name, value)


def check_label_smoothing(task: Task, encoded: Dataset, args: FinetuningConfig) -> None:
    """Refuse (a ValueError) label smoothing where the labels cannot have it."""
    if not args.label_smoothing_factor:
        return
    feature = encoded.features.get("labels")
    feature = getattr(feature, "feature", feature)  # of a list
    has_classes = feature is not None and feature.dtype.startswith("int")
    if task.learned.label_weights or not has_classes:
        raise ValueError(
            "label_smoothing_factor: it needs classes, and no class_weights; leave it out"
        )


def resume_settings(
    task: Task,
    model_name: str,
    args: FinetuningConfig,
    encoded: Mapping[str, Dataset],
) -> dict[str, Any]:
    """What must be the same when the training is resumed, beside `settings_of_steps`: examples,
    labels and model."""
    settings = {
        "task": task.name,
        **task.options(),
        "text": {name: rows_checksum(rows) for name, rows in encoded.items()},
        "model": model_name,
        "freeze": args.freeze,
        "lora": args.lora,
        "labels": list(task.label_names),
        "by the clock": args.minutes is not None,
    }
    return json.loads(json.dumps(settings))
