"""What a tokenizer keeps of a text, and tokenizers that cannot be used on any."""

import dataclasses
import json
import math
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from tokenizers import Regex, decoders, normalizers
from transformers import PreTrainedTokenizerBase

from .adapt import plain_backend

# The share of the characters that may be lost. A tokenizer of English loses 3 % of English text with 3 % of Chinese in
# it; a model that reads text with more missing learns something else. Where words of more than 100 characters are lost,
# which WordPiece does not read, the text has no spaces: all of it is cut badly, and more is lost in the longer ones.
MOST_LOST, MOST_LOST_IN_LONG_WORDS, LONG_WORD = 0.05, 0.01, 100
# Bounds for what a tokenizer's replacements may make of a text, which is else longer than memory is large.
LONGEST_REPLACEMENT, MOST_GROWTH = 1000, 100
# Letters of several scripts, one of which no vocabulary has.
PROBE = "a b1 Éé, 中 \U00010380!\n\nc"


@dataclasses.dataclass(frozen=True)
class Coverage:
    """Counts over a text. Characters are counted without spaces, in lower case and decomposed (NFKD), so that neither
    spacing nor lower-casing is a loss; one is lost if it does not come back from the token ids."""

    words: int  # between spaces
    tokens: int
    unknown: int  # of the tokens
    characters: int
    lost: Counter[str]  # how often each character is lost
    in_long_words: int = 0  # characters in unknown words of more than `LONG_WORD`

    @property
    def lost_share(self) -> float:
        return self.lost.total() / max(self.characters, 1)

    @property
    def lost_marks(self) -> int:
        """Combining marks among the lost characters: accents, vowels of Indic scripts, tones."""
        return sum(
            count
            for character, count in self.lost.items()
            if unicodedata.category(character)[0] == "M"
        )

    def describe(self) -> str:
        fertility = f"{self.tokens / max(self.words, 1):.2f} tokens a word"
        unknown = f"{self.unknown / max(self.tokens, 1):.2%} of the tokens are unknown"
        lost = f"{self.lost_share:.2%} of the characters do not come back"
        if self.lost:
            most = " ".join(map(_show, (character for character, _ in self.lost.most_common(5))))
            marks = (
                f", {self.lost_marks / self.lost.total():.0%} of them marks on letters"
                if self.lost_marks
                else ""
            )
            lost += f" (most often {most}{marks})"
        return f"{fertility}; {unknown}; {lost}"


def measure_coverage(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str]) -> Coverage:
    """Count what a (fast) tokenizer makes of texts, and what comes back when its ids are decoded. Special tokens that
    are spelled out in a text are read as text."""
    backend = plain_backend(tokenizer)
    backend.encode_special_tokens = True
    if prefix := getattr(backend.model, "continuing_subword_prefix", None):
        backend.decoder = decoders.WordPiece(
            prefix, cleanup=False
        )  # cleanup makes "don't" of "do not"
    elif backend.decoder is None and "ByteLevel" in str(backend.pre_tokenizer):
        backend.decoder = decoders.ByteLevel()
    words, tokens, unknown, lost, characters, in_long_words = 0, 0, 0, Counter(), 0, 0
    for text in texts:
        encoding = backend.encode(text, add_special_tokens=False)
        known = [i for i in encoding.ids if i != tokenizer.unk_token_id]
        lengths = [
            end - start
            for i, (start, end) in zip(encoding.ids, encoding.offsets)
            if i == tokenizer.unk_token_id
        ]
        in_long_words += sum(length for length in lengths if length > LONG_WORD)
        before, after = (
            _characters(each) for each in (text, backend.decode(known, skip_special_tokens=False))
        )
        words += len(text.split())
        tokens += len(encoding.ids)
        unknown += len(lengths)
        characters += before.total()
        lost += before - after
    return Coverage(words, tokens, unknown, characters, lost, in_long_words)


