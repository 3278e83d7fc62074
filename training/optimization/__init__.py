"""Optimizer and schedule: Muon, warmup-stable-decay, batch warmup, averaged weights, training by the clock."""

from .throughput import plan_training
from .trainer import OptimizationMixin, check_optimization, resolve_optimizer, time_budget

__all__ = ["OptimizationMixin", "check_optimization", "plan_training", "resolve_optimizer", "time_budget"]
