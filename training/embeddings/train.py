"""`minibert finetune embed`, `minibert finetune rerank`: training by sentence-transformers' trainers and losses.

Embedding models learn from pairs (in-batch negatives: Henderson et al. 2017, arXiv 1705.00652; with hard negatives
where there is a third column) or from scores (CoSENT, or squared error of the cosine: Reimers and Gurevych 2019, arXiv
1908.10084). Rerankers learn to tell a query's passage from negatives (binary cross-entropy: Nogueira and Cho 2019,
arXiv 1901.04085), drawn at random or from what an embedding model finds near the query. Text without pairs becomes
pairs in `unlabelled`.
"""

import dataclasses
import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from accelerate.utils import extract_model_from_parallel
from datasets import Dataset
from sentence_transformers import CrossEncoder, CrossEncoderTrainer, SentenceTransformerTrainer
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.base.sampler import NoDuplicatesBatchSampler
from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss
from sentence_transformers.sentence_transformer import losses
from sentence_transformers.util import semantic_search
from transformers import TrainingArguments, set_seed

from .. import metrics
from ..arguments import check_least
from ..arguments.embeddings import EmbedTrainingArguments, PairArguments, RerankTrainingArguments, is_retrieval
from ..callbacks import CheckpointErrors, EarlyStopping, SettingsState, add_callbacks, steps_of
from ..checkpoints import best_by, checkpoint_to_resume, remove_checkpoints, rows_checksum
from ..files import write_json
from ..hub.card import Result, describe_data, facts_from_trainer, published_name, save_card
from ..hub.push import check_push, push_output
from ..loading import check_weights, minibert_config, quietly
from ..precision import check_training, resolve_precision
from ..report import plot_embedding_training
from ..result import TrainingResult
from .data import Passage, Retrieval, hold_out, read_pairs, read_passages, read_task
from .encoders import RERANKER, Embedder, check_encoder, check_length, limit_length, score_pairs
from .evaluate import KS, RETRIEVAL, measure, print_table
from .unlabelled import KINDS, make_pairs, read_documents

VALIDATION_NEGATIVES = 20  # that a held-out query's passage is ranked among
PASSAGE_WORDS = 64  # of the longest passage that pairs are made of
QUERY_CHUNK_SIZE = 1000  # queries at a time
PATIENCE = 3  # evaluations without a better one before training stops
# How the model is loaded: small steps are lost in weights of half precision, in which some models are saved.
WEIGHTS = {"dtype": "float32"}
# Fields of TrainingArguments that nothing looks at here; the token is that of `hf auth login`, or HF_TOKEN.
NO_EFFECT = (
    "label_smoothing_factor", "train_sampling_strategy", "per_device_eval_batch_size", "bf16_full_eval",
    "fp16_full_eval", "hub_token",
)  # fmt: skip
LOSSES = {
    "ranking": losses.MultipleNegativesRankingLoss,
    "cosine": losses.CosineSimilarityLoss,
    "cosent": losses.CoSENTLoss,
}


class EmbeddingTrainer(CheckpointErrors, SentenceTransformerTrainer):
    """Refuses a checkpoint that was trained with other settings of the optimizer."""


class RerankerTrainer(CheckpointErrors, CrossEncoderTrainer):
    """The same for a cross-encoder."""


