"""Muon for the matrices of the blocks, AdamW for all else, as one optimizer."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import nn

from ...modeling_minibert import MiniBertLayer


class MuonAdamW(torch.optim.Optimizer):
    """`torch.optim.Muon` (torch 2.9 or newer) and `torch.optim.AdamW` behind one list of groups, for schedulers and
    checkpoints to share.

    Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon) replaces the momentum of a matrix by the
    nearest matrix with orthonormal rows or columns. A fused projection is several matrices on top of each other: a
    group's `parts` says how many equal parts, by rows, are orthogonalised apart. The update is scaled to the size of
    AdamW's (arXiv 2502.16982, section 2.2), so that both can have one learning rate. Groups are those of torch's two.
    """

    def __init__(self, muon_groups: list[dict[str, Any]], adamw_groups: list[dict[str, Any]]):
        self._muon = torch.optim.Muon(muon_groups, adjust_lr_fn="match_rms_adamw")
        self._adamw = torch.optim.AdamW(adamw_groups, fused=True)
        # AdamW's first: what `Trainer` logs is the learning rate of the first group.
        super().__init__([*self._adamw.param_groups, *self._muon.param_groups], {})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """One step of both."""
        # The groups and the state are new objects after `load_state_dict`, so they are handed over at every step.
        self._adamw.state = self.state
        self._adamw.param_groups = [group for group in self.param_groups if "parts" not in group]
        self._adamw.step()

        self._muon.param_groups = []
        for group in self.param_groups:
            if "parts" in group:
                parts = [part for p in group["params"] if p.grad is not None for part in self._parts(p, group["parts"])]
                self._muon.param_groups.append({**group, "params": parts})
        self._muon.step()
        self._muon.param_groups = []  # or the gradients would live on through the parts'
        self._muon.state.clear()

    def _parts(self, parameter: nn.Parameter, count: int) -> list[torch.Tensor]:
        """The parts of a matrix as Muon's parameters: views, like their gradients and momentum, of the whole's."""
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter.grad)
        parts = list(parameter.detach().chunk(count))
        for part, grad, momentum in zip(parts, parameter.grad.chunk(count), state["momentum_buffer"].chunk(count)):
            part.grad = grad
            self._muon.state[part]["momentum_buffer"] = momentum
        return parts


def block_matrices(model: nn.Module) -> dict[nn.Parameter, int]:
    """The matrices of all MiniBERT blocks in a model, and of how many equal parts by rows each is made: 3 in Wqkv
    (queries, keys, values), 2 in the Wi of a gated MLP (signal and gate), else 1."""
    matrices = {}
    for block in model.modules():
        if isinstance(block, MiniBertLayer):
            parts = {block.attn.Wqkv: 3, block.attn.Wo: 1, block.mlp.Wi: 2 if block.mlp.gated else 1, block.mlp.Wo: 1}
            matrices |= {linear.weight: count for linear, count in parts.items()}
    return matrices


def muon_optimizer(
    model: nn.Module,
    decayed: Collection[str],
    *,
    learning_rate: float,
    muon_learning_rate: float | None = None,
    weight_decay: float = 0.0,
    **adamw: Any,
) -> MuonAdamW:
    """Muon for the blocks' matrices and AdamW for the rest (embeddings, norms, biases, heads) of a model.

    Args:
        decayed: names of the parameters whose weights decay (`Trainer.get_decay_parameter_names`).
        learning_rate: AdamW's, and Muon's where `muon_learning_rate` is None.
        adamw: AdamW's `betas` and `eps`.

    Raises:
        ValueError: the model has no MiniBERT blocks, or nothing else, that learns.
    """
    matrices, muon, rest = block_matrices(model), {}, {}
    muon_rate = learning_rate if muon_learning_rate is None else muon_learning_rate
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            parts, decay = matrices.get(parameter, 0), weight_decay * (name in decayed)
            options = dict(lr=muon_rate, parts=parts) if parts else dict(lr=learning_rate, **adamw)
            group = dict(params=[], weight_decay=decay, **options)
            (muon if parts else rest).setdefault((parts, decay), group)["params"].append(parameter)
    if not muon or not rest:
        raise ValueError("optimizer: muon needs a model whose MiniBERT blocks and embeddings both learn; use adamw")
    return MuonAdamW([*muon.values()], [*rest.values()])
