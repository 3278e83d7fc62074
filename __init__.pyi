"""The types of all that `import minibert` offers. Made by `python dev/make_stubs.py`; do not edit."""

import accelerate
import collections.abc
import datasets
import os
import pandas
import pathlib
import sentence_transformers
import transformers.debug_utils
from typing import Any, Literal, TypedDict, overload

from typing_extensions import Unpack

from .configuration_minibert import (
    MiniBertConfig as MiniBertConfig,
)
from .modeling_minibert import (
    MiniBertPreTrainedModel as MiniBertPreTrainedModel,
    MiniBertModel as MiniBertModel,
    MiniBertForPreTraining as MiniBertForPreTraining,
    MiniBertForMaskedLM as MiniBertForMaskedLM,
    MiniBertForCausalLM as MiniBertForCausalLM,
    MiniBertForNextSentencePrediction as MiniBertForNextSentencePrediction,
    MiniBertForSequenceClassification as MiniBertForSequenceClassification,
    MiniBertForTokenClassification as MiniBertForTokenClassification,
    MiniBertForReplacedTokenDetection as MiniBertForReplacedTokenDetection,
    MiniBertForQuestionAnswering as MiniBertForQuestionAnswering,
    MiniBertForMultipleChoice as MiniBertForMultipleChoice,
)
from .training.pretraining.config import (
    PretrainingConfig as PretrainingConfig,
    RowsConfig as RowsConfig,
    TokenizerConfig as TokenizerConfig,
)
from .training.pretraining.trainer import (
    PretrainingTrainer as PretrainingTrainer,
)
from .training.finetuning.predict import (
    predict as predict,
)
from .training.finetuning.config import (
    FinetuningConfig as FinetuningConfig,
    EvaluationConfig as EvaluationConfig,
)
from .training.finetuning.trainer import (
    FinetuningTrainer as FinetuningTrainer,
)
from .training.finetuning.tasks.classification import (
    Classify as Classify,
)
from .training.finetuning.tasks.nli import (
    Nli as Nli,
)
from .training.finetuning.tasks.choice import (
    Choose as Choose,
)
from .training.finetuning.tasks.tagging import (
    Tag as Tag,
)
from .training.finetuning.tasks.answering import (
    AnswerQuestions as AnswerQuestions,
)
from .training.finetuning.tasks.base import (
    Task as Task,
)
from .training.hub.push import (
    push as push,
)
from .training.embeddings.config import (
    EmbeddingConfig as EmbeddingConfig,
    RerankerConfig as RerankerConfig,
)
from .training.embeddings.reading.passages import (
    Passage as Passage,
)
from .training.embeddings.embed import (
    embed as embed,
)
from .training.embeddings.search import (
    search as search,
    rerank as rerank,
)
from .training.conversion.folders import (
    convert as convert,
)
from .training.conversion.export import (
    export as export,
)
from .training.pretraining.fill import (
    fill as fill,
)
from .tokenization import (
    Extension as Extension,
    extend_tokenizer as extend_tokenizer,
    train_tokenizer as train_tokenizer,
)
from .training.data.collators import (
    MaskedLMCollator as MaskedLMCollator,
)
from .training.data.masking_progress import (
    MaskingProgress as MaskingProgress,
)
from .training.data.corpus import (
    Corpus as Corpus,
)
from .training.data.prepared import (
    PreparedRows as PreparedRows,
)
from .training.common.training_result import (
    TrainingResult as TrainingResult,
)
from .option_checks import (
    UnknownOptionError as UnknownOptionError,
)

__version__: str
__all__ = [
    "__version__",
    "MiniBertConfig",
    "MiniBertPreTrainedModel",
    "MiniBertModel",
    "MiniBertForPreTraining",
    "MiniBertForMaskedLM",
    "MiniBertForCausalLM",
    "MiniBertForNextSentencePrediction",
    "MiniBertForSequenceClassification",
    "MiniBertForTokenClassification",
    "MiniBertForReplacedTokenDetection",
    "MiniBertForQuestionAnswering",
    "MiniBertForMultipleChoice",
    "pretrain",
    "PretrainingConfig",
    "RowsConfig",
    "TokenizerConfig",
    "PretrainingTrainer",
    "finetune",
    "evaluate",
    "predict",
    "FinetuningConfig",
    "EvaluationConfig",
    "FinetuningTrainer",
    "Classify",
    "Nli",
    "Choose",
    "Tag",
    "AnswerQuestions",
    "Task",
    "push",
    "EmbeddingConfig",
    "RerankerConfig",
    "Passage",
    "embed",
    "search",
    "rerank",
    "convert",
    "export",
    "fill",
    "prepare",
    "Extension",
    "extend_tokenizer",
    "train_tokenizer",
    "MaskedLMCollator",
    "MaskingProgress",
    "Corpus",
    "PreparedRows",
    "TrainingResult",
    "UnknownOptionError",
]

class _TrainingArgumentsOptions(TypedDict, total=False):
    max_steps: int
    lr_scheduler_type: str
    lr_scheduler_kwargs: dict | str | None
    optim: str
    optim_args: str | None
    adam_beta1: float
    adam_epsilon: float
    optim_target_modules: str | list[str] | None
    gradient_accumulation_steps: int
    average_tokens_across_devices: bool
    max_grad_norm: float
    label_smoothing_factor: float
    fp16: bool
    bf16_full_eval: bool
    fp16_full_eval: bool
    tf32: bool | None
    activation_checkpointing: bool | None
    activation_checkpointing_kwargs: dict[str, Any] | str | None
    gradient_checkpointing: bool | None
    gradient_checkpointing_kwargs: dict[str, Any] | str | None
    torch_compile: bool
    torch_compile_backend: str | None
    torch_compile_mode: str | None
    use_liger_kernel: bool
    liger_kernel_config: dict[str, bool] | None
    use_cache: bool
    neftune_noise_alpha: float | None
    torch_empty_cache_steps: int | None
    auto_find_batch_size: bool
    logging_strategy: str
    logging_first_step: bool
    log_on_each_node: bool
    logging_nan_inf_filter: bool
    include_num_input_tokens_seen: str | bool
    log_level: str
    log_level_replica: str
    disable_tqdm: bool | None
    report_to: str | list[str] | None
    run_name: str | None
    project: str
    trackio_space_id: str | None
    trackio_bucket_id: str | None
    trackio_static_space_id: str | Literal[False] | None
    eval_steps: float | None
    eval_delay: float
    prediction_loss_only: bool
    eval_on_start: bool
    eval_do_concat_batches: bool
    eval_use_gather_object: bool
    eval_accumulation_steps: int | None
    include_for_metrics: list[str]
    batch_eval_metrics: bool
    save_steps: float
    save_on_each_node: bool
    enable_jit_checkpoint: bool
    push_to_hub: bool
    hub_token: str | None
    hub_private_repo: bool | None
    hub_model_id: str | None
    hub_always_push: bool
    hub_revision: str | None
    greater_is_better: bool | None
    ignore_data_skip: bool
    restore_callback_states_from_checkpoint: bool
    full_determinism: bool
    data_seed: int | None
    use_cpu: bool
    accelerator_config: dict | str | None
    parallelism_config: accelerate.ParallelismConfig | None
    dataloader_drop_last: bool
    dataloader_num_workers: int
    dataloader_pin_memory: bool
    dataloader_persistent_workers: bool
    dataloader_prefetch_factor: int | None
    dataloader_multiprocessing_context: str | None
    dataloader_in_order: bool
    remove_unused_columns: bool
    label_names: list[str] | None
    train_sampling_strategy: str
    length_column_name: str
    ddp_find_unused_parameters: bool | None
    ddp_bucket_cap_mb: int | None
    ddp_broadcast_buffers: bool | None
    ddp_static_graph: bool | None
    ddp_backend: str | None
    ddp_timeout: int
    fsdp: str | None
    fsdp_config: dict[str, Any] | str | None
    deepspeed: dict | str | None
    debug: str | list[transformers.debug_utils.DebugOption]
    skip_memory_metrics: bool
    do_train: bool
    do_eval: bool
    do_predict: bool
    resume_from_checkpoint: str | None
    local_rank: int

