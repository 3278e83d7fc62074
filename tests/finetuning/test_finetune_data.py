"""Rows for fine-tuning: where they come from, and what is refused of them."""

import json

import datasets
import pytest
from toy_reviews import load
from transformers import BertConfig

from minibert import train_tokenizer
from minibert.training.finetuning.reading.columns import FILE, ROW
from minibert.training.finetuning.reading.examples import drop_unlabelled_test
from minibert.training.finetuning.tasks import classification
from minibert.training.finetuning.tasks.answering import AnswerQuestions
from minibert.training.finetuning.tasks.choice import CHOICE_TEXTS, Choose
from minibert.training.finetuning.tasks.classification import Classify
from minibert.training.finetuning.tasks.nli import Nli
from minibert.training.finetuning.tasks.predictions import LABEL
from minibert.training.finetuning.tasks.problem_types import (
    MULTI_LABEL,
    REGRESSION,
    SINGLE_LABEL,
    MultiLabel,
)
from minibert.training.finetuning.tasks.tagging import Tag

ROWS = [{"text": f"text {i}", "label": i % 2} for i in range(10)]


def where(row):
    return f"{row[FILE]}, row {row[ROW]}"


def write(path, rows):
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    elif path.suffix == ".parquet":
        datasets.Dataset.from_list(rows).to_parquet(str(path))
    else:
        tab = "\t" if path.suffix == ".tsv" else ","
        lines = [tab.join(rows[0]), *(tab.join(map(str, row.values())) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
    return str(path)


def as_squad(rows, answers):
    """Rows of questions as SQuAD's own files have them: questions in paragraphs in articles."""
    paragraphs = {}
    for row in rows:
        pairs = zip(row["answers"]["text"], row["answers"]["answer_start"])
        given = (
            {"answers": [{"text": text, "answer_start": start} for text, start in pairs]}
            if answers
            else {}
        )
        if answers and not given["answers"]:  # version 2.0
            given |= {
                "is_impossible": True,
                "plausible_answers": [{"text": "x", "answer_start": 1}],
            }
        paragraphs.setdefault(row["context"], []).append(
            {"id": row["id"], "question": row["question"], **given}
        )
    paragraphs = [{"context": context, "qas": qas} for context, qas in paragraphs.items()]
    articles = [
        {"title": "A", "paragraphs": paragraphs[:1]},
        {"title": "B", "paragraphs": paragraphs[1:]},
    ]
    return json.dumps({"data": articles, "version": "1.1"})


def read(rows, tmp_path, task=Classify, config=None, test=None, **arguments):
    """The task after reading `rows` as its training split, and the splits."""
    files = {
        "train": [write(tmp_path / "train.jsonl", rows)],
        "validation": [write(tmp_path / "val.jsonl", rows[:2])],
    }
    if test is not None:
        files["test"] = [write(tmp_path / "test.jsonl", test)]
    task = task(None, **arguments)
    return task, task.read(load(**files), config)


class TestSplits:
    @pytest.mark.parametrize("suffix", ["jsonl", "json", "csv", "tsv", "parquet"])
    def test_a_folder_of_any_kind(self, tmp_path, suffix):
        for name, count in (("train", 10), ("dev", 4), ("test", 3)):
            write(tmp_path / f"{name}.{suffix}", ROWS[:count])
        splits = load(data=str(tmp_path))
        assert {name: len(split) for name, split in splits.items()} == {
            "train": 10,
            "validation": 4,
            "test": 3,
        }
        assert splits["test"]["text"] == [row["text"] for row in ROWS[:3]]
        assert where(splits["test"][1]) == f"{tmp_path / f'test.{suffix}'}, row 2"

    def test_shards_and_named_files(self, tmp_path):
        write(tmp_path / "train-00000-of-00002.jsonl", ROWS[:6])
        write(tmp_path / "train-00001-of-00002.jsonl", ROWS[6:])
        write(tmp_path / "train_notes.jsonl", ROWS)
        other = write(tmp_path / "other.csv", ROWS[:3])
        splits = load(data=str(tmp_path), validation=[other])
        assert splits["train"]["text"] == [row["text"] for row in ROWS]
        assert where(splits["train"][6]).endswith("train-00001-of-00002.jsonl, row 1")
        assert len(splits["validation"]) == 3

    @pytest.mark.parametrize(
        "names",
        [
            ("training", "validate", "testing"),
            ("train", "development", "test"),
            ("TRAIN", "Val", "Test"),
        ],
    )
    def test_other_names_of_splits(self, tmp_path, names, capsys):
        for count, name in enumerate(names, 3):
            write(tmp_path / f"{name}.csv", ROWS[:count])
        splits = load(data=str(tmp_path))
        sizes = {name: len(split) for name, split in splits.items()}
        assert sizes == {"train": 3, "validation": 4, "test": 5}
        assert "not" not in capsys.readouterr().out

    @pytest.mark.parametrize("name", ["eval", "dev", "notes"])
    def test_tables_that_are_not_used_are_named(self, tmp_path, name, capsys):
        """ "eval" is the validation split to some, the test split to others."""
        for split in ("train", "validation", name):
            write(tmp_path / f"{split}.csv", ROWS)
        assert {*load(data=str(tmp_path))} == {"train", "validation"}
        assert f"train, validation are used, not {name}.csv; give other" in capsys.readouterr().out
        rows = datasets.Dataset.from_list(ROWS)
        splits = datasets.DatasetDict(train=rows, validation=rows, validation_mismatched=rows)
        load(data=splits)
        assert "not validation_mismatched" in capsys.readouterr().out

    def test_a_folder_without_any_split(self, tmp_path):
        write(tmp_path / "eval.csv", ROWS)
        with pytest.raises(ValueError, match="data: the splits are eval.csv; use files"):
            load(data=str(tmp_path))

    def test_paths_and_empty_rows_in_memory(self, tmp_path):
        write(tmp_path / "train.csv", ROWS)
        assert len(load(train=tmp_path / "train.csv", validation_size=None)["train"]) == 10
        empty = datasets.Dataset.from_list(ROWS).select([])
        with pytest.raises(ValueError, match="test: 'the data set' has no rows"):
            load(train=tmp_path / "train.csv", test=empty)

    @pytest.mark.parametrize("names", [("train-v1.1", "train-v2.0"), ("train", "train-v1.1")])
    def test_tables_that_are_no_shards_are_not_joined(self, tmp_path, names):
        for name in names:
            write(tmp_path / f"{name}.jsonl", ROWS)
        with pytest.raises(
            ValueError, match="data: .* are no shards of one table; use --train FILE"
        ):
            load(data=str(tmp_path))

    def test_rows_are_held_out_and_known_by_their_number(self, tmp_path):
        train = write(tmp_path / "train.jsonl", ROWS)
        first, again, other = (
            load(train=[train], validation_size=3, seed=seed) for seed in (0, 0, 1)
        )
        assert [len(first[name]) for name in ("train", "validation")] == [7, 3]
        assert first["validation"][ROW] == again["validation"][ROW] != other["validation"][ROW]
        for split in first.values():
            assert all(row["text"] == ROWS[row[ROW] - 1]["text"] for row in split)
        assert sorted([*first["train"][ROW], *first["validation"][ROW]]) == list(range(1, 11))
        assert len(load(train=[train], validation_size=0.2)["validation"]) == 2
        assert [*load(train=[train], validation_size=None)] == ["train"]

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({}, "none given"),
            ({"data": "no/such/folder.d"}, "'no/such/folder.d'"),
            ({"train": ["no/such.jsonl"]}, "'no/such.jsonl' is not a file"),
            ({"data": "{folder}/empty"}, "there is no table in the folder"),
            ({"train": ["{folder}/header.csv"]}, "header.csv' has no rows"),
            (
                {"train": ["{folder}/good.jsonl"], "validation_size": 10},
                "cannot be held out with all labels left to train on; give eval_dataset (--validation)",
            ),
            ({"train": ["{folder}/good.jsonl"], "validation_size": 0}, "cannot be held out"),
            ({"train": ["{folder}/good.jsonl", "{folder}/names.jsonl"]}, "can't be aligned"),
        ],
    )
    def test_refused(self, tmp_path, given, said):
        (tmp_path / "empty").mkdir()
        (tmp_path / "header.csv").write_text("text,label\n")
        write(tmp_path / "good.jsonl", ROWS)
        write(tmp_path / "names.jsonl", [{"text": "a", "label": "pos"}])
        place = lambda value: value.format(folder=tmp_path) if isinstance(value, str) else value  # noqa: E731
        given = {
            key: [*map(place, x)] if isinstance(x, list) else place(x) for key, x in given.items()
        }
        with pytest.raises(ValueError) as error:
            load(**given)
        assert said in str(error.value)


