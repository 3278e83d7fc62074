"""Tables as other tools write them: CoNLL columns, exports of doccano and Prodigy, spreadsheets."""

import json

import pytest
from helpers import write_rows
from toy_reviews import load, sentences

import minibert
from minibert import train_tokenizer
from minibert.training.data.tables import read_table
from minibert.training.data.text_files import ReadError
from minibert.training.finetuning.tasks.classification import Classify
from minibert.training.finetuning.tasks.problem_types import MULTI_LABEL, SINGLE_LABEL
from minibert.training.finetuning.tasks.tagging import Tag

ANNA = {"tokens": ["Anna", "Berg", "sang", "."], "ner_tags": ["B-PER", "I-PER", "O", "O"]}
TEXT = "Anna Berg sang."


def rows_of(file, *columns):
    """The rows that a file gives a task, without where they came from."""
    split = load(train=[str(file)], validation=[str(file)])["train"]
    return split.select_columns(list(columns or ("tokens", "ner_tags"))).to_list()


@pytest.mark.parametrize(
    ("name", "text", "rows"),
    [
        (
            "a.conll",
            "Anna B-PER\nBerg I-PER\nsang O\n. O\n\n# O\n",
            [ANNA, {"tokens": ["#"], "ner_tags": ["O"]}],
        ),
        (
            "a.txt",
            "-DOCSTART- O\n\nAnna\tB-PER\r\nBerg\tI-PER\r\nsang\tO\r\n.\tO\r\n\r\n\r\n",
            [ANNA],
        ),
        ("a.tsv", "# id 7\nAnna\tB-PER\nBerg\tI-PER\nsang\tO\n.\tO\n", [ANNA]),
        ("a.iob2", "Anna NNP x y B-PER\nBerg NNP x y I-PER\nsang VBD x y O\n. . x y O", [ANNA]),
        (
            "a.bio",
            "New York\tB-LOC\n#\tO\n",
            [{"tokens": ["New York", "#"], "ner_tags": ["B-LOC", "O"]}],
        ),
    ],
)
def test_columns_of_words_and_tags(name, text, rows, tmp_path):
    for encoding in ("utf-8", "utf-16"):
        (tmp_path / name).write_text(text, encoding=encoding, newline="")
        assert rows_of(tmp_path / name) == rows


def test_columns_that_have_names(tmp_path):
    """Those of CoNLL-2003 and of CoNLL-U, whose words over several lines and empty nodes are left out."""
    (tmp_path / "a.conll").write_text(
        "-DOCSTART- -X- -X- O\n\nAnna NNP B-NP B-PER\nsang VBD B-VP O\n"
    )
    expected = {
        "pos_tags": ["NNP", "VBD"],
        "chunk_tags": ["B-NP", "B-VP"],
        "ner_tags": ["B-PER", "O"],
    }
    assert read_table(tmp_path / "a.conll").to_list() == [{"tokens": ["Anna", "sang"], **expected}]
    lines = ["# text = vámonos", "1-2 vámonos _ _ _ _ _ _ _ _", "1 vamos ir VERB V _ 0 root _ _"]
    lines += ["1.1 x _ _ _ _ _ _ _ _", "2 nos nosotros PRON P _ 1 obj _ _"]
    (tmp_path / "a.conllu").write_text(
        "\n".join([lines[0], *(line.replace(" ", "\t") for line in lines[1:])]), encoding="utf-8"
    )
    expected = {"tokens": ["vamos", "nos"], "upos": ["VERB", "PRON"], "xpos": ["V", "P"]}
    assert read_table(tmp_path / "a.conllu").to_list() == [expected]


@pytest.mark.parametrize(
    "row",
    [
        {"id": 1, "text": TEXT, "label": [[0, 9, "PER"]]},  # doccano
        {"id": 1, "data": TEXT, "label": [[0, 9, "PER"]], "Comments": []},
        {"text": TEXT, "entities": [{"id": 3, "label": "PER", "start_offset": 0, "end_offset": 9}], "relations": []},
        {"text": TEXT, "spans": [{"start": 0, "end": 9, "label": "PER"}], "answer": "accept"},  # Prodigy
        {"text": TEXT, "answer": "accept", "spans": [{"start": 0, "end": 9, "label": "PER"}],
         "tokens": [{"text": TEXT[a:b], "start": a, "end": b, "id": i} for i, (a, b) in
                    enumerate([(0, 4), (5, 9), (10, 14), (14, 15)])]},
    ],
)  # fmt: skip
def test_spans_of_characters(row, tmp_path):
    other = {
        **row,
        **{key: [] for key in ("label", "entities", "spans") if key in row},
    }  # without any
    file = write_rows(tmp_path / "a.jsonl", [other, row])
    assert rows_of(file) == [{**ANNA, "ner_tags": ["O"] * 4}, ANNA]
    (tmp_path / "a.json").write_text(json.dumps([other, row]))
    assert rows_of(tmp_path / "a.json")[1] == ANNA


