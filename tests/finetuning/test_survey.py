"""What is held out, what a split lacks, and what is wrong with labels as people write them."""

import json
import math
from collections import Counter

import numpy as np
import pytest
import torch
from helpers import write_rows
from sklearn.metrics import f1_score
from toy_reviews import load
from transformers import AutoTokenizer

import minibert
from minibert import MiniBertForSequenceClassification
from minibert.training.finetuning.reading.validation_examples import stratify
from minibert.training.finetuning.survey import find_warnings, survey
from minibert.training.finetuning.tasks.answering import AnswerQuestions
from minibert.training.finetuning.tasks.classification import Classify
from minibert.training.finetuning.tasks.label_schemes import are_misspelled
from minibert.training.finetuning.tasks.problem_types import MULTI_LABEL
from minibert.training.finetuning.tasks.tagging import Tag

OPTIONS = dict(max_steps=2, bf16=False, use_cpu=True, disable_tqdm=True, report_to="none")


def finetune(task, start, output, **options):
    """The report of a training of two steps."""
    return minibert.finetune(task, model=start, output_dir=str(output), **OPTIONS | options).report


def write_csv(path, column, cells):
    lines = (f'the film {i},"{cell}"' for i, cell in enumerate(cells))
    path.write_text("\n".join([f"text,{column}", *lines]) + "\n", encoding="utf-8")
    return str(path)


class TestStratify:
    def groups(self, rows):
        return [Counter([None, *classes]) for classes in rows]

    @pytest.mark.parametrize("share", [0.05, 0.1, 0.3])
    def test_every_class_in_proportion(self, share):
        rng = np.random.default_rng(0)
        names = rng.choice(["a", "b", "c"], 1000, p=[0.9, 0.08, 0.02])
        held_out = stratify(
            self.groups([[name] for name in names]), int(1000 * share), rng.permutation(1000)
        )
        for name in "abc":
            assert abs(held_out[names == name].sum() - share * (names == name).sum()) <= 1
        assert held_out.sum() == int(1000 * share)

    def test_several_labels_a_row(self):
        rng = np.random.default_rng(0)
        present = rng.random((2000, 4)) < [0.5, 0.2, 0.05, 0.02]
        rows = [[name for name, there in zip("abcd", row) if there] for row in present]
        held_out = stratify(self.groups(rows), 400, rng.permutation(2000))
        shares = present[held_out].sum(0) / present.sum(0)
        assert np.abs(shares - 0.2).max() < 0.03 and abs(held_out.sum() - 400) < 20

    def test_a_class_stays_in_training_and_a_small_share_has_one_of_five(self):
        rows = [["often"]] * 90 + [["five"]] * 5 + [["four"]] * 4 + [["once"]]
        held_out = stratify(self.groups(rows), 10, range(100))
        counts = Counter(rows[i][0] for i in np.flatnonzero(held_out))
        assert (
            counts["five"] == 1
            and counts["once"] == 0
            and counts["four"] <= 1
            and held_out.sum() == 10
        )


def read(task_class, start, folder, **rows):
    """A task that read these rows by split, its splits, and what is said of them."""
    files = {
        name: [write_rows(folder / f"{name}.jsonl", of_split)] for name, of_split in rows.items()
    }
    task = task_class(AutoTokenizer.from_pretrained(start, model_max_length=32))
    splits = task.read(load(task, **files))
    return (
        task,
        splits,
        find_warnings(
            task, {name: survey(task, each, task.encode(each)) for name, each in splits.items()}
        ),
    )


def test_classes_that_a_split_lacks_have_no_part_in_its_mean(start, tmp_path):
    rows = [{"text": f"the film {i}", "label": "abc"[i % 3]} for i in range(30)]
    without = [row for row in rows if row["label"] != "c"]
    task, splits, said = read(
        Classify, start, tmp_path, train=rows, validation=rows[:9], test=without
    )
    assert "test: no row has the labels 'c'; they have no score, and are not in the means" in said
    true, predicted = splits["test"]["_label"][:], [0, 1, 2, 1] * 5
    expected = f1_score(true, predicted, average="macro", labels=[0, 1])
    assert task.score(predicted, true)["f1_macro"] == pytest.approx(expected)
    assert task.score([0, 1], [0, 0])["matthews_correlation"] is None
    assert task.score([0, 1], [0, 1])["matthews_correlation"] == 1


def rows_of_labels(*labels):
    return [{"text": f"the film {i}", "label": labels[i % len(labels)]} for i in range(40)]


