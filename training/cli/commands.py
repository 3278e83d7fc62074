"""The table of commands; `cli` makes options from their functions. Nothing heavy is imported here."""

import dataclasses
from typing import Any

EXAMPLES = """\
minibert pretrain
minibert pretrain --data my-text/ --size small --minutes 30 --output_dir runs/half-hour
minibert pretrain --recipe bert-classic --data de=de.txt fr=fr.txt --config_overrides "num_hidden_layers=6"
minibert prepare --data my-text/ --output_dir runs/rows
minibert prepare --data corpus.jsonl --text_column body --seq_length 1024 --num_proc 8
minibert prepare --data de=german/ fr=french/ --tokenizer runs/tokenizer --output_dir runs/rows
minibert tokenizer --data my-text/ --vocab_size 16384
minibert tokenizer --data de=german/ hi=hindi.txt --algorithm unigram
minibert tokenizer --data reports/*.txt --extend bert-base-uncased --extend_vocabulary 500
minibert fill "Paris is the [MASK] of France." --model runs/minibert
minibert fill "The [MASK] sat on the [MASK]." --model answerdotai/ModernBERT-base --top_k 3
minibert fill "One [MASK]." "Another [MASK]."
minibert finetune classify --data reviews/ --labels bad good
minibert finetune nli --train snli.jsonl --max_length 128
minibert finetune choose --train swag.csv --choice_columns ending0 ending1 ending2 ending3
minibert finetune tag --data entities/ --tags_column ner_tags
minibert finetune answer --train train-v2.0.json --test dev-v2.0.json
minibert finetune embed pairs.jsonl --model runs/minibert
minibert finetune embed notes/ --pairs_from title adjacent --num_train_epochs 3
minibert finetune embed triples.csv --validation test-folder/ --kind sparse
minibert finetune embed notes/ --pairs_from title --model small-model --teacher large-model
minibert finetune rerank pairs.jsonl --model runs/minibert
minibert finetune rerank pairs.jsonl --miner runs/embed --negatives 5
minibert finetune rerank scored.jsonl --max_length 256
minibert evaluate embed test-folder/ --model runs/embed
minibert evaluate embed --tasks STSBenchmark NanoBEIR
minibert evaluate embed sts.csv --columns first second gold --result scores.json
minibert evaluate rerank test-folder/ --model runs/rerank --embedder runs/embed
minibert evaluate rerank test-folder/ --depth 50 --result scores.json
minibert evaluate rerank test-folder/ --model runs/rerank --embedder runs/embed --split validation
minibert embed "a text" "another one" --model runs/embed
minibert embed --file lines.txt --output vectors.npy
minibert embed --file table.csv --column title --max_length 128
minibert search my-index --data notes/ --model runs/embed
minibert search my-index "how to bake bread" "bridges" --top_k 3
minibert search my-index "how to bake bread" --reranker runs/rerank
minibert rerank "how to bake bread" "Knead the dough." "A bridge spans a river." --model runs/rerank
minibert rerank "how to bake bread" --file passages.txt --top_k 5
minibert rerank "how to bake bread" --file - --model cross-encoder/ms-marco-MiniLM-L6-v2
minibert convert bert-base-uncased my-minibert
minibert convert my-minibert my-bert
minibert convert bert-base-uncased long --set position_embedding_type=rope max_position_embeddings=4096
minibert export runs/embed onnx-model
minibert export runs/minibert bert-model --format native
minibert export runs/minibert st-model --format sentence-transformers --pooling cls
minibert push runs/minibert me/my-bert --license mit --dry_run
minibert push runs/minibert me/my-bert --private
minibert push runs/minibert/checkpoint-500 me/my-bert --revision step-500
"""
# Further examples for each task of `TASKS`.
OF_TASKS = """\
minibert finetune {task} --model runs/minibert --data folder/ --num_train_epochs 5 --learning_rate 2e-4
minibert finetune {task} --data folder/ --plan true
minibert evaluate {task} --model runs/finetune --test test.jsonl
minibert evaluate {task} --model runs/finetune --data folder/ --output_dir runs/measured
minibert evaluate {task} --model runs/finetune --validation rows.csv --per_device_eval_batch_size 64
"""


@dataclasses.dataclass(frozen=True)
class Command:
    """One command of `minibert`."""

    help: str  # one line
    function: str  # "module:function" in `minibert.training`, called with all options as keywords
    positional: tuple[
        str, ...
    ] = ()  # parameters given by words without a flag; the last one may be a list
    config: str = (
        ""  # "module:Class", a dataclass whose fields are options; the function gets it as `args`
    )
    preset: dict[str, Any] = dataclasses.field(
        default_factory=dict
    )  # fixed keywords, which are not options
    defaults: dict[str, Any] = dataclasses.field(
        default_factory=dict
    )  # defaults that differ from those in Python
    options: tuple[
        str, ...
    ] = ()  # "module:callable", further callables whose parameters are options
    shown: tuple[
        str, ...
    ] = ()  # fields of the config that the help shows; by default all that are ours


