"""Tables as people send them: every cell is read as it was meant, or the file and the line are named."""

import json
import os
import re

import datasets
import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import minibert
from minibert.training.data.cell_types import to_number, with_numbers
from minibert.training.data.corpus import Corpus
from minibert.training.data.csv_and_json import read_records
from minibert.training.data.documents import load_documents, load_sources
from minibert.training.data.sources import find_files, load_hub
from minibert.training.data.tables import as_dataset, from_records, read_table, sources_of
from minibert.training.data.text_files import ReadError, read_text
from minibert.training.embeddings.reading.documents import read_documents
from minibert.training.finetuning.reading.splits import load_splits

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture
def write(tmp_path):
    """Write a file and give its name back."""

    def write(name, content, encoding="utf-8"):
        path = tmp_path / name
        if isinstance(content, str):
            content = content.encode(encoding)
        path.write_bytes(content)
        return str(path)

    return write


class TestConll:
    def test_columns_of_germeval(self, write):
        """A number, the word, its tag, the tag of a nested entity; comments before sentences."""
        first = "1\tTroia\tB-OTH\tB-LOC\n2\tin\tO\tO\n3\tKöln\tB-LOC\tO\n"
        second = "1\tAnna\tB-PER\tO\n2\tlacht\tO\tO\n"
        comment = "#\thttp://example.org [2009-10-17]\n"
        rows = read_table(write("a.tsv", f"{comment}{first}\n{comment}{second}")).to_list()
        assert rows == [
            {
                "tokens": ["Troia", "in", "Köln"],
                "ner_tags": ["B-OTH", "O", "B-LOC"],
                "nested_ner_tags": ["B-LOC", "O", "O"],
            },
            {
                "tokens": ["Anna", "lacht"],
                "ner_tags": ["B-PER", "O"],
                "nested_ner_tags": ["O", "O"],
            },
        ]

    @pytest.mark.parametrize(
        ("text", "names"),
        [
            ("1 Anna B-PER\n2 sang O\n", {"tokens", "ner_tags"}),
            ("0 Anna NNP B-PER\n1 sang VBD O\n", {"tokens", "pos_tags", "ner_tags"}),
            ("1 Anna x NNP B-PER\n2 sang y VBD O\n", {"tokens", "ner_tags"}),
        ],
    )
    def test_words_behind_their_numbers(self, write, text, names):
        (row,) = read_table(write("a.conll", text)).to_list()
        assert row["tokens"] == ["Anna", "sang"] and row["ner_tags"] == ["B-PER", "O"]
        assert set(row) == names

    def test_words_that_are_numbers(self, write):
        """The first column holds words if it does not count those of every sentence."""
        (first, second) = read_table(write("a.conll", "1 CD O\n2 CD O\n\n2 CD O\n"))["tokens"]
        assert first == ["1", "2"] and second == ["2"]

    @pytest.mark.parametrize(
        "text",
        [
            "#Berlin\tB-LOC\nis\tO\n\n#Paris\tB-LOC\nis\tO\n",
            "#Berlin B-LOC\nis O\n\n#Paris B-LOC\nis O\n",
            "#Berlin HASH\nis VERB\n\n#Paris NOUN\nis VERB\n",
            "# sent 1\n#Berlin B-LOC\nis O\n\n# a comment\n#\n#Paris B-LOC\nis O\n",
            "#id 7\n#Berlin B-LOC\nis O\n\n#id 8\n#Paris B-LOC\nis O\n",
            "# id\t7\n#Berlin\tB-LOC\nis\tO\n\n# id\t8\n#Paris\tB-LOC\nis\tO\n",
        ],
    )
    def test_words_that_begin_as_comments_do(self, write, text):
        rows = read_table(write("a.conll", text))["tokens"]
        assert rows[:] == [["#Berlin", "is"], ["#Paris", "is"]]

    def test_other_bytes_than_utf8(self, write):
        file = write("a.conll", "Anna B-PER\nKöln B-LOC\n", "latin-1")
        with pytest.raises(ReadError, match=r"a\.conll' is not UTF-8 text: line 2: "):
            read_table(file)