class _PretrainingConfigOptions(_TrainingArgumentsOptions, total=False):
    save_only_model: bool
    hub_strategy: str
    load_best_model_at_end: bool
    metric_for_best_model: str | None
    seed: int

class _FinetuningConfigOptions(_TrainingArgumentsOptions, total=False):
    adam_beta2: float

class _EmbeddingConfigOptions(_TrainingArgumentsOptions, total=False):
    weight_decay: float
    adam_beta2: float
    per_device_eval_batch_size: int
    save_only_model: bool
    seed: int
    prompts: str | dict[str, str] | dict[str, dict[str, str]] | None
    batch_sampler: str | sentence_transformers.DefaultBatchSampler | collections.abc.Callable[..., sentence_transformers.DefaultBatchSampler]
    multi_dataset_batch_sampler: str | sentence_transformers.MultiDatasetDefaultBatchSampler | collections.abc.Callable[..., sentence_transformers.MultiDatasetDefaultBatchSampler]
    router_mapping: str | dict[str, str] | dict[str, dict[str, str]] | None
    learning_rate_mapping: str | dict[str, float] | None
    warmup_ratio: float | None

class _RerankerConfigOptions(_TrainingArgumentsOptions, total=False):
    weight_decay: float
    adam_beta2: float
    per_device_eval_batch_size: int
    save_only_model: bool
    seed: int
    prompts: str | dict[str, str] | dict[str, dict[str, str]] | None
    batch_sampler: str | sentence_transformers.DefaultBatchSampler | collections.abc.Callable[..., sentence_transformers.DefaultBatchSampler]
    multi_dataset_batch_sampler: str | sentence_transformers.MultiDatasetDefaultBatchSampler | collections.abc.Callable[..., sentence_transformers.MultiDatasetDefaultBatchSampler]
    router_mapping: str | dict[str, str] | dict[str, dict[str, str]] | None
    learning_rate_mapping: str | dict[str, float] | None
    warmup_ratio: float | None

class _EvaluationConfigOptions(_TrainingArgumentsOptions, total=False):
    per_device_train_batch_size: int
    num_train_epochs: float
    learning_rate: float
    warmup_steps: float
    weight_decay: float
    adam_beta2: float
    logging_steps: float
    eval_strategy: str
    save_only_model: bool
    save_strategy: str
    save_total_limit: int | None
    hub_strategy: str
    load_best_model_at_end: bool
    metric_for_best_model: str | None
    seed: int
    freeze: str
    lora: int | None
    patience: int
    minutes: float | None

def pretrain(
    data: str | os.PathLike | list[str] | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | Corpus | None = None,
    preset: Literal['bert', 'modernbert', 'minibert'] = "minibert",
    size: Literal['tiny', 'mini', 'small', 'medium', 'base', 'large'] = "mini",
    tokenizer: str | None = None,
    model_name_or_path: str | None = None,
    config_overrides: str | dict[str, Any] | None = None,
    args: PretrainingConfig | None = None,
    *,
    text_column: str | None = None,
    sample_by: Literal['auto', 'line', 'paragraph', 'document', 'sentence'] = "auto",
    weights: collections.abc.Sequence[float] = ...,
    sampling_alpha: float | None = None,
    streaming: bool = False,
    shuffle_buffer: int = 10000,
    output_dir: str | pathlib.Path | None = "runs/minibert",
    per_device_train_batch_size: int = 4,
    num_train_epochs: float | None = None,
    learning_rate: float | None = None,
    warmup_steps: float = 0.06,
    weight_decay: float | None = None,
    adam_beta2: float = 0.98,
    bf16: bool | None = None,
    logging_steps: float = 10,
    eval_strategy: str = "epoch",
    per_device_eval_batch_size: int = 8,
    save_strategy: str = "epoch",
    save_total_limit: int | None = 1,
    algorithm: Literal['wordpiece', 'bpe', 'unigram'] = "wordpiece",
    vocab_size: int = 8192,
    lowercase: bool | None = None,
    strip_accents: bool = False,
    max_lost_text: float | None = None,
    validation_size: float | None = None,
    seq_length: int | None = None,
    packing: Literal['packed', 'padded'] | None = None,
    num_proc: int | None = None,
    objective: Literal['mlm', 'mlm+nsp', 'mlm+sop', 'rtd', 'clm'] = "mlm",
    embedding_init: Literal['cooccurrence', 'random'] | None = None,
    extend_vocabulary: int | None = None,
    mlm_probability: float | None = None,
    last_mlm_probability: float | None = None,
    masking: Literal['token', 'whole_word', 'span', 'ngram'] = "token",
    mask_replace_prob: float | None = None,
    random_replace_prob: float | None = None,
    short_seq_prob: float = 0.1,
    generator_size: float = 0.25,
    discriminator_weight: float = 50.0,
    optimizer: Literal['adamw', 'muon'] | None = None,
    muon_learning_rate: float | None = None,
    minutes: float | None = None,
    **options: Unpack[_PretrainingConfigOptions],
) -> TrainingResult:
    """Train a tokenizer and pretrain a model on text.

    The model, the tokenizer, a card, a report and the loss curve are saved to `output_dir`.

    Bad input is refused (a ValueError) before any training, and without a change to the output
    folder.

    Args:
        data: The text: txt, json, jsonl, csv, tsv or parquet files, folders, globs, or Hub data
            sets (owner/name or owner/name:config), with several languages as language=FILE
            (de=folder); or a folder that `minibert prepare` wrote. By default the built-in
            corpus: the documentation in this Python installation. In Python also rows: a
            `Dataset`, a DataFrame or dictionaries; or a `Corpus`.
        preset: The architecture of a new model: one of the two published ones, or ModernBERT
            with changes that make it learn faster.
        size: The size of the preset.
        tokenizer: A trained tokenizer (folder or Hub name); by default one is trained on the
            text.
        model_name_or_path: A trained MiniBERT (folder or Hub name) to continue with.
        config_overrides: Fields of `MiniBertConfig` to change in the preset, as
            "hidden_size=64,num_hidden_layers=2" or as JSON; in a trained model, only fields
            that do not change the shapes of its weights.
        args: The settings of the training.
        text_column: The column of the text; by default "text", or the only column of strings.
        sample_by: What a document of a text file is: a line, a paragraph between blank lines,
            or the whole file (document); auto: paragraphs if there are blank lines, else lines.
            sentence: each sentence of any data.
        weights: A weight for each entry of data, by which its documents are drawn; by default
            their number.
        sampling_alpha: Draw from sources with p ∝ weight^alpha, from 0 (all alike) to 1; by
            default 0.3 if each entry names its language (de=folder fr=file.txt), else 1.
        streaming: Read text or prepared rows while training, for data that does not fit on the
            disk; needs max_steps or minutes.
        shuffle_buffer: Number of documents (or prepared rows) of a stream to shuffle at a time;
            0 keeps their order.
        output_dir: Folder of the model, the tokenizer, the card and the report.
        per_device_train_batch_size: Rows of a training batch, for each process.
        num_train_epochs: Passes over the rows; by default 2.
        learning_rate: Peak learning rate; by default 2e-3 with muon, 1e-3 with adamw, and 1e-4
            for a trained model.
        warmup_steps: Steps in which the learning rate rises; below 1, a share of all steps.
        weight_decay: Weight decay; by default 0.3 with muon, 0.01 with adamw.
        adam_beta2: AdamW's second beta.
        bf16: Compute in bf16; by default if the hardware is fast at it.
        logging_steps: Steps between two lines of the log; below 1, a share of all steps.
        eval_strategy: When to evaluate: no, steps or epoch.
        per_device_eval_batch_size: Rows of an evaluation batch, for each process.
        save_strategy: When to save a checkpoint: no, steps, epoch or best.
        save_total_limit: Number of checkpoints to keep.
        algorithm: Algorithm of a new tokenizer.
        vocab_size: Vocabulary size of a new tokenizer.
        lowercase: Lower-case all text; by default true for wordpiece, else false.
        strip_accents: Remove the marks on letters (accents, vowels, tones), as
            bert-base-uncased does.
        max_lost_text: Share of the characters that tokenization may lose; by default 0.05, of
            which 0.01 in words of more than 100 characters.
        validation_size: Documents to hold out for the evaluation: a share below 1, or a number.
            By default 0.05; prepared rows have theirs.
        seq_length: Longest row, in tokens; by default 512, or that of prepared rows.
        packing: packed: several documents a row, each attending only to itself; padded: one
            document a row. By default packed, or that of prepared rows.
        num_proc: Processes that tokenize; by default one, which uses all cores.
        objective: mlm: predict masked tokens; mlm+nsp: also whether one segment follows another
            (BERT); mlm+sop: also whether two segments are in order (ALBERT); rtd: find tokens
            that a small generator has replaced (ELECTRA); clm: predict next tokens (a decoder).
        embedding_init: First word embeddings of a new model: from counts of neighbouring
            tokens, or random. By default cooccurrence with objective mlm, else random.
        extend_vocabulary: Number of words of the text to add to the vocabulary of the trained
            model: those that its tokenizer cuts most.
        mlm_probability: Share of the tokens to mask in training; by default 0.3 (as
            ModernBERT), with mlm+nsp, mlm+sop and rtd 0.15.
        last_mlm_probability: Share of masked tokens at the end of the training, reached in a
            straight line; by default constant.
        masking: What is masked together: single tokens, whole words, spans of up to 10 words
            (SpanBERT), or of up to 3 (ngram, ALBERT).
        mask_replace_prob: Share of the chosen tokens that become [MASK]; by default 0.8, with
            rtd 1.
        random_replace_prob: Share of the chosen tokens that become random tokens; by default
            0.1, with rtd 0.
        short_seq_prob: With mlm+nsp and mlm+sop, the share of pairs that are shorter than a
            row, as in BERT.
        generator_size: With rtd, the width of the generator relative to the discriminator.
        discriminator_weight: With rtd, the weight of the discriminator's loss.
        optimizer: muon: Muon for the matrices of the layers and AdamW for the rest (the default
            of new models with objective mlm); adamw: the optimizer of --optim for all.
        muon_learning_rate: Peak learning rate of Muon; by default learning_rate if given, else
            0.0035, or 0.9 / hidden_size if larger.
        minutes: Stop after this many minutes, including reading and evaluating; the learning
            rate falls by the clock.

    Returns:
        The saved model (None in a process that saves nothing), the tokenizer, the report and the
        folder.
    """

