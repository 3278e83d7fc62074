"""Give a tokenizer the words of a domain, so that it no longer cuts them, and leave the rest as it is cut."""

import dataclasses
import hashlib
import json
import re
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Iterable, Set
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from .adapt import check_fast, plain_backend
from .words import UNSPACED

# What a new Unigram piece is worth more than the pieces it replaces, for each piece saved: far below what tells two
# ways to cut a word apart, far above rounding.
PREFERENCE = 1e-6
HELD_OUT = 0.1  # the share of the texts that new words are measured on
KINDS = ("WordPiece", "BPE", "Unigram")
BYTE_PIECE = re.compile(r"<0x[0-9A-F]{2}>")


@dataclasses.dataclass(frozen=True)
class Extension:
    """An extended tokenizer, and what the new words are worth in text that was held out when they were chosen."""

    tokenizer: PreTrainedTokenizerFast
    pieces: dict[
        int, list[int]
    ]  # for the id of each new token the ids that stood for it, the most useful one first
    fertility: tuple[
        float | None, float | None
    ]  # tokens a word (between spaces) before, after; None: nothing held out
    used: int  # new words that occur in the held-out text

    def metrics(self) -> dict[str, float | None]:
        before, after = self.fertility
        return {
            "added": len(self.pieces),
            "used": self.used,
            "fertility_before": before,
            "fertility_after": after,
        }

    def describe(self) -> str:
        new = ", ".join(self.tokenizer.convert_ids_to_tokens(list(self.pieces)[:8]))
        before, after = (float("nan") if value is None else value for value in self.fertility)
        gain = f"{before:.3f} tokens a word before, {after:.3f} after; {self.used:,} of the new words occur there"
        return f"{len(self.pieces):,} words added to the vocabulary ({new} …). In held-out text: {gain}"


def extend_tokenizer(
    tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], words: int, min_count: int = 3
) -> Extension:
    """Add the words of `texts` whose cutting costs most tokens (how often they occur × the pieces that each of them is
    cut into beyond the first), as new tokens behind all ids that are there. A tenth of the texts, chosen by their hash,
    is left out of the count, and the gain is measured there.

    A word is what the tokenizer's own split leaves whole, of letters, marks and digits. Left out are those with a
    character that the tokenizer does not know, added tokens, which it has, and words of scripts without spaces (Thai,
    Lao, Khmer, Burmese, Chinese, Japanese): the split leaves whole clauses of these. How they are added:

    - WordPiece: as entries of the vocabulary. A longer word that begins with one is then cut behind it.
    - BPE: as entries that match a whole word before any merge (`ignore_merges`); no other word changes, unless the
      vocabulary had it and no merges led there.
    - Unigram: as pieces with the score of those they replace, and a trace more. Within other words a new piece only
      stands where all of its own pieces stood side by side.

    Args:
        texts: Read once.
        words: How many; fewer if no others are cut.
        min_count: How often a word must occur.

    Raises:
        ValueError: `words` below 1, a tokenizer of another kind, or no word that it cuts.
    """
    if words < 1:
        raise ValueError(f"extend_vocabulary: {words} words; use at least 1")
    check_fast(tokenizer)
    backend = tokenizer.backend_tokenizer
    kind, suffix = type(backend.model).__name__, getattr(backend.model, "end_of_word_suffix", None)
    if kind not in KINDS or suffix or backend.pre_tokenizer is None:
        needed = f"{', '.join(KINDS)}, with a pre-tokenizer that splits text, and no mark of the end of a word"
        raise ValueError(f"tokenizer: this {kind} cannot be extended; use one of {needed}")

    counts, held_out, between_spaces = _count_words(backend, texts)
    before = {word: backend.model.tokenize(word) for word in counts | held_out}
    saved = {
        word: count * (len(before[word]) - 1)
        for word, count in counts.items()
        if count >= min_count and len(before[word]) > 1
        if not any(
            piece.id == tokenizer.unk_token_id or BYTE_PIECE.fullmatch(piece.value)
            for piece in before[word]
        )
    }
    plain = plain_backend(tokenizer)
    added = plain.get_added_tokens_decoder().keys()
    wanted = {word for word in saved if _is_word(word, plain, added)}
    chosen = sorted(wanted, key=lambda word: (-saved[word], word))[:words]
    if not chosen:
        use = "leave it out (nor are words added of scripts without spaces, which its split does not find)"
        raise ValueError(
            f"extend_vocabulary: the tokenizer cuts no word that occurs {min_count} times; {use}"
        )

    state = json.loads(backend.to_str())
    first = max(backend.get_vocab(with_added_tokens=True).values()) + 1
    _add_words(
        state["model"], state["added_tokens"], {word: before[word] for word in chosen}, first
    )
    extended = _reload(tokenizer, state)
    after = {word: extended.backend_tokenizer.model.tokenize(word) for word in held_out}
    tokens = [sum(n * len(cut[word]) for word, n in held_out.items()) for cut in (before, after)]
    return Extension(
        extended,
        {
            first + number: [piece.id for piece in before[word]]
            for number, word in enumerate(chosen)
        },
        (tokens[0] / between_spaces, tokens[1] / between_spaces)
        if between_spaces
        else (None, None),
        sum(word in held_out for word in chosen),
    )


