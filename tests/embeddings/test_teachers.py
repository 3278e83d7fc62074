"""`--teacher`: a student learns what a larger model gives, which is computed before training."""

import json
import re

import numpy as np
import pytest
import torch
from datasets import Dataset
from embedding_models import TRAINING, save_untrained
from helpers import refusal, run, write_rows
from sentence_transformers import CrossEncoder, SentenceTransformer, SparseEncoder

from minibert import MiniBertForSequenceClassification
from minibert.training.embeddings.trainers.teachers import fit_width, teach

TAUGHT = [*TRAINING, "--num_train_epochs", "3"]


@pytest.fixture(scope="module")
def teachers(toy, tmp_path_factory):
    """An embedding model, one that is wider, and a reranker with large weights, none of them trained."""
    root = tmp_path_factory.mktemp("teachers")
    rows = [json.loads(line) for line in (toy / "train.jsonl").read_text().splitlines()]
    texts = [text for row in rows for text in row.values()]
    save_untrained(root / "embedder", texts, 16)
    save_untrained(root / "wide", texts, 16, hidden_size=96, num_attention_heads=4)
    save_untrained(
        root / "reranker", texts, 16, model_class=MiniBertForSequenceClassification, num_labels=1
    )
    model = CrossEncoder(str(root / "reranker"), device="cpu")
    with torch.no_grad():
        model.model.classifier.weight.normal_(0, 3, generator=torch.Generator().manual_seed(0))
    model.save_pretrained(str(root / "reranker"))
    return root


@pytest.mark.slow
def test_a_student_learns_the_vectors_of_its_teacher(toy, tmp_path):
    """Without a pair being judged: of texts alone, with scores that say nothing."""
    run("finetune", "embed", toy / "train.jsonl", "--model", toy / "model", "--output_dir", tmp_path / "embedder",
        "--validation", toy / "test", "--num_train_epochs", "3", *TRAINING)  # fmt: skip
    rows = [json.loads(line) for line in (toy / "train.jsonl").read_text().splitlines()]
    rows = [
        dict(sentence1=row["query"], sentence2=row["positive"], score=i % 2)
        for i, row in enumerate(rows)
    ]
    run("finetune", "embed", write_rows(tmp_path / "rows.jsonl", rows), "--model", toy / "model", "--teacher",
        tmp_path / "embedder", "--output_dir", tmp_path / "out", *TAUGHT)  # fmt: skip
    queries = [row["sentence1"] for row in rows[:50]]
    start, end, aim = (
        SentenceTransformer(str(path), device="cpu").encode(queries, normalize_embeddings=True)
        for path in (toy / "model", tmp_path / "out", tmp_path / "embedder")
    )
    assert (end * aim).sum(1).mean() > (start * aim).sum(1).mean() + 0.2
    assert {"teacher", "before", "after"} <= json.loads(
        (tmp_path / "out/report.json").read_text()
    ).keys()


def test_labels_are_the_teachers(toy, teachers):
    """Against sentence-transformers: vectors of queries and documents with their prompts, scores, margins."""
    student = SentenceTransformer(str(toy / "model"), device="cpu")
    embedder = SentenceTransformer(str(teachers / "embedder"), device="cpu")
    embedder.prompts = {"query": "w1 ", "document": "w2 w3 "}
    reranker = CrossEncoder(str(teachers / "reranker"), device="cpu")
    texts = [[f"ask{i}", f"tell{i} w1", f"tell{i + 1}"] for i in range(12)]
    triples = Dataset.from_list([dict(zip(("first", "second", "third"), row)) for row in texts])
    vectors = np.array(teach(embedder, triples, student, "vectors", False)["label"])
    for place, encode, name in (
        (0, embedder.encode_query, "first"),
        (2, embedder.encode_document, "third"),
    ):
        np.testing.assert_allclose(
            vectors[:, place], encode(triples[name][:], normalize_embeddings=True), atol=1e-5
        )
    right, wrong = (reranker.predict([(row[0], row[place]) for row in texts]) for place in (1, 2))
    taught = np.array(teach(reranker, triples, student, "margins", False)["label"])
    np.testing.assert_allclose(taught, np.stack([right, wrong], 1), atol=1e-5)
    sparse = SparseEncoder(str(toy / "model"), device="cpu")
    logits = np.array(teach(reranker, triples, sparse, "margins", False)["label"])
    np.testing.assert_allclose(1 / (1 + np.exp(-logits)), taught, atol=1e-5)


