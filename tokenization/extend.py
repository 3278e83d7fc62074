"""Give a tokenizer the words of a domain, so that it no longer cuts them, and leave the rest as it
is cut."""

import dataclasses
import hashlib
import json
import math
import re
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Iterable, Set
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ..option_checks import checked_keywords
from .adapt import check_fast, untruncated_backend
from .check_texts import check_text, check_texts
from .words import UNSPACED

# What a new Unigram piece is worth more than the pieces it replaces, for each piece saved: far
# below what tells two ways to cut a word apart, far above rounding.
SCORE_PER_SAVED_PIECE = 1e-6
# The share of the texts that new words are measured on.
HELD_OUT_SHARE = 0.1
MODEL_TYPES = ("WordPiece", "BPE", "Unigram")
BYTE_PIECE = re.compile(r"<0x[0-9A-F]{2}>")


@dataclasses.dataclass(frozen=True, repr=False)
class Extension:
    """An extended tokenizer, and what the new words are worth in text that was held out when they
    were chosen."""

    tokenizer: PreTrainedTokenizerFast
    # For the id of each new token the ids of the pieces that its word was cut into; the most useful
    # word first.
    pieces: dict[int, list[int]]
    # Tokens a word (between spaces) of the held-out text, by the tokenizer before; None if no text
    # was held out.
    fertility_before: float | None
    # The same by the extended tokenizer.
    fertility_after: float | None
    # New words that occur in the held-out text.
    num_used: int

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.pieces)} new tokens, {len(self.tokenizer)} in all)"

    @property
    def fertility(self) -> tuple[float | None, float | None]:
        """`fertility_before` and `fertility_after`."""
        return self.fertility_before, self.fertility_after

    @property
    def used(self) -> int:
        """`num_used`."""
        return self.num_used

    def metrics(self) -> dict[str, float | None]:
        return {
            "added": len(self.pieces),
            "used": self.num_used,
            "fertility_before": self.fertility_before,
            "fertility_after": self.fertility_after,
        }

    def describe(self) -> str:
        first_ids = list(self.pieces)[:8]
        first_words = ", ".join(self.tokenizer.convert_ids_to_tokens(first_ids))
        before = self.fertility_before
        after = self.fertility_after
        if before is None:  # no text was held out
            before = math.nan
            after = math.nan
        return (
            f"{len(self.pieces):,} words added to the vocabulary ({first_words} …). In held-out"
            f" text: {before:.3f} tokens a word before, {after:.3f} after;"
            f" {self.num_used:,} of the new words occur there"
        )


@checked_keywords
def extend_tokenizer(
    tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], words: int, min_count: int = 3
) -> Extension:
    """Add the words of `texts` whose cutting costs most tokens (how often they occur × the pieces
    that each of them is cut into beyond the first), as new tokens behind all ids that are there. A
    tenth of the texts, chosen by their hash, is left out of the count, and the gain is measured
    there.

    A word is what the tokenizer's own split leaves whole, of letters, marks and digits. Left out
    are those with a character that the tokenizer does not know, added tokens, which it has, and
    words of scripts without spaces (Thai, Lao, Khmer, Burmese, Chinese, Japanese): the split leaves
    whole clauses of these. How they are added:

    - WordPiece: as entries of the vocabulary. A longer word that begins with one is then cut behind
      it.
    - BPE: as entries that match a whole word before any merge (`ignore_merges`); no other word
      changes, unless the vocabulary had it and no merges led there.
    - Unigram: as pieces with the score of those they replace, and a trace more. Within other words
      a new piece only stands where all of its own pieces stood side by side.

    Args:
        texts: Read once.
        words: How many; fewer if no others are cut.
        min_count: How often a word must occur.

    Raises:
        ValueError: `words` below 1, a tokenizer of another kind, or no word that it cuts.
    """
    if words < 1:
        raise ValueError(f"extend_vocabulary: {words} words; use at least 1")
    check_texts(texts)
    check_fast(tokenizer)
    check_extendable(tokenizer)
    backend = tokenizer.backend_tokenizer
    counts = _count_words(backend, texts)
    chosen = _choose_words(tokenizer, counts.to_choose_from, words, min_count)
    if not chosen:
        raise ValueError(
            f"extend_vocabulary: the tokenizer cuts no word that occurs {min_count} times; leave it"
            " out (nor are words added of scripts without spaces, which its split does not find)"
        )

    pieces_of = {word: backend.model.tokenize(word) for word in chosen}
    first_id = max(backend.get_vocab(with_added_tokens=True).values()) + 1
    state = json.loads(backend.to_str())
    _add_words(state["model"], state["added_tokens"], pieces_of, first_id)
    extended = _reload(tokenizer, state)
    piece_ids = {}
    for token_id, word in enumerate(chosen, start=first_id):
        piece_ids[token_id] = [piece.id for piece in pieces_of[word]]
    fertility_before = None
    fertility_after = None
    if counts.num_held_out_words:
        tokens_before = _count_tokens(backend, counts.held_out)
        tokens_after = _count_tokens(extended.backend_tokenizer, counts.held_out)
        fertility_before = tokens_before / counts.num_held_out_words
        fertility_after = tokens_after / counts.num_held_out_words
    num_used = len(counts.held_out.keys() & set(chosen))
    return Extension(extended, piece_ids, fertility_before, fertility_after, num_used)


