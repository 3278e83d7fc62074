"""Tokenizers: train one from any text, and know which of its tokens begin a word."""

from .train import train_tokenizer
from .words import word_start_table

__all__ = ["train_tokenizer", "word_start_table"]
