"""`minibert embed`: texts become vectors."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
from datasets import Dataset

from ...option_checks import checked_keywords
from ..common.files import atomic_write
from ..common.locks import lock_file
from ..common.paths import check_folder
from ..common.printing import print_next_step
from ..data.tables import Rows, as_dataset, check_one_split, read_table
from .encoders import DtypeName, PoolingName, open_encoder
from .inference import encode
from .reading.texts import is_table, read_lines, texts_of


@checked_keywords
def embed(
    text: str | Iterable[str] | Rows | None = None,
    *,
    file: str | None = None,
    column: str = "text",
    output: str | None = None,
    model: str = "runs/embed",
    pooling: PoolingName | None = None,
    normalize: bool | None = None,
    max_length: int | None = None,
    dtype: DtypeName | None = None,
) -> np.ndarray:
    """Turn texts into vectors.

    Args:
        text: The texts; in Python also a table (a `Dataset`, a DataFrame or dictionaries).
        file: Instead of texts, a text file with a text in each line ("-": stdin), or a JSON lines,
            csv, tsv or parquet file.
        column: The column of the text in a table.
        output: The file of the vectors, a new .npy file.
        model: The model: a folder or a Hub name.
        pooling: How the last states of the tokens become one vector: mean, or cls (the first
            token). By default as the model was saved, else mean.
        normalize: Scale vectors to length 1; by default as the model was saved, else false.
        max_length: Longest text, in tokens; longer ones are cut. By default as the model was saved.
        dtype: The number format to compute in; bfloat16 is faster on processors with AMX. By
            default as the model was saved, but float32 on processors that are slow at 16 bits.

    Returns:
        The vectors, [texts, width], in float32. Row i is that of text i: empty lines of a file keep
        their place.
    """
    if output is not None:
        _check_output(output)
    texts = _read_texts(text, file, column)
    with nullcontext() if output is None else lock_file(Path(output)):
        if output is not None:
            # again, since another process may have written it before the lock
            _check_output(output)
        encoder = open_encoder(model, "dense", pooling, normalize, max_length, dtype)
        vectors = encode(encoder, texts, None, "Embedding")
        if output is not None:
            with atomic_write(Path(output)) as unfinished, open(unfinished, "wb") as stream:
                np.save(stream, vectors, allow_pickle=False)
            print(f"{len(texts):,} texts × {vectors.shape[1]} → {Path(output)}")
            print_next_step(
                "minibert", "search", "INDEX", "QUERY", "--data", "FOLDER", "--model", model
            )
    return vectors


def _check_output(output: str) -> None:
    """Refuse (a ValueError) a file of vectors that exists, has another ending, or cannot be
    written."""
    target = Path(output)
    if target.exists() or target.suffix != ".npy":
        raise ValueError(
            f"output: give a new file that ends in .npy, not {output!r}; nothing is overwritten"
        )
    check_folder(target.parent, "output")


def _read_texts(
    text: str | Iterable[str] | Rows | None, file: str | None, column: str
) -> list[str]:
    """The texts that `embed` is given: as they are, or in a file."""
    check_one_split(text, "text")
    text = as_dataset(text, "text")
    if text and file not in (None, "-"):
        raise ValueError("file: give texts or a file, not both")
    if isinstance(text, str):
        return [text]
    if isinstance(text, Dataset):
        return texts_of(read_table(text, [column], field="text"), column, "the data set")
    if text is not None and text != []:
        return list(text)
    if file is None:
        raise ValueError("text: none given; give texts, or a file")
    if column != "text" and not is_table(file):
        raise ValueError(f"column: {file!r} is no table, whose column could be read; leave it out")
    if is_table(file):
        return texts_of(read_table(file, [column], field="file"), column, file)
    return read_lines(file)
