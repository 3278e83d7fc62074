"""`minibert finetune embed`, `minibert finetune rerank`: training by sentence-transformers'
trainers and losses.

Embedding models learn from pairs (in-batch negatives: Henderson et al. 2017, arXiv 1705.00652; with
hard negatives where there is a third column) or from scores (CoSENT, or squared error of the
cosine: Reimers and Gurevych 2019, arXiv 1908.10084). Rerankers learn to tell a query's passage from
negatives (binary cross-entropy: Nogueira and Cho 2019, arXiv 1901.04085), drawn at random or from
what an embedding model finds near the query.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import sentence_transformers as st
from accelerate.utils import extract_model_from_parallel
from datasets import Dataset
from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss, MSELoss
from transformers import set_seed

from ...keywords import check_choice
from ..common.config_fields import checked_options, make_config
from ..common.locks import lock_output
from ..common.precision import resolve_precision
from ..common.printing import print_next_step, warn, without_bars
from ..common.training_result import TrainingResult
from ..data.tables import Rows, as_dataset
from ..evaluation.baselines import describe_few_rows, judge
from ..hub.push import check_push, push_output
from ..loading.models import load_sentence_transformer, minibert_config
from ..loading.weights import check_weights
from ..loop.arguments import check_training, choose_best_metric
from ..loop.callbacks import add_callbacks
from ..loop.checkpoints import checkpoint_to_resume
from ..loop.early_stopping import EarlyStopping
from ..loop.resume_guard import ResumeGuardCallback, rows_checksum, settings_of_steps
from ..optimization.clock import UNREACHABLE_STEPS, TimeBudget, check_minutes
from .config import (
    DEFAULT_EPOCHS,
    CommandArguments,
    EmbeddingArguments,
    EmbeddingConfig,
    RerankerArguments,
    RerankerConfig,
)
from .encoders import RERANKER, check_encoder, open_encoder, warn_cut
from .evaluate import next_command_of_encoder, print_table
from .evaluators import embedding_evaluator, ranking_evaluator, score_evaluator
from .held_out import split_pairs
from .losses import find_loss, make_loss
from .measures import RETRIEVAL_METRICS
from .negatives import with_negatives
from .retrieval import Retrieval, as_retrieval, count_rows
from .saving import save_trained
from .teachers import label_type_of, open_teacher, teach
from .texts import names_of_data
from .trainers import TRAINERS, RerankerTrainer

VectorKind = Literal["dense", "sparse", "multi-vector"]
NUM_NEGATIVES = 3  # of a query in training, by default
NUM_VALIDATION_NEGATIVES = 20  # that a held-out query's passage is ranked among


# --- embedding models ---


@checked_options(EmbeddingConfig)
def finetune_embed(
    data: str | list[str] | Rows,
    *,
    model: str = "runs/minibert",
    columns: list[str] = (),
    validation: str | Rows | None = None,
    pairs_from: list[str] = (),
    kind: VectorKind = "dense",
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
    check_choice("kind", kind, VectorKind)
    data = as_dataset(data)
    validation = as_dataset(validation, "validation")
    arguments = EmbeddingArguments(
        model=model,
        columns=columns,
        pairs_from=pairs_from,
        kind=kind,
        pooling=pooling,
        matryoshka_dims=matryoshka_dims,
        teacher=teacher,
        loss=loss,
        loss_kwargs=loss_kwargs,
    )
    if kind != "dense" and (pooling or matryoshka_dims):
        raise ValueError(
            f"kind: {kind} has no vector of a text to pool or cut; leave pooling and"
            " matryoshka_dims out"
        )
    if pairs_from and columns:
        raise ValueError("columns: pairs_from makes pairs of whole documents; leave columns out")

    make_trainer = partial(
        make_embedding_trainer, data=data, validation=validation, arguments=arguments
    )
    args = make_config(EmbeddingConfig, args, options)
    return train(make_trainer, arguments, names_of_data(data), args)


def make_embedding_trainer(
    args: EmbeddingConfig, data: Any, validation: Any, arguments: EmbeddingArguments
) -> tuple[Any, Any]:
    """The trainer of an embedding model, and the teacher, if it can be measured as the model is."""
    # Checks
    path = arguments.model
    encoder_type = arguments.kind
    check_encoder(path, max_length=args.max_length)

    # Pairs and held-out rows
    pairs, held_out = split_pairs(
        data,
        arguments.columns,
        validation,
        args.validation_size,
        args.seed,
        arguments.pairs_from,
    )
    has_scores = "label" in pairs.column_names
    if not has_scores and isinstance(held_out, Dataset):
        held_out = as_retrieval(held_out)

    # Teacher and loss
    teacher = open_teacher(arguments.teacher, path)
    label_type = label_type_of(teacher, pairs.column_names, encoder_type)
    loss_class = find_loss(arguments.loss, encoder_type, label_type)
    teacher_to_measure = None
    if label_type == "vectors":
        teacher_to_measure = teacher

    # Model
    set_seed(args.seed)
    normalize = True if encoder_type == "dense" else None
    # in fp32: small steps are lost in weights of half precision, in which some models are saved
    encoder = open_encoder(path, encoder_type, arguments.pooling, normalize, dtype="float32")
    loss = make_loss(
        encoder, encoder_type, loss_class, arguments.loss_kwargs, arguments.matryoshka_dims
    )
    pairs = teach(teacher, pairs, encoder, label_type, not args.disable_tqdm)

    # Settings
    args = dataclasses.replace(args, **embedding_fields(args, encoder, label_type, has_scores))

    # Trainer
    num_held_out = count_rows(held_out)
    print(f"{len(pairs):,} rows to train on by {loss_class.__name__}; held out: {num_held_out:,}")
    warn(describe_few_rows(num_held_out))
    bar_title = None if args.disable_tqdm else "Embedding"
    trainer = TRAINERS[encoder_type](
        model=encoder,
        args=args,
        train_dataset=pairs,
        loss=loss,
        evaluator=embedding_evaluator(held_out, bar_title),
    )
    return trainer, teacher_to_measure


def embedding_fields(
    args: EmbeddingConfig, encoder: Any, label_type: str, has_scores: bool
) -> dict[str, Any]:
    """The fields of the config that follow from the data: prompts, batches, and the metric that
    chooses the best model."""
    # as the model is measured: pairs are a query and passages, scored ones just texts
    if has_scores:
        prompts = encoder.prompts.get(encoder.default_prompt_name)
        best = choose_best_metric(args, "spearman", ["spearman", "pearson"])
    else:
        document = encoder.prompts.get("document")
        prompts = {"first": encoder.prompts.get("query"), "second": document, "third": document}
        best = choose_best_metric(args, "ndcg@10", RETRIEVAL_METRICS)
    # a passage that stands twice in a batch (of one process) would be its own negative
    sampler = "no_duplicates" if label_type == "none" else "batch_sampler"
    return {"prompts": prompts, "batch_sampler": sampler, **best}


# --- rerankers ---


@checked_options(RerankerConfig)
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
    data = as_dataset(data)
    validation = as_dataset(validation, "validation")
    arguments = RerankerArguments(
        model=model,
        columns=columns,
        negatives=NUM_NEGATIVES if negatives is None else negatives,
        miner=miner,
        teacher=teacher,
    )

    make_trainer = partial(
        make_reranker_trainer,
        data=data,
        validation=validation,
        arguments=arguments,
        asks_for_negatives=negatives is not None or miner is not None,
    )
    args = make_config(RerankerConfig, args, options)
    return train(make_trainer, arguments, names_of_data(data), args)


def make_reranker_trainer(
    args: RerankerConfig,
    data: Any,
    validation: Any,
    arguments: RerankerArguments,
    asks_for_negatives: bool,
) -> tuple[RerankerTrainer, Any]:
    """The trainer of a reranker, and the teacher to measure, if there is one.

    Args:
        asks_for_negatives: Whether their number or a miner was given.
    """
    # Checks
    path = arguments.model
    is_reranker = _is_reranker(path)
    check_encoder(path, is_reranker, args.max_length)

    # Teacher and loss
    teacher_to_measure = open_teacher(arguments.teacher, path, reranker=True)
    loss_class = BinaryCrossEntropyLoss if teacher_to_measure is None else MSELoss

    # Pairs and held-out rows
    pairs, held_out = split_pairs(
        data, arguments.columns, validation, args.validation_size, args.seed
    )
    if isinstance(held_out, Retrieval):
        raise ValueError(
            f"validation: {validation!r} is a folder; give a reranker a table like the data"
        )
    if asks_for_negatives:
        _check_no_negatives(pairs)

    # What is measured, and negatives
    set_seed(args.seed)
    bar_title = None if args.disable_tqdm else "Reranking"
    if "label" in pairs.column_names:
        fields = choose_best_metric(args, "spearman", ["spearman"])
        rows = pairs
        evaluator = score_evaluator(held_out, bar_title)
    else:
        fields = choose_best_metric(args, "mrr@10", RETRIEVAL_METRICS)
        rows, held_out_rows = add_negatives(pairs, held_out, arguments)
        evaluator = ranking_evaluator(held_out_rows, bar_title)

    # Model
    encoder = _open_reranker_to_train(path, is_reranker)
    rows = teach(teacher_to_measure, rows, encoder, "scores", not args.disable_tqdm)

    # Settings
    fields["prompts"] = encoder.prompts.get(encoder.default_prompt_name)  # as `predict` has
    # None is true for a model without gradient checkpointing, and fails here with several processes
    fields["ddp_find_unused_parameters"] = bool(args.ddp_find_unused_parameters)
    args = dataclasses.replace(args, **fields)

    # Trainer
    print(f"{len(rows):,} labelled rows to train on; held out: {len(held_out):,} rows")
    warn(describe_few_rows(len(held_out)))
    loss = loss_class(encoder)
    trainer = RerankerTrainer(
        model=encoder, args=args, train_dataset=rows, loss=loss, evaluator=evaluator
    )
    trainer.has_new_weights = not is_reranker
    return trainer, teacher_to_measure


def _check_no_negatives(pairs: Dataset) -> None:
    """Refuse (a ValueError) rows for which no negatives are found."""
    if "label" in pairs.column_names or "third" in pairs.column_names:
        raise ValueError(
            "negatives, miner: the rows have negatives or scores of their own; leave both out"
        )


def add_negatives(
    pairs: Dataset, held_out: Dataset, arguments: RerankerArguments
) -> tuple[Dataset, Dataset]:
    """Labelled rows to train on and to measure on: the pairs, and for each query passages of other
    pairs. The passages that are held out are no negatives in training."""
    miner = None
    if arguments.miner:
        miner = open_encoder(arguments.miner, "dense")
    passages = list(dict.fromkeys(pairs["second"]))
    all_passages = list(dict.fromkeys([*passages, *held_out["second"]]))
    rows = with_negatives(pairs, passages, arguments.negatives, miner)
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
        config_kwargs={"architectures": [RERANKER]},
    )
    check_weights(path, encoder.transformers_model, head=is_reranker)
    return encoder


def _is_reranker(path: str) -> bool:
    return RERANKER in (minibert_config(path).architectures or [])


# --- training ---


@without_bars()
def train(
    make_trainer: Callable, arguments: CommandArguments, data_names: list[str], args: Any
) -> TrainingResult:
    """Train what `make_trainer` makes of the settings (a trainer, and a teacher that is measured,
    too, or None) and save it; of several processes one does, and the others have no model and no
    report.

    Args:
        arguments: Those of the command, for the report; with others, no checkpoint is resumed.
        data_names: The paths and Hub names of the data.
        args: The settings of the training.
    """
    output = Path(args.output_dir)
    with lock_output(args):
        checkpoint = checkpoint_to_resume(args)
        check_training(args)
        check_minutes(args, default_epochs=DEFAULT_EPOCHS)
        budget = None
        if args.minutes is not None:
            budget = TimeBudget(args.minutes, args.warmup_steps)  # the time counts from here
        if args.push_to_hub:
            check_push(args)
        # the finished model is pushed, not what the trainer has
        training_args = dataclasses.replace(resolve_precision(args), push_to_hub=False)
        if budget is not None:
            training_args.max_steps = UNREACHABLE_STEPS
        trainer, teacher_to_measure = make_trainer(training_args)
        if budget is not None:
            trainer.budget = budget
            trainer.add_callback(budget)
        guard_resuming(trainer, arguments, checkpoint)
        report = train_and_measure(trainer, teacher_to_measure, arguments, checkpoint)
        if not args.should_save:
            return TrainingResult(None, None, {}, output)
        save_trained(trainer, report, arguments, data_names)
        warn(report["warning"])
        model = trainer.model
        print(
            f"Saved to {output}: open it by {type(model).__name__}({str(output)!r}), after import"
            " minibert"
        )
        if args.push_to_hub:
            push_output(trainer.args, trainer.hub_token)
        print_next_step(*next_command_of_encoder(model, output), warning=report["warning"])
        return TrainingResult(model, model.tokenizer, report, output)


def guard_resuming(trainer: Any, arguments: CommandArguments, checkpoint: str | None) -> None:
    """Save the settings with each checkpoint, and refuse (a ValueError) one that was trained with
    others."""
    settings = {
        **dataclasses.asdict(arguments),
        "max_length": trainer.args.max_length,
        **settings_of_steps(trainer.args),
    }
    settings["by the clock"] = trainer.budget is not None
    if not arguments.labels_are_computed:
        settings["text"] = rows_checksum(trainer.train_dataset)
    callback = ResumeGuardCallback(settings)
    if checkpoint is not None:
        callback.check(checkpoint)
    trainer.add_callback(callback)


def train_and_measure(
    trainer: Any, teacher_to_measure: Any, arguments: CommandArguments, checkpoint: str | None
) -> dict[str, Any]:
    """Train, and measure before and after, and the teacher, if it is not None; the metrics by
    name."""
    args = trainer.args
    model = trainer.model
    evaluator = trainer.evaluator
    metric = args.metric_for_best_model.removeprefix("eval_")
    if args.patience and args.eval_strategy != "no":
        trainer.add_callback(EarlyStopping(args.patience))
    add_callbacks(trainer)
    report: dict[str, Any] = {}
    if teacher_to_measure is not None:
        report["teacher"] = evaluator(teacher_to_measure)
    report["before"] = evaluator(model)
    full_length = model.max_seq_length
    evaluator.max_length = full_length
    model.max_seq_length = args.max_length or full_length
    warn_cut(model, trainer.train_dataset["second"][:])
    trainer.train(resume_from_checkpoint=checkpoint)
    model.max_seq_length = full_length  # short texts in training do not make a model of short texts
    # else autocast stays on it, and it is not measured as it is saved and as it began
    extract_model_from_parallel(model, keep_fp32_wrapper=False)
    report["after"] = evaluator(model)
    intervals = evaluator.intervals()
    for width in arguments.matryoshka_dims or ():
        model.truncate_dim = width
        report[f"after, first {width}"] = evaluator(model)
        model.truncate_dim = None
    print_table(report, {"after": intervals})
    report["intervals"] = {name: list(interval) for name, interval in intervals.items()}
    after = report["after"][metric]
    before = report["before"][metric]
    report["metric"] = metric
    report["warning"] = judge(metric, after, before, "the model that it started from")
    return report
