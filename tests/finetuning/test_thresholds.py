"""Thresholds: chosen on the validation rows, kept where they earn their place, saved in the bias."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import build, write_rows
from sklearn.metrics import f1_score
from toy_reviews import QUICK, finetune, sentences
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

import minibert
from minibert.training.conversion import to_native
from minibert.training.finetuning.tasks.problem_types import (
    MULTI_LABEL,
    SINGLE_LABEL,
    choose_problem,
)
from minibert.training.finetuning.thresholds import (
    best_threshold,
    choose_threshold,
    describe_choices,
    shift_bias,
    undo_shift,
)


class TestBestThreshold:
    @pytest.mark.parametrize("macro", [False, True])
    def test_no_other_is_better(self, macro):
        draw = np.random.default_rng(0)
        for _ in range(3):
            true = draw.random(30) < draw.choice([0.1, 0.5, 0.9])
            log_odds = np.round(draw.normal(size=30) + true, 1).astype(np.float32)  # some are equal

            def score(threshold, true=true, log_odds=log_odds):
                predicted = log_odds > np.log(threshold / (1 - threshold))
                options = {"average": "macro"} if macro else {}
                return f1_score(true, predicted, zero_division=0, **options)

            best = best_threshold(log_odds, true, macro)
            assert 0 < best < 1
            if 0 < true.sum() < 30:
                assert score(best) >= max(map(score, np.linspace(0.05, 0.95, 19))) - 1e-9

    def test_without_a_choice_it_is_one_half(self):
        assert best_threshold(np.zeros(3), np.zeros(3, bool), macro=True) == 0.5
        assert best_threshold(
            np.array([-1.0, 1.0]), np.array([False, True]), macro=True
        ) == pytest.approx(0.5)

    @pytest.mark.filterwarnings("error")
    def test_large_logits_do_not_overflow(self):
        log_odds = np.array([-2000.0, 2000.0], np.float32)
        best = best_threshold(log_odds, np.array([False, True]), macro=True)
        assert best == pytest.approx(0.5)
        described = choose_problem(SINGLE_LABEL, ["no", "yes"]).describe_predictions(
            [0, 1], log_odds, confidence=[]
        )
        assert described == {"label": ["no", "yes"], "score": [1.0, 1.0]}


class TestChooseThreshold:
    @pytest.mark.parametrize("macro", [False, True])
    def test_it_resamples_the_rows(self, macro):
        """Row by row, with scikit-learn's F1."""
        generator = np.random.default_rng(1)
        true = generator.random(120) < 0.2
        log_odds = generator.normal(size=120) - 1.5 + 2 * true
        choice = choose_threshold(log_odds, true, macro)
        options = {"average": "macro"} if macro else {}

        def f1(rows, threshold):
            predicted = log_odds[rows] > np.log(threshold / (1 - threshold))
            return f1_score(true[rows], predicted, zero_division=0, **options)

        assert choice.best_f1 == pytest.approx(f1(slice(None), choice.best_threshold))
        assert choice.f1_at_half == pytest.approx(f1(slice(None), 0.5))
        wins = 0
        for _ in range(300):
            rows = generator.integers(0, 120, 120)
            wins += f1(rows, choice.best_threshold) > f1(rows, 0.5)
        assert choice.share_better == pytest.approx(wins / 300, abs=0.08)

    def test_with_few_rare_rows_one_half_stays_and_a_line_says_how_many_it_takes(self):
        """One of five rare rows is won by the threshold: that may be chance."""
        true = np.array([True] * 95 + [False] * 5)
        few = choose_threshold(np.array([3.0] * 95 + [0.5, -1, -1, -1, -1]), true, macro=True)
        assert not few.is_kept and few.threshold == 0.5
        (line,) = describe_choices([few], ["bad", "good"])
        assert f"this needs some {few.num_rare_needed} rows of 'bad'" in line
        assert "which have 5" in line

        enough = choose_threshold(
            np.tile([3.0] * 95 + [0.5, -1, -1, -1, -1], 8), np.tile(true, 8), macro=True
        )
        assert enough.is_kept and 5 < few.num_rare_needed <= 40
        (line,) = describe_choices([enough], ["bad", "good"])
        assert "a share of 5.0% rows of 'bad'" in line

    def test_it_is_the_same_each_time(self):
        generator = np.random.default_rng(0)
        log_odds = generator.normal(size=50)
        true = generator.random(50) < 0.3
        assert choose_threshold(log_odds, true, True) == choose_threshold(log_odds, true, True)

    def test_rows_that_are_all_alike_choose_nothing(self):
        choice = choose_threshold(np.ones(5), np.ones(5, bool), macro=False)
        assert not choice.is_kept
        (line,) = describe_choices([choice], ["joy"])
        assert "0.5 on, the best on the validation rows" in line