@pytest.mark.parametrize("column", ["label", "entities", "spans"])
def test_an_export_without_any_span(column, tmp_path):
    """Another file of the same annotators tells what the empty lists are."""
    span = [0, 9, "PER"] if column == "label" else {"start": 0, "end": 9, "label": "PER"}
    train = write_rows(tmp_path / "a.jsonl", [{"text": TEXT, column: [span]}])
    empty = write_rows(tmp_path / "b.jsonl", [{"text": TEXT, column: []}] * 2)
    splits = load(train=[train, empty], validation=[empty])
    assert splits["train"]["ner_tags"][:] == [ANNA["ner_tags"], ["O"] * 4, ["O"] * 4]
    assert splits["validation"]["ner_tags"][:] == [["O"] * 4] * 2
    assert Tag(train_tokenizer([TEXT] * 9, vocab_size=40, show_progress=False)).read(splits)


def test_answers_are_settled_over_all_files(tmp_path):
    """In a file of one label, rejected rows lack it only if no other file has another label."""
    files = []
    for label in ("SPAM", "OFFER"):
        rows = [
            {"text": f"{label} {answer}", "label": label, "answer": answer}
            for answer in ("accept", "reject")
        ]
        files.append(write_rows(tmp_path / f"{label}.jsonl", rows))
    split = load(train=files, validation_size=None)["train"]
    assert split["label"][:] == ["SPAM", "OFFER"]


def test_rows_to_validate_on_with_other_columns(tmp_path):
    train = write_rows(tmp_path / "a.jsonl", [{"tokens": ["a"], "ner_tags": ["O"]}])
    other = write_rows(tmp_path / "b.jsonl", [{"words": ["a"], "tags": ["O"]}])
    splits = load(train=[train], validation=[other])
    with pytest.raises(
        ValueError, match=r"b\.jsonl' has no column 'tokens' \(it has words, tags\)"
    ):
        Tag(train_tokenizer(["a"] * 9, vocab_size=40, show_progress=False)).read(splits)


def test_a_word_is_cut_where_a_span_ends(tmp_path):
    file = write_rows(
        tmp_path / "a.jsonl", [{"text": "NewYork 2024", "label": [[3, 7, "LOC"], [8, 12, "LOC"]]}]
    )
    assert rows_of(file) == [
        {"tokens": ["New", "York", "2024"], "ner_tags": ["O", "B-LOC", "B-LOC"]}
    ]


def test_answers_of_prodigy(tmp_path, capsys):
    """Ignored rows are left out; rejected ones too, but where one label was asked for: there, they lack it."""
    spans = [{"start": 0, "end": 4, "label": "PER"}]
    rows = [
        {"text": "Anna", "spans": spans, "answer": answer}
        for answer in ("accept", "reject", "ignore")
    ]
    assert rows_of(write_rows(tmp_path / "a.jsonl", rows)) == [
        {"tokens": ["Anna"], "ner_tags": ["B-PER"]}
    ]
    assert "2 of 3 rows are left out (ignored, rejected)" in capsys.readouterr().out
    rows = [
        {"text": answer, "label": "SPAM", "answer": answer}
        for answer in ("accept", "reject", "ignore")
    ]
    expected = [{"text": "accept", "label": ["SPAM"]}, {"text": "reject", "label": []}]
    assert rows_of(write_rows(tmp_path / "b.jsonl", rows), "text", "label") == expected
    options = [{"id": name, "text": name} for name in ("good", "bad")]
    rows = [{"text": "a", "options": options, "accept": ["good"], "answer": "accept"}]
    rows += [{"text": "b", "options": options, "accept": [], "answer": "ignore"}]
    assert rows_of(write_rows(tmp_path / "c.jsonl", rows), "text", "label") == [
        {"text": "a", "label": ["good"]}
    ]


def test_lists_of_one_label_each_are_classes(tmp_path):
    """As doccano writes them."""
    rows = [{"id": i, "text": f"{i}", "label": [("good", "bad")[i % 2]]} for i in range(6)]
    splits = load(
        train=[write_rows(tmp_path / "a.jsonl", rows)],
        validation=[write_rows(tmp_path / "b.jsonl", rows)],
    )
    task = Classify(None)
    assert task.read(splits)["train"]["_label"][0] == 1 and task.problem_type == SINGLE_LABEL


