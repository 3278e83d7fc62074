"""`minibert embed`: texts → vectors, and a file of them."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from ..arguments.embeddings import EmbedArguments, PoolingArguments
from .data import TABLE_SUFFIXES, not_text, read_lines, read_table
from .encoders import Embedder

FORMATS = (".safetensors", ".npy")


def embed(arguments: EmbedArguments, pooling: PoolingArguments) -> np.ndarray:
    """The vectors of texts, written to a file: as "embeddings" in a safetensors file, or as npy.

    Returns:
        [texts, width], row i of text i; empty lines of a file keep their place.

    Raises:
        ValueError: no text, a missing column, another kind of output or one that exists, a model of another task.
    """
    output = Path(arguments.output)
    if output.suffix not in FORMATS:
        raise ValueError(f"output: {arguments.output!r} is no file of vectors; end its name in {' or '.join(FORMATS)}")
    if output.exists():
        raise ValueError(f"output: {arguments.output!r} exists already: nothing is overwritten, give a new file")
    if arguments.batch_tokens < 1:
        raise ValueError(f"batch_tokens: {arguments.batch_tokens} is too few; use at least 1")
    if arguments.text and arguments.file:
        raise ValueError("file: give texts or a file, not both")
    if arguments.text and not any(map(str.strip, arguments.text)):
        raise ValueError("text: none in the arguments")
    if arguments.file and Path(arguments.file).suffix.lower() in TABLE_SUFFIXES:
        texts = read_table(arguments.file).column(arguments.column, not_text)
    else:
        texts = arguments.text or read_lines(arguments.file)
    embedder = Embedder.from_pretrained(pooling.model, pooling.pooling, pooling.normalize, pooling.max_length)
    output.parent.mkdir(parents=True, exist_ok=True)  # if that fails, it does before the work
    started = time.perf_counter()
    vectors = embedder.embed(texts, arguments.batch_tokens, progress="Embedding")
    seconds = time.perf_counter() - started
    if output.suffix == ".npy":
        np.save(output, vectors, allow_pickle=False)
    else:
        made_by = {"model": pooling.model, "fingerprint": embedder.fingerprint(), "pooling": embedder.pooling}
        save_file({"embeddings": vectors}, output, metadata=made_by | {"normalize": str(embedder.normalize)})
    scaled = "normalised" if embedder.normalize else "not normalised"
    print(f"{len(texts):,} texts × {vectors.shape[1]} ({embedder.pooling}, {scaled}) in {seconds:.1f} s → {output}")
    return vectors
