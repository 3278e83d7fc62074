"""What a fine-tuning says its result is worth: something simple beside it, its mistakes, and what to see early."""

import json
from types import SimpleNamespace

import datasets
import numpy as np
import pytest
import torch
from helpers import write_rows
from sklearn.dummy import DummyClassifier
from sklearn.metrics import accuracy_score, f1_score, mean_squared_error
from transformers import TrainerState

import minibert
from minibert.training.evaluation.baselines import judge, judge_simple, random_scores
from minibert.training.finetuning.results import (
    MAX_SAVED_MISTAKES,
    name_baseline,
    score_baseline,
    score_simple_model,
)
from minibert.training.finetuning.tasks import label_schemes, task_class
from minibert.training.finetuning.tasks.predictions import LABEL
from minibert.training.finetuning.tasks.problem_types import Binary, MultiLabel, Regression
from minibert.training.hub import uploaded_files
from minibert.training.loop.divergence import (
    MIN_LOGS_TO_COMPARE,
    MIN_STEPS_FOR_NEW_WEIGHTS,
    DivergenceCallback,
)
from minibert.training.loop.early_stopping import EarlyStopping

QUICK = dict(bf16=False, use_cpu=True, disable_tqdm=True, report_to="none", max_steps=2)


def task_that_learned(name, **learned):
    """A task without a tokenizer that has learned this."""
    task = object.__new__(task_class(name))
    task.learned = task.learned_class(**learned)
    return task


def simple(name, train, test, **learned):
    """The scores of something simple for a task that learned this, on columns of two splits."""
    task = task_that_learned(name, **learned)
    return task.score_guesses(*(datasets.Dataset.from_dict(columns) for columns in (train, test)))


