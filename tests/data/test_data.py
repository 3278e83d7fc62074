"""Documents: every source is read as it is documented, refused with its name, split and tokenized without loss."""

import json
import math
import os

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from minibert.tokenization import train_tokenizer
from minibert.training.data import documents as data
from minibert.training.data.documents import load_documents
from minibert.training.data.tables import read_table
from minibert.training.data.text_files import ReadError
from minibert.training.data.tokenized import tokenize_documents
from minibert.training.data.validation_documents import held_out_mask

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a file into the working folder and give its name back."""
    monkeypatch.chdir(tmp_path)

    def write(name, content):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return name

    return write


def texts(*arguments, **keywords):
    dataset = load_documents(*arguments, **keywords)
    assert dataset.column_names == (
        ["text", "source"] if arguments and len(arguments[0]) > 1 else ["text"]
    )
    assert dataset.features["text"].dtype == "string"
    return dataset["text"][:]


# --- text files ---

PARAGRAPHS = "Title\nFirst paragraph.\nSecond.\n\nNext title\nIts paragraph.\n"


@pytest.mark.parametrize(
    "content, sample_by, expected",
    [
        (PARAGRAPHS, "auto", ["Title\nFirst paragraph.\nSecond.", "Next title\nIts paragraph."]),
        (
            PARAGRAPHS.replace("\n", "\r\n"),
            "auto",
            ["Title\nFirst paragraph.\nSecond.", "Next title\nIts paragraph."],
        ),
        ("\n\n a \nb\n\n\n\n\nc\n\n", "auto", ["a \nb", "c"]),
        ("one\ntwo\nthree", "auto", ["one", "two", "three"]),
        ("\n\none\ntwo\n\n\n", "auto", ["one", "two"]),  # blank lines at the ends part nothing
        (
            PARAGRAPHS,
            "line",
            ["Title", "First paragraph.", "Second.", "Next title", "Its paragraph."],
        ),
        (PARAGRAPHS, "document", [PARAGRAPHS.strip()]),
        ("one\ntwo", "paragraph", ["one\ntwo"]),
        ("\none\ntwo\n \t\nthree", "auto", ["one\ntwo", "three"]),
        ("one\n\u00a0\ntwo\n\nthree\n \nfour", "auto", ["one\n\u00a0\ntwo", "three", "four"]),
        ("one\ntwo\n\nthree\r\n \r\nfour\nfive", "auto", ["one\ntwo", "three", "four\nfive"]),
        ("\ufeffone\n \t\nΔύο\n", "line", ["one", "Δύο"]),  # byte order mark, a line of spaces
    ],
)
def test_text_layouts(write, content, sample_by, expected):
    assert texts([write("text.txt", content)], sample_by=sample_by) == expected
    (stream,) = data.load_sources(["text.txt"], sample_by=sample_by, streaming=True)
    assert [row["text"] for row in stream] == expected


@pytest.mark.parametrize("streaming", [False, True])
def test_sample_by_sentence(write, streaming):
    wrapped = "One is\nwrapped. “Two!” he said. “Three.” Four (so.)\n\nFive?\n \n"
    files = [write("a.txt", wrapped), write("b.txt", "Six. Seven 3.5\nEight")]
    files.append(write("c.jsonl", '{"text": "Nine. Ten."}'))
    parts = data.load_sources(files, sample_by="sentence", streaming=streaming)
    found = [row["text"] for part in parts for row in part]
    assert found[:5] == ["One is wrapped.", "“Two!” he said.", "“Three.”", "Four (so.)", "Five?"]
    assert found[5:] == ["Six.", "Seven 3.5", "Eight", "Nine.", "Ten."]


# --- other files, folders and globs ---


def test_tables(write, tmp_path):
    rows = [
        {"text": "NA", "label": 1},
        {"text": None, "label": 2},
        {"text": "a, b\n\nc", "label": 3},
    ]
    write("a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    write("b.json", json.dumps(rows))
    write("c.csv", 'text,label\nNA,1\n,2\n"a, b\n\nc",3\n')
    write("d.tsv", 'text\tlabel\nNA\t1\n\t2\n"a, b\n\nc"\t3\n')
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "e.parquet")
    for name in ("a.jsonl", "b.json", "c.csv", "d.tsv", "e.parquet"):
        assert texts([name]) == ["NA", "a, b\n\nc"], name
    assert texts(["."]) == ["NA", "a, b\n\nc"] * 5


def read(data_files, streaming, **options):
    """The texts of one entry."""
    (rows,) = data.load_sources([data_files], streaming=streaming, **options)
    return [row["text"] for row in rows]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (['" hello there\tpos', "one\tneg", '" two\tpos'], "line 2: '\t' expected after '\"'"),
        (["one\tpos", '" hello there\tneg', "two\tpos"], "line 3: unexpected end of data"),
        (['" hello there\tpos', 'one "\tneg'], "line 2: a cell of a tsv has a tab"),
    ],
)
def test_tsv_with_unescaped_quotes_is_refused(write, rows, said):
    file = write("a.tsv", "text\tlabel\n" + "".join(f"{row}\n" for row in rows))
    with pytest.raises(ReadError, match=f"a.tsv, {said}.*; a cell that begins with a quote"):
        read(file, False)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_rows_of_another_length_than_the_header(write, name, streaming):
    """pandas takes the first cell of a longer one for its name, and moves the others under the wrong header."""

    def table(*rows):
        return write(
            name, "".join(("," if name == "a.csv" else "\t").join(row) + "\n" for row in rows)
        )

    file = table(["text", "label"], ["one", " more", "pos"], ["two", "neg"])
    with pytest.raises(ReadError, match=f"{name}, line 2: 3 cells, but 2 columns"):
        read(file, streaming)
    file = table(["id", "text"], *([str(i), "one"] for i in range(2000)), ["two"])
    with pytest.raises(ReadError, match=f"{name}, line 2002: 1 cells, but 2 columns"):
        read(file, streaming)
    assert read(write(name, 'text\n"one\n two"\n \n\nthree\n'), streaming) == ["one\n two", "three"]


@pytest.mark.parametrize("streaming", [False, True])
def test_only_the_column_of_the_text_is_read(write, streaming):
    """Others may have any type, change it far down, or be there in some files only."""
    values = [None] * 2500 + ["2021-01-05", "unknown", 3, {"a": [1, "b"]}, {}]
    rows = [{"text": f"text {i} " + "long " * 40, "note": value} for i, value in enumerate(values)]
    file = write("a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert read(file, streaming) == [row["text"].strip() for row in rows]
    for name, row in (
        ("a", {"text": "one", "note": 1}),
        ("b", {"text": "two"}),
        ("c", {"x": 1.5, "text": "three"}),
    ):
        datasets.Dataset.from_list([row]).to_parquet(write(f"parquet/{name}.parquet", ""))
        write(f"json/{name}.jsonl", json.dumps(row) + "\n")
    write("csv/a.csv", "text,label\none,0\n")
    write("csv/b.csv", "source,text,label\nweb,two,1\n")
    write("csv/c.csv", "text\nthree\n")
    for folder in ("parquet", "json", "csv"):
        assert read(folder, streaming) == ["one", "two", "three"]


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_a_row_that_cannot_be_read_is_named_by_its_line(write, suffix, streaming):
    """Also far down, where a reader's blocks have begun anew; and it stays a `ReadError` in a worker."""
    lines = [
        json.dumps({"text": f"line {i} " + "some words of a text " * 40}) for i in range(1, 2001)
    ]
    broken = {"text": '{"text": "cut off here', "[1]": "[1]", "3": '{"text": 3}'}
    if suffix == ".csv":
        lines, broken = [f"line {i},{i}" for i in range(1, 2001)], {"cells": "a,b,c"}
        lines[0] = "text,number"
    for bad in broken.values():
        file = write(f"t{suffix}", "\n".join([*lines[:1899], bad, *lines[1900:]]))
        with pytest.raises(ReadError, match=f"t{suffix}, line 1900: "):
            read(file, streaming)


