"""Optimizer and schedule: Muon, warmup-stable-decay, batch warmup, averaged weights, training by the clock."""

from .throughput import plan_training
from .trainer import OptimizationMixin, resolve_optimization

__all__ = ["OptimizationMixin", "plan_training", "resolve_optimization"]
