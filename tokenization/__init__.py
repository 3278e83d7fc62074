"""Tokenizers: train one from any text, give one the words of a domain, know what it keeps of a
text, and which of its tokens begin a word."""

from .adapt import (
    adapt_tokenizer,
    check_fast,
    check_mask_token,
    plain_tokenizer,
    special_ids,
    tokenizer_json,
)
from .coverage import Coverage, check_coverage, check_loaded_tokenizer, measure_coverage
from .extend import Extension, extend_tokenizer
from .tokenizer_file import (
    sample_ids,
    sample_ids_of_file,
    tokenizer_with_ids_of_file,
    tokens_with_capitals,
)
from .train import train_tokenizer
from .words import regular_tokens, word_start_table

__all__ = [
    "Coverage",
    "Extension",
    "adapt_tokenizer",
    "check_coverage",
    "check_fast",
    "check_loaded_tokenizer",
    "check_mask_token",
    "extend_tokenizer",
    "measure_coverage",
    "plain_tokenizer",
    "regular_tokens",
    "sample_ids",
    "sample_ids_of_file",
    "special_ids",
    "tokenizer_json",
    "tokenizer_with_ids_of_file",
    "tokens_with_capitals",
    "train_tokenizer",
    "word_start_table",
]