def test_a_damaged_parquet_file_is_named(write, tmp_path):
    draw = np.random.default_rng(0)
    table = pa.table({"text": [str(number) for number in draw.integers(0, 1 << 60, 5000)]})
    pq.write_table(table, tmp_path / "b.parquet")
    content = bytearray((tmp_path / "b.parquet").read_bytes())
    middle = len(content) // 2
    content[middle : middle + 4000] = bytes(4000)
    (tmp_path / "b.parquet").write_bytes(content)
    with pytest.raises(ReadError, match="b.parquet' cannot be read as parquet"):
        read("*.parquet", False)


@pytest.mark.parametrize("streaming", [False, True])
def test_bytes_that_are_not_utf8(write, streaming, monkeypatch):
    for content, offset in (
        (b"a line\n" * 9 + b"\xff\n", 63),
        (b"a" * ((1 << 24) - 1) + "é".encode() + b"\xe2", 1 << 24),
    ):
        file, offset = write("a.txt", content), offset + (offset > 99)
        with pytest.raises(ReadError, match=f"'a.txt' is not UTF-8 text: .* at offset {offset}$"):
            data.load_sources([file], streaming=streaming)
    with pytest.raises(ReadError, match="'a.csv' is not UTF-8 text"):
        read(write("a.csv", b"text\none\n\xff\n"), streaming)


