"""Replaced-token detection (ELECTRA: Clark et al. 2020, arXiv 2003.10555)."""

import copy
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedTokenizerBase
from transformers.utils import ModelOutput

from ....configuration_minibert import MiniBertConfig
from ....modeling_minibert import MiniBertForMaskedLM, MiniBertForReplacedTokenDetection
from ....tokenization import regular_tokens
from ...data.collators import MaskedLMCollator
from ...data.masking import IGNORE_INDEX
from .base import UnigramBaseline, mean_metrics, token_sums
from .masked_lm import MaskedLM

SHARED_EMBEDDINGS = ("tok_embeddings", "position_embeddings", "token_type_embeddings")


def make_generator_config(config: MiniBertConfig, size: float) -> MiniBertConfig:
    """The generator's config: as deep as the discriminator's, `size` times as wide (in whole heads
    of the same width), with an MLP narrowed alike."""
    heads = max(1, round(size * config.num_attention_heads))
    share = heads / config.num_attention_heads
    generator = copy.deepcopy(config)
    generator.num_attention_heads = heads
    generator.hidden_size = round(config.hidden_size * share)
    generator.intermediate_size = max(1, round(config.intermediate_size * share))
    return generator


def sample_tokens(
    logits: torch.Tensor, suppress_tokens: torch.Tensor, uniform: torch.Tensor
) -> torch.Tensor:
    """Sample a token for every target with p ∝ exp(logit): the token where the `uniform` number of
    the target falls among the summed probabilities.

    Args:
        logits: [targets, vocabulary].
        suppress_tokens: [k], ids that are never sampled.
        uniform: [targets], numbers from 0 to 1.

    Returns:
        int64 [targets].
    """
    logits = logits.detach().float().index_fill(1, suppress_tokens, -math.inf)
    summed = logits.softmax(1).cumsum(1)
    total = summed[:, -1:]
    below_total = torch.nextafter(total, torch.zeros_like(total))
    samples = torch.minimum(uniform.to(total)[:, None] * total, below_total)
    return torch.searchsorted(summed, samples, right=True).squeeze(1)


