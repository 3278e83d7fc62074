"""`minibert finetune embed`, `minibert finetune rerank`: training by sentence-transformers' trainers and losses.

Embedding models learn from pairs (in-batch negatives: Henderson et al. 2017, arXiv 1705.00652; with hard negatives
where there is a third column) or from scores (CoSENT, or squared error of the cosine: Reimers and Gurevych 2019, arXiv
1908.10084). Rerankers learn to tell a query's passage from negatives (binary cross-entropy: Nogueira and Cho 2019,
arXiv 1901.04085), drawn at random or from what an embedding model finds near the query.
"""

import dataclasses
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import sentence_transformers as st
from accelerate.utils import extract_model_from_parallel
from datasets import Dataset
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss, MSELoss
from sentence_transformers.util import mine_hard_negatives
from transformers import set_seed

from ..cli.options import close_matches
from ..common.callbacks import (
    CheckpointMixin,
    EarlyStopping,
    SettingsState,
    add_callbacks,
    steps_of,
)
from ..common.checkpoints import best_by, checkpoint_to_resume, remove_checkpoints, rows_checksum
from ..common.files import lock_output, write_json, written_whole
from ..common.loading import check_weights, load_sentence_transformer, minibert_config, without_bars
from ..common.options import option
from ..common.precision import check_training, resolve_precision
from ..common.printing import warn
from ..common.processes import use_cpu_without_accelerator
from ..common.training_result import TrainingResult
from ..evaluation import metrics
from ..evaluation.baselines import few_to_measure, judge
from ..evaluation.plots import plot_training
from ..hub.card import Result, describe_data, facts_from_trainer, published_name, save_card
from ..hub.push import check_push, push_output
from ..hub.trainer import HubMixin
from .data import Passage, Retrieval, make_pairs, name_of, read_documents, read_pairs, read_task
from .encoders import RERANKER, check_encoder, open_encoder, score_pairs, warn_cut
from .evaluate import RETRIEVAL, measure, print_table, reorder, score
from .losses import find_loss, make_loss
from .teachers import labels_of, open_teacher, teach

NEGATIVES = 3  # of a query, by default
NEAREST = 30  # passages that mined negatives are drawn from
VALIDATION_NEGATIVES = 20  # that a held-out query's passage is ranked among


@dataclass
class _Defaults:
    """Our defaults for fields of `TrainingArguments`."""

    learning_rate: float = option(5e-5, "Peak learning rate.")
    num_train_epochs: float = option(1.0, "Passes over the data.")
    warmup_steps: float = option(
        0.1, "Steps in which the learning rate rises; below 1, a share of all steps."
    )
    bf16: bool | None = option(None, "Compute in bf16; by default if the hardware is fast at it.")
    logging_steps: float = option(
        10, "Steps between two lines of the log; below 1, a share of all steps."
    )
    eval_strategy: str = option("epoch", "When to evaluate: no, steps or epoch.")
    save_strategy: str = option(
        "epoch", "When to save a checkpoint: no, steps or epoch, as eval_strategy."
    )
    save_total_limit: int | None = option(1, "Number of checkpoints to keep, besides the best one.")
    load_best_model_at_end: bool = option(True, "Save the best model, not the last one.")
    metric_for_best_model: str | None = option(
        "auto",
        "Metric that chooses the best model; auto: nDCG, MRR or Spearman's correlation, by the data.",
    )
    validation_size: float = option(
        0.05, "Queries to hold out without --validation: a share below 1, or a number."
    )
    max_length: int | None = option(
        None, "Longest text in training, in tokens; the saved model reads as much as before."
    )
    patience: int = option(
        3, "Evaluations without a better one before the training stops; 0: never."
    )

    def __post_init__(self):
        use_cpu_without_accelerator(self)
        super().__post_init__()


@dataclass
class EmbeddingConfig(_Defaults, st.SentenceTransformerTrainingArguments):
    """The settings of sentence-transformers for training an embedding model, with our defaults."""

    output_dir: str | None = option("runs/embed", "Folder of the model and its report.")
    per_device_train_batch_size: int = option(
        64, "Rows of a training batch; more rows are more negatives."
    )


