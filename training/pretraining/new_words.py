"""The embeddings of words that are added to the vocabulary of a trained model."""

from collections.abc import Mapping, Sequence

import torch
from transformers import PreTrainedModel


@torch.no_grad()
def extend_embeddings(model: PreTrainedModel, pieces: Mapping[int, Sequence[int]]) -> None:
    """Add the tokens of an `Extension` to a model, in place. The embedding of each starts as the
    mean of those of its `pieces`, and so do its bias and, if they are not tied, its weights in the
    decoder. All other numbers stay. The vocabulary grows to the last new token if it is not larger
    already."""
    size = max(model.config.vocab_size, max(pieces) + 1)
    model.resize_token_embeddings(size, mean_resizing=False)
    embedding = model.get_input_embeddings().weight
    tables = [embedding]
    decoder = model.get_output_embeddings()
    if decoder is not None and decoder.weight is not embedding:
        tables.append(decoder.weight)
    if decoder is not None and decoder.bias is not None:
        tables.append(decoder.bias)
    for table in tables:
        for token, piece_ids in pieces.items():
            table[token] = table[list(piece_ids)].mean(dim=0)
