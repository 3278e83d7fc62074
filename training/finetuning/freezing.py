"""What of a model is trained, and how fast each part learns: frozen parts, low-rank updates, layer-wise rates.

Works on MiniBERT and on Transformers' BERT and ModernBERT alike, so that they can be compared.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from torch import nn
from transformers import PreTrainedModel

from ..arguments.finetuning import FinetuneArguments

if TYPE_CHECKING:
    import peft

LORA_TARGETS = ("Wqkv", "Wo", "Wi")  # MiniBERT's fused projections, of attention and MLP
LAYER = re.compile(r"\.(?:layers|encoder\.layer)\.(\d+)\.")


def check_freezing(arguments: FinetuneArguments, layers: int) -> None:
    """Refuse what no model of `layers` layers can be trained with.

    Raises:
        ValueError: names the argument, its value and what is legal.
        ModuleNotFoundError: `lora` needs the package peft.
    """
    if arguments.lora is not None:
        import peft  # noqa: F401 - missing it is told before any work
    if arguments.freeze not in (None, "none", "encoder", *map(str, range(1, layers + 1))):
        raise ValueError(f"freeze: {arguments.freeze!r} is not legal: none, encoder or a number from 1 to {layers}")
    if arguments.lora is not None and arguments.lora < 1:
        raise ValueError(f"lora: {arguments.lora} is not legal: a rank of 1 or more")
    if arguments.lora is not None and arguments.freeze not in (None, "none"):
        raise ValueError(f"lora: not legal with --freeze {arguments.freeze}: it freezes the encoder's own weights")
    if not 0 < arguments.layerwise_lr_decay <= 1:
        raise ValueError(f"layerwise_lr_decay: {arguments.layerwise_lr_decay} is not legal: above 0, up to 1")
    if arguments.layerwise_lr_decay < 1 and arguments.freeze == "encoder":
        raise ValueError("layerwise_lr_decay: not legal with --freeze encoder: no layer of it trains")


def freeze(model: PreTrainedModel, amount: str) -> list[nn.Module]:
    """Freeze a part of the encoder: its parameters want no gradient any more, so that autograd records nothing of it.

    Args:
        amount: "none"; "encoder": all but the head, which BERT's pooler belongs to; "N": the embeddings and the N
            lowest layers.

    Returns:
        the frozen modules. They must be kept in evaluation mode, see `TaskTrainer`: dropout would only be noise there.
    """
    encoder = model.base_model
    if amount == "none":
        return []
    if amount == "encoder":
        frozen = [module for name, module in encoder.named_children() if name != "pooler"]
    else:
        layers = encoder.layers if hasattr(encoder, "layers") else encoder.encoder.layer
        frozen = [encoder.embeddings, *layers[: int(amount)]]
    for module in frozen:
        module.requires_grad_(False)
    return frozen


def add_lora(model: PreTrainedModel, rank: int) -> peft.PeftModel:
    """`model` with frozen weights and low-rank updates of all projections (Hu et al. 2021), scaled by 2; the head is
    trained as it is. `merge_and_unload()` makes an ordinary model of it again."""
    import peft

    head = {name.split(".")[0] for name, _ in model.named_parameters() if not _is_encoder(model, name)}
    pooler = {"pooler"} if getattr(model.base_model, "pooler", None) is not None else set()
    config = peft.LoraConfig(
        r=rank, lora_alpha=2 * rank, target_modules=list(LORA_TARGETS), modules_to_save=sorted(head | pooler)
    )
    return peft.get_peft_model(model, config)


def parameter_groups(
    model: nn.Module, decayed: Collection[str], learning_rate: float, weight_decay: float, layer_decay: float
) -> list[dict[str, Any]]:
    """Groups for an optimizer: what trains, each layer with its own rate.

    With L layers, the head learns at `learning_rate`, layer i (from 0) at `learning_rate` · layer_decay^(L - i), the
    embeddings at `learning_rate` · layer_decay^(L + 1): Clark et al. 2020 (ELECTRA, table 7), counted as in BEiT.

    Args:
        decayed: names of the parameters that `weight_decay` applies to.
    """
    names = [name for name, _ in model.named_parameters()]
    layers = 1 + max(int(found[1]) for name in names if (found := LAYER.search(name)))
    groups: dict[tuple[int, bool], dict[str, Any]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        found = LAYER.search(name)
        below = layers - int(found[1]) if found else layers + 1 if ".embeddings." in name else 0
        decays = name in decayed
        group = {
            "params": [],
            "lr": learning_rate * layer_decay**below,
            "weight_decay": weight_decay if decays else 0.0,
        }
        groups.setdefault((below, decays), group)["params"].append(parameter)
    return [groups[key] for key in sorted(groups)]  # the head first: the rate that `Trainer` logs is the first group's


def _is_encoder(model: PreTrainedModel, name: str) -> bool:
    return name.startswith(f"{model.base_model_prefix}.")
