"""What `benchmarks/speed.py` measures: batches of text, the step of a model, its cost in FLOPs; all benchmarks by name.

A name reads work/shape/precision. fp32 is fp32 throughout; bf16 is autocast over fp32 weights in training and bf16
weights in inference. Targets are ratios to MiniBERT; nothing should be slower than its peer anywhere (1.0).

A peer is made of a MiniBERT by `to_native`, so that both have the same shape and the same weights. (DeBERTa-v3 has no
such twin: it gets the same width, depth, heads and number of MLP parameters.)
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from common import Corpus
from torch import nn
from torch.nn import functional as F
from transformers import BertForMaskedLM, DebertaV2Config, DebertaV2Model, PreTrainedModel
from transformers.modeling_outputs import MaskedLMOutput
from transformers.utils import is_flash_attn_2_available, is_flash_attn_3_available

from minibert import (
    MaskedLMCollator,
    MiniBertConfig,
    MiniBertForMaskedLM,
    MiniBertModel,
    train_tokenizer,
)
from minibert.attention_minibert import choose_dispatch
from minibert.sequences_minibert import BatchDocuments
from minibert.training.conversion import to_native
from minibert.training.data.packing import pack_documents
from minibert.training.data.tokenized import tokenize_documents

SEED = 0
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}

MFU_FORMULA = "MFU = model FLOPs / median time / the median rate of a large torch.matmul in the same precision and rounds"
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
    corpus: Corpus

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
    guarded: tuple[
        str, ...
    ] = ()  # steps that first have to prove in a process of their own that they end at all


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
    given = dict(
        device=run.device, dtype=DTYPES[dtype], training=training, compiled=compiled or run.compile
    )
    return Work(
        {ours.__name__: partial(ModelStep, ours, config, batches, **given)}
        | {
            name: partial(ModelStep, build, config, plain, **given)
            for name, (build, _) in peers.items()
        },
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
        self.autocast = torch.autocast(
            device.type, torch.bfloat16, training and dtype == torch.bfloat16
        )
        self.compiled = compiled
        if compiled:
            self.model.compile()
            for number in range(
                len(batches)
            ):  # the graphs are made here, and not where calls are timed
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
        """How a MiniBERT's attention is computed on the first batch, by type of layer."""
        if type(self.model) not in (MiniBertForMaskedLM, MiniBertModel):
            return {}
        inputs = {name: x for name, x in self.batches[0].items() if name != "labels"}
        encoder = self.model.base_model
        if self.compiled:  # a graph may attend otherwise; which backend makes it decides nothing
            encoder = torch.compile(encoder, backend="eager")
        descriptions = {}

        @torch.compiler.disable
        def note(layer: nn.Module, _: tuple, arguments: dict[str, Any]) -> None:
            description = f"attn_implementation={arguments.get('backend')!r}"
            if "dispatch" in arguments:
                description = arguments["dispatch"].description
            descriptions[layer.attention_type] = description

        hooks = []
        for layer in self.model.base_model.layers:
            hooks.append(layer.register_forward_pre_hook(note, with_kwargs=True))
        with self.autocast, torch.set_grad_enabled(self.model.training):
            encoder(**inputs, padded_output=False)
        for hook in hooks:
            hook.remove()
        return dict(sorted(descriptions.items()))


# --- batches ---


class Text:
    """Masked batches of a corpus, the same for all models. Its tokenizer is trained on it, at the size that `minibert
    pretrain` uses."""

    def __init__(self, corpus: Corpus, quick: bool):
        documents = corpus.documents().shuffle(seed=SEED)
        documents = documents.select(
            range(min(len(documents), 300 if quick else 20_000))
        )  # there may be any number
        size = 1000 if quick else 8192
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # that a small corpus gives fewer tokens does not matter here
            self.tokenizer = train_tokenizer(
                documents["text"], vocab_size=size, show_progress=False
            )
        self.tokenized = tokenize_documents(documents, self.tokenizer)

    def natural(self, count: int, batch_size: int, length: int) -> list[Batch]:
        """`count` batches of documents as they come, one a row, padded to the longest of the batch; those that are
        longer than `length` are cut into several."""
        rows = pack_documents(self.tokenized, self.tokenizer, length, "padded").select_columns(
            "input_ids"
        )
        order = np.random.default_rng(SEED).permutation(len(rows))
        order = np.resize(order, (count, batch_size))  # a small corpus is read again
        return [self._mask(rows.select(numbers)) for numbers in order]

    def packed(self, count: int, batch_size: int, length: int) -> list[Batch]:
        """`count` batches of rows without any padding, with `position_ids` that restart at every document."""
        rows = pack_documents(self.tokenized, self.tokenizer, length, "packed").with_format("numpy")
        # Best-fit packing leaves a few places free: its rows one behind the other, cut anew, leave none.
        columns = [
            np.concatenate(rows[name][:]).astype(np.int64) for name in ("input_ids", "position_ids")
        ]
        ids, positions = (np.resize(column, (count, batch_size, length)) for column in columns)
        batches = [
            [{"input_ids": i, "position_ids": p} for i, p in zip(*batch)]
            for batch in zip(ids, positions)
        ]
        return [self._mask(rows) for rows in batches]

    def _mask(self, rows: Iterable[dict[str, Any]]) -> Batch:
        return dict(MaskedLMCollator(self.tokenizer).for_evaluation(seed=SEED)(list(rows)))