@dataclass
class RerankerConfig(_Defaults, st.CrossEncoderTrainingArguments):
    """The settings of sentence-transformers for training a reranker, with our defaults."""

    output_dir: str | None = option("runs/rerank", "Folder of the model and its report.")
    per_device_train_batch_size: int = option(32, "Rows of a training batch.")


class _Checkpoints(HubMixin, CheckpointMixin):
    training_args_class = (
        st.SentenceTransformerTrainingArguments
    )  # of all kinds of embedding models


# The trainers of sentence-transformers, with safe checkpoints and pushes.
TRAINERS = {
    "dense": type("DenseTrainer", (_Checkpoints, st.SentenceTransformerTrainer), {}),
    "sparse": type("SparseTrainer", (_Checkpoints, st.SparseEncoderTrainer), {}),
    "multi-vector": type("MultiVectorTrainer", (_Checkpoints, st.MultiVectorEncoderTrainer), {}),
    "reranker": type("RerankerTrainer", (HubMixin, CheckpointMixin, st.CrossEncoderTrainer), {}),
}


class Measure(BaseEvaluator):
    """An evaluator by a function of the model, which returns metrics by name."""

    def __init__(self, function: Callable[[Any], dict[str, float]]):
        super().__init__()
        self.function = function

    def __call__(self, model: Any, *_: Any, **__: Any) -> dict[str, float]:
        return self.function(model)


def finetune_embed(
    data: str | list[str] | Dataset,
    *,
    model: str = "runs/minibert",
    columns: list[str] = (),
    validation: str | Dataset | None = None,
    pairs_from: list[str] = (),
    kind: Literal["dense", "sparse", "multi-vector"] = "dense",
    pooling: Literal["mean", "cls"] | None = None,
    matryoshka_dims: list[int] = (),
    teacher: str | None = None,
    loss: str = "auto",
    loss_kwargs: str | None = None,
    args: EmbeddingConfig | None = None,
    **config: Any,
) -> TrainingResult:
    """Train an embedding model on pairs, triples or scored pairs of texts; the one best on the held-out data is saved
    for `SentenceTransformer(output_dir)`, `SparseEncoder` or `MultiVectorEncoder`.

    Args:
        data: Tables (JSON lines, csv, tsv, parquet) or Hub data sets (owner/name or owner/name:config) of pairs (query,
            positive), triples (…, negative; further ones in negative_1, … or in lists) or scored pairs (sentence1,
            sentence2, score).
        model: The model to start from: a folder or a Hub name.
        columns: The columns of the texts (and the score) in that order; by default guessed by their names.
        validation: Data to choose the best checkpoint on: a table, a folder with corpus.jsonl, queries and qrels of the
            split validation, or a Hub data set with that split.
        pairs_from: Make pairs from plain text (files and folders of txt, md, or tables with a column text and perhaps
            title), in one or several ways: title (a document's title and its text), adjacent (passages that follow each
            other).
        kind: dense: a vector for each text; sparse: a weight for each word of the vocabulary (SPLADE), from a masked-LM
            head; multi-vector: a vector for each token (ColBERT).
        pooling: How the last states of the tokens become one vector: mean, or cls (the first token). By default as the
            model was saved, else mean.
        matryoshka_dims: Widths to which dense vectors can be shortened: the first numbers are trained to be a vector,
            too (Matryoshka).
        teacher: A larger embedding model to learn the vectors of, or a reranker to learn the scores of.
        loss: The class name of a loss of sentence-transformers, such as CosineSimilarityLoss; auto: chosen by the data
            and the teacher.
        loss_kwargs: Keyword arguments of the loss, as JSON: {"scale": 30}.
        args: The settings of the training.
        config: Fields of `EmbeddingConfig`.

    Returns:
        The model, its tokenizer, the report, and the folder.
    """
    options = {
        name: value
        for name, value in locals().items()
        if name not in ("data", "validation", "args", "config")
    }
    if kind != "dense" and (pooling or matryoshka_dims):
        raise ValueError(
            f"kind: {kind} has no vector of a text to pool or cut; leave pooling and matryoshka_dims out"
        )

    if pairs_from and columns:
        raise ValueError("columns: pairs_from makes pairs of whole documents; leave columns out")

    def make_trainer(args: EmbeddingConfig) -> tuple[Any, Any]:
        check_encoder(model, max_length=args.max_length)
        pairs, held_out = split_pairs(
            data, columns, validation, args.validation_size, args.seed, pairs_from
        )
        taught_by = open_teacher(teacher, model)
        scored, labels = (
            "label" in pairs.column_names,
            labels_of(taught_by, pairs.column_names, kind),
        )
        loss_class = find_loss(loss, kind, labels)
        task = held_out if scored or isinstance(held_out, Retrieval) else as_retrieval(held_out)
        set_seed(args.seed)
        # in fp32: small steps are lost in weights of half precision, in which some models are saved
        encoder = open_encoder(
            model, kind, pooling, True if kind == "dense" else None, dtype="float32"
        )
        function = make_loss(encoder, kind, loss_class, loss_kwargs, matryoshka_dims)
        pairs = teach(taught_by, pairs, encoder, labels, not args.disable_tqdm)
        bar = None if args.disable_tqdm else "Embedding"
        metric, names = ("spearman", ["spearman", "pearson"]) if scored else ("ndcg@10", RETRIEVAL)
        query, document, default = (
            encoder.prompts.get(x) for x in ("query", "document", encoder.default_prompt_name)
        )
        fields = {
            # as the model is measured: pairs are a query and passages, scored ones just texts
            "prompts": default
            if scored
            else {"first": query, "second": document, "third": document},
            # a passage that stands twice in a batch (of one process) would be its own negative
            "batch_sampler": "no_duplicates" if labels == "none" else "batch_sampler",
        }
        args = dataclasses.replace(args, **fields, **best_by(args, metric, names))
        kept = len(task.queries if isinstance(task, Retrieval) else task)
        print(f"{len(pairs):,} rows to train on by {loss_class.__name__}; held out: {kept:,}")
        warn(few_to_measure(kept))
        evaluator = Measure(lambda encoder: measure(encoder, task, bar))
        trainer = TRAINERS[kind](
            model=encoder, args=args, train_dataset=pairs, loss=function, evaluator=evaluator
        )
        return trainer, taught_by if labels == "vectors" else None

    return train(make_trainer, options, name_of(data), args or EmbeddingConfig(), config)