TOKENIZER = train_tokenizer(["a text"] * 9, vocab_size=13, show_progress=False)


def held_out(tmp_path, rows, task, seed=0, size=0.2):
    """The rows to train on and those held out of `rows` for a task."""
    train = write(tmp_path / "train.jsonl", rows)
    splits = load(train=[train], validation_size=size, seed=seed, task=task(TOKENIZER))
    return splits["train"].to_list(), splits["validation"].to_list()


NO_ANSWER = {"text": [], "answer_start": []}
COPIES = {
    "text": (Classify, lambda i: {"text": f"text {i // 2}", "label": i % 2}),
    "question": (
        Choose,
        lambda i: {
            "question": f"text {i // 2}",
            "choices": [f"{i // 2}", "b"],
            "label": "AB"[i % 2],
        },
    ),
    "context": (
        AnswerQuestions,
        lambda i: {"question": f"why {i}", "context": f"text {i // 2}", "answers": NO_ANSWER},
    ),
    "tokens": (Tag, lambda i: {"tokens": ["a", f"{i // 2}"], "pos": ["DET", "NUM"]}),
}


class TestCopies:
    @pytest.mark.parametrize("column", COPIES)
    def test_they_are_held_out_together(self, tmp_path, column):
        task, row = COPIES[column]
        rows = [{"id": i, **row(i)} for i in range(60)]
        drawn = []
        for seed in (0, 0, 1):
            sides = held_out(tmp_path, rows, task, seed)
            assert sorted(row["id"] for side in sides for row in side) == list(range(60))
            texts = [{str(row[column]) for row in side} for side in sides]
            assert not texts[0] & texts[1]
            assert 12 <= len(sides[1]) <= 14  # a fifth, and what goes with the last one
            drawn.append([row["id"] for row in sides[1]])
        assert drawn[0] == drawn[1] != drawn[2]