class TestSomethingSimple:
    def test_guessing_classes(self):
        train, test = {LABEL: [0] * 95 + [1] * 5}, {LABEL: [0] * 40 + [1] * 10}
        scores = simple("classify", train, test, problem=Binary("ab"))
        assert (
            scores["accuracy"] == accuracy_score(test[LABEL], [0] * 50)
            and scores["matthews_correlation"] == 0
        )
        assert scores["f1_macro"] > f1_score(test[LABEL], [0] * 50, average="macro")

    @pytest.mark.parametrize("strategy", ["stratified", "uniform"])
    @pytest.mark.parametrize("test", [[0, 1], [0, 1, 1, 1, 1, 2], [2] * 19 + [1]])
    def test_drawing_classes(self, strategy, test):
        """As scikit-learn's baseline, in the mean of many rows."""
        known, test, blank = (
            [0] * 15 + [1] * 4 + [2],
            test * (40_000 // len(test)),
            np.zeros((40_000, 1)),
        )
        drawn = (
            DummyClassifier(strategy=strategy, random_state=0)
            .fit(blank[:20], known)
            .predict(blank[: len(test)])
        )
        scores = random_scores(known, test)[strategy == "uniform"]
        assert scores["accuracy"] == pytest.approx(accuracy_score(test, drawn), abs=0.01)
        expected = f1_score(test, drawn, average="macro", labels=[*{*test}])
        assert scores["f1_macro"] == pytest.approx(expected, abs=0.01)

    def test_of_each_metric_the_best_guess(self):
        """At 95 of 100 rows in one class the most frequent one has a macro F1 of 0.487, drawing by frequency 0.5."""
        rows = {LABEL: [0] * 95 + [1] * 5}
        scores = simple("classify", rows, rows, problem=Binary("ab"))
        assert scores["accuracy"] == 0.95 and scores["f1_macro"] == pytest.approx(0.5)
        assert simple("choose", {LABEL: [0, 0, 1, 2]}, {LABEL: [1, 2, 1, 2]})[
            "accuracy"
        ] == pytest.approx(1 / 3)

    def test_the_mean_value(self):
        scores = simple(
            "classify", {LABEL: [1.0, 3.0]}, {LABEL: [0.0, 4.0, 5.0]}, problem=Regression(["score"])
        )
        assert scores["spearman"] == 0 and scores["mse"] == pytest.approx(
            mean_squared_error([0, 4, 5], [2, 2, 2])
        )

    def test_the_most_frequent_of_several_labels(self):
        rows = {LABEL: [[1.0, 0.0], [1.0, 1.0]]}
        scores = simple("classify", rows, rows, problem=MultiLabel("ab"))
        assert (
            scores["f1_micro"] == pytest.approx(6 / 7) and scores["accuracy"] == 0.5
        )  # all labels, and the first

    def test_entities_learned_by_heart(self):
        """The longest one, with its most frequent type; a word that is mostly none stays none."""
        known = [
            ["New", "York", "City"],
            ["New", "York", "Times", "said"],
            ["May", "in", "May"],
            ["May"],
        ]
        tags = [
            ["B-LOC", "I-LOC", "I-LOC"],
            ["B-ORG", "I-ORG", "I-ORG", "O"],
            ["B-TIME", "O", "O"],
            ["O"],
        ]
        texts = [
            ["in", "New", "York", "City", "and", "New", "York", "Times"],
            ["May", "said", "nothing"],
            [],
        ]
        assert label_schemes.tag_by_heart(known, tags, texts, "O", True) == [
            ["O", "B-LOC", "I-LOC", "I-LOC", "O", "B-ORG", "I-ORG", "I-ORG"], ["O", "O", "O"], [],
        ]  # fmt: skip
        words = label_schemes.tag_by_heart(
            [["a", "run", "run"]], [["D", "N", "V"]], [["run", "a", "new"]], "D", False
        )
        assert words == [["N", "D", "D"]]

    def test_rows_that_know_themselves(self):
        """Of entities every half has those of the other one, so that a name that stands once is not found."""
        words = [["Ada"], ["Bob"], ["Eva"], ["Ada"], ["Eva"], ["ran"]]
        rows = datasets.Dataset.from_dict({"w": words, LABEL: [["B-PER"]] * 5 + [["O"]]})
        labels = ["O", "B-PER", "I-PER"]
        task = task_that_learned("tag", text_columns=["w"], label_names=labels, has_entities=True)
        assert task.guesses(rows, rows) == [[["B-PER"], ["O"], ["O"], ["B-PER"], ["O"], ["O"]]]
        assert score_baseline(task, None, {"test": rows})["test"]["recall"] == 0.4
        assert name_baseline(task, None) == "memorised entities from these rows"
        assert name_baseline(task, rows) == "memorised entities"
        one = rows.select([0])
        assert (
            task.guesses(one, one) == [[["O"]]] and score_baseline(task, None, {"test": one}) == {}
        )  # one label only

    def test_a_sentence_as_an_answer(self):
        rows = {
            "q": ["Who wrote it?"],
            "c": ["It was sold in May. Ada wrote it."],
            LABEL: [["Ada wrote it"]],
        }
        assert simple("answer", rows, rows, text_columns=["q", "c"])["exact_match"] == 1
        assert simple("answer", rows, rows | {LABEL: [[]]}, text_columns=["q", "c"])["f1"] == 1


@pytest.fixture(scope="module")
def useless(start, tmp_path_factory):
    """A classifier that learned nothing, of rows that are nearly all of one class."""
    folder = tmp_path_factory.mktemp("useless")
    rows = [
        {"text": f"the film was fine {i} \x1b[31m", "label": "often" if i % 20 else "rare"}
        for i in range(200)
    ]
    file, test = (
        write_rows(folder / "train.jsonl", rows),
        write_rows(folder / "test.jsonl", rows[::-1] * 4),
    )
    out = folder / "out"
    given = dict(train=[file], validation=[file], test=[test], max_length=16, learning_rate=1e-9)
    result = minibert.finetune("classify", model=start, output_dir=str(out), **given | QUICK)
    return result, out


class TestAUselessModel:
    def test_warning_in_report_and_card(self, useless, capsys):
        result, out = useless
        report = json.loads((out / "metrics.json").read_text())
        assert (
            report["baseline"]["name"] == "guessing"
            and report["baseline"]["test"]["accuracy"] == 0.95
        )
        assert (
            "than guessing" in report["warning"] and report["warning"] == result.report["warning"]
        )
        card = (out / "README.md").read_text()
        assert "than guessing" in card and "| 0.9500 |" in card
        assert report["by_class"]["test"]["rare"]["support"] == 40

    def test_errors_are_saved_and_not_published(self, useless):
        mistakes = [
            json.loads(line) for line in (useless[1] / "errors.jsonl").read_text().splitlines()
        ]
        assert 0 < len(mistakes) <= MAX_SAVED_MISTAKES and all(
            each["predicted"] != each["true"] for each in mistakes
        )
        assert "\x1b" not in str([each["text"] for each in mistakes])
        sizes = [each["confidence"] for each in mistakes]
        assert sizes == sorted(sizes, reverse=True) and 0.5 <= sizes[-1] <= sizes[0] <= 1
        assert "errors.jsonl" in uploaded_files.list_files(useless[1])[1]

    def test_rows_alone_tell_it(self, useless, tmp_path, capsys):
        """Without training rows, too."""
        minibert.evaluate("classify", str(useless[1]), test=str(useless[1].parent / "test.jsonl"),
                          output_dir=str(tmp_path), bf16=False, use_cpu=True, disable_tqdm=True)  # fmt: skip
        report = json.loads((tmp_path / "metrics.json").read_text())
        assert report["baseline"] == {
            "name": "guessing from these rows",
            "test": {"accuracy": 0.95, "f1_macro": pytest.approx(0.5), "matthews_correlation": 0.0},
        }
        assert "than guessing from these rows" in report["warning"]
        last_line = capsys.readouterr().out.splitlines()[-1]
        assert last_line == "Next: read the WARNING above before you use the model"

    def test_model_max_length_is_that_of_the_start(self, useless):
        result, out = useless
        assert result.tokenizer.model_max_length == 32
        assert json.loads((out / "tokenizer_config.json").read_text())["model_max_length"] == 32


@pytest.mark.parametrize(
    ("value", "baseline", "interval", "said"),
    [
        (0.4, 0.5, None, "worse"),
        (0.5, 0.5, (0.4, 0.6), "no better"),
        (0.51, 0.5, (0.41, 0.61), "chance"),
        (0.7, 0.5, (0.61, 0.79), None),
        (1.0, 1.0, None, "--validation_size"),
    ],
)
def test_warning_compares_with_the_baseline(value, baseline, interval, said):
    sentence = judge("accuracy", value, baseline, "guessing", interval)
    assert said in sentence if said else sentence is None


def test_patience_waits_for_what_guessing_reaches():
    counts, state = [], TrainerState(best_metric=None)
    stopping, args = EarlyStopping(2, floor=0.5), SimpleNamespace(greater_is_better=True)
    for value in (0.49, 0.49, 0.5, 0.6, 0.55, 0.55):
        stopping.check_metric_value(args, state, None, value)
        state.best_metric = max(value, state.best_metric or 0.0)
        counts.append(stopping.early_stopping_patience_counter)
    assert counts == [0, 0, 0, 0, 1, 2]
    # a correlation: the best value, 0, is above guessing
    stopping = EarlyStopping(2, floor=-0.05)
    stopping.check_metric_value(args, TrainerState(best_metric=0.0), None, -0.1)
    assert stopping.early_stopping_patience_counter == 1


class TestDivergenceCallback:
    def said(self, capsys, logs, steps=1000, is_new=True):
        watch, state = (
            DivergenceCallback(is_new),
            SimpleNamespace(max_steps=steps, global_step=7),
        )
        watch.on_train_begin(None, state, None, torch.nn.Linear(1, 1))
        for log in logs:
            watch.on_log(SimpleNamespace(learning_rate=1e-4), state, None, log)
        return capsys.readouterr().out

    def test_few_steps_for_a_new_head(self, capsys):
        assert "steps" in self.said(capsys, [], MIN_STEPS_FOR_NEW_WEIGHTS - 1) and not self.said(
            capsys, [], MIN_STEPS_FOR_NEW_WEIGHTS
        )
        assert not self.said(capsys, [], 1, is_new=False)

    def test_few_steps_by_the_clock(self, capsys):
        """Known once the budget has timed some."""
        watch, state = (
            DivergenceCallback(True, SimpleNamespace(progress=0.1)),
            SimpleNamespace(max_steps=10**9),
        )
        watch.on_train_begin(None, state, None, torch.nn.Linear(1, 1))
        assert not capsys.readouterr().out
        state.max_steps = 40
        watch.on_step_end(None, state, None)
        watch.on_step_end(None, state, None)
        assert capsys.readouterr().out.count("in 40 steps") == 1

    def test_a_gradient_that_explodes(self, capsys):
        usual = [{"loss": 1 / (i + 1), "grad_norm": 1.0} for i in range(MIN_LOGS_TO_COMPARE)]
        assert "gradient" in self.said(capsys, [*usual, {"loss": 0.1, "grad_norm": 99.0}])
        assert not self.said(capsys, [*usual, {"loss": 0.1, "grad_norm": 3.0}, {"eval_loss": 1.0}])

    def test_a_loss_that_does_not_fall(self, capsys):
        assert self.said(capsys, [{"loss": 0.693}] * 20).count("does not fall") == 1
        assert not self.said(capsys, [{"loss": 1 - i / 20} for i in range(20)])

    def test_a_second_training_is_watched_anew(self, capsys):
        callback = DivergenceCallback(False)
        state = SimpleNamespace(max_steps=1000, global_step=7)
        for _ in range(2):
            callback.on_train_begin(None, state, None, torch.nn.Linear(1, 1))
            for _ in range(20):
                callback.on_log(SimpleNamespace(learning_rate=1e-4), state, None, {"loss": 0.693})
            assert capsys.readouterr().out.count("does not fall") == 1


def test_one_class_only_is_said_while_it_trains(start, data, tmp_path, capsys):
    given = dict(data=data, learning_rate=1e-9, output_dir=str(tmp_path))
    minibert.finetune("classify", model=start, **given | QUICK)
    printed = capsys.readouterr().out
    report = json.loads((tmp_path / "metrics.json").read_text())
    alone = any(row["recall"] == 1.0 for row in report["by_class"]["validation"].values())
    assert ("the same for every row" in printed) == alone
    assert (
        "of a class) measure macro F1 only to ± 0.1" in printed
        and "learn little in 2 steps" in printed
    )


class TestASimpleModel:
    """TF-IDF with logistic regression, beside the model."""

    def test_it_learns_words_of_texts_and_pairs(self):
        """Of a pair, the words of the second text say what the label is."""
        words = ["good", "bad"]
        second = [f"a {words[row % 2]} thing" for row in range(40)]
        rows = {"a": ["bad good thing"] * 40, "b": second, LABEL: [row % 2 for row in range(40)]}
        columns = ["a", "b"]
        task = task_that_learned(
            "nli", problem=Binary("ab"), label_names="ab", text_columns=columns
        )
        split = datasets.Dataset.from_dict(rows)
        scores = score_simple_model(task, split, {"train": split, "test": split})
        assert scores["test"]["accuracy"] == 1 and scores["test"]["f1_macro"] == 1
        assert score_simple_model(task, None, {"test": split}) == {}

    def test_several_labels_of_which_one_is_everywhere(self):
        labels = [[1.0, float(row % 2), 0.0] for row in range(20)]
        rows = {"a": [f"word{row % 2}" for row in range(20)], LABEL: labels}
        problem = MultiLabel("abc")
        task = task_that_learned("classify", problem=problem, label_names="abc", text_columns=["a"])
        split = datasets.Dataset.from_dict(rows)
        assert task.simple_predictions(split, [split]) == [labels]

    def test_texts_without_words(self):
        rows = {"a": ["!", "?"], LABEL: [0, 1]}
        problem = Binary("ab")
        task = task_that_learned("classify", problem=problem, label_names="ab", text_columns=["a"])
        assert task.simple_predictions(datasets.Dataset.from_dict(rows), []) is None

    @pytest.mark.parametrize(
        ("value", "simple_value", "interval", "message"),
        [
            (0.6, 0.7, (0.5, 0.7), "as good or better"),
            (0.7, 0.65, (0.6, 0.8), "may be as good"),
            (1.0, 1.0, (0.9, 1.0), "too easy"),
            (0.7, 0.5, (0.6, 0.8), None),
        ],
    )
    def test_where_it_wins_that_is_said(self, value, simple_value, interval, message):
        sentence = judge_simple("f1_macro", value, simple_value, "TF-IDF", interval)
        assert message in sentence if message else sentence is None

    def test_it_is_in_the_report_and_on_the_console(self, start, data, tmp_path, capsys):
        output = tmp_path / "out"
        options = dict(data=data, output_dir=str(output), learning_rate=1e-9)
        minibert.finetune("classify", model=start, **options | QUICK)
        printed = capsys.readouterr().out
        report = json.loads((output / "metrics.json").read_text())
        simple_report = report["simple_model"]
        assert simple_report["name"] == "TF-IDF with logistic regression"
        assert simple_report["test"]["accuracy"] > 0.9
        assert "TF-IDF with logistic regression (test)" in printed
        low, high = report["intervals"]["test"]["f1_macro"]
        assert low <= report["test"]["f1_macro"] <= high
        assert "95 % interval (test)" in printed and f"{low:.3f}–{high:.3f}" in printed