def check_extendable(tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuse (a ValueError) a tokenizer to which words cannot be added without another change."""
    backend = tokenizer.backend_tokenizer
    model_type = type(backend.model).__name__
    marks_word_ends = bool(getattr(backend.model, "end_of_word_suffix", None))
    if model_type not in MODEL_TYPES or marks_word_ends or backend.pre_tokenizer is None:
        raise ValueError(
            f"tokenizer: this {model_type} cannot be extended; use one of {', '.join(MODEL_TYPES)},"
            " with a pre-tokenizer that splits text, and no mark of the end of a word"
        )


class WordCounts(NamedTuple):
    """How often each piece of text occurs that the model cuts by itself."""

    to_choose_from: Counter[str]
    held_out: Counter[str]
    num_held_out_words: int  # between spaces


def _count_words(backend: Tokenizer, texts: Iterable[str]) -> WordCounts:
    """Count the pieces in the texts to choose from and in those held out; equal texts are on one
    side."""
    to_choose_from: Counter[str] = Counter()
    held_out: Counter[str] = Counter()
    num_held_out_words = 0
    for index, text in enumerate(texts):
        check_text(text, index)
        first_byte = hashlib.blake2b(text.encode(), digest_size=1).digest()[0]
        is_held_out = first_byte < 256 * HELD_OUT_SHARE
        if is_held_out:
            num_held_out_words += len(text.split())
        if backend.normalizer is not None:
            text = backend.normalizer.normalize_str(text)
        pieces = [piece for piece, _ in backend.pre_tokenizer.pre_tokenize_str(text)]
        counter = held_out if is_held_out else to_choose_from
        counter.update(pieces)
    return WordCounts(to_choose_from, held_out, num_held_out_words)


def _choose_words(
    tokenizer: PreTrainedTokenizerBase, counts: Counter[str], num_words: int, min_count: int
) -> list[str]:
    """The words that save most tokens, best first."""
    backend = tokenizer.backend_tokenizer
    saved_tokens = {}
    for word, count in counts.items():
        if count < min_count:
            continue
        pieces = backend.model.tokenize(word)
        if len(pieces) > 1 and _reads_all(pieces, tokenizer.unk_token_id):
            saved_tokens[word] = count * (len(pieces) - 1)
    plain = untruncated_backend(tokenizer)
    added_ids = plain.get_added_tokens_decoder().keys()
    words = [piece for piece in saved_tokens if _is_word(piece, plain, added_ids)]
    words.sort(key=lambda word: (-saved_tokens[word], word))
    return words[:num_words]


def _reads_all(pieces: Iterable[Any], unknown_id: int | None) -> bool:
    """Whether no piece stands for a character that the tokenizer does not know."""
    for piece in pieces:
        if piece.id == unknown_id or BYTE_PIECE.fullmatch(piece.value):
            return False
    return True


def _count_tokens(backend: Tokenizer, counts: Counter[str]) -> int:
    total = 0
    for word, count in counts.items():
        total += count * len(backend.model.tokenize(word))
    return total


def _is_word(piece: str, backend: Tokenizer, added: Set[int]) -> bool:
    """Letters, marks and digits, with a letter among them; behind the mark of a space, if it has
    one. No added token is in it (those are found in a text before its words), and nothing of a
    script without spaces."""
    text = piece
    if backend.decoder is not None:
        text = backend.decoder.decode([piece])
    text = text.strip()
    categories = {unicodedata.category(character)[0] for character in text}
    if "L" not in categories or not categories <= {"L", "M", "N"}:
        return False
    if UNSPACED.search(text):
        return False
    return added.isdisjoint(backend.encode(text, add_special_tokens=False).ids)


def _add_words(
    model: dict[str, Any],
    added_tokens: list[dict[str, Any]],
    pieces_of: dict[str, list[Any]],
    first_id: int,
) -> None:
    """Put words into the saved state of a model, behind the added tokens: those become a part of
    its vocabulary, as they would else be numbered anew.

    Args:
        model: As in tokenizer.json.
        added_tokens: As in tokenizer.json.
        pieces_of: The pieces that each new word was cut into.
        first_id: Of the first new word.
    """
    if model["type"] == "Unigram":
        _add_unigram_pieces(model["vocab"], added_tokens, pieces_of, first_id)
        return
    for token in added_tokens:
        model["vocab"][token["content"]] = token["id"]
    for token_id, word in enumerate(pieces_of, start=first_id):
        model["vocab"][word] = token_id
    if model["type"] == "BPE":
        model["ignore_merges"] = True


def _add_unigram_pieces(
    vocab: list[list[Any]],
    added_tokens: list[dict[str, Any]],
    pieces_of: dict[str, list[Any]],
    first_id: int,
) -> None:
    """Add words to a list of [piece, score], in which the position is the id."""
    scores = [score for _, score in vocab]
    lowest_score = min(scores)
    content_of = {token["id"]: token["content"] for token in added_tokens}
    for token_id in range(len(vocab), first_id):
        vocab.append([content_of[token_id], lowest_score])
    for word, pieces in pieces_of.items():
        score = sum(scores[piece.id] for piece in pieces)
        vocab.append([word, score + SCORE_PER_SAVED_PIECE * (len(pieces) - 1)])


def _reload(tokenizer: PreTrainedTokenizerBase, state: dict[str, Any]) -> PreTrainedTokenizerFast:
    """The tokenizer with another state. A class such as `RobertaTokenizer` would build a state of
    its own from the vocabulary; `PreTrainedTokenizerFast` takes it as it is."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        Path(folder, "tokenizer.json").write_text(json.dumps(state), encoding="utf-8")
        extended = PreTrainedTokenizerFast.from_pretrained(
            folder, model_input_names=list(tokenizer.model_input_names)
        )
    extended.name_or_path = tokenizer.name_or_path
    return extended
