"""Which tokens begin a word: a table over the vocabulary, so that whole words need no extra column beside the ids."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from tokenizers import decoders, models
from transformers import PreTrainedTokenizerFast


def word_start_table(tokenizer: PreTrainedTokenizerFast) -> np.ndarray:
    """Tell for every token whether it begins a word: a bool array indexed by token id.

    Its shape is [len(tokenizer)], or up to the highest id where a vocabulary has gaps.

    A word of a row is a token that begins one, with the tokens after it up to the next that does. The caller begins a
    word at the start of a text and after a special token too, where the first token may lack the mark of a new word.

    How words begin is read from the tokenizer's backend:

    - A model with a prefix for continuing pieces (WordPiece and its `##`): every token without it begins a word, and
      so does every token of a model without subwords (`WordLevel`). These are the words of `encoding.word_ids()`.
    - A byte-level or Metaspace pre-tokenizer (GPT-2, RoBERTa, XLM-R, ours): every token that the pre-tokenizer splits
      off a letter, and off a digit, when it follows them. So a token with the mark of a space (`Ġ`, `▁`) begins a
      word; a punctuation token without it does under GPT-2's split, which keeps punctuation apart, and does not under
      XLM-R's split at spaces; a piece of letters or digits does not, nor does part of a multi-byte character.
    - Special and other added tokens stand for themselves: each begins a word.

    In the second case one bit a token cannot tell whether letters without a mark follow letters of the same word or,
    say, a hyphen. They are taken to continue, so a word here is one or several whole words of `word_ids()`:
    "well-known" is "well" and "-known". No word of `word_ids()` with a letter or a digit in it is ever divided; a run
    of punctuation or of whitespace may be.

    Raises:
        ValueError: If the tokenizer has no fast backend, or one whose words cannot be told from single tokens.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ValueError(f"tokenizer is of type {type(tokenizer).__name__}: it must be a fast one, with a backend")
    added = backend.get_added_tokens_decoder()
    vocab = backend.get_vocab(with_added_tokens=True)
    starts = np.ones(max(vocab.values()) + 1, dtype=bool)

    prefix = getattr(backend.model, "continuing_subword_prefix", None)
    if prefix:
        for token, index in vocab.items():
            starts[index] = index in added or not token.startswith(prefix)
    elif not isinstance(backend.model, models.WordLevel):
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
    steps = {step["type"]: step for step in _flattened(json.loads(backend.to_str())["pre_tokenizer"])}
    if "ByteLevel" in steps:
        return decoders.ByteLevel()
    if "Metaspace" in steps:
        return decoders.Sequence([decoders.Replace(steps["Metaspace"]["replacement"], " "), decoders.ByteFallback()])
    raise ValueError(
        f"tokenizer of model {type(backend.model).__name__} with pre-tokenizer {', '.join(steps) or 'none'} marks no"
        " words: it must have a prefix for continuing pieces, or a ByteLevel or Metaspace pre-tokenizer"
    )


def _flattened(step: dict | None) -> list[dict]:
    """The single steps of a pre-tokenizer's JSON, which nests sequences."""
    if step is None or step["type"] != "Sequence":
        return [step] if step else []
    return [inner for part in step["pretokenizers"] for inner in _flattened(part)]
