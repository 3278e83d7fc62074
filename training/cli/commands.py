"""The table of commands; options are made of their functions. Nothing heavy is imported here."""

import dataclasses
from typing import Any

from ..finetuning.tasks import EVALUATION_FIELDS, TASKS

EXAMPLES = """\
minibert pretrain
minibert pretrain --data my-text/ --size small --minutes 30 --output_dir runs/half-hour
minibert pretrain --recipe bert-classic --data de=de.txt --config_overrides num_hidden_layers=6
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
minibert predict runs/finetune "a good book" "a dull book"
minibert predict runs/finetune rows.csv --output predictions.csv
minibert predict runs/tagger articles.jsonl --tokens_column body --output entities.jsonl
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
minibert convert my-bert long --set position_embedding_type=rope max_position_embeddings=4096
minibert export runs/embed onnx-model
minibert export runs/minibert bert-model --format native
minibert export runs/minibert st-model --format sentence-transformers --pooling cls
minibert push runs/minibert me/my-bert --license mit --dry_run
minibert push runs/minibert me/my-bert --private
minibert push runs/minibert/checkpoint-500 me/my-bert --revision step-500
"""
# Further examples for each task of `TASKS`.
TASK_EXAMPLES = """\
minibert finetune {task} --model runs/minibert --data folder/ --learning_rate 2e-4
minibert finetune {task} --data folder/ --plan true
minibert evaluate {task} --model runs/finetune --test test.jsonl
minibert evaluate {task} --model runs/finetune --data folder/ --output_dir runs/measured
minibert evaluate {task} --model runs/finetune --validation rows.csv --per_device_eval_batch_size 64
"""


@dataclasses.dataclass(frozen=True)
class Command:
    """One command of `minibert`."""

    # One line.
    help: str
    # "module:function" in `minibert.training`; it is called with all options as keywords.
    function: str
    # Parameters given by words without a flag; the last one may be a list.
    positional: tuple[str, ...] = ()
    # "module:Class", a dataclass whose fields are options; the function gets it as `args`.
    config: str = ""
    # Fixed keywords, which are not options.
    fixed_keywords: dict[str, Any] = dataclasses.field(default_factory=dict)
    # Defaults that differ from those in Python.
    defaults: dict[str, Any] = dataclasses.field(default_factory=dict)
    # "module:callable": further callables whose parameters are options.
    options: tuple[str, ...] = ()
    # Fields of the config that the help describes; by default all that are ours.
    described_fields: tuple[str, ...] = ()
    # Options of earlier versions, which still work, and their names today.
    former_names: dict[str, str] = dataclasses.field(default_factory=dict)


def task_commands() -> tuple[dict[str, Command], dict[str, Command]]:
    """`finetune TASK` and `evaluate TASK` for each of `TASKS`."""
    finetune = {}
    evaluate = {}
    for task_name, task in TASKS.items():
        task_class = f"finetuning.tasks.{task.reference}"
        finetune[f"finetune {task_name}"] = Command(
            f"Train a model to {task.purpose}.",
            "finetuning.finetune:finetune",
            config="finetuning.config:FinetuningConfig",
            fixed_keywords={"task": task_name},
            options=(task_class,),
        )
        evaluate[f"evaluate {task_name}"] = Command(
            f"Measure a model trained to {task.purpose}.",
            "finetuning.evaluate:evaluate",
            config="finetuning.config:EvaluationConfig",
            fixed_keywords={"task": task_name, **dict.fromkeys(task.training_options)},
            options=(task_class,),
            described_fields=EVALUATION_FIELDS,
        )
    return finetune, evaluate


FINETUNE_TASKS, EVALUATE_TASKS = task_commands()
COMMANDS = {
    "pretrain": Command(
        "Train a tokenizer and pretrain a model on text.",
        "pretraining.pretrain:pretrain",
        options=("data.corpus:Corpus",),
        config="pretraining.config:PretrainingConfig",
        former_names={"model": "preset"},
    ),
    "prepare": Command(
        "Tokenize and pack text once, for many trainings.",
        "pretraining.prepare:prepare",
        options=("data.corpus:Corpus",),
        config="pretraining.config:RowsConfig",
        fixed_keywords={"streaming": False, "shuffle_buffer": 0},
    ),
    "tokenizer": Command(
        "Train a tokenizer on text, or add words to one.",
        "pretraining.make_tokenizer:make_tokenizer",
        options=("data.corpus:Corpus",),
        config="pretraining.config:TokenizerConfig",
    ),
    "fill": Command(
        "Fill the masks in a text with a trained model.", "pretraining.fill:fill", ("text",)
    ),
    **FINETUNE_TASKS,
    "finetune embed": Command(
        "Train a model to turn texts into vectors.",
        "embeddings.finetune:finetune_embed",
        ("data",),
        "embeddings.finetune:EmbeddingConfig",
    ),
    "finetune rerank": Command(
        "Train a model to order passages by how well they answer a query.",
        "embeddings.finetune:finetune_rerank",
        ("data",),
        "embeddings.finetune:RerankerConfig",
    ),
    **EVALUATE_TASKS,
    "evaluate embed": Command(
        "Measure an embedding model.", "embeddings.evaluate:evaluate_embed", ("data",)
    ),
    "evaluate rerank": Command(
        "Measure a reranker.", "embeddings.evaluate:evaluate_rerank", ("data",)
    ),
    "predict": Command(
        "Predict with a fine-tuned model: labels, values, choices, entities, answers.",
        "finetuning.predict:predict",
        ("model", "data"),
        defaults={"output": "-"},
    ),
    "embed": Command(
        "Turn texts into vectors.",
        "embeddings.embed:embed",
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


def examples(command_name: str) -> list[str]:
    """Command lines of a command, for its help."""
    lines = EXAMPLES.splitlines()
    for task_name in TASKS:
        lines += TASK_EXAMPLES.format(task=task_name).splitlines()
    return [line for line in lines if f"{line} ".startswith(f"minibert {command_name} ")]
