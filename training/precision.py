"""Which number format a machine computes fastest in."""

from __future__ import annotations

import platform
from pathlib import Path

import torch


def fast_bf16() -> tuple[bool, str]:
    """Whether this machine multiplies bf16 matrices faster than fp32 ones, and why."""
    if torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability()
        name = torch.cuda.get_device_name()
        return major >= 8, f"{name} has compute capability {major}.{minor}; bf16 is fast from 8.0 (Ampere) on"
    if torch.backends.mps.is_available():
        return False, "Apple GPUs gain little from bf16"
    flags = _processor_flags()
    fast = [flag for flag in ("amx_bf16", "avx512_bf16", "bf16") if flag in flags]
    if fast:
        return True, f"the processor has {fast[0]}"
    return False, f"the processor ({platform.machine()}) shows no bf16 instructions"


def _processor_flags() -> set[str]:
    """What Linux says the processor can do (`flags` on x86, `Features` on Arm); nothing elsewhere."""
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        return set()
    lines = cpuinfo.read_text(errors="replace").splitlines()
    return {flag for line in lines if line.startswith(("flags", "Features")) for flag in line.partition(":")[2].split()}
