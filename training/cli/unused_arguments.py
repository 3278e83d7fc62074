"""Which arguments count only beside others: what is given and would do nothing is rejected."""

import dataclasses
import os
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from ..arguments import embeddings, finetuning, tools
from ..arguments.pretraining import ROWS_MANIFEST, CorpusArguments, MaskingArguments, TokenizerArguments


class Condition(NamedTuple):
    """Arguments that have an effect only where another one, the switch, has certain values."""

    switch: str
    holds: Callable[[Any], bool]  # whether they have an effect, by the value of the switch
    where: str  # the same in words
    arguments: tuple[str, ...]


def _with(switch: str, *arguments: str) -> Condition:
    return Condition(switch, bool, f"with --{switch}", arguments)


def _without(switch: str, *arguments: str) -> Condition:
    return Condition(switch, lambda value: not value, f"without --{switch}", arguments)


def _with_one_of(switch: str, values: tuple[str, ...], *arguments: str) -> Condition:
    return Condition(switch, values.__contains__, f"with --{switch} {', '.join(values)}", arguments)


OF_TOKENIZERS = tuple(field.name for field in dataclasses.fields(TokenizerArguments))
OF_A_NEW_TOKENIZER = (*OF_TOKENIZERS, "sample_documents")
OF_TEXT = (
    "text_column", "sample_by", "weights", "sampling_alpha", "num_proc", "extend_vocabulary", *OF_A_NEW_TOKENIZER
)  # fmt: skip
OF_MASKING = tuple(field.name for field in dataclasses.fields(MaskingArguments))


def _has_rows(data: list[str]) -> bool:
    return any(os.path.exists(os.path.join(item, ROWS_MANIFEST)) for item in data)


CORPUS = (
    _with("data", "text_column", "sample_by"),
    _without("data", "packages"),
    Condition("data", lambda data: not _has_rows(data), "with text in --data", OF_TEXT),
    Condition("data", lambda data: len(data) > 1, "with several entries of --data", ("weights", "sampling_alpha")),
    _with("streaming", "shuffle_buffer", "sample_documents"),
    _without("streaming", "num_proc"),
    _with_one_of("objective", ("mlm+nsp",), "short_seq_prob"),
    _with_one_of("objective", ("rtd",), "generator_size", "discriminator_weight", "generator_temperature"),
    _with_one_of("objective", ("mlm", "mlm+nsp", "rtd"), *OF_MASKING),
    _with_one_of("objective", ("mlm", "rtd", "clm"), "packing", "num_proc"),
    _without("tokenizer", *OF_A_NEW_TOKENIZER),
    _without("model_name_or_path", *OF_A_NEW_TOKENIZER, "model", "size"),
    _with("model_name_or_path", "extend_vocabulary"),
    _with_one_of("objective", ("mlm", "mlm+nsp", "clm"), "extend_vocabulary"),
    _with("extend", "extend_vocabulary"),
    _without("extend", *OF_TOKENIZERS),
)
# By the arguments that a command has.
CONDITIONS = {
    CorpusArguments: CORPUS,
    embeddings.EmbedArguments: (Condition("file", embeddings.is_table, "with a table in --file", ("column",)),),
    embeddings.SearchArguments: (_with("data", "passage_words"), _with("reranker", "depth")),
    embeddings.EvaluateArguments: (
        Condition("data", embeddings.has_splits, "with a folder or a Hub name in --data", ("split",)),
        Condition("data", lambda data: not embeddings.is_retrieval(data), "with a table in --data", ("columns",)),
    ),
    embeddings.ReferenceArguments: (_with("reference", "reference_texts"),),
    embeddings.PairArguments: (_without("validation", "validation_size"), _without("pairs_from", "columns")),
    embeddings.EmbedTrainingArguments: (Condition("loss", "cosine".__ne__, "with another --loss", ("scale",)),),
    embeddings.RerankTrainingArguments: (_with("miner", "mine_depth"),),
    finetuning.FinetuneArguments: (_with("compare", "compare_rounds", "compare_batches"),),
    tools.ExportArguments: (
        _with_one_of("format", ("onnx",), "head", "int8"),
        _with_one_of("format", ("sentence-transformers",), "pooling", "normalize"),
    ),
}
# What those of TrainingArguments begin with that count in a training alone.
OF_TRAINING = (
    "activation_", "adam_", "auto_find_", "average_tokens_", "data_seed", "do_", "enable_jit_", "eval_delay",
    "eval_on_start", "eval_steps", "eval_strategy", "gradient_", "greater_is_better", "hub_", "ignore_data_skip",
    "learning_rate", "load_best_", "lr_scheduler_", "max_grad_norm", "max_steps", "metric_for_best_", "neftune_",
    "num_train_epochs", "optim", "per_device_train_", "push_to_hub", "restore_callback_", "resume_from_", "save_",
    "torch_empty_cache_", "train_sampling_", "warmup_", "weight_decay",
)  # fmt: skip


def reject_unused(
    kinds: Collection[type], values: Mapping[str, Any], given: Collection[str], recipe: Collection[str]
) -> None:
    """Raise ValueError for an argument that was given and has no effect; `kinds` are the dataclasses of a command,
    `values` those of all its arguments.

    What is given beside a recipe wins over it: where that is the switch, keys of the recipe may do nothing
    (`--recipe modern --model_name_or_path …` needs none of its tokenizer).
    """
    for condition in (each for kind in kinds for each in CONDITIONS.get(kind, ())):
        switch = values.get(condition.switch)
        if condition.switch not in values or condition.holds(switch):
            continue
        for name in condition.arguments:
            if name in given or (name in recipe and condition.switch not in given):
                text = " ".join(switch) if isinstance(switch, list) else switch
                here = f"with --{condition.switch} {text}" if switch else f"without --{condition.switch}"
                raise ValueError(f"{name}: {values[name]!r} has no effect {here}; use it {condition.where}")


def reject_training(training: Any, given: Collection[str]) -> None:
    """Raise ValueError for an argument of `training` (TrainingArguments) that was given where nothing is trained."""
    for name in given:
        if name.startswith(OF_TRAINING):
            value = getattr(training, name)
            raise ValueError(f"{name}: {getattr(value, 'value', value)!r} has no effect here; use it with finetune")
