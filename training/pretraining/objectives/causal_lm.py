"""Next-token prediction: the decoder of the same blocks and the same number of parameters, to compare with."""

from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer

from ....configuration_minibert import MiniBertConfig
from ....modeling_minibert import MiniBertForCausalLM
from ....tokenization import plain_tokenizer
from ...data.collators import MaskedLMCollator
from .base import Objective


class CausalLM(Objective):
    """Predict every next token. A document begins with [CLS] and ends with [SEP], which is what `generate` begins with
    and stops at; the saved tokenizer gives [CLS] alone, since a text is then a prompt."""

    name = "clm"
    model_class = MiniBertForCausalLM
    metric = "clm_loss"
    config_fields = {"is_causal": True}

    def prepare_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
        tokenizer = plain_tokenizer(super().prepare_tokenizer(tokenizer))  # BERT's class would put [SEP] behind prompts
        tokenizer.bos_token, tokenizer.eos_token = tokenizer.cls_token, tokenizer.sep_token
        return tokenizer

    def model(
        self, source: Any, config: MiniBertConfig, tokenizer: PreTrainedTokenizerBase
    ) -> tuple[PreTrainedModel, list[str]]:
        config.bos_token_id, config.eos_token_id = config.cls_token_id, config.sep_token_id
        model, new = super().model(source, config, tokenizer)
        for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
            setattr(model.generation_config, name, getattr(config, name))
        model.generation_config.use_cache = False  # there is none, by which guidance would shorten the text
        return model, new

    def collator(self, tokenizer: PreTrainedTokenizerBase, **options: Any) -> MaskedLMCollator:
        return MaskedLMCollator(tokenizer, mlm=False, seed=self.args.seed, **options)

    def save(self, trainer: Trainer, folder: Path) -> None:
        """Text is a prompt from now on: the tokenizer no longer puts [SEP], the end of the document, behind it."""
        trainer.processing_class.add_bos_token = True
        super().save(trainer, folder)