class DetectorWithGenerator(MiniBertForReplacedTokenDetection):
    """The discriminator with the generator that replaces tokens for it in training.

    The generator is a MiniBERT for masked language modelling. It uses the embeddings of the
    discriminator (words, learned positions, segments), projected to its own width if that differs.
    In the state dictionary, the weights of the discriminator have their usual names, so that every
    head can load a checkpoint.

    Args:
        config: the discriminator's config.
        generator_config: the generator's, see `make_generator_config`.
        discriminator_weight: weight of the discriminator's loss relative to the generator's.
        suppress_tokens: ids that the generator never samples: special tokens, above all [MASK].
    """

    def __init__(
        self,
        config: MiniBertConfig,
        generator_config: MiniBertConfig,
        discriminator_weight: float,
        suppress_tokens: Collection[int],
    ):
        super().__init__(config)
        self.discriminator_weight = discriminator_weight
        self.generator = MiniBertForMaskedLM(generator_config)
        self.projection = nn.Identity()
        width = config.embedding_size or config.hidden_size
        generator_width = generator_config.embedding_size or generator_config.hidden_size
        if generator_width != width:
            self.projection = nn.Linear(width, generator_width, bias=False)
            # the projected tables start with the standard deviation of the tables
            nn.init.normal_(self.projection.weight, std=width**-0.5)
        for name in self.projected_tables():
            module = self.generator.get_submodule(name.removesuffix(".weight"))
            module.weight = None  # `forward` lends it one
        suppressed = torch.tensor(sorted(suppress_tokens), dtype=torch.long)
        self.register_buffer("suppress_tokens", suppressed, persistent=False)

    def projected_tables(self) -> dict[str, torch.Tensor]:
        """The embeddings as the generator sees them, by the names of its own parameters."""
        tables = {}
        # in full precision, like the embeddings of any model: rows of frequent tokens add up many
        # small gradients
        with torch.autocast(self.device.type, enabled=False):
            for name in SHARED_EMBEDDINGS:
                embedding = getattr(self.model.embeddings, name)
                if embedding is not None:
                    table = self.projection(embedding.weight)
                    tables[f"model.embeddings.{name}.weight"] = table
        if self.config.tie_word_embeddings:
            tables["decoder.weight"] = tables["model.embeddings.tok_embeddings.weight"]
        return tables

    def forward(
        self, input_ids: torch.Tensor, target_draws: torch.Tensor, labels: torch.Tensor,
        token_type_ids: torch.Tensor | None = None, position_ids: torch.Tensor | None = None,
        masked_lm_positions: torch.Tensor | None = None,
        num_items_in_batch: int | torch.Tensor | None = None,
        num_tokens_in_batch: int | torch.Tensor | None = None,
        sparse_prediction: bool = True, **layout,
    ) -> ModelOutput:  # fmt: skip
        """Fill the masks with the generator's samples, and find them.

        Args:
            input_ids, labels: [batch, length], masked; and the original id at masked positions,
                -100 elsewhere.
            target_draws: [batch, length], the random numbers of the samples, see
                `MaskedLMCollator`.
            num_items_in_batch, num_tokens_in_batch: masked and real tokens over all micro-batches
                of an optimizer step.
            layout: further arguments of `MiniBertForMaskedLM.forward`.

        Returns:
            `loss`, the sum of `mlm_loss` (the generator's) and the weighted `rtd_loss` (the
            discriminator's); [batch, length], the discriminator's `logits`, above 0 where a token
            looks replaced, `replaced` (0, 1, -100 at padding), and the `corrupted_ids` that it
            read; [targets, vocabulary], `generator_logits`.
        """
        layout["token_type_ids"] = token_type_ids
        layout["position_ids"] = position_ids
        generator_inputs = layout | {
            "labels": labels,
            "masked_lm_positions": masked_lm_positions,
            "num_items_in_batch": num_items_in_batch,
            "sparse_prediction": True,
        }
        generated = torch.func.functional_call(
            self.generator, self.projected_tables(), (input_ids,), generator_inputs
        )
        targets = labels != IGNORE_INDEX
        uniform = target_draws[targets] * 2.0**-53
        sampled = sample_tokens(generated.logits, self.suppress_tokens, uniform)
        corrupted = input_ids.masked_scatter(targets, sampled)
        original = torch.where(targets, labels, input_ids)
        replaced = (corrupted != original).long()
        attention_mask = layout.get("attention_mask")
        if attention_mask is not None:
            replaced = replaced.masked_fill(attention_mask == 0, IGNORE_INDEX)
        detected = super().forward(
            corrupted, labels=replaced, num_items_in_batch=num_tokens_in_batch, **layout
        )
        return ModelOutput(
            loss=generated.loss + self.discriminator_weight * detected.loss,
            mlm_loss=generated.loss,
            rtd_loss=detected.loss,
            logits=detected.logits,
            generator_logits=generated.logits,
            replaced=replaced,
            corrupted_ids=corrupted,
        )

    def discriminator(self) -> MiniBertForReplacedTokenDetection:
        """The discriminator alone; it shares its tensors with this model."""
        with torch.device("meta"):
            model = MiniBertForReplacedTokenDetection(self.config)
        weights = self.state_dict()
        model.load_state_dict({name: weights[name] for name in model.state_dict()}, assign=True)
        return model

    def save_pretrained(
        self, save_directory: str | Path, state_dict: dict | None = None, **kwargs
    ) -> None:
        """Save a checkpoint of the training: a discriminator, with the generator's weights in the
        same file."""
        state_dict = self.state_dict() if state_dict is None else state_dict
        self.discriminator().save_pretrained(save_directory, state_dict=state_dict, **kwargs)