class TestCsv:
    @pytest.mark.parametrize(
        "first", ["O&#039;Connor; sons; nice", '"nice; warm; quiet"', "a\tb\tc"]
    )
    def test_marks_in_texts_are_no_separators(self, write, first):
        file = write("a.csv", f"{first},good\n" + "a text,bad\n" * 5)
        row = read_table(file, header=["text", "label"])[0]
        assert row == {"text": first.strip('"'), "label": "good"}

    def test_marks_in_names_are_no_separators(self, write):
        (row,) = read_table(write("a.csv", '"name; or title; of it",label\nx,good\n')).to_list()
        assert row == {"name; or title; of it": "x", "label": "good"}

    def test_spreadsheets_with_decimal_commas(self, write):
        rows = read_table(write("a.csv", "id;price\n1;2,5\n2;3,5\n")).to_list()
        assert rows == [{"id": "1", "price": "2,5"}, {"id": "2", "price": "3,5"}]

    @pytest.mark.parametrize(
        "header", ["text,label", "Text,Label", " TEXT ,x", "sentence,label", "review,sentiment"]
    )
    def test_names_for_a_file_with_a_header(self, write, header):
        file = write("a.csv", f"{header}\n" + "good it is,good\nbad it is,bad\n" * 20)
        with pytest.raises(
            ReadError, match="the first row of .* is a header .*leave --columns out"
        ):
            read_table(file, header=["text", "label"])

    def test_a_first_row_that_alone_has_no_number(self, write):
        file = write("a.csv", "comment on it,value\n" + "a text,4\nanother text,2\n" * 3)
        with pytest.raises(ReadError, match="is a header .'comment on it', 'value'."):
            read_table(file, header=["text", "label"])

    def test_a_first_row_that_may_be_a_header(self, write, capsys):
        rows = "".join(f"text {i},{('good', 'bad')[i % 2]}\n" for i in range(20))
        assert (
            len(read_table(write("a.csv", f"words,mood\n{rows}"), header=["text", "label"])) == 21
        )
        assert "'mood' in the first row of" in capsys.readouterr().out
        read_table(write("b.csv", rows), header=["text", "label"])
        assert "first row" not in capsys.readouterr().out

    def test_many_columns_are_converted_together(self, monkeypatch):
        """One by one, each would copy the list of all columns."""
        texts = {f"n{i}": ["1", str(i), ""] for i in range(300)}
        texts |= {"text": ["a", "b", "c"], "code": ["01", "02", "03"], "blank": [""] * 3}
        table = datasets.Dataset.from_dict(texts)
        for name in ("add_column", "remove_columns"):
            original = getattr(datasets.Dataset, name)
            calls = []
            counted = lambda *a, _f=original, _c=calls, **k: _c.append(1) or _f(*a, **k)  # noqa: E731
            monkeypatch.setattr(datasets.Dataset, name, counted)
            (converted,) = with_numbers([table])
            assert len(calls) <= 1
        assert converted.column_names == table.column_names
        assert converted["n7"][:] == [1, 7, None] and converted["code"][:] == ["01", "02", "03"]
        assert converted["text"][:] == ["a", "b", "c"] and converted["blank"][:] == [""] * 3

    def test_numbers_are_settled_over_all_parts(self):
        parts = [{"a": ["1", "2"], "b": ["1"] * 2}, {"a": ["x"], "b": ["1.5"]}, {"c": ["3"]}]
        first, second, third = with_numbers([datasets.Dataset.from_dict(part) for part in parts])
        assert first[:] == {"a": ["1", "2"], "b": [1.0, 1.0]}
        assert second[:] == {"a": ["x"], "b": [1.5]} and third[:] == {"c": [3]}


