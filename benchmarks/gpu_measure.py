"""What one process of benchmarks/gpu.py measures: facts about the machine, speed, profiles.

Each function yields rows (dictionaries of names and numbers) as soon as it has them.
"""

import importlib.metadata
import importlib.util
import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from gpu_models import (
    DOCUMENT_LENGTH,
    TINY_DOCUMENT_LENGTH,
    batch_lengths,
    build_batch,
    build_model,
    minibert_config,
    natural_lengths,
    step_flops,
    to_device,
)
from gpu_variants import VARIANTS, Step, prepare_batch
from torch.nn import functional as F

PEAK = 989e12  # FLOP/s of dense bf16 products on an H100 or H200
# Between two synchronisations. The Python before the first kernel would count in every step, if it
# were one.
STEPS_IN_BLOCK = 10
PROFILED_BATCHES = ("natural, 8,192", "natural, 32,768")
PACKAGES = (
    "torch",
    "transformers",
    "flash-attn",
    "flash-attn-3",
    "flash-attn-4",
    "triton",
    "kernels",
)


def synchronized_time(device: torch.device) -> float:
    """The time (s), once the device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


# --- facts ---


def measure_facts(device: torch.device) -> Iterator[dict[str, Any]]:
    """Versions, and which kernels of attention this machine has."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "none"
    device_name = "CPU"
    if device.type == "cuda":
        device_name = torch.cuda.get_device_name()
    yield dict(
        what="machine",
        device=device_name,
        cores=os.cpu_count(),
        cuda=torch.version.cuda,
        cudnn=torch.backends.cudnn.version(),
        date=time.strftime("%Y-%m-%d"),
        **versions,
    )
    for masked in (False, True):
        yield from sdpa_backends(device, masked)
    yield from flash_implementations(device)


