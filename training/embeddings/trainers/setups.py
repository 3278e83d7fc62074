"""What a training is made of, beside its settings: `EmbeddingSetup`, `RerankingSetup`."""

from dataclasses import dataclass
from typing import Any

from datasets import Dataset

from ...data.tables import names_of_data
from ..encoders import EncoderType, PoolingName

NUM_NEGATIVES = 3  # of a query in training, by default


@dataclass(frozen=True, kw_only=True)
class SentenceSetup:
    """What the setups of embedding models and rerankers share: the rows that are learned from, and
    the models.

    Attributes:
        data: Tables of pairs: paths, Hub names, or rows in memory.
        columns: The columns of the texts and the score; guessed if empty.
        validation: What the best checkpoint is chosen on; None: rows that are held out of `data`.
        model: The model to start from: a folder or a Hub name.
        teacher: A model that labels the rows, if any.
    """

    data: str | list[str] | Dataset
    columns: list[str] = ()
    validation: str | Dataset | None = None
    model: str
    teacher: str | None = None

    @property
    def data_names(self) -> list[str]:
        """The paths and Hub names of the data."""
        return names_of_data(self.data)

    @property
    def labels_are_computed(self) -> bool:
        """Whether a model finds or labels rows, perhaps a little differently on another machine."""
        return bool(self.teacher)

    def arguments(self) -> dict[str, Any]:
        """What the report says of it, and what must be the same when the training is
        resumed: the arguments of `finetune_embed` or `finetune_rerank`, by the names there."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class EmbeddingSetup(SentenceSetup):
    """What `finetune_embed` trains, on what, by which loss. A ValueError for arguments that
    contradict each other.

    Attributes:
        pairs_from: How pairs are made of plain text: title, adjacent; empty if the data are pairs.
        encoder_type: dense, sparse or multi-vector; the option `kind`.
        pooling: mean or cls; None: as the model was saved.
        matryoshka_dims: Widths to which the vectors can be shortened.
        loss: The class name of a loss of sentence-transformers, or auto.
        loss_kwargs: Its keyword arguments, as JSON.
    """

    pairs_from: list[str] = ()
    encoder_type: EncoderType = "dense"
    pooling: PoolingName | None = None
    matryoshka_dims: list[int] = ()
    loss: str = "auto"
    loss_kwargs: str | None = None

    def __post_init__(self):
        if self.encoder_type != "dense" and (self.pooling or self.matryoshka_dims):
            raise ValueError(
                f"kind: {self.encoder_type} has no vector of a text to pool or cut; leave pooling"
                " and matryoshka_dims out"
            )
        if self.pairs_from and self.columns:
            raise ValueError(
                "columns: pairs_from makes pairs of whole documents; leave columns out"
            )

    def arguments(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "columns": self.columns,
            "pairs_from": self.pairs_from,
            "kind": self.encoder_type,
            "pooling": self.pooling,
            "matryoshka_dims": self.matryoshka_dims,
            "teacher": self.teacher,
            "loss": self.loss,
            "loss_kwargs": self.loss_kwargs,
        }


@dataclass(frozen=True, kw_only=True)
class RerankingSetup(SentenceSetup):
    """What `finetune_rerank` trains, and on what. A ValueError for a number of negatives below 1.

    Attributes:
        negatives: Number of negatives to draw for each query of pairs; None: `NUM_NEGATIVES`, or
            none for rows that have negatives or scores.
        miner: An embedding model that finds them; None: they are random.
    """

    negatives: int | None = None
    miner: str | None = None

    def __post_init__(self):
        if self.negatives is not None and self.negatives < 1:
            raise ValueError(
                f"negatives: {self.negatives} is too few; a reranker learns from 1 or more a query"
            )

    @property
    def asks_for_negatives(self) -> bool:
        """Whether their number or a miner was given."""
        return self.negatives is not None or self.miner is not None

    @property
    def labels_are_computed(self) -> bool:
        return bool(self.miner or self.teacher)

    def arguments(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "columns": self.columns,
            "negatives": self.negatives,
            "miner": self.miner,
            "teacher": self.teacher,
        }