def finetune_embed(how: EmbedTrainingArguments, data: PairArguments, training: TrainingArguments) -> TrainingResult:
    """Train an embedding model; the one best on the held-out data is saved for `SentenceTransformer(output_dir)`. A
    ValueError for bad data, a loss that it does not fit, or a model of another task; before any training."""
    checkpoint = checkpoint_to_resume(training)
    check_pairs_from(how)
    pairs, held_out = read_training_data(data, training, how.pairs_from, how.passage_words or PASSAGE_WORDS)
    scored = "label" in pairs.column_names
    loss = how.loss if how.loss != "auto" else "cosent" if scored else "ranking"
    if (loss == "ranking") == scored:
        fitting = "cosine or cosent: it has scores" if scored else "ranking: it has no scores"
        raise ValueError(f"loss: {loss} does not fit the data; use {fitting}")
    if how.chunk_size is not None and (loss != "ranking" or how.chunk_size < 1):
        raise ValueError(f"chunk_size: {how.chunk_size} is of no use; use 1 or more, with the loss ranking only")
    if not 0 <= how.original_share < 1:
        raise ValueError(f"original_share: {how.original_share} is out of range; use 0 to below 1")
    if loss == "ranking":
        if training.data_seed is not None:
            raise ValueError(f"data_seed: {training.data_seed} has no effect on pairs without scores; use seed")
        check_repeated(pairs, training.train_batch_size)
    task = held_out if scored or isinstance(held_out, Retrieval) else as_retrieval(held_out)
    by_rank = isinstance(task, Retrieval)

    set_seed(training.seed)
    model = Embedder.from_pretrained(how.model, how.pooling, True, **WEIGHTS).model
    check_length(model, data.max_length)
    loss_class, options = LOSSES[loss], {} if loss == "cosine" else {"scale": how.scale}
    if loss == "ranking":  # among the passages of the whole batch, whichever process has them
        options["gather_across_devices"] = training.world_size > 1
    if how.chunk_size is not None:
        loss_class, options["mini_batch_size"] = losses.CachedMultipleNegativesRankingLoss, how.chunk_size
    progress = None if training.disable_tqdm else "Embedding"
    kept = f"{len(task.queries):,} queries over {len(task.passages):,} passages" if by_rank else f"{len(task):,} pairs"
    print(f"{len(pairs):,} rows to train on by the loss {loss}; held out: {kept}")
    query, document, default = (model.prompts.get(x) for x in ("query", "document", model.default_prompt_name))
    # as the model is measured: pairs are a query and passages, scored ones just texts
    prompts = default if scored else {"first": query, "second": document, "third": document}
    # a passage that stands twice in a batch (of one process) would be its own negative
    fields = {"prompts": prompts, "batch_sampler": "batch_sampler" if scored else "no_duplicates"}
    parts = {"model": model, "train_dataset": pairs, "loss": loss_class(model, **options)}
    metric, names = ("ndcg@10", RETRIEVAL) if by_rank else ("spearman", ["spearman", "pearson"])
    evaluator = Measure(lambda model: measure(Embedder(model), task, progress), metric, names)
    return train(EmbeddingTrainer, fields, parts, evaluator, how, data, training, checkpoint)


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
    if lost <= 0.5 * len(pairs):
        print(f"{left_out}; a --per_device_train_batch_size below {batch_size} leaves out fewer")
    else:
        advice = f"use {len(pairs) // most} or less" if len(pairs) // most > 1 else "give data with more texts"
        raise ValueError(f"per_device_train_batch_size: with {batch_size}, {left_out}; {advice}")


