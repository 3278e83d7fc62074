"""`minibert finetune embed`, `minibert finetune rerank`: training by sentence-transformers'
trainers and losses.

Embedding models learn from pairs (in-batch negatives: Henderson et al. 2017, arXiv 1705.00652; with
hard negatives where there is a third column) or from scores (CoSENT, or squared error of the
cosine: Reimers and Gurevych 2019, arXiv 1908.10084). Rerankers learn to tell a query's passage from
negatives (binary cross-entropy: Nogueira and Cho 2019, arXiv 1901.04085), drawn at random or from
what an embedding model finds near the query.
"""

from pathlib import Path
from typing import Any, Literal

from ...option_checks import check_choice
from ..common.config_fields import checked_options, make_config
from ..common.locks import lock_output
from ..common.printing import print_next_step, without_bars
from ..common.training_result import TrainingResult
from ..data.tables import Rows, as_dataset
from ..loop.checkpoints import checkpoint_to_resume, remove_checkpoints
from .config import EmbeddingConfig, RerankerConfig, SentenceConfig
from .encoders import EncoderType
from .printing import next_command_of_sentence_model, print_table
from .trainers.embedding_trainer import TRAINER_CLASSES
from .trainers.reranker_trainer import RerankerTrainer
from .trainers.sentence_trainer import SentenceTrainerMixin
from .trainers.setups import EmbeddingSetup, RerankingSetup, SentenceSetup


@checked_options(EmbeddingConfig)
@without_bars()
def finetune_embed(
    data: str | list[str] | Rows,
    *,
    model: str = "runs/minibert",
    columns: list[str] = (),
    validation: str | Rows | None = None,
    pairs_from: list[str] = (),
    kind: EncoderType = "dense",
    pooling: Literal["mean", "cls"] | None = None,
    matryoshka_dims: list[int] = (),
    teacher: str | None = None,
    loss: str = "auto",
    loss_kwargs: str | None = None,
    args: EmbeddingConfig | None = None,
    **options: Any,
) -> TrainingResult:
    """Train an embedding model on pairs, triples or scored pairs of texts; the one best on the
    held-out data is saved for `SentenceTransformer(output_dir)`, `SparseEncoder` or
    `MultiVectorEncoder`.

    Args:
        data: Tables (JSON lines, csv, tsv, parquet) or Hub data sets (owner/name or
            owner/name:config) of pairs (query, positive), triples (…, negative; further ones in
            negative_1, … or in lists) or scored pairs (sentence1, sentence2, score). In Python also
            rows: a `Dataset`, a DataFrame or dictionaries.
        model: The model to start from: a folder or a Hub name.
        columns: The columns of the texts (and the score) in that order; by default guessed by their
            names.
        validation: Data to choose the best checkpoint on: a table, a folder with corpus.jsonl,
            queries and qrels of the split validation, or a Hub data set with that split.
        pairs_from: Make pairs from plain text (files and folders of txt, md, or tables with a
            column text and perhaps title), in one or several ways: title (a document's title and
            its text), adjacent (passages that follow each other).
        kind: dense: a vector for each text; sparse: a weight for each word of the vocabulary
            (SPLADE), from a masked-LM head; multi-vector: a vector for each token (ColBERT).
        pooling: How the last states of the tokens become one vector: mean, or cls (the first
            token). By default as the model was saved, else mean.
        matryoshka_dims: Widths to which dense vectors can be shortened: the first numbers are
            trained to be a vector, too (Matryoshka).
        teacher: A larger embedding model to learn the vectors of, or a reranker to learn the scores
            of.
        loss: The class name of a loss of sentence-transformers, such as CosineSimilarityLoss; auto:
            chosen by the data and the teacher.
        loss_kwargs: Keyword arguments of the loss, as JSON: {"scale": 30}.
        args: The settings of the training.
        options: Fields of `EmbeddingConfig`, which replace those of `args`.

    Returns:
        The model, its tokenizer, the report, and the folder.
    """
    check_choice("kind", kind, EncoderType)
    setup = EmbeddingSetup(
        data=as_dataset(data),
        columns=columns,
        validation=as_dataset(validation, "validation"),
        pairs_from=pairs_from,
        model=model,
        encoder_type=kind,
        pooling=pooling,
        matryoshka_dims=matryoshka_dims,
        teacher=teacher,
        loss=loss,
        loss_kwargs=loss_kwargs,
    )
    args = make_config(EmbeddingConfig, args, options)
    return _train_measure_and_save(TRAINER_CLASSES[kind], setup, args)


@checked_options(RerankerConfig)
@without_bars()
def finetune_rerank(
    data: str | list[str] | Rows,
    *,
    model: str = "runs/minibert",
    columns: list[str] = (),
    validation: str | Rows | None = None,
    negatives: int | None = None,
    miner: str | None = None,
    teacher: str | None = None,
    args: RerankerConfig | None = None,
    **options: Any,
) -> TrainingResult:
    """Train a reranker on pairs and negatives found for them, or on scored pairs; the one best on
    the held-out data is saved for `CrossEncoder(output_dir)`.

    Args:
        data: Tables (JSON lines, csv, tsv, parquet) or Hub data sets (owner/name or
            owner/name:config) of pairs (query, positive), triples (…, negative; further ones in
            negative_1, … or in lists) or scored pairs (sentence1, sentence2, score). In Python also
            rows: a `Dataset`, a DataFrame or dictionaries.
        model: The model to start from: a folder or a Hub name.
        columns: The columns of the texts (and the score) in that order; by default guessed by their
            names.
        validation: Data to choose the best checkpoint on: a table, or a Hub data set with the split
            validation.
        negatives: Number of negatives for each query, if the data are pairs; by default 3. Triples
            and scored pairs have their own.
        miner: An embedding model that finds hard negatives, drawn from the 30 passages nearest to
            the query; by default negatives are random.
        teacher: A larger reranker to learn the scores of, instead of labels.
        args: The settings of the training.
        options: Fields of `RerankerConfig`, which replace those of `args`.

    Returns:
        The model, its tokenizer, the report, and the folder.
    """
    setup = RerankingSetup(
        data=as_dataset(data),
        columns=columns,
        validation=as_dataset(validation, "validation"),
        model=model,
        negatives=negatives,
        miner=miner,
        teacher=teacher,
    )
    args = make_config(RerankerConfig, args, options)
    return _train_measure_and_save(RerankerTrainer, setup, args)


def _train_measure_and_save(
    trainer_class: type[SentenceTrainerMixin], setup: SentenceSetup, args: SentenceConfig
) -> TrainingResult:
    """What both commands do."""
    with lock_output(args):
        checkpoint_to_resume(args, is_quiet=True)  # refuse early: the trainer looks after reading
        trainer = trainer_class(setup, args)
        trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
        trainer.measure()
        print_table(trainer.scores, {"after": trainer.intervals})
        trainer.save_model()
        if args.should_save:  # one of several processes
            remove_checkpoints(Path(args.output_dir))
    return report_and_return(trainer)


def report_and_return(trainer: SentenceTrainerMixin) -> TrainingResult:
    """Print the next command. Only the process that saves returns the model and the report."""
    output = Path(trainer.args.output_dir)
    if not trainer.args.should_save:
        return TrainingResult(None, None, output_dir=output)
    model = trainer.model
    next_command = next_command_of_sentence_model(model, output)
    print_next_step(*next_command, warning=trainer.report["warning"])
    return TrainingResult(model, model.tokenizer, trainer.report, output)


# What `minibert.finetune` calls for its tasks of these names.
FINETUNE_FUNCTIONS = {"embed": finetune_embed, "rerank": finetune_rerank}
