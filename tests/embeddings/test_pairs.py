"""Tables of pairs, triples and scores."""

import pytest
from datasets import ClassLabel, Dataset, Features, Value
from helpers import write_rows

from minibert.training.data import tables
from minibert.training.embeddings import evaluate
from minibert.training.embeddings.reading.negatives import with_negatives
from minibert.training.embeddings.reading.pairs import read_pairs
from minibert.training.embeddings.reading.validation_pairs import split_pairs


def columns(first, second, third=None, label=None) -> dict[str, list]:
    """Columns of pairs, those that are given."""
    given = dict(first=first, second=second, third=third, label=label)
    return {name: column for name, column in given.items() if column is not None}


def test_pairs_are_guessed_by_their_columns(tmp_path):
    pairs = write_rows(
        tmp_path / "pairs.jsonl",
        [dict(id=1, query="a", positive="b"), dict(query="c", positive="d")],
    )
    assert read_pairs([pairs, pairs]).to_dict() == columns(["a", "c"] * 2, ["b", "d"] * 2)
    triples = write_rows(
        tmp_path / "triples.jsonl", [dict(anchor="a", positive="b", negative="n", score=1)]
    )
    assert read_pairs([triples]).to_dict() == columns(["a"], ["b"], ["n"])
    scored = tmp_path / "scored.tsv"
    scored.write_text("score\tsentence1\tsentence2\n5\ta\tb\n2.5\tc\td\n")
    assert read_pairs([str(scored)]).to_dict() == columns(["a", "c"], ["b", "d"], None, [1.0, 0.5])
    assert read_pairs([str(scored)], ["sentence2", "sentence1"]).to_dict() == columns(
        ["b", "d"], ["a", "c"]
    )
    scored.write_text("a\tb\tgold\nx\ty\t\nz\tw\t2.5\n")  # a score, though the first is missing
    with pytest.raises(ValueError, match="row 1: gold is nan; use a number"):
        read_pairs([str(scored)], ["a", "b", "gold"])
    scored.write_text("a\tb\tgold\nx\ty\t5\nz\tw\t2.5\n")  # a column of any name, its numbers text
    assert read_pairs([str(scored)], ["a", "b", "gold"]).to_dict() == columns(
        ["x", "z"], ["y", "w"], None, [1.0, 0.5]
    )
    triples = write_rows(
        tmp_path / "triples.jsonl", [dict(query="when", positive="1984", negative="1985")]
    )
    assert read_pairs([triples]).to_dict() == columns(["when"], ["1984"], ["1985"])


def test_bad_pairs(tmp_path):
    path = write_rows(
        tmp_path / "x.jsonl", [dict(query="a", positive="b"), dict(query="a", positive=" ")]
    )
    for columns, message in [
        (None, "x.jsonl, row 2: positive=' ' is not text"),
        (["query", "answer"], "answer"),
        (["query"], "columns: query: name two texts"),
    ]:
        with pytest.raises(ValueError, match=message):
            read_pairs([path], columns)
    files = [write_rows(tmp_path / "5.jsonl", [dict(sentence1="a", sentence2="b", score=5)])]
    unrelated = write_rows(tmp_path / "0.jsonl", [dict(sentence1="a", sentence2="b", score=0)])
    assert read_pairs([files[0], unrelated])["label"][:] == [1.0, 0.0]
    with pytest.raises(ValueError, match="cannot be guessed from a, b of"):
        read_pairs([write_rows(tmp_path / "y.jsonl", [dict(a="1", b="2")])])
    for score in (-1, "inf", None):
        with pytest.raises(ValueError, match="row 1: score is .*; use a number"):
            read_pairs(
                [write_rows(tmp_path / "z.jsonl", [dict(query="a", positive="b", score=score)])]
            )
    with pytest.raises(ValueError, match="with the same kinds of columns"):
        read_pairs([files[0], write_rows(tmp_path / "z.jsonl", [dict(query="a", positive="b")])])


def test_rows_of_one_query_are_held_out_together(tmp_path):
    pairs = [dict(query=f"q{i // 3}", positive=f"p{i}") for i in range(60)]
    data = write_rows(tmp_path / "pairs.jsonl", pairs)

    def split(validation_size, seed):
        return split_pairs(data, (), None, validation_size, seed)

    train, held_out = split(0.25, seed=0)
    assert (
        len(train) == 45
        and len(held_out) == 15
        and not set(train["first"]) & set(held_out["first"])
    )
    rows = [(row["first"], row["second"]) for part in (train, held_out) for row in part]
    assert sorted(rows) == sorted((pair["query"], pair["positive"]) for pair in pairs)
    assert list(split(0.25, seed=1)[1]["first"]) != list(held_out["first"])
    with pytest.raises(ValueError, match="holds out 20 of 20 texts; use a size"):
        split(20, seed=0)


def test_splits_of_the_hub(monkeypatch):
    """What is measured, or chosen by, is no training split."""
    asked = []

    def load_hub(name, field, split):
        asked.append((field, split))
        return Dataset.from_dict(
            {"sentence1": ["a", "b"] * 9, "sentence2": ["c", "d"] * 9, "score": [1.0, 0.5] * 9}
        )

    monkeypatch.setattr(tables, "load_hub", load_hub)
    split_pairs(["owner/pairs"], (), "owner/pairs", 0.05, 0)
    assert asked == [("data", "train"), ("validation", "validation")]
    with pytest.raises((OSError, ValueError)):  # there is no model
        evaluate.evaluate_embed("owner/pairs", model="./none")
    assert asked[2:] == [("data", "test")]