class ReplacedTokenDetection(MaskedLM):
    """Find the tokens that a small generator has replaced at masked positions."""

    name = "rtd"
    model_class = MiniBertForReplacedTokenDetection
    metric = "rtd_loss"
    targets_name = "tokens"
    masking_defaults = {
        "mlm_probability": 0.15,
        "mask_replace_prob": 1.0,
        "random_replace_prob": 0.0,
    }
    baseline_name = "always “original”"
    baseline_prefix = "constant_"
    supports_label_smoothing = False
    can_halve_batches = False
    needs_whole_matrices = True  # the generator's embeddings are projected from the discriminator's

    def check(self, config: MiniBertConfig, streaming: bool = False) -> None:
        super().check(config, streaming)
        if not 0 < self.args.generator_size <= 1:
            raise ValueError(
                f"generator_size must be above 0 and at most 1, got {self.args.generator_size}"
            )

    def make_model(
        self, source: Any, config: MiniBertConfig, tokenizer: PreTrainedTokenizerBase
    ) -> DetectorWithGenerator:
        """Make a discriminator from `source`, with a new generator."""
        regular_ids = np.flatnonzero(regular_tokens(tokenizer)).tolist()
        suppress_tokens = set(range(config.vocab_size)).difference(regular_ids)
        generator_config = make_generator_config(config, self.args.generator_size)
        model = DetectorWithGenerator(
            config, generator_config, self.args.discriminator_weight, suppress_tokens
        )
        if not isinstance(source, MiniBertConfig):
            detector = super().make_model(source, config, tokenizer)
            model.load_state_dict(detector.state_dict(), strict=False)
        return model

    def make_collator(self, tokenizer: PreTrainedTokenizerBase, **options: Any) -> MaskedLMCollator:
        return super().make_collator(tokenizer, target_draws=True, **options)

    def count_targets(self, batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        real = batch.get("attention_mask", torch.ones_like(batch["input_ids"]))
        return {"num_tokens_in_batch": real.count_nonzero()}

    def batch_sums(
        self, outputs: Any, batch: Mapping[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        real = outputs["replaced"] != IGNORE_INDEX
        logits = outputs["logits"][real].float()
        replaced = outputs["replaced"][real].bool()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            logits, replaced.float(), reduction="sum"
        )
        right = (logits > 0) == replaced
        generator_sums = token_sums(outputs["generator_logits"], batch["labels"])
        return {
            "mlm_loss": generator_sums["loss"],
            "mlm_right": generator_sums["right"],
            "mlm_targets": generator_sums["targets"],
            "loss": loss,
            "right": right.sum().float(),
            "tokens": real.sum().float(),
            "replaced": replaced.sum().float(),
        }

    def metrics(self, sums: Mapping[str, float]) -> dict[str, float]:
        metrics = mean_metrics(
            sums["tokens"],
            rtd_loss=sums["loss"],
            accuracy=sums["right"],
            replaced=sums["replaced"],
        )
        metrics |= mean_metrics(
            sums["mlm_targets"], mlm_loss=sums["mlm_loss"], mlm_accuracy=sums["mlm_right"]
        )
        metrics["targets"] = sums["tokens"]
        return metrics

    def total_loss(self, metrics: Mapping[str, float]) -> float | None:
        detection_loss = super().total_loss(metrics)
        if detection_loss is None:
            return None
        generator_loss = metrics.get("mlm_loss", 0.0)
        return generator_loss + self.args.discriminator_weight * detection_loss

    def make_report(self, metrics: Mapping[str, float], unigram: UnigramBaseline) -> dict[str, Any]:
        """The discriminator's metrics and, as a baseline, those of a constant answer (`constant_`):
        "original" for every token, with the probability that it is."""
        share = metrics["eval_replaced"]
        return {
            "validation_loss": metrics["eval_rtd_loss"],
            "accuracy": metrics["eval_accuracy"],
            "targets": int(metrics["eval_targets"]),
            "constant_loss": -sum(p * math.log(p) for p in (share, 1 - share) if p > 0),
            "constant_accuracy": 1 - share,
        }

    def model_to_save(self, model: DetectorWithGenerator) -> MiniBertForReplacedTokenDetection:
        """The discriminator, as an ordinary model."""
        return model.discriminator()

    def card_example(self, *_: Any) -> None:
        return None  # a discriminator fills no masks

    def demo_lines(self, *_: Any) -> list[str]:
        return []  # a discriminator fills no masks