class TestShiftBias:
    @pytest.mark.parametrize("family", [{}, {"classifier_bias": True}])
    @pytest.mark.parametrize("problem_type", [SINGLE_LABEL, MULTI_LABEL])
    def test_one_half_is_the_threshold_everywhere(self, problem_type, family, tmp_path):
        model = build(
            "ForSequenceClassification", num_labels=2, problem_type=problem_type, **family
        )
        model.eval()
        input_ids = torch.randint(5, 60, (40, 6), generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            before = model(input_ids).logits
        thresholds = [0.3, 0.7]
        shift_bias(model, thresholds)
        model.save_pretrained(tmp_path)
        loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
        with torch.no_grad():
            after = loaded(input_ids).logits
        if problem_type == SINGLE_LABEL:
            expected = before.softmax(-1)[:, 1] > 0.7
            assert torch.equal(after.argmax(-1) == 1, expected)
        else:
            expected = before.sigmoid() > torch.tensor(thresholds)
            assert torch.equal(after.sigmoid() > 0.5, expected)
        shift = torch.tensor(loaded.config.threshold_shift)
        torch.testing.assert_close(after + shift, before)
        undo_shift(loaded)
        assert loaded.config.threshold_shift is None
        with torch.no_grad():
            torch.testing.assert_close(loaded(input_ids).logits, before)

    def test_a_second_shift_adds_up(self):
        model = build("ForSequenceClassification", num_labels=2, problem_type=MULTI_LABEL)
        weights = model.classifier.bias
        assert weights is None
        shift_bias(model, [0.3, 0.5])
        shift_bias(model, [0.6, 0.5])
        torch.testing.assert_close(
            model.classifier.bias.detach(), -torch.tensor(model.config.threshold_shift)
        )

    def test_it_survives_the_conversion_to_another_architecture(self):
        model = build("ForSequenceClassification", num_labels=2, problem_type=SINGLE_LABEL).eval()
        shift_bias(model, [0.2, 0.8])
        input_ids = torch.randint(5, 60, (4, 6), generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            expected = model(input_ids).logits
            native = to_native(model).eval()
            torch.testing.assert_close(native(input_ids).logits, expected, atol=1e-5, rtol=1e-5)


@pytest.fixture(scope="module")
def rare(tmp_path_factory):
    """Rows of which few are bad, and of which some words say so."""
    folder = tmp_path_factory.mktemp("rare")
    for seed, (name, count) in enumerate({"train": 200, "validation": 80}.items()):
        rows = [
            {"text": text, "label": "good" if good else "bad"}
            for text, good, _ in sentences(count, seed)
        ]
        write_rows(
            folder / f"{name}.jsonl",
            [row for i, row in enumerate(rows) if row["label"] == "good" or i < 30],
        )
    return folder


def measure(folder, file, tmp_path):
    return minibert.evaluate(
        "classify", model=folder, test=file, output_dir=tmp_path / "scores", bf16=False,
        use_cpu=True,
    )["test"]  # fmt: skip


def test_the_saved_model_decides_by_its_threshold(start, rare, tmp_path, capsys):
    """`evaluate` and the pipeline of Transformers; and so does a folder of an earlier version, of
    which `evaluate` reads `thresholds`."""
    words = ["--model", start, "--data", str(rare), "--tune_threshold", "--max_steps", "6"]
    words += ["--learning_rate", "1e-3", "--output_dir", str(tmp_path / "out")]
    report = finetune("classify", *QUICK, *words).report
    printed = capsys.readouterr().out
    assert "tune_threshold: 'bad' is predicted from a probability of 0." in printed
    assert "as in the validation rows" in printed
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert config["thresholds"] is None
    assert config["threshold_shift"][0] == 0 and config["threshold_shift"][1] != 0

    file = str(rare / "validation.jsonl")
    measured = measure(tmp_path / "out", file, tmp_path)
    for metric, value in measured.items():
        assert report["validation"][metric] == pytest.approx(value, abs=1e-6), metric

    rows = [json.loads(line) for line in Path(file).read_text().splitlines()]
    classify = pipeline("text-classification", str(tmp_path / "out"))
    predicted = [result["label"] for result in classify([row["text"] for row in rows])]
    assert len(set(predicted)) == 2
    f1 = f1_score([row["label"] for row in rows], predicted, average="macro")
    assert f1 == pytest.approx(measured["f1_macro"])

    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    threshold = 1 / (1 + np.exp(-model.config.threshold_shift[1]))
    undo_shift(model)
    model.config.thresholds = [1 - threshold, threshold]
    model.save_pretrained(tmp_path / "earlier")
    AutoTokenizer.from_pretrained(tmp_path / "out").save_pretrained(tmp_path / "earlier")
    earlier = measure(tmp_path / "earlier", file, tmp_path)
    assert earlier["f1_macro"] == pytest.approx(measured["f1_macro"])
    assert earlier["loss"] == pytest.approx(measured["loss"], abs=1e-6)


def test_each_of_several_labels_has_a_threshold(start, tmp_path):
    rows = []
    for text, good, film in sentences(400):
        rows.append({"text": text, "labels": ["good"] * good + ["film"] * film})
    file = write_rows(tmp_path / "train.jsonl", rows)
    words = ["--model", start, "--train", file, "--tune_threshold", "true"]
    words += ["--max_steps", "8", "--learning_rate", "1e-3", "--output_dir", str(tmp_path / "out")]
    result = finetune("classify", *QUICK, *words)
    shift = result.model.config.threshold_shift
    assert len(shift) == 2 and result.model.config.thresholds is None
    bias = result.model.classifier.bias
    assert bias is not None and result.report["validation"]["f1_macro"] > 0.5


def test_zero_shot_models_keep_their_probabilities(start, rare, tmp_path):
    words = ["--model", start, "--tune_threshold", "--max_steps", "6", "--learning_rate", "1e-3"]
    for name in ("train", "validation"):
        rows = []
        for line in (rare / f"{name}.jsonl").read_text().splitlines():
            row = json.loads(line)
            label = {"bad": "entailment", "good": "not_entailment"}[row["label"]]
            rows.append({"premise": row["text"], "hypothesis": "it was bad", "label": label})
        words += [f"--{name}", write_rows(tmp_path / f"{name}.jsonl", rows)]
    config = finetune("nli", *QUICK, *words, "--output_dir", str(tmp_path / "out")).model.config
    assert config.threshold_shift is None
    assert len(config.thresholds) == 2
