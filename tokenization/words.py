"""Which tokens begin a word: a table over the vocabulary, so that whole words need no extra column
beside the ids."""

import re
from typing import Any

import numpy as np
from tokenizers import decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from .adapt import check_fast

# The scripts from Thai to Burmese, Khmer, Chinese and Japanese, which have no spaces between words;
# with their marks.
UNSPACED = re.compile(
    "[\u0e00-\u109f\u1780-\u17ff\u3001-\u30ff\u3400-\u9fff\uf900-\ufaff\uff01-\uffef"
    "\U00020000-\U0003ffff]"
)


def word_start_table(tokenizer: PreTrainedTokenizerFast) -> np.ndarray:
    """Whether each token begins a word: bool, indexed by token id, [highest id + 1]. A word is a
    token that begins one, with those after it up to the next that does; the caller begins one at
    the start of a text and after a special token too, where the mark of a new word may lack.

    - With a prefix for continuing pieces (WordPiece's `##`), every token without it begins a word,
      as does every token of a model without subwords (`WordLevel`): the words of
      `encoding.word_ids()`.
    - With a byte-level or Metaspace pre-tokenizer (GPT-2, XLM-R, ours), every token begins one that
      the pre-tokenizer splits off a letter and off a digit before it: one with the mark of a space
      (`Ġ`, `▁`), punctuation under GPT-2's split, not under XLM-R's. Letters without a mark are
      taken to continue a word, even behind a hyphen: a word here is one or several of `word_ids()`,
      none of which with a letter or digit in it is ever divided.
    - Special and other added tokens begin a word each.

    A ValueError for a slow tokenizer, or one whose words cannot be told from single tokens.
    """
    check_fast(tokenizer)
    backend = tokenizer.backend_tokenizer
    added = backend.get_added_tokens_decoder()
    vocab = backend.get_vocab(with_added_tokens=True)
    starts = np.ones(max(vocab.values()) + 1, dtype=bool)
    prefix = getattr(backend.model, "continuing_subword_prefix", None)
    if prefix:
        for token, token_id in vocab.items():
            starts[token_id] = token_id in added or not token.startswith(prefix)
    elif not isinstance(backend.model, models.WordLevel):
        decoder = _piece_decoder(backend)
        for token, token_id in vocab.items():
            text = decoder.decode([token])
            starts[token_id] = token_id in added or _is_split_off(text, backend.pre_tokenizer)
    return starts


def regular_tokens(tokenizer: PreTrainedTokenizerFast) -> np.ndarray:
    """Which ids stand for text: bool [vocabulary], false for special tokens and for gaps between
    ids."""
    token_ids = list(tokenizer.get_vocab().values())
    regular = np.zeros(max(token_ids) + 1, dtype=bool)
    regular[token_ids] = True
    regular[tokenizer.all_special_ids] = False
    for token_id, token in tokenizer.added_tokens_decoder.items():
        if token.special:
            regular[token_id] = False
    return regular


def _is_split_off(text: str, pre_tokenizer: Any) -> bool:
    if text.startswith("\N{REPLACEMENT CHARACTER}"):  # bytes that are no whole character
        return False
    if text.startswith(" "):  # Llama's Metaspace marks spaces, and splits nothing
        return True
    return all(pre_tokenizer.pre_tokenize_str(before + text)[0][1][1] == 1 for before in "a0")


def _piece_decoder(backend: Any) -> decoders.Decoder:
    """From one piece of the backend's model to its text, spaces included."""
    steps = [backend.pre_tokenizer]
    if isinstance(backend.pre_tokenizer, pre_tokenizers.Sequence):
        steps = list(backend.pre_tokenizer)
    step_by_name = {type(step).__name__: step for step in steps}
    if not getattr(backend.model, "end_of_word_suffix", None):
        if "ByteLevel" in step_by_name:
            return decoders.ByteLevel()
        if "Metaspace" in step_by_name:
            space = step_by_name["Metaspace"].replacement
            return decoders.Sequence([decoders.Replace(space, " "), decoders.ByteFallback()])
    raise ValueError(
        "masking: the tokenizer does not mark where words begin (by a prefix for continuing"
        " pieces, or a ByteLevel or Metaspace pre-tokenizer); use token"
    )
