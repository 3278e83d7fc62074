"""Weights both ways between MiniBERT and Transformers' own encoders, in memory and from folder to
folder."""

from .families import ARCHITECTURES, positions
from .folders import convert
from .native import from_native, to_native

__all__ = ["ARCHITECTURES", "convert", "from_native", "positions", "to_native"]
