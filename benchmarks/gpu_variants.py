"""Variants of a training step that benchmarks/gpu.py compares. None of them is in the library.

A variant changes a model from outside, by what its modules take and return, so that a variant that
brings nothing on a GPU leaves no trace. On a CPU all of them run, for the rehearsal: compiled code
without inductor, a CUDA graph as the same steps without capture.
"""

import contextlib
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal
from unittest import mock

import torch
from gpu_models import build_model, fix_shapes, to_device, without_empty_documents
from torch import nn
from torch.nn import functional as F
from transformers.modeling_layers import GradientCheckpointingLayer

from minibert import attention_minibert


@dataclass(frozen=True)
class Variant:
    """What differs from the library's own training step.

    Args:
        compiled: the parts that are compiled: each layer; head and loss too; or forward and loss as
            one graph.
        fixed: rows of a fixed number of tokens, documents and targets, and graphs for this shape
            alone.
        autotune: inductor tries several kernels for each product.
        graph: forward and backward are one CUDA graph. It needs `fixed`.
        flash: another kernel of flash attention: torch's switch to FA3 or FA4, or cuDNN in global
            layers.
        fuse_residual: a layer hands on its last sum unadded, so that it is compiled with the next
            norm.
        bf16_residual: the states between layers are bf16, also under autocast. It changes the
            numbers.
    """

    compiled: Literal["no", "layers", "layers and head", "model"] = "layers"
    fixed: bool = False
    autotune: bool = False
    graph: bool = False
    flash: Literal["", "FA3", "FA4", "cuDNN"] = ""
    fuse_residual: bool = False
    bf16_residual: bool = False


VARIANTS = {
    "not compiled": Variant(compiled="no"),
    "layers": Variant(),
    "head": Variant(compiled="layers and head"),
    "fixed": Variant(fixed=True),
    "graph": Variant(fixed=True, graph=True),
    "FA3": Variant(flash="FA3"),
    "FA4": Variant(flash="FA4"),
    "cuDNN": Variant(flash="cuDNN"),
    "fused residual": Variant(fuse_residual=True),
    "bf16 residual": Variant(bf16_residual=True),
    "autotune": Variant(fixed=True, autotune=True),
    "graph and head": Variant(
        compiled="layers and head", fixed=True, graph=True, fuse_residual=True
    ),
    "graph, head, bf16": Variant(
        compiled="layers and head", fixed=True, graph=True, fuse_residual=True, bf16_residual=True
    ),
    "whole model": Variant(compiled="model", fixed=True),
}


# --- changes to a model ---


def apply_variant(model: nn.Module, variant: Variant, device: torch.device) -> None:
    """Change a model in place, and compile what the variant says."""
    if variant.flash in ("FA3", "FA4"):
        activate_flash(variant.flash)
    if variant.flash == "cuDNN":
        use_cudnn_in_global_layers()
    if variant.fuse_residual:
        hand_on_sums(model)
    if variant.bf16_residual:
        model.base_model.embeddings.register_forward_hook(
            lambda module, inputs, states: states.to(torch.bfloat16)
        )
    compile_options = compiler_options(variant, device)
    if variant.compiled == "model":
        model.compile(fullgraph=True, **compile_options)
    elif variant.compiled != "no":
        for layer in model.modules():
            if isinstance(layer, GradientCheckpointingLayer):
                layer.compile(**compile_options)


def compiler_options(variant: Variant, device: torch.device) -> dict[str, Any]:
    options: dict[str, Any] = dict(dynamic=not variant.fixed)
    if device.type != "cuda":
        return options | dict(backend="eager")
    if variant.autotune:
        return options | dict(mode="max-autotune-no-cudagraphs")
    return options


def activate_flash(name: str) -> None:
    """Let torch's operator of flash attention start other kernels.

    Raises:
        RuntimeError: this torch, or this machine, does not have them.
    """
    activate = getattr(torch.nn.attention, "activate_flash_attention_impl", None)
    if activate is None:
        raise RuntimeError(f"torch {torch.__version__} has no switch for {name}")
    activate(name)


def flash_class() -> type:
    """The class of MiniBERT's attention that calls flash attention."""
    for value in vars(attention_minibert).values():
        if isinstance(value, type) and getattr(value, "name", None) == "flash attention":
            return value
    raise RuntimeError("attention_minibert has no class with the name 'flash attention'")


def use_cudnn_in_global_layers() -> None:
    """cuDNN's attention takes documents of any length, but no window."""
    flash = flash_class()
    attend_by_flash = flash.attend

    def attend(self, q_thd, k_thd, v_thd):
        if self.reach is not None:
            return attend_by_flash(self, q_thd, k_thd, v_thd)
        bounds = self.tokens.cu_seq_lens
        longest = self.tokens.max_length
        outputs = torch.ops.aten._cudnn_attention_forward(
            q_thd,
            k_thd,
            v_thd,
            None,
            bounds,
            bounds,
            longest,
            longest,
            True,
            self.dropout,
            self.causal,
            False,
        )
        return outputs[0]

    flash.attend = attend


def hand_on_sums(model: nn.Module) -> None:
    """Let each layer return its states and the output of its MLP, and the next one, or the final
    norm, add them."""

    def layer_forward(layer, states, **kwargs):
        states = add_pair(states)
        attended = layer.attn(layer.attn_norm(states), **kwargs)[0]
        states = states + layer.dropout(attended)
        return states, layer.dropout(layer.mlp(layer.mlp_norm(states)))

    for layer in model.base_model.layers:
        layer.forward = types.MethodType(layer_forward, layer)
    norm = model.base_model.final_norm
    norm_forward = norm.forward
    norm.forward = lambda states: norm_forward(add_pair(states))


