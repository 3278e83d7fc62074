"""A former name of `reading.splits`, kept for its importers."""

from .reading.splits import load_splits

__all__ = ["load_splits"]
