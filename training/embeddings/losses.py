"""The losses of sentence-transformers by name, for each kind of embedding model."""

import json
from collections.abc import Sequence
from typing import Any

import torch
from sentence_transformers.multi_vector_encoder import losses as multi_vector
from sentence_transformers.sentence_transformer import losses as dense
from sentence_transformers.sparse_encoder import losses as sparse

# The losses for each kind of model, and what their names begin with.
MODULES = {
    "dense": (dense, ""),
    "sparse": (sparse, "Sparse"),
    "multi-vector": (multi_vector, "MultiVector"),
}
# Losses by the labels they learn from, the default first; those of no other name learn from pairs and triples.
BY_LABELS = {
    "scores": (
        "CoSENTLoss",
        "CosineSimilarityLoss",
        "AnglELoss",
        "ContrastiveLoss",
        "OnlineContrastiveLoss",
    ),
    "margins": ("MarginMSELoss", "DistillKLDivLoss"),
    "vectors": ("MSELoss", "EmbedDistillLoss"),
    "none": (
        "MultipleNegativesRankingLoss",
        "MultipleNegativesSymmetricRankingLoss",
        "TripletLoss",
    ),
}
SPLADE = {
    "document_regularizer_weight": 3e-5,
    "query_regularizer_weight": 5e-5,
}  # as its trainer's default loss


def find_loss(name: str, kind: str, labels: str) -> type[torch.nn.Module]:
    """The class of a loss, by its name with or without what the names of a kind begin with; `auto` by the labels, a key
    of `BY_LABELS`."""
    module, prefix = MODULES[kind]
    known = {
        each.replace(prefix, ""): getattr(module, each)
        for each in module.__all__
        if each.endswith("Loss")
    }
    fitting = [each for each in BY_LABELS[labels] if each in known]
    if not fitting:
        raise ValueError(
            f"kind: sentence-transformers has no loss that trains {kind} on {labels}; give pairs, triples"
        )
    wanted = fitting[0] if name == "auto" else name.replace(prefix, "")
    learns_from = next((each for each, names in BY_LABELS.items() if wanted in names), "none")
    if wanted not in known or learns_from != labels:
        rows = f"{kind} vectors from labels of the kind {labels!r}"
        raise ValueError(f"loss: {name!r} is not a loss for {rows}; use {', '.join(fitting)}")
    return known[wanted]


def make_loss(
    model: Any, kind: str, loss: type[torch.nn.Module], given: str | None, widths: Sequence[int]
) -> torch.nn.Module:
    """A loss with the arguments `given` as JSON: for further `widths` of the vectors in MatryoshkaLoss, for sparse ones
    in SpladeLoss, whose weights may be among those given."""
    try:
        arguments = dict(json.loads(given or "{}"))
        weights = SPLADE | {name: arguments.pop(name) for name in SPLADE if name in arguments}
        made = loss(model, **arguments)
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"loss_kwargs: {given!r} does not fit {loss.__name__}: {error}") from None
    if widths:
        made = dense.MatryoshkaLoss(model, made, sorted({*widths, model.get_embedding_dimension()}))
    return sparse.SpladeLoss(model, made, **weights) if kind == "sparse" else made