def random_texts(lengths: Sequence[int], vocab_size: int) -> Batch:
    """A batch of random tokens for inference, one text of each length, padded to the longest."""
    generator = torch.Generator().manual_seed(SEED)
    ids = torch.randint(
        5, vocab_size, (len(lengths), max(lengths)), generator=generator
    )  # special tokens are below
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)).long()
    return {"input_ids": ids * mask, "attention_mask": mask}


def document_lengths(batch: Batch) -> list[int]:
    """Real tokens of every document of a batch."""
    ids = batch["input_ids"]
    sequences = BatchDocuments(
        *ids.shape, ids.device, batch["attention_mask"], batch.get("position_ids")
    )
    return sequences.find_tokens().lengths


# --- FLOPs ---


def model_flops(
    config: MiniBertConfig, lengths: Sequence[int], predicted: int, training: bool
) -> float:
    """See FLOPS_FORMULA; `lengths` are of documents, and the vocabulary is computed for `predicted` tokens."""
    with torch.device("meta"):
        model = MiniBertForMaskedLM(config)

    def matrices(module: nn.Module) -> int:
        return sum(
            linear.weight.numel() for linear in module.modules() if isinstance(linear, nn.Linear)
        )

    encoder = matrices(model.model)
    head = matrices(model) - encoder
    windows = [
        None if kind == "full_attention" else config.sliding_window for kind in config.layer_types
    ]
    seen = sum(tokens_seen(length, window) for window in windows for length in lengths)
    forward = 2.0 * (encoder * sum(lengths) + head * predicted) + 4.0 * config.hidden_size * seen
    return 3 * forward if training else forward


def tokens_seen(length: int, window: int | None) -> int:
    """Pairs (i, j) of a document with |i - j| <= window."""
    if window is None or length <= window + 1:
        return length**2
    return length * (2 * window + 1) - window * (window + 1)


# --- the benchmarks ---

VOCABULARY = 30_522  # BERT's

NATIVE = {"bert": "Bert", "modernbert": "ModernBert"}
SPARSE = {
    "bert": "BertForMaskedLM, sparse head",
    "modernbert": "ModernBertForMaskedLM, sparse_prediction",
}

INSTALLED = {
    "flash_attention_2": is_flash_attn_2_available,
    "flash_attention_3": is_flash_attn_3_available,
}

BENCHMARKS: dict[str, Benchmark] = {}


def add(
    name: str,
    what: str,
    build: Callable[..., Work],
    measure="seconds",
    devices=("cpu", "cuda"),
    **given,
) -> None:
    _, shape, dtype = name.split("/")
    BENCHMARKS[name] = Benchmark(
        name, what, partial(build, shape=shape, dtype=dtype, **given), measure, devices
    )


# --- peers ---


class SparseBertForMaskedLM(BertForMaskedLM):
    """BertForMaskedLM with the vocabulary at the labelled positions only: the control for what is won beyond that."""

    def forward(
        self, input_ids, attention_mask=None, position_ids=None, labels=None, **kwargs
    ) -> MaskedLMOutput:
        outputs = self.bert(input_ids, attention_mask, position_ids=position_ids, **kwargs)
        hidden = outputs.last_hidden_state
        chosen = labels != -100
        logits = self.cls(hidden[chosen])
        return MaskedLMOutput(loss=F.cross_entropy(logits, labels[chosen]), logits=logits)


SparseBertForMaskedLM.__name__ = BertForMaskedLM.__name__  # saved folders name their class


def native_masked_lm(config: MiniBertConfig) -> PreTrainedModel:
    return to_native(MiniBertForMaskedLM(config))


def native_encoder(config: MiniBertConfig) -> PreTrainedModel:
    return to_native(MiniBertModel(config))


def sparse_masked_lm(config: MiniBertConfig) -> PreTrainedModel:
    return with_sparse_head(native_masked_lm(config))


def with_sparse_head(model: PreTrainedModel) -> PreTrainedModel:
    """BERT or ModernBERT with the vocabulary at the labelled positions only."""
    if isinstance(model, BertForMaskedLM):
        sparse = SparseBertForMaskedLM(model.config)
        sparse.load_state_dict(model.state_dict())
        return sparse
    model.sparse_prediction = True
    return model