class TestRareLabels:
    @pytest.mark.parametrize(
        "label",
        [
            lambda i: f"rare {i}" if i < 15 else "ab"[i % 2],
            lambda i: [f"rare {i}", "a"] if i < 15 else ["b"],
        ],
    )
    def test_they_stay_in_training(self, tmp_path, label):
        rows = [{"text": f"text {i}", "label": label(i)} for i in range(30)]
        for seed in range(3):
            train, validation = held_out(tmp_path, rows, Classify, seed, 0.4)
            assert 0 < len(validation) < 12 and len(train) + len(validation) == 30
            assert not any("rare" in str(row["label"]) for row in validation)

    def test_nothing_else_is_refused(self, tmp_path):
        rows = [{"text": f"text {i}", "label": f"label {i}"} for i in range(10)]
        with pytest.raises(
            ValueError, match="validation_size: 0.2 of 10 rows .* cannot be held out"
        ):
            held_out(tmp_path, rows, Classify)


class TestLabels:
    def test_classes_keep_the_numbers_that_the_data_give_them(self, tmp_path):
        features = datasets.Features(
            text=datasets.Value("string"), label=datasets.ClassLabel(names=["no", "good"])
        )
        rows = datasets.Dataset.from_list(ROWS, features=features)
        rows.to_parquet(str(tmp_path / "train.parquet"))
        task = Classify(None)
        task.read(load(train=[str(tmp_path / "train.parquet")], task=task))
        assert task.config_fields()["id2label"] == {0: "no", 1: "good"}

    def test_of_a_single_label_its_absence_is_no_class(self):
        task = Classify(None, labels=["x"])
        task.learned.problem = MultiLabel(["x"])
        said = [[0]] * 9 + [[1]]
        assert task.score([[0]] * 10, said) == {"f1_micro": 0.0, "f1_macro": 0.0, "accuracy": 0.9}
        assert task.score(said, said) == {"f1_micro": 1.0, "f1_macro": 1.0, "accuracy": 1.0}

    @pytest.mark.parametrize(
        ("values", "arguments", "kind", "labels", "expected"),
        [
            ([0, 1, 0], {}, SINGLE_LABEL, ["0", "1"], [0, 1, 0]),
            ([10, 9, 10], {}, SINGLE_LABEL, ["9", "10"], [1, 0, 1]),  # in the order of numbers
            (["pos", "neg", "pos"], {}, SINGLE_LABEL, ["neg", "pos"], [1, 0, 1]),
            (
                ["pos", "neg", "pos"],
                {"labels": ["pos", "neg"]},
                SINGLE_LABEL,
                ["pos", "neg"],
                [0, 1, 0],
            ),
            ([0, 1, 1], {"labels": ["neg", "pos"]}, SINGLE_LABEL, ["neg", "pos"], [0, 1, 1]),
            ([True, False, True], {}, SINGLE_LABEL, ["False", "True"], [1, 0, 1]),
            ([1.5, 0.25, 4.0], {}, REGRESSION, ["score"], [1.5, 0.25, 4.0]),
            ([1.0, 0.0, 1.0], {}, SINGLE_LABEL, ["0", "1"], [1, 0, 1]),
            (["1", "0", "01"], {}, SINGLE_LABEL, ["0", "01", "1"], [2, 0, 1]),
            ([1.5, 2.5, 1.5], {"labels": ["1.5", "2.5"]}, SINGLE_LABEL, ["1.5", "2.5"], [0, 1, 0]),
            (
                [[0, 2], [], [1]],
                {},
                MULTI_LABEL,
                ["0", "1", "2"],
                [[1.0, 0.0, 1.0], [0.0] * 3, [0.0, 1.0, 0.0]],
            ),
            (
                [["a", "b"], [], ["c"]],
                {},
                MULTI_LABEL,
                ["a", "b", "c"],
                [[1.0, 1.0, 0.0], [0.0] * 3, [0.0, 0.0, 1.0]],
            ),
        ],
    )
    def test_kinds(self, tmp_path, values, arguments, kind, labels, expected):
        rows = [{"text": f"text {i}", "label": value} for i, value in enumerate(values)]
        task, splits = read(rows, tmp_path, **arguments)
        assert (task.problem_type, task.label_names) == (kind, labels)
        assert splits["train"][LABEL] == (
            expected if kind == MULTI_LABEL else pytest.approx(expected)
        )
        fields = task.config_fields()
        assert fields["problem_type"] == kind
        assert fields["label2id"] == {name: i for i, name in fields["id2label"].items()}

    @pytest.mark.parametrize(
        ("rows", "arguments", "said"),
        [
            ([{"text": "a"}, {"text": "b"}], {}, "label_column"),
            (
                [{"words": "a", "label": 0}, {"words": "b", "label": 1}],
                {"text_column": "text"},
                "no column 'text'",
            ),
            ([{"x": "a", "y": "b", "label": 0}] * 2, {}, "text_column"),
            (
                [{"text": "a", "label": 0}, {"text": None, "label": 1}],
                {},
                "train.jsonl, row 2: 'text' is empty",
            ),
            (
                [{"text": "a", "label": "x"}, {"text": " \n", "label": "y"}],
                {},
                "train.jsonl, row 2: 'text' is empty",
            ),
            (
                [{"text": "a", "label": "x"}, {"text": "b", "label": ""}],
                {},
                "train.jsonl, row 2: 'label' is empty",
            ),
            (
                [{"text": "a", "label": [0.0, 1.0]}, {"text": "b", "label": [0.0, 0.0]}],
                {},
                "row 2: label=[0, 0]; use a",
            ),
            (
                [{"text": "a", "label": [0.0, 1.0]}, {"text": "b", "label": [1.0, 0.0]}],
                {},
                "label_column: 'label' has [0",
            ),
            (
                [{"text": "a", "label": ["x"]}, {"text": "b", "label": ["x", None]}],
                {},
                "row 2: label=['x', None]; use",
            ),
            (
                [{"text": "a", "label": {"name": "x"}}] * 2,
                {},
                "row 1: label={'name': 'x'}; use a label",
            ),
            (
                [{"text": "a", "label": 3}] * 3,
                {},
                "train.jsonl' has 3 only; there is nothing to learn",
            ),
            (
                [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}],
                {"labels": ["x", "z"]},
                "row 2: label='y'",
            ),
        ],
    )
    def test_refused(self, tmp_path, rows, arguments, said):
        with pytest.raises(ValueError) as error:
            read(rows, tmp_path, **arguments)
        assert said in str(error.value)

    def test_a_label_of_the_test_rows_that_was_never_seen(self, tmp_path):
        with pytest.raises(
            ValueError, match=r"test\.jsonl, row 2: label=7 was never seen in training"
        ):
            read(ROWS, tmp_path, test=[{"text": "a", "label": 1}, {"text": "b", "label": 7}])

    def test_pairs_are_guessed_by_name(self, tmp_path):
        rows = [{"id": "1", "sentence1": "a", "sentence2": "b", "score": 0.5}] * 2
        assert read(rows, tmp_path)[0].text_columns == ["sentence1", "sentence2"]
        assert read([{"other": "a", "class": 1}, {"other": "b", "class": 2}], tmp_path)[
            0
        ].text_columns == ["other"]


