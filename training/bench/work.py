"""What a benchmark is made of: batches of text, the step of a model, and what the work costs in model FLOPs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from ...attention_minibert import Documents
from ...configuration_minibert import MiniBertConfig
from ...modeling_minibert import MiniBertForMaskedLM, MiniBertModel
from ...tokenization import train_tokenizer
from ..arguments.pretraining import CorpusArguments, TokenizerArguments
from ..data.collators import MaskedLMCollator
from ..data.documents import load_documents, tokenize_documents
from ..data.packing import pack_documents

SEED = 0
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}

MFU_FORMULA = (
    "MFU = model FLOPs / median time / the median rate of a large torch.matmul in the same precision and rounds"
)
FLOPS_FORMULA = (
    "model FLOPs = 2 · (encoder matrix parameters · tokens + head matrix parameters · predicted tokens)"
    " + 4 · width · Σ over layers and tokens of the tokens seen, times 3 in training (forward and backward);"
    " padding, and logits where nothing is predicted, do not count"
)

Batch = Mapping[str, torch.Tensor]
Build = Callable[[MiniBertConfig], PreTrainedModel]


@dataclass
class Run:
    """What all benchmarks of a run share."""

    device: torch.device
    quick: bool  # tiny shapes: does it work, not how fast is it
    compile: bool
    corpus: CorpusArguments

    @cached_property
    def text(self) -> Text:
        return Text(self.corpus, self.quick)

    def choose(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def config(self, shape: str, **switches) -> MiniBertConfig:
        """Of "bert-mini" and its like."""
        family, _, size = shape.partition("-")
        if self.quick:
            size, switches = "tiny", switches | dict(vocab_size=1024, pad_token_id=0)
        return getattr(MiniBertConfig, family)(size, **switches)


@dataclass
class Ratio:
    """The time or memory of one model over that of another, and what it should be at least, or `at_most`."""

    numerator: str
    denominator: str
    target: float | None = None
    at_most: bool = False


@dataclass
class Work:
    """A benchmark, ready to be measured."""

    steps: dict[str, Callable[[], Callable[[int], Any]]]  # each builds a model and gives its step
    calls: int  # a step is called with 0 … calls - 1
    dtype: torch.dtype
    ratios: list[Ratio]
    tokens: int | None = None  # that are not padding, over all calls
    places: int | None = None  # padding included
    flops: float | None = None  # of the model on these tokens, over all calls
    guarded: tuple[str, ...] = ()  # steps that first have to prove in a process of their own that they end at all


@dataclass(frozen=True)
class Benchmark:
    """Something to measure, `measure` being "seconds" or "bytes"."""

    name: str
    what: str
    build: Callable[[Run], Work]
    measure: str = "seconds"
    devices: tuple[str, ...] = ("cpu", "cuda")


def model_work(
    run: Run, config: MiniBertConfig, batches: Sequence[Batch], dtype: str, peers: dict[str, tuple[Build, float]],
    training: bool = False, compiled: bool = False,
) -> Work:  # fmt: skip
    """A MiniBERT and its peers (what builds each, and how many times as long as MiniBERT it should take) on the same
    batches: with a language model's head in training, else the encoder. MiniBERT alone is told by `position_ids` where
    the documents of packed rows begin."""
    ours = MiniBertForMaskedLM if training else MiniBertModel
    batches = [{name: x.to(run.device) for name, x in batch.items()} for batch in batches]
    plain = [{name: x for name, x in batch.items() if name != "position_ids"} for batch in batches]
    lengths = [length for batch in batches for length in document_lengths(batch)]
    predicted = sum(int((batch["labels"] != -100).sum()) for batch in batches if "labels" in batch)
    given = dict(device=run.device, dtype=DTYPES[dtype], training=training, compiled=compiled or run.compile)
    return Work(
        {ours.__name__: partial(ModelStep, ours, config, batches, **given)}
        | {name: partial(ModelStep, build, config, plain, **given) for name, (build, _) in peers.items()},
        calls=len(batches),
        dtype=DTYPES[dtype],
        ratios=[Ratio(name, ours.__name__, target) for name, (_, target) in peers.items()],
        tokens=sum(lengths),
        places=sum(batch["input_ids"].numel() for batch in batches),
        flops=model_flops(config, lengths, predicted, training),
    )


class ModelStep:
    """What is timed: called with the number of a batch, the model's work on it.

    Training: one optimizer step, whose loss it returns: forward (bf16 is autocast), backward, fused AdamW. Inference:
    one forward, weights and activations in `dtype`, that returns the last hidden states. Both are the same for all
    models, up to rounding.
    """

    def __init__(
        self, build: Build, config: MiniBertConfig, batches: Sequence[Batch],
        device: torch.device, dtype: torch.dtype, training: bool, compiled: bool,
    ):  # fmt: skip
        torch.manual_seed(SEED)
        self.batches = batches
        self.model = build(config).to(device, None if training else dtype).train(training)
        if training:
            self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        self.autocast = torch.autocast(device.type, torch.bfloat16, training and dtype == torch.bfloat16)
        self.compiled = compiled
        if compiled:
            self.model.compile()
            for number in range(len(batches)):  # the graphs are made here, and not where calls are timed
                self(number)

    def __call__(self, number: int) -> torch.Tensor:
        if not self.model.training:
            with torch.inference_mode():
                return self.model(**self.batches[number]).last_hidden_state
        with self.autocast:
            loss = self.model(**self.batches[number]).loss
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def attention(self) -> dict[str, str]:
        """The kernel that a MiniBERT's attention takes on the first batch, and why, by type of layer."""
        if type(self.model) not in (MiniBertForMaskedLM, MiniBertModel):
            return {}
        inputs = {name: x for name, x in self.batches[0].items() if name != "labels"}
        encoder = self.model.base_model
        if self.compiled:  # a graph may attend otherwise; which backend makes it decides nothing
            encoder = torch.compile(encoder, backend="eager")
        with self.autocast, torch.set_grad_enabled(self.model.training):
            plans = encoder(**inputs, padded_output=False).plans
        return {kind: plan.reason for (kind, _), plan in sorted(plans.items())}


