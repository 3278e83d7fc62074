"""Next-token prediction: the decoder of the same blocks and the same number of parameters, to compare with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from ....configuration_minibert import MiniBertConfig
from ....modeling_minibert import MiniBertForCausalLM
from ...data.collators import MaskedLMCollator
from ...data.masking import IGNORE_INDEX
from .base import Objective, token_lines


@dataclass
class CausalLMCollator(MaskedLMCollator):
    """Every token but the first of its document is a target; nothing is masked. Else as its parent.

    The first tokens are marked -100, so that the number of targets, by which `Trainer` divides the loss over gradient
    accumulation, is the number of predictions.
    """

    mlm: bool = False

    def _mask(self, tokens, lengths, row_numbers, begins):
        input_ids, labels = super()._mask(tokens, lengths, row_numbers, begins)
        real = tokens["attention_mask"] != 0
        return input_ids, np.where(real & np.roll(real, 1) & ~begins, labels, IGNORE_INDEX)


class CausalLM(Objective):
    """Predict every next token."""

    name = "clm"
    model_class = MiniBertForCausalLM
    metric = "clm_loss"

    def config_fields(self) -> dict[str, Any]:
        return {"is_causal": True}

    def check(self, config: MiniBertConfig) -> None:
        if not config.is_causal:
            raise ValueError("is_causal: False does not go with --objective clm; legal: True, or leave it out")

    def collator(self, tokenizer: PreTrainedTokenizerBase, train: datasets.Dataset) -> CausalLMCollator:
        return CausalLMCollator(tokenizer, seed=self.seed)

    def lines(self, report: Mapping[str, Any]) -> list[str]:
        return token_lines(report, "next tokens")

    def examples(self, folder: Path, documents: datasets.Dataset, tokenizer: PreTrainedTokenizerBase) -> list[str]:
        """The beginnings of a few held-out sentences, continued greedily by the model that was saved."""
        model = MiniBertForCausalLM.from_pretrained(folder).eval()
        lines = ["Held-out text, continued by the saved model:"]
        for text in documents["text"]:
            words = text.splitlines()[0].split()
            if 6 <= len(words) <= 25:
                start = " ".join(words[: len(words) // 2])
                prompt = torch.tensor([tokenizer(start)["input_ids"][:-1]])  # without [SEP], the end of the document
                ids = model.generate(
                    prompt,
                    attention_mask=torch.ones_like(prompt),
                    max_new_tokens=12,
                    do_sample=False,
                    eos_token_id=tokenizer.sep_token_id,
                    pad_token_id=tokenizer.pad_token_id,
                )
                continued = tokenizer.decode(ids[0, prompt.shape[1] :], skip_special_tokens=True)
                lines += [f"  {start} → {continued}", f"    was: {' '.join(words[len(words) // 2 :])}"]
            if len(lines) > 8:
                break
        return lines
