"""Rows in memory stay private: neither the card, which is uploaded, nor the report has a text of theirs.

The card shows one held-out row as its example, which `--help` says; so the rows here are those of the training.
"""

import shutil

import pandas as pd
import pytest
from datasets import Dataset
from helpers import save_model, write_rows

from minibert import (
    Classify,
    Corpus,
    FinetuningConfig,
    FinetuningTrainer,
    MiniBertConfig,
    PretrainingConfig,
    PretrainingTrainer,
    train_tokenizer,
)
from minibert.training.embeddings.config import EmbeddingConfig, RerankerConfig
from minibert.training.embeddings.trainers.embedding_trainer import DenseTrainer
from minibert.training.embeddings.trainers.reranker_trainer import RerankerTrainer
from minibert.training.embeddings.trainers.setups import EmbeddingSetup, RerankingSetup

PRIVATE = "zyxwv"  # in every text of the training rows
TEXTS = [f"{PRIVATE} patient {number} is ill" for number in range(24)]
HELD_OUT_TEXTS = [f"visitor {number} is well" for number in range(12)]
ROW_TYPES = [list, Dataset.from_list, pd.DataFrame]
SETTINGS = {
    "max_steps": 1,
    "use_cpu": True,
    "bf16": False,
    "disable_tqdm": True,
    "report_to": "none",
}
SHAPE = {"hidden_size": 32, "max_position_embeddings": 32}


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([*TEXTS, *HELD_OUT_TEXTS], vocab_size=100, show_progress=False)


@pytest.fixture(scope="module")
def model(tokenizer, tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model"), tokenizer, "modernbert", **SHAPE)


def finetuning_trainer(make_rows, model, tokenizer, folder):
    train = [{"text": text, "label": "ab"[index % 2]} for index, text in enumerate(TEXTS)]
    held_out = [{"text": text, "label": "ab"[i % 2]} for i, text in enumerate(HELD_OUT_TEXTS)]
    return FinetuningTrainer(
        Classify(tokenizer),
        model,
        FinetuningConfig(folder, **SETTINGS),
        train_dataset=make_rows(train),
        eval_dataset=make_rows(held_out),
        test_dataset=make_rows(held_out),
    )


def embedding_trainer(make_rows, model, tokenizer, folder):
    setup = EmbeddingSetup(
        data=make_rows(pairs_of(TEXTS)), validation=make_rows(pairs_of(HELD_OUT_TEXTS)), model=model
    )
    return DenseTrainer(setup, EmbeddingConfig(folder, **SETTINGS))


def reranker_trainer(make_rows, model, tokenizer, folder):
    setup = RerankingSetup(
        data=make_rows(pairs_of(TEXTS)), validation=make_rows(pairs_of(HELD_OUT_TEXTS)), model=model
    )
    return RerankerTrainer(setup, RerankerConfig(folder, **SETTINGS))


def pretraining_trainer(make_rows, model, tokenizer, folder):
    return PretrainingTrainer(
        MiniBertConfig(**SHAPE, num_hidden_layers=1, num_attention_heads=2),
        PretrainingConfig(folder, seq_length=32, **SETTINGS),
        train_dataset=make_rows([{"text": text} for text in TEXTS]),
        eval_dataset=make_rows([{"text": text} for text in HELD_OUT_TEXTS]),
        processing_class=tokenizer,
    )


def pairs_of(texts):
    return [{"query": text, "positive": f"{text}, once more"} for text in texts]


@pytest.mark.parametrize("make_rows", ROW_TYPES, ids=["dictionaries", "Dataset", "DataFrame"])
@pytest.mark.parametrize(
    "make_trainer",
    [finetuning_trainer, embedding_trainer, reranker_trainer, pretraining_trainer],
    ids=["fine-tuning", "embeddings", "reranker", "pretraining"],
)
def test_no_text_of_a_row_in_card_or_report(make_trainer, make_rows, model, tokenizer, tmp_path):
    trainer = make_trainer(make_rows, model, tokenizer, str(tmp_path))
    trainer.train()
    if not isinstance(trainer, PretrainingTrainer):  # it measures while it saves
        trainer.measure()
    trainer.save_model()
    card = (tmp_path / "README.md").read_text()
    reports = [path.read_text() for path in tmp_path.glob("*.json") if is_report(path.name)]
    assert len(card) > 500 and reports
    for text in [card, *reports, repr(trainer.card), repr(trainer.report)]:
        assert PRIVATE not in text


def finetuning_trainer_of_folder(model, tokenizer, folder):
    return FinetuningTrainer(
        Classify(tokenizer), model, FinetuningConfig(folder, **SETTINGS), data="patients/ward"
    )


def embedding_trainer_of_folder(model, tokenizer, folder):
    setup = EmbeddingSetup(data="patients/ward", pairs_from=["title"], model=model)
    return DenseTrainer(setup, EmbeddingConfig(folder, validation_size=4, **SETTINGS))


def pretraining_trainer_of_folder(model, tokenizer, folder):
    return PretrainingTrainer(
        MiniBertConfig(**SHAPE, num_hidden_layers=1, num_attention_heads=2),
        PretrainingConfig(folder, seq_length=32, **SETTINGS),
        train_dataset=Corpus("patients/ward"),
        processing_class=tokenizer,
    )


@pytest.mark.parametrize(
    "make_trainer",
    [finetuning_trainer_of_folder, embedding_trainer_of_folder, pretraining_trainer_of_folder],
    ids=["fine-tuning", "embeddings", "pretraining"],
)
def test_no_folder_above_the_data_in_card(make_trainer, model, tokenizer, tmp_path, monkeypatch):
    """…although `patients/ward` looks like a data set of the Hub when it is gone."""
    ward = tmp_path / "patients" / "ward"
    ward.mkdir(parents=True)
    rows = []
    for index, text in enumerate(TEXTS + HELD_OUT_TEXTS):
        rows.append({"title": f"number {index}", "text": text, "label": "ab"[index % 2]})
    write_rows(ward / "train.jsonl", rows)
    monkeypatch.chdir(tmp_path)
    trainer = make_trainer(model, tokenizer, str(tmp_path / "out"))
    shutil.rmtree(ward.parent)
    trainer.train()
    if not isinstance(trainer, PretrainingTrainer):
        trainer.measure()
    trainer.save_model()
    card = (tmp_path / "out" / "README.md").read_text()
    assert "ward" in card and "patients" not in card


def is_report(name: str) -> bool:
    """Whether a file of a model's folder says something of the training."""
    return not name.startswith("tokenizer") and name != "config.json"
