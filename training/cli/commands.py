"""The table of the commands of `minibert`: what each one runs and which arguments it takes.

Nothing here may import torch: `--help` reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..arguments import embeddings, finetuning, hub, pretraining, probes


@dataclass(frozen=True)
class Command:
    """One command of `minibert`.

    Its function is called with an instance of every dataclass in `arguments`, in this order, then with a
    `transformers.TrainingArguments` if there are `training_defaults`, then with the dictionary of changed model fields
    if there are `config_overrides`. What it returns is what `minibert.pretrain` and its like return; of a command line,
    a number is the exit status.
    """

    function: str  # "module:function", the module within `minibert.training`
    help: str
    arguments: tuple[type, ...]
    positional: str | None = None  # the argument that words without a flag belong to
    training_defaults: dict[str, Any] | None = None  # where it takes TrainingArguments: those that are ours
    config_overrides: bool = False


# What the command of several arguments' dataclasses would repeat.
SOURCE = (pretraining.CorpusArguments, pretraining.MixtureArguments, pretraining.StreamingArguments)
PROBE = (pretraining.CorpusArguments, probes.ProbeArguments)
# Where `finetune` and `evaluate` do the same for every task: its arguments, what is trained, what is measured.
TASKS = {
    "classify": (
        finetuning.ClassifyArguments,
        "a classifier of texts or pairs of texts: one class, several labels or a value",
        "a fine-tuned classifier",
    ),
    "nli": (
        finetuning.NliArguments,
        "a model that tells whether a premise entails a hypothesis",
        "a fine-tuned model of entailment",
    ),
    "choose": (
        finetuning.ChooseArguments,
        "a model that chooses one of several continuations or answers",
        "a fine-tuned model of multiple choice",
    ),
    "tag": (finetuning.TagArguments, "a tagger of words: entities, parts of speech", "a fine-tuned tagger"),
    "answer": (
        finetuning.AnswerArguments,
        "a model that answers questions with a part of a text",
        "a fine-tuned model of question answering",
    ),
}

COMMANDS = {
    "pretrain": Command(
        "pretraining.run:pretrain",
        "train a tokenizer and pretrain a model on text",
        (
            pretraining.ModelArguments,
            *SOURCE,
            pretraining.RowArguments,
            pretraining.TokenizerArguments,
            pretraining.ObjectiveArguments,
            pretraining.MaskingArguments,
            pretraining.OptimizationArguments,
        ),
        training_defaults=pretraining.PRETRAIN_DEFAULTS,
        config_overrides=True,
    ),
    "fill": Command(
        "pretraining.fill:fill", "fill the masks in a text with a trained model", (pretraining.FillArguments,), "text"
    ),
    "tokenizer": Command(
        "pretraining.tokenizer:train",
        "train a tokenizer on text",
        (*SOURCE, pretraining.TokenizerArguments, pretraining.TokenizerCommandArguments),
    ),
    "fertility": Command(
        "data.fertility:fertility",
        "count the tokens that tokenizers make of the same text in several languages",
        (pretraining.FertilityArguments,),
        "tokenizers",
    ),
    "convert": Command(
        "conversion:convert",
        "convert a model between MiniBERT and BERT or ModernBERT",
        (pretraining.ConvertArguments,),
        "paths",
    ),
    "push": Command(
        "hub.push:push",
        "check a saved model as somebody without the package loads it, and publish it on the Hub",
        (hub.PushArguments,),
        "paths",
    ),
    "probe neighbours": Command(
        "probes.neighbours:neighbours",
        "show a word's nearest uses in a corpus, and look masked tokens up in the embedding matrix",
        (*PROBE, probes.NeighboursArguments),
        "words",
    ),
    "probe wsd": Command(
        "probes.wsd:wsd",
        "tell the senses of words from their nearest labelled uses, beside a bag of words",
        (probes.ProbeArguments, probes.WsdArguments),
    ),
    "probe similarity": Command(
        "probes.similarity:similarity",
        "compare uses of the same word: static against contextual vectors, and the cosine's error by frequency",
        (*PROBE, probes.SimilarityArguments),
    ),
    "probe isotropy": Command(
        "probes.isotropy:isotropy",
        "measure how alike the vectors of random tokens are, before and after z-scoring",
        (*PROBE, probes.IsotropyArguments),
    ),
    **{
        f"finetune {task}": Command(
            "finetuning.run:finetune",
            f"train {trained}",
            (arguments, finetuning.DataArguments, finetuning.FinetuneArguments),
            training_defaults=finetuning.FINETUNE_DEFAULTS,
        )
        for task, (arguments, trained, _) in TASKS.items()
    },
    **{
        f"evaluate {task}": Command(
            "finetuning.run:evaluate",
            f"measure {measured}",
            (arguments, finetuning.DataArguments, finetuning.EvaluateArguments),
            training_defaults=finetuning.EVALUATE_DEFAULTS,
        )
        for task, (arguments, _, measured) in TASKS.items()
    },
    "zero-shot": Command(
        "finetuning.tasks.zero_shot:zero_shot",
        "classify texts by any labels, with a fine-tuned model of entailment",
        (finetuning.ZeroShotArguments,),
        "text",
    ),
    "mask-stats": Command(
        "data.mask_stats:mask_stats",
        "observe how often tokens are masked, against what is expected",
        (pretraining.CorpusArguments, pretraining.MaskStatsArguments),
    ),
    "bench": Command(
        "bench.run:bench",
        "measure speed and memory against Transformers' models on this machine",
        (pretraining.CorpusArguments, pretraining.BenchArguments),
        "benchmarks",
    ),
    "embed": Command(
        "embeddings.encoders:embed",
        "turn texts into vectors",
        (embeddings.EmbedArguments, embeddings.PoolingArguments),
        "text",
    ),
    "search": Command(
        "embeddings.search:search",
        "build an index over text and find what is near to queries",
        (embeddings.SearchArguments,),
        "words",
    ),
    "rerank": Command(
        "embeddings.search:rerank",
        "put passages in the order of how well they answer a query",
        (embeddings.RerankArguments,),
        "words",
    ),
    "finetune embed": Command(
        "embeddings.train:finetune_embed",
        "train an embedding model on pairs, triples or scored pairs",
        (embeddings.EmbedTrainingArguments, embeddings.PairArguments),
        "data",
        training_defaults=embeddings.EMBED_DEFAULTS,
    ),
    "finetune rerank": Command(
        "embeddings.train:finetune_rerank",
        "train a reranker on pairs and the negatives found for them",
        (embeddings.RerankTrainingArguments, embeddings.PairArguments),
        "data",
        training_defaults=embeddings.RERANK_DEFAULTS,
    ),
    "evaluate embed": Command(
        "embeddings.evaluate:evaluate_embed",
        "measure an embedding model on similarity or retrieval",
        (embeddings.EvaluateArguments, embeddings.PoolingArguments, embeddings.ReferenceArguments),
    ),
    "evaluate rerank": Command(
        "embeddings.evaluate:evaluate_rerank",
        "measure what a reranker makes of the passages an embedding model finds",
        (embeddings.EvaluateArguments, embeddings.EvaluateRerankArguments),
    ),
}
