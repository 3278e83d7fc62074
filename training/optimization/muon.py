"""Muon for the matrices of the blocks, AdamW for all else, as one optimizer."""

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import nn

from ...modeling_minibert import MiniBertLayer
from ..common.precision import fast_bf16

# The first polynomials a x + b x³ + c x⁵ of the Polar Express (Amsel et al. 2025, arXiv 2505.16932,
# algorithm 1), which bring singular values to 1 in fewer steps than one polynomial over and over;
# 1.01 is its margin for rounding.
ROUNDING_MARGIN = 1.01
UNSCALED_POLYNOMIALS = (
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115956949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
)
POLYNOMIALS = [
    (a / ROUNDING_MARGIN, b / ROUNDING_MARGIN**3, c / ROUNDING_MARGIN**5)
    for a, b, c in UNSCALED_POLYNOMIALS
]
# The root mean square of AdamW's updates, to which Muon's are scaled.
UPDATE_SIZE = 0.2
# The share of the old momentum that is kept.
MOMENTUM = 0.95
# Muon's default learning rate at hidden size `MUON_WIDTH` and above; narrower models take a higher
# one.
MUON_LEARNING_RATE = 3.5e-3
MUON_WIDTH = 256


def default_muon_rate(hidden_size: int, learning_rate: float | None = None) -> float:
    """Muon's learning rate where the user gives none.

    Args:
        hidden_size: The width of the model.
        learning_rate: That of AdamW beside Muon, if the user gave it; it is then Muon's too.
    """
    if learning_rate is not None:
        return learning_rate
    return MUON_LEARNING_RATE * max(1, MUON_WIDTH / hidden_size)


class MuonAdamW(torch.optim.Optimizer):
    """Muon and `torch.optim.AdamW` behind one list of groups, for schedulers and checkpoints to
    share.

    Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon) replaces the momentum of a
    matrix by the nearest matrix with orthonormal rows or columns; of a fused projection, of every
    one of its `parts` by rows. The update is scaled to the size of AdamW's (arXiv 2502.16982,
    section 2.2), so that both can have one learning rate. Unlike `torch.optim.Muon`, it takes all
    matrices of one shape at once, as many small products are slow.
    """

    def __init__(self, muon_groups: list[dict[str, Any]], adamw_groups: list[dict[str, Any]]):
        self._adamw = torch.optim.AdamW(adamw_groups, fused=True)
        # Where no instruction multiplies bf16, its products take a hundred times as long as those
        # of fp32.
        self._dtype = torch.bfloat16
        device_types = set()
        for group in muon_groups:
            for parameter in group["params"]:
                device_types.add(parameter.device.type)
        for device_type in device_types:
            is_fast, _ = fast_bf16(device_type)
            if not is_fast:
                self._dtype = torch.float32
        # AdamW's first: what `Trainer` logs is the learning rate of the first group.
        groups = [*self._adamw.param_groups, *muon_groups]
        # Schedules that end above 0 take their share of this default.
        super().__init__(groups, {"lr": groups[0]["lr"]})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        # The groups and the state are new objects after `load_state_dict`, so they are handed over
        # at every step.
        muon_groups = []
        adamw_groups = []
        for group in self.param_groups:
            if "parts" in group:
                muon_groups.append(group)
            else:
                adamw_groups.append(group)
        self._adamw.state = self.state
        self._adamw.param_groups = adamw_groups
        self._adamw.step()
        self._step_muon(muon_groups)

    def _step_muon(self, muon_groups: list[dict[str, Any]]) -> None:
        # Matrices of one shape, device and rate are computed in one go: the matrices, and their
        # updates.
        batches: dict[tuple, tuple[list[torch.Tensor], list[torch.Tensor]]] = {}
        for group in muon_groups:
            parameters = []
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameters.append(parameter)
            if not parameters:
                continue
            updates = self._momentum_updates(parameters)
            torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
            for parameter, update in zip(parameters, updates):
                matrices_nrc = split_matrices(parameter, group["parts"])
                updates_nrc = split_matrices(update, group["parts"])
                rows, columns = matrices_nrc.shape[1:]
                rate = UPDATE_SIZE * group["lr"] * columns**0.5
                key = (rows, columns, parameter.device, rate)
                batch_matrices, batch_updates = batches.setdefault(key, ([], []))
                batch_matrices.append(matrices_nrc)
                batch_updates.append(updates_nrc)
        for (*_, rate), (batch_matrices, batch_updates) in batches.items():
            orthogonal_nrc = orthogonalize(torch.cat(batch_updates).to(self._dtype))
            sizes = [len(matrices_nrc) for matrices_nrc in batch_matrices]
            torch._foreach_add_(batch_matrices, orthogonal_nrc.split(sizes), alpha=-rate)

    def _momentum_updates(self, parameters: list[nn.Parameter]) -> list[torch.Tensor]:
        """Update the momentum of each parameter, and return Nesterov's step from it."""
        gradients = [parameter.grad for parameter in parameters]
        momenta = []
        for parameter in parameters:
            state = self.state[parameter]
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = torch.zeros_like(parameter.grad)
            momenta.append(state["momentum_buffer"])
        torch._foreach_lerp_(momenta, gradients, 1 - MOMENTUM)
        return torch._foreach_lerp(gradients, momenta, MOMENTUM)