@pytest.mark.parametrize("streaming", [False, True])
def test_half_a_character_is_named_by_its_line(write, streaming):
    lines = [r'{"text": "\ud83d\ude00 is whole"}', r'{"text": "\ud83d is not"}']
    assert read(write("a.jsonl", lines[0]), streaming) == ["😀 is whole"]
    with pytest.raises(ReadError, match=r"b.jsonl, line 2: .* is half of a character"):
        read(write("b.jsonl", "\n".join(lines)), streaming)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_with_a_byte_order_mark(write, streaming, encoding):
    """As Windows' editor writes it; beside a file in UTF-8."""
    mark = "" if encoding == "utf-16" else "\ufeff"
    write("folder/a.txt", f"{mark}größer\nals".encode(encoding))
    write("folder/b.txt", "plain ä")
    write("folder/c.txt", f"{mark}ein Absatz\n \nzwei\nZeilen".encode(encoding))
    expected = ["größer", "als", "plain ä", "ein Absatz", "zwei\nZeilen"]
    assert sorted(read("folder", streaming)) == sorted(expected)
    with pytest.raises(ReadError, match=r"cut.txt' is not UTF-16.* text: truncated data at offset"):
        read(write("cut.txt", "\ufefftext".encode(encoding)[:-1]), streaming)


@pytest.mark.parametrize("suffix", [".txt", ".jsonl", ".csv", ".parquet"])
def test_a_file_that_changed_and_kept_its_time_is_read_again(write, suffix, tmp_path):
    for text in ("first", "other"):
        file = write(
            f"a{suffix}",
            {".jsonl": f'{{"text": "{text}"}}\n', ".csv": f"text\n{text}\n"}.get(suffix, text),
        )
        if suffix == ".parquet":
            datasets.Dataset.from_dict({"text": [text]}).to_parquet(file)
        os.utime(file, (1e9, 1e9))
        assert texts([file]) == [text]
        if suffix in (".parquet", ".csv"):
            assert read_table(file)["text"][:] == [text]


