"""Weights both ways between MiniBERT and Transformers' own encoders, in memory and from folder to
folder."""

from .families import ARCHITECTURES, count_positions
from .folders import convert
from .native import from_native, to_native

__all__ = ["ARCHITECTURES", "convert", "count_positions", "from_native", "to_native"]
