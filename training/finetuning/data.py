"""Another name of `splits`, kept for its importers."""

from .splits import load_splits

__all__ = ["load_splits"]
