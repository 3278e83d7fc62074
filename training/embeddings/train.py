"""`minibert finetune embed`, `minibert finetune rerank`: training by sentence-transformers' trainers and losses.

Embedding models learn from pairs (in-batch negatives: Henderson et al. 2017, arXiv 1705.00652; with hard negatives
where there is a third column) or from scores (CoSENT, or squared error of the cosine: Reimers and Gurevych 2019, arXiv
1908.10084). Rerankers learn to tell a query's passage from negatives (binary cross-entropy: Nogueira and Cho 2019,
arXiv 1901.04085), drawn at random or from what an embedding model finds near the query. Text without pairs becomes
pairs in `unlabelled`.
"""

import dataclasses
import functools
import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from accelerate.utils import extract_model_from_parallel
from datasets import Dataset
from sentence_transformers import (
    CrossEncoder,
    CrossEncoderTrainer,
    CrossEncoderTrainingArguments,
    MultiVectorEncoderTrainer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
    SparseEncoderTrainer,
)
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.base.sampler import NoDuplicatesBatchSampler
from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss, MSELoss
from sentence_transformers.util import mine_hard_negatives
from transformers import TrainingArguments, set_seed

from .. import metrics
from ..callbacks import CheckpointErrors, EarlyStopping, SettingsState, add_callbacks, steps_of
from ..checkpoints import best_by, checkpoint_to_resume, remove_checkpoints, rows_checksum
from ..files import lock_output, write_json
from ..hub.card import Result, describe_data, facts_from_trainer, published_name, save_card
from ..hub.push import check_push, push_output
from ..hub.trainer import HubMixin
from ..loading import check_weights, minibert_config, quietly
from ..precision import check_training, resolve_precision
from ..report import TrainingResult, judge, plot_training, warn
from .data import Passage, Retrieval, hold_out, name_of, read_pairs, read_passages, read_task
from .encoders import RERANKER, Embedder, check_encoder, check_length, limit_length, open_encoder, score_pairs
from .evaluate import RETRIEVAL, measure, print_table, reorder, score
from .losses import SHORT, find_loss, labels_of, make_loss, parse_kwargs, try_loss
from .teachers import open_teacher, teach
from .unlabelled import make_pairs, read_documents

VALIDATION_NEGATIVES = 20  # that a held-out query's passage is ranked among
MOST_COUNTED = 2000  # passages whose lengths are looked at