# --- batches ---


class Text:
    """Masked batches of a corpus, the same for all models. Its tokenizer is trained on it, at the size that `minibert
    pretrain` uses."""

    def __init__(self, corpus: CorpusArguments, quick: bool):
        documents = load_documents(**vars(corpus)).shuffle(seed=SEED)
        documents = documents.select(range(min(len(documents), 300 if quick else 20_000)))  # there may be any number
        size = 1000 if quick else TokenizerArguments().vocab_size
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a small corpus gives fewer tokens does not matter here
            self.tokenizer = train_tokenizer(documents["text"], vocab_size=size, show_progress=False)
        self.tokenized = tokenize_documents(documents, self.tokenizer)

    def natural(self, count: int, batch_size: int, length: int) -> list[Batch]:
        """`count` batches of documents as they come, one a row, padded to the longest of the batch; those that are
        longer than `length` are cut into several."""
        rows = pack_documents(self.tokenized, self.tokenizer, length, "padded").select_columns("input_ids")
        order = np.random.default_rng(SEED).permutation(len(rows))
        order = np.resize(order, (count, batch_size))  # a small corpus is read again
        return [self._mask(rows.select(numbers)) for numbers in order]

    def packed(self, count: int, batch_size: int, length: int) -> list[Batch]:
        """`count` batches of rows without any padding, with `position_ids` that restart at every document."""
        rows = pack_documents(self.tokenized, self.tokenizer, length, "packed").with_format("numpy")
        # Best-fit packing leaves a few places free: its rows one behind the other, cut anew, leave none.
        columns = [np.concatenate(rows[name][:]).astype(np.int64) for name in ("input_ids", "position_ids")]
        ids, positions = (np.resize(column, (count, batch_size, length)) for column in columns)
        batches = [[{"input_ids": i, "position_ids": p} for i, p in zip(*batch)] for batch in zip(ids, positions)]
        return [self._mask(rows) for rows in batches]

    def _mask(self, rows: Iterable[dict[str, Any]]) -> Batch:
        return dict(MaskedLMCollator(self.tokenizer).for_evaluation(seed=SEED)(list(rows)))


def random_texts(lengths: Sequence[int], vocab_size: int) -> Batch:
    """A batch of random tokens for inference, one text of each length, padded to the longest."""
    generator = torch.Generator().manual_seed(SEED)
    ids = torch.randint(5, vocab_size, (len(lengths), max(lengths)), generator=generator)  # special tokens are below
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)).long()
    return {"input_ids": ids * mask, "attention_mask": mask}


def document_lengths(batch: Batch) -> list[int]:
    """Real tokens of every document of a batch."""
    ids = batch["input_ids"]
    return Documents(*ids.shape, ids.device, batch["attention_mask"], batch.get("position_ids")).unpad().lengths


# --- FLOPs ---


def model_flops(config: MiniBertConfig, lengths: Sequence[int], predicted: int, training: bool) -> float:
    """See FLOPS_FORMULA; `lengths` are of documents, and the vocabulary is computed for `predicted` tokens."""
    with torch.device("meta"):
        model = MiniBertForMaskedLM(config)

    def matrices(module: nn.Module) -> int:
        return sum(linear.weight.numel() for linear in module.modules() if isinstance(linear, nn.Linear))

    encoder = matrices(model.model)
    head = matrices(model) - encoder
    windows = [None if kind == "full_attention" else config.sliding_window for kind in config.layer_types]
    seen = sum(tokens_seen(length, window) for window in windows for length in lengths)
    forward = 2.0 * (encoder * sum(lengths) + head * predicted) + 4.0 * config.hidden_size * seen
    return 3 * forward if training else forward


def tokens_seen(length: int, window: int | None) -> int:
    """Pairs (i, j) of a document with |i - j| <= window."""
    if window is None or length <= window + 1:
        return length**2
    return length * (2 * window + 1) - window * (window + 1)