# The tasks of `finetuning`: what they do, and the class whose parameters are options.
TASKS = {
    "classify": (
        "classify texts or pairs of texts, by one class, several labels or a value",
        "classification:Classify",
    ),
    "nli": ("tell whether a premise entails a hypothesis", "classification:Nli"),
    "choose": ("choose one of several continuations or answers", "choice:Choose"),
    "tag": ("tag words: entities, parts of speech", "tagging:Tag"),
    "answer": ("answer questions with a part of a text", "answering:AnswerQuestions"),
}


# Options that earlier versions had, and what stands in their place.
REMOVED_OPTIONS = {
    "few_shot": "few_shot: this option was removed; train by SetFit itself, as docs/fine-tuning.md shows (Few labels)"
}
# Options of these tasks that matter in training only.
IN_TRAINING = {
    "classify": ("class_weights", "tune_threshold"),
    "tag": ("class_weights",),
}
IN_TRAINING["nli"] = IN_TRAINING["classify"]


def _for_tasks(
    verb: str, help: str, config: str, shown: tuple[str, ...] = ()
) -> dict[str, Command]:
    """A command for each of `TASKS`."""
    more = {
        "function": f"finetuning.run:{verb}",
        "config": f"finetuning.config:{config}",
        "shown": shown,
    }
    commands = {}
    for task, (what, cls) in TASKS.items():
        preset = {"task": task} | dict.fromkeys(
            IN_TRAINING.get(task, ()) if verb == "evaluate" else ()
        )
        commands[f"{verb} {task}"] = Command(
            help.format(what), preset=preset, options=(f"finetuning.tasks.{cls}",), **more
        )
    return commands


COMMANDS = {
    "pretrain": Command(
        "Train a tokenizer and pretrain a model on text.",
        "pretraining.run:pretrain",
        options=("data.mixtures:Corpus",),
        config="pretraining.config:PretrainingConfig",
    ),
    "prepare": Command(
        "Tokenize and pack text once, for many trainings.",
        "pretraining.prepare:prepare",
        options=("data.mixtures:Corpus",),
        config="pretraining.config:RowsConfig",
        preset={"streaming": False, "shuffle_buffer": 0},
    ),
    "tokenizer": Command(
        "Train a tokenizer on text, or add words to one.",
        "pretraining.tokenizer:make_tokenizer",
        options=("data.mixtures:Corpus",),
        config="pretraining.config:TokenizerConfig",
    ),
    "fill": Command(
        "Fill the masks in a text with a trained model.", "pretraining.fill:fill", ("text",)
    ),
    **_for_tasks("finetune", "Train a model to {}.", "FinetuningConfig"),
    "finetune embed": Command(
        "Train a model to turn texts into vectors.",
        "embeddings.train:finetune_embed",
        ("data",),
        "embeddings.train:EmbeddingConfig",
    ),
    "finetune rerank": Command(
        "Train a model to order passages by how well they answer a query.",
        "embeddings.train:finetune_rerank",
        ("data",),
        "embeddings.train:RerankerConfig",
    ),
    **_for_tasks(
        "evaluate",
        "Measure a model trained to {}.",
        "EvaluationConfig",
        shown=("output_dir", "per_device_eval_batch_size", "bf16"),
    ),
    "evaluate embed": Command(
        "Measure an embedding model.", "embeddings.evaluate:evaluate_embed", ("data",)
    ),
    "evaluate rerank": Command(
        "Measure a reranker.", "embeddings.evaluate:evaluate_rerank", ("data",)
    ),
    "embed": Command(
        "Turn texts into vectors.",
        "embeddings.encoders:embed",
        ("text",),
        defaults={"file": "-", "output": "embeddings.npy"},
    ),
    "search": Command(
        "Index text, and find the passages nearest to queries.",
        "embeddings.search:search",
        ("index", "queries"),
    ),
    "rerank": Command(
        "Order passages by how well they answer a query.",
        "embeddings.search:rerank",
        ("query", "passages"),
    ),
    "convert": Command(
        "Convert a model between MiniBERT and other architectures.",
        "conversion.folders:convert",
        ("source", "target"),
    ),
    "export": Command(
        "Write a MiniBERT for other runtimes: ONNX, native, sentence-transformers.",
        "conversion.export:export",
        ("source", "target"),
    ),
    "push": Command(
        "Check that a saved model loads without this package, and publish it.",
        "hub.push:push",
        ("folder", "repository"),
    ),
}


def examples(name: str) -> list[str]:
    """Command lines of a command, for its help."""
    lines = EXAMPLES + "".join(OF_TASKS.format(task=task) for task in TASKS)
    return [line for line in lines.splitlines() if f"{line} ".startswith(f"minibert {name} ")]
