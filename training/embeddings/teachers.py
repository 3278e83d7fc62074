"""The labels that a teacher gives the rows of a training, once, before it begins.

A teacher is a larger embedding model, whose vectors are learned (Reimers and Gurevych 2020, arXiv 2004.09813), or a
reranker, whose scores are: of triples, their difference (Hofstätter et al. 2020, arXiv 2010.02666).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import CrossEncoder, SentenceTransformer

from ..common.loading import load_sentence_transformer, saved_config
from .encoders import encode, saved_kind, score_pairs


def open_teacher(
    path: str | None, student: str, reranker: bool = False
) -> SentenceTransformer | CrossEncoder | None:
    """A reranker of any architecture, or else an embedding model; without a path, None."""
    if path is None:
        return None
    if path == student or Path(path).resolve() == Path(student).resolve():
        raise ValueError(f"teacher: {path!r} is the model that is trained; give another one")
    config = saved_config(path)
    head = (config.architectures or [""])[0]
    classifies = head.endswith("ForSequenceClassification")
    if classifies and config.num_labels == 1:
        return load_sentence_transformer(CrossEncoder, path, show_warnings=True)
    if classifies or reranker or saved_kind(path) != "dense":
        raise ValueError(
            f"teacher: {path!r} is neither a reranker with one score nor a dense embedding model; give one"
        )
    return load_sentence_transformer(SentenceTransformer, path, show_warnings=True)


def labels_of(teacher: Any, columns: Sequence[str], kind: str) -> str:
    """What the rows are labelled with, by their own scores or by a teacher: a key of `losses.BY_LABELS`."""
    if teacher is None:
        return "scores" if "label" in columns else "none"
    if not isinstance(teacher, CrossEncoder):
        if kind != "dense":
            raise ValueError(
                f"teacher: it is an embedding model, whose vectors --kind {kind} does not learn"
            )
        return "vectors"
    if "third" not in columns and (kind != "dense" or "label" not in columns):
        raise ValueError("teacher: a reranker teaches by triples; give the rows a column negative")
    return "scores" if "label" in columns else "margins"


def teach(teacher: Any | None, rows: Dataset, student: Any, labels: str, progress: bool) -> Dataset:
    """The rows with the teacher's `labels` in the place of their own."""
    if teacher is None:
        return rows
    bar, columns = (
        "Teacher" if progress else None,
        [name for name in rows.column_names if name != "label"],
    )
    if labels == "vectors":
        width, wanted = (model.get_embedding_dimension() for model in (teacher, student))
        if width < wanted:
            raise ValueError(
                f"teacher: its vectors have {width} numbers, the model's {wanted}; use a larger teacher"
            )
        tasks = [None, None] if "label" in rows.column_names else ["query", "document", "document"]
        vectors = [encode(teacher, rows[name][:], task, bar) for name, task in zip(columns, tasks)]
        values = fit_width(np.stack(vectors, 1), wanted)
    else:
        # a cosine is bounded, as a share is; other similarities and a reranker's logits are not
        kept, bounded = teacher.activation_fn, isinstance(student, SentenceTransformer)
        teacher.activation_fn = torch.nn.Sigmoid() if bounded else torch.nn.Identity()
        scores = [
            score_pairs(teacher, list(zip(rows["first"], rows[name])), bar) for name in columns[1:]
        ]
        teacher.activation_fn, values = (
            kept,
            np.stack(scores, 1) if labels == "margins" else scores[0],
        )
    return Dataset.from_dict({name: rows[name][:] for name in columns} | {"label": values})


def fit_width(vectors: np.ndarray, width: int) -> np.ndarray:
    """Vectors of length 1, of a student's `width`: wider ones by the principal directions that keep most of their dot
    products."""
    given = vectors.shape[-1]
    if given > width:
        flat = vectors.reshape(-1, given).astype(np.float64)
        vectors = (vectors @ np.linalg.eigh(flat.T @ flat)[1][:, ::-1][:, :width]).astype(
            np.float32
        )
        print(f"The teacher's vectors are cut from {given} to their {width} principal directions")
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
