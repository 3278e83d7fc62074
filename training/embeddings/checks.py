"""What a training of an embedding model or a reranker refuses before any row is read."""

from ..hub.push import check_push
from ..loop.arguments import check_training
from ..optimization.clock import check_minutes
from .config import DEFAULT_EPOCHS, SentenceConfig
from .encoders import check_encoder, check_reranker


def check_before_reading(
    model: str, args: SentenceConfig, is_reranker: bool = False, miner: str | None = None
) -> None:
    """Refuse (a ValueError) what would end the training only after all rows are read.

    Args:
        model: The folder or Hub name of the model to start from.
        is_reranker: Whether that is a reranker already.
        miner: The folder or Hub name of an embedding model that finds negatives, or None.
    """
    check_training(args)
    check_minutes(args, default_epochs=DEFAULT_EPOCHS)
    if args.push_to_hub:
        check_push(args)
    if is_reranker:
        check_reranker(model, args.max_length)
    else:
        check_encoder(model, args.max_length)
    if miner is not None:
        check_encoder(miner)