@pytest.mark.parametrize(
    ("labels", "line"),
    [
        (("good", "good ", "bad", "Bad"), "labels: 'Bad', 'bad' differ in case or spaces only"),
        (("good", "good ", "bad", "Bad"), "labels: 'good', 'good ' differ in case or spaces only"),
        (
            ("joy", "sad", "joy#sad"),
            "labels: 'joy#sad' are learned as one class each, though 'joy'",
        ),
        (("joy, sad", "fear, joy"), "labels: 'fear, joy', 'joy, sad' are learned as one class"),
        (("good", "bad", "C#", "a, b"), None),
        (("1", "01", "1.5, 2"), None),
    ],
)
def test_labels_that_people_write_in_several_ways(start, tmp_path, labels, line):
    rows = rows_of_labels(*labels)
    _, _, lines = read(Classify, start, tmp_path, train=rows, validation=rows)
    about_labels = [each for each in lines if each.startswith("labels: ")]
    assert any(each.startswith(line) for each in about_labels) if line else not about_labels


def test_test_rows_that_are_validation_rows(start, tmp_path):
    """Their scores are too high as well: the checkpoint and thresholds are chosen by them."""
    texts = ["the film was " + "very " * i for i in range(28)]
    rows = [{"text": text, "label": "ab"[i % 2]} for i, text in enumerate(texts)]
    _, _, lines = read(
        Classify, start, tmp_path, train=rows[:10], validation=rows[10:20], test=rows[18:]
    )
    shared = [line for line in lines if "also occur" in line]
    assert shared == [
        "test: 2 inputs also occur in the validation rows, by which the model is chosen, so the"
        " scores may be too high"
    ]


def test_the_same_text_with_other_labels(start, tmp_path):
    """Of classes that is an error; people who give values may well differ."""
    texts = ["the film was " + "very " * i for i in range(20)]
    rows = [{"text": text, "label": "ab"[i % 2]} for i, text in enumerate(texts)]
    rows += [{"text": text, "label": "a"} for text in texts]
    _, _, lines = read(Classify, start, tmp_path, train=rows, validation=rows[:20])
    assert any(line.startswith("train: 10 inputs occur with different labels") for line in lines)
    assert not any(line.startswith("validation: 10 inputs") for line in lines)
    values = [{"text": text, "score": i / 7} for i, text in enumerate(texts * 2)]
    _, _, lines = read(Classify, start, tmp_path, train=values, validation=values)
    assert not any("different labels" in line for line in lines)


def test_mistakes_have_the_rows_of_their_file(start, tmp_path):
    """Also where rows of the training file are held out."""
    rows = [{"text": f"the film {i}", "label": "ab"[i % 2]} for i in range(40)]
    file = write_rows(tmp_path / "train.jsonl", rows)
    finetune("classify", start, tmp_path / "out", train=[file], validation_size=20)
    lines = (tmp_path / "out" / "errors.jsonl").read_text().splitlines()
    mistakes = [json.loads(line) for line in lines]
    assert mistakes
    for mistake in mistakes:
        assert rows[mistake["row"] - 1] == {"text": mistake["text"], "label": mistake["true"]}


def test_printed_texts_of_files_are_escaped(start, tmp_path, capsys):
    bad = "\x1b[31m\u202e"
    rows = [{"tokens": [f"a{bad}", str(i)], "ner_tags": [f"B-{bad}", "O"]} for i in range(20)]
    file = write_rows(tmp_path / "train.jsonl", rows)
    finetune("tag", start, tmp_path / "plan", train=[file], plan=True)
    rows = [{"text": f"a{bad} {i}", "label": f"{'xy'[i % 2]}{bad}"} for i in range(20)]
    file = write_rows(tmp_path / "train.jsonl", rows)
    finetune("classify", start, tmp_path / "other", train=[file], validation=[file], plan=True)
    printed = capsys.readouterr().out
    assert "\\x1b[31m" in printed and "\x1b" not in printed and "\u202e" not in printed


def tag_rows(*tags, count=20):
    words = ["Anna", "Berg", "saw", "Oslo"]
    return [{"tokens": [*words, str(i)], "ner_tags": [*tags, "O"]} for i in range(count)]


