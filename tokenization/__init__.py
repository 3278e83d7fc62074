"""Tokenizers: train one from any text, give one the words of a domain, know what it keeps of a text, and which of its
tokens begin a word."""

from .coverage import Coverage, check_coverage, check_tokenizer, measure_coverage
from .extend import Extension, extend_tokenizer
from .train import train_tokenizer
from .words import word_start_table

__all__ = [
    "Coverage",
    "Extension",
    "check_coverage",
    "check_tokenizer",
    "extend_tokenizer",
    "measure_coverage",
    "train_tokenizer",
    "word_start_table",
]
