"""What a pretraining says it is worth: beside word frequencies, and beside the model that it started from."""

import json
import re
from types import SimpleNamespace

import datasets
import pytest
from helpers import sentences

from minibert import MiniBertConfig, PretrainingConfig, PretrainingTrainer
from minibert.training.pretraining.report import describe_pretraining, judge_pretraining

SIZES = dict(num_hidden_layers=1, hidden_size=16, num_attention_heads=2, intermediate_size=24)


def train(folder, model, capsys):
    """The trainer after two steps that change nothing, and what it printed."""
    text = datasets.Dataset.from_dict({"text": list(sentences(150))})
    args = PretrainingConfig(
        str(folder), optimizer="adamw", learning_rate=1e-9, max_steps=2, logging_steps=1, seq_length=32, vocab_size=100,
        save_strategy="no", eval_strategy="no", disable_tqdm=True, bf16=False,
    )  # fmt: skip
    trainer = PretrainingTrainer(model, args, None, text)
    trainer.train()
    trainer.save_model()
    return trainer, capsys.readouterr().out


def test_report_compares_with_frequencies_and_with_the_start(tmp_path, capsys):
    _, printed = train(tmp_path / "first", MiniBertConfig.minibert("tiny", **SIZES), capsys)
    assert "0.1 for each) are few" in printed or "0.2 for each) are few" in printed
    assert "learn little in 2 steps" in printed
    assert re.search(r"^step 1/2  loss [\d.]+  rate \S+  [\d,]+ tokens/s$", printed, re.MULTILINE)
    report = json.loads((tmp_path / "first" / "report.json").read_text())
    assert report["validation_loss"] > report["unigram_loss"] and "start_loss" not in report
    assert report["warning"].startswith("worse than guessing by frequency")
    assert "worse than guessing" in (tmp_path / "first" / "README.md").read_text()

    second, printed = train(tmp_path / "second", str(tmp_path / "first"), capsys)
    # The model was trained before: its weights are not new, but the text is short.
    assert "for each) are few" not in printed
    assert "learn little" not in printed
    assert "few to continue a training" in printed
    assert second.report["start_loss"] == pytest.approx(report["validation_loss"], abs=1e-4)
    assert "before this training" in describe_pretraining(second.report)


def test_warning_for_rare_new_words(tmp_path, capsys):
    trainer, _ = train(tmp_path, MiniBertConfig.minibert("tiny", **SIZES), capsys)
    trainer.extension = SimpleNamespace(pieces={5: [], 6: [], 7: []})
    trainer._warn_of_little_text()
    assert "WARNING: half of the 3 new words are trained on" in capsys.readouterr().out


def test_warning_compares_with_the_baselines():
    report = {"validation_loss": 7.13, "unigram_loss": 6.61, "start_loss": 7.5}
    assert "7.13, against 6.61" in judge_pretraining(report)
    assert "started from" in judge_pretraining(report | {"unigram_loss": 8.0, "start_loss": 7.0})
    assert judge_pretraining(report | {"unigram_loss": 8.0}) is None
    assert judge_pretraining({"validation_loss": 0.3, "constant_loss": 0.2}) is not None
    assert judge_pretraining({"validation_loss": None, "unigram_loss": 8.0}) is None
