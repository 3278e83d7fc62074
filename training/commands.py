"""The table of the commands of `minibert`; `cli` makes options of their functions. Nothing heavy is imported here."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Command:
    """One command of `minibert`.

    Args:
        help: one line.
        function: "module:function" in `minibert.training`. It is called with all options as keywords, and with `args`,
            an instance of `config`, if there is one.
        positional: parameters that words without a flag belong to, in this order; the last one may be a list.
        preset: keywords that are no options (`task="tag"`).
        defaults: of options, where the command line has others than Python.
        options: "module:callable", further callables whose parameters are options too, given to `function` as well.
        config: "module:Class", a `TrainingArguments` whose fields are options, where the command trains.
        examples: command lines for the help.
    """

    help: str
    function: str
    positional: tuple[str, ...] = ()
    preset: dict[str, Any] = dataclasses.field(default_factory=dict)
    defaults: dict[str, Any] = dataclasses.field(default_factory=dict)
    options: tuple[str, ...] = ()
    config: str = ""
    examples: str = ""


TASKS = {
    "classify": "classify texts or pairs of texts: one class, several labels or a value",
    "nli": "tell whether a premise entails a hypothesis",
    "choose": "choose one of several continuations or answers",
    "tag": "tag words: entities, parts of speech",
    "answer": "answer questions with a part of a text",
    "embed": "turn texts into vectors",
    "rerank": "order passages by how well they answer a query",
}
# Those of `finetuning` by name, with the class whose parameters are options, and an example.
FINETUNING = {
    "classify": ("classification:Classify", "classify --data reviews/ --labels bad good"),
    "nli": ("classification:Nli", "nli --train snli.jsonl --max_length 128"),
    "choose": ("choice:Choose", "choose --train swag.csv --choice_columns ending0 ending1 ending2 ending3"),
    "tag": ("tagging:Tag", "tag --data entities/ --tags_column ner_tags"),
    "answer": ("answering:AnswerQuestions", "answer --train train-v2.0.json --test dev-v2.0.json"),
}
COMMANDS = {
    "pretrain": Command(
        "Train a tokenizer and pretrain a model on text.",
        "pretraining.run:pretrain",
        config="pretraining.config:PretrainingConfig",
        examples="""\
minibert pretrain
minibert pretrain --data my-text/ --size small --minutes 30 --output_dir runs/half-hour
minibert pretrain --recipe bert-classic --data de=de.txt fr=fr.txt --config_overrides "num_hidden_layers=6"
""",
    ),
    "prepare": Command(
        "Tokenize and pack text once, in parquet shards that trainings read.",
        "pretraining.prepare:prepare",
        examples="""\
minibert prepare --data my-text/ --output_dir runs/rows
minibert prepare --data corpus.jsonl --text_column body --seq_length 1024 --num_proc 8
minibert prepare --data de=german/ fr=french/ --tokenizer runs/tokenizer --output_dir runs/rows
""",
    ),
    "tokenizer": Command(
        "Train a tokenizer on text, or add words to a trained one.",
        "pretraining.tokenizer:make_tokenizer",
        examples="""\
