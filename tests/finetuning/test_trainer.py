"""`FinetuningTrainer` as a user of Python calls it."""

import json

import pytest
import torch
from datasets import Dataset, load_dataset
from toy_reviews import sentences
from transformers import AutoTokenizer

import minibert
from minibert import (
    AnswerQuestions,
    Classify,
    FinetuningConfig,
    FinetuningTrainer,
    MiniBertForSequenceClassification,
    MiniBertForTokenClassification,
)

SETTINGS = {
    "max_steps": 3,
    "learning_rate": 1e-2,
    "use_cpu": True,
    "bf16": False,
    "disable_tqdm": True,
    "report_to": "none",
}


def rows(count, seed=0):
    return Dataset.from_list(
        [
            {"text": text, "label": "good" if good else "bad"}
            for text, good, _ in sentences(count, seed)
        ]
    )


def settings(folder, **options):
    return FinetuningConfig(str(folder), **SETTINGS, **options)


def test_it_trains_and_measures_as_the_command_does(start, data, tmp_path):
    minibert.finetune(
        "classify", start, data=data, class_weights=["balanced"], output_dir=str(tmp_path / "command"),
        **SETTINGS,
    )  # fmt: skip
    report = json.loads((tmp_path / "command" / "metrics.json").read_text())

    splits = load_dataset("json", data_files={name: f"{data}/{name}.jsonl" for name in ("train", "validation", "test")},
                          cache_dir=str(tmp_path / "cache"))  # fmt: skip
    task = Classify(AutoTokenizer.from_pretrained(start), class_weights=["balanced"])
    trainer = FinetuningTrainer(
        task, start, settings(tmp_path / "python"), splits["train"], splits["validation"], splits["test"]
    )  # fmt: skip
    trainer.train()
    scores = trainer.measure()
    assert scores == {name: report[name] for name in ("validation", "test")}
    assert trainer.baseline == {name: report["baseline"][name] for name in ("validation", "test")}

    trainer.save_model(str(tmp_path / "saved"))
    saved = json.loads((tmp_path / "saved" / "tokenizer.json").read_text())
    assert saved["truncation"] is None and saved["padding"] is None
    trained = FinetuningTrainer(
        Classify(AutoTokenizer.from_pretrained(tmp_path / "saved")),
        tmp_path / "saved",
        settings(tmp_path / "measured"),
        test_dataset=splits["test"],
        baseline_dataset=splits["train"],
    )
    assert trained.measure()["test"] == pytest.approx(scores["test"])
    assert trained.baseline["test"] == trainer.baseline["test"]
    assert list(trained.splits) == ["test"]


def test_rows_to_validate_on_are_held_out(start, tmp_path):
    trainer = FinetuningTrainer(
        Classify(AutoTokenizer.from_pretrained(start)),
        start,
        settings(tmp_path),
        train_dataset=rows(60),
        validation_size=12,
    )
    assert {name: len(split) for name, split in trainer.splits.items()} == {
        "train": 48,
        "validation": 12,
    }


def test_other_rows_are_not_measured_as_those_to_validate_on(start, tmp_path):
    """Whose labels they would be compared with."""
    trainer = FinetuningTrainer(
        Classify(AutoTokenizer.from_pretrained(start)), start, settings(tmp_path), rows(60)
    )
    with pytest.raises(ValueError, match="54 inputs, but those to validate on are 6"):
        trainer.evaluate(trainer.train_dataset)


def test_a_model_in_memory(start, tmp_path):
    model = MiniBertForSequenceClassification.from_pretrained(start, num_labels=2)
    before = model.classifier.weight.detach().clone()
    trainer = FinetuningTrainer(
        Classify(AutoTokenizer.from_pretrained(start)), model, settings(tmp_path), rows(60)
    )
    trainer.train()
    assert trainer.model is model and not torch.equal(model.classifier.weight, before)
    assert model.config.id2label == {0: "bad", 1: "good"}


def test_a_model_that_does_not_fit_the_task_is_refused(start, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(start)
    three = MiniBertForSequenceClassification.from_pretrained(start, num_labels=3)
    with pytest.raises(ValueError, match="3 labels .* not for 2"):
        FinetuningTrainer(Classify(tokenizer), three, settings(tmp_path), rows(60))
    tagger = MiniBertForTokenClassification.from_pretrained(start)
    with pytest.raises(
        ValueError, match="a MiniBertForTokenClassification; 'classify' needs a Mini"
    ):
        FinetuningTrainer(Classify(tokenizer), tagger, settings(tmp_path), rows(60))
    with pytest.raises(ValueError, match="question_column: which column"):
        FinetuningTrainer(AnswerQuestions(tokenizer), start, settings(tmp_path), rows(60))


def test_the_tokenizer_is_cut_to_the_models_positions(start, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(start, model_max_length=10**6)
    FinetuningTrainer(Classify(tokenizer), start, settings(tmp_path), rows(60))
    assert tokenizer.model_max_length == 32
