"""Muon for the matrices of the blocks, AdamW for all else, as one optimizer."""

from collections.abc import Collection
from typing import Any

import torch
from torch import nn

from ...modeling_minibert import MiniBertLayer
from ..common.precision import fast_bf16

# The first polynomials a x + b x³ + c x⁵ of the Polar Express (Amsel et al. 2025, arXiv 2505.16932, algorithm 1), which
# bring singular values to 1 in fewer steps than one polynomial over and over; 1.01 is its margin for rounding.
MARGIN = 1.01
POLYNOMIALS = [
    (a / MARGIN, b / MARGIN**3, c / MARGIN**5)
    for a, b, c in (
        (8.28721201814563, -23.595886519098837, 17.300387312530933),
        (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
        (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
        (3.3184196573706015, -2.488488024314874, 0.51004894012372),
    )
]
# The share of the old momentum that is kept.
MOMENTUM = 0.95
# The learning rate at this hidden size and above; narrower models take a higher one.
MUON_LEARNING_RATE, MUON_WIDTH = 3.5e-3, 256


class MuonAdamW(torch.optim.Optimizer):
    """Muon and `torch.optim.AdamW` behind one list of groups, for schedulers and checkpoints to share.

    Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon) replaces the momentum of a matrix by the
    nearest matrix with orthonormal rows or columns; of a fused projection, of every one of its `parts` by rows. The
    update is scaled to the size of AdamW's (arXiv 2502.16982, section 2.2), so that both can have one learning rate.
    Unlike `torch.optim.Muon`, it takes all matrices of one shape at once, as many small products are slow.
    """

    def __init__(self, muon_groups: list[dict[str, Any]], adamw_groups: list[dict[str, Any]]):
        self._adamw = torch.optim.AdamW(adamw_groups, fused=True)
        # Where no instruction multiplies bf16, its products take a hundred times as long as those of fp32.
        devices = {p.device.type for group in muon_groups for p in group["params"]}
        self._dtype = (
            torch.bfloat16 if all(fast_bf16(device)[0] for device in devices) else torch.float32
        )
        # AdamW's first: what `Trainer` logs is the learning rate of the first group.
        groups = [*self._adamw.param_groups, *muon_groups]
        super().__init__(
            groups, {"lr": groups[0]["lr"]}
        )  # schedules that end above 0 take their share of it

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        # The groups and the state are new objects after `load_state_dict`, so they are handed over at every step.
        self._adamw.state = self.state
        self._adamw.param_groups = [group for group in self.param_groups if "parts" not in group]
        self._adamw.step()

        alike: dict[Any, list[tuple[torch.Tensor, torch.Tensor]]] = {}
        for group in self.param_groups:
            parameters = (
                [p for p in group["params"] if p.grad is not None] if "parts" in group else []
            )
            if not parameters:
                continue
            for p in parameters:
                if "momentum_buffer" not in self.state[p]:
                    self.state[p]["momentum_buffer"] = torch.zeros_like(p.grad)
            grads, momenta = (
                [p.grad for p in parameters],
                [self.state[p]["momentum_buffer"] for p in parameters],
            )
            torch._foreach_lerp_(momenta, grads, 1 - MOMENTUM)
            torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
            for p, nesterov in zip(parameters, torch._foreach_lerp(grads, momenta, MOMENTUM)):
                matrices, updates = (x.unflatten(0, (group["parts"], -1)) for x in (p, nesterov))
                if matrices.shape[1] > matrices.shape[2]:
                    matrices, updates = matrices.mT, updates.mT
                rate = 0.2 * group["lr"] * max(matrices.shape[1:]) ** 0.5
                alike.setdefault((matrices.shape[1:], matrices.device, rate), []).append(
                    (matrices, updates)
                )
        for (*_, rate), members in alike.items():
            matrices, updates = zip(*members)
            orthogonal = orthogonalize(torch.cat(updates).to(self._dtype)).split(
                [len(x) for x in matrices]
            )
            torch._foreach_add_(matrices, orthogonal, alpha=-rate)


def orthogonalize(x_nrc: torch.Tensor) -> torch.Tensor:
    """U Vᵀ of the singular value decompositions U S Vᵀ, roughly: singular values above 0.3 % of the matrix's norm come
    to between 0.44 and 1.57.

    Args:
        x_nrc: [matrices, rows, columns], not more rows than columns.
    """
    x_nrc = x_nrc / (MARGIN * x_nrc.norm(dim=(1, 2), keepdim=True)).clamp(min=1e-7)
    for a, b, c in POLYNOMIALS:
        gram = x_nrc @ x_nrc.mT
        x_nrc = torch.baddbmm(
            x_nrc, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x_nrc, beta=a
        )
    return x_nrc


def block_matrices(model: nn.Module) -> dict[nn.Parameter, int]:
    """The matrices of all MiniBERT blocks in a model, and of how many equal parts by rows each is made: 3 a head in
    Wqkv (queries, keys, values), 2 in the Wi of a gated MLP (signal and gate), else 1."""
    matrices = {}
    for block in model.modules():
        if isinstance(block, MiniBertLayer):
            attention, mlp = block.attn, block.mlp
            parts = {attention.Wqkv: 3 * attention.config.num_attention_heads, attention.Wo: 1}
            parts |= {mlp.Wi: 2 if mlp.gated else 1, mlp.Wo: 1}
            matrices |= {linear.weight: count for linear, count in parts.items()}
    return matrices


def muon_optimizer(
    model: nn.Module,
    decayed: Collection[str],
    *,
    learning_rate: float,
    muon_learning_rate: float,
    weight_decay: float = 0.0,
    **adamw: Any,
) -> MuonAdamW:
    """Muon for the blocks' matrices and AdamW for the rest (embeddings, norms, biases, heads) of a model; for any
    `Trainer`: `optimizers=(muon_optimizer(model, …), None)`. The weights of the parameters named in `decayed` decay
    (`Trainer.get_decay_parameter_names`); `adamw` are AdamW's `betas` and `eps`."""
    matrices, muon, rest = block_matrices(model), {}, {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            parts, decay = matrices.get(parameter, 0), weight_decay * (name in decayed)
            options = (
                dict(lr=muon_learning_rate, parts=parts)
                if parts
                else dict(lr=learning_rate, **adamw)
            )
            group = dict(params=[], weight_decay=decay, **options)
            (muon if parts else rest).setdefault((parts, decay), group)["params"].append(parameter)
    return MuonAdamW([*muon.values()], [*rest.values()])
