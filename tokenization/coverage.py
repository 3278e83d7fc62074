"""What a tokenizer keeps of a text, and tokenizers that cannot be used on any."""

import dataclasses
import json
import math
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, normalizers
from transformers import PreTrainedTokenizerBase

from .adapt import untruncated_backend

# The share of the characters that may be lost. A tokenizer of English loses 3 % of English text
# with 3 % of Chinese in it; a model that reads text with more missing learns something else. Where
# words of more than 100 characters are lost, which WordPiece does not read, the text has no spaces:
# all of it is cut badly, and more is lost in the longer ones.
MAX_LOST_SHARE = 0.05
MAX_LOST_SHARE_IN_LONG_WORDS = 0.01
MIN_LONG_WORD_CHARACTERS = 100
# Bounds for what a tokenizer's replacements may make of a text, which is else longer than memory is
# large.
MAX_REPLACEMENT_LENGTH = 1000
MAX_GROWTH = 100
# Letters of several scripts, one of which no vocabulary has.
PROBE_TEXT = "a b1 Éé, 中 \U00010380!\n\nc"


@dataclasses.dataclass(frozen=True)
class Coverage:
    """Counts over a text. Characters are counted without spaces, in lower case and decomposed
    (NFKD), so that neither spacing nor lower-casing is a loss; one is lost if it does not come back
    from the token ids."""

    num_words: int  # between spaces
    num_tokens: int
    num_unknown: int  # of the tokens
    num_characters: int
    lost: Counter[str]  # how often each character is lost
    # Characters in unknown words of more than `MIN_LONG_WORD_CHARACTERS` characters.
    num_in_long_words: int = 0

    @property
    def lost_share(self) -> float:
        return self.lost.total() / max(self.num_characters, 1)

    @property
    def lost_marks(self) -> int:
        """Combining marks among the lost characters: accents, vowels of Indic scripts, tones."""
        total = 0
        for character, count in self.lost.items():
            if _is_mark(character):
                total += count
        return total

    def describe(self) -> str:
        tokens_per_word = self.num_tokens / max(self.num_words, 1)
        unknown_share = self.num_unknown / max(self.num_tokens, 1)
        description = (
            f"{tokens_per_word:.2f} tokens a word; {unknown_share:.2%} of the tokens are unknown;"
            f" {self.lost_share:.2%} of the characters are lost"
        )
        if not self.lost:
            return description
        most_frequent = [_show(character) for character, _ in self.lost.most_common(5)]
        examples = f"most often {' '.join(most_frequent)}"
        if self.lost_marks:
            marks_share = self.lost_marks / self.lost.total()
            examples += f", {marks_share:.0%} of them marks on letters"
        return f"{description} ({examples})"


def measure_coverage(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str]) -> Coverage:
    """Count what a (fast) tokenizer makes of texts, and what comes back when its ids are decoded.
    Special tokens that are spelled out in a text are read as text."""
    backend = backend_for_round_trips(tokenizer)
    num_words = 0
    num_tokens = 0
    num_unknown = 0
    num_characters = 0
    num_in_long_words = 0
    lost: Counter[str] = Counter()
    for text in texts:
        encoding = backend.encode(text, add_special_tokens=False)
        regular_ids = []
        for token_id, (start, end) in zip(encoding.ids, encoding.offsets):
            if token_id != tokenizer.unk_token_id:
                regular_ids.append(token_id)
                continue
            num_unknown += 1
            length = end - start
            if length > MIN_LONG_WORD_CHARACTERS:
                num_in_long_words += length
        characters_before = _count_folded_characters(text)
        decoded = backend.decode(regular_ids, skip_special_tokens=False)
        num_words += len(text.split())
        num_tokens += len(encoding.ids)
        num_characters += characters_before.total()
        lost += characters_before - _count_folded_characters(decoded)
    return Coverage(num_words, num_tokens, num_unknown, num_characters, lost, num_in_long_words)


def backend_for_round_trips(tokenizer: PreTrainedTokenizerBase) -> Tokenizer:
    """A copy of the tokenizer's backend whose decoder gives back the text as it is."""
    backend = untruncated_backend(tokenizer)
    backend.encode_special_tokens = True
    subword_prefix = getattr(backend.model, "continuing_subword_prefix", None)
    if subword_prefix:
        # cleanup makes "don't" of "do not"
        backend.decoder = decoders.WordPiece(subword_prefix, cleanup=False)
    elif backend.decoder is None and "ByteLevel" in str(backend.pre_tokenizer):
        backend.decoder = decoders.ByteLevel()
    return backend


