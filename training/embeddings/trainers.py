"""The trainers of sentence-transformers, with what all trainings of this package share."""

import sentence_transformers as st

from ..hub.upload_mixin import HubMixin
from ..loop.checkpoint_mixin import CheckpointMixin
from ..optimization.clock import TimeBudgetMixin


class _EncoderMixin(HubMixin, CheckpointMixin, TimeBudgetMixin):
    # of all types of embedding models
    training_args_class = st.SentenceTransformerTrainingArguments


class DenseTrainer(_EncoderMixin, st.SentenceTransformerTrainer):
    """`SentenceTransformerTrainer` with safe checkpoints and pushes."""


class SparseTrainer(_EncoderMixin, st.SparseEncoderTrainer):
    """`SparseEncoderTrainer` with safe checkpoints and pushes."""


class MultiVectorTrainer(_EncoderMixin, st.MultiVectorEncoderTrainer):
    """`MultiVectorEncoderTrainer` with safe checkpoints and pushes."""


class RerankerTrainer(HubMixin, CheckpointMixin, TimeBudgetMixin, st.CrossEncoderTrainer):
    """`CrossEncoderTrainer` with safe checkpoints and pushes."""


TRAINERS = {
    "dense": DenseTrainer,
    "sparse": SparseTrainer,
    "multi-vector": MultiVectorTrainer,
}
