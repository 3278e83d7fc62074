"""How training moves: optimizers, schedules, batch warmup, weight averaging, training against the clock."""
