"""`--pooling`: what the head of a classifier reads."""

import pytest
import torch
from helpers import refusal, save_model, write_rows
from toy_reviews import QUICK, WORDS, finetune, sentences
from transformers import AutoTokenizer

from minibert import (
    MiniBertForMultipleChoice,
    MiniBertForSequenceClassification,
    MiniBertModel,
    train_tokenizer,
)
from minibert.training.conversion import to_native
from minibert.training.finetuning.config import FinetuningConfig
from minibert.training.finetuning.tasks.classification import Classify
from minibert.training.finetuning.trainer import FinetuningTrainer


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A BERT with a pooler, which reads the first token."""
    texts = [text for text, *_ in sentences(200)]
    tokenizer = train_tokenizer(texts, "wordpiece", 120, show_progress=False)
    return save_model(tmp_path_factory.mktemp("start"), tokenizer, max_position_embeddings=64)


@pytest.fixture(scope="module")
def reviews(tmp_path_factory):
    rows = [{"text": text, "label": ["bad", "good"][good]} for text, good, _ in sentences(60)]
    return write_rows(tmp_path_factory.mktemp("reviews") / "train.jsonl", rows)


@pytest.fixture(scope="module")
def trained(start, reviews, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "model"
    finetune("classify", "--model", start, "--train", reviews, "--output_dir", folder, *QUICK)
    return folder


@torch.no_grad()
def test_the_head_reads_the_mean_of_the_last_states(trained):
    model = MiniBertForSequenceClassification.from_pretrained(trained).eval()
    assert model.config.classifier_pooling == "mean"
    tokenizer = AutoTokenizer.from_pretrained(trained)
    texts = ["the film was great", "the song was very very dull"]
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    states = MiniBertModel.from_pretrained(trained).eval()(**batch).last_hidden_state
    real = batch["attention_mask"].unsqueeze(-1)
    mean = (states * real).sum(1) / real.sum(1)
    expected = model.classifier(torch.tanh(model.model.pooler.dense(mean)))
    torch.testing.assert_close(model(**batch).logits, expected)


def test_a_head_over_the_first_token_converts_back(start, reviews, tmp_path):
    finetune("classify", "--model", start, "--train", reviews, "--pooling", "cls",
             "--output_dir", tmp_path / "model", *QUICK)  # fmt: skip
    model = MiniBertForSequenceClassification.from_pretrained(tmp_path / "model").eval()
    assert model.config.classifier_pooling == "cls"
    ids = torch.tensor([[2, 7, 8, 9, 3]])
    with torch.no_grad():
        expected = to_native(model, "bert").eval()(input_ids=ids).logits
        torch.testing.assert_close(model(input_ids=ids).logits, expected)


def test_a_native_bert_reads_the_first_token(trained):
    model = MiniBertForSequenceClassification.from_pretrained(trained)
    with pytest.raises(ValueError, match="classifier_pooling='cls'.*--pooling"):
        to_native(model, "bert")


def test_a_trained_head_keeps_its_pooling(trained, reviews, tmp_path, capsys):
    said = refusal(capsys, "finetune", "classify", "--model", trained, "--train", reviews,
                   "--pooling", "cls", "--output_dir", tmp_path / "again", *QUICK)  # fmt: skip
    assert "trained with 'mean'" in said


@pytest.mark.parametrize("pooling, expected", [(None, "mean"), ("cls", "cls")])
def test_a_model_in_memory_reads_what_its_config_says(pooling, expected, start, reviews, tmp_path):
    model = MiniBertForSequenceClassification.from_pretrained(start)
    tokenizer = AutoTokenizer.from_pretrained(start)
    args = FinetuningConfig(str(tmp_path), use_cpu=True, report_to="none", bf16=False)
    trainer = FinetuningTrainer(Classify(tokenizer, pooling=pooling), model, args, [reviews])
    trainer.save_model(tmp_path / "model")
    reloaded = MiniBertForSequenceClassification.from_pretrained(tmp_path / "model").eval()
    assert reloaded.config.classifier_pooling == expected
    ids = torch.tensor([[2, 7, 8, 9, 3]])
    with torch.no_grad():
        logits = trainer.model.eval()(input_ids=ids).logits
        torch.testing.assert_close(reloaded(input_ids=ids).logits, logits)


def test_choices_are_read_by_their_mean(start, tmp_path):
    rows = [
        {"question": f"the {word}", "choices": ["was great", "was dull"], "label": i % 2}
        for i, word in enumerate(WORDS * 4)
    ]
    file = write_rows(tmp_path / "train.jsonl", rows)
    folder = tmp_path / "model"
    finetune("choose", "--model", start, "--train", file, "--output_dir", folder, *QUICK)
    config = MiniBertForMultipleChoice.from_pretrained(folder).config
    assert config.classifier_pooling == "mean"
