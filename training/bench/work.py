"""What a cell of the benchmark is made of, what it costs in model FLOPs, and which backend MiniBERT takes there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import nn

from ...attention_minibert import Documents, choose_kernel
from ...configuration_minibert import MiniBertConfig
from ...modeling_minibert import MiniBertForMaskedLM
from ..arguments.pretraining import CorpusArguments
from .models import SEED, Step

if TYPE_CHECKING:
    from .text import Text

# Ids below are left to special tokens.
FIRST_WORD = 5

MFU_FORMULA = (
    "MFU = model FLOPs / median time / the median rate of a large torch.matmul in the same precision and rounds"
)
FLOPS_FORMULA = (
    "model FLOPs = 2 · (encoder matrix parameters · tokens + head matrix parameters · predicted tokens)"
    " + 4 · width · Σ over layers and tokens of the tokens seen, times 3 in training (forward and backward);"
    " padding, and logits where nothing is predicted, do not count"
)


@dataclass
class Run:
    """What all cells of a run share."""

    device: torch.device
    quick: bool  # tiny shapes: does it work, not how fast is it
    compile: bool
    corpus: CorpusArguments

    @cached_property
    def text(self) -> Text:
        from .text import Text  # takes seconds to import; most cells read no text

        return Text(self.corpus, self.quick)

    def choose(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def config(self, family: str, size: str, **switches) -> MiniBertConfig:
        if self.quick:
            size, switches = "tiny", switches | dict(vocab_size=1024, pad_token_id=0)
        return getattr(MiniBertConfig, family)(size, **switches)


@dataclass(frozen=True)
class Ratio:
    """One entry's measure over another's, and what is wanted of it."""

    numerator: str
    denominator: str
    at_least: float | None = None
    at_most: float | None = None


@dataclass
class Work:
    """A cell, ready to be measured."""

    steps: dict[str, Callable[[], Step]]
    calls: int  # a step is called with 0 … calls - 1
    dtype: torch.dtype
    ratios: list[Ratio]
    backend: dict[str, str]  # of MiniBERT: kind of layer → kernel and why
    tokens: int | None = None  # that are not padding, over all calls
    places: int | None = None  # padding included
    flops: float | None = None  # of the model on these tokens, over all calls
    guarded: tuple[str, ...] = ()  # steps that first have to prove in a process of their own that they end at all


@dataclass(frozen=True)
class Cell:
    """Something to measure, `measure` being "seconds" or "bytes"."""

    name: str
    what: str
    build: Callable[[Run], Work]
    measure: str = "seconds"
    devices: tuple[str, ...] = ("cpu", "cuda")


def backends(
    config: MiniBertConfig, device: torch.device, dtype: torch.dtype, counted: bool = True, dropout: float = 0.0
) -> dict[str, str]:
    """The kernel of each kind of layer, and why.

    Args:
        counted: no `position_ids` are given.
        dropout: on the attention probabilities.
    """
    width = config.hidden_size // config.num_attention_heads
    return {
        kind: "{} ({})".format(*choose_kernel(device, dtype, width, kind != "full_attention", counted, dropout))
        for kind in sorted(set(config.layer_types))
    }


def model_flops(config: MiniBertConfig, lengths: list[int], predicted: int, training: bool) -> float:
    """See FLOPS_FORMULA.

    Args:
        lengths: tokens of each document.
        predicted: tokens that the vocabulary is computed for (0: no head).
    """
    with torch.device("meta"):
        model = MiniBertForMaskedLM(config)

    def matrices(module: nn.Module) -> int:
        return sum(linear.weight.numel() for linear in module.modules() if isinstance(linear, nn.Linear))

    encoder = matrices(model.model)
    head = matrices(model) - encoder
    seen = sum(
        tokens_seen(length, None if kind == "full_attention" else config.sliding_window)
        for kind in config.layer_types
        for length in lengths
    )
    forward = 2.0 * (encoder * sum(lengths) + head * predicted) + 4.0 * config.hidden_size * seen
    return 3 * forward if training else forward


def tokens_seen(length: int, window: int | None) -> int:
    """Pairs (i, j) of a document with |i - j| <= window."""
    if window is None or length <= window + 1:
        return length**2
    return length * (2 * window + 1) - window * (window + 1)


def random_texts(lengths: list[int], vocab_size: int, device: torch.device) -> dict[str, torch.Tensor]:
    """A batch of random tokens for inference, one text of each length, padded to the longest."""
    generator = torch.Generator().manual_seed(SEED)
    ids = torch.randint(FIRST_WORD, vocab_size, (len(lengths), max(lengths)), generator=generator)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)).long()
    return {"input_ids": (ids * mask).to(device), "attention_mask": mask.to(device)}


def document_lengths(batch: dict[str, torch.Tensor]) -> list[int]:
    """Real tokens of every document of a batch."""
    ids = batch["input_ids"]
    return Documents(*ids.shape, ids.device, batch["attention_mask"], batch.get("position_ids")).pack().lengths()
