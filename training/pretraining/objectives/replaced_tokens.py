"""Replaced-token detection (ELECTRA: Clark et al. 2020, arXiv 2003.10555)."""

import copy
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer
from transformers.utils import ModelOutput

from ....configuration_minibert import SPECIAL_IDS, MiniBertConfig
from ....modeling_minibert import MiniBertForMaskedLM, MiniBertForReplacedTokenDetection
from ....tokenization import regular_tokens
from ...data.collators import MaskedLMCollator
from ...data.masking import IGNORE_INDEX
from .base import means, token_score
from .examples import find_content_word
from .masked_lm import MaskedLM

SHARED_EMBEDDINGS = ("tok_embeddings", "position_embeddings", "token_type_embeddings")


def generator_config(config: MiniBertConfig, size: float) -> MiniBertConfig:
    """The generator's: as deep as the discriminator's `config`, its width times `size` rounded to whole heads (of the
    same width), its MLP as much narrower."""
    heads = max(1, round(size * config.num_attention_heads))
    share, narrow = heads / config.num_attention_heads, copy.deepcopy(config)
    narrow.num_attention_heads, narrow.hidden_size = heads, round(config.hidden_size * share)
    narrow.intermediate_size = max(1, round(config.intermediate_size * share))
    return narrow


def sample_tokens(logits: torch.Tensor, temperature: float, never: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """A token for every target, int64 [targets], with p ∝ exp(logit / temperature) of [targets, vocabulary], where
    `uniform` numbers from 0 to 1, [targets], fall among the summed probabilities; never those of the ids `never`, [k].
    """
    scores = logits.detach().float().index_fill(1, never, -math.inf)
    scores = (scores - scores.amax(1, keepdim=True)) / temperature
    summed = scores.softmax(1).cumsum(1)
    end = summed[:, -1:]
    places = torch.minimum(uniform.to(end)[:, None] * end, torch.nextafter(end, torch.zeros_like(end)))
    return torch.searchsorted(summed, places, right=True).squeeze(1)


class DetectorWithGenerator(MiniBertForReplacedTokenDetection):
    """The discriminator, and while it is trained the generator that replaces tokens for it.

    The generator is a MiniBERT for masked language modelling whose embeddings (words, learned positions, segments) are
    the discriminator's, projected to its own width unless the config has an `embedding_size`; its decoder is tied to
    them as to any others. With the projected tables an ordinary MiniBERT is the generator (`plain_generator`). The
    discriminator's weights have their usual names in the state dictionary, so every head loads what `save_pretrained`
    writes; the generator's stand beside them.

    Args:
        config, narrow: the discriminator's config, and the generator's (see `generator_config`).
        weight: of the discriminator's loss beside the generator's.
        temperature: at which the generator's tokens are sampled.
        never: ids that it never puts in a target's place, beside the special ones of the config.
    """

    def __init__(
        self,
        config: MiniBertConfig,
        narrow: MiniBertConfig,
        weight: float,
        temperature: float,
        never: Collection[int] = (),
    ):
        super().__init__(config)
        self.weight, self.temperature = weight, temperature
        self.generator = MiniBertForMaskedLM(narrow)
        self.projection = nn.Identity()
        here, there = (each.embedding_size or each.hidden_size for each in (config, narrow))
        if there != here:
            self.projection = nn.Linear(here, there, bias=False)
            # the projected tables start with the standard deviation of the tables
            nn.init.normal_(self.projection.weight, std=here**-0.5)
        for name in self.projected_tables():
            self.generator.get_submodule(name.removesuffix(".weight")).weight = None  # `forward` lends it one
        # What is never masked is never a replacement: special tokens, [MASK] above all.
        ids = (getattr(config, name) for name in SPECIAL_IDS)
        special = {i for given in ids if given is not None for i in (given if isinstance(given, list) else [given])}
        self.register_buffer("never", torch.tensor(sorted({*special, *never}), dtype=torch.long), persistent=False)

    def projected_tables(self) -> dict[str, torch.Tensor]:
        """The embeddings as the generator sees them, by the names of its own parameters."""
        embeddings, tables = self.model.embeddings, {}
        # in full precision, like the embeddings of any model: the rows of frequent tokens gather many small gradients
        with torch.autocast(self.device.type, enabled=False):
            for name in SHARED_EMBEDDINGS:
                if getattr(embeddings, name) is not None:
                    tables[f"model.embeddings.{name}.weight"] = self.projection(getattr(embeddings, name).weight)
        if self.config.tie_word_embeddings:
            tables["decoder.weight"] = tables["model.embeddings.tok_embeddings.weight"]
        return tables

    def forward(
        self,
        input_ids: torch.Tensor,
        target_draws: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        cu_seq_lens_q: torch.Tensor | None = None,
        max_length_q: int | None = None,
        masked_lm_positions: torch.Tensor | None = None,
        num_items_in_batch: int | torch.Tensor | None = None,
        num_tokens_in_batch: int | torch.Tensor | None = None,
        **kwargs,
    ) -> ModelOutput:
        """Fill the masks with the generator's samples, and find them.

        Args:
            input_ids: [batch, length], masked.
            target_draws: [batch, length], what the samples are drawn by, see `MaskedLMCollator`.
            labels: [batch, length], the original id at masked positions, -100 elsewhere.
            attention_mask, position_ids, cu_seq_lens_q, max_length_q, masked_lm_positions: see `MiniBertForMaskedLM`.
            num_items_in_batch, num_tokens_in_batch: masked and real tokens over all micro-batches of an optimizer step.

        Returns:
            `loss`, the sum of `mlm_loss` (the generator's) and the weighted `rtd_loss` (the discriminator's);
            [batch, length], the discriminator's `logits`, above 0 where a token looks replaced, `replaced` (0, 1, -100
            at padding), and the `corrupted_ids` that it read; [targets, vocabulary], `generator_logits`.
        """
        layout = dict(attention_mask=attention_mask, token_type_ids=token_type_ids, position_ids=position_ids)
        layout |= dict(cu_seq_lens_q=cu_seq_lens_q, max_length_q=max_length_q)
        targeted = dict(labels=labels, masked_lm_positions=masked_lm_positions, sparse_prediction=True)
        generated = torch.func.functional_call(
            self.generator,
            self.projected_tables(),
            (input_ids,),
            dict(**layout, **targeted, num_items_in_batch=num_items_in_batch),
        )
        targets = labels != IGNORE_INDEX
        sampled = sample_tokens(generated.logits, self.temperature, self.never, target_draws[targets] * 2.0**-53)
        corrupted = input_ids.masked_scatter(targets, sampled)
        replaced = (corrupted != torch.where(targets, labels, input_ids)).long()
        if attention_mask is not None:
            replaced = replaced.masked_fill(attention_mask == 0, IGNORE_INDEX)
        detected = super().forward(corrupted, labels=replaced, num_items_in_batch=num_tokens_in_batch, **layout)
        return ModelOutput(
            loss=generated.loss + self.weight * detected.loss,
            logits=detected.logits,
            mlm_loss=generated.loss,
            rtd_loss=detected.loss,
            replaced=replaced,
            generator_logits=generated.logits,
            corrupted_ids=corrupted,
        )

    def discriminator(self) -> MiniBertForReplacedTokenDetection:
        """The discriminator alone; its weights are the same tensors."""
        return _assemble(MiniBertForReplacedTokenDetection, self.config, self.state_dict())

    def plain_generator(self) -> MiniBertForMaskedLM:
        """The generator as an ordinary model, with embeddings of its own width."""
        tables = {name: table.detach() for name, table in self.projected_tables().items()}
        return _assemble(MiniBertForMaskedLM, self.generator.config, self.generator.state_dict() | tables)

    def save_pretrained(self, save_directory: str | Path, state_dict: dict | None = None, **kwargs) -> None:
        """A checkpoint of the training: the discriminator's, with the generator's weights in the same file."""
        state_dict = self.state_dict() if state_dict is None else state_dict
        self.discriminator().save_pretrained(save_directory, state_dict=state_dict, **kwargs)


def _assemble(model_class: type[PreTrainedModel], config: MiniBertConfig, weights: Mapping[str, torch.Tensor]) -> Any:
    with torch.device("meta"):
        model = model_class(config)
    model.load_state_dict({name: weights[name] for name in model.state_dict()}, assign=True)
    model.tie_weights()
    return model


class ReplacedTokenDetection(MaskedLM):
    """A small generator fills in masked tokens, the model finds which tokens it has replaced."""

    name = "rtd"
    model_class = MiniBertForReplacedTokenDetection
    metric = "rtd_loss"
    masking_defaults = {"mlm_probability": 0.15, "mask_replace_prob": 1.0, "random_replace_prob": 0.0}

    def check(self, config: MiniBertConfig, streaming: bool = False) -> None:
        super().check(config, streaming)
        for name, most in (("generator_size", 1), ("discriminator_weight", 1e9), ("generator_temperature", 1e9)):
            value = getattr(self.args, name)
            least = "0 or more" if name == "discriminator_weight" else "above 0"
            if not 0 <= value <= most or (value == 0 and least == "above 0"):
                raise ValueError(f"{name}: {value} does not go with --objective rtd; use {least}, at most {most:g}")

    def model(
        self, source: Any, config: MiniBertConfig, tokenizer: PreTrainedTokenizerBase
    ) -> tuple[DetectorWithGenerator, list[str]]:
        """A generator is always new; the discriminator is the model of `source`."""
        args, narrow = self.args, generator_config(config, self.args.generator_size)
        never = {*range(config.vocab_size)} - {*np.flatnonzero(regular_tokens(tokenizer)).tolist()}
        model = DetectorWithGenerator(config, narrow, args.discriminator_weight, args.generator_temperature, never)
        if isinstance(source, MiniBertConfig):
            return model, []
        detector, new = super().model(source, config, tokenizer)
        model.load_state_dict(detector.state_dict(), strict=False)
        return model, new

    def collator(self, tokenizer: PreTrainedTokenizerBase, **options: Any) -> MaskedLMCollator:
        return super().collator(tokenizer, target_draws=True, **options)

    def counts(self, batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"num_tokens_in_batch": batch.get("attention_mask", torch.ones_like(batch["input_ids"])).count_nonzero()}

    def score(self, outputs: Any, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        real = outputs["replaced"] != IGNORE_INDEX
        logits, replaced = outputs["logits"][real].float(), outputs["replaced"][real].bool()
        flagged = logits > 0
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, replaced.float(), reduction="sum")
        counts = (real.sum(), (flagged & replaced).sum(), flagged.sum(), replaced.sum())
        found = torch.stack([loss, *(count.float() for count in counts)])
        return torch.cat([token_score(outputs["generator_logits"], batch["labels"]), found])

    def metrics(self, sums: Sequence[float]) -> dict[str, float]:
        mlm_loss, right, targets, rtd_loss, tokens, found, flagged, replaced = sums
        right_tokens = tokens - (flagged + replaced - 2 * found)
        metrics = means(tokens, rtd_loss=rtd_loss, accuracy=right_tokens, replaced=replaced)
        metrics |= means(targets, mlm_loss=mlm_loss, mlm_accuracy=right)
        if replaced:
            metrics["replaced_precision"] = found / max(flagged, 1)
            metrics |= means(replaced, replaced_recall=found) | means(flagged + replaced, replaced_f1=2 * found)
        return metrics | {"targets": tokens, "mlm_targets": targets}

    def report(self, metrics: Mapping[str, float], baseline: tuple[float, float]) -> dict[str, Any]:
        """The discriminator's metrics, beside those of `constant_` answers: "original" for every token, at best with
        the probability that it is; and the generator's."""
        share, shown = metrics["eval_replaced"], ("accuracy", "replaced_precision", "replaced_recall", "replaced_f1")
        entropy = -sum(p * math.log(p) for p in (share, 1 - share) if p > 0)
        return {
            "validation_loss": metrics["eval_rtd_loss"],
            **{name: metrics.get(f"eval_{name}") for name in shown},
            "targets": int(metrics["eval_targets"]),
            "constant_loss": entropy,
            "constant_accuracy": 1 - share,
            "generator": {
                "loss": metrics.get("eval_mlm_loss"),
                "accuracy": metrics.get("eval_mlm_accuracy"),
                "targets": int(metrics["eval_mlm_targets"]),
                "unigram_loss": baseline[0],
                "unigram_accuracy": baseline[1],
            },
        }

    def save(self, trainer: Trainer, folder: Path) -> None:
        """The discriminator as an ordinary model, and the generator as another in the folder `generator`."""
        both = trainer.model
        if trainer.args.should_save:
            both.plain_generator().save_pretrained(folder / "generator")
            trainer.processing_class.save_pretrained(folder / "generator")
        trainer.model = self.trained(both)
        try:
            super().save(trainer, folder)
        finally:
            trainer.model = both

    def trained(self, model: DetectorWithGenerator) -> MiniBertForReplacedTokenDetection:
        return model.discriminator()

    @torch.no_grad()
    def examples(self, folder: Path, sentences: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> list[str]:
        """A word of each sentence replaced by one of another sentence, and the tokens that the saved model flags."""
        model = MiniBertForReplacedTokenDetection.from_pretrained(folder).eval()
        places = [find_content_word(sentence, tokenizer) for sentence in sentences]
        words = [sentence[place] for sentence, place in zip(sentences, places)]
        lines = ["Held-out text with a word replaced, and what the saved model takes for replaced:"]
        for sentence, place, word in zip(sentences, places, words):
            other = next((each for each in words if each.lower() not in sentence.lower()), word[::-1])
            text = sentence[: place.start] + other + sentence[place.stop :]
            batch = tokenizer(text, return_offsets_mapping=True, return_tensors="pt")
            spans = batch.pop("offset_mapping")[0].tolist()
            scores = model(**batch).logits[0].sigmoid().tolist()
            flagged = [f"{text[a:b].strip()} {p:.0%}" for p, (a, b) in zip(scores, spans) if p > 0.5 and a < b]
            lines += [f"  {text}", f"    was: {word}; flagged: {', '.join(flagged) or 'nothing'}"]
        return lines