def setting(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass
class _Defaults:
    """Our defaults for fields of `TrainingArguments`."""

    learning_rate: float = setting(5e-5, "The highest learning rate.")
    num_train_epochs: float = setting(1.0, "How often the data is gone through.")
    warmup_steps: float = setting(0.1, "Steps in which the learning rate rises: a share (below 1) or a number.")
    bf16: bool | None = setting(None, "Compute in bfloat16; by default where the hardware is fast at it.")
    logging_steps: float = setting(10, "Steps between two lines of the log.")
    eval_strategy: str = setting("epoch", "When to evaluate: epoch, steps (--eval_steps) or no.")
    save_strategy: str = setting("epoch", "When to save a checkpoint: as --eval_strategy.")
    save_total_limit: int | None = setting(1, "Checkpoints that are kept, beside the best one.")
    load_best_model_at_end: bool = setting(True, "Save the best model, not the last one.")
    metric_for_best_model: str | None = setting("auto", "auto: nDCG, MRR or Spearman's correlation, by the data.")
    report_to: str = setting("none", "Where else to log: wandb, tensorboard, …")

    def __post_init__(self):
        # without use_cpu, Transformers refuses bf16 where there is no accelerator
        self.use_cpu = self.use_cpu or not torch.accelerator.is_available()
        super().__post_init__()


@dataclass
class EmbeddingConfig(_Defaults, SentenceTransformerTrainingArguments):
    """The settings of sentence-transformers for training an embedding model, with our defaults."""

    output_dir: str | None = setting("runs/embed", "Folder of all that is saved.")
    per_device_train_batch_size: int = setting(64, "Rows of a batch; more of them are more negatives.")


@dataclass
class RerankerConfig(_Defaults, CrossEncoderTrainingArguments):
    """The settings of sentence-transformers for training a reranker, with our defaults."""

    output_dir: str | None = setting("runs/rerank", "Folder of all that is saved.")
    per_device_train_batch_size: int = setting(32, "Rows of a batch.")


class EmbeddingTrainer(HubMixin, CheckpointErrors, SentenceTransformerTrainer):
    """Refuses a checkpoint that was trained with other settings of the optimizer."""


class RerankerTrainer(HubMixin, CheckpointErrors, CrossEncoderTrainer):
    """The same for a cross-encoder."""


class SparseTrainer(HubMixin, CheckpointErrors, SparseEncoderTrainer):
    """The same for a sparse encoder."""

    training_args_class = SentenceTransformerTrainingArguments


class MultiVectorTrainer(HubMixin, CheckpointErrors, MultiVectorEncoderTrainer):
    """The same for a multi-vector encoder."""

    training_args_class = SentenceTransformerTrainingArguments


TRAINERS = {"dense": EmbeddingTrainer, "sparse": SparseTrainer, "multi-vector": MultiVectorTrainer}


class Measure(BaseEvaluator):
    """Calls a function of the model, which returns the metrics `names`, whenever the trainer evaluates; the best
    checkpoint is chosen by `metric`."""

    def __init__(self, function: Callable[[Any], dict[str, float]], metric: str, names: Sequence[str]):
        super().__init__()
        self.function, self.metric, self.names = function, metric, names

    def __call__(self, model: Any, output_path: str | None = None, epoch: int = -1, steps: int = -1):
        return self.function(model)


def locks_output(config_class: type[TrainingArguments]) -> Callable:
    """Decorate a training function: its first process locks the output folder, from before data is read until all is
    saved."""

    def decorate(function: Callable) -> Callable:
        @functools.wraps(function)
        def locked(*given: Any, args: TrainingArguments | None = None, **options: Any) -> Any:
            args = args or config_class()
            if "output_dir" in options:
                args = dataclasses.replace(args, output_dir=options.pop("output_dir"))
            with lock_output(args):
                return function(*given, args=args, **options)

        return locked

    return decorate


@locks_output(EmbeddingConfig)
def finetune_embed(
    data: str | list[str] | Dataset,
    *,
    model: str = "runs/minibert",
    columns: list[str] = (),
    validation: str | Dataset | None = None,
    validation_size: float = 0.05,
    pairs_from: list[str] = (),
    passage_words: int = 64,
    kind: Literal["dense", "sparse", "multi-vector"] = "dense",
    pooling: Literal["mean", "cls"] | None = None,
    matryoshka_dims: list[int] = (),
    teacher: str | None = None,
    loss: str = "auto",
    loss_kwargs: str | None = None,
    max_length: int | None = None,
    patience: int = 3,
    args: EmbeddingConfig | None = None,
    **config: Any,
) -> TrainingResult:
    """Train an embedding model on pairs, triples or scored pairs of texts; the one best on the held-out data is saved
    for `SentenceTransformer(output_dir)`, `SparseEncoder` or `MultiVectorEncoder`.

    Args:
        data: Tables (JSON lines, csv, tsv, parquet) or Hub data sets (owner/name or owner/name:config) of pairs (query,
            positive), triples (…, negative) or scored pairs (sentence1, sentence2, score).
        model: The model to start from: a folder or a Hub name.
        columns: Their columns in that order; by default guessed by such names.
        validation: To choose the best checkpoint on: a table, the split validation of a Hub data set, or of a folder
            with corpus.jsonl, queries and qrels.
        validation_size: Without it: queries held out, a share (below 1) or their number.
        pairs_from: The data is plain text (files and folders of txt, md, or tables with a column text and perhaps
            title), and its pairs are one or several of: title (a document's title and text), adjacent (passages that
            follow each other), dropout (a passage and itself, told apart by dropout alone).
        passage_words: Longest passage of adjacent and dropout, in words (see `search`). Sentences stay whole.
        kind: dense: a vector of a text; sparse: a weight for every word of the vocabulary (SPLADE), by a masked-LM
            head; multi-vector: a vector of every token (ColBERT).
        pooling: mean or cls (the first token) of the last states; by default what the model was saved with, else mean.
        matryoshka_dims: Train the first so many numbers of a dense vector to be a vector, too (Matryoshka).
        teacher: A larger embedding model whose vectors are learned, or a reranker whose scores are.
        loss: ranking: a query's passage against all others of the batch; cosine: squared error of the cosine; cosent:
            order of the cosines; or a loss of sentence-transformers by its class. auto: by the data and the teacher.
        loss_kwargs: Keyword arguments of the loss, as JSON: {"scale": 30}; with {"mini_batch_size": 32} so many texts
            are encoded at once (GradCache), for large batches in little memory.
        max_length: Cut texts off after this many tokens in training; the trained model reads as much as before.
        patience: Evaluations without a better one before training stops; 0: never.
        args: The settings of the training.
        config: Fields of `EmbeddingConfig`.

    Returns:
        The model, its tokenizer, the report, and the folder.

    Raises:
        ValueError: bad data, a loss that it does not fit, or a model of another task; before any training.
    """
    options = {name: value for name, value in locals().items() if name not in ("data", "validation", "args", "config")}
    args, checkpoint, pushes = prepare_training(args or EmbeddingConfig(), config)
    if kind != "dense" and (pooling or matryoshka_dims):
        raise ValueError(f"kind: {kind} has no vector of a text to pool or cut; leave pooling and matryoshka_dims out")
    arguments, taught_by = parse_kwargs(loss_kwargs), open_teacher(teacher, model)
    if "dropout" in pairs_from:
        check_dropout(model)
    if pairs_from:
        pairs, held_out = split_documents(data, validation, validation_size, pairs_from, passage_words, args.seed)
    else:
        pairs, held_out = split_pairs(data, columns, validation, validation_size, args.seed)
    scored, labels = "label" in pairs.column_names, labels_of(taught_by, pairs.column_names, kind)
    loss_class = find_loss(loss, kind, labels)
    if labels == "none":
        check_repeated(pairs, args.train_batch_size)
    task = held_out if scored or isinstance(held_out, Retrieval) else as_retrieval(held_out)
    by_rank = isinstance(task, Retrieval)
    set_seed(args.seed)
    # in fp32: small steps are lost in weights of half precision, in which some models are saved
    encoder = open_encoder(model, kind, "float32", pooling)
    check_length(encoder, max_length)
    loss_function = make_loss(encoder, kind, loss_class, arguments, matryoshka_dims, args.world_size > 1)
    pairs = teach(taught_by, pairs, encoder, labels, not args.disable_tqdm)
    kept = f"{len(task.queries):,} queries over {len(task.passages):,} passages" if by_rank else f"{len(task):,} pairs"
    print(f"{len(pairs):,} rows to train on by {loss_class.__name__}; held out: {kept}")
    metric, names = ("ndcg@10", RETRIEVAL) if by_rank else ("spearman", ["spearman", "pearson"])
    evaluator = Measure(lambda x: measure(x, task, None if args.disable_tqdm else "Embedding"), metric, names)
    query, document, default = (encoder.prompts.get(x) for x in ("query", "document", encoder.default_prompt_name))
    fields = {
        # as the model is measured: pairs are a query and passages, scored ones just texts
        "prompts": default if scored else {"first": query, "second": document, "third": document},
        # a passage that stands twice in a batch (of one process) would be its own negative
        "batch_sampler": "no_duplicates" if labels == "none" else "batch_sampler",
    }
    args = dataclasses.replace(args, **fields, **best_by(args, metric, names))
    trainer = TRAINERS[kind](model=encoder, args=args, train_dataset=pairs, loss=loss_function, evaluator=evaluator)
    if loss not in ("auto", *SHORT):
        try_loss(trainer)
    shown = taught_by if labels == "vectors" else None
    return run(trainer, evaluator, options, name_of_all(data), checkpoint, pushes, shown)


@locks_output(RerankerConfig)
def finetune_rerank(
    data: str | list[str] | Dataset,
    *,
    model: str = "runs/minibert",
    columns: list[str] = (),
    validation: str | Dataset | None = None,
    validation_size: float = 0.05,
    negatives: int = 3,
    miner: str | None = None,
    mine_depth: int = 30,
    corpus: list[str] = (),
    teacher: str | None = None,
    max_length: int | None = None,
    patience: int = 3,
    args: RerankerConfig | None = None,
    **config: Any,
) -> TrainingResult:
    """Train a reranker on pairs and negatives found for them, or on scored pairs; the one best on the held-out data is
    saved for `CrossEncoder(output_dir)`.

    Args:
        data: Tables (JSON lines, csv, tsv, parquet) or Hub data sets (owner/name or owner/name:config) of pairs (query,
            positive), triples (…, negative) or scored pairs (sentence1, sentence2, score).
        model: The model to start from: a folder or a Hub name.
        columns: Their columns in that order; by default guessed by such names.
        validation: To choose the best checkpoint on: a table, or the split validation of a Hub data set.
        validation_size: Without it: queries held out, a share (below 1) or their number.
        negatives: Negatives for every query of pairs (scored pairs have their own).
        miner: An embedding model that finds hard negatives; by default they are random.
        mine_depth: With a miner, negatives are drawn from this many passages nearest to the query.
        corpus: Files or folders that negatives come from; by default the pairs' own passages.
        teacher: A larger reranker whose scores are learned, in the place of labels.
        max_length: Cut texts off after this many tokens in training; the trained model reads as much as before.
        patience: Evaluations without a better one before training stops; 0: never.
        args: The settings of the training.
        config: Fields of `RerankerConfig`.

    Returns:
        The model, its tokenizer, the report, and the folder.

    Raises:
        ValueError: bad data, too few passages, or a model of another task; before any training.
    """
    options = {name: value for name, value in locals().items() if name not in ("data", "validation", "args", "config")}
    args, checkpoint, pushes = prepare_training(args or RerankerConfig(), config)
    is_reranker = RERANKER in (minibert_config(model).architectures or [])
    check_encoder(model, reranker=is_reranker)
    taught_by = open_teacher(teacher, model, reranker=True)
    pairs, held_out = split_pairs(data, columns, validation, validation_size, args.seed)
    if isinstance(held_out, Retrieval):
        raise ValueError(f"validation: {validation!r} is a folder; give a reranker a table like the data")
    progress, rows, kept = None if args.disable_tqdm else "Reranking", pairs, f"{len(held_out):,} pairs"
    set_seed(args.seed)
    if "label" in pairs.column_names:
        evaluator = Measure(lambda model: correlation(model, held_out, progress), "spearman", ["spearman"])
    else:
        texts = [passage.text for passage in read_passages(corpus)] if corpus else []
        known = list(dict.fromkeys(texts or pairs["second"]))  # what is held out is no negative in training
        every = list(dict.fromkeys(texts or [*known, *held_out["second"]]))
        finder = Embedder.from_pretrained(miner).model if miner else None
        rows = label_rows(pairs, known, negatives, finder, mine_depth)
        count = min(VALIDATION_NEGATIVES, most_negatives(held_out, every))
        task, candidates = as_reranking(label_rows(held_out, every, count, finder, max(mine_depth, count)))
        evaluator = Measure(lambda model: score(task, reorder(model, task, candidates, progress)), "mrr@10", RETRIEVAL)
        kept += f", each passage among {count} negatives"
    with quietly():
        # it would make a decoder compare its logits of "yes" and "no"
        as_reranker = {"architectures": [RERANKER]}
        # another task's head may be of another width
        weights = {"dtype": "float32", "ignore_mismatched_sizes": not is_reranker}
        encoder = CrossEncoder(model, num_labels=1, model_kwargs=weights, config_kwargs=as_reranker)
    check_weights(model, encoder.transformers_model, head=is_reranker)
    limit_length(encoder)
    check_length(encoder, max_length)
    rows = teach(taught_by, rows, encoder, "scores", not args.disable_tqdm)
    print(f"{len(rows):,} labelled rows to train on; held out: {kept}")
    # None is true for a model without gradient checkpointing, and fails here with several processes
    fields = {"ddp_find_unused_parameters": bool(args.ddp_find_unused_parameters)}
    fields["prompts"] = encoder.prompts.get(encoder.default_prompt_name)  # as `predict` has it
    args = dataclasses.replace(args, **fields, **best_by(args, evaluator.metric, evaluator.names))
    loss = MSELoss(encoder) if teacher else BinaryCrossEntropyLoss(encoder)
    trainer = RerankerTrainer(model=encoder, args=args, train_dataset=rows, loss=loss, evaluator=evaluator)
    trainer.new_weights = not is_reranker
    return run(trainer, evaluator, options, name_of_all(data), checkpoint, pushes, taught_by)


# --- data ---


def name_of_all(data: Any) -> str:
    return ", ".join(map(name_of, data if isinstance(data, (list, tuple)) else [data]))


def split_pairs(
    data: Any, columns: Sequence[str], validation: Any, validation_size: float, seed: int
) -> tuple[Dataset, Dataset | Retrieval]:
    """What is trained on, and what the best checkpoint is chosen on."""
    pairs = read_pairs(data, columns)
    if validation is None:
        rows, held_out = hold_out(pairs["first"][:], validation_size, seed, "different queries")
        return pairs.select(rows), pairs.select(held_out)
    held_out = read_task(validation, columns, "validation", "validation")
    if isinstance(held_out, Dataset) and ("label" in held_out.column_names) != ("label" in pairs.column_names):
        raise ValueError(f"validation: {name_of(validation)!r} and the data must both have scores, or neither")
    return pairs, held_out


def split_documents(
    data: Any, validation: Any, validation_size: float, kinds: Sequence[str], words: int, seed: int
) -> tuple[Dataset, Dataset | Retrieval]:
    """The same of pairs that are made of plain text, with passages of `words` words at most."""
    documents = read_documents([data] if isinstance(data, (str, Path)) else data)
    if validation is not None:
        return make_pairs(documents, kinds, words), read_task(validation, (), "validation", "validation")
    places = hold_out([each.text for each in documents], validation_size, seed, "different documents")
    training, held_out = ([documents[place] for place in side] for side in places)
    told_apart = [kind for kind in kinds if kind != "dropout"] or ["adjacent"]  # a text always finds itself
    where = "what is held out (use a larger --validation_size, or --validation)"
    return make_pairs(training, kinds, words), make_pairs(held_out, told_apart, words, where)


def check_dropout(model: str) -> None:
    config = minibert_config(model)
    if not (config.hidden_dropout or config.attention_dropout or config.embedding_dropout):
        use = f"`minibert convert {model} FOLDER --set hidden_dropout=0.1` makes one of it"
        raise ValueError(f"pairs_from: dropout needs a model that drops units, and {model!r} drops none; {use}")


def check_repeated(pairs: Dataset, batch_size: int) -> None:
    """Say how many rows an epoch leaves out, if they are many, and refuse (ValueError) if it leaves out most: no batch
    has a text twice, and an epoch ends with as many batches as the rows would fill."""
    sampler = NoDuplicatesBatchSampler(pairs, batch_size, False)
    lost = len(pairs) - sum(map(len, itertools.islice(sampler, len(sampler))))
    if lost <= 0.1 * len(pairs):
        return
    text, most = Counter(text for row in pairs for text in {*row.values()}).most_common(1)[0]
    given = f"{text[:60]!r} stands in {most} of them, and no batch may have it twice"
    left_out = f"an epoch leaves out {lost:,} of {len(pairs):,} rows ({given})"
    if lost > 0.5 * len(pairs):
        advice = f"use {len(pairs) // most} or less" if len(pairs) // most > 1 else "give data with more texts"
        raise ValueError(f"per_device_train_batch_size: with {batch_size}, {left_out}; {advice}")
    print(f"{left_out}; a --per_device_train_batch_size below {batch_size} leaves out fewer")


def as_retrieval(pairs: Dataset) -> Retrieval:
    """Each first text as a query, all second (and third) texts as the passages, by the names of their texts. A text is
    often both (of adjacent passages, all but the first and the last): it does not find itself."""
    texts = dict.fromkeys([*pairs["second"], *(pairs["third"] if "third" in pairs.column_names else [])])
    relevant = {query: dict.fromkeys(passages, 1.0) for query, passages in passages_of(pairs).items()}
    return Retrieval([Passage(text, text) for text in texts], {text: text for text in relevant}, relevant, True)


def passages_of(pairs: Dataset) -> dict[str, list[str]]:
    """The passages of every query."""
    passages: dict[str, list[str]] = {}
    for query, passage in zip(pairs["first"], pairs["second"]):
        passages.setdefault(query, []).append(passage)
    return passages


def most_negatives(pairs: Dataset, pool: Sequence[str]) -> int:
    """How many texts of `pool` are neither the query nor one of its passages, of the query that has the fewest."""
    allowed = set(pool)
    return len(allowed) - max(len(allowed & {query, *own}) for query, own in passages_of(pairs).items())


def label_rows(pairs: Dataset, pool: list[str], count: int, miner: Any, depth: int) -> Dataset:
    """Every pair with the label 1, and every query with `count` negatives with the label 0.

    Args:
        pairs: With or without a negative of their own, which is one of the `count`.
        pool: Texts that negatives are drawn from; never the query or one of its passages.
        count: Negatives of a query.
        miner: A `SentenceTransformer`: the negatives are some of the `depth` texts nearest to the query. None: of all.

    Raises:
        ValueError: there are too few texts in the pool.
    """
    if count < 1:
        raise ValueError(f"negatives: it must be positive, got {count}")
    if (most := most_negatives(pairs, pool)) < count:
        use = f"use --negatives {most}, or give more passages by --corpus" if most > 0 else "give more by --corpus"
        raise ValueError(f"negatives: {len(pool)} different passages are too few for {count} a query; {use}")
    own = []
    if "third" in pairs.column_names:
        own, count = [*zip(pairs["first"], pairs["third"], itertools.repeat(0.0))], count - 1
    if miner is not None and count:
        mined = mine_hard_negatives(
            pairs.select_columns(["first", "second"]), miner, "first", "second", corpus=pool, num_negatives=count,
            range_max=max(depth, count), sampling_strategy="random", output_format="labeled-pair", verbose=False,
        )  # fmt: skip
        labelled = [*zip(mined["first"], mined["second"], map(float, mined["label"]))]
        rows = [row for row in labelled if row[2] == 1 or row[0] != row[1]]
    else:
        rows = [row for each in passages_of(pairs).items() for row in _draw(*each, pool, count)]
    return Dataset.from_dict(dict(zip(("first", "second", "label"), map(list, zip(*rows, *own)))))


def _draw(query: str, passages: list[str], pool: list[str], count: int) -> list[tuple[str, str, float]]:
    """The rows of a query, with negatives drawn at random: so many that enough are left without its own passages."""
    barred = {query, *passages}
    drawn = [text for text in random.sample(pool, min(len(pool), count + len(barred))) if text not in barred][:count]
    labelled = [(text, 1.0) for text in dict.fromkeys(passages)] + [(text, 0.0) for text in drawn]
    return [(query, text, label) for text, label in labelled]


def as_reranking(rows: Dataset) -> tuple[Retrieval, list[list[Passage]]]:
    """Labelled rows as a task for `reorder`: the queries, and the passages of each that are put in order. Negatives
    come first, so that a model that scores all alike is not taken for a good one."""
    candidates: dict[str, dict[float, list[str]]] = {}
    for row in rows:
        candidates.setdefault(row["first"], {0.0: [], 1.0: []})[row["label"]].append(row["second"])
    relevant = {query: dict.fromkeys(texts[1.0], 1.0) for query, texts in candidates.items()}
    found = [[Passage(x, x) for x in dict.fromkeys(each[0.0] + each[1.0])] for each in candidates.values()]
    return Retrieval([], {query: query for query in candidates}, relevant), found


def correlation(model: CrossEncoder, pairs: Dataset, progress: str | None) -> dict[str, float]:
    scores = score_pairs(model, list(zip(pairs["first"], pairs["second"])), progress)
    scores = metrics.correlations(scores.tolist(), pairs["label"][:])
    return {"spearman": scores["spearman"]}


# --- training ---


def prepare_training(args: Any, config: dict[str, Any]) -> tuple[Any, str | None, bool]:
    """The settings with `config` and the precision decided, the checkpoint to go on from, and whether the finished
    model is to be pushed, which the trainer does not do; before data is read."""
    args = dataclasses.replace(args, **config)
    checkpoint = checkpoint_to_resume(args)
    check_training(args)
    if args.push_to_hub:
        check_push(args)
    return dataclasses.replace(resolve_precision(args), push_to_hub=False), checkpoint, args.push_to_hub


def run(
    trainer: EmbeddingTrainer | RerankerTrainer,
    evaluator: Measure,
    options: dict[str, Any],
    data: str,
    checkpoint: str | None,
    pushes: bool,
    teacher: Any = None,
) -> TrainingResult:
    """Train, measure before and after, and save the model, its card, report.json and training.png.

    Args:
        trainer: With the model, the rows and the loss.
        evaluator: What the model is measured by.
        options: The arguments of the command, by name.
        data: What it is trained on, in words.
        checkpoint: To go on from.
        pushes: Push the finished model.
        teacher: A model that is measured, too.

    Returns:
        The model and the report; of several processes one saves, and the others have neither.
    """
    args, model = trainer.args, trainer.model
    trained = trainer.train_dataset
    least = args.train_batch_size * args.world_size
    if args.world_size > 1 and len(trained) < least:  # of several processes, none has an incomplete batch
        given = f"{args.train_batch_size} in each of {args.world_size} processes"
        raise ValueError(f"per_device_train_batch_size: {given}, for {len(trained)} rows; use fewer")
    settings = {name: value for name, value in options.items() if name != "patience"} | steps_of(args)
    settings["rows"] = len(trained)
    if not (options.get("miner") or options.get("teacher")):  # of which other machines may have others
        settings["text"] = rows_checksum(trained)
    state = SettingsState(settings)
    if checkpoint is not None:
        state.check(checkpoint)
    trainer.add_callback(state)
    if options["patience"] and args.eval_strategy != "no":
        trainer.add_callback(EarlyStopping(options["patience"]))
    add_callbacks(trainer)
    rows = {"teacher": evaluator(teacher)} if teacher is not None else {}
    rows["before"], full_length = evaluator(model), model.max_seq_length
    limit_length(model, options["max_length"] or full_length)
    texts = trained["second"][:MOST_COUNTED] if isinstance(trainer, EmbeddingTrainer) else []
    if (cut := Embedder(model).count_cut(texts) if texts else 0) > 0.01 * len(texts):
        use = "use a larger --max_length, or shorter texts"
        warn(f"{cut:,} of {len(texts):,} passages have more than {model.max_seq_length} tokens and are cut; {use}")
    result = trainer.train(resume_from_checkpoint=checkpoint)
    limit_length(model, full_length)  # short texts in training do not make a model of short texts
    extract_model_from_parallel(model, keep_fp32_wrapper=False)  # else autocast stays on it
    rows["after"] = evaluator(model)  # as it is saved and as it began: not in the precision of the training
    for width in options.get("matryoshka_dims") or ():
        model.truncate_dim = width
        rows[f"after, first {width}"] = evaluator(model)
        model.truncate_dim = None
    print_table(rows)
    output = Path(args.output_dir)
    if not args.should_save:
        return TrainingResult(None, None, {}, output)
    seconds = result.metrics["train_runtime"] if checkpoint is None else None  # it counts from the checkpoint
    report = rows | {"training_seconds": seconds, "arguments": options | {"data": data}}
    compared = (rows[each][evaluator.metric] for each in ("after", "before"))
    report["warning"] = judge(evaluator.metric, *compared, "the model that it started from")
    save(trainer, report, evaluator.metric)
    if report["warning"]:
        warn(report["warning"])
    print(f"Saved to {output}: open it by {type(model).__name__}({str(output)!r}), after import minibert")
    if pushes:
        push_output(args, trainer.hub_token)
    return TrainingResult(model, model.tokenizer, report, output)


def save(trainer: EmbeddingTrainer | RerankerTrainer, report: dict[str, Any], metric: str) -> None:
    """Save the model with its card and picture, complete the report and write it; checkpoints are removed."""
    args, state, output = trainer.args, trainer.state, Path(trainer.args.output_dir)
    trainer.model.save_pretrained(str(output), create_model_card=False)
    before, after, options = report["before"], report["after"], report["arguments"]
    facts = facts_from_trainer(vars(state), args, describe_data(options["data"]))
    facts.results = [Result(name, after[name], "held-out data", "validation", before[name]) for name in after]
    for width in options.get("matryoshka_dims") or ():
        value = report[f"after, first {width}"][metric]
        facts.results.append(Result(f"{metric} of the first {width} numbers", value, "held-out data", "validation"))
    facts.baseline, facts.base_model = "before this training", published_name(options["model"])
    facts.warning = report["warning"]
    if report["training_seconds"] is None:
        del facts.training["time"]
    save_card(output, facts)
    report |= {
        "steps": state.global_step,
        "epochs": state.epoch,
        "seed": args.seed,
        "learning_rate": args.learning_rate,
        "batch_size": state.train_batch_size * args.gradient_accumulation_steps * args.world_size,
        "precision": "bf16" if args.bf16 else "fp16" if args.fp16 else "fp32",
    }
    write_json(output / "report.json", report)
    plot_training(state.log_history, output / "training.png", metric, {"before this training": before[metric]})
    remove_checkpoints(output)