class TestCells:
    """Of csv and tsv: text, in which labels may look like numbers."""

    def read(self, tmp_path, texts, **arguments):
        files = {
            name: [
                write(
                    tmp_path / f"{name}.csv",
                    [{"text": f"text {i}", "label": x} for i, x in enumerate(labels)],
                )
            ]
            for name, labels in texts.items()
        }
        task = Classify(None, **arguments)
        return task, task.read(load(**files))

    @pytest.mark.parametrize(("train", "test", "labels"), [
        (["0", "1", "1"], ["1"], ["0", "1"]), (["1", "9", "10"], ["10"], ["1", "9", "10"]),
        (["01", "02", "1A"], ["01"], ["01", "02", "1A"]),
        (["true", "false", "mixed"], ["true"], ["false", "mixed", "true"]),
        (["true", "false", "true"], ["true"], ["false", "true"]),
        (["12345678901234567890123", "12345678901234567890124"], ["12345678901234567890124"], None),
    ])  # fmt: skip
    def test_classes(self, tmp_path, train, test, labels):
        task, splits = self.read(tmp_path, {"train": train, "validation": train, "test": test})
        assert task.label_names == (labels or train) and len(splits["test"]) == len(test)
        assert task.problem_type == SINGLE_LABEL and len(set(splits["train"][LABEL])) == len(
            set(train)
        )

    @pytest.mark.parametrize(("names", "cells", "ids"), [
        (["1.0", "1.10", "2.0"], ["1.0", "2.0"], [0, 2]),  # which alone are numbers
        (["1.0", "1.10", "2.0"], ["1.10", "1.0"], [1, 0]), (["0", "1"], ["1.00", "0.00"], [1, 0]),
        (["1", "2"], ["02", "01"], [1, 0]), (["False", "True"], ["true", "false"], [1, 0]),
        (["a", "b"], ["1", "0"], [1, 0]), (["3.1", "3.9"], ["1", "0"], None), (["a", "b"], ["2", "0"], None),
    ])  # fmt: skip
    def test_of_a_model_that_knows_its_labels(self, tmp_path, names, cells, ids):
        """By text, else by number: what a column holds is decided without the files that were trained on."""
        file = write(
            tmp_path / "test.csv",
            [{"text": f"text {i}", "label": cell} for i, cell in enumerate(cells)],
        )
        config = BertConfig(id2label=dict(enumerate(names)), problem_type=SINGLE_LABEL)
        task, splits = (Classify(None), load(test=[file]))
        if ids is None:
            with pytest.raises(ValueError, match="was never seen in training"):
                task.read(splits, config)
        else:
            assert task.read(splits, config)["test"][LABEL] == ids


