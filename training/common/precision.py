"""The number format of a training, by what its processor is fast at."""

import dataclasses
import os
import platform
from pathlib import Path

import torch
from transformers import PreTrainedConfig, TrainingArguments

# Caches of kernels that oneDNN and torch make for every new shape in bf16 on CPU, up to 1,024 in
# either, of 0.2 to 0.5 MB each; both read it when they make the first one.
KERNEL_CACHES = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "256", "LRU_CACHE_CAPACITY": "256"}
# What accelerate sets in a model to compute it in autocast. (Its `unwrap_model` would undo other
# wrappers, too.)
AUTOCAST_ATTRIBUTES = ("forward", "_original_forward")


def resolve_precision(args: TrainingArguments) -> TrainingArguments:
    """The arguments with bf16 decided where the user did not: on where the machine is fast at it
    (said once)."""
    device_type = args.device.type
    bf16 = bool(args.bf16)
    if args.bf16 is None and not args.fp16:
        bf16, reason = fast_bf16(device_type)
        print(f"Computing in {'bf16' if bf16 else 'fp32'}: {reason}")
    elif bf16 and device_type == "cpu":
        is_fast, reason = fast_bf16("cpu")
        if not is_fast:
            print(
                f"bf16: {reason}; products take up to a hundred times as long as in fp32;"
                " leave it out"
            )
    if bf16:
        for variable, capacity in KERNEL_CACHES.items():
            os.environ.setdefault(variable, capacity)
    # Without `use_cpu`, Transformers refuses bf16 where there is no GPU.
    return dataclasses.replace(args, bf16=bf16, use_cpu=device_type == "cpu")


def precision_name(args: TrainingArguments) -> str:
    """The number format of a training, for its report: "bf16", "fp16" or "fp32"."""
    if args.bf16:
        return "bf16"
    if args.fp16:
        return "fp16"
    return "fp32"


def fast_bf16(device_type: str | None = None) -> tuple[bool, str]:
    """Whether this machine (on a "cpu": its processor) multiplies bf16 matrices faster than fp32
    ones, and why."""
    if device_type != "cpu" and torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability()
        gpu_name = torch.cuda.get_device_name()
        reason = (
            f"{gpu_name} has compute capability {major}.{minor}; bf16 is fast from 8.0 (Ampere) on"
        )
        return major >= 8, reason
    if device_type != "cpu" and torch.backends.mps.is_available():
        return False, "Apple GPUs gain little from bf16"
    processor_flags = _processor_flags()
    for flag in ("amx_bf16", "avx512_bf16", "bf16"):
        if flag in processor_flags:
            return True, f"the processor has {flag}"
    return False, f"the processor ({platform.machine()}) shows no bf16 instructions"


def dtype_of_saved(config: PreTrainedConfig) -> torch.dtype | str:
    """What a saved model computes in where nothing is said: "auto", as it was saved, but fp32 where
    that is in 16 bits and a processor has no instructions for them."""
    if torch.accelerator.is_available():
        return "auto"
    if config.dtype == torch.float16:
        return torch.float32
    if config.dtype == torch.bfloat16:
        is_fast, _ = fast_bf16("cpu")
        if not is_fast:
            return torch.float32
    return "auto"


def _processor_flags() -> set[str]:
    """What Linux says the processor can do (`flags` on x86, `Features` on Arm); nothing
    elsewhere."""
    cpuinfo = Path("/proc/cpuinfo")
    flags = set()
    if cpuinfo.exists():
        for line in cpuinfo.read_text(errors="replace").splitlines():
            if line.startswith(("flags", "Features")):
                flags.update(line.partition(":")[2].split())
    return flags


def without_autocast(model: torch.nn.Module) -> torch.nn.Module:
    """The model with the `forward` of its class, in the place of the one that the trainer wrapped
    in autocast."""
    for name in AUTOCAST_ATTRIBUTES:
        vars(model).pop(name, None)
    return model