def prepare(
    data: str | os.PathLike | list[str] | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | Corpus | None = None,
    *,
    output_dir: str | os.PathLike = "runs/rows",
    tokenizer: str | None = None,
    seed: int = 42,
    args: RowsConfig | None = None,
    text_column: str | None = None,
    sample_by: Literal['auto', 'line', 'paragraph', 'document', 'sentence'] = "auto",
    weights: collections.abc.Sequence[float] = ...,
    sampling_alpha: float | None = None,
    algorithm: Literal['wordpiece', 'bpe', 'unigram'] = "wordpiece",
    vocab_size: int = 8192,
    lowercase: bool | None = None,
    strip_accents: bool = False,
    max_lost_text: float | None = None,
    validation_size: float = 0.05,
    seq_length: int = 512,
    packing: Literal['packed', 'padded'] = "packed",
    num_proc: int | None = None,
) -> PreparedRows:
    """Tokenize and pack text into parquet shards, which `pretrain` takes as its data.

    The rows are those that `pretrain` would make from the same text with the same seed. If the call
    is killed, the same call continues from the cache of `datasets`. Bad input is refused (a
    ValueError) before any work.

    Args:
        data: The text: txt, json, jsonl, csv, tsv or parquet files, folders, globs, or Hub data
            sets (owner/name or owner/name:config). By default the built-in corpus: the
            documentation in this Python installation. In Python also rows: a `Dataset`, a
            DataFrame or dictionaries; or a `Corpus`.
        output_dir: Folder of the rows.
        tokenizer: A trained tokenizer or model (folder or Hub name); by default one is trained
            and saved with the rows.
        seed: Seed of the documents that are held out and drawn; the default is that of
            pretrain, too.
        args: The settings of the rows and of a new tokenizer.
        text_column: The column of the text; by default "text", or the only column of strings.
        sample_by: What a document of a text file is: a line, a paragraph between blank lines,
            or the whole file (document); auto: paragraphs if there are blank lines, else lines.
            sentence: each sentence of any data.
        weights: A weight for each entry of data, by which its documents are drawn; by default
            their number.
        sampling_alpha: Draw from sources with p ∝ weight^alpha, from 0 (all alike) to 1; by
            default 0.3 if each entry names its language (de=folder fr=file.txt), else 1.
        algorithm: Algorithm of a new tokenizer.
        vocab_size: Vocabulary size of a new tokenizer.
        lowercase: Lower-case all text; by default true for wordpiece, else false.
        strip_accents: Remove the marks on letters (accents, vowels, tones), as
            bert-base-uncased does.
        max_lost_text: Share of the characters that tokenization may lose; by default 0.05, of
            which 0.01 in words of more than 100 characters.
        validation_size: Documents to hold out for the evaluation: a share below 1, or a number.
        seq_length: Longest row, in tokens.
        packing: packed: several documents a row, each attending only to itself; padded: one
            document a row.
        num_proc: Processes that tokenize; by default one, which uses all cores.
    """

@overload
def finetune(
    task: Literal["classify"],
    model: str | os.PathLike = "runs/minibert",
    data: str | os.PathLike | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | datasets.DatasetDict | None = None,
    train: str | list[str] | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | None = None,
    validation: str | list[str] | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | None = None,
    test: str | list[str] | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | None = None,
    columns: list[str] | None = None,
    validation_size: float | None = None,
    plan: bool = False,
    args: FinetuningConfig | None = None,
    *,
    text_column: str | None = None,
    pair_column: str | None = None,
    label_column: str | None = None,
    labels: collections.abc.Sequence[str] = ...,
    max_length: int | None = None,
    class_weights: collections.abc.Sequence[str] | None = None,
    tune_threshold: bool = False,
    regression: bool = False,
    pooling: Literal['mean', 'cls'] | None = None,
    output_dir: str | pathlib.Path | None = "runs/finetune",
    per_device_train_batch_size: int = 32,
    num_train_epochs: float = 3.0,
    learning_rate: float = 0.0001,
    warmup_steps: float = 0.06,
    weight_decay: float = 0.01,
    bf16: bool | None = None,
    logging_steps: float = 50,
    eval_strategy: str = "epoch",
    per_device_eval_batch_size: int = 64,
    save_only_model: bool = True,
    save_strategy: str = "epoch",
    save_total_limit: int | None = 1,
    hub_strategy: str = "end",
    load_best_model_at_end: bool = True,
    metric_for_best_model: str | None = "auto",
    seed: int = 0,
    freeze: str = "none",
    lora: int | None = None,
    patience: int = 3,
    minutes: float | None = None,
    **options: Unpack[_FinetuningConfigOptions],
) -> TrainingResult:
    """Train a model for a task, measure it, and save it with its card, its metrics and a picture.

    Bad input is refused (a ValueError) before any training, and without a change to the output
    folder.

    Args:
        model: The model to start from, a folder or a Hub name: a MiniBERT, or a model that
            `convert` takes.
        data: A folder with train, validation and test (jsonl, csv, parquet, …), a training
            file, or a Hub data set. In Python, all four can be rows: a `Dataset`, a DataFrame
            or dictionaries.
        train: Files to train on, instead of those in data.
        validation: Files to validate on, instead of those in data.
        test: Files to test on, instead of those in data.
        columns: Names of the columns of csv and tsv files without a header row.
        validation_size: Training rows to hold out if there are no validation rows: a share
            below 1, or a number; by default 0.1 (embed, rerank: 0.05).
        plan: Train nothing; look at the data and write a recipe with reasons. Options that are
            given are kept.
        args: The settings of the training.
        text_column: The column of the text (or of the first of two); by default guessed by its
            name.
        pair_column: The column of the second text; by default guessed by its name, if there is
            one.
        label_column: The column of the label; by default guessed by its name.
        labels: Names of the classes, if the data do not make them clear; labels that are
            numbers count them from 0.
        max_length: Longest input, in tokens; longer ones are cut. By default that of the model.
        class_weights: Weights of the classes in the loss: balanced, a number for each class, or
            CLASS=NUMBER.
        tune_threshold: With two classes or several labels a row, decide by thresholds chosen on
            the validation rows, where they are better than 0.5 by more than chance. They are
            saved in the bias of the model, so that every program decides by them.
        regression: Learn whole numbers as values, such as ratings from 0 to 100, and not as
            classes.
        pooling: What a new head reads: mean, the mean of the last states, or cls, the state of
            the first token. By default the mean; a trained head keeps what it reads.
        output_dir: Folder of the model, the tokenizer, the card and the metrics.
        per_device_train_batch_size: Rows of a training batch, for each process.
        num_train_epochs: Passes over the training rows.
        learning_rate: Peak learning rate.
        warmup_steps: Steps in which the learning rate rises; below 1, a share of all steps.
        weight_decay: Weight decay.
        bf16: Compute in bf16; by default if the hardware is fast at it.
        logging_steps: Steps between two lines of the log; below 1, a share of all steps.
        eval_strategy: When to evaluate: no, steps or epoch.
        per_device_eval_batch_size: Rows of an evaluation batch, for each process.
        save_only_model: Save checkpoints without the state of the optimizer, which resuming
            needs.
        save_strategy: When to save a checkpoint: no, steps, epoch or best.
        save_total_limit: Number of checkpoints to keep.
        hub_strategy: What push_to_hub uploads: end (the finished model), or every_save
            (checkpoints too).
        load_best_model_at_end: Keep the best model, not the last one.
        metric_for_best_model: Metric that chooses the best model; auto: the task's own.
        seed: Seed of the new head, the order of rows, dropout, and the rows that are held out.
        freeze: What stays as it is: none, encoder, or a number (the embeddings and that many
            lowest layers).
        lora: Rank of low-rank updates (LoRA) to train instead of the encoder's weights.
        patience: Evaluations without a better one before the training stops; 0: never.
        minutes: Stop the training after this many minutes, instead of after num_train_epochs:
            from the start of reading to the last evaluation; the learning rate falls by the
            clock.

    Returns:
        The saved model with its tokenizer and its report; with `plan`, the recipe.
    """