def finetune_rerank(
    data: str | list[str] | Dataset,
    *,
    model: str = "runs/minibert",
    columns: list[str] = (),
    validation: str | Dataset | None = None,
    negatives: int | None = None,
    miner: str | None = None,
    teacher: str | None = None,
    args: RerankerConfig | None = None,
    **config: Any,
) -> TrainingResult:
    """Train a reranker on pairs and negatives found for them, or on scored pairs; the one best on the held-out data is
    saved for `CrossEncoder(output_dir)`.

    Args:
        data: Tables (JSON lines, csv, tsv, parquet) or Hub data sets (owner/name or owner/name:config) of pairs (query,
            positive), triples (…, negative; further ones in negative_1, … or in lists) or scored pairs (sentence1,
            sentence2, score).
        model: The model to start from: a folder or a Hub name.
        columns: The columns of the texts (and the score) in that order; by default guessed by their names.
        validation: Data to choose the best checkpoint on: a table, or a Hub data set with the split validation.
        negatives: Number of negatives for each query, if the data are pairs; by default 3. Triples and scored pairs have
            their own.
        miner: An embedding model that finds hard negatives, drawn from the 30 passages nearest to the query; by default
            negatives are random.
        teacher: A larger reranker to learn the scores of, instead of labels.
        args: The settings of the training.
        config: Fields of `RerankerConfig`.

    Returns:
        The model, its tokenizer, the report, and the folder.
    """
    options = {
        name: value
        for name, value in locals().items()
        if name not in ("data", "validation", "args", "config")
    }

    def make_trainer(args: RerankerConfig) -> tuple[Any, Any]:
        is_reranker = RERANKER in (minibert_config(model).architectures or [])
        check_encoder(model, is_reranker, args.max_length)
        taught_by = open_teacher(teacher, model, reranker=True)
        pairs, held_out = split_pairs(data, columns, validation, args.validation_size, args.seed)
        if isinstance(held_out, Retrieval):
            raise ValueError(
                f"validation: {validation!r} is a folder; give a reranker a table like the data"
            )
        bar = None if args.disable_tqdm else "Reranking"
        set_seed(args.seed)
        has_own = [name for name in ("third", "label") if name in pairs.column_names]
        if has_own and (negatives is not None or miner is not None):
            raise ValueError(
                "negatives, miner: the rows have negatives or scores of their own; leave both out"
            )
        if "label" in pairs.column_names:
            rows, metric, names = pairs, "spearman", ["spearman"]
        else:
            known = list(
                dict.fromkeys(pairs["second"])
            )  # what is held out is no negative in training
            every = list(dict.fromkeys([*known, *held_out["second"]]))
            finder = open_encoder(miner, "dense") if miner else None
            rows, metric, names = (
                with_negatives(pairs, known, NEGATIVES if negatives is None else negatives, finder),
                "mrr@10",
                RETRIEVAL,
            )
            task, candidates = as_reranking(
                with_negatives(held_out, every, VALIDATION_NEGATIVES, finder)
            )

        def evaluate(model: st.CrossEncoder) -> dict[str, float]:
            if metric == "mrr@10":
                return score(task, reorder(model, task, candidates, bar))
            scores = score_pairs(
                model, list(zip(held_out["first"], held_out["second"])), bar
            ).tolist()
            return {"spearman": metrics.correlations(scores, held_out["label"][:])["spearman"]}

        # it would make a decoder compare its logits of "yes" and "no"
        as_reranker = {"architectures": [RERANKER]}
        # another task's head may be of another width
        weights = {"dtype": "float32", "ignore_mismatched_sizes": not is_reranker}
        encoder = load_sentence_transformer(
            st.CrossEncoder, model, num_labels=1, model_kwargs=weights, config_kwargs=as_reranker
        )
        check_weights(model, encoder.transformers_model, head=is_reranker)
        rows = teach(taught_by, rows, encoder, "scores", not args.disable_tqdm)
        # None is true for a model without gradient checkpointing, and fails here with several processes
        fields = {"ddp_find_unused_parameters": bool(args.ddp_find_unused_parameters)}
        fields["prompts"] = encoder.prompts.get(encoder.default_prompt_name)  # as `predict` has it
        args = dataclasses.replace(args, **fields, **best_by(args, metric, names))
        print(f"{len(rows):,} labelled rows to train on; held out: {len(held_out):,} rows")
        warn(few_to_measure(len(held_out)))
        loss = MSELoss(encoder) if teacher else BinaryCrossEntropyLoss(encoder)
        given = dict(
            model=encoder, args=args, train_dataset=rows, loss=loss, evaluator=Measure(evaluate)
        )
        trainer = TRAINERS["reranker"](**given)
        trainer.new_weights = not is_reranker
        return trainer, taught_by

    return train(make_trainer, options, name_of(data), args or RerankerConfig(), config)


