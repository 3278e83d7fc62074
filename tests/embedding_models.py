"""Embedding models to test with, and what they are measured on."""

import random

import torch
from helpers import save_model, write_rows
from transformers import BertConfig, BertModel

from minibert import MiniBertForMaskedLM
from minibert.tokenization import train_tokenizer
from minibert.training import cli

MAX_LENGTH = 12
OPTIONS = ["--disable_tqdm", "true", "--bf16", "false", "--use_cpu", "true"]
TRAINING = [
    *OPTIONS,
    "--learning_rate",
    "3e-3",
    "--per_device_train_batch_size",
    "24",
    "--logging_steps",
    "5",
]
TOPICS = 24


def random_bert(tokenizer, model_class=BertModel, seed: int = 0, **fields):
    """Weights large enough for every detail to show in the vectors."""
    torch.manual_seed(seed)
    shape = dict(hidden_size=32, num_hidden_layers=5, num_attention_heads=4, intermediate_size=48)
    config = BertConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=64,
        initializer_range=0.3,
        **shape | fields,
    )
    return model_class(config).eval()


def convert(source, target) -> str:
    assert cli.main(["convert", str(source), str(target)]) == 0
    return str(target)


def save_untrained(
    folder, texts, length: int, vocab_size=400, model_class=MiniBertForMaskedLM, **fields
) -> None:
    """A small model and a tokenizer for a toy language."""
    tokenizer = train_tokenizer(
        texts, vocab_size=vocab_size, model_max_length=length, show_progress=False
    )
    shape = dict(hidden_size=64, max_position_embeddings=length)
    save_model(
        folder,
        tokenizer,
        "modernbert",
        model_class.__name__.removeprefix("MiniBert"),
        **shape | fields,
    )


def write_matches(folder, queries, passages) -> None:
    """A retrieval folder: each query and the passage of its number."""
    folder.mkdir()
    write_rows(
        folder / "corpus.jsonl", [dict(_id=f"d{i}", text=text) for i, text in enumerate(passages)]
    )
    write_rows(
        folder / "queries.jsonl", [dict(_id=f"q{i}", text=text) for i, text in enumerate(queries)]
    )
    rows = [f"q{i},d{i},1" for i in range(len(queries))]
    (folder / "qrels.csv").write_text("\n".join(["query-id,corpus-id,score", *rows]) + "\n")


def topic_pair(chance: random.Random, topic: int) -> tuple[str, str]:
    """A query and a passage about a topic, in words that they do not share; the rest is noise of both."""
    noise = [f"w{chance.randrange(30)}" for _ in range(6)]
    query = [f"ask{topic}", *noise[:3]]
    passage = [f"tell{topic}", *noise[3:]]
    chance.shuffle(query)
    chance.shuffle(passage)
    return " ".join(query), " ".join(passage)