class TestParquet:
    @pytest.mark.parametrize(
        "values",
        [
            pa.array(["one", "two"], pa.string_view()),
            pa.array(["one", "two"], pa.large_string()),
            pa.array(["one", "two"]).dictionary_encode(),
        ],
    )
    @pytest.mark.parametrize("streaming", [False, True])
    def test_texts_that_are_stored_in_other_ways(self, tmp_path, values, streaming):
        file = str(tmp_path / "a.parquet")
        pq.write_table(pa.table({"text": values, "n": [1, 2]}), file)
        assert read_table(file)["text"][:] == ["one", "two"]
        (rows,) = load_sources([file], streaming=streaming)
        assert [row["text"] for row in rows] == ["one", "two"]

    def test_lists_that_are_stored_in_other_ways(self, tmp_path):
        file = str(tmp_path / "a.parquet")
        words = pa.array([["one"], ["two", "three"]], pa.list_(pa.string_view()))
        pq.write_table(pa.table({"tokens": words}), file)
        assert read_table(file)["tokens"][:] == [["one"], ["two", "three"]]

    def test_categories_of_pandas(self, tmp_path):
        frame = pandas.DataFrame({"label": pandas.Categorical(["a", "b", "a"])})
        frame.to_parquet(tmp_path / "a.parquet")
        assert read_table(tmp_path / "a.parquet")["label"][:] == ["a", "b", "a"]

    @pytest.mark.parametrize("empty", ["0", "2"])
    @pytest.mark.parametrize("streaming", [False, True])
    def test_a_shard_without_any_text(self, tmp_path, empty, streaming):
        pq.write_table(pa.table({"text": pa.nulls(3)}), tmp_path / f"{empty}.parquet")
        pq.write_table(pa.table({"text": ["one", "two"]}), tmp_path / "1.parquet")
        (rows,) = load_sources([str(tmp_path)], streaming=streaming)
        assert [row["text"] for row in rows] == ["one", "two"]

    def test_bytes_that_are_no_text(self, tmp_path):
        texts = pa.array([b"one", b"\xff"]).view(pa.string())
        pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
        with pytest.raises(ReadError, match=r"a\.parquet' cannot be read as parquet: .*UTF8"):
            read_table(tmp_path / "a.parquet")

    def test_a_file_that_is_cut_off(self, write):
        with pytest.raises(ReadError, match=r"a\.parquet' cannot be read as parquet"):
            load_documents([write("a.parquet", b"PAR1 and no more")])


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_encodings(write, encoding):
    """UTF-16 has a byte-order mark, or not."""
    row = {"text": "a café", "label": "0"}
    assert read_table(write("a.csv", "text,label\na café,0\n", encoding)).to_list() == [row]
    assert read_table(write("a.jsonl", json.dumps(row) + "\n", encoding)).to_list() == [row]
    assert read_table(write("a.json", json.dumps([row]), encoding)).to_list() == [row]
    words = read_table(write("a.conll", "a O\ncafé B-LOC\n", encoding))
    assert words["tokens"][:] == [["a", "café"]]
    assert read_text(write("a.txt", "a café", encoding)) == "a café"


