"""What a training of an embedding model or a reranker refuses before any row is read."""

from ...hub.push import check_push
from ...loop.arguments import check_training
from ...optimization.clock import check_minutes
from ..config import DEFAULT_EPOCHS, EncoderConfig


def check_before_reading(args: EncoderConfig) -> None:
    """Refuse (a ValueError) what would end the training only after all rows are read."""
    check_training(args)
    check_minutes(args, default_epochs=DEFAULT_EPOCHS)
    if args.push_to_hub:
        check_push(args)
