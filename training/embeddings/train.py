"""A former name of `finetune`, kept for its importers."""

from .finetune import finetune_embed, finetune_rerank

__all__ = ["finetune_embed", "finetune_rerank"]
