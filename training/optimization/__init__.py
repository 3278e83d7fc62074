"""Muon, and training by the clock."""
