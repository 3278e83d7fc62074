"""Optimizer and schedule: Muon, warmup-stable-decay, batch warmup, averaged weights, training by the clock."""