def sdpa_backends(device: torch.device, masked: bool) -> Iterator[dict[str, Any]]:
    """Which kernels of SDPA run forward and backward for ModernBERT's shapes, with a mask or
    without, and which one SDPA takes by itself."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    length = DOCUMENT_LENGTH if device.type == "cuda" else TINY_DOCUMENT_LENGTH
    q, k, v = torch.randn(3, 8, 12, length, 64, device=device, dtype=dtype).requires_grad_()
    mask = None
    if masked:
        mask = torch.ones(8, 1, length, length, dtype=torch.bool, device=device).tril()
    shape = "with a mask" if masked else "without a mask"
    backends = torch.nn.attention.SDPBackend
    for backend in (
        backends.FLASH_ATTENTION,
        backends.CUDNN_ATTENTION,
        backends.EFFICIENT_ATTENTION,
        backends.MATH,
    ):

        def attend(backend=backend):
            with torch.nn.attention.sdpa_kernel([backend]):
                F.scaled_dot_product_attention(q, k, v, mask).sum().backward()

        yield dict(what=f"SDPA {shape}", model=backend.name, **try_to_run(attend, device))
    choice = torch._fused_sdp_choice(q, k, v, mask)
    yield dict(what=f"SDPA {shape}", model="default", result=backends(choice).name)


def flash_implementations(device: torch.device) -> Iterator[dict[str, Any]]:
    """Whether torch's operator of flash attention runs with a window, forward and backward, by each
    implementation that torch lists."""
    bounds = torch.tensor([0, 500, 1024], dtype=torch.int32, device=device)
    dtype = torch.bfloat16

    def attend(window):
        q, k, v = torch.randn(3, 1024, 12, 64, device=device, dtype=dtype).requires_grad_()
        outputs = torch.ops.aten._flash_attention_forward(
            q,
            k,
            v,
            bounds,
            bounds,
            524,
            524,
            0.0,
            False,
            False,
            window_size_left=window,
            window_size_right=window,
        )
        outputs[0].sum().backward()

    attention = torch.nn.attention
    implementations = ["FA2"]
    if hasattr(attention, "list_flash_attention_impls"):
        implementations += attention.list_flash_attention_impls()
    for name in implementations:
        for window in (-1, 3):
            sees = "the whole document" if window < 0 else f"{window} tokens on each side"

            def run(name=name, window=window):
                if name != "FA2":
                    attention.activate_flash_attention_impl(name)
                attend(window)

            yield dict(what=f"flash attention, {sees}", model=name, **try_to_run(run, device))
        if hasattr(attention, "restore_flash_attention_impl"):
            attention.restore_flash_attention_impl(_raise_warn=False)


def try_to_run(function: Callable[[], Any], device: torch.device) -> dict[str, Any]:
    """Whether it runs; if so, its milliseconds the second time."""
    try:
        function()
        start = synchronized_time(device)
        function()
        seconds = synchronized_time(device) - start
    except Exception as error:
        return dict(result=f"{type(error).__name__}: {str(error)[:200]}")
    return dict(result="runs", milliseconds=seconds * 1000)


# --- speed ---


def time_blocks(function: Callable[[], Any], device: torch.device, tiny: bool) -> dict[str, float]:
    """Median seconds of a call over blocks of ten, after three that are not timed; and the seconds
    of the first."""
    blocks = 1 if tiny else 3
    calls = 2 if tiny else STEPS_IN_BLOCK
    start = synchronized_time(device)
    function()
    first = synchronized_time(device) - start
    for _ in range(2):
        function()
    seconds = []
    for _ in range(blocks):
        start = synchronized_time(device)
        for _ in range(calls):
            function()
        seconds.append((synchronized_time(device) - start) / calls)
    return dict(seconds=statistics.median(seconds), first=first)


def measure_training(
    model: str, size: str, variant: str, batches: tuple[str, ...], device: torch.device, tiny: bool
) -> Iterator[dict[str, Any]]:
    """Tokens per second of a training step on each batch, then profiles of steps on two of them."""
    step = Step(model, "tiny" if tiny else size, VARIANTS[variant], device)
    for name in batches:
        lengths = batch_lengths(name, tiny)
        batch = prepare_batch(step, build_batch(model, lengths, step.model.config.vocab_size))
        times = time_blocks(lambda batch=batch: step(batch), device, tiny)
        row = dict(
            what=f"training, {size}, {name}",
            model=model,
            variant=variant,
            tokens=sum(lengths) / times["seconds"],
            loss=float(step.forward_and_backward(batch)),
            **times,
        )
        step.optimizer.zero_grad(set_to_none=not step.variant.graph)
        if model != "BERT":
            row["mfu"] = step_flops(step.model.config, lengths) / times["seconds"] / PEAK
        if device.type == "cuda":
            row["gib"] = torch.cuda.max_memory_allocated() / 2**30
        yield row
        if name in PROFILED_BATCHES and variant in ("layers", "graph"):
            yield profile_step(lambda batch=batch: step(batch), times["seconds"], device) | dict(
                what=f"profile, {size}, {name}", model=model, variant=variant
            )


def profile_step(
    function: Callable[[], Any], seconds: float, device: torch.device
) -> dict[str, Any]:
    """Milliseconds of a step by groups of kernels, and those in which no kernel runs.

    Args:
        seconds: of a step without the profiler.
    """
    with torch.profiler.profile() as profile:
        function()
        synchronized_time(device)
    on_gpu = device.type == "cuda"
    device_type = torch.autograd.DeviceType.CUDA if on_gpu else torch.autograd.DeviceType.CPU
    groups = {"matrix products": 0.0, "attention": 0.0, "other kernels": 0.0}
    costs: dict[str, float] = {}
    kernels = 0
    for event in profile.key_averages():
        if event.device_type != device_type or event.is_user_annotation:
            continue
        microseconds = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        groups[kernel_group(event.key)] += microseconds / 1000
        costs[event.key] = microseconds / 1000
        kernels += event.count
    idle = max(0.0, seconds * 1000 - sum(groups.values()))
    dearest = sorted(costs, key=costs.__getitem__, reverse=True)[:8]
    return dict(
        milliseconds=seconds * 1000,
        kernels=kernels,
        **groups,
        idle=idle,
        dearest={name[:90]: round(costs[name], 3) for name in dearest},
    )


def kernel_group(name: str) -> str:
    """The group of a kernel, by its name."""
    lowered = name.lower()
    if any(word in lowered for word in ("flash", "fmha", "attention", "sdpa", "sdp_")):
        return "attention"
    if any(word in lowered for word in ("gemm", "cutlass", "nvjet", "aten::mm", "addmm", "bmm")):
        return "matrix products"
    return "other kernels"


def measure_inference(model: str, device: torch.device, tiny: bool) -> Iterator[dict[str, Any]]:
    """Tokens per second of the encoder without gradients, not compiled."""
    tokens, longest = (512, 64) if tiny else (64 * 300, 512)
    workloads = {
        "mixed lengths to 512": natural_lengths(tokens, longest),
        "one text of 8,192": [256 if tiny else 8192],
    }
    size = "tiny" if tiny else "base"
    torch.manual_seed(0)
    with device:
        encoder = build_model(model, size).base_model.eval()
    if device.type == "cuda":
        encoder = encoder.to(torch.bfloat16)
    for name, lengths in workloads.items():
        batch = to_device(
            build_batch("ModernBERT", lengths, minibert_config(size).vocab_size), device
        )
        batch.pop("labels")

        @torch.inference_mode()
        def encode(batch=batch):
            encoder(**batch)

        times = time_blocks(encode, device, tiny)
        yield dict(
            what=f"inference, base, {name}",
            model=model,
            variant="not compiled",
            tokens=sum(lengths) / times["seconds"],
            **times,
        )