class TestWhatCannotBeRead:
    """Each is refused by a ReadError with the file and the line, whoever reads it."""

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            ("[" * 100_000 + "]" * 100_000, "line 2: lists or objects are nested too deep"),
            ("[" * 400 + "1" + "]" * 400, "line 2: a value cannot be stored"),
            ("1" * 6000, "line 2: Exceeds the limit"),
            ("1" * 400, "line 2: a value cannot be stored"),
            ('{"a": [' + "1" * 20 + "]}", "line 2: a value cannot be stored"),
            (r'"half \ud83d"', r"line 2: '\\ud83d' is half of a character"),
            (r'{"a": "half \uDE00"}', r"line 2: '\\ude00' is half of a character"),
        ],
    )
    def test_json(self, write, value, message):
        lines = ['{"text": "a"}', f'{{"text": "b", "x": {value}}}', '{"text": "c"}']
        file = write("a.jsonl", "\n".join(lines))
        with pytest.raises(ReadError, match=re.escape("a.jsonl") + f", {message}"):
            read_table(file)
        with pytest.raises(ReadError, match=re.escape("a.jsonl") + f", {message}"):
            load_documents([file])

    @pytest.mark.parametrize("other", ['"a"', '["a"]', "[1, {}]"])
    def test_a_long_number_beside_values_of_other_types(self, write, other):
        """Such a column is stored as JSON, which would fail only when it is used."""
        lines = [f'{{"label": {other}}}', f'{{"label": {"1" * 400}}}', f'{{"label": {other}}}']
        with pytest.raises(ReadError, match="a.jsonl, line 2: a value cannot be stored"):
            read_table(write("a.jsonl", "\n".join(lines)))

    def test_whole_characters_are_read(self, write):
        assert read_table(write("a.jsonl", r'{"text": "\ud83d\ude00"}'))["text"][:] == ["😀"]

    def test_half_a_character_in_a_list(self, write):
        file = write("a.json", r'[{"text": "a"}, {"text": "\ud83d"}]')
        with pytest.raises(ReadError, match=r"a\.json, row 2: .* is half of a character"):
            list(read_records(file))

    def test_bytes(self, write):
        file = write("a.csv", "text,label\na,0\ncafé,1\n", "latin-1")
        with pytest.raises(
            ReadError, match=r"a\.csv' is not UTF-8 text: line 3: .*save it as UTF-8"
        ):
            read_table(file)
        with pytest.raises(ReadError, match=r"b\.csv' is not utf-16-le text: "):
            read_table(write("b.csv", "text\n".encode("utf-16") + b"\0"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_pipes_devices_and_broken_links(tmp_path, monkeypatch):
    """A pipe would wait forever; a name without a slash would be looked for on the Hub."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    os.mkfifo("pipe.jsonl")
    os.symlink("nowhere", "link")
    for name in ("pipe", "pipe.jsonl", "link", "/dev/null"):
        for read in (read_table, find_files, load_hub):
            with pytest.raises(
                ValueError, match=f"'{name}' (is not a regular file|does not exist)"
            ):
                read(name)


@pytest.mark.parametrize(
    ("cell", "number"), [("2.5", 2.5), (3, 3.0), (10**400, None), ("1" * 400, None), ("inf", None)]
)
def test_numbers_without_end_are_none(cell, number):
    assert (to_number(cell) == number) if number else (to_number(cell) != to_number(cell))


def test_rows_of_several_types():
    rows = [{"a": 1}, {"a": "x", "b": [1]}]
    assert from_records(rows)[:] == {"a": [1, "x"], "b": [None, [1]]}


# --- rows in memory ---

ROWS = [{"text": "one", "label": "a", "n": 1}, {"text": None, "label": "b", "n": 2}]


def test_a_frame_and_dictionaries_are_the_same_table_as_a_data_set():
    frame = pandas.DataFrame(ROWS, index=[7, 3])
    frame["label"] = frame["label"].astype("category")
    expected = datasets.Dataset.from_list(ROWS)
    for data in (frame, ROWS, tuple(ROWS)):
        table = as_dataset(data)
        assert table.features == expected.features and table[:] == expected[:]
    for data in ("path.csv", ["a.csv", "b.csv"], expected, [], None):
        assert as_dataset(data) is data
    sources = sources_of([frame, "path.csv", ROWS])
    assert [type(source) for source in sources] == [datasets.Dataset, str, datasets.Dataset]
    assert [len(source) for source in sources_of(ROWS)] == [2]


@pytest.mark.parametrize("data", [pandas.DataFrame({"a": [object()]}), [{"a": 1}, 3]])
def test_rows_that_are_no_table_are_refused(data):
    with pytest.raises(ValueError, match="^train: the rows cannot be made a table: "):
        as_dataset(data, "train")


def test_several_splits_are_no_table(tmp_path):
    table = datasets.Dataset.from_list(ROWS)
    splits = datasets.DatasetDict(train=table, test=table)
    message = "a DatasetDict with the splits 'train', 'test'; give one of them"
    calls = {
        "text": lambda: minibert.embed(splits, model=str(tmp_path)),
        "data": lambda: read_documents([splits]),
        "train": lambda: load_splits(None, train=splits),
    }
    for name, call in calls.items():
        with pytest.raises(ValueError, match=f"^{name}: {message}"):
            call()
    with pytest.raises(ValueError, match=f"^data: {message}"):
        minibert.predict(str(tmp_path), splits)


def test_a_corpus_takes_rows_in_memory():
    frame = pandas.DataFrame(ROWS * 3)
    for data in (frame, ROWS * 3, [ROWS, ROWS * 2]):
        corpus = Corpus(data, text_column="text")
        assert all(isinstance(entry, datasets.Dataset) for entry in corpus.data)
        assert load_documents(corpus.data, text_column="text")["text"][:] == ["one"] * 3
    assert Corpus.from_options(corpus, {}) is corpus
    with pytest.raises(ValueError, match="^sample_by: data is a Corpus"):
        Corpus.from_options(corpus, {"sample_by": "line"})
