"""The losses of sentence-transformers by name, for each kind of embedding model."""

import inspect
import json
from collections.abc import Sequence
from typing import Any

import torch
from sentence_transformers import CrossEncoder
from sentence_transformers.multi_vector_encoder import losses as multi_vector
from sentence_transformers.sentence_transformer import losses as dense
from sentence_transformers.sparse_encoder import losses as sparse

from ..loading import random_state_kept

# The losses for each kind of model, and what their names begin with.
MODULES = {"dense": (dense, ""), "sparse": (sparse, "Sparse"), "multi-vector": (multi_vector, "MultiVector")}
SHORT = {"ranking": "MultipleNegativesRankingLoss", "cosine": "CosineSimilarityLoss", "cosent": "CoSENTLoss"}
# Losses by the labels they learn from, the default first; those of no other name learn from pairs and triples.
BY_LABELS = {
    "scores": ("CoSENTLoss", "CosineSimilarityLoss", "AnglELoss", "ContrastiveLoss", "OnlineContrastiveLoss"),
    "margins": ("MarginMSELoss", "DistillKLDivLoss"),
    "vectors": ("MSELoss", "EmbedDistillLoss"),
    "none": ("MultipleNegativesRankingLoss", "MultipleNegativesSymmetricRankingLoss", "TripletLoss"),
}
SPLADE = {"document_regularizer_weight": 3e-5, "query_regularizer_weight": 5e-5}  # as its trainer's default loss


def labels_of(teacher: Any, columns: Sequence[str], kind: str) -> str:
    """What the rows are labelled with, by their own scores or by a teacher: a key of `BY_LABELS`.

    Raises:
        ValueError: such a teacher has nothing for this kind of model, or these rows.
    """
    if teacher is None:
        return "scores" if "label" in columns else "none"
    by_vectors, pairs = not isinstance(teacher, CrossEncoder), len(columns) == 2
    if kind != "dense" and by_vectors:
        raise ValueError("teacher: it is an embedding model, whose vectors only --kind dense learns; use a reranker")
    if kind != "dense" and pairs:
        raise ValueError(f"teacher: it teaches --kind {kind} by triples; give the rows a column negative")
    return "vectors" if by_vectors else "scores" if "label" in columns else "margins"


def find_loss(name: str, kind: str, labels: str) -> type[torch.nn.Module]:
    """The class of a loss, by its name with or without what the names of a kind begin with; `auto` by the labels.

    Raises:
        ValueError: no loss of this kind has the name, or it learns from other labels.
    """
    module, prefix = MODULES[kind]
    known = {each.replace(prefix, ""): getattr(module, each) for each in module.__all__ if each.endswith("Loss")}
    fitting = [each for each in BY_LABELS[labels] if each in known]
    if not fitting:
        raise ValueError(
            f"kind: sentence-transformers has no loss that trains {kind} on {labels}; use pairs or triples"
        )
    wanted = fitting[0] if name == "auto" else SHORT.get(name, name).replace(prefix, "")
    if wanted not in known:
        raise ValueError(f"loss: {name!r} is no loss of {module.__name__}; for these rows use {', '.join(fitting)}")
    if labels != next((each for each, names in BY_LABELS.items() if wanted in names), "none"):
        given = {"none": "pairs without scores", "scores": "scores"}.get(labels, f"a teacher's {labels}")
        raise ValueError(f"loss: {name} does not fit the data ({given}); use {', '.join(fitting)}")
    return known[wanted]


def make_loss(
    model: Any, kind: str, loss: type[torch.nn.Module], given: dict[str, Any], widths: Sequence[int], gather: bool
) -> torch.nn.Module:
    """A loss with the arguments `given`; with a mini_batch_size, the one of its name with `Cached`.

    For further `widths` of the vectors it stands in MatryoshkaLoss, for sparse ones in SpladeLoss, whose arguments may
    be among those given. With `gather`, negatives come from other processes, too, where the loss has them.

    Raises:
        ValueError: an unknown or a missing argument.
    """
    module, outer, own = MODULES[kind][0], None, {}
    if kind == "sparse":
        outer = sparse.CachedSpladeLoss if "mini_batch_size" in given else sparse.SpladeLoss
        own = {name: given[name] for name in inspect.signature(outer).parameters if name in given}
        given = {name: value for name, value in given.items() if name not in own}
    elif "mini_batch_size" in given:
        loss = getattr(module, f"Cached{loss.__name__}", loss)
    known = [*inspect.signature(loss).parameters][1:]
    if unknown := [name for name in given if name not in known]:
        raise ValueError(f"loss_kwargs: {loss.__name__} has no {unknown[0]!r}; it has {', '.join(known)}")
    if gather and "gather_across_devices" in known:
        given = given | {"gather_across_devices": True}
    try:
        made = loss(model, **given)
    except (TypeError, AttributeError) as error:
        raise ValueError(f"loss: {loss.__name__} needs what rows and --loss_kwargs do not give: {error}") from None
    if widths:
        made = dense.MatryoshkaLoss(model, made, sorted({*widths, model.get_embedding_dimension()}))
    return outer(model, made, **SPLADE | own) if outer else made


def parse_kwargs(given: str | dict[str, Any] | None) -> dict[str, Any]:
    try:
        return dict(json.loads(given) if isinstance(given, str) else given or {})
    except (ValueError, TypeError):
        raise ValueError(f'loss_kwargs: {given!r} is no object of JSON, as {{"margin": 0.3}}') from None


def try_loss(trainer: Any) -> None:
    """Compute the loss of two rows; a ValueError, before training, if it does not take them."""
    batch = trainer.data_collator([trainer.train_dataset[place] for place in (0, -1)])
    try:
        with random_state_kept(), torch.no_grad():
            trainer.loss(*trainer.collect_features(trainer._prepare_inputs(batch)))
    except Exception as error:
        said = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise ValueError(f"loss: {type(trainer.loss).__name__} does not take these rows ({said})") from error