def test_wider_vectors_keep_most_of_their_dot_products():
    vectors = np.random.default_rng(0).normal(size=(50, 2, 4)) @ np.random.default_rng(1).normal(
        size=(4, 12)
    )
    vectors = (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)
    flat, fitted = vectors.reshape(100, 12), fit_width(vectors, 4).reshape(100, 4)
    np.testing.assert_allclose(fitted @ fitted.T, flat @ flat.T, atol=1e-5)


@pytest.mark.parametrize("kind", ["dense", pytest.param("multi-vector", marks=pytest.mark.slow)])
def test_a_student_learns_margins(toy, teachers, tmp_path, kind):
    rows = [
        dict(query=f"ask{i}", positive=f"tell{i}", negative=f"tell{i + 1} w1") for i in range(40)
    ]
    run("finetune", "embed", write_rows(tmp_path / "triples.jsonl", rows), "--model", toy / "model", "--teacher",
        teachers / "reranker", "--output_dir", tmp_path / "out", *TRAINING, "--max_steps", "2",
        "--kind", kind)  # fmt: skip
    assert json.loads((tmp_path / "out/report.json").read_text())["steps"] == 2


@pytest.mark.slow
def test_a_reranker_learns_the_scores_of_its_teacher(toy, teachers, tmp_path):
    run("finetune", "rerank", toy / "train.jsonl", "--model", toy / "model", "--teacher", teachers / "reranker",
        "--output_dir", tmp_path / "out", *TAUGHT)  # fmt: skip
    pairs = [(f"ask{i} w1", f"tell{i % 5} w{i}") for i in range(60)]
    aim, end = (
        CrossEncoder(str(path), device="cpu").predict(pairs, activation_fn=torch.nn.Identity())
        for path in (teachers / "reranker", tmp_path / "out")
    )
    assert np.corrcoef(aim, end)[0, 1] > 0.5


def test_teachers_that_cannot_teach_are_refused(toy, teachers, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        "sentence_transformers.base.trainer.BaseTrainer.train",
        lambda *_, **__: pytest.fail("trains"),
    )
    (tmp_path / "same").symlink_to(toy / "model")
    save_untrained(
        tmp_path / "classes",
        ["a b c"] * 9,
        16,
        model_class=MiniBertForSequenceClassification,
        num_labels=3,
    )
    sparse = SparseEncoder(str(toy / "model"), device="cpu")
    sparse.save_pretrained(str(tmp_path / "sparse"))
    wide, reranker, pairs = teachers / "wide", teachers / "reranker", toy / "train.jsonl"
    for task, arguments, words in [
        ("embed", ["--teacher", tmp_path / "same"], "is the model that is trained"),
        ("embed", ["--teacher", tmp_path / "classes"], "is neither a reranker with one score"),
        ("embed", ["--teacher", tmp_path / "sparse"], "nor a dense embedding model"),
        (
            "embed",
            ["--teacher", toy / "model", "--model", wide],
            "vectors have 64 numbers, the model's 96",
        ),
        (
            "embed",
            ["--teacher", wide, "--kind", "sparse"],
            "it is an embedding model, whose vectors --kind",
        ),
        ("embed", ["--teacher", reranker], "a reranker teaches by triples"),
        (
            "embed",
            ["--teacher", wide, "--loss", "TripletLoss"],
            "not a loss for dense vectors from labels of the kind",
        ),
        ("rerank", ["--teacher", wide], "is neither a reranker with one score"),
    ]:
        given = ["--model", toy / "model", "--output_dir", tmp_path / "out", *TRAINING, *arguments]
        assert re.search(words, refusal(capsys, "finetune", task, pairs, *given)), words
    assert not (tmp_path / "out").exists()


def test_a_metric_that_is_not_measured_is_refused_before_the_teacher_works(
    toy, teachers, tmp_path, capsys, monkeypatch
):
    trainer_module = "minibert.training.embeddings.trainers.embedding_trainer"
    monkeypatch.setattr(f"{trainer_module}.teach", lambda *_: pytest.fail("teaches"))
    arguments = ["--model", toy / "model", "--output_dir", tmp_path / "out", *TRAINING]
    metric = ["--teacher", teachers / "wide", "--metric_for_best_model", "recal"]
    message = refusal(capsys, "finetune", "embed", toy / "train.jsonl", *arguments, *metric)
    assert "metric_for_best_model: 'recal' is not measured" in message

    monkeypatch.setattr(f"{trainer_module}.split_pairs", lambda *_: pytest.fail("reads"))
    teacher = ["--teacher", toy / "model"]
    message = refusal(capsys, "finetune", "embed", toy / "train.jsonl", *arguments, *teacher)
    assert "is the model that is trained" in message
