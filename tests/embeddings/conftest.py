"""What the tests of embedding models share: random BERTs of Transformers that sentence-transformers saved with its own
modules and `minibert convert` converted. What sentence-transformers makes of the original is the reference.
"""

import random

import pytest
from embedding_models import (
    MAX_LENGTH,
    TOPICS,
    convert,
    random_bert,
    save_untrained,
    topic_pair,
    write_matches,
)
from helpers import WORDS, sentences, write_rows
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

from minibert.tokenization import train_tokenizer


@pytest.fixture(scope="session")
def tokenizer():
    return train_tokenizer(sentences(200), vocab_size=120, model_max_length=64, show_progress=False)


@pytest.fixture(scope="session")
def folders(tokenizer, tmp_path_factory):
    """For each pooling and with or without Normalize: sentence-transformers' folder, and it converted."""
    root = tmp_path_factory.mktemp("models")
    random_bert(tokenizer).save_pretrained(root / "bert")
    tokenizer.save_pretrained(root / "bert")
    made = {}
    for pooling in ("mean", "cls"):
        for normalize in (True, False):
            native = root / f"{pooling}-{normalize}"
            modules = [
                Transformer(str(root / "bert"), processor_kwargs={"model_max_length": MAX_LENGTH}),
                Pooling(32, pooling),
                *[Normalize()] * normalize,
            ]
            SentenceTransformer(modules=modules, device="cpu").save(str(native))
            made[pooling, normalize] = (
                str(native),
                convert(native, root / f"{pooling}-{normalize}-converted"),
            )
    return made


@pytest.fixture(scope="session")
def folder(folders):
    return folders["mean", True][1]


@pytest.fixture(scope="session")
def prompted(folders, tmp_path_factory):
    """The same with other prompts for queries than for documents: sentence-transformers' folder, and it converted."""
    root = tmp_path_factory.mktemp("prompted")
    prompts = {"query": "mizol nuben ", "document": "katan "}
    SentenceTransformer(folders["mean", True][0], prompts=prompts, device="cpu").save(
        str(root / "native")
    )
    return str(root / "native"), convert(root / "native", root / "converted")


@pytest.fixture
def library(tmp_path):
    folder = tmp_path / "library"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.txt").write_text("katan lover\nmizol\n\nnuben peduk\n\n\nriver\n")
    (folder / "deep" / "b.md").write_text(" ".join(WORDS[:25]))
    write_rows(
        folder / "c.jsonl",
        [{"_id": "c7", "title": "Katan", "text": "kazol kaben"}, {"text": "loduk"}],
    )
    (folder / ".hidden.txt").write_text("hidden")
    (folder / "d.log").write_text("no text of ours")
    return folder


@pytest.fixture(scope="session")
def toy(tmp_path_factory):
    """An untrained model, and pairs of a language in which the passage's topic follows from the query's."""
    root = tmp_path_factory.mktemp("toy")
    chance = random.Random(0)
    pairs = [topic_pair(chance, i % TOPICS) for i in range(600)]
    write_rows(root / "train.jsonl", [dict(query=q, positive=p) for q, p in pairs])
    held_out = [topic_pair(chance, topic) for topic in range(TOPICS)]
    write_matches(root / "test", *zip(*held_out))
    save_untrained(root / "model", [text for pair in pairs for text in pair], 16)
    return root
