"""`finetune classify --few_shot`: SetFit's contrastive training of the encoder before the usual training."""

import sys

import pytest
import torch
from datasets import Dataset
from sklearn.linear_model import LogisticRegression
from toy_reviews import sentences

import minibert
from minibert.training.finetuning import few_shot

ROWS = [{"text": text, "label": int(good)} for text, good, _ in sentences(16)]


def test_the_encoder_is_trained_as_setfit_trains_it(start, tmp_path, monkeypatch):
    setfit = pytest.importorskip("setfit", reason="the extra setfit is not installed")
    from sentence_transformers import SentenceTransformer

    monkeypatch.setattr(few_shot, "STEPS", 3)
    monkeypatch.setattr(few_shot, "BATCH_SIZE", 4)
    rows = Dataset.from_list(ROWS)
    run = minibert.finetune(
        "classify", start, train=rows, validation=rows, few_shot=True, seed=3, max_steps=1, disable_tqdm=True,
        output_dir=str(tmp_path), freeze="encoder",  # so that SetFit alone changes it
    )  # fmt: skip
    body = SentenceTransformer(start, device="cpu")
    before = {name: weight.clone() for name, weight in body[0].auto_model.state_dict().items()}
    args = setfit.TrainingArguments(
        str(tmp_path / "setfit"), batch_size=4, max_steps=3, seed=3, save_strategy="no"
    )
    trainer = setfit.Trainer(setfit.SetFitModel(body, model_head=LogisticRegression()), args)
    trainer.train_embeddings(rows["text"][:], rows["label"][:], args=args)
    trained = run.model.base_model.state_dict()
    for name, weight in body[0].auto_model.state_dict().items():
        torch.testing.assert_close(trained[name], weight)
    assert any(not torch.equal(trained[name], weight) for name, weight in before.items())
    assert not [*tmp_path.rglob("*.pkl")]


def test_pairs_and_values_are_refused_before_training(start, monkeypatch):
    monkeypatch.setitem(sys.modules, "setfit", sys)  # it is not reached
    pairs = [{"text": f"a{i}", "text_pair": "b", "label": i % 2} for i in range(8)]
    values = [{"text": f"a{i}", "label": i / 2} for i in range(8)]
    for rows in map(Dataset.from_list, (pairs, values)):
        with pytest.raises(ValueError, match="^few_shot: "):
            minibert.finetune("classify", start, train=rows, validation=rows, few_shot=True)


def test_a_missing_setfit_is_reported_before_any_work(start, monkeypatch):
    monkeypatch.setitem(sys.modules, "setfit", None)
    with pytest.raises(ImportError, match="setfit"):
        minibert.finetune("classify", start, train="missing.jsonl", few_shot=True)