def check_coverage(
    tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], max_lost_text: float | None = None
) -> Coverage:
    """`measure_coverage`; a ValueError where a larger share of the characters than `max_lost_text` is lost (by default
    `MOST_LOST`, of which `MOST_LOST_IN_LONG_WORDS` in long words); marks on letters do not count where the tokenizer
    says `strip_accents`."""
    if max_lost_text is not None and not 0 <= max_lost_text <= 1:
        raise ValueError(f"max_lost_text must be from 0 to 1, got {max_lost_text}")
    coverage = measure_coverage(tokenizer, texts)
    normalizer = json.dumps(_state(tokenizer.backend_tokenizer.normalizer))
    wanted = (
        coverage.lost_marks
        if '"strip_accents": true' in normalizer or '"StripAccents"' in normalizer
        else 0
    )
    lost, most = (
        coverage.lost.total() - wanted,
        MOST_LOST if max_lost_text is None else max_lost_text,
    )
    long = (
        max_lost_text is None
        and coverage.in_long_words > MOST_LOST_IN_LONG_WORDS * coverage.characters
    )
    if long or lost > most * coverage.characters:
        why = (
            "wordpiece reads no word of more than 100 characters, so no text without spaces: "
            if long
            else ""
        )
        limit = math.ceil(coverage.lost_share * 100) / 100
        raise ValueError(
            f"tokenizer: most of the text must come back from its tokens, but {coverage.describe()}; {why}use a"
            " tokenizer made for this text, or one trained on it with --algorithm bpe or unigram"
            + (f"; or, to train on what is left, --max_lost_text {limit:g}" if limit <= 0.5 else "")
        )
    return coverage


def _characters(text: str) -> Counter[str]:
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    return Counter("".join(decomposed.split()))


def _show(character: str) -> str:
    is_mark = unicodedata.category(character)[0] == "M"
    return (
        f"◌{character}"
        if is_mark
        else character
        if character.isprintable()
        else ascii(character)[1:-1]
    )


# --- Tokenizers that nothing can be done with ------------------------------------------------------------------------


def check_tokenizer(tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuse (a ValueError) a tokenizer that fails on ordinary text, as WordPiece does without its unknown token, or
    multiplies it, or has no room for any."""
    name, longest = repr(str(tokenizer.name_or_path)), tokenizer.model_max_length
    if isinstance(longest, bool) or not isinstance(longest, (int, float)) or not longest >= 1:
        raise ValueError(
            f"tokenizer: {name} has model_max_length={longest!r}; put its longest input there, in tokens"
        )
    if not tokenizer.is_fast:
        return
    for part in ("normalizer", "decoder"):
        _check_growth(
            list(_replacements(_state(getattr(tokenizer.backend_tokenizer, part)))),
            f"{part} of {name}",
        )
    try:
        tokenizer.decode(tokenizer(PROBE)["input_ids"])
    except BaseException as error:
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        said = " ".join(str(error).split())[:200]
        raise ValueError(
            f"tokenizer: {name} cannot read text: {said}; save or download it again"
        ) from None


def is_panic(error: BaseException) -> bool:
    """Whether Rust code gave up; `tokenizers` does not export the class, which is no `Exception`."""
    return type(error).__name__ == "PanicException"


def _check_growth(replacements: list[tuple[dict[str, str], str]], where: str) -> None:
    """Refuse replacements that multiply a text; they are tried one by one, each on a text of bounded length."""
    text = string.printable + "".join(pattern.get("String", "") for pattern, _ in replacements)
    most = MOST_GROWTH * len(text)
    for pattern, content in replacements:
        is_short = len(content) <= LONGEST_REPLACEMENT
        if is_short:
            by = pattern["String"] if "String" in pattern else Regex(pattern["Regex"])
            text = normalizers.Replace(by, content).normalize_str(text)
        if not is_short or len(text) > most:
            raise ValueError(
                f"tokenizer: the {where} multiplies a text ({content[:20]!r} …); do not use it"
            )


def _state(part: Any) -> dict[str, Any] | None:
    """What tokenizer.json has for a normalizer or decoder."""
    return None if part is None else json.loads(part.__getstate__())


def _replacements(step: dict[str, Any] | None) -> Iterator[tuple[dict[str, str], str]]:
    """(pattern, content) of every replacement in a normalizer or decoder, in their order."""
    if step and step["type"] == "Sequence":
        for each in step.get("normalizers", step.get("decoders", [])):
            yield from _replacements(each)
    elif step and step["type"] == "Replace":
        yield step["pattern"], step["content"]