class TestNli:
    ROWS = (
        {"premise": "a", "hypothesis": "b", "label": label}
        for label in ("neutral", "-", "entailment")
    )

    def test_its_former_file_has_it_too(self):
        assert classification.Nli is Nli
        assert not hasattr(classification, "Nobody")

    def test_pairs_without_gold_label_are_left_out(self, tmp_path):
        task, splits = read(list(self.ROWS), tmp_path, task=Nli)
        assert task.label_names == ["entailment", "neutral"]
        assert splits["train"][ROW] == [1, 3] and len(splits["validation"]) == 1
        assert {FILE, LABEL} <= set(splits["train"].column_names)

    def test_numbers_need_names(self, tmp_path):
        rows = [{"premise": "a", "hypothesis": "b", "label": label} for label in (0, 1, -1, 2)]
        with pytest.raises(ValueError, match="--labels"):
            read(rows, tmp_path, task=Nli)
        _, splits = read(
            rows, tmp_path, task=Nli, labels=["entailment", "neutral", "contradiction"]
        )
        assert splits["train"][LABEL] == [0, 1, 2]

    def test_one_text_is_no_pair(self, tmp_path):
        with pytest.raises(ValueError, match="pair_column"):
            read(ROWS, tmp_path, task=Nli)


class TestChoose:
    @pytest.mark.parametrize(
        ("row", "columns", "text", "begin"),
        [
            (
                {"article": "A", "question": "Q", "options": ["b", "c"], "answer": "A"},
                [],
                "A",
                "Q ",
            ),  # RACE
            (
                {"sent1": "S", "sent2": "he", "end0": "b", "end1": "c", "label": 0},
                ["end0", "end1"],
                "S",
                "he ",
            ),  # SWAG
            ({"question": "Q", "choices": ["b", "c"], "label": 0}, [], "Q", ""),
        ],
    )
    def test_columns_of_known_data_sets(self, tmp_path, row, columns, text, begin):
        task = Choose(None, choice_columns=columns)
        file = write(tmp_path / "train.jsonl", [row])
        split = task.read(load(train=[file], validation=[file]))["train"]
        assert split[task.text_columns[0]] == [text] and split[CHOICE_TEXTS] == [
            [f"{begin}b", f"{begin}c"]
        ]

    @pytest.mark.parametrize(
        ("given", "numbers"),
        [
            ([0, 2, 3], [0, 2, 3]),
            (["0", "2", "3"], None),
            (["A", "C", "D"], [0, 2, 3]),
            (["x"], None),
        ],
    )
    def test_right_choices(self, tmp_path, given, numbers):
        """A text that is both the number of a choice and a choice is not clear."""
        rows = [{"text": "a", "choices": ["2", "4", "8", "1"], "label": label} for label in given]
        if numbers is not None:
            assert self.read(tmp_path, rows, "jsonl")["train"][LABEL] == numbers
            return
        with pytest.raises(
            ValueError,
            match="train.jsonl, row .: label='.'; use a number from 0 to 3, or its letter",
        ):
            self.read(tmp_path, rows, "jsonl")

    @pytest.mark.parametrize(
        ("keys", "numbers"),
        [
            (["A", "B", "C", "D", "1", "2", "3"], [0, 1, 2, 3, 0, 1, 2]),  # ARC has both
            ([1, 4, 2], [0, 3, 1]),
            (["1", "2", "4"], [0, 1, 3]),
            (["1", "2", "3", "1"], [1, 2, 3, 1]),
            (["A", "0"], "it has 0 and letters, so it is not clear"),
            (["0", "4"], "it has 0 and 4, so it is not clear"),
            (["A", "5"], "row 2: label='5'; use a number from 1 to 4, or its letter"),
        ],
    )
    def test_what_numbers_count_from(self, tmp_path, keys, numbers):
        choices = ["red", "blue", "green", "black"]
        rows = [{"text": "a", "choices": choices, "label": key} for key in keys]
        if isinstance(numbers, list):
            assert self.read(tmp_path, rows, "jsonl")["train"][LABEL] == numbers
            return
        with pytest.raises(ValueError, match=numbers):
            self.read(tmp_path, rows, "jsonl")

    def test_all_splits_count_alike(self, tmp_path):
        choices = ["red", "blue", "green"]
        rows = [{"text": "a", "choices": choices, "label": label} for label in (1, 2, 3)]
        files = [
            write(tmp_path / "train.jsonl", rows),
            write(tmp_path / "validation.jsonl", rows[:2]),
        ]
        splits = Choose(None).read(load(train=files[:1], validation=files[1:]))
        assert [splits[name][LABEL] for name in splits] == [[0, 1, 2], [0, 1]]

    @pytest.mark.parametrize("is_list", [False, True])
    def test_choices_with_their_keys(self, tmp_path, is_list):
        """As ARC, OpenBookQA and CommonsenseQA have them: a row's own keys count."""
        rows = []
        for keys, right in ((["A", "B"], "B"), (["1", "2"], "2"), (["2", "1"], "2")):
            choices = {"text": ["red", "blue"], "label": keys}
            if is_list:
                choices = [{"text": "red", "label": keys[0]}, {"text": "blue", "label": keys[1]}]
            rows.append({"question": "Q", "choices": choices, "answerKey": right})
        split = self.read(tmp_path, rows, "jsonl")["train"]
        assert split[LABEL] == [1, 1, 0]
        assert split[CHOICE_TEXTS] == [["red", "blue"]] * 3
        rows[1]["answerKey"] = "A"
        with pytest.raises(ValueError, match="row 2: answerKey='A'; use one of 1, 2, as in "):
            self.read(tmp_path, rows, "jsonl")

    def read(self, tmp_path, rows, suffix="csv"):
        file = write(tmp_path / f"train.{suffix}", rows)
        columns = ["ending0", "ending1"] if suffix == "csv" else []
        return Choose(None, choice_columns=columns).read(load(train=[file], validation=[file]))

    @pytest.mark.parametrize("column", ["sent1", "ending1"])
    def test_a_blank_text_is_refused(self, tmp_path, column):
        rows = [{"sent1": "a", "ending0": "b", "ending1": "c", "label": 1} for _ in range(2)]
        rows[1][column] = ""
        with pytest.raises(ValueError, match=f"train.csv, row 2: '{column}' is empty"):
            self.read(tmp_path, rows)