def _count_words(
    backend: Tokenizer, texts: Iterable[str]
) -> tuple[Counter[str], Counter[str], int]:
    """How often each piece of text occurs that the model cuts by itself, in the texts to choose from and in those held
    out (equal texts are on one side), and the number of words between spaces in the latter."""
    sides, between_spaces = (Counter(), Counter()), 0
    for text in texts:
        is_held_out = hashlib.blake2b(text.encode(), digest_size=1).digest()[0] < 256 * HELD_OUT
        between_spaces += len(text.split()) * is_held_out
        if backend.normalizer is not None:
            text = backend.normalizer.normalize_str(text)
        sides[is_held_out].update(word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text))
    return *sides, between_spaces


def _is_word(piece: str, backend: Tokenizer, added: Set[int]) -> bool:
    """Letters, marks and digits, with a letter among them; behind the mark of a space, if it has one. No added token is
    in it (those are found in a text before its words), and nothing of a script without spaces."""
    text = (piece if backend.decoder is None else backend.decoder.decode([piece])).strip()
    kinds = {unicodedata.category(character)[0] for character in text}
    if not "L" in kinds <= {"L", "M", "N"} or UNSPACED.search(text):
        return False
    return added.isdisjoint(backend.encode(text, add_special_tokens=False).ids)


def _add_words(
    model: dict[str, Any], added_tokens: list[dict], words: dict[str, list], first: int
) -> None:
    """Put words, with the pieces they were cut into, into the saved state of a model; the added tokens behind its
    vocabulary too, which would else be numbered anew."""
    behind = {token["id"]: token["content"] for token in added_tokens}
    if model["type"] == "Unigram":
        vocab = model["vocab"]  # whose ids are its places
        scores = [score for _, score in vocab]
        vocab += [[behind[i], min(scores)] for i in range(len(vocab), first)]
        for word, pieces in words.items():
            vocab.append(
                [word, sum(scores[piece.id] for piece in pieces) + PREFERENCE * (len(pieces) - 1)]
            )
    else:
        model["vocab"] |= {content: i for i, content in behind.items()}
        model["vocab"] |= {word: first + number for number, word in enumerate(words)}
    if model["type"] == "BPE":
        model["ignore_merges"] = True


def _reload(tokenizer: PreTrainedTokenizerBase, state: dict[str, Any]) -> PreTrainedTokenizerFast:
    """The tokenizer with another state. A class such as `RobertaTokenizer` would build a state of its own from the
    vocabulary; `PreTrainedTokenizerFast` takes it as it is."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        Path(folder, "tokenizer.json").write_text(json.dumps(state), encoding="utf-8")
        names = list(tokenizer.model_input_names)
        extended = PreTrainedTokenizerFast.from_pretrained(folder, model_input_names=names)
    extended.name_or_path = tokenizer.name_or_path
    return extended