@overload
def finetune(
    task: Literal["nli"],
    model: str | os.PathLike = "runs/minibert",
    data: str | os.PathLike | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | datasets.DatasetDict | None = None,
    train: str | list[str] | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | None = None,
    validation: str | list[str] | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | None = None,
    test: str | list[str] | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | None = None,
    columns: list[str] | None = None,
    validation_size: float | None = None,
    plan: bool = False,
    args: FinetuningConfig | None = None,
    *,
    text_column: str | None = None,
    pair_column: str | None = None,
    label_column: str | None = None,
    labels: collections.abc.Sequence[str] = ...,
    max_length: int | None = None,
    class_weights: collections.abc.Sequence[str] | None = None,
    tune_threshold: bool = False,
    regression: bool = False,
    pooling: Literal['mean', 'cls'] | None = None,
    output_dir: str | pathlib.Path | None = "runs/finetune",
    per_device_train_batch_size: int = 32,
    num_train_epochs: float = 3.0,
    learning_rate: float = 0.0001,
    warmup_steps: float = 0.06,
    weight_decay: float = 0.01,
    bf16: bool | None = None,
    logging_steps: float = 50,
    eval_strategy: str = "epoch",
    per_device_eval_batch_size: int = 64,
    save_only_model: bool = True,
    save_strategy: str = "epoch",
    save_total_limit: int | None = 1,
    hub_strategy: str = "end",
    load_best_model_at_end: bool = True,
    metric_for_best_model: str | None = "auto",
    seed: int = 0,
    freeze: str = "none",
    lora: int | None = None,
    patience: int = 3,
    minutes: float | None = None,
    **options: Unpack[_FinetuningConfigOptions],
) -> TrainingResult:
    """Train a model for a task, measure it, and save it with its card, its metrics and a picture.

    Bad input is refused (a ValueError) before any training, and without a change to the output
    folder.

    Args:
        model: The model to start from, a folder or a Hub name: a MiniBERT, or a model that
            `convert` takes.
        data: A folder with train, validation and test (jsonl, csv, parquet, …), a training
            file, or a Hub data set. In Python, all four can be rows: a `Dataset`, a DataFrame
            or dictionaries.
        train: Files to train on, instead of those in data.
        validation: Files to validate on, instead of those in data.
        test: Files to test on, instead of those in data.
        columns: Names of the columns of csv and tsv files without a header row.
        validation_size: Training rows to hold out if there are no validation rows: a share
            below 1, or a number; by default 0.1 (embed, rerank: 0.05).
        plan: Train nothing; look at the data and write a recipe with reasons. Options that are
            given are kept.
        args: The settings of the training.
        text_column: The column of the text (or of the first of two); by default guessed by its
            name.
        pair_column: The column of the second text; by default guessed by its name, if there is
            one.
        label_column: The column of the label; by default guessed by its name.
        labels: Names of the classes, if the data do not make them clear; labels that are
            numbers count them from 0.
        max_length: Longest input, in tokens; longer ones are cut. By default that of the model.
        class_weights: Weights of the classes in the loss: balanced, a number for each class, or
            CLASS=NUMBER.
        tune_threshold: With two classes or several labels a row, decide by thresholds chosen on
            the validation rows, where they are better than 0.5 by more than chance. They are
            saved in the bias of the model, so that every program decides by them.
        regression: Learn whole numbers as values, such as ratings from 0 to 100, and not as
            classes.
        pooling: What a new head reads: mean, the mean of the last states, or cls, the state of
            the first token. By default the mean; a trained head keeps what it reads.
        output_dir: Folder of the model, the tokenizer, the card and the metrics.
        per_device_train_batch_size: Rows of a training batch, for each process.
        num_train_epochs: Passes over the training rows.
        learning_rate: Peak learning rate.
        warmup_steps: Steps in which the learning rate rises; below 1, a share of all steps.
        weight_decay: Weight decay.
        bf16: Compute in bf16; by default if the hardware is fast at it.
        logging_steps: Steps between two lines of the log; below 1, a share of all steps.
        eval_strategy: When to evaluate: no, steps or epoch.
        per_device_eval_batch_size: Rows of an evaluation batch, for each process.
        save_only_model: Save checkpoints without the state of the optimizer, which resuming
            needs.
        save_strategy: When to save a checkpoint: no, steps, epoch or best.
        save_total_limit: Number of checkpoints to keep.
        hub_strategy: What push_to_hub uploads: end (the finished model), or every_save
            (checkpoints too).
        load_best_model_at_end: Keep the best model, not the last one.
        metric_for_best_model: Metric that chooses the best model; auto: the task's own.
        seed: Seed of the new head, the order of rows, dropout, and the rows that are held out.
        freeze: What stays as it is: none, encoder, or a number (the embeddings and that many
            lowest layers).
        lora: Rank of low-rank updates (LoRA) to train instead of the encoder's weights.
        patience: Evaluations without a better one before the training stops; 0: never.
        minutes: Stop the training after this many minutes, instead of after num_train_epochs:
            from the start of reading to the last evaluation; the learning rate falls by the
            clock.

    Returns:
        The saved model with its tokenizer and its report; with `plan`, the recipe.
    """

