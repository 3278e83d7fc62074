"""Word vectors of which only those that occur in training are trained.

The other rows of the table never get a gradient, yet an optimizer reads and writes every one of them, with two moments
each, at every step: 6 % of the time of a small model with few texts. (Weight decay also shrinks them, though training
says nothing about them. Here they stay as they are.)
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from ...modeling_minibert import MiniBertPreTrainedModel


class SeenEmbedding(nn.Embedding):
    """An embedding that trains some rows of its table, as the parameter `seen`, [rows, width]; its `weight` is frozen.

    Its state is that of the `nn.Embedding` it stands for (`weight`, [vocabulary, width]), so that checkpoints are
    ordinary ones.

    Args:
        ids: the rows that train, int64 [rows], each once; not the padding's.
    """

    def __init__(self, embedding: nn.Embedding, ids: torch.Tensor):
        table = embedding.weight.detach()
        super().__init__(*table.shape, padding_idx=embedding.padding_idx, _weight=table, _freeze=True)
        place = torch.full((len(table),), -1, device=table.device)
        place[ids] = torch.arange(len(ids), device=table.device)
        self.register_buffer("ids", ids.to(table.device), persistent=False)
        self.register_buffer("place", place, persistent=False)  # [vocabulary]: the row in `seen`, or -1
        self.seen = nn.Parameter(table[self.ids])
        self.register_state_dict_post_hook(_as_embedding)
        self.register_load_state_dict_pre_hook(_from_embedding)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        place = self.place[input_ids]
        trained = F.embedding(place.clamp(0), self.seen)
        return torch.where((place < 0).unsqueeze(-1), super().forward(input_ids), trained)

    def whole(self) -> torch.Tensor:
        """The table as it stands, [vocabulary, width]."""
        return self.weight.detach().index_copy(0, self.ids, self.seen.detach())


def _as_embedding(module: SeenEmbedding, state: dict, prefix: str, local_metadata: dict) -> None:
    del state[prefix + "seen"]
    state[prefix + "weight"] = module.whole()


def _from_embedding(module: SeenEmbedding, state: dict, prefix: str, *args) -> None:
    if prefix + "weight" in state:
        state[prefix + "seen"] = state[prefix + "weight"][module.ids]


def train_seen_rows(model: PreTrainedModel, rows: Iterable[dict]) -> None:
    """Replace the word vectors of a MiniBERT, if they train at all, by a `SeenEmbedding` of the ids in the encoded
    `rows`. An embedding that is more than a plain one (offloaded, pruned, with hooks) stays: all that would be lost."""
    embedding = model.get_input_embeddings()
    if not isinstance(model, MiniBertPreTrainedModel) or type(embedding) is not nn.Embedding:
        return
    weight = dict(embedding.named_parameters()).get("weight")  # pruning makes another parameter of it
    hooks = embedding._forward_pre_hooks or embedding._forward_hooks or embedding._backward_hooks
    if weight is None or not weight.requires_grad or weight.is_meta or hooks or hasattr(embedding, "_hf_hook"):
        return
    seen = torch.zeros(embedding.num_embeddings, dtype=torch.bool)
    for row in rows:
        ids = row["input_ids"]
        for part in ids if ids and isinstance(ids[0], list) else [ids]:  # of multiple choice, a list a choice
            seen[part] = True
    if embedding.padding_idx is not None:
        seen[embedding.padding_idx] = False
    model.set_input_embeddings(SeenEmbedding(embedding, seen.nonzero().squeeze(1)))


def restore_embedding(model: PreTrainedModel) -> None:
    """Undo `train_seen_rows`: an ordinary embedding, with what was learned."""
    seen = model.get_input_embeddings()
    if isinstance(seen, SeenEmbedding):
        plain = nn.Embedding.from_pretrained(seen.whole(), freeze=False, padding_idx=seen.padding_idx)
        model.set_input_embeddings(plain)