class TestSquad:
    ROWS = [
        {"id": str(i), "context": f"Ann has {i // 2} cats .", "question": f"Who {i} ?",
         "answers": {"text": ["Ann"], "answer_start": [0]} if i % 3 else {"text": [], "answer_start": []}}
        for i in range(6)
    ]  # fmt: skip

    def test_nested_files_are_read_as_the_hubs_rows(self, tmp_path):
        (tmp_path / "train-v1.1.json").write_text(as_squad(self.ROWS, answers=True))
        (tmp_path / "dev-v1.1.json").write_text(as_squad(self.ROWS[:3], answers=True))
        (tmp_path / "test.json").write_text(as_squad(self.ROWS, answers=False))
        splits = load(data=str(tmp_path))
        assert {name: len(split) for name, split in splits.items()} == {
            "train": 6,
            "validation": 3,
            "test": 6,
        }
        read = splits["train"].select_columns(list(self.ROWS[0]))
        assert list(read) == self.ROWS
        assert where(splits["train"][4]) == f"{tmp_path / 'train-v1.1.json'}, row 5"
        tokenizer = train_tokenizer(["Ann has cats Who"] * 20, "wordpiece", 60, show_progress=False)
        tokenizer.model_max_length = 60
        task = AnswerQuestions(tokenizer)
        drop_unlabelled_test(task, splits)
        assert "test" not in splits
        assert task.read(splits)["train"]["_starts"][:] == [[], [0], [0], [], [0], [0]]


