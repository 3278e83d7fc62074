"""What of a model is trained, and how fast each part learns: frozen parts, low-rank updates, layer-wise rates.

Works on MiniBERT and on Transformers' BERT and ModernBERT alike, so that they can be compared.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from torch import nn
from transformers import PreTrainedModel, Trainer

from ..arguments.finetuning import FinetuneArguments

if TYPE_CHECKING:
    import peft

LAYER = re.compile(r"\.(?:layers|encoder\.layer)\.(\d+)\.")


def check_freezing(arguments: FinetuneArguments, layers: int) -> None:
    """Refuse what no model of `layers` layers can be trained with (a ValueError; `lora` needs the package peft)."""
    freeze, lora, decay = arguments.freeze or "none", arguments.lora, arguments.layerwise_lr_decay
    if lora is not None:
        import peft  # noqa: F401 - missing it is told before any work
    if freeze not in ("none", "encoder", *map(str, range(1, layers + 1))):
        use = f"none, encoder or a number from 1 to {layers}"
        raise ValueError(f"freeze: {freeze!r} is no part of the model; use {use}")
    if lora is not None and lora < 1:
        raise ValueError(f"lora: {lora} is no rank; use 1 or more")
    if lora is not None and freeze != "none":
        raise ValueError(f"lora: {lora} freezes the encoder's own weights already; leave out --freeze {freeze}")
    if not 0 < decay <= 1:
        raise ValueError(f"layerwise_lr_decay: {decay} is out of range; use a share above 0, up to 1")
    if decay < 1 and freeze == "encoder":
        raise ValueError(f"layerwise_lr_decay: {decay} has no effect with --freeze encoder: no layer trains")


def freeze(model: PreTrainedModel, amount: str) -> list[nn.Module]:
    """Freeze a part of the encoder, so that autograd records nothing of it.

    Args:
        amount: "none"; "encoder": all but the head, which BERT's pooler belongs to; "N": the embeddings and the N
            lowest layers.

    Returns:
        the frozen modules. They must be kept in evaluation mode, see `TaskTrainer`: dropout would only be noise there.
    """
    encoder, frozen = model.base_model, []
    if amount == "encoder":
        frozen = [module for name, module in encoder.named_children() if name != "pooler"]
    elif amount != "none":
        layers = encoder.layers if hasattr(encoder, "layers") else encoder.encoder.layer
        frozen = [encoder.embeddings, *layers[: int(amount)]]
    for module in frozen:
        module.requires_grad_(False)
    return frozen


def add_lora(model: PreTrainedModel, rank: int) -> peft.PeftModel:
    """`model` with frozen weights and low-rank updates of all projections (Hu et al. 2021), scaled by 2; the head is
    trained as it is. `merge_and_unload()` makes an ordinary model of it again."""
    import peft

    names = [name.removeprefix(f"{model.base_model_prefix}.pooler").split(".") for name, _ in model.named_parameters()]
    head = {first or "pooler" for first, *_ in names} - {model.base_model_prefix}
    config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, modules_to_save=sorted(head))
    return peft.get_peft_model(model, config)


def parameter_groups(
    model: nn.Module, learning_rate: float, weight_decay: float, layer_decay: float
) -> list[dict[str, Any]]:
    """Groups for an optimizer: what trains, each layer with its own rate, with weight decay where `Trainer` has it.

    With L layers, the head learns at `learning_rate`, layer i (from 0) at `learning_rate` · layer_decay^(L - i), the
    embeddings at `learning_rate` · layer_decay^(L + 1): Clark et al. 2020 (ELECTRA, table 7), counted as in BEiT.
    """
    decayed = Trainer.get_decay_parameter_names(None, model)
    layers = 1 + max(int(found[1]) for name, _ in model.named_parameters() if (found := LAYER.search(name)))
    groups: dict[tuple[int, bool], list[nn.Parameter]] = defaultdict(list)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            found = LAYER.search(name)
            below = layers - int(found[1]) if found else layers + 1 if ".embeddings." in name else 0
            groups[below, name in decayed].append(parameter)
    # The head first: the rate that `Trainer` logs is the first group's.
    return [
        {"params": groups[key], "lr": learning_rate * layer_decay ** key[0], "weight_decay": weight_decay * key[1]}
        for key in sorted(groups)
    ]
