"""The trainers of embedding models, one for each type: those of sentence-transformers, which read
the rows and open the models by themselves."""

import dataclasses
from typing import Any, ClassVar

import sentence_transformers as st
from datasets import Dataset
from transformers import set_seed

from ...common.printing import warn
from ...evaluation.baselines import describe_few_rows
from ...loop.arguments import choose_best_metric, trainer_settings
from ...optimization.clock import start_budget
from ..checks import check_before_reading
from ..config import EmbeddingConfig
from ..encoders import EncoderType, open_encoder
from ..inference import warn_cut
from ..measuring.evaluators import EmbeddingEvaluator
from ..measuring.retrieval import RETRIEVAL_METRICS, Retrieval
from ..measuring.scored_pairs import ScoredPairs
from ..reading.retrieval_folders import RetrievalFolder
from ..reading.validation_pairs import split_pairs
from .losses import find_loss, make_loss
from .sentence_trainer import SentenceTrainerMixin
from .setups import EmbeddingSetup
from .teachers import label_type_of, open_teacher, teach


class EmbeddingTrainerMixin(SentenceTrainerMixin):
    """A mixin that stands before the trainer of a type of embedding models. It reads the pairs,
    holds some out, labels them by the teacher, and opens the model.

    ```python
    setup = EmbeddingSetup(data="pairs.jsonl", model="runs/minibert")
    trainer = DenseTrainer(setup, EmbeddingConfig("runs/embed"))
    trainer.train()
    scores = trainer.measure()
    ```

    Args:
        setup: The model, the rows, the teacher and the loss.
        args: The settings.

    Raises:
        ValueError: the settings, the rows, the teacher or the model do not fit each other.
    """

    # `EmbeddingConfig` is a subclass of it; sparse and multi-vector trainers have others
    training_args_class = st.SentenceTransformerTrainingArguments
    encoder_type: ClassVar[EncoderType]

    def __init__(self, setup: EmbeddingSetup, args: EmbeddingConfig):
        # Checks and settings
        self._check_encoder_type(setup)
        check_before_reading(setup.model, args)
        budget = start_budget(args)
        args = trainer_settings(args)

        # Teacher
        teacher = open_teacher(setup.teacher, setup.model)

        # Pairs and held-out rows
        pairs, held_out_rows = split_pairs(
            setup.data,
            setup.columns,
            setup.validation,
            args.validation_size,
            args.seed,
            setup.pairs_from,
        )
        has_scores = "label" in pairs.column_names
        best_metric = choose_embedding_metric(args, has_scores)
        held_out = make_held_out(held_out_rows, has_scores)

        # Loss
        label_type = label_type_of(teacher, pairs.column_names, setup.encoder_type)
        loss_class = find_loss(setup.loss, setup.encoder_type, label_type)

        # Model
        set_seed(args.seed)
        normalize = True if setup.encoder_type == "dense" else None
        # in fp32: small steps are lost in weights of half precision, in which some models are saved
        encoder = open_encoder(
            setup.model, setup.encoder_type, setup.pooling, normalize, dtype="float32"
        )
        loss = make_loss(
            encoder, setup.encoder_type, loss_class, setup.loss_kwargs, setup.matryoshka_dims
        )

        # Rows and their settings
        has_bars = not args.disable_tqdm
        rows = teach(teacher, pairs, encoder, label_type, has_bars)
        fields = embedding_fields(encoder, label_type, has_scores)
        args = dataclasses.replace(args, **fields, **best_metric)
        print(
            f"{len(rows):,} rows to train on by {loss_class.__name__}; held out: {len(held_out):,}"
        )
        warn(describe_few_rows(len(held_out)))

        # Trainer
        super().__init__(
            model=encoder,
            args=args,
            train_dataset=rows,
            loss=loss,
            evaluator=EmbeddingEvaluator(held_out, encoder.max_seq_length, has_bars),
            setup=setup,
            budget=budget,
            teacher_to_measure=teacher if label_type == "vectors" else None,
        )

    def _check_encoder_type(self, setup: EmbeddingSetup) -> None:
        """Refuse (a ValueError) a setup for another type of vectors."""
        if setup.encoder_type != self.encoder_type:
            raise ValueError(
                f"setup: it is for {setup.encoder_type} vectors, which {type(self).__name__} does"
                f" not train; use {TRAINER_CLASSES[setup.encoder_type].__name__}"
            )

    def warn_of_cut_texts(self) -> None:
        warn_cut(self.model, self.train_dataset["second"][:], "document")

    def measure(self) -> dict[str, dict[str, float]]:
        """Measure the trained model, also with shortened vectors. Returns `scores`."""
        super().measure()
        for width in self.setup.matryoshka_dims or ():
            with self.model.truncate_embeddings(width):
                self.scores[f"after, first {width}"] = self.evaluator(self.model)
        return self.scores


class DenseTrainer(EmbeddingTrainerMixin, st.SentenceTransformerTrainer):
    """Trains models with one vector of a text."""

    encoder_type = "dense"


class SparseTrainer(EmbeddingTrainerMixin, st.SparseEncoderTrainer):
    """Trains models with one weight of a text for each word of the vocabulary."""

    encoder_type = "sparse"


class MultiVectorTrainer(EmbeddingTrainerMixin, st.MultiVectorEncoderTrainer):
    """Trains models with one vector of each token."""

    encoder_type = "multi-vector"


TRAINER_CLASSES: dict[EncoderType, type[EmbeddingTrainerMixin]] = {
    "dense": DenseTrainer,
    "sparse": SparseTrainer,
    "multi-vector": MultiVectorTrainer,
}


def make_held_out(held_out: RetrievalFolder | Dataset, has_scores: bool) -> Retrieval | ScoredPairs:
    """What is measured on held-out data: a search, or scores of pairs."""
    if isinstance(held_out, RetrievalFolder):
        return Retrieval(*held_out)
    if has_scores:
        return ScoredPairs.from_rows(held_out)
    return Retrieval.from_rows(held_out)


def choose_embedding_metric(args: EmbeddingConfig, has_scores: bool) -> dict[str, Any]:
    """The fields of the config that say which metric chooses the best model."""
    if has_scores:
        return choose_best_metric(args, "spearman", ["spearman", "pearson"])
    return choose_best_metric(args, "ndcg@10", RETRIEVAL_METRICS)


def embedding_fields(encoder: Any, label_type: str, has_scores: bool) -> dict[str, Any]:
    """The fields of the config that follow from the data: prompts and batches."""
    # as the model is measured: pairs are a query and passages, scored ones just texts
    if has_scores:
        prompts = encoder.prompts.get(encoder.default_prompt_name)
    else:
        document = encoder.prompts.get("document")
        prompts = {"first": encoder.prompts.get("query"), "second": document, "third": document}
    # a passage that stands twice in a batch (of one process) would be its own negative
    sampler = "no_duplicates" if label_type == "none" else "batch_sampler"
    return {"prompts": prompts, "batch_sampler": sampler}