# --- data ---


def split_pairs(
    data: Any,
    columns: Sequence[str],
    validation: Any,
    validation_size: float,
    seed: int,
    kinds: Sequence[str] = (),
) -> tuple[Dataset, Dataset | Retrieval]:
    """What is trained on, and what the best checkpoint is chosen on: without `validation`, a share or a number of the
    queries, or of the documents, where pairs of some `kinds` are made of these."""
    if kinds:
        pairs, groups = make_pairs(
            read_documents(data if isinstance(data, (list, tuple)) else [data]), kinds
        )
    else:
        pairs = read_pairs(data, columns)
        groups = pairs["first"][:]
    if validation is not None:
        held_out = read_task(validation, columns, "validation", "validation")
        if isinstance(held_out, Dataset) and ("label" in held_out.column_names) != (
            "label" in pairs.column_names
        ):
            raise ValueError("validation: it and the data must both have scores, or neither")
        return pairs, held_out
    different = sorted(set(groups))
    random.Random(seed).shuffle(different)
    count = round(validation_size * len(different) if validation_size < 1 else validation_size)
    if not 0 < count < len(different):
        use = "use a size that leaves some on both sides, or --validation"
        raise ValueError(
            f"validation_size: {validation_size} holds out {count} of {len(different)} texts; {use}"
        )
    chosen = set(different[:count])
    sides = [
        [place for place, group in enumerate(groups) if (group in chosen) == held]
        for held in (False, True)
    ]
    return pairs.select(sides[0]), pairs.select(sides[1])


