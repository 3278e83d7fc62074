"""The settings of a fine-tuning."""

from dataclasses import dataclass

from transformers import TrainingArguments
from transformers.trainer_utils import HubStrategy, IntervalStrategy, SaveStrategy

from ...option_checks import checked_class
from ..common.config_fields import option
from ..common.processes import shares_weights, use_cpu_without_accelerator

DEFAULT_EPOCHS = 3.0


@checked_class
@dataclass
class FinetuningConfig(TrainingArguments):
    """The settings of a fine-tuning: those of `TrainingArguments`, some with other defaults, and
    those below."""

    output_dir: str | None = option(
        "runs/finetune", "Folder of the model, the tokenizer, the card and the metrics."
    )
    num_train_epochs: float = option(DEFAULT_EPOCHS, "Passes over the training rows.")
    learning_rate: float = option(1e-4, "Peak learning rate.")
    per_device_train_batch_size: int = option(32, "Rows of a training batch, for each process.")
    per_device_eval_batch_size: int = option(64, "Rows of an evaluation batch, for each process.")
    warmup_steps: float = option(
        0.06, "Steps in which the learning rate rises; below 1, a share of all steps."
    )
    weight_decay: float = option(0.01, "Weight decay.")
    bf16: bool | None = option(None, "Compute in bf16; by default if the hardware is fast at it.")
    seed: int = option(
        0, "Seed of the new head, the order of rows, dropout, and the rows that are held out."
    )
    logging_steps: float = option(
        50, "Steps between two lines of the log; below 1, a share of all steps."
    )
    eval_strategy: IntervalStrategy | str = option("epoch", "When to evaluate: no, steps or epoch.")
    save_strategy: SaveStrategy | str = option(
        "epoch", "When to save a checkpoint: no, steps, epoch or best."
    )
    save_total_limit: int | None = option(1, "Number of checkpoints to keep.")
    # A fine-tuning is short: repeating it costs less than the optimizer's state on disk.
    save_only_model: bool = option(
        True, "Save checkpoints without the state of the optimizer, which resuming needs."
    )
    load_best_model_at_end: bool = option(True, "Keep the best model, not the last one.")
    metric_for_best_model: str | None = option(
        "auto", "Metric that chooses the best model; auto: the task's own."
    )
    hub_strategy: HubStrategy | str = option(
        "end",
        "What push_to_hub uploads: end (the finished model), or every_save (checkpoints too).",
    )

    freeze: str = option(
        "none",
        "What stays as it is: none, encoder, or a number (the embeddings and that many lowest"
        " layers).",
    )
    lora: int | None = option(
        None, "Rank of low-rank updates (LoRA) to train instead of the encoder's weights."
    )
    patience: int = option(
        3, "Evaluations without a better one before the training stops; 0: never."
    )

    minutes: float | None = option(
        None,
        "Stop the training after this many minutes, instead of after num_train_epochs: from the"
        " start of reading to the last evaluation; the learning rate falls by the clock.",
    )

    def __post_init__(self):
        if self.bf16_full_eval or self.fp16_full_eval:
            raise ValueError(
                "bf16_full_eval, fp16_full_eval: they would save the model in half precision;"
                " use bf16"
            )
        use_cpu_without_accelerator(self)
        super().__post_init__()
        if self.lora is not None and (self.lora < 1 or self.freeze != "none"):
            raise ValueError(
                f"lora: {self.lora}; use a rank of 1 or more, without --freeze:"
                " LoRA freezes the encoder"
            )
        if shares_weights(self):
            raise ValueError(
                "fsdp, deepspeed: fine-tuning needs the whole model in every process;"
                " leave them out"
            )
        required_values = {
            "prediction_loss_only": False,
            "batch_eval_metrics": False,
            "eval_do_concat_batches": True,
            "dataloader_drop_last": False,
            "dataloader_in_order": True,
            "remove_unused_columns": True,
        }
        for name, value in required_values.items():
            if getattr(self, name) != value:
                raise ValueError(
                    f"{name}: the metrics need the predictions of all rows in order; use {value}"
                )


@checked_class
@dataclass
class EvaluationConfig(FinetuningConfig):
    """The settings of an evaluation. It takes those of a fine-tuning too, so that one recipe serves
    both; only those that `Trainer.predict` reads have an effect: the size of batches, the number
    format, the device and the data loader."""

    output_dir: str | None = option("runs/evaluate", "Folder of the metrics and the picture.")
