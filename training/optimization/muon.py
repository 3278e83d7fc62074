"""Muon for the matrices of the blocks, AdamW for all else, as one optimizer."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import nn

from ...modeling_minibert import MiniBertLayer


class MuonAdamW(torch.optim.Optimizer):
    """`torch.optim.Muon` and `torch.optim.AdamW` behind one list of groups, for schedulers and checkpoints to share.

    Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon) replaces the momentum of a matrix by the
    nearest matrix with orthonormal rows or columns. A fused projection is several matrices on top of each other, and
    the nearest orthonormal matrix of the whole is not made of theirs: a group's `parts` says how many equal parts, by
    rows, are orthogonalised apart. The update is scaled as in arXiv 2502.16982, section 2.2, to the size of AdamW's,
    by the shape of the part; so both can have one learning rate.

    Args:
        muon_groups: groups of matrices, each with `parts` and perhaps `lr`, `weight_decay` and `momentum`.
        adamw_groups: groups of the other parameters, perhaps with `lr`, `weight_decay`, `betas` and `eps`.

    Raises:
        ValueError: torch is too old to have Muon.
    """

    def __init__(self, muon_groups: list[dict[str, Any]], adamw_groups: list[dict[str, Any]]):
        require_muon()
        self._muon = torch.optim.Muon(muon_groups, adjust_lr_fn="match_rms_adamw")
        self._adamw = torch.optim.AdamW(adamw_groups, fused=True)
        # AdamW's first: what `Trainer` logs is the learning rate of the first group.
        super().__init__([*self._adamw.param_groups, *self._muon.param_groups], {})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step of both."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
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
        return loss

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


def require_muon() -> None:
    """
    Raises:
        ValueError: this torch has no `torch.optim.Muon`.
    """
    if not hasattr(torch.optim, "Muon"):
        raise ValueError(f"optimizer: muon needs torch 2.9 or newer, this is {torch.__version__}; legal here: adamw")


def block_matrices(model: nn.Module) -> dict[nn.Parameter, int]:
    """The matrices of all MiniBERT blocks in a model, and of how many equal parts by rows each is made: 3 in Wqkv
    (queries, keys, values), 2 in the Wi of a gated MLP (signal and gate), else 1."""
    matrices = {}
    for block in model.modules():
        if isinstance(block, MiniBertLayer):
            matrices[block.attn.Wqkv.weight] = 3
            matrices[block.attn.Wo.weight] = 1
            matrices[block.mlp.Wi.weight] = 2 if block.mlp.gated else 1
            matrices[block.mlp.Wo.weight] = 1
    return matrices


def muon_optimizer(
    model: nn.Module,
    decayed: Collection[str],
    *,
    learning_rate: float,
    muon_learning_rate: float | None = None,
    weight_decay: float = 0.0,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
) -> MuonAdamW:
    """Muon for the blocks' matrices and AdamW for the rest (embeddings, norms, biases, heads) of a model.

    Args:
        decayed: names of the parameters whose weights decay (`Trainer.get_decay_parameter_names`).
        learning_rate: AdamW's.
        muon_learning_rate: Muon's; None: AdamW's.
        weight_decay, betas, eps: weight decay of both; AdamW's moments.

    Raises:
        ValueError: torch is too old, or the model has no MiniBERT blocks that learn.
    """
    matrices = block_matrices(model)
    named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    muon: dict[tuple[int, bool], list[nn.Parameter]] = {}
    adamw: dict[bool, list[nn.Parameter]] = {}
    for name, parameter in named.items():
        if parameter in matrices:
            muon.setdefault((matrices[parameter], name in decayed), []).append(parameter)
        else:
            adamw.setdefault(name in decayed, []).append(parameter)
    if not muon or not adamw:
        raise ValueError("optimizer: muon needs a model whose MiniBERT blocks and embeddings both learn; legal: adamw")
    muon_rate = learning_rate if muon_learning_rate is None else muon_learning_rate
    return MuonAdamW(
        [
            {"params": parameters, "parts": parts, "lr": muon_rate, "weight_decay": weight_decay * decays}
            for (parts, decays), parameters in muon.items()
        ],
        [
            {
                "params": parameters,
                "lr": learning_rate,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay * decays,
            }
            for decays, parameters in adamw.items()
        ],
    )