def test_data_sets_in_memory():
    rows = Dataset.from_dict({"query": ["a", "b"], "positive": ["c", "d"]})
    assert read_pairs(rows).to_dict() == columns(["a", "b"], ["c", "d"])
    assert len(read_pairs([rows, rows])) == 4
    with pytest.raises(ValueError, match="the data set, row 2: positive=None is not text"):
        read_pairs(Dataset.from_dict({"query": ["a", "b"], "positive": ["c", None]}))


@pytest.mark.parametrize(
    "row",
    [
        dict(query="q", positive="p", negative_1="m", negative_2="n"),
        dict(query="q", positive="p", negative=["m", "n"]),
        dict(anchor="q", positive="p", hard_negative1="m", hard_negative2="n", hard_negative3=""),
        dict(query="q", positive="p", negative="m", negatives=["n", None]),
    ],
)
def test_every_negative_is_read(tmp_path, row):
    pairs = read_pairs(write_rows(tmp_path / "x.jsonl", [row]))
    assert pairs.to_dict() == columns(["q", "q"], ["p", "p"], ["m", "n"])
    named = read_pairs(write_rows(tmp_path / "x.jsonl", [row]), list(row))
    assert named.to_dict() == pairs.to_dict()
    labelled = with_negatives(pairs, ["p"], 3)
    rows = list(zip(labelled["first"], labelled["second"], labelled["label"]))
    assert rows == [("q", "p", 1.0), ("q", "m", 0.0), ("q", "n", 0.0)]


def test_a_negative_stands_once_and_is_no_passage_of_its_query():
    triples = [
        ("q", "p", "n"),
        ("q", "other", "n"),
        ("q", "p", "other"),
        ("q", "p", "q"),
        ("r", "other", "n"),
    ]
    first, second, third = zip(*triples)
    pairs = Dataset.from_dict({"first": first, "second": second, "third": third})
    labelled = with_negatives(pairs, [], 3)
    rows = list(zip(labelled["first"], labelled["second"], labelled["label"]))
    positives = [("q", "p", 1.0), ("q", "other", 1.0), ("r", "other", 1.0)]
    assert rows == [*positives, ("q", "n", 0.0), ("r", "n", 0.0)]


def test_a_row_without_a_negative_is_refused(tmp_path):
    rows = [
        dict(query="q", positive="p", negative=["n"]),
        dict(query="q", positive="p", negative=[]),
    ]
    with pytest.raises(ValueError, match="row 2: negative: there is no negative"):
        read_pairs(write_rows(tmp_path / "x.jsonl", rows))
    table = Dataset.from_dict({"query": ["q"], "positive": ["p"], "negative_1": [3]})
    with pytest.raises(ValueError, match="row 1: negative_1=3 is not text"):
        read_pairs(table)


def classes(names, first="sentence1", second="sentence2"):
    texts = [f"text {i}" for i in range(len(names))]
    features = Features(
        {first: Value("string"), second: Value("string"), "label": ClassLabel(names=names)}
    )
    rows = {first: texts, second: texts, "label": list(range(len(names)))}
    return Dataset.from_dict(rows, features=features)


@pytest.mark.parametrize(
    "names",
    [["entailment", "neutral", "contradiction"], ["entailment", "not_entailment"], ["a", "b"]],
)
def test_classes_are_no_scores(names):
    """Else a contradiction would be taught as most alike."""
    for given in ((), ["sentence1", "sentence2", "label"]):
        with pytest.raises(ValueError, match=f"has the classes {', '.join(names)}, which are no "):
            read_pairs(classes(names), given)


@pytest.mark.parametrize(
    ("names", "scores"),
    [
        (["0", "1", "2"], [0, 0.5, 1]),
        (["not_duplicate", "duplicate"], [0, 1]),
        (["no", "yes"], [0, 1]),
    ],
)
def test_classes_that_are_scores(names, scores):
    assert read_pairs(classes(names))["label"][:] == scores


def test_numbers_of_inference_are_no_scores():
    rows = {"premise": ["a", "b", "c"], "hypothesis": ["d", "e", "f"], "label": [0, 1, 2]}
    data = Dataset.from_dict(rows)
    with pytest.raises(ValueError, match="looks like the classes of inference .* give --columns "):
        read_pairs(data)
    assert read_pairs(data, ["premise", "hypothesis", "label"])["label"][:] == [0, 0.5, 1]
    assert read_pairs(Dataset.from_dict(rows | {"label": [0.5, 1.0, 5.0]}))["label"][:] == [
        0.1,
        0.2,
        1,
    ]


def test_a_column_that_is_not_there_is_named():
    data = Dataset.from_dict({"a": ["x"], "b": ["y"]})
    with pytest.raises(
        ValueError, match="columns: 'the data set' has no column 'score'; it has a, b"
    ):
        read_pairs(data, ["a", "b", "score"])
