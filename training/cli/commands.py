"""The table of the commands of `minibert`: what each one runs and which arguments it takes.

Nothing here may import torch: `--help` reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..arguments import embeddings as embedding_arguments
from ..arguments import finetuning as task_arguments
from ..arguments import pretraining as arguments
from ..arguments import probes as probe_arguments
from ..arguments.hub import PushArguments
from .unused_arguments import CORPUS_CONDITIONS, PRETRAIN_CONDITIONS, SOURCE_CONDITIONS, Condition


@dataclass(frozen=True)
class Command:
    """One command of `minibert`.

    Its function is called with an instance of every dataclass in `arguments`, in this order, then with a
    `transformers.TrainingArguments` if there are `training_defaults`, then with the dictionary of changed model fields
    if there are `config_overrides`. What it returns is the exit status (None: 0).
    """

    function: str  # "module:function"
    help: str
    arguments: tuple[type, ...]
    positional: str | None = None  # the argument that words without a flag belong to
    training_defaults: dict[str, Any] | None = None
    config_overrides: bool = False
    conditions: tuple[Condition, ...] = ()  # on which arguments have an effect


COMMANDS = {
    "pretrain": Command(
        "minibert.training.pretraining.run:pretrain",
        "train a tokenizer and pretrain a model on text",
        (
            arguments.ModelArguments,
            arguments.CorpusArguments,
            arguments.MixtureArguments,
            arguments.StreamingArguments,
            arguments.RowArguments,
            arguments.TokenizerArguments,
            arguments.ObjectiveArguments,
            arguments.MaskingArguments,
            arguments.OptimizationArguments,
        ),
        training_defaults=arguments.PRETRAIN_DEFAULTS,
        config_overrides=True,
        conditions=PRETRAIN_CONDITIONS,
    ),
    "fill": Command(
        "minibert.training.pretraining.fill:fill",
        "fill the masks in a text with a trained model",
        (arguments.FillArguments,),
        positional="text",
    ),
    "tokenizer": Command(
        "minibert.training.pretraining.tokenizer:train",
        "train a tokenizer on text",
        (
            arguments.CorpusArguments,
            arguments.MixtureArguments,
            arguments.StreamingArguments,
            arguments.TokenizerArguments,
            arguments.TokenizerCommandArguments,
        ),
        conditions=SOURCE_CONDITIONS,
    ),
    "fertility": Command(
        "minibert.training.data.fertility:fertility",
        "count the tokens that tokenizers make of the same text in several languages",
        (arguments.FertilityArguments,),
        positional="tokenizers",
    ),
    "convert": Command(
        "minibert.training.conversion:convert",
        "convert a model between MiniBERT and BERT or ModernBERT",
        (arguments.ConvertArguments,),
        positional="paths",
    ),
    "push": Command(
        "minibert.training.hub.push:push",
        "check that a saved model loads without this package, and publish it on the Hub",
        (PushArguments,),
        positional="paths",
    ),
    "probe neighbours": Command(
        "minibert.training.probes.neighbours:neighbours",
        "show a word's nearest uses in a corpus, and look masked tokens up in the embedding matrix",
        (arguments.CorpusArguments, probe_arguments.ProbeArguments, probe_arguments.NeighboursArguments),
        positional="words",
        conditions=CORPUS_CONDITIONS,
    ),
    "probe wsd": Command(
        "minibert.training.probes.wsd:wsd",
        "tell the senses of words from their nearest labelled uses, beside a bag of words",
        (probe_arguments.ProbeArguments, probe_arguments.WsdArguments),
    ),
    "probe similarity": Command(
        "minibert.training.probes.similarity:similarity",
        "compare uses of the same word: static against contextual vectors, and the cosine's error by frequency",
        (arguments.CorpusArguments, probe_arguments.ProbeArguments, probe_arguments.SimilarityArguments),
        conditions=CORPUS_CONDITIONS,
    ),
    "probe isotropy": Command(
        "minibert.training.probes.isotropy:isotropy",
        "measure how alike the vectors of random tokens are, before and after z-scoring",
        (arguments.CorpusArguments, probe_arguments.ProbeArguments, probe_arguments.IsotropyArguments),
        conditions=CORPUS_CONDITIONS,
    ),
    "finetune classify": Command(
        "minibert.training.finetuning.run:finetune",
        "train a classifier of texts or pairs of texts: one class, several labels or a value",
        (task_arguments.ClassifyArguments, task_arguments.DataArguments, task_arguments.FinetuneArguments),
        training_defaults=task_arguments.FINETUNE_DEFAULTS,
    ),
    "finetune nli": Command(
        "minibert.training.finetuning.run:finetune",
        "train a model that tells whether a premise entails a hypothesis",
        (task_arguments.NliArguments, task_arguments.DataArguments, task_arguments.FinetuneArguments),
        training_defaults=task_arguments.FINETUNE_DEFAULTS,
    ),
    "finetune choose": Command(
        "minibert.training.finetuning.run:finetune",
        "train a model that chooses one of several continuations or answers",
        (task_arguments.ChooseArguments, task_arguments.DataArguments, task_arguments.FinetuneArguments),
        training_defaults=task_arguments.FINETUNE_DEFAULTS,
    ),
    "finetune tag": Command(
        "minibert.training.finetuning.run:finetune",
        "train a tagger of words: entities, parts of speech",
        (task_arguments.TagArguments, task_arguments.DataArguments, task_arguments.FinetuneArguments),
        training_defaults=task_arguments.FINETUNE_DEFAULTS,
    ),
    "finetune answer": Command(
        "minibert.training.finetuning.run:finetune",
        "train a model that answers questions with a part of a text",
        (task_arguments.AnswerArguments, task_arguments.DataArguments, task_arguments.FinetuneArguments),
        training_defaults=task_arguments.FINETUNE_DEFAULTS,
    ),
    "evaluate classify": Command(
        "minibert.training.finetuning.run:evaluate",
        "measure a fine-tuned classifier",
        (task_arguments.ClassifyArguments, task_arguments.DataArguments, task_arguments.EvaluateArguments),
        training_defaults=task_arguments.EVALUATE_DEFAULTS,
    ),
    "evaluate nli": Command(
        "minibert.training.finetuning.run:evaluate",
        "measure a fine-tuned model of entailment",
        (task_arguments.NliArguments, task_arguments.DataArguments, task_arguments.EvaluateArguments),
        training_defaults=task_arguments.EVALUATE_DEFAULTS,
    ),
    "evaluate choose": Command(
        "minibert.training.finetuning.run:evaluate",
        "measure a fine-tuned model of multiple choice",
        (task_arguments.ChooseArguments, task_arguments.DataArguments, task_arguments.EvaluateArguments),
        training_defaults=task_arguments.EVALUATE_DEFAULTS,
    ),
    "evaluate tag": Command(
        "minibert.training.finetuning.run:evaluate",
        "measure a fine-tuned tagger",
        (task_arguments.TagArguments, task_arguments.DataArguments, task_arguments.EvaluateArguments),
        training_defaults=task_arguments.EVALUATE_DEFAULTS,
    ),
    "evaluate answer": Command(
        "minibert.training.finetuning.run:evaluate",
        "measure a fine-tuned model of question answering",
        (task_arguments.AnswerArguments, task_arguments.DataArguments, task_arguments.EvaluateArguments),
        training_defaults=task_arguments.EVALUATE_DEFAULTS,
    ),
    "zero-shot": Command(
        "minibert.training.finetuning.tasks.zero_shot:zero_shot",
        "classify texts by any labels, with a fine-tuned model of entailment",
        (task_arguments.ZeroShotArguments,),
        positional="text",
    ),
    "mask-stats": Command(
        "minibert.training.data.mask_stats:mask_stats",
        "observe how often tokens are masked, against what is expected",
        (arguments.CorpusArguments, arguments.MaskStatsArguments),
        conditions=CORPUS_CONDITIONS,
    ),
    "bench": Command(
        "minibert.training.bench.run:bench",
        "measure speed and memory against Transformers' models on this machine",
        (arguments.CorpusArguments, arguments.BenchArguments),
        positional="benchmarks",
        conditions=CORPUS_CONDITIONS,
    ),
    "embed": Command(
        "minibert.training.embeddings.embed:embed",
        "turn texts into vectors",
        (embedding_arguments.EmbedArguments, embedding_arguments.PoolingArguments),
        positional="text",
    ),
    "search": Command(
        "minibert.training.embeddings.search:search",
        "build an index over text and find what is near to queries",
        (embedding_arguments.SearchArguments,),
        positional="words",
    ),
    "rerank": Command(
        "minibert.training.embeddings.rerank:rerank",
        "put passages in the order of how well they answer a query",
        (embedding_arguments.RerankArguments,),
        positional="words",
    ),
    "finetune embed": Command(
        "minibert.training.embeddings.train:finetune_embed",
        "train an embedding model on pairs, triples or scored pairs",
        (embedding_arguments.EmbedTrainingArguments, embedding_arguments.PairArguments),
        positional="data",
        training_defaults=embedding_arguments.EMBED_DEFAULTS,
    ),
    "finetune rerank": Command(
        "minibert.training.embeddings.train:finetune_rerank",
        "train a reranker on pairs and the negatives found for them",
        (embedding_arguments.RerankTrainingArguments, embedding_arguments.PairArguments),
        positional="data",
        training_defaults=embedding_arguments.RERANK_DEFAULTS,
    ),
    "evaluate embed": Command(
        "minibert.training.embeddings.evaluate:evaluate_embed",
        "measure an embedding model on similarity or retrieval",
        (
            embedding_arguments.EvaluateArguments,
            embedding_arguments.PoolingArguments,
            embedding_arguments.ReferenceArguments,
        ),
    ),
    "evaluate rerank": Command(
        "minibert.training.embeddings.evaluate:evaluate_rerank",
        "measure what a reranker makes of the passages an embedding model finds",
        (embedding_arguments.EvaluateArguments, embedding_arguments.EvaluateRerankArguments),
    ),
}