@pytest.fixture(scope="module")
def tagger(start, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tagger")
    file = write_rows(folder / "train.jsonl", tag_rows("B-PER", "I-PER", "O", "B-LOC"))
    finetune("tag", start, folder / "out", train=[file], learning_rate=1e-9)
    return str(folder / "out")


class TestEntities:
    def test_a_type_that_a_split_lacks_has_no_score(self, start, tmp_path):
        rows = (
            tag_rows("B-PER", "I-PER", "O", "B-LOC")
            + [{"tokens": ["ACME"], "ner_tags": ["B-ORG"]}] * 4
        )
        task, splits, said = read(Tag, start, tmp_path, train=rows, validation=rows[:8])
        assert any(line.startswith("validation: no row has the labels 'ORG'") for line in said)
        true = splits["validation"]["_label"][:]
        assert task.scores_by_class(true, true).keys() == {"PER", "LOC"}

    def test_a_type_that_the_model_does_not_know_is_missed(self, tagger, tmp_path, capsys):
        rows = [{"tokens": ["ACME", "hired", "Anna"], "ner_tags": ["B-ORG", "O", "B-PER"]}] * 3
        file = write_rows(tmp_path / "test.jsonl", rows)
        scores = minibert.evaluate("tag", model=tagger, test=[file], output_dir=tmp_path / "out")[
            "test"
        ]
        by_class = json.loads((tmp_path / "out" / "metrics.json").read_text())["by_class"]["test"]
        assert (
            by_class["ORG"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 3}
            and scores["recall"] <= 0.5
        )
        assert "'B-ORG' (3 words)" in capsys.readouterr().out

    def test_without_an_entity_there_is_no_score(self, tagger, tmp_path):
        file = write_rows(tmp_path / "test.jsonl", [{"tokens": ["a", "b"], "ner_tags": ["O", "O"]}])
        scores = minibert.evaluate("tag", model=tagger, test=[file], output_dir=tmp_path / "out")[
            "test"
        ]
        assert (
            scores["f1"] is scores["precision"] is scores["recall"] is None
            and scores["accuracy"] is not None
        )
        assert json.loads((tmp_path / "out" / "metrics.json").read_text())["test"] == scores

    def test_splits_may_have_different_schemes(self, start, tmp_path):
        train, test = (
            tag_rows("B-PER", "I-PER", "O", "B-LOC"),
            tag_rows("B-PER", "E-PER", "O", "S-LOC"),
        )
        _, splits, _ = read(Tag, start, tmp_path, train=train, validation=train, test=test)
        assert splits["test"]["_label"][:] == splits["train"]["_label"][:]

    def test_the_file_of_another_kind_is_named(self, start, tmp_path):
        train = write_rows(tmp_path / "train.jsonl", tag_rows("B-PER", "I-PER", "O", "B-LOC"))
        test = write_rows(tmp_path / "test.jsonl", tag_rows("NOUN", "NOUN", "VERB", "NOUN"))
        with pytest.raises(
            ValueError, match=r"test\.jsonl, row 1: ner_tags\[0\]='NOUN'; use O, B-TYPE or I-TYPE"
        ):
            finetune("tag", start, tmp_path / "out", train=[train], test=[test])

    @pytest.mark.parametrize(("tags", "wrong"), [
        (["B_PER", "I_PER", "O"], True), (["b-per", "i-per", "o"], True), (["PER-B", "PER-I", "O"], True),
        (["B.LOC", "O"], True), (["B", "I", "O"], True), (["NOUN", "VERB", "B", "O"], False), (["B_x", "C_x"], False),
        (["O"], False),
    ])  # fmt: skip
    def test_tags_that_are_written_otherwise(self, tags, wrong):
        assert are_misspelled(tags) == wrong

    def test_misspelled_tags_are_refused(self, start, tmp_path):
        file = write_rows(tmp_path / "train.jsonl", tag_rows("B_PER", "I_PER", "O", "B_LOC"))
        with pytest.raises(ValueError, match="which looks like a tag of an entity; write B-PER"):
            finetune("tag", start, tmp_path / "out", train=[file])


@pytest.mark.parametrize("write", [str, lambda cell: json.dumps(cell).replace('"', '""'), "|".join])
def test_lists_in_cells_are_read(write, tmp_path):
    cells = [["joy", "sad"], ["joy"], ["anger", "sad"]] * 4
    task, file = Classify(None), write_csv(tmp_path / "train.csv", "labels", map(write, cells))
    splits = task.read(load(train=[file], validation=[file]))
    assert task.problem_type == MULTI_LABEL and task.label_names == ["anger", "joy", "sad"]
    assert splits["train"]["_label"][:3] == [[0, 1, 1], [0, 1, 0], [1, 0, 1]]


def test_commas_in_names_are_read(tmp_path):
    task, file = (
        Classify(None),
        write_csv(tmp_path / "train.csv", "label", ["Arts, Crafts", "Arts, Music", "Food"] * 9),
    )
    task.read(load(train=[file], validation=[file]))
    assert task.label_names == ["Arts, Crafts", "Arts, Music", "Food"]


@pytest.mark.parametrize("cell", ["['joy' 'sad']", "[joy]"])
def test_cells_that_are_no_lists_are_refused(tmp_path, cell):
    file = write_csv(tmp_path / "train.csv", "labels", ["['joy']", "['sad']", cell] * 5)
    with pytest.raises(
        ValueError, match=r'row 3: the label .* is not a list; write it as \["joy", "sad"\]'
    ):
        load(train=[file])


class TestLabels:
    def test_names_that_no_row_has_are_refused(self, start, tmp_path):
        rows = [{"text": f"the film {i}", "label": i % 2} for i in range(20)]
        file = write_rows(tmp_path / "train.jsonl", rows)
        with pytest.raises(
            ValueError, match="labels: no row has the label 'neutral'; leave them out"
        ):
            finetune(
                "classify", start, tmp_path / "out", train=[file], labels=["neg", "pos", "neutral"]
            )

    def test_a_config_with_too_many_labels_is_refused_at_once(self, tmp_path):
        (tmp_path / "config.json").write_text(
            json.dumps({"model_type": "bert", "num_labels": 10**9})
        )
        with pytest.raises(ValueError, match="has num_labels=1,000,000,000; use 1,000,000 at most"):
            finetune("classify", str(tmp_path), tmp_path / "out", train=["x.jsonl"])


@pytest.mark.parametrize("more", [{}, {"answers": [{"text": "film", "answer_start": 4}]}])
def test_impossible_questions_have_no_answer(start, tmp_path, more):
    answer = {
        "id": "a",
        "question": "what",
        "is_impossible": False,
        "answers": [{"text": "film", "answer_start": 4}],
    }
    impossible = {"id": "b", "question": "who", "is_impossible": True, **more}
    paragraphs = [{"context": "the film", "qas": [answer, impossible]}]
    file = tmp_path / "train.json"
    file.write_text(json.dumps({"data": [{"title": "x", "paragraphs": paragraphs}]}))
    task = AnswerQuestions(AutoTokenizer.from_pretrained(start, model_max_length=32))
    splits = task.read(load(task, train=[str(file)], validation=[str(file)]))
    assert (
        splits["train"]["_label"][:] == [["film"], []]
        and task.tokenizer.init_kwargs["null_threshold"] == 0.0
    )


@pytest.fixture(scope="module")
def classifier(start, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("classifier")
    finetune("classify", start, folder / "out", data=data)
    return folder / "out"


class TestNotFinite:
    def test_a_model_of_nan_is_not_scored(self, classifier, data, tmp_path):
        model = MiniBertForSequenceClassification.from_pretrained(classifier)
        with torch.no_grad():
            model.classifier.weight.fill_(math.nan)
        model.save_pretrained(tmp_path / "broken")
        minibert.training.loading.tokenizers.saved_tokenizer(classifier).save_pretrained(
            tmp_path / "broken"
        )
        with pytest.raises(ValueError, match="model: its outputs are not finite"):
            minibert.evaluate(
                "classify", model=str(tmp_path / "broken"), data=data, output_dir=tmp_path / "out"
            )
        assert not (tmp_path / "out" / "metrics.json").exists()

    def test_a_training_that_diverges_saves_nothing_as_finished(self, start, data, tmp_path):
        with pytest.raises(ValueError, match="finite"):
            finetune(
                "classify",
                start,
                tmp_path / "out",
                data=data,
                learning_rate=1e30,
                max_steps=20,
                max_grad_norm=0,
            )
        assert (
            not (tmp_path / "out" / "metrics.json").exists()
            and not (tmp_path / "out" / "config.json").exists()
        )


@pytest.mark.parametrize(
    ("text", "lost"), [("something new", False), ("фильм очень хорош " * 9, True)]
)
def test_text_that_the_tokenizer_does_not_know(text, lost, start, tmp_path):
    rows = [{"text": text + " left" * i, "label": "ab"[i % 2]} for i in range(20)]
    train = write_rows(tmp_path / "train.jsonl", rows)
    minibert.finetune(
        "classify", start, train=[train], plan=True, output_dir=str(tmp_path / "plan"), bf16=False
    )
    assert ("of the characters are lost" in (tmp_path / "plan" / "plan.md").read_text()) == lost
