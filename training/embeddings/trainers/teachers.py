"""The labels that a teacher gives the rows of a training, once, before it begins.

A teacher is a larger embedding model, whose vectors are learned (Reimers and Gurevych 2020, arXiv
2004.09813), or a reranker, whose scores are: of triples, their difference (Hofstätter et al. 2020,
arXiv 2010.02666).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import CrossEncoder, SentenceTransformer

from ...loading.models import load_sentence_transformer, saved_config
from ..encoders import saved_encoder_type
from ..inference import encode, score_pairs


def open_teacher(
    path: str | None, student: str, reranker: bool = False
) -> SentenceTransformer | CrossEncoder | None:
    """Load a teacher: a reranker or a dense embedding model, of any architecture. A ValueError for
    another model. Without a path, None.

    Args:
        path: A folder or a Hub name.
        student: The model that is trained, which cannot be its own teacher.
        reranker: Whether the teacher must be a reranker.
    """
    if path is None:
        return None
    if path == student or Path(path).resolve() == Path(student).resolve():
        raise ValueError(f"teacher: {path!r} is the model that is trained; give another one")
    config = saved_config(path)
    head = (config.architectures or [""])[0]
    classifies = head.endswith("ForSequenceClassification")
    if classifies and config.num_labels == 1:
        return load_sentence_transformer(CrossEncoder, path, show_warnings=True)
    if classifies or reranker or saved_encoder_type(path) != "dense":
        raise ValueError(
            f"teacher: {path!r} is neither a reranker with one score nor a dense embedding model;"
            " give one"
        )
    return load_sentence_transformer(SentenceTransformer, path, show_warnings=True)


def label_type_of(teacher: Any, columns: Sequence[str], encoder_type: str) -> str:
    """What the rows are labelled with, by their own scores or by a teacher, for a student of this
    `encoder_type` (dense, sparse, multi-vector): none, scores, margins or vectors, the keys of
    `losses.LOSSES_BY_LABEL_TYPE`."""
    has_scores = "label" in columns
    has_negatives = "third" in columns
    if teacher is None:
        return "scores" if has_scores else "none"
    if not isinstance(teacher, CrossEncoder):
        if encoder_type != "dense":
            raise ValueError(
                f"teacher: it is an embedding model, whose vectors --kind {encoder_type} does not"
                " learn"
            )
        return "vectors"
    if has_negatives and not has_scores:
        return "margins"
    if not has_negatives and (encoder_type != "dense" or not has_scores):
        raise ValueError("teacher: a reranker teaches by triples; give the rows a column negative")
    return "scores"


def teach(
    teacher: Any | None, rows: Dataset, student: Any, label_type: str, has_bar: bool
) -> Dataset:
    """The rows with the teacher's labels, of this type, in the place of their own."""
    if teacher is None:
        return rows
    bar_title = "Teacher" if has_bar else None
    columns = {}
    for name in rows.column_names:
        if name != "label":
            columns[name] = rows[name][:]
    if label_type == "vectors":
        has_scores = "label" in rows.column_names
        values = vectors_of_teacher(teacher, columns, has_scores, student, bar_title)
    else:
        values = scores_of_teacher(teacher, columns, label_type, student, bar_title)
    return Dataset.from_dict({**columns, "label": values})


def vectors_of_teacher(
    teacher: SentenceTransformer,
    columns: Mapping[str, list[str]],
    has_scores: bool,
    student: SentenceTransformer,
    bar_title: str | None,
) -> np.ndarray:
    """The vectors of each row's texts, in the student's width: [rows, texts, width]. Texts that
    have scores are just texts; else the first is a query, and the others are passages."""
    teacher_width = teacher.get_embedding_dimension()
    student_width = student.get_embedding_dimension()
    if teacher_width < student_width:
        raise ValueError(
            f"teacher: its vectors have {teacher_width} numbers, the model's {student_width}; use a"
            " larger teacher"
        )
    vectors = []
    for name, texts in columns.items():
        text_role = "document"
        if has_scores:
            text_role = None
        elif name == "first":
            text_role = "query"
        vectors.append(encode(teacher, texts, text_role, bar_title))
    return fit_width(np.stack(vectors, 1), student_width)


def scores_of_teacher(
    teacher: CrossEncoder,
    columns: Mapping[str, list[str]],
    label_type: str,
    student: Any,
    bar_title: str | None,
) -> np.ndarray:
    """The teacher's score of each row's pair, [rows]; of triples ("margins") those of both pairs,
    [rows, 2]."""
    activation = teacher.activation_fn
    # a cosine is bounded, as a share is; other similarities and a reranker's logits are not
    if isinstance(student, SentenceTransformer):
        teacher.activation_fn = torch.nn.Sigmoid()
    else:
        teacher.activation_fn = torch.nn.Identity()
    queries, *passages = columns.values()
    try:
        scores = [score_pairs(teacher, list(zip(queries, texts)), bar_title) for texts in passages]
    finally:
        teacher.activation_fn = activation
    if label_type == "margins":
        return np.stack(scores, 1)
    return scores[0]


def fit_width(vectors: np.ndarray, width: int) -> np.ndarray:
    """Vectors of length 1, of a student's `width`: wider ones by the principal directions that keep
    most of their dot products."""
    teacher_width = vectors.shape[-1]
    if teacher_width > width:
        flat = vectors.reshape(-1, teacher_width).astype(np.float64)
        _, directions = np.linalg.eigh(flat.T @ flat)  # in the order of their eigenvalues
        principal_directions = directions[:, ::-1][:, :width]
        vectors = (vectors @ principal_directions).astype(np.float32)
        print(
            f"The teacher's vectors are cut from {teacher_width} to their {width} principal"
            " directions"
        )
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
