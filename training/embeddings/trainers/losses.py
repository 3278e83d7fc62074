"""The losses of sentence-transformers by name, for each type of embedding models."""

import inspect
import json
from collections.abc import Sequence
from typing import Any

import torch
from accelerate import PartialState
from sentence_transformers.multi_vector_encoder import losses as multi_vector
from sentence_transformers.sentence_transformer import losses as dense
from sentence_transformers.sparse_encoder import losses as sparse

# The losses for each type of models, and what their names begin with.
LOSS_MODULES = {
    "dense": (dense, ""),
    "sparse": (sparse, "Sparse"),
    "multi-vector": (multi_vector, "MultiVector"),
}
# Losses by the type of their labels, the default first; those of no other name learn from pairs
# and triples.
LOSSES_BY_LABEL_TYPE = {
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
SPLADE_WEIGHTS = {
    "document_regularizer_weight": 3e-5,
    "query_regularizer_weight": 5e-5,
}  # as its trainer's default loss


def find_loss(name: str, encoder_type: str, label_type: str) -> type[torch.nn.Module]:
    """The class of a loss. A ValueError if it does not learn from labels of this type.

    Args:
        name: Its name, such as TripletLoss; `SparseTripletLoss` is the same of sparse vectors. With
            auto, the default of the label type.
        encoder_type: A key of `LOSS_MODULES`.
        label_type: A key of `LOSSES_BY_LABEL_TYPE`.
    """
    module, prefix = LOSS_MODULES[encoder_type]
    classes = {}
    for class_name in module.__all__:
        if class_name.endswith("Loss"):
            classes[class_name.replace(prefix, "")] = getattr(module, class_name)
    usable = [loss_name for loss_name in LOSSES_BY_LABEL_TYPE[label_type] if loss_name in classes]
    if not usable:
        raise ValueError(
            f"kind: sentence-transformers has no loss that trains {encoder_type} on {label_type};"
            " give pairs or triples"
        )
    if name == "auto":
        return classes[usable[0]]
    loss_name = name.replace(prefix, "")
    needed_type = "none"
    for type_of_losses, loss_names in LOSSES_BY_LABEL_TYPE.items():
        if loss_name in loss_names:
            needed_type = type_of_losses
    if loss_name not in classes or needed_type != label_type:
        raise ValueError(
            f"loss: {name!r} is not a loss for {encoder_type} vectors from labels of the kind"
            f" {label_type!r}; use {', '.join(usable)}"
        )
    return classes[loss_name]


def make_loss(
    model: Any,
    encoder_type: str,
    loss_class: type[torch.nn.Module],
    loss_kwargs: str | None,
    widths: Sequence[int],
) -> torch.nn.Module:
    """Make a loss, and wrap it: with `widths` of shortened vectors in MatryoshkaLoss, for sparse
    vectors in SpladeLoss. `loss_kwargs` are its arguments as JSON, and may have the weights of
    SpladeLoss. A ValueError for arguments that it does not take.

    In-batch negatives are those of all processes, so that a batch teaches the same however many
    processes share it; sentence-transformers takes those of one process by default.
    """
    splade_weights = dict(SPLADE_WEIGHTS)
    defaults = {}
    if "gather_across_devices" in inspect.signature(loss_class).parameters:
        # a single process would be warned that it has nothing to gather
        defaults["gather_across_devices"] = PartialState().num_processes > 1
    try:
        arguments = defaults | dict(json.loads(loss_kwargs or "{}"))
        for name in SPLADE_WEIGHTS:
            if name in arguments:
                splade_weights[name] = arguments.pop(name)
        loss = loss_class(model, **arguments)
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(
            f"loss_kwargs: {loss_kwargs!r} does not fit {loss_class.__name__}: {error}"
        ) from None
    if widths:
        all_widths = sorted({*widths, model.get_embedding_dimension()})
        loss = dense.MatryoshkaLoss(model, loss, all_widths)
    if encoder_type == "sparse":
        return sparse.SpladeLoss(model, loss, **splade_weights)
    return loss
