"""Next-token prediction: a decoder of the same blocks and the same number of parameters."""

import copy
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ....configuration_minibert import MiniBertConfig
from ....modeling_minibert import MiniBertForCausalLM
from ....tokenization import plain_tokenizer
from ...data.collators import MaskedLMCollator
from .base import Objective


class CausalLM(Objective):
    """Predict every next token. Documents begin with [CLS] and end with [SEP]; `generate` begins
    and stops at them. The saved tokenizer adds [CLS] only, since a text is then a prompt."""

    name = "clm"
    model_class = MiniBertForCausalLM
    metric = "clm_loss"
    targets_name = "next tokens"
    config_fields = {"is_causal": True}

    def prepare_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
        tokenizer = super().prepare_tokenizer(tokenizer)
        tokenizer = plain_tokenizer(tokenizer)  # BERT's class would add [SEP] to prompts
        tokenizer.bos_token = tokenizer.cls_token
        tokenizer.eos_token = tokenizer.sep_token
        return tokenizer

    def make_model(
        self, source: Any, config: MiniBertConfig, tokenizer: PreTrainedTokenizerBase
    ) -> PreTrainedModel:
        config.bos_token_id = config.cls_token_id
        config.eos_token_id = config.sep_token_id
        model = super().make_model(source, config, tokenizer)
        for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
            setattr(model.generation_config, name, getattr(config, name))
        model.generation_config.use_cache = False  # there is no cache
        return model

    def make_collator(self, tokenizer: PreTrainedTokenizerBase, **options: Any) -> MaskedLMCollator:
        return MaskedLMCollator(tokenizer, mlm=False, seed=self.args.seed, **options)

    def tokenizer_to_save(self, tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
        """A copy that no longer adds [SEP]: for whoever loads it, a text is a prompt."""
        tokenizer = copy.deepcopy(tokenizer)
        tokenizer.add_bos_token = True
        return tokenizer

    def next_command(self, output: Path) -> tuple[Any, ...]:
        return ("minibert", "push", output, "OWNER/NAME", "--dry_run")