def add_pair(states: torch.Tensor | tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return states[0] + states[1] if isinstance(states, tuple) else states


# --- a training step ---


class Step:
    """A training step in bf16 with an optimizer.

    Args:
        name: of the model, one of `gpu_models.MODEL_NAMES`.
        build_optimizer: makes the optimizer of a model; None: fused AdamW at the learning rate 0,
            which takes the same time and leaves the weights as they are, so that the losses of
            variants compare.
    """

    def __init__(
        self,
        name: str,
        size: str,
        variant: Variant,
        device: torch.device,
        build_optimizer: Callable[[nn.Module], torch.optim.Optimizer] | None = None,
    ):
        torch.manual_seed(0)
        self.name = name
        self.device = device
        self.variant = variant
        with device:
            self.model = build_model(name, size).train()
        if build_optimizer is None:
            self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.0, fused=True)
        else:
            self.optimizer = build_optimizer(self.model)
        apply_variant(self.model, variant, device)
        self.head_and_loss = None
        if variant.compiled == "layers and head":
            options = compiler_options(variant, device)
            self.head_and_loss = torch.compile(self._head_and_loss, **options)
        self.graph = None

    def loss(self, batch: dict[str, Any]) -> torch.Tensor:
        if self.variant.fixed and self.device.type == "cpu":
            batch = without_empty_documents(batch)
        # A rehearsal computes in fp32, unless bf16 is what it rehearses.
        half_precision = self.device.type == "cuda" or self.variant.bf16_residual
        with torch.autocast(self.device.type, torch.bfloat16, half_precision):
            if self.head_and_loss is None:
                return self.model(**batch).loss
            inputs = batch.copy()
            labels = inputs.pop("labels")
            positions = inputs.pop("masked_lm_positions")
            states = self.model.run_encoder(**inputs).unpadded
            return self.head_and_loss(states, labels, positions)

    def _head_and_loss(self, states_td, labels, positions):
        logits = self.model.decoder(self.model.head(states_td[positions]))
        return F.cross_entropy(logits.float(), labels[0, positions])

    def fix(self, batch: dict[str, Any], longest: int | None = None) -> dict[str, Any]:
        """The batch with the shapes of this step, if the variant fixes them."""
        if not self.variant.fixed:
            return batch
        tokens = batch["input_ids"].shape[1]
        return fix_shapes(
            batch,
            tokens,
            documents=max(tokens // 64, len(batch["cu_seq_lens_q"])),
            targets=int(tokens * 0.4),
            longest=longest or batch["max_length_q"],
        )

    def forward_and_backward(self, batch: dict[str, Any]) -> torch.Tensor:
        """The loss, detached; the gradients are in the parameters."""
        if self.variant.graph:
            if self.graph is None or not self.graph.fits(batch):
                self.graph = GraphedLoss(self, batch)
            return self.graph(batch)
        loss = self.loss(batch)
        loss.backward()
        return loss.detach()

    def __call__(self, batch: dict[str, Any]) -> torch.Tensor:
        loss = self.forward_and_backward(batch)
        self.optimizer.step()
        if not self.variant.graph:  # a graph overwrites the gradients
            self.optimizer.zero_grad()
        return loss


class GraphedLoss:
    """Forward and backward as one CUDA graph for batches of one shape. On a CPU it does the same
    without a graph."""

    def __init__(self, step: Step, batch: dict[str, Any]):
        self.step = step
        self.buffers = {}
        for name, value in batch.items():
            self.buffers[name] = value.clone() if isinstance(value, torch.Tensor) else value
        # Both names are one tensor in a batch, and stay one here.
        self.buffers["cu_seq_lens_k"] = self.buffers["cu_seq_lens_q"]
        self.cuda_graph = None
        if step.device.type == "cuda":
            self._capture()

    def _capture(self) -> None:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):  # compiles, and lets libraries set up their workspaces
                self.step.optimizer.zero_grad()
                self.step.loss(self.buffers).backward()
        torch.cuda.current_stream().wait_stream(stream)
        self.step.optimizer.zero_grad()
        self.cuda_graph = torch.cuda.CUDAGraph()
        with capturing_allowed(), torch.cuda.graph(self.cuda_graph):
            loss = self.step.loss(self.buffers)
            loss.backward()
        self.loss = loss.detach()

    def fits(self, batch: dict[str, Any]) -> bool:
        for name, value in batch.items():
            buffer = self.buffers[name]
            if isinstance(value, torch.Tensor):
                if value.shape != buffer.shape:
                    return False
            elif value != buffer:
                return False
        return True

    def __call__(self, batch: dict[str, Any]) -> torch.Tensor:
        for name, value in batch.items():
            if isinstance(value, torch.Tensor):
                self.buffers[name].copy_(value, non_blocking=True)
        if self.cuda_graph is None:
            self.step.optimizer.zero_grad()
            loss = self.step.loss(self.buffers)
            loss.backward()
            return loss.detach()
        self.cuda_graph.replay()
        return self.loss


@contextlib.contextmanager
def capturing_allowed():
    """Let the model take the same way while a CUDA graph is captured as without one. Transformers
    says "traced" then, and MiniBERT would compute padded rows with a mask."""
    with mock.patch("transformers.utils.import_utils.is_cuda_stream_capturing", return_value=False):
        yield


def prepare_batch(step: Step, batch: dict[str, Any], longest: int | None = None) -> dict[str, Any]:
    """The batch on the device, in the shapes of the step."""
    return to_device(step.fix(batch, longest), step.device)