class TestValuesAndNames:
    def read(self, tmp_path, rows, task):
        file = write(tmp_path / "train.jsonl", rows)
        return task.read(load(task, train=[file], validation=[file]))

    def test_whole_numbers_are_learned_as_values(self, tmp_path, capsys):
        """Ratings from 0 to 100 would be 101 classes."""
        rows = [{"text": f"a{i}", "label": i} for i in range(101)]
        task = Classify(None)
        self.read(tmp_path, rows, task)
        assert len(task.label_names) == 101
        assert "101 different whole numbers are learned as classes" in capsys.readouterr().out
        task = Classify(None, regression=True)
        splits = self.read(tmp_path, rows, task)
        assert (task.problem_type, task.label_names) == ("regression", ["score"])
        assert splits["train"][LABEL][:] == list(range(101))
        assert "different whole numbers" not in capsys.readouterr().out
        rows[3]["label"] = "good"
        with pytest.raises(ValueError, match="row 4: label='good'; use a number"):
            self.read(tmp_path, rows, Classify(None, regression=True))
        with pytest.raises(ValueError, match="^regression: values have no names"):
            Classify(None, regression=True, labels=["a", "b"])
        with pytest.raises(ValueError, match="^regression: inference has classes"):
            Nli(None, regression=True)

    def test_weights_are_printed_with_their_classes(self, tmp_path, capsys):
        rows = [{"text": f"a{i}", "label": "ab"[i % 2]} for i in range(8)]
        self.read(tmp_path, rows, Classify(None, class_weights=["5", "1"]))
        assert "class_weights: a 5, b 1\n" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("names", "order"),
        [
            (
                ["SUPPORTS", "REFUTES", "NOT ENOUGH INFO"],
                ["REFUTES", "NOT ENOUGH INFO", "SUPPORTS"],
            ),
            (["supported", "unsupported"], ["unsupported", "supported"]),
            (["yes", "no"], ["no", "yes"]),
            (["true", "false", "unknown"], ["false", "unknown", "true"]),
            (["neutral", "entailment"], ["entailment", "neutral"]),
        ],
    )
    def test_zero_shot_finds_entailment(self, tmp_path, capsys, names, order):
        """Transformers takes the label that begins with "entail", or else the last one."""
        rows = [
            {"premise": f"a{i}", "hypothesis": "b", "label": names[i % len(names)]}
            for i in range(9)
        ]
        task = Nli(None)
        splits = self.read(tmp_path, rows, task)
        assert task.label_names == order
        assert [order[label] for label in splits["train"][LABEL]] == [row["label"] for row in rows]
        is_said = "zero-shot classification takes the last one" in capsys.readouterr().out
        assert is_said == ("entailment" not in names)
