"""The `Trainer` that pretrains a model with any objective."""

import dataclasses
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import has_length

from ...configuration_minibert import MiniBertConfig, tokenizer_fields
from ...option_checks import check_keywords, keyword_names
from ..common.locks import lock_output
from ..common.precision import without_autocast
from ..common.processes import first_process_first, shares_weights
from ..common.random_state import random_state_kept
from ..data.collators import MaskedLMCollator
from ..data.masking_progress import MaskingProgress
from ..data.prepared import decode_documents, tokenizer_checksum
from ..data.tokenized import check_tokenization
from ..hub.save_model_mixin import SaveModelMixin
from ..loop.arguments import trainer_settings
from ..loop.callbacks import add_callbacks, common_callbacks
from ..loop.checkpoint_mixin import CheckpointMixin
from ..loop.checkpoints import kept_step
from ..loop.resume_guard import ResumeGuardCallback, rows_checksum, settings_of_steps
from ..optimization.clock import TimeBudgetMixin, start_budget
from ..optimization.muon import block_matrices, default_muon_rate, muon_optimizer
from .checks import check_before_reading, check_rows
from .config import (
    FIELDS_FREE_TO_CHANGE,
    PretrainingConfig,
    check_config,
    config_path,
    fill_defaults,
)
from .cooccurrence import begin_with_word_vectors
from .data_parallel import CpuDataParallelMixin
from .evaluation_loop import SummedEvaluationMixin
from .loss_terms import LossTermsMixin
from .model_tokenizer import make_model_tokenizer, open_tokenizer
from .new_words import extend_embeddings
from .objectives import OBJECTIVES
from .saving import save_results
from .sizes import LongTrainingCallback, suggest_size_for_seconds, suggest_size_for_steps
from .text_amount import (
    count_tokens,
    expected_passes,
    print_size,
    warn_of_little_text,
    warn_of_little_text_to_continue,
    warn_of_rare_words,
)
from .training_data import (
    TrainingDataReader,
    choose_reader,
    make_rows,
    take_sample,
)


