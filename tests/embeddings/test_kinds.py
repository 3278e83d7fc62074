"""`minibert finetune embed --kind`: sentence-transformers opens what is saved; losses by name."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from embedding_models import TRAINING
from helpers import refusal, run, write_rows
from sentence_transformers import MultiVectorEncoder, SentenceTransformer, SparseEncoder

from minibert.training.embeddings.config import EmbeddingConfig
from minibert.training.embeddings.encoders import open_encoder
from minibert.training.embeddings.inference import encode
from minibert.training.embeddings.measuring.evaluators import HeldOutEvaluator
from minibert.training.embeddings.measuring.held_out import score_embeddings
from minibert.training.embeddings.measuring.retrieval import Retrieval
from minibert.training.embeddings.printing import print_table
from minibert.training.embeddings.trainers import losses
from minibert.training.embeddings.trainers.embedding_trainer import DenseTrainer
from minibert.training.embeddings.trainers.losses import find_loss, make_loss
from minibert.training.embeddings.trainers.setups import EmbeddingSetup

TEXTS = ["ask1 w1", "tell3 w2 w5 w1", "ask7"]
FEW = [*TRAINING, "--max_steps", "10"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "library"), [("sparse", SparseEncoder), ("multi-vector", MultiVectorEncoder)]
)
def test_a_kind_is_trained_saved_and_opened(toy, tmp_path, kind, library):
    output, onnx = tmp_path / "out", tmp_path / "onnx"
    run("finetune", "embed", toy / "train.jsonl", "--model", toy / "model", "--output_dir", output, "--kind", kind,
        "--validation", toy / "test", *TRAINING, "--max_steps", "100")  # fmt: skip
    report = json.loads((output / "report.json").read_text())
    assert report["after"]["ndcg@10"] > report["before"]["ndcg@10"]
    run("evaluate", "embed", toy / "test", "--model", output, "--result", tmp_path / "after.json")
    assert json.loads((tmp_path / "after.json").read_text())["metrics"] == pytest.approx(
        report["after"]
    )
    card = (output / "README.md").read_text()
    assert (
        f"from sentence_transformers import {library.__name__}\n" in card
        and "sentence-transformers" in card
    )
    model = library(str(output), device="cpu")
    found, corpus = (
        [],
        [json.loads(line)["text"] for line in (toy / "test/corpus.jsonl").read_text().splitlines()],
    )
    for query in (toy / "test/queries.jsonl").read_text().splitlines():  # by the library alone
        scores = model.similarity(
            model.encode_query([json.loads(query)["text"]]), model.encode_document(corpus)
        )
        found.append(scores.argmax().item())
    assert (
        np.mean([place == number for number, place in enumerate(found)]) == report["after"]["hit@1"]
    )
    run("export", output, onnx)
    np.testing.assert_allclose(of_graph(onnx, model, kind), vectors_of(model, kind), atol=1e-4)


def vectors_of(model, kind) -> np.ndarray:
    with torch.no_grad():
        features = model.preprocess(TEXTS)
        output = model(features)
    return (
        output["sentence_embedding"] if kind == "sparse" else output["token_embeddings"]
    ).numpy()


def of_graph(folder, model, kind) -> np.ndarray:
    """What onnxruntime makes of the texts, and the modules after the encoder of that."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(folder / "onnx/model.onnx"))
    batch = model.tokenizer(TEXTS, padding=True, return_tensors="pt")
    given = {each.name: batch[each.name].numpy() for each in session.get_inputs()}
    features = {"token_embeddings": torch.from_numpy(session.run(None, given)[0]), **batch}
    with torch.no_grad():
        for module in [*model][1:]:
            features = module(features)
    return (
        features["sentence_embedding"] if kind == "sparse" else features["token_embeddings"]
    ).numpy()


@pytest.mark.slow
def test_matryoshka_dimensions(toy, tmp_path, capsys):
    run("finetune", "embed", toy / "train.jsonl", "--model", toy / "model", "--output_dir", tmp_path / "out", *FEW,
        "--validation", toy / "test", "--matryoshka_dims", "16", "8")  # fmt: skip
    report = json.loads((tmp_path / "out/report.json").read_text())
    short = SentenceTransformer(str(tmp_path / "out"), device="cpu", truncate_dim=16)
    assert short.encode(TEXTS).shape == (3, 16)
    assert report["after, first 16"]["ndcg@10"] > report["before"]["ndcg@10"]
    assert report["after"] != report["after, first 16"] != report["after, first 8"]
    whole = open_encoder(str(tmp_path / "out"))
    theirs = SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(encode(whole, TEXTS), theirs, atol=1e-5)


def test_vectors_are_whole_after_an_error_in_a_measurement(toy, tmp_path, monkeypatch):
    args = EmbeddingConfig(tmp_path / "out", use_cpu=True, bf16=False, disable_tqdm=True)
    data = str(toy / "train.jsonl")
    setup = EmbeddingSetup(data=data, model=str(toy / "model"), matryoshka_dims=[16])
    trainer = DenseTrainer(setup, args)
    lengths = []

    def fail(self, model, **_):
        lengths.append(model.encode(TEXTS).shape[1])
        raise RuntimeError("no memory")

    monkeypatch.setattr(HeldOutEvaluator, "__call__", fail)
    with pytest.raises(RuntimeError, match="no memory"):
        trainer.measure()
    assert lengths == [16]
    assert trainer.model.encode(TEXTS).shape[1] == 64