def check_coverage(
    tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], max_lost_text: float | None = None
) -> Coverage:
    """`measure_coverage`; a ValueError where a larger share of the characters than `max_lost_text`
    is lost (by default `MAX_LOST_SHARE`, and `MAX_LOST_SHARE_IN_LONG_WORDS` in long words); marks
    on letters do not count where the tokenizer says `strip_accents`."""
    if max_lost_text is not None and not 0 <= max_lost_text <= 1:
        raise ValueError(f"max_lost_text must be from 0 to 1, got {max_lost_text}")
    coverage = measure_coverage(tokenizer, texts)
    lost = coverage.lost.total()
    if drops_accents(tokenizer):
        lost -= coverage.lost_marks
    max_share = MAX_LOST_SHARE if max_lost_text is None else max_lost_text
    max_in_long_words = MAX_LOST_SHARE_IN_LONG_WORDS * coverage.num_characters
    reads_no_long_words = max_lost_text is None and coverage.num_in_long_words > max_in_long_words
    if not reads_no_long_words and lost <= max_share * coverage.num_characters:
        return coverage
    explanation = ""
    if reads_no_long_words:
        explanation = (
            " wordpiece reads no word of more than 100 characters, so no text without spaces:"
        )
    way_out = ""
    sufficient_limit = math.ceil(coverage.lost_share * 100) / 100
    if sufficient_limit <= 0.5:
        way_out = f"; or, to train on what is left, --max_lost_text {sufficient_limit:g}"
    raise ValueError(
        "tokenizer: most of the text must come back from its tokens, but"
        f" {coverage.describe()};{explanation} use a tokenizer made for this text, or one trained"
        f" on it with --algorithm bpe or unigram{way_out}"
    )


def drops_accents(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the tokenizer says that it takes the marks off letters."""
    normalizer = json.dumps(_state(tokenizer.backend_tokenizer.normalizer))
    return '"strip_accents": true' in normalizer or '"StripAccents"' in normalizer


def _count_folded_characters(text: str) -> Counter[str]:
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    return Counter("".join(decomposed.split()))


def _is_mark(character: str) -> bool:
    return unicodedata.category(character).startswith("M")


def _show(character: str) -> str:
    if _is_mark(character):
        return f"◌{character}"
    if character.isprintable():
        return character
    return ascii(character)[1:-1]


# --- Tokenizers that nothing can be done with ---


def check_loaded_tokenizer(tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuse (a ValueError) a tokenizer that fails on ordinary text, as WordPiece does without its
    unknown token, or multiplies it, or has no room for any."""
    name = repr(str(tokenizer.name_or_path))
    max_length = tokenizer.model_max_length
    is_number = isinstance(max_length, (int, float)) and not isinstance(max_length, bool)
    if not is_number or not max_length >= 1:  # `not >=` is true for NaN as well
        raise ValueError(
            f"tokenizer: {name} has model_max_length={max_length!r}; put its longest input there,"
            " in tokens"
        )
    if not tokenizer.is_fast:
        return
    check_growth(tokenizer.backend_tokenizer, name)
    try:
        tokenizer.decode(tokenizer(PROBE_TEXT)["input_ids"])
    except BaseException as error:
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        message = " ".join(str(error).split())[:200]
        raise ValueError(
            f"tokenizer: {name} cannot read text: {message}; save or download it again"
        ) from None


def is_panic(error: BaseException) -> bool:
    """Whether Rust code gave up; `tokenizers` does not export the class, which is no
    `Exception`."""
    return type(error).__name__ == "PanicException"


def check_growth(backend: Tokenizer, name: str) -> None:
    """Refuse (a ValueError) a tokenizer whose replacements multiply a text. Nothing else of it is
    run."""
    for part_name in ("normalizer", "decoder"):
        part = getattr(backend, part_name)
        _check_replacements(list(_replacements(_state(part))), f"{part_name} of {name}")


def _check_replacements(replacements: list[tuple[dict[str, str], str]], part: str) -> None:
    """Refuse replacements that multiply a text; they are tried one by one, each on a text of
    bounded length.

    Args:
        replacements: (pattern, content) as in tokenizer.json.
        part: What they are a part of, for the message.
    """
    text = string.printable
    for pattern, _ in replacements:
        text += pattern.get("String", "")
    max_length = MAX_GROWTH * len(text)
    for pattern, content in replacements:
        is_too_long = len(content) > MAX_REPLACEMENT_LENGTH
        if not is_too_long:
            if "String" in pattern:
                replaced = pattern["String"]
            else:
                replaced = Regex(pattern["Regex"])
            text = normalizers.Replace(replaced, content).normalize_str(text)
        if is_too_long or len(text) > max_length:
            raise ValueError(
                f"tokenizer: the {part} multiplies a text ({content[:20]!r} …); do not use it"
            )


def _state(part: Any) -> dict[str, Any] | None:
    """What tokenizer.json has for a normalizer or decoder."""
    return None if part is None else json.loads(part.__getstate__())


def _replacements(step: dict[str, Any] | None) -> Iterator[tuple[dict[str, str], str]]:
    """(pattern, content) of every replacement in a normalizer or decoder, in their order."""
    if step and step["type"] == "Sequence":
        for inner_step in step.get("normalizers", step.get("decoders", [])):
            yield from _replacements(inner_step)
    elif step and step["type"] == "Replace":
        yield step["pattern"], step["content"]
