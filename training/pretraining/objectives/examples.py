"""What a trained model is shown on: sentences of held-out documents, and a word in each that is worth guessing."""

import re
from collections.abc import Iterable

from transformers import PreTrainedTokenizerBase

from ...data.sentences import split_sentences

WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
DOCUMENTS, SENTENCES = 300, 60  # that are looked at: the first ones, of each so many
FEWEST_WORDS, MOST_WORDS, MOST_CHARACTERS = 6, 25, 200


def choose_sentences(texts: Iterable[str], tokenizer: PreTrainedTokenizerBase, count: int = 4) -> list[str]:
    """The best sentence of several documents: whole, of 6 to 25 words, and these of letters; where there is none like
    that, what comes nearest to it. They take at most half of the tokens that the model reads."""

    def ordinary(sentence: str) -> tuple[bool, bool, float]:
        words = sentence.split()
        usual = sum(WORD.fullmatch(word.strip("\"'“”‘’().,;:!?…")) is not None for word in words)
        share = usual / len(words)
        return FEWEST_WORDS <= len(words) <= MOST_WORDS, share > 0.8 and sentence[-1] in ".!?…", share

    best = []
    for _, text in zip(range(DOCUMENTS), filter(str.strip, texts)):
        sentences = [" ".join(sentence.split()[:MOST_WORDS]) for sentence in split_sentences(text)[:SENTENCES]]
        sentence = max(sentences, key=ordinary)[:MOST_CHARACTERS]
        # room for what is put in
        while len(sentence) > 1 and 2 * len(tokenizer(sentence)["input_ids"]) > tokenizer.model_max_length:
            sentence = sentence[: len(sentence) // 2]
        best.append(sentence)
    return sorted(dict.fromkeys(best), key=ordinary, reverse=True)[:count]


def find_content_word(sentence: str, tokenizer: PreTrainedTokenizerBase) -> slice:
    """Where a word stands that somebody would ask for: of four letters or more, known to the tokenizer as a whole, not
    the first or the last one, near the middle. In text without spaces, one letter in the middle."""
    spans = [slice(*match.span()) for match in WORD.finditer(sentence)] or [slice(0, len(sentence))]
    if len(spans) == 1 and spans[0].stop - spans[0].start > 12:
        middle = (spans[0].start + spans[0].stop) // 2
        return slice(middle, middle + 1)

    def worth(span: slice) -> tuple[bool, bool, float]:
        word = sentence[span]
        return len(word) > 3, len(tokenizer.tokenize(f" {word}")) == 1, -abs(span.start + span.stop - len(sentence))

    return max(spans[1:-1] or spans, key=worth)