def test_sparse_vectors_learn_scores(toy, tmp_path):
    rows = [
        dict(sentence1=f"ask{i % 9} w{i}", sentence2=f"tell{i % 9}", score=i % 3) for i in range(60)
    ]
    run("finetune", "embed", write_rows(tmp_path / "rows.jsonl", rows), "--model", toy / "model", "--kind", "sparse",
        "--output_dir", tmp_path / "out", *TRAINING, "--max_steps", "2", "--validation_size", "20")  # fmt: skip
    after = json.loads((tmp_path / "out/report.json").read_text())["after"]
    assert after.keys() == {"spearman", "pearson", "active_dims"}


@pytest.mark.parametrize(("name", "rows"), [
    ("MultipleNegativesSymmetricRankingLoss", dict(positive="tell")),
    ("TripletLoss", dict(positive="tell", negative="none")),
    ("AnglELoss", dict(sentence2="tell", score=1.0)),
])  # fmt: skip
def test_losses_by_name(toy, tmp_path, name, rows):
    first = "sentence1" if "score" in rows else "query"
    rows = [
        {first: f"ask{i}"} | {k: i % 2 if k == "score" else f"{v}{i}" for k, v in rows.items()}
        for i in range(40)
    ]
    more = ["--loss_kwargs", '{"triplet_margin": 0.5}'] if name == "TripletLoss" else []
    run("finetune", "embed", write_rows(tmp_path / "rows.jsonl", rows), "--model", toy / "model", "--output_dir",
        tmp_path / "out", *TRAINING, "--max_steps", "2", "--loss", name, *more)  # fmt: skip
    assert json.loads((tmp_path / "out/report.json").read_text())["steps"] == 2


def test_negatives_are_gathered_where_there_are_several_processes(toy, monkeypatch):
    model = SparseEncoder(str(toy / "model"), device="cpu")
    for num_processes, gathers in ((1, False), (2, True)):
        state = SimpleNamespace(num_processes=num_processes)
        monkeypatch.setattr(losses, "PartialState", lambda state=state: state)
        loss = make_loss(model, "sparse", find_loss("auto", "sparse", "none"), None, ())
        assert loss.loss.gather_across_devices is gathers


def test_a_loss_has_its_arguments(toy):
    model, given = (
        SparseEncoder(str(toy / "model"), device="cpu"),
        '{"scale": 3, "document_regularizer_weight": 0.1}',
    )
    loss = make_loss(model, "sparse", find_loss("auto", "sparse", "none"), given, ())
    assert (loss.loss.scale, loss.document_regularizer_weight, loss.query_regularizer_weight) == (
        3.0,
        0.1,
        5e-5,
    )


def test_incompatible_options_are_refused_before_training(
    toy, folder, tmp_path, capsys, monkeypatch
):
    scored = write_rows(
        tmp_path / "scored.jsonl",
        [dict(sentence1=f"a{i}", sentence2="b", score=1) for i in range(40)],
    )
    pairs = toy / "train.jsonl"
    monkeypatch.setattr(
        "sentence_transformers.base.trainer.BaseTrainer.train",
        lambda *_, **__: pytest.fail("trains"),
    )
    for arguments, words in [
        (
            [pairs, "--model", folder, "--kind", "sparse"],
            ["kind: sparse vectors are made by a masked-LM head"],
        ),
        (
            [pairs, "--kind", "sparse", "--pooling", "cls"],
            ["kind: sparse has no vector of a text to pool or cut"],
        ),
        (
            [pairs, "--kind", "multi-vector", "--matryoshka_dims", "8"],
            ["kind: multi-vector has no vector"],
        ),
        ([scored, "--kind", "multi-vector"], ["no loss that trains multi-vector on scores"]),
        ([pairs, "--matryoshka_dims", "65"], ["cannot exceed", "64"]),
        (
            [pairs, "--loss", "RankingLoss"],
            ["loss: 'RankingLoss' is not a loss for", "MultipleNegativesRankingLoss"],
        ),
        ([pairs, "--loss", "MSELoss"], ["loss: 'MSELoss' is not a loss for"]),
        ([pairs, "--loss", "GISTEmbedLoss"], ["does not fit GISTEmbedLoss", "guide"]),
        ([pairs, "--loss_kwargs", "{"], ["loss_kwargs: '{' does not fit"]),
        ([pairs, "--loss_kwargs", "3"], ["loss_kwargs: '3' does not fit"]),
        (
            [pairs, "--loss_kwargs", '{"margin": 1}'],
            ["does not fit MultipleNegativesRankingLoss", "margin"],
        ),
    ]:
        given = ["--model", toy / "model", "--output_dir", tmp_path / "out", *TRAINING, *arguments]
        error = refusal(capsys, "finetune", "embed", *given)
        assert all(word in error for word in words), error
    assert not (tmp_path / "out").exists()


def test_the_sparsity_of_sparse_vectors_is_measured(toy, capsys):
    model = open_encoder(str(toy / "model"), "sparse")
    task = Retrieval.from_folder(toy / "test", "test")
    vectors = model.encode_document([passage.text for passage in task.passages])
    counts = [(vector.to_dense() != 0).sum().item() for vector in vectors]
    scores = score_embeddings(model, task, task.predict(model))
    assert scores["active_dims"] == pytest.approx(np.mean(counts))
    print_table({"model": scores})
    assert "active_dims" in capsys.readouterr().out
    dense = open_encoder(str(toy / "model"))
    assert "active_dims" not in score_embeddings(dense, task, task.predict(dense))