@overload
def finetune(
    task: Literal["choose"],
    model: str | os.PathLike = "runs/minibert",
    data: str | os.PathLike | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | datasets.DatasetDict | None = None,
    train: str | list[str] | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | None = None,
    validation: str | list[str] | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | None = None,
    test: str | list[str] | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | None = None,
    columns: list[str] | None = None,
    validation_size: float | None = None,
    plan: bool = False,
    args: FinetuningConfig | None = None,
    *,
    text_column: str | None = None,
    prefix_column: str | None = None,
    choice_columns: collections.abc.Sequence[str] = ...,
    label_column: str | None = None,
    max_length: int | None = None,
    pooling: Literal['mean', 'cls'] | None = None,
    output_dir: str | pathlib.Path | None = "runs/finetune",
    per_device_train_batch_size: int = 32,
    num_train_epochs: float = 3.0,
    learning_rate: float = 0.0001,
    warmup_steps: float = 0.06,
    weight_decay: float = 0.01,
    bf16: bool | None = None,
    logging_steps: float = 50,
    eval_strategy: str = "epoch",
    per_device_eval_batch_size: int = 64,
    save_only_model: bool = True,
    save_strategy: str = "epoch",
    save_total_limit: int | None = 1,
    hub_strategy: str = "end",
    load_best_model_at_end: bool = True,
    metric_for_best_model: str | None = "auto",
    seed: int = 0,
    freeze: str = "none",
    lora: int | None = None,
    patience: int = 3,
    minutes: float | None = None,
    **options: Unpack[_FinetuningConfigOptions],
) -> TrainingResult:
    """Train a model for a task, measure it, and save it with its card, its metrics and a picture.

    Bad input is refused (a ValueError) before any training, and without a change to the output
    folder.

    Args:
        model: The model to start from, a folder or a Hub name: a MiniBERT, or a model that
            `convert` takes.
        data: A folder with train, validation and test (jsonl, csv, parquet, …), a training
            file, or a Hub data set. In Python, all four can be rows: a `Dataset`, a DataFrame
            or dictionaries.
        train: Files to train on, instead of those in data.
        validation: Files to validate on, instead of those in data.
        test: Files to test on, instead of those in data.
        columns: Names of the columns of csv and tsv files without a header row.
        validation_size: Training rows to hold out if there are no validation rows: a share
            below 1, or a number; by default 0.1 (embed, rerank: 0.05).
        plan: Train nothing; look at the data and write a recipe with reasons. Options that are
            given are kept.
        args: The settings of the training.
        text_column: The column of the text before the choices; by default guessed by its name.
        prefix_column: The column of a text that every choice begins with (sent2 of SWAG); by
            default guessed by its name.
        choice_columns: The columns of the choices, one for each; by default one column of lists
            (or of texts and their keys, as ARC has it), guessed by its name.
        label_column: The column of the right choice, a number from 0 (from 1, if others are
            letters) or a letter (A, B, …); by default guessed by its name.
        max_length: Longest input, in tokens; longer ones are cut. By default that of the model.
        pooling: What a new head reads: mean, the mean of the last states, or cls, the state of
            the first token. By default the mean; a trained head keeps what it reads.
        output_dir: Folder of the model, the tokenizer, the card and the metrics.
        per_device_train_batch_size: Rows of a training batch, for each process.
        num_train_epochs: Passes over the training rows.
        learning_rate: Peak learning rate.
        warmup_steps: Steps in which the learning rate rises; below 1, a share of all steps.
        weight_decay: Weight decay.
        bf16: Compute in bf16; by default if the hardware is fast at it.
        logging_steps: Steps between two lines of the log; below 1, a share of all steps.
        eval_strategy: When to evaluate: no, steps or epoch.
        per_device_eval_batch_size: Rows of an evaluation batch, for each process.
        save_only_model: Save checkpoints without the state of the optimizer, which resuming
            needs.
        save_strategy: When to save a checkpoint: no, steps, epoch or best.
        save_total_limit: Number of checkpoints to keep.
        hub_strategy: What push_to_hub uploads: end (the finished model), or every_save
            (checkpoints too).
        load_best_model_at_end: Keep the best model, not the last one.
        metric_for_best_model: Metric that chooses the best model; auto: the task's own.
        seed: Seed of the new head, the order of rows, dropout, and the rows that are held out.
        freeze: What stays as it is: none, encoder, or a number (the embeddings and that many
            lowest layers).
        lora: Rank of low-rank updates (LoRA) to train instead of the encoder's weights.
        patience: Evaluations without a better one before the training stops; 0: never.
        minutes: Stop the training after this many minutes, instead of after num_train_epochs:
            from the start of reading to the last evaluation; the learning rate falls by the
            clock.

    Returns:
        The saved model with its tokenizer and its report; with `plan`, the recipe.
    """

@overload
def finetune(
    task: Literal["tag"],
    model: str | os.PathLike = "runs/minibert",
    data: str | os.PathLike | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | datasets.DatasetDict | None = None,
    train: str | list[str] | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | None = None,
    validation: str | list[str] | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | None = None,
    test: str | list[str] | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | None = None,
    columns: list[str] | None = None,
    validation_size: float | None = None,
    plan: bool = False,
    args: FinetuningConfig | None = None,
    *,
    tokens_column: str | None = None,
    tags_column: str | None = None,
    max_length: int | None = None,
    class_weights: collections.abc.Sequence[str] | None = None,
    output_dir: str | pathlib.Path | None = "runs/finetune",
    per_device_train_batch_size: int = 32,
    num_train_epochs: float = 3.0,
    learning_rate: float = 0.0001,
    warmup_steps: float = 0.06,
    weight_decay: float = 0.01,
    bf16: bool | None = None,
    logging_steps: float = 50,
    eval_strategy: str = "epoch",
    per_device_eval_batch_size: int = 64,
    save_only_model: bool = True,
    save_strategy: str = "epoch",
    save_total_limit: int | None = 1,
    hub_strategy: str = "end",
    load_best_model_at_end: bool = True,
    metric_for_best_model: str | None = "auto",
    seed: int = 0,
    freeze: str = "none",
    lora: int | None = None,
    patience: int = 3,
    minutes: float | None = None,
    **options: Unpack[_FinetuningConfigOptions],
) -> TrainingResult:
    """Train a model for a task, measure it, and save it with its card, its metrics and a picture.

    Bad input is refused (a ValueError) before any training, and without a change to the output
    folder.

    Args:
        model: The model to start from, a folder or a Hub name: a MiniBERT, or a model that
            `convert` takes.
        data: A folder with train, validation and test (jsonl, csv, parquet, …), a training
            file, or a Hub data set. In Python, all four can be rows: a `Dataset`, a DataFrame
            or dictionaries.
        train: Files to train on, instead of those in data.
        validation: Files to validate on, instead of those in data.
        test: Files to test on, instead of those in data.
        columns: Names of the columns of csv and tsv files without a header row.
        validation_size: Training rows to hold out if there are no validation rows: a share
            below 1, or a number; by default 0.1 (embed, rerank: 0.05).
        plan: Train nothing; look at the data and write a recipe with reasons. Options that are
            given are kept.
        args: The settings of the training.
        tokens_column: The column of the words, a list in each row; by default guessed by its
            name.
        tags_column: The column of their tags, a list in each row; by default guessed by its
            name.
        max_length: Longest sentence, in tokens; words beyond it are cut and count as untagged.
            By default that of the model.
        class_weights: Weights of the tags in the loss: balanced, a number for each tag, or
            TAG=NUMBER.
        output_dir: Folder of the model, the tokenizer, the card and the metrics.
        per_device_train_batch_size: Rows of a training batch, for each process.
        num_train_epochs: Passes over the training rows.
        learning_rate: Peak learning rate.
        warmup_steps: Steps in which the learning rate rises; below 1, a share of all steps.
        weight_decay: Weight decay.
        bf16: Compute in bf16; by default if the hardware is fast at it.
        logging_steps: Steps between two lines of the log; below 1, a share of all steps.
        eval_strategy: When to evaluate: no, steps or epoch.
        per_device_eval_batch_size: Rows of an evaluation batch, for each process.
        save_only_model: Save checkpoints without the state of the optimizer, which resuming
            needs.
        save_strategy: When to save a checkpoint: no, steps, epoch or best.
        save_total_limit: Number of checkpoints to keep.
        hub_strategy: What push_to_hub uploads: end (the finished model), or every_save
            (checkpoints too).
        load_best_model_at_end: Keep the best model, not the last one.
        metric_for_best_model: Metric that chooses the best model; auto: the task's own.
        seed: Seed of the new head, the order of rows, dropout, and the rows that are held out.
        freeze: What stays as it is: none, encoder, or a number (the embeddings and that many
            lowest layers).
        lora: Rank of low-rank updates (LoRA) to train instead of the encoder's weights.
        patience: Evaluations without a better one before the training stops; 0: never.
        minutes: Stop the training after this many minutes, instead of after num_train_epochs:
            from the start of reading to the last evaluation; the learning rate falls by the
            clock.

    Returns:
        The saved model with its tokenizer and its report; with `plan`, the recipe.
    """