def test_read_table(write, tmp_path):
    """Ids, dates and words such as NA stay text; JSON may have values of any kinds; and what is loaded is taken."""
    table = read_table(write("a.csv", "id,date,text\n007,2021-01-05,NA\n08,,two\n"))
    assert table[:] == {"id": ["007", "08"], "date": ["2021-01-05", ""], "text": ["NA", "two"]}
    rows = [{"id": 1, "date": "2021-01-05", "label": "a"}, {"id": 2, "label": ["b", 3]}]
    for name in ("a.jsonl", "a.ndjson", "a.jsonlines"):
        table = read_table(
            write(name, "".join(json.dumps(row) + "\n\n" for row in rows)), ["label", "date"]
        )
        assert table[:] == {"label": ["a", ["b", 3]], "date": ["2021-01-05", None]}
    assert read_table(write("a.json", json.dumps(rows, indent=1)))["label"][:] == ["a", ["b", 3]]
    assert read_table(write("b.json", json.dumps(rows[0], indent=1)))[:] == {
        k: [x] for k, x in rows[0].items()
    }
    assert read_table(write("c.json", '["one", "two"]'))["text"][:] == ["one", "two"]
    loaded = datasets.Dataset.from_dict({"text": ["x"], "n": [1]})
    loaded.to_parquet(tmp_path / "a.parquet")
    for source in (loaded, datasets.DatasetDict(train=loaded), str(tmp_path / "a.parquet")):
        assert read_table(source, ["text"])[:] == {"text": ["x"]}
    for source, said in (
        ("missing.jsonl", "'missing.jsonl' does not exist"),
        (write("x.txt", "a"), "'x.txt' is not a table; use a file that ends in one of .json, "),
        (write("e.jsonl", "\n"), "'e.jsonl' has no rows"),
    ):
        with pytest.raises(ValueError, match=said):
            read_table(source)
    with pytest.raises(
        ValueError, match="train: 'a.csv' has no column 'label'; it has id, date, text"
    ):
        read_table("a.csv", ["text", "label"], field="train")


@pytest.mark.parametrize("name", ["corpus.ndjson", "CORPUS.JSONLINES"])
def test_json_lines_under_other_names(write, name):
    file = write(name, '{"id": 1, "url": "https://example.org", "text": "caf\\u00e9"}\n' * 2)
    assert texts([file]) == ["café"] * 2


def test_text_under_other_names_is_refused(write):
    for name in ("a.html", "notes.md", "d", "text.txt.gz"):
        with pytest.raises(
            ValueError, match=f"the suffix of '{name}' is unknown; use .txt, .*rename it to .txt"
        ):
            load_documents([write(name, "one")])


@pytest.mark.parametrize("streaming", [False, True])
def test_data_sets_that_are_loaded(streaming):
    loaded = datasets.Dataset.from_dict({"content": ["x", " ", "y"], "n": [1, 2, 3]})
    loaded = loaded.to_iterable_dataset() if streaming else loaded
    assert read(loaded, streaming) == ["x", "y"]


def test_text_column(write):
    write("one.csv", "sentence,label\nhello,1\n")
    write("two.csv", "title,body\nhello,world\n")
    assert texts(["one.csv"]) == ["hello"]
    assert texts(["two.csv"], text_column="body") == ["world"]
    with pytest.raises(
        ValueError, match="text_column: the column of the text is not clear.*title, body"
    ):
        load_documents(["two.csv"])
    with pytest.raises(
        ValueError, match="text_column: 'words' is not a column of strings.*sentence"
    ):
        load_documents(["one.csv"], text_column="words")


def test_folders_and_globs(write):
    for name in ("x/b.txt", "x/a.txt", "x/y/c.TXT", "x/notes.md", "x/.hidden/d.txt", "x/.e.txt"):
        write(name, os.path.basename(name))
    assert texts(["x"]) == ["a.txt", "b.txt", "c.TXT"]
    assert texts(["x/*.txt"]) == ["a.txt", "b.txt"]
    assert texts(["x/**/*.TXT"]) == ["c.TXT"]
    assert texts(["x/b.txt", "x/[a]*"]) == ["b.txt", "a.txt"]  # in the order given


# --- the Hub, without a network ---


