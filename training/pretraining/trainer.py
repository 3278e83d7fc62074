"""The `Trainer` that pretrains a model with any objective."""

import dataclasses
import functools
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import has_length

from ...configuration_minibert import MiniBertConfig, tokenizer_fields, vocabulary_size
from ..common.callbacks import CheckpointMixin, SettingsState, add_callbacks, leave_group, steps_of
from ..common.checkpoints import checkpoint_to_resume, kept_step, rows_checksum
from ..common.files import lock_output, write_json, written_whole
from ..common.loading import minibert_config, random_state_kept, saved_tokenizer
from ..common.precision import resolve_precision, without_autocast
from ..common.printing import warn
from ..common.processes import first_process_first, shares_weights
from ..data.builtin_corpus import BUILTIN
from ..data.collators import MaskedLMCollator, MaskingProgress
from ..data.documents import check_tokenization, hold_out
from ..data.masking import unigram_counts
from ..data.mixtures import SAMPLE_ROWS, VALIDATION_DOCUMENTS, check_stream, first_rows
from ..data.packing import fill_rate
from ..data.prepared import tokenizer_checksum
from ..evaluation.plots import plot_training
from ..hub.card import write_card
from ..hub.trainer import HubMixin
from ..optimization.clock import TimeBudget
from ..optimization.muon import MUON_LEARNING_RATE, MUON_WIDTH, muon_optimizer
from .config import FREE_FIELDS, PretrainingConfig, config_path, fill_defaults
from .cooccurrence import begin_with_word_vectors
from .half_batches import HalfBatches
from .objectives import OBJECTIVES, Objective
from .objectives.base import unigram_baseline
from .report import SIMPLE, describe_pretraining, judge_pretraining

# Fewer tokens for each parameter of a new model, or fewer examples of a new word, get a warning.
FEW_TOKENS, FEW_EXAMPLES = 2, 50
ON_CARD = (
    "embedding_init",
    "validation_size",
    "seq_length",
    "packing",
    "optimizer",
    "muon_learning_rate",
    "minutes",
)