@overload
def finetune(
    task: Literal["answer"],
    model: str | os.PathLike = "runs/minibert",
    data: str | os.PathLike | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | datasets.DatasetDict | None = None,
    train: str | list[str] | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | None = None,
    validation: str | list[str] | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | None = None,
    test: str | list[str] | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | None = None,
    columns: list[str] | None = None,
    validation_size: float | None = None,
    plan: bool = False,
    args: FinetuningConfig | None = None,
    *,
    question_column: str | None = None,
    context_column: str | None = None,
    answers_column: str | None = None,
    max_length: int | None = None,
    max_answer_length: int = 30,
    output_dir: str | pathlib.Path | None = "runs/finetune",
    per_device_train_batch_size: int = 32,
    num_train_epochs: float = 3.0,
    learning_rate: float = 0.0001,
    warmup_steps: float = 0.06,
    weight_decay: float = 0.01,
    bf16: bool | None = None,
    logging_steps: float = 50,
    eval_strategy: str = "epoch",
    per_device_eval_batch_size: int = 64,
    save_only_model: bool = True,
    save_strategy: str = "epoch",
    save_total_limit: int | None = 1,
    hub_strategy: str = "end",
    load_best_model_at_end: bool = True,
    metric_for_best_model: str | None = "auto",
    seed: int = 0,
    freeze: str = "none",
    lora: int | None = None,
    patience: int = 3,
    minutes: float | None = None,
    **options: Unpack[_FinetuningConfigOptions],
) -> TrainingResult:
    """Train a model for a task, measure it, and save it with its card, its metrics and a picture.

    Bad input is refused (a ValueError) before any training, and without a change to the output
    folder.

    Args:
        model: The model to start from, a folder or a Hub name: a MiniBERT, or a model that
            `convert` takes.
        data: A folder with train, validation and test (jsonl, csv, parquet, …), a training
            file, or a Hub data set. In Python, all four can be rows: a `Dataset`, a DataFrame
            or dictionaries.
        train: Files to train on, instead of those in data.
        validation: Files to validate on, instead of those in data.
        test: Files to test on, instead of those in data.
        columns: Names of the columns of csv and tsv files without a header row.
        validation_size: Training rows to hold out if there are no validation rows: a share
            below 1, or a number; by default 0.1 (embed, rerank: 0.05).
        plan: Train nothing; look at the data and write a recipe with reasons. Options that are
            given are kept.
        args: The settings of the training.
        question_column: The column of the question; by default guessed by its name.
        context_column: The column of the context; by default guessed by its name.
        answers_column: The column of {text: […], answer_start: […]}, as in SQuAD; by default
            guessed by its name.
        max_length: Longest input, in tokens; longer contexts are read in parts. By default that
            of a model trained for this task, else at most 384.
        max_answer_length: Longest answer, in tokens.
        output_dir: Folder of the model, the tokenizer, the card and the metrics.
        per_device_train_batch_size: Rows of a training batch, for each process.
        num_train_epochs: Passes over the training rows.
        learning_rate: Peak learning rate.
        warmup_steps: Steps in which the learning rate rises; below 1, a share of all steps.
        weight_decay: Weight decay.
        bf16: Compute in bf16; by default if the hardware is fast at it.
        logging_steps: Steps between two lines of the log; below 1, a share of all steps.
        eval_strategy: When to evaluate: no, steps or epoch.
        per_device_eval_batch_size: Rows of an evaluation batch, for each process.
        save_only_model: Save checkpoints without the state of the optimizer, which resuming
            needs.
        save_strategy: When to save a checkpoint: no, steps, epoch or best.
        save_total_limit: Number of checkpoints to keep.
        hub_strategy: What push_to_hub uploads: end (the finished model), or every_save
            (checkpoints too).
        load_best_model_at_end: Keep the best model, not the last one.
        metric_for_best_model: Metric that chooses the best model; auto: the task's own.
        seed: Seed of the new head, the order of rows, dropout, and the rows that are held out.
        freeze: What stays as it is: none, encoder, or a number (the embeddings and that many
            lowest layers).
        lora: Rank of low-rank updates (LoRA) to train instead of the encoder's weights.
        patience: Evaluations without a better one before the training stops; 0: never.
        minutes: Stop the training after this many minutes, instead of after num_train_epochs:
            from the start of reading to the last evaluation; the learning rate falls by the
            clock.

    Returns:
        The saved model with its tokenizer and its report; with `plan`, the recipe.
    """

@overload
def finetune(
    task: Literal["embed"],
    model: str = "runs/minibert",
    data: str | list[str] | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] = ...,
    *,
    columns: list[str] = ...,
    validation: str | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | None = None,
    pairs_from: list[str] = ...,
    kind: Literal['dense', 'sparse', 'multi-vector'] = "dense",
    pooling: Literal['mean', 'cls'] | None = None,
    matryoshka_dims: list[int] = ...,
    teacher: str | None = None,
    loss: str = "auto",
    loss_kwargs: str | None = None,
    args: EmbeddingConfig | None = None,
    output_dir: str | pathlib.Path | None = "runs/embed",
    per_device_train_batch_size: int = 64,
    num_train_epochs: float = 1.0,
    learning_rate: float = 5e-05,
    warmup_steps: float = 0.1,
    bf16: bool | None = None,
    logging_steps: float = 10,
    eval_strategy: str = "epoch",
    save_strategy: str = "epoch",
    save_total_limit: int | None = 1,
    hub_strategy: str = "end",
    load_best_model_at_end: bool = True,
    metric_for_best_model: str | None = "auto",
    validation_size: float = 0.05,
    max_length: int | None = None,
    minutes: float | None = None,
    patience: int = 3,
    **options: Unpack[_EmbeddingConfigOptions],
) -> TrainingResult:
    """Train an embedding model on pairs, triples or scored pairs of texts; the one best on the
    held-out data is saved for `SentenceTransformer(output_dir)`, `SparseEncoder` or
    `MultiVectorEncoder`.

    Args:
        model: The model to start from: a folder or a Hub name.
        data: Tables (JSON lines, csv, tsv, parquet) or Hub data sets (owner/name or
            owner/name:config) of pairs (query, positive), triples (…, negative; further ones in
            negative_1, … or in lists) or scored pairs (sentence1, sentence2, score). In Python
            also rows: a `Dataset`, a DataFrame or dictionaries.
        columns: The columns of the texts (and the score) in that order; by default guessed by
            their names.
        validation: Data to choose the best checkpoint on: a table, a folder with corpus.jsonl,
            queries and qrels of the split validation, or a Hub data set with that split.
        pairs_from: Make pairs from plain text (files and folders of txt, md, or tables with a
            column text and perhaps title), in one or several ways: title (a document's title
            and its text), adjacent (passages that follow each other).
        kind: dense: a vector for each text; sparse: a weight for each word of the vocabulary
            (SPLADE), from a masked-LM head; multi-vector: a vector for each token (ColBERT).
        pooling: How the last states of the tokens become one vector: mean, or cls (the first
            token). By default as the model was saved, else mean.
        matryoshka_dims: Widths to which dense vectors can be shortened: the first numbers are
            trained to be a vector, too (Matryoshka).
        teacher: A larger embedding model to learn the vectors of, or a reranker to learn the
            scores of.
        loss: The class name of a loss of sentence-transformers, such as CosineSimilarityLoss;
            auto: chosen by the data and the teacher.
        loss_kwargs: Keyword arguments of the loss, as JSON: {"scale": 30}.
        args: The settings of the training.
        output_dir: Folder of the model and its report.
        per_device_train_batch_size: Rows of a training batch; more rows are more negatives.
        num_train_epochs: Passes over the data.
        learning_rate: Peak learning rate.
        warmup_steps: Steps in which the learning rate rises; below 1, a share of all steps.
        bf16: Compute in bf16; by default if the hardware is fast at it.
        logging_steps: Steps between two lines of the log; below 1, a share of all steps.
        eval_strategy: When to evaluate: no, steps or epoch.
        save_strategy: When to save a checkpoint: no, steps or epoch, as eval_strategy.
        save_total_limit: Number of checkpoints to keep, besides the best one.
        hub_strategy: What push_to_hub uploads: end (the finished model), or every_save
            (checkpoints too).
        load_best_model_at_end: Save the best model, not the last one.
        metric_for_best_model: Metric that chooses the best model; auto: nDCG, MRR or Spearman's
            correlation, by the data.
        validation_size: Queries to hold out without --validation: a share below 1, or a number.
        max_length: Longest text in training, in tokens; the saved model reads as much as
            before.
        minutes: Stop the training after this many minutes, instead of after num_train_epochs:
            from the start of reading to the last evaluation; the learning rate falls by the
            clock.
        patience: Evaluations without a better one before the training stops; 0: never.

    Returns:
        The model, its tokenizer, the report, and the folder.
    """