def test_hub_names(monkeypatch):
    asked = []

    def load_dataset(*arguments, **keywords):
        asked.append((arguments, keywords))
        return datasets.Dataset.from_dict({"content": ["x", " "], "n": [1, 2]})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    for item, name, config in (("a/b", "a/b", None), ("a/b:c-1", "a/b", "c-1"), ("b", "b", None)):
        assert texts([item]) == ["x"]
        assert asked.pop() == ((name, config), {"split": "train", "streaming": False})


def test_brackets_in_file_names(write):
    """`datasets` would take "[2]" for one of its characters, and leave out what it does not find."""
    for name, text in (
        ("d [x]/a.txt", "one"),
        ("d [x]/b [2].txt", "two"),
        ("d [x]/b 2.txt", "three"),
    ):
        write(name, text)
    assert sorted(texts(["d [x]"])) == ["one", "three", "two"]
    assert texts(["d [x]/b [2].txt"]) == ["two"]
    assert read("d [x]/b [2].txt", True) == ["two"]


def test_hub_refuses(monkeypatch):
    def load_dataset(*arguments, **keywords):
        raise ConnectionError("cannot be reached\nlong story")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(
        ValueError, match=r"'owner/name' is neither a path nor .*Hub: cannot be reached$"
    ):
        load_documents(["owner/name"])


# --- the built-in corpus ---


def test_builtin_corpus(write, tmp_path, monkeypatch):
    """A library of one file, read again when the file has changed."""
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"stdlib": str(tmp_path)})
    monkeypatch.setattr("minibert.training.data.builtin_corpus._language_reference", lambda: [])
    write("module.py", '"""A docstring that is long enough to learn from it."""')
    dataset = load_documents()
    assert dataset["text"][:] == ["A docstring that is long enough to learn from it."]
    assert load_documents().cache_files == dataset.cache_files != []
    write("module.py", '"""Another docstring, and it is long enough as well."""')
    assert texts() == ["Another docstring, and it is long enough as well."]


# --- bad input, before anything is loaded ---


@pytest.mark.parametrize("item, message", [
    ("missing.txt", "'missing.txt' does not exist"), ("a/b/c", "'a/b/c' does not exist"),
    ("missing/*.txt", "there is no file in 'missing/"),
    ("nothing", "there is no file in 'nothing'; use names that end in one of .txt"),
    ("empty.txt", "all files of 'empty.txt' are empty"), ("broken.jsonl", "broken.jsonl, line 2: not JSON"),
    ("blank.txt", "all documents of 'blank.txt' are blank"),
])  # fmt: skip
def test_bad_data_is_refused(write, item, message):
    write("good.txt", "good")
    write("nothing/file.pdf", "no data")
    write("empty.txt", "")
    write("blank.txt", " \n\n\t\n")
    write("broken.jsonl", '{"text": "a"}\n{"text": \n')
    with pytest.raises(ValueError, match=message):
        load_documents(["good.txt", item])


def test_compressed_files_are_named(write, capsys):
    write("x/a.txt", "one")
    write("x/b.jsonl.gz", "two")
    assert texts(["x"]) == ["one"] and "1 compressed files ('b.jsonl.gz'" in capsys.readouterr().out


# --- splitting ---


def documents(count, repeats=1):
    return datasets.Dataset.from_dict({"text": [f"document {i // repeats}" for i in range(count)]})


def split(dataset, size, seed=0, **options):
    held_out = held_out_mask(dataset, size, seed, **options)
    texts = np.array(dataset["text"][:])
    return texts[~held_out].tolist(), texts[held_out].tolist()


@pytest.mark.parametrize(
    "size, expected", [(0.05, 5), (0.5, 50), (7, 7), (1, 1), (0.001, 1), (99, 99)]
)
def test_split(size, expected):
    train, validation = split(documents(100), size, seed=3)
    assert len(validation) == expected
    assert sorted(train + validation) == sorted(documents(100)["text"])


def test_equal_documents_stay_together():
    for seed in range(20):
        train, validation = split(documents(90, repeats=3), 0.2, seed)
        assert not set(train) & set(validation)
        assert 18 <= len(validation) < 18 + 3