def test_classes_of_which_some_rows_are_not_labelled_yet(tmp_path, capsys):
    """doccano exports an empty list for them. With a single label, it says that a row lacks it."""
    rows = [{"text": f"{i}", "label": [("good", "bad")[i % 2]]} for i in range(40)]
    rows += [{"text": f"new {i}", "label": []} for i in range(5)]
    splits = load(train=[write_rows(tmp_path / "a.jsonl", rows)])
    task = Classify(None)
    read = task.read(splits)
    assert task.problem_type == SINGLE_LABEL and task.label_names == ["bad", "good"]
    assert len(read["train"]) + len(read["validation"]) == 40
    assert "rows have no label and are left out" in capsys.readouterr().out
    rows = [{"text": f"{i}", "label": ["good"] * (i % 2)} for i in range(40)]
    splits = load(train=[write_rows(tmp_path / "b.jsonl", rows)])
    task = Classify(None)
    assert len(task.read(splits)["train"]) == 36 and task.problem_type == MULTI_LABEL
    rows[0]["label"] = ["good", "bad"]
    rows[1]["label"] = ["bad"]
    splits = load(train=[write_rows(tmp_path / "c.jsonl", rows)])
    task = Classify(None)
    task.read(splits)
    assert task.problem_type == MULTI_LABEL and task.label_names == ["bad", "good"]


@pytest.mark.parametrize(
    "cells",
    [
        ['{"choices": ["joy", "sad"]}', '{"choices": ["joy"]}'],  # Label Studio
        ["joy|sad", "joy"],
        ['["joy", "sad"]', '["joy"]'],
        [{"choices": ["joy", "sad"]}, {"choices": ["joy"]}],
    ],
)
def test_several_labels_in_a_cell(cells, tmp_path):
    rows = [{"text": f"{i}", "label": cells[i % 2]} for i in range(20)]
    splits = load(train=[write_rows(tmp_path / "a.jsonl", rows)], validation_size=None)
    task = Classify(None)
    assert task.read(splits)["train"]["_label"][:2] == [[1.0, 1.0], [1.0, 0.0]]
    assert task.problem_type == MULTI_LABEL and task.label_names == ["joy", "sad"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_spreadsheets(encoding, tmp_path):
    """Semicolons, UTF-16 and quotes as Excel writes them; no header."""
    (tmp_path / "a.csv").write_text('text;label\n"good; very, very";1\nbad;0\n', encoding=encoding)
    expected = [{"text": "good; very, very", "label": 1}, {"text": "bad", "label": 0}]
    assert rows_of(tmp_path / "a.csv", "text", "label") == expected
    (tmp_path / "b.csv").write_text("good,1\nbad,0\n", encoding=encoding)
    file = str(tmp_path / "b.csv")
    split = load(train=[file], validation=[file], columns=["text", "label"])["train"]
    assert split.select_columns(["text", "label"]).to_list() == [
        {"text": "good", "label": 1},
        {"text": "bad", "label": 0},
    ]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.conll", "Anna\nsang\n", "line 1: 1 columns instead of 2; write a word and its tag in each line"),
        ("a.conll", "Anna B-PER\nsang\n", "line 2: 1 columns instead of 2; write a word and its tag"),
        ("a.jsonl", '{"text": "Anna", "label": [[0, 9, "PER"]]}', "row 1: .*outside of 'Anna'; write them as {"),
        ("a.jsonl", '{"text": "Anna", "label": [[0, 3, "A"], [2, 4, "B"]]}', "overlaps another one.*write them as {"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_with_an_example(name, text, said, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=said):
        rows_of(tmp_path / name)


def test_columns_that_do_not_fit_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\na,1\n")
    with pytest.raises(
        ReadError, match="the first row of .*a.csv' is a header .*; leave --columns out"
    ):
        read_table(tmp_path / "a.csv", header=["text", "label"])
    with pytest.raises(ReadError, match="line 1: 2 cells, but 1 columns"):
        read_table(tmp_path / "a.csv", header=["text"])
    file = write_rows(tmp_path / "a.jsonl", [{"text": "a", "label": 1}])
    with pytest.raises(
        ValueError, match="columns: only csv and tsv files can lack a header, not .*a.jsonl'"
    ):
        read_table(file, header=["text", "label"])


def test_a_csv_without_a_header_is_trained_on(start, tmp_path):
    lines = [f"{text},{'good' if good else 'bad'}\n" for text, good, _ in sentences(40)]
    (tmp_path / "train.csv").write_text("".join(lines))
    given = dict(
        model=start, train=str(tmp_path / "train.csv"), max_steps=2, use_cpu=True, bf16=False
    )
    with pytest.raises(ValueError, match="where its first row is no header, give --columns"):
        minibert.finetune("classify", **given, output_dir=str(tmp_path / "out"))
    result = minibert.finetune(
        "classify", **given, columns=["text", "label"], output_dir=str(tmp_path / "out")
    )
    assert list(result.model.config.id2label.values()) == ["bad", "good"]
