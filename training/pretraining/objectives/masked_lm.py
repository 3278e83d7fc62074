"""Masked language modelling (BERT, arXiv 1810.04805; RoBERTa, arXiv 1907.11692)."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from transformers import PreTrainedTokenizerBase

from ....configuration_minibert import MiniBertConfig
from ....modeling_minibert import MiniBertForMaskedLM
from ....tokenization import check_mask_token
from ....tokenization.words import word_start_table
from ...data.collators import MaskedLMCollator, check_masking
from ..fill import fill_masks
from .base import Objective
from .examples import find_content_word


class MaskedLM(Objective):
    """Predict masked tokens."""

    name = "mlm"
    model_class = MiniBertForMaskedLM
    candidates = 24
    masking_defaults = {"mlm_probability": 0.3, "mask_replace_prob": 0.8, "random_replace_prob": 0.1}

    def check(self, config: MiniBertConfig, streaming: bool = False) -> None:
        super().check(config, streaming)
        check_masking(SimpleNamespace(**self.masking))

    def prepare_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
        tokenizer = super().prepare_tokenizer(tokenizer)
        check_mask_token(tokenizer)
        if self.masking["masking"] != "token":
            word_start_table(tokenizer)  # to refuse one without words
        return tokenizer

    def collator(self, tokenizer: PreTrainedTokenizerBase, **options: Any) -> MaskedLMCollator:
        return MaskedLMCollator(tokenizer, seed=self.args.seed, **self.masking | options)

    def examples(self, folder: Path, sentences: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> list[str]:
        """A word masked in a sentence, filled by the model that was saved: two that are right, and two that are not."""
        words = [find_content_word(sentence, tokenizer) for sentence in sentences]
        texts = [s[: word.start] + tokenizer.mask_token + s[word.stop :] for s, word in zip(sentences, words)]
        shown: dict[bool, list[str]] = {True: [], False: []}
        for sentence, word, text, found in zip(sentences, words, texts, fill_masks(texts, str(folder), top_k=3)):
            guesses = ", ".join(f"{guess['token_str'].strip()} {guess['score']:.0%}" for guess in found[0])
            is_right = found[0][0]["token_str"].strip().lower() == sentence[word].lower()
            shown[is_right].append(f"  {text}\n    was: {sentence[word]}; model: {guesses}")
        how_many = f"right in {len(shown[True])} of {len(texts)} sentences, two of each kind:"
        return [f"Held-out text, filled by the saved model, {how_many}", *shown[True][:2], *shown[False][:2]]
