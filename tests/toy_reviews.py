"""Made-up sentences that are good or bad, and about a film or not; and arguments of a short training on them."""

import random

import torch
from helpers import write_rows

from minibert import MiniBertConfig, train_tokenizer
from minibert.training.cli.parser import parse
from minibert.training.finetuning.command_options import make_task, resolve_options
from minibert.training.finetuning.config import FinetuningConfig
from minibert.training.finetuning.data import load_splits
from minibert.training.finetuning.finetune import finetune as finetune_function
from minibert.training.finetuning.tasks.classification import Classify
from minibert.training.finetuning.trainer import FinetuningTrainer

QUICK = [
    "--num_train_epochs", "1", "--learning_rate", "1e-2", "--disable_tqdm", "true", "--bf16", "false", "--use_cpu",
    "true", "--logging_steps", "1",
]  # fmt: skip
WORDS = ["ant", "bee", "cat", "dog", "eel", "fox"]
NOUNS, GOOD, BAD = (
    ("film", "book", "meal", "song"),
    ("great", "lovely", "fine"),
    ("awful", "dull", "poor"),
)


def sentences(count, seed=0):
    """(text, whether it is good, whether it is about a film)"""
    draw = random.Random(seed)
    for _ in range(count):
        noun, good = draw.choice(NOUNS), draw.random() < 0.5
        words = [
            "the",
            noun,
            "was",
            *(["very"] * draw.randrange(4)),
            draw.choice(GOOD if good else BAD),
        ]
        yield " ".join(words), good, noun == "film"


def prepare(task, *words):
    """The trainer of a command line `minibert finetune TASK`, before it trains."""
    _, keywords = parse(f"finetune {task}", [*map(str, words)])
    sources = {
        name: keywords.pop(name) for name in ("data", "train", "validation", "test", "columns")
    }
    model, size, args = (keywords.pop(name) for name in ("model", "validation_size", "args"))
    del keywords["task"], keywords["plan"]
    cls, options, args = resolve_options(finetune_function, task, args, keywords, FinetuningConfig)
    return FinetuningTrainer(
        make_task(cls, model, options), model, args, sources["train"], sources["validation"],
        sources["test"], validation_size=size, data=sources["data"], columns=sources["columns"],
    )  # fmt: skip


def finetune(task, *words):
    """What the Python function of a command line `minibert finetune TASK` returns."""
    function, keywords = parse(f"finetune {task}", [*map(str, words)])
    return function(**keywords)


def load(task=None, **sources):
    """The splits of files, for a task (by default to classify)."""
    return load_splits(task or Classify(None), **sources)


def six_rows(task_class, row, folder, arguments, **options):
    """A trainer on the rows of a function of their number, in one batch, with a model whose outputs differ."""
    torch.manual_seed(0)
    tokenizer = train_tokenizer(
        [" ".join(WORDS)] * 9, "wordpiece", 40, show_progress=False, model_max_length=16
    )
    file = write_rows(folder / "train.jsonl", [row(i) for i in range(6)])
    labelled = task_class(tokenizer, **arguments)
    labelled.read(load(train=[file], validation=[file]))
    config = MiniBertConfig.from_tokenizer(
        tokenizer, "bert", "tiny", num_hidden_layers=1, initializer_range=0.5, hidden_dropout=0.0,
        attention_dropout=0.0, **labelled.config_fields(),
    )  # fmt: skip
    options = {
        "per_device_train_batch_size": 6,
        "use_cpu": True,
        "report_to": "none",
        "bf16": False,
    } | options
    return FinetuningTrainer(
        task_class(tokenizer, **arguments),
        task_class.model_class(config).train(),
        FinetuningConfig(str(folder), **options),
        train_dataset=[file],
        eval_dataset=[file],
    )
