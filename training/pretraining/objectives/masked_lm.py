"""Masked language modelling (BERT, arXiv 1810.04805; RoBERTa, arXiv 1907.11692)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import datasets
from transformers import PreTrainedTokenizerBase

from ....configuration_minibert import MiniBertConfig
from ....modeling_minibert import MiniBertForMaskedLM
from ...arguments.pretraining import RowArguments
from ...data.collators import MaskedLMCollator, check_masking
from ...data.masking import unigram_counts
from ..fill import fill_masks
from .base import Objective
from .examples import find_content_word


class MaskedLM(Objective):
    """Predict masked tokens."""

    name = "mlm"
    model_class = MiniBertForMaskedLM
    smooths_labels = True

    def check(self, config: MiniBertConfig, rows: RowArguments, *others) -> None:
        super().check(config, rows, *others)
        check_masking(self.masking)
        if self.masking.static_masking and self.masking.rate_schedule != "constant":
            raise ValueError(f"rate_schedule: {self.masking.rate_schedule!r} does not go with --static_masking")

    def prepare_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> None:
        super().prepare_tokenizer(tokenizer)
        if tokenizer.mask_token is None:
            raise ValueError(
                f"tokenizer: {tokenizer.name_or_path!r} has no mask token, which masked language modelling needs;"
                " give it one with tokenizer.add_special_tokens({'mask_token': '[MASK]'})"
            )

    def collator(self, tokenizer: PreTrainedTokenizerBase, train: datasets.Dataset) -> MaskedLMCollator:
        masking, counts = self.masking, None
        if masking.random_replacement == "unigram":
            counts = unigram_counts((row["input_ids"] for row in train), len(tokenizer))
        return MaskedLMCollator(
            tokenizer,
            mlm_probability=masking.mlm_probability,
            masking=masking.masking,
            mask_replace_prob=masking.mask_replace_prob,
            random_replace_prob=masking.random_replace_prob,
            random_replacement=masking.random_replacement,
            unigram_counts=counts,
            rate_schedule=masking.rate_schedule,
            rate_points=masking.rate_points,
            at_least_one_target=masking.at_least_one_target,
            static_masking=masking.static_masking,
            seed=self.seed,
        )

    def examples(self, folder: Path, sentences: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> list[str]:
        """A word masked in each sentence, filled by the model that was saved."""
        places = [find_content_word(sentence, tokenizer) for sentence in sentences]
        masked = [
            sentence[: place.start] + tokenizer.mask_token + sentence[place.stop :]
            for sentence, place in zip(sentences, places)
        ]
        lines = ["Held-out text, filled by the saved model:"]
        for sentence, place, text, found in zip(sentences, places, masked, fill_masks(masked, str(folder), top_k=3)):
            guesses = ", ".join(f"{guess['token_str'].strip()} {guess['score']:.0%}" for guess in found[0])
            lines += [f"  {text}", f"    was: {sentence[place]}; model: {guesses}"]
        return lines
