"""What a fine-tuning refuses before any example is read."""

from ..loop.arguments import check_training
from ..optimization.clock import check_minutes
from .config import DEFAULT_EPOCHS, FinetuningConfig
from .start_model import StartModel, check_head
from .tasks.base import Task


def check_before_reading(
    task_class: type[Task], start: StartModel, args: FinetuningConfig, do_train: bool
) -> None:
    """Refuse (a ValueError) what can be known before any example is read."""
    check_training(args)
    check_minutes(args, default_epochs=DEFAULT_EPOCHS)
    config = start.config
    if not start.is_loaded:
        check_head(start.name, config, task_class, needed=not do_train)
    elif not isinstance(start.model, task_class.model_class):
        raise ValueError(
            f"model: a {type(start.model).__name__}; '{task_class.name}' needs a"
            f" {task_class.model_class.__name__}, or a folder or a Hub name"
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