def split_matrices(weight: torch.Tensor, parts: int) -> torch.Tensor:
    """A fused weight [parts × rows, columns] as a view of its matrices, transposed if they are
    taller than wide: [parts, rows, columns], not more rows than columns."""
    matrices_nrc = weight.unflatten(0, (parts, -1))
    if matrices_nrc.shape[1] > matrices_nrc.shape[2]:
        matrices_nrc = matrices_nrc.mT
    return matrices_nrc


def orthogonalize(x_nrc: torch.Tensor) -> torch.Tensor:
    """U Vᵀ of the singular value decompositions U S Vᵀ, roughly: singular values above 0.3 % of the
    matrix's norm come to between 0.44 and 1.57.

    Args:
        x_nrc: [matrices, rows, columns], not more rows than columns.
    """
    x_nrc = x_nrc / (ROUNDING_MARGIN * x_nrc.norm(dim=(1, 2), keepdim=True)).clamp(min=1e-7)
    for a, b, c in POLYNOMIALS:
        gram_nrr = x_nrc @ x_nrc.mT
        b_and_c_nrr = torch.baddbmm(gram_nrr, gram_nrr, gram_nrr, beta=b, alpha=c)
        x_nrc = torch.baddbmm(x_nrc, b_and_c_nrr, x_nrc, beta=a)
    return x_nrc


def block_matrices(model: nn.Module) -> dict[nn.Parameter, int]:
    """The matrices of all MiniBERT blocks in a model, and of how many equal parts by rows each is
    made: 3 a head in Wqkv (queries, keys, values), 2 in the Wi of a gated MLP (signal and gate),
    else 1."""
    parts = {}
    for block in model.modules():
        if isinstance(block, MiniBertLayer):
            num_heads = block.attn.config.num_attention_heads
            parts[block.attn.Wqkv.weight] = 3 * num_heads
            parts[block.attn.Wo.weight] = 1
            parts[block.mlp.Wi.weight] = 1
            if block.mlp.gated:
                parts[block.mlp.Wi.weight] = 2
            parts[block.mlp.Wo.weight] = 1
    return parts


def muon_optimizer(
    model: nn.Module,
    decayed: Collection[str],
    *,
    learning_rate: float,
    muon_learning_rate: float,
    weight_decay: float = 0.0,
    matrices: Mapping[nn.Parameter, int] | None = None,
    **adamw: Any,
) -> MuonAdamW:
    """Muon for the blocks' matrices of a model, and AdamW for the rest: embeddings, norms, biases,
    heads. For any `Trainer`: `optimizers=(muon_optimizer(model, …), None)`.

    Args:
        decayed: the names of the parameters that decay, from `Trainer.get_decay_parameter_names`.
        matrices: the parameters for Muon, and of how many equal parts by rows each is made; by
            default `block_matrices(model)`. Give it for a model that is no MiniBERT.
        adamw: AdamW's `betas` and `eps`.
    """
    if matrices is None:
        matrices = block_matrices(model)
    muon_groups: dict[tuple, dict[str, Any]] = {}
    adamw_groups: dict[float, dict[str, Any]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        decay = weight_decay if name in decayed else 0.0
        if parameter in matrices:
            parts = matrices[parameter]
            new_group = dict(params=[], weight_decay=decay, lr=muon_learning_rate, parts=parts)
            group = muon_groups.setdefault((parts, decay), new_group)
        else:
            new_group = dict(params=[], weight_decay=decay, lr=learning_rate, **adamw)
            group = adamw_groups.setdefault(decay, new_group)
        group["params"].append(parameter)
    return MuonAdamW(list(muon_groups.values()), list(adamw_groups.values()))