def finetune_rerank(how: RerankTrainingArguments, data: PairArguments, training: TrainingArguments) -> TrainingResult:
    """Train a reranker; the one best on the held-out data is saved for `CrossEncoder(output_dir)`. A ValueError for bad
    data, too small a corpus, or a model of another task; before any training."""
    checkpoint = checkpoint_to_resume(training)
    is_reranker = RERANKER in (minibert_config(how.model).architectures or [])
    check_encoder(how.model, reranker=is_reranker)
    if data.validation and is_retrieval(data.validation):
        raise ValueError(f"validation: {data.validation!r} is a folder; give a reranker a table like the data")
    if how.negatives < 1 or (how.miner and how.mine_depth < how.negatives):
        most = f"to mine_depth={how.mine_depth}" if how.miner else "or more"
        raise ValueError(f"negatives: {how.negatives} is out of range; use 1 {most}")
    pairs, held_out = read_training_data(data, training)
    scored = "label" in pairs.column_names
    if scored:
        default = RerankTrainingArguments(how.model)
        if unused := [name for name in vars(how) if getattr(how, name) != getattr(default, name)]:
            raise ValueError(f"{unused[0]}: {getattr(how, unused[0])!r} has no effect on scored pairs; leave it out")
        rows, among = pairs, ""
    else:
        corpus = [passage.text for passage in read_passages(how.corpus)] if how.corpus else []
        pool = list(dict.fromkeys(corpus or [*pairs["second"], *held_out["second"]]))
        known = list(dict.fromkeys(corpus or pairs["second"]))  # what is held out is no negative in training
        depth = max(how.mine_depth, VALIDATION_NEGATIVES)
        near = find_near([pairs, held_out], pool, Embedder.from_pretrained(how.miner), depth) if how.miner else None
        rows = label_rows(pairs, draw_negatives(pairs, near, known, how.negatives, how.mine_depth, training.seed))
        count = min(VALIDATION_NEGATIVES, most_negatives(held_out, pool))  # fewer in a small corpus
        harder = draw_negatives(held_out, near, pool, count, depth, training.seed)
        among = f", each passage among {count} negatives"

    set_seed(training.seed)
    with quietly():
        # it would make a decoder compare its logits of "yes" and "no"
        as_reranker = {"architectures": [RERANKER]}
        weights = WEIGHTS | {"ignore_mismatched_sizes": not is_reranker}  # another task's head may be of another width
        model = CrossEncoder(how.model, num_labels=1, model_kwargs=weights, config_kwargs=as_reranker)
    check_weights(how.model, model.transformers_model, head=is_reranker)
    limit_length(model)
    check_length(model, data.max_length)
    progress = None if training.disable_tqdm else "Reranking"

    def measure_reranker(model: CrossEncoder) -> dict[str, float]:
        if not scored:
            return ranking_among(model, held_out, harder, progress)
        scores = score_pairs(model, list(zip(held_out["first"], held_out["second"])), progress)
        return metrics.Spearman().compute(predictions=scores.tolist(), references=held_out["label"])

    print(f"{len(rows):,} labelled rows to train on; held out: {len(held_out):,} pairs{among}")
    # None is true for a model without gradient checkpointing, and fails here with several processes
    unused, prompt = bool(training.ddp_find_unused_parameters), model.prompts.get(model.default_prompt_name)
    fields = {"ddp_find_unused_parameters": unused, "prompts": prompt}  # the prompt as `predict` has it
    parts = {"model": model, "train_dataset": rows, "loss": BinaryCrossEntropyLoss(model)}
    metric, names = ("spearman", ["spearman"]) if scored else ("mrr@10", RETRIEVAL)
    evaluator = Measure(measure_reranker, metric, names)
    return train(RerankerTrainer, fields, parts, evaluator, how, data, training, checkpoint)


def check_pairs_from(how: EmbedTrainingArguments) -> None:
    """Refuse (ValueError), before anything is read, what makes no pairs."""
    if unknown := [kind for kind in how.pairs_from if kind not in KINDS]:
        raise ValueError(f"pairs_from: {unknown[0]!r} is unknown; use {', '.join(KINDS)}, or several of them")
    if how.passage_words is not None and (how.passage_words < 1 or not {"adjacent", "dropout"} & {*how.pairs_from}):
        use = "use 1 or more, with --pairs_from adjacent or dropout"
        raise ValueError(f"passage_words: {how.passage_words} is of no use; {use}")
    if "dropout" in how.pairs_from:
        config = minibert_config(how.model)
        if not (config.hidden_dropout or config.attention_dropout or config.embedding_dropout):
            use = f"`minibert convert {how.model} FOLDER --set hidden_dropout=0.1` makes one of it"
            raise ValueError(f"pairs_from: dropout needs a model that drops units, and {how.model!r} drops none; {use}")


