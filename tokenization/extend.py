"""Give a tokenizer the words of a domain, so that it no longer cuts them, and leave the rest as it is cut."""

import dataclasses
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

# What a new Unigram piece is worth more than the pieces it replaces, for each piece saved: far below what tells two
# ways to cut a word apart, far above rounding.
PREFERENCE = 1e-6
KINDS = ("WordPiece", "BPE", "Unigram")
BYTE_PIECE = re.compile(r"<0x[0-9A-F]{2}>")


@dataclasses.dataclass(frozen=True)
class Extension:
    """An extended tokenizer, and what became of the text that its words are from."""

    tokenizer: PreTrainedTokenizerFast
    pieces: dict[int, list[int]]  # for the id of each new token the ids that stood for it, the most useful one first
    fertility: tuple[float, float]  # tokens a word (between spaces) before and after
    other_words: int  # different words beside the new ones
    changed: int  # those of them that are cut differently now
    longer: int  # into more tokens than before
    changed_share: float  # the share of all words of the text that `changed` are

    def figures(self) -> dict[str, float]:
        figures = {name: getattr(self, name) for name in ("other_words", "changed", "longer", "changed_share")}
        before, after = self.fertility
        return figures | {"added": len(self.pieces), "fertility_before": before, "fertility_after": after}

    def describe(self) -> str:
        new = self.tokenizer.convert_ids_to_tokens(list(self.pieces)[:8])
        return (
            f"{len(self.pieces):,} words added to the vocabulary ({', '.join(new)} …): {self.fertility[0]:.3f} tokens a"
            f" word before, {self.fertility[1]:.3f} after. Of {self.other_words:,} other words {self.changed:,} are cut"
            f" differently ({self.changed_share:.2%} of the text), {self.longer:,} of them into more tokens"
        )


def extend_tokenizer(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], words: int) -> Extension:
    """Add the words of `texts` whose cutting costs most tokens (how often they occur × the pieces that each of them is
    cut into beyond the first), as new tokens behind all ids that are there.

    A word is what the tokenizer's own split leaves whole, of letters, marks and digits. Those with a character that
    the tokenizer does not know are left out, and added tokens, which it has. How they are added:

    - WordPiece: as entries of the vocabulary. A longer word that begins with one is then cut behind it.
    - BPE: as entries that match a whole word before any merge (`ignore_merges`); no other word changes, unless the
      vocabulary had it and no merges led there.
    - Unigram: as pieces with the score of those they replace, and a trace more. Within other words a new piece only
      stands where all of its own pieces stood side by side.

    Args:
        texts: read once.
        words: how many; fewer if no others are cut.

    Returns:
        the extended tokenizer, as `PreTrainedTokenizerFast`; the one given stays as it is.

    Raises:
        ValueError: `words` below 1, a single text, a tokenizer of another kind, or no word that it cuts.
    """
    if words < 1:
        raise ValueError(f"extend_vocabulary: {words} words; use at least 1")
    if isinstance(texts, str):
        raise ValueError("texts: a single str; use a list, or another iterable, of strings")
    backend = getattr(tokenizer, "backend_tokenizer", None)
    kind = None if backend is None else type(backend.model).__name__
    suffixed = getattr(getattr(backend, "model", None), "end_of_word_suffix", None)
    if kind not in KINDS or suffixed:
        found = f"a {kind} that marks the end of words" if suffixed else kind or type(tokenizer).__name__
        raise ValueError(f"tokenizer: {found} cannot be extended; use one of {', '.join(KINDS)}")
    if backend.pre_tokenizer is None:
        raise ValueError("tokenizer: it has no pre-tokenizer, so knows no words to add; use one that splits text")

    counts, between_spaces = _count_words(backend, texts)
    before = {word: backend.model.tokenize(word) for word in counts}
    unknown = tokenizer.unk_token_id
    saved = {
        word: count * (len(before[word]) - 1)
        for word, count in counts.items()
        if len(before[word]) > 1 and not any(p.id == unknown or BYTE_PIECE.fullmatch(p.value) for p in before[word])
    }
    plain = Tokenizer.from_str(backend.to_str())
    plain.no_padding()  # as a tokenizer may be saved; it would be an added token in every word
    added = plain.get_added_tokens_decoder().keys()
    wanted = {word for word in saved if _is_word(word, plain, added)}
    chosen = sorted(wanted, key=lambda word: (-saved[word], word))[:words]
    if not chosen:
        raise ValueError("extend_vocabulary: the tokenizer cuts no word of the text; leave it out")

    state = json.loads(backend.to_str())
    first = max(backend.get_vocab(with_added_tokens=True).values()) + 1
    _add_words(state["model"], state["added_tokens"], {word: before[word] for word in chosen}, first)
    extended = _reload(tokenizer, state)
    model = extended.backend_tokenizer.model
    after = {word: model.tokenize(word) for word in counts}

    new = set(chosen)
    changed = [w for w in counts if w not in new and [p.id for p in before[w]] != [p.id for p in after[w]]]
    fertility = [sum(n * len(cut[word]) for word, n in counts.items()) / between_spaces for cut in (before, after)]
    return Extension(
        extended,
        {first + number: [piece.id for piece in before[word]] for number, word in enumerate(chosen)},
        tuple(fertility),
        len(counts) - len(chosen),
        len(changed),
        sum(len(after[word]) > len(before[word]) for word in changed),
        sum(counts[word] for word in changed) / counts.total(),
    )


def _count_words(backend: Tokenizer, texts: Iterable[str]) -> tuple[Counter[str], int]:
    """How often each piece of text occurs that the model cuts by itself, and the number of words between spaces."""
    counts: Counter[str] = Counter()
    between_spaces = 0
    for text in texts:
        between_spaces += len(text.split())
        if backend.normalizer is not None:
            text = backend.normalizer.normalize_str(text)
        counts.update(word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text))
    return counts, max(between_spaces, 1)


def _is_word(piece: str, backend: Tokenizer, added: Set[int]) -> bool:
    """Letters, marks and digits, with a letter among them; behind the mark of a space, if it has one. No added token,
    nor one with such a part: those are found in a text before its words."""
    text = (piece if backend.decoder is None else backend.decoder.decode([piece])).strip()
    kinds = {unicodedata.category(character)[0] for character in text}
    if not "L" in kinds <= {"L", "M", "N"}:
        return False
    return added.isdisjoint(backend.encode(text, add_special_tokens=False).ids)


def _add_words(model: dict[str, Any], added_tokens: list[dict], words: dict[str, list], first: int) -> None:
    """Put words, with the pieces they were cut into, into the saved state of a model; the added tokens behind its
    vocabulary too, which would else be numbered anew."""
    behind = {token["id"]: token["content"] for token in added_tokens}
    if model["type"] == "Unigram":
        vocab = model["vocab"]  # whose ids are its places
        scores = [score for _, score in vocab]
        vocab += [[behind[i], min(scores)] for i in range(len(vocab), first)]
        for word, pieces in words.items():
            vocab.append([word, sum(scores[piece.id] for piece in pieces) + PREFERENCE * (len(pieces) - 1)])
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