def with_attention(build: Build, implementation: str, config: MiniBertConfig) -> PreTrainedModel:
    if (
        implementation in INSTALLED and not INSTALLED[implementation]()
    ):  # Transformers would fetch it from the Hub
        raise ImportError(f"{implementation} is not installed")
    model = build(config)
    model.set_attn_implementation(implementation)
    return model


def deberta_encoder(config: MiniBertConfig) -> PreTrainedModel:
    """DeBERTa-v3 (He et al. 2021, arXiv 2111.09543; the switches of deberta-v3-base) in the shape of `config`."""
    return DebertaV2Model(
        DebertaV2Config(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            num_hidden_layers=config.num_hidden_layers,
            num_attention_heads=config.num_attention_heads,
            # a gated MLP has three matrices, this one two
            intermediate_size=config.intermediate_size * (3 if config.gated_mlp else 2) // 2,
            layer_norm_eps=1e-7,
            relative_attention=True,
            position_buckets=256,
            norm_rel_ebd="layer_norm",
            share_att_key=True,
            pos_att_type=["p2c", "c2p"],
            position_biased_input=False,
        )
    )


# --- training ---


def train(run: Run, shape: str, dtype: str, packed: bool, targets: Sequence[float]) -> Work:
    """Against the peer as it is and with a sparse head; no targets: MiniBERT alone."""
    config, family = (
        run.config(shape, vocab_size=VOCABULARY, pad_token_id=0),
        shape.partition("-")[0],
    )
    rows, length = run.choose(16, 4), run.choose(512, 64)
    batches = (
        run.text.packed(2, rows, length)
        if packed
        else run.text.natural(run.choose(4, 2), rows, length)
    )
    peers = ((f"{NATIVE[family]}ForMaskedLM", native_masked_lm), (SPARSE[family], sparse_masked_lm))
    with_targets = {name: (build, target) for (name, build), target in zip(peers, targets)}
    return model_work(run, config, batches, dtype, with_targets, training=True)


def train_compiled(run: Run, shape: str, dtype: str) -> Work:
    """What `torch.compile` gains, the time it takes to compile not counted."""
    work = train(run, shape, dtype, packed=False, targets=())
    ((ours, step),) = work.steps.items()
    work.steps = {
        ours: partial(step, compiled=False),
        f"{ours}, compiled": partial(step, compiled=True),
    }
    work.ratios = [Ratio(ours, f"{ours}, compiled")]
    return work