def as_retrieval(pairs: Dataset) -> Retrieval:
    """Each first text as a query, all second (and third) texts as the passages, by the names of their texts. A text is
    often both (of adjacent passages, all but the first and the last): it does not find itself."""
    texts = dict.fromkeys(
        [*pairs["second"], *(pairs["third"] if "third" in pairs.column_names else [])]
    )
    relevant = {
        query: dict.fromkeys(passages, 1.0) for query, passages in passages_of(pairs).items()
    }
    return Retrieval(
        [Passage(text, text) for text in texts], {text: text for text in relevant}, relevant, True
    )


def passages_of(pairs: Dataset) -> dict[str, list[str]]:
    """The passages of every query."""
    passages: dict[str, list[str]] = {}
    for query, passage in zip(pairs["first"], pairs["second"]):
        passages_of_query = passages.setdefault(query, [])
        if passage not in passages_of_query:  # it stands once for each of its negatives
            passages_of_query.append(passage)
    return passages


def with_negatives(pairs: Dataset, pool: list[str], count: int, miner: Any = None) -> Dataset:
    """Every pair with the label 1, and with the label 0 what it has as `third`, or for every query up to `count` texts
    of `pool` that are neither the query nor one of its passages: any, or some that a `miner` finds nearest."""
    rows = [
        (*pair, 1.0)
        for query, texts in passages_of(pairs).items()
        for pair in zip([query] * len(texts), texts)
    ]
    if "third" in pairs.column_names:
        rows += [(query, text, 0.0) for query, text in zip(pairs["first"], pairs["third"])]
    elif miner is not None and count > 0:
        mined = mine_hard_negatives(
            pairs, miner, "first", "second", corpus=pool, num_negatives=count, range_max=max(NEAREST, count),
            sampling_strategy="random", output_format="labeled-pair", verbose=False,
        )  # fmt: skip
        labelled = zip(mined["first"], mined["second"], map(float, mined["label"]))
        rows += [row for row in labelled if not row[2] and row[0] != row[1]]
    else:
        for query, texts in passages_of(pairs).items():
            barred = {query, *texts}
            drawn = random.sample(
                pool, min(len(pool), count + len(barred))
            )  # enough are left without the barred ones
            rows += [
                (query, text, 0.0)
                for text in [text for text in drawn if text not in barred][:count]
            ]
    first, second, labels = map(list, zip(*rows))
    if 0.0 not in labels:
        raise ValueError(
            f"negatives: there are none for {count} a query; give data with more passages"
        )
    return Dataset.from_dict({"first": first, "second": second, "label": labels})


def as_reranking(rows: Dataset) -> tuple[Retrieval, list[list[Passage]]]:
    """Labelled rows as a task for `reorder`: the queries, and the passages of each that are put in order. Negatives
    come first, so that a model that scores all alike is not taken for a good one."""
    candidates: dict[str, dict[float, list[str]]] = {}
    for row in rows:
        candidates.setdefault(row["first"], {0.0: [], 1.0: []})[row["label"]].append(row["second"])
    relevant = {query: dict.fromkeys(texts[1.0], 1.0) for query, texts in candidates.items()}
    found = [
        [Passage(x, x) for x in dict.fromkeys(each[0.0] + each[1.0])]
        for each in candidates.values()
    ]
    return Retrieval([], {query: query for query in candidates}, relevant), found


# --- training ---


