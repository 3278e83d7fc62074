"""What a fine-tuning refuses before any example is read."""

from transformers import PreTrainedConfig

from ..loop.arguments import check_training
from ..optimization.clock import check_minutes
from .config import DEFAULT_EPOCHS, FinetuningConfig
from .start_model import StartModel, check_head
from .tasks.base import Task


def check_before_reading(
    task: Task, start: StartModel, args: FinetuningConfig, do_train: bool
) -> None:
    """Refuse (a ValueError) what can be known before any example is read.

    Args:
        do_train: Whether the model is trained; else it is measured only.
    """
    check_training(args)
    check_minutes(args, default_epochs=DEFAULT_EPOCHS)
    check_start_model(task, start, do_train)
    check_pooling(task, start)
    check_freeze(args.freeze, start.config)


def check_start_model(task: Task, start: StartModel, do_train: bool) -> None:
    """Refuse (a ValueError) a model of another task."""
    if not start.is_loaded:
        check_head(start.name, start.config, type(task), needed=not do_train)
    elif not isinstance(start.model, task.model_class):
        raise ValueError(
            f"model: a {type(start.model).__name__}; '{task.name}' needs a"
            f" {task.model_class.__name__}, or a folder or a Hub name"
        )


def check_pooling(task: Task, start: StartModel) -> None:
    """Refuse (a ValueError) another pooling than the one that a trained head learned to read."""
    if not start.has_trained_head:
        return
    trained_pooling = getattr(start.config, "classifier_pooling", "cls")  # BERT has no such field
    if task.pooling not in (None, trained_pooling):
        raise ValueError(
            f"pooling={task.pooling!r}: the head of this model was trained with"
            f" {trained_pooling!r}; leave the option out, or start from a model without a head"
        )


def check_freeze(freeze: str, config: PreTrainedConfig) -> None:
    """Refuse (a ValueError) layers to freeze that the model does not have."""
    # Of the native models, ALBERT's layers share their weights.
    shares_layers = getattr(config, "share_layers", config.model_type == "albert")
    if shares_layers and freeze not in ("none", "encoder"):
        raise ValueError(
            f"freeze={freeze!r}: with share_layers there is one layer; use none or encoder"
        )
    layers = [str(number) for number in range(1, config.num_hidden_layers + 1)]
    if freeze not in ("none", "encoder", *layers):
        raise ValueError(
            f"freeze must be none, encoder or a number up to {config.num_hidden_layers},"
            f" got {freeze!r}"
        )
