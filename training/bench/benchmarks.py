"""Everything that can be measured, by name: who runs against whom on what, and how much is wanted.

A name reads work/shape/precision. fp32 is fp32 throughout; bf16 is autocast over fp32 weights in training and bf16
weights in inference.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch.nn import functional as F

from ...attention_minibert import Documents, choose_kernel, stream_attention
from ...configuration_minibert import MiniBertConfig
from . import models as contenders
from .models import Step, inference_step, training_step
from .work import Cell, Ratio, Run, Work, backends, document_lengths, model_flops, random_texts

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
VOCABULARY = 30_522  # BERT's
LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192)

# Nothing should be slower than its peer anywhere.
NOT_SLOWER = 1.0

NATIVE_LM = {"bert": "BertForMaskedLM", "modernbert": "ModernBertForMaskedLM"}
SPARSE_LM = {"bert": "BertForMaskedLM, sparse head", "modernbert": "ModernBertForMaskedLM, sparse_prediction"}
SPARSE = {"bert": contenders.sparse_bert, "modernbert": contenders.sparse_modernbert}
NATIVE_ENCODER = {"bert": "BertModel", "modernbert": "ModernBertModel"}


def against(wanted: dict[str, float], ours: str) -> list[Ratio]:
    """How many times as long as ours a peer takes."""
    return [Ratio(peer, ours, at_least=least) for peer, least in wanted.items()]


# --- training ---


def train(
    run: Run, config: MiniBertConfig, batches: list[dict], dtype: str, compiled: bool, peers: dict[str, Callable],
    wanted: dict[str, float],
) -> Work:  # fmt: skip
    """Training steps on `batches`; MiniBERT alone is told where the documents of packed rows begin."""
    ours = "MiniBertForMaskedLM"
    batches = [{name: tensor.to(run.device) for name, tensor in batch.items()} for batch in batches]
    peer_batches = [{name: x for name, x in batch.items() if name != "position_ids"} for batch in batches]
    builders = {ours: (contenders.masked_lm, batches)} | {name: (build, peer_batches) for name, build in peers.items()}
    lengths = [length for batch in batches for length in document_lengths(batch)]
    predicted = sum(int((batch["labels"] != -100).sum()) for batch in batches)
    return Work(
        {
            name: partial(training_step, partial(build, config), given, run.device, DTYPES[dtype], compiled)
            for name, (build, given) in builders.items()
        },
        calls=len(batches),
        dtype=DTYPES[dtype],
        ratios=against(wanted, ours),
        backend=backends(config, run.device, DTYPES[dtype], "position_ids" not in batches[0], config.attention_dropout),
        tokens=sum(lengths),
        places=sum(batch["input_ids"].numel() for batch in batches),
        flops=model_flops(config, lengths, predicted, training=True),
    )


def train_512(run: Run, family: str, size: str, dtype: str, packed: bool, wanted: tuple[float, float]) -> Work:
    """Against the peer as it is and with a sparse head."""
    config = run.config(family, size, vocab_size=VOCABULARY, pad_token_id=0)
    rows, length = run.choose(16, 4), run.choose(512, 64)
    batches = run.text.packed(2, rows, length) if packed else run.text.natural(run.choose(4, 2), rows, length)
    peers = {NATIVE_LM[family]: contenders.native_masked_lm, SPARSE_LM[family]: SPARSE[family]}
    return train(run, config, batches, dtype, run.compile, peers, dict(zip(peers, wanted)))


def train_compiled(run: Run, family: str, dtype: str) -> Work:
    """What `torch.compile` gains, the time it takes to compile not counted."""
    config = run.config(family, "small", vocab_size=VOCABULARY, pad_token_id=0)
    batches = run.text.natural(run.choose(4, 2), run.choose(16, 4), run.choose(512, 64))
    work, compiled = (train(run, config, batches, dtype, compile_it, {}, {}) for compile_it in (False, True))
    ((ours, step),) = compiled.steps.items()
    work.steps[f"{ours}, compiled"] = step
    work.ratios = [Ratio(ours, f"{ours}, compiled")]
    return work


def train_packed_cuda(run: Run, size: str, length: int) -> Work:
    """On a GPU: all compiled, ModernBERT on every backend it has."""
    config = run.config("modernbert", size, pad_token_id=0)
    length = run.choose(length, 128)
    batches = run.text.packed(run.choose(4, 2), run.choose(65_536, 512) // length, length)
    native, sparse = NATIVE_LM["modernbert"], SPARSE_LM["modernbert"]
    peers = {native: contenders.native_masked_lm}
    for backend in ("sdpa", "flex_attention", "flash_attention_2", "flash_attention_3"):
        peers[f"{sparse}, {backend}"] = contenders.with_attention(contenders.sparse_modernbert, backend)
    return train(run, config, batches, "bf16", True, peers, dict.fromkeys(peers, 1.2) | {native: 3.0})


# --- inference ---


def infer(
    run: Run, config: MiniBertConfig, texts: list[list[int]], dtype: str, peers: dict[str, Callable],
    wanted: float = NOT_SLOWER, guarded: tuple[str, ...] = (),
) -> Work:  # fmt: skip
    """Forward passes over `texts`: batches of the lengths of their texts."""
    ours = "MiniBertModel"
    batches = [random_texts(lengths, config.vocab_size, run.device) for lengths in texts]
    lengths = [length for batch in texts for length in batch]
    return Work(
        {
            name: partial(inference_step, partial(build, config), batches, run.device, DTYPES[dtype], run.compile)
            for name, build in {ours: contenders.encoder, **peers}.items()
        },
        calls=len(batches),
        dtype=DTYPES[dtype],
        ratios=against(dict.fromkeys(peers, wanted), ours),
        backend=backends(config, run.device, DTYPES[dtype]),
        tokens=sum(lengths),
        places=sum(batch["input_ids"].numel() for batch in batches),
        flops=model_flops(config, lengths, 0, training=False),
        guarded=guarded,
    )


def encoder_config(run: Run, family: str, size: str, **switches) -> MiniBertConfig:
    return run.config(family, size, add_pooling_layer=False, **switches)


def infer_one(run: Run, size: str, length: int, dtype: str, wanted: float = NOT_SLOWER) -> Work:
    config = encoder_config(run, "modernbert", size)
    peers = {"ModernBertModel": contenders.native_encoder}
    return infer(run, config, [[run.choose(length, length // 32)]], dtype, peers, wanted)


def infer_deberta(run: Run, length: int, dtype: str) -> Work:
    config = encoder_config(run, "modernbert", "base")
    peers = {"DebertaV2Model": contenders.deberta_encoder}
    return infer(run, config, [[run.choose(length, length // 32)]], dtype, peers, guarded=tuple(peers))


def infer_mixed(run: Run, family: str, dtype: str, wanted: float) -> Work:
    lengths = torch.linspace(16, 512, 32).int().tolist()[:: run.choose(1, 8)]
    config = encoder_config(run, family, "base")
    return infer(run, config, [lengths], dtype, {NATIVE_ENCODER[family]: contenders.native_encoder}, wanted)


def memory(run: Run, dtype: str) -> Work:
    """A short text, with which libraries are loaded, then the one that is measured."""
    config = encoder_config(run, "modernbert", "base")
    work = infer(run, config, [[64], [run.choose(8192, 512)]], dtype, {"ModernBertModel": contenders.native_encoder})
    work.ratios = [Ratio("MiniBertModel", "ModernBertModel", at_most=0.6)]
    work.tokens = work.places = None
    return work


# --- local attention ---


def local_attention(run: Run, dtype: str, backward: bool, wanted: float) -> Work:
    """One call, q, k and v given. Masks, which the layers of a model share, are made before."""
    length, heads, width, window = run.choose(8192, 512), 12, 64, 64
    generator = torch.Generator().manual_seed(contenders.SEED)
    q, k, v, grad = (
        torch.randn(length, heads, width, generator=generator).to(run.device, DTYPES[dtype]) for _ in range(4)
    )
    for x in (q, k, v):
        x.requires_grad_(backward)
    ours, peer = "stream_attention", "scaled_dot_product_attention"

    def stream() -> Callable[[], torch.Tensor]:
        documents = Documents(1, length, run.device).pack()  # keeps the masks of the first call, which is not timed
        return lambda: stream_attention(q, k, v, documents, window)

    def masked() -> Callable[[], torch.Tensor]:
        columns = torch.arange(length, device=run.device)
        mask = ((columns - columns.unsqueeze(1)).abs() <= window)[None, None]
        rows = [x.transpose(0, 1).unsqueeze(0) for x in (q, k, v)]
        return lambda: F.scaled_dot_product_attention(*rows, mask)[0].transpose(0, 1)

    def step(build: Callable[[], Callable[[], torch.Tensor]]) -> Step:
        attend = build()

        def call(number: int) -> torch.Tensor | tuple[torch.Tensor, ...]:
            out = attend()
            return torch.autograd.grad(out, (q, k, v), grad) if backward else out

        return call

    return Work(
        {ours: partial(step, stream), peer: partial(step, masked)},
        calls=1,
        dtype=DTYPES[dtype],
        ratios=against({peer: wanted}, ours),
        backend={"sliding_attention": "{} ({})".format(*choose_kernel(run.device, q.dtype, width, True, True, 0.0))},
        tokens=length,
    )


def local_scaling(run: Run, dtype: str) -> Work:
    """The same model on longer and longer texts."""
    layers = run.config("modernbert", "small").num_hidden_layers
    config = encoder_config(run, "modernbert", "small", layer_types=["sliding_attention"] * layers)
    steps = {}
    for length in (2048, 4096, 8192):
        work = infer(run, config, [[run.choose(length, length // 32)]], dtype, {})
        steps[f"MiniBertModel, {length} tokens"] = work.steps["MiniBertModel"]
    shortest, *_, longest = steps
    ratios = [Ratio(longest, shortest, at_most=4.6)]
    return Work(steps, 1, DTYPES[dtype], ratios, backends(config, run.device, DTYPES[dtype]))


# --- all of them ---


def cells_of(dtype: str) -> list[Cell]:
    """What is measured in one precision, on any device."""
    only_fp32 = dtype == "fp32"
    cells = [
        Cell(
            f"train-natural/{family}-{size}/{dtype}",
            "documents of natural length, 16 to a batch, padded to its longest (at most 512 tokens)",
            partial(train_512, family=family, size=size, dtype=dtype, packed=False, wanted=(3.0, 1.6)),
        )
        for family in ("bert", "modernbert")
        for size in ("mini", "small")
    ]
    cells += [
        Cell(
            f"train-packed/{family}-small/{dtype}",
            "full rows of 512 tokens, 16 to a batch; the peers attend across documents",
            partial(train_512, family=family, size="small", dtype=dtype, packed=True, wanted=wanted),
        )
        for family, wanted in (("bert", (2.0, 1.1)), ("modernbert", (NOT_SLOWER, NOT_SLOWER)))
    ]
    cells += [
        Cell(
            f"train-compiled/{family}-small/{dtype}",
            "the documents of train-natural, MiniBERT alone: what torch.compile gains once it has compiled",
            partial(train_compiled, family=family, dtype=dtype),
        )
        for family in ("bert", "modernbert")
    ]
    cells.append(
        Cell(
            f"infer-8192/modernbert-base/{dtype}",
            "one text of 8192 tokens",
            partial(infer_one, size="base", length=8192, dtype=dtype, wanted=3.0),
        )
    )
    cells += [
        Cell(
            f"infer-mixed/{family}-base/{dtype}",
            "32 texts of 16 to 512 tokens in one batch",
            partial(infer_mixed, family=family, dtype=dtype, wanted=wanted),
        )
        for family, wanted in (("modernbert", 2.0), ("bert", NOT_SLOWER))
    ]
    cells.append(
        Cell(
            f"memory-8192/modernbert-base/{dtype}",
            "peak memory of the inference of one text of 8192 tokens",
            partial(memory, dtype=dtype),
            measure="bytes",
        )
    )
    cells += [
        Cell(
            f"local-attention/{name}/{dtype}",
            "one call of local attention: 12 heads of 64, 8192 tokens, 64 of them seen on each side",
            partial(
                local_attention, dtype=dtype, backward=name != "forward", wanted=wanted if only_fp32 else NOT_SLOWER
            ),
        )
        for name, wanted in (("forward", 40.0), ("forward-backward", 20.0))
    ]
    cells.append(
        Cell(
            f"local-scaling/modernbert-small/{dtype}",
            "inference of a model whose layers are all local, one text of 2048 to 8192 tokens",
            partial(local_scaling, dtype=dtype),
        )
    )
    cells += [
        Cell(
            f"infer-length-{length}/modernbert-small/{dtype}",
            f"one text of {length} tokens",
            partial(infer_one, size="small", length=length, dtype=dtype),
        )
        for length in LENGTHS
    ]
    cells += [
        Cell(
            f"infer-{length}-deberta/modernbert-base/{dtype}",
            f"one text of {length} tokens, against a DeBERTa-v3 of the same width and depth",
            partial(infer_deberta, length=length, dtype=dtype),
        )
        for length in (2048, 8192)
    ]
    return cells


CUDA_CELLS = [
    Cell(
        f"train-packed-{length}/modernbert-{size}/bf16",
        f"full rows of {length} tokens, compiled; ModernBERT on every backend",
        partial(train_packed_cuda, size=size, length=length),
        devices=("cuda",),
    )
    for length in (1024, 8192)
    for size in ("mini", "small", "base")
]

CELLS = {cell.name: cell for cell in [*cells_of("fp32"), *cells_of("bf16"), *CUDA_CELLS]}
