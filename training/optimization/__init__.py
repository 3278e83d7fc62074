"""How training moves: optimizers, schedules, batch warmup, weight averaging, training against the clock."""

from .trainer import OptimizationMixin, check_optimization, time_budget

__all__ = ["OptimizationMixin", "check_optimization", "time_budget"]
