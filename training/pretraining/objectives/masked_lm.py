"""Masked language modelling (BERT, arXiv 1810.04805; RoBERTa, arXiv 1907.11692)."""

import re
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from ....modeling_minibert import MiniBertForMaskedLM
from ....tokenization import check_mask_token
from ....tokenization.words import word_start_table
from ...common.printable import printable
from ...data.collators import MaskedLMCollator
from ...data.sentences import sentences_by_line
from ...hub.example import Example
from ..fill import fill_masks
from .base import Objective

# The examples of a saved model: this many sentences, from the first documents, and the first
# sentences of each.
NUM_SENTENCES = 24
NUM_DOCUMENTS = 300
SENTENCES_PER_DOCUMENT = 60
MIN_WORDS = 6
MAX_WORDS = 25
MAX_CHARACTERS = 200
MAX_LETTERS = 12  # of a word; a longer one is text without spaces
PUNCTUATION = "\"'“”‘’().,;:!?…"
WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")


class MaskedLM(Objective):
    """Predict masked tokens."""

    name = "mlm"
    model_class = MiniBertForMaskedLM
    masking_defaults = {
        "mlm_probability": 0.3,
        "mask_replace_prob": 0.8,
        "random_replace_prob": 0.1,
    }
    supports_label_smoothing = True
    can_halve_batches = True

    def prepare_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
        tokenizer = super().prepare_tokenizer(tokenizer)
        check_mask_token(tokenizer)
        if self.masking_options["masking"] != "token":
            word_start_table(tokenizer)  # refuses a tokenizer that does not mark words
        return tokenizer

    def make_collator(self, tokenizer: PreTrainedTokenizerBase, **options: Any) -> MaskedLMCollator:
        options = {**self.masking_options, **options, "seed": self.args.seed}
        return MaskedLMCollator(tokenizer, **options)

    def card_example(
        self, texts: Iterable[str], tokenizer: PreTrainedTokenizerBase
    ) -> Example | None:
        """A held-out sentence with a masked word."""
        sentences = choose_sentences(texts, tokenizer)
        if not sentences:
            return None
        sentence = sentences[0]
        word = find_content_word(sentence, tokenizer)
        masked = sentence[: word.start] + tokenizer.mask_token + sentence[word.stop :]
        description = f"The sentence is held-out text; the masked word is {sentence[word]!r}."
        return Example({"text": masked}, description)

    def demo_lines(
        self, folder: Path, texts: Iterable[str], tokenizer: PreTrainedTokenizerBase
    ) -> list[str]:
        """Sentences with a masked word that the saved model fills in: two right and two wrong
        ones."""
        sentences = choose_sentences(texts, tokenizer)
        words = []
        masked_texts = []
        for sentence in sentences:
            word = find_content_word(sentence, tokenizer)
            words.append(sentence[word])
            masked_texts.append(
                sentence[: word.start] + tokenizer.mask_token + sentence[word.stop :]
            )
        guesses_of_texts = fill_masks(masked_texts, str(folder), top_k=3)
        right_lines = []
        wrong_lines = []
        for text, word, guesses_of_masks in zip(masked_texts, words, guesses_of_texts):
            guesses = guesses_of_masks[0]  # of the only mask
            guess_texts = []
            for guess in guesses:
                guess_texts.append(f"{guess['token_str'].strip()!r} {guess['score']:.0%}")
            shown_text = printable(text)
            shown_word = printable(word)
            line = f"  {shown_text}\n    was: {shown_word}; model: {', '.join(guess_texts)}"
            if guesses[0]["token_str"].strip().lower() == word.lower():
                right_lines.append(line)
            else:
                wrong_lines.append(line)
        return [
            f"Held-out text, filled by the saved model (right in {len(right_lines)} of"
            f" {len(sentences)} sentences; up to two of each kind):",
            *right_lines[:2],
            *wrong_lines[:2],
        ]


def choose_sentences(texts: Iterable[str], tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Choose the best sentence of each document, best of all one of 6 to 25 words of letters. Each
    takes at most half of the tokens that the model reads."""
    best_sentences = []
    for text in islice(filter(str.strip, texts), NUM_DOCUMENTS):
        sentences = []
        for sentence in sentences_by_line(text)[:SENTENCES_PER_DOCUMENT]:
            sentences.append(" ".join(sentence.split()[:MAX_WORDS]))
        best = max(sentences, key=sentence_rank)[:MAX_CHARACTERS]
        best_sentences.append(_fit_model(best, tokenizer))
    unique = dict.fromkeys(best_sentences)
    return sorted(unique, key=sentence_rank, reverse=True)[:NUM_SENTENCES]


def sentence_rank(sentence: str) -> tuple[bool, float]:
    """How good an example a sentence is: whether it is a whole one of ordinary words, and the share
    of its words that are of letters."""
    words = sentence.split()
    ordinary = [word for word in words if WORD.fullmatch(word.strip(PUNCTUATION))]
    share = len(ordinary) / len(words)
    has_length = MIN_WORDS <= len(words) <= MAX_WORDS
    return has_length and sentence[-1] in ".!?…" and share > 0.8, share


def _fit_model(sentence: str, tokenizer: PreTrainedTokenizerBase) -> str:
    """The sentence, halved until it takes at most half of the tokens that the model reads."""
    while len(sentence) > 1:
        if 2 * len(tokenizer(sentence)["input_ids"]) <= tokenizer.model_max_length:
            break
        sentence = sentence[: len(sentence) // 2]
    return sentence


def find_content_word(sentence: str, tokenizer: PreTrainedTokenizerBase) -> slice:
    """Find a word worth guessing: four letters or more, one token, near the middle of the sentence.
    In text without spaces, it is the letter in the middle."""
    words = [slice(*match.span()) for match in WORD.finditer(sentence)]
    if not words:
        words = [slice(0, len(sentence))]
    if len(words) == 1 and len(sentence) > MAX_LETTERS:
        middle = len(sentence) // 2
        return slice(middle, middle + 1)

    def rank(span: slice) -> tuple[bool, bool, float]:
        word = sentence[span]
        is_long = len(word) > 3
        is_one_token = len(tokenizer.tokenize(f" {word}")) == 1
        distance_from_middle = abs(span.start + span.stop - len(sentence))
        return is_long, is_one_token, -distance_from_middle

    inner_words = words[1:-1]
    return max(inner_words or words, key=rank)
