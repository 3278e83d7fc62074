"""Embedding models to test with, as sentence-transformers saves them."""

import torch
from transformers import BertConfig, BertModel

from minibert.training.cli import main as cli

MAX_LENGTH = 12


def random_bert(tokenizer, model_class=BertModel, seed: int = 0, **fields):
    """Weights large enough for every detail to show in the vectors."""
    torch.manual_seed(seed)
    shape = dict(hidden_size=32, num_hidden_layers=5, num_attention_heads=4, intermediate_size=48)
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=64, initializer_range=0.3, **shape | fields)
    return model_class(config).eval()


def convert(source, target) -> str:
    assert cli.main(["convert", str(source), str(target)]) == 0
    return str(target)
