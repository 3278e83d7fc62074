# Copyright 2026 The MiniBERT authors. Licensed under the Apache License, Version 2.0.
"""How the layers attend: over unpadded tokens or padded rows, and by which function.

Once a forward, `choose_layer_input` decides whether the layers run over unpadded tokens or padded
rows. `attention_arguments` then says, once for the global and once for the local layers, what they
pass to their attention. Where torch attends over the unpadded tokens, that is an
`AttentionDispatch`, whose `attend` takes queries, keys and values. Elsewhere it is the name of an
attention function of Transformers, and what that takes. Nothing here knows a layer, and whatever is
chosen, the same is computed.

Shape suffixes are those of `modeling_minibert.py`.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from transformers.configuration_utils import PreTrainedConfig

from .compat_minibert import FLASH_ATTENTION, attention_backend, needs_static_shapes
from .cpu_minibert import choose_cpu_dispatch
from .dispatch_minibert import (
    AttentionDispatch,
    BlocksDispatch,
    FlashDispatch,
    NoTokensDispatch,
    RowsDispatch,
)
from .sequences_minibert import BatchDocuments, LayerInput, PaddedRows, UnpaddedRow, UnpaddedTokens

# --- what the layers run over ---


def choose_layer_input(
    batch: BatchDocuments,
    inputs: torch.Tensor,
    config: PreTrainedConfig,
    reaches: Iterable[int | None],
    causal: bool,
    keeps_layers: bool,
) -> LayerInput:
    """What the layers run over: the unpadded tokens as one row wherever that is possible, else the
    padded rows.

    Args:
        batch: what the caller passed, described.
        inputs: the words of the batch, or their embeddings.
        config: the config of the model.
        reaches: how far the layers see: the `reach` of `AttentionDispatch` for each type of layer.
        causal: tokens see only what comes before them.
        keeps_layers: states or probabilities of every layer are returned, which needs padded rows.
    """
    if needs_static_shapes(inputs):  # a graph of static shapes cannot drop padding
        return PaddedRows(batch.keep_columns())
    tokens = batch.find_tokens()
    if keeps_layers or batch.mask_4d is not None:
        return PaddedRows(tokens)
    if not _attends_unpadded(attention_backend(config), tokens, reaches, causal):
        return PaddedRows(tokens)
    return UnpaddedRow(tokens)


def _attends_unpadded(
    backend: str, tokens: UnpaddedTokens, reaches: Iterable[int | None], causal: bool
) -> bool:
    """Whether the attention backend works on these unpadded tokens, in layers of these reaches."""
    if backend == "sdpa":
        return True
    if "flash" not in backend:
        return False
    if not len(tokens.document_ids):  # flash attention needs at least one token
        return False
    # It goes by the order of tokens, not by their positions: in the window and in the direction.
    if tokens.order == "contiguous":
        return True
    if tokens.order == "rising":
        return not any(reaches)
    return not (causal or any(reaches))


# --- what the layers pass to their attention ---


class AttentionSettings(NamedTuple):
    """How a layer attends. Layers with equal settings share masks and an `AttentionDispatch`, which
    are made once a forward."""

    layer_type: str  # "full_attention" or "sliding_attention"
    dropout: float  # the current rate


def query_dtype(hidden_states: torch.Tensor) -> torch.dtype:
    """The type of queries, keys and values, which autocast may decide."""
    device_type = hidden_states.device.type
    if torch.is_autocast_enabled(device_type):
        return torch.get_autocast_dtype(device_type)
    return hidden_states.dtype


def attention_arguments(
    layer_input: LayerInput,
    hidden_bsd: torch.Tensor,
    reach: int | None,
    causal: bool,
    dropout: float,
    config: PreTrainedConfig,
    kwargs: dict[str, Any],
) -> dict[str, Any]:
    """How the layers with the same `AttentionSettings` attend: a `dispatch`, where torch attends
    over the unpadded tokens; else the arguments of one of Transformers' attention functions.

    Args:
        layer_input: what the layers run over.
        hidden_bsd: its embeddings.
        reach, causal, dropout: as for `AttentionDispatch`.
        config: the config of the model.
        kwargs: what the caller passes on to Transformers' attention functions. An argument that is
            decided here replaces one of the same name.
    """
    backend = attention_backend(config)
    tokens = layer_input.tokens
    is_padded = isinstance(layer_input, PaddedRows)
    if backend == "sdpa" and not is_padded:
        dtype = query_dtype(hidden_bsd)
        head_width = config.hidden_size // config.num_attention_heads
        return {"dispatch": choose_dispatch(tokens, reach, causal, dropout, dtype, head_width)}
    mask = None
    if is_padded and "attention_instances" in kwargs:  # vLLM keeps its requests apart itself
        _check_vllm(config)
    elif is_padded and ("flash" not in backend or tokens.batch.needs_mask):
        if "flash" in backend:
            backend = "sdpa"  # flash attention takes no mask over pairs of tokens
        mask = tokens.batch.mask_for_backend(backend, config, hidden_bsd, reach, causal)
    # Without a mask, flash attention goes by the window and the direction.
    arguments = {"backend": backend, "attention_mask": mask, "is_causal": causal}
    # Transformers counts the tokens seen on one side, and the token itself.
    arguments["sliding_window"] = None if reach is None else reach + 1
    if not is_padded:
        arguments["cu_seq_lens_q"] = tokens.cu_seq_lens
        arguments["cu_seq_lens_k"] = tokens.cu_seq_lens
        arguments["max_length_q"] = tokens.max_length
        arguments["max_length_k"] = tokens.max_length
    return kwargs | arguments


def _check_vllm(config: PreTrainedConfig) -> None:
    """Refuse what vLLM would compute wrongly: it has one window for a layer."""
    if config.share_layers and len(set(config.layer_types)) > 1:
        raise ValueError(
            f"share_layers=True with layer_types={config.layer_types}: vLLM has one window for a "
            "layer; use layer_types of one kind"
        )


# --- attention of torch over the unpadded tokens ---


def choose_dispatch(
    tokens: UnpaddedTokens,
    reach: int | None,
    causal: bool,
    dropout: float,
    dtype: torch.dtype,
    head_width: int,
) -> AttentionDispatch:
    """Choose how layers with the same `AttentionSettings` attend over the unpadded tokens, from the
    batch at hand. Arguments are those of `AttentionDispatch`, and the width of a head."""
    has_tokens = len(tokens.document_ids) > 0
    if has_tokens and tokens.device.type == "cpu":
        return choose_cpu_dispatch(tokens, reach, causal, dropout, dtype)
    if not has_tokens:
        dispatch_class = NoTokensDispatch
    elif tokens.order == "any" and (reach is not None or causal):
        # Positions fall or repeat within documents: only explicit masks know who sees whom.
        dispatch_class = RowsDispatch
    elif reach is not None and tokens.order != "contiguous":
        dispatch_class = BlocksDispatch  # flash attention would measure the window in tokens
    else:
        dispatch_class = _choose_on_device(tokens.device, dtype, head_width, reach)
    return dispatch_class(tokens, reach, causal, dropout, dtype)


def _choose_on_device(
    device: torch.device, dtype: torch.dtype, head_width: int, reach: int | None
) -> type[AttentionDispatch]:
    """Flash attention, if it takes the inputs."""
    if (
        FLASH_ATTENTION is not None
        and device.type == "cuda"
        and dtype in (torch.float16, torch.bfloat16)
        and _has_flash_attention(device)
        and head_width % 8 == 0
        and head_width <= 256
    ):
        return FlashDispatch
    return RowsDispatch if reach is None else BlocksDispatch


@torch.compiler.assume_constant_result  # torch.compile cannot trace the question
def _has_flash_attention(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device)[0] >= 8