class PretrainingTrainer(
    CpuDataParallelMixin,
    LossTermsMixin,
    SummedEvaluationMixin,
    SaveModelMixin,
    CheckpointMixin,
    TimeBudgetMixin,
    Trainer,
):
    """`Trainer` for pretraining a MiniBERT.

    What is not given is made: documents from files, an evaluation set held out of them, a tokenizer
    trained on them, rows, and the masking collator. The objective (`args.objective`) decides which
    head is trained, with which loss. `evaluate` measures it on the evaluation set: its `eval_loss`
    is a mean over all targets. `log` shows each term of the loss. `save_model()` writes the
    model and the tokenizer; beside them the card, `report.json` and the loss curve; and prints the
    report.

    Args:
        model: a `MiniBertConfig`, which takes the vocabulary of the tokenizer; or a model with the
            head of the objective; or the folder or Hub name of a saved model.
        args: the settings.
        data_collator: by default a `MaskedLMCollator` with the options in `args`.
        train_dataset: a `Corpus`; or a path of text or of rows that `prepare` made; or a data set:
            rows with `text`, which are tokenized and packed; or with `input_ids` only, documents
            without special tokens, which are packed; or with `input_ids` and `position_ids`, which
            are packed already. An `IterableDataset` needs an `eval_dataset`. The objectives mlm+nsp
            and mlm+sop take text.
        eval_dataset: rows to evaluate on, of the kinds above, if `train_dataset` is a data set. By
            default `args.validation_size` is held out.
        processing_class: a tokenizer, or the folder or Hub name of one. By default the saved
            model's or that of prepared rows, or one is trained on the text.
        config_overrides: fields of the config to change; in a saved model those that keep the
            shapes of its weights.

    Raises:
        ValueError: before any training, if the settings, the data, the tokenizer or the model
            contradict each other.

    Attributes:
        is_new: Whether the model begins untrained.
        reader: Of what is given to train on; it knows whether that is a stream, and its names.
        objective: What is learned: the head, its loss and its metrics.
        extension: The words that were added to the vocabulary; None if none were.
        sample_rows: The rows in which tokens are counted: all of them, of a stream the first ones.
        validation_split: What is held out or given to evaluate on: documents, or rows.
        new_weights: The names of the weights that a saved model lacked.
        evaluation_collator: Makes the batches of an evaluation.
        budget: The clock of `args.minutes`; None without.
        resume_guard: The settings that must be the same when the training is resumed.
        start_metrics: Since `train`, the metrics of a saved model before this training.
        training_seconds: Since `train`, how long it took; None if it was resumed.
        report: Since `save_model`, the report.
        card: Since `save_model`, what the card says.
    """

    def __init__(
        self,
        model: MiniBertConfig | PreTrainedModel | str,
        args: PretrainingConfig | None = None,
        data_collator: MaskedLMCollator | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: PreTrainedTokenizerBase | str | None = None,
        callbacks: list | None = None,
        config_overrides: Mapping[str, Any] | None = None,
        **options: Any,
    ):
        # Settings and objective
        self._check_options(options)
        user_args = args or PretrainingConfig()
        self.budget = start_budget(user_args)
        self.is_new = isinstance(model, MiniBertConfig)
        self.reader = choose_reader(train_dataset)
        check_config(user_args, self.is_new)
        self.reader.check(user_args, eval_dataset)
        args = pretraining_settings(user_args, self.is_new, self.reader)
        self.objective = OBJECTIVES[args.objective](args)
        config = self.objective.model_config(model, config_overrides or {})
        if args.optimizer == "muon" and args.muon_learning_rate is None:
            args.muon_learning_rate = default_muon_rate(config.hidden_size, user_args.learning_rate)

        # Checks, before hours of reading
        check_before_reading(user_args, self.reader, self.objective, model, config)
        tokenizer = open_tokenizer(processing_class, model, self.reader)
        set_seed(args.seed)

        # Documents → tokenizer → rows; the other processes find in caches what the first one makes
        with nullcontext() if self.reader.streaming else first_process_first():
            splits = self.reader.read(args, eval_dataset)
            tokenizer, self.extension = make_model_tokenizer(
                tokenizer, self.objective, config, splits
            )
            if self.reader.has_text:
                check_tokenization(splits.train, tokenizer, args.max_lost_text)
            config = self._fit_config(config, tokenizer)
            train_rows = make_rows(splits.train, tokenizer, self.objective)
            evaluation_rows = make_rows(splits.validation, tokenizer, self.objective)
        self.sample_rows = take_sample(train_rows)
        self.validation_split = splits.validation  # documents, or the rows that were given
        check_rows(self.sample_rows, evaluation_rows)

        # Model
        model_to_train, self.new_weights = self._make_model(model, args, config, tokenizer)

        # Trainer
        collator = self._make_collator(data_collator, tokenizer, args)
        self.evaluation_collator = collator.for_evaluation()
        options |= dict(processing_class=tokenizer, callbacks=callbacks)
        super().__init__(model_to_train, args, collator, train_rows, evaluation_rows, **options)
        self._add_own_callbacks(collator)

        # What `train` finds
        self.start_metrics: Mapping[str, float] = {}
        self.training_seconds: float | None = None

    def _check_options(self, options: Mapping[str, Any]) -> None:
        """Refuse (a TypeError) keywords that neither this class nor `Trainer` has."""
        own_options = keyword_names(PretrainingTrainer)
        check_keywords(options, type(self).__name__, [*own_options, *keyword_names(Trainer)])

    def _add_own_callbacks(self, collator: MaskedLMCollator) -> None:
        former_defaults = {}
        if self.args.optimizer == "muon":
            hidden_size = self.model.config.hidden_size
            former_defaults["muon_learning_rate"] = default_muon_rate(hidden_size)
        self.resume_guard = ResumeGuardCallback(self.settings_to_resume(), former_defaults)
        callbacks = common_callbacks(self.budget, self.has_new_weights, self.suggest_size_for_steps)
        callbacks.append(MaskingProgress(collator))
        callbacks.append(self.resume_guard)
        if self.budget is None:
            callbacks.append(LongTrainingCallback(self.suggest_size_for_seconds))
        add_callbacks(self, callbacks)

    def _make_collator(
        self,
        collator: MaskedLMCollator | None,
        tokenizer: PreTrainedTokenizerBase,
        args: PretrainingConfig,
    ) -> MaskedLMCollator:
        """The given collator, or the objective's own."""
        if collator is not None:
            return collator
        return self.objective.make_collator(tokenizer, unpadded=makes_unpadded_batches(args))

    def _fit_config(
        self, config: MiniBertConfig, tokenizer: PreTrainedTokenizerBase
    ) -> MiniBertConfig:
        """Give a new model the vocabulary of the tokenizer; refuse (a ValueError) one that does not
        fit a saved model."""
        if self.is_new:
            config = MiniBertConfig.from_dict(config.to_dict() | tokenizer_fields(tokenizer))
        if self.extension is None:  # else the model is extended, too
            config.check_tokenizer(tokenizer)
        return config

    def _make_model(
        self,
        model: MiniBertConfig | PreTrainedModel | str,
        args: PretrainingConfig,
        config: MiniBertConfig,
        tokenizer: PreTrainedTokenizerBase,
    ) -> tuple[PreTrainedModel, list[str]]:
        """Make the model to train; returns it with the names of the weights that a saved model
        lacked."""
        path = config_path(model)
        new_weights: list[str] = []
        if self.is_new:
            model = config
        elif path is not None:
            set_seed(args.seed)  # the head may be new
            model, new_weights = self.objective.load(path, config)
            config = model.config
        if self.extension is not None:
            extend_embeddings(model, self.extension.pieces)
            config = model.config
            config.check_tokenizer(tokenizer)
        set_seed(args.seed)
        return self.objective.make_model(model, config, tokenizer), new_weights

    def settings_to_resume(self) -> dict[str, Any]:
        """All that decides rows, masks and weights. A checkpoint cannot be resumed with other
        values of it."""
        settings = settings_of_steps(self.args)
        inherited = {field.name for field in dataclasses.fields(TrainingArguments)}
        for field in dataclasses.fields(self.args):
            if field.name not in inherited and field.name not in FIELDS_FREE_TO_CHANGE:
                settings[field.name] = getattr(self.args, field.name)
        settings |= self.objective.masking_options
        settings["by the clock"] = self.budget is not None
        if self.reader.streaming:  # every process, and for text every worker, reads its own part
            settings["processes"] = self.args.world_size
            settings["dataloader_num_workers"] = self.args.dataloader_num_workers
        for name in MiniBertConfig.__annotations__:
            settings[name] = getattr(self.model.config, name)
        settings["rows"] = None
        if has_length(self.train_dataset):
            settings["rows"] = len(self.train_dataset)
        settings["tokenizer"] = tokenizer_checksum(self.processing_class)
        settings["text"] = rows_checksum(self.sample_rows)  # of a stream, its first rows
        return settings

    # --- training ---

    @property
    def has_new_weights(self) -> bool:
        """Whether the model, or some of its weights (`new_weights`), begin untrained."""
        return self.is_new or bool(self.new_weights)

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any):
        """Train as `Trainer.train` does; True resumes from the newest whole checkpoint. A
        ValueError if the output folder holds another run, another process writes in it, or the
        checkpoint was trained with other settings."""
        with lock_output(self.args):
            return self._train(resume_from_checkpoint, *args, **kwargs)

    def _train(self, resume_from_checkpoint: str | bool | None, *args: Any, **kwargs: Any):
        is_first = not self.state.global_step  # `train` may be called again in a notebook
        checkpoint = self.find_checkpoint(resume_from_checkpoint)
        self._forget_training()
        if is_first and checkpoint is None:
            self._initialize_embeddings()
        if checkpoint is None and self.new_weights:
            print(
                f"New weights, which {self.model.config._name_or_path!r} lacks:"
                f" {', '.join(self.new_weights)}"
            )
        num_parameters = self.model.num_parameters()
        streaming = self.reader.streaming
        print_size(self.sample_rows, self.args.seq_length, num_parameters, streaming)
        if not streaming and self.is_world_process_zero():
            self._warn_of_little_text()
        if is_first and not (self.has_new_weights or shares_weights(self.args)):
            with random_state_kept():
                self.start_metrics = self.evaluate(metric_key_prefix="start")
            without_autocast(self.model)  # undo what `evaluate` has changed
        result = super().train(checkpoint, *args, **kwargs)
        # `train_runtime` counts from the resumption
        if checkpoint is None:
            self.training_seconds = result.metrics["train_runtime"]
        return result

    def _forget_training(self) -> None:
        """Forget what an earlier `train` of this trainer has left. The metrics of the start stay:
        those of the first training."""
        self.training_seconds = None
        self.report = None
        self.card = None
        self.forget_loss_terms()

    def _initialize_embeddings(self) -> None:
        """Set the first word embeddings of a new model as `args.embedding_init` says: here and not
        in `_make_model`, since a training that is resumed has no use for them."""
        if self.args.embedding_init != "cooccurrence":
            return
        print("Counting neighbouring tokens for the first word embeddings")
        token_ids = (row["input_ids"] for row in self.sample_rows)
        begin_with_word_vectors(
            self.model, token_ids, self.processing_class.all_special_ids, self.args.seed
        )

    def _warn_of_little_text(self) -> None:
        """Warn of too few tokens for the model, and of new words that hardly occur."""
        rows = self.train_dataset
        text_counts = count_tokens(rows, self.model.config.vocab_size)
        counts = text_counts * expected_passes(self.args, len(rows))
        # Nobody knows how far the clock lets a training go; and the built-in corpus is small.
        may_be_little = self.args.minutes is not None or self.reader.is_builtin
        if not self.is_new:
            warn_of_little_text_to_continue(text_counts.sum())
        elif not may_be_little:
            warn_of_little_text(counts.sum(), self.model.num_parameters())
        if self.extension is not None and self.extension.pieces:
            warn_of_rare_words(counts, list(self.extension.pieces))

    def suggest_size_for_steps(self, steps: int) -> tuple[str, int] | None:
        """As the function of this name in `sizes.py`."""
        return suggest_size_for_steps(self.objective.model_to_save(self.model), steps)

    def suggest_size_for_seconds(self, seconds: float) -> tuple[str, float] | None:
        """As the function of this name in `sizes.py`; None for a trained model."""
        if not self.is_new:
            return None
        return suggest_size_for_seconds(self.objective.model_to_save(self.model), seconds)

    def muon_matrices(self) -> dict[nn.Parameter, int]:
        """The parameters that Muon trains, and of how many matrices each is made."""
        return block_matrices(self.model)

    def create_optimizer(self, *args, **kwargs) -> torch.optim.Optimizer:
        if self.optimizer is None and self.args.optimizer == "muon":
            self.optimizer = muon_optimizer(
                self.model,
                self.get_decay_parameter_names(self.model),
                learning_rate=self.args.learning_rate,
                muon_learning_rate=self.args.muon_learning_rate,
                weight_decay=self.args.weight_decay,
                matrices=self.muon_matrices(),
                betas=(self.args.adam_beta1, self.args.adam_beta2),
                eps=self.args.adam_epsilon,
            )
        return super().create_optimizer(*args, **kwargs)

    def get_batch_samples(self, epoch_iterator, num_batches, device):
        batches, num_items = super().get_batch_samples(epoch_iterator, num_batches, device)
        if num_items is None:
            return batches, num_items
        counts = [self.objective.count_targets(batch) for batch in batches]
        totals = {}
        for name in counts[0]:
            totals[name] = sum(count[name] for count in counts).to(device)
            if self.args.average_tokens_across_devices and self.args.world_size > 1:
                totals[name] = self.accelerator.gather(totals[name]).sum()
        return [{**batch, **totals} for batch in batches], num_items

    # --- the log: see `LossTermsMixin`; evaluation: see `SummedEvaluationMixin` ---

    def metrics_of_kept_model(self) -> Mapping[str, float]:
        """The metrics of the evaluation after the step whose model is kept; measured now if there
        was none. All processes take part."""
        step = kept_step(vars(self.state), self.args.load_best_model_at_end)
        for log in reversed(self.state.log_history):
            if "eval_targets" in log and log["step"] == step:
                return log
        return self.evaluate()

    def held_out_texts(self) -> Iterable[str]:
        """The texts of the evaluation set, of rows as their tokenizer spells them."""
        if "text" in self.validation_split.column_names:
            return self.validation_split["text"]
        return decode_documents(self.validation_split, self.processing_class)

    # --- saving: see `SaveModelMixin.save_model` ---

    def write_model(self, folder: Path) -> None:
        """Write the model that the objective saves (for rtd the discriminator), and its tokenizer.
        All processes take part."""
        saved_model = self.objective.model_to_save(self.model)
        if saved_model is self.model:
            super().write_model(folder)  # the processes may share its weights
        elif self.args.should_save:
            saved_model.save_pretrained(folder)
        tokenizer = self.tokenizer_to_save()
        is_written = saved_model is self.model and tokenizer is self.processing_class
        if self.args.should_save and not is_written:
            tokenizer.save_pretrained(folder)

    def tokenizer_to_save(self) -> PreTrainedTokenizerBase:
        """The tokenizer as it goes with the finished model; the trainer's own stays as it is."""
        return self.objective.tokenizer_to_save(self.processing_class)

    def save_results(self, folder: Path) -> None:
        self.report = save_results(self, folder)


def pretraining_settings(
    user_args: PretrainingConfig, is_new: bool, reader: TrainingDataReader
) -> PretrainingConfig:
    """A copy of the user's settings as `Trainer` takes them: with their defaults, and with what the
    data, the hardware and the objective decide. The objective and `Trainer` get the same object."""
    args = fill_defaults(user_args, is_new)
    reader.apply_settings(args)
    args = trainer_settings(args)
    # Batches without padding count all tokens. Those with padding count by the mask: the id of
    # padding may be [SEP]'s.
    args.include_num_input_tokens_seen = "non_padding"
    if makes_unpadded_batches(args):
        args.include_num_input_tokens_seen = "all"
    return args


def makes_unpadded_batches(args: PretrainingConfig) -> bool:
    return OBJECTIVES[args.objective].packs_documents and not args.torch_compile