@overload
def finetune(
    task: Literal["rerank"],
    model: str = "runs/minibert",
    data: str | list[str] | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] = ...,
    *,
    columns: list[str] = ...,
    validation: str | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | None = None,
    negatives: int | None = None,
    miner: str | None = None,
    teacher: str | None = None,
    args: RerankerConfig | None = None,
    output_dir: str | pathlib.Path | None = "runs/rerank",
    per_device_train_batch_size: int = 32,
    num_train_epochs: float = 1.0,
    learning_rate: float = 5e-05,
    warmup_steps: float = 0.1,
    bf16: bool | None = None,
    logging_steps: float = 10,
    eval_strategy: str = "epoch",
    save_strategy: str = "epoch",
    save_total_limit: int | None = 1,
    hub_strategy: str = "end",
    load_best_model_at_end: bool = True,
    metric_for_best_model: str | None = "auto",
    validation_size: float = 0.05,
    max_length: int | None = None,
    minutes: float | None = None,
    patience: int = 3,
    **options: Unpack[_RerankerConfigOptions],
) -> TrainingResult:
    """Train a reranker on pairs and negatives found for them, or on scored pairs; the one best on
    the held-out data is saved for `CrossEncoder(output_dir)`.

    Args:
        model: The model to start from: a folder or a Hub name.
        data: Tables (JSON lines, csv, tsv, parquet) or Hub data sets (owner/name or
            owner/name:config) of pairs (query, positive), triples (…, negative; further ones in
            negative_1, … or in lists) or scored pairs (sentence1, sentence2, score). In Python
            also rows: a `Dataset`, a DataFrame or dictionaries.
        columns: The columns of the texts (and the score) in that order; by default guessed by
            their names.
        validation: Data to choose the best checkpoint on: a table, or a Hub data set with the
            split validation.
        negatives: Number of negatives for each query, if the data are pairs; by default 3.
            Triples and scored pairs have their own.
        miner: An embedding model that finds hard negatives, drawn from the 30 passages nearest
            to the query; by default negatives are random.
        teacher: A larger reranker to learn the scores of, instead of labels.
        args: The settings of the training.
        output_dir: Folder of the model and its report.
        per_device_train_batch_size: Rows of a training batch.
        num_train_epochs: Passes over the data.
        learning_rate: Peak learning rate.
        warmup_steps: Steps in which the learning rate rises; below 1, a share of all steps.
        bf16: Compute in bf16; by default if the hardware is fast at it.
        logging_steps: Steps between two lines of the log; below 1, a share of all steps.
        eval_strategy: When to evaluate: no, steps or epoch.
        save_strategy: When to save a checkpoint: no, steps or epoch, as eval_strategy.
        save_total_limit: Number of checkpoints to keep, besides the best one.
        hub_strategy: What push_to_hub uploads: end (the finished model), or every_save
            (checkpoints too).
        load_best_model_at_end: Save the best model, not the last one.
        metric_for_best_model: Metric that chooses the best model; auto: nDCG, MRR or Spearman's
            correlation, by the data.
        validation_size: Queries to hold out without --validation: a share below 1, or a number.
        max_length: Longest text in training, in tokens; the saved model reads as much as
            before.
        minutes: Stop the training after this many minutes, instead of after num_train_epochs:
            from the start of reading to the last evaluation; the learning rate falls by the
            clock.
        patience: Evaluations without a better one before the training stops; 0: never.

    Returns:
        The model, its tokenizer, the report, and the folder.
    """

@overload
def evaluate(
    task: Literal["classify"],
    model: str | os.PathLike | None = None,
    data: str | os.PathLike | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | datasets.DatasetDict | None = None,
    validation: str | list[str] | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | None = None,
    test: str | list[str] | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | None = None,
    columns: list[str] | None = None,
    args: EvaluationConfig | None = None,
    *,
    text_column: str | None = None,
    pair_column: str | None = None,
    label_column: str | None = None,
    labels: collections.abc.Sequence[str] = ...,
    max_length: int | None = None,
    output_dir: str | pathlib.Path | None = "runs/evaluate",
    bf16: bool | None = None,
    per_device_eval_batch_size: int = 64,
    **options: Unpack[_EvaluationConfigOptions],
) -> dict[str, dict[str, float | None]]:
    """Measure a fine-tuned model on every split except the training split. Bad input is refused
    before any work.

    Args:
        model: The fine-tuned model: a folder or a Hub name; by default runs/finetune (embed:
            runs/embed, rerank: runs/rerank).
        data: A folder with validation and test (jsonl, csv, parquet, …), or a Hub data set. A
            simple baseline is made from its training rows, or else from the measured rows, and
            shown beside the model.
        validation: Files to validate on, instead of those in data.
        test: Files to test on, instead of those in data.
        columns: Names of the columns of csv and tsv files without a header row.
        args: The settings of the evaluation.
        text_column: The column of the text (or of the first of two); by default guessed by its
            name.
        pair_column: The column of the second text; by default guessed by its name, if there is
            one.
        label_column: The column of the label; by default guessed by its name.
        labels: Names of the classes, if the data do not make them clear; labels that are
            numbers count them from 0.
        max_length: Longest input, in tokens; longer ones are cut. By default that of the model.
        output_dir: Folder of the metrics and the picture.
        bf16: Compute in bf16; by default if the hardware is fast at it.
        per_device_eval_batch_size: Rows of an evaluation batch, for each process.

    Returns:
        The metrics of each split, by name; None for a metric that is not defined for these rows.
    """

@overload
def evaluate(
    task: Literal["nli"],
    model: str | os.PathLike | None = None,
    data: str | os.PathLike | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | datasets.DatasetDict | None = None,
    validation: str | list[str] | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | None = None,
    test: str | list[str] | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | None = None,
    columns: list[str] | None = None,
    args: EvaluationConfig | None = None,
    *,
    text_column: str | None = None,
    pair_column: str | None = None,
    label_column: str | None = None,
    labels: collections.abc.Sequence[str] = ...,
    max_length: int | None = None,
    output_dir: str | pathlib.Path | None = "runs/evaluate",
    bf16: bool | None = None,
    per_device_eval_batch_size: int = 64,
    **options: Unpack[_EvaluationConfigOptions],
) -> dict[str, dict[str, float | None]]:
    """Measure a fine-tuned model on every split except the training split. Bad input is refused
    before any work.

    Args:
        model: The fine-tuned model: a folder or a Hub name; by default runs/finetune (embed:
            runs/embed, rerank: runs/rerank).
        data: A folder with validation and test (jsonl, csv, parquet, …), or a Hub data set. A
            simple baseline is made from its training rows, or else from the measured rows, and
            shown beside the model.
        validation: Files to validate on, instead of those in data.
        test: Files to test on, instead of those in data.
        columns: Names of the columns of csv and tsv files without a header row.
        args: The settings of the evaluation.
        text_column: The column of the text (or of the first of two); by default guessed by its
            name.
        pair_column: The column of the second text; by default guessed by its name, if there is
            one.
        label_column: The column of the label; by default guessed by its name.
        labels: Names of the classes, if the data do not make them clear; labels that are
            numbers count them from 0.
        max_length: Longest input, in tokens; longer ones are cut. By default that of the model.
        output_dir: Folder of the metrics and the picture.
        bf16: Compute in bf16; by default if the hardware is fast at it.
        per_device_eval_batch_size: Rows of an evaluation batch, for each process.

    Returns:
        The metrics of each split, by name; None for a metric that is not defined for these rows.
    """

