# Copyright 2026 The MiniBERT authors. Licensed under the Apache License, Version 2.0.
"""What depends on the versions of torch and Transformers: every private name that the model uses,
each with a net under it, and the questions that are answered with them. Two small functions that
several model files need stand at the end.

These files stay on the Hub for years, and a private name may go in any release. So each is looked
up once, here, and bound to a name of ours, which is None where this version lacks it. What is built
on it then takes a public way, which is slower or more cautious and computes the same. A reader who
wants to understand the model may skip this file.
"""

from typing import Any

import torch
from torch import nn
from torch.autograd import forward_ad
from transformers.models.auto import modeling_auto
from transformers.utils import import_utils


def look_up_name(root: Any, path: str) -> Any:
    """The object at a dotted path below `root`; None if this version has no such name."""
    for name in path.split("."):
        root = getattr(root, name, None)
    return root


# --- the private names ---

# Whether a graph is being traced, captured or faked. (It is public, but has moved before.)
IS_TRACING = look_up_name(import_utils, "is_tracing")
# The level of `torch.func` transformations: a function that returns None outside of them.
FUNCTORCH_LEVEL = look_up_name(torch, "_C._functorch.maybe_current_level")
# The module whose `_current_level` is -1 outside of forward-mode differentiation.
FORWARD_AD = forward_ad if hasattr(forward_ad, "_current_level") else None
# How many modes see every operator, such as one that counts operations.
COUNT_DISPATCH_MODES = look_up_name(torch, "_C._len_torch_dispatch_stack")
# Whether there are hooks that see the calls of all modules.
HAS_GLOBAL_HOOKS = look_up_name(torch, "nn.modules.module._has_any_global_hook")
# Flash attention over packed documents (Dao 2023, arXiv 2307.08691). It is the operator behind the
# public `torch.nn.attention.varlen`, which starts it from Python, more slowly, and has no dropout.
# Without it the dispatch of attention takes SDPA, as on a GPU that has no flash attention.
FLASH_ATTENTION = look_up_name(torch.ops, "aten._flash_attention_forward")
# The operator that torch.compile uses for a linear and the activation after it: oneDNN adds the
# bias and applies the activation while a block of the product is still in the cache. It has no
# backward. Without it linears and activations run one after the other.
FUSED_LINEAR = look_up_name(torch.ops, "mkldnn._linear_pointwise")
# Whether oneDNN multiplies in bf16 on this processor.
HAS_FUSED_BF16 = look_up_name(torch.ops, "mkldnn._is_mkldnn_bf16_supported")
# With `label_smoothing_factor`, `Trainer` computes the loss itself, and shifts the labels of the
# models in this table only. Nothing public does that: without the table, a decoder must be trained
# without label smoothing. All else works.
CAUSAL_MODELS = look_up_name(modeling_auto, "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES")


# --- what a graph, or a transformation of torch, does not allow ---

# Two questions about a tensor. Their answers differ under torch.compile on a GPU, where the number
# of tokens may change from call to call, and on the meta device:
#
#                                           needs_static_shapes   needs_traceable_ops
#     torch.export, ONNX, jit, CUDA graph   yes                   yes
#     torch.compile on CPU                  yes                   yes
#     torch.compile on other devices        no                    yes
#     torch.func, forward-mode derivatives  yes                   yes
#     meta device                           yes                   no
#     anything else                         no                    no


def needs_static_shapes(x: torch.Tensor) -> bool:
    """Whether shapes may not depend on the values of tensors. Then padding is kept, and nothing
    reads values.

    With torch.compile this is so on CPU only, which has no attention kernel for documents of any
    length. (CUDA has one.)
    """
    if torch.compiler.is_compiling() and not torch.compiler.is_exporting():
        return x.device.type == "cpu"
    return needs_traceable_ops(x) or x.device.type == "meta"


def needs_traceable_ops(x: torch.Tensor) -> bool:
    """Whether only operators may run that every tracer and every transformation of torch knows.
    Then fused linears, the loss by rows and the cheaper dropout are not used, and labelled
    positions are not looked for."""
    return _is_graph_traced(x) or _is_transformed(x) or _is_differentiated_forward(x)


def _is_graph_traced(x: torch.Tensor) -> bool:
    if IS_TRACING is not None:
        return IS_TRACING(x)
    return (
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or isinstance(x, torch.fx.Proxy)
        or (x.device.type == "cuda" and torch.cuda.is_current_stream_capturing())
    )


def _is_transformed(x: torch.Tensor) -> bool:
    if FUNCTORCH_LEVEL is not None:
        return FUNCTORCH_LEVEL() is not None
    try:
        x.untyped_storage()
    except (RuntimeError, NotImplementedError):  # the tensors of `torch.func` have no storage
        return True
    return False


def _is_differentiated_forward(x: torch.Tensor) -> bool:
    if FORWARD_AD is not None:
        return FORWARD_AD._current_level >= 0
    return forward_ad.unpack_dual(x).tangent is not None


# --- what may watch a call ---


def is_watched(*modules: nn.Module) -> bool:
    """Whether anything must see these modules or their operators run: hooks or dispatch modes.

    Where that cannot be known, it is assumed.
    """
    if HAS_GLOBAL_HOOKS is None or COUNT_DISPATCH_MODES is None:
        return True
    if HAS_GLOBAL_HOOKS() or COUNT_DISPATCH_MODES():
        return True
    for module in modules:
        if getattr(module, "_forward_hooks", True) or getattr(module, "_forward_pre_hooks", True):
            return True
    return False


# --- what Trainer knows ---


def register_causal_model(model_type: str, class_name: str) -> None:
    """Let `Trainer` shift the labels of this model when it smooths them."""
    if isinstance(CAUSAL_MODELS, dict):
        CAUSAL_MODELS[model_type] = class_name


# --- for several model files ---


def attention_backend(config: Any) -> str:
    """The attention implementation that was chosen for a model, "sdpa" if nothing says it.
    (Transformers keeps it in `_attn_implementation`, which it sets when a model is built.)"""
    name = getattr(config, "_attn_implementation", None)
    return name or getattr(config, "attn_implementation", None) or "sdpa"


def at_least_fp32(x: torch.Tensor) -> torch.Tensor:
    """Convert half precision to fp32; return anything else as it is."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