class PretrainingTrainer(HalfBatches, HubMixin, CheckpointMixin, Trainer):
    """`Trainer` for pretraining a MiniBERT.

    What is not given is made: rows from text, a tokenizer trained on it, an evaluation set held out of it, the masking
    collator. The objective (`args.objective`) decides which head is trained, with which loss. `evaluate` keeps a few
    sums of each batch, so that its memory does not grow with the data, and `log` shows each term of the loss.
    `save_model()` writes the model, the tokenizer, the card, `report.json` and the loss curve.

    Args:
        model: a `MiniBertConfig`, which takes the vocabulary of the tokenizer; or a model with the head of the
            objective; or the folder or Hub name of a saved model.
        args: the settings.
        data_collator: by default a `MaskedLMCollator` with the options in `args`.
        train_dataset: rows with `text`, which are tokenized and packed; or with `input_ids` only, documents without
            special tokens, which are packed; or with `input_ids` and `position_ids`, which are packed already. An
            `IterableDataset` needs an `eval_dataset`. The objective mlm+nsp takes text.
        eval_dataset: rows of the same kinds. By default `args.validation_size` is held out of `train_dataset`.
        processing_class: a tokenizer. By default the saved model's, or one is trained on the text.

    Raises:
        ValueError: before any training, if the settings, the data, the tokenizer or the model contradict each other.
    """

    def __init__(
        self,
        model: MiniBertConfig | PreTrainedModel | str,
        args: PretrainingConfig | None = None,
        data_collator: MaskedLMCollator | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        callbacks: list | None = None,
        **options: Any,
    ):
        path, self.is_new = config_path(model), isinstance(model, MiniBertConfig)
        args = fill_defaults(args or PretrainingConfig(), self.is_new)
        self.budget = None if args.minutes is None else TimeBudget(args.minutes, args.warmup_steps)
        self.objective = OBJECTIVES[args.objective](args)
        config = model if self.is_new else minibert_config(path) if path else model.config
        if self.is_new:
            config = MiniBertConfig.from_dict(config.to_dict() | self.objective.config_fields)
        self.streamed = isinstance(train_dataset, datasets.IterableDataset)
        self.objective.check(config, self.streamed)
        if self.streamed:
            if eval_dataset is None:
                raise ValueError(
                    "eval_dataset: needed, since nothing can be held out of an IterableDataset; give one"
                )
            check_stream(args)
        args = resolve_precision(args)
        set_seed(args.seed)
        with nullcontext() if self.streamed else first_process_first():
            tokenizer = processing_class or (saved_tokenizer(path) if path else None)
            rows, tokenizer, config = self._prepare(train_dataset, eval_dataset, tokenizer, config)
        self.sample = sample_of(rows[0])  # the rows in which tokens are counted
        packed = self.objective.packs_documents and not args.torch_compile
        collator = data_collator or self.objective.collator(tokenizer, unpadded=packed)
        self.evaluation_collator = collator.for_evaluation()
        built, self.new_weights = self.objective.model(model, config, tokenizer)
        # The budget comes before the progress bar of `Trainer`, which reads the number of steps that it sets.
        callbacks = [*(callbacks or []), *([self.budget] if self.budget else [])]
        super().__init__(
            built, args, collator, *rows, processing_class=tokenizer, callbacks=callbacks, **options
        )
        self.data_description, self.more_metrics = "text", {}  # on the card; in the report
        self.new_ids: list[int] = []  # tokens that were added to the vocabulary
        self.start: Mapping[str, float] = {}  # metrics of the saved model before this training
        self.report: dict[str, Any] | None = None
        self.training_seconds: float | None = None
        self._loss_terms: dict[str, torch.Tensor] = {}  # sums since the last log
        self.settings = SettingsState(self._settings())
        for callback in (MaskingProgress(collator), self.settings):
            self.add_callback(callback)
        add_callbacks(self)

    def _prepare(
        self,
        train: Any,
        evaluation: Any,
        tokenizer: PreTrainedTokenizerBase | None,
        config: MiniBertConfig,
    ):
        """Make the rows to train and to evaluate on; returns them with the tokenizer (the given one, or one trained on
        the text), adapted to the objective, and the config with its vocabulary."""
        args, has_text = self.objective.args, "text" in columns_of(train)
        if evaluation is None:
            if has_text:
                train = train.filter(is_written, input_columns="text", batched=True)
            held_out = hold_out(train, args.validation_size, args.seed)
            train, evaluation = (
                train.select(np.flatnonzero(side)) for side in (~held_out, held_out)
            )
        elif isinstance(evaluation, datasets.IterableDataset):
            evaluation = first_rows(evaluation, count=VALIDATION_DOCUMENTS)
        if tokenizer is None:
            if not has_text:
                raise ValueError(
                    "processing_class: rows without text need the tokenizer that made them; give it"
                )
            tokenizer = new_tokenizer(args, config, train["text"])
        tokenizer.model_max_length = config.max_position_embeddings
        tokenizer = self.objective.prepare_tokenizer(tokenizer)
        if has_text:
            check_tokenization(train, tokenizer, args.max_lost_text)
        if self.is_new:
            config = MiniBertConfig.from_dict(config.to_dict() | tokenizer_fields(tokenizer))
        config.check_tokenizer(tokenizer)
        rows = [make_rows(each, tokenizer, self.objective) for each in (train, evaluation)]
        if not len(rows[1]):
            raise ValueError(
                "eval_dataset: it makes no row; give more text, or a larger validation_size"
            )
        return rows, tokenizer, config

    def _settings(self) -> dict[str, Any]:
        """All that decides rows, masks and weights. A checkpoint cannot be resumed with other values of it."""
        args, rows = self.args, self.train_dataset
        free = {*FREE_FIELDS, *(each.name for each in dataclasses.fields(TrainingArguments))}
        own = {
            each.name: getattr(args, each.name)
            for each in dataclasses.fields(args)
            if each.name not in free
        }
        kept = (
            steps_of(args)
            | own
            | self.objective.masking_options
            | {"by the clock": self.budget is not None}
        )
        if self.streamed:  # every process, and for text every worker, reads its own part
            kept |= {
                "processes": args.world_size,
                "dataloader_num_workers": args.dataloader_num_workers,
            }
        kept |= {name: getattr(self.model.config, name) for name in MiniBertConfig.__annotations__}
        kept |= {"rows": len(rows) if has_length(rows) else None}
        kept |= {"tokenizer": tokenizer_checksum(self.processing_class)}
        return kept | {"text": rows_checksum(self.sample)}  # of a stream, its first rows

    # --- training ---

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any):
        """Train as `Trainer.train` does; True resumes from the newest whole checkpoint. A ValueError if the output
        folder holds another run, another process writes in it, or the checkpoint was trained with other settings."""
        with lock_output(self.args):
            return self._train(resume_from_checkpoint, *args, **kwargs)

    def _train(self, resume_from_checkpoint: str | bool | None, *args: Any, **kwargs: Any):
        is_first, checkpoint = (
            not self.state.global_step,
            None,
        )  # `train` may be called again in a notebook
        if is_first or resume_from_checkpoint:
            checkpoint = checkpoint_to_resume(self.args, resume_from_checkpoint or False)
        if checkpoint is not None:
            self.settings.check(checkpoint)
        elif is_first and self.args.embedding_init == "cooccurrence":
            print("Counting neighbouring tokens for the first word embeddings")
            rows_of_ids = (row["input_ids"] for row in self.sample)
            begin_with_word_vectors(
                self.model, rows_of_ids, self.processing_class.all_special_ids, self.args.seed
            )
        elif self.new_weights:
            print(
                f"New weights, which {self.model.config._name_or_path!r} lacks: {', '.join(self.new_weights)}"
            )
        self._describe()
        if is_first and not (self.is_new or self.new_weights or shares_weights(self.args)):
            with random_state_kept():
                self.start = self.evaluate(metric_key_prefix="start")
            without_autocast(self.model)  # undo what `evaluate` has changed
        result = super().train(checkpoint, *args, **kwargs)
        # `train_runtime` counts from the resumption
        self.training_seconds = None if checkpoint else result.metrics["train_runtime"]
        return result

    def _describe(self) -> None:
        """Print the number of rows and parameters; warn of too few tokens for the model, and of new words that hardly
        occur (not for a stream, whose rows are not counted)."""
        args, rows, parameters = self.args, self.train_dataset, self.model.num_parameters()
        begin, filled = "the first " * self.streamed, fill_rate(self.sample, args.seq_length)
        many = f"{begin}{len(self.sample):,} rows of up to {args.seq_length} tokens, filled to {filled:.1%}"
        print(f"{many}; {parameters:,} parameters")
        if self.streamed or not self.is_world_process_zero():
            return
        batch, by_clock = (
            args.train_batch_size * args.gradient_accumulation_steps * args.world_size,
            args.minutes,
        )
        passes = (
            1
            if by_clock
            else args.max_steps * batch / len(rows)
            if args.max_steps > 0
            else args.num_train_epochs
        )
        some = rows.select(
            range(0, len(rows), -(-len(rows) // SAMPLE_ROWS))
        )  # all may be a terabyte
        counts = unigram_counts(some, self.model.config.vocab_size) * (
            passes * len(rows) / len(some)
        )
        each, is_example = (
            counts.sum() / parameters,
            self.data_description == BUILTIN,
        )  # the built-in corpus is small
        if self.is_new and not by_clock and not is_example and each < FEW_TOKENS:
            few = f"about {counts.sum():,.0f} tokens for {parameters:,} parameters ({each:.1f} for each) are few"
            warn(
                f"{few}; below {FEW_TOKENS}, use a smaller --size, or train longer and on more text"
            )
        if self.new_ids and (seen := np.median(counts[self.new_ids])) < FEW_EXAMPLES:
            few = f"half of the {len(self.new_ids):,} new words are trained on {seen:.0f} times or less"
            warn(f"{few} and learn little; use a smaller --extend_vocabulary, or more text")

    def create_optimizer(self, *args, **kwargs) -> torch.optim.Optimizer:
        width = self.model.config.hidden_size
        if self.optimizer is None and self.args.optimizer == "muon":
            self.optimizer = muon_optimizer(
                self.model,
                self.get_decay_parameter_names(self.model),
                learning_rate=self.args.learning_rate,
                muon_learning_rate=self.args.muon_learning_rate
                or MUON_LEARNING_RATE * max(1, MUON_WIDTH / width),
                weight_decay=self.args.weight_decay,
                betas=(self.args.adam_beta1, self.args.adam_beta2),
                eps=self.args.adam_epsilon,
            )
        return super().create_optimizer(*args, **kwargs)

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ):
        if self.budget is None:
            return super().create_scheduler(num_training_steps, optimizer)
        self.lr_scheduler = self.budget.scheduler(optimizer or self.optimizer)
        return self.lr_scheduler

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
        if not self._loss_terms:
            self._terms_since = self.state.global_step
        for name, term in outputs.items():
            if name.endswith("_loss"):
                self._loss_terms[name] = self._loss_terms.get(name, 0) + term.detach()
        return (loss, outputs) if return_outputs else loss

    def log(self, logs, *args, **kwargs):
        if self._loss_terms and "loss" in logs:
            steps = max(self.state.global_step - self._terms_since, 1)
            how = "sum" if self.args.average_tokens_across_devices else "mean"
            for name, total in self._loss_terms.items():
                logs[name] = round(float(self.accelerator.reduce(total, how)) / steps, 4)
            self._loss_terms = {}
        super().log(logs, *args, **kwargs)

    # --- evaluation ---

    def get_eval_dataloader(self, eval_dataset=None):
        # Not accelerate's loader, which repeats rows to fill up the last batches.
        rows = self.eval_dataset if eval_dataset is None else eval_dataset
        return self.evaluation_batches(rows, self.args.process_index, self.args.world_size)

    def evaluation_batches(self, rows: Dataset, rank: int = 0, ranks: int = 1) -> DataLoader:
        """The batches of an evaluation; with several ranks, each gets every `ranks`-th batch. All get equally many,
        since ranks that share a model go in step: a rank without a last batch repeats the first, uncounted."""
        size = self.args.eval_batch_size
        batches = [range(len(rows))[start : start + size] for start in range(0, len(rows), size)]
        own = batches[rank::ranks]
        own += batches[:1] * (-(-len(batches) // ranks) - len(own))
        workers, apart = self.args.dataloader_num_workers, functools.partial(leave_group, None)
        options = dict(batch_sampler=own, num_workers=workers, worker_init_fn=apart)
        return DataLoader(rows, collate_fn=self.evaluation_collator, **options)

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        inputs = self._prepare_inputs(inputs)
        with torch.no_grad(), self.compute_loss_context_manager():
            outputs = model(**inputs, sparse_prediction=True)
        return (
            None,
            torch.cat([outputs["loss"].float()[None], self.objective.score(outputs, inputs)])[None],
            None,
        )

    def evaluation_loop(self, dataloader, *args, metric_key_prefix="eval", **kwargs):
        self.gather_function = (
            self.accelerator.gather
        )  # the sums of all ranks, a row for each batch
        output = super().evaluation_loop(
            dataloader, *args, metric_key_prefix=metric_key_prefix, **kwargs
        )
        batches = -(
            -len(dataloader.dataset) // self.args.eval_batch_size
        )  # further rows are of repeated batches
        loss, *sums = torch.from_numpy(output.predictions[:batches]).double().sum(0).tolist()
        metrics = self.objective.metrics(sums)
        if self.objective.metric in metrics:  # without any target, the loss would be 0
            metrics["loss"] = loss / batches
        output.metrics.update(
            {f"{metric_key_prefix}_{name}": value for name, value in metrics.items()}
        )
        return output

    # --- saving ---

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the model (for rtd the discriminator), the tokenizer, the card, `report.json` and the loss curve; print
        the report; with `args.push_to_hub`, push them."""
        if _internal_call and output_dir is not None:  # a checkpoint, or the model files alone
            return super().save_model(output_dir, _internal_call=True)
        folder = Path(output_dir or self.args.output_dir)
        with lock_output(self.args, folder):
            if not _internal_call:  # else it is a part of a push
                self.report = self._make_report()  # all processes take part
            with written_whole(folder) if self.args.should_save else nullcontext(folder) as written:
                self.objective.save(self, written)  # all processes take part
            if _internal_call:
                return
            if self.is_world_process_zero():
                recipe = {
                    name: getattr(self.args, name) for name in ON_CARD
                } | self.objective.masking_options
                self.save_state()
                lines = {
                    name: self.report[name] for name in SIMPLE if self.report.get(name) is not None
                }
                plot_training(
                    self.state.log_history, folder / "loss.png", self.objective.metric, lines
                )
                write_json(folder / "report.json", self.report)
                self.card = write_card(
                    folder, self.report, self.data_description, recipe, self.args
                )
                print("", describe_pretraining(self.report), sep="\n")
                warn(self.report["warning"])
        if self.args.push_to_hub:
            self.push_to_hub()

    def _make_report(self) -> dict[str, Any]:
        """The metrics of the last evaluation and of the whole training."""
        state, tokenizer, metric = self.state, self.processing_class, self.objective.metric
        if self.report is not None and self.report["steps"] == state.global_step:
            return self.report  # saved again
        step = kept_step(vars(state), self.args.load_best_model_at_end)
        history = [
            log for log in state.log_history if "eval_targets" in log and log["step"] == step
        ]
        batches = self.evaluation_batches(self.eval_dataset)
        baseline = unigram_baseline(
            self.sample, batches, vocabulary_size(tokenizer), tokenizer.all_special_ids
        )
        report = (
            self.objective.report(history[-1] if history else self.evaluate(), baseline)
            | self.more_metrics
        )
        for name, value in (
            ("start_loss", f"start_{metric}"),
            ("start_accuracy", "start_accuracy"),
        ):
            report |= {name: self.start[value]} if value in self.start else {}
        report |= {
            "objective": self.objective.name,
            "steps": state.global_step,
            "epochs": state.epoch if has_length(self.train_dataset) else None,
            "training_tokens": state.num_input_tokens_seen,
            "training_seconds": self.training_seconds,
            "parameters": self.objective.trained(self.model).num_parameters(),
            "precision": "bf16" if self.args.bf16 else "fp16" if self.args.fp16 else "fp32",
        }
        return report | {"warning": judge_pretraining(report)}


# --- rows ---


def columns_of(rows: Any) -> list[str]:
    """The columns of a data set; for a stream that does not know them, those of its first row."""
    return rows.column_names or list(next(iter(rows), {}))


def is_written(texts: list[str | None]) -> list[bool]:
    return [bool(text and text.strip()) for text in texts]


def make_rows(rows: Any, tokenizer: PreTrainedTokenizerBase, objective: Objective) -> Any:
    """Make rows for the collator from text or from tokens; packed rows are returned as they are."""
    columns = columns_of(rows)
    if "text" in columns:
        return objective.rows(
            rows.select_columns("text") if "source" not in columns else rows, tokenizer
        )
    if "input_ids" not in columns:
        raise ValueError(
            f"train_dataset needs a column text or input_ids, got {', '.join(columns)}"
        )
    if not objective.packs_documents:
        if "token_type_ids" in columns and "next_sentence_label" in columns:
            return rows
        raise ValueError(
            f"train_dataset: objective {objective.name} makes its pairs from text; give a column text"
        )
    return (
        rows
        if "position_ids" in columns
        else objective.pack(rows.select_columns("input_ids"), tokenizer)
    )


def sample_of(rows: Any) -> datasets.Dataset:
    """The rows; of a stream, the first ones."""
    return (
        first_rows(rows, count=SAMPLE_ROWS) if isinstance(rows, datasets.IterableDataset) else rows
    )


def new_tokenizer(
    args: PretrainingConfig, config: MiniBertConfig, texts: Any
) -> PreTrainedTokenizerBase:
    """Train a tokenizer on texts, for a model with this config."""
    length, segments = config.max_position_embeddings, config.type_vocab_size > 0
    return args.train_tokenizer(texts, model_max_length=length, token_type_ids=segments)