@overload
def evaluate(
    task: Literal["choose"],
    model: str | os.PathLike | None = None,
    data: str | os.PathLike | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | datasets.DatasetDict | None = None,
    validation: str | list[str] | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | None = None,
    test: str | list[str] | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | None = None,
    columns: list[str] | None = None,
    args: EvaluationConfig | None = None,
    *,
    text_column: str | None = None,
    prefix_column: str | None = None,
    choice_columns: collections.abc.Sequence[str] = ...,
    label_column: str | None = None,
    max_length: int | None = None,
    output_dir: str | pathlib.Path | None = "runs/evaluate",
    bf16: bool | None = None,
    per_device_eval_batch_size: int = 64,
    **options: Unpack[_EvaluationConfigOptions],
) -> dict[str, dict[str, float | None]]:
    """Measure a fine-tuned model on every split except the training split. Bad input is refused
    before any work.

    Args:
        model: The fine-tuned model: a folder or a Hub name; by default runs/finetune (embed:
            runs/embed, rerank: runs/rerank).
        data: A folder with validation and test (jsonl, csv, parquet, …), or a Hub data set. A
            simple baseline is made from its training rows, or else from the measured rows, and
            shown beside the model.
        validation: Files to validate on, instead of those in data.
        test: Files to test on, instead of those in data.
        columns: Names of the columns of csv and tsv files without a header row.
        args: The settings of the evaluation.
        text_column: The column of the text before the choices; by default guessed by its name.
        prefix_column: The column of a text that every choice begins with (sent2 of SWAG); by
            default guessed by its name.
        choice_columns: The columns of the choices, one for each; by default one column of lists
            (or of texts and their keys, as ARC has it), guessed by its name.
        label_column: The column of the right choice, a number from 0 (from 1, if others are
            letters) or a letter (A, B, …); by default guessed by its name.
        max_length: Longest input, in tokens; longer ones are cut. By default that of the model.
        output_dir: Folder of the metrics and the picture.
        bf16: Compute in bf16; by default if the hardware is fast at it.
        per_device_eval_batch_size: Rows of an evaluation batch, for each process.

    Returns:
        The metrics of each split, by name; None for a metric that is not defined for these rows.
    """

@overload
def evaluate(
    task: Literal["tag"],
    model: str | os.PathLike | None = None,
    data: str | os.PathLike | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | datasets.DatasetDict | None = None,
    validation: str | list[str] | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | None = None,
    test: str | list[str] | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | None = None,
    columns: list[str] | None = None,
    args: EvaluationConfig | None = None,
    *,
    tokens_column: str | None = None,
    tags_column: str | None = None,
    max_length: int | None = None,
    output_dir: str | pathlib.Path | None = "runs/evaluate",
    bf16: bool | None = None,
    per_device_eval_batch_size: int = 64,
    **options: Unpack[_EvaluationConfigOptions],
) -> dict[str, dict[str, float | None]]:
    """Measure a fine-tuned model on every split except the training split. Bad input is refused
    before any work.

    Args:
        model: The fine-tuned model: a folder or a Hub name; by default runs/finetune (embed:
            runs/embed, rerank: runs/rerank).
        data: A folder with validation and test (jsonl, csv, parquet, …), or a Hub data set. A
            simple baseline is made from its training rows, or else from the measured rows, and
            shown beside the model.
        validation: Files to validate on, instead of those in data.
        test: Files to test on, instead of those in data.
        columns: Names of the columns of csv and tsv files without a header row.
        args: The settings of the evaluation.
        tokens_column: The column of the words, a list in each row; by default guessed by its
            name.
        tags_column: The column of their tags, a list in each row; by default guessed by its
            name.
        max_length: Longest sentence, in tokens; words beyond it are cut and count as untagged.
            By default that of the model.
        output_dir: Folder of the metrics and the picture.
        bf16: Compute in bf16; by default if the hardware is fast at it.
        per_device_eval_batch_size: Rows of an evaluation batch, for each process.

    Returns:
        The metrics of each split, by name; None for a metric that is not defined for these rows.
    """

@overload
def evaluate(
    task: Literal["answer"],
    model: str | os.PathLike | None = None,
    data: str | os.PathLike | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | datasets.DatasetDict | None = None,
    validation: str | list[str] | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | None = None,
    test: str | list[str] | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | None = None,
    columns: list[str] | None = None,
    args: EvaluationConfig | None = None,
    *,
    question_column: str | None = None,
    context_column: str | None = None,
    answers_column: str | None = None,
    max_length: int | None = None,
    max_answer_length: int = 30,
    output_dir: str | pathlib.Path | None = "runs/evaluate",
    bf16: bool | None = None,
    per_device_eval_batch_size: int = 64,
    **options: Unpack[_EvaluationConfigOptions],
) -> dict[str, dict[str, float | None]]:
    """Measure a fine-tuned model on every split except the training split. Bad input is refused
    before any work.

    Args:
        model: The fine-tuned model: a folder or a Hub name; by default runs/finetune (embed:
            runs/embed, rerank: runs/rerank).
        data: A folder with validation and test (jsonl, csv, parquet, …), or a Hub data set. A
            simple baseline is made from its training rows, or else from the measured rows, and
            shown beside the model.
        validation: Files to validate on, instead of those in data.
        test: Files to test on, instead of those in data.
        columns: Names of the columns of csv and tsv files without a header row.
        args: The settings of the evaluation.
        question_column: The column of the question; by default guessed by its name.
        context_column: The column of the context; by default guessed by its name.
        answers_column: The column of {text: […], answer_start: […]}, as in SQuAD; by default
            guessed by its name.
        max_length: Longest input, in tokens; longer contexts are read in parts. By default that
            of a model trained for this task, else at most 384.
        max_answer_length: Longest answer, in tokens.
        output_dir: Folder of the metrics and the picture.
        bf16: Compute in bf16; by default if the hardware is fast at it.
        per_device_eval_batch_size: Rows of an evaluation batch, for each process.

    Returns:
        The metrics of each split, by name; None for a metric that is not defined for these rows.
    """

@overload
def evaluate(
    task: Literal["embed"],
    model: str = "runs/embed",
    data: str | datasets.Dataset | pandas.DataFrame | collections.abc.Sequence[collections.abc.Mapping[str, Any]] | None = None,
    *,
    tasks: collections.abc.Sequence[str] = ...,
    split: str = "test",
    columns: collections.abc.Sequence[str] = ...,
    max_length: int | None = None,
    result: str | None = None,
) -> dict[str, Any]:
    """Measure an embedding model on similarity or retrieval, or on tasks of mteb, whose table goes
    on its card.

    Args:
        model: The model: a folder or a Hub name.
        data: A folder with corpus.jsonl, queries and qrels; or a table or Hub data set of two
            texts and a score; in Python also rows (a `Dataset`, a DataFrame or dictionaries).
        tasks: Tasks and benchmarks of mteb by name (STSBenchmark, NanoBEIR), instead of data.
        split: The split: queries_SPLIT and qrels_SPLIT (or qrels/SPLIT) of a folder, or a split
            of a Hub data set.
        columns: The columns of the two texts and the score; by default guessed by their names.
        max_length: Longest text, in tokens; longer ones are cut. By default as the model was
            saved.
        result: JSON file to write the result to.

    Returns:
        The scores by name under "metrics", those of the words that texts share under "baseline",
        and what was measured on.
    """

@overload
def evaluate(
    task: Literal["rerank"],
    model: str = "runs/rerank",
    data: str = ...,
    *,
    split: str = "test",
    embedder: str = "runs/embed",
    depth: int = 20,
    result: str | None = None,
) -> dict[str, Any]:
    """Measure a reranker on the passages that an embedding model finds.

    Args:
        model: The reranker: a folder or a Hub name.
        data: A folder with corpus.jsonl, queries and qrels.
        split: The split: queries_SPLIT and qrels_SPLIT (or qrels/SPLIT) of the folder.
        embedder: The embedding model that finds the passages.
        depth: Number of passages to find for each query and to order.
        result: JSON file to write the result to.

    Returns:
        The scores by name: of the passages as they were found in "before", as the reranker orders
        them in "metrics".
    """
