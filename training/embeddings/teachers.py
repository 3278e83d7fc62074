"""The labels that a teacher gives the rows of a training, once, before it begins.

A teacher is a larger embedding model, whose vectors are learned (Reimers and Gurevych 2020, arXiv 2004.09813), or a
reranker, whose scores are: of triples, their difference (Hofstätter et al. 2020, arXiv 2010.02666).
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.util import mine_hard_negatives
from transformers import AutoConfig

from ..loading import reading
from .encoders import Embedder, check_dense, score_pairs


def open_teacher(path: str | None, student: str, reranker: bool = False) -> SentenceTransformer | CrossEncoder | None:
    """A reranker of any architecture, or else an embedding model; without a path, None.

    Raises:
        ValueError: the student itself, a model of another kind, or no `reranker` where it must be one.
    """
    if path is None:
        return None
    if path == student or (Path(path).exists() and Path(path).resolve() == Path(student).resolve()):
        raise ValueError(f"teacher: {path!r} is the model that is trained; give another one")
    with reading(path):
        config = AutoConfig.from_pretrained(path, trust_remote_code=False)
        classifies = (config.architectures or [""])[0].endswith("ForSequenceClassification")
        if classifies and config.num_labels == 1:
            return CrossEncoder(path)
        if classifies or reranker:
            raise ValueError(f"teacher: {path!r} is no reranker with one score that could be learned; give one")
        check_dense(path, "teacher")
        return SentenceTransformer(path)


def check_teacher(teacher: Any, student: Any) -> None:
    """Refuse (ValueError) a teacher with the weights of the student, or with narrower vectors."""
    weights, own = (model.transformers_model.state_dict() for model in (teacher, student))
    if weights.keys() == own.keys() and all(torch.equal(weights[name].float(), own[name].float()) for name in own):
        raise ValueError("teacher: it has the weights of the model that is trained; give another one")
    if isinstance(teacher, SentenceTransformer):
        width, wanted = teacher.get_embedding_dimension(), student.get_embedding_dimension()
        if width < wanted:
            raise ValueError(f"teacher: its vectors have {width} numbers, the model's {wanted}; use a larger teacher")


def teach(teacher: Any | None, rows: Dataset, student: Any, labels: str, progress: bool) -> Dataset:
    """The rows with the teacher's `labels` (see `losses.labels_of`) in the place of their own. Pairs whose teacher
    gives margins get a negative each, mined by the student."""
    if teacher is None:
        return rows
    check_teacher(teacher, student)
    bar, columns = "Teacher" if progress else None, [name for name in rows.column_names if name != "label"]
    if labels == "margins" and len(columns) == 2:
        options = dict(range_max=30, sampling_strategy="random", output_format="triplet", verbose=False)
        rows = mine_hard_negatives(rows, student, "first", "second", num_negatives=1, **options)
        rows, columns = rows.rename_column("negative", "third"), [*columns, "third"]
    if labels == "vectors":
        tasks = [None, None] if "label" in rows.column_names else ["query", "document", "document"]
        embed = Embedder(teacher).embed
        vectors = [embed(rows[name][:], progress=bar, task=task) for name, task in zip(columns, tasks)]
        values = fit_width(np.stack(vectors, 1), student.get_embedding_dimension())
    else:
        # a cosine is bounded, as a share is; other similarities and a reranker's logits are not
        kept, bounded = teacher.activation_fn, isinstance(student, SentenceTransformer)
        teacher.activation_fn = torch.nn.Sigmoid() if bounded else torch.nn.Identity()
        scores = [score_pairs(teacher, list(zip(rows["first"], rows[name])), bar) for name in columns[1:]]
        teacher.activation_fn, values = kept, np.stack(scores, 1) if labels == "margins" else scores[0]
    return Dataset.from_dict({name: rows[name][:] for name in columns} | {"label": values})


def fit_width(vectors: np.ndarray, width: int) -> np.ndarray:
    """Vectors of length 1, of a student's `width`: wider ones by the principal directions that keep most of their dot
    products."""
    if vectors.shape[-1] > width:
        flat = vectors.reshape(-1, vectors.shape[-1]).astype(np.float64)
        basis = np.linalg.eigh(flat.T @ flat)[1][:, ::-1][:, :width]
        basis *= np.sign(basis[np.abs(basis).argmax(0), range(width)])  # else of either sign, by the machine
        kept = np.square(flat @ basis).sum() / np.square(flat).sum()
        print(f"The teacher's vectors are cut from {vectors.shape[-1]} to {width} directions, with {kept:.1%} of them")
        vectors = (vectors @ basis).astype(np.float32)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
