"""What of a model is trained: frozen parts and low-rank updates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn
from transformers import PreTrainedModel

if TYPE_CHECKING:
    import peft


def freeze(model: PreTrainedModel, amount: str) -> list[nn.Module]:
    """Freeze a part of the encoder, so that autograd records nothing of it: "none"; "encoder": all but the head, which
    BERT's pooler belongs to; "N": the embeddings and the N lowest layers. The frozen modules, which must be kept in
    evaluation mode (see `FinetuningTrainer`): dropout would only be noise there."""
    encoder, frozen = model.base_model, []
    if amount == "encoder":
        frozen = [module for name, module in encoder.named_children() if name != "pooler"]
    elif amount != "none":
        frozen = [encoder.embeddings, *encoder.layers[: int(amount)]]
    for module in frozen:
        module.requires_grad_(False)
    return frozen


def add_lora(model: PreTrainedModel, rank: int) -> peft.PeftModel:
    """`model` with frozen weights and low-rank updates of all projections (Hu et al. 2021), scaled by 2; the head is
    trained as it is. `merge_and_unload()` makes an ordinary model of it again."""
    import peft

    names = [
        name.removeprefix(f"{model.base_model_prefix}.pooler").split(".")
        for name, _ in model.named_parameters()
    ]
    head = {first or "pooler" for first, *_ in names} - {model.base_model_prefix}
    config = peft.LoraConfig(
        target_modules=["Wqkv", "Wo", "Wi"],
        r=rank,
        lora_alpha=2 * rank,
        modules_to_save=sorted(head),
    )
    return peft.get_peft_model(model, config)