@without_bars()
def train(
    make_trainer: Callable, options: dict[str, Any], data: str, args: Any, config: dict
) -> TrainingResult:
    """Train what `make_trainer` makes of the settings (a trainer, and a teacher that is measured, too, or None) and
    save it; of several processes one does, and the others have no model and no report."""
    fields = {field.name for field in dataclasses.fields(args) if field.init}
    if unknown := sorted(config.keys() - fields):
        raise ValueError(
            f"unknown option {unknown[0]!r}{close_matches(unknown[0], fields | options.keys())}"
        )
    args = dataclasses.replace(args, **config)
    with lock_output(args):
        checkpoint = checkpoint_to_resume(args)
        check_training(args)
        if args.push_to_hub:
            check_push(args)
        # the finished model is pushed, not what the trainer has
        trainer, teacher = make_trainer(
            dataclasses.replace(resolve_precision(args), push_to_hub=False)
        )
        same = options | {"max_length": args.max_length} | steps_of(trainer.args)
        if not (
            options.get("miner") or options["teacher"]
        ):  # of which other machines may have others
            same["text"] = rows_checksum(trainer.train_dataset)
        state = SettingsState(same)
        if checkpoint is not None:
            state.check(checkpoint)
        trainer.add_callback(state)
        report = run(trainer, teacher, options, checkpoint)
        output, model = Path(args.output_dir), trainer.model
        if not args.should_save:
            return TrainingResult(None, None, {}, output)
        save(trainer, report, options | {"data": data})
        warn(report["warning"])
        print(
            f"Saved to {output}: open it by {type(model).__name__}({str(output)!r}), after import minibert"
        )
        if args.push_to_hub:
            push_output(trainer.args, trainer.hub_token)
        return TrainingResult(model, model.tokenizer, report, output)


def run(
    trainer: Any, teacher: Any, options: dict[str, Any], checkpoint: str | None
) -> dict[str, Any]:
    """Train, and measure before and after; the metrics by name."""
    args, model, evaluator = trainer.args, trainer.model, trainer.evaluator
    metric = args.metric_for_best_model.removeprefix("eval_")
    if args.patience and args.eval_strategy != "no":
        trainer.add_callback(EarlyStopping(args.patience))
    add_callbacks(trainer)
    report = {"teacher": evaluator(teacher)} if teacher is not None else {}
    report["before"], full_length = evaluator(model), model.max_seq_length
    model.max_seq_length = args.max_length or full_length
    warn_cut(model, trainer.train_dataset["second"][:])
    trainer.train(resume_from_checkpoint=checkpoint)
    model.max_seq_length = full_length  # short texts in training do not make a model of short texts
    extract_model_from_parallel(model, keep_fp32_wrapper=False)  # else autocast stays on it
    report["after"] = evaluator(
        model
    )  # as it is saved and as it began: not in the precision of the training
    for width in options.get("matryoshka_dims") or ():
        model.truncate_dim = width
        report[f"after, first {width}"] = evaluator(model)
        model.truncate_dim = None
    print_table(report)
    after, before = (report[each][metric] for each in ("after", "before"))
    return report | {
        "metric": metric,
        "warning": judge(metric, after, before, "the model that it started from"),
    }


def save(trainer: Any, report: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Save the model with its card and picture, complete the report and write it; checkpoints are removed."""
    args, state, output = trainer.args, trainer.state, Path(trainer.args.output_dir)
    with written_whole(output) as folder:
        trainer.model.save_pretrained(str(folder), create_model_card=False)
    before, after, metric = report["before"], report["after"], report["metric"]
    facts = facts_from_trainer(vars(state), args, describe_data(arguments["data"]))
    facts.results = [
        Result(name, after[name], "held-out data", "validation", before[name]) for name in after
    ]
    facts.baseline, facts.base_model = "before this training", published_name(arguments["model"])
    facts.warning = report["warning"]
    save_card(output, facts)
    report |= {
        "arguments": arguments,
        "steps": state.global_step,
        "epochs": state.epoch,
        "training": facts.training,
    }
    write_json(output / "report.json", report)
    plot_training(
        state.log_history, output / "training.png", metric, {"before this training": before[metric]}
    )
    remove_checkpoints(output)
