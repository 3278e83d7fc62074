"""The trainer of rerankers: that of sentence-transformers, which reads the rows, finds negatives
and opens the models by itself."""

import dataclasses

import sentence_transformers as st
from datasets import Dataset
from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss, MSELoss
from transformers import set_seed

from ...common.printing import warn
from ...evaluation.baselines import describe_few_rows
from ...loading.models import load_sentence_transformer, minibert_config
from ...loading.weights import check_weights
from ...loop.arguments import choose_best_metric, trainer_settings
from ...optimization.clock import start_budget
from ..checks import check_before_reading
from ..config import RerankerConfig
from ..encoders import RERANKER_ARCHITECTURE, open_encoder
from ..inference import warn_cut
from ..measuring.evaluators import RankingEvaluator, ScoreEvaluator
from ..measuring.retrieval import RETRIEVAL_METRICS
from ..reading.negatives import with_negatives
from ..reading.retrieval_folders import RetrievalFolder
from ..reading.validation_pairs import split_pairs
from .sentence_trainer import SentenceTrainerMixin
from .setups import NUM_NEGATIVES, RerankingSetup
from .teachers import open_teacher, teach

NUM_VALIDATION_NEGATIVES = 20  # that a held-out query's passage is ranked among


class RerankerTrainer(SentenceTrainerMixin, st.CrossEncoderTrainer):
    """Trains models that score a query and a passage, which they read together. It reads the pairs,
    holds some out, finds negatives, labels them by the teacher, and opens the model.

    Args:
        setup: The model, the rows, the teacher and the negatives.
        args: The settings.

    Raises:
        ValueError: the settings, the rows, the teacher or the model do not fit each other.
    """

    def __init__(self, setup: RerankingSetup, args: RerankerConfig):
        # Checks and settings
        is_reranker = _is_reranker(setup.model)
        check_before_reading(setup.model, args, is_reranker, setup.miner)
        budget = start_budget(args)
        args = trainer_settings(args)

        # Teacher and loss
        teacher = open_teacher(setup.teacher, setup.model, reranker=True)
        loss_class = BinaryCrossEntropyLoss if teacher is None else MSELoss

        # Pairs and held-out rows
        pairs, held_out = split_pairs(
            setup.data, setup.columns, setup.validation, args.validation_size, args.seed
        )
        _check_is_table(held_out, setup)
        setup = settle_negatives(setup, pairs)

        # What is measured, and negatives
        set_seed(args.seed)
        if "label" in pairs.column_names:
            best_metric = choose_best_metric(args, "spearman", ["spearman"])
            evaluator_class = ScoreEvaluator
            rows = pairs
            held_out_rows = held_out
        else:
            best_metric = choose_best_metric(args, "mrr@10", RETRIEVAL_METRICS)
            evaluator_class = RankingEvaluator
            rows, held_out_rows = add_negatives(pairs, held_out, setup)

        # Model
        encoder = _open_reranker_to_train(setup.model, is_reranker)

        # Rows and their settings
        has_bars = not args.disable_tqdm
        rows = teach(teacher, rows, encoder, "scores", has_bars)
        args = dataclasses.replace(
            args,
            prompts=encoder.prompts.get(encoder.default_prompt_name),  # as `predict` has
            # None is true for a model without gradient checkpointing, and fails here with several
            # processes
            ddp_find_unused_parameters=bool(args.ddp_find_unused_parameters),
            **best_metric,
        )
        print(f"{len(rows):,} labelled rows to train on; held out: {len(held_out):,} rows")
        warn(describe_few_rows(len(held_out)))

        # Trainer
        super().__init__(
            model=encoder,
            args=args,
            train_dataset=rows,
            loss=loss_class(encoder),
            evaluator=evaluator_class(held_out_rows, encoder.max_seq_length, has_bars),
            setup=setup,
            budget=budget,
            teacher_to_measure=teacher,
            has_new_weights=not is_reranker,
        )

    def warn_of_cut_texts(self) -> None:
        """Query and passage count together, since the model reads them together."""
        pairs = list(zip(self.train_dataset["first"], self.train_dataset["second"]))
        warn_cut(self.model, pairs)


def _is_reranker(path: str) -> bool:
    return RERANKER_ARCHITECTURE in (minibert_config(path).architectures or [])


def _check_is_table(held_out: Dataset | RetrievalFolder, setup: RerankingSetup) -> None:
    """Refuse (a ValueError) a folder to validate on."""
    if isinstance(held_out, RetrievalFolder):
        raise ValueError(
            f"validation: {setup.validation!r} is a folder; give a reranker a table like the data"
        )


def settle_negatives(setup: RerankingSetup, pairs: Dataset) -> RerankingSetup:
    """The setup with the number of negatives to draw, by default `NUM_NEGATIVES`. None are drawn
    for rows that have negatives or scores: a ValueError if it asks for some."""
    has_negatives = "label" in pairs.column_names or "third" in pairs.column_names
    if not has_negatives:
        return dataclasses.replace(setup, negatives=setup.negatives or NUM_NEGATIVES)
    if setup.asks_for_negatives:
        raise ValueError(
            "negatives, miner: the rows have negatives or scores of their own; leave both out"
        )
    return setup


def add_negatives(
    pairs: Dataset, held_out: Dataset, setup: RerankingSetup
) -> tuple[Dataset, Dataset]:
    """Labelled rows to train on and to measure on: the pairs, and for each query passages of other
    pairs. The passages that are held out are no negatives in training."""
    miner = None
    if setup.miner:
        miner = open_encoder(setup.miner, "dense")
    passages = list(dict.fromkeys(pairs["second"]))
    all_passages = list(dict.fromkeys([*passages, *held_out["second"]]))
    rows = with_negatives(pairs, passages, setup.negatives, miner)
    held_out_rows = with_negatives(held_out, all_passages, NUM_VALIDATION_NEGATIVES, miner)
    return rows, held_out_rows


def _open_reranker_to_train(path: str, is_reranker: bool) -> st.CrossEncoder:
    """A reranker from a saved one, or from an encoder, whose head is new then; in fp32."""
    encoder = load_sentence_transformer(
        st.CrossEncoder,
        path,
        num_labels=1,
        # another task's head may be of another width
        model_kwargs={"dtype": "float32", "ignore_mismatched_sizes": not is_reranker},
        # it would make a decoder compare its logits of "yes" and "no"
        config_kwargs={"architectures": [RERANKER_ARCHITECTURE]},
    )
    check_weights(path, encoder.transformers_model, head=is_reranker)
    return encoder