def read_training_data(
    data: PairArguments, training: TrainingArguments, pairs_from: Sequence[str] = (), words: int = PASSAGE_WORDS
) -> tuple[Dataset, Dataset | Retrieval]:
    """What is trained on, and what the best checkpoint is chosen on; of text without pairs those of `pairs_from` are
    made, with passages of `words` words at most."""
    check_training(training)
    check_least(data, patience=0)
    for name in NO_EFFECT:
        if getattr(training, name) != TrainingArguments.__dataclass_fields__[name].default:
            instead = " and run `hf auth login`, or set HF_TOKEN" if name == "hub_token" else ""
            raise ValueError(f"{name}: it has no effect here; leave it out{instead}")
    if training.push_to_hub:
        check_push(training)
    if data.patience and training.eval_strategy == "no":
        raise ValueError(f"patience: {data.patience} has no effect with --eval_strategy no; leave it out")
    if pairs_from:
        documents = read_documents(data.data)
        if data.validation is None:
            texts = [document.text for document in documents]
            places = hold_out(texts, data.validation_size, training.seed, "different documents")
            sides = [[documents[place] for place in side] for side in places]
            told_apart = [kind for kind in pairs_from if kind != "dropout"]  # a text always finds itself
            where = "what is held out (use a larger --validation_size, or --validation)"
            held_out = make_pairs(sides[1], told_apart or ["adjacent"], words, where)
            return make_pairs(sides[0], pairs_from, words), held_out
        pairs = make_pairs(documents, pairs_from, words)
    else:
        pairs = read_pairs(data.data, data.columns)
    if data.validation is None:
        rows, held_out = hold_out(pairs["first"][:], data.validation_size, training.seed, "different queries")
        return pairs.select(rows), pairs.select(held_out)
    held_out = read_task(data.validation, data.columns, "validation", "validation")
    if isinstance(held_out, Dataset) and ("label" in held_out.column_names) != ("label" in pairs.column_names):
        raise ValueError(f"validation: {data.validation!r} and the data must both have scores, or neither")
    return pairs, held_out


def as_retrieval(pairs: Dataset) -> Retrieval:
    """Each first text as a query, all second (and third) texts as the passages, by the names of their texts. A text is
    often both (of adjacent passages, all but the first and the last): it does not find itself."""
    texts = dict.fromkeys([*pairs["second"], *(pairs["third"] if "third" in pairs.column_names else [])])
    relevant = {query: dict.fromkeys(passages, 1.0) for query, passages in passages_of(pairs).items()}
    return Retrieval([Passage(text, text) for text in texts], {text: text for text in relevant}, relevant, True)


def find_near(parts: Sequence[Dataset], pool: Sequence[str], miner: Embedder, depth: int) -> dict[str, list[str]]:
    """For every query the texts of `pool` that are nearest to it and are neither it nor one of its passages, at most
    `depth` of them, the nearest first."""
    right = {query: {query, *own} for query, own in passages_of(*parts).items()}
    names, near = sorted(right, key=lambda query: len(right[query])), {}
    queries, texts = miner.embed(names, task="query"), miner.embed(pool, task="document")
    for start in range(0, len(names), QUERY_CHUNK_SIZE):  # a query of many passages wants many hits, the others do not
        some = names[start : start + QUERY_CHUNK_SIZE]
        found = semantic_search(queries[start : start + QUERY_CHUNK_SIZE], texts, top_k=depth + len(right[some[-1]]))
        for query, hits in zip(some, found):
            near[query] = [text for hit in hits if (text := pool[hit["corpus_id"]]) not in right[query]][:depth]
    return near


def passages_of(*parts: Dataset) -> dict[str, set[str]]:
    right: dict[str, set[str]] = {}
    for part in parts:
        for query, passage in zip(part["first"], part["second"]):
            right.setdefault(query, set()).add(passage)
    return right


def most_negatives(pairs: Dataset, pool: Sequence[str]) -> int:
    """How many texts of `pool` are neither the query nor one of its passages, of the query that has the fewest."""
    allowed = set(pool)
    return len(allowed) - max(len(allowed & {query, *own}) for query, own in passages_of(pairs).items())


