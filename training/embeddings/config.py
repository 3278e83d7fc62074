"""The settings of a training of embedding models or rerankers."""

from dataclasses import dataclass

import sentence_transformers as st

from ...option_checks import checked_class
from ..common.config_fields import option
from ..common.processes import use_cpu_without_accelerator

DEFAULT_EPOCHS = 1.0


@dataclass
class _Defaults:
    """Our defaults for fields of `TrainingArguments`."""

    learning_rate: float = option(5e-5, "Peak learning rate.")
    num_train_epochs: float = option(DEFAULT_EPOCHS, "Passes over the data.")
    warmup_steps: float = option(
        0.1, "Steps in which the learning rate rises; below 1, a share of all steps."
    )
    bf16: bool | None = option(None, "Compute in bf16; by default if the hardware is fast at it.")
    logging_steps: float = option(
        10, "Steps between two lines of the log; below 1, a share of all steps."
    )
    eval_strategy: str = option("epoch", "When to evaluate: no, steps or epoch.")
    save_strategy: str = option(
        "epoch", "When to save a checkpoint: no, steps or epoch, as eval_strategy."
    )
    save_total_limit: int | None = option(1, "Number of checkpoints to keep, besides the best one.")
    load_best_model_at_end: bool = option(True, "Save the best model, not the last one.")
    metric_for_best_model: str | None = option(
        "auto",
        "Metric that chooses the best model; auto: nDCG, MRR or Spearman's correlation, by the"
        " data.",
    )
    hub_strategy: str = option(
        "end",
        "What push_to_hub uploads: end (the finished model), or every_save (checkpoints too).",
    )
    validation_size: float = option(
        0.05, "Queries to hold out without --validation: a share below 1, or a number."
    )
    max_length: int | None = option(
        None, "Longest text in training, in tokens; the saved model reads as much as before."
    )
    minutes: float | None = option(
        None,
        "Stop the training after this many minutes, instead of after num_train_epochs: from the"
        " start of reading to the last evaluation; the learning rate falls by the clock.",
    )
    patience: int = option(
        3, "Evaluations without a better one before the training stops; 0: never."
    )

    def __post_init__(self):
        use_cpu_without_accelerator(self)
        super().__post_init__()


@checked_class
@dataclass
class EmbeddingConfig(_Defaults, st.SentenceTransformerTrainingArguments):
    """The settings of sentence-transformers for training an embedding model, with our defaults."""

    output_dir: str | None = option("runs/embed", "Folder of the model and its report.")
    per_device_train_batch_size: int = option(
        64, "Rows of a training batch; more rows are more negatives."
    )


@checked_class
@dataclass
class RerankerConfig(_Defaults, st.CrossEncoderTrainingArguments):
    """The settings of sentence-transformers for training a reranker, with our defaults."""

    output_dir: str | None = option("runs/rerank", "Folder of the model and its report.")
    per_device_train_batch_size: int = option(32, "Rows of a training batch.")


SentenceConfig = EmbeddingConfig | RerankerConfig
