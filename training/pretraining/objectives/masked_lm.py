"""Masked language modelling (BERT, arXiv 1810.04805; RoBERTa, arXiv 1907.11692)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import datasets
from transformers import PreTrainedTokenizerBase

from ....configuration_minibert import MiniBertConfig
from ....modeling_minibert import MiniBertForMaskedLM
from ...data.collators import MaskedLMCollator, check_masking
from ...data.masking import unigram_counts
from ..fill import fill_masks
from .base import Objective, token_lines


class MaskedLM(Objective):
    """Predict masked tokens."""

    name = "mlm"
    model_class = MiniBertForMaskedLM

    def check(self, config: MiniBertConfig) -> None:
        super().check(config)
        check_masking(dataclasses.replace(self.masking, rate_points=self.rate_points))
        if self.masking.static_masking and self.masking.rate_schedule != "constant":
            raise ValueError(
                f"rate_schedule: {self.masking.rate_schedule!r} does not go with --static_masking, whose masks are"
                " drawn before training; legal: constant"
            )

    def check_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> None:
        super().check_tokenizer(tokenizer)
        if tokenizer.mask_token is None:
            raise ValueError(
                f"tokenizer: {tokenizer.name_or_path!r} has no mask token, which masked language modelling needs;"
                " give it one with tokenizer.add_special_tokens({'mask_token': '[MASK]'})"
            )

    @functools.cached_property
    def rate_points(self) -> dict[float, float]:
        return read_rate_points(self.masking.rate_points)

    def collator(self, tokenizer: PreTrainedTokenizerBase, train: datasets.Dataset) -> MaskedLMCollator:
        counts = None
        if self.masking.random_replacement == "unigram":
            counts = unigram_counts((row["input_ids"] for row in train), len(tokenizer))
        return MaskedLMCollator(
            tokenizer,
            mlm_probability=self.masking.mlm_probability,
            masking=self.masking.masking,
            mask_replace_prob=self.masking.mask_replace_prob,
            random_replace_prob=self.masking.random_replace_prob,
            random_replacement=self.masking.random_replacement,
            unigram_counts=counts,
            rate_schedule=self.masking.rate_schedule,
            rate_points=self.rate_points,
            at_least_one_target=self.masking.at_least_one_target,
            static_masking=self.masking.static_masking,
            seed=self.seed,
        )

    def lines(self, report: Mapping[str, Any]) -> list[str]:
        return token_lines(report, "masked positions")

    def examples(self, folder: Path, documents: datasets.Dataset, tokenizer: PreTrainedTokenizerBase) -> list[str]:
        """A word masked in a few held-out sentences, filled by the model that was saved."""
        masked, words = [], []
        for text in documents["text"]:
            sentence = text.splitlines()[0].split()
            if 6 <= len(sentence) <= 25 and len(masked) < 4:
                inner = range(1, len(sentence) - 1)
                middle = max(inner, key=lambda i: (sentence[i].isalpha(), -abs(i - len(sentence) // 2)))
                words.append(sentence[middle])
                masked.append(" ".join([*sentence[:middle], tokenizer.mask_token, *sentence[middle + 1 :]]))
        lines = ["Held-out text, filled by the saved model:"]
        for text, word, candidates in zip(masked, words, fill_masks(masked, str(folder), top_k=3)):
            guesses = ", ".join(f"{guess['token_str'].strip()} {guess['score']:.0%}" for guess in candidates[0])
            lines += [f"  {text}", f"    was: {word}; model: {guesses}"]
        return lines


def read_rate_points(points: list[str]) -> dict[float, float]:
    """`["0.5:0.2", "1:0.15"]` → {0.5: 0.2, 1.0: 0.15}.

    Raises:
        ValueError: a point that is not of the form share:rate.
    """
    read = {}
    for point in points:
        share, _, rate = point.partition(":")
        try:
            read[float(share)] = float(rate)
        except ValueError:
            raise ValueError(
                f"rate_points: {point!r} is no point; legal: share of the training:rate, such as 0.5:0.2"
            ) from None
    return read