def draw_negatives(
    pairs: Dataset, near: dict[str, list[str]] | None, pool: Sequence[str], count: int, depth: int, seed: int
) -> list[list[str]]:
    """For every pair, `count` texts of `pool` that are neither its query nor one of the query's passages: from the
    `depth` nearest, or from all (a ValueError if they are too few). A negative that the pair came with is the first."""
    right, allowed = passages_of(pairs), set(pool)
    if (most := most_negatives(pairs, pool)) < max(count, 1):
        use = f"use --negatives {most}, or give more passages by --corpus" if most > 0 else "give more by --corpus"
        raise ValueError(f"negatives: {len(pool)} different passages are too few for {count} a query; {use}")
    chance = random.Random(seed)
    drawn = []
    third = [[text] for text in pairs["third"]] if "third" in pairs.column_names else [[]] * len(pairs)
    for query, given in zip(pairs["first"], third):
        barred = right[query].union(given, [query])
        if near is None:  # so many that enough are left when those barred are taken out
            candidates = chance.sample(pool, min(len(pool), count + len(barred)))
        else:
            candidates = [text for text in near[query] if text in allowed][:depth]
        candidates = [text for text in candidates if text not in barred]
        drawn.append(given + chance.sample(candidates, min(count - len(given), len(candidates))))
    return drawn


def label_rows(pairs: Dataset, negatives: Sequence[Sequence[str]]) -> Dataset:
    """Every pair with the label 1, and its query with each negative with the label 0."""
    rows = []
    for first, second, wrong in zip(pairs["first"], pairs["second"], negatives):
        rows.append({"first": first, "second": second, "label": 1.0})
        rows += [{"first": first, "second": text, "label": 0.0} for text in wrong]
    return Dataset.from_list(rows)


def ranking_among(
    reranker: CrossEncoder, pairs: Dataset, negatives: Sequence[Sequence[str]], progress: str | None = None
) -> dict[str, float]:
    """Where each pair's passage is ranked among its negatives: behind those of the same score, so that a model that
    scores all alike is not taken for a good one."""
    lists = [[*wrong, second] for second, wrong in zip(pairs["second"], negatives)]
    texts = [(first, text) for first, texts in zip(pairs["first"], lists) for text in texts]
    parts = np.split(score_pairs(reranker, texts, progress), np.cumsum([len(texts) for texts in lists])[:-1])
    orders = [[str(i) for i in np.argsort(-part, kind="stable")] for part in parts]
    right = [{"ids": [str(len(wrong))], "grades": [1.0]} for wrong in negatives]
    return metrics.Retrieval().compute(predictions=orders, references=right, ks=KS)


class Measure(BaseEvaluator):
    """Calls a function of the model, which returns the metrics `names`, whenever the trainer evaluates; the best
    checkpoint is chosen by `metric`."""

    def __init__(self, function: Callable[[Any], dict[str, float]], metric: str, names: Sequence[str]):
        super().__init__()
        self.function, self.metric, self.names = function, metric, names

    def __call__(self, model: Any, output_path: str | None = None, epoch: int = -1, steps: int = -1):
        return self.function(model)


