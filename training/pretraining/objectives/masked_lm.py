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
from ...data.collators import MaskedLMCollator
from ...data.sentences import split_sentences
from ..fill import fill_masks
from .base import Objective

# The examples of a saved model: this many sentences, from this many documents, and from the first
# sentences of each.
CANDIDATES, DOCUMENTS, SENTENCES = 24, 300, 60
FEWEST_WORDS, MOST_WORDS, MOST_CHARACTERS, MOST_LETTERS = 6, 25, 200, 12
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

    def prepare_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
        tokenizer = super().prepare_tokenizer(tokenizer)
        check_mask_token(tokenizer)
        if self.masking_options["masking"] != "token":
            word_start_table(tokenizer)  # refuses a tokenizer that does not mark words
        return tokenizer

    def collator(self, tokenizer: PreTrainedTokenizerBase, **options: Any) -> MaskedLMCollator:
        options |= dict(seed=self.args.seed, last_mlm_probability=self.args.last_mlm_probability)
        return MaskedLMCollator(tokenizer, **self.masking_options | options)

    def examples(
        self, folder: Path, texts: Iterable[str], tokenizer: PreTrainedTokenizerBase
    ) -> list[str]:
        """Sentences with a masked word that the saved model fills in: two right and two wrong
        ones."""
        sentences = choose_sentences(texts, tokenizer)
        words = [find_content_word(sentence, tokenizer) for sentence in sentences]
        texts = [
            s[: word.start] + tokenizer.mask_token + s[word.stop :]
            for s, word in zip(sentences, words)
        ]
        shown: dict[bool, list[str]] = {True: [], False: []}
        for sentence, word, text, filled in zip(
            sentences, words, texts, fill_masks(texts, str(folder), top_k=3)
        ):
            guesses = ", ".join(
                f"{guess['token_str'].strip()!r} {guess['score']:.0%}" for guess in filled[0]
            )
            is_right = filled[0][0]["token_str"].strip().lower() == sentence[word].lower()
            shown[is_right].append(f"  {text}\n    was: {sentence[word]}; model: {guesses}")
        how_many = f"right in {len(shown[True])} of {len(texts)} sentences; up to two of each kind"
        return [
            f"Held-out text, filled by the saved model ({how_many}):",
            *shown[True][:2],
            *shown[False][:2],
        ]


def choose_sentences(texts: Iterable[str], tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Choose the best sentence of each document, best of all one of 6 to 25 words of letters. Each
    takes at most half of the tokens that the model reads."""

    def rank(sentence: str) -> tuple[bool, float]:
        words = sentence.split()
        usual = sum(
            WORD.fullmatch(word.strip("\"'“”‘’().,;:!?…")) is not None for word in words
        ) / len(words)
        return FEWEST_WORDS <= len(words) <= MOST_WORDS and sentence[
            -1
        ] in ".!?…" and usual > 0.8, usual

    best = []
    for text in islice(filter(str.strip, texts), DOCUMENTS):
        sentences = [
            " ".join(sentence.split()[:MOST_WORDS])
            for sentence in split_sentences(text)[:SENTENCES]
        ]
        sentence = max(sentences, key=rank)[:MOST_CHARACTERS]
        while (
            len(sentence) > 1
            and 2 * len(tokenizer(sentence)["input_ids"]) > tokenizer.model_max_length
        ):
            sentence = sentence[: len(sentence) // 2]
        best.append(sentence)
    return sorted(dict.fromkeys(best), key=rank, reverse=True)[:CANDIDATES]


def find_content_word(sentence: str, tokenizer: PreTrainedTokenizerBase) -> slice:
    """Find a word worth guessing: four letters or more, one token, near the middle of the sentence.
    In text without spaces, it is the letter in the middle."""
    spans = [slice(*match.span()) for match in WORD.finditer(sentence)] or [slice(0, len(sentence))]
    if len(spans) == 1 and len(sentence) > MOST_LETTERS:
        return slice(len(sentence) // 2, len(sentence) // 2 + 1)

    def worth(span: slice) -> tuple[bool, bool, float]:
        word = sentence[span]
        return (
            len(word) > 3,
            len(tokenizer.tokenize(f" {word}")) == 1,
            -abs(span.start + span.stop - len(sentence)),
        )

    return max(spans[1:-1] or spans, key=worth)