def test_split_depends_on_text_and_seed_only():
    held_out = [set(split(documents(100), 0.1, seed)[1]) for seed in (1, 1, 2)]
    assert held_out[0] == held_out[1] != held_out[2]
    assert set(split(documents(100).shuffle(seed=5), 0.1, 1)[1]) == held_out[0]


def test_rows_of_tokens_are_held_out_by_their_ids():
    rows = datasets.Dataset.from_dict({"input_ids": [[i // 3, 7, i // 3] for i in range(90)]})
    held_out = held_out_mask(rows, 0.2, seed=1)
    sides = [
        {ids[0] for ids in rows.select(np.flatnonzero(side))["input_ids"]}
        for side in (held_out, ~held_out)
    ]
    assert not sides[0] & sides[1] and held_out.sum() == 3 * len(sides[0]) == 18


@pytest.mark.parametrize(
    "count, repeats, size",
    [
        (1, 1, 0.5),
        (10, 1, 10),
        (10, 10, 0.1),
        (4, 2, 3),
        (10, 1, 0),
        (10, 1, -2),
        (9, 1, math.inf),
        (9, 1, math.nan),
    ],
)
def test_bad_validation_size_is_refused(count, repeats, size):
    with pytest.raises(ValueError, match=f"validation_size.*{size}"):
        held_out_mask(documents(count, repeats), size)


# --- tokenizing ---


@pytest.fixture(scope="module")
def samples():
    return [
        "The first document, in English.",
        "Ένα δεύτερο κείμενο.",
        "a" * 30 + " b" * 700,
        "日本語",
        "🙂 ok",
    ]


@pytest.fixture(scope="module", params=["wordpiece", "bpe", "unigram"])
def tokenizer(request, samples):
    size = {"wordpiece": 110, "bpe": 300, "unigram": 300}[request.param]
    return train_tokenizer(
        samples * 20, request.param, vocab_size=size, model_max_length=16, show_progress=False
    )


def test_tokenize_documents_matches_the_tokenizer(tokenizer, samples, write):
    write("samples.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in samples))
    dataset = load_documents(["samples.jsonl"])
    expected = tokenizer(samples, add_special_tokens=False)["input_ids"]
    tokenizer(
        samples, truncation=True, max_length=4, padding=True
    )  # leaves the backend cutting and padding
    for num_proc in (None, 2):
        tokenized = tokenize_documents(dataset, tokenizer, num_proc)
        assert (
            tokenized.column_names == ["input_ids"]
            and tokenized.features["input_ids"].feature.dtype == "uint16"
        )
        assert tokenized["input_ids"][:] == expected
    assert (
        tokenizer.backend_tokenizer.truncation["max_length"] == 4
    )  # the user's tokenizer is left as it was


def test_special_tokens_in_a_text_are_text(tokenizer):
    dataset = datasets.Dataset.from_dict({"text": ["mask [MASK] pad [PAD] [SEP]", "plain"]})
    tokenized = tokenize_documents(dataset, tokenizer)["input_ids"][:]
    special = {
        tokenizer.pad_token_id,
        tokenizer.cls_token_id,
        tokenizer.sep_token_id,
        tokenizer.mask_token_id,
    }
    assert not special & set(tokenized[0])
    assert (
        tokenizer.mask_token_id in tokenizer("mask [MASK]")["input_ids"]
    )  # as the text would have been read


def test_token_cache_does_not_depend_on_earlier_calls(tokenizer, samples, write):
    write("samples.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in samples))
    dataset = load_documents(["samples.jsonl"])
    first = tokenize_documents(dataset, tokenizer)
    tokenizer(samples, truncation=True, max_length=7, padding="max_length")
    assert (
        first.cache_files
        and tokenize_documents(dataset, tokenizer).cache_files == first.cache_files
    )
    other = train_tokenizer(samples * 20, vocab_size=100, show_progress=False)
    assert tokenize_documents(dataset, other).cache_files != first.cache_files
