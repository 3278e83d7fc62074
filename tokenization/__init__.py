"""Tokenizers: train one from any text, give one the words of a domain, and know which of its tokens begin a word."""

from .extend import Extension, extend_tokenizer
from .train import train_tokenizer
from .words import word_start_table

__all__ = ["Extension", "extend_tokenizer", "train_tokenizer", "word_start_table"]
