"""Rows for new tokens in a trained model (`--extend_vocabulary`)."""

from collections.abc import Mapping, Sequence

import torch
from transformers import PreTrainedModel


@torch.no_grad()
def extend_embeddings(model: PreTrainedModel, pieces: Mapping[int, Sequence[int]]) -> None:
    """Give a model, in place, the tokens of an `Extension`. The vector of each starts as the mean of those of its
    `pieces` (the word then means about what it meant in pieces), and so does what the decoder has for it: its bias, and
    its weights where they are not the vectors. All other numbers stay as they are.

    The vocabulary grows to the last new token, where it was not larger already.
    """
    size = max(model.config.vocab_size, max(pieces) + 1)
    model.resize_token_embeddings(size, mean_resizing=False)
    tables, decoder = [model.get_input_embeddings().weight], model.get_output_embeddings()
    if decoder is not None:
        tables += [decoder.weight] * (decoder.weight is not tables[0])
        tables += [decoder.bias] * (decoder.bias is not None)
    for table in tables:
        for token, old in pieces.items():
            table[token] = table[list(old)].mean(dim=0)
