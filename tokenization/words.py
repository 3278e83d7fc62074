"""Which tokens begin a word: a table over the vocabulary, so that whole words need no extra column beside the ids."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from tokenizers import decoders, models
from transformers import PreTrainedTokenizerFast


def word_start_table(tokenizer: PreTrainedTokenizerFast) -> np.ndarray:
    """Tell for every token whether it begins a word: a bool array of shape [len(tokenizer)], indexed by token id.

    A word of a row is a token that begins one, with the tokens after it up to the next that does. The caller begins a
    word at the start of a text and after a special token too, where the first token may lack the mark of a new word.

    How words begin is read from the tokenizer's backend:

    - A model with a prefix for continuing pieces (WordPiece and its `##`): every token without it, and every token of a
      model without subwords (`WordLevel`). These words are those of `encoding.word_ids()`, exactly.
    - A byte-level or Metaspace pre-tokenizer (GPT-2, RoBERTa, XLM-R, ours): every token that the pre-tokenizer splits
      off a letter and off a digit when it follows them. So a token with the mark of a space (`Ġ`, `▁`) begins a word; a
      punctuation token without it does so under GPT-2's split, which keeps punctuation apart, and not under XLM-R's
      split at spaces; a piece of letters or digits does not, nor does part of a multi-byte character.
    - Special and other added tokens stand for themselves: each begins a word.

    In the second case one bit a token cannot tell whether letters without a mark follow letters of the same word or a
    bracket. They are taken to continue, so that a word here is one or several whole words of `word_ids()` ("well-known"
    is "well" and "-known"). No word of `word_ids()` with a letter or digit in it is ever divided; a run of punctuation
    or of whitespace may be.

    Raises:
        ValueError: If the tokenizer has no fast backend, or one whose words cannot be told from single tokens.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ValueError(f"tokenizer is of type {type(tokenizer).__name__}: it must be a fast one, with a backend")
    added = backend.get_added_tokens_decoder()
    vocab = backend.get_vocab(with_added_tokens=True)
    starts = np.ones(len(tokenizer), dtype=bool)

    model = backend.model
    prefix = getattr(model, "continuing_subword_prefix", None)
    if prefix:
        for token, index in vocab.items():
            starts[index] = index in added or not token.startswith(prefix)
    elif not isinstance(model, models.WordLevel):
        decoder = _piece_decoder(backend)
        for token, index in vocab.items():
            starts[index] = index in added or _is_split_off(decoder.decode([token]), backend.pre_tokenizer)
    return starts


def _is_split_off(text: str, pre_tokenizer: Any) -> bool:
    """Whether `pre_tokenizer` ends a word before `text` when a letter or a digit stands before it."""
    if text.startswith("\N{REPLACEMENT CHARACTER}"):  # bytes that are no whole character
        return False
    return all(pre_tokenizer.pre_tokenize_str(before + text)[0][1][1] == 1 for before in "a0")


def _piece_decoder(backend: Any) -> decoders.Decoder:
    """What turns one piece of the backend's model into the text it stands for, spaces included."""
    suffix = getattr(backend.model, "end_of_word_suffix", None)
    if suffix:
        raise ValueError(f"tokenizer marks the end of words, with {suffix!r}: which tokens begin one cannot be told")
    steps = json.loads(backend.to_str())["pre_tokenizer"]
    steps = {step["type"]: step for step in (steps or {}).get("pretokenizers", [steps] if steps else [])}
    if "ByteLevel" in steps:
        return decoders.ByteLevel()
    if "Metaspace" in steps:
        return decoders.Sequence([decoders.Replace(steps["Metaspace"]["replacement"], " "), decoders.ByteFallback()])
    raise ValueError(
        f"tokenizer of model {type(backend.model).__name__} with pre-tokenizer {', '.join(steps) or 'none'} marks neither"
        " the beginning nor the continuation of words: it must have a continuing prefix, or a ByteLevel or Metaspace"
        " pre-tokenizer"
    )
