"""The arguments of `minibert export`; nothing here may import torch."""

from dataclasses import dataclass
from typing import Literal

from . import argument


@dataclass
class ExportArguments:
    """Write a MiniBERT for other runtimes: as ONNX graphs, as a plain model of Transformers, with its pooling."""

    paths: list[str] = argument([], "A MiniBERT (folder or Hub name), then the folder to write; also without --paths.")
    format: Literal["onnx", "native", "sentence-transformers"] = argument(
        "onnx",
        "onnx: graphs in fp32 and int8, as sentence-transformers, text-embeddings-inference and transformers.js look"
        " for them; native: weights for Transformers' own class (BERT, ModernBERT, …), from which other converters go"
        " on; sentence-transformers: what SentenceTransformer opens.",
    )
    head: str | None = argument(
        None,
        "onnx: Model for the encoder alone, instead of the head that is saved (ForMaskedLM, …); by default the encoder"
        " where sentence-transformers pools its tokens.",
    )
    int8: bool | None = argument(None, "onnx: a graph in int8 too; by default so.")
    pooling: Literal["mean", "cls"] | None = argument(
        None, "sentence-transformers: the pooling; by default as saved, else mean."
    )
    normalize: bool | None = argument(
        None, "sentence-transformers: vectors of length 1; by default as saved, else not."
    )
