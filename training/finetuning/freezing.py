"""What of a model is trained, and how fast each part learns: frozen parts, low-rank updates and layer-wise rates."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from torch import nn
from transformers import PreTrainedModel, Trainer, TrainingArguments

if TYPE_CHECKING:
    import peft

LAYER = re.compile(r"\.(?:layers|encoder\.layer)\.(\d+)\.")


def freeze(model: PreTrainedModel, amount: str) -> list[nn.Module]:
    """Freeze a part of the encoder, so that autograd records nothing of it: "none"; "encoder": all but the head, which
    BERT's pooler belongs to; "N": the embeddings and the N lowest layers. The frozen modules, which must be kept in
    evaluation mode (see `TaskTrainer`): dropout would only be noise there."""
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
    config = peft.LoraConfig(
        target_modules=["Wqkv", "Wo", "Wi"], r=rank, lora_alpha=2 * rank, modules_to_save=sorted(head)
    )
    return peft.get_peft_model(model, config)


def parameter_groups(model: nn.Module, training: TrainingArguments, layer_decay: float) -> list[dict[str, Any]]:
    """Groups for an optimizer: what trains, each layer with its own rate, with weight decay where `Trainer` has it.

    With L layers, the head learns at the learning rate, layer i (from 0) at layer_decay^(L - i) times that, the
    embeddings at layer_decay^(L + 1) times that: Clark et al. 2020 (ELECTRA, table 7), counted as in BEiT.
    """
    decayed = Trainer.get_decay_parameter_names(None, model)
    layers = 1 + max(int(found[1]) for name, _ in model.named_parameters() if (found := LAYER.search(name)))
    groups: dict[tuple[int, bool], list[nn.Parameter]] = defaultdict(list)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            found = LAYER.search(name)
            below = layers - int(found[1]) if found else layers + 1 if ".embeddings." in name else 0
            groups[below, name in decayed].append(parameter)
    rate, decay = training.learning_rate, training.weight_decay
    # The head first: the rate that `Trainer` logs is the first group's.
    return [
        {"params": groups[below, decays], "lr": rate * layer_decay**below, "weight_decay": decay * decays}
        for below, decays in sorted(groups)
    ]