def train(
    trainer_class: type[EmbeddingTrainer | RerankerTrainer],
    fields: dict[str, Any],
    parts: dict[str, Any],
    evaluator: Measure,
    how: EmbedTrainingArguments | RerankTrainingArguments,
    data: PairArguments,
    training: TrainingArguments,
    checkpoint: str | None,
) -> TrainingResult:
    """Train and save the model, its card, report.json and training.png. Of several processes one saves: in the others
    the result has no model. `parts` are what the trainer is made of, `fields` those of its arguments that are not the
    user's."""
    training = resolve_precision(training)
    given = {field.name: getattr(training, field.name) for field in dataclasses.fields(training) if field.init}
    given |= best_by(training, evaluator.metric, evaluator.names)
    metric = given["metric_for_best_model"].removeprefix("eval_")
    rows = {part: parts[part] for part in parts if part.endswith("dataset")}
    settings = {name: value for name, value in (vars(how) | vars(data)).items() if name != "patience"}
    settings |= steps_of(training) | {"metric_for_best_model": metric}
    settings["rows"] = {part: len(rows[part]) for part in rows}
    if not getattr(how, "miner", None):  # of which other machines may mine others
        settings["text"] = {part: rows_checksum(rows[part]) for part in rows}
    settings = SettingsState(settings)
    if checkpoint is not None:
        settings.check(checkpoint)
    callbacks = [settings]
    patience = PATIENCE if data.patience is None else data.patience
    if patience and training.eval_strategy != "no":  # it needs evaluations, and with 0 stops at the first
        callbacks.append(EarlyStopping(patience))
    # What is pushed is the finished model.
    args = trainer_class.training_args_class(**given | fields | {"push_to_hub": False})
    least, number = args.train_batch_size * args.world_size, len(rows["train_dataset"])
    if args.world_size > 1 and number < least:  # of several processes, none has an incomplete batch
        given = f"{args.train_batch_size} in each of {args.world_size} processes"
        raise ValueError(f"per_device_train_batch_size: {given}, for {number} rows; use fewer")
    trainer = trainer_class(args=args, evaluator=evaluator, callbacks=callbacks, **parts)
    add_callbacks(trainer)
    before = evaluator(trainer.model)  # only now, on the trainer's device
    # Of these weights in the model that is saved: Wortsman et al. 2022 (arXiv 2109.01903); in embedding models Xiao et
    # al. 2023 ("LM-Cocktail", arXiv 2311.13534).
    share = how.original_share if isinstance(how, EmbedTrainingArguments) else 0.0
    original = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items() if share}
    saved_length = trainer.model.max_seq_length
    limit_length(trainer.model, data.max_length or saved_length)
    result = trainer.train(resume_from_checkpoint=checkpoint)
    limit_length(trainer.model, saved_length)  # short texts in training do not make a model of short texts
    state = trainer.state
    for name, tensor in trainer.model.state_dict().items() if share else ():
        tensor.lerp_(original[name], share)
    extract_model_from_parallel(trainer.model, keep_fp32_wrapper=False)  # else autocast stays on it
    after = evaluator(trainer.model)  # as it is saved and as it began: not in the precision of the training
    print_table({"before": before, "after": after})
    output = Path(training.output_dir)
    if not args.should_save:
        return TrainingResult(None, None, {}, output)
    trainer.model.save_pretrained(str(output), create_model_card=False)
    facts = facts_from_trainer(vars(state), args, describe_data(", ".join(data.data)))
    facts.results = [Result(name, after[name], "held-out data", "validation", before[name]) for name in after]
    facts.baseline, facts.base_model = "before this training", published_name(how.model)
    if checkpoint is not None:
        del facts.training["time"]
    save_card(output, facts)
    report = {
        "before": before,
        "after": after,
        "steps": state.global_step,
        "training_seconds": result.metrics["train_runtime"] if checkpoint is None else None,  # it counts from there
        "arguments": vars(how) | vars(data),
        "seed": training.seed,
        "learning_rate": training.learning_rate,
        "batch_size": state.train_batch_size * args.gradient_accumulation_steps * args.world_size,
        "epochs": state.epoch,
        "precision": "bf16" if args.bf16 else "fp16" if args.fp16 else "fp32",
    }
    write_json(output / "report.json", report)
    plot_embedding_training(state.log_history, output / "training.png", metric, before[metric])
    remove_checkpoints(output)
    print(f"Saved to {output}: open it by {type(trainer.model).__name__}({str(output)!r}), after import minibert")
    if training.push_to_hub:
        push_output(training)
    return TrainingResult(trainer.model, trainer.model.tokenizer, report, output)