minibert tokenizer --data my-text/ --vocab_size 16384
minibert tokenizer --data de=german/ hi=hindi.txt --algorithm unigram
minibert tokenizer --data reports/*.txt --extend bert-base-uncased --extend_vocabulary 500
""",
    ),
    "fill": Command(
        "Fill the masks in a text with a trained model.",
        "pretraining.fill:fill",
        ("text",),
        examples="""\
minibert fill "Paris is the [MASK] of France." --model runs/minibert
minibert fill "The [MASK] sat on the [MASK]." --model answerdotai/ModernBERT-base --top_k 3
minibert fill "One [MASK]." "Another [MASK]."
""",
    ),
    **{
        f"finetune {task}": Command(
            f"Train a model to {TASKS[task]}.",
            "finetuning.run:finetune",
            preset={"task": task},
            options=(f"finetuning.tasks.{cls}",),
            config="finetuning.config:FinetuningConfig",
            examples=f"""\
minibert finetune {example}
minibert finetune {task} --model runs/minibert --data folder/ --num_train_epochs 5 --learning_rate 2e-4
minibert finetune {task} --data folder/ --plan true
""",
        )
        for task, (cls, example) in FINETUNING.items()
    },
    **{
        f"evaluate {task}": Command(
            f"Measure a model trained to {TASKS[task]}.",
            "finetuning.run:evaluate",
            preset={"task": task},
            options=(f"finetuning.tasks.{cls}",),
            config="finetuning.config:EvaluationConfig",
            examples=f"""\
minibert evaluate {task} --model runs/finetune --test test.jsonl
minibert evaluate {task} --model runs/finetune --data folder/ --output_dir runs/measured
minibert evaluate {task} --model runs/finetune --validation rows.csv --per_device_eval_batch_size 64
""",
        )
        for task, (cls, _) in FINETUNING.items()
    },
    "finetune embed": Command(
        f"Train a model to {TASKS['embed']}.",
        "embeddings.train:finetune_embed",
        ("data",),
        config="embeddings.train:EmbeddingConfig",
        examples="""\
minibert finetune embed pairs.jsonl --model runs/minibert
minibert finetune embed notes/ --pairs_from title adjacent --num_train_epochs 3
minibert finetune embed triples.csv --validation test-folder/ --kind sparse
minibert finetune embed notes/ --pairs_from title --model small-model --teacher large-model""",
    ),
    "finetune rerank": Command(
        f"Train a model to {TASKS['rerank']}.",
        "embeddings.train:finetune_rerank",
        ("data",),
        config="embeddings.train:RerankerConfig",
        examples="""\
minibert finetune rerank pairs.jsonl --model runs/minibert
minibert finetune rerank pairs.jsonl --miner runs/embed --negatives 5
minibert finetune rerank pairs.jsonl --corpus notes/ --max_length 256""",
    ),
    "evaluate embed": Command(
        f"Measure a model trained to {TASKS['embed']}.",
        "embeddings.evaluate:evaluate_embed",
        ("data",),
        examples="""\
minibert evaluate embed test-folder/ --model runs/embed
minibert evaluate embed --tasks STSBenchmark NanoBEIR
minibert evaluate embed sts.csv --columns first second gold --result scores.json
minibert evaluate embed test-folder/ --model sentence-transformers/all-MiniLM-L6-v2 --max_length 128""",
    ),
    "evaluate rerank": Command(
        f"Measure a model trained to {TASKS['rerank']}.",
        "embeddings.evaluate:evaluate_rerank",
        ("data",),
        examples="""\
minibert evaluate rerank test-folder/ --model runs/rerank --embedder runs/embed
minibert evaluate rerank test-folder/ --depth 50 --result scores.json
minibert evaluate rerank test-folder/ --model runs/rerank --embedder runs/embed --split validation""",
    ),
    "embed": Command(
        "Turn texts into vectors.",
        "embeddings.encoders:embed",
        ("text",),
        defaults={"file": "-", "output": "embeddings.safetensors"},
        examples="""\
minibert embed "a text" "another one" --model runs/embed
minibert embed --file lines.txt --output vectors.npy
minibert embed --file table.csv --column title --max_length 128""",
    ),
    "search": Command(
        "Build an index over text and find the passages nearest to queries.",
        "embeddings.search:search",
        ("index", "queries"),
        examples="""\
minibert search my-index --data notes/ --model runs/embed
minibert search my-index "how to bake bread" "bridges" --top_k 3
minibert search my-index "how to bake bread" --reranker runs/rerank""",
    ),
    "rerank": Command(
        "Order passages by how well they answer a query.",
        "embeddings.search:rerank",
        ("query", "passages"),
        examples="""\
minibert rerank "how to bake bread" "Knead the dough." "A bridge spans a river." --model runs/rerank
minibert rerank "how to bake bread" --file passages.txt --top_k 5
minibert rerank "how to bake bread" --file - --model cross-encoder/ms-marco-MiniLM-L6-v2""",
    ),
    "convert": Command(
        "Convert a model between MiniBERT and BERT, ModernBERT, RoBERTa and their like.",
        "conversion.folders:convert",
        ("source", "target"),
        examples="""\
minibert convert bert-base-uncased my-minibert
minibert convert my-minibert my-bert
minibert convert bert-base-uncased long --set position_embedding_type=rope max_position_embeddings=4096""",
    ),
    "export": Command(
        "Write a MiniBERT for other runtimes: ONNX, Transformers' own classes, sentence-transformers.",
        "export:export",
        ("source", "target"),
        examples="""\
minibert export runs/embed onnx-model
minibert export runs/minibert bert-model --format native
minibert export runs/minibert st-model --format sentence-transformers --pooling cls""",
    ),
    "push": Command(
        "Check a saved model as a stranger would load it, and publish it on the Hub.",
        "hub.push:push",
        ("folder", "repository"),
        examples="""\
minibert push runs/minibert me/my-bert --license mit --dry_run
minibert push runs/minibert me/my-bert --private
minibert push runs/minibert/checkpoint-500 me/my-bert --revision step-500
""",
    ),
}
