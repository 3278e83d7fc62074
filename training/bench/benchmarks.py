"""Everything that can be measured, by name: which models run against each other on what, and the target.

A name reads work/shape/precision. fp32 is fp32 throughout; bf16 is autocast over fp32 weights in training and bf16
weights in inference. Targets are ratios to MiniBERT; nothing should be slower than its peer anywhere (1.0).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch.nn import functional as F

from ...attention_minibert import Documents, plan_attention
from ...modeling_minibert import MiniBertForMaskedLM, MiniBertModel
from .models import (
    SEED,
    Build,
    deberta_encoder,
    native_encoder,
    native_masked_lm,
    sparse_masked_lm,
    with_attention,
)
from .work import DTYPES, Benchmark, Ratio, Run, Work, model_work, random_texts

VOCABULARY = 30_522  # BERT's
LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192)

NATIVE_LM = {"bert": "BertForMaskedLM", "modernbert": "ModernBertForMaskedLM"}
SPARSE_LM = {"bert": "BertForMaskedLM, sparse head", "modernbert": "ModernBertForMaskedLM, sparse_prediction"}
NATIVE_ENCODER = {"bert": "BertModel", "modernbert": "ModernBertModel"}
LANGUAGE_MODEL, ENCODER = ("MiniBertForMaskedLM", MiniBertForMaskedLM), ("MiniBertModel", MiniBertModel)

BENCHMARKS: dict[str, Benchmark] = {}


def add(name: str, what: str, build: Callable[..., Work], measure="seconds", devices=("cpu", "cuda"), **given) -> None:
    BENCHMARKS[name] = Benchmark(name, what, partial(build, **given), measure, devices)


# --- training ---


def train(
    run: Run, family: str, size: str, dtype: str, packed: bool, targets: tuple[float, float], compiled: bool = False
) -> Work:
    """Against the peer as it is and with a sparse head; no targets: MiniBERT alone."""
    config = run.config(family, size, vocab_size=VOCABULARY, pad_token_id=0)
    rows, length = run.choose(16, 4), run.choose(512, 64)
    batches = run.text.packed(2, rows, length) if packed else run.text.natural(run.choose(4, 2), rows, length)
    peers = {NATIVE_LM[family]: native_masked_lm, SPARSE_LM[family]: sparse_masked_lm}
    with_targets = {name: (build, target) for (name, build), target in zip(peers.items(), targets)}
    return model_work(run, config, batches, dtype, LANGUAGE_MODEL, with_targets, True, compiled or run.compile)


def train_compiled(run: Run, family: str, dtype: str) -> Work:
    """What `torch.compile` gains, the time it takes to compile not counted."""
    work = train(run, family, "small", dtype, packed=False, targets=())
    ((ours, step),) = work.steps.items()
    work.steps[f"{ours}, compiled"] = partial(step.func, *step.args[:-1], True)
    work.ratios = [Ratio(ours, f"{ours}, compiled")]
    return work


def train_packed_cuda(run: Run, size: str, length: int) -> Work:
    """On a GPU: all compiled, ModernBERT on every backend it has."""
    config = run.config("modernbert", size, pad_token_id=0)
    length = run.choose(length, 128)
    batches = run.text.packed(run.choose(4, 2), run.choose(65_536, 512) // length, length)
    peers = {NATIVE_LM["modernbert"]: (native_masked_lm, 3.0)}
    for backend in ("sdpa", "flex_attention", "flash_attention_2", "flash_attention_3"):
        peers[f"{SPARSE_LM['modernbert']}, {backend}"] = (partial(with_attention, sparse_masked_lm, backend), 1.2)
    return model_work(run, config, batches, "bf16", LANGUAGE_MODEL, peers, training=True, compiled=True)


# --- inference ---


def infer(
    run: Run, family: str, size: str, texts: Sequence[Sequence[int]], dtype: str,
    peers: dict[str, tuple[Build, float]], **switches,
) -> Work:  # fmt: skip
    """Forward passes over `texts`: batches of the lengths of their texts."""
    config = run.config(family, size, add_pooling_layer=False, **switches)
    batches = [random_texts(lengths, config.vocab_size) for lengths in texts]
    return model_work(run, config, batches, dtype, ENCODER, peers, training=False, compiled=run.compile)


def infer_native(run: Run, family: str, size: str, lengths: Sequence[int], dtype: str, target: float = 1.0) -> Work:
    lengths = [run.shorten(length) for length in lengths]
    return infer(run, family, size, [lengths], dtype, {NATIVE_ENCODER[family]: (native_encoder, target)})


def infer_deberta(run: Run, length: int, dtype: str) -> Work:
    work = infer(run, "modernbert", "base", [[run.shorten(length)]], dtype, {"DebertaV2Model": (deberta_encoder, 1.0)})
    work.guarded = ("DebertaV2Model",)
    return work


def memory(run: Run, dtype: str) -> Work:
    """A short text, with which libraries are loaded, then the one that is measured."""
    lengths = [[64], [run.choose(8192, 512)]]
    work = infer(run, "modernbert", "base", lengths, dtype, {"ModernBertModel": (native_encoder, 1.0)})
    work.ratios = [Ratio("MiniBertModel", "ModernBertModel", 0.6, at_most=True)]
    work.tokens = work.places = None
    return work


def local_scaling(run: Run, dtype: str) -> Work:
    """The same model on longer and longer texts."""
    layers = ["sliding_attention"] * run.config("modernbert", "small").num_hidden_layers
    steps = {}
    for length in (2048, 4096, 8192):
        work = infer(run, "modernbert", "small", [[run.shorten(length)]], dtype, {}, layer_types=layers)
        steps[f"MiniBertModel, {length} tokens"] = work.steps["MiniBertModel"]
    shortest, *_, longest = steps
    return Work(steps, 1, DTYPES[dtype], [Ratio(longest, shortest, 4.6, at_most=True)])


def local_attention(run: Run, dtype: str, backward: bool, target: float) -> Work:
    """One call, q, k and v given. Masks, which the layers of a model share, are made before."""
    length, heads, width, window = run.choose(8192, 512), 12, 64, 64
    generator = torch.Generator().manual_seed(SEED)
    q, k, v, grad = (
        torch.randn(length, heads, width, generator=generator).to(run.device, DTYPES[dtype]) for _ in range(4)
    )
    for x in (q, k, v):
        x.requires_grad_(backward)

    def ours() -> Callable[[], torch.Tensor]:
        documents = Documents(1, length, run.device).unpad()
        with torch.set_grad_enabled(backward):
            plan = plan_attention(documents, window, False, 0.0, q.dtype, width)
        return lambda: plan.attend(q, k, v)

    def masked() -> Callable[[], torch.Tensor]:
        columns = torch.arange(length, device=run.device)
        mask = ((columns - columns.unsqueeze(1)).abs() <= window)[None, None]
        rows = [x.transpose(0, 1).unsqueeze(0) for x in (q, k, v)]
        return lambda: F.scaled_dot_product_attention(*rows, mask)[0].transpose(0, 1)

    def step(build: Callable[[], Callable[[], torch.Tensor]]) -> Callable[[int], object]:
        attend = build()
        return lambda number: torch.autograd.grad(attend(), (q, k, v), grad) if backward else attend()

    peer = "scaled_dot_product_attention"
    steps = {"MiniBERT's attention": partial(step, ours), peer: partial(step, masked)}
    return Work(steps, 1, DTYPES[dtype], [Ratio(peer, "MiniBERT's attention", target)], tokens=length)


# --- all of them ---

for dtype in DTYPES:
    for family in ("bert", "modernbert"):
        for size in ("mini", "small"):
            what = "documents of natural length, 16 to a batch, padded to its longest (at most 512 tokens)"
            given = dict(family=family, size=size, dtype=dtype, packed=False, targets=(3.0, 1.6))
            add(f"train-natural/{family}-{size}/{dtype}", what, train, **given)
    for family, targets in (("bert", (2.0, 1.1)), ("modernbert", (1.0, 1.0))):
        what = "full rows of 512 tokens, 16 to a batch; the peers attend across documents"
        given = dict(family=family, size="small", dtype=dtype, packed=True, targets=targets)
        add(f"train-packed/{family}-small/{dtype}", what, train, **given)
    for family in ("bert", "modernbert"):
        what = "the documents of train-natural, MiniBERT alone: what torch.compile gains once it has compiled"
        add(f"train-compiled/{family}-small/{dtype}", what, train_compiled, family=family, dtype=dtype)
    given = dict(family="modernbert", size="base", lengths=[8192], dtype=dtype, target=3.0)
    add(f"infer-8192/modernbert-base/{dtype}", "one text of 8192 tokens", infer_native, **given)
    for family, target in (("modernbert", 2.0), ("bert", 1.0)):
        lengths = torch.linspace(16, 512, 32).int().tolist()
        given = dict(family=family, size="base", lengths=lengths, dtype=dtype, target=target)
        add(f"infer-mixed/{family}-base/{dtype}", "32 texts of 16 to 512 tokens in one batch", infer_native, **given)
    what = "peak memory of the inference of one text of 8192 tokens"
    add(f"memory-8192/modernbert-base/{dtype}", what, memory, "bytes", dtype=dtype)
    for name, target in (("forward", 40.0), ("forward-backward", 20.0)):
        what = "one call of local attention: 12 heads of 64, 8192 tokens, 64 of them seen on each side"
        given = dict(backward=name != "forward", target=target if dtype == "fp32" else 1.0)
        add(f"local-attention/{name}/{dtype}", what, local_attention, dtype=dtype, **given)
    what = "inference of a model whose layers are all local, one text of 2048 to 8192 tokens"
    add(f"local-scaling/modernbert-small/{dtype}", what, local_scaling, dtype=dtype)
    for length in LENGTHS:
        given = dict(family="modernbert", size="small", lengths=[length], dtype=dtype)
        add(f"infer-length-{length}/modernbert-small/{dtype}", f"one text of {length} tokens", infer_native, **given)
    for length in (2048, 8192):
        what = f"one text of {length} tokens, against a DeBERTa-v3 of the same width and depth"
        add(f"infer-{length}-deberta/modernbert-base/{dtype}", what, infer_deberta, length=length, dtype=dtype)
for length in (1024, 8192):
    for size in ("mini", "small", "base"):
        what = f"full rows of {length} tokens, compiled; ModernBERT on every backend"
        given = dict(devices=("cuda",), size=size, length=length)
        add(f"train-packed-{length}/modernbert-{size}/bf16", what, train_packed_cuda, **given)
