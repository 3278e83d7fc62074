"""What of a model is trained: frozen parts and low-rank updates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn
from transformers import PreTrainedModel

if TYPE_CHECKING:
    import peft


def freeze(model: PreTrainedModel, amount: str) -> list[nn.Module]:
    """Freeze a part of the encoder, so that autograd records nothing of it: "none"; "encoder": all
    but the head, which BERT's pooler belongs to; "N": the embeddings and the N lowest layers. The
    frozen modules, which must be kept in evaluation mode (see `FinetuningTrainer`): dropout would
    only be noise there."""
    encoder = model.base_model
    frozen_modules = []
    if amount == "encoder":
        for name, module in encoder.named_children():
            if name != "pooler":
                frozen_modules.append(module)
    elif amount != "none":
        frozen_modules = [encoder.embeddings, *encoder.layers[: int(amount)]]
    for module in frozen_modules:
        module.requires_grad_(False)
    return frozen_modules


def add_lora(model: PreTrainedModel, rank: int) -> peft.PeftModel:
    """`model` with frozen weights and low-rank updates of all projections (Hu et al. 2021), scaled
    by 2; the head is trained as it is. `merge_and_unload()` makes an ordinary model of it again."""
    import peft

    head_modules = set()
    for parameter_name, _ in model.named_parameters():
        first, *others = parameter_name.split(".")
        if first != model.base_model_prefix:
            head_modules.add(first)
        elif others[0] == "pooler":
            head_modules.add("pooler")
    config = peft.LoraConfig(
        target_modules=["Wqkv", "Wo", "Wi"],
        r=rank,
        lora_alpha=2 * rank,
        modules_to_save=sorted(head_modules),
    )
    return peft.get_peft_model(model, config)