def train_packed_cuda(run: Run, shape: str, dtype: str, length: int) -> Work:
    """On a GPU: all compiled, ModernBERT on every backend it has."""
    length = run.choose(length, 128)
    batches = run.text.packed(run.choose(4, 2), run.choose(65_536, 512) // length, length)
    peers = {"ModernBertForMaskedLM": (native_masked_lm, 3.0)}
    for backend in ("sdpa", "flex_attention", "flash_attention_2", "flash_attention_3"):
        peers[f"{SPARSE['modernbert']}, {backend}"] = (
            partial(with_attention, sparse_masked_lm, backend),
            1.2,
        )
    return model_work(
        run, run.config(shape, pad_token_id=0), batches, dtype, peers, training=True, compiled=True
    )


# --- inference ---


def infer(
    run: Run, shape: str, dtype: str, texts: Sequence[Sequence[int]], target: float = 1.0,
    peer: str | None = None, build: Build = native_encoder, **switches
) -> Work:  # fmt: skip
    """Forward passes over `texts` (batches of the lengths of their texts) against one peer, the native model."""
    config = run.config(shape, add_pooling_layer=False, **switches)
    part = run.choose(1, 32)
    batches = [
        random_texts([max(length // part, 1) for length in lengths], config.vocab_size)
        for lengths in texts
    ]
    peer = peer or f"{NATIVE[shape.partition('-')[0]]}Model"
    return model_work(run, config, batches, dtype, {peer: (build, target)})


def infer_deberta(run: Run, shape: str, dtype: str, length: int) -> Work:
    work = infer(run, shape, dtype, [[length]], peer="DebertaV2Model", build=deberta_encoder)
    work.guarded = ("DebertaV2Model",)
    return work


def memory(run: Run, shape: str, dtype: str) -> Work:
    """A short text, with which libraries are loaded, then the one that is measured."""
    work = infer(run, shape, dtype, [[64], [8192]])
    work.ratios = [Ratio("MiniBertModel", "ModernBertModel", 0.6, at_most=True)]
    work.tokens = work.places = None
    return work


def local_scaling(run: Run, shape: str, dtype: str) -> Work:
    """The same model on longer and longer texts."""
    layers = ["sliding_attention"] * run.config(shape).num_hidden_layers
    steps = {}
    for length in (2048, 4096, 8192):
        work = infer(run, shape, dtype, [[length]], layer_types=layers)
        steps[f"MiniBertModel, {length} tokens"] = work.steps["MiniBertModel"]
    shortest, *_, longest = steps
    return Work(steps, 1, DTYPES[dtype], [Ratio(longest, shortest, 4.6, at_most=True)])


def local_attention(run: Run, shape: str, dtype: str, target: float) -> Work:
    """One call, q, k and v given. Masks, which the layers of a model share, are made before."""
    backward = shape == "forward-backward"
    length, heads, width, window = run.choose(8192, 512), 12, 64, 64
    generator = torch.Generator().manual_seed(SEED)
    q, k, v, grad = torch.randn(4, length, heads, width, generator=generator).to(
        run.device, DTYPES[dtype]
    )
    for x in (q, k, v):
        x.requires_grad_(backward)

    def ours() -> Callable[[], torch.Tensor]:
        tokens = BatchDocuments(1, length, run.device).find_tokens()
        with torch.set_grad_enabled(backward):
            dispatch = choose_dispatch(tokens, window, False, 0.0, q.dtype, width)
        return lambda: dispatch.attend(q, k, v)

    def masked() -> Callable[[], torch.Tensor]:
        columns = torch.arange(length, device=run.device)
        mask = ((columns - columns.unsqueeze(1)).abs() <= window)[None, None]
        rows = [x.transpose(0, 1).unsqueeze(0) for x in (q, k, v)]
        return lambda: F.scaled_dot_product_attention(*rows, mask)[0].transpose(0, 1)

    def step(build: Callable[[], Callable[[], torch.Tensor]]) -> Callable[[int], object]:
        attend = build()
        return lambda number: (
            torch.autograd.grad(attend(), (q, k, v), grad) if backward else attend()
        )

    peer = "scaled_dot_product_attention"
    steps = {"MiniBERT's attention": partial(step, ours), peer: partial(step, masked)}
    return Work(
        steps, 1, DTYPES[dtype], [Ratio(peer, "MiniBERT's attention", target)], tokens=length
    )


# --- all of them ---

for dtype in DTYPES:
    what = "documents of natural length, 16 to a batch, padded to its longest (at most 512 tokens)"
    for shape in ("bert-mini", "bert-small", "modernbert-mini", "modernbert-small"):
        add(f"train-natural/{shape}/{dtype}", what, train, packed=False, targets=(3.0, 1.6))
    what = "full rows of 512 tokens, 16 to a batch; the peers attend across documents"
    add(f"train-packed/bert-small/{dtype}", what, train, packed=True, targets=(2.0, 1.1))
    add(f"train-packed/modernbert-small/{dtype}", what, train, packed=True, targets=(1.0, 1.0))
    what = "the documents of train-natural, MiniBERT alone: what torch.compile gains once it has compiled"
    for shape in ("bert-small", "modernbert-small"):
        add(f"train-compiled/{shape}/{dtype}", what, train_compiled)
    add(
        f"infer-8192/modernbert-base/{dtype}",
        "one text of 8192 tokens",
        infer,
        texts=[[8192]],
        target=3.0,
    )
    what, lengths = (
        "32 texts of 16 to 512 tokens in one batch",
        torch.linspace(16, 512, 32).int().tolist(),
    )
    add(f"infer-mixed/modernbert-base/{dtype}", what, infer, texts=[lengths], target=2.0)
    add(f"infer-mixed/bert-base/{dtype}", what, infer, texts=[lengths])
    what = "peak memory of the inference of one text of 8192 tokens"
    add(f"memory-8192/modernbert-base/{dtype}", what, memory, "bytes")
    what = "one call of local attention: 12 heads of 64, 8192 tokens, 64 of them seen on each side"
    for shape, target in (("forward", 40.0), ("forward-backward", 20.0)):
        add(
            f"local-attention/{shape}/{dtype}",
            what,
            local_attention,
            target=target if dtype == "fp32" else 1.0,
        )
    what = "inference of a model whose layers are all local, one text of 2048 to 8192 tokens"
    add(f"local-scaling/modernbert-small/{dtype}", what, local_scaling)
    for length in (128, 256, 512, 1024, 2048, 4096, 8192):
        what = f"one text of {length} tokens"
        add(f"infer-length-{length}/modernbert-small/{dtype}", what, infer, texts=[[length]])
    for length in (2048, 8192):
        what = f"one text of {length} tokens, against a DeBERTa-v3 of the same width and depth"
        add(f"infer-{length}-deberta/modernbert-base/{dtype}", what, infer_deberta, length=length)
for length in (1024, 8192):
    what = f"full rows of {length} tokens, compiled; ModernBERT on every backend"
    for size in ("mini", "small", "base"):
        name = f"train-packed-{length}/modernbert-{size}/bf16"
        add(name, what, train_packed_cuda, devices=("cuda",), length=length)
