"""What of a model is trained, and how fast each part learns: frozen parts, low-rank updates, layer-wise rates, and the
word vectors that occur in training. All but the last work on Transformers' BERT and ModernBERT too, for comparison."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import datasets
import pyarrow.compute as pc
import torch
from torch import nn
from torch.nn import functional as F
from transformers import PreTrainedModel, Trainer, TrainingArguments

from ...modeling_minibert import MiniBertPreTrainedModel

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


class SeenEmbedding(nn.Embedding):
    """An embedding that trains the rows `ids` of its table (int64, each once; not the padding's) as the parameter
    `seen`, [rows, width]; its `weight` is frozen. Its state is that of the `nn.Embedding` it stands for (`weight`,
    [vocabulary, width]), so that checkpoints are ordinary ones.

    The other rows never get a gradient, yet an optimizer would read and write them, with two moments each, at every
    step: 6 % of the time of a small model with few texts; and weight decay would shrink them.
    """

    def __init__(self, embedding: nn.Embedding, ids: torch.Tensor):
        table = embedding.weight.detach()
        super().__init__(*table.shape, padding_idx=embedding.padding_idx, _weight=table, _freeze=True)
        place = torch.full((len(table),), -1, device=table.device)
        place[ids] = torch.arange(len(ids), device=table.device)
        self.register_buffer("ids", ids.to(table.device), persistent=False)
        self.register_buffer("place", place, persistent=False)  # [vocabulary]: the row in `seen`, or -1
        self.seen = nn.Parameter(table[self.ids])

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        place = self.place[input_ids]
        trained = F.embedding(place.clamp(0), self.seen)
        return torch.where((place < 0).unsqueeze(-1), super().forward(input_ids), trained)

    def whole(self) -> torch.Tensor:
        """The table as it stands, [vocabulary, width]."""
        return self.weight.detach().index_copy(0, self.ids, self.seen.detach())

    def _save_to_state_dict(self, state: dict, prefix: str, keep_vars: bool) -> None:
        state[prefix + "weight"] = self.whole()

    def _load_from_state_dict(self, state: dict, prefix: str, *args) -> None:
        if prefix + "weight" in state:
            table = state[prefix + "weight"]  # read on the CPU, wherever the model is
            state[prefix + "seen"] = table[self.ids.to(table.device)]
        super()._load_from_state_dict(state, prefix, *args)


def train_seen_rows(model: PreTrainedModel, rows: datasets.Dataset) -> None:
    """Replace the word vectors of a MiniBERT that is just loaded, if they train at all, by a `SeenEmbedding` of the ids
    in the encoded `rows`."""
    embedding = model.get_input_embeddings()
    if not isinstance(model, MiniBertPreTrainedModel) or not embedding.weight.requires_grad:
        return
    column = rows.select_columns("input_ids").with_format("arrow")[:]["input_ids"]
    ids = pc.list_flatten(column, recursive=True)  # of choices, lists in lists
    seen = torch.tensor(sorted({*ids.unique().to_pylist()} - {embedding.padding_idx}), dtype=torch.int64)
    model.set_input_embeddings(SeenEmbedding(embedding, seen))


def restore_embedding(model: PreTrainedModel) -> None:
    """Undo `train_seen_rows`: an ordinary embedding, with what was learned."""
    if isinstance(seen := model.get_input_embeddings(), SeenEmbedding):
        plain = nn.Embedding.from_pretrained(seen.whole(), freeze=False, padding_idx=seen.padding_idx)
        model.set_input_embeddings(plain)
